//! The command line of `biopsy locks`.

use clap::Args;

use super::common::{IntervalArgs, LineArgs, MeasurementArgs, Output, Submitters, sorts};
use super::input::{Input, replaces_live};
use super::values::cost;

#[derive(Debug, Args)]
#[command(
    override_usage = "biopsy locks [OPTIONS] [DEVICE]... [INTERVAL [COUNT]]\n       biopsy locks [OPTIONS] [DEVICE]... [-- <COMMAND>...]"
)]
#[command(after_long_help = "A lock is identified by the struct around it, if that points back to itself \
    (LRU lists of a node and memory cgroup, zones, pages of a file, queues of a disk, rings of io_uring, \
    ...); else by the kernel's symbols; else by the function that takes it. Counts and times of waits are \
    exact. Stacks are sampled if waits are frequent, so that they cost at most --max-cost of each CPU; \
    long waits always have one. With -d, locks of other devices are left out. An uncontended lock costs \
    nothing.

The functions of the LRU lists are traced at each call if the kernel allows it, and the CPUs are sampled \
    (not with --no-spin). The page cache and its reclaim are always those of the whole machine.")]
#[command(mut_arg("sort", sorts(&biopsy::render::text::interval_lines::SORTS_LOCKS)))]
#[command(mut_arg("input", replaces_live(&[
    "pids", "comms", "cgroups", "max_cost", "no_spin", "fault_locks", "fault_no_events"
])))]
pub struct Locks {
    #[command(flatten)]
    pub window: MeasurementArgs,
    #[command(flatten)]
    pub submitters: Submitters,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub lines: LineArgs,
    /// CPU budget for taking stacks of waiters, per CPU; 0 takes none.
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = cost)]
    pub max_cost: f64,
    /// Do not sample the CPUs for spinning on locks.
    #[arg(long)]
    pub no_spin: bool,
    /// Show every lock, process and stack.
    #[arg(long)]
    pub all: bool,
    /// For tests: room for N locks.
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub fault_locks: Option<u32>,
    /// For tests: behave as on a kernel without lock contention events.
    #[arg(long, hide = true)]
    pub fault_no_events: bool,
    #[command(flatten)]
    pub interval: IntervalArgs,
    /// Run COMMAND and measure until it exits, or for --for (COMMAND keeps running).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
