//! The section on CPU time.

use super::escape;
use super::tables::{Cell, facts, header, meter, table, text, widen};
use crate::analyze::cpu::{self, CpuRow, CpuSummary, TIMES};
use crate::analyze::stacks::{CpuClass, ProfileSummary};
use crate::rules::{self, Summaries};
use crate::units::{count, counted, in_percent, significant};

/// Further threads are in the flame graph only.
const MOST_THREADS: usize = 10;

/// Further CPUs are in the JSON only.
const MOST_CPUS: usize = 64;

/// From samples, from hardware counters, and from the kernel's accounting.
pub fn cpu(s: &Summaries<'_>) -> String {
    let profile = s.profile.filter(|profile| profile.samples > 0);
    let mut out = profile.map_or("<p>There is no profile.</p>\n".to_string(), |profile| classes(s, profile));
    if let Some(cpu) = s.cpu {
        out.push_str(&counted_cpu(cpu, rules::ios(s)));
        out.push_str(&accounted_cpu(cpu));
    }
    out.push_str(&profile.map_or(String::new(), threads));
    out
}

/// From the samples.
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
        "<p class=\"soft small\">{} of {} at {} Hz on {}, {} lost. All work on the machine is counted, not \
         only I/O.</p>\n",
        counted(profile.samples, "sample"),
        escape(&profile.sampler),
        profile.frequency,
        counted(profile.cpus.into(), "CPU"),
        count(profile.lost)
    ));
    out
}

/// The threads that ran longest.
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

/// Counts of the hardware counters and the kernel, per I/O, with the reason if there are none.
fn counted_cpu(cpu: &CpuSummary, ios: u64) -> String {
    let (counted, per) = (&cpu.counted, cpu::per_io(cpu, ios));
    let unknown = |part: &str| {
        let missing = cpu.missing().into_iter().find(|missing| missing.part.as_deref() == Some(part));
        missing.map_or("unknown".to_string(), |missing| missing.why)
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
        (Some(per), Some(all)) => (name, format!("{} ({} in total)", significant(per, 3), count(all))),
        (None, Some(all)) => (name, format!("{} in total, and no I/O", count(all))),
        _ => (name, unknown(part)),
    }));
    if let Some(share) = counted.counted_share.filter(|share| *share < 1.0) {
        let text = format!("at least {} of the run; the counts are extrapolated", in_percent(share));
        rows.push(("counters were active for", text));
    }
    facts(&rows)
}

/// The kernel's accounting per CPU, core and socket, in shares that add up to 100 %.
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
    let more = named.len().saturating_sub(MOST_CPUS);
    let cycles = all.cycles.is_some();
    let rows = named.iter().take(MOST_CPUS).map(|(name, row)| {
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
        Some(true) => "The kernel times interrupts with a clock.",
        Some(false) => {
            "This kernel does not time interrupts: irq and softirq are sampled by ticks \
             (CONFIG_IRQ_TIME_ACCOUNTING is not set)."
        }
        None => "It is unknown whether this kernel times interrupts or samples them by ticks.",
    };
    let more = if more > 0 { format!(" {more} more rows are in the JSON.") } else { String::new() };
    format!(
        "{}<p class=\"soft small\">From the kernel's accounting (/proc/stat); with unaccounted time each \
         row adds up to 100 %. Idle time includes I/O wait. {ticks}{more}</p>\n",
        table(&names, rows.collect())
    )
}
