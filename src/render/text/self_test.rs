//! Renders `biopsy check --self-test` as text.

use super::{bytes, clean, count, footer, significant, time};
use crate::analyze::invariants::{FigureValue, Invariant, Outcome};
use crate::envelope::Envelope;
use crate::load::LoadSummary;

/// One line per invariant, with its violation below it, and general notes.
pub fn render(
    envelope: &Envelope,
    device: &str,
    load: Result<&LoadSummary, &str>,
    tested: &[Invariant],
    color: bool,
) -> String {
    let mut out = format!(
        "self-test of {} for {} on kernel {}\n",
        clean(device),
        time(envelope.duration_ns),
        clean(&envelope.kernel)
    );
    match load {
        Ok(load) => out.push_str(&format!(
            "{} random reads of {} at depth {}, by biopsy itself; nothing was written\n\n",
            bytes(load.job.largest_block() as f64),
            clean(&load.target),
            load.job.iodepth
        )),
        Err(why) => out.push_str(&format!(
            "no load was driven, so only I/O of other processes is measured (biopsy load DIRECTORY --scratch makes some): {}\n\n",
            clean(why)
        )),
    }
    let width = tested.iter().map(|one| one.name.len()).max().unwrap_or(0);
    for one in tested {
        let numbers: Vec<String> = one.numbers.iter().map(|(key, number)| figure(key, *number)).collect();
        out.push_str(&format!("  {}  {:width$}  {}", word(one.state, color), one.name, numbers.join(", ")));
        match &one.why {
            Some(why) if numbers.is_empty() => out.push_str(&format!("{}\n", clean(why))),
            Some(why) => out.push_str(&format!("\n  {:10}  {:width$}  {}\n", "", "", clean(why))),
            None => out.push('\n'),
        }
    }
    let of = |state| tested.iter().filter(|one| one.state == state).count();
    out.push_str(&format!(
        "\n{} passed, {} failed, {} not tested\n",
        of(Outcome::Pass),
        of(Outcome::Fail),
        of(Outcome::NotTested)
    ));
    out.push_str(&footer::lost(envelope));
    out.push_str(&footer::missing(&envelope.missing, &[device]));
    out
}

fn word(state: Outcome, color: bool) -> String {
    let (text, code) = match state {
        Outcome::Pass => ("pass", 32),
        Outcome::Fail => ("FAIL", 31),
        Outcome::NotTested => ("not tested", 33),
    };
    if color { format!("\x1b[{code}m{text:<10}\x1b[0m") } else { format!("{text:<10}") }
}

/// `read seen 127,000`: the key's words, and the number with its unit.
fn figure(key: &str, number: FigureValue) -> String {
    let (what, unit) = match key.rsplit_once('_') {
        Some((what, unit @ ("ns" | "bytes" | "percent"))) => (what, unit),
        _ => (key, ""),
    };
    let value = match (number, unit) {
        (FigureValue::Count(n), "ns") => format!("{} ns", count(n)),
        (FigureValue::Count(n), "bytes") => bytes(n as f64),
        (FigureValue::Count(n), _) => count(n),
        (FigureValue::Measure(value), "percent") => format!("{} %", significant(value, 2)),
        (FigureValue::Measure(value), _) => significant(value, 3),
    };
    format!("{} {value}", clean(&what.replace('_', " ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_shouted_and_explained() {
        let one = |name: &'static str, state, numbers: &[(&str, u64)], why: Option<&str>| Invariant {
            name: name.into(),
            state,
            numbers: numbers.iter().map(|(key, n)| (key.to_string(), FigureValue::Count(*n))).collect(),
            why: why.map(str::to_string),
        };
        let tested = [
            one("order", Outcome::Pass, &[("negative", 0), ("total_ns", 12_000)], None),
            one("sums", Outcome::Fail, &[("seen", 7)], Some("8 were there\x1b")),
            one("cost", Outcome::NotTested, &[], Some("too few")),
        ];
        let text = render(&Envelope::default(), "sda", Err("it cannot be opened"), &tested, false);
        assert!(text.contains("makes some): it cannot be opened\n"), "{text}");
        assert!(text.contains("  pass        order  negative 0, total 12,000 ns\n"), "{text}");
        assert!(
            text.contains("  FAIL        sums   seen 7\n                     8 were there\\u{1b}\n"),
            "{text}"
        );
        assert!(text.contains("  not tested  cost   too few\n"), "{text}");
        assert!(text.contains("1 passed, 1 failed, 1 not tested"), "{text}");
    }

    #[test]
    fn units_stand_at_the_numbers() {
        assert_eq!(figure("map_bytes", FigureValue::Count(2 << 20)), "map 2.00 MiB");
        assert_eq!(figure("ns_per_io", FigureValue::Measure(123.4)), "ns per io 123");
        assert_eq!(figure("cpu_percent", FigureValue::Measure(5.55)), "cpu 5.5 %");
    }
}
