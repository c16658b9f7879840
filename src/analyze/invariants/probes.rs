//! Checks the probes themselves: their tables, missed runs, cost and removal.

use super::{
    FigureValue, Invariant, KernelObjects, Outcome, TestedRun, fail, figure, not_tested, pass, too_many,
};

/// With fewer I/Os the cost is not checked, because the caches are cold.
const LEAST_IOS: u64 = 1000;

/// Every slot belongs to one request at a time, and every request finds one.
pub fn slots(m: &TestedRun<'_>) -> Invariant {
    const NAME: &str = "slots";
    let (mut outside, mut stale) = (0, 0);
    for delta in m.deltas() {
        outside += delta.counters.out_of_range;
        stale += delta.counters.stale;
    }
    let unlearned = missed(m).find(|(name, _)| *name == UNLEARNED).map_or(0, |(_, n)| n);
    let numbers =
        vec![figure("out_of_range", outside), figure("stale", stale), figure("unlearned", unlearned)];
    let broken = if outside + unlearned > 0 {
        Some("requests found no room in the tables: their I/Os were missed".to_string())
    } else {
        too_many(m, stale).map(|share| {
            format!(
                "{share} of the I/Os were issued again before their completion was seen: events were missed"
            )
        })
    };
    let mut tested = m.of_ios(NAME, numbers, broken);
    if stale > 0 && tested.state == Outcome::Pass {
        tested.why = Some("completions without an event for the probes are counted as missed".to_string());
    }
    tested
}

/// Not a program: addresses that found no room in the table.
pub const UNLEARNED: &str = "unlearned";

/// Runs that the kernel skipped, by program.
pub fn misses(m: &TestedRun<'_>) -> Invariant {
    const NAME: &str = "misses";
    if !m.misses_counted {
        return not_tested(NAME, "this kernel does not count the runs that it skips (before 6.1)");
    }
    let by_program: Vec<_> = missed(m).filter(|(name, _)| *name != UNLEARNED).collect();
    let sum = by_program.iter().map(|(_, n)| n).sum();
    let mut numbers = vec![figure("programs", by_program.len() as u64), figure("missed", sum)];
    numbers.extend(by_program.iter().filter(|(_, n)| *n > 0).map(|(name, n)| figure(name, *n)));
    let broken = too_many(m, sum)
        .map(|share| format!("the kernel skipped runs of the probes, {share} as many as I/Os"));
    m.of_ios(NAME, numbers, broken)
}

fn missed<'a>(m: &TestedRun<'a>) -> impl Iterator<Item = (&'static str, u64)> + use<'a> {
    let then = &m.start.missed;
    m.end.missed.iter().map(|(name, n)| (*name, n.saturating_sub(then.get(name).copied().unwrap_or(0))))
}

/// The probes' own cost is known, and the counting programs ran.
pub fn cost(m: &TestedRun<'_>) -> Invariant {
    const NAME: &str = "cost";
    if let Some(why) = m.no_cost {
        return not_tested(NAME, why);
    }
    if m.ios() < LEAST_IOS {
        return not_tested(NAME, "too few I/Os were measured");
    }
    if m.cost.ios.is_some() && !m.cost.saw_enough() {
        return not_tested(NAME, "too few I/Os were measured while the kernel's program statistics were on");
    }
    let runs = |name: &str| m.cost.programs.iter().find(|p| p.name == name).map_or(0, |p| p.runs);
    let mut numbers: Vec<(String, FigureValue)> = [
        ("ns_per_io", m.cost.ns_per_io),
        ("attach_ns_per_io", m.cost.attach_ns_per_io),
        ("cpu_percent", m.cost.cpu_percent),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key.to_string(), FigureValue::Measure(value?))))
    .collect();
    numbers.push(figure("map_bytes", m.cost.map_bytes));
    numbers.push(figure("issue_runs", runs("rq_issue")));
    numbers.push(figure("completion_runs", runs("rq_complete")));
    let broken = if m.cost.ns_per_io.is_none() {
        Some("the kernel's program statistics gave no result")
    } else if m.end.devices.iter().any(|device| !device.bio_based)
        && (runs("rq_issue") == 0 || runs("rq_complete") == 0)
    {
        Some("programs that every I/O needs have no statistics")
    } else {
        None
    };
    match broken {
        Some(why) => fail(NAME, numbers, why.to_string()),
        None => pass(NAME, numbers),
    }
}

/// Nothing of the probes remains in the kernel.
pub fn detached(m: &TestedRun<'_>) -> Invariant {
    const NAME: &str = "detached";
    match m.left {
        Err(why) => not_tested(NAME, why),
        Ok(KernelObjects { held, left }) => {
            let numbers = vec![figure("held", held), figure("left", left)];
            match left {
                0 => pass(NAME, numbers),
                _ => fail(NAME, numbers, "programs, links or maps are still in the kernel".to_string()),
            }
        }
    }
}
