//! Tests CPU time and counters of this machine. Needs no rights: if counters are refused, the reason must be there.

use std::path::Path;
use std::time::{Duration, Instant};

use biopsy::analyze::cpu::{CpuRow, CpuSummary, summarize};
use biopsy::probe::cpu::CpuProbe;

/// Measures a second in which this thread is busy. All values are compared with the probe's own window.
fn busy_second() -> CpuSummary {
    let probe = CpuProbe::attach(Path::new("/"));
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        std::hint::spin_loop();
    }
    summarize(&probe.finish())
}

#[test]
fn the_table_of_this_machine_sums_to_the_time_that_passed() {
    let summary = busy_second();
    let all = summary.all.as_ref().expect("a CPU");
    println!("{:?}", all.shares());
    println!("unaccounted {} ns, whole ticks explain {} ns", all.unaccounted_ns, all.error_ns);
    assert!(summary.duration_ns >= 1_000_000_000);
    for rows in [&summary.cpus, &summary.cores, &summary.sockets] {
        for row in rows {
            assert_eq!(
                sum(row),
                i128::from(row.wall_ns),
                "to the nanosecond, with what is not accounted for"
            );
            let percent: f64 = row.shares().iter().map(|(_, share)| share * 100.0).sum();
            assert!((percent - 100.0).abs() < 1e-6, "{percent} %");
            // Twice what whole ticks explain: on a virtual machine whose host takes CPUs away, ticks are late. A
            // missing or additional column would be more.
            assert!(row.unaccounted_ns.unsigned_abs() <= 2 * row.error_ns, "{row:?}");
        }
    }
    let wall = |rows: &[CpuRow]| rows.iter().map(|row| row.wall_ns).sum::<u64>();
    assert_eq!((wall(&summary.cpus), wall(&summary.cores)), (all.wall_ns, all.wall_ns));
    // This thread used a CPU all the time, so that less than the whole time was idle.
    assert!(all.times[6] < all.wall_ns, "{all:?}");
    assert!(summary.context_switches.is_some_and(|switches| switches > 0));
}

fn sum(row: &CpuRow) -> i128 {
    row.times.iter().map(|ns| i128::from(*ns)).sum::<i128>() + i128::from(row.unaccounted_ns)
}

/// Cycles are counted, or the kernel's clock for the time that passed, or there is a reason.
#[test]
fn something_counts_or_says_why_not() {
    let summary = busy_second();
    let (counted, wall) = (&summary.counted, summary.duration_ns as f64);
    println!("{counted:?}");
    match counted.counter.as_deref() {
        Some("cycles") => {
            assert!(counted.cycles().is_some_and(|cycles| cycles > 0) && counted.clock_ns.is_none())
        }
        Some("cpu-clock") => {
            let ns = counted.clock_ns.unwrap() as f64 / summary.cpus.len() as f64;
            // The counter starts a little before the window and is read a little after it: it is not shorter, except
            // for the difference of the two clocks.
            assert!(ns >= wall * 0.99, "{ns} ns of {wall}");
            assert_eq!(counted.cycles(), None);
        }
        _ => assert!(!counted.refused.is_empty()),
    }
    let parts: Vec<String> = summary.missing().into_iter().filter_map(|missing| missing.part).collect();
    assert_eq!(counted.cycles().is_none(), parts.iter().any(|part| part == "cycles"), "{parts:?}");
    assert_eq!(summary.wakeups.is_none(), parts.iter().any(|part| part == "wakeups"), "{parts:?}");
}
