//! The command line of `biopsy load`.

use std::path::PathBuf;
use std::time::Duration;

use biopsy::load::options::Section;
use clap::{Args, ValueEnum};

use super::common::Output;
use super::values::duration;
use crate::words::Words;

#[derive(Debug, Clone, Args)]
#[command(
    override_usage = "biopsy load [OPTIONS] TARGET...\n       biopsy load [OPTIONS] JOBS.fio",
    after_long_help = "Reading needs no permission. Writing and trimming need --write. A device also needs \
        --destroy-data-on with its name, an existing file --overwrite, and no other process may use \
        either. A new file needs --size, and is kept. A scratch file needs none of these options: it has \
        no name, is filled first, and is gone when the run ends.

Options and units are fio's (4k is 4096 bytes; a time without a unit is in seconds, thinktime in \
        microseconds). The defaults above are for the command line; a job file has fio's defaults. An \
        unknown option is an error; in a job file, the error names its line.

Several TARGETs are several jobs with the same options. Most options take a list (--iodepth 1,8,32) or a \
        doubling range (--iodepth 1..256, --bs 4k..64k), and the run is repeated with each value. In --bs \
        and --rate_iops, commas separate reads, writes and trims, as in fio."
)]
pub struct Load {
    /// Devices or files to drive, directories with --scratch, or one fio job file (*.fio).
    #[arg(value_name = "TARGET", required_unless_present_any = ["filename", "directory", "jobfile"])]
    pub targets: Vec<PathBuf>,
    /// Run the jobs of this file, whatever its extension.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["targets", "scratch"], help_heading = TARGET)]
    pub jobfile: Option<PathBuf>,
    /// Make and fill a scratch file in the directory TARGET, drive it, and remove it.
    #[arg(long, requires = "targets", help_heading = TARGET)]
    pub scratch: bool,
    /// Allow writing and trimming. A device also needs --destroy-data-on, an existing file --overwrite.
    #[arg(long, help_heading = WRITING)]
    pub write: bool,
    /// Allow the loss of all data on the device with this kernel name (nvme0n1, loop3p1). Can be repeated.
    #[arg(long, value_name = "NAME", help_heading = WRITING)]
    pub destroy_data_on: Vec<String>,
    /// Before the load, write its whole range in 1 MiB blocks, then at random in its block size until the IOPS
    /// are steady (SNIA). Steady means: over five rounds, a range of at most 20 % and a slope of at most 10 %
    /// of their average. There are at most 25 rounds. Needs the options that allow writing.
    #[arg(long, help_heading = WRITING)]
    pub precondition: bool,
    /// Length of a preconditioning round.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration, requires = "precondition",
        help_heading = WRITING)]
    pub precondition_round: Duration,
    /// Longest time for preconditioning. After it the load starts anyway, and the result says that the drive
    /// was not steady.
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = duration, requires = "precondition",
        help_heading = WRITING)]
    pub precondition_limit: Duration,
    /// Do not examine the drive around the load. Skips reading some blocks before a load that reads, and
    /// NVMe's identify and health log.
    #[arg(long, help_heading = RESULT)]
    pub no_drive_check: bool,
    #[command(flatten)]
    pub words: Words,
    /// Format of the result: text (normal), fio's JSON, or fio's terse line.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = FioFormat::Normal, help_heading = RESULT)]
    pub output_format: FioFormat,
    #[command(flatten, next_help_heading = RESULT)]
    pub output: Output,
}

/// The headings of fio's options, reused for biopsy's own.
const TARGET: &str = Section::Target.name();
const WRITING: &str = Section::Writing.name();
const RESULT: &str = Section::Result.name();

/// fio's formats; `--json` is biopsy's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FioFormat {
    Normal,
    Json,
    /// With every bucket of the latencies.
    #[value(name = "json+")]
    JsonPlus,
    #[value(alias = "minimal")]
    Terse,
}
