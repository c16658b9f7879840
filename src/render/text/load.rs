//! Renders `biopsy load` as text: IOPS, bandwidth and latency first, then the details.

use super::paragraphs::paragraph;
use super::{bytes, clean, common_time, count, counted, fit, short, significant, table, time, time_unit};
use crate::hist::Histogram;
use crate::load::sections::groups;
use crate::load::{
    Arrivals, BlockSizes, ClockQuality, Direction, Engine, JobResult, LoadSummary, Pattern, Rate, ReadBack,
    RingWorkers, Timestamps, Transfer, priority_name,
};

/// Longer lines are continued, indented past the names.
pub(super) const WIDTH: usize = 100;
/// Width of the names of the lines, with the space after.
const NAME: usize = 12;

/// One section.
pub fn render(load: &LoadSummary) -> String {
    fit(&of_section(load), None)
}

fn of_section(load: &LoadSummary) -> String {
    let mut out = lines(&head(load));
    out.push('\n');
    // Without latencies there is no table of dashes.
    if load.job.timestamps != Timestamps::Off {
        out.push_str(&latency(load));
        out.push('\n');
    }
    out.push_str(&lines(&facts(load)));
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

/// Sections one after the other, followed by totals of those that ran at the same time: fio's groups.
pub fn render_all(loads: &[LoadSummary], width: Option<usize>) -> String {
    fit(&all(loads), width)
}

fn all(loads: &[LoadSummary]) -> String {
    if let [load] = loads {
        return of_section(load);
    }
    let mut out = String::new();
    for load in loads {
        out.push_str(&format!("{}\n\n{}\n", clean(&load.job.name), of_section(load)));
    }
    let groups = groups(loads);
    for (number, group) in groups.iter().enumerate() {
        let name = if groups.len() > 1 { format!("group {number}") } else { "together".to_string() };
        out.push_str(&together(&name, group));
        out.push_str(if number + 1 < groups.len() { "\n" } else { "" });
    }
    out
}

/// One row per direction. As in fio, a direction's rate is over the longest of its sections.
fn together(name: &str, group: &[LoadSummary]) -> String {
    let row = |direction: Direction| {
        let loads = || group.iter().filter(|load| load.job.rw.has(direction));
        let (mut ios, mut moved) = (0, 0);
        for transfer in loads().flat_map(|load| &load.jobs).map(|job| &job.transfers[direction.index()]) {
            ios += transfer.operations;
            moved += transfer.bytes;
        }
        let longest = loads().map(|load| load.duration_ns).max()?;
        let (iops, bandwidth) = rates(ios, moved, longest);
        Some(vec![
            direction.name().to_string(),
            iops,
            bandwidth,
            count(ios),
            bytes(moved as f64),
            time(longest),
        ])
    };
    let rows: Vec<_> = Direction::ALL.into_iter().filter_map(row).collect();
    let sections = counted(group.len() as u64, "section");
    format!("{name}: {sections}\n{}", table(&["", "IOPS", "bandwidth", "I/Os", "moved", "time"], &rows))
}

/// Names and values, wrapped between words.
pub(super) fn lines(lines: &[(&str, String)]) -> String {
    let mut out = String::new();
    for (name, value) in lines {
        paragraph(&mut out, &format!("{name:<NAME$}"), value, WIDTH);
    }
    out
}

/// What was done, and the rates.
fn head(load: &LoadSummary) -> Vec<(&'static str, String)> {
    let job = &load.job;
    let on = load.device.as_deref().map_or(String::new(), |device| format!(" on {}", clean(device)));
    let mut what = job.rw.name().to_string();
    if matches!(job.rw, Pattern::ReadWrite | Pattern::RandReadWrite) {
        what.push_str(&format!(" ({} % reads)", job.rwmixread));
    }
    let mut lines = vec![
        ("target", format!("{}{on}, {}", clean(&load.target), bytes(load.size as f64))),
        (
            "load",
            format!(
                "{what} of {}, {} with depth {}{}, {}",
                blocks(load),
                counted(job.numjobs.into(), "job"),
                if job.engine.is_synchronous() { 1 } else { job.iodepth },
                if job.hipri { ", polled" } else { "" },
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
    let each = |show: fn(&Transfer, u64) -> String| {
        let moved = job.directions().map(|direction| {
            format!("{} {}", direction.name(), show(&load.transfer(direction), load.duration_ns))
        });
        moved.collect::<Vec<_>>().join(", ")
    };
    let with_parts = |all: String, parts: fn(&Transfer, u64) -> String| {
        if job.directions().count() > 1 { format!("{all}: {}", each(parts)) } else { all }
    };
    let (iops, bandwidth) = rates(load.operations(), load.bytes(), load.duration_ns);
    lines.push(("IOPS", with_parts(iops, |t, ns| rates(t.operations, t.bytes, ns).0)));
    lines.push(("bandwidth", with_parts(bandwidth, |t, ns| rates(t.operations, t.bytes, ns).1)));
    lines
}

/// IOPS and bandwidth; dashes before anything ran.
pub(super) fn rates(ios: u64, moved: u64, ns: u64) -> (String, String) {
    if ns == 0 {
        return (dash(), dash());
    }
    let per_second = |amount: u64| amount as f64 * 1e9 / ns as f64;
    (short(per_second(ios)), format!("{}/s", bytes(per_second(moved))))
}

/// Block sizes, by direction if those differ.
pub(super) fn blocks(load: &LoadSummary) -> String {
    let job = &load.job;
    let of = |direction: Direction| sizes(&job.bs[direction.index()]);
    let mut all: Vec<(String, String)> = job.directions().map(|d| (of(d), d.name().to_string())).collect();
    if all.iter().all(|one| one.0 == all[0].0) {
        all.truncate(1);
        return all.pop().map_or_else(dash, |one| one.0);
    }
    all.iter().map(|(sizes, name)| format!("{sizes} ({name})")).collect::<Vec<_>>().join(", ")
}

pub(super) fn sizes(sizes: &BlockSizes) -> String {
    let share = |low: u64, high: u64| match low == high {
        true => bytes(low as f64),
        false => format!("{} to {}", bytes(low as f64), bytes(high as f64)),
    };
    match sizes.0.as_slice() {
        [only] => share(only.low, only.high),
        all => {
            let parts =
                all.iter().map(|s| format!("{} ({} %)", share(s.low, s.high), significant(s.percent, 2)));
            parts.collect::<Vec<_>>().join(" + ")
        }
    }
}

/// One line per figure.
fn facts(load: &LoadSummary) -> Vec<(&'static str, String)> {
    let job = &load.job;
    let all = load.operations() + load.errors();
    let (one, many) = noun(load);
    let mut lines = vec![("engine", engine(load))];
    lines.extend(placement(load).map(|line| ("runs on", line)));
    lines.extend(load.job.rate.map(|rate| ("rate", paced(load, rate))));
    if let Some(missed) = load.never_began().filter(|missed| *missed > 0) {
        let never =
            format!("{} operations that were due never started: their wait is in no latency", count(missed));
        lines.push(("rate missed", never));
    }
    if let Some((target, (depth, is_found))) = job.latency_target.zip(load.latency_depth()) {
        let within = format!("{} % of {many} take at most {:?}", target.percent, target.latency);
        lines.push((
            "depth",
            match is_found {
                true => format!("{depth}, where {within}"),
                false if target.runs_on => format!("{depth} at the end, adjusted so that {within}"),
                false => format!(
                    "{depth} was tried last: at no depth {within}; the figures include all depths tried"
                ),
            },
        ));
    }
    for direction in job.directions() {
        let moved = load.transfer(direction);
        let short =
            if moved.short > 0 { format!(", {} of them short", count(moved.short)) } else { String::new() };
        lines.push((nouns(direction).1, format!("{}{short}", count(moved.operations))));
    }
    let failures = load.failures();
    if load.errors() > 0 {
        lines.push(("failed", format!("{} of {}", count(load.errors()), count(all))));
    }
    for failed in failures {
        let (one, many) = nouns(failed.direction);
        let noun = if failed.count == 1 { one } else { many };
        lines.push((
            "",
            format!(
                "{} {noun}: {} (errno {})",
                count(failed.count),
                failed.error(load.ended(failed.direction)),
                failed.errno
            ),
        ));
    }
    let per_call = |of: fn(&JobResult) -> &Histogram, calls: u64| {
        let mut hist = Histogram::default();
        load.jobs.iter().for_each(|job| hist.merge(of(job)));
        let spread = hist.quantile(0.5).map(|p50| {
            let p99 = hist.quantile(0.99).map_or(String::new(), |p99| format!(", p99 {p99}"));
            format!(" (p50 {p50}{p99}, max {})", hist.max().unwrap_or(p50))
        });
        ratio(all, calls) + &spread.unwrap_or_default()
    };
    lines.push(("per submit", per_call(|job| &job.submitted, load.submits())));
    lines.push(("per reap", per_call(|job| &job.reaped, load.reaps())));
    lines.push((
        "CPU",
        format!(
            "user {} and system {} per {one}; {} and {} of one CPU",
            per_operation(load.user_ns(), all),
            per_operation(load.system_ns(), all),
            percent(load.cpu_percent(load.user_ns())),
            percent(load.cpu_percent(load.system_ns())),
        ),
    ));
    lines.push(("CPU of", cpu_of(load)));
    if let Some(limit) = load.own_limit() {
        lines.push((
            "limit",
            format!(
                "{}: {} of {} used 90 % of a CPU or more, {:.0} % of that in user space",
                limit.id(),
                limit.saturated,
                counted(load.jobs.len() as u64, "job"),
                limit.user_share * 100.0
            ),
        ));
    }
    if let Some(taken) = taken(load, many) {
        lines.push(("timed", taken));
    }
    lines.extend(verified(load).map(|line| ("verified", line)));
    if let Some(mismatch) = load.mismatch() {
        lines.push(("mismatch", clean(mismatch)));
    }
    if let Some(clock) = load.clock {
        lines.push(("clock", clock_of(clock)));
    }
    lines.extend(super::drive::facts(&load.drive));
    lines
}

/// The quality of the clock.
fn clock_of(clock: ClockQuality) -> String {
    let cost = time(clock.cost_ns.round() as u64);
    match clock.error_ns {
        Some(error) => format!("time stamp counter, error at most {}; {cost} per reading", time(error)),
        None => format!("clock_gettime; {cost} per reading"),
    }
}

/// fio's name of the engine, and how it was used.
pub(super) fn engine(load: &LoadSummary) -> String {
    let job = &load.job;
    let mut words = vec![job.engine.name(), if job.direct { "direct" } else { "buffered" }];
    let ring = matches!(job.engine, Engine::IoUring | Engine::IoUringCmd);
    let switches =
        [(ring && job.sqthread_poll, "SQPOLL"), (job.nop, "no-ops"), (load.verified().is_some(), "verified")];
    words.extend(switches.into_iter().filter(|(on, _)| *on).map(|(_, word)| word));
    words.join(", ")
}

/// How much of the writes was read back.
fn verified(load: &LoadSummary) -> Option<String> {
    let right = format!("{} read back as written", counted(load.verified().unwrap_or(0), "write"));
    let mut line = match load.read_back()? {
        ReadBack::Whole => right,
        ReadBack::Part => format!("{right}; the rest was not read back, as the run was stopped"),
        ReadBack::Nothing => "nothing was read back, as the run was stopped before".to_string(),
    };
    if load.skipped() > 0 {
        line.push_str(&format!("; {} failed or short writes were not read back", count(load.skipped())));
    }
    Some(line)
}

/// The rate at which I/Os begin, whether or not the device keeps up.
fn paced(load: &LoadSummary, rate: Rate) -> String {
    let each = load.job.directions().filter_map(|direction| {
        let (noun, at) = (nouns(direction).1, direction.index());
        let each = |iops: u32| format!("{} {noun}/s", count(iops.into()));
        rate.iops[at].map(each).or_else(|| Some(format!("{noun} of {}/s", bytes(rate.bytes[at]? as f64))))
    });
    let arrivals = match rate.arrivals {
        Arrivals::Even => "even",
        Arrivals::Exponential => "exponential",
    };
    let each = each.collect::<Vec<_>>().join(", ");
    format!("{each} per job at {arrivals} intervals; lat counts from when an I/O was due")
}

/// CPUs and nodes of the threads; None if no thread was pinned.
fn placement(load: &LoadSummary) -> Option<String> {
    let cpus = list(load.jobs.iter().filter_map(|job| job.cpu));
    let nodes = list(load.jobs.iter().filter_map(|job| job.node));
    let cpus = cpus.map(|cpus| format!("CPU {cpus}"));
    let nodes = nodes.map(|nodes| format!("buffers on NUMA node {nodes}"));
    let both: Vec<String> = cpus.into_iter().chain(nodes).collect();
    (!both.is_empty()).then(|| both.join("; "))
}

/// `0-3,8`, as the kernel prints lists of CPUs.
fn list(numbers: impl Iterator<Item = u32>) -> Option<String> {
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let run = |run: &[u32]| match run {
        [one] => one.to_string(),
        run => format!("{}-{}", run[0], run[run.len() - 1]),
    };
    (!numbers.is_empty()).then(|| runs.map(run).collect::<Vec<_>>().join(","))
}

/// How many operations were timed, if not all.
fn taken(load: &LoadSummary, many: &str) -> Option<String> {
    let all = load.operations();
    let mut taken = Transfer::default();
    load.job.directions().for_each(|direction| taken.merge(&load.transfer(direction)));
    let how = match load.job.timestamps {
        Timestamps::Off => return Some("none: timestamps are off".to_string()),
        Timestamps::Sampled(n) => format!(", one in {} is timed", count(n.into())),
        Timestamps::Every => String::new(),
    };
    let kinds = [("slat", &taken.slat), ("clat", &taken.clat), ("lat", &taken.lat)];
    let fewer = kinds.iter().filter(|(_, hist)| !hist.is_empty() && hist.count() < all);
    let parts: Vec<String> = fewer.map(|(name, hist)| format!("{name} of {}", count(hist.count()))).collect();
    (!parts.is_empty()).then(|| format!("{} of {} {many}{how}", parts.join(", "), count(all)))
}

/// Which threads the CPU time includes.
fn cpu_of(load: &LoadSummary) -> String {
    let jobs = counted(load.job.numjobs.into(), "job");
    if !matches!(load.job.engine, Engine::IoUring | Engine::IoUringCmd) {
        return jobs;
    }
    match load.ring_workers {
        None => format!("{jobs}; without io_uring's worker threads, whose CPU time is unknown"),
        Some(RingWorkers { threads: 0, .. }) => format!("{jobs}; io_uring needed no worker thread"),
        Some(RingWorkers { threads, system_ns }) => format!(
            "{jobs} and {} of io_uring for operations that would block; these use {} of one CPU of the \
             system time",
            counted(threads.into(), "worker thread"),
            percent(load.cpu_percent(system_ns))
        ),
    }
}

/// fio's terms: slat from the start to the end of the submission, clat from there to the completion, lat both. One unit
/// for all rows, that of their medians.
fn latency(load: &LoadSummary) -> String {
    let several = load.job.directions().count() > 1;
    let mut rows: Vec<(String, Histogram)> = Vec::new();
    for direction in load.job.directions() {
        let moved = load.transfer(direction);
        // lat is always shown: without a measurement it is a row of dashes.
        for (kind, hist, always) in
            [("slat", moved.slat, false), ("clat", moved.clat, false), ("lat", moved.lat, true)]
        {
            let name = if several { format!("{} {kind}", direction.name()) } else { kind.to_string() };
            rows.extend((always || !hist.is_empty()).then_some((name, hist)));
        }
        for one in load.priorities(direction) {
            let priority = one.priority.or(load.job.priority).unwrap_or(0);
            rows.push((format!("{} {}", direction.name(), priority_name(priority)), one.lat));
        }
    }
    let mut syncs = Histogram::default();
    load.jobs.iter().for_each(|job| syncs.merge(&job.syncs));
    rows.extend((!syncs.is_empty()).then(|| ("sync".to_string(), syncs)));
    let medians = rows.iter().filter_map(|(_, hist)| hist.quantile(0.5).or(hist.max()));
    let (scale, unit) = common_time(medians.map(|ns| ns as f64));
    let cell = |value: Option<u64>| value.map_or(dash(), |ns| scaled(ns as f64, scale));
    let row = |(name, hist): (String, Histogram)| {
        vec![
            name,
            cell(hist.min()),
            hist.mean().map_or(dash(), |mean| scaled(mean, scale)),
            cell(hist.quantile(0.5)),
            cell(hist.quantile(0.9)),
            cell(hist.quantile(0.99)),
            cell(hist.quantile(0.999)),
            cell(hist.max()),
        ]
    };
    let header = format!("latency {unit}");
    table(
        &[&header, "min", "mean", "p50", "p90", "p99", "p99.9", "max"],
        &rows.into_iter().map(row).collect::<Vec<_>>(),
    )
}

/// One row per worker.
fn jobs(load: &LoadSummary) -> String {
    let (scale, unit) = time_unit(load.latency().quantile(0.5).unwrap_or(0));
    let (p50, p99) = (format!("p50 {unit}"), format!("p99 {unit}"));
    let per = |ns: u64, job: &JobResult| match job.operations() + job.errors() {
        0 => 0.0,
        all => ns as f64 / all as f64,
    };
    let times = load.jobs.iter().flat_map(|job| [per(job.user_ns, job), per(job.system_ns, job)]);
    let (cpu_scale, cpu_unit) = common_time(times);
    // As above: 0 means unknown.
    let cpu = |ns: f64| if ns > 0.0 { significant(ns / cpu_scale, 3) } else { dash() };
    let (user, system) = (format!("user {cpu_unit}"), format!("system {cpu_unit}"));
    let header = ["job", "CPU", noun(load).1, "failed", &p50, &p99, "per submit", "per reap", &user, &system];
    let row = |job: &JobResult| {
        let all = job.operations() + job.errors();
        let cell = |q| job.latency().quantile(q).map_or(dash(), |ns| scaled(ns as f64, scale));
        vec![
            job.number.to_string(),
            job.cpu.map_or(dash(), |cpu| cpu.to_string()),
            count(job.operations()),
            count(job.errors()),
            cell(0.5),
            cell(0.99),
            ratio(all, job.submits()),
            ratio(all, job.reaps()),
            cpu(per(job.user_ns, job)),
            cpu(per(job.system_ns, job)),
        ]
    };
    table(&header, &load.jobs.iter().map(row).collect::<Vec<_>>())
}

/// The noun for an operation: singular, plural.
fn nouns(direction: Direction) -> (&'static str, &'static str) {
    match direction {
        Direction::Read => ("read", "reads"),
        Direction::Write => ("write", "writes"),
        Direction::Trim => ("trim", "trims"),
    }
}

/// By direction, if there is only one.
fn noun(load: &LoadSummary) -> (&'static str, &'static str) {
    let mut directions = load.job.directions();
    match (directions.next(), directions.next()) {
        (Some(only), None) => nouns(only),
        _ => ("I/O", "I/Os"),
    }
}

/// Three digits, but never fewer than the integer part has.
fn scaled(ns: f64, scale: f64) -> String {
    significant(ns / scale, 3)
}

fn ratio(part: u64, whole: u64) -> String {
    if whole == 0 { dash() } else { significant(part as f64 / whole as f64, 3) }
}

/// Kernels with tick accounting report 0 for a share too small to be hit by a tick: unknown, not zero.
fn per_operation(ns: u64, operations: u64) -> String {
    if operations == 0 || ns == 0 { dash() } else { time(ns / operations) }
}

fn percent(value: Option<f64>) -> String {
    value.filter(|percent| *percent > 0.0).map_or(dash(), |percent| format!("{percent:.1} %"))
}

/// Stands for a missing value.
pub(super) fn dash() -> String {
    "-".to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{BlockShare, Failures, Fill, Job, Target};

    fn summary() -> LoadSummary {
        let mut job = JobResult {
            cpu: Some(0),
            user_ns: 100_000,
            system_ns: 2_000_000,
            submitted: Histogram::from_iter([4; 500]),
            reaped: Histogram::from_iter([5; 400]),
            ..JobResult::default()
        };
        job.transfers[Direction::Read.index()] = Transfer {
            operations: 2000,
            bytes: 2000 * 4096,
            lat: Histogram::from_iter([60_000; 2000]),
            ..Transfer::default()
        };
        LoadSummary {
            job: Job::new(Target::Existing("/dev/nvme0n1".into())),
            target: "/dev/nvme0n1\x1b[2J".to_string(),
            device: Some("nvme0n1".to_string()),
            size: 1 << 30,
            fill: Some(Fill { bytes: 1 << 30, duration_ns: 2_000_000_000 }),
            duration_ns: 1_000_000_000,
            jobs: vec![job],
            ring_workers: Some(RingWorkers { threads: 2, system_ns: 2_000_000 }),
            drive: Default::default(),
            clock: None,
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

latency µs   min  mean   p50   p90   p99  p99.9   max
lat         60.0  60.0  60.0  60.0  60.0   60.0  60.0

engine      io_uring, direct
runs on     CPU 0
reads       2,000
per submit  4.00 (p50 4, p99 4, max 4)
per reap    5.00 (p50 5, p99 5, max 5)
CPU         user 50 ns and system 2.00 µs per read; 0.0 % and 0.4 % of one CPU
CPU of      1 job and 2 worker threads of io_uring for operations that would block; these use 0.2 %
            of one CPU of the system time
";
        assert_eq!(text, expected);
    }

    #[test]
    fn polling_is_said() {
        let mut load = summary();
        load.job.hipri = true;
        let text = render(&load);
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
        let failures = vec![Failures { direction: Direction::Read, errno: libc::EIO, count: 3 }];
        load.jobs.push(JobResult { number: 1, failures, ..JobResult::default() });
        let text = render(&load);
        assert!(
            text.contains("failed      3 of 2,003\n            3 reads: input/output error (errno 5)\n"),
            "{text}"
        );
        assert!(text.lines().any(|l| l.starts_with("1      -      0       3")), "{text}");
    }

    /// Reads and writes of different block sizes, some failed, with fsync calls, by threads on several CPUs.
    fn mixed() -> LoadSummary {
        let mut load = summary();
        load.job.rw = Pattern::RandReadWrite;
        load.job.rwmixread = 70;
        load.job.bs[1] = BlockSizes(vec![
            BlockShare { low: 4096, high: 4096, percent: 60.0 },
            BlockShare { low: 8192, high: 65536, percent: 40.0 },
        ]);
        let job = &mut load.jobs[0];
        job.node = Some(0);
        job.transfers[0].slat = Histogram::from_iter([2_000; 500]);
        job.transfers[0].clat = Histogram::from_iter([58_000; 500]);
        job.transfers[1] = Transfer {
            operations: 1000,
            bytes: 1000 * 8192,
            short: 1,
            lat: Histogram::from_iter([90_000; 1000]),
            ..Transfer::default()
        };
        job.syncs = Histogram::from_iter([5_000_000; 10]);
        let failed = |direction, errno, count| Failures { direction, errno, count };
        job.failures = vec![
            failed(Direction::Write, libc::EIO, 1),
            failed(Direction::Write, libc::ENOSPC, 3),
            failed(Direction::Read, libc::ENODATA, 2),
        ];
        job.ended[0] = 2;
        load.job.timestamps = Timestamps::Sampled(4);
        load
    }

    #[test]
    fn directions_are_told_apart() {
        let expected = "\
target      /dev/nvme0n1\\u{1b}[2J on nvme0n1, 1.00 GiB
load        randrw (70 % reads) of 4.00 KiB (read), 4.00 KiB (60 %) + 8.00 KiB to 64.0 KiB (40 %)
            (write), 1 job with depth 32, 1.00 s
fill        1.00 GiB in 2.00 s, before the load
IOPS        3000: read 2000, write 1000
bandwidth   15.6 MiB/s: read 7.81 MiB/s, write 7.81 MiB/s

latency µs   min  mean   p50   p90   p99  p99.9   max
read slat   2.00  2.00  2.00  2.00  2.00      -  2.00
read clat   58.0  58.0  58.0  58.0  58.0      -  58.0
read lat    60.0  60.0  60.0  60.0  60.0   60.0  60.0
write lat   90.0  90.0  90.0  90.0  90.0   90.0  90.0
sync        5000  5000  5000  5000     -      -  5000

engine      io_uring, direct
runs on     CPU 0; buffers on NUMA node 0
reads       2,000
writes      1,000, 1 of them short
failed      6 of 3,006
            2 reads: the file ended early (errno 61)
            3 writes: no space left on device (errno 28)
            1 write: input/output error (errno 5)
per submit  6.01 (p50 4, p99 4, max 4)
per reap    7.51 (p50 5, p99 5, max 5)
CPU         user 33 ns and system 1.33 µs per I/O; 0.0 % and 0.4 % of one CPU
CPU of      1 job and 2 worker threads of io_uring for operations that would block; these use 0.2 %
            of one CPU of the system time
timed       slat of 500, clat of 500 of 3,000 I/Os, one in 4 is timed
";
        assert_eq!(render(&mixed()), expected);
    }

    #[test]
    fn sections_follow_each_other_and_are_added_up() {
        let mut loads = [summary(), mixed(), summary()];
        loads[0].job.name = "first\n\x1b[2J".to_string();
        loads[2].job.stonewall = true;
        let text = render_all(&loads, None);
        assert!(text.starts_with("first\\u{a}\\u{1b}[2J\n\ntarget  "), "{text}");
        let groups = "
group 0: 2 sections
       IOPS   bandwidth   I/Os     moved    time
read   4000  15.6 MiB/s  4,000  15.6 MiB  1.00 s
write  1000  7.81 MiB/s  1,000  7.81 MiB  1.00 s

group 1: 1 section
      IOPS   bandwidth   I/Os     moved    time
read  2000  7.81 MiB/s  2,000  7.81 MiB  1.00 s
";
        assert!(text.ends_with(groups), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert_eq!(render_all(&loads[2..], None), render(&loads[2]));
    }

    #[test]
    fn times_that_nobody_took_are_said() {
        let mut load = summary();
        load.job.timestamps = Timestamps::Off;
        load.jobs[0].transfers[0].lat = Histogram::default();
        let text = render(&load);
        assert!(!text.contains("latency"), "no table of dashes: {text}");
        assert!(text.contains("timed       none: timestamps are off\n"), "{text}");
    }

    #[test]
    fn a_rate_is_said() {
        let mut load = summary();
        load.job.rate =
            Some(Rate { iops: [Some(2000), None, None], bytes: [None; 3], arrivals: Arrivals::Exponential });
        let line = "rate        2,000 reads/s per job at exponential intervals; lat counts from when an I/O was due\n";
        assert!(render(&load).contains(line), "{}", render(&load));
    }

    #[test]
    fn lists_are_as_the_kernel_writes_them() {
        assert_eq!(list([8, 2, 0, 1, 1].into_iter()).as_deref(), Some("0-2,8"));
        assert_eq!(list([].into_iter()), None);
    }
}
