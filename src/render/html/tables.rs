//! Percentiles, queues, load and CPU time as tables.

use std::collections::BTreeMap;

use super::escape;
use crate::analyze::cpu::{self, CpuRow, CpuSummary, TIMES};
use crate::analyze::latency::Unit;
use crate::analyze::parts::{Part, Parts};
use crate::analyze::stacks::{CpuClass, ProfileSummary};
use crate::analyze::stage::Stage;
use crate::hist::Histogram;
use crate::render::svg;
use crate::rules::{self, Summaries};
use crate::units::{bytes, common_time, count, counted, in_percent, significant, time};

/// More queues per device than these are in the JSON only.
const MOST_QUEUES: usize = 64;

/// More threads than these are in the flame graph only.
const MOST_THREADS: usize = 10;

/// More columns than these are set closer.
const DENSE: usize = 10;

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
pub fn table(header: &[impl AsRef<str>], rows: Vec<Vec<Cell>>) -> String {
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

/// A column of times in one unit, with its heading.
fn times(name: &str, values: &[Option<f64>]) -> (String, Vec<Cell>) {
    let (scale, unit) = common_time(values.iter().copied().flatten());
    let cell = |ns: &Option<f64>| Cell::Number(ns.map_or("-".to_string(), |ns| significant(ns / scale, 3)));
    (format!("{name} {unit}"), values.iter().map(cell).collect())
}

/// Puts columns of times behind the rows, and their headings behind the header.
pub fn widen(header: &mut Vec<String>, rows: &mut [Vec<Cell>], name: &str, values: &[Option<f64>]) {
    let (heading, cells) = times(name, values);
    header.push(heading);
    rows.iter_mut().zip(cells).for_each(|(row, cell)| row.push(cell));
}

fn ns(value: Option<u64>) -> Option<f64> {
    value.map(|ns| ns as f64)
}

type Figure = fn(&Histogram) -> Option<f64>;

/// What stands in a row of percentiles.
const FIGURES: [(&str, Figure); 8] = [
    ("mean", Histogram::mean),
    ("min", |hist| ns(hist.min())),
    ("p50", |hist| ns(hist.quantile(0.5))),
    ("p90", |hist| ns(hist.quantile(0.9))),
    ("p99", |hist| ns(hist.quantile(0.99))),
    ("p99.9", |hist| ns(hist.quantile(0.999))),
    ("p99.99", |hist| ns(hist.quantile(0.9999))),
    ("max", |hist| ns(hist.max())),
];

/// Headings that are fixed; those of times come with [`widen`].
pub fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

/// Each stage, and its parts behind it where it was taken apart.
fn taken_apart<'a>(
    stages: &'a BTreeMap<Stage, Histogram>,
    parts: &'a Parts,
) -> impl Iterator<Item = (Stage, Option<Part>, &'a Histogram)> {
    let behind = move |stage: Stage| {
        let of_stage = parts.iter().filter(move |(part, _)| part.stage() == stage);
        of_stage.map(move |(part, hist)| (stage, Some(*part), hist))
    };
    let rows =
        stages.iter().flat_map(move |(stage, hist)| [(*stage, None, hist)].into_iter().chain(behind(*stage)));
    rows.filter(|(_, _, hist)| !hist.is_empty())
}

/// Per device, operation and stage, and the operations of biopsy's own load.
pub fn percentiles(s: &Summaries<'_>) -> String {
    let none = Parts::new();
    let (mut rows, mut hists) = (Vec::new(), Vec::new());
    for device in &s.latency.devices {
        for (op, latency) in &device.ops {
            let operations = latency.operations.as_ref();
            let of_operations = operations.map(|all| (Unit::Operation, &all.stages, &latency.parts));
            let of_ios = [
                (Unit::Io, &latency.request_stages, &latency.request_parts),
                (Unit::UnownedIo, &latency.unowned_stages, &none),
            ];
            for (unit, stages, parts) in of_operations.into_iter().chain(of_ios) {
                for (stage, part, hist) in taken_apart(stages, parts) {
                    let class = svg::stage_class(stage);
                    let part = part.map_or(String::new(), |part| format!(" / {}", part.name()));
                    let name = format!("<i class=\"swatch {class}\"></i>{}{part}", stage.name());
                    let n = Cell::Number(count(hist.count()));
                    rows.push(vec![
                        text(&device.name),
                        text(op.name()),
                        text(unit.name()),
                        Cell::Raw(name),
                        n,
                    ]);
                    hists.push(hist);
                }
                if let Some(all) = operations.filter(|all| unit == Unit::Operation && !all.total.is_empty()) {
                    let n = Cell::Number(count(all.total.count()));
                    let names = [&device.name, op.name(), unit.name(), "total"].map(text);
                    rows.push(names.into_iter().chain([n]).collect());
                    hists.push(&all.total);
                }
            }
            for (unit, bio) in [(Unit::Io, &latency.bio), (Unit::UnownedIo, &latency.unowned_bio)] {
                let Some(bio) = bio else { continue };
                let names = [&device.name, op.name(), unit.name(), "bio"].map(text);
                rows.push(names.into_iter().chain([Cell::Number(count(bio.count()))]).collect());
                hists.push(bio);
            }
        }
    }
    let whole =
        s.load.map(|load| (load.job.rw.name(), load.latency())).filter(|(_, latency)| !latency.is_empty());
    if let Some((name, latency)) = &whole {
        let n = Cell::Number(count(latency.count()));
        rows.push(vec![
            text("load"),
            text(name),
            text(Unit::Operation.name()),
            text("as the load saw it"),
            n,
        ]);
        hists.push(latency);
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut header = header(&["<device", "<class", "<per", "<stage", "count"]);
    for (name, figure) in FIGURES {
        let column: Vec<Option<f64>> = hists.iter().map(|hist| figure(hist)).collect();
        widen(&mut header, &mut rows, name, &column);
    }
    format!(
        "{}<p class=\"soft small\">Percentiles are exact to 3.2 %; count, mean, min and max are exact. A dash: too few I/Os \
         lie above. The percentiles of a total are not sums of those of the stages.</p>\n",
        table(&header, rows)
    )
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
        let by_queue: u64 = device.queues.iter().map(|q| q.ios).sum();
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
        return "<p>The load was not biopsy's own: its depth, its pace and its own times are not known.</p>\n".to_string();
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
            "beside the jobs",
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

/// Where the CPUs spent their time.
pub fn cpu(s: &Summaries<'_>) -> String {
    let profile = s.profile.filter(|profile| profile.samples > 0);
    let mut out =
        profile.map_or("<p>No profile could be taken.</p>\n".to_string(), |profile| classes(s, profile));
    if let Some(cpu) = s.cpu {
        out.push_str(&counted_cpu(cpu, rules::ios(s)));
        out.push_str(&accounted_cpu(cpu));
    }
    out.push_str(&profile.map_or(String::new(), threads));
    out
}

/// By the samples.
fn classes(s: &Summaries<'_>, profile: &ProfileSummary) -> String {
    let classes = [
        ("user", CpuClass::User),
        ("system", CpuClass::System),
        ("workers of io_uring", CpuClass::IoWq),
        ("hard interrupts", CpuClass::Irq),
        ("soft interrupts", CpuClass::Softirq),
        ("kernel threads", CpuClass::Kthread),
        ("idle", CpuClass::Idle),
    ];
    let rows = classes.iter().map(|(name, class)| {
        let Some(ns) = rules::class_ns(s, profile, *class) else {
            return vec![text(name), text("-"), text("-"), Cell::Raw(String::new())];
        };
        let cpus = ns as f64 / profile.duration_ns.max(1) as f64;
        let share = cpus / f64::from(profile.cpus.max(1));
        vec![
            text(name),
            Cell::Number(format!("{cpus:.2}")),
            Cell::Number(format!("{:.1} %", share * 100.0)),
            Cell::Raw(meter(share)),
        ]
    });
    let mut rows: Vec<_> = rows.collect();
    let mut header = header(&["<class", "CPUs", "share", "<"]);
    let per_io: Vec<Option<f64>> = classes
        .iter()
        .map(|(_, class)| rules::ns_per_io(s, profile, *class).filter(|_| *class != CpuClass::Idle))
        .collect();
    widen(&mut header, &mut rows, "per I/O", &per_io);
    let ios = rules::ios(s);
    let cycles = classes.map(|(_, class)| cpu::cycles_per_io(s.cpu?, profile, class, ios));
    if cycles.iter().any(Option::is_some) {
        header.push("cycles per I/O".to_string());
        let cell = |cycles: &Option<f64>| {
            Cell::Number(cycles.map_or("-".to_string(), |cycles| count(cycles.round() as u64)))
        };
        rows.iter_mut().zip(&cycles).for_each(|(row, cycles)| row.push(cell(cycles)));
    }
    let mut out = table(&header, rows);
    out.push_str(&format!(
        "<p class=\"soft small\">{} of {} at {} Hz on {}, {} lost. Everything on the machine is counted, not \
         only what the I/O caused.</p>\n",
        counted(profile.samples, "sample"),
        escape(&profile.sampler),
        profile.frequency,
        counted(profile.cpus.into(), "CPU"),
        count(profile.lost)
    ));
    out
}

/// Those that ran longest.
fn threads(profile: &ProfileSummary) -> String {
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
    if threads.is_empty() { String::new() } else { table(&["<thread", "pid", "of one CPU", "<"], threads) }
}

/// What the counters and the kernel counted, per I/O, with the reason where they did not.
fn counted_cpu(cpu: &CpuSummary, ios: u64) -> String {
    let (counted, per) = (&cpu.counted, cpu::per_io(cpu, ios));
    let unknown = |part: &str| {
        let missing = cpu.missing().into_iter().find(|missing| missing.part.as_deref() == Some(part));
        missing.map_or("not known".to_string(), |missing| missing.why)
    };
    let whole = |value: f64| count(value.round() as u64);
    let mut rows = vec![("cycles per I/O", per.cycles.map_or_else(|| unknown("cycles"), whole))];
    if let Some((low, high)) = per.core_cycles.filter(|_| cpu.smt()) {
        let note = "at least as many as of its busiest thread, at most as of all";
        rows.push(("of physical cores", format!("{} to {}: {note}", whole(low), whole(high))));
    }
    if per.cycles.is_some() {
        let ratio =
            |value: Option<f64>, part: &str| value.map_or_else(|| unknown(part), |v| significant(v, 3));
        rows.push(("instructions per cycle", ratio(per.instructions_per_cycle, "instructions")));
        rows.push(("in user mode", ratio(per.user_instructions_per_cycle, "instructions")));
        rows.push(("in the kernel", ratio(per.kernel_instructions_per_cycle, "instructions")));
        let share = |value: Option<f64>, part: &str| value.map_or_else(|| unknown(part), in_percent);
        rows.push(("stalled, front end", share(per.frontend_stalls, "stalled-cycles-frontend")));
        rows.push(("stalled, back end", share(per.backend_stalls, "stalled-cycles-backend")));
    }
    let events = [
        ("context switches per I/O", per.context_switches, cpu.context_switches, "context_switches"),
        ("wake-ups per I/O", per.wakeups, cpu.wakeups, "wakeups"),
    ];
    rows.extend(events.map(|(name, per, all, part)| match (per, all) {
        (Some(per), Some(all)) => (name, format!("{} ({} in all)", significant(per, 3), count(all))),
        (None, Some(all)) => (name, format!("{} in all, and no I/O", count(all))),
        _ => (name, unknown(part)),
    }));
    if let Some(share) = counted.counted_share.filter(|share| *share < 1.0) {
        let text = format!("{} of the window at least; the counts are extrapolated", in_percent(share));
        rows.push(("counters had their turn in", text));
    }
    facts(&rows)
}

/// The kernel's own account: per CPU, core and socket, in shares that make 100 %.
fn accounted_cpu(cpu: &CpuSummary) -> String {
    let Some(all) = &cpu.all else { return String::new() };
    let list = |row: &CpuRow| row.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let mut named = vec![(format!("all {}", counted(all.cpus.len() as u64, "CPU")), all)];
    if cpu.sockets.len() > 1 {
        let name = |row: &CpuRow| row.socket.map_or(String::new(), |socket| format!("socket {socket}"));
        named.extend(cpu.sockets.iter().map(|row| (name(row), row)));
    }
    if cpu.smt() {
        named.extend(cpu.cores.iter().map(|row| (format!("core of CPUs {}", list(row)), row)));
    }
    named.extend(cpu.cpus.iter().map(|row| (format!("CPU {}", list(row)), row)));
    let more = named.len().saturating_sub(MOST_QUEUES);
    let cycles = all.cycles.is_some();
    let rows = named.iter().take(MOST_QUEUES).map(|(name, row)| {
        let shares =
            row.shares().into_iter().map(|(_, share)| Cell::Number(format!("{:.1} %", share * 100.0)));
        let error = row.error_ns as f64 / row.wall_ns.max(1) as f64;
        let mut cells: Vec<Cell> = [text(name)].into_iter().chain(shares).collect();
        cells.push(Cell::Number(format!("± {:.1} %", error * 100.0)));
        if cycles {
            cells.push(Cell::Number(row.cycles.map_or("-".to_string(), count)));
        }
        cells
    });
    let mut names = vec!["<"];
    names.extend(TIMES);
    names.extend(["unaccounted", "by whole ticks"]);
    if cycles {
        names.push("cycles");
    }
    let ticks = match cpu.interrupts_timed {
        Some(true) => "Interrupts are timed with a clock.",
        Some(false) => {
            "This kernel does not time interrupts: irq and softirq are the ticks that found one \
             (CONFIG_IRQ_TIME_ACCOUNTING is not set)."
        }
        None => "Whether this kernel times interrupts, or counts the ticks that found one, is not known.",
    };
    let more = if more > 0 { format!(" {more} more rows are in the JSON.") } else { String::new() };
    format!(
        "{}<p class=\"soft small\">By the kernel's own account (/proc/stat); with what it does not account for each row \
         is 100 %. Idle time includes waiting for I/O. {ticks}{more}</p>\n",
        table(&names, rows.collect())
    )
}
