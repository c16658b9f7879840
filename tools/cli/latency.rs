//! The command line of `biopsy latency`.

use biopsy::analyze::groups::Dimension;
use biopsy::probe::latency::options::Stages;
use clap::Args;

use super::common::{Interval, Lines, Output, Submitters, Window, sorts};
use super::input::{Input, replaces_live};
use super::values::{cost, dimension, stages};

#[derive(Debug, Args)]
#[command(
    override_usage = "biopsy latency [OPTIONS] [DEVICE]... [INTERVAL [COUNT]]\n       biopsy latency [OPTIONS] [DEVICE]... [-- <COMMAND>...]"
)]
#[command(mut_arg("sort", sorts(&biopsy::render::text::interval_lines::SORTS_LATENCY)))]
#[command(mut_arg("input", replaces_live(&["pids", "comms", "cgroups", "by", "detail", "stages", "functions", "max_cost",
    "measure_cost"])))]
pub struct Latency {
    #[command(flatten)]
    pub window: Window,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub lines: Lines,
    /// Count I/Os apart by these, in any order, with commas between them. A request of several bios belongs to
    /// the submitter and the file of the first.
    #[arg(long, value_name = "WORD,...", value_parser = dimension(), value_delimiter = ',', num_args = 1)]
    pub by: Vec<Dimension>,
    #[command(flatten)]
    pub submitters: Submitters,
    /// Show idle devices as well, and with --by every group.
    #[arg(long)]
    pub all: bool,
    /// Follow these stages alone: the others are not attached, and cost nothing.
    #[arg(long, value_name = "STAGES", value_parser = stages(), default_value = Stages::All.name())]
    pub stages: Stages,
    /// What the programs may take of the busiest CPU: above it operations (submit, reap) are followed in slices of time,
    /// while device and queue stay those of every I/O. 0: no limit, as with --detail, --by and --functions.
    #[arg(long, value_name = "PERCENT", default_value = "3%", value_parser = cost)]
    pub max_cost: f64,
    /// Measure what the programs take from the load that runs, by IOPS and CPU time: they are attached and detached every
    /// 2 s, for 40 s (--for: longer). Without a budget.
    #[arg(long, conflicts_with_all = ["words", "all", "max_cost", "fault_drop_issue"])]
    pub measure_cost: bool,
    /// Take the stages apart: throttling, tag wait, plug, scheduler, retries, task work, wake-up. Costs more.
    #[arg(long)]
    pub detail: bool,
    /// Follow system calls at the functions of those that can carry I/O (fentry): no other call is slowed down, and to
    /// end takes seconds. Where the kernel refuses that, all system calls have their events, as without this.
    #[arg(long)]
    pub functions: bool,
    #[command(flatten)]
    pub interval: Interval,
    /// Run this command and measure until it ends (or --for is over: then the command goes on by itself).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
