//! Renders `biopsy diagnose --verbose` as text: the brief page first, then all its details.

use super::paragraphs::paragraph;
use super::{brief, clean, common_time, counted, footer, scaling, significant, table, time};
use crate::analyze::cpu::{self, CpuSummary};
use crate::analyze::latency::{DeviceLatency, OpLatency};
use crate::analyze::stacks::{CpuClass, ProfileSummary};
use crate::analyze::stage::Stage;
use crate::experiment::Curve;
use crate::findings::{Diagnosis, Finding, NotExamined, Severity};
use crate::hist::Histogram;
use crate::merge::SaturatingSum as _;
use crate::render::{experiment, files, numbers, parts, processes};
use crate::rules::{self, Summaries};
use crate::units::{count, in_percent};

/// More findings would bury the first.
const MOST_FINDINGS: usize = 5;

/// Further devices are in the report and in the JSON.
const MOST_DEVICES: usize = 4;

/// Per device.
const MOST_ROWS: usize = 5;

/// Line width: the text must be readable in a ticket.
const WIDTH: usize = 100;

/// Groups gaps with the same reason.
fn by_reason(gaps: &[NotExamined]) -> Vec<(&str, Vec<&str>)> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for gap in gaps {
        match groups.iter_mut().find(|(why, _)| *why == gap.why) {
            Some((_, whats)) => whats.push(&gap.what),
            None => groups.push((&gap.why, vec![&gap.what])),
        }
    }
    groups
}

/// The contents of a page.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    pub summaries: Summaries<'a>,
    pub diagnosis: &'a Diagnosis,
    /// Why the run must not be trusted.
    pub doubt: Option<&'a str>,
    pub command_status: Option<i32>,
    /// Path of the HTML report, if any.
    pub report: Option<&'a str>,
    /// Stdout is a terminal with colours enabled.
    pub color: bool,
}

impl Page<'_> {
    pub(super) fn bold(&self, text: &str) -> String {
        self.styled("1", text)
    }

    pub(super) fn colored(&self, severity: Severity, text: &str) -> String {
        let style = match severity {
            Severity::Note => "1",
            Severity::Warning => "1;33",
            Severity::Critical => "1;31",
        };
        self.styled(style, text)
    }

    fn styled(&self, style: &str, text: &str) -> String {
        if self.color { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_string() }
    }
}

/// The brief page, and everything that it leaves out.
pub fn render(page: &Page<'_>) -> String {
    format!("{}\n{}", brief::render(page), details(page))
}

fn details(page: &Page<'_>) -> String {
    let (s, diagnosis) = (&page.summaries, page.diagnosis);
    let mut out = String::new();
    let bold = |text: &str| page.bold(text);
    if let Some(why) = page.doubt.filter(|why| !brief::is_whole_doubt(why)) {
        paragraph(&mut out, "", &format!("{} {}", bold("Do not trust this run:"), clean(why)), WIDTH);
        out.push('\n');
    }
    for (i, finding) in diagnosis.findings.iter().take(MOST_FINDINGS).enumerate() {
        out.push_str(&card(i, finding, &bold));
        out.push('\n');
    }
    let more = diagnosis.findings.len().saturating_sub(MOST_FINDINGS);
    if more > 0 {
        let (noun, are) = if more == 1 { ("finding", "is") } else { ("findings", "are") };
        out.push_str(&format!("{more} more {noun} {are} in the report and in --json.\n\n"));
    } else {
        out.push_str("No other findings.\n\n");
    }
    out.push_str(&stages(s, &bold));
    let process = |device: &str| bold(&format!("I/O by process on {device}"));
    out.push_str(&by_device(s, &process, &processes::HEADER, |device| processes::rows(device, MOST_ROWS)));
    let file = |device: &str| bold(&format!("I/O by file on {device}"));
    out.push_str(&by_device(s, &file, &files::HEADER, |device| files::rows(device, MOST_ROWS)));
    out.push_str(&cpu(s, &bold));
    if let Some(curve) = s.experiment {
        out.push_str(&format!(
            "{}\n",
            bold(&format!("Other depths ({})", clean(&experiment::extent(curve))))
        ));
        out.push_str(&depths(curve));
        out.push('\n');
    }
    if let Some(scaling) = s.scaling {
        out.push_str(&format!("{}\n", bold(&scaling::heading(scaling))));
        scaling::lines(scaling).iter().for_each(|line| out.push_str(&format!("  {line}\n")));
        out.push('\n');
    }
    if !diagnosis.not_examined.is_empty() {
        out.push_str(&format!("{}\n", bold("Not examined")));
        for (why, whats) in by_reason(&diagnosis.not_examined) {
            paragraph(&mut out, "  ", &format!("{}: {}", clean(&whats.join(", ")), clean(why)), WIDTH);
        }
        out.push('\n');
    }
    out.push_str(&ending(s));
    if let Some(status) = page.command_status {
        out.push_str(&format!("command ended with status {status}\n"));
    }
    out
}

/// The largest rows of each device.
fn by_device<const N: usize>(
    s: &Summaries<'_>,
    title: &dyn Fn(&str) -> String,
    header: &[&str; N],
    rows: impl Fn(&DeviceLatency) -> (Vec<[String; N]>, usize),
) -> String {
    let mut out = String::new();
    for device in s.latency.devices.iter().filter(|device| device.ios > 0).take(MOST_DEVICES) {
        let (rows, left) = rows(device);
        if rows.is_empty() {
            continue;
        }
        out.push_str(&format!("{}\n", title(&clean(&device.name))));
        let rows: Vec<Vec<String>> =
            rows.into_iter().map(|row| row.iter().map(|cell| clean(cell)).collect()).collect();
        out.push_str(&table(header, &rows));
        if left > 0 {
            out.push_str(&format!("{left} more are in the report and in --json.\n"));
        }
        out.push('\n');
    }
    out
}

/// `depth 64  61.0k IOPS  1.05 ms  +1 % (-1 to +3 %)`
fn depths(curve: &Curve) -> String {
    let rows = experiment::rows(curve);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [0, 1, 2].map(width);
    let line = |[load, rate, mean, against]: &[String; 4]| {
        let against = if against == "-" { String::new() } else { format!("  {against}") };
        format!("  {load:0$}  {rate:>1$} IOPS  {mean:>2$}{against}\n", widths[0], widths[1], widths[2])
    };
    rows.iter().map(line).collect()
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
    // The first finding's sentence is the verdict above.
    if index > 0 || !brief::is_whole_verdict(finding) {
        paragraph(&mut out, "   ", &clean(&finding.sentence), WIDTH);
    }
    for line in &finding.evidence {
        paragraph(&mut out, "   - ", &clean(line), WIDTH);
    }
    // A value and its unit stay on one line.
    let numbers: Vec<String> = numbers::all(finding)
        .into_iter()
        .map(|(label, text)| format!("{label} {text}").replace(' ', "\u{a0}"))
        .collect();
    if !numbers.is_empty() {
        let start = out.len();
        paragraph(&mut out, "   numbers  ", &numbers.join(", "), WIDTH);
        let spaced = out.split_off(start).replace('\u{a0}', " ");
        out.push_str(&spaced);
    }
    paragraph(&mut out, "   do       ", &clean(&finding.advice), WIDTH);
    let label = if finding.comparison().is_some() { "   test     " } else { "   check    " };
    paragraph(&mut out, label, &clean(&finding.check), WIDTH);
    if let Some(worth) = &finding.worth {
        paragraph(&mut out, "   worth    ", &format!("{} (estimate)", numbers::worth(worth)), WIDTH);
    }
    paragraph(&mut out, "   explain  ", &format!("biopsy explain {}", finding.id), WIDTH);
    out
}

fn stages(s: &Summaries<'_>, bold: &dyn Fn(&str) -> String) -> String {
    let devices: Vec<&DeviceLatency> =
        s.latency.devices.iter().filter(|d| d.ios > 0).take(MOST_DEVICES).collect();
    if devices.is_empty() {
        return String::new();
    }
    let title = bold("Where the time goes");
    let mut out = format!("{title} (means; they add up, percentiles do not)\n");
    for device in devices {
        for (op, latency) in &device.ops {
            if let Some(line) = stage_line(latency) {
                let name = format!("  {} {}  ", clean(&device.name), op.name());
                paragraph(&mut out, &name, &line, WIDTH);
                for line in part_lines(latency) {
                    paragraph(&mut out, &" ".repeat(name.chars().count()), &line, WIDTH);
                }
            }
        }
    }
    out.push('\n');
    out
}

/// `queue 66.7 µs (5 %) + device 1.27 ms (95 %)`; None if no stage was timed.
fn stage_line(latency: &OpLatency) -> Option<String> {
    let (unit_of_count, stages) = latency.stages();
    let all: u64 = stages.values().map(Histogram::sum).saturating_sum();
    // They are meant to be added up: in one unit.
    let (scale, unit) = common_time(stages.values().filter_map(Histogram::mean));
    let parts: Vec<String> = Stage::ALL
        .iter()
        .filter_map(|stage| Some((stage, stages.get(stage)?)))
        .filter_map(|(stage, hist)| {
            let share = hist.sum() as f64 / all.max(1) as f64 * 100.0;
            let mean = significant(hist.mean()? / scale, 3);
            // Lines break between stages only.
            Some(format!("{}\u{a0}{mean}\u{a0}{unit}\u{a0}({share:.0}\u{a0}%)", stage.name()))
        })
        .collect();
    (!parts.is_empty())
        .then(|| format!("{}; {}", parts.join(" + "), counted(latency.count(), unit_of_count.name())))
}

/// `of queue: alloc 12.1 µs in 1,204 (80 %)`, one line per stage with parts.
fn part_lines(latency: &OpLatency) -> Vec<String> {
    // Lines break between parts only.
    let whole = |words: Vec<String>| words.join(",\n").replace(' ', "\u{a0}").replace('\n', " ");
    let stages = parts::of_stages(latency).into_iter();
    stages.map(|(stage, words)| format!("of {}: {}", stage.name(), whole(words))).collect()
}

fn cpu(s: &Summaries<'_>, bold: &dyn Fn(&str) -> String) -> String {
    let mut out = s.profile.map_or(String::new(), |profile| classes(s, profile, bold));
    if let Some(cpu) = s.cpu {
        if out.is_empty() {
            out.push_str(&format!("{} (whole machine)\n", bold("CPU time")));
        }
        counted_per_io(&mut out, cpu, rules::ios(s));
        accounted(&mut out, cpu);
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

/// From the samples, per I/O; empty if there are none.
fn classes(s: &Summaries<'_>, profile: &ProfileSummary, bold: &dyn Fn(&str) -> String) -> String {
    let classes = [
        ("user", CpuClass::User),
        ("system", CpuClass::System),
        ("io-wq", CpuClass::IoWq),
        ("irq", CpuClass::Irq),
        ("softirq", CpuClass::Softirq),
        ("kthread", CpuClass::Kthread),
    ];
    let times: Vec<(&str, f64)> = classes
        .iter()
        .filter_map(|(name, class)| rules::ns_per_io(s, profile, *class).map(|ns| (*name, ns)))
        // Most loads use no worker: a class that is usually empty would be noise here.
        .filter(|(name, ns)| *name != "io-wq" || *ns > 0.0)
        .collect();
    let (scale, unit) = common_time(times.iter().map(|(_, ns)| *ns));
    let parts: Vec<String> = times
        .iter()
        .map(|(name, ns)| match *ns {
            0.0 => format!("{name} 0"),
            ns => format!("{name} {} {unit}", significant(ns / scale, 3)),
        })
        .collect();
    if parts.is_empty() {
        return String::new();
    }
    let sampler = clean(&profile.sampler);
    let title = bold("CPU time per I/O");
    format!(
        "{title} (whole machine, {} of {sampler})\n  {}\n",
        counted(profile.samples, "sample"),
        parts.join(", ")
    )
}

/// `8,667 cycles at 0.73 instructions each, 0.27 context switches; wake-ups are not known`. The reasons are in the
/// JSON's `missing` and in the report.
fn counted_per_io(out: &mut String, cpu: &CpuSummary, ios: u64) {
    let per = cpu::per_io(cpu, ios);
    let mut parts = Vec::new();
    if let Some(cycles) = per.cycles {
        let ipc = per.instructions_per_cycle;
        let each = ipc.map_or(String::new(), |ipc| format!(" at {} instructions each", significant(ipc, 2)));
        parts.push(format!("{} cycles{each}", count(cycles.round() as u64)));
        if let Some((low, high)) = per.core_cycles.filter(|_| cpu.smt()) {
            let [low, high] = [low, high].map(|cycles| count(cycles.round() as u64));
            parts.push(format!("{low} to {high} of a core with its threads"));
        }
        if let Some(share) = per.backend_stalls {
            parts.push(format!("{} of them stalled at the back end", in_percent(share)));
        }
    }
    let events = [(per.context_switches, "context switches"), (per.wakeups, "wake-ups")];
    parts.extend(events.iter().filter_map(|(n, what)| Some(format!("{} {what}", significant((*n)?, 2)))));
    let clock = cpu.counted.counter.as_deref().filter(|_| per.cycles.is_none());
    let cycles = format!("cycles{}", clock.map_or(String::new(), |clock| format!(" (counter: {clock})")));
    let unknown = [
        (cpu.counted.cycles().is_none(), cycles.as_str()),
        (cpu.context_switches.is_none(), "context switches"),
        (cpu.wakeups.is_none(), "wake-ups"),
    ];
    let unknown: Vec<&str> = unknown.iter().filter(|(is, _)| *is).map(|(_, what)| *what).collect();
    // Lines break between figures only.
    let parts: Vec<String> = parts.iter().map(|part| part.replace(' ', "\u{a0}")).collect();
    let mut sentences = vec![parts.join(", ")];
    sentences.extend((!unknown.is_empty()).then(|| format!("unknown: {}", unknown.join(", "))));
    sentences.retain(|sentence| !sentence.is_empty());
    if !sentences.is_empty() {
        paragraph(out, "  ", &sentences.join("; "), WIDTH);
    }
}

/// The kernel's accounting of all CPUs; its shares and the unaccounted time add up to 100 %.
fn accounted(out: &mut String, cpu: &CpuSummary) {
    let Some(all) = &cpu.all else { return };
    let percent = |share: f64| format!("{:.1}\u{a0}%", share * 100.0);
    // Shares of zero are only in the report.
    let shares = all.shares().into_iter().filter(|(name, share)| *share != 0.0 && *name != "unaccounted");
    let shares: Vec<String> = shares.map(|(name, share)| format!("{name}\u{a0}{}", percent(share))).collect();
    let wall = all.wall_ns.max(1) as f64;
    if all.error_ns > all.wall_ns {
        let text = format!(
            "no shares of CPU time: {} is too short for the kernel's ticks",
            time(all.wall_ns / all.cpus.len().max(1) as u64)
        );
        return paragraph(out, "  ", &text, WIDTH);
    }
    let rest = percent(all.unaccounted_ns as f64 / wall);
    let error = percent(all.error_ns as f64 / wall);
    let text = format!(
        "{}: {}; not\u{a0}accounted\u{a0}for\u{a0}{rest} (±\u{a0}{error})",
        counted(all.cpus.len() as u64, "CPU").replace(' ', "\u{a0}"),
        shares.join(", ")
    );
    paragraph(out, "  ", &text, WIDTH);
}

/// n, duration, losses, the kernel's own count, and the cost of the probes.
fn ending(s: &Summaries<'_>) -> String {
    let mut out = format!("n = {} in {}\n", counted(s.latency.ios(), "I/O"), time(s.envelope.duration_ns));
    for device in s.latency.devices.iter().filter(|d| d.ios > 0).take(MOST_DEVICES) {
        out.push_str(&footer::check(device));
    }
    out.extend(super::latency::sliced_line(s.latency));
    out.push_str(&footer::lost(s.envelope));
    out.push_str(&footer::cost(s.envelope));
    out
}
