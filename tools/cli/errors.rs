//! The command line of `biopsy errors`.

use clap::Args;

use super::common::{Interval, Output, Window};
use super::input::{Input, replaces_live};

#[derive(Debug, Args)]
#[command(
    override_usage = "biopsy errors [OPTIONS] [DEVICE]... [INTERVAL [COUNT]]\n       biopsy errors [OPTIONS] [DEVICE]... [-- <COMMAND>...]"
)]
#[command(after_long_help = "\
An error is counted when its request completes, in the words of the kernel's log; those that the log leaves out are \
there as well. A retry is a request that is tried again after the device answered or timed out, a requeue one that the \
driver gave back since it had no room.")]
#[command(mut_arg("input", replaces_live(&[])))]
pub struct Errors {
    #[command(flatten)]
    pub window: Window,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub interval: Interval,
    /// Run this command and measure until it ends (or --for is over: then the command goes on by itself).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
