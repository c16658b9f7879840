//! Formats a finding's numbers for people: the key determines the unit.

use crate::findings::{Finding, Number, Worth};
use crate::units::{bytes, count, range, short, significant, time};

/// Label and text of one number: `("device stage's share of the I/O", "94.8 %")`.
fn labelled(number: Number, value: f64) -> (String, String) {
    let key = number.key;
    // A unit may be inside a key: `user_ns_per_operation`.
    type Show = fn(f64) -> String;
    let units: [(&str, Show); 5] = [
        ("_ns", |v| time(v.max(0.0) as u64)),
        ("_bytes", bytes),
        ("_percent", |v| format!("{} %", significant(v, 3))),
        ("_per_second", short),
        ("_ratio", |v| significant(v, 3)),
    ];
    let show = units.iter().find(|(unit, _)| key.ends_with(unit) || key.contains(&format!("{unit}_per_")));
    (number.label.to_string(), show.map_or_else(|| amount(value), |(_, show)| show(value)))
}

/// All of a finding's numbers, in the order of their keys.
pub fn all(finding: &Finding) -> Vec<(String, String)> {
    finding.numbers.iter().map(|(number, value)| labelled(*number, *value)).collect()
}

/// The possible gain of a fix, as a range.
pub fn worth(worth: &Worth) -> String {
    let range = range(significant(worth.low, 2), significant(worth.high, 2));
    match worth.metric.as_str() {
        "iops_ratio" => format!("operations per second × {range}"),
        other => format!("{} {range}", words(other.trim_end_matches("_ratio"))),
    }
}

fn amount(value: f64) -> String {
    if value.fract() == 0.0 && value >= 0.0 { count(value as u64) } else { significant(value, 3) }
}

fn words(key: &str) -> String {
    let spell = |word| match word {
        "ios" => "I/Os",
        "io" => "I/O",
        "cpu" => "CPU",
        word => word,
    };
    key.split('_').map(spell).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_carry_their_units() {
        let show = |key, value| labelled(Number::new(key, "label"), value).1;
        assert_eq!(show("device_share_percent", 94.83), "94.8 %");
        assert_eq!(show("user_ns_per_operation", 750.0), "750 ns");
        assert_eq!(show("ios_per_second", 15_000.0), "15.0k");
        assert_eq!(show("io_mean_bytes", 131_072.0), "128 KiB");
        assert_eq!(show("in_device_ios", 30.4), "30.4");
        assert_eq!(show("device_p50_to_min_ratio", 5.0), "5.00");
        assert_eq!(show("tags", 256.0), "256");
    }

    #[test]
    fn a_worth_is_a_range() {
        let text = |metric: &str, low, high| worth(&Worth { metric: metric.to_string(), low, high });
        assert_eq!(text("iops_ratio", 1.0, 2.2), "operations per second × 1.0 to 2.2");
        assert_eq!(text("ios_per_operation_ratio", 1.0, 8.0), "I/Os per operation 1.0 to 8.0");
    }
}
