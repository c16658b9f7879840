//! Tests of CPU time and cycles with literal readings.

use super::*;
use crate::host::cpu_counters::Count;
use crate::host::cpu_time::{CpuReading, Topology, parse_stat};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

/// An interval of one second between two texts of `/proc/stat`.
fn window(start: &str, end: &str) -> CpuWindow {
    let at = |at_ns, text| CpuReading { at_ns, ..parse_stat(text) };
    CpuWindow {
        start: at(SECOND, start),
        end: at(2 * SECOND, end),
        topology: Topology::default(),
        interrupts_timed: None,
        counters: Counters::default(),
    }
}

fn count(cpu: u32, event: CounterEvent, side: CounterMode, value: u64) -> Count {
    Count { cpu, event, side, value, enabled_ns: SECOND, running_ns: SECOND }
}

/// One busy CPU of 3.9 GHz, a fifth of its cycles in user mode.
fn at_3_9_ghz() -> CpuWindow {
    let mut window = window("cpu0 0 0 0 0 0 0 0 0 0 0\nctxt 0\n", "cpu0 20 0 60 0 0 5 15 0 0 0\nctxt 7518\n");
    window.topology.cores = vec![vec![0]];
    window.counters.cpus = vec![0];
    window.counters.counts = vec![
        count(0, CounterEvent::Cycles, CounterMode::User, 780_000_000),
        count(0, CounterEvent::Cycles, CounterMode::Kernel, 3_120_000_000),
        count(0, CounterEvent::Instructions, CounterMode::User, 1_000_000_000),
        count(0, CounterEvent::Instructions, CounterMode::Kernel, 1_847_000_000),
        count(0, CounterEvent::BackendStalls, CounterMode::Both, 1_957_800_000),
    ];
    window
}

fn profile(sampler: &str, classes: &[(CpuClass, u64)]) -> ProfileSummary {
    ProfileSummary {
        sampler: sampler.into(),
        classes: classes.iter().copied().collect(),
        ..ProfileSummary::default()
    }
}

#[test]
fn one_cpu_of_3_9_ghz_at_450k_a_second_is_8666_cycles_an_io() {
    let summary = summarize(&at_3_9_ghz());
    let per = per_io(&summary, 450_000);
    assert_eq!(per.cycles.map(f64::floor), Some(8_666.0));
    assert_eq!(per.core_cycles.map(|(low, high)| (low.floor(), high.floor())), Some((8_666.0, 8_666.0)));
    assert_eq!(per.instructions_per_cycle.map(|ipc| (ipc * 100.0).round()), Some(73.0));
    assert_eq!(per.backend_stalls.map(|share| (share * 1000.0).round()), Some(502.0));
    assert_eq!(per.frontend_stalls, None, "not counted is not zero");
    assert_eq!(per.context_switches, Some(7518.0 / 450_000.0));
    assert_eq!(per.wakeups, None);
    assert_eq!(summary.counted.counter.as_deref(), Some("cycles"));
    assert_eq!(per_io(&summary, 0), PerIo { context_switches: None, cycles: None, ..per_io(&summary, 0) });
}

#[test]
fn the_classes_cycles_add_up_to_all_of_them() {
    use CpuClass::*;
    let classes =
        [(User, 100), (System, 200), (IoWq, 50), (Irq, 50), (Softirq, 75), (Kthread, 25), (Idle, 500)];
    let (cpu, profile) = (summarize(&at_3_9_ghz()), profile("cpu-clock", &classes));
    let per = |class| cycles_per_io(&cpu, &profile, class, 450_000);
    // By the counter, not by samples; both give a fifth.
    assert_eq!(per(User).map(f64::floor), Some(1_733.0));
    assert_eq!(per(System).map(f64::floor), Some(3_466.0), "half of the kernel's 6,933");
    assert_eq!(per(IoWq), per(Irq));
    assert_eq!(per(Idle), None);
    let all: f64 = [User, System, IoWq, Irq, Softirq, Kthread].map(|class| per(class).unwrap()).iter().sum();
    assert!((all - 3.9e9 / 450_000.0).abs() < 1e-6, "{all}");
    assert_eq!(cycles_per_io(&cpu, &profile, System, 0), None);
}

#[test]
fn cycles_of_a_polling_idle_cpu_are_nobodys() {
    use CpuClass::*;
    let cpu = summarize(&at_3_9_ghz());
    let mut sampled = profile("cycles", &[(System, 300), (Idle, 700)]);
    assert_eq!(cycles_per_io(&cpu, &sampled, System, 1_000), Some(3_120_000.0));
    sampled.idle_seen = 100;
    assert_eq!(cycles_per_io(&cpu, &sampled, System, 1_000), Some(2_340_000.0));
}

#[test]
fn without_counters_time_is_known_and_cycles_are_named_as_missing() {
    let mut window = at_3_9_ghz();
    window.counters.counts = vec![count(0, CounterEvent::CpuClock, CounterMode::Both, SECOND)];
    window.counters.refused = vec![(CounterEvent::Cycles, "no PMU".into())];
    let (summary, profile) = (summarize(&window), profile("cpu-clock", &[(CpuClass::System, 1)]));
    assert_eq!(summary.counted.counter.as_deref(), Some("cpu-clock"));
    assert_eq!((summary.counted.clock_ns, summary.counted.cycles()), (Some(SECOND), None));
    let per = per_io(&summary, 450_000);
    assert_eq!((per.cycles, per.instructions_per_cycle, per.core_cycles), (None, None, None));
    assert_eq!(cycles_per_io(&summary, &profile, CpuClass::System, 450_000), None);
    let missing = summary.missing();
    let why = |part: &str| missing.iter().find(|m| m.part.as_deref() == Some(part)).map(|m| m.why.as_str());
    assert!(
        why("cycles").is_some_and(|why| why.contains("no PMU") && why.contains("cpu-clock")),
        "{missing:?}"
    );
    assert!(why("wakeups").is_some_and(|why| why.contains("schedstat")), "{missing:?}");
}

/// A multiplexed counter that ran a quarter of the time is scaled up and reported as such.
#[test]
fn counters_that_took_turns() {
    let mut window = at_3_9_ghz();
    let backend = window.counters.counts.last_mut().unwrap();
    (backend.value, backend.running_ns) = (100, SECOND / 4);
    let counted = summarize(&window).counted;
    assert_eq!((counted.backend_stalls, counted.counted_share), (Some(400), Some(0.25)));
    window.counters.counts.last_mut().unwrap().running_ns = 0;
    let summary = summarize(&window);
    assert_eq!((summary.counted.backend_stalls, summary.counted.counted_share), (None, Some(0.0)));
    assert!(summary.missing().iter().any(|m| m.part.as_deref() == Some("stalled-cycles-backend")));
    assert_eq!(extrapolated(u64::MAX, 2, 1), None, "no overflow");
}

#[test]
fn threads_of_a_core_share_its_cycles() {
    let idle = "cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\ncpu2 0 0 0 0 0 0 0 0\ncpu3 0 0 0 0 0 0 0 0\n";
    let mut window = window(idle, idle);
    window.topology = Topology {
        sockets: BTreeMap::from([(0, 0), (1, 1), (2, 0), (3, 1)]),
        cores: vec![vec![0, 2], vec![1, 3]],
    };
    window.counters.cpus = vec![0, 1, 2, 3];
    for (cpu, cycles) in [(0, 300), (1, 50), (2, 200), (3, 0)] {
        window.counters.counts.push(count(cpu, CounterEvent::Cycles, CounterMode::User, cycles));
        window.counters.counts.push(count(cpu, CounterEvent::Cycles, CounterMode::Kernel, 0));
    }
    let summary = summarize(&window);
    assert!(summary.smt());
    assert_eq!(summary.counted.core_cycles, Some((350, 550)));
    assert_eq!(
        summary.sockets.iter().map(|s| (s.socket, s.cycles)).collect::<Vec<_>>(),
        [(Some(0), Some(500)), (Some(1), Some(50))]
    );
    assert_eq!((summary.cores[0].socket, summary.cores[0].cycles), (Some(0), Some(500)));
    assert_eq!(summary.all.as_ref().map(|all| (all.socket, all.wall_ns)), Some((None, 4 * SECOND)));
    // Without one of the four the sum would be too small.
    window.counters.counts.pop();
    assert_eq!(summarize(&window).counted.cycles(), None);
}

#[test]
fn what_the_kernel_did_not_count_is_shown() {
    let summary = summarize(&window("cpu0 10 0 10 10 5 0 0 1 2 0\n", "cpu0 30 1 40 30 10 2 3 2 4 0\n"));
    let all = summary.all.unwrap();
    let ticks = |n: u64| n * TICK_NS;
    assert_eq!(all.times, [ticks(20), ticks(1), ticks(30), ticks(2), ticks(3), ticks(1), ticks(25)]);
    assert_eq!((all.iowait_ns, all.guest_ns), (Some(ticks(5)), Some(ticks(2))));
    assert_eq!((all.unaccounted_ns, all.error_ns), (180_000_000, 80_000_000));
    let shares = all.shares();
    assert_eq!(shares[7], ("unaccounted", 0.18));
    assert!((shares.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-12);
    // More than the wall time: negative, not clamped.
    let more = summarize(&window("cpu0 0 0 0 0 0 0 0 0\n", "cpu0 101 0 0 0 0 0 0 0\n"));
    assert_eq!(more.all.unwrap().unaccounted_ns, -10_000_000);
}

#[test]
fn a_cpu_that_came_went_or_ran_backwards_is_left_out_by_name() {
    let start = "cpu0 5 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\ncpu3 0 0 0 9 9 0 0 0\nctxt 10\n";
    let end = "cpu0 4 0 0 0 0 0 0 0\ncpu2 0 0 0 0 0 0 0 0\ncpu3 0 0 0 20 8 0 0 0\nctxt 9\n";
    let summary = summarize(&window(start, end));
    assert_eq!(summary.left_out.iter().map(|left| left.cpu).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(summary.left_out[0].why, "its counters in the kernel went backwards");
    let left = &summary.cpus[0];
    // iowait went back, but its sum with idle did not.
    assert_eq!((left.cpus[0], left.times[6], left.iowait_ns), (3, 10 * TICK_NS, None));
    assert_eq!(summary.context_switches, None);
    assert_eq!(summary.missing().iter().filter(|m| m.part.as_deref() == Some("cpu_time")).count(), 3);
}

#[test]
fn wake_ups_wrap_at_32_bits() {
    let mut window = window("", "");
    window.start.wakeups = Ok(BTreeMap::from([(0, u32::MAX - 1), (1, 5), (9, 1)]));
    window.end.wakeups = Ok(BTreeMap::from([(0, 3), (1, 5), (8, 4)]));
    let summary = summarize(&window);
    assert_eq!((summary.wakeups, summary.no_wakeups.is_none(), summary.all.is_none()), (Some(5), true, true));
    assert_eq!(per_io(&summary, 10).wakeups, Some(0.5));
    window.end.wakeups = Err(NoWakeups::Off);
    let off = summarize(&window).missing().into_iter().find(|m| m.part.as_deref() == Some("wakeups"));
    assert_eq!(off.and_then(|m| m.remedy).as_deref(), Some("sysctl kernel.sched_schedstats=1"));
}

proptest! {
    /// Whatever two readings contain, nothing panics and each row adds up.
    #[test]
    fn any_readings_add_up(
        a in proptest::collection::vec(any::<u64>(), 16),
        b in proptest::collection::vec(0u64..200, 16),
        wall in any::<u64>(),
    ) {
        let reading = |at_ns, columns: [u64; 16]| {
            let mut reading = CpuReading { at_ns, ..parse_stat("") };
            for cpu in 0..2u32 {
                let mut time = CpuTime::default();
                time.columns.copy_from_slice(&columns[8 * cpu as usize..][..8]);
                reading.cpus.insert(cpu, time);
            }
            reading
        };
        let first = std::array::from_fn(|i| a[i]);
        let second = std::array::from_fn(|i| a[i].wrapping_add(b[i] * TICK_NS));
        let mut window = window("", "");
        (window.start, window.end) = (reading(0, first), reading(wall, second));
        let summary = summarize(&window);
        for row in &summary.cpus {
            let all: i128 = row.times.iter().map(|ns| i128::from(*ns)).sum();
            prop_assert_eq!(all + i128::from(row.unaccounted_ns), i128::from(row.wall_ns));
        }
        prop_assert_eq!(summary.cpus.len() + summary.left_out.len(), 2);
    }

    #[test]
    fn any_counts_never_panic(value: u64, enabled_ns: u64, running_ns: u64, ios: u64) {
        let mut window = at_3_9_ghz();
        for count in &mut window.counters.counts {
            (count.value, count.enabled_ns, count.running_ns) = (value, enabled_ns, running_ns);
        }
        let (cpu, profile) = (summarize(&window), profile("cycles", &[(CpuClass::System, 3)]));
        let _ = (per_io(&cpu, ios), cycles_per_io(&cpu, &profile, CpuClass::System, ios));
    }
}
