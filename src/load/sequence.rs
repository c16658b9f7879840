//! Generates the sequence of a thread's I/Os. Pure: the same job, seed and thread number give the same order.
//!
//! The plain case has one target, one direction and one size, with sequential blocks, random ones, or random ones once
//! each. There an I/O costs a few instructions. [`Turns`] handles everything else.
//!
//! As in fio:
//!
//! - Reads and writes of `rw` have separate positions.
//! - `size` limits the sum of both; a block that is trimmed and then written counts once.
//! - A whole I/O reaches `io_size`, and also `size` where the order does not cover the region.
//! - With `io_size`, less than the largest block may be left undone after a pass over all targets.
//! - A distribution other than the uniform one does not cover the region.
//!
//! Random offsets are multiples of the direction's smallest block, counted from the start of the region. Where
//! [`coverage::Tiles`] are used, they are multiples of the greatest common divisor of the sizes. Unlike in fio, an I/O
//! is never shortened to cover the region: blocks of several sizes are fitted together instead. Where their shares
//! leave a rest, it is not covered.

mod coverage;
mod distribution;
mod region;
mod sizes;
mod turns;

use super::job::{BlockSizes, Direction, Distribution, Extent, Job};
use super::random::{below, seeded};
use coverage::Passes;
use turns::Turns;

pub use region::{Region, RegionTarget, cut, region};
pub use sizes::grain;

/// One I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlannedIo {
    pub direction: Direction,
    /// Index of the target in the job.
    pub file: u16,
    pub bytes: u32,
    /// From the start of the target.
    pub offset: u64,
}

/// The sequence of I/Os of one thread.
#[derive(Debug, Clone)]
pub struct Sequence {
    order: Order,
    handed: u64,
    /// Number of I/Os; `u64::MAX`: unlimited.
    end: u64,
    /// The remaining fields are for the plain orders.
    direction: Direction,
    file: u16,
    bytes: u32,
    begin: u64,
    blocks: u64,
}

#[derive(Debug, Clone)]
enum Order {
    /// The next block.
    Sequential(u64),
    /// State of the random generator.
    Random(u64),
    Covered(Box<Passes>),
    Turns(Box<Turns>),
}

impl Sequence {
    /// The sequence of thread `number` among `job.numjobs`; `regions` has one per target of the job.
    pub fn new(job: &Job, regions: &[Region], number: u32) -> Self {
        let sequence = plain(job, regions, number).unwrap_or_else(|| Self {
            order: Order::Turns(Box::new(Turns::new(job, regions, number))),
            handed: 0,
            end: u64::MAX,
            direction: Direction::Read,
            file: 0,
            bytes: 0,
            begin: 0,
            blocks: 0,
        });
        let most = number_ios(job).filter(|_| job.ramp_time.is_zero()).unwrap_or(u64::MAX);
        // [`Turns`] counts its own I/Os.
        let most = if let Order::Turns(_) = sequence.order { u64::MAX } else { most };
        Self { end: sequence.end.min(most), ..sequence }
    }

    /// Restarts the count at the end of the ramp, with `begun` I/Os in flight. As in fio, `number_ios` counts from here
    /// on, while `size` and `io_size` include what the ramp transferred.
    pub fn count_from_here(&mut self, job: &Job, begun: u64) {
        let Some(most) = number_ios(job).map(|most| most.saturating_sub(begun)) else { return };
        match &mut self.order {
            Order::Turns(turns) => turns.limit(most),
            _ => self.end = self.end.min(self.handed + most),
        }
    }

    /// Number of I/Os so far.
    pub fn handed(&self) -> u64 {
        self.handed
    }

    /// Bytes of the regions that no block of the order covers.
    pub fn uncovered(&self) -> u64 {
        match &self.order {
            Order::Turns(turns) => turns.uncovered(),
            _ => 0,
        }
    }

    /// Makes the next I/O of a mix one of this direction.
    pub fn want(&mut self, direction: Direction) {
        if let Order::Turns(turns) = &mut self.order {
            turns.want(direction);
        }
    }

    /// Stops: only blocks that were trimmed in order to be written are still written.
    pub fn finish(&mut self) {
        match &mut self.order {
            Order::Turns(turns) => turns.finish(),
            _ => self.end = self.handed,
        }
    }

    /// Returns the reads that verify what this sequence wrote. Call it with the arguments that the sequence was created
    /// with, when none of its I/Os is in flight.
    ///
    /// A block that was written more than once is read as often, except where one pass over all blocks is enough.
    /// Blocks that this thread trimmed and did not write again (see [`Self::finish`]) are left out.
    ///
    /// `before` is the number of I/Os of the longest earlier loop from the same start: that loop wrote everything that
    /// the others did.
    pub fn read_back(&self, job: &Job, regions: &[Region], number: u32, before: u64) -> ReadBack {
        let sequence = Self::new(job, regions, number);
        let handed = self.handed.max(before);
        let (left, trimmed) = match &self.order {
            Order::Sequential(_) | Order::Covered(_) => (handed.min(self.blocks), Vec::new()),
            Order::Random(_) => (handed, Vec::new()),
            Order::Turns(turns) => (handed, turns.trimmed().collect()),
        };
        ReadBack { sequence, left, trimmed }
    }

    #[inline(never)]
    fn turn(&mut self) -> Option<PlannedIo> {
        let Order::Turns(turns) = &mut self.order else { return None };
        let piece = turns.next()?;
        self.handed += 1;
        Some(piece)
    }
}

impl Iterator for Sequence {
    type Item = PlannedIo;

    /// See [`Sequence::step`].
    #[inline]
    fn next(&mut self) -> Option<PlannedIo> {
        self.step()
    }
}

impl Sequence {
    /// The next I/O. None: all of `size` (or `io_size`) is done and the job is not time-based.
    #[inline(always)]
    pub fn step(&mut self) -> Option<PlannedIo> {
        if self.handed == self.end {
            return None;
        }
        let block = match &mut self.order {
            Order::Sequential(next) => {
                let block = *next;
                *next = if block + 1 >= self.blocks { 0 } else { block + 1 };
                block
            }
            Order::Random(state) => below(state, self.blocks),
            Order::Covered(passes) => passes.next(),
            Order::Turns(_) => return self.turn(),
        };
        self.handed += 1;
        Some(PlannedIo {
            direction: self.direction,
            file: self.file,
            bytes: self.bytes,
            offset: self.begin + block * u64::from(self.bytes),
        })
    }
}

/// Accepts I/Os one after another.
pub trait Taker {
    fn take(&mut self, piece: PlannedIo);
}

impl Sequence {
    /// Passes up to `most` next I/Os to `to`; returns how many. Same as as many calls of [`Sequence::step`], but the
    /// kind of order is checked once.
    #[inline(always)]
    pub fn hand_out(&mut self, most: u64, to: &mut impl Taker) -> u64 {
        let count = most.min(self.end - self.handed);
        let Self { direction, file, bytes, begin, blocks, .. } = *self;
        let piece = |block| PlannedIo { direction, file, bytes, offset: begin + block * u64::from(bytes) };
        match &mut self.order {
            Order::Random(state) => {
                let mut last = *state;
                for _ in 0..count {
                    to.take(piece(below(&mut last, blocks)));
                }
                *state = last;
                self.handed += count;
                count
            }
            _ => {
                for done in 0..count {
                    match self.step() {
                        Some(piece) => to.take(piece),
                        None => return done,
                    }
                }
                count
            }
        }
    }
}

/// The reads that verify what a sequence wrote, in the order of the writes.
#[derive(Debug, Clone)]
pub struct ReadBack {
    sequence: Sequence,
    left: u64,
    trimmed: Vec<PlannedIo>,
}

impl ReadBack {
    /// Stops.
    pub fn finish(&mut self) {
        self.left = 0;
    }
}

impl Iterator for ReadBack {
    type Item = PlannedIo;

    fn next(&mut self) -> Option<PlannedIo> {
        while self.left > 0 {
            self.left -= 1;
            let piece = self.sequence.next()?;
            if piece.direction == Direction::Write
                && !self.trimmed.iter().any(|trimmed| overlap(trimmed, &piece))
            {
                return Some(PlannedIo { direction: Direction::Read, ..piece });
            }
        }
        None
    }
}

fn overlap(a: &PlannedIo, b: &PlannedIo) -> bool {
    a.file == b.file && a.offset < b.offset + u64::from(b.bytes) && b.offset < a.offset + u64::from(a.bytes)
}

/// The maximum number of I/Os of a thread. As in fio, `time_based` takes precedence.
fn number_ios(job: &Job) -> Option<u64> {
    job.number_ios.filter(|_| !job.time_based)
}

/// How many bytes a thread transfers, where that is not one pass over all that it may use.
fn io_size(job: &Job, regions: &[Region]) -> Option<u64> {
    let usable = || regions.iter().map(|region| region.bytes).sum();
    job.io_size.or_else(|| job.amount.map(|amount| amount.min(usable())))
}

/// The plain order; None where the job has more than one target, direction or size.
fn plain(job: &Job, regions: &[Region], number: u32) -> Option<Sequence> {
    let [region] = *regions else { return None };
    let mut directions = job.directions();
    let (Some(direction), None) = (directions.next(), directions.next()) else { return None };
    let bs = job.bs[direction.index()].only().filter(|bs| *bs > 0)?;
    let blocks = region.bytes / bs;
    let mut amount = blocks * bs;
    let order = match (job.rw.is_random(), &job.distribution, job.norandommap) {
        _ if blocks == 0 => return None,
        (true, ..) if job.blockalign.iter().any(Option::is_some) => return None,
        (false, ..) => Order::Sequential(first_block(job, blocks, number)),
        (true, Distribution::Uniform, true) => {
            amount = region.moved;
            Order::Random(seeded(job.seed, number))
        }
        (true, Distribution::Uniform, false) => {
            Order::Covered(Box::new(Passes::new(blocks, seeded(job.seed, number))))
        }
        _ => return None,
    };
    let end = match io_size(job, regions) {
        _ if job.time_based => u64::MAX,
        None => amount.div_ceil(bs),
        Some(bytes) if matches!(order, Order::Random(_)) => bytes.div_ceil(bs),
        Some(bytes) => {
            // Another pass begins only if enough is left for the largest block of all directions.
            let largest = job.bs.iter().map(BlockSizes::largest).max().unwrap_or(bs);
            let passes = bytes.checked_sub(largest).map_or(1, |bytes| bytes / amount + 1);
            passes.saturating_mul(blocks).min(bytes.div_ceil(bs))
        }
    };
    let bytes = u32::try_from(bs).ok()?;
    Some(Sequence { order, handed: 0, end, direction, file: 0, bytes, begin: region.begin, blocks })
}

/// Whether each random block comes once before any repeats. As in fio, not with `blockalign`, where blocks may overlap.
fn covers(job: &Job) -> bool {
    !job.norandommap && job.blockalign.iter().all(Option::is_none)
}

/// First block of a sequential thread.
fn first_block(job: &Job, blocks: u64, number: u32) -> u64 {
    let is_own = match job.offset_increment {
        Extent::Bytes(bytes) => bytes > 0,
        Extent::Percent(percent) => percent > 0.0,
    };
    if !job.share_offsets || is_own {
        return 0;
    }
    let jobs = job.numjobs.max(1);
    // u128: blocks × number could overflow silently, for large devices with tiny blocks.
    (u128::from(blocks) * u128::from(number % jobs) / u128::from(jobs)) as u64
}

#[cfg(test)]
mod tests;
