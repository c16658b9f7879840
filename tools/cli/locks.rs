//! The command line of `biopsy locks`.

use clap::Args;

use super::common::{Interval, Lines, Output, Submitters, Window, sorts};
use super::input::{Input, replaces_live};
use super::values::cost;

#[derive(Debug, Args)]
#[command(
    override_usage = "biopsy locks [OPTIONS] [DEVICE]... [INTERVAL [COUNT]]\n       biopsy locks [OPTIONS] [DEVICE]... [-- <COMMAND>...]"
)]
#[command(after_long_help = "\
A lock is known by the structs around it, which have to point back to themselves (LRU lists of a node and memory group, \
zones, pages of a file, queues of a disk, rings of io_uring, ...), else by the kernel's symbols, else by the function \
that asked for it. Counts and times of waits are exact; stacks are sampled where waits are many, long ones always, so \
that they take no more than --max-cost of each CPU. With -d the locks of other devices are left out. An \
uncontended lock costs nothing. The functions of the LRU lists are followed at each call where the kernel allows it, \
and the CPUs are sampled (--no-spin turns that off). The page cache and its reclaim are always those of the whole machine.")]
#[command(mut_arg("sort", sorts(&biopsy::render::text::interval_lines::SORTS_LOCKS)))]
#[command(mut_arg("input", replaces_live(&[
    "pids", "comms", "cgroups", "max_cost", "no_spin", "fault_locks", "fault_no_events"
])))]
pub struct Locks {
    #[command(flatten)]
    pub window: Window,
    #[command(flatten)]
    pub submitters: Submitters,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub lines: Lines,
    /// What the stacks of those who wait may take of each CPU (1%); 0 takes none.
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = cost)]
    pub max_cost: f64,
    /// Leave out where the CPUs were found waiting: no sampler.
    #[arg(long)]
    pub no_spin: bool,
    /// Show every lock, process and stack.
    #[arg(long)]
    pub all: bool,
    /// Rows for so many locks, to test what a full table does.
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub fault_locks: Option<u32>,
    /// As on a kernel without the events, to test what is left there.
    #[arg(long, hide = true)]
    pub fault_no_events: bool,
    #[command(flatten)]
    pub interval: Interval,
    /// Run this command and measure until it ends (or --for is over: then the command goes on by itself).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
