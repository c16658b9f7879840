//! `biopsy.locks/1`.

use serde_json::{Map, Value, json};

use super::times;
use crate::analyze::locks::holders::{Holder, Waiter};
use crate::analyze::locks::{LockRow, LockSummary, SpinShare, Stack, Waits};

/// Stacks of one lock: the rest is a long tail that nobody reads.
const MOST_STACKS: usize = 16;

/// What the view adds to the envelope, for results that contain it.
pub fn body(summary: &LockSummary) -> Map<String, Value> {
    let mut all = Map::new();
    let mut add = |key: &str, value: Value| all.insert(key.to_string(), value);
    let events = &summary.events;
    add("seen_by", json!(summary.source_name()));
    add("contentions", json!(events.contentions));
    add("wait_ns", json!(events.wait_ns));
    add("spin_contentions", json!(events.spin_contentions));
    add("spin_wait_ns", json!(events.spin_wait_ns));
    add(
        "begins",
        json!({
            "total": events.begins(), "by_kind": events.kinds().collect::<std::collections::BTreeMap<_, _>>(),
            "repeats": events.repeats, "filtered": events.filtered, "unmatched_ends": events.unmatched,
            "unended": events.unended(),
        }),
    );
    add("locks", summary.locks.iter().map(lock).collect());
    add("left_out", json!({"locks": summary.left_out, "wait_ns": summary.left_out_wait_ns}));
    let process = |row: &crate::analyze::locks::ProcessRow| {
        json!({
            "pid": row.pid, "comm": row.comm, "contentions": row.waits.contentions, "wait_ns": row.waits.wait_ns,
            "max_wait_ns": row.max_wait_ns,
        })
    };
    add("by_process", summary.processes.iter().map(process).collect());
    add("by_cpu", waits("cpu", &summary.by_cpu));
    add("by_node", waits("node", &summary.by_node));
    let stacks = &summary.stacks;
    add(
        "stacks",
        json!({
            "taken": stacks.taken, "of": stacks.of, "estimated": stacks.is_estimated(),
            "threshold_ns": stacks.threshold_ns, "ns": stacks.ns, "failed": stacks.failed, "full": stacks.full,
            "over_budget": stacks.over_budget,
        }),
    );
    add("spin", summary.spin.as_ref().map_or(Value::Null, spin));
    let slow_path = summary.slow_path.map(|slow| {
        json!({
            "slow_path_calls": slow.calls, "events": events.spins(), "pending_bit_waiters": slow.pending_bit_waiters,
        })
    });
    add("slow_path", json!(slow_path));
    // Absent where nobody looked.
    if let Some(waiting) = &summary.waiting {
        add("waiting", waiting.iter().map(waiter).collect());
    }
    all
}

fn waits(key: &str, all: &[(u32, Waits)]) -> Value {
    let one = |(number, waits): &(u32, Waits)| json!({key: number, "contentions": waits.contentions, "wait_ns": waits.wait_ns});
    all.iter().map(one).collect()
}

fn lock(row: &LockRow) -> Value {
    let mut one = Map::new();
    let mut add = |key: &str, value: Value| one.insert(key.to_string(), value);
    add("name", json!(row.name));
    add("kind", json!(row.kind.name()));
    add("recognised_by", json!(row.by.name()));
    if let Some(address) = row.address {
        add("address", json!(format!("{address:#x}")));
    }
    add("device", json!(row.device));
    add("node", json!(row.node));
    add("cgroup", json!(row.cgroup));
    add("pid", json!(row.pid));
    add("contentions", json!(row.wait.count()));
    add("wait_ns", json!(row.wait.sum()));
    add("max_wait_ns", json!(row.wait.max()));
    add("shared", json!(row.reads));
    add("gave_up", json!(row.failed));
    add("wait", times(&row.wait));
    if let Some(of) = &row.holder {
        add("holder", holder(of));
    }
    add("stacks", row.stacks.iter().take(MOST_STACKS).map(stack).collect());
    Value::Object(one)
}

fn holder(of: &Holder) -> Value {
    json!({
        "pid": of.pid, "comm": of.comm, "last_hold_ns": of.last_hold_ns, "releases": of.releases, "holds": of.holds,
        "at_least": of.at_least, "hold_ns": of.hold_ns,
        "max_hold_ns": (of.holds > 0).then_some(of.max_hold_ns),
    })
}

fn waiter(of: &Waiter) -> Value {
    json!({
        "pid": of.pid, "tid": of.tid, "comm": of.comm, "lock": of.lock, "kind": of.kind.name(),
        "address": format!("{:#x}", of.address), "wait_ns": of.ns,
    })
}

fn stack(of: &Stack) -> Value {
    json!({"frames": of.frames, "contentions": of.contentions, "wait_ns": of.wait_ns, "samples": of.samples})
}

fn spin(of: &SpinShare) -> Value {
    json!({
        "cpu_percent": of.low, "low": of.low, "high": of.high, "sampler": of.sampler.name(), "samples": of.samples,
    })
}
