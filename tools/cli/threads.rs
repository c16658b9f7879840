//! The command line of `biopsy threads`.

use biopsy::analyze::threads::Column;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};

use super::common::{Interval, Lines, Output, Window, sorts};
use super::input::{Input, replaces_live};
use super::values::{column, comm};

#[derive(Debug, Args)]
#[command(
    override_usage = "biopsy threads [OPTIONS] [DEVICE]... [INTERVAL [COUNT]]\n       biopsy threads [OPTIONS] [DEVICE]... [-- <COMMAND>...]"
)]
#[command(after_long_help = "\
Some times a second all threads are looked at. Shown are those that run or could run (R), wait without being \
interruptible (D), or wait for I/O as the kernel accounts it; with --all also those that sleep. The average is samples \
divided by rounds: 2.5 means that at any moment two or three threads were there. Names have each number as `*`.

Without the rights for programs the files of /proc tell less, at a higher cost.

Which device a thread waits for is known where it handed a bio in and has gone to sleep for I/O once since.")]
#[command(mut_arg("sort", sorts(&biopsy::render::text::interval_lines::SORTS_THREADS)))]
#[command(mut_arg("input", replaces_live(&["hz", "group_by", "pids", "comms", "cgroups", "stacks"])))]
pub struct Threads {
    #[command(flatten)]
    pub window: Window,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub lines: Lines,
    /// Rounds per second, each at a random moment of its part of the second: 10, or 2 where only files tell.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub hz: Option<u32>,
    /// Count threads apart by these: comm, state, syscall, wchan, kstack, cgroup, pid, device.
    #[arg(short = 'G', long = "group-by", value_name = "WORD,...", value_parser = column(), value_delimiter = ',',
        num_args = 1)]
    pub group_by: Vec<Column>,
    /// Only threads of this process. Can be repeated.
    #[arg(short, long = "pid", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,
    /// Only threads of this name, also one with each number as `*`. Can be repeated.
    #[arg(long = "comm", value_name = "NAME", value_parser = comm)]
    pub comms: Vec<String>,
    /// Only threads of this cgroup and of those below it: a path from the root of the block controller's hierarchy
    /// on, or an absolute one. Can be repeated.
    #[arg(long = "cgroup", value_name = "PATH", value_parser = NonEmptyStringValueParser::new())]
    pub cgroups: Vec<String>,
    /// Threads that sleep as well, and every row.
    #[arg(long)]
    pub all: bool,
    /// The kernel stacks in place of the table: as folded lines, or as a flame graph (SVG).
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with_all = ["json", "group_by"])]
    pub stacks: Option<Stacks>,
    #[command(flatten)]
    pub interval: Interval,
    /// Run this command and measure until it ends (or --for is over: then the command goes on by itself).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Stacks {
    Folded,
    Flame,
}
