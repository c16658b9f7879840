//! Options that several verbs share.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::{Arg, Args};

use super::values::{comm, duration, interval, percent};

/// Where the result is written.
#[derive(Debug, Clone, Args)]
pub struct Output {
    /// Print JSON on stdout, and nothing else.
    #[arg(long)]
    pub json: bool,
    /// Write to FILE instead of stdout (`-` is stdout). FILE is opened before the measurement.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// The devices, and the length of the measurement.
#[derive(Debug, Clone, Args)]
pub struct MeasurementArgs {
    /// Only this disk or partition (name, path, MAJ:MIN). Can be repeated.
    #[arg(short, long = "device", value_name = "DEV")]
    pub devices: Vec<String>,
    /// Measure for this long (10s, 500ms, 2m).
    #[arg(long = "for", alias = "duration", value_name = "TIME", value_parser = duration)]
    pub length: Option<Duration>,
    /// Exit with 4 if more than this percentage of I/Os was missed.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1, value_parser = percent)]
    pub max_loss: f64,
    /// Do not measure biopsy's own cost (saves a few ns per I/O).
    #[arg(long)]
    pub no_cost: bool,
    /// For tests: drop every Nth issue event.
    #[arg(long, value_name = "N", hide = true, default_value_t = 0)]
    pub fault_drop_issue: u32,
}

/// The format of intervals.
#[derive(Debug, Clone, Args)]
pub struct LineArgs {
    /// Print the full result of each interval, not one line per row.
    #[arg(long)]
    pub long: bool,
    /// Sort the lines of each interval by this column, largest first.
    #[arg(long, value_name = "COLUMN", conflicts_with = "long")]
    pub sort: Option<String>,
    /// Print times in UTC, and take those of --from and --to as UTC.
    #[arg(long, conflicts_with = "long")]
    pub utc: bool,
}

/// The possible values of `--sort`.
pub fn sorts(columns: &[&'static str]) -> impl FnOnce(Arg) -> Arg {
    let columns = PossibleValuesParser::new(columns.iter().copied());
    move |arg| arg.value_parser(columns)
}

/// Devices, interval and count as positional arguments, like iostat's: `vda nvme0n1 1 10`.
#[derive(Debug, Clone, Default, Args)]
pub struct IntervalArgs {
    /// Disks or partitions (name or path); then, as in iostat, every INTERVAL seconds, COUNT times.
    #[arg(value_name = "DEVICE, INTERVAL, COUNT")]
    words: Vec<String>,
    /// Taken from `words` by [`Self::place`].
    #[arg(skip)]
    pub interval: Option<Duration>,
    #[arg(skip)]
    pub count: Option<u64>,
}

impl IntervalArgs {
    /// Sorts the words into devices, interval and count. A word that starts with a digit is a number, except MAJ:MIN.
    ///
    /// # Errors
    /// If a word is none of these.
    pub fn place(&mut self, devices: &mut Vec<String>) -> Result<(), String> {
        for word in &self.words {
            let is_number = word.starts_with(|c: char| c.is_ascii_digit() || c == '.') && !word.contains(':');
            let invalid = |name: &str, why: &str| format!("invalid value '{word}' for '[{name}]': {why}");
            match (is_number, self.interval, self.count) {
                (false, ..) => devices.push(word.clone()),
                (true, None, _) => {
                    self.interval = Some(interval(word).map_err(|why| invalid("INTERVAL", &why))?);
                }
                (true, Some(_), None) => {
                    let count = word.parse().ok().filter(|count| *count > 0);
                    self.count =
                        Some(count.ok_or_else(|| invalid("COUNT", "it must be a whole number, 1 or more"))?);
                }
                (true, Some(_), Some(_)) => {
                    return Err(format!(
                        "unexpected argument '{word}' found: INTERVAL and COUNT are already given"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Filters I/O by its submitter. It is not the task that the completion interrupted.
#[derive(Debug, Clone, Args)]
pub struct Submitters {
    /// Only this process and its threads. Can be repeated.
    #[arg(short, long = "pid", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,
    /// Only threads with this name. Can be repeated.
    #[arg(long = "comm", value_name = "NAME", value_parser = comm)]
    pub comms: Vec<String>,
    /// Only this cgroup and its descendants at the start. PATH is absolute, or relative to the root of the
    /// block controller's hierarchy. Can be repeated.
    #[arg(long = "cgroup", value_name = "PATH", value_parser = NonEmptyStringValueParser::new())]
    pub cgroups: Vec<String>,
}

impl Submitters {
    /// Without a filter, the I/O of all processes is measured.
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty() && self.comms.is_empty() && self.cgroups.is_empty()
    }
}
