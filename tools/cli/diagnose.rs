//! The command lines of `biopsy diagnose` and `biopsy report`.

use std::path::PathBuf;
use std::time::Duration;

use biopsy::findings::Severity;
use clap::{Args, ValueEnum};

use super::common::{MeasurementArgs, Submitters};
use super::input::Within;
use super::values::{cost, duration, percent, size};

/// The load of a diagnosis, with fio's option names.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct Workload {
    /// Sequential or random reads.
    #[arg(long, value_enum, default_value_t = Rw::Randread)]
    pub rw: Rw,
    /// Block size (4k, 128k, 1m).
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = size)]
    pub bs: u64,
    /// Operations in flight per job.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub iodepth: u32,
    /// Threads, each with its own ring and pinned to its own CPU.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub numjobs: u32,
    /// How long to run or measure. The same as --for.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub runtime: Duration,
    /// Bytes of the target to read; for a scratch file, its size.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub size: Option<u64>,
    /// Seed of the random offsets.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Poll for completions (IOPOLL). Needs poll queues (NVMe: nvme.poll_queues=N).
    #[arg(long)]
    pub hipri: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rw {
    Read,
    Randread,
}

/// The options that need a load driven by diagnose. Without one, `runtime` means `--for`.
pub const OF_THE_LOAD: [&str; 9] =
    ["rw", "bs", "iodepth", "numjobs", "size", "seed", "hipri", "beside", "no_experiment"];

#[derive(Debug, Args)]
pub struct Diagnose {
    /// Device or file to read, or directory for a scratch file (default: this one, unless -d, -p or COMMAND is
    /// given). The scratch file is removed at the end; a device or file is only read. --no-load, --comm and
    /// --cgroup need no TARGET either.
    #[arg(value_name = "TARGET", conflicts_with_all = ["no_load", "pids", "comms", "cgroups"])]
    pub target: Option<PathBuf>,
    #[command(flatten)]
    pub workload: Workload,
    #[command(flatten)]
    pub submitters: Submitters,
    /// Also drive this device or file. Before the traced run, TARGET and each of these run alone and then all
    /// at once, to see whether they are slower together. Can be repeated.
    #[arg(long, value_name = "DEV", requires = "target")]
    pub beside: Vec<PathBuf>,
    #[command(flatten)]
    pub window: MeasurementArgs,
    /// Do not try half and twice the depth after the run. The test takes up to 5 s; it shows whether a limit
    /// is reached or only latency bounds the rate.
    #[arg(long)]
    pub no_experiment: bool,
    /// Drive no load; diagnose the I/O that is already running. Implied by -d, -p, --comm and --cgroup
    /// without TARGET.
    #[arg(long, conflicts_with_all = OF_THE_LOAD)]
    pub no_load: bool,
    /// Print JSON on stdout, and nothing else.
    #[arg(long)]
    pub json: bool,
    /// HTML report to write (`-` is stdout). Default: a new file here, named by device and time.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Copied from -v by [`super::parse`].
    #[arg(skip)]
    pub verbose: bool,
    /// Split the stages: throttling, tag wait, plug, scheduler, retries, task work, wake-up. Costs more.
    #[arg(long)]
    pub detail: bool,
    /// CPU budget for following I/Os, on the busiest CPU. Above it, operations (submit, reap) are followed
    /// only part of the time. 0 means no limit; --detail and a load driven by diagnose have none either.
    #[arg(long, value_name = "PERCENT", default_value = "3%", value_parser = cost)]
    pub max_cost: f64,
    /// Exit with 10 if a finding has at least this severity.
    #[arg(long, value_enum, value_name = "SEVERITY")]
    pub fail_on: Option<LeastSeverity>,
    /// Samples per second and CPU of the on-CPU profile.
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 499, value_parser = clap::value_parser!(u64).range(1..=9999))]
    pub freq: u64,
    /// Run COMMAND and diagnose the I/O while it runs.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "target", conflicts_with_all = OF_THE_LOAD)]
    pub command: Vec<String>,
    /// Diagnose a recording of `biopsy record` (folder or packed file) instead of measuring. Needs no rights.
    #[arg(short, long, value_name = "RECORDING", conflicts_with_all = OF_THE_LOAD,
        conflicts_with_all = ["target", "pids", "comms", "cgroups", "devices", "length", "runtime", "no_cost", "no_load",
            "detail", "max_cost", "freq", "command"])]
    pub input: Option<PathBuf>,
    #[command(flatten)]
    pub within: Within,
    /// An option of the load was given, with any value. Set by [`super::parse`].
    #[arg(skip)]
    pub describes_load: bool,
}

impl Diagnose {
    /// Whether diagnose drives a load. With -d, -p, --comm or --cgroup alone it only measures, like the other verbs.
    pub fn drives(&self) -> bool {
        let names_the_io_that_is_there = !self.window.devices.is_empty() || !self.submitters.is_empty();
        !self.no_load && self.command.is_empty() && (self.target.is_some() || !names_the_io_that_is_there)
    }

    /// Merges `--for` and `--runtime` into one length: of the load, or of the measurement without a load.
    ///
    /// # Errors
    /// If both are given.
    pub fn set_length(&mut self, runtime_is_given: bool) -> Result<(), &'static str> {
        if runtime_is_given && self.window.length.is_some() {
            return Err("--for and --runtime are the same here: give one of them");
        }
        if self.drives() {
            self.workload.runtime = self.window.length.take().unwrap_or(self.workload.runtime);
        } else if runtime_is_given {
            self.window.length = Some(self.workload.runtime);
        }
        Ok(())
    }

    /// Whether options of a load are given although no load is driven. clap itself refuses some of them earlier.
    pub fn has_unused_load_options(&self) -> bool {
        !self.drives() && self.describes_load
    }
}

#[derive(Debug, Args)]
pub struct Report {
    /// Recording made by `biopsy record`: a folder or a packed file. Needs no rights.
    #[arg(short, long, value_name = "RECORDING")]
    pub input: PathBuf,
    #[command(flatten)]
    pub within: Within,
    /// HTML file to write (`-` is stdout). Default: run.html for run.biopsy, here.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Copied from -v by [`super::parse`].
    #[arg(skip)]
    pub verbose: bool,
    /// Exit with 4 if more than this percentage of I/Os was missed.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1, value_parser = percent)]
    pub max_loss: f64,
}

/// Minimum severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LeastSeverity {
    Warning,
    Critical,
}

impl LeastSeverity {
    /// The severity and its name.
    pub fn least(self) -> (Severity, &'static str) {
        match self {
            Self::Warning => (Severity::Warning, "warning"),
            Self::Critical => (Severity::Critical, "critical"),
        }
    }
}
