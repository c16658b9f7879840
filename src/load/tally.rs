//! Counts one thread's operations, latencies and failures while it runs.

use super::job::Direction;
use super::{Failures, JobResult, ServedLatencies, Transfer, TransferSample};
use crate::hist::Histogram;

/// Kind of operation in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpKind {
    Transfer(Direction),
    /// fsync or fdatasync.
    Sync,
}

/// What an operation is expected to return, packed in one word, because each is compared with the previous one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedResult(u64);

impl ExpectedResult {
    const SYNC: u64 = 3;

    /// Expects a result of `bytes` bytes; with `timed` its latency is recorded.
    #[inline(always)]
    pub fn new(bytes: u32, kind: OpKind, timed: bool) -> Self {
        let kind = match kind {
            OpKind::Transfer(direction) => direction.index() as u64,
            OpKind::Sync => Self::SYNC,
        };
        Self(u64::from(bytes) | kind << 32 | u64::from(timed) << 40)
    }

    #[inline(always)]
    pub fn bytes(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    pub fn kind(self) -> OpKind {
        let kind = self.0 >> 32 & Self::SYNC;
        let direction = Direction::ALL.get(kind as usize);
        direction.map_or(OpKind::Sync, |direction| OpKind::Transfer(*direction))
    }

    #[inline]
    pub fn is_timed(self) -> bool {
        self.0 >> 40 & 1 != 0
    }

    /// Sets an I/O priority of the operation's own.
    #[inline]
    pub fn with_priority(self, priority: u16) -> Self {
        Self(self.0 | (u64::from(priority) + 1) << 41)
    }

    fn priority(self) -> Option<u16> {
        ((self.0 >> 41) as u32).checked_sub(1).map(|priority| priority as u16)
    }

    fn with_bytes(self, bytes: u32) -> Self {
        Self(self.0 >> 32 << 32 | u64::from(bytes))
    }
}

/// An operation in flight.
#[derive(Debug, Clone, Copy)]
pub struct InFlight {
    /// Its latency counts from here.
    pub begin: u64,
    /// When its submission ended; 0: not measured.
    pub sent: u64,
    pub load: ExpectedResult,
    pub offset: u64,
}

impl InFlight {
    /// No operation.
    pub const NONE: Self = Self { begin: 0, sent: 0, load: ExpectedResult(0), offset: 0 };

    /// Whether both are equal except for the offset.
    #[inline(always)]
    fn counts_like(&self, other: &Self) -> bool {
        self.begin == other.begin && self.sent == other.sent && self.load == other.load
    }
}

/// The counts of one thread.
#[derive(Debug, Default)]
pub struct Tally {
    transfers: [Transfer; 3],
    /// None: operations have no priorities of their own.
    priorities: Option<Vec<ServedLatencies>>,
    syncs: Histogram,
    failures: Vec<Failures>,
    first_errno: Option<i32>,
    submitted: Histogram,
    reaped: Histogram,
    depths: Histogram,
    samples: Vec<TransferSample>,
    /// End of the last interval, and the totals then.
    sampled: IntervalCounters,
    /// Latency above which an operation is late, ns; 0: none is.
    late_above_ns: u64,
    late: u64,
}

#[derive(Debug, Default)]
struct IntervalCounters {
    /// Length of an interval.
    every_ns: u64,
    at_ns: u64,
    operations: [u64; 3],
    bytes: [u64; 3],
    timed: [u64; 3],
    latency_ns: [u64; 3],
}

impl Tally {
    /// Starts counting now, in intervals of this length.
    pub fn begin(now: u64, every_ns: u64) -> Self {
        Self {
            sampled: IntervalCounters { at_ns: now, every_ns, ..IntervalCounters::default() },
            ..Self::default()
        }
    }

    /// Enables latencies by I/O priority.
    pub fn by_priority(mut self, is_on: bool) -> Self {
        self.priorities = is_on.then(Vec::new);
        self
    }

    /// Counts operations that take longer than this.
    pub fn late_above(self, late_above_ns: Option<u64>) -> Self {
        Self { late_above_ns: late_above_ns.unwrap_or(0), ..self }
    }

    /// Operations that took longer than [`Self::late_above`] says.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Ends an interval where one is over, and records what was done in it.
    #[inline]
    pub fn sample(&mut self, now: u64) {
        if now.saturating_sub(self.sampled.at_ns) >= self.sampled.every_ns {
            self.end_interval(now);
        }
    }

    #[cold]
    fn end_interval(&mut self, now: u64) {
        let operations = self.transfers.each_ref().map(|transfer| transfer.operations);
        let bytes = self.transfers.each_ref().map(|transfer| transfer.bytes);
        let timed = self.transfers.each_ref().map(|transfer| transfer.lat.count());
        let latency_ns = self.transfers.each_ref().map(|transfer| transfer.lat.sum());
        let every_ns = self.sampled.every_ns;
        let since = |now: [u64; 3], then: [u64; 3]| std::array::from_fn(|at| now[at] - then[at]);
        self.samples.push(TransferSample {
            duration_ns: now - self.sampled.at_ns,
            operations: since(operations, self.sampled.operations),
            bytes: since(bytes, self.sampled.bytes),
            timed: since(timed, self.sampled.timed),
            latency_ns: since(latency_ns, self.sampled.latency_ns),
        });
        self.sampled = IntervalCounters { every_ns, at_ns: now, operations, bytes, timed, latency_ns };
    }

    /// Begins a batch of completions found at `now`.
    #[inline]
    pub fn look(&mut self, now: u64) -> Completions<'_> {
        Completions { tally: self, now, like: InFlight::NONE, operations: 0 }
    }

    /// Counts `operations` completions of one batch with equal times.
    #[inline(never)]
    fn end_run(&mut self, trip: InFlight, operations: u64, now: u64) {
        let InFlight { begin, sent, load, .. } = trip;
        if operations == 0 {
            return;
        }
        let timed = if load.is_timed() { operations } else { 0 };
        let bytes = operations * u64::from(load.bytes());
        // The counter's clock may step back by its error when it is resynchronised.
        let taken = now.saturating_sub(begin);
        let OpKind::Transfer(direction) = load.kind() else {
            return self.syncs.record_many(taken, timed);
        };
        let transfer = &mut self.transfers[direction.index()];
        transfer.operations += operations;
        transfer.bytes += bytes;
        if timed > 0 {
            if self.late_above_ns > 0 && taken > self.late_above_ns {
                self.late += timed;
            }
            transfer.lat.record_many(taken, timed);
            if sent != 0 {
                transfer.clat.record_many(now.saturating_sub(sent), timed);
            }
            if let Some(priorities) = &mut self.priorities {
                let priority = load.priority();
                let at =
                    priorities.iter().position(|one| (one.direction, one.priority) == (direction, priority));
                let at = at.unwrap_or_else(|| {
                    let (clat, lat) = Default::default();
                    priorities.push(ServedLatencies { direction, priority, clat, lat });
                    priorities.len() - 1
                });
                priorities[at].lat.record_many(taken, timed);
                if sent != 0 {
                    priorities[at].clat.record_many(now.saturating_sub(sent), timed);
                }
            }
        }
    }

    /// Counts an operation that returned an errno.
    pub fn failed(&mut self, trip: &InFlight, errno: i32) {
        // An fsync counts as a write.
        let direction = match trip.load.kind() {
            OpKind::Transfer(direction) => direction,
            OpKind::Sync => Direction::Write,
        };
        self.first_errno.get_or_insert(errno);
        match self.failures.iter_mut().find(|f| f.direction == direction && f.errno == errno) {
            Some(failures) => failures.count += 1,
            None => self.failures.push(Failures { direction, errno, count: 1 }),
        }
    }

    /// Records the duration of a submission.
    pub fn sent(&mut self, direction: Direction, ns: u64) {
        self.transfers[direction.index()].slat.record(ns);
    }

    /// Records a submitting call: how many operations the kernel took, and how many were then in flight.
    #[inline]
    pub fn submitted(&mut self, operations: u32, in_flight: u32) {
        self.submitted.record(operations.into());
        self.depths.record_many(in_flight.into(), operations.into());
    }

    /// Records a check that found `results` completions.
    #[inline]
    pub fn reaped(&mut self, results: u32) {
        self.reaped.record(results.into());
    }

    /// Resets everything except for the failures.
    pub fn forget_transfers(&mut self, now: u64) {
        let anew = Self::begin(now, self.sampled.every_ns)
            .by_priority(self.priorities.is_some())
            .late_above(Some(self.late_above_ns));
        let Self { failures, first_errno, .. } = std::mem::replace(self, anew);
        (self.failures, self.first_errno) = (failures, first_errno);
    }

    /// Adds the failures of another tally.
    pub fn absorb_failures(&mut self, other: Self) {
        self.first_errno = self.first_errno.or(other.first_errno);
        for Failures { direction, errno, count } in other.failures {
            match self.failures.iter_mut().find(|f| f.direction == direction && f.errno == errno) {
                Some(failures) => failures.count += count,
                None => self.failures.push(Failures { direction, errno, count }),
            }
        }
    }

    /// Operations of a direction that succeeded, and their bytes.
    pub fn moved(&self, direction: Direction) -> (u64, u64) {
        let transfer = &self.transfers[direction.index()];
        (transfer.operations, transfer.bytes)
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

    /// Moves the counts into the thread's result.
    pub fn finish(self, result: &mut JobResult) {
        result.transfers = self.transfers;
        result.priorities = self.priorities.unwrap_or_default();
        result.syncs = self.syncs;
        result.failures = self.failures;
        result.first_errno = self.first_errno;
        result.submitted = self.submitted;
        result.reaped = self.reaped;
        result.depths = self.depths;
        result.samples = self.samples;
    }
}

/// The completions of one check: those with equal times are counted together, the last of them only in
/// [`Completions::end`].
#[derive(Debug)]
pub struct Completions<'a> {
    tally: &'a mut Tally,
    now: u64,
    /// The last completion, and how many equal ones are not counted yet.
    like: InFlight,
    operations: u64,
}

impl Completions<'_> {
    /// A complete result.
    #[inline(always)]
    pub fn arrived(&mut self, trip: &InFlight) {
        if !trip.counts_like(&self.like) {
            self.tally.end_run(self.like, self.operations, self.now);
            (self.like, self.operations) = (*trip, 0);
        }
        self.operations += 1;
    }

    /// A result of fewer bytes than requested.
    #[cold]
    pub fn arrived_short(&mut self, trip: &InFlight, bytes: u32) {
        let load = trip.load.with_bytes(bytes);
        self.tally.end_run(InFlight { load, ..*trip }, 1, self.now);
        if let OpKind::Transfer(direction) = trip.load.kind() {
            self.tally.transfers[direction.index()].short += 1;
        }
    }

    /// An operation that returned an errno.
    #[cold]
    pub fn failed(&mut self, trip: &InFlight, errno: i32) {
        self.tally.failed(trip, errno);
    }

    /// No more completions in this batch.
    #[inline]
    pub fn end(self) {
        self.tally.end_run(self.like, self.operations, self.now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(tally: &mut Tally, trips: &[InFlight], now: u64) {
        let mut look = tally.look(now);
        trips.iter().for_each(|trip| look.arrived(trip));
        look.end();
    }

    #[test]
    fn intervals_have_what_was_done_in_them() {
        let mut tally = Tally::begin(1_000, 500_000_000);
        let trip = InFlight {
            begin: 1_000,
            load: ExpectedResult::new(512, InFlight::NONE.load.kind(), true),
            ..InFlight::NONE
        };
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
        let trip =
            |begin, kind| InFlight { begin, load: ExpectedResult::new(10, kind, true), ..InFlight::NONE };
        let (read, write) = (OpKind::Transfer(Direction::Read), OpKind::Transfer(Direction::Write));
        let trips = [(5, read), (5, read), (6, read), (6, write), (5, read)];
        arrived(&mut tally, &trips.map(|(begin, kind)| trip(begin, kind)), 20);
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
        let trip = |kind, timed| InFlight {
            begin: 100,
            load: ExpectedResult::new(4096, kind, timed),
            ..InFlight::NONE
        };
        let read = trip(OpKind::Transfer(Direction::Read), true);
        let write = trip(OpKind::Transfer(Direction::Write), false);
        arrived(&mut tally, &[read, InFlight { sent: 150, ..read }, write], 350);
        let mut look = tally.look(400);
        look.arrived_short(&read, 512);
        look.end();
        arrived(&mut tally, &[trip(OpKind::Sync, true)], 1_100);
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
