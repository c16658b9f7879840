//! Decodes on-CPU samples, and holds all samples of one interval.

use std::collections::HashMap;
use std::fmt;

use zerocopy::FromBytes;

use super::task_name;
use crate::host::mapped::MappedFiles;
use crate::names::names;

pub use super::records::{
    WireBudget, WireStackCounters as Counters, WireStackKey, WireStackSample as SampleHead, WireTaskStack,
};

/// The most frames per stack that the kernel side requests (`STACK_FRAMES`).
pub const MAX_FRAMES: usize = 127;

/// The task is a kernel thread.
pub const KTHREAD: u32 = 1;
/// The kernel stack could not be taken.
pub const KERNEL_FAILED: u32 = 2;
/// The user stack could not be taken.
pub const USER_FAILED: u32 = 4;
/// A workqueue worker: the name of its work is in place of the user frames.
pub const WORK: u32 = 8;

/// `WORK_FRAMES`.
const WORK_FRAMES: usize = 4;

impl WireTaskStack {
    /// The stack with its key, as a sample without a thread id.
    pub fn sample(&self, key: &WireStackKey) -> Sample {
        let kernel = (self.kernel_frames as usize).min(MAX_FRAMES);
        let user = (self.user_frames as usize).min(MAX_FRAMES);
        let (kernel, user) = self.ips[..kernel + user].split_at(kernel);
        Sample::new(key.pid, 0, key.flags, task_name(&self.comm), kernel, user)
    }
}

/// One sample without its period: samples that are equal in all fields are counted together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sample {
    /// Thread group; 0 is the idle task.
    pub pid: u32,
    pub tid: u32,
    pub cpu: u32,
    /// `KTHREAD`, `KERNEL_FAILED`, `USER_FAILED`, `WORK`.
    pub flags: u32,
    /// Up to the first zero byte. Any bytes: a process names itself.
    pub comm: [u8; 16],
    /// Kernel frames, then user frames, each leaf first.
    addresses: Box<[u64]>,
    kernel_frames: u16,
}

impl Sample {
    /// Creates a sample from its parts, for tests and for readers of other formats.
    pub fn new(pid: u32, tid: u32, flags: u32, comm: &[u8], kernel: &[u64], user: &[u64]) -> Self {
        let mut name = [0; 16];
        // The last byte stays zero, as in the kernel.
        let len = comm.len().min(15);
        name[..len].copy_from_slice(&comm[..len]);
        let kernel = &kernel[..kernel.len().min(MAX_FRAMES)];
        let user = &user[..user.len().min(MAX_FRAMES)];
        Self {
            pid,
            tid,
            cpu: 0,
            flags,
            comm: name,
            addresses: [kernel, user].concat().into(),
            kernel_frames: kernel.len() as u16,
        }
    }

    /// The same with other kernel addresses.
    pub fn with_kernel(&self, kernel: &[u64]) -> Self {
        let kernel = &kernel[..kernel.len().min(MAX_FRAMES)];
        Self {
            addresses: [kernel, self.rest()].concat().into(),
            kernel_frames: kernel.len() as u16,
            ..self.clone()
        }
    }

    /// The same with other user addresses.
    pub fn with_user(&self, user: &[u64]) -> Self {
        let user = &user[..user.len().min(MAX_FRAMES)];
        Self { addresses: [self.kernel(), user].concat().into(), ..self.clone() }
    }

    /// Kernel addresses, leaf first. Empty in user mode.
    pub fn kernel(&self) -> &[u64] {
        &self.addresses[..usize::from(self.kernel_frames)]
    }

    /// User addresses, leaf first.
    pub fn user(&self) -> &[u64] {
        if self.flags & WORK == 0 { self.rest() } else { &[] }
    }

    fn rest(&self) -> &[u64] {
        &self.addresses[usize::from(self.kernel_frames)..]
    }

    /// The work of a workqueue worker: the name of the workqueue, the disk if it is the block layer's own workqueue, or
    /// the description that the work set. Empty: the worker is idle; None: not such a worker. Drivers and file systems
    /// choose the name.
    pub fn work(&self) -> Option<Vec<u8>> {
        let words = self.rest().get(..WORK_FRAMES).filter(|_| self.flags & WORK != 0)?;
        let mut name: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
        Some(name)
    }

    /// Kernel addresses, leaf first, each inside the instruction that it belongs to.
    ///
    /// All but the leaf are return addresses: they point to the instruction *after* the call, which may belong to the
    /// next function, or to other inlined code. The frame that an interrupt cut off is shifted with them; that is wrong
    /// only at the very first byte of a function.
    pub fn kernel_lookups(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        lookups(self.kernel(), false)
    }

    /// Like `kernel_lookups`, for the user side: below a kernel stack even the leaf is a return address, that of the
    /// system call.
    pub fn user_lookups(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        lookups(self.user(), self.kernel_frames > 0)
    }

    /// The bytes of the thread's name.
    pub fn comm_bytes(&self) -> &[u8] {
        task_name(&self.comm)
    }

    /// A thread that the kernel created for the ring of the process.
    pub fn is_of_ring(&self) -> bool {
        is_of_ring(self.comm_bytes())
    }
}

fn lookups(ips: &[u64], leaf_returns: bool) -> impl DoubleEndedIterator<Item = u64> + '_ {
    ips.iter().enumerate().map(move |(i, &ip)| if i > 0 || leaf_returns { ip.saturating_sub(1) } else { ip })
}

/// A record that could not be decoded and was not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StackDamage {
    /// Shorter than the header.
    Short(usize),
    /// The header implies another length than the record has.
    Length { promised: usize, is: usize },
    /// More frames than the kernel side can take.
    Frames(u16),
}

impl fmt::Display for StackDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(len) => write!(f, "a stack sample of {len} bytes has no complete head"),
            Self::Length { promised, is } => {
                write!(f, "a stack sample promises {promised} bytes and has {is}")
            }
            Self::Frames(frames) => write!(f, "a stack sample claims {frames} frames"),
        }
    }
}

impl std::error::Error for StackDamage {}

/// Decodes one record of the ring buffer: the sample, and its period.
pub fn decode(bytes: &[u8]) -> Result<(Sample, u64), StackDamage> {
    let Ok((head, rest)) = SampleHead::read_from_prefix(bytes) else {
        return Err(StackDamage::Short(bytes.len()));
    };
    let (kernel, user) = (head.kernel_frames, head.user_frames);
    if usize::from(kernel.max(user)) > MAX_FRAMES {
        return Err(StackDamage::Frames(kernel.max(user)));
    }
    let promised = 8 * (usize::from(kernel) + usize::from(user));
    if rest.len() != promised {
        let head = size_of::<SampleHead>();
        return Err(StackDamage::Length { promised: head + promised, is: bytes.len() });
    }
    // `chunks_exact(8)` yields slices of 8 bytes, so the default is never taken.
    let word = |c: &[u8]| u64::from_ne_bytes(c.try_into().unwrap_or_default());
    let sample = Sample {
        pid: head.pid,
        tid: head.tid,
        cpu: head.cpu,
        flags: head.flags,
        comm: head.comm,
        addresses: rest.chunks_exact(8).map(word).collect(),
        kernel_frames: kernel,
    };
    Ok((sample, head.period))
}

/// How often one sample was seen, and its total weight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SampleTotal {
    pub samples: u64,
    /// Sum of the periods: nanoseconds with `cpu-clock`, cycles with `cycles`.
    pub period: u64,
}

names! {
    /// The source of samples.
    pub enum Sampler {
        /// The processor's cycle counter, by non-maskable interrupt. An idle CPU counts no cycles.
        Cycles = "cycles",
        /// A timer: it ticks on idle CPUs too, and cannot fire while interrupts are off.
        CpuClock = "cpu-clock",
    }
}

impl Sampler {
    /// What it cannot observe.
    pub fn note(self) -> Option<&'static str> {
        match self {
            Self::Cycles => None,
            Self::CpuClock => Some(
                "cpu-clock cannot sample with interrupts off: time in hard interrupts and irq-disabled \
                 spinlocks appears where interrupts are enabled again",
            ),
        }
    }
}

/// All samples of one interval; equal ones are counted together. Addresses are not symbolized yet.
#[derive(Debug, Clone, PartialEq)]
pub struct RawProfile {
    pub sampler: Sampler,
    /// Requested samples per second and CPU.
    pub frequency: u64,
    /// CPUs that were sampled.
    pub cpus: u32,
    /// From the first sampled CPU to the end of sampling.
    pub duration_ns: u64,
    /// Idle time of all CPUs in the interval, as the kernel accounts it.
    pub idle_ns: Option<u64>,
    pub samples: HashMap<Sample, SampleTotal>,
    /// Mappings of the sampled processes, read while they were running: they are needed to symbolize frames of
    /// processes that have exited since.
    pub maps: MappedFiles,
    /// Names of processes of which an io_uring worker was sampled: a worker's name differs from the process's, and the
    /// process's own threads may never have been on a CPU.
    pub leaders: HashMap<u32, Vec<u8>>,
    /// Samples that were not received: no room in the ring buffer, or damaged.
    pub lost: u64,
    /// Of `lost`: records that could not be decoded. Always 0, unless the two sides differ.
    pub damaged: u64,
    /// Memory of the maps and of the ring buffer.
    pub map_bytes: u64,
    /// Runs and run time of the program; run time only while the kernel's statistics were enabled.
    pub program_runs: u64,
    pub program_ns: u64,
}

/// Prefix of the names of io_uring workers that are threads of the process whose ring they serve (5.12).
pub const RING_WORKER: &[u8] = b"iou-wrk-";
/// Prefix of the name of the thread that submits what a process puts into its ring (IORING_SETUP_SQPOLL).
pub const RING_POLLER: &[u8] = b"iou-sqp-";

/// Whether a thread with this name was created by the kernel for its process's ring.
pub fn is_of_ring(comm: &[u8]) -> bool {
    comm.starts_with(RING_WORKER) || comm.starts_with(RING_POLLER)
}

impl RawProfile {
    /// Number of samples.
    pub fn seen(&self) -> u64 {
        self.samples.values().map(|t| t.samples).sum()
    }

    /// Samples that a timer makes in the interval if no tick is late or merged with another; None for `cycles`, whose
    /// rate depends on the load.
    pub fn expected(&self) -> Option<u64> {
        let seconds = self.duration_ns as f64 / 1e9;
        let ticks = self.frequency as f64 * f64::from(self.cpus) * seconds;
        (self.sampler == Sampler::CpuClock).then_some(ticks.round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A record as the kernel side writes it.
    fn record(kernel: &[u64], user: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in [10u32, 11, 3, KTHREAD] {
            bytes.extend(field.to_ne_bytes());
        }
        bytes.extend(2_004_008u64.to_ne_bytes());
        bytes.extend((kernel.len() as u16).to_ne_bytes());
        bytes.extend((user.len() as u16).to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(b"worker\0\xff\xff\xff\xff\xff\xff\xff\xff\xff");
        for ip in kernel.iter().chain(user) {
            bytes.extend(ip.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn a_record_gives_both_stacks() {
        let (sample, period) = decode(&record(&[1, 2], &[3])).unwrap();
        assert_eq!((sample.pid, sample.tid, sample.cpu, sample.flags), (10, 11, 3, KTHREAD));
        assert_eq!((sample.kernel(), sample.user(), period), (&[1, 2][..], &[3][..], 2_004_008));
        assert_eq!(sample.comm_bytes(), b"worker", "bytes behind the zero are leftovers");
    }

    #[test]
    fn damage_is_named() {
        assert_eq!(decode(&[]), Err(StackDamage::Short(0)));
        let good = record(&[1, 2], &[3]);
        let cut = &good[..good.len() - 1];
        assert_eq!(decode(cut), Err(StackDamage::Length { promised: 72, is: 71 }));
        assert_eq!(decode(&record(&[0; 128], &[])), Err(StackDamage::Frames(128)));
    }

    /// Return addresses are looked up inside the call; the interrupted instruction as it is.
    #[test]
    fn lookups_fall_into_the_calling_instruction() {
        let both = Sample::new(1, 1, 0, b"x", &[100, 200], &[300, 400]);
        assert_eq!(both.kernel_lookups().collect::<Vec<_>>(), [100, 199]);
        assert_eq!(both.user_lookups().collect::<Vec<_>>(), [299, 399]);
        let user = Sample::new(1, 1, 0, b"x", &[], &[300, 0]);
        assert_eq!(user.user_lookups().collect::<Vec<_>>(), [300, 0], "no wrap at zero");
    }

    proptest! {
        /// Arbitrary bytes after a valid header: the frame counts decide.
        #[test]
        fn any_frame_counts_never_panic(kernel: u16, user: u16, len in 0usize..2100) {
            let mut bytes = record(&[], &[]);
            bytes[24..26].copy_from_slice(&kernel.to_ne_bytes());
            bytes[26..28].copy_from_slice(&user.to_ne_bytes());
            bytes.resize(48 + len, 7);
            let fits = len == 8 * (usize::from(kernel) + usize::from(user)) && kernel.max(user) <= 127;
            prop_assert_eq!(decode(&bytes).is_ok(), fits);
        }
    }
}
