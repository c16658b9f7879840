//! `biopsy record` and `biopsy pack`.

use std::path::PathBuf;
use std::time::Duration;

use biopsy::analyze::condition::Condition;
use clap::{Args, ValueEnum};

use super::values::{At, at, condition, duration, interval, label, size};
use super::{LeastSeverity, MeasurementArgs};

#[derive(Debug, Args)]
pub struct Record {
    /// Record only these views (comma-separated). Default: all but trace, without those that this machine refuses.
    #[arg(long, value_name = "VIEW,...", value_enum, value_delimiter = ',', num_args = 1)]
    pub with: Vec<Recordable>,
    #[command(flatten)]
    pub window: MeasurementArgs,
    /// Folder to make. Default: a new one here, named by the time.
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Allow --with trace if DIR is on a traced disk. The recording then includes the recorder's own I/Os.
    #[arg(long)]
    pub onto_traced: bool,
    /// Store NAME=VALUE with the recording. Can be repeated.
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Replace the names of processes, files, cgroups, volumes and the host, and serial numbers.
    /// Stacks and single I/Os are not recorded then.
    #[arg(long)]
    pub redact: bool,
    /// Stop when the files reach this size (100m, 2g).
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_size: Option<u64>,
    /// Keep the last TIME in memory. SIGUSR1, --when and --on-finding write it to a new folder in DIR.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "max_size")]
    pub keep_last: Option<Duration>,
    /// Write what --keep-last holds when a value crosses this bound: 'p99>2ms', 'iops<1000', 'stage:queue.p99>1ms'. Metrics
    /// are mean, p50, p90, p99, p99.9 and max of any I/O type of any device, and iops of any device. It
    /// triggers again only after the value has come back by a tenth.
    #[arg(long, value_name = "BOUND", value_parser = condition, requires = "keep_last")]
    pub when: Option<(Condition, String)>,
    /// Write what --keep-last holds when a finding of at least this severity appears. The rules of diagnose are applied to the
    /// last 5 s again and again. A finding triggers again only after it was gone.
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
    /// Write at most this often per hour.
    #[arg(long, value_name = "N", default_value_t = 10, requires = "keep_last")]
    pub max_dumps: u64,
    /// Start at this time: 14:30:05 (UTC), 2026-11-28T14:30:05Z, 90s from now, or /10s (the next time that is
    /// a multiple of 10 s).
    #[arg(long, value_name = "TIME", value_parser = at)]
    pub at: Option<At>,
    /// Length of an interval, in seconds or with a unit.
    #[arg(value_name = "INTERVAL", value_parser = interval, default_value = "1")]
    pub interval: Duration,
    /// Run COMMAND and record until it exits, or for --for (COMMAND keeps running).
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
    /// CPU stacks, 99 samples per second and CPU.
    Stacks,
    Errors,
    Top,
    /// CPU time, CPU quotas, and rates every 100 ms, for `diagnose -i`.
    System,
    /// Each I/O, as a Parquet table.
    Trace,
}

#[derive(Debug, Args)]
pub struct Pack {
    /// Folder made by `biopsy record`.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// File to write (`-` is stdout). Default: the folder's name plus .tar.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}
