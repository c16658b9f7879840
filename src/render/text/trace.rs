//! Renders traced I/Os, one line each.

use super::{clean, count, counted, fitted, footer, time};
use crate::analyze::latency::LatencySummary;
use crate::analyze::stage::Stage;
use crate::analyze::trace::TraceSummary;
use crate::analyze::trace::io::TracedIo;
use crate::analyze::trace::scene::Scene;
use crate::envelope::Envelope;

/// The column headings, with that of files if requested.
pub fn header(files: bool) -> String {
    let header = format!(
        "{:>11} {:<9} {:>3} {:<6} {:>13} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>7} {:>8} {:<15} {:<18} {:<FLAGS$}",
        "at s",
        "disk",
        "q",
        "op",
        "offset",
        "bytes",
        "submit",
        "queue",
        "device",
        "complete",
        "reap",
        "total µs",
        "cpus",
        "pid",
        "comm",
        "user_data",
        "flags"
    );
    format!("{}\n", if files { format!("{header} file") } else { header.trim_end().to_string() })
}

/// The columns of biosnoop, which fit a terminal.
pub fn narrow_header(width: usize) -> String {
    let cells = ["TIME(s)", "COMM", "PID", "DISK", "T", "SECTOR", "BYTES", "QUE(ms)", "LAT(ms)"];
    narrow(&cells.map(String::from), width)
}

/// One I/O in those columns. LAT is the time in the device, as in biosnoop; a class is shown by its first letter, a
/// flush by `F`.
pub fn narrow_io(scene: &Scene, io: &TracedIo, width: usize) -> String {
    const SECTOR: u64 = 512;
    let owner = io.owner.as_ref();
    let millis = |stage| io.stages.get(stage).map_or("-".to_string(), |ns| format!("{:.3}", ns as f64 / 1e6));
    let class = io.op.and_then(|op| op.name().chars().next()).map_or('-', |first| first.to_ascii_uppercase());
    let cells = [
        format!("{:.6}", scene.at_ns(io) as f64 / 1e9),
        owner.map_or("-".to_string(), |owner| clean(&owner.name())),
        or_dash(owner.map(|owner| owner.pid)),
        clean(scene.name(io)),
        class.to_string(),
        or_dash(io.offset.map(|offset| offset / SECTOR)),
        or_dash(io.bytes),
        millis(Stage::Queue),
        millis(Stage::Device),
    ];
    narrow(&cells, width)
}

/// Columns that a narrow terminal drops, in this order: QUE, SECTOR, PID, T, BYTES, COMM, TIME.
const LEAST_NEEDED: [usize; 7] = [7, 5, 2, 4, 6, 1, 0];
/// Width of each column, and whether it is left-aligned.
const COLUMNS: [(usize, bool); 9] =
    [(11, true), (14, true), (7, true), (8, true), (1, true), (10, true), (7, false), (7, false), (7, false)];
/// COMM and DISK. The others are numbers, which must not be cut.
const NAMES: [usize; 2] = [1, 3];

fn narrow(cells: &[String; 9], width: usize) -> String {
    let cell = |at: &usize| match COLUMNS[*at] {
        (wide, true) if NAMES.contains(at) => format!("{:<wide$}", fitted(&cells[*at], wide)),
        (wide, true) => format!("{:<wide$}", cells[*at]),
        (wide, false) => format!("{:>wide$}", cells[*at]),
    };
    let mut kept: Vec<usize> = (0..COLUMNS.len()).collect();
    let line = |kept: &[usize]| kept.iter().map(cell).collect::<Vec<_>>().join(" ");
    // The columns that fit; fewer for a line with a number that is wider than its column.
    for least in LEAST_NEEDED {
        let columns = kept.iter().map(|at| COLUMNS[*at].0 + 1).sum::<usize>();
        if columns <= width + 1 && line(&kept).trim_end().chars().count() <= width {
            break;
        }
        kept.retain(|at| *at != least);
    }
    line(&kept).trim_end().chars().take(width).collect::<String>() + "\n"
}

/// Width of the flags of most I/Os, before a file.
const FLAGS: usize = 16;

/// One I/O: the stages of its operation if it ended that, otherwise its own; with its file.
pub fn io(scene: &Scene, io: &TracedIo, files: bool) -> String {
    let end = io.operation.and_then(|operation| operation.end);
    let ended = end.filter(|end| end.last);
    let stages = ended.and_then(|end| end.stages).unwrap_or(io.stages);
    let stage = |stage| micros(stages.get(stage));
    let owner = io.owner.as_ref();
    let cpus = match owner {
        Some(owner) => format!("{}>{}", owner.cpu, io.completion_cpu),
        None => format!(">{}", io.completion_cpu),
    };
    let flags: Vec<&str> = scene.flag_names(io).collect();
    let user_data = end.and_then(|end| end.user_data);
    let line = format!(
        "{:>11.6} {:<9} {:>3} {:<6} {:>13} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>7} {:>8} {:<15} {:<18} {:<FLAGS$}",
        scene.at_ns(io) as f64 / 1e9,
        clean(scene.name(io)),
        or_dash(io.queue),
        io.op.map_or("-", |op| op.name()),
        or_dash(io.offset),
        or_dash(io.bytes),
        stage(Stage::Submit),
        stage(Stage::Queue),
        stage(Stage::Device),
        stage(Stage::Complete),
        stage(Stage::Reap),
        micros(ended.and_then(|end| end.total_ns).or(io.total_ns)),
        cpus,
        or_dash(owner.map(|owner| owner.pid)),
        owner.map_or("-".to_string(), |owner| clean(&owner.name())),
        user_data.map_or("-".to_string(), |data| format!("{data:#x}")),
        flags.join(",")
    );
    match files {
        true => {
            let file = scene.file(io).map_or("-".to_string(), |file| clean(&file.label()));
            format!("{line} {file}\n")
        }
        false => format!("{}\n", line.trim_end()),
    }
}

fn micros(ns: Option<u64>) -> String {
    ns.map_or("-".to_string(), |ns| format!("{:.1}", ns as f64 / 1e3))
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or("-".to_string(), |value| value.to_string())
}

/// The text below the lines, on stderr.
pub fn summary(
    envelope: &Envelope,
    latency: &LatencySummary,
    trace: &TraceSummary,
    command_status: Option<i32>,
) -> String {
    let mut out = format!(
        "{} of {} shown in {} from {}, kernel {}\n",
        count(trace.shown),
        counted(latency.ios(), "I/O"),
        time(envelope.duration_ns),
        clean(&envelope.start),
        clean(&envelope.kernel)
    );
    let busy: Vec<&str> =
        latency.devices.iter().filter(|device| device.ios > 0).map(|device| device.name.as_str()).collect();
    for device in latency.devices.iter().filter(|device| busy.contains(&device.name.as_str())) {
        out.push_str(&footer::check(device));
    }
    out.push_str(&footer::lost(envelope));
    if trace.unjoined > 0 {
        out.push_str(&format!(
            "{} belong to an operation whose end was missed\n",
            counted(trace.unjoined, "shown I/O")
        ));
    }
    if trace.unshown > 0 {
        out.push_str(&format!(
            "{} ended without an I/O that is shown\n",
            counted(trace.unshown, "operation")
        ));
    }
    out.push_str(&footer::cost(envelope));
    out.push_str(&footer::missing(&envelope.missing, &busy));
    if let Some(status) = command_status {
        out.push_str(&format!("command ended with status {status}\n"));
    }
    out
}
