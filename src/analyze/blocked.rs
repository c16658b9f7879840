//! Summarizes off-CPU time and time in reclaim by stack.

pub mod idle;
mod ratio_estimator;

use std::collections::BTreeMap;

use super::stack_quality::ending;
use super::stacks::{addresses_of, escape, fold_as, who};
use crate::symbols::{Addresses, Names, UNKNOWN};
use crate::wire::blocked::{Lost, NO_USER, RECLAIM_SHIFT, RawBlocked, Totals, WaitScope, Waits};
use crate::wire::pagecache::ReclaimKind;
use crate::wire::stacks::{KERNEL_FAILED, Sample, USER_FAILED, is_of_ring};
use ratio_estimator::RatioEstimator;

/// The time of one interval by stack, with symbol names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BlockedSummary {
    pub followed: WaitScope,
    pub duration_ns: u64,
    pub cpus: u32,
    /// `comm;frame;...;leaf` to ns; kernel frames end in `_[k]`. Where waits were sampled it is an estimate, scaled up
    /// to the exact count of each process. Time without any stack is under [`NO_STACK`].
    pub folded: BTreeMap<String, u64>,
    /// The samples with stacks, before scaling.
    pub sampled: Waits,
    /// Half-width of the 95 % confidence interval of a stack's share, in percent of all time, for the worst set of
    /// stacks; None where nothing was sampled.
    pub half_width: Option<f64>,
    /// The part of `folded` that is scaled to the count of several processes together.
    pub pooled_ns: u64,
    /// The part of `folded` without any stack.
    pub no_stack_ns: u64,
    /// Exact counts.
    pub totals: Totals,
    pub lost: Lost,
    /// Waits below this many ns were sampled at some time; 0: all have their stack.
    pub threshold_ns: u64,
    /// Waits below this many ns were excluded from stacks.
    pub least_ns: u64,
    /// The parts of `folded` whose user stack was not taken, and whose user stack could not be read although there is
    /// one.
    pub no_user_ns: u64,
    pub user_failed_ns: u64,
    /// The part of `folded` without a kernel stack, which every wait should have.
    pub kernel_failed_ns: u64,
    /// Number of distinct stacks, as addresses.
    pub distinct: usize,
}

impl BlockedSummary {
    /// Whether the values are estimates.
    pub fn is_sampled(&self) -> bool {
        self.threshold_ns > 0
    }

    /// Adds time of the sample's thread without a stack.
    fn add_bare(&mut self, sample: &Sample, names: &Names, leader: Option<&[u8]>, ns: u64) {
        let mut key = String::new();
        for label in who(sample, names, leader) {
            escape(&label, &mut key);
            key.push(';');
        }
        *self.folded.entry(key + NO_STACK).or_default() += ns;
        self.no_stack_ns += ns;
    }
}

/// The addresses to symbolize.
pub fn addresses(raw: &RawBlocked) -> Addresses {
    addresses_of(raw.samples.keys(), &raw.maps)
}

/// Folds the stacks of an interval.
pub fn summarize(raw: &RawBlocked, names: &Names) -> BlockedSummary {
    let mut summary = BlockedSummary {
        followed: raw.followed,
        duration_ns: raw.duration_ns,
        cpus: raw.cpus,
        sampled: raw.sampled(),
        totals: raw.totals.clone(),
        lost: raw.lost,
        threshold_ns: raw.threshold_ns,
        least_ns: raw.least_ns,
        distinct: raw.samples.len(),
        ..BlockedSummary::default()
    };
    let leaders = leaders(raw);
    let strata = RatioEstimator::of(raw);
    for (sample, waits) in &raw.samples {
        let ns = strata.scaled(sample.pid, waits);
        let Some(own) = woken(sample, names) else {
            summary.add_bare(sample, names, leaders.get(&sample.pid).copied(), ns);
            continue;
        };
        let key = fold_as(&own, names, leaders.get(&sample.pid).copied());
        *summary.folded.entry(key).or_default() += ns;
        let is = |flag| sample.flags & flag != 0;
        let mut add = |sum: fn(&mut BlockedSummary) -> &mut u64, to| {
            if to {
                *sum(&mut summary) += ns;
            }
        };
        add(|all| &mut all.no_user_ns, is(NO_USER));
        add(|all| &mut all.user_failed_ns, is(USER_FAILED));
        add(|all| &mut all.kernel_failed_ns, is(KERNEL_FAILED));
    }
    for ((pid, comm), ns) in strata.without_stack(raw) {
        let sample = Sample::new(pid, 0, 0, &comm, &[], &[]);
        summary.add_bare(&sample, names, leaders.get(&pid).copied(), ns);
    }
    summary.pooled_ns = strata.pooled_ns();
    summary.half_width = strata.half_width(raw, summary.folded.values().sum());
    summary
}

/// Names of processes that own an io_uring: as at the end of the interval, or else that of the thread that waited
/// longest.
fn leaders(raw: &RawBlocked) -> BTreeMap<u32, &[u8]> {
    let mut all: BTreeMap<u32, (u64, &[u8])> = BTreeMap::new();
    for ((pid, comm), sum) in raw.processes.iter().filter(|((_, comm), _)| !is_of_ring(comm)) {
        let longest = all.entry(*pid).or_insert((sum.ns, comm));
        if longest.0 < sum.ns {
            *longest = (sum.ns, comm);
        }
    }
    let waited = all.into_iter().map(|(pid, (_, comm))| (pid, comm));
    waited.chain(raw.leaders.iter().map(|(pid, comm)| (*pid, comm.as_slice()))).collect()
}

/// Time of stacks whose user frames are cut within a program.
pub fn cut_ns(raw: &RawBlocked, names: &Names) -> u64 {
    let is_cut = |sample: &Sample| !sample.user().is_empty() && ending(sample, names).0.is_cut();
    let strata = RatioEstimator::of(raw);
    let cut = raw.samples.iter().filter(|(sample, _)| is_cut(sample));
    cut.map(|(sample, waits)| strata.scaled(sample.pid, waits)).sum()
}

/// Leaf that stands for a missing stack.
pub const NO_STACK: &str = "[stack not taken]";

/// Removes the frames that the probe itself added: then the leaf is the probed function, or for reclaim the function
/// that reclaims.
pub fn watched(sample: &Sample, names: &Names) -> Sample {
    let lookups: Vec<u64> = sample.kernel_lookups().collect();
    let is_kswapd = reclaim_of(sample) == Some(ReclaimKind::Kswapd);
    let way_out = |address: &&u64| is_kswapd && WAY_OUT.contains(&kernel_name(**address, names));
    let begin = behind_event(&lookups, names).unwrap_or(0);
    let own = begin + lookups[begin..].iter().take_while(way_out).count();
    without_top(sample, &lookups, own)
}

/// Same as [`watched`] for a wait: the leaf is the scheduler function. None: the stack was not taken where the task
/// slept.
pub fn woken(sample: &Sample, names: &Names) -> Option<Sample> {
    let lookups: Vec<u64> = sample.kernel_lookups().collect();
    let is = |address: &u64, test: fn(&str) -> bool| test(kernel_name(*address, names));
    let Some(begin) = behind_event(&lookups, names) else { return Some(sample.clone()) };
    let behind = &lookups[begin..];
    // The task has just got its CPU, and was interrupted on its way out of the scheduler, perhaps by other interrupts
    // before.
    if !behind.iter().take(2).any(|address| is(address, |name| name.ends_with(INTERRUPT))) {
        return Some(watched(sample, names));
    }
    let scheduler = behind.iter().position(|address| is(address, |name| name.starts_with("__schedule")))?;
    Some(without_top(sample, &lookups, begin + scheduler))
}

fn kernel_name(address: u64, names: &Names) -> &str {
    names.kernel(address).first().map_or(UNKNOWN, String::as_str)
}

/// Index of the first frame below a tracepoint that ran our program. Frames above the program have no name once it is
/// unloaded, so the last tracepoint frame counts.
fn behind_event(lookups: &[u64], names: &Names) -> Option<usize> {
    let is_events = |address: &u64| is_event(kernel_name(*address, names));
    lookups.iter().take(MOST_WATCHING).rposition(is_events).map(|at| at + 1)
}

fn without_top(sample: &Sample, lookups: &[u64], top: usize) -> Sample {
    // Without names the frames cannot be told apart.
    if top == 0 || top == lookups.len() {
        return sample.clone();
    }
    let mut kernel = sample.kernel()[top..].to_vec();
    // This frame is the leaf now, and a leaf is looked up at its exact address.
    kernel[0] = lookups[top];
    sample.with_kernel(&kernel)
}

/// The interrupt in which stacks of waits are taken: `__sysvec_irq_work`, however it was entered.
const INTERRUPT: &str = "sysvec_irq_work";

/// Maximum number of frames between a tracepoint and the call that takes the stack: the program, a trampoline and the
/// tracepoint's own.
const MOST_WATCHING: usize = 8;

/// Whether a function runs the programs of a tracepoint.
fn is_event(name: &str) -> bool {
    ["bpf_trace_run", "__bpf_trace_", "__traceiter_"].iter().any(|prefix| name.starts_with(prefix))
}

/// Functions that kswapd has reached when the end of its run is detected.
const WAY_OUT: [&str; 2] = ["kswapd_try_to_sleep", "prepare_kswapd_sleep"];

/// The kind of reclaim; None for a wait.
pub fn reclaim_of(sample: &Sample) -> Option<ReclaimKind> {
    let number = (sample.flags >> RECLAIM_SHIFT) as usize;
    number.checked_sub(1).and_then(|number| ReclaimKind::ALL.get(number).copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::blocked::{IO, Sum};

    fn names(all: &[(u64, &str)]) -> Names {
        let mut names = Names::default();
        for (address, name) in all {
            names.kernel.insert(*address, vec![(*name).to_string()]);
        }
        names
    }

    fn waits(ns: u64, sure_ns: u64) -> Waits {
        Waits { waits: 256, ns, sure_ns, squares: 0, samples: 1 }
    }

    #[test]
    fn what_watches_is_cut_off_up_to_the_event() {
        let names = names(&[
            (10, "__stop_something_else"),
            (19, "bpf_trace_run4"),
            (29, "__traceiter_sched_switch"),
            (39, "__schedule"),
            (49, "schedule"),
        ]);
        let sample = Sample::new(1, 0, 0, b"x", &[10, 20, 30, 40, 50], &[]);
        let cut = watched(&sample, &names);
        // The new leaf was a return address, and is still looked up inside its call.
        assert_eq!(cut.kernel_lookups().collect::<Vec<_>>(), [39, 49]);
        assert_eq!(fold_as(&cut, &names, None), "x;schedule_[k];__schedule_[k]");
    }

    #[test]
    fn the_interrupt_that_it_was_taken_in_is_cut_off_up_to_the_scheduler() {
        let names = names(&[
            (19, "bpf_trace_run2"),
            (29, "__traceiter_irq_work_entry"),
            (39, "__sysvec_irq_work"),
            (49, "asm_sysvec_irq_work"),
            (59, "finish_task_switch.isra.0"),
            (69, "__schedule"),
            (79, "schedule"),
            (89, "handle_softirqs"),
            (99, "asm_sysvec_call_function_single"),
            (109, "fred_sysvec_irq_work"),
            (119, "asm_fred_entrypoint_kernel"),
        ]);
        let cut = |kernel: &[u64]| {
            let sample = Sample::new(1, 0, 0, b"x", kernel, &[]);
            woken(&sample, &names).map(|own| fold_as(&own, &names, None))
        };
        let whole = Some("x;schedule_[k];__schedule_[k]".to_string());
        assert_eq!(cut(&[10, 20, 30, 40, 50, 60, 70, 80]), whole);
        // Another interrupt came first, and this one came in its softirq.
        assert_eq!(cut(&[10, 20, 30, 40, 50, 90, 1, 2, 3, 4, 5, 100, 60, 70, 80]), whole);
        // With FRED.
        assert_eq!(cut(&[10, 20, 30, 40, 110, 1, 120, 60, 70, 80]), whole);
        // The interrupt was late, and the task has gone on.
        assert_eq!(cut(&[10, 20, 30, 40, 50, 90, 80]), None);
        assert_eq!(cut(&[10, 20, 30, 40, 50]), None);
        // No tracepoint frame.
        assert_eq!(cut(&[59, 70]), Some("x;__schedule_[k];finish_task_switch.isra.0_[k]".to_string()));
    }

    #[test]
    fn a_stack_that_was_taken_at_the_end_is_left_as_it_is() {
        let names = names(&[(10, "__schedule"), (19, "schedule")]);
        let sample = Sample::new(1, 0, NO_USER, b"x", &[10, 20], &[]);
        assert_eq!(watched(&sample, &names), sample);
        assert_eq!(fold_as(&sample, &names, None), "x;[user stack not taken];schedule_[k];__schedule_[k]");
    }

    #[test]
    fn a_stack_without_names_stays_whole() {
        let sample = Sample::new(1, 0, 0, b"x", &[10, 20], &[]);
        assert_eq!(watched(&sample, &Names::default()), sample);
    }

    #[test]
    fn a_run_of_kswapd_ends_where_it_worked_and_not_on_its_way_to_sleep() {
        let names =
            names(&[(10, "bpf_trace_run1"), (19, "kswapd_try_to_sleep"), (29, "kswapd"), (39, "kthread")]);
        let flags = (1 << RECLAIM_SHIFT) | crate::wire::stacks::KTHREAD;
        let sample = Sample::new(1, 0, flags, b"kswapd0", &[10, 20, 30, 40], &[]);
        assert_eq!(reclaim_of(&sample), Some(ReclaimKind::Kswapd));
        assert_eq!(fold_as(&watched(&sample, &names), &names, None), "kswapd0;kthread_[k];kswapd_[k]");
        assert_eq!(reclaim_of(&Sample::new(1, 0, IO, b"x", &[], &[])), None);
    }

    #[test]
    fn estimates_are_scaled_to_what_was_counted_of_a_process_and_the_rest_is_not() {
        let mut raw = RawBlocked::default();
        let sample = |pid, comm: &[u8], ip| Sample::new(pid, 0, 0, comm, &[ip], &[]);
        raw.samples.insert(sample(1, b"a", 10), waits(1000, 1000));
        raw.samples.insert(sample(1, b"a", 20), waits(300, 0));
        raw.samples.insert(sample(1, b"b", 20), waits(100, 0));
        raw.samples.insert(sample(2, b"c", 20), waits(50, 50));
        raw.processes.insert((1, b"a".to_vec()), Sum { count: 9, ns: 1200 });
        raw.processes.insert((2, b"c".to_vec()), Sum { count: 2, ns: 80 });
        raw.processes.insert((3, b"d;e".to_vec()), Sum { count: 1, ns: 7 });
        raw.totals.all = Sum { count: 12, ns: 1287 };
        let summary = summarize(&raw, &names(&[(10, "long"), (20, "short")]));
        let folded = |key: &str| summary.folded.get(key).copied();
        assert_eq!((folded("a;long_[k]"), summary.pooled_ns), (Some(1000), 0));
        assert_eq!((folded("a;short_[k]"), folded("b;short_[k]")), (Some(150), Some(50)));
        assert_eq!((folded("c;short_[k]"), folded("c;[stack not taken]")), (Some(50), Some(30)));
        assert_eq!(folded("d\\x3be;[stack not taken]"), Some(7));
        assert_eq!(summary.folded.values().sum::<u64>(), 1287);
        assert_eq!(summary.no_stack_ns, 37);
    }

    #[test]
    fn what_waits_for_a_ring_stands_with_its_process() {
        let mut raw = RawBlocked::default();
        for (pid, comm) in [(1, &b"iou-wrk-7"[..]), (2, b"iou-sqp-2"), (3, b"iou-wrk-3")] {
            raw.samples
                .insert(Sample::new(pid, 0, crate::wire::stacks::KTHREAD, comm, &[10], &[]), waits(5, 5));
            raw.processes.insert((pid, comm.to_vec()), Sum { count: 1, ns: 5 });
        }
        raw.processes.insert((1, b"pool".to_vec()), Sum { count: 1, ns: 3 });
        let bare = waits(2, 2);
        raw.bare.insert((1, b"iou-wrk-9".to_vec()), bare);
        raw.processes.insert((2, b"pool".to_vec()), Sum { count: 1, ns: 3 });
        raw.leaders.insert(2, b"fio".to_vec());
        let keys: Vec<String> = summarize(&raw, &names(&[(10, "f")])).folded.into_keys().collect();
        assert!(keys.contains(&"pool;[io_uring workers];f_[k]".to_string()), "{keys:?}");
        assert!(keys.contains(&"fio;[io_uring sqpoll];f_[k]".to_string()), "{keys:?}");
        assert!(keys.contains(&"pool;[io_uring workers];[stack not taken]".to_string()), "{keys:?}");
        assert!(keys.contains(&"iou-wrk-3;f_[k]".to_string()), "nothing is known of its process: {keys:?}");
    }

    #[test]
    fn a_wait_without_a_stack_stands_with_its_process_and_shares_what_was_counted() {
        let mut raw = RawBlocked::default();
        raw.samples.insert(Sample::new(1, 0, 0, b"a", &[10], &[]), waits(300, 0));
        raw.bare.insert((1, b"b;".to_vec()), waits(100, 0));
        raw.processes.insert((1, b"a".to_vec()), Sum { count: 9, ns: 200 });
        let summary = summarize(&raw, &names(&[(10, "f")]));
        assert_eq!(summary.folded["a;f_[k]"], 150);
        assert_eq!((summary.folded["b\\x3b;[stack not taken]"], summary.no_stack_ns), (50, 50));
        assert_eq!(summary.sampled.ns, 300);
    }

    /// A hundred waits that are each scaled up to 1 ms, half of them with either stack: like a hundred coin flips, the
    /// share has a standard deviation of 5 points.
    #[test]
    fn a_share_is_known_as_well_as_its_waits_are_many() {
        let mut raw = RawBlocked::default();
        // One in a million was sampled, so practically all of it is by chance.
        let squares = 50 * 1_000_000 * 1_000_000 / (1 << 20);
        let fifty = Waits { waits: 256, ns: 50_000_000, sure_ns: 0, squares, samples: 50 };
        for ip in [10, 20] {
            raw.samples.insert(Sample::new(1, 0, 0, b"a", &[ip], &[]), fifty);
        }
        raw.processes.insert((1, b"a".to_vec()), Sum { count: 9, ns: 60_000_000 });
        let half = |raw: &RawBlocked| summarize(raw, &Names::default()).half_width.unwrap();
        assert!((half(&raw) - 1.96 * 5.0).abs() < 0.01, "{}", half(&raw));
        // The same amount again, without sampling.
        raw.samples.insert(Sample::new(2, 0, 0, b"b", &[10], &[]), waits(60_000_000, 60_000_000));
        raw.processes.insert((2, b"b".to_vec()), Sum { count: 9, ns: 60_000_000 });
        assert!((half(&raw) - 1.96 * 2.5).abs() < 0.01, "{}", half(&raw));
        // A hundred samples of one stack: another stack with a share of 3 % may have been missed.
        raw.samples.clear();
        let all = Waits { ns: 100_000_000, squares: 2 * squares, ..fifty };
        raw.samples.insert(Sample::new(1, 0, 0, b"a", &[10], &[]), all);
        raw.processes.retain(|(pid, _), _| *pid == 1);
        assert!((half(&raw) - 3.0).abs() < 0.01, "{}", half(&raw));
        raw.samples.clear();
        raw.samples.insert(Sample::new(1, 0, 0, b"a", &[10], &[]), waits(9, 9));
        assert_eq!(summarize(&raw, &Names::default()).half_width, None);
    }

    /// A thousand processes with one wait each, half of them with either stack: the share is as uncertain as in a
    /// thousand coin flips, although each process by itself has only one stack.
    #[test]
    fn processes_of_few_waits_scatter_together() {
        let mut raw = RawBlocked::default();
        let one = Waits { waits: 256, ns: 1 << 20, sure_ns: 0, squares: 1 << 20, samples: 1 };
        for pid in 1..=1000 {
            raw.samples.insert(Sample::new(pid, 0, 0, b"a", &[u64::from(10 + pid % 2)], &[]), one);
            raw.processes.insert((pid, b"a".to_vec()), Sum { count: 1, ns: 1 << 20 });
        }
        let half = summarize(&raw, &Names::default()).half_width.unwrap();
        assert!((half - 100.0 * 1.96 * (0.25f64 / 1000.0).sqrt()).abs() < 0.01, "{half}");
    }

    /// One wait per process: 2,000 of 1 ms and 100 of 20 ms. Forty of each have a stack that is scaled up to 50 ms. If
    /// each were scaled to its own process it would shrink to its own wait, and the short waits would be lost.
    #[test]
    fn processes_of_one_wait_each_are_scaled_together() {
        const MS: u64 = 1_000_000;
        let mut raw = RawBlocked::default();
        let stack =
            Waits { waits: 256, ns: 50 * MS, sure_ns: 0, squares: (50 * MS).pow(2) >> 20, samples: 1 };
        for pid in 1..=2_100 {
            let (ns, ip, every) = if pid <= 2_000 { (MS, 10, 50) } else { (20 * MS, 20, 2) };
            raw.processes.insert((pid, b"a".to_vec()), Sum { count: 1, ns });
            if pid % every == 0 && (pid <= 2_000 || pid <= 2_080) {
                raw.samples.insert(Sample::new(pid, 0, 0, b"a", &[ip], &[]), stack);
            }
        }
        let summary = summarize(&raw, &names(&[(10, "short"), (20, "long")]));
        assert_eq!(summary.folded["a;short_[k]"], 2_000 * MS);
        assert_eq!(summary.folded["a;long_[k]"], 2_000 * MS);
        assert_eq!(summary.pooled_ns, 4_000 * MS, "no process has its own");
        assert_eq!((summary.folded.len(), summary.no_stack_ns), (2, 0));
        // Eighty coin flips.
        let half = summary.half_width.unwrap();
        assert!((half - 196.0 * (0.25f64 / 80.0).sqrt()).abs() < 0.1, "{half}");
    }

    /// A process that found no room in the table is counted under its last name, while its stacks have an earlier one:
    /// the sum must still be the exact count.
    #[test]
    fn time_that_was_counted_under_another_name_is_not_drawn_twice() {
        let mut raw = RawBlocked::default();
        raw.samples.insert(Sample::new(7, 0, 0, b"sh", &[10], &[]), waits(500, 0));
        raw.samples.insert(Sample::new(8, 0, 0, b"sh", &[10], &[]), waits(300, 300));
        raw.samples.insert(Sample::new(9, 0, 0, b"ls", &[20], &[]), waits(700, 0));
        raw.processes.insert((0, b"ls".to_vec()), Sum { count: 9, ns: 1_500 });
        let summary = summarize(&raw, &names(&[(10, "f"), (20, "g")]));
        assert_eq!(summary.folded.values().sum::<u64>(), 1_500, "{:?}", summary.folded);
        assert_eq!(summary.no_stack_ns, 0);
    }

    /// Nine seconds of processes without room in the table must not inflate a stack of one millisecond.
    #[test]
    fn what_found_no_room_is_not_given_to_others() {
        let mut raw = RawBlocked::default();
        raw.samples.insert(Sample::new(1, 0, 0, b"a", &[10], &[]), waits(1_000, 0));
        raw.bare.insert((1, b"a".to_vec()), waits(9_000_000, 9_000_000));
        raw.processes.insert((1, b"a".to_vec()), Sum { count: 9, ns: 9_001_000 });
        let summary = summarize(&raw, &names(&[(10, "f")]));
        assert_eq!((summary.folded["a;f_[k]"], summary.no_stack_ns), (1_000, 9_000_000));
    }

    #[test]
    fn without_a_count_the_stacks_stand_as_they_are() {
        let mut raw = RawBlocked::default();
        raw.samples.insert(Sample::new(1, 0, IO, b"a", &[10], &[]), waits(300, 0));
        let summary = summarize(&raw, &names(&[(10, "f")]));
        assert_eq!(summary.folded["a;f_[k]"], 300);
    }
}
