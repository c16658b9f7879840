//! The command line of `biopsy threads`.

use biopsy::analyze::threads::GroupColumn;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};

use super::common::{IntervalArgs, LineArgs, MeasurementArgs, Output, sorts};
use super::input::{Input, replaces_live};
use super::values::{column, comm};

#[derive(Debug, Args)]
#[command(
    override_usage = "biopsy threads [OPTIONS] [DEVICE]... [INTERVAL [COUNT]]\n       biopsy threads [OPTIONS] [DEVICE]... [-- <COMMAND>...]"
)]
#[command(after_long_help = "All threads are scanned several times per second. Shown are threads that run \
    or could run (R), wait uninterruptibly (D), or wait for I/O by the kernel's accounting; with --all, \
    sleeping threads too. The average is samples divided by scans: 2.5 means that two or three threads \
    were there at any time, and `±` is half of its 95 % confidence interval. In names, each number is shown as `*`.

Without the rights for BPF programs, /proc is read instead: fewer columns, at a higher cost.

The device that a thread waits for is known if the thread has submitted a bio and has gone to sleep for \
    I/O once since.")]
#[command(mut_arg("sort", sorts(&biopsy::render::text::interval_lines::SORTS_THREADS)))]
#[command(mut_arg("input", replaces_live(&["hz", "group_by", "pids", "comms", "cgroups", "stacks"])))]
pub struct Threads {
    #[command(flatten)]
    pub window: MeasurementArgs,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub lines: LineArgs,
    /// Scans of all threads per second, at random times. Default: 10, or 2 if only /proc is read.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub hz: Option<u32>,
    /// Group by these (comma-separated).
    #[arg(short = 'G', long = "group-by", value_name = "WORD,...", value_parser = column(), value_delimiter = ',',
        num_args = 1)]
    pub group_by: Vec<GroupColumn>,
    /// Only threads of this process. Can be repeated.
    #[arg(short, long = "pid", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,
    /// Only threads with this name; `*` stands for a number, as in kworker/*:*. Can be repeated.
    #[arg(long = "comm", value_name = "NAME", value_parser = comm)]
    pub comms: Vec<String>,
    /// Only threads of this cgroup and its descendants. PATH is absolute, or relative to the root of the
    /// block controller's hierarchy. Can be repeated.
    #[arg(long = "cgroup", value_name = "PATH", value_parser = NonEmptyStringValueParser::new())]
    pub cgroups: Vec<String>,
    /// Also show sleeping threads, and every row.
    #[arg(long)]
    pub all: bool,
    /// Print kernel stacks instead of the table, as folded lines or as a flame graph (SVG).
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with_all = ["json", "group_by"])]
    pub stacks: Option<StackFormat>,
    #[command(flatten)]
    pub interval: IntervalArgs,
    /// Run COMMAND and measure until it exits, or for --for (COMMAND keeps running).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StackFormat {
    Folded,
    Flame,
}
