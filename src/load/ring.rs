//! One worker's io_uring: set-up with fallbacks, and the loop's primitives. The only io_uring unsafe.

use std::fs;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};

use anyhow::{Context, Result};
use io_uring::{CompletionQueue, EnterFlags, IoUring, SubmissionQueue, Submitter, opcode, types};

use super::buffers::{Buffers, PAGE};
use crate::refusal::{Refusal, reason};

/// A registered buffer is at most 1 GiB (since the first io_uring).
const MAX_REGISTERED: usize = 1 << 30;

/// How completions are delivered, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delivery {
    /// In the worker's own `io_uring_enter` and nowhere else; no interruption, no shared lists (6.1).
    Deferred,
    /// At the next system call instead of by an inter-processor interrupt (5.19).
    Cooperative,
    /// As in the first io_uring.
    Plain,
}

/// What this kernel can do; found once, used by every worker.
#[derive(Debug, Clone)]
pub struct Setup {
    delivery: Delivery,
    /// The submitter looks for completions in the device's poll queues, and no interrupt brings them.
    polled: bool,
    /// What was asked for and is not there.
    pub missing: Vec<String>,
}

impl Setup {
    /// Sets up a small ring and closes it.
    pub fn probe(polled: bool) -> Result<Self, Refusal> {
        let mut missing = Vec::new();
        let ladder = [
            (Delivery::Deferred, "SINGLE_ISSUER and DEFER_TASKRUN (Linux 6.1)"),
            (Delivery::Cooperative, "COOP_TASKRUN (Linux 5.19)"),
            (Delivery::Plain, ""),
        ];
        let mut last = io::Error::from_raw_os_error(libc::EINVAL);
        for (delivery, flags) in ladder {
            match open(delivery, polled, 1) {
                Ok(_) => return Ok(Self { delivery, polled, missing }),
                // EINVAL is how kernels answer flags that they do not know.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                    missing.push(format!("io_uring flags {flags}: this kernel does not know them"));
                    last = e;
                }
                Err(e) => return Err(unavailable(&e)),
            }
        }
        Err(unavailable(&last))
    }
}

/// A ring, the file that it reads and the memory that it reads into: one buffer per slot.
pub struct Ring {
    uring: IoUring,
    memory: ManuallyDrop<Buffers>,
    depth: u32,
    bs: u32,
    /// Bytes from one slot's buffer to the next.
    stride: usize,
    /// Slots per registered buffer; None: the memory is not registered.
    registered: Option<usize>,
    /// Index 0 of the registered files, or the descriptor itself.
    fixed_file: bool,
    fd: i32,
    in_flight: u32,
}

impl Ring {
    /// Sets up a ring of `depth` slots on the calling thread, which must be the one that drives it.
    /// The file must stay open while the ring lives. Also returns what could not be registered.
    pub fn new(setup: &Setup, file: BorrowedFd<'_>, depth: u32, bs: u32) -> Result<(Self, Vec<String>)> {
        let mut missing = Vec::new();
        let uring = open(setup.delivery, setup.polled, depth).map_err(|e| unavailable(&e))?;
        let stride = (bs as usize).next_multiple_of(PAGE);
        let bytes = stride.checked_mul(depth as usize).context("the buffers do not fit the address space")?;
        let memory = Buffers::new(bytes).map_err(|e| {
            Refusal::Refused(format!(
                "no memory for {bytes} bytes of buffers per job: {}; choose a smaller --bs or --iodepth",
                reason(&e)
            ))
        })?;
        let fixed_file = match uring.submitter().register_files(&[file.as_raw_fd()]) {
            Ok(()) => true,
            Err(e) => {
                missing
                    .push(format!("registered file: {}; the kernel looks it up per operation", reason(&e)));
                false
            }
        };
        let per_buffer = (MAX_REGISTERED / stride).clamp(1, depth as usize);
        let registered = match register_memory(&uring, &memory, per_buffer * stride, bytes) {
            Ok(()) => Some(per_buffer),
            Err(e) => {
                missing.push(not_registered(&e, bytes));
                None
            }
        };
        let ring = Self {
            uring,
            memory: ManuallyDrop::new(memory),
            depth,
            bs,
            stride,
            registered,
            fixed_file,
            fd: file.as_raw_fd(),
            in_flight: 0,
        };
        Ok((ring, missing))
    }

    /// Borrows the queues for the whole run, so that no operation looks them up again.
    pub fn session(&mut self) -> Session<'_> {
        let (mut submitter, submissions, completions) = self.uring.split();
        // 5.18; without it every call looks the ring's descriptor up. Too small a loss to be named.
        let _older_kernel = submitter.register_ring_fd();
        Session {
            submitter,
            submissions,
            completions,
            base: self.memory.base(),
            depth: self.depth,
            bs: self.bs,
            stride: self.stride,
            registered: self.registered,
            file: if self.fixed_file { Ok(types::Fixed(0)) } else { Err(types::Fd(self.fd)) },
            in_flight: &mut self.in_flight,
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // After a hard error operations may still be in flight. The kernel could write into whatever is
        // mapped at this address next, so the memory stays mapped until the process ends.
        if self.in_flight == 0 {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

/// The queues of a ring while it is driven.
pub struct Session<'a> {
    submitter: Submitter<'a>,
    submissions: SubmissionQueue<'a>,
    completions: CompletionQueue<'a>,
    base: *mut u8,
    depth: u32,
    bs: u32,
    stride: usize,
    registered: Option<usize>,
    file: Result<types::Fixed, types::Fd>,
    in_flight: &'a mut u32,
}

impl Session<'_> {
    /// Queues a read of one block into the slot's buffer. At most `depth` may be in flight.
    #[inline]
    pub fn queue(&mut self, slot: u32, offset: u64) {
        assert!(slot < self.depth, "slot {slot} of {}", self.depth);
        // SAFETY: the slot is below the depth, so that the buffer lies inside the mapping.
        let buffer = unsafe { self.base.add(slot as usize * self.stride) };
        let entry = match (self.registered, self.file) {
            (Some(per_buffer), Ok(file)) => {
                let index = (slot as usize / per_buffer) as u16;
                opcode::ReadFixed::new(file, buffer, self.bs, index).offset(offset).build()
            }
            (Some(per_buffer), Err(fd)) => {
                let index = (slot as usize / per_buffer) as u16;
                opcode::ReadFixed::new(fd, buffer, self.bs, index).offset(offset).build()
            }
            (None, Ok(file)) => opcode::Read::new(file, buffer, self.bs).offset(offset).build(),
            (None, Err(fd)) => opcode::Read::new(fd, buffer, self.bs).offset(offset).build(),
        };
        // SAFETY: buffer and file outlive the operation: the ring keeps the memory mapped while anything
        // is in flight, and nobody makes references to it.
        let pushed = unsafe { self.submissions.push(&entry.user_data(u64::from(slot))) };
        pushed.expect("the queue has room for `depth` operations and no more are in flight");
        *self.in_flight += 1;
    }

    /// Hands over what is queued and waits for at least one completion; one system call. Returns how
    /// many operations the kernel took.
    #[inline]
    pub fn enter(&mut self) -> io::Result<u32> {
        self.submissions.sync();
        let queued = self.submissions.len() as u32;
        let wait = u32::from(*self.in_flight > 0);
        // SAFETY: no argument is passed, and the counts are those of the queue.
        let taken = unsafe {
            self.submitter.enter::<libc::sigset_t>(queued, wait, EnterFlags::GETEVENTS.bits(), None)
        };
        self.submissions.sync();
        self.completions.sync();
        taken.map(|n| n as u32)
    }

    /// Calls `found` with slot and result (bytes or negative errno) of every completion that is there;
    /// returns their number.
    #[inline]
    pub fn reap(&mut self, mut found: impl FnMut(u32, i32)) -> u32 {
        let mut reaped = 0;
        for completion in &mut self.completions {
            found(completion.user_data() as u32, completion.result());
            reaped += 1;
        }
        *self.in_flight -= reaped;
        reaped
    }

    /// Operations that were queued and not reaped.
    pub fn in_flight(&self) -> u32 {
        *self.in_flight
    }
}

fn open(delivery: Delivery, polled: bool, depth: u32) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    if polled {
        builder.setup_iopoll();
    }
    match delivery {
        Delivery::Deferred => builder.setup_single_issuer().setup_defer_taskrun(),
        Delivery::Cooperative => builder.setup_coop_taskrun(),
        Delivery::Plain => &mut builder,
    }
    .build(depth)
}

/// Registers the memory in pieces of `piece` bytes: few large buffers, as each has its own table in
/// the kernel.
fn register_memory(uring: &IoUring, memory: &Buffers, piece: usize, bytes: usize) -> io::Result<()> {
    let pieces: Vec<libc::iovec> = (0..bytes)
        .step_by(piece)
        .map(|begin| libc::iovec {
            iov_base: memory.base().wrapping_add(begin).cast(),
            iov_len: piece.min(bytes - begin),
        })
        .collect();
    // SAFETY: the pieces lie inside the mapping, which is unmapped only when nothing is in flight.
    unsafe { uring.submitter().register_buffers(&pieces) }
}

fn not_registered(error: &io::Error, bytes: usize) -> String {
    let why = match error.raw_os_error() {
        // EPERM is how old kernels answer an RLIMIT_MEMLOCK of 0.
        Some(libc::ENOMEM | libc::EPERM) => {
            format!("{bytes} bytes are above the limit of locked memory (RLIMIT_MEMLOCK, ulimit -l)")
        }
        _ => reason(error),
    };
    format!("registered buffers: {why}; the kernel pins the pages per operation")
}

fn unavailable(error: &io::Error) -> Refusal {
    let switch = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    Refusal::Refused(match (error.raw_os_error(), switch.trim()) {
        (Some(libc::EPERM | libc::EACCES), value @ ("1" | "2")) => format!(
            "io_uring is disabled here (kernel.io_uring_disabled = {value}): set it to 0 with sysctl to drive a load"
        ),
        (Some(libc::EPERM | libc::EACCES), _) => {
            "io_uring is forbidden here, as in containers with a system call filter: run outside of it, or allow \
             io_uring_setup in its seccomp profile"
                .to_string()
        }
        (Some(libc::ENOSYS), _) => {
            "io_uring is not in this kernel or hidden by a system call filter: Linux 5.10 or newer is needed"
                .to_string()
        }
        (Some(libc::ENOMEM), _) => {
            "no memory for the io_uring queues: choose a smaller --iodepth or raise RLIMIT_MEMLOCK (ulimit -l)"
                .to_string()
        }
        (Some(libc::EMFILE | libc::ENFILE), _) => {
            "no file descriptors left for io_uring: choose fewer --numjobs or raise ulimit -n".to_string()
        }
        _ => format!("cannot set up io_uring: {}; see `biopsy check`", reason(error)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    /// Reads `count` blocks of this test's own executable with a ring of `depth`.
    fn read_all(delivery: Delivery, depth: u32, bs: u32, count: u32) -> Vec<i32> {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let setup = Setup { delivery, polled: false, missing: Vec::new() };
        let (mut ring, _) = Ring::new(&setup, file.as_fd(), depth, bs).unwrap();
        let mut session = ring.session();
        let (mut results, mut free, mut queued) = (Vec::new(), (0..depth).collect::<Vec<_>>(), 0);
        while queued < count || session.in_flight() > 0 {
            while queued < count {
                let Some(slot) = free.pop() else { break };
                session.queue(slot, u64::from(queued * bs));
                queued += 1;
            }
            session.enter().unwrap();
            let reaped = session.reap(|slot, result| {
                assert!(!free.contains(&slot), "slot {slot} came twice");
                free.push(slot);
                results.push(result);
            });
            assert!(reaped > 0);
        }
        results
    }

    #[test]
    fn every_delivery_brings_each_slot_back_once() {
        if Setup::probe(false).is_err() {
            eprintln!("skipped: no io_uring here");
            return;
        }
        for delivery in [Delivery::Deferred, Delivery::Cooperative, Delivery::Plain] {
            // A depth that is no power of two, as the kernel rounds its queues up.
            if open(delivery, false, 3).is_ok() {
                assert_eq!(read_all(delivery, 3, 4096, 10), [4096; 10], "{delivery:?}");
            }
        }
    }

    #[test]
    fn a_disabled_ring_is_told_from_a_missing_one() {
        let why = |errno| unavailable(&io::Error::from_raw_os_error(errno)).to_string();
        assert!(why(libc::ENOSYS).contains("not in this kernel"));
        assert!(why(libc::EPERM).contains("io_uring"));
        assert!(why(libc::ENOMEM).contains("--iodepth"));
    }
}
