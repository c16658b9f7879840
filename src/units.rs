//! Formats numbers for people. A module of its own, because `rules` writes a finding's sentence and `render` the tables
//! around it, and both must scale alike. Stored data never passes through here.

/// A number with `digits` significant digits, without an exponent.
pub fn significant(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "-".to_string();
    }
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let decimals = (digits as i32 - 1 - magnitude).clamp(0, 9) as usize;
    let text = format!("{value:.decimals$}");
    // Rounding up may add a digit: 0.9999 is 1.00, not 1.000.
    let carried = text.parse::<f64>().is_ok_and(|shown| shown.abs() >= 10f64.powi(magnitude + 1));
    if carried && decimals > 0 { format!("{value:.*}", decimals - 1) } else { text }
}

/// Three significant digits, at most two decimals.
pub fn figure(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else if value == 0.0 {
        "0".to_string()
    } else if value < 0.01 {
        significant(value, 1)
    } else {
        format!("{value:.2}")
    }
}

/// Nanoseconds in a suitable unit: `118 µs`.
pub fn time(ns: u64) -> String {
    let (scale, unit) = time_unit(ns);
    if scale == 1.0 {
        return format!("{ns} ns");
    }
    // A value that rounds to a thousand of a unit uses the next unit.
    let (scale, unit) =
        if ns as f64 / scale >= 999.5 { time_unit((scale * 1e3) as u64) } else { (scale, unit) };
    format!("{} {unit}", significant(ns as f64 / scale, 3))
}

/// The common unit for a column of times, and its nanoseconds: that of the largest value, or the next smaller one where
/// the smallest would begin with `0.0`.
pub fn common_time(values: impl Iterator<Item = f64>) -> (f64, &'static str) {
    let (least, most) = extremes(values);
    let (scale, unit) = time_unit(most as u64);
    if least < scale / 10.0 && scale > 1.0 { time_unit((scale / 1e3) as u64) } else { (scale, unit) }
}

/// Same for bytes.
pub fn common_bytes(values: impl Iterator<Item = f64>) -> (f64, &'static str) {
    let (least, most) = extremes(values);
    let mut at = 0;
    while most >= 1024f64.powi(at + 1) && at + 1 < BYTES.len() as i32 {
        at += 1;
    }
    let at = if least < 1024f64.powi(at) / 10.0 { (at - 1).max(0) } else { at };
    (1024f64.powi(at), BYTES[at as usize])
}

/// The smallest value above 0, and the largest.
fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values
        .filter(|value| *value > 0.0)
        .fold((f64::MAX, 0.0), |(least, most): (f64, f64), value| (least.min(value), most.max(value)))
}

/// The suitable unit for a time, and its nanoseconds.
pub fn time_unit(ns: u64) -> (f64, &'static str) {
    match ns {
        0..1_000 => (1.0, "ns"),
        1_000..1_000_000 => (1e3, "µs"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

const BYTES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// Bytes in binary units: `4.00 KiB`.
pub fn bytes(value: f64) -> String {
    let mut scaled = value;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < BYTES.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{} {}", significant(scaled, 3), BYTES[unit]) }
}

/// A count with thousands separators: `1,149,203`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// A count with its noun: `1 I/O`, `2,047 I/Os`, `0 retries`.
pub fn counted(value: u64, noun: &str) -> String {
    match noun.strip_suffix('y') {
        _ if value == 1 => format!("1 {noun}"),
        Some(stem) => format!("{} {stem}ies", count(value)),
        None => format!("{} {noun}s", count(value)),
    }
}

/// A short rate or large number: `525k`, `1.15M`.
pub fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 999.5e6 => format!("{}G", significant(value / 1e9, 3)),
        v if v >= 999.5e3 => format!("{}M", significant(value / 1e6, 3)),
        v if v >= 9999.5 => format!("{}k", significant(value / 1e3, 3)),
        v if v < 10.0 && v.fract() != 0.0 => figure(value),
        _ => format!("{value:.0}"),
    }
}

/// `LOW to HIGH`, or just one where they are equal.
pub fn range(low: String, high: String) -> String {
    if low == high { low } else { format!("{low} to {high}") }
}

/// `7.20 GB/s`, or `6.64 to 7.52 GB/s` where the payload is unknown.
pub fn gigabytes(bytes: [f64; 2]) -> String {
    let [low, high] = bytes.map(|bytes| significant(bytes / 1e9, 3));
    format!("{} GB/s", range(low, high))
}

/// A share as percent: `95 %`, with a decimal where it would otherwise read as all or nothing: `99.6 %`.
pub fn in_percent(share: f64) -> String {
    let percent = share * 100.0;
    let close = (0.0 < percent && percent < 1.0) || (99.0 < percent && percent < 100.0);
    if close { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_one_unit() {
        let time = |values: &[f64]| common_time(values.iter().copied());
        assert_eq!(time(&[90e3, 8.5e6]), (1e3, "µs"), "0.09 ms would be hard to read");
        assert_eq!(time(&[400e3, 8.5e6]), (1e6, "ms"));
        assert_eq!(time(&[0.0, 2e9, 3.0]), (1e6, "ms"), "one step and no more");
        assert_eq!(time(&[]), (1.0, "ns"));
        let bytes = |values: &[f64]| common_bytes(values.iter().copied());
        let gib = 1024f64.powi(3);
        assert_eq!(bytes(&[gib / 2.0, 7.0 * 1024.0 * gib]), (gib, "GiB"));
        assert_eq!(bytes(&[256.0 * gib]), (gib, "GiB"));
        assert_eq!(bytes(&[]), (1.0, "B"));
    }

    #[test]
    fn units_scale_and_keep_three_digits() {
        assert_eq!(time(0), "0 ns");
        assert_eq!(time(118_400), "118 µs");
        assert_eq!(time(1_500_000), "1.50 ms");
        assert_eq!((time(999_499), time(999_500)), ("999 µs".to_string(), "1.00 ms".to_string()));
        assert_eq!((time(999), time(1_000)), ("999 ns".to_string(), "1.00 µs".to_string()));
        assert_eq!(bytes(4096.0), "4.00 KiB");
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(count(1_149_203), "1,149,203");
        assert_eq!(short(525_300.0), "525k");
        let rounded = [0.9999, 99.96, 0.0996, 1.0].map(|value| significant(value, 3));
        assert_eq!(rounded, ["1.00", "100", "0.0996", "1.00"]);
        let nouns = [counted(0, "I/O"), counted(1, "I/O"), counted(2_047, "I/O"), counted(2, "retry")];
        assert_eq!(nouns, ["0 I/Os", "1 I/O", "2,047 I/Os", "2 retries"]);
        assert_eq!((short(0.0), short(1.0), short(12.4)), ("0".into(), "1".into(), "12".into()));
        assert_eq!((short(1.0 / 2.7), short(9.876)), ("0.37".into(), "9.88".into()));
        assert_eq!(
            (in_percent(0.95), in_percent(0.996), in_percent(1.0)),
            ("95 %".into(), "99.6 %".into(), "100 %".into())
        );
    }
}
