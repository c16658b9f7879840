//! Renders `biopsy latency --measure-cost` as text.

use super::{count, counted, footer, significant, time};
use crate::analyze::overhead::{Estimate, OverheadSummary};
use crate::envelope::Envelope;
use crate::stats::LEAST_FOR_INTERVAL;

/// The whole view.
pub fn render(envelope: &Envelope, summary: &OverheadSummary) -> String {
    let mut out = String::new();
    if let (Some(without), Some(with)) = (summary.iops_without, summary.iops_with) {
        out.push_str(&format!(
            "{} IOPS without the probes, {} with them (medians of {} of {})\n",
            count(without.round() as u64),
            count(with.round() as u64),
            counted(summary.pairs - summary.pairs_without_io, "pair"),
            time(summary.phase_ns),
        ));
    }
    let lines = [
        ("IOPS lost", summary.iops_lost_percent, "%"),
        ("CPU time of the machine per I/O", summary.cpu_ns_per_io, "ns more"),
    ];
    for (what, estimate, unit) in lines {
        let Some(Estimate { median, low, high }) = estimate else { continue };
        let [median, low, high] = [median, low, high].map(|value| significant(value, 2));
        out.push_str(&format!("{what}: {median} {unit} (95 %: {low} to {high})\n"));
    }
    if summary.iops_lost_percent.is_none() {
        out.push_str(&format!(
            "no confidence interval: {} had I/O throughout, and at least {LEAST_FOR_INTERVAL} are needed\n",
            counted(summary.pairs - summary.pairs_without_io, "pair"),
        ));
    }
    if summary.pairs_without_io > 0 {
        out.push_str(&format!(
            "{} had a phase without I/O: left out\n",
            counted(summary.pairs_without_io, "pair")
        ));
    }
    out.push_str(&footer::missing(&envelope.missing, &[]));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_stands_beside_the_median() {
        let estimate = |median: f64| Some(Estimate { median, low: median - 1.0, high: median + 2.0 });
        let summary = OverheadSummary {
            phase_ns: 1_750_000_000,
            pairs: 12,
            pairs_without_io: 2,
            iops_without: Some(133_050.0),
            iops_with: Some(130_000.0),
            iops_lost_percent: estimate(2.3),
            cpu_ns_per_io: estimate(310.0),
        };
        let text = render(&Envelope::default(), &summary);
        assert!(text.contains("medians of 10 pairs of 1.75 s"), "{text}");
        assert!(text.contains("IOPS lost: 2.3 % (95 %: 1.3 to 4.3)\n"), "{text}");
        assert!(text.contains("2 pairs had a phase without I/O"), "{text}");
        let one = OverheadSummary { pairs: 1, pairs_without_io: 0, iops_lost_percent: None, ..summary };
        assert!(render(&Envelope::default(), &one).contains("(medians of 1 pair of 1.75 s)"));
        let few = render(&Envelope::default(), &OverheadSummary { pairs: 3, ..OverheadSummary::default() });
        assert!(
            few.starts_with("no confidence interval: 3 pairs had I/O throughout, and at least 6"),
            "{few}"
        );
    }
}
