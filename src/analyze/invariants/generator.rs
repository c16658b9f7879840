//! Checks that exactly the generator's operations were traced.

use super::super::latency::{DeviceLatency, LatencySummary};
use super::super::op::Op;
use super::{Invariant, NOT_FOLLOWED, TestedRun, fail, figure, not_tested, pass};

/// Operations of the generator = operations traced, and each of these has a read of its own.
pub fn count(m: &TestedRun<'_>) -> Invariant {
    const NAME: &str = "generator-count";
    let load = match m.load {
        Ok(load) => load,
        Err(why) => return not_tested(NAME, &format!("no load was driven: {why}")),
    };
    let made = load.operations() + load.errors();
    let Some(seen) = operations_seen(m.summary) else {
        return not_tested(NAME, NOT_FOLLOWED);
    };
    let unfollowed = m.end.unfollowed.saturating_sub(m.start.unfollowed);
    let untimed: u64 = m.summary.devices.iter().map(|d| d.started_before).sum();
    let merges: u64 = m.summary.devices.iter().map(|d| d.merges).sum();
    // An I/O without times may hide its operation, and those merged into it.
    let spare = m.lost.ios + untimed + unfollowed + if m.lost.ios + untimed > 0 { merges } else { 0 };
    // A bio belongs to one operation, and each bio but a request's first was merged into it.
    let reads = m.summary.devices.iter().filter_map(|d| d.ops.get(&Op::Read));
    let able = reads.map(|op| op.ios).sum::<u64>() + merges + m.lost.ios + untimed;
    let numbers = vec![
        figure("made", made),
        figure("seen", seen),
        figure("of_others", seen.saturating_sub(made)),
        figure("lost_ios", m.lost.ios),
        figure("merges", merges),
        figure("unfollowed", unfollowed),
        figure("could_be", able),
    ];
    if made == 0 {
        return not_tested(NAME, "the generator ended before its first read");
    }
    if seen + spare < made {
        let why = format!(
            "{} reads of the generator were neither measured nor reported as missed",
            made - seen - spare
        );
        return fail(NAME, numbers, why);
    }
    // Merges before the interval began were not counted.
    let began = m.summary.devices.iter().any(|device| device.in_flight_start != Some(0));
    if seen > able && !began {
        let why = format!("{} more operations were counted than reads", seen - able);
        return fail(NAME, numbers, why);
    }
    pass(NAME, numbers)
}

/// The kernel-side time of an operation lies within the generator's time.
pub fn time(m: &TestedRun<'_>) -> Invariant {
    const NAME: &str = "generator-time";
    let Ok(load) = m.load else { return not_tested(NAME, "no load was driven") };
    match operations_seen(m.summary) {
        None => return not_tested(NAME, NOT_FOLLOWED),
        Some(seen) if seen > load.operations() => {
            return not_tested(NAME, "other processes read from the device as well");
        }
        Some(_) => {}
    }
    let reads = m.summary.devices.iter().filter_map(|d| d.ops.get(&Op::Read)?.operations.as_ref());
    let seen: u64 = reads.map(|all| all.total.sum()).sum();
    let whole = load.latency().sum();
    let numbers = vec![figure("generator_ns", whole), figure("seen_ns", seen)];
    let uncovered = m.summary.devices.iter().filter_map(|d| d.ops.get(&Op::Read)?.operations.as_ref());
    let all = m.lost.ios == 0 && uncovered.map(|all| all.not_covered.values().sum::<u64>()).sum::<u64>() == 0;
    // Both sides use the same stamps, so their sums are equal.
    if m.own_stamps && all && operations_seen(m.summary) == Some(load.operations()) && seen != whole {
        let why = format!(
            "the two sums differ by {} ns, although they use the same time stamps",
            whole.abs_diff(seen)
        );
        return fail(NAME, numbers, why);
    }
    if seen > whole {
        let why = format!("{} ns more were measured than the reads took", seen - whole);
        return fail(NAME, numbers, why);
    }
    m.of_ios(NAME, numbers, None)
}

/// Reads as operations of applications; None where they are not followed.
fn operations_seen(summary: &LatencySummary) -> Option<u64> {
    let reads = |device: &DeviceLatency| {
        device.ops.get(&Op::Read).and_then(|op| op.operations.as_ref()).map_or(0, |all| all.operations)
    };
    summary.devices.iter().map(|device| device.operations.map(|_| reads(device))).sum()
}
