//! The command line of `biopsy errors`.

use clap::Args;

use super::common::{IntervalArgs, MeasurementArgs, Output};
use super::input::{Input, replaces_live};

#[derive(Debug, Args)]
#[command(
    override_usage = "biopsy errors [OPTIONS] [DEVICE]... [INTERVAL [COUNT]]\n       biopsy errors [OPTIONS] [DEVICE]... [-- <COMMAND>...]"
)]
#[command(after_long_help = "An error is counted when its request completes, and is named as in the \
    kernel's log. Errors that the log leaves out are included. A retry is a request that is sent again \
    after the device answered or timed out. A requeue is a request that the driver gave back because it \
    had no room.")]
#[command(mut_arg("input", replaces_live(&[])))]
pub struct Errors {
    #[command(flatten)]
    pub window: MeasurementArgs,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub interval: IntervalArgs,
    /// Run COMMAND and measure until it exits, or for --for (COMMAND keeps running).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
