//! Renders the report: one self-contained HTML file. It loads nothing from the network and has no script of its own. It
//! is readable from `file://`, on paper, and in light and dark mode. Only a flame graph includes a script, for zoom and
//! search.

mod charts;
pub mod compare;
mod contents;
mod cpu;
mod experiment;
mod findings;
mod interrupts;
mod locks;
mod over_time;
mod pagecache;
mod percentiles;
mod scaling;
mod setting;
mod sharing;
mod tables;
mod threads;
mod waterfall;

use serde_json::{Map, Value};

use self::contents::Section;
use crate::analyze::locks::LockSummary;
use crate::analyze::pagecache::PagecacheSummary;
use crate::analyze::threads::ThreadSummary;
use crate::analyze::timeline::Timeline;
use crate::findings::{Diagnosis, Severity};
use crate::merge::SaturatingSum as _;
use crate::render::flame;
use crate::render::text::clean;
use crate::rules::Summaries;
use crate::units::{bytes, count, counted, short, significant, time};

const STYLE: &str = include_str!("html/style.css");

/// The contents of a report.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    pub summaries: Summaries<'a>,
    pub diagnosis: &'a Diagnosis,
    /// Why the run must not be trusted; None if it may.
    pub doubt: Option<&'a str>,
    /// The command line as typed.
    pub command: &'a str,
    /// Exit status of the command after `--`; None: there was none, or it still runs.
    pub command_status: Option<i32>,
    /// Named flame graphs from `render::flame::inline`, inserted unchanged.
    pub flames: &'a [(&'a str, String)],
    /// None: not measured.
    pub locks: Option<&'a LockSummary>,
    pub pagecache: Option<&'a PagecacheSummary>,
    pub threads: Option<&'a ThreadSummary>,
    pub timeline: Option<&'a Timeline>,
    /// The output of `diagnose --json`, embedded in the page for scripts and later comparison.
    pub json: &'a Map<String, Value>,
}

/// The complete file.
pub fn render(report: &Report<'_>) -> String {
    let s = &report.summaries;
    let title = report.diagnosis.findings.first().map_or("biopsy report", |f| f.id);
    let mut out = String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    // Defence in depth: even after an escaping mistake the page cannot load anything, and scripts are allowed only if
    // there is a flame graph.
    let scripts = if !report.flames.is_empty() { "'unsafe-inline'" } else { "'none'" };
    out.push_str(&format!(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src {scripts}; base-uri 'none'; form-action 'none'\">\n"
    ));
    out.push_str(&format!("<title>{} · {} · biopsy</title>\n", escape(title), escape(&s.host.hostname)));
    let flame_style = if report.flames.is_empty() { "" } else { flame::INLINE_STYLE };
    out.push_str(&format!("<style>\n{STYLE}{flame_style}</style>\n</head>\n<body>\n<main>\n"));
    out.push_str(&header(report));
    let sections: Vec<Section> = [
        ("Findings", findings::cards(report.diagnosis)),
        ("Other depths", experiment::depths(s)),
        ("Where the time goes", waterfall::stages(s, report.diagnosis)),
        ("Over time", over_time::over_time(s, report.timeline)),
        ("I/O by process", sharing::processes(s)),
        ("I/O by file", sharing::files(s)),
        ("Distributions", charts::distributions(s)),
        ("Percentiles", percentiles::percentiles(s)),
        ("Hardware queues", tables::queues(s)),
        ("Interrupts", interrupts::interrupts(s)),
        ("Locks", locks::locks(report.locks)),
        ("Memory and page cache", pagecache::pagecache(report.pagecache)),
        ("CPU time", cpu::cpu(s)),
        ("Threads", threads::threads(report.threads)),
        ("Flame graphs", flame_graphs(report)),
        ("Topology", setting::topology(s)),
        ("Load", tables::load(s)),
        ("Alone and all at once", scaling::drives(s)),
        ("Machine", setting::machine(s)),
        ("What was not measured", findings::gaps(s, report.diagnosis)),
        ("Measurement", setting::measurement(report)),
    ]
    .into_iter()
    .filter_map(|(title, body)| Section::new(title, body))
    .collect();
    out.push_str(&contents::list(&sections));
    sections.iter().for_each(|section| out.push_str(&section.render()));
    out.push_str(&footer(report));
    out.push_str("</main>\n");
    out.push_str(&island(report.json));
    if !report.flames.is_empty() {
        out.push_str(&format!("<script>\n{}</script>\n", flame::INLINE_SCRIPT));
    }
    out.push_str("</body>\n</html>\n");
    out
}

/// Text for an element or a quoted attribute: escapes markup and characters that could hide text.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in clean(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// The start and end of a page's embedded data.
const DATA: [&str; 2] = ["<script type=\"application/json\" id=\"biopsy\">", "</script>\n"];

/// The `--json` output embedded in a page; None if there is none.
pub fn data(page: &str) -> Option<Value> {
    let (_, rest) = page.split_once(DATA[0])?;
    serde_json::from_str(rest.split_once(DATA[1])?.0).ok()
}

/// The embedded data in a script element: without characters that are special in HTML, and without any that hide text
/// from a reader of the source.
fn island(json: &Map<String, Value>) -> String {
    let mut out = DATA[0].to_string();
    for c in Value::Object(json.clone()).to_string().chars() {
        if matches!(c, '<' | '>' | '&') || is_hidden(c) {
            let mut units = [0u16; 2];
            c.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
    out + DATA[1]
}

fn is_hidden(c: char) -> bool {
    !c.is_ascii_graphic() && c != ' ' && !c.is_alphanumeric() && clean(c.encode_utf8(&mut [0; 4])).len() > 4
}

fn header(report: &Report<'_>) -> String {
    let s = &report.summaries;
    let mut out = format!(
        "<header>\n<p class=\"eyebrow\">biopsy {} · {} · {}</p>\n",
        escape(&s.envelope.version),
        escape(&s.host.hostname),
        escape(&s.envelope.start)
    );
    if let Some(verdict) = report.diagnosis.findings.first() {
        out.push_str(&format!(
            "<h1>{}</h1>\n<p class=\"chips\"><span><b>{}</b></span><span>subject <b>{}</b></span>\
             <span>severity <b>{}</b></span><span>confidence <b>{}</b></span></p>\n",
            escape(&verdict.sentence),
            escape(verdict.id),
            escape(&verdict.subject),
            severity(verdict.severity),
            significant(verdict.confidence, 2)
        ));
    }
    if let Some(why) = report.doubt {
        out.push_str(&format!("<p class=\"doubt\"><b>Do not trust this run:</b> {}</p>\n", escape(why)));
    }
    out.push_str(&figures(s));
    out.push_str("</header>\n");
    out
}

/// The figures below the verdict.
fn figures(s: &Summaries<'_>) -> String {
    let mut cells: Vec<(&str, String, String)> = Vec::new();
    match s.load {
        Some(load) => {
            let latency = load.latency();
            let detail = match load.job.numjobs {
                1 => format!("{} at depth {}", bytes(load.job.largest_block() as f64), load.job.iodepth),
                jobs => format!(
                    "{} at depth {jobs} × {}",
                    bytes(load.job.largest_block() as f64),
                    load.job.iodepth
                ),
            };
            cells.push(("operations per second", load.iops().map_or("-".into(), short), detail));
            let rate = load.bytes_per_second().map_or("-".into(), bytes);
            cells.push(("bandwidth", format!("{rate}/s"), load.job.rw.name().to_string()));
            let p99 = latency.quantile(0.99).map_or("-".into(), time);
            let mean = latency.mean().map_or("-".into(), |ns| time(ns as u64));
            cells.push(("mean latency", mean, format!("p99 {p99}")));
        }
        None => {
            let ios = s.latency.ios();
            let amount = s.latency.devices.iter().map(|device| device.bytes).saturating_sum();
            let seconds = s.latency.duration_ns.max(1) as f64 / 1e9;
            cells.push(("I/Os per second", short(ios as f64 / seconds), "all traced devices".into()));
            cells.push(("bandwidth", format!("{}/s", bytes(amount as f64 / seconds)), String::new()));
        }
    }
    cells.push(("I/Os traced", count(s.latency.ios()), format!("in {}", time(s.latency.duration_ns))));
    let lost = &s.envelope.lost;
    cells.push((
        "I/Os missed",
        count(lost.ios),
        format!("and {}", counted(lost.events.saturating_add(lost.samples), "other event")),
    ));
    let cost = s.envelope.cost.ns_per_io.map_or("-".into(), |ns| format!("{} ns", significant(ns, 3)));
    let attach = s.envelope.cost.attach_ns_per_io;
    let detail = attach.map_or("per I/O".into(), |ns| format!("per I/O, + {} ns attach", significant(ns, 3)));
    cells.push(("cost of the probes", cost, detail));
    let cells: String = cells
        .iter()
        .map(|(name, value, detail)| {
            format!("<div><dt>{name}</dt><dd>{}<small>{}</small></dd></div>\n", escape(value), escape(detail))
        })
        .collect();
    format!("<dl class=\"figures\">\n{cells}</dl>\n")
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Critical => "critical",
    }
}

fn flame_graphs(report: &Report<'_>) -> String {
    if report.flames.is_empty() {
        return String::new();
    }
    let note = report.summaries.profile.and_then(|profile| profile.sampler_note.as_deref());
    let note =
        note.map(|note| format!(" On the CPU: {}.", escape(note.trim_end_matches('.')))).unwrap_or_default();
    format!(
        "<p class=\"soft small\">By stack: the wider, the more. A click on a frame widens it, a click on the lowest shows \
         all; Search marks frames by name. Idle time is left out.{note}</p>\n{}",
        flame::tabs(report.flames)
    )
}

fn footer(report: &Report<'_>) -> String {
    let notice = if !report.flames.is_empty() {
        "<p>The flame graphs are laid out by inferno, which is under the Common Development and \
         Distribution License 1.0 (CDDL-1.0). Its source is the crate inferno; this page contains no part \
         of it.</p>\n"
    } else {
        ""
    };
    format!(
        "<footer>\n<p>Made by biopsy {}. The page loads nothing from elsewhere. Its data is at the end as \
         JSON (<code>script#biopsy</code>, schema <code>biopsy.diagnose/1</code>).</p>\n{notice}</footer>\n",
        escape(&report.summaries.envelope.version)
    )
}
