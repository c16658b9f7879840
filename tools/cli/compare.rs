//! The command line of `biopsy compare`.

use std::path::PathBuf;
use std::time::Duration;

use biopsy::experiment::compare::{MetricKind, Vary};
use clap::Args;
use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser as _;

use super::Output;
use super::values::{duration, share};

#[derive(Debug, Clone, Args)]
#[command(
    override_usage = "biopsy compare --vary KEY=VALUE,VALUE [OPTIONS] -- load TARGET [...]\n       \
                      biopsy compare --vary KEY=VALUE,VALUE [OPTIONS] -- COMMAND...\n       \
                      biopsy compare A B\n       \
                      biopsy compare --before FILE [OPTIONS] -- load TARGET [LOAD OPTIONS]\n       \
                      biopsy compare --from-report FILE\n       \
                      biopsy compare --restore",
    after_long_help = "Keys of --vary. Disk queue, with the values of /sys/block/DISK/queue: scheduler, \
        nr_requests, wbt, read_ahead (KiB), max_sectors (KiB), rq_affinity, nomerges, iostats, io_timeout, \
        write_cache. Kernel: sysctl:NAME. Cgroup (version 2): cgroup:PATH:FILE with io.max, io.weight, \
        cpu.max or memory.high; without PATH, biopsy's own cgroup. Load: its options, such as bs, iodepth, \
        numjobs, ioengine, direct; also polling (hipri) and cpus (cpus_allowed).

The first value is the baseline. Rounds run in random order, every second block in reverse, until the \
        confidence interval of the ratio is as narrow as --until. Changed settings are always restored, \
        even after Ctrl-C, a panic or a kill. If the process that restores them is killed too, the next \
        comparison or --restore does it.

A and B are saved results: JSON of biopsy load, compare or latency, or of fio (several per file), or a \
        recording. Their runs are compared; intervals are averaged to ten values. Of a saved comparison, the \
        rounds of its first value are used."
)]
pub struct Compare {
    /// Two saved results to compare.
    #[arg(value_names = ["A", "B"], num_args = 2, conflicts_with_all = ["vary", "device", "rounds", "until", "prepare", "dry_run",
        "restore", "command"])]
    pub files: Vec<PathBuf>,
    /// Compare saved results even if host, kernel, device or load differ.
    #[arg(long, conflicts_with_all = ["vary", "from_report", "restore"])]
    pub across: bool,
    /// Run rounds now (--rounds, default 10) and compare them with this saved result.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "vary", "until", "restore", "from_report"])]
    pub before: Option<PathBuf>,
    /// Run the comparison that tests the advice of a diagnosis. FILE is its HTML page or JSON.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "vary", "device", "prepare", "restore", "command"])]
    pub from_report: Option<PathBuf>,
    /// Compare these values of a setting or load option. Repeat it to compare all combinations.
    #[arg(long, value_name = "KEY=V1,V2", value_parser = Vary::parse)]
    pub vary: Vec<Vary>,
    /// Disk whose settings are varied. Default: the disk of the load's target.
    #[arg(short, long, value_name = "DEV")]
    pub device: Option<String>,
    /// Run exactly N rounds of each value.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: Option<u16>,
    /// Stop when the ratio is known to ± PERCENT (95 % confidence interval). Default: half of --margin.
    #[arg(long, value_name = "PERCENT", value_parser = share, conflicts_with = "rounds")]
    pub until: Option<f64>,
    /// Values that differ by less count as the same; for the 99th percentile, twice this.
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = share)]
    pub margin: f64,
    /// Start no round after this time.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub max_time: Duration,
    /// Metric that decides which value is better. Default: iops; mean_ns if the load has a rate;
    /// bytes_per_second if block sizes differ; elapsed_ns for a command, or its --value.
    #[arg(long, value_name = "METRIC",
        value_parser = PossibleValuesParser::new(MetricKind::ALL.map(MetricKind::name)).map(|name| kind(&name)))]
    pub metric: Option<MetricKind>,
    /// Decide by a number in the JSON that COMMAND prints, named by keys and indices: jobs.0.read.iops.
    #[arg(long, value_name = "PATH", requires = "command")]
    pub value: Option<String>,
    /// A smaller number of --value is better.
    #[arg(long, requires = "value")]
    pub less_is_better: bool,
    /// Also measure the I/O stages of each round, to show where the values differ. Lowers the rate of all
    /// rounds somewhat.
    #[arg(long, conflicts_with_all = ["files", "before"])]
    pub stages: bool,
    /// Also sample CPU stacks in each round and add a differential flame graph per value to the HTML page.
    /// See biopsy flame --diff.
    #[arg(long, requires = "html", conflicts_with_all = ["files", "before"])]
    pub stacks: bool,
    /// Run this with `sh -c` before each round of a command.
    #[arg(long, value_name = "COMMAND")]
    pub prepare: Option<String>,
    /// Also write an HTML page with a dot for each round.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print what would be set and run, and exit.
    #[arg(long)]
    pub dry_run: bool,
    /// Exit with 11 if a value is worse than the first.
    #[arg(long)]
    pub fail_if_worse: bool,
    /// Restore settings that a killed comparison left behind, and exit.
    #[arg(long, conflicts_with_all = ["vary", "device", "command"])]
    pub restore: bool,
    #[command(flatten)]
    pub output: Output,
    /// `load` and its arguments, or a command.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// clap has validated the name.
fn kind(name: &str) -> MetricKind {
    MetricKind::ALL.into_iter().find(|kind| kind.name() == name).unwrap_or(MetricKind::Iops)
}
