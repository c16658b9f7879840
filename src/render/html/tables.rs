//! Builds tables, and those of hardware queues and of the load.

use super::contents::folded;
use super::escape;
use crate::analyze::stage::Stage;
use crate::hist::Histogram;
use crate::merge::SaturatingSum as _;
use crate::rules::Summaries;
use crate::units::{bytes, common_time, count, counted, significant, time};

/// Further queues per device are in the JSON only.
const MOST_QUEUES: usize = 64;

/// A table with more rows is collapsed.
const MOST_OPEN: usize = 12;

/// A table with more columns is set tighter.
const DENSE: usize = 10;

/// A cell: text is left-aligned, numbers are right-aligned.
pub enum Cell {
    Text(String),
    Number(String),
    /// Markup generated here.
    Raw(String),
}

/// A text cell.
pub fn text(value: &str) -> Cell {
    Cell::Text(value.to_string())
}

/// A table; header cells that begin with `<` mark text columns. Collapsed if it is long.
pub fn table(header: &[impl AsRef<str>], rows: Vec<Vec<Cell>>) -> String {
    let count = rows.len();
    let table = open_table(header, rows);
    if count > MOST_OPEN { folded(&counted(count as u64, "row"), &table) } else { table }
}

/// Same, never collapsed.
pub fn open_table(header: &[impl AsRef<str>], rows: Vec<Vec<Cell>>) -> String {
    let head: String = header
        .iter()
        .map(|name| match name.as_ref().strip_prefix('<') {
            Some(name) => format!("<th class=\"text\">{name}</th>"),
            None => format!("<th>{}</th>", name.as_ref()),
        })
        .collect();
    let body: String = rows
        .into_iter()
        .map(|row| {
            let cells: String = row
                .into_iter()
                .map(|cell| match cell {
                    Cell::Text(value) => format!("<td class=\"text\">{}</td>", escape(&value)),
                    Cell::Number(value) => format!("<td>{}</td>", escape(&value)),
                    Cell::Raw(markup) => format!("<td class=\"text\">{markup}</td>"),
                })
                .collect();
            format!("<tr>{cells}</tr>\n")
        })
        .collect();
    format!(
        "<div class=\"wide\"><table{}><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n",
        if header.len() > DENSE { " class=\"dense\"" } else { "" }
    )
}

/// Names and values, one pair per line.
pub fn facts(rows: &[(&str, String)]) -> String {
    let rows: String =
        rows.iter().map(|(name, value)| format!("<dt>{name}</dt><dd>{}</dd>\n", escape(value))).collect();
    format!("<dl class=\"facts\">\n{rows}</dl>\n")
}

/// A share as a short bar.
pub fn meter(share: f64) -> String {
    let percent = (share * 100.0).clamp(0.0, 100.0);
    format!("<span class=\"meter\"><i style=\"width:{percent:.1}%\"></i></span>")
}

/// A column of times in one unit, with its heading.
fn times(name: &str, values: &[Option<f64>]) -> (String, Vec<Cell>) {
    let (scale, unit) = common_time(values.iter().copied().flatten());
    let cell = |ns: &Option<f64>| Cell::Number(ns.map_or("-".to_string(), |ns| significant(ns / scale, 3)));
    (format!("{name} {unit}"), values.iter().map(cell).collect())
}

/// Appends a column of times to the rows, and its heading to the header.
pub fn widen(header: &mut Vec<String>, rows: &mut [Vec<Cell>], name: &str, values: &[Option<f64>]) {
    let (heading, cells) = times(name, values);
    header.push(heading);
    rows.iter_mut().zip(cells).for_each(|(row, cell)| row.push(cell));
}

fn ns(value: Option<u64>) -> Option<f64> {
    value.map(|ns| ns as f64)
}

/// A figure of a column of times.
type Figure = fn(&Histogram) -> Option<f64>;

/// Fixed headings; those of times are added by [`widen`].
pub fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// Per hardware queue.
pub fn queues(s: &Summaries<'_>) -> String {
    let mut out = String::new();
    for device in s.latency.devices.iter().filter(|d| d.ios > 0 && !d.queues.is_empty()) {
        let most = device.queues.iter().map(|q| q.ios).max().unwrap_or(0).max(1) as f64;
        let shown = || device.queues.iter().take(MOST_QUEUES);
        let rows = shown().map(|queue| {
            vec![
                Cell::Text(queue.queue.to_string()),
                Cell::Text(queue.qid.map_or("-".to_string(), |qid| qid.to_string())),
                text(&queue.kind),
                text(&queue.cpus),
                Cell::Number(count(queue.ios)),
                Cell::Raw(meter(queue.ios as f64 / most)),
            ]
        });
        let mut rows: Vec<_> = rows.collect();
        let mut header = header(&["<queue", "<qid", "<type", "<CPUs", "I/Os", "<"]);
        let columns: [(&str, Stage, Figure); 3] = [
            ("queue mean", Stage::Queue, Histogram::mean),
            ("device mean", Stage::Device, Histogram::mean),
            ("device p99", Stage::Device, |hist| ns(hist.quantile(0.99))),
        ];
        for (name, stage, figure) in columns {
            let column: Vec<Option<f64>> =
                shown().map(|queue| queue.request_stages.get(&stage).and_then(figure)).collect();
            widen(&mut header, &mut rows, name, &column);
        }
        out.push_str(&format!("<h3>{}</h3>\n{}", escape(&device.name), table(&header, rows)));
        let by_queue: u64 = device.queues.iter().map(|q| q.ios).saturating_sum();
        if let Some(rest @ 1..) = device.ios.checked_sub(by_queue) {
            out.push_str(&format!(
                "<p class=\"soft small\">{} of rare classes (fua, flush, discard and the like) not counted by queue.</p>\n",
                counted(rest, "I/O")
            ));
        }
        if device.queues.len() > MOST_QUEUES {
            let more = device.queues.len() - MOST_QUEUES;
            out.push_str(&format!(
                "<p class=\"soft small\">{more} more {} in the JSON.</p>\n",
                if more == 1 { "queue is" } else { "queues are" }
            ));
        }
    }
    out
}

/// The generator's own results.
pub fn load(s: &Summaries<'_>) -> String {
    let Some(load) = s.load else {
        return "<p>The load was not biopsy's own: its depth, rate and latencies are unknown.</p>\n"
            .to_string();
    };
    let mut rows = vec![
        ("target", load.target.clone()),
        ("device", load.device.clone().unwrap_or_else(|| "none".to_string())),
        (
            "job",
            format!(
                "{} of {}, {} at depth {}, over {}",
                load.job.rw.name(),
                bytes(load.job.largest_block() as f64),
                counted(load.job.numjobs.into(), "job"),
                load.job.iodepth,
                bytes(load.size as f64)
            ),
        ),
    ];
    if let Some(fill) = load.fill {
        rows.push((
            "scratch file",
            format!("{} written in {}", bytes(fill.bytes as f64), time(fill.duration_ns)),
        ));
    }
    let duration = load.duration_ns.max(1) as f64;
    if let Some(workers) = load.ring_workers.filter(|workers| workers.threads > 0) {
        rows.push((
            "io_uring workers",
            format!(
                "{} of io_uring, in the kernel for {:.1} % of one CPU",
                counted(workers.threads.into(), "worker thread"),
                workers.system_ns as f64 / duration * 100.0
            ),
        ));
    }
    rows.extend(load.missing.iter().map(|why| ("without", why.clone())));
    let share = |ns: u64| Cell::Number(format!("{:.1} %", ns as f64 / duration * 100.0));
    let jobs = load.jobs.iter().map(|job| {
        vec![
            Cell::Text(job.number.to_string()),
            Cell::Text(job.cpu.map_or("-".to_string(), |cpu| cpu.to_string())),
            Cell::Number(count(job.operations())),
            Cell::Number(count((job.operations() as f64 * 1e9 / duration).round() as u64)),
            Cell::Number(count(job.errors())),
            share(job.user_ns),
            share(job.system_ns),
            Cell::Number(significant(job.operations() as f64 / job.submits().max(1) as f64, 3)),
        ]
    });
    let mut jobs: Vec<_> = jobs.collect();
    let mut header =
        header(&["<job", "<CPU", "operations", "per second", "errors", "user", "system", "per submit"]);
    for (name, q) in [("p50", 0.5), ("p99", 0.99)] {
        let column: Vec<Option<f64>> = load.jobs.iter().map(|job| ns(job.latency().quantile(q))).collect();
        widen(&mut header, &mut jobs, name, &column);
    }
    format!("{}{}", facts(&rows), table(&header, jobs))
}
