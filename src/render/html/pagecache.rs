//! The section on the page cache: memory usage, and which processes reclaimed pages.

use super::escape;
use super::tables::{Cell, facts, table, text};
use crate::analyze::memory_sample::MemorySample;
use crate::analyze::onset::LEAST_MOMENTS;
use crate::analyze::pagecache::paths::PathSummary;
use crate::analyze::pagecache::{PagecacheSummary, ReclaimKind};
use crate::render::svg::{self, ChartLine};
use crate::units::{bytes, count, range, short, significant, time};

/// Processes that are shown.
const MOST_RECLAIMERS: usize = 16;

/// Empty if not measured.
pub fn pagecache(summary: Option<&PagecacheSummary>) -> String {
    let Some(summary) = summary else { return String::new() };
    let mut out = facts(&memory(summary));
    let used: Vec<ReclaimKind> = ReclaimKind::ALL
        .into_iter()
        .filter(|kind| summary.reclaims.get(kind).is_some_and(|one| one.count > 0 || one.batches > 0))
        .collect();
    if used.is_empty() {
        out.push_str("<p class=\"soft\">No direct reclaim.</p>\n");
    } else {
        out.push_str(&reclaims(summary, &used));
    }
    if !summary.reclaimers.is_empty() {
        out.push_str(&reclaimers(summary));
    }
    if !summary.paths.is_empty() {
        out.push_str(&paths(&summary.paths));
    }
    out.push_str(&courses(summary));
    out
}

/// Charts of the signals of onset detection.
fn courses(summary: &PagecacheSummary) -> String {
    if summary.series.len() < LEAST_MOMENTS {
        return String::new();
    }
    let marks: Vec<f64> = summary.onset.iter().map(|onset| onset.at_ns as f64 / 1e9).collect();
    let per_second = |moment: &MemorySample, n: u64| n as f64 * 1e9 / moment.duration_ns.max(1) as f64;
    let course = |name: &str, of: &dyn Fn(&MemorySample) -> Option<f64>, show: &dyn Fn(f64) -> String| {
        let values: Vec<_> = summary.series.iter().map(|one| (one.at_ns as f64 / 1e9, of(one))).collect();
        // A signal that is always zero is in the facts above.
        match values.iter().any(|(_, value)| value.is_some_and(|value| value > 0.0)) {
            true => svg::lines(name, summary.seconds(), &[ChartLine { name, values }], &marks, show),
            false => String::new(),
        }
    };
    let rate = |value: f64| format!("{}/s", bytes(value));
    let percent = |value: f64| format!("{} %", significant(value, 3));
    let mut out = [
        course("read", &|one| one.read_bytes.map(|n| per_second(one, n)), &rate),
        course("written", &|one| one.written_bytes.map(|n| per_second(one, n)), &rate),
        course("free memory", &|one| one.free_bytes.map(|n| n as f64), &|value| bytes(value)),
        course("page cache", &|one| one.file_bytes.map(|n| n as f64), &|value| bytes(value)),
        course("pages scanned by reclaim", &|one| one.scanned_pages.map(|n| per_second(one, n)), &|value| {
            format!("{}/s", short(value))
        }),
        course("CPU time in the kernel, of all CPUs", &|one| one.system_percent, &percent),
        course("spinning on locks, of all CPUs", &|one| Some(one.spin_percent?.0), &percent),
    ]
    .concat();
    if !out.is_empty() {
        out = format!("<div class=\"charts\">\n{out}</div>\n");
    }
    let why =
        || summary.absent.iter().find(|absence| absence.what == "onset").map(|absence| &absence.why[..]);
    let words = match &summary.onset {
        Some(onset) => format!(
            "The dashed line is the onset, {} after the start: a lasting change for the worse in {}.",
            time(onset.at_ns),
            onset.moved.iter().map(|moved| moved.signal.name()).collect::<Vec<_>>().join(", ")
        ),
        None => format!("No onset was found: {}.", why().unwrap_or_default()),
    };
    out.push_str(&format!("<p class=\"soft small\">{}</p>\n", escape(&words)));
    out
}

fn memory(summary: &PagecacheSummary) -> Vec<(&'static str, String)> {
    let size = |value: Option<u64>| value.map(|value| bytes(value as f64));
    let rate = |n: Option<u64>| {
        n.filter(|_| summary.duration_ns > 0)
            .map(|n| format!("{} pages/s", short(n as f64 / summary.seconds())))
    };
    let all = [
        ("free memory", size(summary.memory.free_bytes)),
        ("page cache, with buffers", size(summary.memory.file_bytes)),
        ("dirty", size(summary.memory.dirty_bytes)),
        ("in write-back", size(summary.memory.writeback_bytes)),
        ("file pages scanned", rate(summary.scanned_pages)),
        ("reclaimed", rate(summary.stolen_pages)),
        ("read back soon after", rate(summary.refault_pages)),
    ];
    let mut rows: Vec<_> =
        all.into_iter().map(|(name, value)| (name, value.unwrap_or("unknown".to_string()))).collect();
    if let Some(ahead) = summary.readahead {
        rows.push(("pages read ahead", count(ahead.asked_pages)));
        rows.extend(ahead.unused_pages.map(|n| ("of these, never used (about)", count(n))));
    }
    rows
}

fn reclaims(summary: &PagecacheSummary, used: &[ReclaimKind]) -> String {
    let row = |kind: &ReclaimKind| {
        let of = summary.reclaim(*kind);
        let quantile = |q| Cell::Number(of.time.quantile(q).map_or("-".to_string(), time));
        vec![
            text(kind.name()),
            Cell::Number(count(of.count)),
            Cell::Number(time(of.ns)),
            quantile(0.5),
            quantile(0.99),
            Cell::Number(count(of.scanned_pages)),
            Cell::Number(count(of.stolen_pages)),
        ]
    };
    let header = ["<reclaim by", "times", "total", "p50", "p99", "pages scanned", "reclaimed"];
    table(&header, used.iter().map(row).collect())
}

fn reclaimers(summary: &PagecacheSummary) -> String {
    let rows = summary.reclaimers.iter().take(MOST_RECLAIMERS).map(|of| {
        vec![
            text(&of.comm),
            Cell::Number(of.pid.to_string()),
            text(of.kind.map_or("-", ReclaimKind::name)),
            text(of.cgroup.as_deref().unwrap_or("-")),
            Cell::Number(count(of.count)),
            Cell::Number(time(of.ns)),
        ]
    });
    table(&["<reclaimer", "pid", "<kind", "<group", "times", "total"], rows.collect())
}

fn paths(all: &[PathSummary]) -> String {
    let rows = all.iter().map(|of| {
        let ratio = of.spin_ratio.map(|(low, high)| range(significant(low, 3), significant(high, 3)));
        vec![
            text(&of.function),
            text(of.source.name()),
            Cell::Number(of.calls.map_or("-".to_string(), count)),
            Cell::Number(time(of.ns)),
            Cell::Number(range(time(of.spin_ns.0), time(of.spin_ns.1))),
            Cell::Number(ratio.unwrap_or("-".to_string())),
        ]
    });
    let header = ["<function", "<named by", "calls", "time within", "of it spinning", "spinning : useful"];
    let mut out = table(&header, rows.collect());
    let of: Vec<String> = all
        .iter()
        .filter(|of| of.samples.is_some())
        .map(|of| format!("{}: {}", escape(&of.function), count(of.samples.unwrap_or(0))))
        .collect();
    if !of.is_empty() {
        out.push_str(&format!(
            "<p class=\"soft small\">Times are estimated from CPU samples ({}).</p>\n",
            of.join(", ")
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::pagecache::ReclaimerSummary;

    #[test]
    fn hostile_names_are_escaped_and_what_is_unknown_is_said_to_be() {
        let hostile = ReclaimerSummary {
            comm: "<script>".to_string(),
            cgroup: Some("/\"><b>".to_string()),
            count: 1,
            ..ReclaimerSummary::default()
        };
        let summary = PagecacheSummary { reclaimers: vec![hostile], ..PagecacheSummary::default() };
        let html = pagecache(Some(&summary));
        assert!(
            !html.contains("<script>") && !html.contains("<b>") && html.contains("&lt;script&gt;"),
            "{html}"
        );
        assert!(html.contains("unknown") && html.contains("No direct reclaim"), "{html}");
        assert_eq!(pagecache(None), "");
    }
}
