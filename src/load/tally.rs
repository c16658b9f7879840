//! What one thread counts while it runs.

use super::job::Direction;
use super::{Failures, JobResult, Sample, Transfer};
use crate::hist::Histogram;

/// Length of an interval of which the rate is kept, as fio's.
const SAMPLE_NS: u64 = 500_000_000;

/// What a slot carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    Transfer(Direction),
    /// fsync or fdatasync.
    Sync,
}

/// What an operation is to bring: in one word, as each is compared with the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load(u64);

impl Load {
    const SYNC: u64 = 3;

    /// A result of so many bytes; with `timed` its latency is taken.
    #[inline(always)]
    pub fn new(bytes: u32, errand: Errand, timed: bool) -> Self {
        let errand = match errand {
            Errand::Transfer(direction) => direction.index() as u64,
            Errand::Sync => Self::SYNC,
        };
        Self(u64::from(bytes) | errand << 32 | u64::from(timed) << 40)
    }

    #[inline(always)]
    pub fn bytes(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub fn errand(self) -> Errand {
        let errand = self.0 >> 32 & Self::SYNC;
        let direction = Direction::ALL.get(errand as usize);
        direction.map_or(Errand::Sync, |direction| Errand::Transfer(*direction))
    }

    #[inline]
    pub fn is_timed(self) -> bool {
        self.0 >> 40 != 0
    }

    fn with_bytes(self, bytes: u32) -> Self {
        Self(self.0 >> 32 << 32 | u64::from(bytes))
    }
}

/// An operation on its way.
#[derive(Debug, Clone, Copy)]
pub struct Trip {
    /// From when on its latency counts.
    pub begin: u64,
    /// When its submission was over; 0: not looked at.
    pub sent: u64,
    pub load: Load,
    pub offset: u64,
}

impl Trip {
    /// Nothing.
    pub const NONE: Self = Self { begin: 0, sent: 0, load: Load(0), offset: 0 };

    /// But for the offset.
    #[inline(always)]
    fn counts_like(&self, other: &Self) -> bool {
        self.begin == other.begin && self.sent == other.sent && self.load == other.load
    }
}

/// The counts of one thread.
#[derive(Debug, Default)]
pub struct Tally {
    transfers: [Transfer; 3],
    syncs: Histogram,
    failures: Vec<Failures>,
    first_errno: Option<i32>,
    submitted: Histogram,
    reaped: Histogram,
    depths: Histogram,
    samples: Vec<Sample>,
    /// When the last interval ended, and what had been done by then.
    sampled: Sampled,
}

#[derive(Debug, Default)]
struct Sampled {
    at_ns: u64,
    operations: [u64; 3],
    bytes: [u64; 3],
}

impl Tally {
    /// Counts from now on.
    pub fn begin(now: u64) -> Self {
        Self { sampled: Sampled { at_ns: now, ..Sampled::default() }, ..Self::default() }
    }

    /// Ends an interval where one is over: what was done in it.
    #[inline]
    pub fn sample(&mut self, now: u64) {
        if now.saturating_sub(self.sampled.at_ns) >= SAMPLE_NS {
            self.end_interval(now);
        }
    }

    #[cold]
    fn end_interval(&mut self, now: u64) {
        let operations = self.transfers.each_ref().map(|transfer| transfer.operations);
        let bytes = self.transfers.each_ref().map(|transfer| transfer.bytes);
        let since = |now: [u64; 3], then: [u64; 3]| std::array::from_fn(|at| now[at] - then[at]);
        self.samples.push(Sample {
            duration_ns: now - self.sampled.at_ns,
            operations: since(operations, self.sampled.operations),
            bytes: since(bytes, self.sampled.bytes),
        });
        self.sampled = Sampled { at_ns: now, operations, bytes };
    }

    /// Results that are found at `now`.
    #[inline]
    pub fn look(&mut self, now: u64) -> Look<'_> {
        Look { tally: self, now, like: Trip::NONE, operations: 0 }
    }

    /// So many of one batch that came together: they have the same times.
    #[inline(never)]
    fn end_run(&mut self, trip: Trip, operations: u64, now: u64) {
        let Trip { begin, sent, load, .. } = trip;
        if operations == 0 {
            return;
        }
        let timed = if load.is_timed() { operations } else { 0 };
        let bytes = operations * u64::from(load.bytes());
        // The counter's clock may step back by its error when it is tied anew.
        let taken = now.saturating_sub(begin);
        let Errand::Transfer(direction) = load.errand() else {
            return self.syncs.record_many(taken, timed);
        };
        let transfer = &mut self.transfers[direction.index()];
        transfer.operations += operations;
        transfer.bytes += bytes;
        if timed > 0 {
            transfer.lat.record_many(taken, timed);
            if sent != 0 {
                transfer.clat.record_many(now.saturating_sub(sent), timed);
            }
        }
    }

    /// No result but an errno.
    pub fn failed(&mut self, trip: &Trip, errno: i32) {
        // What an fsync was to make safe was written.
        let direction = match trip.load.errand() {
            Errand::Transfer(direction) => direction,
            Errand::Sync => Direction::Write,
        };
        self.first_errno.get_or_insert(errno);
        match self.failures.iter_mut().find(|f| f.direction == direction && f.errno == errno) {
            Some(failures) => failures.count += 1,
            None => self.failures.push(Failures { direction, errno, count: 1 }),
        }
    }

    /// A submission ended that began so long before.
    pub fn sent(&mut self, direction: Direction, ns: u64) {
        self.transfers[direction.index()].slat.record(ns);
    }

    /// A call took so many operations, and then so many were in flight.
    #[inline]
    pub fn submitted(&mut self, operations: u32, in_flight: u32) {
        self.submitted.record(operations.into());
        self.depths.record_many(in_flight.into(), operations.into());
    }

    /// A look found so many results.
    #[inline]
    pub fn reaped(&mut self, results: u32) {
        self.reaped.record(results.into());
    }

    /// As at the beginning, but for what failed.
    pub fn forget_transfers(&mut self, now: u64) {
        let Self { failures, first_errno, .. } = std::mem::replace(self, Self::begin(now));
        (self.failures, self.first_errno) = (failures, first_errno);
    }

    /// Takes over what failed there.
    pub fn absorb_failures(&mut self, other: Self) {
        self.first_errno = self.first_errno.or(other.first_errno);
        for Failures { direction, errno, count } in other.failures {
            match self.failures.iter_mut().find(|f| f.direction == direction && f.errno == errno) {
                Some(failures) => failures.count += count,
                None => self.failures.push(Failures { direction, errno, count }),
            }
        }
    }

    /// Operations that succeeded.
    pub fn operations(&self) -> u64 {
        self.transfers.iter().map(|transfer| transfer.operations).sum()
    }

    pub fn bytes(&self) -> u64 {
        self.transfers.iter().map(|transfer| transfer.bytes).sum()
    }

    /// Calls that submitted something.
    pub fn submits(&self) -> u64 {
        self.submitted.count()
    }

    /// Into the result of the thread.
    pub fn finish(self, result: &mut JobResult) {
        result.transfers = self.transfers;
        result.syncs = self.syncs;
        result.failures = self.failures;
        result.first_errno = self.first_errno;
        result.submitted = self.submitted;
        result.reaped = self.reaped;
        result.depths = self.depths;
        result.samples = self.samples;
    }
}

/// What one look finds: what has the same times is counted together, and nothing of it before [`Look::end`].
#[derive(Debug)]
pub struct Look<'a> {
    tally: &'a mut Tally,
    now: u64,
    /// The last result, and how many before it were like it.
    like: Trip,
    operations: u64,
}

impl Look<'_> {
    /// A result that was all that was asked for.
    #[inline(always)]
    pub fn arrived(&mut self, trip: &Trip) {
        if !trip.counts_like(&self.like) {
            self.tally.end_run(self.like, self.operations, self.now);
            (self.like, self.operations) = (*trip, 0);
        }
        self.operations += 1;
    }

    /// A result of fewer bytes.
    #[cold]
    pub fn arrived_short(&mut self, trip: &Trip, bytes: u32) {
        let load = trip.load.with_bytes(bytes);
        self.tally.end_run(Trip { load, ..*trip }, 1, self.now);
        if let Errand::Transfer(direction) = trip.load.errand() {
            self.tally.transfers[direction.index()].short += 1;
        }
    }

    /// No result but an errno.
    #[cold]
    pub fn failed(&mut self, trip: &Trip, errno: i32) {
        self.tally.failed(trip, errno);
    }

    /// All were told.
    #[inline]
    pub fn end(self) {
        self.tally.end_run(self.like, self.operations, self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(tally: &mut Tally, trips: &[Trip], now: u64) {
        let mut look = tally.look(now);
        trips.iter().for_each(|trip| look.arrived(trip));
        look.end();
    }

    #[test]
    fn intervals_have_what_was_done_in_them() {
        let mut tally = Tally::begin(1_000);
        let trip = Trip { begin: 1_000, load: Load::new(512, Trip::NONE.load.errand(), true), ..Trip::NONE };
        arrived(&mut tally, &[trip], 2_000);
        tally.sample(400_000_000);
        arrived(&mut tally, &[trip], 500_000_000);
        tally.sample(500_001_000);
        arrived(&mut tally, &[trip], 600_000_000);
        tally.sample(1_100_001_000);
        let mut result = JobResult::default();
        tally.finish(&mut result);
        let seen: Vec<_> =
            result.samples.iter().map(|s| (s.duration_ns, s.operations[0], s.bytes[0])).collect();
        assert_eq!(seen, [(500_000_000, 2, 1024), (600_000_000, 1, 512)]);
    }

    #[test]
    fn what_came_together_counts_each() {
        let mut tally = Tally::default();
        let trip = |begin, errand| Trip { begin, load: Load::new(10, errand, true), ..Trip::NONE };
        let (read, write) = (Errand::Transfer(Direction::Read), Errand::Transfer(Direction::Write));
        let trips = [(5, read), (5, read), (6, read), (6, write), (5, read)];
        arrived(&mut tally, &trips.map(|(begin, errand)| trip(begin, errand)), 20);
        arrived(&mut tally, &[], 90);
        let mut result = JobResult::default();
        tally.finish(&mut result);
        let [reads, writes, _] = &result.transfers;
        assert_eq!(
            (reads.operations, reads.bytes, reads.lat.count(), reads.lat.sum()),
            (4, 40, 4, 15 + 15 + 14 + 15)
        );
        assert_eq!((writes.operations, writes.lat.sum()), (1, 14));
    }

    #[test]
    fn results_fall_into_their_place() {
        let mut tally = Tally::default();
        let trip = |errand, timed| Trip { begin: 100, load: Load::new(4096, errand, timed), ..Trip::NONE };
        let read = trip(Errand::Transfer(Direction::Read), true);
        let write = trip(Errand::Transfer(Direction::Write), false);
        arrived(&mut tally, &[read, Trip { sent: 150, ..read }, write], 350);
        let mut look = tally.look(400);
        look.arrived_short(&read, 512);
        look.end();
        arrived(&mut tally, &[trip(Errand::Sync, true)], 1_100);
        for errno in [libc::EIO, libc::ENOSPC, libc::EIO] {
            tally.failed(&read, errno);
        }
        let mut result = JobResult::default();
        assert_eq!(tally.operations(), 4);
        tally.finish(&mut result);
        let [read, write, trim] = &result.transfers;
        assert_eq!((read.operations, read.bytes, read.short), (3, 2 * 4096 + 512, 1));
        assert_eq!((read.lat.sum(), read.clat.sum(), read.clat.count()), (250 + 250 + 300, 200, 1));
        assert_eq!((write.operations, write.bytes, write.lat.count()), (1, 4096, 0), "not timed");
        assert_eq!(*trim, Transfer::default());
        assert_eq!((result.syncs.count(), result.syncs.sum()), (1, 1_000));
        assert_eq!((result.errors(), result.first_errno), (3, Some(libc::EIO)));
        assert_eq!(result.failures[0], Failures { direction: Direction::Read, errno: libc::EIO, count: 2 });
    }
}
