//! Numbers as people read them. A leaf, because a finding's sentence is written in `rules` and the
//! tables around it in `render`, and both must scale alike. Data never passes through here.

/// A number with `digits` significant digits, without an exponent.
pub fn significant(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "-".to_string();
    }
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let decimals = (digits as i32 - 1 - magnitude).clamp(0, 9) as usize;
    format!("{value:.decimals$}")
}

/// Nanoseconds in the unit that suits them: `118 µs`.
pub fn time(ns: u64) -> String {
    let (scale, unit) = time_unit(ns);
    if scale == 1.0 {
        return format!("{ns} ns");
    }
    format!("{} {unit}", significant(ns as f64 / scale, 3))
}

/// The unit that suits a time, and how many nanoseconds it has.
pub fn time_unit(ns: u64) -> (f64, &'static str) {
    match ns {
        0..1_000 => (1.0, "ns"),
        1_000..1_000_000 => (1e3, "µs"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

/// Bytes in binary units: `4.00 KiB`.
pub fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut scaled = value;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{} {}", significant(scaled, 3), units[unit]) }
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

/// A rate or large number in short: `525k`, `1.15M`.
pub fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 999.5e6 => format!("{}G", significant(value / 1e9, 3)),
        v if v >= 999.5e3 => format!("{}M", significant(value / 1e6, 3)),
        v if v >= 9999.5 => format!("{}k", significant(value / 1e3, 3)),
        _ => format!("{value:.0}"),
    }
}

/// A share as percent: `95 %`, and with a decimal where it would read as all or nothing: `99.6 %`.
pub fn in_percent(share: f64) -> String {
    let percent = share * 100.0;
    let close = (0.0 < percent && percent < 1.0) || (99.0 < percent && percent < 100.0);
    if close { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_scale_and_keep_three_digits() {
        assert_eq!(time(0), "0 ns");
        assert_eq!(time(118_400), "118 µs");
        assert_eq!(time(1_500_000), "1.50 ms");
        assert_eq!(bytes(4096.0), "4.00 KiB");
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(count(1_149_203), "1,149,203");
        assert_eq!(short(525_300.0), "525k");
        assert_eq!(short(0.0), "0");
        assert_eq!(
            (in_percent(0.95), in_percent(0.996), in_percent(1.0)),
            ("95 %".into(), "99.6 %".into(), "100 %".into())
        );
    }
}
