//! Renders `biopsy diagnose` in at most 14 lines of 80 columns: the limit, its confidence, the reason, and the advice.

use std::cmp::Reverse;

use super::diagnose::Page;
use super::load::{blocks, rates};
use super::paragraphs::{clip, is_whole};
use super::{clean, common_time, count, figure, fitted, time};
use crate::analyze::latency::{DeviceLatency, OpLatency, Unit};
use crate::analyze::op::Op;
use crate::analyze::stage::Stage;
use crate::findings::{Finding, Severity};
use crate::hist::Histogram;
use crate::load::LoadSummary;
use crate::merge::SaturatingSum as _;
use crate::render::numbers;
use crate::render::shares::{self, StageShare};
use crate::units::in_percent;

/// No terminal has fewer columns.
const WIDTH: usize = 80;

/// Maximum number of non-empty lines.
const MOST_LINES: usize = 14;

const MOST_VERDICT: usize = 3;
const MOST_DOUBT: usize = 2;

/// Stages that are kept if there is no room for all.
const LEAST_STAGES: usize = 3;

/// I/O classes shown if there is no load.
const MOST_CLASSES: usize = 2;

/// A class with a smaller share of both the device's I/Os and its bytes has no line.
const LEAST_OF_CLASS: f64 = 0.01;

/// Bar length of a stage that takes all of the time.
const BAR: usize = 32;

/// Width of `why` and the other labels.
const LABEL: usize = 8;

/// Width of a short device name.
const NAME: usize = 6;
const LONGEST_NAME: usize = 24;

/// The id of the finding that means no verdict: its confidence is meaningless.
const NO_VERDICT: &str = "inconclusive";

/// The whole page.
pub fn render(page: &Page<'_>) -> String {
    let mut draft = PageBlocks::of(page);
    draft.fit();
    draft.text(page)
}

/// Whether the brief page has the verdict's whole sentence.
pub(super) fn is_whole_verdict(verdict: &Finding) -> bool {
    let (sentence, certainty) = verdict_words(verdict);
    is_whole(&sentence, &certainty, WIDTH, MOST_VERDICT)
}

/// Whether the brief page has the whole doubt.
pub(super) fn is_whole_doubt(why: &str) -> bool {
    is_whole(&doubt_words(why), "", WIDTH, MOST_DOUBT)
}

/// `why`, `worth` and the like: a label, and its lines.
struct Note {
    label: &'static str,
    lines: Vec<String>,
    /// A one-line version, used if there is no room.
    short: Option<Vec<String>>,
}

impl Note {
    fn new(label: &'static str, text: &str, most: usize) -> Self {
        let short = (most > 1).then(|| clip(text, "", WIDTH - LABEL, 1));
        Self { label, lines: clip(text, "", WIDTH - LABEL, most), short }
    }
}

/// The blocks of the page, before the selection.
struct PageBlocks {
    head: Vec<String>,
    verdict: Vec<String>,
    doubt: Vec<String>,
    stages: Vec<String>,
    notes: Vec<Note>,
}

impl PageBlocks {
    fn of(page: &Page<'_>) -> Self {
        let verdict = page.diagnosis.findings.first();
        let device = shares::subject(&page.summaries, page.diagnosis);
        Self {
            head: head(page, device),
            verdict: verdict.map_or(Vec::new(), |verdict| {
                let (sentence, certainty) = verdict_words(verdict);
                clip(&sentence, &certainty, WIDTH, MOST_VERDICT)
            }),
            doubt: page.doubt.map_or(Vec::new(), |why| clip(&doubt_words(why), "", WIDTH, MOST_DOUBT)),
            stages: device.map_or(Vec::new(), |device| stages(page, device)),
            notes: [
                verdict.and_then(why),
                verdict.and_then(worth),
                verdict.and_then(next),
                verdict.and_then(test),
                also(&page.diagnosis.findings),
                data(page),
            ]
            .into_iter()
            .flatten()
            .collect(),
        }
    }

    fn count(&self) -> usize {
        let notes: usize = self.notes.iter().map(|note| note.lines.len()).sum();
        self.head.len() + self.verdict.len() + self.doubt.len() + self.stages.len() + notes
    }

    fn shorten(&mut self, label: &str) {
        for note in self.notes.iter_mut().filter(|note| note.label == label) {
            if let Some(short) = note.short.take() {
                note.lines = short;
            }
        }
    }

    fn remove(&mut self, label: &str) {
        self.notes.retain(|note| note.label != label);
    }

    /// Drops the least important parts until the page fits. Verdict, doubt and data stay.
    fn fit(&mut self) {
        let steps: [fn(&mut Self); 10] = [
            |draft| draft.shorten("also"),
            |draft| draft.stages.truncate(LEAST_STAGES + 1),
            |draft| draft.shorten("why"),
            |draft| draft.stages.truncate(LEAST_STAGES),
            |draft| draft.remove("also"),
            |draft| draft.shorten("next"),
            |draft| draft.head.truncate(2),
            |draft| draft.remove("worth"),
            |draft| draft.remove("why"),
            |draft| draft.remove("test"),
        ];
        for step in steps {
            if self.count() <= MOST_LINES {
                return;
            }
            step(self);
        }
    }

    fn text(&self, page: &Page<'_>) -> String {
        let severity = page.diagnosis.findings.first().map_or(Severity::Note, |verdict| verdict.severity);
        let verdict = self.verdict.iter().map(|line| page.colored(severity, line));
        let doubt = self.doubt.iter().map(|line| line.replacen(DOUBT, &page.bold(DOUBT), 1));
        let notes = self.notes.iter().flat_map(|note| {
            note.lines.iter().enumerate().map(|(i, line)| {
                let label = if i == 0 { note.label } else { "" };
                format!("{label:LABEL$}{line}")
            })
        });
        let blocks: [Vec<String>; 4] =
            [self.head.clone(), verdict.chain(doubt).collect(), self.stages.clone(), notes.collect()];
        let blocks = blocks.iter().filter(|lines| !lines.is_empty()).map(|lines| lines.join("\n") + "\n");
        blocks.collect::<Vec<_>>().join("\n")
    }
}

const DOUBT: &str = "Do not trust this run:";

fn doubt_words(why: &str) -> String {
    format!("{DOUBT} {}", clean(why))
}

/// The verdict's sentence and its confidence: ` (likely, 0.8).`
fn verdict_words(verdict: &Finding) -> (String, String) {
    let sentence = sentence(&verdict.sentence);
    if verdict.id == NO_VERDICT {
        return (sentence, ".".to_string());
    }
    // The rounded number decides the word, so that the two agree.
    let number = (verdict.confidence * 100.0).round() / 100.0;
    let word = match number {
        0.9.. => "certain",
        0.6.. => "likely",
        _ => "possible",
    };
    (sentence, format!(" ({word},\u{a0}{number:?})."))
}

/// Without the full stop, and escaped.
fn sentence(text: &str) -> String {
    clean(text.trim_end_matches('.'))
}

/// What was measured, on which device, and the rate.
fn head(page: &Page<'_>, device: Option<&DeviceLatency>) -> Vec<String> {
    let s = page.summaries;
    let load = s.load;
    let selected = match s.latency.devices.as_slice() {
        [only] => Some(only),
        _ => None,
    };
    let name = load.and_then(|load| load.device.as_deref());
    let name = name.or(device.or(selected).map(|device| device.name.as_str()));
    let name = fitted(&clean(name.unwrap_or("")), LONGEST_NAME);
    let indent = if name.is_empty() { 0 } else { NAME.max(name.chars().count() + 2) };
    let room = WIDTH - indent;
    let lines = match load {
        Some(load) => of_load(load, room),
        None => of_others(page, device),
    };
    let lines = lines.iter().filter_map(|line| clip(line, "", room, 1).pop());
    let lines = lines.enumerate();
    lines.map(|(i, line)| format!("{:indent$}{line}", if i == 0 { name.as_str() } else { "" })).collect()
}

fn of_load(load: &LoadSummary, room: usize) -> Vec<String> {
    let job = &load.job;
    let jobs = if job.numjobs == 1 { String::new() } else { format!(", {} jobs", job.numjobs) };
    // Configured sizes are mostly whole numbers of their unit.
    let blocks = blocks(load).replace(".00 ", " ").replace(".0 ", " ");
    let polled = if job.hipri { ", polled" } else { "" };
    let what = format!(
        "{} {blocks}, depth {}{jobs}{polled}, {}, ",
        job.rw.name(),
        job.iodepth,
        time(load.duration_ns)
    );
    let target = fitted(&target(load), room.saturating_sub(what.chars().count()));
    let mut lines = vec![format!("{what}{target}")];
    if load.duration_ns > 0 {
        let (iops, bandwidth) = rates(load.operations(), load.bytes(), load.duration_ns);
        let failed = match load.errors() {
            0 => String::new(),
            n => format!(", {} of {} failed", count(n), count(n + load.operations())),
        };
        let times = mean_and_p99(&load.latency(), "");
        lines.push(format!("{iops} IOPS, {bandwidth}{times}{failed}"));
    }
    lines
}

/// `scratch file in /var/tmp`, `device` or `file /mnt/data`
fn target(load: &LoadSummary) -> String {
    let target = clean(&load.target);
    let device = load.device.as_deref().map(|name| format!("/dev/{}", clean(name)));
    match target.as_str() {
        path if device.as_deref() == Some(path) => "device".to_string(),
        path if path.starts_with("/dev/") => format!("device {path}"),
        path if path.starts_with("scratch file") => target,
        path => format!("file {path}"),
    }
}

/// I/O of other processes: a line for each of the largest classes.
fn of_others(page: &Page<'_>, device: Option<&DeviceLatency>) -> Vec<String> {
    let latency = page.summaries.latency;
    let during = page.command_status.map(|status| match page.summaries.command && latency.filtered {
        true => format!(" (status {status})"),
        false => format!(" while the command ran (status {status})"),
    });
    let what = match (device, &during) {
        (None, _) => "no I/O",
        (Some(_), _) if page.summaries.command && latency.filtered => "the command's I/O",
        (Some(_), _) if latency.filtered => "I/O of the selected processes",
        (Some(_), Some(_)) => "all I/O",
        (Some(_), None) => "I/O of all processes",
    };
    let active = latency.devices.iter().filter(|device| device.ios > 0).count();
    let one_of = if active > 1 { format!(", one of {active} active devices") } else { String::new() };
    let length = time(latency.duration_ns);
    let mut lines = vec![format!("{what}{}, {length}{one_of}", during.unwrap_or_default())];
    let classes = device.into_iter().flat_map(|device| {
        let is_some = |part: u64, all: u64| part > 0 && part as f64 >= all as f64 * LEAST_OF_CLASS;
        let bytes: u64 = device.ops.values().map(|of| of.bytes).saturating_sum();
        device.ops.iter().filter(move |(_, of)| is_some(of.ios, device.ios) || is_some(of.bytes, bytes))
    });
    let mut classes: Vec<(&Op, &OpLatency)> = classes.collect();
    classes.sort_by_key(|(_, of)| Reverse(of.ios));
    classes.truncate(MOST_CLASSES);
    let width = classes.iter().map(|(op, _)| op.name().len()).max().unwrap_or(0);
    lines.extend(classes.into_iter().map(|(op, of)| {
        let (iops, bandwidth) = rates(of.ios, of.bytes, latency.duration_ns);
        format!("{:width$}  {iops} IOPS, {bandwidth}{}", op.name(), times(of))
    }));
    lines
}

/// Mean and 99th percentile of a class. For requests only their stages have percentiles.
fn times(of: &OpLatency) -> String {
    match (of.stages().0, &of.operations, &of.bio) {
        (Unit::Operation, Some(operations), _) => mean_and_p99(&operations.total, "operation "),
        (_, _, Some(bio)) => mean_and_p99(bio, ""),
        _ => {
            let sum: f64 = of.request_stages.values().filter_map(Histogram::mean).sum();
            let device = of.request_stages.get(&Stage::Device);
            let p99 = device.and_then(|hist| hist.quantile(0.99));
            let p99 = p99.map_or(String::new(), |ns| format!(", device p99 {}", time(ns)));
            if sum > 0.0 { format!(", mean {}{p99}", time(sum as u64)) } else { String::new() }
        }
    }
}

/// `, mean 530 µs, p99 1.08 ms`; empty if nothing was timed.
fn mean_and_p99(hist: &Histogram, of: &str) -> String {
    let mean = hist.mean().map_or(String::new(), |ns| format!(", {of}mean {}", time(ns as u64)));
    let p99 = hist.quantile(0.99).map_or(String::new(), |ns| format!(", p99 {}", time(ns)));
    mean + &p99
}

/// Whether the stages of the load's device include other operations: at least one in ten.
fn of_others_too(device: &DeviceLatency, load: &LoadSummary) -> bool {
    let operations = device.ops.values().filter_map(|of| of.operations.as_ref());
    let all: u64 = operations.map(|all| all.total.count()).saturating_sum();
    all as f64 > load.operations() as f64 * 1.1
}

/// A row per stage, longest first. All are shares of one sum, which includes stages that are not shown.
fn stages(page: &Page<'_>, device: &DeviceLatency) -> Vec<String> {
    let s = page.summaries;
    let verdict = page.diagnosis.findings.first();
    let Some(time) = shares::of(device, s.load.is_some(), verdict) else { return Vec::new() };
    let mut said = Vec::new();
    if s.load.is_some_and(|load| load.device.as_ref() != Some(&device.name)) {
        said.push(fitted(&clean(&device.name), LONGEST_NAME));
    }
    said.extend(match (time.unit, s.load) {
        (Unit::Operation, Some(load)) if of_others_too(device, load) => {
            Some("per operation of all processes".to_string())
        }
        (Unit::Operation, Some(_)) => None,
        (Unit::Operation, None) => Some("per operation".to_string()),
        (Unit::Io | Unit::UnownedIo, Some(_)) => Some("block layer only".to_string()),
        (Unit::Io | Unit::UnownedIo, None) => Some("per I/O".to_string()),
    });
    let note = if said.is_empty() { String::new() } else { format!("  ({})", said.join(", ")) };

    let (scale, unit) = common_time(time.rows.iter().map(|row| row.mean_ns));
    let cells: Vec<[String; 3]> = time
        .rows
        .iter()
        .map(|row| {
            let mean = format!("{} {unit}", figure(row.mean_ns / scale));
            [row.stage.name().to_string(), mean, in_percent(row.share)]
        })
        .collect();
    let width = |column: usize| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let [name, mean, percent] = [0, 1, 2].map(width);
    let used = 2 + name + 2 + mean + 2 + percent + 2 + note.chars().count();
    let longest = BAR.min(WIDTH.saturating_sub(used)) as f64;
    let row = |(i, (cells, row)): (usize, (&[String; 3], &StageShare))| {
        let bar = "█".repeat((row.share * longest).round().max(1.0) as usize);
        let note = if i == 0 { note.as_str() } else { "" };
        format!("  {:name$}  {:>mean$}  {:>percent$}  {bar}{note}", cells[0], cells[1], cells[2])
    };
    cells.iter().zip(&time.rows).enumerate().map(row).collect()
}

/// The strongest evidence for the verdict: its first two lines, or one if both do not fit.
fn why(verdict: &Finding) -> Option<Note> {
    let lines: Vec<String> = verdict.evidence.iter().take(2).map(|line| sentence(line)).collect();
    let (first, both) = (lines.first()?, lines.join("; "));
    let text = if is_whole(&both, "", WIDTH - LABEL, 2) { &both } else { first };
    Some(Note::new("why", text, 2))
}

fn worth(verdict: &Finding) -> Option<Note> {
    let worth = verdict.worth.as_ref()?;
    Some(Note::new("worth", &format!("{} (estimate)", clean(&numbers::worth(worth))), 1))
}

/// The first sentence of the advice.
fn next(verdict: &Finding) -> Option<Note> {
    let advice = &verdict.advice;
    let is_end = |at: &usize| advice[at + 2..].starts_with(char::is_uppercase);
    let end = advice.match_indices(". ").map(|(at, _)| at).find(is_end).unwrap_or(advice.len());
    let first = sentence(&advice[..end]);
    (!first.is_empty()).then(|| Note::new("next", &first, 2))
}

/// The command that compares the current state with the advice applied, as valid shell input: a line that continues
/// ends in a backslash. None if it is longer than two lines, or has a name with control characters.
fn test(verdict: &Finding) -> Option<Note> {
    let command = verdict.comparison().filter(|command| clean(command) == *command)?;
    let room = WIDTH - LABEL;
    if command.chars().count() <= room {
        return Some(Note { label: "test", lines: vec![command.to_string()], short: None });
    }
    // As much in the first line as fits before the backslash.
    let fits = |at: &usize| command[..*at].chars().count() + 2 <= room;
    let at = breaks(command).into_iter().rev().find(fits)?;
    let (first, second) = (&command[..at], &command[at + 1..]);
    let second = format!("  {second}");
    let lines = vec![format!("{first} \\"), second];
    (lines[1].chars().count() <= room).then_some(Note { label: "test", lines, short: None })
}

/// Word boundaries of a shell command as byte offsets: spaces that are not quoted.
fn breaks(command: &str) -> Vec<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let mut found = Vec::new();
    for (at, c) in command.char_indices() {
        match c {
            _ if std::mem::take(&mut is_escaped) => {}
            '\'' => is_quoted = !is_quoted,
            '\\' if !is_quoted => is_escaped = true,
            ' ' if !is_quoted => found.push(at),
            _ => {}
        }
    }
    found
}

/// The second finding, and how many more there are.
fn also(findings: &[Finding]) -> Option<Note> {
    let second = findings.get(1)?;
    let more = match findings.len() - 2 {
        0 => String::new(),
        more => format!(" (+{more} more: -v)"),
    };
    let text = sentence(&second.sentence);
    let lines = |most| clip(&text, &more, WIDTH - LABEL, most);
    Some(Note { label: "also", lines: lines(2), short: Some(lines(1)) })
}

/// Losses, tracing cost, and where the rest is.
fn data(page: &Page<'_>) -> Option<Note> {
    let envelope = page.summaries.envelope;
    let lost = envelope.lost.ios;
    let all = page.summaries.latency.ios().saturating_add(lost);
    let mut parts = Vec::new();
    if all > 0 {
        parts.push(match lost {
            0 => "no I/Os missed".to_string(),
            _ => format!("{} % of I/Os missed", figure(lost as f64 * 100.0 / all as f64)),
        });
    }
    let cost = envelope.cost.cpu_percent;
    parts.extend(cost.map(|percent| format!("tracing cost {} CPU", figure(percent / 100.0))));
    let measured = parts.join(", ");
    let room = WIDTH - LABEL;
    let report = page.report.map(|path| {
        let label = "report: ";
        format!("{label}{}", fitted(&clean(path), room - label.len()))
    });
    let mut lines: Vec<String> = [Some(measured), report].into_iter().flatten().collect();
    lines.retain(|line| !line.is_empty());
    let joined = lines.join(" · ");
    if lines.len() > 1 && joined.chars().count() <= room {
        lines = vec![joined];
    }
    (!lines.is_empty()).then_some(Note { label: "data", lines, short: None })
}

#[cfg(test)]
mod tests;
