//! The command line of `biopsy top`.

use std::time::Duration;

use clap::Args;

use super::common::{IntervalArgs, Output};
use super::input::{Input, replaces};
use super::values::duration;

#[derive(Debug, Args)]
#[command(override_usage = "biopsy top [OPTIONS] [DEVICE]... [INTERVAL [COUNT]]")]
#[command(after_long_help = "The columns are dstat's. Tasks: run (without this one), blk (waiting for a \
    disk), new (created per second). CPU time is in percent of all CPUs, and adds up to 100. Memory: buff \
    are pages of block devices, cach are pages of files, used is the rest that is not free. Paging is \
    swap. I/O and bytes per second are those of the devices named with -d, else of all disks that are not \
    layered on another one, so that nothing counts twice.")]
#[command(mut_arg("input", replaces(&["words", "devices", "length"])))]
pub struct Top {
    /// Print one line per interval. Required: there is no other form yet.
    #[arg(long)]
    pub plain: bool,
    /// Only this disk or partition (name, path, MAJ:MIN). Can be repeated.
    #[arg(short, long = "device", value_name = "DEV")]
    pub devices: Vec<String>,
    /// Run for this long (10s, 500ms, 2m).
    #[arg(long = "for", alias = "duration", value_name = "TIME", value_parser = duration)]
    pub length: Option<Duration>,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub interval: IntervalArgs,
}
