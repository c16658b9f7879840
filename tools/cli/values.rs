//! Parsers of option values, with their error messages.

use std::time::Duration;

use biopsy::analyze::condition::{BoundSide, Condition, Of, TriggerMetric};
use biopsy::analyze::groups::Dimension;
use biopsy::analyze::op::Op;
use biopsy::analyze::stage::Stage;
use biopsy::analyze::threads::GroupColumn;
use biopsy::probe::latency::options::Stages;
use biopsy::recording::Moment;
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Parses `10s`, `500ms`, `2m`, `1.5s`, or a bare number of seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err("a time is a number and a unit, as in 10s".to_string());
    }
    let scale = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("unknown unit '{unit}': use us, ms, s, m or h, as in 10s")),
    };
    let value: f64 = number.parse().map_err(|_| "a time is a number and a unit, as in 10s".to_string())?;
    let seconds = value * scale;
    if !(seconds > 0.0 && seconds <= 7.0 * 86400.0) {
        return Err("a time must be above 0 and at most 7 days".to_string());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Parses the name of a dimension.
pub fn dimension() -> impl TypedValueParser<Value = Dimension> {
    let named = |word: String| Dimension::ALL.into_iter().find(|dimension| dimension.name() == word);
    PossibleValuesParser::new(Dimension::ALL.map(Dimension::name))
        .try_map(move |word| named(word).ok_or("no such dimension"))
}

/// Parses the stages to measure.
pub fn stages() -> impl TypedValueParser<Value = Stages> {
    let named = |word: String| Stages::ALL.into_iter().find(|stages| stages.name() == word);
    PossibleValuesParser::new(Stages::ALL.map(Stages::name))
        .try_map(move |word| named(word).ok_or("no such stages"))
}

/// Parses the name of a column of `threads`.
pub fn column() -> impl TypedValueParser<Value = GroupColumn> {
    let named = |word: String| GroupColumn::ALL.into_iter().find(|column| column.name() == word);
    PossibleValuesParser::new(GroupColumn::ALL.map(GroupColumn::name))
        .try_map(move |word| named(word).ok_or("no such column"))
}

/// Parses the name of an I/O type.
pub fn op(text: &str) -> Result<Op, String> {
    let names = || Op::ALL.map(Op::name).join(", ");
    Op::ALL.into_iter().find(|op| op.name() == text).ok_or_else(|| format!("no such class: use {}", names()))
}

/// Parses a thread name, at most as long as the kernel stores it.
pub fn comm(text: &str) -> Result<String, String> {
    match text.len() {
        1..=15 => Ok(text.to_string()),
        _ => Err("a thread's name has 1 to 15 bytes in the kernel: `ps -eLo comm` shows it".to_string()),
    }
}

/// Parses a percentage from 0 to 100.
pub fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "a percentage is a number, as in 0.1".to_string())?;
    if (0.0..=100.0).contains(&value) {
        Ok(value)
    } else {
        Err("a percentage must be between 0 and 100".to_string())
    }
}

/// Parses a percentage of a CPU, with or without `%`.
pub fn cost(text: &str) -> Result<f64, String> {
    percent(text.strip_suffix('%').unwrap_or(text))
}

/// Parses a tolerance, with or without `%`: 5% is 0.05.
pub fn share(text: &str) -> Result<f64, String> {
    let value = percent(text.strip_suffix('%').unwrap_or(text))?;
    if value > 0.0 && value <= 50.0 {
        Ok(value / 100.0)
    } else {
        Err("it must be above 0 and at most 50%".to_string())
    }
}

/// Parses a time of day, a time with its date, or a time since the start of a recording.
pub fn moment(text: &str) -> Result<Moment, String> {
    let wrong =
        |_| format!("'{text}' is not a time: use 14:30:05, 2026-11-28T14:30:05Z, or 90s after the first");
    Moment::parse(text).map_or_else(|| duration(text).map(Moment::After).map_err(wrong), Ok)
}

/// When a recording starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum At {
    Moment(Moment),
    /// At the next multiple of this time since 1970.
    Multiple(Duration),
}

/// Parses `14:30:05` (UTC, so that several machines start together), a time with its date, `90s` from now, or `/10s`.
pub fn at(text: &str) -> Result<At, String> {
    match text.strip_prefix('/') {
        Some(length) => duration(length).map(At::Multiple),
        None => moment(text).map(|moment| At::Moment(moment.in_utc())).map_err(|_| {
            format!("'{text}' is not a time: use 14:30:05 (UTC), 2026-11-28T14:30:05Z, 90s from now, or /10s")
        }),
    }
}

/// Parses `p99>2ms`, `iops<1000` or `stage:queue.max>1ms`, and keeps the text.
pub fn condition(text: &str) -> Result<(Condition, String), String> {
    let wrong = || {
        "a bound is a metric, > or <, and a value, as in 'p99>2ms', 'iops<1000' or 'stage:queue.p99>1ms'"
            .to_string()
    };
    let at = text.find(['>', '<']).ok_or_else(wrong)?;
    let (metric, value) = (&text[..at], &text[at + 1..]);
    let side = if text[at..].starts_with('>') { BoundSide::Above } else { BoundSide::Below };
    if metric == "iops" {
        let bound: f64 = value.parse().map_err(|_| wrong())?;
        if !(bound.is_finite() && bound >= 0.0) {
            return Err(wrong());
        }
        return Ok((Condition { metric: TriggerMetric::Iops, side, bound }, text.to_string()));
    }
    let (stage, of) = match metric.strip_prefix("stage:") {
        None => (None, metric),
        Some(rest) => {
            let (stage, of) = rest.split_once('.').ok_or_else(wrong)?;
            let named = Stage::ALL.into_iter().find(|one| one.name() == stage);
            let names = || Stage::ALL.map(Stage::name).join(", ");
            (Some(named.ok_or_else(|| format!("no such stage: use {}", names()))?), of)
        }
    };
    let of = match of {
        "mean" => Of::Mean,
        "p50" => Of::Quantile(0.5),
        "p90" => Of::Quantile(0.9),
        "p99" => Of::Quantile(0.99),
        "p99.9" => Of::Quantile(0.999),
        "max" => Of::Max,
        _ => return Err("no such metric: use iops, mean, p50, p90, p99, p99.9 or max".to_string()),
    };
    if value.parse::<f64>().is_ok() {
        return Err(format!("'{value}' has no unit: use us, ms or s, as in 2ms"));
    }
    let bound = duration(value)?.as_nanos() as f64;
    Ok((Condition { metric: TriggerMetric::Latency { stage, of }, side, bound }, text.to_string()))
}

/// Parses `NAME=VALUE`.
pub fn label(text: &str) -> Result<(String, String), String> {
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
    };
    match text.split_once('=') {
        Some((name, value)) if is_name(name) => Ok((name.to_string(), value.to_string())),
        _ => Err("a label is NAME=VALUE; its name has letters, digits and any of _-.".to_string()),
    }
}

/// Parses iostat's interval: seconds, with fractions, or with a unit.
pub fn interval(text: &str) -> Result<Duration, String> {
    let length = duration(text)?;
    if length < Duration::from_millis(100) {
        return Err("the shortest interval is 100ms".to_string());
    }
    Ok(length)
}

/// Parses fio's sizes: `4k` is 4096; k, m, g, t with optional `i` and `b`.
pub fn size(text: &str) -> Result<u64, String> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (number, unit) = lower.split_at(digits);
    let shift = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(format!("unknown unit '{unit}': use k, m, g or t, as in 4k")),
    };
    let value: u64 = number.parse().map_err(|_| "a size is a number and a unit, as in 4k".to_string())?;
    if value == 0 {
        return Err("a size must be above 0".to_string());
    }
    value
        .checked_mul(1 << shift)
        .filter(|bytes| *bytes <= 1 << 60)
        .ok_or_else(|| "the size is too large".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_fios() {
        assert_eq!(size("4k"), Ok(4096));
        assert_eq!(size("1MiB"), Ok(1 << 20));
        assert_eq!(size("512"), Ok(512));
        assert!(size("0").is_err() && size("4x").is_err() && size("99999999t").is_err() && size("").is_err());
    }

    #[test]
    fn classes_are_named_as_in_the_output() {
        assert_eq!(op("write_zeroes"), Ok(Op::WriteZeroes));
        assert!(op("reads").unwrap_err().ends_with("write_zeroes, passthrough"));
    }

    #[test]
    fn percentages_are_finite_and_not_negative() {
        assert_eq!(percent("0.1"), Ok(0.1));
        assert_eq!(share("5%"), Ok(0.05));
        assert!(share("0").is_err() && share("51").is_err() && share("NaN").is_err());
        assert!(percent("-1").is_err() && percent("NaN").is_err() && percent("101").is_err());
    }

    #[test]
    fn bounds_are_a_metric_a_side_and_a_value() {
        let of = |text| condition(text).map(|(condition, _)| condition);
        let latency = |stage, of| TriggerMetric::Latency { stage, of };
        let p99 = Condition { metric: latency(None, Of::Quantile(0.99)), side: BoundSide::Above, bound: 2e6 };
        assert_eq!(of("p99>2ms"), Ok(p99));
        let queue = latency(Some(Stage::Queue), Of::Max);
        assert_eq!(
            of("stage:queue.max<5us"),
            Ok(Condition { metric: queue, side: BoundSide::Below, bound: 5e3 })
        );
        assert_eq!(
            of("iops<1000"),
            Ok(Condition { metric: TriggerMetric::Iops, side: BoundSide::Below, bound: 1e3 })
        );
        for wrong in
            ["p99", "p99>", "p99>2", "p98>2ms", "iops>2ms", "iops<-1", "iops<NaN", "stage:x.p99>1ms", ">1ms"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_recording_begins_at_a_time_or_at_a_multiple_of_one() {
        let clock = |text: &str| {
            Moment::parse(text).map(|moment| At::Moment(moment.in_utc())).ok_or_else(String::new)
        };
        assert_eq!((at("14:30"), at("14:30:05")), (clock("14:30:00"), clock("14:30:05")));
        assert_eq!(at("/10s"), Ok(At::Multiple(Duration::from_secs(10))));
        assert_eq!(at("90s"), Ok(At::Moment(Moment::After(Duration::from_secs(90)))));
        assert_eq!(at("14:30"), clock("14:30Z"));
        assert_eq!(moment("14:30"), Ok(Moment::parse("14:30").unwrap()), "local time");
        assert!(at("14:99").unwrap_err().ends_with("90s from now, or /10s") && at("/").is_err());
    }

    #[test]
    fn a_label_has_a_name() {
        assert_eq!(label("ticket=a=b"), Ok(("ticket".to_string(), "a=b".to_string())));
        assert!(label("=1").is_err() && label("a b=1").is_err() && label("a").is_err());
    }

    #[test]
    fn times_need_a_known_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert!(
            duration("0").is_err()
                && duration("5y").is_err()
                && duration("s").is_err()
                && duration("99999h").is_err()
        );
    }
}
