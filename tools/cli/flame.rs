//! The command line of `biopsy flame`.

use std::path::PathBuf;
use std::time::Duration;

use biopsy::recording::{Moment, Span};
use clap::{Args, ValueEnum};

use super::Submitters;
use super::values::{cost, duration, moment, percent};

#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("what").args(["on_cpu", "off_cpu", "lock_wait", "io", "reclaim", "diff", "input"]),
    group = clap::ArgGroup::new("followed").args(["off_cpu", "io_wait", "lock_wait", "io", "reclaim"]).multiple(true),
    group = clap::ArgGroup::new("format").args(["folded", "pprof", "speedscope"]),
    after_long_help = "The flame graph is one SVG file without dependencies: open it in a browser, hover, \
        click to zoom, search. From bottom to top: the name of a thread (or lock), its user frames, its \
        kernel frames; interrupts are separate. Widths are the sums of all that was measured. Frames \
        narrower than --min-width are folded, and the SVG says how much that is.")]
pub struct Flame {
    /// On-CPU time, sampled (default). Samples by CPU cycles if the hardware counts them, else by the clock,
    /// which misses code with interrupts off.
    #[arg(long)]
    pub on_cpu: bool,
    /// Off-CPU time of threads, by the stack that went to sleep.
    #[arg(long)]
    pub off_cpu: bool,
    /// With --off-cpu: include sleeping threads and idle workers, such as those that wait for a timer or an
    /// event.
    #[arg(long)]
    pub all_waits: bool,
    /// Off-CPU time in I/O waits and other uninterruptible waits only. Implies --off-cpu.
    #[arg(long)]
    pub io_wait: bool,
    /// Lock wait time, by lock and waiting thread.
    #[arg(long)]
    pub lock_wait: bool,
    /// I/O time, by submitting call path and stage. Times are of all I/Os; stacks are taken of as many as
    /// --max-cost allows.
    #[arg(long)]
    pub io: bool,
    /// With --io: only this disk or partition (name, path, MAJ:MIN). Can be repeated.
    #[arg(short, long = "device", value_name = "DEV")]
    pub devices: Vec<String>,
    /// With --io: add a frame for the file that the I/O reads or writes, above the process.
    #[arg(long)]
    pub files: bool,
    /// Time in memory reclaim, by the thread that reclaims.
    #[arg(long)]
    pub reclaim: bool,
    /// Draw a recording with stacks, a pprof profile or folded text instead of measuring. Of a recording, all
    /// intervals are drawn together; the profile may be of another tool. Needs no rights. Frames without a
    /// name get one if a file on this machine has their build ID and symbols.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["command", "length", "freq", "max_cost", "no_cost", "pids",
        "comms", "cgroups"])]
    pub input: Option<PathBuf>,
    /// For recordings: only intervals that began at this time or later: 14:30 or 14:30:05 (local time),
    /// 14:30:05Z, 2026-11-28T14:30:05Z, or 90s after the first.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub from: Option<Moment>,
    /// For recordings: only intervals that began before this time.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub to: Option<Moment>,
    /// Differential flame graph of two files (any that -i reads): what grew and what shrank.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = ["format", "command", "length", "freq",
        "max_cost", "max_loss", "no_cost", "pids", "comms", "cgroups"])]
    pub diff: Option<Vec<PathBuf>>,
    /// With --diff: number of I/Os in each, to compare per I/O.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with = "durations",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub ios: Vec<u64>,
    /// With --diff: how long each took (10s), to compare per second.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], value_parser = duration)]
    pub durations: Vec<Duration>,
    /// With -i and --diff: what folded text counts, or which values of a pprof profile to use. Default for
    /// folded text: samples, or ns if the sum is too large for samples.
    #[arg(long, value_enum)]
    pub unit: Option<FoldedUnit>,
    /// Measure for this long (10s, 500ms, 2m).
    #[arg(long = "for", alias = "duration", value_name = "TIME", value_parser = duration)]
    pub length: Option<Duration>,
    #[command(flatten)]
    pub submitters: Submitters,
    /// Write to FILE (`-` is stdout). Default: biopsy-flame.svg, or the name that goes with the format. FILE
    /// is opened before the measurement.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print JSON on stdout, and nothing else; the stacks go to their file.
    #[arg(long)]
    pub json: bool,
    /// Write folded text (`root;...;leaf value`) instead of an SVG.
    #[arg(long)]
    pub folded: bool,
    /// Write a profile for pprof, Pyroscope and Parca (profile.proto, gzip) instead of an SVG.
    #[arg(long)]
    pub pprof: bool,
    /// Write a profile for speedscope (JSON) instead of an SVG.
    #[arg(long)]
    pub speedscope: bool,
    /// Width of the SVG.
    #[arg(long, value_name = "PIXELS", default_value_t = 1200, conflicts_with = "format",
        value_parser = clap::value_parser!(u32).range(300..=20000))]
    pub width: u32,
    /// Fold frames narrower than this share of the whole (0.1%).
    #[arg(long, value_name = "PERCENT", default_value = "0.1%", conflicts_with = "format", value_parser = least_width)]
    pub min_width: f64,
    /// With --on-cpu: samples per second and CPU.
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 99, conflicts_with = "followed",
        value_parser = clap::value_parser!(u64).range(1..=10000))]
    pub freq: u64,
    /// CPU budget for taking stacks of waits and I/Os, per CPU. Not for --on-cpu, which takes -F samples.
    #[arg(long, value_name = "PERCENT", default_value = "1%", requires = "followed", value_parser = cost)]
    pub max_cost: f64,
    /// With --off-cpu: take no stacks of waits shorter than this; they are still counted.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub min_block: Option<Duration>,
    /// Exit with 4 if more than this percentage of samples or waits was lost.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1, value_parser = percent)]
    pub max_loss: f64,
    /// Do not measure biopsy's own cost.
    #[arg(long)]
    pub no_cost: bool,
    /// Run COMMAND and measure until it exits, or for --for (COMMAND keeps running).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl Flame {
    pub fn span(&self) -> Span {
        Span { from: self.from, to: self.to }
    }
}

/// Parses the minimum width of a frame, at most 50 % of the whole.
fn least_width(text: &str) -> Result<f64, String> {
    cost(text).and_then(|share| match share <= 50.0 {
        true => Ok(share),
        false => Err("--min-width must be between 0 and 50 %".to_string()),
    })
}

/// The unit of the values in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FoldedUnit {
    Samples,
    /// Nanoseconds.
    Ns,
}
