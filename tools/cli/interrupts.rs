//! The command line of `biopsy interrupts`.

use biopsy::probe::interrupts::TIME_EVERY;
use clap::Args;

use super::common::{IntervalArgs, LineArgs, MeasurementArgs, Output, sorts};
use super::input::{Input, replaces_live};

#[derive(Debug, Args)]
#[command(
    override_usage = "biopsy interrupts [OPTIONS] [DEVICE]... [INTERVAL [COUNT]]\n       biopsy interrupts [OPTIONS] [DEVICE]... [-- <COMMAND>...]"
)]
#[command(after_long_help = "A vector is identified by the driver's own pointer (NVMe), else by the name \
    that the driver gave it. I/Os per interrupt are the completions that its handler reaped, or the \
    softirq or thread that follows it. They include all I/O of the queue, also of disks that are not \
    traced. Times are sampled. Counts are exact, and are checked against /proc/interrupts.")]
#[command(mut_arg("sort", sorts(&biopsy::render::text::interval_lines::SORTS_INTERRUPTS)))]
#[command(mut_arg("input", replaces_live(&["time_every"])))]
pub struct Interrupts {
    #[command(flatten)]
    pub window: MeasurementArgs,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub lines: LineArgs,
    /// Time one in N interrupts on average, chosen at random.
    #[arg(long, value_name = "N", default_value_t = TIME_EVERY, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub time_every: u32,
    /// Also show idle vectors and poll queues, and without an INTERVAL idle devices.
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub interval: IntervalArgs,
    /// Run COMMAND and measure until it exits, or for --for (COMMAND keeps running).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
