//! Samples what is on a target before it is read: blocks that were never written, or were trimmed, are answered by the
//! drive or the file system without access to the media.
//!
//! It samples a few dozen blocks, spread over the area that the job will read. For a file, the file system reports
//! holes and unwritten extents; all other blocks are read with direct I/O. If the time limit ends the sampling early,
//! the blocks read so far are still spread over the whole area.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::buffers::{Buffers, PAGE};
use super::guard::GuardedTarget;
use super::random::{scramble, seeded};
use super::sequence::Region;
use crate::clock;

/// Number of sampled blocks.
const SAMPLES: u64 = 64;
/// Size of a sampled block, unless the target's logical block is larger.
const BLOCK: u64 = 4096;
/// Time limit, for slow devices.
const MOST_NS: u64 = 2_000_000_000;

/// How many of the blocks are what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockCounts {
    pub samples: u64,
    /// In holes of the file, and in extents that are allocated and not written: no I/O reads them.
    pub holes: u64,
    pub unwritten: u64,
    /// Read, and nothing but zeros.
    pub zeros: u64,
    /// That could not be read.
    pub unreadable: u64,
    /// That were not read: only the file system was asked.
    pub unread: u64,
}

impl BlockCounts {
    /// Blocks without content.
    pub fn empty(&self) -> u64 {
        self.holes + self.unwritten + self.zeros
    }

    /// Percentage of empty blocks among the readable ones; None where none was readable.
    pub fn empty_percent(&self) -> Option<f64> {
        let known = self.samples - self.unreadable;
        (known > 0).then(|| self.empty() as f64 * 100.0 / known as f64)
    }

    fn add(&mut self, block: Block) {
        self.samples += 1;
        match block {
            Block::Hole => self.holes += 1,
            Block::Unwritten => self.unwritten += 1,
            Block::Zeros => self.zeros += 1,
            Block::Content => {}
            Block::Unreadable => self.unreadable += 1,
            Block::Unread => self.unread += 1,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Hole,
    Unwritten,
    Zeros,
    Content,
    Unreadable,
    Unread,
}

/// Samples blocks of the regions, each given with its target. `direct`: the targets are read with direct I/O; otherwise
/// nothing is read, as that would fill the page cache.
pub fn sample(
    regions: &[(&GuardedTarget, Region)],
    direct: bool,
    stop: &AtomicBool,
) -> io::Result<BlockCounts> {
    let begin = clock::now_ns();
    let largest = regions.iter().map(|(_, region)| u64::from(region.block).max(BLOCK)).max().unwrap_or(BLOCK);
    let mut buffer = Buffers::new((largest as usize).next_multiple_of(PAGE))?;
    let lengths: Vec<u64> = regions.iter().map(|(_, region)| region.bytes).collect();
    let mut sampled = BlockCounts::default();
    for place in places(lengths.iter().fold(0, |all: u64, length| all.saturating_add(*length))) {
        if stop.load(Ordering::Relaxed) || clock::now_ns() - begin > MOST_NS {
            break;
        }
        let Some((at, offset)) = within(&lengths, place) else { continue };
        let (opened, region) = regions[at];
        let unit = u64::from(region.block).max(1);
        let bytes = BLOCK.max(unit).min(region.bytes);
        // Whole blocks of the region, including the last one.
        let offset = (offset - offset % unit).min((region.bytes - bytes) / unit * unit);
        let block = &mut buffer.as_mut_slice()[..bytes as usize];
        sampled.add(look(opened, region.begin + offset, block, direct));
    }
    Ok(sampled)
}

/// Offsets of the sampled blocks, in sampling order: one random offset in each of as many equal parts, the same ones
/// each time.
fn places(bytes: u64) -> Vec<u64> {
    let parts = SAMPLES.min(bytes.div_ceil(BLOCK));
    let anywhere = |part: u64| {
        let (begin, end) = (edge(bytes, part, parts), edge(bytes, part + 1, parts));
        begin + scramble(seeded(bytes, part as u32)) % (end - begin).max(1)
    };
    scattered(parts).map(anywhere).collect()
}

/// Each number below `count` once, ordered so that any prefix is spread over the range: a target filled from its start
/// would look full if only its front were sampled. The order is bit-reversed (van der Corput): the first 2^n of a power
/// of two are one in each of as many equal parts.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    let all = count.next_power_of_two();
    // For a count of 1 no bit is left.
    let reversed = move |number: u64| number.reverse_bits().checked_shr(all.leading_zeros() + 1).unwrap_or(0);
    (0..all).map(reversed).filter(move |number| *number < count)
}

fn edge(bytes: u64, part: u64, parts: u64) -> u64 {
    (u128::from(bytes) * u128::from(part) / u128::from(parts.max(1))) as u64
}

/// Finds the region that contains a position in the concatenated regions, and the offset within it.
fn within(lengths: &[u64], mut place: u64) -> Option<(usize, u64)> {
    for (at, length) in lengths.iter().enumerate() {
        if place < *length {
            return Some((at, place));
        }
        place -= length;
    }
    None
}

fn look(opened: &GuardedTarget, offset: u64, block: &mut [u8], direct: bool) -> Block {
    if !opened.is_device
        && let Some(empty) = without_data(&opened.file, offset, block.len() as u64)
    {
        return empty;
    }
    if !direct {
        return Block::Unread;
    }
    match opened.file.read_at(block, offset) {
        Ok(0) | Err(_) => Block::Unreadable,
        Ok(read) if block[..read].iter().all(|byte| *byte == 0) => Block::Zeros,
        Ok(_) => Block::Content,
    }
}

/// Asks the file system; None where it has data at the offset, or does not report it.
fn without_data(file: &File, offset: u64, bytes: u64) -> Option<Block> {
    let from = libc::off_t::try_from(offset).ok()?;
    // SAFETY: the descriptor is open, and the rest are plain numbers. It moves the file position, which is not used:
    // all reads and writes give their offset.
    let data = unsafe { libc::lseek(file.as_raw_fd(), from, libc::SEEK_DATA) };
    let is_empty = match u64::try_from(data) {
        Ok(data) => data >= offset + bytes,
        // No data up to the end of the file.
        Err(_) => io::Error::last_os_error().raw_os_error() == Some(libc::ENXIO),
    };
    is_empty.then(|| if is_allocated(file, offset) { Block::Unwritten } else { Block::Hole })
}

/// `struct fiemap` of linux/fiemap.h with room for one `struct fiemap_extent`.
#[repr(C)]
#[derive(Debug, Default)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extent: FiemapExtent,
}

#[repr(C)]
#[derive(Debug, Default)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

const _: () = assert!(size_of::<Map>() == 32 + 56);

/// `FS_IOC_FIEMAP` of linux/fs.h.
const FS_IOC_FIEMAP: libc::Ioctl = 0xc020_660b;

/// Whether an extent is allocated at an offset without data; false where the file system has no FIEMAP.
fn is_allocated(file: &File, offset: u64) -> bool {
    let mut map = Map { start: offset, length: 1, room: 1, ..Map::default() };
    // SAFETY: the kernel reads and writes the header, and writes at most as many extents as `room` says.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut map) };
    done == 0 && map.mapped > 0 && map.extent.logical <= offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_spread_over_all_of_it_and_are_the_same_each_time() {
        let bytes = 1_000_204_886_016;
        let all = places(bytes);
        assert_eq!((all.len(), &all), (64, &places(bytes)));
        let parts = |number: usize, of: u128| {
            let mut parts: Vec<u128> =
                all[..number].iter().map(|place| u128::from(*place) * of / u128::from(bytes)).collect();
            parts.sort_unstable();
            parts
        };
        assert_eq!(parts(64, 64), (0..64).collect::<Vec<_>>());
        // However early the sampling ends.
        for number in [2, 4, 8, 16, 32] {
            assert_eq!(parts(number, number as u128), (0..number as u128).collect::<Vec<_>>());
        }
        assert_eq!(places(4096).len(), 1);
        assert!(places(0).is_empty());
        assert_eq!(places(40 << 10).len(), 10, "a small area has fewer");
    }

    #[test]
    fn the_order_has_each_place_once_and_none_in_a_corner() {
        assert_eq!(scattered(8).collect::<Vec<_>>(), [0, 4, 2, 6, 1, 5, 3, 7]);
        assert_eq!(scattered(5).collect::<Vec<_>>(), [0, 4, 2, 1, 3]);
        for count in 0..=SAMPLES {
            let mut all: Vec<u64> = scattered(count).collect();
            let far = all.iter().take(2).max().copied();
            assert!(count < 2 || far >= Some(count / 2), "{count}: {far:?}");
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_place_is_in_one_region() {
        assert_eq!(within(&[10, 5], 9), Some((0, 9)));
        assert_eq!(within(&[10, 5], 10), Some((1, 0)));
        assert_eq!(within(&[10, 5], 15), None);
    }

    #[test]
    fn empty_blocks_are_those_without_content() {
        let mut sampled = BlockCounts::default();
        assert_eq!(sampled.empty_percent(), None);
        for block in
            [Block::Hole, Block::Unwritten, Block::Zeros, Block::Content, Block::Unreadable, Block::Unread]
        {
            sampled.add(block);
        }
        assert_eq!((sampled.samples, sampled.empty(), sampled.empty_percent()), (6, 3, Some(60.0)));
    }
}
