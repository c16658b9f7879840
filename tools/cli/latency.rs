//! The command line of `biopsy latency`.

use biopsy::analyze::groups::Dimension;
use biopsy::probe::latency::options::Stages;
use clap::Args;

use super::common::{IntervalArgs, LineArgs, MeasurementArgs, Output, Submitters, sorts};
use super::input::{Input, replaces_live};
use super::values::{cost, dimension, stages};

#[derive(Debug, Args)]
#[command(
    override_usage = "biopsy latency [OPTIONS] [DEVICE]... [INTERVAL [COUNT]]\n       biopsy latency [OPTIONS] [DEVICE]... [-- <COMMAND>...]"
)]
#[command(
    after_long_help = "The stages of an I/O: submit, from the system call to the block layer; queue, in the \
    block layer until the driver has it; device, in the driver and the device; complete, from there to the \
    result; reap, until the application fetches the result.

`-` is not measured, or too few I/Os for a percentile. `606+` is at least 606: percentiles and maxima of \
    stages do not add up, so that of the longest stage is shown. `biopsy help latency` and docs/stages.md \
    have more."
)]
#[command(mut_arg("sort", sorts(&biopsy::render::text::interval_lines::SORTS_LATENCY)))]
#[command(mut_arg("input", replaces_live(&["pids", "comms", "cgroups", "by", "detail", "stages", "functions", "max_cost",
    "measure_cost"])))]
pub struct Latency {
    #[command(flatten)]
    pub window: MeasurementArgs,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub lines: LineArgs,
    /// Group by these (comma-separated). A request of several bios counts for the submitter and the file of
    /// the first.
    #[arg(long, value_name = "WORD,...", value_parser = dimension(), value_delimiter = ',', num_args = 1)]
    pub by: Vec<Dimension>,
    #[command(flatten)]
    pub submitters: Submitters,
    /// Also show idle devices, and with --by all groups.
    #[arg(long)]
    pub all: bool,
    /// Measure only these stages. Probes of the others are not attached and cost nothing.
    #[arg(long, value_name = "STAGES", value_parser = stages(), default_value = Stages::All.name())]
    pub stages: Stages,
    /// CPU budget for the probes, on the busiest CPU. Above it, operations (submit, reap) are followed only
    /// part of the time; queue and device still cover every I/O. 0 means no limit; --detail, --by and
    /// --functions have none either.
    #[arg(long, value_name = "PERCENT", default_value = "3%", value_parser = cost)]
    pub max_cost: f64,
    /// Measure what the probes cost the running load in IOPS and CPU time. They are attached and detached
    /// every 2 s, for 40 s or longer (--for), without a CPU budget.
    #[arg(long, conflicts_with_all = ["words", "all", "max_cost", "fault_drop_issue"])]
    pub measure_cost: bool,
    /// Split the stages: throttling, tag wait, plug, scheduler, retries, task work, wake-up. Costs more.
    #[arg(long)]
    pub detail: bool,
    /// Trace only the system calls that can do I/O, at their functions (fentry). Other calls are not slowed
    /// down, but detaching takes seconds. If the kernel refuses fentry, all system calls are traced, as
    /// without this option.
    #[arg(long)]
    pub functions: bool,
    #[command(flatten)]
    pub interval: IntervalArgs,
    /// Run COMMAND and measure until it exits, or for --for (COMMAND keeps running).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
