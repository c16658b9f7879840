//! Percentiles, queues, load and CPU time as tables.

use super::escape;
use crate::analyze::latency::Stage;
use crate::analyze::stacks::CpuClass;
use crate::hist::Histogram;
use crate::render::svg;
use crate::rules::{self, Summaries};
use crate::units::{bytes, count, short, significant, time};

/// More queues per device than these are in the JSON only.
const MOST_QUEUES: usize = 64;

/// More threads than these are in the flame graph only.
const MOST_THREADS: usize = 10;

/// A cell: text to the left, numbers to the right.
pub enum Cell {
    Text(String),
    Number(String),
    /// Markup of this module's own.
    Raw(String),
}

/// A cell of text.
pub fn text(value: &str) -> Cell {
    Cell::Text(value.to_string())
}

/// A table whose header cells beginning with `<` are text columns.
pub fn table(header: &[&str], rows: Vec<Vec<Cell>>) -> String {
    let head: String = header
        .iter()
        .map(|name| match name.strip_prefix('<') {
            Some(name) => format!("<th class=\"text\">{name}</th>"),
            None => format!("<th>{name}</th>"),
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
        "<div class=\"wide\"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
    )
}

/// Names and values, one pair a line.
pub fn facts(rows: &[(&str, String)]) -> String {
    let rows: String =
        rows.iter().map(|(name, value)| format!("<dt>{name}</dt><dd>{}</dd>\n", escape(value))).collect();
    format!("<dl class=\"facts\">\n{rows}</dl>\n")
}

fn meter(share: f64) -> String {
    let percent = (share * 100.0).clamp(0.0, 100.0);
    format!("<span class=\"meter\"><i style=\"width:{percent:.1}%\"></i></span>")
}

fn quantiles(hist: &Histogram) -> Vec<Cell> {
    let cell = |value: Option<u64>| Cell::Number(value.map_or("-".to_string(), time));
    let mut cells =
        vec![Cell::Number(count(hist.count())), cell(hist.mean().map(|ns| ns as u64)), cell(hist.min())];
    cells.extend([0.5, 0.9, 0.99, 0.999, 0.9999].map(|q| cell(hist.quantile(q))));
    cells.push(cell(hist.max()));
    cells
}

/// Per device, operation and stage, and the operations of biopsy's own load.
pub fn percentiles(s: &Summaries<'_>) -> String {
    let mut rows = Vec::new();
    for device in &s.latency.devices {
        for (op, latency) in &device.ops {
            for stage in Stage::ALL {
                let Some(hist) = latency.request_stages.get(&stage).filter(|h| !h.is_empty()) else {
                    continue;
                };
                let name = format!("<i class=\"swatch {}\"></i>{}", svg::stage_class(stage), stage.name());
                let mut row = vec![text(&device.name), text(op.name()), Cell::Raw(name)];
                row.extend(quantiles(hist));
                rows.push(row);
            }
        }
    }
    if let Some(load) = s.load {
        let latency = load.latency();
        if !latency.is_empty() {
            let mut row = vec![text("load"), text(load.rw.name()), text("whole operation")];
            row.extend(quantiles(&latency));
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let header = [
        "<device",
        "<operation",
        "<stage",
        "count",
        "mean",
        "min",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "p99.99",
        "max",
    ];
    format!(
        "{}<p class=\"soft small\">Percentiles are exact to 3.2 %; count, mean, min and max are exact. A dash: too few I/Os \
         lie above. A whole operation is what the generator saw; its percentiles are not sums of those of the stages.</p>\n",
        table(&header, rows)
    )
}

/// Per hardware queue.
pub fn queues(s: &Summaries<'_>) -> String {
    let mut out = String::new();
    for device in s.latency.devices.iter().filter(|d| d.ios > 0 && !d.queues.is_empty()) {
        let most = device.queues.iter().map(|q| q.ios).max().unwrap_or(0).max(1) as f64;
        let rows = device.queues.iter().take(MOST_QUEUES).map(|queue| {
            let stage = |stage: Stage, value: &dyn Fn(&Histogram) -> Option<u64>| {
                Cell::Number(queue.request_stages.get(&stage).and_then(value).map_or("-".to_string(), time))
            };
            let mean = |hist: &Histogram| hist.mean().map(|ns| ns as u64);
            vec![
                Cell::Text(queue.queue.to_string()),
                Cell::Text(queue.qid.map_or("-".to_string(), |qid| qid.to_string())),
                text(&queue.kind),
                text(&queue.cpus),
                Cell::Number(count(queue.ios)),
                Cell::Raw(meter(queue.ios as f64 / most)),
                stage(Stage::Queue, &mean),
                stage(Stage::Device, &mean),
                stage(Stage::Device, &|hist| hist.quantile(0.99)),
            ]
        });
        let header =
            ["<queue", "<qid", "<type", "<CPUs", "I/Os", "<", "queue mean", "device mean", "device p99"];
        out.push_str(&format!("<h3>{}</h3>\n{}", escape(&device.name), table(&header, rows.collect())));
        if device.queues.len() > MOST_QUEUES {
            let more = device.queues.len() - MOST_QUEUES;
            out.push_str(&format!("<p class=\"soft small\">{more} more queues are in the JSON.</p>\n"));
        }
    }
    out
}

/// The generator's own results.
pub fn load(s: &Summaries<'_>) -> String {
    let Some(load) = s.load else {
        return "<p>The load was not biopsy's own: operations are not counted, only I/Os.</p>\n".to_string();
    };
    let mut rows = vec![
        ("target", load.target.clone()),
        ("device", load.device.clone().unwrap_or_else(|| "none".to_string())),
        (
            "job",
            format!(
                "{} of {}, {} at depth {}, over {}",
                load.rw.name(),
                bytes(load.bs as f64),
                if load.numjobs == 1 { "1 job".to_string() } else { format!("{} jobs", load.numjobs) },
                load.iodepth,
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
            "beside the jobs",
            format!(
                "{} worker thread{} of io_uring, in the kernel for {:.1} % of one CPU",
                workers.threads,
                if workers.threads == 1 { "" } else { "s" },
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
            Cell::Number(count(job.operations)),
            Cell::Number(short(job.operations as f64 * 1e9 / duration)),
            Cell::Number(count(job.errors)),
            share(job.user_ns),
            share(job.system_ns),
            Cell::Number(significant(job.operations as f64 / job.submits.max(1) as f64, 3)),
            Cell::Number(job.latency.quantile(0.5).map_or("-".to_string(), time)),
            Cell::Number(job.latency.quantile(0.99).map_or("-".to_string(), time)),
        ]
    });
    let header =
        ["<job", "<CPU", "operations", "per second", "errors", "user", "system", "per submit", "p50", "p99"];
    format!("{}{}", facts(&rows), table(&header, jobs.collect()))
}

/// Where the CPUs spent their time.
pub fn cpu(s: &Summaries<'_>) -> String {
    let Some(profile) = s.profile.filter(|p| p.samples > 0) else {
        return "<p>No profile could be taken.</p>\n".to_string();
    };
    let classes = [
        ("user", CpuClass::User),
        ("system", CpuClass::System),
        ("hard interrupts", CpuClass::Irq),
        ("soft interrupts", CpuClass::Softirq),
        ("kernel threads", CpuClass::Kthread),
        ("idle", CpuClass::Idle),
    ];
    let rows = classes.iter().map(|(name, class)| {
        let samples = profile.classes.get(class).copied().unwrap_or(0);
        let share = samples as f64 / profile.samples as f64;
        let per_io = rules::ns_per_io(s, profile, *class).filter(|_| *class != CpuClass::Idle);
        vec![
            text(name),
            Cell::Number(format!("{:.2}", share * f64::from(profile.cpus))),
            Cell::Number(format!("{:.1} %", share * 100.0)),
            Cell::Raw(meter(share)),
            Cell::Number(per_io.map_or("-".to_string(), |ns| time(ns as u64))),
        ]
    });
    let mut out = table(&["<class", "CPUs", "share", "<", "per I/O"], rows.collect());
    out.push_str(&format!(
        "<p class=\"soft small\">{} samples of {} at {} Hz on {} CPUs, {} lost. Everything on the machine is counted, not \
         only what the I/O caused.</p>\n",
        count(profile.samples),
        escape(&profile.sampler),
        profile.frequency,
        profile.cpus,
        count(profile.lost)
    ));
    let seconds = profile.duration_ns.max(1) as f64;
    let threads = profile.top.iter().take(MOST_THREADS).map(|(name, pid, ns)| {
        vec![
            text(name),
            Cell::Number(pid.to_string()),
            Cell::Number(format!("{:.1} %", *ns as f64 / seconds * 100.0)),
            Cell::Raw(meter(*ns as f64 / seconds)),
        ]
    });
    let threads: Vec<_> = threads.collect();
    if !threads.is_empty() {
        out.push_str(&table(&["<thread", "pid", "of one CPU", "<"], threads));
    }
    out
}
