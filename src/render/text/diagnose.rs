//! `biopsy diagnose` as text: the verdict first, then what it rests on.

use super::{bytes, clean, count, significant, time};
use crate::analyze::latency::{DeviceLatency, OpLatency, Stage};
use crate::analyze::stacks::CpuClass;
use crate::findings::{Diagnosis, Finding, Severity};
use crate::hist::Histogram;
use crate::render::numbers;
use crate::rules::{self, Summaries};

/// More findings than these would bury the first.
const MOST_FINDINGS: usize = 5;

/// More devices than these are in the report and in the JSON.
const MOST_DEVICES: usize = 4;

/// Text is wrapped here: it must be readable in a ticket.
const WIDTH: usize = 100;

/// The whole page. `color`: stdout is a terminal that wants it.
pub fn render(s: &Summaries<'_>, diagnosis: &Diagnosis, color: bool) -> String {
    let mut out = String::new();
    let bold = |text: &str| if color { format!("\x1b[1m{text}\x1b[0m") } else { text.to_string() };
    if let Some(verdict) = diagnosis.findings.first() {
        // Wrapped before it is made bold: escape sequences have no width.
        for line in wrap(&clean(&verdict.sentence), WIDTH) {
            out.push_str(&format!("{}\n", bold(&line)));
        }
        out.push('\n');
    }
    for (i, finding) in diagnosis.findings.iter().take(MOST_FINDINGS).enumerate() {
        out.push_str(&card(i, finding, &bold));
        out.push('\n');
    }
    let more = diagnosis.findings.len().saturating_sub(MOST_FINDINGS);
    if more > 0 {
        out.push_str(&format!("{more} more findings are in the report and in --json.\n\n"));
    } else {
        out.push_str("Nothing else stood out.\n\n");
    }
    out.push_str(&stages(s, &bold));
    out.push_str(&cpu(s, &bold));
    if !diagnosis.not_examined.is_empty() {
        out.push_str(&format!("{}\n", bold("Not looked at")));
        for gap in &diagnosis.not_examined {
            paragraph(&mut out, "  ", &format!("{}: {}", clean(&gap.what), clean(&gap.why)));
        }
        out.push('\n');
    }
    out.push_str(&footer(s));
    out
}

fn card(index: usize, finding: &Finding, bold: &dyn Fn(&str) -> String) -> String {
    let severity = match finding.severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    };
    let mut out = format!(
        "{} {} on {} ({severity}, confidence {})\n",
        bold(&format!("{}.", index + 1)),
        bold(finding.id),
        clean(&finding.subject),
        significant(finding.confidence, 2),
    );
    // The first one's sentence is the verdict, which stands above already.
    if index > 0 {
        paragraph(&mut out, "   ", &clean(&finding.sentence));
    }
    for line in &finding.evidence {
        paragraph(&mut out, "   - ", &clean(line));
    }
    // A value and its unit stay on one line.
    let numbers: Vec<String> = numbers::all(finding)
        .into_iter()
        .map(|(label, text)| format!("{label} {text}").replace(' ', "\u{a0}"))
        .collect();
    if !numbers.is_empty() {
        let start = out.len();
        paragraph(&mut out, "   numbers  ", &numbers.join(", "));
        let spaced = out.split_off(start).replace('\u{a0}', " ");
        out.push_str(&spaced);
    }
    paragraph(&mut out, "   do       ", &clean(&finding.advice));
    paragraph(&mut out, "   check    ", &clean(&finding.check));
    if let Some(worth) = &finding.worth {
        paragraph(&mut out, "   worth    ", &format!("{} (estimate)", numbers::worth(worth)));
    }
    paragraph(&mut out, "   explain  ", &format!("biopsy explain {}", finding.id));
    out
}

fn stages(s: &Summaries<'_>, bold: &dyn Fn(&str) -> String) -> String {
    let devices: Vec<&DeviceLatency> =
        s.latency.devices.iter().filter(|d| d.ios > 0).take(MOST_DEVICES).collect();
    if devices.is_empty() {
        return String::new();
    }
    let title = bold("Where the time goes");
    let mut out = format!("{title} (mean per I/O; means add up, percentiles do not)\n");
    for device in devices {
        for (op, latency) in &device.ops {
            if let Some(line) = stage_line(latency) {
                let name = format!("  {} {}  ", clean(&device.name), op.name());
                paragraph(&mut out, &name, &line);
            }
        }
    }
    out.push('\n');
    out
}

/// `queue 66.7 µs (5 %) + device 1.27 ms (95 %)`; None where no stage was timed.
fn stage_line(latency: &OpLatency) -> Option<String> {
    let all: u64 = latency.request_stages.values().map(Histogram::sum).sum();
    let parts: Vec<String> = Stage::ALL
        .iter()
        .filter_map(|stage| Some((stage, latency.request_stages.get(stage)?)))
        .filter_map(|(stage, hist)| {
            let share = hist.sum() as f64 / all.max(1) as f64 * 100.0;
            Some(format!("{} {} ({share:.0} %)", stage.name(), time(hist.mean()? as u64)))
        })
        .collect();
    (!parts.is_empty()).then(|| format!("{}; {} I/Os", parts.join(" + "), count(latency.ios)))
}

fn cpu(s: &Summaries<'_>, bold: &dyn Fn(&str) -> String) -> String {
    let Some(profile) = s.profile else {
        return String::new();
    };
    let classes = [
        ("user", CpuClass::User),
        ("system", CpuClass::System),
        ("irq", CpuClass::Irq),
        ("softirq", CpuClass::Softirq),
        ("kthread", CpuClass::Kthread),
    ];
    let parts: Vec<String> = classes
        .iter()
        .filter_map(|(name, class)| {
            rules::ns_per_io(s, profile, *class).map(|ns| format!("{name} {}", time(ns as u64)))
        })
        .collect();
    if parts.is_empty() {
        return String::new();
    }
    let sampler = clean(&profile.sampler);
    let mut out = String::new();
    let title = bold("CPU time per I/O");
    out.push_str(&format!(
        "{title} (whole machine, {} samples of {sampler})\n  {}\n\n",
        count(profile.samples),
        parts.join(", ")
    ));
    out
}

/// n, duration, loss, the kernel's own count, and what the probes cost.
fn footer(s: &Summaries<'_>) -> String {
    let envelope = s.envelope;
    let ios: u64 = s.latency.devices.iter().map(|d| d.ios).sum();
    let mut out =
        format!("{} I/Os in {}; lost {}", count(ios), time(envelope.duration_ns), count(envelope.lost.ios));
    for device in s.latency.devices.iter().filter(|d| d.ios > 0).take(MOST_DEVICES) {
        if let Some(bracket) = device.kernel_total() {
            let range = if bracket.min == bracket.max {
                count(bracket.min)
            } else {
                format!("{} to {}", count(bracket.min), count(bracket.max))
            };
            out.push_str(&format!("; the kernel counted {range} on {}", clean(&device.name)));
        }
    }
    if envelope.lost.events + envelope.lost.samples > 0 {
        out.push_str(&format!(
            "; {} records and {} samples dropped",
            count(envelope.lost.events),
            count(envelope.lost.samples)
        ));
    }
    let mut wrapped = String::new();
    paragraph(&mut wrapped, "", &out);
    paragraph(&mut wrapped, "", &cost(s));
    wrapped
}

fn cost(s: &Summaries<'_>) -> String {
    let cost = &s.envelope.cost;
    let mut text = match cost.ns_per_io {
        Some(ns) => format!("the probes cost {} ns per I/O", significant(ns, 3)),
        None => "what the probes cost was not measured".to_string(),
    };
    if let Some(attach) = cost.attach_ns_per_io {
        text.push_str(&format!(" + {} ns to reach them", significant(attach, 3)));
    }
    if let Some(percent) = cost.cpu_percent {
        text.push_str(&format!(", {} % of a CPU", significant(percent, 2)));
    }
    format!("{text}, {} of maps", bytes(cost.map_bytes as f64))
}

/// Text after a prefix, wrapped and indented to the prefix's width.
fn paragraph(out: &mut String, prefix: &str, text: &str) {
    let indent = prefix.chars().count();
    for (i, line) in wrap(text, WIDTH.saturating_sub(indent)).iter().enumerate() {
        let lead = if i == 0 { prefix.to_string() } else { " ".repeat(indent) };
        out.push_str(&format!("{lead}{line}\n"));
    }
}

/// Breaks at spaces; a longer word stays whole.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_string());
        }
    }
    lines
}
