//! Renders `biopsy interrupts` as text.

use super::{Style, clean, count, counted, fit, footer, range, short, significant, table, time};
use crate::analyze::counting::Bracket;
use crate::analyze::interrupts::{DeviceInterrupts, InterruptSummary, PollSummary, VectorSummary};
use crate::envelope::Envelope;
use crate::host::cpu::ranges;
use crate::merge::SaturatingSum as _;

/// Tasks that are named: enough to show what is interrupted.
const MOST_TASKS: usize = 5;

/// The whole view.
pub fn render(
    envelope: &Envelope,
    summary: &InterruptSummary,
    command_status: Option<i32>,
    style: Style,
) -> String {
    let mut out = String::new();
    let devices: Vec<&DeviceInterrupts> =
        summary.devices.iter().filter(|d| style.all || d.ios > 0 || d.interrupts.unwrap_or(0) > 0).collect();
    for device in &devices {
        out.push_str(&headline(summary, device, style));
    }
    if devices.is_empty() {
        out.push_str("No I/O completed on the traced devices, and their vectors had no interrupts.\n");
    }
    let vectors: Vec<&VectorSummary> =
        summary.vectors.iter().filter(|vector| style.all || vector.interrupts > 0).collect();
    if !vectors.is_empty() {
        out.push('\n');
        out.push_str(&vectors_table(summary, &vectors));
    }
    let polled: Vec<&PollSummary> = summary.polled.iter().filter(|p| style.all || p.polls > 0).collect();
    if !polled.is_empty() {
        out.push('\n');
        out.push_str(&polled_table(&polled));
    }
    out.push('\n');
    out.push_str(&posted(summary));
    out.push_str(&behind(summary));
    out.push_str(&into(summary));
    out.push_str(&checks(summary, &devices));
    out.push_str(&footer::lost(envelope));
    out.push_str(&footer::cost(envelope));
    let came = summary.vectors.iter().any(|vector| vector.interrupts > 0);
    if let Some(ns) = envelope.cost.ns_per_interrupt.filter(|_| came) {
        out.push_str(&format!("     {ns:.0} ns of it per interrupt, in the programs\n"));
    }
    if !style.brief {
        let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        out.push_str(&footer::missing(&envelope.missing, &names));
    }
    if let Some(status) = command_status {
        out.push_str(&format!("command ended with status {status}\n"));
    }
    fit(&out, style.width)
}

fn rate(summary: &InterruptSummary, n: u64) -> String {
    if summary.duration_ns == 0 { "-".to_string() } else { short(n as f64 / summary.seconds()) }
}

fn percent(value: Option<f64>) -> String {
    value.map_or("-".to_string(), |value| significant(value, 2))
}

/// Counts, and where I/Os completed.
fn headline(summary: &InterruptSummary, device: &DeviceInterrupts, style: Style) -> String {
    let name = clean(&device.name);
    let name = if style.color { format!("\x1b[1m{name}\x1b[0m") } else { name };
    let mut out = format!("{name}  {} I/Os/s", rate(summary, device.ios));
    if let Some(interrupts) = device.interrupts {
        out.push_str(&format!(", {} interrupts/s", rate(summary, interrupts)));
        if let Some(each) = device.ios_per_interrupt {
            out.push_str(&format!(", {} I/Os per interrupt", significant(each, 3)));
        }
        if !device.shares_vectors_with.is_empty() {
            out.push_str(&format!(
                " (shares its vectors with {})",
                clean(&device.shares_vectors_with.join(", "))
            ));
        }
    }
    out.push('\n');
    let mut parts = Vec::new();
    for (what, n) in [
        ("in the interrupt", device.completed.interrupt),
        ("in a softirq", device.completed.softirq),
        ("in a softirq raised by another CPU (IPI)", device.completed.remote_softirq),
        ("elsewhere (poll, thread, worker, or an interrupt that is not traced)", device.completed.task),
    ] {
        if n > 0 {
            parts.push(format!("{} % {what}", significant(100.0 * n as f64 / device.ios as f64, 3)));
        }
    }
    if !parts.is_empty() {
        out.push_str(&format!("  completed {}\n", parts.join(", ")));
    }
    if let Some(coalescing) = device.coalescing {
        out.push_str(&match coalescing.is_on() {
            true => format!(
                "  the drive coalesces interrupts: {} completions or {} µs\n",
                coalescing.completions, coalescing.time_us
            ),
            false => "  the drive does not coalesce interrupts\n".to_string(),
        });
    }
    if device.elsewhere > 0 {
        out.push_str(&format!(
            "  {} completions were reaped outside the interrupts and polls of their queues\n",
            count(device.elsewhere)
        ));
    }
    if device.hard_percent.is_some() || device.soft_percent.is_some() {
        out.push_str(&format!(
            "  hard interrupts {} %, soft {} % of one CPU",
            percent(device.hard_percent),
            percent(device.soft_percent)
        ));
        if let Some(busiest) = device.busiest.filter(|busiest| busiest.cpus > 1) {
            out.push_str(&format!(
                "; CPU {} has {} % of the interrupts, of {} CPUs",
                busiest.cpu,
                significant(100.0 * busiest.share, 3),
                busiest.cpus
            ));
        }
        out.push('\n');
    }
    out
}

fn cpus(of: &[u32]) -> String {
    if of.is_empty() { "-".to_string() } else { ranges(of) }
}

/// The CPUs that it is delivered to, and the allowed ones if there are more.
fn affinity(vector: &VectorSummary) -> String {
    let delivered = cpus(&vector.cpus);
    match vector.allowed.is_empty() || vector.allowed == vector.cpus {
        true => delivered,
        false => format!("{delivered} of {}", cpus(&vector.allowed)),
    }
}

fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or("-".to_string(), |value| value.to_string())
}

fn vectors_table(summary: &InterruptSummary, vectors: &[&VectorSummary]) -> String {
    let header = [
        "irq",
        "name",
        "queue",
        "CPUs",
        "intr/s",
        "I/Os/s",
        "I/Os per intr: mean",
        "p50",
        "p99",
        "max",
        "empty",
        "handler p50",
        "handler p99",
        "CPU %",
    ];
    let row = |vector: &&VectorSummary| {
        let carried = vector.carried.as_ref();
        let each = carried.map(|carried| &carried.per_interrupt);
        let quantile = |q| or_dash(each.and_then(|each| each.quantile(q)));
        let handler = |q| vector.handler.quantile(q).map_or("-".to_string(), time);
        vec![
            vector.irq.to_string(),
            vector.name.as_deref().map_or("-".to_string(), clean),
            or_dash(vector.queue),
            affinity(vector),
            rate(summary, vector.interrupts),
            carried.map_or("-".to_string(), |carried| rate(summary, carried.completions)),
            each.and_then(|each| each.mean()).map_or("-".to_string(), |mean| significant(mean, 3)),
            quantile(0.5),
            quantile(0.99),
            or_dash(each.and_then(|each| each.max())),
            carried.map_or("-".to_string(), |carried| count(carried.empty)),
            handler(0.5),
            handler(0.99),
            percent(vector.cpu_percent),
        ]
    };
    table(&header, &vectors.iter().map(row).collect::<Vec<_>>())
}

fn polled_table(polled: &[&PollSummary]) -> String {
    let row = |poll: &&PollSummary| {
        let each = &poll.per_poll;
        vec![
            clean(&poll.devices.join(", ")),
            poll.queue.to_string(),
            count(poll.polls),
            count(poll.completions),
            each.mean().map_or("-".to_string(), |mean| significant(mean, 3)),
            or_dash(each.quantile(0.99)),
            or_dash(each.max()),
        ]
    };
    let header = ["polled", "queue", "polls with completions", "I/Os", "per poll: mean", "p99", "max"];
    table(&header, &polled.iter().map(row).collect::<Vec<_>>())
}

/// Each ratio has its own words: a plain "78 %" was misread as the saving.
fn posted(summary: &InterruptSummary) -> String {
    let Some(posted) = &summary.posted else { return String::new() };
    format!(
        "posted MSI: {} notifications/s for {} MSIs: {} MSIs per notification ({} notifications per MSI), {} % of the \
         interrupts avoided; {} I/Os of these devices per notification, {} per MSI\n",
        short(posted.notifications_per_second),
        count(posted.msis),
        significant(posted.msis_per_notification, 3),
        significant(posted.notifications_per_msi, 2),
        significant(100.0 * posted.avoided_fraction, 3),
        significant(posted.ios_per_notification, 3),
        significant(posted.ios_per_msi, 3)
    )
}

/// Work that handlers leave to softirqs and threads.
fn behind(summary: &InterruptSummary) -> String {
    let mut out = String::new();
    let softirq = summary.softirq;
    if softirq.runs > 0 {
        out.push_str(&format!(
            "softirqs of the block layer: {} runs/s, {} % of them by ksoftirqd\n",
            rate(summary, softirq.runs),
            significant(100.0 * softirq.deferred as f64 / softirq.runs as f64, 2)
        ));
    }
    let threaded: u64 = summary.vectors.iter().map(|vector| vector.threaded).saturating_sum();
    if threaded > 0 {
        out.push_str(&format!("{} interrupts were handled by their threads\n", count(threaded)));
    }
    out
}

/// What the timed interrupts interrupted.
fn into(summary: &InterruptSummary) -> String {
    let sum = |of: fn(&VectorSummary) -> u64| summary.vectors.iter().map(of).saturating_sum();
    let (idle, kernel, user) =
        (sum(|v| v.interrupted.idle), sum(|v| v.interrupted.kernel), sum(|v| v.interrupted.user));
    let all = [idle, kernel, user].iter().saturating_sum();
    if all == 0 {
        return String::new();
    }
    let share = |n: u64| significant(100.0 * n as f64 / all as f64, 2);
    // Names are recorded for some of the interrupts of a task.
    let named: u64 = summary.tasks.iter().map(|task| task.samples).saturating_sum();
    let of_task = |n: u64| {
        significant(100.0 * n as f64 / named as f64 * user.saturating_add(kernel) as f64 / all as f64, 2)
    };
    let tasks: Vec<String> = summary
        .tasks
        .iter()
        .take(MOST_TASKS)
        .map(|task| format!("{} {} %", clean(&task.comm), of_task(task.samples)))
        .collect();
    let names = if tasks.is_empty() { String::new() } else { format!(" ({})", tasks.join(", ")) };
    format!(
        "interrupted: idle CPUs {} %, processes {} %, kernel threads {} %{names} (of {} timed interrupts)\n",
        share(idle),
        share(user),
        share(kernel),
        count(all)
    )
}

/// Observed and lost counts, next to the kernel's count.
fn verdict(seen: u64, lost: u64, bracket: Bracket) -> String {
    let range = range(count(bracket.min), count(bracket.max));
    let verdict = if bracket.holds(seen.saturating_add(lost)) { "ok" } else { "DIFFERS" };
    let and_lost = if lost > 0 { format!(" and {} missed", count(lost)) } else { String::new() };
    format!("{}{and_lost}, kernel counted {range}: {verdict}", count(seen))
}

/// The checks against the kernel's own counters: I/Os by device, interrupts over all vectors and of those that differ.
fn checks(summary: &InterruptSummary, devices: &[&DeviceInterrupts]) -> String {
    let mut out = String::new();
    for device in devices {
        let name = clean(&device.name);
        out.push_str(&match device.kernel_ios {
            Some(bracket) => {
                let verdict = verdict(device.comparable(), device.uncounted(), bracket);
                format!("check {name}: I/Os measured {verdict}\n")
            }
            None => format!(
                "check {name}: not checked: the kernel's counters are off, not readable, or count \
                 passthrough commands\n"
            ),
        });
    }
    let known: Vec<(&VectorSummary, Bracket)> =
        summary.vectors.iter().filter_map(|vector| Some((vector, vector.kernel?))).collect();
    if !known.is_empty() {
        let sum = |of: fn(&(&VectorSummary, Bracket)) -> u64| known.iter().map(of).saturating_sum();
        let all = Bracket { min: sum(|(_, b)| b.min), max: sum(|(_, b)| b.max) };
        let seen = sum(|(vector, _)| vector.interrupts);
        let lost = sum(|(vector, _)| vector.uncounted());
        out.push_str(&format!(
            "check interrupts of {}: measured {}\n",
            counted(known.len() as u64, "vector"),
            verdict(seen, lost, all)
        ));
    }
    for (vector, bracket) in
        known.iter().filter(|(v, bracket)| !bracket.holds(v.interrupts.saturating_add(v.uncounted())))
    {
        let verdict = verdict(vector.interrupts, vector.uncounted(), *bracket);
        out.push_str(&format!("check interrupt {}: measured {verdict}\n", vector.irq));
    }
    let unchecked = summary.vectors.len() - known.len();
    if unchecked > 0 {
        out.push_str(&format!(
            "check interrupts: {} could not be checked: not in /proc/interrupts at start and end, reset \
             with the drive, or CPUs came or went\n",
            counted(unchecked as u64, "vector")
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::interrupts::Softirq;

    #[test]
    fn affinities_and_what_handlers_leave_are_told() {
        let vector = |irq, cpus: &[u32], allowed: &[u32], threaded| VectorSummary {
            irq,
            cpus: cpus.to_vec(),
            allowed: allowed.to_vec(),
            interrupts: 10,
            threaded,
            ..VectorSummary::default()
        };
        let mut summary = InterruptSummary {
            duration_ns: 1_000_000_000,
            vectors: vec![vector(36, &[1], &[0, 1, 2], 0), vector(37, &[2], &[2], 4)],
            softirq: Softirq { runs: 200, deferred: 3, ..Softirq::default() },
            ..InterruptSummary::default()
        };
        let text = |summary: &InterruptSummary| render(&Envelope::default(), summary, None, Style::default());
        let shown = text(&summary);
        let cells = |irq: &str| {
            let line = shown.lines().find(|line| line.starts_with(irq)).unwrap();
            line.split_whitespace().skip(3).take(3).map(str::to_string).collect::<Vec<_>>()
        };
        assert_eq!((cells("36").join(" "), &*cells("37")[0]), ("1 of 0-2".to_string(), "2"), "{shown}");
        assert!(
            shown.contains("softirqs of the block layer: 200 runs/s, 1.5 % of them by ksoftirqd\n"),
            "{shown}"
        );
        assert!(shown.contains("4 interrupts were handled by their threads\n"), "{shown}");
        summary.softirq = Softirq::default();
        assert!(!text(&summary).contains("softirqs of"));
    }
}
