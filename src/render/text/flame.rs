//! `biopsy flame` as text: what the picture shows, and the frames that weigh most.

use super::{clean, count, counted, fitted, footer, significant, table, time};
use crate::analyze::flame::FlameSummary;
use crate::analyze::profile::Unit;
use crate::envelope::Envelope;

const MOST_FRAMES: usize = 10;
const MOST_NAME: usize = 70;

/// `product`: where the picture went; None: it is on stdout, and this text is not wanted there.
pub fn render(
    envelope: &Envelope,
    summary: &FlameSummary,
    product: Option<&str>,
    status: Option<i32>,
) -> String {
    let total = summary.profile.total();
    let value = |n: u64| match summary.profile.unit {
        Unit::Nanoseconds => time(n),
        Unit::Samples | Unit::Ios => count(n),
    };
    let all = match summary.profile.unit {
        Unit::Nanoseconds => time(total),
        Unit::Samples => counted(total, "sample"),
        Unit::Ios => counted(total, "I/O"),
    };
    let mut out = format!(
        "{}  {all} in {} in {}: {}\n",
        summary.what.title(),
        counted(summary.profile.stacks().len() as u64, "stack"),
        time(summary.duration_ns),
        summary.source,
    );
    let share = |n: u64| significant(100.0 * n as f64 / total.max(1) as f64, 3);
    let row = |heavy: &crate::analyze::flame::Heavy| {
        vec![
            fitted(&clean(&heavy.name), MOST_NAME),
            heavy.area.name().to_string(),
            value(heavy.own),
            share(heavy.own),
            share(heavy.total),
        ]
    };
    let rows: Vec<Vec<String>> = summary.heaviest(MOST_FRAMES).iter().map(row).collect();
    if !rows.is_empty() {
        out.push('\n');
        out.push_str(&table(&["frame", "area", "own", "own %", "total %"], &rows));
    }
    out.push('\n');
    for note in &summary.notes {
        out.push_str(&format!("{}\n", clean(note)));
    }
    out.push_str(&footer::lost(envelope));
    if let Some(cpu) = envelope.cost.cpu_percent {
        out.push_str(&format!(
            "cost {} % of one CPU; maps {}\n",
            significant(cpu, 2),
            super::bytes(envelope.cost.map_bytes as f64)
        ));
    }
    out.push_str(&footer::missing(&envelope.missing, &[]));
    if let Some(status) = status {
        out.push_str(&format!("command ended with status {status}\n"));
    }
    if let Some(product) = product {
        out.push_str(&format!("{}\n", clean(product)));
    }
    out
}
