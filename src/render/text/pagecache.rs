//! Renders the page cache and reclaim for a terminal.

use super::{bytes, clean, count, range, short, significant, table, time};
use crate::analyze::pagecache::paths::PathSummary;
use crate::analyze::pagecache::{
    Check, NodeSummary, PagecacheSummary, ReclaimKind, ReclaimSummary, ReclaimerSummary,
};

/// Processes that are shown.
const MOST_RECLAIMERS: usize = 8;

/// One paragraph, and the tables with data.
pub fn render(summary: &PagecacheSummary) -> String {
    let mut out = memory(summary);
    out.push_str(&nodes(&summary.nodes));
    out.push_str(&onset(summary));
    let rows: Vec<(ReclaimKind, &ReclaimSummary)> = summary
        .reclaims
        .iter()
        .filter(|(_, one)| one.count > 0 || one.batches > 0)
        .map(|(k, one)| (*k, one))
        .collect();
    if rows.is_empty() {
        out.push_str("  no direct reclaim\n");
    } else {
        out.push_str(&reclaims(&rows));
    }
    if !summary.reclaimers.is_empty() {
        out.push_str(&reclaimers(&summary.reclaimers));
    }
    out.push_str(&readahead(summary));
    if !summary.paths.is_empty() {
        out.push_str(&paths(&summary.paths));
    }
    out.push_str(&summary.checks.iter().map(check).collect::<String>());
    let lost: Vec<String> = summary
        .lost
        .iter()
        .filter(|(_, n)| **n > 0)
        .map(|(kind, n)| format!("{} {kind}", count(*n)))
        .collect();
    if !lost.is_empty() {
        out.push_str(&format!("missed events of reclaim: {}\n", lost.join(", ")));
    }
    out
}

fn or_unknown(value: Option<u64>) -> String {
    value.map_or("unknown".to_string(), |value| bytes(value as f64))
}

fn memory(summary: &PagecacheSummary) -> String {
    let memory = &summary.memory;
    let rate = |n: Option<u64>| match n {
        Some(n) if summary.duration_ns > 0 => format!("{}/s", short(n as f64 / summary.seconds())),
        _ => "unknown".to_string(),
    };
    format!(
        "memory  free {}, page cache {}, dirty {}, in write-back {}\n  file pages: scanned {}, reclaimed \
         {}, read back soon after {}\n",
        or_unknown(memory.free_bytes),
        or_unknown(memory.file_bytes),
        or_unknown(memory.dirty_bytes),
        or_unknown(memory.writeback_bytes),
        rate(summary.scanned_pages),
        rate(summary.stolen_pages),
        rate(summary.refault_pages),
    )
}

/// A single node adds nothing to the machine's figures.
fn nodes(all: &[NodeSummary]) -> String {
    let line = |of: &NodeSummary| {
        format!(
            "  node {}: free {}, page cache {}, dirty {}, in write-back {}; {} pages scanned, {} reclaimed\n",
            of.node,
            or_unknown(of.memory.free_bytes),
            or_unknown(of.memory.file_bytes),
            or_unknown(of.memory.dirty_bytes),
            or_unknown(of.memory.writeback_bytes),
            count(of.scanned_pages),
            count(of.stolen_pages)
        )
    };
    if all.len() > 1 { all.iter().map(line).collect() } else { String::new() }
}

/// When the trouble began, and which signal changed first. Most intervals have none.
fn onset(summary: &PagecacheSummary) -> String {
    let Some(onset) = &summary.onset else { return String::new() };
    let first: Vec<_> = onset.first.iter().map(|signal| signal.name()).collect();
    let later = onset.moved.iter().filter(|moved| !onset.first.contains(&moved.signal));
    let later: Vec<_> = later.map(|moved| moved.signal.name()).collect();
    let then = if later.is_empty() { String::new() } else { format!(", then {}", later.join(", ")) };
    format!("onset  {} after the start: {} got worse first{then}\n", time(onset.at_ns), first.join(", "))
}

/// The name of a kind.
fn words(kind: ReclaimKind) -> &'static str {
    match kind {
        ReclaimKind::Kswapd => "kswapd",
        ReclaimKind::Direct => "tasks, for the machine",
        ReclaimKind::Memcg => "tasks, at their group's limit",
        ReclaimKind::Softlimit => "soft limits, inside these",
        ReclaimKind::Node => "tasks, for one node",
        ReclaimKind::Other => "started before the trace, or others",
    }
}

fn reclaims(rows: &[(ReclaimKind, &ReclaimSummary)]) -> String {
    let row = |(kind, of): &(ReclaimKind, &ReclaimSummary)| {
        let quantile = |q| of.time.quantile(q).map_or("-".to_string(), time);
        vec![
            words(*kind).to_string(),
            count(of.count),
            time(of.time.sum()),
            quantile(0.5),
            quantile(0.99),
            of.time.max().map_or("-".to_string(), time),
            count(of.scanned_pages),
            count(of.stolen_pages),
            count(of.throttled),
        ]
    };
    let header =
        ["reclaim by", "times", "total", "p50", "p99", "max", "pages scanned", "reclaimed", "throttled"];
    table(&header, &rows.iter().map(row).collect::<Vec<_>>())
}

fn reclaimers(all: &[ReclaimerSummary]) -> String {
    let row = |of: &ReclaimerSummary| {
        vec![
            clean(&of.comm),
            of.pid.to_string(),
            of.kind.map_or("-", ReclaimKind::name).to_string(),
            of.cgroup.as_deref().map_or("-".to_string(), clean),
            count(of.count),
            time(of.ns),
            of.max_ns.map_or("-".to_string(), time),
        ]
    };
    let header = ["reclaimer", "pid", "kind", "group", "times", "total", "max"];
    table(&header, &all.iter().take(MOST_RECLAIMERS).map(row).collect::<Vec<_>>())
}

fn readahead(summary: &PagecacheSummary) -> String {
    let Some(of) = summary.readahead.filter(|of| of.calls > 0) else { return String::new() };
    let unused = match (of.unused_pages, of.asked_pages) {
        (Some(unused), asked @ 1..) => format!(
            ", of which about {} ({} %) were never used",
            count(unused),
            significant(100.0 * unused as f64 / asked as f64, 3)
        ),
        _ if of.is_hidden_by_mapping() => "; programs map files, so unused pages are unknown".to_string(),
        _ => String::new(),
    };
    format!("read-ahead  {} pages in {} calls{unused}\n", count(of.asked_pages), count(of.calls))
}

fn paths(all: &[PathSummary]) -> String {
    let row = |of: &PathSummary| {
        let (low, high) = of.spin_ns;
        let ratio = of.spin_ratio.map(|(low, high)| range(significant(low, 3), significant(high, 3)));
        vec![
            clean(&of.function),
            of.source.name().to_string(),
            of.calls.map_or("-".to_string(), count),
            time(of.ns),
            range(time(low), time(high)),
            ratio.unwrap_or("-".to_string()),
        ]
    };
    let header = ["function", "named by", "calls", "time within", "of it spinning", "spinning : useful"];
    table(&header, &all.iter().map(row).collect::<Vec<_>>())
}

fn check(of: &Check) -> String {
    let verdict = match (of.exact, of.holds) {
        (false, _) => "the two may differ with this LRU",
        (_, true) => "ok",
        (_, false) => "DIFFERS",
    };
    let range = range(count(of.kernel_min), count(of.kernel_max));
    format!("check {}: measured {}, kernel counted {range}: {verdict}\n", clean(&of.what), count(of.seen))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::analyze::memory_sample::MemorySample;
    use crate::analyze::onset;
    use crate::analyze::pagecache::paths::TimingMethod;
    use crate::analyze::pagecache::{Readahead, ReadaheadSource};
    use crate::hist::Histogram;
    use crate::host::meminfo::Meminfo;
    use crate::render::text::fit;

    fn render(summary: &PagecacheSummary) -> String {
        fit(&super::render(summary), None)
    }

    fn summary() -> PagecacheSummary {
        let mut time = Histogram::default();
        time.record(1_000_000);
        let memcg = ReclaimSummary {
            count: 2,
            time,
            scanned_pages: 64,
            stolen_pages: 60,
            ..ReclaimSummary::default()
        };
        PagecacheSummary {
            duration_ns: 1_000_000_000,
            memory: Meminfo::parse("MemFree: 1024 kB\nDirty: 0 kB\n"),
            reclaims: BTreeMap::from([
                (ReclaimKind::Memcg, memcg),
                (ReclaimKind::Direct, ReclaimSummary::default()),
            ]),
            reclaimers: vec![ReclaimerSummary {
                kind: Some(ReclaimKind::Memcg),
                comm: "a\x1b[2J".to_string(),
                pid: 7,
                count: 2,
                ns: 1_000_000,
                ..ReclaimerSummary::default()
            }],
            readahead: Some(Readahead {
                by: ReadaheadSource::Events,
                calls: 2,
                asked_pages: 64,
                wanted_pages: Some(16),
                mapped_pages: Some(0),
                read_pages: Some(64),
                unused_pages: Some(48),
            }),
            paths: vec![PathSummary {
                function: "shrink_lruvec".to_string(),
                source: TimingMethod::Sampled,
                ns: 40_000_000,
                spin_ns: (10_000_000, 20_000_000),
                spin_ratio: Some((1.0 / 3.0, 1.0)),
                ..PathSummary::default()
            }],
            lost: BTreeMap::from([("no_room".to_string(), 3), ("missed".to_string(), 0)]),
            ..PagecacheSummary::default()
        }
    }

    #[test]
    fn what_was_seen_is_shown_and_what_is_not_known_is_no_zero() {
        let text = render(&summary());
        for words in [
            "free 1.00 MiB, page cache unknown, dirty 0 B, in write-back unknown",
            "scanned unknown",
            "tasks, at their group's limit",
            "a\\u{1b}[2J",
            "64 pages in 2 calls, of which about 48 (75.0 %) were never used",
            "10.0 ms to 20.0 ms",
            "0.333 to 1.00",
            "missed events of reclaim: 3 no_room",
        ] {
            assert!(text.contains(words), "'{words}' is not in\n{text}");
        }
        assert!(!text.contains("tasks, for the machine") && !text.contains('\x1b'), "{text}");
    }

    /// Free memory runs out for twelve seconds, and then everything is worse.
    #[test]
    fn an_onset_is_told_with_what_moved_first() {
        let moment = |second: u64| {
            let calm = second < 12;
            MemorySample {
                at_ns: (second + 1) * 1_000_000_000,
                duration_ns: 1_000_000_000,
                read_bytes: Some(if calm { 6_800_000_000 } else { 3_200_000_000 }),
                free_bytes: Some(if calm {
                    (12 - second) * 4_000_000_000 + 2_000_000_000
                } else {
                    1_300_000_000
                }),
                scanned_pages: Some(if calm { 0 } else { 800_000 }),
                spin_percent: Some(if calm { (0.8, 1.2) } else { (48.0, 72.0) }),
                ..MemorySample::default()
            }
        };
        let series: Vec<MemorySample> = (0..20).map(moment).collect();
        let onset = onset::onset(&series).ok();
        let text = render(&PagecacheSummary { onset, ..PagecacheSummary::default() });
        let line = text.lines().find(|line| line.starts_with("onset  "));
        let line = line.unwrap_or_else(|| panic!("no onset in\n{text}"));
        assert!(line.contains(" s after the start: ") && line.contains(" got worse first"), "{line}");
        assert!(line.contains("reclaim") && line.contains("throughput"), "{line}");
    }

    #[test]
    fn nodes_are_told_apart_where_there_are_several() {
        let node = |node| NodeSummary {
            node,
            memory: Meminfo::parse("MemFree: 1024 kB\nDirty: 0 kB\n"),
            scanned_pages: 7,
            ..NodeSummary::default()
        };
        let of = |nodes| render(&PagecacheSummary { nodes, ..PagecacheSummary::default() });
        let text = of(vec![node(0), node(1)]);
        let line = "  node 1: free 1.00 MiB, page cache unknown, dirty 0 B, in write-back unknown; 7 pages scanned, 0 \
                    reclaimed\n";
        assert!(text.contains("  node 0: free ") && text.contains(line), "{text}");
        assert!(!of(vec![node(0)]).contains("node"), "{text}");
    }

    #[test]
    fn an_idle_machine_has_nothing_to_show() {
        let text = render(&PagecacheSummary::default());
        assert!(text.contains("no direct reclaim") && text.lines().count() == 3, "{text}");
    }
}
