//! The command line of `biopsy trace`.

use std::time::Duration;

use biopsy::analyze::op::Op;
use clap::Args;

use super::common::{MeasurementArgs, Output, Submitters};
use super::values::{duration, op};

#[derive(Debug, Args)]
#[command(after_long_help = "An I/O is shown when its operation ends, or a second after the I/O itself \
    ended. Lines are therefore not quite in order: sort by at_ns. The operation's times are shown with its \
    I/O that finished last; other I/Os show their own.

`cpus` are the CPU that issued the I/O and the one that completed it. All times are in µs, but for the \
    first column.

Filters apply in this order: submitter, --op and --slower-than, --every, --top (by time in the block \
    layer). The summary's `matched` counts the I/Os before --every.

A device without requests (device mapper, RAID, zram) has a line per bio. Devices below it have lines of \
    their own if they are named too.

With --json there is one object per I/O, and then one with the key summary: losses, cost, and the check \
    against the kernel's own counters. Without --json, these go to stderr. I/Os that a slow reader loses \
    are counted; the exit code is 4 if they are more than --max-loss. Do not write to a disk that is \
    traced.")]
pub struct Trace {
    #[command(flatten)]
    pub window: MeasurementArgs,
    #[command(flatten)]
    pub submitters: Submitters,
    #[command(flatten)]
    pub output: Output,
    /// Only I/Os that took at least TIME in the block layer (500us, 1ms, 2s). The time is from the bio's
    /// entry (or else the issue) to block_rq_complete, or that of the whole bio. Like the next three, it is
    /// filtered in the kernel.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub slower_than: Option<Duration>,
    /// Only one in N of the selected I/Os, counted per CPU from a random start.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub every: Option<u32>,
    /// Only these types: read, write, fua, flush, empty_flush, discard, write_zeroes, passthrough.
    #[arg(long = "op", value_name = "OP", value_delimiter = ',', value_parser = op)]
    pub ops: Vec<Op>,
    /// Only the N slowest of the selected I/Os, at the end, slowest first.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub top: Option<u32>,
    /// Show the file of each I/O.
    #[arg(long)]
    pub files: bool,
    /// For tests: size of each CPU's ring buffer.
    #[arg(long, value_name = "BYTES", hide = true)]
    pub fault_ring_bytes: Option<u32>,
    /// Disks or partitions (name, path or MAJ:MIN). Default: all.
    #[arg(value_name = "DEVICE")]
    pub named: Vec<String>,
    /// Run COMMAND and trace until it exits, or for --for (COMMAND keeps running).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
