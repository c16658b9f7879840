//! `biopsy load` as text.

use super::{bytes, clean, common_time, count, counted, short, significant, table, time, time_unit};
use crate::load::{JobResult, LoadSummary, RingWorkers};

/// All of it.
pub fn render(load: &LoadSummary) -> String {
    let mut out = facts(load);
    out.push('\n');
    out.push_str(&latency(load));
    if load.jobs.len() > 1 {
        out.push('\n');
        out.push_str(&jobs(load));
    }
    if !load.missing.is_empty() {
        out.push('\n');
        load.missing.iter().for_each(|line| out.push_str(&format!("missing: {}\n", clean(line))));
    }
    out
}

/// One line per figure.
fn facts(load: &LoadSummary) -> String {
    let all = load.operations() + load.errors();
    let (submits, reaps) = (load.submits(), load.reaps());
    let on = load.device.as_deref().map_or(String::new(), |device| format!(" on {}", clean(device)));
    let jobs = counted(load.numjobs.into(), "job");
    let mut lines = vec![
        ("target", format!("{}{on}, {}", clean(&load.target), bytes(load.size as f64))),
        (
            "load",
            format!(
                "{} of {}, {jobs} with depth {}{}, {}",
                load.rw.name(),
                bytes(load.bs as f64),
                load.iodepth,
                if load.hipri { ", polled" } else { "" },
                time(load.duration_ns)
            ),
        ),
    ];
    if let Some(fill) = load.fill {
        lines.push((
            "fill",
            format!("{} in {}, before the load", bytes(fill.bytes as f64), time(fill.duration_ns)),
        ));
    }
    lines.push(("IOPS", load.iops().map_or(dash(), short)));
    lines.push(("bandwidth", load.bytes_per_second().map_or(dash(), |b| format!("{}/s", bytes(b)))));
    lines.push(("reads", count(load.operations())));
    if load.errors() > 0 {
        lines.push(("failed", count(load.errors())));
    }
    lines.push(("per submit", ratio(all, submits)));
    lines.push(("per reap", ratio(all, reaps)));
    lines.push((
        "CPU",
        format!(
            "user {} and system {} per read; {} and {} of one CPU",
            per_operation(load.user_ns(), all),
            per_operation(load.system_ns(), all),
            percent(load.cpu_percent(load.user_ns())),
            percent(load.cpu_percent(load.system_ns())),
        ),
    ));
    lines.push(("CPU of", cpu_of(load)));
    lines.iter().map(|(name, value)| format!("{name:<11} {value}\n")).collect()
}

/// Whose CPU time the figures are.
fn cpu_of(load: &LoadSummary) -> String {
    let jobs = counted(load.numjobs.into(), "job");
    match load.ring_workers {
        None => format!("{jobs}; that of io_uring's worker threads is not known"),
        Some(RingWorkers { threads: 0, .. }) => format!("{jobs}; io_uring needed no worker thread"),
        Some(RingWorkers { threads, system_ns }) => format!(
            "{jobs} and {} of io_uring; of system, {} of one CPU is the latter's",
            counted(threads.into(), "worker thread"),
            percent(load.cpu_percent(system_ns))
        ),
    }
}

/// One unit for the row, that of the median.
fn latency(load: &LoadSummary) -> String {
    let hist = load.latency();
    let median = hist.quantile(0.5).or(hist.max());
    let (scale, unit) = time_unit(median.unwrap_or(0));
    let cell = |value: Option<u64>| value.map_or(dash(), |ns| scaled(ns as f64, scale));
    let row = vec![
        "latency".to_string(),
        cell(hist.min()),
        hist.mean().map_or(dash(), |mean| scaled(mean, scale)),
        cell(hist.quantile(0.5)),
        cell(hist.quantile(0.9)),
        cell(hist.quantile(0.99)),
        cell(hist.quantile(0.999)),
        cell(hist.max()),
    ];
    table(&[unit, "min", "mean", "p50", "p90", "p99", "p99.9", "max"], &[row])
}

/// One row per worker.
fn jobs(load: &LoadSummary) -> String {
    let (scale, unit) = time_unit(load.latency().quantile(0.5).unwrap_or(0));
    let (p50, p99) = (format!("p50 {unit}"), format!("p99 {unit}"));
    let per = |ns: u64, job: &JobResult| match job.operations + job.errors {
        0 => 0.0,
        all => ns as f64 / all as f64,
    };
    let times = load.jobs.iter().flat_map(|job| [per(job.user_ns, job), per(job.system_ns, job)]);
    let (cpu_scale, cpu_unit) = common_time(times);
    // As above: 0 is not known.
    let cpu = |ns: f64| if ns > 0.0 { significant(ns / cpu_scale, 3) } else { dash() };
    let (user, system) = (format!("user {cpu_unit}"), format!("system {cpu_unit}"));
    let header = ["job", "CPU", "reads", "failed", &p50, &p99, "per submit", "per reap", &user, &system];
    let row = |job: &JobResult| {
        let all = job.operations + job.errors;
        let cell = |q| job.latency.quantile(q).map_or(dash(), |ns| scaled(ns as f64, scale));
        vec![
            job.number.to_string(),
            job.cpu.map_or(dash(), |cpu| cpu.to_string()),
            count(job.operations),
            count(job.errors),
            cell(0.5),
            cell(0.99),
            ratio(all, job.submits),
            ratio(all, job.reaps),
            cpu(per(job.user_ns, job)),
            cpu(per(job.system_ns, job)),
        ]
    };
    table(&header, &load.jobs.iter().map(row).collect::<Vec<_>>())
}

/// Three digits, but never fewer than the integer part has.
fn scaled(ns: f64, scale: f64) -> String {
    significant(ns / scale, 3)
}

fn ratio(part: u64, whole: u64) -> String {
    if whole == 0 { dash() } else { significant(part as f64 / whole as f64, 3) }
}

/// Kernels that count ticks tell 0 for a share too small to be hit by one: not known, not nothing.
fn per_operation(ns: u64, operations: u64) -> String {
    if operations == 0 || ns == 0 { dash() } else { time(ns / operations) }
}

fn percent(value: Option<f64>) -> String {
    value.filter(|percent| *percent > 0.0).map_or(dash(), |percent| format!("{percent:.1} %"))
}

/// What is not there.
fn dash() -> String {
    "-".to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hist::Histogram;
    use crate::load::{Fill, Pattern};

    fn summary() -> LoadSummary {
        let mut latency = Histogram::default();
        (0..2000).for_each(|_| latency.record(60_000));
        let job = JobResult {
            cpu: Some(0),
            operations: 2000,
            bytes: 2000 * 4096,
            user_ns: 100_000,
            system_ns: 2_000_000,
            submits: 500,
            reaps: 400,
            latency,
            ..JobResult::default()
        };
        LoadSummary {
            target: "/dev/nvme0n1\x1b[2J".to_string(),
            device: Some("nvme0n1".to_string()),
            rw: Pattern::RandRead,
            hipri: false,
            bs: 4096,
            iodepth: 32,
            numjobs: 1,
            size: 1 << 30,
            fill: Some(Fill { bytes: 1 << 30, duration_ns: 2_000_000_000 }),
            duration_ns: 1_000_000_000,
            jobs: vec![job],
            ring_workers: Some(RingWorkers { threads: 2, system_ns: 2_000_000 }),
            missing: Vec::new(),
        }
    }

    #[test]
    fn every_figure_has_its_line() {
        let text = render(&summary());
        let expected = "\
target      /dev/nvme0n1\\u{1b}[2J on nvme0n1, 1.00 GiB
load        randread of 4.00 KiB, 1 job with depth 32, 1.00 s
fill        1.00 GiB in 2.00 s, before the load
IOPS        2000
bandwidth   7.81 MiB/s
reads       2,000
per submit  4.00
per reap    5.00
CPU         user 50 ns and system 2.00 µs per read; 0.0 % and 0.4 % of one CPU
CPU of      1 job and 2 worker threads of io_uring; of system, 0.2 % of one CPU is the latter's

µs        min  mean   p50   p90   p99  p99.9   max
latency  60.0  60.0  60.0  60.0  60.0   60.0  60.0
";
        assert_eq!(text, expected);
    }

    #[test]
    fn polling_is_said() {
        let text = render(&LoadSummary { hipri: true, ..summary() });
        assert!(text.contains("1 job with depth 32, polled, 1.00 s\n"), "{text}");
    }

    #[test]
    fn what_was_not_measured_is_a_dash() {
        let load =
            LoadSummary { duration_ns: 0, jobs: vec![JobResult::default()], ring_workers: None, ..summary() };
        let text = render(&load);
        assert!(text.contains("IOPS        -\n") && text.contains("per submit  -\n"), "{text}");
        assert!(text.contains("CPU         user - and system - per read; - and - of one CPU"), "{text}");
    }

    #[test]
    fn several_jobs_have_a_row_each() {
        let mut load = summary();
        load.jobs.push(JobResult { number: 1, errors: 3, ..JobResult::default() });
        let text = render(&load);
        assert!(text.contains("failed      3\n"), "{text}");
        assert!(text.lines().any(|l| l.starts_with("1      -      0       3")), "{text}");
    }
}
