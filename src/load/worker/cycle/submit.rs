//! Submits I/Os: chooses what begins next, and queues it to the engine.

use std::io;

use super::super::super::engine::Engine;
use super::super::super::job::{Direction, Pattern, Timestamps};
use super::super::super::sequence::{PlannedIo, Sequence, Taker};
use super::super::super::tally::{ExpectedResult, InFlight, OpKind};
use super::super::free::Free;
use super::super::source::IoSource;
use super::{Cycle, slot_bytes};

impl Cycle<'_> {
    /// Queues whatever is due and fits; returns when the next I/O is due, if there is room for it.
    #[inline]
    pub(super) fn fill<E: Engine>(&mut self, engine: &mut E) -> Option<u64> {
        // Operations that the kernel has not taken are submitted again first, and alone. They keep their stamp, on
        // which their latency and the latency programs rely; new ones get another.
        let left = engine.left() as usize;
        self.batch.drain(..self.batch.len().saturating_sub(left));
        self.held = false;
        if left > 0 || self.over || self.free.is_empty() {
            return None;
        }
        let most = match self.job.iodepth_batch {
            // A blocking trim is submitted alone: the next one would include its time.
            _ if self.job.rw.only_trims() && engine.trims_at_once() => 1,
            0 => u32::MAX,
            most => most,
        };
        let most = match &mut self.depth_search {
            Some(search) => most.min(search.room(engine.in_flight())),
            None => most,
        };
        let simple = self.is_simple();
        // Completions were checked just before, and no latency is measured.
        let near = simple && self.job.timestamps == Timestamps::Off;
        let now = if near { self.looked } else { self.stamps.now_ns() };
        self.handed = now;
        if let Some(submit_stamps) = &self.submit_stamps {
            submit_stamps.handed(now);
        }
        if simple {
            self.fill_simply(engine, most, now);
            return None;
        }
        if self.has_to_think(engine) {
            return None;
        }
        // At the depth being tried, it waits for completions although there are free slots.
        self.held = self.depth_search.is_some();
        let mut queued = 0;
        while queued < most {
            let Some(slot) = self.free.next() else { break };
            if self.syncs_due > 0 {
                self.syncs_due -= 1;
                self.trips[slot as usize] = InFlight {
                    begin: now,
                    load: ExpectedResult::new(0, OpKind::Sync, true),
                    ..InFlight::NONE
                };
                engine.queue_sync(slot, self.syncs.next(), self.job.fsync == 0);
            } else {
                // Each direction of a mix has its own rate: the one that is due first comes next.
                if let Some(pace) = self.pace.as_ref().filter(|pace| pace.chooses()) {
                    let next = self.job.directions().map(|direction| (pace.due(direction), direction));
                    if let Some((due, direction)) = next.min_by_key(|(due, _)| *due) {
                        if due > now {
                            return Some(due);
                        }
                        self.source.want(direction);
                    }
                }
                let Some(piece) = self.pending.take().or_else(|| self.source.next()).or_else(|| self.again())
                else {
                    self.over = true;
                    break;
                };
                if self.has_to_wait(&piece, queued) {
                    self.pending = Some(piece);
                    return None;
                }
                let mut begin = now;
                if let Some(pace) = &mut self.pace {
                    let due = pace.due(piece.direction);
                    if due > now {
                        self.pending = Some(piece);
                        return Some(due);
                    }
                    begin = pace.began(piece.direction, piece.bytes, now);
                }
                self.depart(engine, slot, &piece, begin);
            }
            self.free.take();
            self.batch.push(slot);
            queued += 1;
            if !self.free.is_empty() && self.has_to_think(engine) {
                break;
            }
        }
        None
    }

    /// The first I/O of the next loop, after the last one of a loop.
    #[cold]
    fn again(&mut self) -> Option<PlannedIo> {
        self.begin_loop();
        self.source.next()
    }

    /// Begins the next loop of a job that is repeated.
    #[cold]
    fn begin_loop(&mut self) {
        let (IoSource::Order(sequence), Some(left)) = (&mut self.source, self.loops.checked_sub(1)) else {
            return;
        };
        self.loops = left;
        self.looped = self.looped.max(sequence.handed());
        *sequence = Sequence::new(self.job, self.regions, self.number);
        if self.ramp_end.is_none() {
            sequence.count_from_here(self.job, 0);
        }
    }

    /// Whether a job with think time must first wait for the I/Os in flight. If none are, it pauses.
    #[inline]
    fn has_to_think<E: Engine>(&mut self, engine: &E) -> bool {
        let in_flight = engine.in_flight();
        let Some(pace) = self.pace.as_mut() else { return false };
        let pauses = pace.pauses(in_flight);
        if pauses && in_flight == 0 {
            pace.think(self.looked);
        }
        self.held = pauses && in_flight > 0;
        self.held
    }

    pub(super) fn writes_trimmed(&self) -> bool {
        self.job.rw == Pattern::TrimWrite
    }

    /// For trim-then-write jobs: a write waits for the trims in flight, because the drive may reorder concurrent
    /// commands. A trim is not queued after a write, which it would delay where it is done synchronously. fio's engines
    /// with trim system calls do the same; its io_uring_cmd does not wait.
    #[inline]
    fn has_to_wait(&mut self, piece: &PlannedIo, queued: u32) -> bool {
        match piece.direction {
            Direction::Read => false,
            Direction::Write => {
                self.held = self.trims > 0;
                self.held
            }
            Direction::Trim => self.writes_trimmed() && queued > 0,
        }
    }

    /// Whether I/Os are due at once, all or none are timed, and they need no further preparation.
    #[inline]
    fn is_simple(&self) -> bool {
        self.pace.is_none()
            && self.pending.is_none()
            && self.plain
            && matches!(self.source, IoSource::Order(_))
    }

    /// [`Self::fill`] for the common load: the work per I/O here is the generator's own overhead.
    #[inline(never)]
    fn fill_simply<E: Engine>(&mut self, engine: &mut E, most: u32, now: u64) {
        let Self { free: Free { slots, count }, trips, batch, source: IoSource::Order(sequence), .. } = self
        else {
            return;
        };
        let timed = self.job.timestamps == Timestamps::Every;
        let at_once = self.job.rw.only_trims() && engine.trims_at_once();
        let mut submission = Submission {
            engine,
            trips,
            slots: &*slots,
            left: *count,
            begin: now,
            sent: if E::IS_SYNCHRONOUS || at_once { now } else { 0 },
            timed,
            nop: self.job.nop,
        };
        let most = u64::from(most).min(*count as u64);
        let is_through = sequence.hand_out(most, &mut submission) < most;
        self.over |= is_through && self.loops == 0;
        let left = submission.left;
        if timed {
            batch.extend(slots[left..*count].iter().rev());
        }
        *count = left;
        if is_through {
            self.begin_loop();
        }
    }

    #[inline]
    fn depart<E: Engine>(&mut self, engine: &mut E, slot: u32, piece: &PlannedIo, begin: u64) {
        if let Some(cache) = &mut self.cache
            && cache.begins(piece.bytes)
        {
            cache.forget();
        }
        let timed = match self.job.timestamps {
            Timestamps::Every => true,
            Timestamps::Off => false,
            Timestamps::Sampled(every) => {
                let timed = self.until_timed.is_multiple_of(every.max(1));
                self.until_timed = self.until_timed.wrapping_add(1);
                timed
            }
        };
        let at_once = E::IS_SYNCHRONOUS || piece.direction == Direction::Trim && engine.trims_at_once();
        self.trips[slot as usize] = InFlight {
            begin,
            // As in fio, the whole latency of a synchronous I/O, and of a trim by system call, is completion latency.
            sent: if at_once { begin } else { 0 },
            load: ExpectedResult::new(
                if self.job.nop { 0 } else { piece.bytes },
                OpKind::Transfer(piece.direction),
                timed,
            ),
            offset: piece.offset,
        };
        match piece.direction {
            Direction::Read => {}
            Direction::Write => {
                self.content.write(slot_bytes(engine, slot, piece.bytes), piece.offset);
                self.unwritten.departs(slot, piece.file);
            }
            Direction::Trim => self.trims += u32::from(self.writes_trimmed()),
        }
        let priority = self.priorities.as_mut().and_then(|all| all.draw(piece.direction, piece.bytes));
        match priority {
            Some(priority) => {
                let trip = &mut self.trips[slot as usize];
                trip.load = trip.load.with_priority(priority);
                engine.queue_with_priority(slot, piece, priority);
            }
            None => engine.queue(slot, piece),
        }
        if piece.direction == Direction::Write {
            self.writes += 1;
            let every = u64::from(self.job.fsync.max(self.job.fdatasync));
            if every > 0 {
                self.syncs.wrote(piece.file, self.writes);
                self.syncs_due += u32::from(self.writes.is_multiple_of(every));
            }
        }
    }

    /// Submits and waits in two calls, to measure the end of the submission.
    pub(super) fn enter_apart<E: Engine>(
        &mut self,
        engine: &mut E,
        wait: u32,
        timeout: Option<u64>,
    ) -> io::Result<u32> {
        let taken = engine.enter(0, None)?;
        let sent = self.stamps.now_ns();
        for slot in self.batch.iter().take(taken as usize) {
            let trip = &mut self.trips[*slot as usize];
            if let OpKind::Transfer(direction) = trip.load.kind()
                && trip.load.is_timed()
                && trip.sent == 0
            {
                trip.sent = sent;
                // An I/O that was due earlier was submitted with the others.
                self.tally.sent(direction, sent.saturating_sub(self.handed));
            }
        }
        // Operations that are left over are submitted by another call whose end is measured too.
        if wait > 0 && engine.left() == 0 {
            match engine.enter(wait, timeout) {
                // The wait ended early; the submission before it succeeded.
                Err(e)
                    if taken > 0
                        && matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {}
                told => {
                    told?;
                }
            }
        }
        Ok(taken)
    }
}

/// The I/Os of one batch, on their way into the engine.
struct Submission<'a, E> {
    engine: &'a mut E,
    trips: &'a mut [InFlight],
    slots: &'a [u32],
    /// Number of free slots.
    left: usize,
    begin: u64,
    sent: u64,
    timed: bool,
    nop: bool,
}

impl<E: Engine> Taker for Submission<'_, E> {
    #[inline(always)]
    fn take(&mut self, piece: PlannedIo) {
        self.left -= 1;
        let slot = self.slots[self.left];
        let trip = &mut self.trips[slot as usize];
        // Without verify, the offset is not needed.
        trip.begin = self.begin;
        trip.sent = self.sent;
        let bytes = if self.nop { 0 } else { piece.bytes };
        trip.load = ExpectedResult::new(bytes, OpKind::Transfer(piece.direction), self.timed);
        self.engine.queue(slot, &piece);
    }
}
