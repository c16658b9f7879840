//! Defines a load: a job in fio's terms, with every default resolved. Sizes in bytes, shares in percent.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::names;

names! {
    /// Direction of a transfer, fio's `ddir`, in the order used for everything kept by direction.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Direction {
        Read = "read",
        Write = "write",
        Trim = "trim",
    }
}

impl Direction {
    pub fn index(self) -> usize {
        self as usize
    }

    /// The plural, for a sentence.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Trim => "trims",
        }
    }
}

names! {
    /// Directions and order of offsets: fio's `rw`.
    pub enum Pattern {
        Read = "read",
        Write = "write",
        RandRead = "randread",
        RandWrite = "randwrite",
        ReadWrite = "rw",
        RandReadWrite = "randrw",
        Trim = "trim",
        RandTrim = "randtrim",
        /// Each block is trimmed, then written.
        TrimWrite = "trimwrite",
    }
}

impl Pattern {
    /// Parses fio's word or one of its synonyms.
    pub fn from_word(word: &str) -> Option<Self> {
        if word == "readwrite" {
            return Some(Self::ReadWrite);
        }
        Self::ALL.into_iter().find(|pattern| pattern.name() == word)
    }

    /// Whether offsets are random.
    pub fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite | Self::RandReadWrite | Self::RandTrim)
    }

    pub fn has(self, direction: Direction) -> bool {
        match self {
            Self::Read | Self::RandRead => direction == Direction::Read,
            Self::Write | Self::RandWrite => direction == Direction::Write,
            Self::Trim | Self::RandTrim => direction == Direction::Trim,
            Self::ReadWrite | Self::RandReadWrite => direction != Direction::Trim,
            Self::TrimWrite => direction != Direction::Read,
        }
    }

    pub fn only_trims(self) -> bool {
        matches!(self, Self::Trim | Self::RandTrim)
    }

    /// Whether it changes data on the target.
    pub fn writes(self) -> bool {
        self.has(Direction::Write) || self.has(Direction::Trim)
    }
}

names! {
    /// How an I/O is submitted to the kernel: fio's `ioengine`.
    pub enum Engine {
        IoUring = "io_uring",
        /// NVMe commands through io_uring, bypassing the block layer (`/dev/ng0n1`).
        IoUringCmd = "io_uring_cmd",
        Libaio = "libaio",
        /// Also fio's `sync`, which seeks first.
    Psync = "psync",
        /// `preadv2` and `pwritev2`, which can poll.
        Pvsync2 = "pvsync2",
        Mmap = "mmap",
        /// No I/O: measures the generator itself.
        Null = "null",
    }
}

impl Engine {
    pub fn from_word(word: &str) -> Option<Self> {
        if word == "sync" {
            return Some(Self::Psync);
        }
        Self::ALL.into_iter().find(|engine| engine.name() == word)
    }

    /// Whether it does one I/O at a time whatever `iodepth` says, as in fio.
    pub fn is_synchronous(self) -> bool {
        matches!(self, Self::Psync | Self::Pvsync2 | Self::Mmap)
    }
}

names! {
    /// What a job ends when it ends with `exitall` set.
    pub enum ExitWhat {
        /// The jobs of its group.
        Group = "group",
        /// All running jobs; those behind the next stonewall still begin.
        Stonewall = "stonewall",
        All = "all",
    }
}

/// Target of reads or writes.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// An existing device or file.
    Existing(PathBuf),
    /// A scratch file in this directory: created, filled with incompressible bytes, synced, unlinked
    /// while open. `bytes` is its size.
    Scratch { directory: PathBuf, bytes: u64 },
}

/// An offset or length on the target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Extent {
    Bytes(u64),
    /// Percentage of the target's size.
    Percent(f64),
}

impl Extent {
    /// The offset or length in bytes on a target of size `whole`.
    pub fn of(self, whole: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => (whole as f64 * percent / 100.0) as u64,
        }
    }
}

/// A size of block and how often it comes. `low` below `high`: any multiple of `low` up to `high`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockShare {
    #[serde(rename = "low_bytes")]
    pub low: u64,
    #[serde(rename = "high_bytes")]
    pub high: u64,
    pub percent: f64,
}

/// fio's `bs`, `bsrange` and `bssplit` of one direction: shares that make up 100 %, never empty.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockSizes(pub Vec<BlockShare>);

impl BlockSizes {
    /// A single size.
    pub fn fixed(bytes: u64) -> Self {
        Self(vec![BlockShare { low: bytes, high: bytes, percent: 100.0 }])
    }

    /// The single size; None where there are several.
    pub fn only(&self) -> Option<u64> {
        match self.0.as_slice() {
            [share] if share.low == share.high => Some(share.low),
            _ => None,
        }
    }

    /// Mean block size in bytes.
    pub fn mean(&self) -> f64 {
        let steps = |share: &BlockShare| (share.high / share.low.max(1)).max(1);
        let mean = |share: &BlockShare| share.low as f64 * (steps(share) + 1) as f64 / 2.0;
        let all: f64 = self.0.iter().map(|share| share.percent.max(0.0)).sum();
        self.0.iter().map(|share| mean(share) * share.percent.max(0.0) / all).sum()
    }

    pub fn smallest(&self) -> u64 {
        self.0.iter().map(|share| share.low).min().unwrap_or(0)
    }

    pub fn largest(&self) -> u64 {
        self.0.iter().map(|share| share.high).max().unwrap_or(0)
    }
}

/// Distribution of random offsets: fio's `random_distribution`.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// fio calls it `random`.
    Uniform,
    /// theta
    Zipf(f64),
    /// power
    Pareto(f64),
    /// fio's deviation: percentage of the range, added to a base deviation of 1/12 of it.
    Normal(f64),
    /// Consecutive zones: percentage of accesses, percentage of the range.
    Zoned(Vec<(f64, f64)>),
}

/// Arrival process of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// Constant gaps: fio's `linear`.
    Even,
    /// Exponential gaps: fio's `poisson`.
    Exponential,
}

/// fio's `latency_target` and its options.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyTarget {
    pub latency: Duration,
    /// How long each depth is tried.
    pub window: Duration,
    /// Percentage of operations that must stay within `latency`.
    pub percent: f64,
    /// When the depth is found, the job goes on and adjusts it.
    pub runs_on: bool,
}

impl LatencyTarget {
    /// Not set, with fio's default percentage.
    pub const NONE: Self =
        Self { latency: Duration::ZERO, window: Duration::ZERO, percent: 100.0, runs_on: false };

    pub fn window_ns(&self) -> u64 {
        u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// An open loop: I/Os begin when they are due, even if earlier ones are still in flight. Their latency counts from when
/// they were due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// I/Os per second of each thread, by direction; None: unlimited.
    pub iops: [Option<u32>; 3],
    /// Bytes per second, where no number of I/Os is set.
    pub bytes: [Option<u64>; 3],
    pub arrivals: Arrivals,
}

/// Operations with an I/O priority of their own: a percentage of those of one size, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityShare {
    pub bytes: Option<u64>,
    pub percent: u8,
    pub priority: u16,
}

/// Encodes a priority for `ioprio_set`: class (1 real-time, 2 best-effort, 3 idle) and level within it (0 is highest).
pub fn io_priority(class: u16, level: u16) -> u16 {
    class << 13 | level
}

/// Class and level, for people.
pub fn priority_name(priority: u16) -> String {
    let class = match priority >> 13 {
        1 => "rt",
        2 => "be",
        3 => "idle",
        _ => return "unset".to_string(),
    };
    format!("{class}/{}", priority & 7)
}

/// Which I/Os are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timestamps {
    Every,
    /// One in this many.
    Sampled(u32),
    /// None: only counts and rates.
    Off,
}

/// Formats it as the option's value.
impl fmt::Display for Timestamps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every => write!(f, "every"),
            Self::Sampled(n) => write!(f, "sampled:{n}"),
            Self::Off => write!(f, "off"),
        }
    }
}

/// Where the threads run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// On the CPUs of the device's NUMA node.
    Local,
    /// On the CPUs of other nodes.
    Remote,
    /// On all CPUs that the process may use.
    Anywhere,
    /// On any CPU of these nodes: fio's `numa_cpu_nodes`.
    Nodes(Vec<u32>),
    /// On these CPUs. `split`: one thread per CPU, fio's `cpus_allowed_policy`.
    Cpus { cpus: Vec<u32>, split: bool },
}

impl Rate {
    /// Whether the direction has a rate.
    pub fn has(&self, direction: Direction) -> bool {
        self.iops[direction.index()].is_some() || self.bytes[direction.index()].is_some()
    }
}

/// What happens when an I/O fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The job ends, and what it measured is kept.
    Stop,
    /// The error is counted, and the job goes on.
    Continue,
}

/// posix_fadvise hint: fio's `fadvise_hint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Random or sequential, by the pattern.
    ByPattern,
    Random,
    Sequential,
    Nothing,
}

/// One section of a job file, or the command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The section's name.
    pub name: String,
    /// Used in turn if there are several.
    pub targets: Vec<Target>,
    pub rw: Pattern,
    /// Percentage of reads in a mix of reads and writes.
    pub rwmixread: u8,
    /// By direction.
    pub bs: [BlockSizes; 3],
    pub iodepth: u32,
    /// How many I/Os are submitted at once; 0: as many as there is room for.
    pub iodepth_batch: u32,
    /// The minimum number of completions to wait for.
    pub iodepth_batch_complete: u32,
    pub numjobs: u32,
    /// None: until `size` is done.
    pub runtime: Option<Duration>,
    /// Runs for the whole runtime: starts over at the end of `size`.
    pub time_based: bool,
    /// Time before anything is counted.
    pub ramp_time: Duration,
    /// Delay of its threads after the start of their round.
    pub startdelay: Duration,
    /// How often the whole job is repeated.
    pub loops: u32,
    /// How much of each target is used, from `offset` on; None: all of it.
    pub size: Option<Extent>,
    pub offset: Extent,
    /// Offset between consecutive threads of the job.
    pub offset_increment: Extent,
    /// Without an increment, each sequential thread begins at its own share of the target; otherwise all begin at
    /// `offset`, as in fio.
    pub share_offsets: bool,
    /// How many bytes are transferred; None: `amount`.
    pub io_size: Option<u64>,
    /// The maximum number of bytes to transfer, limited to what a thread may use; None: `size`. It is fio's `size` when
    /// a larger `filesize` bounds the usable range.
    pub amount: Option<u64>,
    /// `io_size` as a percentage of what the first thread may use; resolved when the targets are open.
    pub io_share: Option<f64>,
    /// Maximum number of I/Os; None: no limit.
    pub number_ios: Option<u64>,
    /// Length of a file to create; [`Job::file_length`] where not set.
    pub filesize: Option<u64>,
    /// A created file is filled before the run, so that every write finds allocated blocks.
    pub overwrite: bool,
    pub rate: Option<Rate>,
    /// Minimum rate of each thread in bytes or in operations per second, by direction; 0: none.
    pub rate_min: [u64; 3],
    pub rate_iops_min: [u64; 3],
    /// Averaging period of the minimum rate.
    pub rate_cycle: Duration,
    /// Searches the largest depth at which latencies stay within this target; None: the depth is `iodepth`.
    pub latency_target: Option<LatencyTarget>,
    /// Pause between I/Os ...
    pub thinktime: Duration,
    /// ... or after this many I/Os.
    pub thinktime_blocks: u32,
    pub distribution: Distribution,
    /// Random blocks may repeat before all were used once.
    pub norandommap: bool,
    /// Random offsets are multiples of this, by direction; None: of the smallest block.
    pub blockalign: [Option<u64>; 3],
    /// The same seed gives the same order.
    pub seed: u64,
    pub direct: bool,
    /// Pages that were read or written are dropped from the page cache (`RWF_DONTCACHE`, 6.14).
    pub uncached: bool,
    /// Writes are atomic: no power failure tears them (`RWF_ATOMIC`, 6.11).
    pub atomic: bool,
    pub advice: Advice,
    /// Drops the target's pages from the page cache before a buffered run.
    pub invalidate: bool,
    /// After this many writes; 0: never.
    pub fsync: u32,
    pub fdatasync: u32,
    /// fsync at the end of a job that writes, counted as part of the run: fio's `end_fsync` and `fsync_on_close`.
    pub end_fsync: bool,
    pub engine: Engine,
    /// Polls for completions, on the device's poll queues. A polling worker is always busy, which no rule of the
    /// diagnosis expects.
    pub hipri: bool,
    /// A kernel thread fetches the requests from the ring (SQPOLL).
    pub sqthread_poll: bool,
    pub registerfiles: bool,
    pub fixedbufs: bool,
    /// Submits NOPs, to measure the generator itself.
    pub nop: bool,
    /// Each written block has its offset and a checksum, and is read back.
    pub verify: bool,
    /// With `verify`: read back in this job; if false, a later job does that.
    pub do_verify: bool,
    /// Each write has new content.
    pub refill_buffers: bool,
    pub timestamps: Timestamps,
    /// Takes the end of every submission, for `slat` and `clat` of each I/O: an engine that submits and waits in one
    /// system call makes two. Otherwise only some submissions are measured.
    pub submissions: bool,
    pub placement: Placement,
    /// I/O priority of the threads (see [`io_priority`]); None: that of the process.
    pub priority: Option<u16>,
    /// For reads and for writes: which operations have another priority.
    pub command_priorities: [Vec<PriorityShare>; 2],
    /// Uses both hardware threads of a core before the next core.
    pub smt: bool,
    /// NUMA nodes of the buffers, used in turn; empty: the node of each thread.
    pub memory_nodes: Vec<u32>,
    pub on_error: OnError,
    /// Waits for all jobs above it.
    pub stonewall: bool,
    /// When this job ends, others end, and so they do at the end of any other job, as in fio.
    pub exitall: bool,
    /// Which others.
    pub exit_what: ExitWhat,
    /// Begins a new group in the result.
    pub new_group: bool,
    /// Begins when the job of this name is over.
    pub wait_for: Option<String>,
    /// Its threads are reported as one line.
    pub group_reporting: bool,
    /// Percentiles in fio's formats; None: fio's default list.
    pub percentiles: Option<Vec<f64>>,
    /// fio's JSON includes the disk's counters.
    pub disk_util: bool,
    /// fio's logs of each thread.
    pub logs: Logs,
}

/// Path prefixes of the per-interval logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logs {
    pub bandwidth: Option<PathBuf>,
    pub iops: Option<PathBuf>,
    pub latency: Option<PathBuf>,
    /// fio's `log_avg_msec`.
    pub interval: Duration,
}

impl Default for Logs {
    fn default() -> Self {
        Self { bandwidth: None, iops: None, latency: None, interval: Duration::from_millis(500) }
    }
}

impl Job {
    /// The command line's defaults: random direct reads of 4 KiB with io_uring, queue depth 32, for 10 s.
    pub fn new(target: Target) -> Self {
        Self {
            name: "load".to_string(),
            targets: vec![target],
            rw: Pattern::RandRead,
            rwmixread: 50,
            bs: std::array::from_fn(|_| BlockSizes::fixed(4096)),
            iodepth: 32,
            iodepth_batch: 0,
            iodepth_batch_complete: 1,
            numjobs: 1,
            runtime: Some(Duration::from_secs(10)),
            time_based: true,
            ramp_time: Duration::ZERO,
            startdelay: Duration::ZERO,
            loops: 1,
            size: None,
            offset: Extent::Bytes(0),
            offset_increment: Extent::Bytes(0),
            share_offsets: true,
            io_size: None,
            amount: None,
            io_share: None,
            number_ios: None,
            filesize: None,
            overwrite: false,
            rate: None,
            rate_min: [0; 3],
            rate_iops_min: [0; 3],
            rate_cycle: Duration::from_secs(1),
            latency_target: None,
            thinktime: Duration::ZERO,
            thinktime_blocks: 1,
            distribution: Distribution::Uniform,
            norandommap: true,
            blockalign: [None; 3],
            seed: 1,
            direct: true,
            uncached: false,
            atomic: false,
            advice: Advice::ByPattern,
            invalidate: true,
            fsync: 0,
            fdatasync: 0,
            end_fsync: false,
            engine: Engine::IoUring,
            hipri: false,
            sqthread_poll: false,
            registerfiles: true,
            fixedbufs: true,
            nop: false,
            verify: false,
            do_verify: true,
            refill_buffers: false,
            timestamps: Timestamps::Every,
            submissions: false,
            placement: Placement::Local,
            priority: None,
            command_priorities: [Vec::new(), Vec::new()],
            smt: false,
            memory_nodes: Vec::new(),
            on_error: OnError::Continue,
            stonewall: false,
            exitall: false,
            exit_what: ExitWhat::Group,
            new_group: false,
            wait_for: None,
            group_reporting: true,
            percentiles: None,
            disk_util: true,
            logs: Logs::default(),
        }
    }

    /// fio's defaults: sequential reads of 4 KiB through the page cache, one at a time by one unpinned thread, until
    /// the target is done or an I/O fails.
    pub fn fio_defaults(target: Target) -> Self {
        Self {
            rw: Pattern::Read,
            iodepth: 1,
            iodepth_batch: 1,
            runtime: None,
            time_based: false,
            norandommap: false,
            seed: 0x89,
            share_offsets: false,
            direct: false,
            engine: Engine::Psync,
            registerfiles: false,
            fixedbufs: false,
            placement: Placement::Anywhere,
            on_error: OnError::Stop,
            group_reporting: false,
            ..Self::new(target)
        }
    }

    /// Length of a file to create for this job: as set, otherwise as far as the last thread reaches; None where that
    /// depends on a length.
    pub fn file_length(&self) -> Option<u64> {
        match (self.filesize, self.offset, self.offset_increment, self.size) {
            (Some(length), ..) => Some(length),
            (None, Extent::Bytes(offset), Extent::Bytes(step), Some(Extent::Bytes(size))) => {
                let last = step.checked_mul(u64::from(self.numjobs.max(1) - 1))?;
                offset.checked_add(last)?.checked_add(size)
            }
            _ => None,
        }
    }

    /// Whether no I/O reaches a file or device.
    pub fn moves_nothing(&self) -> bool {
        self.nop || self.engine == Engine::Null
    }

    /// Sets fio's `bs` for all directions.
    pub fn set_bs(&mut self, bytes: u64) {
        self.bs = std::array::from_fn(|_| BlockSizes::fixed(bytes));
    }

    /// The directions of the pattern.
    pub fn directions(&self) -> impl Iterator<Item = Direction> + '_ {
        Direction::ALL.into_iter().filter(|direction| self.rw.has(*direction))
    }

    /// The largest block of the pattern's directions.
    pub fn largest_block(&self) -> u64 {
        self.directions().map(|direction| self.bs[direction.index()].largest()).max().unwrap_or(0)
    }

    /// The smallest block of all directions, including those the pattern does not use: fio rounds percentages to it.
    pub fn smallest_of_all(&self) -> u64 {
        self.bs.iter().map(BlockSizes::smallest).min().unwrap_or(0).max(1)
    }

    /// Rounds down to whole blocks, as fio does with a length in percent.
    pub fn whole_blocks(&self, bytes: u64) -> u64 {
        bytes - bytes % self.smallest_of_all()
    }

    /// The smallest block of the pattern's directions.
    pub fn smallest_block(&self) -> u64 {
        self.directions().map(|direction| self.bs[direction.index()].smallest()).min().unwrap_or(0)
    }
}
