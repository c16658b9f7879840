//! The rules of the diagnosis: one pure function per finding id, listed in [`TABLE`], which also decides the answer.

mod cache_too_small;
#[cfg(test)]
mod cases;
mod command;
mod complete_cpu_bound;
mod coverage;
mod cpu;
mod cpu_contention;
mod cpu_quota;
mod cpu_steal;
mod deallocated_read;
mod device_bound;
mod device_outlier;
mod direct_reclaim;
mod driver_queue_full;
mod facts;
#[cfg(test)]
pub(crate) mod fixtures;
mod flush_bound;
mod foreign_io;
mod generator_bound;
mod groups;
mod inconclusive;
pub mod inputs;
mod interrupt_bound;
mod interrupt_imbalance;
mod interrupts;
mod largest_stage;
mod link_bound;
mod link_degraded;
mod links;
mod lock_contention;
pub mod measured;
mod neighbours;
mod not_enough_io;
mod notices;
mod numa_remote;
mod numbers;
mod offered_load;
mod pagecache;
mod pagecache_storm;
mod polling_not_active;
mod polling_would_help;
#[cfg(test)]
pub(crate) mod properties;
mod queue_depth_too_low;
mod rates;
mod readahead;
mod regime;
mod root_complex_shared;
mod scheduler_overhead;
mod split_io;
mod stacked_device;
mod submit_cpu_bound;
pub mod summary;
mod swapping;
mod table;
mod tag_starvation;
mod thermal_throttle;
mod throttled;
mod volume_cap;
mod worker_punt;

pub use deallocated_read::EMPTY_SHARE;
pub use groups::{GROUPS, Group};
pub use notices::NOTICED;
pub use table::TABLE;

use crate::analyze::cpu::CpuSummary;
use crate::analyze::interrupts::InterruptSummary;
use crate::analyze::latency::LatencySummary;
use crate::analyze::rates::DeviceRates;
use crate::analyze::stacks::{CpuClass, ProfileSummary};
use crate::envelope::Envelope;
use crate::experiment::Curve;
use crate::findings::{Diagnosis, Finding, Severity};
use crate::host::Host;
use crate::host::cpu_quota::CpuQuota;
use crate::load::{LoadSummary, Scaling};
use crate::merge::SaturatingSum as _;
use crate::rules::inputs::{Locks, PageCache, ThreadsInput};

/// The inputs of the rules.
#[derive(Debug, Clone, Copy)]
pub struct Summaries<'a> {
    pub envelope: &'a Envelope,
    pub host: &'a Host,
    /// For the devices that the run is about.
    pub latency: &'a LatencySummary,
    /// The measurement covers a command and its children.
    pub command: bool,
    /// Rate samples of active devices; empty where none were taken.
    pub rates: &'a [DeviceRates],
    /// None: interrupts were not counted.
    pub interrupts: Option<&'a InterruptSummary>,
    /// None: the load was not ours.
    pub load: Option<&'a LoadSummary>,
    /// None: other drives were not driven in parallel with the load's.
    pub scaling: Option<&'a Scaling>,
    /// None: the load was not ours, or was not repeated at other depths.
    pub experiment: Option<&'a Curve>,
    /// CPU time by the kernel's accounting, and hardware counters. None: not measured.
    pub cpu: Option<&'a CpuSummary>,
    /// The cgroups with a CPU quota.
    pub quotas: &'a [CpuQuota],
    /// None: no profile could be taken.
    pub profile: Option<&'a ProfileSummary>,
    /// None: locks were not traced.
    pub locks: Option<&'a Locks>,
    /// None: the page cache was not traced.
    pub pagecache: Option<&'a PageCache>,
    /// None: threads were not sampled.
    pub threads: Option<&'a ThreadsInput>,
}

/// A finding's computation and its page in `biopsy explain`.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub id: &'static str,
    /// The first line summarizes the finding. Then: how it is computed, when it is wrong, what to do.
    pub page: &'static str,
    pub find: fn(&Summaries<'_>) -> Vec<Finding>,
}

impl Rule {
    /// The page's first line.
    pub fn summary(&self) -> &'static str {
        self.page.lines().next().unwrap_or("")
    }
}

/// What a claim is about. A limit nearer to the application takes precedence: I/O that waits for it never reaches the
/// one farther away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The figures: they do not describe the device, or not the device alone.
    Figures,
    /// A configured limit: of a cgroup, a queue, a request size.
    Setting,
    /// The host: a CPU, a lock, reclaim, the scheduler.
    Host,
    /// The path between the host and the device.
    Link,
    Device,
    /// The number of I/Os in flight.
    Depth,
    /// Worth mentioning, but not a limit.
    Aside,
}

/// The page of an id.
pub fn explain(id: &str) -> Option<&'static str> {
    pages().find(|(known, _, _)| *known == id).map(|(_, _, page)| page)
}

/// Ids, first lines and pages: of findings, then of notices that only a load reports.
pub fn pages() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let rules = TABLE.iter().map(|(_, rule)| (rule.id, rule.summary(), rule.page));
    rules.chain(NOTICED.iter().map(|notice| (notice.id, notice.summary(), notice.page)))
}

/// Runs all rules. The first finding is the answer.
pub fn diagnose(s: &Summaries<'_>) -> Diagnosis {
    Diagnosis { findings: table::decide(s), not_examined: coverage::list(s) }
}

/// The number of I/Os that costs are divided by: those of the devices that the run is about.
pub fn ios(s: &Summaries<'_>) -> u64 {
    facts::device_views(s).iter().map(|p| p.ios).saturating_sum()
}

/// CPU time of one class per I/O; None without I/Os. It includes everything that ran on the machine, not only work for
/// the I/O.
pub fn ns_per_io(s: &Summaries<'_>, profile: &ProfileSummary, class: CpuClass) -> Option<f64> {
    let ios = ios(s);
    class_ns(s, profile, class).filter(|_| ios > 0).map(|ns| ns as f64 / ios as f64)
}

/// CPU time of a class in the interval, ns, by the samples.
///
/// `cpu-clock` is itself an interrupt and sees almost no others. With it, the timed handlers of the traced devices are
/// used for hard interrupts. None where these were not timed.
pub fn class_ns(s: &Summaries<'_>, profile: &ProfileSummary, class: CpuClass) -> Option<u64> {
    if class != CpuClass::Irq || !profile.is_blind_to_interrupts() {
        return profile.class_ns(class);
    }
    let interrupts = s.interrupts?;
    let timed: Vec<f64> = interrupts.devices.iter().filter_map(|device| device.hard_percent).collect();
    let percent: f64 = timed.iter().sum();
    (!timed.is_empty()).then(|| (percent / 100.0 * interrupts.duration_ns as f64).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::fixtures::Case;
    use super::*;
    use crate::analyze::interrupts::{DeviceInterrupts, InterruptSummary};
    use crate::analyze::stage::Stage;
    use crate::load;

    fn verdict(case: &Case) -> &'static str {
        diagnose(&case.summaries()).findings[0].id
    }

    /// cpu-clock sees almost no interrupts: the handlers' time is used instead, and None where it is unknown.
    #[test]
    fn hard_interrupts_are_never_those_that_cpu_clock_found() {
        let mut case = Case::new(1_000, 1);
        let per_io = |case: &Case| {
            let s = case.summaries();
            ns_per_io(&s, s.profile.unwrap(), CpuClass::Irq)
        };
        let by_samples = per_io(&case);
        assert!(by_samples.is_some_and(|ns| ns > 0.0));
        case.profile.as_mut().unwrap().sampler_note = Some("blind".into());
        assert_eq!(per_io(&case), None);
        let device = |hard_percent| DeviceInterrupts { hard_percent, ..DeviceInterrupts::default() };
        let mut seen = InterruptSummary { duration_ns: 1_000_000_000, ..InterruptSummary::default() };
        seen.devices = vec![device(None)];
        case.interrupts = Some(seen.clone());
        assert_eq!(per_io(&case), None, "none was timed");
        seen.devices = vec![device(Some(1.5)), device(Some(0.5)), device(None)];
        case.interrupts = Some(seen);
        // 2 % of a second over 1,000 I/Os.
        assert_eq!(per_io(&case), Some(20_000.0));
    }

    #[test]
    fn the_verdicts_that_an_engineer_would_give() {
        assert_eq!(verdict(&Case::new(15_000, 32)), "device-bound");
        assert_eq!(verdict(&Case::new(12_500, 1)), "queue-depth-too-low");

        let mut tmpfs_loop = Case::new(400_000, 32);
        tmpfs_loop.disk().driver = Some("loop".into());
        tmpfs_loop.worker(15, 80);
        assert_eq!(verdict(&tmpfs_loop), "submit-cpu-bound");
        tmpfs_loop.worker(70, 25);
        assert_eq!(verdict(&tmpfs_loop), "generator-bound");

        let mut split = Case::new(8_000, 32);
        let load = split.load.as_mut().unwrap();
        load.job.set_bs(1 << 20);
        load.jobs[0].transfers[0].operations = 1_000;
        load.jobs[0].transfers[0].bytes = 1_000 << 20;
        split.read().bytes = 1_000 << 20;
        split.latency.devices[0].splits = 7_000;
        split.disk().max_request_bytes = 128 << 10;
        assert_eq!(verdict(&split), "split-io");

        // Nearly all of its time is device time, which includes the link.
        let mut link = Case::new(15_000, 32);
        link.at_link(3.938e9, Some(256));
        link.reads(3.4e9);
        assert_eq!(verdict(&link), "device-bound");
        link.reads(3.5e9);
        let found = diagnose(&link.summaries()).findings;
        assert_eq!(found.iter().map(|f| f.id).collect::<Vec<_>>(), ["link-bound"]);

        // A link that could be faster is named before its saturation.
        let hop = &mut link.disk().hops[0].link;
        (hop.max_speed_gts, hop.port_max_speed_gts) = (Some(16.0), Some(16.0));
        let found = diagnose(&link.summaries()).findings;
        let found: Vec<_> = found.iter().map(|one| (one.id, one.severity)).collect();
        assert_eq!(found, [("link-degraded", Severity::Warning), ("link-bound", Severity::Note)]);

        let mut unwritten = Case::new(1_040_000, 32);
        unwritten.worker(30, 69);
        unwritten.latency.devices.clear();
        assert_eq!(verdict(&unwritten), "deallocated-read");
    }

    /// The experiment decides, whatever the device's share.
    #[test]
    fn twice_the_depth_tells_a_limit_from_a_latency() {
        let mut case = Case::new(60_000, 32);
        case.stage(Stage::Queue, 180_000, 1_000);
        case.stage(Stage::Device, 353_000, 60_000);
        assert_eq!(verdict(&case), "largest-stage", "two thirds of the time are the device's");
        let first = |case: &Case| diagnose(&case.summaries()).findings.remove(0);
        case.at_twice_the_depth(1.01);
        let sure = first(&case);
        assert_eq!(sure.id, "device-bound");
        assert!(sure.sentence.contains("twice the depth gave +1 % IOPS (+"), "{}", sure.sentence);
        case.at_twice_the_depth(1.12);
        let near = first(&case);
        assert_eq!(near.id, "device-bound");
        assert!(near.confidence < sure.confidence && near.sentence.contains("near its limit"), "{near:?}");
        case.at_twice_the_depth(1.8);
        let latency = first(&case);
        assert_eq!(latency.id, "queue-depth-too-low");
        let worth = latency.worth.unwrap();
        assert!((1.79..1.81).contains(&worth.low) && worth.high >= worth.low, "{worth:?}");
        // Something above the device is saturated: that is the limit, not the device.
        case.at_twice_the_depth(1.01);
        case.worker(20, 79);
        let found: Vec<&str> =
            diagnose(&case.summaries()).findings.iter().map(|finding| finding.id).collect();
        assert_eq!(found, ["submit-cpu-bound"]);
    }

    /// An experiment that was cut short counts as none.
    #[test]
    fn two_blocks_decide_nothing() {
        let mut case = Case::new(15_000, 32);
        let before = diagnose(&case.summaries()).findings;
        case.at_twice_the_depth(1.8);
        case.experiment.as_mut().unwrap().arms.iter_mut().for_each(|tried| tried.blocks.truncate(2));
        assert_eq!(diagnose(&case.summaries()).findings, before);
    }

    #[test]
    fn something_is_always_said() {
        let mut case = Case::new(100_000, 32);
        case.latency.devices.clear();
        case.load = None;
        case.profile = None;
        let diagnosis = diagnose(&case.summaries());
        assert_eq!(diagnosis.findings.len(), 1);
        assert_eq!(
            (diagnosis.findings[0].id, diagnosis.findings[0].severity),
            ("inconclusive", Severity::Warning)
        );
        assert!(!diagnosis.not_examined.is_empty());
    }

    #[test]
    fn doubt_is_the_verdict_only_where_nothing_else_stands() {
        let mut case = Case::new(100_000, 32);
        case.latency.devices[0].negative = 1;
        let found = diagnose(&case.summaries()).findings;
        assert_eq!((found.len(), found[0].id, found[0].severity), (1, "inconclusive", Severity::Warning));
        case.worker(20, 79);
        let found = diagnose(&case.summaries()).findings;
        assert_eq!((found[0].id, found[1].id), ("submit-cpu-bound", "inconclusive"));
    }

    #[test]
    fn a_little_loss_is_said_and_lowers_the_confidence() {
        let mut case = Case::new(100_000, 32);
        let sure = diagnose(&case.summaries()).findings[0].confidence;
        case.latency.devices[0].lost_ios = 100;
        assert_eq!(diagnose(&case.summaries()).findings[0].confidence, sure, "0.0999 %");
        case.latency.devices[0].lost_ios = 101;
        let found = diagnose(&case.summaries()).findings;
        assert_eq!((found[0].id, found[0].confidence), ("device-bound", sure * facts::NOTED_CONFIDENCE));
        assert!(found[0].evidence.iter().any(|line| line.contains("101 of 100,101")));
    }

    #[test]
    fn what_reads_nothing_is_the_verdict_before_what_rests_on_it() {
        let mut case = Case::new(15_000, 32);
        let sure = diagnose(&case.summaries()).findings[0].confidence;
        let sampled = load::BlockCounts { samples: 64, zeros: 64, ..load::BlockCounts::default() };
        case.load.as_mut().unwrap().drive.sampled = Some(sampled);
        let found = diagnose(&case.summaries()).findings;
        assert_eq!((found[0].id, found[1].id), ("deallocated-read", "device-bound"));
        assert_eq!(found[1].confidence, sure * deallocated_read::CONFIDENCE_LEFT);
        assert!(found[1].evidence.iter().any(|line| line.contains("100 % of the sampled blocks")));
        // A note does not reduce the confidence of others.
        let few = load::BlockCounts { samples: 64, zeros: 5, ..load::BlockCounts::default() };
        case.load.as_mut().unwrap().drive.sampled = Some(few);
        let found = diagnose(&case.summaries()).findings;
        assert_eq!(
            (found[0].id, found[0].confidence, found[1].id),
            ("device-bound", sure, "deallocated-read")
        );
    }

    #[test]
    fn every_page_has_its_parts_and_every_id_its_rule() {
        for (id, summary, page) in pages() {
            let parts = ["How it is computed", "When it is wrong", "What to do"];
            let places = parts.map(|part| page.find(&format!("\n\n{part}\n")));
            assert!(
                places.iter().all(Option::is_some) && places.is_sorted(),
                "{id}: {places:?} of {parts:?}"
            );
            assert!(page.lines().count() <= 40, "{id}: {} lines", page.lines().count());
            let long = page.lines().find(|line| line.chars().count() > 100);
            assert_eq!(long, None, "{id}");
            // It must be self-contained in the list.
            assert!(explain(id) == Some(page) && summary.ends_with('.'), "{id}: {summary}");
        }
        assert!(explain("no-such-finding").is_none());
    }

    #[test]
    fn the_pages_state_the_thresholds_of_the_code() {
        let states = |id: &str, values: &[f64]| {
            let page = explain(id).unwrap();
            for value in values {
                let (percent, plain) = (format!("{:.0} %", value * 100.0), format!("{value}"));
                // Not as the tail of another number.
                let has = |text: &str| {
                    let before = |at: usize| page[..at].chars().next_back();
                    let is_part = |at| before(at).is_some_and(|c| c.is_ascii_digit() || ".,".contains(c));
                    page.match_indices(text).any(|(at, _)| !is_part(at))
                };
                assert!(has(&percent) || has(&plain), "{id} does not state {value}");
            }
        };
        use crate::analyze::cliff;
        let counts = [cliff::LEAST_BEFORE as f64, cliff::LEAST_BEHIND as f64];
        states("write-cliff", &[cliff::LEAST_DROP, cliff::LEAST_ERRORS, counts[0], counts[1]]);
        use deallocated_read as read;
        states("deallocated-read", &[read::READ_SHARE, read::EMPTY_SHARE, read::MOSTLY_SHARE]);
        states("deallocated-read", &[read::CONFIDENCE_LEFT, read::MIN_SAMPLES as f64, read::WHOLE_SHARE]);
        use root_complex_shared as shared;
        states("root-complex-shared", &[shared::TOGETHER, shared::BUSY, links::FULL]);
        states("split-io", &[split_io::FACTOR, split_io::FOREIGN_SHARE, split_io::PART_SHARE]);
        states("generator-bound", &[load::USER_SHARE, load::WORKER_SATURATED]);
        states("scheduler-overhead", &[scheduler_overhead::QUEUE_SHARE, scheduler_overhead::CPU_SHARE]);
        let worker = [load::WORKER_SATURATED, cpu::WORKER_BUSY, cpu::MACHINE_SATURATED, cpu::IO_SHARE];
        states("submit-cpu-bound", &worker);
        states("submit-cpu-bound", &[cpu::INTERRUPT_SHARE]);
        use queue_depth_too_low as depth;
        states(
            "queue-depth-too-low",
            &[
                facts::SHALLOW,
                depth::MODERATE,
                facts::QUEUEING_RATIO,
                depth::DEVICE_SHARE,
                depth::WORKER_IDLE,
                facts::BUSY,
            ],
        );
        use device_bound as device;
        states("device-bound", &[device::DEVICE_SHARE, facts::FULL, device::DEPTH_SHARE, interrupts::LIMIT]);
        let piled = interrupts::PILED_UP as f64;
        states("device-bound", &[piled]);
        use crate::experiment;
        states("device-bound", &[experiment::SATURATED, experiment::LATENCY_BOUND]);
        states("queue-depth-too-low", &[experiment::LATENCY_BOUND]);
        let timed = interrupts::MIN_TIMED as f64;
        states("interrupt-bound", &[interrupts::LIMIT, interrupt_bound::PILED_SHARE, piled, timed]);
        states("polling-not-active", &[polling_not_active::SOME, polling_not_active::MOST]);
        use interrupt_imbalance as uneven;
        states("interrupt-imbalance", &[uneven::FACTOR, uneven::SHARE, uneven::MATTERS, uneven::ACTIVE]);
        use polling_would_help as polling;
        states(
            "polling-would-help",
            &[polling::EACH, polling::SHARE, polling::MUCH, polling::POLLED, facts::SHALLOW],
        );
        use complete_cpu_bound as complete;
        let limits = [complete::COMPLETE_SHARE, interrupts::LIMIT, complete::IO_SHARE];
        states("complete-cpu-bound", &limits);
        use tag_starvation as tags;
        states("tag-starvation", &[tags::IN_A_BATCH, tags::FEW_REQUESTS, tags::IN_USE_IN_A_BATCH]);
        states("tag-starvation", &[tags::QUEUE_SHARE, tags::WAIT_SHARE, facts::FULL, facts::QUEUEING_RATIO]);
        states("link-bound", &[links::FULL]);
        states("volume-cap", &[volume_cap::ALONE]);
        states("link-degraded", &[link_degraded::LOADED]);
        states("numa-remote", &[numa_remote::SOME, numa_remote::MOST]);
        states("thermal-throttle", &[thermal_throttle::SLOWED]);
        states("stacked-device", &[stacked_device::COST]);
        use device_outlier as outlier;
        let limits = [outlier::FACTOR, outlier::BUSIER, outlier::IDLER, outlier::ALIKE, outlier::SIZES];
        states("device-outlier", &limits);
        assert!(explain("device-outlier").unwrap().contains(&format!("at least {} of", outlier::LEAST)));
        use foreign_io as foreign;
        states("foreign-io", &[facts::FOREIGN, foreign::MUCH, foreign::LEAST as f64]);
        states(
            "not-enough-io",
            &[facts::BUSY, not_enough_io::QUEUE_SHARE, not_enough_io::COMPUTES, not_enough_io::UNDER_WAY],
        );
        states(
            "throttled",
            &[throttled::NEAR, throttled::HELD_SHARE, throttled::HELD_IOS, throttled::WRITEBACK_SHARE],
        );
        let storm = [pagecache::SHARE, pagecache::KERNEL_FULL, pagecache::FREE, pagecache_storm::OF_WAITS];
        states("pagecache-storm", &storm);
        let page = explain("pagecache-storm").unwrap();
        for count in [pagecache::SCANNED, pagecache::NS_PER_PAGE].map(|value| value as u64) {
            assert!(page.contains(&crate::units::count(count)), "{count}");
        }
        assert!(page.contains(&format!("at\n    least {} thread", pagecache::THREADS)));
        assert!(page.contains(&format!("of {} samples", pagecache::SAMPLES)));
        assert!(page.contains(&format!("or {} times what it took", pagecache::TIMES_AS_MUCH)));
        let reclaims = direct_reclaim::LEAST as f64;
        states("direct-reclaim", &[direct_reclaim::SOME, direct_reclaim::MANY, reclaims]);
        use lock_contention as locks;
        states("lock-contention", &[locks::SPUN, locks::SPUN_IN_ALL, locks::ASLEEP, locks::LEAST as f64]);
        states("lock-contention", &[locks::OF_OPERATIONS, locks::IN_SUBMIT]);
        states("swapping", &[swapping::SOME, swapping::MOST]);
        states("cache-too-small", &[cache_too_small::SOME, cache_too_small::MOST, cache_too_small::EVICTED]);
        states("readahead", &[readahead::SOME, readahead::MOST, readahead::OF_READS, readahead::WASTED]);
        assert!(
            explain("readahead").unwrap().contains("At least 10,000 pages") && readahead::LEAST == 10_000
        );
        states("worker-punt", &[worker_punt::WORKERS, worker_punt::MOST, worker_punt::CPUS]);
        use driver_queue_full as driver;
        states("driver-queue-full", &[driver::REFUSED, facts::MIN_IOS as f64]);
        states("cpu-contention", &[cpu::MACHINE_SATURATED, cpu::IO_SHARE, cpu::IO_THREAD]);
        states("cpu-contention", &[cpu_contention::OF_ONE_CPU]);
        states("cpu-steal", &[cpu_steal::SOME, cpu_steal::FULL]);
        states("cpu-quota", &[cpu_quota::SOME, cpu_quota::LIMITING, cpu_quota::IO_SHARE]);
        states("largest-stage", &[largest_stage::SHARE, experiment::LATENCY_BOUND]);
        states("flush-bound", &[flush_bound::BUSY, flush_bound::OF_WRITES, facts::MIN_IOS as f64]);
        states("flush-bound", &[flush_bound::PER_WRITE, flush_bound::SERIAL, flush_bound::SERIAL_BUSY]);
        assert!(explain("submit-cpu-bound").unwrap().contains("see complete-cpu-bound"), "a rule of its own");
        assert!(explain("inconclusive").unwrap().contains(&format!("{} %", facts::MAX_LOSS * 100.0)));
    }
}
