//! The general order of I/Os: several targets, directions or sizes, or skewed offsets.

use super::super::job::{BlockSizes, Direction, Distribution, Job, Pattern};
use super::super::random::{below, random, scramble, seeded};
use super::coverage::{Passes, Tiles};
use super::distribution::Skew;
use super::sizes::Sizes;
use super::{PlannedIo, Region, covers, first_block, io_size, number_ios};

/// The read/write mix is exact within each group of this many I/Os.
const GROUP: u64 = 100;

/// Takes the targets in turn, with the next I/O of each.
#[derive(Debug, Clone)]
pub struct Turns {
    targets: Vec<Lane>,
    turn: usize,
    kinds: Kinds,
    /// Bytes left of `io_size`, or of `size` where the order does not cover the region; as in fio, the last I/O is
    /// whole.
    left: u64,
    /// Set for an `io_size` that passes over the targets more than once.
    again: Option<Again>,
    /// I/Os that may still begin. As in fio, a block that is trimmed and written counts once.
    pieces: u64,
}

/// fio's conditions for another pass over the targets.
#[derive(Debug, Clone, Copy)]
struct Again {
    io_size: u64,
    /// Of all directions, including unused ones.
    largest: u64,
    /// A block that is trimmed and written counts twice here.
    times: u64,
}

impl Again {
    /// Whether another pass begins after `moved` bytes: not if less than the largest block is left.
    fn begins(&self, moved: u64) -> bool {
        self.io_size.saturating_sub(moved.saturating_mul(self.times)) >= self.largest
    }
}

/// Chooses the next direction and size.
#[derive(Debug, Clone)]
struct Kinds {
    state: u64,
    mix: Option<Mix>,
    /// Overrides the direction that the mix would draw.
    wanted: Option<Direction>,
    /// The direction without a mix.
    direction: Direction,
    sizes: [Sizes; 3],
    /// The direction with the smallest block, among the used ones.
    smallest: (Direction, u64),
    /// Random offsets are multiples of these, by direction.
    units: [u64; 3],
    /// A trimmed block is written next.
    writes_trimmed: bool,
}

/// One target.
#[derive(Debug, Clone)]
struct Lane {
    file: u16,
    begin: u64,
    bytes: u64,
    /// Bytes until `size` is done.
    left: u64,
    order: Order,
    /// A trimmed block that must be written next.
    trimmed: Option<PlannedIo>,
}

#[derive(Debug, Clone)]
enum Order {
    /// Position of each direction, from the start of the region.
    Sequential([u64; 3]),
    Uniform,
    /// The number of blocks of the smallest size in the region.
    Skewed(Skew, u64),
    /// Blocks of a single size.
    Covered(Passes),
    Tiled(Box<Tiles>),
}

/// Draws from the rest of a group without replacement: shares are exact, the order is random.
#[derive(Debug, Clone)]
struct Mix {
    percent: u64,
    reads: u64,
    left: u64,
}

impl Mix {
    fn next(&mut self, state: &mut u64) -> Direction {
        if self.left == 0 {
            (self.reads, self.left) = (self.percent, GROUP);
        }
        let is_read = below(state, self.left) < self.reads;
        self.left -= 1;
        self.reads -= u64::from(is_read);
        if is_read { Direction::Read } else { Direction::Write }
    }
}

impl Kinds {
    fn new(job: &Job, state: u64) -> Self {
        let percent = u64::from(job.rwmixread.min(100));
        let writes_trimmed = job.rw == Pattern::TrimWrite;
        let is_mixed = matches!(job.rw, Pattern::ReadWrite | Pattern::RandReadWrite);
        let comes = |direction: &Direction| match direction {
            Direction::Read => !is_mixed || percent > 0,
            Direction::Write => !writes_trimmed && (!is_mixed || percent < 100),
            Direction::Trim => true,
        };
        let sizes = Direction::ALL.map(|direction| Sizes::new(&job.bs[direction.index()]));
        let smallest = job
            .directions()
            .filter(comes)
            .map(|direction| (direction, sizes[direction.index()].smallest()))
            .min_by_key(|(_, bytes)| *bytes)
            .unwrap_or((Direction::Read, 1));
        let units = std::array::from_fn(|at| job.blockalign[at].unwrap_or(sizes[at].smallest()).max(1));
        Self {
            state,
            units,
            mix: is_mixed.then_some(Mix { percent, reads: 0, left: 0 }),
            wanted: None,
            direction: smallest.0,
            sizes,
            smallest,
            writes_trimmed,
        }
    }

    /// A direction and a size that fits into `left` bytes; there always is one.
    fn next(&mut self, left: u64) -> (Direction, u64) {
        let direction = match &mut self.mix {
            Some(_) if self.wanted.is_some() => self.wanted.take().unwrap_or(self.direction),
            Some(mix) => mix.next(&mut self.state),
            None => self.direction,
        };
        let sizes = &self.sizes[direction.index()];
        if left < sizes.smallest() {
            return self.smallest;
        }
        let bytes = sizes.draw(&mut self.state);
        (direction, if bytes <= left { bytes } else { sizes.smallest() })
    }
}

impl Turns {
    pub fn new(job: &Job, regions: &[Region], number: u32) -> Self {
        let mut state = seeded(job.seed, number);
        let kinds = Kinds::new(job, random(&mut state));
        let shares = job.directions().flat_map(|direction| &job.bs[direction.index()].0);
        let largest = shares.map(|share| share.low.max(share.high)).max().unwrap_or(0).max(1);
        // All regions have the same kind of order.
        let (mut moved, mut covers) = (0, true);
        let io_size = io_size(job, regions);
        let targets = regions
            .iter()
            .enumerate()
            // A region in which no block fits is skipped; such regions are refused before.
            .filter(|(_, region)| region.bytes >= largest)
            .filter_map(|(file, region)| {
                let seed = random(&mut state);
                let order = order(job, region, &kinds, number, seed);
                moved += region.moved;
                covers = !matches!(order, Order::Uniform | Order::Skewed(..));
                let left = match (&order, job.time_based || io_size.is_some() || !covers) {
                    (_, true) => u64::MAX,
                    (Order::Tiled(tiles), _) => tiles.bytes(),
                    _ => region.bytes,
                };
                let file = u16::try_from(file).ok()?;
                Some(Lane { file, begin: region.begin, bytes: region.bytes, left, order, trimmed: None })
            })
            .collect();
        let left = match io_size {
            _ if job.time_based => u64::MAX,
            None if covers => u64::MAX,
            bytes => bytes.unwrap_or(moved),
        };
        // In a mix each direction ends on its own: there is no pass over the targets.
        let passes = covers && !job.time_based && kinds.mix.is_none();
        let again = io_size.filter(|_| passes).map(|io_size| Again {
            io_size,
            largest: job.bs.iter().map(BlockSizes::largest).max().unwrap_or(0),
            times: if kinds.writes_trimmed { 2 } else { 1 },
        });
        let pieces = number_ios(job).filter(|_| job.ramp_time.is_zero()).unwrap_or(u64::MAX);
        Self { targets, turn: 0, kinds, left, again, pieces }
    }

    pub fn next(&mut self) -> Option<PlannedIo> {
        let smallest = self.kinds.smallest.1;
        let is_over = self.left == 0 || self.pieces == 0;
        for _ in 0..self.targets.len() {
            let next = if self.turn + 1 == self.targets.len() { 0 } else { self.turn + 1 };
            let target = &mut self.targets[std::mem::replace(&mut self.turn, next)];
            if let Some(trimmed) = target.trimmed.take() {
                return Some(PlannedIo { direction: Direction::Write, ..trimmed });
            }
            if is_over || target.left < smallest {
                continue;
            }
            let piece = target.next(&mut self.kinds);
            // u64::MAX means unlimited and must not be reduced.
            let bytes = u64::from(piece.bytes);
            target.left = if target.left == u64::MAX { u64::MAX } else { target.left.saturating_sub(bytes) };
            self.left = if self.left == u64::MAX { u64::MAX } else { self.left.saturating_sub(bytes) };
            self.pieces = if self.pieces == u64::MAX { u64::MAX } else { self.pieces - 1 };
            if let Some(again) = self.again
                && !again.begins(again.io_size - self.left)
                && self.targets.iter().all(|target| target.is_through(&self.kinds))
            {
                self.left = 0;
            }
            return Some(piece);
        }
        None
    }

    /// Makes the next I/O of a mix one of this direction.
    pub fn want(&mut self, direction: Direction) {
        self.kinds.wanted = Some(direction);
    }

    /// Limits the number of I/Os from now on.
    pub fn limit(&mut self, pieces: u64) {
        self.pieces = self.pieces.min(pieces);
    }

    /// Bytes of the targets that no block covers.
    pub fn uncovered(&self) -> u64 {
        let of = |target: &Lane| match &target.order {
            Order::Tiled(tiles) => target.bytes - tiles.bytes(),
            _ => 0,
        };
        self.targets.iter().map(of).sum()
    }

    /// Begins nothing new.
    pub fn finish(&mut self) {
        self.left = 0;
    }

    /// Blocks that were trimmed and not yet written again.
    pub fn trimmed(&self) -> impl Iterator<Item = PlannedIo> {
        self.targets.iter().filter_map(|target| target.trimmed)
    }
}

impl Lane {
    /// Whether every block came equally often, so that the next one starts a new pass.
    fn is_through(&self, kinds: &Kinds) -> bool {
        match &self.order {
            Order::Sequential(places) => {
                let direction = kinds.direction.index();
                self.bytes - places[direction] < kinds.sizes[direction].smallest()
            }
            Order::Covered(passes) => passes.is_through(),
            Order::Tiled(tiles) => tiles.is_through(),
            Order::Uniform | Order::Skewed(..) => false,
        }
    }

    fn next(&mut self, kinds: &mut Kinds) -> PlannedIo {
        let (direction, bytes, at) = match &mut self.order {
            Order::Sequential(places) => {
                let (direction, mut bytes) = kinds.next(self.left);
                let smallest = kinds.sizes[direction.index()].smallest();
                let place = &mut places[direction.index()];
                if self.bytes - *place < smallest {
                    *place = 0;
                }
                if bytes > self.bytes - *place {
                    bytes = smallest;
                }
                *place += bytes;
                (direction, bytes, *place - bytes)
            }
            Order::Uniform => {
                let (direction, bytes) = kinds.next(self.left);
                let unit = kinds.units[direction.index()];
                (direction, bytes, below(&mut kinds.state, (self.bytes - bytes) / unit + 1) * unit)
            }
            Order::Skewed(skew, blocks) => {
                let (direction, bytes) = kinds.next(self.left);
                let unit = kinds.units[direction.index()];
                let at = skew.draw(*blocks, &mut kinds.state) * kinds.smallest.1;
                (direction, bytes, at.min(self.bytes - bytes) / unit * unit)
            }
            Order::Covered(passes) => {
                let (direction, bytes) = kinds.next(self.left);
                (direction, bytes, passes.next() * bytes)
            }
            Order::Tiled(tiles) => {
                let slot = tiles.next();
                (slot.direction, slot.bytes, slot.at)
            }
        };
        let piece = PlannedIo {
            direction,
            file: self.file,
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            offset: self.begin + at,
        };
        self.trimmed = kinds.writes_trimmed.then_some(piece);
        piece
    }
}

fn order(job: &Job, region: &Region, kinds: &Kinds, number: u32, seed: u64) -> Order {
    let unit = kinds.smallest.1;
    let blocks = region.bytes / unit;
    if !job.rw.is_random() {
        return Order::Sequential(Direction::ALL.map(|direction| {
            let unit = kinds.sizes[direction.index()].smallest();
            first_block(job, region.bytes / unit, number) * unit
        }));
    }
    if job.distribution != Distribution::Uniform {
        return match Skew::new(&job.distribution, blocks, seed) {
            Some(skew) => Order::Skewed(skew, blocks),
            None => Order::Uniform,
        };
    }
    if !covers(job) {
        return Order::Uniform;
    }
    let is_one_size = job.directions().all(|direction| job.bs[direction.index()].only() == Some(unit));
    if is_one_size {
        Order::Covered(Passes::new(blocks, scramble(seed)))
    } else {
        Order::Tiled(Box::new(Tiles::new(job, region.bytes, seed)))
    }
}
