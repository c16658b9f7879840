//! The command line of `biopsy interrupts`.

use biopsy::probe::interrupts::TIME_EVERY;
use clap::Args;

use super::common::{Interval, Lines, Output, Window, sorts};
use super::input::{Input, replaces_live};

#[derive(Debug, Args)]
#[command(
    override_usage = "biopsy interrupts [OPTIONS] [DEVICE]... [INTERVAL [COUNT]]\n       biopsy interrupts [OPTIONS] [DEVICE]... [-- <COMMAND>...]"
)]
#[command(after_long_help = "\
A vector is known by the driver's own pointer (NVMe), else by the name that the driver gave it. I/Os per interrupt are \
the completion entries that its handler reaped, or a softirq or thread behind it: all of the queue's, also those of \
disks that are not traced. Times are those of a sample; counts are exact, and checked against /proc/interrupts.")]
#[command(mut_arg("sort", sorts(&biopsy::render::text::interval_lines::SORTS_INTERRUPTS)))]
#[command(mut_arg("input", replaces_live(&["time_every"])))]
pub struct Interrupts {
    #[command(flatten)]
    pub window: Window,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub lines: Lines,
    /// Time one of so many interrupts, on average, drawn at random.
    #[arg(long, value_name = "N", default_value_t = TIME_EVERY, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub time_every: u32,
    /// Show vectors and devices without any interrupt as well.
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub interval: Interval,
    /// Run this command and measure until it ends (or --for is over: then the command goes on by itself).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
