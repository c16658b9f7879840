//! Renders the drive's state around a load as text.

use super::{bytes, counted, significant, time};
use crate::analyze::cliff::cliff;
use crate::analyze::load::drive::{Thermal, ThrottleLevel};
use crate::load::{BlockCounts, Drive, LoadSummary, SeriesInterval};
use crate::rules::EMPTY_SHARE;

/// A line for each known fact.
pub(super) fn facts(drive: &Drive) -> Vec<(&'static str, String)> {
    let mut lines: Vec<_> = drive.sampled.map(|sampled| ("content", content(sampled))).into_iter().collect();
    lines.extend(drive.usage.map(|usage| {
        let (used, capacity) = (bytes(usage.used as f64), bytes(usage.capacity as f64));
        ("namespace", format!("{used} of {capacity} in use, as the drive reports"))
    }));
    lines.extend(edge(&drive.written).map(|line| ("cliff", line)));
    let health = drive.health.map(|(before, after)| Thermal::between(&before, &after));
    lines.extend(health.map(|health| ("thermal", thermal(&health))));
    lines
}

fn content(sampled: BlockCounts) -> String {
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

/// When writes became slow; None if they did not.
pub(super) fn edge(written: &[SeriesInterval]) -> Option<String> {
    let cliff = cliff(written)?;
    Some(format!(
        "write cliff after {} ({}): {}/s → {}/s",
        bytes(cliff.after_bytes as f64),
        time(cliff.after_ns),
        bytes(cliff.before),
        bytes(cliff.behind)
    ))
}

fn thermal(thermal: &Thermal) -> String {
    let degrees = |celsius: Option<i32>| celsius.map_or("?".to_string(), |degrees| degrees.to_string());
    let mut parts =
        vec![format!("{} to {} °C", degrees(thermal.celsius_before), degrees(thermal.celsius_after))];
    for (level, ThrottleLevel { entered, seconds }) in [("T1", thermal.t1), ("T2", thermal.t2)] {
        let (times, seconds) = (entered.unwrap_or(0), seconds.unwrap_or(0));
        if times > 0 || seconds > 0 {
            parts.push(format!("throttling: {level} entered {}, {seconds} s", counted(times.into(), "time")));
        }
    }
    let minutes = [("warning", thermal.warning_minutes), ("critical", thermal.critical_minutes)];
    for (which, minutes) in minutes {
        if let Some(minutes @ 1..) = minutes {
            parts.push(format!("{minutes} min above the {which} temperature"));
        }
    }
    let [light, heavy] = [thermal.t1, thermal.t2].map(|level| level != ThrottleLevel::default());
    let some = light || heavy;
    let uncounted = [
        ("throttling", some),
        ("throttling at T1", !some || light),
        ("throttling at T2", !some || heavy),
        ("minutes above the warning temperature", thermal.warning_minutes.is_some()),
        ("minutes above the critical temperature", thermal.critical_minutes.is_some()),
    ];
    if thermal.suffered == Some(false) {
        parts.push("no throttling counted".to_string());
    }
    let uncounted: Vec<&str> =
        uncounted.iter().filter(|(_, counted)| !counted).map(|(what, _)| *what).collect();
    if !uncounted.is_empty() {
        parts.push(format!("not counted by this drive: {}", uncounted.join(", ")));
    }
    parts.join(", ")
}

/// A warning before reading blocks without content; None if nearly all blocks have content.
pub fn warning(target: &str, sampled: BlockCounts) -> Option<String> {
    let share = sampled.empty_percent().filter(|share| *share >= EMPTY_SHARE * 100.0)?;
    Some(format!(
        "{} of {} of {target} ({} %) are empty (zeros, holes or unwritten extents): reading them says \
         little about the drive; write it first, for example with --precondition",
        sampled.empty(),
        counted(sampled.samples, "sampled block"),
        significant(share, 2)
    ))
}

/// The warning for a finished load.
pub fn warning_of(load: &LoadSummary) -> Option<String> {
    warning(&load.target, load.drive.sampled?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::nvme::{Health, Use};

    #[test]
    fn each_fact_has_its_line_and_no_other_has() {
        assert_eq!(facts(&Drive::default()), []);
        let interval = |bytes: u64| SeriesInterval { duration_ns: 100_000_000, bytes };
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
            sampled: Some(BlockCounts { samples: 64, holes: 2, zeros: 10, ..BlockCounts::default() }),
            usage: Some(Use { size: 1 << 40, capacity: 1 << 40, used: 1 << 30 }),
            health: Some((before, after)),
            written: [vec![interval(512 << 20); 24], vec![interval(128 << 20); 40]].concat(),
        };
        let text: Vec<String> =
            facts(&drive).into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
        let expected = [
            "content: 12 of 64 sampled blocks empty (10 zeros, 2 in holes), before the load",
            "namespace: 1.00 GiB of 1.00 TiB in use, as the drive reports",
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
        let sampled = |zeros| BlockCounts { samples: 64, zeros, ..BlockCounts::default() };
        assert_eq!(warning("/dev/a", sampled(3)), None);
        assert_eq!(warning("/dev/a", BlockCounts::default()), None);
        let said = warning("/dev/a", sampled(64)).unwrap();
        assert!(said.starts_with("64 of 64 sampled blocks of /dev/a (100 %) are empty"), "{said}");
    }
}
