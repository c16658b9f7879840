//! Measures the stacks of one interval for a flame graph: attaches the probes, waits, and symbolizes the stacks.

mod io;
mod lock_wait;
mod off_cpu;
mod on_cpu;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

pub use self::on_cpu::OnCpuView;
use super::wall_clock;
use super::window::{Until, Window};
use crate::analyze::flame::{FlameSummary, What};
use crate::envelope::{Cost, Envelope, Lost, Missing, Reason};
use crate::host::Host;
use crate::probe::cost::{self, Statistics};
use crate::probe::filter::Filter;

/// Maximum delay until the end of the interval is noticed.
const NAP: Duration = Duration::from_millis(20);

/// Measurement options.
#[derive(Debug, Clone)]
pub struct Options {
    pub filter: Filter,
    /// On-CPU samples per second and CPU.
    pub frequency: u64,
    /// CPU budget for taking stacks of waits and I/Os, in percent of each CPU.
    pub max_cost: f64,
    /// Shorter off-CPU waits have no stack.
    pub min_block: Duration,
    /// Includes sleeping threads and idle workers.
    pub all_waits: bool,
    /// Names of the devices whose I/Os are followed; empty: all.
    pub devices: Vec<String>,
    /// Adds frames for the files of I/Os.
    pub files: bool,
    /// Measures the cost of the programs.
    pub cost: bool,
    /// Loss of I/Os in percent above which the result must not be trusted.
    pub max_loss: f64,
}

/// The stacks of an interval.
pub struct Measurement {
    pub summary: FlameSummary,
    pub envelope: Envelope,
    /// Why it must not be trusted, other than by the amount of loss.
    pub doubt: Option<String>,
    /// Exit status of the command, if it has ended.
    pub status: Option<i32>,
}

/// The result of a source.
struct SourceResult {
    summary: FlameSummary,
    cost: Cost,
    missing: Vec<Missing>,
    lost: Lost,
    doubt: Option<String>,
}

/// Repeated work of a source during the interval; each call takes at most the given time.
type Beat<'a> = &'a mut dyn FnMut(Duration) -> Result<()>;

/// Waits until the interval is over.
type IntervalWait<'a> = &'a mut dyn FnMut(Beat<'_>) -> Result<()>;

/// For a source without repeated work.
fn nap(time: Duration) -> Result<()> {
    std::thread::sleep(time);
    Ok(())
}

/// Attaches, calls `begun`, and measures until the end.
pub fn measure(
    what: What,
    options: &Options,
    host: &Host,
    until: Until<'_>,
    begun: impl Fn(),
) -> Result<Measurement> {
    let statistics = if options.cost { Statistics::on() } else { None };
    let started = wall_clock::envelope();
    let mut status = None;
    let interval: IntervalWait<'_> = &mut |beat| {
        begun();
        let mut window = Window::open(until)?;
        while !window.is_over() {
            beat(window.left(NAP))?;
        }
        status = window.status();
        Ok(())
    };
    let stacks = match what {
        What::OnCpu => on_cpu::measure(options, interval),
        What::OffCpu | What::IoWait | What::Reclaim => off_cpu::measure(what, options, host, interval),
        What::LockWait => lock_wait::measure(options, host, interval),
        What::Io => io::measure(options, host, interval),
    }?;
    let mut missing = stacks.missing;
    let has_reason = missing.iter().any(|missing| missing.part.as_deref() == Some("cost"));
    if options.cost && stacks.cost.cpu_percent.is_none() && !has_reason {
        missing.push(if statistics.is_some() { too_short() } else { cost::missing() });
    }
    let envelope = Envelope {
        duration_ns: stacks.summary.duration_ns,
        lost: stacks.lost,
        cost: stacks.cost,
        missing,
        ..started
    };
    Ok(Measurement { summary: stacks.summary, envelope, doubt: stacks.doubt, status })
}

/// Why there is no cost although the kernel would have counted it.
fn too_short() -> Missing {
    Missing {
        part: Some("cost".to_string()),
        reason: Reason::TooShort,
        why: "the programs ran too little, or the run was too short, to measure their cost".to_string(),
        remedy: Some("measure longer with --for, or while the load runs".to_string()),
        ..Missing::default()
    }
}

/// Lost samples or waits, by probe and kind.
fn lost(samples: u64, probe: &str, kinds: BTreeMap<String, u64>) -> Lost {
    Lost { samples, probes: BTreeMap::from([(probe.to_string(), kinds)]), ..Lost::default() }
}

/// Cost of a program with known run time, if the kernel's statistics were on.
fn cost_of(program_ns: u64, duration_ns: u64, map_bytes: u64) -> Cost {
    let is_counted = program_ns > 0 && duration_ns > 0;
    let cpu_percent = is_counted.then(|| 100.0 * program_ns as f64 / duration_ns as f64);
    Cost { cpu_percent, map_bytes, ..Cost::default() }
}
