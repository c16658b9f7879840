//! `biopsy record` and `biopsy pack`.

use std::path::PathBuf;
use std::time::Duration;

use biopsy::analyze::condition::Condition;
use clap::{Args, ValueEnum};

use super::values::{At, at, condition, duration, interval, label, size};
use super::{LeastSeverity, Window};

#[derive(Debug, Args)]
pub struct Record {
    /// Record these views, with commas between them. Without it: all but trace, less those that this machine refuses.
    #[arg(long, value_name = "VIEW,...", value_enum, value_delimiter = ',', num_args = 1)]
    pub with: Vec<Recordable>,
    #[command(flatten)]
    pub window: Window,
    /// The folder to make. Without it: a new one here, named by the time.
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Record each I/O also where DIR is on a disk that is traced: the recorder's own I/Os are among them then.
    #[arg(long)]
    pub onto_traced: bool,
    /// Keep NAME=VALUE with the recording. Can be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Put others in the stead of the names of processes, files, cgroups, volumes and of the host, and leave serial
    /// numbers out. Stacks and each I/O are not recorded then.
    #[arg(long)]
    pub redact: bool,
    /// End when the files have so many bytes (100m, 2g).
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_size: Option<u64>,
    /// Hold this much in memory, and write it into a new folder in DIR on SIGUSR1, or when --when or --on-finding says so.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "max_size")]
    pub keep_last: Option<Duration>,
    /// Write it when, within an interval, the bound is crossed: 'p99>2ms', 'iops<1000', 'stage:queue.p99>1ms';
    /// mean, p50, p90, p99, p99.9, max of any class of any device, or iops of any device. Again only when it was back
    /// by a tenth.
    #[arg(long, value_name = "BOUND", value_parser = condition, requires = "keep_last")]
    pub when: Option<(Condition, String)>,
    /// Write it when a finding appears that is at least as severe: the rules of diagnose look at the last 5 s again and
    /// again. Again only when the finding was gone in between.
    #[arg(
        long,
        value_name = "SEVERITY",
        value_enum,
        num_args = 0..=1,
        default_missing_value = "warning",
        require_equals = true,
        requires = "keep_last"
    )]
    pub on_finding: Option<LeastSeverity>,
    /// Write at most so often within an hour.
    #[arg(long, value_name = "N", default_value_t = 10, requires = "keep_last")]
    pub max_dumps: u64,
    /// Begin at this time: 14:30:05 (UTC), 2026-11-28T14:30:05Z, 90s from now, or /10s, when the clock is next at a
    /// multiple of it.
    #[arg(long, value_name = "TIME", value_parser = at)]
    pub at: Option<At>,
    /// Length of an interval, in seconds or with a unit.
    #[arg(value_name = "INTERVAL", value_parser = interval, default_value = "1")]
    pub interval: Duration,
    /// Run this command and record until it ends (or --for is over: then the command goes on by itself).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// A view that can be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Recordable {
    Latency,
    Interrupts,
    Locks,
    Threads,
    /// What the CPUs do, by 99 samples per second each.
    Stacks,
    Errors,
    Top,
    /// CPU time, CPU quotas, and rates each 100 ms: what `diagnose -i` wants beside the others.
    System,
    /// Each I/O, as a table of Parquet.
    Trace,
}

#[derive(Debug, Args)]
pub struct Pack {
    /// The folder that `biopsy record` made.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// The file to make (`-` is stdout). Without it: the folder's name with .tar behind it.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
