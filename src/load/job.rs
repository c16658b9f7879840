//! What a load is: a job in fio's words, with every default decided. Sizes in bytes, shares in percent.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::names;

names! {
    /// Which way the bytes go, fio's `ddir`, in the order in which everything is kept by direction.
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

    /// Several of them, for a sentence.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Trim => "trims",
        }
    }
}

names! {
    /// Which directions, in which order of offsets: fio's `rw`.
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
    /// From fio's word, or one of its synonyms.
    pub fn from_word(word: &str) -> Option<Self> {
        if word == "readwrite" {
            return Some(Self::ReadWrite);
        }
        Self::ALL.into_iter().find(|pattern| pattern.name() == word)
    }

    /// Offsets come in no order.
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

    /// It changes what lies on the target.
    pub fn writes(self) -> bool {
        self.has(Direction::Write) || self.has(Direction::Trim)
    }
}

names! {
    /// How an I/O is handed to the kernel: fio's `ioengine`.
    pub enum Engine {
        IoUring = "io_uring",
        /// NVMe commands through the ring, past the block layer (`/dev/ng0n1`).
        IoUringCmd = "io_uring_cmd",
        Libaio = "libaio",
        /// fio's `sync` as well, which moves the file's position first.
    Psync = "psync",
        /// `preadv2` and `pwritev2`, which can poll.
        Pvsync2 = "pvsync2",
        Mmap = "mmap",
        /// Nothing: what the generator itself can do.
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

    /// One I/O at a time whatever `iodepth` says, as in fio.
    pub fn is_synchronous(self) -> bool {
        matches!(self, Self::Psync | Self::Pvsync2 | Self::Mmap)
    }
}

names! {
    /// What the end of a job ends where `exitall` is given.
    pub enum ExitWhat {
        /// The jobs of its group.
        Group = "group",
        /// All that run; those behind the next stonewall begin.
        Stonewall = "stonewall",
        All = "all",
    }
}

/// Where to read or write.
#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    /// A device or file that is there.
    Existing(PathBuf),
    /// A scratch file in this directory: created, filled with incompressible bytes, synced, unlinked
    /// while open. `bytes` is its size.
    Scratch { directory: PathBuf, bytes: u64 },
}

/// A place or length on the target.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Extent {
    Bytes(u64),
    /// Of the target's size.
    Percent(f64),
}

impl Extent {
    /// Bytes of a target of this size.
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
    /// All of one size.
    pub fn fixed(bytes: u64) -> Self {
        Self(vec![BlockShare { low: bytes, high: bytes, percent: 100.0 }])
    }

    /// The one size; None where there are several.
    pub fn only(&self) -> Option<u64> {
        match self.0.as_slice() {
            [share] if share.low == share.high => Some(share.low),
            _ => None,
        }
    }

    /// Bytes of a block, on average.
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

/// Which random offsets are more frequent: fio's `random_distribution`.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// fio calls it `random`.
    Uniform,
    /// Its theta.
    Zipf(f64),
    /// Its power.
    Pareto(f64),
    /// What fio calls its deviation: percent of the range that are added to a deviation of 1/12 of it.
    Normal(f64),
    /// Percent of the accesses to percent of the range, one zone after the other.
    Zoned(Vec<(f64, f64)>),
}

/// How a rate is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// At equal distances, fio's `linear`.
    Even,
    /// At exponential ones, fio's `poisson`.
    Exponential,
}

/// fio's `latency_target` and what belongs to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyTarget {
    pub latency: Duration,
    /// How long each depth is tried.
    pub window: Duration,
    /// The share of operations that have to stay within `latency`.
    pub percent: f64,
    /// The job goes on when the depth was found, and follows it.
    pub runs_on: bool,
}

impl LatencyTarget {
    /// fio's defaults.
    pub const NONE: Self =
        Self { latency: Duration::ZERO, window: Duration::ZERO, percent: 100.0, runs_on: false };

    pub fn window_ns(&self) -> u64 {
        u64::try_from(self.window.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// An open loop: I/Os begin when they are due, whether or not earlier ones are over, and their latency counts
/// from when they were due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// I/Os per second of each thread, by direction; None: as fast as they come.
    pub iops: [Option<u32>; 3],
    /// The same in bytes, where there is no number of I/Os.
    pub bytes: [Option<u64>; 3],
    pub arrivals: Arrivals,
}

/// Operations that have an I/O priority of their own: so many percent of those of a size, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityShare {
    pub bytes: Option<u64>,
    pub percent: u8,
    pub priority: u16,
}

/// As `ioprio_set` has it: a class (1 real-time, 2 best-effort, 3 idle) and a level in it, of which 0 is the first.
pub fn io_priority(class: u16, level: u16) -> u16 {
    class << 13 | level
}

/// Its class and level, for people.
pub fn priority_name(priority: u16) -> String {
    let class = match priority >> 13 {
        1 => "rt",
        2 => "be",
        3 => "idle",
        _ => return "unset".to_string(),
    };
    format!("{class}/{}", priority & 7)
}

/// Which I/Os have their latency taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timestamps {
    Every,
    /// One of so many.
    Sampled(u32),
    /// None: only counts and rates.
    Off,
}

/// As the option has it.
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
    /// On the CPUs of the node that the device belongs to.
    Local,
    /// On those of other nodes.
    Remote,
    /// On all that the process may use.
    Anywhere,
    /// On any CPU of these nodes: fio's `numa_cpu_nodes`.
    Nodes(Vec<u32>),
    /// On these; `split`: one thread on each, fio's `cpus_allowed_policy`.
    Cpus { cpus: Vec<u32>, split: bool },
}

impl Rate {
    /// The direction has one.
    pub fn has(&self, direction: Direction) -> bool {
        self.iops[direction.index()].is_some() || self.bytes[direction.index()].is_some()
    }
}

/// What a failed I/O does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnError {
    /// The job ends, and what it measured is kept.
    Stop,
    /// It is counted, and the job goes on.
    Continue,
}

/// What the page cache is told of a file: fio's `fadvise_hint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// By the pattern: random or sequential.
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
    /// In turns, if several.
    pub targets: Vec<Target>,
    pub rw: Pattern,
    /// Of reads and writes mixed, how many are reads.
    pub rwmixread: u8,
    /// By direction.
    pub bs: [BlockSizes; 3],
    pub iodepth: u32,
    /// How many are handed over at once; 0: as many as there is room for.
    pub iodepth_batch: u32,
    /// How many results are waited for at least.
    pub iodepth_batch_complete: u32,
    pub numjobs: u32,
    /// None: until `size` is done.
    pub runtime: Option<Duration>,
    /// The whole runtime, beginning anew at the end of `size`.
    pub time_based: bool,
    /// Before anything is counted.
    pub ramp_time: Duration,
    /// Its threads begin so long after those of its round.
    pub startdelay: Duration,
    /// All of it is done so often.
    pub loops: u32,
    /// How much of each target is used, from `offset` on; None: all of it.
    pub size: Option<Extent>,
    pub offset: Extent,
    /// Each further thread of the job begins so much later.
    pub offset_increment: Extent,
    /// Sequential threads without an increment begin each at its own share of the target; else all at `offset`,
    /// as fio has it.
    pub share_offsets: bool,
    /// How many bytes are moved; None: `amount`.
    pub io_size: Option<u64>,
    /// How many bytes are moved at most, and never more than a thread may use: fio's `size` behind a larger
    /// `filesize`, which says what may be used; None: `size`.
    pub amount: Option<u64>,
    /// How many percent of what the first thread may use, where `io_size` is not known before the targets are.
    pub io_share: Option<f64>,
    /// No more I/Os than these; None: as many as there are.
    pub number_ios: Option<u64>,
    /// Length of a file that has to be made; [`Job::file_length`] where it is not said.
    pub filesize: Option<u64>,
    /// Such a file is filled before it is written, so that every write finds its blocks there.
    pub overwrite: bool,
    pub rate: Option<Rate>,
    /// What each thread has to reach, in bytes or else in operations per second, by direction; 0: anything.
    pub rate_min: [u64; 3],
    pub rate_iops_min: [u64; 3],
    /// How long that is averaged.
    pub rate_cycle: Duration,
    /// The depth is the largest at which latencies stay within this; None: it is `iodepth`.
    pub latency_target: Option<LatencyTarget>,
    /// Between two I/Os ...
    pub thinktime: Duration,
    /// ... or after so many.
    pub thinktime_blocks: u32,
    pub distribution: Distribution,
    /// Random blocks may come twice before all came once.
    pub norandommap: bool,
    /// Random offsets are multiples of it, by direction; None: of the smallest block.
    pub blockalign: [Option<u64>; 3],
    /// The same seed gives the same order.
    pub seed: u64,
    pub direct: bool,
    /// Pages that were read or written leave the page cache again (`RWF_DONTCACHE`, 6.14).
    pub uncached: bool,
    /// No write is torn by a power failure (`RWF_ATOMIC`, 6.11).
    pub atomic: bool,
    pub advice: Advice,
    /// What the page cache has of the target is dropped before a buffered run.
    pub invalidate: bool,
    /// After so many writes; 0: never.
    pub fsync: u32,
    pub fdatasync: u32,
    /// At the end of what writes, which counts as part of the run: fio's `end_fsync` and `fsync_on_close`.
    pub end_fsync: bool,
    pub engine: Engine,
    /// Completions are polled for, on queues that the device must have for that. A worker that polls is busy
    /// all the time, which no rule of a diagnosis expects.
    pub hipri: bool,
    /// A thread of the kernel fetches the requests from the ring.
    pub sqthread_poll: bool,
    pub registerfiles: bool,
    pub fixedbufs: bool,
    /// The ring is asked for nothing at all, to measure the generator itself.
    pub nop: bool,
    /// What is written carries its place and a checksum, and is read back after that.
    pub verify: bool,
    /// With `verify`: it is read back; without it a later job does that.
    pub do_verify: bool,
    /// Each write has new content.
    pub refill_buffers: bool,
    pub timestamps: Timestamps,
    /// The end of each submission is looked at, for `slat` and `clat` of each I/O: where submitting and waiting are
    /// one system call, it is made in two. Else that is done now and then.
    pub submissions: bool,
    pub placement: Placement,
    /// The I/O priority of its threads (see [`io_priority`]); None: that of the process.
    pub priority: Option<u16>,
    /// Of reads and of writes: which of them have another one.
    pub command_priorities: [Vec<PriorityShare>; 2],
    /// Both threads of a core are used before the next core is.
    pub smt: bool,
    /// The NUMA nodes of the buffers, in turns; none: that of each thread.
    pub memory_nodes: Vec<u32>,
    pub on_error: OnError,
    /// It waits for all jobs above it.
    pub stonewall: bool,
    /// Its end ends others, and so does that of any other job, as in fio.
    pub exitall: bool,
    /// Which ones.
    pub exit_what: ExitWhat,
    /// It begins a group of the result.
    pub new_group: bool,
    /// It begins when the job of this name is over.
    pub wait_for: Option<String>,
    /// Its threads are one line of the result.
    pub group_reporting: bool,
    /// Which percentiles fio's formats show; None: fio's own.
    pub percentiles: Option<Vec<f64>>,
    /// fio's JSON has the counters of the disk.
    pub disk_util: bool,
    /// fio's logs of each thread.
    pub logs: Logs,
}

/// Where the figures of each interval are written: prefixes of paths.
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
    /// As the command line has it where nothing is said: random direct reads of 4 KiB by io_uring, 32 deep,
    /// for 10 s.
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

    /// As fio has it where nothing is said: sequential reads of 4 KiB through the page cache, one at a time by
    /// one thread on any CPU, until the target is done or one of them fails.
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

    /// The length of a file that has to be made for it: what was asked for, else as far as its last thread reaches;
    /// None where that depends on a length.
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

    /// Nothing of it reaches a file or device.
    pub fn moves_nothing(&self) -> bool {
        self.nop || self.engine == Engine::Null
    }

    /// fio's `bs` of all directions.
    pub fn set_bs(&mut self, bytes: u64) {
        self.bs = std::array::from_fn(|_| BlockSizes::fixed(bytes));
    }

    /// The directions that the pattern has.
    pub fn directions(&self) -> impl Iterator<Item = Direction> + '_ {
        Direction::ALL.into_iter().filter(|direction| self.rw.has(*direction))
    }

    /// The largest block of any direction that it has.
    pub fn largest_block(&self) -> u64 {
        self.directions().map(|direction| self.bs[direction.index()].largest()).max().unwrap_or(0)
    }

    /// The smallest block of all directions, also of those that the pattern has not: what fio rounds percent to.
    pub fn smallest_of_all(&self) -> u64 {
        self.bs.iter().map(BlockSizes::smallest).min().unwrap_or(0).max(1)
    }

    /// As fio rounds a length in percent: down to whole blocks.
    pub fn whole_blocks(&self, bytes: u64) -> u64 {
        bytes - bytes % self.smallest_of_all()
    }

    /// The smallest one.
    pub fn smallest_block(&self) -> u64 {
        self.directions().map(|direction| self.bs[direction.index()].smallest()).min().unwrap_or(0)
    }
}
