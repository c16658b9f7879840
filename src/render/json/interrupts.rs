//! `biopsy.interrupts/1`.

use serde_json::{Map, Value, json};

use super::{line, object, of_counts, times};
use crate::analyze::interrupts::{
    Carried, DeviceInterrupts, InterruptSummary, NAME_EVERY, PollSummary, VectorSummary,
};
use crate::envelope::Envelope;

/// The view as one line. `command_status` is there when a command was measured.
pub fn render(
    envelope: &Envelope,
    summary: &InterruptSummary,
    time_every: u32,
    command_status: Option<i32>,
) -> Vec<u8> {
    let mut all = object("biopsy.interrupts/1", envelope);
    all.extend(body(summary, time_every));
    if let Some(status) = command_status {
        all.insert("command_status".to_string(), json!(status));
    }
    line(all)
}

/// What the view adds to the envelope, for results that contain it.
pub fn body(summary: &InterruptSummary, time_every: u32) -> Map<String, Value> {
    let mut all = Map::new();
    let mut add = |key: &str, value: Value| all.insert(key.to_string(), value);
    add("timed_one_of", json!(time_every));
    add("vectors", summary.vectors.iter().map(|of| vector(summary, of)).collect());
    add("polled", summary.polled.iter().map(poll).collect());
    let softirq = &summary.softirq;
    add(
        "softirq",
        json!({
            "runs": softirq.runs, "deferred": softirq.deferred, "completions": sum(summary, |d| d.in_softirq),
            "mean_ns": softirq.mean_ns, "cpu_percent": softirq.cpu_percent,
        }),
    );
    add("ipi", json!({"completions": sum(summary, |device| device.in_remote_softirq)}));
    add("posted_msi", json!(summary.posted));
    add("devices", summary.devices.iter().map(device).collect());
    let tasks = summary.tasks.iter().map(|(comm, n)| json!({"comm": comm, "samples": n}));
    add("interrupted_tasks", tasks.collect());
    // What a sample stands for: so many timed interrupts that came into a task.
    add("interrupted_tasks_one_of", json!(if time_every > 1 { NAME_EVERY } else { 1 }));
    all
}

fn sum(summary: &InterruptSummary, of: impl Fn(&DeviceInterrupts) -> u64) -> u64 {
    summary.devices.iter().map(of).sum()
}

fn per_second(summary: &InterruptSummary, n: u64) -> Option<f64> {
    (summary.duration_ns > 0).then(|| n as f64 / summary.seconds())
}

fn vector(summary: &InterruptSummary, of: &VectorSummary) -> Value {
    let mut one = Map::new();
    let mut add = |key: &str, value: Value| one.insert(key.to_string(), value);
    add("irq", json!(of.irq));
    add("name", json!(of.name));
    add("device", json!(of.devices.first()));
    add("devices", json!(of.devices));
    add("queue", json!(of.queue));
    add("qid", json!(of.qid));
    add("queue_known_by", json!(of.queue.map(|_| if of.by_pointer { "pointer" } else { "name" })));
    add("cpus", json!(of.cpus));
    add("allowed_cpus", json!(of.allowed));
    add("interrupts", json!(of.interrupts));
    add("by_cpu", of.by_cpu.iter().map(|(cpu, n)| json!({"cpu": cpu, "interrupts": n})).collect());
    if let Some(kernel) = of.kernel {
        add("kernel_interrupts_min", json!(kernel.min));
        add("kernel_interrupts_max", json!(kernel.max));
    }
    add("per_second", json!(per_second(summary, of.interrupts)));
    add("unhandled", json!(of.unhandled));
    add("threaded", json!(of.threaded));
    if let Some(carried) = &of.carried {
        carry(&mut add, carried);
    }
    add("handler", times(&of.handler));
    add("apart", times(&of.apart));
    add("cpu_percent", json!(of.cpu_percent(summary.duration_ns)));
    add("interrupted", json!({"idle": of.into_idle, "kernel": of.into_kernel, "user": of.into_user}));
    Value::Object(one)
}

fn carry<T>(add: &mut impl FnMut(&str, Value) -> T, carried: &Carried) {
    add("completions", json!(carried.completions));
    add("empty", json!(carried.empty));
    add("completions_per_interrupt", of_counts(&carried.per_interrupt));
}

fn poll(of: &PollSummary) -> Value {
    json!({
        "device": of.devices.first(), "devices": of.devices, "queue": of.queue, "polls": of.polls,
        "completions": of.completions, "completions_per_poll": of_counts(&of.per_poll),
    })
}

fn device(of: &DeviceInterrupts) -> Value {
    let mut one = Map::new();
    let mut add = |key: &str, value: Value| one.insert(key.to_string(), value);
    add("name", json!(of.name));
    add("ios", json!(of.ios));
    add("passthrough", json!(of.passthrough));
    if let Some(kernel) = of.kernel_ios {
        add("kernel_ios_min", json!(kernel.min));
        add("kernel_ios_max", json!(kernel.max));
    }
    // Absent is absent: it has no vector that is known.
    if let Some(interrupts) = of.interrupts {
        add("interrupts", json!(interrupts));
        add("ios_per_interrupt", json!(of.ios_per_interrupt));
    }
    if let Some(coalescing) = of.coalescing {
        add("coalescing", json!(coalescing));
    }
    add("shares_vectors_with", json!(of.shares_vectors_with));
    add(
        "completed",
        json!({
            "interrupt": of.in_interrupt, "softirq": of.in_softirq, "remote_softirq": of.in_remote_softirq,
            "task": of.in_task,
        }),
    );
    add("reaped_elsewhere", json!(of.elsewhere));
    add("hard_cpu_percent", json!(of.hard_percent));
    add("soft_cpu_percent", json!(of.soft_percent));
    add("busiest", json!(of.busiest.map(|b| json!({"cpu": b.cpu, "share": b.share, "cpus": b.cpus}))));
    Value::Object(one)
}
