//! Finding: the drive throttles itself because it is hot.

use super::command;
use super::facts::{self, percent};
use super::{Rule, Summaries};
use crate::findings::{Finding, NotExamined, Number, Numbers, Severity};
use crate::host::nvme::Health;
use crate::units::{counted, in_percent};

/// Share of the load's time in a thermal level from which on the figures are those of a throttled drive. The counter
/// has whole seconds, so less could be a single step.
pub const SLOWED: f64 = 0.10;

/// For a drive throttled for that long; for one where only the count of entries or the minutes above the critical
/// temperature grew; and for one that was only warm, which throttles nothing.
const CONFIDENCE: [f64; 3] = [0.9, 0.7, 0.6];

const AFTER_CELSIUS: Number = Number::new("after_celsius", "temperature after the load, in °C");
const BEFORE_CELSIUS: Number = Number::new("before_celsius", "temperature before the load, in °C");
const CRITICAL_MINUTES: Number = Number::new("critical_minutes", "minutes above the critical temperature");
const SLOWED_PERCENT: Number = Number::new("slowed_percent", "share of the time in a thermal level");
const T1_ENTRIES: Number = Number::new("t1_entries", "entries into the thermal level T1");
const T1_SECONDS: Number = Number::new("t1_seconds", "seconds in the thermal level T1");
const T2_ENTRIES: Number = Number::new("t2_entries", "entries into the thermal level T2");
const T2_SECONDS: Number = Number::new("t2_seconds", "seconds in the thermal level T2");
const WARNING_MINUTES: Number = Number::new("warning_minutes", "minutes above the warning temperature");

pub const RULE: Rule = Rule { id: "thermal-throttle", page: PAGE, find };

const PAGE: &str = "\
The drive throttled itself because it was hot.

How it is computed
  For biopsy's own load on an NVMe drive, the health log (SMART, log page 02h) is read before and
  after each section of the load. suffered is true if a counter grew: entries into the thermal
  levels T1 (light throttling) and T2 (heavy), seconds in them, or minutes above the warning or
  critical temperature. It is null if none grew and the drive does not count throttling.
  - A warning if a level was entered, or seconds in a level or minutes above the critical
    temperature grew. Confidence 0.9 if the seconds are 10 % of the load's time or more, else 0.7.
  - A note if only the minutes above the warning temperature grew.
  biopsy load reports it too.
  From: load.thermal: t1 and t2 (entered, seconds), warning_minutes, critical_minutes, suffered,
  celsius_before, celsius_after, critical_warning.

When it is wrong
  - Many drives do not count T1 and T2 (null unless they were ever above 0), and throttle all the
    same. The two temperatures and a rate that falls during the run are the hint then.
  - The counters cover the whole time between both readings and the whole drive, whichever process
    used it.
  - Minutes grow in steps: a short time above the warning temperature may not show.
  - Other drives than NVMe have no such log (load.thermal is null). Without biopsy's own load it is
    not read.

What to do
  Improve the cooling (air flow, a heat sink, a slot further from hot parts), or pause before the
  run. A short run on a cool drive (biopsy load DEV --runtime 30s) shows the rate before it
  throttles.
";

/// Needs a load of our own.
pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    judge(s).into_iter().collect()
}

/// Why nothing is known about the drive's temperature; None if it is known.
pub fn unknown(s: &Summaries<'_>) -> Option<NotExamined> {
    let of_load = s.load.and_then(|load| facts::disk(s, load.device.as_deref()?));
    let why = match s.load.map(|load| load.drive.health) {
        Some(None) if of_load.is_some_and(|disk| !disk.is_nvme()) => {
            "the health log is read around the load only for NVMe drives"
        }
        None => "a drive's health log is read only around biopsy's own load",
        Some(None) => "the drive's health log could not be read around the load",
        Some(Some((before, after))) if after.suffered_since(&before).is_none() => {
            "the drive does not count thermal throttling"
        }
        _ => return None,
    };
    Some(NotExamined { what: "thermal throttling".to_string(), why: why.to_string() })
}

fn judge(s: &Summaries<'_>) -> Option<Finding> {
    let load = s.load?;
    let name = load.device.as_ref()?;
    let (before, after) = load.drive.health?;
    if after.suffered_since(&before) != Some(true) {
        return None;
    }
    let grown = |of: fn(&Health) -> Option<u32>| after.grown(&before, of);
    let counters = [
        (T1_ENTRIES, grown(|h| h.transitions[0])),
        (T2_ENTRIES, grown(|h| h.transitions[1])),
        (T1_SECONDS, grown(|h| h.throttled_seconds[0])),
        (T2_SECONDS, grown(|h| h.throttled_seconds[1])),
        (WARNING_MINUTES, grown(|h| h.warning_minutes)),
        (CRITICAL_MINUTES, grown(|h| h.critical_minutes)),
    ];
    let value = |number: Number| {
        counters.iter().find(|(known, _)| *known == number).and_then(|(_, value)| *value).unwrap_or(0)
    };
    let entries = value(T1_ENTRIES) + value(T2_ENTRIES);
    let seconds = value(T1_SECONDS) + value(T2_SECONDS);
    let share = (load.duration_ns > 0).then(|| f64::from(seconds) * 1e9 / load.duration_ns as f64);
    // Whole seconds may exceed the load's time.
    let share = share.map(|share| share.min(1.0));
    let is_slowed = entries > 0 || seconds > 0;
    let mut numbers: Numbers =
        counters.iter().filter_map(|(key, value)| Some((*key, f64::from((*value)?)))).collect();
    numbers.extend(before.temperature.map(|degrees| (BEFORE_CELSIUS, f64::from(degrees))));
    numbers.extend(after.temperature.map(|degrees| (AFTER_CELSIUS, f64::from(degrees))));
    numbers.extend(share.filter(|_| seconds > 0).map(|share| (SLOWED_PERCENT, percent(share))));
    let mut evidence = Vec::new();
    for (level, times, seconds) in [
        ("T1 (light)", value(T1_ENTRIES), value(T1_SECONDS)),
        ("T2 (heavy)", value(T2_ENTRIES), value(T2_SECONDS)),
    ] {
        if times > 0 || seconds > 0 {
            evidence.push(format!(
                "it entered thermal level {level} {} and stayed in it for {seconds} s",
                counted(times.into(), "time")
            ));
        }
    }
    for (which, number) in [("warning", WARNING_MINUTES), ("critical", CRITICAL_MINUTES)] {
        let minutes = value(number);
        if minutes > 0 {
            evidence.push(format!("it was above its {which} temperature for {minutes} min"));
        }
    }
    if let (Some(from), Some(to)) = (before.temperature, after.temperature) {
        evidence.push(format!("{from} °C before the load, {to} °C after it"));
    }
    let (severity, confidence, sentence) = if is_slowed {
        let long = share.is_some_and(|share| share >= SLOWED);
        let time = match share.filter(|_| seconds > 0) {
            Some(share) => format!(", for {seconds} s or {} of the load's time", in_percent(share)),
            None => format!(" ({})", counted(entries.into(), "time")),
        };
        let sentence = format!("{name} throttled itself because it was hot{time}.");
        (Severity::Warning, CONFIDENCE[if long { 0 } else { 1 }], sentence)
    } else if value(CRITICAL_MINUTES) > 0 {
        let sentence =
            format!("{name} was above its critical temperature, where drives throttle themselves.");
        (Severity::Warning, CONFIDENCE[1], sentence)
    } else {
        let sentence = format!("{name} was above its warning temperature.");
        (Severity::Note, CONFIDENCE[2], sentence)
    };
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity,
        confidence,
        sentence,
        numbers,
        evidence,
        advice: "Cool the drive (air flow, a heat sink, another slot) and pause before the next run: a hot \
            drive is slower."
            .to_string(),
        check: command::load(load, load.job.iodepth, load.job.numjobs),
        worth: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixtures::{Case, SECOND};

    /// Ten seconds, in which the counters of a drive grew by these.
    fn case(t1: (u32, u32), warning: u32, critical: u32) -> Case {
        let mut case = Case::new(10_000, 32);
        let load = case.load.as_mut().unwrap();
        load.duration_ns = 10 * SECOND;
        let before = Health {
            temperature: Some(50),
            transitions: [Some(7), Some(0)],
            throttled_seconds: [Some(100), Some(0)],
            warning_minutes: Some(3),
            critical_minutes: Some(0),
            ..Health::default()
        };
        let after = Health {
            temperature: Some(83),
            transitions: [Some(7 + t1.0), Some(0)],
            throttled_seconds: [Some(100 + t1.1), Some(0)],
            warning_minutes: Some(3 + warning),
            critical_minutes: Some(critical),
            ..before
        };
        load.drive.health = Some((before, after));
        case
    }

    fn found(case: &Case) -> Option<Finding> {
        judge(&case.summaries())
    }

    #[test]
    fn a_tenth_of_the_time_makes_it_sure() {
        let mut case = case((1, 1), 0, 0);
        let slowed = found(&case).unwrap();
        assert_eq!((slowed.severity, slowed.confidence), (Severity::Warning, CONFIDENCE[0]));
        assert_eq!(
            slowed.sentence,
            "vda throttled itself because it was hot, for 1 s or 10 % of the load's time."
        );
        assert_eq!((slowed.numbers["t1_seconds"], slowed.numbers["after_celsius"]), (1.0, 83.0));
        case.load.as_mut().unwrap().duration_ns += 1_000_000;
        assert_eq!(found(&case).unwrap().confidence, CONFIDENCE[1]);
    }

    #[test]
    fn being_entered_counts_and_being_warm_is_a_note() {
        let entered = found(&case((2, 0), 0, 0)).unwrap();
        assert_eq!((entered.severity, entered.confidence), (Severity::Warning, CONFIDENCE[1]));
        assert!(entered.sentence.ends_with("hot (2 times)."), "{}", entered.sentence);
        assert_eq!(found(&case((0, 0), 1, 0)).unwrap().severity, Severity::Note);
        assert_eq!(found(&case((0, 0), 1, 1)).unwrap().severity, Severity::Warning);
        assert!(found(&case((0, 0), 0, 0)).is_none());
    }

    #[test]
    fn who_does_not_count_is_named_and_not_cleared() {
        let calm = case((0, 0), 0, 0);
        assert!(unknown(&calm.summaries()).is_none(), "it counts, and nothing grew");
        let why = |case: &Case| unknown(&case.summaries()).unwrap().why;
        let mut blind = case((0, 0), 0, 0);
        blind.load.as_mut().unwrap().drive.health = Some((Health::default(), Health::default()));
        assert!(found(&blind).is_none() && why(&blind).contains("does not count"));
        blind.load.as_mut().unwrap().drive.health = None;
        assert!(why(&blind).contains("only for NVMe drives"));
        blind.disk().driver = Some("nvme".into());
        assert!(why(&blind).contains("could not be read"));
        blind.load = None;
        assert!(why(&blind).contains("biopsy's own"));
    }
}
