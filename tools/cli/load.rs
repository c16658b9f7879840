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
    after_long_help = "\
Reading needs no permission. Writing and trimming need --write. A device also needs --destroy-data-on with its name, \
an existing file --overwrite, and no other process may use either. A new file is created with --size, and stays. A \
scratch file needs none of these options: it has no name, is filled first, and is gone when the run ends.

The words and their units are fio's (4k is 4096 bytes; a time without a unit is in seconds, of thinktime in \
microseconds). The defaults above are those of the command line; in a job file they are fio's. A word that is not \
known here is an error, in a job file with its line.

Several TARGETs are several jobs that are otherwise alike. Of most options a list (--iodepth 1,8,32) or a range that \
is doubled (--iodepth 1..256, --bs 4k..64k) repeats the run with each value; in --bs and --rate_iops commas part \
reads, writes and trims, as in fio."
)]
pub struct Load {
    /// Devices or files to drive, with --scratch directories for scratch files, or one job file of fio that ends
    /// in .fio.
    #[arg(value_name = "TARGET", required_unless_present_any = ["filename", "directory", "jobfile"])]
    pub targets: Vec<PathBuf>,
    /// Run the jobs of this file, whatever its name ends in.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["targets", "scratch"], help_heading = TARGET)]
    pub jobfile: Option<PathBuf>,
    /// TARGET is a directory: make and fill a scratch file in it, drive that, and remove it.
    #[arg(long, requires = "targets", help_heading = TARGET)]
    pub scratch: bool,
    /// Writing and trimming is meant. A device needs --destroy-data-on as well, a file that was there --overwrite.
    #[arg(long, help_heading = WRITING)]
    pub write: bool,
    /// All data on the device with this kernel name (nvme0n1, loop3p1) may be lost. Can be repeated.
    #[arg(long, value_name = "NAME", help_heading = WRITING)]
    pub destroy_data_on: Vec<String>,
    /// Before the load, fill what it uses in blocks of 1 MiB, then write it at random in the load's block size until
    /// the IOPS are steady (SNIA): of five rounds a range of at most 20 % and a slope of at most 10 % of their average.
    /// At most 25 rounds. It writes, and needs the words that writing needs.
    #[arg(long, help_heading = WRITING)]
    pub precondition: bool,
    /// How long a round of it is.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration, requires = "precondition",
        help_heading = WRITING)]
    pub precondition_round: Duration,
    /// How long it takes at most; then the load begins, and the result says that it was not steady.
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = duration, requires = "precondition",
        help_heading = WRITING)]
    pub precondition_limit: Duration,
    /// Leave out the looks at the drive beside the load: reads of some blocks before one that reads, and NVMe's
    /// identify and health log.
    #[arg(long, help_heading = RESULT)]
    pub no_drive_check: bool,
    #[command(flatten)]
    pub words: Words,
    /// How the result looks: as text, as fio's JSON, or as fio's terse line.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Normal, help_heading = RESULT)]
    pub output_format: Format,
    #[command(flatten, next_help_heading = RESULT)]
    pub output: Output,
}

/// The headings of fio's words, for the options beside them.
const TARGET: &str = Section::Target.name();
const WRITING: &str = Section::Writing.name();
const RESULT: &str = Section::Result.name();

/// fio's formats; `--json` is biopsy's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Normal,
    Json,
    /// With every bucket of the latencies.
    #[value(name = "json+")]
    JsonPlus,
    #[value(alias = "minimal")]
    Terse,
}
