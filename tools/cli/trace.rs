//! The command line of `biopsy trace`.

use std::time::Duration;

use biopsy::analyze::op::Op;
use clap::Args;

use super::common::{Output, Submitters, Window};
use super::values::{duration, op};

#[derive(Debug, Args)]
#[command(after_long_help = "\
An I/O is shown when its operation has ended, or a second after it ended itself, so lines are not quite in order: sort \
by at_ns. Times of an operation are those of its I/O that finished last; other I/Os show their own.

What chooses I/Os does so in this order: whose they are, then --op and --slower-than, of those every Nth, and of those \
the slowest, by their time in the block layer. The summary's `matched` counts them before --every.

A device without requests (device mapper, RAID, zram) has a line per bio. What lies below it has lines of its own \
where it is named as well.

With --json there is one object per I/O, and after them one with the key summary: what was lost, what it cost, and the \
check against the kernel's own counters. Without it these stand on stderr. What a slow reader loses is counted, and \
exit code 4 where it is more than --max-loss. Do not write to a disk that is traced.")]
pub struct Trace {
    #[command(flatten)]
    pub window: Window,
    #[command(flatten)]
    pub submitters: Submitters,
    #[command(flatten)]
    pub output: Output,
    /// Only I/Os that took at least this long in the block layer, from the bio's entry (or else the issue)
    /// to block_rq_complete, or the whole of a bio (500us, 1ms, 2s). Filtered in the kernel, as the next three.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub slower_than: Option<Duration>,
    /// Only one of N of those that are asked for, counted per CPU from a random one on.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub every: Option<u32>,
    /// Only these: read, write, fua, flush, empty_flush, discard, write_zeroes, passthrough.
    #[arg(long = "op", value_name = "OP", value_delimiter = ',', value_parser = op)]
    pub ops: Vec<Op>,
    /// Of those that are asked for the N slowest, at the end, the slowest first.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub top: Option<u32>,
    /// Show the file of each I/O.
    #[arg(long)]
    pub files: bool,
    /// Bytes of each CPU's ring buffer, to test what a full one does.
    #[arg(long, value_name = "BYTES", hide = true)]
    pub fault_ring_bytes: Option<u32>,
    /// Devices as with -d.
    #[arg(value_name = "DEVICE")]
    pub named: Vec<String>,
    /// Run this command and trace until it ends (or --for is over: then the command goes on by itself).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
