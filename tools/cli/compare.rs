//! `biopsy compare`.

use std::path::PathBuf;
use std::time::Duration;

use biopsy::experiment::compare::{Kind, Vary};
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
    after_long_help = "\
Keys of a disk's queue, with the values of the file below /sys/block/DISK/queue: scheduler, nr_requests, wbt, \
read_ahead (KiB), max_sectors (KiB), rq_affinity, nomerges, iostats, io_timeout, write_cache. Of the kernel: \
sysctl:NAME. Of a cgroup (version 2): cgroup:PATH:FILE with io.max, io.weight, cpu.max or memory.high; without PATH that \
in which biopsy runs. Of the load: its words, such as bs, iodepth, numjobs, ioengine, direct, and polling for hipri, cpus for \
cpus_allowed.

The first value is what the others are compared with. Rounds of all values run in random order, each second block \
backwards, until the interval of the ratio is as narrow as --until. Settings come back at every end: Ctrl-C, a panic, \
a kill. Where a kill took the process that restores them as well, the next comparison or --restore does it.

A and B are results that were kept: JSON of biopsy load, compare or latency, or of fio, several in one file, or a \
recording. Their runs, or intervals averaged to ten, are compared; of a comparison the rounds of its first value."
)]
pub struct Compare {
    /// Two results that were kept.
    #[arg(value_name = "A B", num_args = 2, conflicts_with_all = ["vary", "device", "rounds", "until", "prepare", "dry_run",
        "restore", "command"])]
    pub files: Vec<PathBuf>,
    /// Compare kept results also where the host, the kernel, the device or the load differs.
    #[arg(long, conflicts_with_all = ["vary", "from_report", "restore"])]
    pub across: bool,
    /// Compare rounds of now with a result that was kept, as A and B are. With --rounds, else 10.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "vary", "until", "restore", "from_report"])]
    pub before: Option<PathBuf>,
    /// Run the comparison that tests the advice of a diagnosis: of its HTML page, or of its JSON.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["files", "vary", "device", "prepare", "restore", "command"])]
    pub from_report: Option<PathBuf>,
    /// Compare these values of a setting or of a word of the load. Can be repeated: every value with every other.
    #[arg(long, value_name = "KEY=V1,V2", value_parser = Vary::parse)]
    pub vary: Vec<Vary>,
    /// The disk whose settings are varied. Without it: that of the load's target.
    #[arg(short, long, value_name = "DEV")]
    pub device: Option<String>,
    /// Run so many rounds of each value, whatever they show.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: Option<u16>,
    /// End when the interval reaches this far to either side of the ratio (default: half of --margin).
    #[arg(long, value_name = "PERCENT", value_parser = share, conflicts_with = "rounds")]
    pub until: Option<f64>,
    /// Values that differ by less are the same; of the 99th percentile twice that.
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = share)]
    pub margin: f64,
    /// Start no round after this time.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub max_time: Duration,
    /// Decide by this metric. Default: iops; mean_ns where the load has a rate; bytes_per_second where blocks differ in
    /// size; elapsed_ns of a command, or its --value.
    #[arg(long, value_name = "METRIC",
        value_parser = PossibleValuesParser::new(Kind::ALL.map(Kind::name)).map(|name| kind(&name)))]
    pub metric: Option<Kind>,
    /// Decide by a number of the JSON that COMMAND prints, by its keys and indices: jobs.0.read.iops.
    #[arg(long, value_name = "PATH", requires = "command")]
    pub value: Option<String>,
    /// Less of the number of --value is better.
    #[arg(long, requires = "value")]
    pub less_is_better: bool,
    /// Measure the stages of the I/O in each round: in which of them the values differ. Takes some of the rate of all of them.
    #[arg(long, conflicts_with_all = ["files", "before"])]
    pub stages: bool,
    /// Sample the CPUs' stacks in each round, and draw in the page what each value changes of them: see biopsy flame --diff.
    #[arg(long, requires = "html", conflicts_with_all = ["files", "before"])]
    pub stacks: bool,
    /// Run this by `sh -c` before each round of a command.
    #[arg(long, value_name = "COMMAND")]
    pub prepare: Option<String>,
    /// Also write a page with each round as a dot.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Say what would be set and run, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Exit with 11 where a value is worse than the first.
    #[arg(long)]
    pub fail_if_worse: bool,
    /// Restore the settings that a killed comparison left, and end.
    #[arg(long, conflicts_with_all = ["vary", "device", "command"])]
    pub restore: bool,
    #[command(flatten)]
    pub output: Output,
    /// `load` with what stands behind it on its own command line, or a command.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// clap has checked the name.
fn kind(name: &str) -> Kind {
    Kind::ALL.into_iter().find(|kind| kind.name() == name).unwrap_or(Kind::Iops)
}
