//! fio's `io_uring_cmd`: sends NVMe commands through io_uring to a namespace's character device (`/dev/ng0n1`),
//! bypassing the block layer.
//!
//! Offsets must be multiples of the logical block: no lower layer rounds them. The drive has no short transfers. A
//! refused command returns an NVMe status, which is translated to the errno that the kernel's block layer uses for that
//! status.

use std::fs;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::path::Path;

use anyhow::Result;
use zerocopy::{Immutable, IntoBytes};

use super::super::buffers::{Buffers, Slots};
use super::super::direct::has_poll_queues;
use super::super::job::{Direction, Job};
use super::super::sequence::PlannedIo;
use super::sync::SyncResults;
use super::uring::Uring;
use super::uring::abi::{self, Entry, Head, Rest, Verb};
use super::{Engine, OpenTarget};
use crate::host::nvme::command::{
    COMMAND_BYTES, Command, IDENTIFY_BYTES, Queue, identify_namespace, namespace_of,
};
use crate::host::nvme::{self, NamespaceFormat};
use crate::refusal::{Refusal, reason};

/// Opcodes of the NVM command set ...
const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const DATASET_MANAGEMENT: u8 = 0x09;
/// ... and its attribute `AD`: the host does not need the ranges any more ...
const DEALLOCATE: u32 = 1 << 2;

/// Of linux/nvme_ioctl.h.
const NVME_URING_CMD_IO: u32 = 0xc048_4e80;

/// The maximum size of a ring.
const MAX_DEPTH: u32 = 32_768;
/// A registered buffer is at most 1 GiB.
const MAX_REGISTERED: usize = 1 << 30;
/// Size of a block range for dataset management.
const RANGE_BYTES: usize = 16;

/// A range of logical blocks for dataset management, in the drive's layout.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoBytes, Immutable)]
struct Range {
    attributes: u32,
    blocks: u32,
    first: u64,
}

const _: () = assert!(size_of::<Range>() == RANGE_BYTES);

/// A namespace of a drive, behind an open character device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    id: u32,
    /// log2 of the logical block size.
    shift: u32,
    blocks: u64,
}

impl Namespace {
    /// Reads the namespace id from the driver and the format from the drive. The refusal names the device.
    pub fn of(fd: RawFd) -> Result<Self, Refusal> {
        let name = device_name(fd);
        // SAFETY: zeroed is a valid stat, and the call only writes to it.
        let character = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            libc::fstat(fd, &raw mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFCHR
        };
        let Some(id) = character.then(|| namespace_of(fd).ok()).flatten() else {
            return Err(Refusal::Usage(format!(
                "{name} is not the character device of an NVMe namespace: give io_uring_cmd one like /dev/ng0n1, or \
                 use --ioengine io_uring"
            )));
        };
        let answer = identify_namespace(fd, id).map_err(|e| {
            Refusal::Refused(format!("{name} does not report its format: {}; run as root", reason(&e)))
        })?;
        let (shift, blocks) = format_of(&answer).map_err(|why| {
            Refusal::Refused(format!(
                "{name} cannot be read by NVMe commands: {why}; use --ioengine io_uring"
            ))
        })?;
        Ok(Self { id, shift, blocks })
    }

    /// Its size in bytes.
    #[cfg(test)]
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block())
    }

    /// Logical block size in bytes: offsets and lengths must be multiples of it.
    pub fn block(&self) -> u64 {
        1 << self.shift
    }

    /// First block and number of blocks; None where the range is not of whole blocks.
    fn blocks_of(&self, offset: u64, bytes: u32) -> Option<(u64, u32)> {
        let whole = (offset | u64::from(bytes)) & (self.block() - 1) == 0;
        (whole && bytes > 0).then(|| (offset >> self.shift, (u64::from(bytes) >> self.shift) as u32))
    }

    /// A read or write command; None where the range does not fit into one.
    fn transfer(&self, opcode: u8, offset: u64, bytes: u32, address: u64) -> Option<Command> {
        let (first, blocks) = self.blocks_of(offset, bytes)?;
        // The drive's count is 0-based.
        let blocks = u16::try_from(blocks - 1).ok()?;
        Some(Command {
            opcode,
            namespace: self.id,
            address,
            bytes,
            cdw10: first as u32,
            cdw11: (first >> 32) as u32,
            cdw12: blocks.into(),
            ..Command::default()
        })
    }

    fn trim(&self, address: u64) -> Command {
        Command {
            opcode: DATASET_MANAGEMENT,
            namespace: self.id,
            address,
            bytes: RANGE_BYTES as u32,
            // One range, 0-based count.
            cdw10: 0,
            cdw11: DEALLOCATE,
            ..Command::default()
        }
    }

    fn flush(&self) -> Command {
        Command { opcode: FLUSH, namespace: self.id, ..Command::default() }
    }
}

fn device_name(fd: RawFd) -> String {
    let path = fs::read_link(format!("/proc/self/fd/{fd}"));
    path.map_or_else(|_| "the target".to_string(), |path| path.display().to_string())
}

/// log2 of the logical block size, and the number of blocks, from the Identify Namespace data.
fn format_of(identify: &[u8; IDENTIFY_BYTES]) -> Result<(u32, u64), &'static str> {
    let blocks = identify[..8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    match nvme::format_of(identify) {
        Some(NamespaceFormat { metadata: 1.., .. }) => {
            Err("it is formatted with separate metadata for each block")
        }
        Some(NamespaceFormat { shift, .. }) if blocks > 0 => Ok((shift, blocks)),
        Some(_) => Err("the namespace is not active"),
        None => Err("it reports no valid logical block size"),
    }
}

/// Translates an NVMe status (code in the low eight bits, type in the next three) as the kernel's block layer does:
/// `nvme_error_status` and the error table of blk-core.
fn errno_of(status: i32) -> i32 {
    match status & 0x7ff {
        0x01 | 0x02 | 0x0b | 0x180 | 0x182 => libc::EOPNOTSUPP,
        0x81 => libc::ENOSPC,
        0x80 | 0x82 | 0x21 => libc::EREMOTEIO,
        0x83 => libc::EBADE,
        0x280 | 0x281 | 0x286 | 0x287 => libc::ENODATA,
        0x282..=0x284 | 0x181 => libc::EILSEQ,
        0x370 => libc::ENOLINK,
        0x1bd => libc::ETOOMANYREFS,
        0x1be => libc::EOVERFLOW,
        _ => libc::EIO,
    }
}

/// A ring with SQEs large enough for a command (SQE128) and CQEs for a drive's answer (CQE32).
type CommandRing = Uring<{ abi::COMMAND }, { abi::ANSWER }>;

/// Opens a ring with the best delivery that this kernel supports: in the worker's own call (6.1), at its next system
/// call (5.19), by an interrupt.
fn open(polled: bool, depth: u32) -> io::Result<CommandRing> {
    let mut last = io::Error::from_raw_os_error(libc::EINVAL);
    for delivery in [abi::SETUP_SINGLE_ISSUER | abi::SETUP_DEFER_TASKRUN, abi::SETUP_COOP_TASKRUN, 0] {
        let flags = if polled { delivery | abi::SETUP_IOPOLL } else { delivery };
        match CommandRing::new(depth, flags, 0) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => last = e,
            opened => return opened,
        }
    }
    Err(last)
}

/// NVMe commands, one per slot.
pub struct Commands {
    ring: CommandRing,
    slots: Slots,
    /// Block ranges of trims, read by the drives.
    ranges: ManuallyDrop<Buffers>,
    /// Slots per registered buffer; None: the memory is not registered.
    registered: Option<usize>,
    /// The index of a drive is also its index in the registered files, if they are registered.
    drives: Vec<(RawFd, Namespace)>,
    fixed_files: bool,
    polled: bool,
    /// Bytes that a slot's success transfers.
    asked: Vec<i32>,
    /// Queued and not reaped.
    outside: u32,
    done: SyncResults,
}

impl Commands {
    /// A ring of the job's depth on the calling thread, which must be the one that uses it, with buffers on the given
    /// nodes. The targets must stay open while it lives. It reads one block to find out what the kernel supports. Also
    /// returns requested features that are not available.
    pub fn new(job: &Job, places: &[OpenTarget], nodes: &[u32]) -> Result<(Self, Vec<String>)> {
        let (slots, mut missing) = Slots::new(job, nodes)?;
        if slots.depth() > MAX_DEPTH {
            return Err(Refusal::Usage(format!(
                "--iodepth {} is more than a ring has room for: {MAX_DEPTH} at most",
                slots.depth()
            ))
            .into());
        }
        let drives = places.iter().map(|place| Ok((place.fd, Namespace::of(place.fd)?)));
        let drives = drives.collect::<Result<Vec<_>>>()?;
        let mut polled = job.hipri;
        if let Some(fd) = drives.iter().map(|(fd, _)| *fd).find(|fd| polled && !has_queues_to_poll(*fd)) {
            polled = false;
            missing.push(format!(
                "hipri: {} has no poll queues (nvme.poll_queues); interrupts bring the completions",
                device_name(fd)
            ));
        }
        if job.sqthread_poll {
            missing.push("sqthread_poll: io_uring_cmd submits its commands itself".to_string());
        }
        let ranges = Buffers::new(slots.depth() as usize * RANGE_BYTES)
            .map_err(|e| Refusal::Refused(format!("no memory for the ranges to trim: {}", reason(&e))))?;
        let depth = slots.depth();
        let mut commands = Self {
            ring: open(polled, depth).map_err(|e| unavailable(&e))?,
            slots,
            ranges: ManuallyDrop::new(ranges),
            registered: None,
            drives,
            fixed_files: false,
            polled,
            asked: vec![0; depth as usize],
            outside: 0,
            done: SyncResults::new(depth),
        };
        if !commands.knows_commands() {
            return Err(too_old().into());
        }
        commands.register(job, &mut missing);
        commands.settle(job, &mut missing)?;
        // Since 5.18; without it every call looks up the ring's descriptor. The loss is too small to report.
        let _older_kernel = commands.ring.register_ring();
        Ok((commands, missing))
    }

    fn knows_commands(&self) -> bool {
        self.ring.has(abi::OP_URING_CMD)
    }

    /// Registers files and memory, as far as the job requests it and the kernel supports it.
    fn register(&mut self, job: &Job, missing: &mut Vec<String>) {
        if job.registerfiles && !self.fixed_files {
            let files: Vec<RawFd> = self.drives.iter().map(|(fd, _)| *fd).collect();
            match self.ring.register_files(&files) {
                Ok(()) => self.fixed_files = true,
                Err(e) => missing
                    .push(format!("registered file: {}; the kernel looks it up per operation", reason(&e))),
            }
        }
        if job.fixedbufs && self.registered.is_none() {
            let (stride, depth) = (self.slots.stride(), self.slots.depth() as usize);
            let per_buffer = (MAX_REGISTERED / stride).clamp(1, depth);
            let (piece, bytes) = (per_buffer * stride, depth * stride);
            let pieces = (0..bytes).step_by(piece).map(|begin| libc::iovec {
                iov_base: self.slots.base().wrapping_add(begin).cast(),
                iov_len: piece.min(bytes - begin),
            });
            // SAFETY: the pieces lie inside the mapping, which is unmapped only when nothing is in flight.
            match unsafe { self.ring.register_buffers(&pieces.collect::<Vec<_>>()) } {
                Ok(()) => self.registered = Some(per_buffer),
                Err(e) => {
                    let why = match e.raw_os_error() {
                        // EPERM is the answer of old kernels to an RLIMIT_MEMLOCK of 0.
                        Some(libc::ENOMEM | libc::EPERM) => {
                            format!(
                                "{bytes} bytes are above the limit of locked memory (RLIMIT_MEMLOCK, ulimit -l)"
                            )
                        }
                        _ => reason(&e),
                    };
                    missing
                        .push(format!("registered buffers: {why}; the kernel pins the pages per operation"));
                }
            }
        }
    }

    /// Reads one block to find out whether the kernel supports polling and registered buffers for commands.
    fn settle(&mut self, job: &Job, missing: &mut Vec<String>) -> Result<()> {
        let Some((_, drive)) = self.drives.first().copied() else { return Ok(()) };
        let piece = PlannedIo { direction: Direction::Read, file: 0, bytes: drive.block() as u32, offset: 0 };
        // A slot has room for at least 4 KiB; a larger logical block needs larger buffers.
        if piece.bytes as usize > self.slots.stride() {
            return Ok(());
        }
        loop {
            let mut told = 0;
            self.queue(0, &piece);
            while self.in_flight() > 0 {
                match self.enter(1, None) {
                    Err(e) if e.raw_os_error() != Some(libc::EINTR) => return Err(unavailable(&e).into()),
                    _ => {}
                }
                self.reap(|_, result| told = result);
            }
            match -told {
                libc::EINVAL | libc::EOPNOTSUPP if self.registered.is_some() => {
                    self.registered = None;
                    missing.push(
                        "registered buffers: this kernel has none for commands (Linux 6.1)".to_string(),
                    );
                }
                libc::EINVAL | libc::EOPNOTSUPP if self.polled => {
                    self.polled = false;
                    missing.push(
                        "hipri: this kernel cannot poll for commands (Linux 6.1); interrupts bring the completions"
                            .to_string(),
                    );
                    self.ring = open(false, self.slots.depth()).map_err(|e| unavailable(&e))?;
                    self.fixed_files = false;
                    // Perhaps only the combination failed: register again.
                    missing.retain(|why| !why.starts_with("registered "));
                    self.register(job, missing);
                }
                libc::EINVAL | libc::EOPNOTSUPP => return Err(too_old().into()),
                errno @ (libc::EACCES | libc::EPERM) => {
                    return Err(Refusal::Refused(format!(
                        "no right to send NVMe commands: {}; run as root",
                        reason(&io::Error::from_raw_os_error(errno))
                    ))
                    .into());
                }
                // The job's operations will report any other error.
                _ => return Ok(()),
            }
        }
    }

    #[inline]
    fn push(&mut self, slot: u32, file: u16, command: &Command, buffer: Option<u16>) {
        let verb = Verb { opcode: abi::OP_URING_CMD, ..Verb::default() };
        let verb = if self.fixed_files {
            Verb { flags: abi::SQE_FIXED_FILE, fd: file.into(), ..verb }
        } else {
            Verb { fd: self.drives[usize::from(file)].0, ..verb }
        };
        let rest = Rest {
            op_flags: if buffer.is_some() { abi::URING_CMD_FIXED } else { 0 },
            user_data: slot.into(),
            buffer: buffer.unwrap_or(0),
            ..Rest::default()
        };
        let head = Head { verb, offset: NVME_URING_CMD_IO.into(), rest };
        let mut more = [0; abi::COMMAND];
        more[..COMMAND_BYTES].copy_from_slice(command.as_bytes());
        // SAFETY: buffers, ranges and files outlive the operation: the memory stays mapped while anything is in flight,
        // and no reference to it exists.
        unsafe { self.ring.next().write(Entry { head, more }) };
        self.outside += 1;
    }
}

impl Engine for Commands {
    const IS_SYNCHRONOUS: bool = false;
    const SUBMITS_APART: bool = false;

    #[inline]
    fn queue(&mut self, slot: u32, piece: &PlannedIo) {
        let drive = self.drives[usize::from(piece.file)].1;
        let (command, buffer) = match piece.direction {
            Direction::Read | Direction::Write => {
                let opcode = if piece.direction == Direction::Write { WRITE } else { READ };
                let address = self.slots.room(slot, piece.bytes) as u64;
                let buffer = self.registered.map(|per_buffer| (slot as usize / per_buffer) as u16);
                (drive.transfer(opcode, piece.offset, piece.bytes, address), buffer)
            }
            Direction::Trim => {
                assert!(slot < self.slots.depth(), "slot {slot} of {}", self.slots.depth());
                let at = self.ranges.base().wrapping_add(slot as usize * RANGE_BYTES);
                let command = drive.blocks_of(piece.offset, piece.bytes).map(|(first, blocks)| {
                    let range = Range { attributes: 0, blocks: blocks.to_le(), first: first.to_le() };
                    // SAFETY: each slot has a range, aligned to 16, and no drive reads this one now.
                    unsafe { at.cast::<Range>().write(range) };
                    drive.trim(at as u64)
                });
                (command, None)
            }
        };
        match (command, i32::try_from(piece.bytes)) {
            (Some(command), Ok(bytes)) => {
                self.asked[slot as usize] = bytes;
                self.push(slot, piece.file, &command, buffer);
            }
            _ => self.done.push(slot, -libc::EINVAL),
        }
    }

    /// Flushes the whole drive, which does not know what belongs to a file.
    fn queue_sync(&mut self, slot: u32, file: u16, _data_only: bool) {
        let (fd, drive) = self.drives[usize::from(file)];
        let mut command = drive.flush();
        // Kernels before 6.4 poll on a command's data and misbehave where it has none (observed on 6.1; upstream
        // 9408d8a37e6c).
        if self.polled {
            // SAFETY: a flush moves no bytes.
            let told = match unsafe { command.send(fd, Queue::Io) } {
                Ok(0) => 0,
                Ok(status) => -errno_of(status as i32),
                Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
            };
            return self.done.push(slot, told);
        }
        self.asked[slot as usize] = 0;
        self.push(slot, file, &command, None);
    }

    #[inline]
    fn enter(&mut self, wait: u32, timeout_ns: Option<u64>) -> io::Result<u32> {
        let early = self.done.taken();
        if self.outside == 0 {
            return Ok(early);
        }
        let wait = wait.saturating_sub(self.done.len()).min(self.outside);
        let queued = self.ring.show();
        // Every kernel with uring commands supports wait timeouts.
        match self.ring.enter(queued, wait, abi::ENTER_GETEVENTS, timeout_ns) {
            Ok(taken) => Ok(early + taken.unwrap_or_else(|| queued - self.ring.queued())),
            // The error will recur at the next call; results that came at once must not be lost.
            Err(_) if early > 0 => Ok(early),
            Err(e) => Err(e),
        }
    }

    fn left(&self) -> u32 {
        self.ring.queued()
    }

    #[inline]
    fn reap(&mut self, mut found: impl FnMut(u32, i32)) -> u32 {
        let mut results = self.ring.results();
        let mut reaped = 0;
        for (slot, result) in &mut results {
            let told = match result {
                0 => self.asked[slot as usize],
                status @ 1.. => -errno_of(status),
                failed => failed,
            };
            found(slot as u32, told);
            reaped += 1;
        }
        results.end();
        self.outside -= reaped;
        reaped + self.done.reap(found)
    }

    fn in_flight(&self) -> u32 {
        self.outside + self.done.len()
    }

    fn buffer(&self, slot: u32) -> *mut u8 {
        self.slots.at(slot)
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        if self.outside > 0 {
            self.slots.keep();
        } else {
            // As in the other ring: otherwise the device stays busy for some milliseconds.
            let _late = self.ring.unregister_files();
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.ranges) };
        }
    }
}

/// Whether the driver has poll queues for this namespace; true where sysfs does not report it.
fn has_queues_to_poll(fd: RawFd) -> bool {
    // SAFETY: zeroed is a valid stat, and the call only writes to it.
    let number = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(fd, &raw mut stat);
        stat.st_rdev
    };
    let link = format!("/sys/dev/char/{}:{}", libc::major(number), libc::minor(number));
    let target = fs::read_link(link).unwrap_or_default();
    let disk = target.file_name().and_then(|name| name.to_str()).and_then(disk_of);
    disk.is_none_or(|disk| has_poll_queues(Path::new("/"), &disk))
}

/// The block device of the same namespace: `nvme0n1` for `ng0n1`.
fn disk_of(character: &str) -> Option<String> {
    character.strip_prefix("ng").map(|numbers| format!("nvme{numbers}"))
}

fn too_old() -> Refusal {
    Refusal::Refused(
        "this kernel takes no NVMe commands through io_uring: Linux 5.19 or newer is needed; use --ioengine io_uring \
         on the block device"
            .to_string(),
    )
}

fn unavailable(error: &io::Error) -> Refusal {
    match error.raw_os_error() {
        // The ring opened without the other flags before.
        Some(libc::EINVAL) => too_old(),
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => Refusal::Refused(format!(
            "io_uring cannot be used here: {}; see kernel.io_uring_disabled and the container's seccomp profile",
            reason(error)
        )),
        Some(libc::ENOMEM) => Refusal::Refused(
            "no memory for the io_uring queues: choose a smaller --iodepth or raise RLIMIT_MEMLOCK (ulimit -l)"
                .to_string(),
        ),
        _ => Refusal::Refused(format!("cannot set up io_uring: {}; see `biopsy check`", reason(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{self, BLOCK, Scratch, one};
    use super::*;
    use crate::load::job;

    const DRIVE: Namespace = Namespace { id: 0x11_2233, shift: 9, blocks: 1 << 40 };

    /// The non-zero bytes of a command, each with its offset.
    fn set(command: &Command) -> Vec<(usize, u8)> {
        command.as_bytes().iter().copied().enumerate().filter(|(_, byte)| *byte != 0).collect()
    }

    /// Offsets in `struct nvme_uring_cmd`: namespace at 4, address at 24, bytes at 36, CDW10 to CDW15 from 40 on.
    #[test]
    fn a_read_has_first_block_and_count_where_the_drive_looks_for_them() {
        let offset = 0x0102_0304_0506 << 9;
        let read = DRIVE.transfer(READ, offset, 4096, 0xa1a2_a3a4_a5a6_a000).unwrap();
        let namespace = [(4, 0x33), (5, 0x22), (6, 0x11)];
        let address = [(25, 0xa0), (26, 0xa6), (27, 0xa5), (28, 0xa4), (29, 0xa3), (30, 0xa2), (31, 0xa1)];
        let blocks = [(37, 0x10), (40, 6), (41, 5), (42, 4), (43, 3), (44, 2), (45, 1), (48, 7)];
        assert_eq!(set(&read), [&[(0, 2)], &namespace[..], &address, &blocks].concat());
        let write = DRIVE.transfer(WRITE, offset, 512, 0).unwrap();
        assert_eq!(set(&write)[0], (0, 1));
        assert_eq!(write.cdw12, 0, "one block is counted as none");
        assert_eq!(DRIVE.transfer(READ, 0, 65_536 * 512, 0).unwrap().cdw12, 0xffff);
    }

    #[test]
    fn what_no_command_can_do_is_none() {
        for (offset, bytes) in [(1, 512), (512, 511), (0, 0), (0, 65_537 * 512), (u64::MAX, 512)] {
            assert_eq!(DRIVE.transfer(READ, offset, bytes, 0), None, "{offset} {bytes}");
        }
        let coarse = Namespace { shift: 12, ..DRIVE };
        assert_eq!(coarse.transfer(READ, 512, 4096, 0), None);
        assert_eq!(coarse.transfer(READ, 8192, 8192, 0).map(|c| (c.cdw10, c.cdw12)), Some((2, 1)));
    }

    #[test]
    fn a_trim_deallocates_one_range_and_a_flush_is_of_the_namespace() {
        let trim = DRIVE.trim(0xb000);
        assert_eq!(set(&trim), [(0, 9), (4, 0x33), (5, 0x22), (6, 0x11), (25, 0xb0), (36, 16), (44, 4)]);
        assert_eq!(set(&DRIVE.flush()), [(4, 0x33), (5, 0x22), (6, 0x11)]);
        let range = Range { attributes: 0, blocks: 0x0102, first: 0x0304_0506_0708 };
        assert_eq!(range.as_bytes(), [0, 0, 0, 0, 2, 1, 0, 0, 8, 7, 6, 5, 4, 3, 0, 0]);
        assert_eq!(DRIVE.blocks_of(1 << 20, 3 << 20), Some((2048, 6144)));
    }

    #[test]
    fn the_format_is_the_one_in_use() {
        let mut answer = [0u8; IDENTIFY_BYTES];
        assert!(format_of(&answer).is_err());
        answer[..8].copy_from_slice(&0x0102_0304u64.to_le_bytes());
        // Format 0: 512 bytes; 2: 4096 bytes; 3: with eight bytes of metadata; 17: 4096 bytes.
        answer[128 + 2] = 9;
        answer[128 + 8 + 2] = 12;
        answer[128 + 12..][..4].copy_from_slice(&[8, 0, 9, 0]);
        answer[128 + 68 + 2] = 12;
        assert_eq!(format_of(&answer), Ok((9, 0x0102_0304)));
        for (flbas, format) in [(2, Some(12)), (0x12, Some(12)), (3, None), (1, None), (0x21, Some(12))] {
            answer[26] = flbas;
            assert_eq!(format_of(&answer).ok().map(|(shift, _)| shift), format, "{flbas:#x}");
        }
        answer[26] = 0;
        answer[..8].fill(0);
        assert!(format_of(&answer).unwrap_err().contains("not active"));
    }

    #[test]
    fn a_status_is_what_the_block_layer_makes_of_it() {
        // The Do Not Retry and More bits are set too.
        assert_eq!(errno_of(0x4000 | 0x2000 | 0x281), libc::ENODATA);
        assert_eq!(errno_of(0x80), libc::EREMOTEIO);
        assert_eq!(errno_of(0x06), libc::EIO);
    }

    #[test]
    fn what_is_no_namespace_is_refused() {
        assert_eq!(disk_of("ng10n2").as_deref(), Some("nvme10n2"));
        assert_eq!(disk_of("nvme0"), None);
        let file = Scratch::filled("command-file", BLOCK, 1);
        let null = fs::File::open("/dev/null").unwrap();
        for fd in [file.place().fd, std::os::fd::AsRawFd::as_raw_fd(&null), -1] {
            let Err(Refusal::Usage(why)) = Namespace::of(fd) else { panic!("no namespace") };
            assert!(why.contains("/dev/ng0n1"), "{why}");
        }
    }

    /// Runs on the namespace of a virtual machine that `BIOPSY_TEST_NAMESPACE` names; destroys all data on it.
    #[test]
    fn commands_reach_the_drive_of_a_virtual_machine() {
        let Ok(path) = std::env::var("BIOPSY_TEST_NAMESPACE") else {
            println!("skipped: no namespace to lose (BIOPSY_TEST_NAMESPACE)");
            return;
        };
        let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let place = OpenTarget { fd: std::os::fd::AsRawFd::as_raw_fd(&file), is_device: true };
        let namespace = Namespace::of(place.fd).unwrap();
        println!("{namespace:?}");
        for (hipri, registered, iodepth) in
            [(false, true, 64), (false, false, 64), (true, true, 16), (true, false, 16)]
        {
            let base = tests::job(job::Engine::IoUringCmd, iodepth);
            let job = Job { hipri, fixedbufs: registered, registerfiles: registered, ..base };
            let (mut engine, missing) = Commands::new(&job, &[place], &[]).unwrap();
            println!("hipri {hipri}, registered {registered}: {missing:?}");
            tests::writes_come_back(&mut engine, iodepth, 200);
            for data_only in [false, true] {
                engine.queue_sync(0, 0, data_only);
                assert_eq!(tests::only_result(&mut engine), 0);
            }
            assert_eq!(one(&mut engine, Direction::Trim, 0, 2 * BLOCK), 2 * BLOCK as i32);
            assert_eq!(one(&mut engine, Direction::Read, 0, BLOCK), BLOCK as i32);
            println!("a trimmed block begins with {}", {
                // SAFETY: nothing is in flight.
                unsafe { *engine.buffer(0) }
            });
            for direction in Direction::ALL {
                assert_eq!(one(&mut engine, direction, 1, BLOCK), -libc::EINVAL);
            }
            assert_eq!(one(&mut engine, Direction::Read, namespace.bytes(), BLOCK), -libc::EREMOTEIO);
        }
    }
}
