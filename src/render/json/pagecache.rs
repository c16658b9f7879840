//! The `pagecache` part of `biopsy.locks/1`.

use serde_json::{Map, Value, json};

use super::times;
use crate::analyze::counting::Bracket;
use crate::analyze::moment::Moment;
use crate::analyze::pagecache::paths::PathSummary;
use crate::analyze::pagecache::{
    Check, Kind, NodeSummary, PagecacheSummary, Readahead, ReadaheadSource, ReclaimSummary, ReclaimerSummary,
};
use crate::host::meminfo::Meminfo;

/// More processes than these are counted together.
const MOST_RECLAIMERS: usize = 64;

/// All of it.
pub fn body(summary: &PagecacheSummary) -> Map<String, Value> {
    let mut all = memory(&summary.memory);
    let mut add = |key: &str, value: Value| all.insert(key.to_string(), value);
    // The kernel's own counters, of the part of the window that lies between two readings for sure.
    add("scanned_pages", json!(summary.scanned_pages()));
    add("stolen_pages", json!(summary.stolen_pages()));
    add("refault_pages", json!(summary.refault_pages()));
    let counter = |(key, bracket): &(&'static str, Option<Bracket>)| {
        let value = bracket.map(|b| json!({"min": b.min, "max": b.max}));
        ((*key).to_string(), value.unwrap_or(Value::Null))
    };
    add("counters", Value::Object(summary.counters.iter().map(counter).collect()));
    let seen = summary.scanned;
    add(
        "seen",
        json!({
            "batch_file_pages": seen.in_batches, "looked_at_file_pages": seen.looked_at, "taken_file_pages": seen.taken,
        }),
    );
    let check = |check: &Check| {
        json!({
            "what": check.what, "seen": check.seen, "kernel_min": check.kernel.min, "kernel_max": check.kernel.max,
            "exact": !check.loose, "holds": check.holds(),
        })
    };
    add("checks", summary.checks().iter().map(check).collect());
    add("pressure", json!({"some_ns": summary.pressure_some_ns, "full_ns": summary.pressure_full_ns}));
    add("lru", json!(if summary.lru_gen { "multi-generational" } else { "two lists" }));
    let kinds = Kind::ALL.into_iter().filter(|kind| has_place(summary, *kind));
    let reclaims = kinds.map(|kind| (kind.name().to_string(), reclaim(&summary.reclaim(kind))));
    add("reclaims", Value::Object(reclaims.collect()));
    add("reclaimers", summary.reclaimers.iter().take(MOST_RECLAIMERS).map(reclaimer).collect());
    add("more_reclaimers", json!(summary.reclaimers.len().saturating_sub(MOST_RECLAIMERS)));
    add("readahead", summary.readahead.map_or(Value::Null, |readahead| ahead(&readahead)));
    add("nodes", summary.nodes.iter().map(node).collect());
    add("paths", summary.paths.iter().map(path).collect());
    add("series", summary.series.iter().map(moment).collect());
    let onset = summary.onset();
    add("onset", json!(onset.as_ref().ok()));
    let absent = summary.absent.iter().map(|a| json!({"what": a.what, "why": a.why}));
    let no_onset = onset.err().map(|none| json!({"what": "onset", "why": none.why()}));
    add("absent", absent.chain(no_onset).collect());
    add("lost", json!(summary.lost));
    add("series_cpu_percent", json!(summary.series_cpu_percent));
    all
}

/// The first three are the contract's; the others are there where there were any.
fn has_place(summary: &PagecacheSummary, kind: Kind) -> bool {
    let some = |one: &ReclaimSummary| one.count > 0 || one.batches > 0;
    matches!(kind, Kind::Kswapd | Kind::Direct | Kind::Memcg) || summary.reclaims.get(&kind).is_some_and(some)
}

fn memory(memory: &Meminfo) -> Map<String, Value> {
    let keys = [
        ("free_bytes", memory.free_bytes),
        ("file_bytes", memory.file_bytes()),
        ("buffers_bytes", memory.buffers_bytes),
        ("dirty_bytes", memory.dirty_bytes),
        ("writeback_bytes", memory.writeback_bytes),
    ];
    keys.into_iter().map(|(key, value)| (key.to_string(), json!(value))).collect()
}

fn reclaim(of: &ReclaimSummary) -> Value {
    json!({
        "count": of.count, "ns": of.time.sum(), "ended": of.time.count(), "histogram": times(&of.time),
        "batches": of.batches, "scanned_pages": of.scanned_pages, "stolen_pages": of.stolen_pages,
        "scanned_file_pages": of.scanned_file_pages, "stolen_file_pages": of.stolen_file_pages,
        "throttled": of.throttled, "throttled_ns": of.throttled_ns,
    })
}

fn reclaimer(of: &ReclaimerSummary) -> Value {
    json!({
        "kind": of.kind.map(Kind::name), "pid": of.pid, "comm": of.comm, "cgroup": of.cgroup, "count": of.count,
        "ns": of.ns, "max_ns": of.max_ns, "stolen_pages": of.stolen_pages,
    })
}

fn ahead(of: &Readahead) -> Value {
    let by = match of.by {
        ReadaheadSource::None => "none",
        ReadaheadSource::Events => "event",
        ReadaheadSource::Functions => "fentry",
    };
    json!({
        "by": by, "calls": of.calls, "asked_pages": of.asked_pages, "wanted_pages": of.wanted_pages,
        "mapped_pages": of.mapped_pages,
        "unused_pages": of.unused_pages,
    })
}

fn node(of: &NodeSummary) -> Value {
    let mut one = Map::new();
    one.insert("node".to_string(), json!(of.node));
    one.extend(memory(&of.memory).into_iter().filter(|(key, _)| key != "buffers_bytes"));
    one.insert("scanned_pages".to_string(), json!(of.scanned_pages));
    one.insert("stolen_pages".to_string(), json!(of.stolen_pages));
    let reclaims = of.reclaims.iter().map(|(kind, n)| (kind.name().to_string(), json!(n)));
    one.insert("reclaims".to_string(), Value::Object(reclaims.collect()));
    let zones = of.zones.iter().map(|zone| {
        json!({
            "zone": zone.name, "free_pages": zone.free_pages, "min_pages": zone.min_pages, "low_pages": zone.low_pages,
            "high_pages": zone.high_pages, "managed_pages": zone.managed_pages,
        })
    });
    one.insert("zones".to_string(), zones.collect());
    Value::Object(one)
}

fn path(of: &PathSummary) -> Value {
    json!({
        "function": of.function, "source": of.source.name(), "calls": of.calls, "ns": of.ns, "spins": of.spins,
        "spin_ns": [of.spin_ns.0, of.spin_ns.1], "spin_ratio": of.spin_ratio().map(|(low, high)| [low, high]),
        "cpu_percent": of.cpu_percent, "samples": of.samples,
    })
}

fn moment(of: &Moment) -> Value {
    json!({
        "at_ns": of.at_ns, "duration_ns": of.duration_ns, "read_bytes": of.read_bytes,
        "written_bytes": of.written_bytes, "ios": of.ios, "free_bytes": of.free_bytes, "file_bytes": of.file_bytes,
        "dirty_bytes": of.dirty_bytes, "writeback_bytes": of.writeback_bytes, "scanned_pages": of.scanned_pages,
        "stolen_pages": of.stolen_pages, "refault_pages": of.refault_pages,
        "direct_scanned_pages": of.direct_scanned_pages, "direct_reclaims": of.direct_reclaims,
        "spin_percent": of.spin_percent.map(|(low, high)| [low, high]), "system_percent": of.system_percent,
        "iowait_percent": of.iowait_percent, "idle_percent": of.idle_percent, "running": of.running,
        "blocked": of.blocked,
    })
}
