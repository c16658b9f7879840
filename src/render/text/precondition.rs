//! Renders the preconditioning before a load as text.

use super::drive::edge;
use super::load::{lines, sizes};
use super::{bytes, clean, counted, short, significant, time};
use crate::load::{MOST_RANGE, MOST_SLOPE, PreconditionEnd, PreconditionResult, WriteRound};

/// All of it, followed by an empty line.
pub fn render(done: &PreconditionResult) -> String {
    let fill = done.fill;
    let of = if fill.bytes < done.area { format!(" of {}", bytes(done.area as f64)) } else { String::new() };
    let mut all = vec![
        (
            "prepared",
            format!("{} in {}, before the load", clean(&done.targets.join(", ")), time(done.duration_ns)),
        ),
        (
            "fill",
            format!(
                "{}{of} in blocks of {}, {}",
                bytes(fill.bytes as f64),
                bytes(done.fill_block as f64),
                time(fill.duration_ns)
            ),
        ),
    ];
    all.extend(edge(&done.written).map(|line| ("cliff", line)));
    if !done.rounds.is_empty() {
        let iops = done.rounds.iter().filter_map(WriteRound::iops).map(short);
        let sizes = sizes(&done.block_sizes);
        all.push(("rounds", format!("randwrite of {sizes}, IOPS {}", iops.collect::<Vec<_>>().join(" "))));
    }
    all.push(("steady", steady(done)));
    lines(&all) + "\n"
}

/// Whether it became steady, with the numbers.
fn steady(done: &PreconditionResult) -> String {
    let rounds = counted(done.rounds.len() as u64, "round");
    let percent = |share: f64| significant(share * 100.0, 2);
    let window = done.window.map_or_else(
        || "too few rounds to tell".to_string(),
        |window| {
            format!(
                "the last five range over {} % of their average (at most {} %) and slope by {} % of it (at most {} %)",
                percent(window.range),
                percent(MOST_RANGE),
                percent(window.slope),
                percent(MOST_SLOPE)
            )
        },
    );
    match done.end {
        PreconditionEnd::Steady => format!("after {rounds}: {window}"),
        PreconditionEnd::Rounds => format!("no, {}: {window}", not_steady(done).unwrap_or_default()),
        PreconditionEnd::Time => {
            format!("no, {}, and the time limit was reached: {window}", not_steady(done).unwrap_or_default())
        }
    }
}

/// Same in a few words, for output without this text; None if it is steady.
pub fn not_steady(done: &PreconditionResult) -> Option<String> {
    if done.fill.bytes < done.area {
        return Some("not filled".to_string());
    }
    let rounds = counted(done.rounds.len() as u64, "round");
    (done.end != PreconditionEnd::Steady).then(|| format!("not steady after {rounds}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::load::precondition::tests::steady as example;
    use crate::load::Fill;

    #[test]
    fn the_numbers_stand_beside_the_verdict() {
        let expected = "\
prepared    /dev/nvme0n1 in 6.60 s, before the load
fill        64.0 MiB in blocks of 1.00 MiB, 500 ms
rounds      randwrite of 4.00 KiB, IOPS 9000 5000 5100 4900 5050 4950
steady      after 6 rounds: the last five range over 4.0 % of their average (at most 20 %) and slope
            by 1.2 % of it (at most 10 %)

";
        assert_eq!(render(&example()), expected);
        assert_eq!(not_steady(&example()), None);
    }

    #[test]
    fn what_is_not_steady_says_after_how_much() {
        let many = PreconditionResult { end: PreconditionEnd::Rounds, ..example() };
        assert!(
            render(&many).contains("steady      no, not steady after 6 rounds: the last five"),
            "{}",
            render(&many)
        );
        let fill = Fill { bytes: 1 << 20, duration_ns: 500_000_000 };
        let cut = PreconditionResult {
            fill,
            rounds: Vec::new(),
            window: None,
            end: PreconditionEnd::Time,
            ..example()
        };
        let text = render(&cut);
        assert!(text.contains("fill        1.00 MiB of 64.0 MiB in blocks"), "{text}");
        assert!(
            text.contains("steady      no, not filled, and the time limit was reached: too few rounds"),
            "{text}"
        );
    }
}
