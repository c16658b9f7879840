//! What a load shows of the drive below, as text.

use super::{bytes, counted, significant, time};
use crate::analyze::cliff::cliff;
use crate::host::nvme::Health;
use crate::load::{Drive, Interval, LoadSummary, Sampled};
use crate::rules::EMPTY_SHARE;

/// A line for each that is known.
pub(super) fn facts(drive: &Drive) -> Vec<(&'static str, String)> {
    let mut lines: Vec<_> = drive.sampled.map(|sampled| ("content", content(sampled))).into_iter().collect();
    lines.extend(drive.usage.map(|usage| {
        let (used, capacity) = (bytes(usage.used as f64), bytes(usage.capacity as f64));
        ("namespace", format!("{used} of {capacity} in use, as the drive tells"))
    }));
    lines.extend(edge(&drive.written).map(|line| ("cliff", line)));
    lines.extend(drive.health.map(|(before, after)| ("thermal", thermal(&before, &after))));
    lines
}

fn content(sampled: Sampled) -> String {
    let parts = [
        (sampled.zeros, "zeros"),
        (sampled.holes, "in holes"),
        (sampled.unwritten, "in unwritten extents"),
        (sampled.unreadable, "unreadable"),
        (sampled.unread, "not read"),
    ];
    let parts: Vec<String> =
        parts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
    let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
    format!(
        "{} of {} empty{parts}, before the load",
        sampled.empty(),
        counted(sampled.samples, "sampled block")
    )
}

/// Where writes became slow; None where they did not.
pub(super) fn edge(written: &[Interval]) -> Option<String> {
    let cliff = cliff(written)?;
    Some(format!(
        "write cliff after {} ({}): {}/s → {}/s",
        bytes(cliff.after_bytes as f64),
        time(cliff.after_ns),
        bytes(cliff.before),
        bytes(cliff.behind)
    ))
}

fn thermal(before: &Health, after: &Health) -> String {
    let degrees = |health: &Health| health.temperature.map_or("?".to_string(), |degrees| degrees.to_string());
    let grown = |of: fn(&Health) -> Option<u32>| after.grown(before, of).unwrap_or(0);
    let mut parts = vec![format!("{} to {} °C", degrees(before), degrees(after))];
    let levels = [
        ("T1", grown(|h| h.transitions[0]), grown(|h| h.throttled_seconds[0])),
        ("T2", grown(|h| h.transitions[1]), grown(|h| h.throttled_seconds[1])),
    ];
    for (level, times, seconds) in levels.iter().filter(|(_, times, seconds)| *times > 0 || *seconds > 0) {
        parts.push(format!("throttling: {level} entered {}, {seconds} s", counted((*times).into(), "time")));
    }
    let minutes = [("warning", grown(|h| h.warning_minutes)), ("critical", grown(|h| h.critical_minutes))];
    for (which, minutes) in minutes.iter().filter(|(_, minutes)| *minutes > 0) {
        parts.push(format!("{minutes} min above the {which} temperature"));
    }
    let level = |n: usize| after.transitions[n].is_some() || after.throttled_seconds[n].is_some();
    let some = after.counts_throttling();
    let uncounted = [
        ("throttling", some),
        ("throttling at T1", !some || level(0)),
        ("throttling at T2", !some || level(1)),
        ("minutes above the warning temperature", after.warning_minutes.is_some()),
        ("minutes above the critical temperature", after.critical_minutes.is_some()),
    ];
    if after.suffered_since(before) == Some(false) {
        parts.push("no throttling counted".to_string());
    }
    let uncounted: Vec<&str> =
        uncounted.iter().filter(|(_, counted)| !counted).map(|(what, _)| *what).collect();
    if !uncounted.is_empty() {
        parts.push(format!("not counted by this drive: {}", uncounted.join(", ")));
    }
    parts.join(", ")
}

/// A sentence for who is about to read what is not there; None where nearly all blocks have content.
pub fn warning(target: &str, sampled: Sampled) -> Option<String> {
    let share = sampled.empty_percent().filter(|share| *share >= EMPTY_SHARE * 100.0)?;
    Some(format!(
        "{} of {} of {target} ({} %) are empty (zeros, holes or unwritten extents): reading them says little about \
         the drive; write it first, as --precondition does",
        sampled.empty(),
        counted(sampled.samples, "sampled block"),
        significant(share, 2)
    ))
}

/// The same of a load that is over.
pub fn warning_of(load: &LoadSummary) -> Option<String> {
    warning(&load.target, load.drive.sampled?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::nvme::Use;

    #[test]
    fn each_fact_has_its_line_and_no_other_has() {
        assert_eq!(facts(&Drive::default()), []);
        let interval = |bytes: u64| Interval { duration_ns: 100_000_000, bytes };
        let before = Health {
            temperature: Some(40),
            transitions: [Some(7), Some(0)],
            throttled_seconds: [Some(0); 2],
            warning_minutes: Some(0),
            critical_minutes: Some(0),
            ..Health::default()
        };
        let after = Health {
            temperature: Some(81),
            transitions: [Some(10), Some(1)],
            throttled_seconds: [Some(12), Some(0)],
            warning_minutes: Some(2),
            ..before
        };
        let drive = Drive {
            sampled: Some(Sampled { samples: 64, holes: 2, zeros: 10, ..Sampled::default() }),
            usage: Some(Use { size: 1 << 40, capacity: 1 << 40, used: 1 << 30 }),
            health: Some((before, after)),
            written: [vec![interval(512 << 20); 24], vec![interval(128 << 20); 40]].concat(),
        };
        let text: Vec<String> =
            facts(&drive).into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let expected = [
            "content: 12 of 64 sampled blocks empty (10 zeros, 2 in holes), before the load",
            "namespace: 1.00 GiB of 1.00 TiB in use, as the drive tells",
            "cliff: write cliff after 12.0 GiB (2.40 s): 5.00 GiB/s → 1.25 GiB/s",
            "thermal: 40 to 81 °C, throttling: T1 entered 3 times, 12 s, throttling: T2 entered 1 time, 0 s, 2 min \
             above the warning temperature",
        ];
        assert_eq!(text, expected);
        let calm = Drive { health: Some((before, before)), ..Drive::default() };
        assert_eq!(facts(&calm), [("thermal", "40 to 40 °C, no throttling counted".to_string())]);
    }

    #[test]
    fn a_drive_that_counts_nothing_was_not_found_to_be_fast() {
        let line = |before, after| {
            let drive = Drive { health: Some((before, after)), ..Drive::default() };
            facts(&drive).pop().unwrap().1
        };
        let blind = Health { temperature: Some(40), critical_minutes: Some(1), ..Health::default() };
        let uncounted = "not counted by this drive: throttling, minutes above the warning temperature";
        assert_eq!(line(blind, blind), format!("40 to 40 °C, {uncounted}"));
        let hot = Health { critical_minutes: Some(3), ..blind };
        assert_eq!(
            line(blind, hot),
            format!("40 to 40 °C, 2 min above the critical temperature, {uncounted}")
        );
    }

    #[test]
    fn who_reads_nothing_is_told() {
        let sampled = |zeros| Sampled { samples: 64, zeros, ..Sampled::default() };
        assert_eq!(warning("/dev/a", sampled(3)), None);
        assert_eq!(warning("/dev/a", Sampled::default()), None);
        let said = warning("/dev/a", sampled(64)).unwrap();
        assert!(said.starts_with("64 of 64 sampled blocks of /dev/a (100 %) are empty"), "{said}");
    }
}
