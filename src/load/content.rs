//! Generates the content of writes and verifies it after reading back. Pure.
//!
//! For verify, a block holds its offset and a checksum, then bytes derived from the offset and the run. All content
//! depends on these two alone. So a block has the same content whichever thread writes it last, even where blocks of
//! several sizes overlap.

use std::fmt;

use super::job::Job;
use super::random::{scramble, scribble, seeded};
use super::sequence::grain;

/// First bytes of a header; the last byte is the layout version.
const MAGIC: [u8; 8] = *b"biopsy\0\x01";

/// Little-endian: magic (8 bytes), offset (8), run (8), length (4), CRC-32 of the rest of the block (4).
const HEADER: usize = 32;
/// Offset of the checksum.
const CHECKSUM: usize = 28;

/// Content of the writes of one thread.
#[derive(Debug, Clone)]
pub struct Content {
    kind: ContentKind,
    /// State of the random generator.
    state: u64,
    run: u64,
    /// Size of a block that has a header: all sizes and offsets of the job are multiples of it. It is the job's
    /// smallest size where that divides the others.
    block: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContentKind {
    /// A buffer keeps its bytes except for a few in each sector.
    Kept,
    Refilled,
    Verified,
}

/// How a block differs from what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mismatch {
    /// The block has no header of this tool. `zeros`: it was never written, or was trimmed after that.
    Foreign { offset: u64, zeros: bool },
    /// An intact block that belongs to another offset.
    Misplaced { offset: u64, found: u64 },
    /// An intact block of another run.
    Stale { offset: u64, run: u64, found: u64 },
    /// An intact block of another length.
    Resized { offset: u64, bytes: u32, found: u32 },
    /// Position of the first differing byte within the block.
    Differs { offset: u64, position: u32 },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign { offset, zeros: true } => {
                write!(f, "the block at offset {offset} has only zeros: the written data is gone")
            }
            Self::Foreign { offset, zeros: false } => {
                write!(
                    f,
                    "the block at offset {offset} was not written by this load: it lacks the load's \
                    header"
                )
            }
            Self::Misplaced { offset, found } => {
                write!(f, "the block at offset {offset} was written for another offset, {found}")
            }
            Self::Stale { offset, run, found } => write!(
                f,
                "the block at offset {offset} is from an earlier run: {found:#018x}, not {run:#018x}"
            ),
            Self::Resized { offset, bytes, found } => {
                write!(f, "the block at offset {offset} was written as one of {found} bytes, not {bytes}")
            }
            Self::Differs { offset, position } => write!(
                f,
                "the block at offset {offset} differs from the written data from its byte {position} on"
            ),
        }
    }
}

impl Content {
    pub fn new(job: &Job, number: u32) -> Self {
        let kind = match (job.verify, job.refill_buffers) {
            (true, _) => ContentKind::Verified,
            (false, true) => ContentKind::Refilled,
            (false, false) => ContentKind::Kept,
        };
        let block = grain(job.directions().map(|direction| &job.bs[direction.index()]));
        Self {
            kind,
            // Inverted, so that the sequence differs from that of the offsets.
            state: scramble(!seeded(job.seed, number)),
            run: scramble(job.seed),
            block: usize::try_from(block).unwrap_or(usize::MAX),
        }
    }

    /// Sets the run id, the same in all threads: so blocks of an earlier run with the same seed are not mistaken for
    /// blocks of this run.
    pub fn of_run(self, run: u64) -> Self {
        Self { run, ..self }
    }

    /// Fills a buffer before its first write, with bytes that no drive can compress or deduplicate.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        scribble(bytes, &mut self.state);
    }

    /// Sets the content for a write at `offset`, which is the start of one of the job's blocks.
    #[inline]
    pub fn write(&mut self, bytes: &mut [u8], offset: u64) {
        match self.kind {
            ContentKind::Kept => self.scramble(bytes, offset),
            ContentKind::Refilled => self.fill(bytes),
            ContentKind::Verified => {
                for (block, offset) in bytes.chunks_mut(self.block).zip(self.offsets(offset)) {
                    self.seal(block, offset);
                }
            }
        }
    }

    /// Changes a few bytes of each sector, so that no two sectors are alike and none is as before. This defeats
    /// deduplication at little cost.
    #[inline]
    fn scramble(&mut self, bytes: &mut [u8], offset: u64) {
        /// No sector is smaller.
        const SECTOR: usize = 512;
        self.state = self.state.wrapping_add(1);
        for (sector, place) in bytes.chunks_exact_mut(SECTOR).zip((offset / SECTOR as u64)..) {
            if let Some(mark) = sector.first_chunk_mut::<16>() {
                let (which, when) = mark.split_at_mut(8);
                which.copy_from_slice(&place.to_le_bytes());
                when.copy_from_slice(&self.state.to_le_bytes());
            }
        }
    }

    /// Checks what was read: returns the first block that is wrong. Without verify every block passes.
    pub fn check(&self, bytes: &[u8], offset: u64) -> Result<(), Mismatch> {
        if self.kind != ContentKind::Verified {
            return Ok(());
        }
        let mut blocks = bytes.chunks(self.block).zip(self.offsets(offset));
        blocks.try_for_each(|(block, offset)| self.check_block(block, offset))
    }

    /// Offsets of the blocks from `first` on.
    fn offsets(&self, first: u64) -> impl Iterator<Item = u64> + use<> {
        let block = self.block as u64;
        std::iter::successors(Some(first), move |offset| offset.checked_add(block))
    }

    fn seal(&self, block: &mut [u8], offset: u64) {
        let mut state = scramble(self.run ^ scramble(offset));
        let length = u32::try_from(block.len()).unwrap_or(u32::MAX);
        // A block too small for a header has the pattern only.
        let Some((header, body)) = block.split_at_mut_checked(HEADER) else {
            return scribble(block, &mut state);
        };
        scribble(body, &mut state);
        header[..8].copy_from_slice(&MAGIC);
        header[8..16].copy_from_slice(&offset.to_le_bytes());
        header[16..24].copy_from_slice(&self.run.to_le_bytes());
        header[24..CHECKSUM].copy_from_slice(&length.to_le_bytes());
        let sum = checksum(block);
        block[CHECKSUM..HEADER].copy_from_slice(&sum.to_le_bytes());
    }

    fn check_block(&self, block: &[u8], offset: u64) -> Result<(), Mismatch> {
        let bytes = u32::try_from(block.len()).unwrap_or(u32::MAX);
        let Some(header) = Header::of(block) else {
            return self.compare(block, offset);
        };
        if header.magic != MAGIC {
            return Err(Mismatch::Foreign { offset, zeros: block.iter().all(|byte| *byte == 0) });
        }
        // The fields of a header count only if the checksum matches.
        let is_intact = (HEADER..=block.len()).contains(&(header.length as usize))
            && checksum(&block[..header.length as usize]) == header.checksum;
        if !is_intact {
            // The checksum does not match, so some byte differs.
            return self.compare(block, offset);
        }
        if header.offset != offset {
            return Err(Mismatch::Misplaced { offset, found: header.offset });
        }
        if header.run != self.run {
            return Err(Mismatch::Stale { offset, run: self.run, found: header.run });
        }
        if header.length != bytes {
            return Err(Mismatch::Resized { offset, bytes, found: header.length });
        }
        Ok(())
    }

    /// Compares each byte with what was written.
    fn compare(&self, block: &[u8], offset: u64) -> Result<(), Mismatch> {
        let mut written = vec![0; block.len()];
        self.seal(&mut written, offset);
        match block.iter().zip(&written).position(|(found, written)| found != written) {
            Some(position) => {
                Err(Mismatch::Differs { offset, position: u32::try_from(position).unwrap_or(u32::MAX) })
            }
            None => Ok(()),
        }
    }
}

struct Header {
    magic: [u8; 8],
    offset: u64,
    run: u64,
    length: u32,
    checksum: u32,
}

impl Header {
    /// None: the block is too small for a header.
    fn of(block: &[u8]) -> Option<Self> {
        let (magic, rest) = block.split_first_chunk::<8>()?;
        let (offset, rest) = rest.split_first_chunk::<8>()?;
        let (run, rest) = rest.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (checksum, _) = rest.split_first_chunk::<4>()?;
        Some(Self {
            magic: *magic,
            offset: u64::from_le_bytes(*offset),
            run: u64::from_le_bytes(*run),
            length: u32::from_le_bytes(*length),
            checksum: u32::from_le_bytes(*checksum),
        })
    }
}

/// CRC-32 (IEEE 802.3) of a block with a header, without the checksum itself.
fn checksum(block: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&block[..CHECKSUM]);
    crc.update(&block[HEADER..]);
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::job::{BlockShare, BlockSizes, Direction, Pattern, Target};
    use super::*;

    fn job(bs: u64) -> Job {
        let mut job = Job { rw: Pattern::Write, verify: true, ..Job::new(Target::Existing("x".into())) };
        job.set_bs(bs);
        job
    }

    fn written(content: &mut Content, bytes: usize, offset: u64) -> Vec<u8> {
        let mut block = vec![0; bytes];
        content.write(&mut block, offset);
        block
    }

    proptest! {
        #[test]
        fn any_changed_byte_is_found(
            unit in 1usize..1500, blocks in 1usize..4, offset in 0u64..1 << 60, at: prop::sample::Index, change in 1u8..
        ) {
            let mut content = Content::new(&job(unit as u64), 0);
            let mut bytes = written(&mut content, unit * blocks, offset);
            prop_assert_eq!(content.check(&bytes, offset), Ok(()));
            let at = at.index(bytes.len());
            bytes[at] ^= change;
            let (block, position) = (offset + (at / unit * unit) as u64, (at % unit) as u32);
            let found = content.check(&bytes, offset).unwrap_err();
            if unit >= HEADER && position < 8 {
                prop_assert_eq!(found, Mismatch::Foreign { offset: block, zeros: false });
            } else {
                prop_assert_eq!(found, Mismatch::Differs { offset: block, position });
            }
        }

        #[test]
        fn anything_else_in_the_place_of_a_block_is_found(
            bytes in prop::collection::vec(any::<u8>(), HEADER..200), offset in 0u64..1 << 60
        ) {
            prop_assert!(Content::new(&job(bytes.len() as u64), 0).check(&bytes, offset).is_err());
        }

        #[test]
        fn a_block_of_another_place_is_named(offset in 0u64..1 << 60, found in 0u64..1 << 60) {
            prop_assume!(offset != found);
            let mut content = Content::new(&job(512), 0);
            let bytes = written(&mut content, 512, found);
            prop_assert_eq!(content.check(&bytes, offset), Err(Mismatch::Misplaced { offset, found }));
        }
    }

    #[test]
    fn a_block_of_an_earlier_run_is_named() {
        let mut earlier = Content::new(&job(4096), 0).of_run(1);
        let block = written(&mut earlier, 4096, 8192);
        let found = Content::new(&job(4096), 0).of_run(2).check(&block, 8192);
        assert_eq!(found, Err(Mismatch::Stale { offset: 8192, run: 2, found: 1 }));
        let seed = Job { seed: 99, ..job(4096) };
        assert!(matches!(Content::new(&seed, 0).check(&block, 8192), Err(Mismatch::Stale { .. })));
    }

    #[test]
    fn what_is_gone_or_torn_or_of_another_length_is_named() {
        let mut content = Content::new(&job(4096), 0);
        let zeros = content.check(&[0; 4096], 0).unwrap_err();
        assert_eq!(zeros, Mismatch::Foreign { offset: 0, zeros: true });
        assert!(zeros.to_string().contains("only zeros"));

        let mut torn = written(&mut content, 4096, 0);
        let old = written(&mut content.clone().of_run(7), 4096, 0);
        torn[512..].copy_from_slice(&old[512..]);
        assert_eq!(content.check(&torn, 0), Err(Mismatch::Differs { offset: 0, position: 512 }));

        let small = written(&mut Content::new(&job(512), 0), 4096, 0);
        assert_eq!(content.check(&small, 0), Err(Mismatch::Resized { offset: 0, bytes: 4096, found: 512 }));
    }

    #[test]
    fn blocks_of_several_sizes_and_threads_agree() {
        let mut split = job(4096);
        split.rw = Pattern::RandReadWrite;
        let share = |bytes| BlockShare { low: bytes, high: bytes, percent: 50.0 };
        split.bs[Direction::Write.index()] = BlockSizes(vec![share(4096), share(6144)]);
        let (mut first, mut second) = (Content::new(&split, 0), Content::new(&split, 1));
        let mut target = vec![0; 65_536];
        first.write(&mut target[2048..8192], 2048);
        second.write(&mut target[..4096], 0);
        first.write(&mut target[6144..12_288], 6144);
        assert_eq!(second.check(&target[..12_288], 0), Ok(()));
        assert_eq!(
            first.check(&target[..14_336], 0).unwrap_err(),
            Mismatch::Foreign { offset: 12_288, zeros: true }
        );
    }

    #[test]
    fn buffers_keep_their_bytes_but_no_two_sectors_are_alike() {
        let plain = Job { verify: false, ..job(4096) };
        let mut kept = Content::new(&plain, 0);
        let mut buffer = [0; 4096];
        kept.fill(&mut buffer);
        let before = buffer;
        kept.write(&mut buffer, 0);
        let first = buffer;
        kept.write(&mut buffer, 0);
        let sectors = |bytes: &[u8; 4096]| bytes.chunks(512).map(<[u8]>::to_vec).collect::<Vec<_>>();
        let all: std::collections::BTreeSet<_> =
            [sectors(&first), sectors(&buffer)].concat().into_iter().collect();
        assert_eq!(all.len(), 16, "each of two writes of eight sectors");
        let same = before.iter().zip(&buffer).filter(|(a, b)| a == b).count();
        assert!(same >= 4096 - 8 * 16, "{same}");
        assert_eq!(kept.check(&[0; 4096], 0), Ok(()));

        let refill = Job { refill_buffers: true, ..plain };
        let mut first = Content::new(&refill, 0);
        let (one, two) = (written(&mut first, 4096, 0), written(&mut first, 4096, 0));
        assert_ne!(one, two, "new each time");
        assert_ne!(one, written(&mut Content::new(&refill, 1), 4096, 0), "threads differ");
        let mut counts = [0u32; 256];
        one.iter().chain(&two).for_each(|byte| counts[usize::from(*byte)] += 1);
        // 32 of each byte expected, standard deviation 5.7.
        assert!(counts.iter().all(|n| (4..80).contains(n)), "{counts:?}");
    }
}
