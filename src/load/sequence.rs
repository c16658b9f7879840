//! Which I/O comes next. Pure: the same job, seed and number give the same order.
//!
//! Where a job has one target, one direction and one size, and its blocks come in order, at random or each once,
//! an I/O costs a few instructions. [`Turns`] does all the rest.
//!
//! As in fio, reads and writes of `rw` have each a place of their own; `size` bounds the sum of both, and a block
//! that is trimmed and written counts once; `io_size` is reached by a whole I/O, and so is `size` where the order
//! does not cover it; of an `io_size`, less than the largest block is left undone behind a pass over all targets; a
//! distribution other than the uniform one does not cover. Random offsets are multiples of the direction's smallest
//! block from the region's beginning on (of the largest common divisor of the sizes where [`coverage::Tiles`] cover).
//! Otherwise than in fio, an I/O is never shortened to cover: blocks of several sizes are fitted together instead, and
//! where their shares leave a rest, that is not covered.

mod coverage;
mod distribution;
mod region;
mod sizes;
mod turns;

use super::job::{BlockSizes, Direction, Distribution, Extent, Job};
use super::random::{below, seeded};
use coverage::Passes;
use turns::Turns;

pub use region::{Region, Whole, cut, region};
pub use sizes::grain;

/// One I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    pub direction: Direction,
    /// Of the job's targets, by number.
    pub file: u16,
    pub bytes: u32,
    /// From the beginning of the target.
    pub offset: u64,
}

/// The I/Os of one thread.
#[derive(Debug, Clone)]
pub struct Sequence {
    order: Order,
    handed: u64,
    /// How many I/Os there are; `u64::MAX`: no end, which no run reaches.
    end: u64,
    /// The rest is for the plain orders.
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
    /// The state of the generator.
    Random(u64),
    Covered(Box<Passes>),
    Turns(Box<Turns>),
}

impl Sequence {
    /// The order of thread `number` among `job.numjobs`; `regions` has one per target of the job.
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
        // Turns count for themselves.
        let most = if let Order::Turns(_) = sequence.order { u64::MAX } else { most };
        Self { end: sequence.end.min(most), ..sequence }
    }

    /// The ramp is over, with `begun` I/Os on their way: as in fio, `number_ios` counts from here on, while `size` and
    /// `io_size` have counted what the ramp moved.
    pub fn count_from_here(&mut self, job: &Job, begun: u64) {
        let Some(most) = number_ios(job).map(|most| most.saturating_sub(begun)) else { return };
        match &mut self.order {
            Order::Turns(turns) => turns.limit(most),
            _ => self.end = self.end.min(self.handed + most),
        }
    }

    /// How many I/Os there were so far.
    pub fn handed(&self) -> u64 {
        self.handed
    }

    /// Bytes of the regions in which no block of the order lies.
    pub fn uncovered(&self) -> u64 {
        match &self.order {
            Order::Turns(turns) => turns.uncovered(),
            _ => 0,
        }
    }

    /// The next I/O of a mix is of this direction.
    pub fn want(&mut self, direction: Direction) {
        if let Order::Turns(turns) = &mut self.order {
            turns.want(direction);
        }
    }

    /// Nothing new from now on: only what was trimmed to be written is still written.
    pub fn finish(&mut self) {
        match &mut self.order {
            Order::Turns(turns) => turns.finish(),
            _ => self.end = self.handed,
        }
    }

    /// Reads what was written by the I/Os that this sequence handed out, for verify; to be asked for with what the
    /// sequence was made of, when none of them is on its way any more.
    ///
    /// A block that was written more than once is read as often, except where one pass over all blocks is known
    /// to be enough. What this thread trimmed and did not write again (see [`Self::finish`]) is left out.
    ///
    /// `before` is how many it had handed out when it was done before, from the same beginning: the longest of several
    /// loops wrote all that the others did.
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
    fn turn(&mut self) -> Option<Piece> {
        let Order::Turns(turns) = &mut self.order else { return None };
        let piece = turns.next()?;
        self.handed += 1;
        Some(piece)
    }
}

impl Iterator for Sequence {
    type Item = Piece;

    /// See [`Sequence::step`].
    #[inline]
    fn next(&mut self) -> Option<Piece> {
        self.step()
    }
}

impl Sequence {
    /// The next I/O. None: all of `size` (or `io_size`) is done and the job is not time-based.
    #[inline(always)]
    pub fn step(&mut self) -> Option<Piece> {
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
        Some(Piece {
            direction: self.direction,
            file: self.file,
            bytes: self.bytes,
            offset: self.begin + block * u64::from(self.bytes),
        })
    }
}

/// Takes I/Os one after the other.
pub trait Taker {
    fn take(&mut self, piece: Piece);
}

impl Sequence {
    /// Hands out the next I/Os, so many or what there is; returns how many. The same as [`Sequence::step`] as often,
    /// but what kind of order it is, is looked at once.
    #[inline(always)]
    pub fn hand_out(&mut self, most: u64, to: &mut impl Taker) -> u64 {
        let count = most.min(self.end - self.handed);
        let Self { direction, file, bytes, begin, blocks, .. } = *self;
        let piece = |block| Piece { direction, file, bytes, offset: begin + block * u64::from(bytes) };
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

/// The reads that look at what a sequence wrote, in the order in which it did.
#[derive(Debug, Clone)]
pub struct ReadBack {
    sequence: Sequence,
    left: u64,
    trimmed: Vec<Piece>,
}

impl ReadBack {
    /// Nothing more.
    pub fn finish(&mut self) {
        self.left = 0;
    }
}

impl Iterator for ReadBack {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        while self.left > 0 {
            self.left -= 1;
            let piece = self.sequence.next()?;
            if piece.direction == Direction::Write
                && !self.trimmed.iter().any(|trimmed| overlap(trimmed, &piece))
            {
                return Some(Piece { direction: Direction::Read, ..piece });
            }
        }
        None
    }
}

fn overlap(a: &Piece, b: &Piece) -> bool {
    a.file == b.file && a.offset < b.offset + u64::from(b.bytes) && b.offset < a.offset + u64::from(a.bytes)
}

/// How many I/Os a thread does at most. Time goes before, as in fio.
fn number_ios(job: &Job) -> Option<u64> {
    job.number_ios.filter(|_| !job.time_based)
}

/// How many bytes a thread moves, where it is not all that it may use once.
fn io_size(job: &Job, regions: &[Region]) -> Option<u64> {
    let usable = || regions.iter().map(|region| region.bytes).sum();
    job.io_size.or_else(|| job.amount.map(|amount| amount.min(usable())))
}

/// None where it takes more than one target, direction and size.
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
            // Another pass begins only where there is enough left for the largest block of all directions.
            let largest = job.bs.iter().map(BlockSizes::largest).max().unwrap_or(bs);
            let passes = bytes.checked_sub(largest).map_or(1, |bytes| bytes / amount + 1);
            passes.saturating_mul(blocks).min(bytes.div_ceil(bs))
        }
    };
    let bytes = u32::try_from(bs).ok()?;
    Some(Sequence { order, handed: 0, end, direction, file: 0, bytes, begin: region.begin, blocks })
}

/// Each random block comes once before any comes again. As in fio, blocks that begin elsewhere than where another ends
/// do not.
fn covers(job: &Job) -> bool {
    !job.norandommap && job.blockalign.iter().all(Option::is_none)
}

/// Where the sequential I/Os of a thread begin.
fn first_block(job: &Job, blocks: u64, number: u32) -> u64 {
    let is_own = match job.offset_increment {
        Extent::Bytes(bytes) => bytes > 0,
        Extent::Percent(percent) => percent > 0.0,
    };
    if !job.share_offsets || is_own {
        return 0;
    }
    let jobs = job.numjobs.max(1);
    // u128: blocks × number overflows for large devices with tiny blocks only, but silently.
    (u128::from(blocks) * u128::from(number % jobs) / u128::from(jobs)) as u64
}

#[cfg(test)]
mod tests;
