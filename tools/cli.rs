//! The command line as data: clap derive only.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use biopsy::analyze::groups::Dimension;
use biopsy::analyze::op::Op;
use biopsy::analyze::threads::Column;
use biopsy::findings::Severity;
use biopsy::load::options::Section;
use biopsy::probe::interrupts::TIME_EVERY;
use biopsy::probe::latency::options::Stages;
use clap::builder::NonEmptyStringValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub use self::flame::{Flame, FoldedUnit};
pub use self::input::Input;
use self::input::{Within, replaces, replaces_live};
pub use self::record::{Pack, Record, Recordable};
pub use self::values::At;
use self::values::{column, comm, cost, dimension, duration, interval, op, percent, size, stages};
use crate::words::Words;

mod flame;
mod input;
mod record;
mod values;

/// Takes a sample of live block I/O and says what is wrong with it.
#[derive(Debug, Parser)]
#[command(
    name = "biopsy",
    version,
    disable_help_subcommand = true,
    after_help = "\
Where to start:
  biopsy check                                what can be measured here
  sudo biopsy diagnose /var/tmp               drive a scratch file here, end in a verdict
  sudo biopsy diagnose -d nvme0n1 --for 10s   the I/O that is there
  sudo biopsy latency -d nvme0n1 1            where the time goes, every second
  sudo biopsy interrupts -d nvme0n1 --for 5s  how many I/Os each interrupt carries
  sudo biopsy locks --for 5s                  which lock is waited for, and by whom
  sudo biopsy threads --for 5s                what the threads are doing, and where they wait
  sudo biopsy flame --off-cpu --for 5s        what they are blocked on, as a picture
  biopsy load /var/tmp --scratch              how fast it goes, without any probe

Exit codes: 0 done, 1 failed, 2 usage, 3 refused (nothing was measured), 4 measured but not to be trusted."
)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
    /// When to use colour.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
    /// The BTF of this very kernel, where it has none of its own: `pahole --btf_encode_detached FILE vmlinux` makes
    /// it. Only the block layer is followed then.
    #[arg(long, global = true, value_name = "FILE")]
    pub btf: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// What is the bottleneck, and what to change: load, measure, explain.
    Diagnose(Diagnose),
    /// Where an I/O spends its time: stages per device and operation.
    Latency(Latency),
    /// How many interrupts, on which queue and CPU, and how many I/Os each one carries.
    Interrupts(Interrupts),
    /// Which lock is waited for, by whom, and how long; whether the page cache is reclaimed, by whom, and what that costs.
    Locks(Locks),
    /// What the threads are doing: how many run or wait, in which system call and where in the kernel.
    Threads(Threads),
    /// A flame graph: what the CPUs do, what tasks are blocked on, which locks they wait for, whose I/O takes how long,
    /// who reclaims memory.
    Flame(Flame),
    /// Each I/O, one line: every stage, who handed it in, where it ran, what the application called it.
    Trace(Trace),
    /// Which I/Os failed, were tried again or were given back by the driver, and why.
    Errors(Errors),
    /// What the machine does: tasks, CPU time, memory, disks, one line per second.
    Top(Top),
    /// What is the bottleneck in a recording, as one HTML file.
    Report(Report),
    /// Several views at once, kept in a folder that they read with -i.
    Record(Record),
    /// A recording as one file, which every view reads as well.
    Pack(Pack),
    /// How fast a device or file goes: drive it, in fio's words or by its job files.
    Load(Load),
    /// What block devices this machine has and how they are set up.
    Devices(Devices),
    /// What can be measured on this kernel with these rights.
    Check(Check),
    /// How a finding is computed, and when it is wrong.
    Explain(Explain),
    /// Which keys the JSON of a view has, as JSON Schema.
    Schema(Schema),
    /// The helper process that reads symbols: biopsy starts it.
    #[command(hide = true, name = biopsy::symbols::Helper::VERB)]
    SymbolReader,
}

/// Where the product goes.
#[derive(Debug, Clone, Args)]
pub struct Output {
    /// Print JSON, and nothing else, on stdout.
    #[arg(long)]
    pub json: bool,
    /// Write to FILE instead of stdout (`-` is stdout); it is opened before anything is measured.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Which devices, and for how long.
#[derive(Debug, Clone, Args)]
pub struct Window {
    /// Only this disk or partition (name, path, MAJ:MIN). Can be repeated.
    #[arg(short, long = "device", value_name = "DEV")]
    pub devices: Vec<String>,
    /// Measure for this long (10s, 500ms, 2m).
    #[arg(long = "for", alias = "duration", value_name = "TIME", value_parser = duration)]
    pub length: Option<Duration>,
    /// Loss in percent of the I/Os above which the exit code is 4.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1, value_parser = percent)]
    pub max_loss: f64,
    /// Leave the kernel's program statistics off: no cost figures, a few ns less per I/O.
    #[arg(long)]
    pub no_cost: bool,
    /// Ignore every Nth issue event, to test what a lost event does to the figures.
    #[arg(long, value_name = "N", hide = true, default_value_t = 0)]
    pub fault_drop_issue: u32,
}

/// How often, as iostat does.
#[derive(Debug, Clone, Args)]
pub struct Interval {
    /// Print a result every INTERVAL seconds ...
    #[arg(value_name = "INTERVAL", value_parser = interval)]
    pub interval: Option<Duration>,
    /// ... this many times.
    #[arg(value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
}

/// Whose I/O: that of who handed it in, and not of the task that its completion interrupted.
#[derive(Debug, Clone, Args)]
pub struct Submitters {
    /// Only this process, with all its threads. Can be repeated.
    #[arg(short, long = "pid", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,
    /// Only threads of this name. Can be repeated.
    #[arg(long = "comm", value_name = "NAME", value_parser = comm)]
    pub comms: Vec<String>,
    /// Only this cgroup and those that are below it at the start: a path from the root of the
    /// block controller's hierarchy on, or an absolute one. Can be repeated.
    #[arg(long = "cgroup", value_name = "PATH", value_parser = NonEmptyStringValueParser::new())]
    pub cgroups: Vec<String>,
}

impl Submitters {
    /// No one is named: everybody's I/O.
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty() && self.comms.is_empty() && self.cgroups.is_empty()
    }
}

#[derive(Debug, Args)]
#[command(mut_arg("input", replaces_live(&["pids", "comms", "cgroups", "by", "detail", "stages"])))]
pub struct Latency {
    #[command(flatten)]
    pub window: Window,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    /// Count I/Os apart by these, in any order, with commas between them. A request of several bios belongs to
    /// the submitter and the file of the first.
    #[arg(long, value_name = "WORD,...", value_parser = dimension(), value_delimiter = ',', num_args = 1)]
    pub by: Vec<Dimension>,
    #[command(flatten)]
    pub submitters: Submitters,
    /// Show idle devices as well, and with --by every group.
    #[arg(long)]
    pub all: bool,
    /// Follow these stages alone: the others are not attached, and cost nothing.
    #[arg(long, value_name = "STAGES", value_parser = stages(), default_value = Stages::All.name())]
    pub stages: Stages,
    /// Take the stages apart: throttling, tag wait, plug, scheduler, retries, task work, wake-up. Costs more.
    #[arg(long)]
    pub detail: bool,
    #[command(flatten)]
    pub interval: Interval,
    /// Run this command and measure until it ends (or --for is over: then the command goes on by itself).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
An error is counted when its request completes, in the words of the kernel's log; those that the log leaves out are \
there as well. A retry is a request that is tried again after the device answered or timed out, a requeue one that the \
driver gave back since it had no room.")]
#[command(mut_arg("input", replaces_live(&[])))]
pub struct Errors {
    #[command(flatten)]
    pub window: Window,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub interval: Interval,
    /// Run this command and measure until it ends (or --for is over: then the command goes on by itself).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A vector is known by the driver's own pointer (NVMe), else by the name that the driver gave it. I/Os per interrupt are \
the completion entries that its handler reaped, or a softirq or thread behind it: all of the queue's, also those of \
disks that are not traced. Times are those of a sample; counts are exact, and checked against /proc/interrupts.")]
#[command(mut_arg("input", replaces_live(&["time_every"])))]
pub struct Interrupts {
    #[command(flatten)]
    pub window: Window,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    /// Time one of so many interrupts, on average, drawn at random.
    #[arg(long, value_name = "N", default_value_t = TIME_EVERY, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub time_every: u32,
    /// Show vectors and devices without any interrupt as well.
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub interval: Interval,
    /// Run this command and measure until it ends (or --for is over: then the command goes on by itself).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
A lock is known by the structs around it, which have to point back to themselves (LRU lists of a node and memory group, \
zones, pages of a file, queues of a disk, rings of io_uring, ...), else by the kernel's symbols, else by the function \
that asked for it. Counts and times of waits are exact; stacks are sampled where waits are many, long ones always, so \
that they take no more than --max-cost of each CPU. With -d the locks of other devices are left out. Of locks nothing \
runs where nobody waits; the functions of the LRU lists are followed at each call where the kernel allows it, and the \
CPUs are sampled (--no-spin: not). The page cache and its reclaim are always those of the whole machine.")]
#[command(mut_arg("input", replaces_live(&[
    "pids", "comms", "cgroups", "max_cost", "no_spin", "fault_locks", "fault_no_events"
])))]
pub struct Locks {
    #[command(flatten)]
    pub window: Window,
    #[command(flatten)]
    pub submitters: Submitters,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    /// What the stacks of those who wait may take of each CPU (1%); 0 takes none.
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = cost)]
    pub max_cost: f64,
    /// Leave out where the CPUs were found waiting: no sampler.
    #[arg(long)]
    pub no_spin: bool,
    /// Show every lock, process and stack.
    #[arg(long)]
    pub all: bool,
    /// Rows for so many locks, to test what a full table does.
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub fault_locks: Option<u32>,
    /// As on a kernel without the events, to test what is left there.
    #[arg(long, hide = true)]
    pub fault_no_events: bool,
    #[command(flatten)]
    pub interval: Interval,
    /// Run this command and measure until it ends (or --for is over: then the command goes on by itself).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Some times a second all threads are looked at. Shown are those that run or could run (R), wait without being \
interruptible (D), or wait for I/O as the kernel accounts it; with --all also those that sleep. The average is samples \
divided by rounds: 2.5 means that at any moment two or three threads were there. Names have each number as `*`.

Without the rights for programs the files of /proc tell less, at a higher cost.

Which device a thread waits for is known where it handed a bio in and has gone to sleep for I/O once since.")]
#[command(mut_arg("input", replaces_live(&["hz", "group_by", "pids", "comms", "cgroups", "stacks"])))]
pub struct Threads {
    #[command(flatten)]
    pub window: Window,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    /// Rounds per second, each at a random moment of its part of the second: 10, or 2 where only files tell.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub hz: Option<u32>,
    /// Count threads apart by these: comm, state, syscall, wchan, kstack, cgroup, pid, device.
    #[arg(short = 'G', long = "group-by", value_name = "WORD,...", value_parser = column(), value_delimiter = ',',
        num_args = 1)]
    pub group_by: Vec<Column>,
    /// Only threads of this process. Can be repeated.
    #[arg(short, long = "pid", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pids: Vec<u32>,
    /// Only threads of this name, also one with each number as `*`. Can be repeated.
    #[arg(long = "comm", value_name = "NAME", value_parser = comm)]
    pub comms: Vec<String>,
    /// Only threads of this cgroup and of those below it: a path from the root of the block controller's hierarchy
    /// on, or an absolute one. Can be repeated.
    #[arg(long = "cgroup", value_name = "PATH", value_parser = NonEmptyStringValueParser::new())]
    pub cgroups: Vec<String>,
    /// Threads that sleep as well, and every row.
    #[arg(long)]
    pub all: bool,
    /// The kernel stacks in place of the table: as folded lines, or as a flame graph (SVG).
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with_all = ["json", "group_by"])]
    pub stacks: Option<Stacks>,
    #[command(flatten)]
    pub interval: Interval,
    /// Run this command and measure until it ends (or --for is over: then the command goes on by itself).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Stacks {
    Folded,
    Flame,
}

#[derive(Debug, Args)]
#[command(after_help = "\
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
    /// Run this command and trace until it ends (or --for is over: then the command goes on by itself).
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The columns are dstat's. Tasks: run (without this one), blk (wait for a disk), new (made per second). CPU time of all \
CPUs in percent, which add up to 100. Memory: used is what is none of the others; buff are pages of block devices, cach \
those of files. Paging is swap. I/O and bytes per second are those of the devices named with -d, else of all disks that \
stand on no other, so that nothing counts twice.")]
#[command(mut_arg("input", replaces(&["interval", "count", "devices", "length"])))]
pub struct Top {
    /// One line per interval, for a terminal or a file.
    #[arg(long)]
    pub plain: bool,
    /// Only this disk or partition (name, path, MAJ:MIN). Can be repeated.
    #[arg(short, long = "device", value_name = "DEV")]
    pub devices: Vec<String>,
    /// Watch for this long (10s, 500ms, 2m).
    #[arg(long = "for", alias = "duration", value_name = "TIME", value_parser = duration)]
    pub length: Option<Duration>,
    #[command(flatten)]
    pub input: Input,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub interval: Interval,
}

/// The load of a diagnosis. The words are fio's.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct Workload {
    /// Which offsets to read.
    #[arg(long, value_enum, default_value_t = Rw::Randread)]
    pub rw: Rw,
    /// Block size (4k, 128k, 1m).
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = size)]
    pub bs: u64,
    /// Operations in flight per job.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub iodepth: u32,
    /// Threads, each with its own ring, pinned to a CPU of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub numjobs: u32,
    /// How long to run.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub runtime: Duration,
    /// Bytes of the target to read; for a scratch file, its size.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub size: Option<u64>,
    /// Seed of the random offsets.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Poll for completions (IOPOLL): needs a poll queue, of NVMe by nvme.poll_queues=N.
    #[arg(long)]
    pub hipri: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Rw {
    Read,
    Randread,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "biopsy load [OPTIONS] TARGET...\n       biopsy load [OPTIONS] JOBS.fio",
    after_help = "\
Reading needs no permission. Writing and trimming need --write, a device besides --destroy-data-on with its name and \
a file that is there --overwrite, and nobody else may use it. A file that is not there is made, with --size, and \
stays. A scratch file needs none of these words: it has no name, is filled first, and is gone when the run ends.

The words and their units are fio's (4k is 4096 bytes; a time without a unit is in seconds, of thinktime in \
microseconds). The defaults above are those of the command line; in a job file they are fio's. A word that is not \
known here is an error, in a job file with its line.

Several TARGETs are several jobs that are otherwise alike. Of most options a list (--iodepth 1,8,32) or a range that \
is doubled (--iodepth 1..256, --bs 4k..64k) repeats the run with each value; in --bs and --rate_iops commas part \
reads, writes and trims, as in fio.

Examples:
  biopsy load /dev/nvme0n1 --runtime 30s
      random reads of 4k, 32 in flight; nothing is written
  biopsy load /var/tmp --scratch --rw randrw --rwmixread 70 --bs 8k
      reads and writes mixed, on a scratch file
  biopsy load /dev/nvme0n1 --rate_iops 5000
      5000 reads a second, with the latency from when each was due
  biopsy load /dev/nvme1n1 --rw randwrite --write --destroy-data-on nvme1n1
      all data on nvme1n1 is lost
  biopsy load mix.fio
      the jobs of a job file
  biopsy load /dev/nvme0n1 --bs 128k --rw read --output-format json -o result.json
      the result as fio writes it"
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
    /// All data on the device of this very kernel name (nvme0n1, loop3p1) may be lost. Can be repeated.
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

#[derive(Debug, Args)]
pub struct Devices {
    #[command(flatten)]
    pub output: Output,
    /// Only this device.
    #[arg(short, long = "device", value_name = "DEV")]
    pub devices: Vec<String>,
    /// Show empty loop, ram and zram devices as well.
    #[arg(long)]
    pub all: bool,
    /// Show the machine of a recording, as it was then.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["devices", "all"])]
    pub input: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Check {
    /// Show what could be measured on the machine of a recording.
    #[arg(short, long, value_name = "FILE", conflicts_with = "self_test")]
    pub input: Option<PathBuf>,
    /// Measure a device for a moment, and test the result against what must hold of every measurement.
    #[arg(long, requires = "device")]
    pub self_test: bool,
    /// The device of the self-test. It is read (and never written); where it cannot be opened, only
    /// the I/O of others is seen.
    #[arg(short, long, value_name = "DEV", requires = "self_test")]
    pub device: Option<String>,
    /// Length of the self-test.
    #[arg(long = "for", value_name = "TIME", default_value = "3s", value_parser = duration, requires = "self_test")]
    pub length: Duration,
    /// Ignore every Nth issue event, to test what a self-test that fails says.
    #[arg(long, value_name = "N", hide = true, default_value_t = 0, requires = "self_test")]
    pub fault_drop_issue: u32,
    /// For the tests: load every program of the executable, and print as JSON lines what the kernel's
    /// verifier had to do for it.
    #[arg(long, hide = true)]
    pub programs: bool,
    /// For the tests: write every object of the executable into this directory.
    #[arg(long, hide = true, value_name = "DIRECTORY", conflicts_with = "programs")]
    pub objects: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}

/// The words of [`Workload`], which say nothing where there is none.
const OF_THE_LOAD: [&str; 10] =
    ["rw", "bs", "iodepth", "numjobs", "runtime", "size", "seed", "hipri", "beside", "no_experiment"];

#[derive(Debug, Args)]
pub struct Diagnose {
    /// What to drive: a directory (a scratch file is made there and removed), or a device or file that
    /// is only read. Default: the current directory, unless
    /// one of --no-load, -d, -p, --comm, --cgroup or a COMMAND is given.
    #[arg(value_name = "TARGET", conflicts_with_all = ["no_load", "pids", "comms", "cgroups"])]
    pub target: Option<PathBuf>,
    #[command(flatten)]
    pub workload: Workload,
    #[command(flatten)]
    pub submitters: Submitters,
    /// Also drive this device or file, TARGET and each such one alone and then all at once, to see whether they are
    /// slower together: before the run that is traced. Can be repeated.
    #[arg(long, value_name = "DEV", requires = "target")]
    pub beside: Vec<PathBuf>,
    #[command(flatten)]
    pub window: Window,
    /// Do not try half and twice the depth after the run, which takes up to 5 s and tells a limit from a latency.
    #[arg(long)]
    pub no_experiment: bool,
    /// Make no load: diagnose the I/O that is there. Implied by -d, -p, --comm and --cgroup without a TARGET.
    #[arg(long, conflicts_with_all = OF_THE_LOAD)]
    pub no_load: bool,
    /// Print JSON, and nothing else, on stdout.
    #[arg(long)]
    pub json: bool,
    /// Where the HTML report goes (`-` is stdout). Without it: a new file here, named by device and time.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print every finding and measurement after the summary, which has at most 14 lines.
    #[arg(short, long)]
    pub verbose: bool,
    /// Take the stages apart: throttling, tag wait, plug, scheduler, retries, task work, wake-up. Costs more.
    #[arg(long)]
    pub detail: bool,
    /// Exit with 10 where a finding is at least so severe.
    #[arg(long, value_enum, value_name = "SEVERITY")]
    pub fail_on: Option<FailOn>,
    /// Samples per second and CPU of the on-CPU profile.
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 499, value_parser = clap::value_parser!(u64).range(1..=9999))]
    pub freq: u64,
    /// Run this command and diagnose the I/O while it runs.
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "target", conflicts_with_all = OF_THE_LOAD)]
    pub command: Vec<String>,
    /// Measure nothing, and diagnose what `biopsy record` recorded: a folder, or a packed one. Needs no rights.
    #[arg(short, long, value_name = "RECORDING", conflicts_with_all = OF_THE_LOAD,
        conflicts_with_all = ["target", "pids", "comms", "cgroups", "devices", "length", "no_cost", "no_load",
            "detail", "freq", "command"])]
    pub input: Option<PathBuf>,
    #[command(flatten)]
    pub within: Within,
    /// An option of the load is given, with whichever value; see [`parse`].
    #[arg(skip)]
    pub describes_load: bool,
}

impl Diagnose {
    /// Whether it drives a load of its own. -d, -p, --comm or --cgroup alone watch, as in every other verb.
    pub fn drives(&self) -> bool {
        let names_the_io_that_is_there = !self.window.devices.is_empty() || !self.submitters.is_empty();
        !self.no_load && self.command.is_empty() && (self.target.is_some() || !names_the_io_that_is_there)
    }

    /// Whether words for a load are there, and no load is driven. Words that clap itself refuses are not looked at.
    pub fn has_unused_load_options(&self) -> bool {
        !self.drives() && self.describes_load
    }
}

#[derive(Debug, Args)]
pub struct Report {
    /// What `biopsy record` recorded: a folder, or a packed one. Needs no rights.
    #[arg(short, long, value_name = "RECORDING")]
    pub input: PathBuf,
    #[command(flatten)]
    pub within: Within,
    /// The HTML file (`-` is stdout). Without it: the recording's name with .html behind it, here.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print every finding and measurement after the summary.
    #[arg(short, long)]
    pub verbose: bool,
    /// Loss in percent of the I/Os above which the exit code is 4.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.1, value_parser = percent)]
    pub max_loss: f64,
}

/// Reads a command line.
///
/// # Errors
/// When clap refuses it.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let matches = Cli::command().try_get_matches_from(words)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    if let (Verb::Diagnose(diagnose), Some((_, given))) = (&mut cli.verb, matches.subcommand()) {
        let is_given = |word: &&str| given.value_source(word) == Some(ValueSource::CommandLine);
        diagnose.describes_load = OF_THE_LOAD.iter().any(is_given);
    }
    Ok(cli)
}

/// How severe a finding has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    Warning,
    Critical,
}

impl FailOn {
    /// With its word.
    pub fn least(self) -> (Severity, &'static str) {
        match self {
            Self::Warning => (Severity::Warning, "warning"),
            Self::Critical => (Severity::Critical, "critical"),
        }
    }
}

#[derive(Debug, Args)]
pub struct Explain {
    /// A finding id; without it all ids are listed.
    #[arg(value_name = "ID")]
    pub id: Option<String>,
}

#[derive(Debug, Args)]
pub struct Schema {
    /// A view: the name of its command.
    #[arg(value_name = "VIEW")]
    pub view: String,
}

/// What is wrong with the command line, in one line; None for what is no error but a page of help.
pub fn sentence(error: &clap::Error) -> Option<String> {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return None;
    }
    // clap: `error: what`, details on lines of their own, tips, the usage, where to find help.
    let text = error.render().to_string();
    let what = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = what.trim_start_matches("error:").split_whitespace().collect();
    // Behind `--` these verbs take a command: what stands there would be run.
    let runs = text.contains("[-- <COMMAND>");
    let tips: String = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("tip: "))
        .filter(|tip| !(runs && tip.contains("as a value, use '-- ")))
        .map(|tip| format!(" ({tip})"))
        .collect();
    Some(format!("{}{tips}: --help shows what is known", words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_wrong_command_line_is_one_sentence() {
        let said = |words: &[&str]| {
            sentence(&Cli::try_parse_from([&["biopsy"], words].concat()).expect_err("it is wrong"))
        };
        assert_eq!(
            said(&["load"]).as_deref(),
            Some(
                "the following required arguments were not provided: <TARGET>...: --help shows what is known"
            )
        );
        let tip = said(&["latency", "--foo"]).expect("an error");
        assert!(tip.contains("'--foo' found (a similar argument exists: '--for')"), "{tip}");
        assert!(!tip.contains('\n'));
        // Would run a command of the name -5.
        let value = said(&["latency", "-5"]).expect("an error");
        assert!(value.starts_with("unexpected argument '-5' found: --help"), "{value}");
        assert!(said(&["load", "-5"]).expect("an error").contains("use '-- -5'"), "there it names a target");
        assert_eq!(said(&["--help"]), None);
        assert_eq!(said(&[]), None);
    }

    /// What is written in lines is broken anew on a narrow terminal, in the middle of each.
    #[test]
    fn paragraphs_of_help_are_broken_once() {
        let mut command = Cli::command();
        let trace = command.find_subcommand_mut("trace").expect("it is there");
        let text = trace.get_after_help().expect("it has one").to_string();
        assert!(text.split("\n\n").all(|paragraph| !paragraph.contains('\n')), "{text}");
    }

    #[test]
    fn dimensions_are_named_as_in_the_output() {
        let words = Dimension::ALL.map(Dimension::name).join(",");
        let cli = Cli::try_parse_from(["biopsy", "latency", "--by", &words]).expect("all are known");
        let Verb::Latency(args) = cli.verb else { panic!("another verb") };
        assert_eq!(args.by, Dimension::ALL);
    }
}
