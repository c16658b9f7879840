//! The section on interrupts: how many, on which queue and CPU, and how many I/Os each completed.

use super::escape;
use super::tables::{Cell, facts, table, text};
use crate::analyze::interrupts::{DeviceInterrupts, InterruptSummary, VectorSummary};
use crate::rules::Summaries;
use crate::units::{count, short, significant, time};

/// Further vectors are in the JSON only.
const MOST_VECTORS: usize = 64;

/// Empty if none were counted.
pub fn interrupts(s: &Summaries<'_>) -> String {
    let Some(summary) = s.interrupts else { return String::new() };
    let mut out: String = summary
        .devices
        .iter()
        .filter(|device| device.ios > 0)
        .map(|device| format!("<h3>{}</h3>\n{}", escape(&device.name), facts(&of_device(summary, device))))
        .collect();
    let busy: Vec<&VectorSummary> = summary.vectors.iter().filter(|vector| vector.interrupts > 0).collect();
    if !busy.is_empty() {
        out.push_str(&vectors(summary, &busy));
    }
    if let Some(posted) = &summary.posted {
        out.push_str(&facts(&[
            ("MSIs per posted notification", significant(posted.msis_per_notification, 3)),
            (
                "interrupts avoided by posting",
                format!("{} %", significant(100.0 * posted.avoided_fraction, 3)),
            ),
            ("I/Os of the traced devices per notification", significant(posted.ios_per_notification, 3)),
        ]));
    }
    out
}

fn rate(summary: &InterruptSummary, n: u64) -> String {
    if summary.duration_ns == 0 { "-".to_string() } else { short(n as f64 / summary.seconds()) }
}

fn of_device(summary: &InterruptSummary, device: &DeviceInterrupts) -> Vec<(&'static str, String)> {
    let percent = |value: f64| format!("{} % of one CPU", significant(value, 2));
    let share = |n: u64| format!("{} %", significant(100.0 * n as f64 / device.ios as f64, 3));
    let mut rows = vec![("I/Os per second", rate(summary, device.ios))];
    rows.extend(device.interrupts.map(|n| ("interrupts per second", rate(summary, n))));
    rows.extend(device.ios_per_interrupt.map(|n| ("I/Os per interrupt", significant(n, 3))));
    rows.extend(device.hard_percent.map(|value| ("in hard interrupts", percent(value))));
    rows.extend(
        device.soft_percent.filter(|value| *value > 0.0).map(|value| ("in softirqs", percent(value))),
    );
    let contexts = [
        ("completed in the interrupt", device.completed.interrupt),
        ("completed in a softirq", device.completed.softirq),
        ("completed in a softirq raised by another CPU (IPI)", device.completed.remote_softirq),
        ("completed elsewhere (poll, thread, worker, other interrupt)", device.completed.task),
    ];
    rows.extend(contexts.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name, share(n))));
    rows
}

fn vectors(summary: &InterruptSummary, busy: &[&VectorSummary]) -> String {
    let number = |value: Option<String>| Cell::Number(value.unwrap_or_else(|| "-".to_string()));
    let row = |vector: &&VectorSummary| {
        let carried = vector.carried.as_ref();
        let each = carried.map(|carried| &carried.per_interrupt);
        let cpus: Vec<String> = vector.by_cpu.iter().map(|of| of.cpu.to_string()).collect();
        vec![
            Cell::Text(vector.irq.to_string()),
            text(vector.name.as_deref().unwrap_or("-")),
            Cell::Text(vector.queue.map_or("-".to_string(), |queue| queue.to_string())),
            text(&cpus.join(", ")),
            Cell::Number(rate(summary, vector.interrupts)),
            number(carried.map(|carried| rate(summary, carried.completions))),
            number(each.and_then(|each| each.mean()).map(|mean| significant(mean, 3))),
            number(each.and_then(|each| each.quantile(0.99)).map(count)),
            number(each.and_then(|each| each.max()).map(count)),
            number(vector.handler.quantile(0.5).map(time)),
            number(vector.handler.quantile(0.99).map(time)),
            number(vector.cpu_percent.map(|percent| significant(percent, 2))),
        ]
    };
    let header = [
        "<irq",
        "<name",
        "<queue",
        "<CPUs",
        "interrupts/s",
        "I/Os/s",
        "I/Os each: mean",
        "p99",
        "max",
        "handler p50",
        "p99",
        "CPU %",
    ];
    let mut out = table(&header, busy.iter().take(MOST_VECTORS).map(row).collect());
    if let Some(more @ 1..) = busy.len().checked_sub(MOST_VECTORS) {
        out.push_str(&format!("<p class=\"soft small\">{more} more in the JSON.</p>\n"));
    }
    out.push_str("<p class=\"soft small\">Handler times are sampled; counts are exact.</p>\n");
    out
}
