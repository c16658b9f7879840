//! `biopsy.threads/1`.

use serde_json::{Map, Value, json};

use super::{line, object};
use crate::analyze::threads::{Column, Row, Share, ThreadSummary, Wait};
use crate::envelope::Envelope;

/// The view as one line. `command_status` is there when a command was measured.
pub fn render(
    envelope: &Envelope,
    summary: &ThreadSummary,
    hz: u32,
    source: &str,
    command_status: Option<i32>,
) -> Vec<u8> {
    let mut all = object("biopsy.threads/1", envelope);
    all.extend(body(summary));
    all.insert("hz".to_string(), json!(hz));
    all.insert("source".to_string(), json!(source));
    if let Some(status) = command_status {
        all.insert("command_status".to_string(), json!(status));
    }
    line(all)
}

/// What the view adds to the envelope, for results that contain it.
pub fn body(summary: &ThreadSummary) -> Map<String, Value> {
    let classes = &summary.classes;
    let mut all = Map::new();
    let mut add = |key: &str, value: Value| all.insert(key.to_string(), value);
    add("rounds", json!(summary.rounds));
    add("late_rounds", json!(summary.loss.late));
    add("missed_rounds", json!(summary.loss.missed));
    add("samples", json!(summary.samples));
    add("average_threads", json!(summary.average_threads()));
    add("looked_at", json!(summary.looked_at));
    add("columns", summary.columns.iter().map(|column| json!(column.name())).collect());
    add("threads", summary.rows.iter().map(|row| thread(row, &summary.columns)).collect());
    let mut states = Map::new();
    let told = [("on_cpu", classes.on_cpu), ("run_queue", classes.run_queue), ("io_wait", classes.io_wait)];
    let always = [
        ("runnable", classes.runnable),
        ("uninterruptible", classes.uninterruptible),
        ("other", classes.other),
    ];
    let of = |share: Option<Share>| Some(Value::Object(counted(&share?)));
    // Absent is absent: files do not tell them apart.
    states.extend(told.into_iter().filter_map(|(key, share)| Some((key.to_string(), of(share)?))));
    states.extend(always.into_iter().filter_map(|(key, share)| Some((key.to_string(), of(Some(share))?))));
    add("states", Value::Object(states));
    add("io_waits", summary.waits.iter().map(wait).collect());
    all
}

fn counted(share: &Share) -> Map<String, Value> {
    let mut one = Map::new();
    one.insert("samples".to_string(), json!(share.samples));
    one.insert("average_threads".to_string(), json!(share.average_threads));
    one.insert("error".to_string(), json!(share.error));
    one
}

/// Only the columns that were asked for, and the stack that most of the row's threads have.
fn thread(row: &Row, columns: &[Column]) -> Value {
    let mut one = Map::new();
    let mut add = |key: &str, value: Value| one.insert(key.to_string(), value);
    for column in columns {
        match column {
            Column::Comm => add("comm", json!(row.comm)),
            Column::State => add("state", json!(row.state)),
            Column::Syscall => add("syscall", json!(row.syscall)),
            Column::Wchan => add("wchan", json!(row.wchan)),
            Column::Cgroup => add("cgroup", json!(row.cgroup)),
            Column::Pid => add("pid", json!(row.pid)),
            Column::Device => add("device", json!(row.device)),
            Column::Kstack => None,
        };
    }
    add("stack", json!(row.stack));
    add("stack_samples", json!(row.stack_samples));
    one.extend(counted(&row.share));
    Value::Object(one)
}

fn wait(wait: &Wait) -> Value {
    let mut one = counted(&wait.share);
    one.insert("wchan".to_string(), json!(wait.wchan));
    one.insert("stack".to_string(), json!(wait.stack));
    one.insert("devices".to_string(), json!(wait.devices));
    Value::Object(one)
}
