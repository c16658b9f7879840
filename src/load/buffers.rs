//! Allocates the I/O buffers: page-aligned anonymous memory that is usable with O_DIRECT.

use std::fs;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use super::job::{Direction, Job};
use crate::refusal::{Refusal, reason};

/// Every buffer begins on a page, which satisfies the memory alignment of any device.
pub const PAGE: usize = 4096;

/// Size of a huge page. Smaller allocations gain nothing from huge pages.
const HUGE: usize = 2 << 20;

/// A private mapping that is populated at once, so that no page fault falls into the measurement.
#[derive(Debug)]
pub struct Buffers {
    base: NonNull<u8>,
    bytes: usize,
}

impl Buffers {
    /// `bytes` must be above 0.
    pub fn new(bytes: usize) -> io::Result<Self> {
        Self::map(bytes, libc::MAP_POPULATE)
    }

    /// Uses huge pages from 2 MiB on: fewer TLB and IOMMU entries, and fewer pages for the kernel to pin. The pages
    /// come from the given NUMA nodes as far as there is room, round-robin over several. Also returns what the kernel
    /// did not grant.
    pub fn on_nodes(bytes: usize, nodes: &[u32]) -> io::Result<(Self, Vec<String>)> {
        if let Some(made) = Self::reserved(bytes, nodes) {
            return Ok(made);
        }
        let memory = if bytes >= HUGE { Self::aligned(bytes)? } else { Self::map(bytes, 0)? };
        let mut missing: Vec<String> = memory.prefer(nodes).err().into_iter().collect();
        let is_placed = missing.is_empty();
        if bytes >= HUGE {
            // A kernel without transparent huge pages answers EINVAL, which the count below shows too.
            // SAFETY: advice about a mapping of our own.
            unsafe { libc::madvise(memory.base.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        memory.populate()?;
        missing.extend(is_placed.then(|| memory.strays(nodes)).flatten());
        if bytes >= HUGE {
            missing.extend(memory.small_pages());
        }
        Ok((memory, missing))
    }

    /// From the reserved pool of huge pages (hugetlb); None where the pool is too small.
    fn reserved(bytes: usize, nodes: &[u32]) -> Option<(Self, Vec<String>)> {
        if bytes < HUGE {
            return None;
        }
        let memory = Self::map(bytes.checked_next_multiple_of(HUGE)?, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB);
        let memory = memory.ok()?;
        let mut missing: Vec<String> = memory.prefer(nodes).err().into_iter().collect();
        let is_placed = missing.is_empty();
        // The pool may have pages only on nodes that this process may not use, and touching one would raise SIGBUS.
        // Kernels that cannot report that in advance (before 5.14) get normal pages.
        memory.populate_or_say().ok()?;
        missing.extend(is_placed.then(|| memory.strays(nodes)).flatten());
        Some((memory, missing))
    }

    fn map(bytes: usize, flags: libc::c_int) -> io::Result<Self> {
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("a mapping at address 0"))?;
        Ok(Self { base, bytes })
    }

    /// An unpopulated mapping that starts on a huge-page boundary.
    fn aligned(bytes: usize) -> io::Result<Self> {
        let whole = bytes.checked_next_multiple_of(PAGE).and_then(|bytes| bytes.checked_add(HUGE));
        let whole = Self::map(whole.ok_or(io::ErrorKind::OutOfMemory)?, 0)?;
        let begin = whole.base.as_ptr() as usize;
        let head = begin.next_multiple_of(HUGE) - begin;
        let kept = bytes.next_multiple_of(PAGE);
        let (start, length) = (whole.base.as_ptr(), whole.bytes);
        std::mem::forget(whole);
        // SAFETY: head, kept part and tail make up the mapping, to which nothing refers yet.
        let base = unsafe {
            if head > 0 {
                libc::munmap(start.cast(), head);
            }
            if length > head + kept {
                libc::munmap(start.add(head + kept).cast(), length - head - kept);
            }
            NonNull::new_unchecked(start.add(head))
        };
        Ok(Self { base, bytes: kept })
    }

    /// Populates all pages; EINVAL before Linux 5.14.
    fn populate_or_say(&self) -> io::Result<()> {
        loop {
            // SAFETY: advice about a mapping of our own.
            let done =
                unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, libc::MADV_POPULATE_WRITE) };
            match (done, io::Error::last_os_error()) {
                (0, _) => return Ok(()),
                (_, e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => {}
                (_, e) => return Err(e),
            }
        }
    }

    fn populate(&self) -> io::Result<()> {
        match self.populate_or_say() {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                for at in (0..self.bytes).step_by(PAGE) {
                    // SAFETY: inside the mapping, which holds zeroes and has no other user yet.
                    unsafe { self.base.as_ptr().add(at).write_volatile(0) };
                }
                Ok(())
            }
            told => told,
        }
    }

    /// Prefers pages of these nodes and falls back to others when they are full: with a strict binding to a full node
    /// the OOM killer would end processes. Several nodes are interleaved page by page. Without nodes no policy is set.
    fn prefer(&self, nodes: &[u32]) -> Result<(), String> {
        const NODES: usize = 1024;
        if nodes.is_empty() {
            return Ok(());
        }
        let mut mask = [0u64; NODES / 64];
        let failed = |e: &io::Error| {
            format!("buffers on {}: {}; they are near the thread that uses them", named(nodes), reason(e))
        };
        for node in nodes {
            let Some(word) = mask.get_mut(*node as usize / 64) else {
                return Err(failed(&io::Error::from_raw_os_error(libc::EINVAL)));
            };
            *word |= 1 << (node % 64);
        }
        let policy = if nodes.len() > 1 { libc::MPOL_INTERLEAVE } else { libc::MPOL_PREFERRED };
        // SAFETY: our own mapping, and a mask of as many bits as given: the kernel counts one less.
        let done = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.base.as_ptr(),
                self.bytes,
                policy,
                mask.as_ptr(),
                NODES + 1,
                0,
            )
        };
        if done == 0 { Ok(()) } else { Err(failed(&io::Error::last_os_error())) }
    }

    /// Describes the pages that are not on the requested nodes, if any.
    fn strays(&self, nodes: &[u32]) -> Option<String> {
        const BATCH: usize = 512;
        if nodes.is_empty() {
            return None;
        }
        let mut pages = [ptr::null_mut::<u8>(); BATCH];
        let mut on = [0 as libc::c_int; BATCH];
        let (mut stray, all) = (0, self.bytes.div_ceil(PAGE));
        for first in (0..all).step_by(BATCH) {
            let count = BATCH.min(all - first);
            for (at, page) in pages[..count].iter_mut().enumerate() {
                *page = self.base.as_ptr().wrapping_add((first + at) * PAGE);
            }
            // SAFETY: without a list of nodes nothing is moved: the kernel writes `count` numbers of nodes.
            let done = unsafe {
                let nowhere = ptr::null::<libc::c_int>();
                libc::syscall(libc::SYS_move_pages, 0, count, pages.as_ptr(), nowhere, on.as_mut_ptr(), 0)
            };
            if done != 0 {
                let why = reason(&io::Error::last_os_error());
                return Some(format!(
                    "buffers on {}: their placement could not be checked ({why})",
                    named(nodes)
                ));
            }
            let is_there = |on: &&libc::c_int| u32::try_from(**on).is_ok_and(|on| nodes.contains(&on));
            stray += count - on[..count].iter().filter(is_there).count();
        }
        (stray > 0).then(|| {
            format!("buffers on {}: {stray} of {all} pages are elsewhere, as there was no room", named(nodes))
        })
    }

    /// Why the buffer is not in transparent huge pages; None if it is.
    fn small_pages(&self) -> Option<String> {
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
        let huge = huge_bytes(&smaps, self.base.as_ptr() as usize, self.bytes);
        // Whole huge pages only: the tail is smaller than one.
        if huge >= self.bytes - self.bytes % HUGE {
            return None;
        }
        let switch = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
        let why = match switch.contains("[never]") || switch.is_empty() {
            true => "transparent ones are off",
            false => "memory is too fragmented for transparent ones",
        };
        Some(format!(
            "huge pages: too few are reserved (vm.nr_hugepages) and {why}: {huge} of {} bytes of buffers \
             are in huge pages",
            self.bytes
        ))
    }

    /// Start address. The kernel may write to the memory while I/O is in flight, which no Rust reference may allow, so
    /// the ring uses this address and never a slice.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The bytes, for synchronous I/O.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `bytes` long, initialised (zeroed by the kernel) and borrowed
        // exclusively through `self`.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: `base` and `bytes` are those of the mapping, and nothing refers to it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Bytes of a range that are in transparent huge pages, from the text of `/proc/self/smaps`.
fn huge_bytes(smaps: &str, begin: usize, bytes: usize) -> usize {
    let (mut inside, mut sum) = (false, 0);
    for line in smaps.lines() {
        let word = line.split_whitespace().next().unwrap_or_default();
        if let Some((from, to)) = word.split_once('-') {
            let address = |text| usize::from_str_radix(text, 16).unwrap_or(0);
            // The kernel merges adjacent mappings with equal attributes.
            inside = address(from) < begin + bytes && address(to) > begin;
        } else if inside && word == "AnonHugePages:" {
            let kib = line.split_whitespace().nth(1).and_then(|word| word.parse::<usize>().ok());
            sum += kib.unwrap_or(0) << 10;
        }
    }
    sum.min(bytes)
}

/// Names the nodes, for a sentence.
fn named(nodes: &[u32]) -> String {
    let list: Vec<String> = nodes.iter().map(u32::to_string).collect();
    format!("NUMA node{} {}", if nodes.len() > 1 { "s" } else { "" }, list.join(", "))
}

/// The buffers of an engine: one per slot, each on its own pages.
#[derive(Debug)]
pub struct Slots {
    memory: ManuallyDrop<Buffers>,
    depth: u32,
    stride: usize,
    kept: bool,
}

impl Slots {
    /// As many as the engine keeps in flight.
    pub fn depth_of(job: &Job) -> u32 {
        if job.engine.is_synchronous() { 1 } else { job.iodepth.max(1) }
    }

    /// Allocates room for the job's largest read or write in each slot (a trim moves no bytes), on the given nodes.
    /// Also returns which requested properties the memory does not have.
    pub fn new(job: &Job, nodes: &[u32]) -> Result<(Self, Vec<String>), Refusal> {
        let depth = Self::depth_of(job);
        let moves = job.directions().filter(|direction| *direction != Direction::Trim);
        let largest = moves.map(|direction| job.bs[direction.index()].largest()).max().unwrap_or(0).max(1);
        let stride = usize::try_from(largest).ok().and_then(|bytes| bytes.checked_next_multiple_of(PAGE));
        let bytes = stride.and_then(|stride| stride.checked_mul(depth as usize));
        let (Some(stride), Some(bytes)) = (stride, bytes) else {
            return Err(Refusal::Usage(format!(
                "{depth} buffers of {largest} bytes do not fit the address space: choose a smaller --bs or --iodepth"
            )));
        };
        let (memory, missing) = Buffers::on_nodes(bytes, nodes).map_err(|e| {
            Refusal::Refused(format!(
                "no memory for {bytes} bytes of buffers per job: {}; choose a smaller --bs or --iodepth",
                reason(&e)
            ))
        })?;
        Ok((Self { memory: ManuallyDrop::new(memory), depth, stride, kept: false }, missing))
    }

    /// Number of slots.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Bytes from one slot's buffer to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Address of the first buffer.
    pub fn base(&self) -> *mut u8 {
        self.memory.base()
    }

    /// Address of the slot's buffer.
    #[inline]
    pub fn at(&self, slot: u32) -> *mut u8 {
        assert!(slot < self.depth, "slot {slot} of {}", self.depth);
        // SAFETY: the slot is below the depth, so that its buffer lies inside the mapping.
        unsafe { self.memory.base().add(slot as usize * self.stride) }
    }

    /// Same as [`Self::at`], and checks that `bytes` fit.
    #[inline]
    pub fn room(&self, slot: u32, bytes: u32) -> *mut u8 {
        assert!(bytes as usize <= self.stride, "{bytes} bytes in a buffer of {}", self.stride);
        self.at(slot)
    }

    /// Keeps the buffers mapped until the process ends: operations may still be in flight, and the kernel could write
    /// to whatever is mapped at this address next.
    pub fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        if !self.kept {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{BlockSizes, Pattern, Target};

    fn job(rw: Pattern, bs: u64, iodepth: u32) -> Job {
        let mut job = Job { rw, iodepth, ..Job::new(Target::Existing("/dev/null".into())) };
        job.set_bs(bs);
        job
    }

    #[test]
    fn small_buffers_ask_for_no_huge_page_and_miss_none() {
        let (memory, missing) = Buffers::on_nodes(HUGE - PAGE, &[]).unwrap();
        assert_eq!((memory.bytes, missing), (HUGE - PAGE, Vec::new()));
    }

    #[test]
    fn large_buffers_lie_in_huge_pages_or_say_why_not() {
        let (mut memory, missing) = Buffers::on_nodes(3 * HUGE + PAGE, &[]).unwrap();
        assert_eq!(memory.base() as usize % HUGE, 0);
        let bytes = memory.as_mut_slice();
        assert!(bytes.len() > 3 * HUGE && bytes.iter().all(|byte| *byte == 0));
        bytes.fill(7);
        for why in missing {
            assert!(why.starts_with("huge pages: "), "{why}");
        }
    }

    #[test]
    fn huge_pages_count_inside_of_the_range_only() {
        let smaps = "10000000-10200000 rw-p 0 00:00 0\nRss: 2048 kB\nAnonHugePages:    2048 kB\n\
                     7f0000000000-7f0000600000 rw-p 0 00:00 0\nAnonHugePages:    4096 kB\n";
        assert_eq!(huge_bytes(smaps, 0x7f00_0000_0000, 3 * HUGE), 2 * HUGE);
        assert_eq!(huge_bytes(smaps, 0x1000_0000, HUGE), HUGE);
        assert_eq!(huge_bytes(smaps, 0x2000_0000, HUGE), 0);
        assert_eq!(huge_bytes("damaged-\nAnonHugePages:", 0, 1), 0);
    }

    #[test]
    fn buffers_on_a_node_lie_there_or_say_why_not() {
        let Ok(nodes) = fs::read_to_string("/sys/devices/system/node/has_memory") else {
            eprintln!("skipped: no NUMA in this kernel");
            return;
        };
        let node: u32 = nodes.split([',', '-', '\n']).next().unwrap().parse().unwrap();
        for bytes in [8 * PAGE, HUGE + PAGE] {
            let (memory, missing) = Buffers::on_nodes(bytes, &[node]).unwrap();
            if missing.iter().any(|why| why.contains("not permitted") || why.contains("not implemented")) {
                eprintln!("skipped: {missing:?}");
                return;
            }
            assert!(missing.iter().all(|why| why.starts_with("huge pages: ")), "{missing:?}");
            assert_eq!(memory.strays(&[node]), None);
            let elsewhere = memory.strays(&[node + 1]).unwrap();
            assert!(elsewhere.contains("pages are elsewhere"), "{elsewhere}");
        }
        // The kernel ignores nodes of the list that do not exist.
        let (memory, missing) = Buffers::on_nodes(8 * PAGE, &[node, 1023]).unwrap();
        assert!(missing.is_empty() && memory.strays(&[1023]).is_some(), "{missing:?}");
        for absent in [1023, 1024, u32::MAX] {
            let (_, missing) = Buffers::on_nodes(PAGE, &[absent]).unwrap();
            assert!(missing[0].starts_with(&format!("buffers on NUMA node {absent}: ")), "{missing:?}");
        }
    }

    #[test]
    fn each_slot_has_pages_for_the_largest_block_and_a_trim_needs_none() {
        let mut mixed = job(Pattern::TrimWrite, 5000, 3);
        mixed.bs[Direction::Trim.index()] = BlockSizes::fixed(1 << 40);
        let (slots, _) = Slots::new(&mixed, &[]).unwrap();
        assert_eq!((slots.depth(), slots.stride()), (3, 2 * PAGE));
        assert_eq!(slots.at(2) as usize - slots.base() as usize, 4 * PAGE);
        let sync = Job { engine: crate::load::Engine::Psync, ..mixed };
        assert_eq!(Slots::new(&sync, &[]).unwrap().0.depth(), 1);
        assert_eq!(Slots::new(&job(Pattern::Trim, 1 << 40, 2), &[]).unwrap().0.stride(), PAGE);
    }

    #[test]
    fn more_memory_than_there_can_be_is_refused() {
        let why = |bs| Slots::new(&job(Pattern::Read, bs, 1024), &[]).unwrap_err();
        assert!(matches!(why(u64::MAX), Refusal::Usage(_)));
        assert!(matches!(why(1 << 46), Refusal::Refused(_) | Refusal::Usage(_)));
    }
}
