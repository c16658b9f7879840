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
    after_long_help = "\
The picture is an SVG that works alone in a browser: hover, click to zoom, search. Below the name of a thread (or of a \
lock) stand its frames of user mode, above them the kernel's; what interrupts did stands by itself. Widths are the sums \
of all that was measured; what is narrower than --min-width is folded, and the picture says how much that is.")]
pub struct Flame {
    /// What the CPUs do, by samples: cycles where the processor counts them, else the clock, which does not see code with
    /// interrupts off. This is what is drawn where nothing is said.
    #[arg(long)]
    pub on_cpu: bool,
    /// How long tasks are off the CPU, by where they went to sleep.
    #[arg(long)]
    pub off_cpu: bool,
    /// With --off-cpu: sleeping threads and idle workers as well, such as those that wait for a timer or an event.
    #[arg(long)]
    pub all_waits: bool,
    /// Of --off-cpu, which it stands for: only waits for I/O, and those that no signal ends.
    #[arg(long)]
    pub io_wait: bool,
    /// How long locks are waited for, by lock and by who waits.
    #[arg(long)]
    pub lock_wait: bool,
    /// How long I/Os take, by the call path that submits them and by stage: stacks of 1 in so many as --max-cost allows,
    /// the times of all.
    #[arg(long)]
    pub io: bool,
    /// With --io: only this disk or partition (name, path, MAJ:MIN). Can be repeated.
    #[arg(short, long = "device", value_name = "DEV")]
    pub devices: Vec<String>,
    /// With --io: a frame for the file that the I/O reads or writes, above the process.
    #[arg(long)]
    pub files: bool,
    /// How long memory is reclaimed, by who has to.
    #[arg(long)]
    pub reclaim: bool,
    /// Read FILE in place of live probes: a recording with stacks (all of its intervals together), a profile for pprof, ours
    /// or of another tool, or folded text. It needs no rights.
    /// Frames without a name get one where a file of this machine has their build-id and symbols.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["command", "length", "freq", "max_cost", "no_cost", "pids",
        "comms", "cgroups"])]
    pub input: Option<PathBuf>,
    /// Of recordings: draw the intervals that began at this time or later: 14:30:05 (UTC), 2026-11-28T14:30:05Z, or 90s
    /// after the first.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub from: Option<Moment>,
    /// Of recordings: draw the intervals that began before this time.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub to: Option<Moment>,
    /// Two files as -i reads them, before and after: what became more, and what less.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with_all = ["format", "command", "length", "freq",
        "max_cost", "max_loss", "no_cost", "pids", "comms", "cgroups"])]
    pub diff: Option<Vec<PathBuf>>,
    /// With --diff: I/Os done in each, to compare per I/O.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], conflicts_with = "durations",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub ios: Vec<u64>,
    /// With --diff: how long each took (10s), to compare per second.
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"], value_parser = duration)]
    pub durations: Vec<Duration>,
    /// With -i and --diff: of folded text what it counts (samples; nanoseconds where it adds up to more than samples do), of
    /// a profile for pprof which of its values are taken.
    #[arg(long, value_enum)]
    pub unit: Option<FoldedUnit>,
    /// Measure for this long (10s, 500ms, 2m).
    #[arg(long = "for", alias = "duration", value_name = "TIME", value_parser = duration)]
    pub length: Option<Duration>,
    #[command(flatten)]
    pub submitters: Submitters,
    /// Write to FILE (`-` is stdout) in place of biopsy-flame.svg, or what goes with the other forms; it is opened before
    /// anything is measured.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print JSON, and nothing else, on stdout; the stacks go to their file.
    #[arg(long)]
    pub json: bool,
    /// Folded text (`root;...;leaf value`) in place of the picture.
    #[arg(long)]
    pub folded: bool,
    /// A profile for pprof, Pyroscope and Parca (profile.proto, gzip) in place of the picture.
    #[arg(long)]
    pub pprof: bool,
    /// A profile for speedscope (JSON) in place of the picture.
    #[arg(long)]
    pub speedscope: bool,
    /// Width of the picture.
    #[arg(long, value_name = "PIXELS", default_value_t = 1200, conflicts_with = "format",
        value_parser = clap::value_parser!(u32).range(300..=20000))]
    pub width: u32,
    /// What holds less of the whole than this is folded in the picture (0.1%).
    #[arg(long, value_name = "PERCENT", default_value = "0.1%", conflicts_with = "format", value_parser = least_width)]
    pub min_width: f64,
    /// With --on-cpu: samples per second and CPU.
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 99, conflicts_with = "followed",
        value_parser = clap::value_parser!(u64).range(1..=10000))]
    pub freq: u64,
    /// What stacks of waits and of I/Os may take of each CPU (1%); samples of --on-cpu are as many as -F says.
    #[arg(long, value_name = "PERCENT", default_value = "1%", requires = "followed", value_parser = cost)]
    pub max_cost: f64,
    /// With --off-cpu: waits that are shorter have no stack; they are counted.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub min_block: Option<Duration>,
    /// Loss in percent of the samples or waits above which the exit code is 4.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1, value_parser = percent)]
    pub max_loss: f64,
    /// Leave the kernel's program statistics off: no cost figures.
    #[arg(long)]
    pub no_cost: bool,
    /// Run this command and measure until it ends (or --for is over: then the command goes on by itself).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

impl Flame {
    pub fn span(&self) -> Span {
        Span { from: self.from, to: self.to }
    }
}

/// A share of the whole: half of it is no detail any more.
fn least_width(text: &str) -> Result<f64, String> {
    cost(text).and_then(|share| match share <= 50.0 {
        true => Ok(share),
        false => Err("the least width lies between 0 and 50 %".to_string()),
    })
}

/// What a file's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FoldedUnit {
    Samples,
    /// Nanoseconds.
    Ns,
}
