//! The loop of a thread: hands I/Os over, looks for results, counts.

mod back;

use std::io;
use std::time::{Duration, SystemTime};

use super::super::beacon::Beacon;
use super::super::buffers::Slots;
use super::super::content::Content;
use super::super::engine::Engine;
use super::super::job::{Direction, Job, OnError, Pattern, Timestamps};
use super::super::pace::Pace;
use super::super::sequence::{Piece, Region, Sequence, Taker};
use super::super::stamps::Stamps;
use super::super::tally::{Errand, Load, Tally, Trip};
use super::super::{JobResult, cpus};
use super::cache::Cache;
use super::free::Free;
use super::gate::Meeting;
use super::source::Source;
use super::syncs::Syncs;
use super::unwritten::Unwritten;
use super::verification::Verification;
use super::{Done, Ends, Plan};

/// A job whose operations fail this often in a row ends: nothing but errors will come.
pub const ERRORS_IN_A_ROW: u32 = 1_000;
/// How often a job tells how far it is.
const PUBLISH_NS: u64 = 50_000_000;
/// A call that fails for want of memory is repeated this often.
const RETRIES: u32 = 1_000;
/// Where a call submits and waits in one, one of so many is made in two, to see when the submission ends.
const APART_EVERY: u32 = 64;
/// So long before an I/O is due its thread does not sleep any more: a wake-up takes up to that long.
const SPIN_NS: u64 = 50_000;
/// The longest sleep without a look at whether to stop.
const NAP_NS: u64 = 50_000_000;

/// The loop and its state: per batch two clock reads and one system call, per operation no allocation, no lock
/// and nothing shared.
pub struct Cycle<'a> {
    job: &'a Job,
    number: u32,
    regions: &'a [Region],
    source: Source,
    others: &'a Meeting,
    own: &'a Meeting,
    content: Content,
    unwritten: Unwritten,
    cache: Option<Cache>,
    /// Nothing is written, all or none are timed, and nobody counts passes.
    plain: bool,
    verification: Verification,
    pace: Option<Pace>,
    /// When its time was over, or who stopped it did.
    ended_at: Option<u64>,
    never_began: Option<u64>,
    pub stamps: Stamps,
    beacon: Option<Beacon<'a>>,
    ends: Ends<'a>,
    done: &'a Done,
    tally: Tally,
    usage: cpus::Usage,
    /// When the load was over.
    used: cpus::Usage,
    trips: Vec<Trip>,
    free: Free,
    /// Those of a batch whose submission is looked at.
    batch: Vec<u32>,
    /// It is known, but not due yet.
    pending: Option<Piece>,
    /// Trims on their way, of a job that writes what it trims.
    trims: u32,
    /// What is pending waits for one of them.
    held: bool,
    /// When the last batch began.
    handed: u64,
    /// When the last look was.
    looked: u64,
    until_timed: u32,
    writes: u64,
    syncs_due: u32,
    syncs: Syncs,
    started_ms: Option<u64>,
    ramp_end: Option<u64>,
    pub first: u64,
    pub last: u64,
    failures: u32,
    /// By direction: how many of all found the end of the target.
    ended: [u64; 3],
    /// No more begins.
    over: bool,
}

impl<'a> Cycle<'a> {
    pub fn new(
        plan: Plan<'a>,
        stamps: Stamps,
        beacon: Option<Beacon<'a>>,
        ends: Ends<'a>,
        done: &'a Done,
    ) -> Self {
        let depth = Slots::depth_of(plan.job);
        let cache = Cache::new(&plan);
        let is_sampled = matches!(plan.job.timestamps, Timestamps::Sampled(_));
        Self {
            job: plan.job,
            number: plan.number,
            regions: plan.regions,
            source: Source::Order(Sequence::new(plan.job, plan.regions, plan.number)),
            others: plan.others,
            own: plan.own,
            unwritten: Unwritten::new(if plan.job.verify { depth as usize } else { 0 }),
            plain: !is_sampled && !plan.job.rw.has(Direction::Write) && cache.is_none(),
            cache,
            content: Content::new(plan.job, plan.number).of_run(plan.run),
            verification: Verification::default(),
            pace: Pace::new(plan.job, plan.number),
            ended_at: None,
            never_began: None,
            stamps,
            beacon,
            ends,
            done,
            tally: Tally::default(),
            usage: cpus::Usage::default(),
            used: cpus::Usage::default(),
            trips: vec![Trip::NONE; depth as usize],
            free: Free::all(depth),
            batch: Vec::with_capacity(depth as usize),
            pending: None,
            trims: 0,
            held: false,
            handed: 0,
            looked: 0,
            // Not the first of each thread at once.
            until_timed: plan.number,
            writes: 0,
            syncs_due: 0,
            syncs: Syncs::new(plan.regions.len()),
            started_ms: None,
            ramp_end: None,
            first: 0,
            last: 0,
            failures: 0,
            ended: [0; 3],
            over: false,
        }
    }

    /// It ended because nothing but errors came.
    pub fn gave_up(&self) -> bool {
        self.failures >= ERRORS_IN_A_ROW
    }

    /// All of it: the load, and then the look at what was written.
    pub fn run<E: Engine>(&mut self, engine: &mut E) -> io::Result<()> {
        if self.job.rw.has(Direction::Write) {
            for slot in 0..self.trips.len() as u32 {
                let bytes = self.job.bs[Direction::Write.index()].largest();
                self.content.fill(slot_bytes(engine, slot, bytes as u32));
            }
        }
        let writer = (self.others.attend(), self.own.attend());
        let deadline = self.begin();
        let driven = self.turn(engine, deadline).and_then(|()| self.end_sync(engine));
        drop(writer);
        self.used = cpus::usage();
        if let Some(pace) = self.pace.take() {
            self.never_began = pace.never_began(self.first, self.ended_at.unwrap_or(self.first));
        }
        driven?;
        let looks = self.job.verify && self.job.do_verify && self.job.rw.has(Direction::Write);
        // At whose end the others end cannot wait for them.
        let others = if self.job.exitall { self.own } else { self.others };
        let ends = self.ends;
        if looks && !ends.reached() && others.wait(|| ends.reached()) {
            self.look_back(engine)
        } else {
            Ok(())
        }
    }

    /// As fio's `end_fsync`: each target, one after the other.
    fn end_sync<E: Engine>(&mut self, engine: &mut E) -> io::Result<()> {
        let files = if self.job.end_fsync && self.job.rw.writes() { self.regions.len() } else { 0 };
        for file in 0..files as u16 {
            let Some(slot) = self.free.next() else { return Ok(()) };
            let begin = self.stamps.now_ns();
            if let Some(beacon) = &self.beacon {
                beacon.handed(begin);
            }
            self.trips[slot as usize] = Trip { begin, load: Load::new(0, Errand::Sync, true), ..Trip::NONE };
            engine.queue_sync(slot, file, false);
            self.free.take();
            while engine.in_flight() > 0 {
                match engine.enter(1, None) {
                    Err(e) if !matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {
                        return Err(e);
                    }
                    _ => self.reap(engine),
                };
            }
        }
        Ok(())
    }

    /// The clock starts. Returns when the time is over.
    fn begin(&mut self) -> u64 {
        self.usage = cpus::usage();
        self.first = self.stamps.now_ns();
        (self.last, self.looked) = (self.first, self.first);
        self.tally = Tally::begin(self.first);
        self.started_ms = wall_clock_ms();
        if let Some(pace) = &mut self.pace {
            pace.begin(self.first);
        }
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let ramp = ns(self.job.ramp_time);
        self.ramp_end = Some(self.first.saturating_add(ramp)).filter(|_| ramp > 0);
        let runtime = self.job.runtime.map_or(u64::MAX, |time| ns(time).saturating_add(ramp));
        self.first.saturating_add(runtime)
    }

    /// Until the time or the source is over, and nothing is in flight.
    fn turn<E: Engine>(&mut self, engine: &mut E, deadline: u64) -> io::Result<()> {
        let mut publish = self.last + PUBLISH_NS;
        let (mut retries, mut round) = (0u32, 0u32);
        self.over = self.ends.reached();
        while !self.over || engine.in_flight() > 0 {
            let wakes = self.fill(engine);
            let (wait, timeout) = match wakes {
                // Somebody is waited for only where there is no room, or nothing more will begin.
                None if !self.free.is_empty() && !self.over && !self.held => (0, None),
                None => (self.job.iodepth_batch_complete.max(1), None),
                Some(wakes) => self.until_due(engine, wakes.min(deadline)),
            };
            let timed = self.job.timestamps != Timestamps::Off && !E::IS_SYNCHRONOUS;
            let apart = timed
                && !self.batch.is_empty()
                && (E::SUBMITS_APART || self.job.submissions || round % APART_EVERY == 0);
            round = round.wrapping_add(1);
            let entered =
                if apart { self.enter_apart(engine, wait, timeout) } else { engine.enter(wait, timeout) };
            match entered {
                Ok(taken) => {
                    if taken > 0 {
                        self.tally.submitted(taken, engine.in_flight());
                    }
                    retries = 0;
                }
                // A signal: look at the stop flag. EBUSY: completions wait to be reaped.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => {}
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) && retries < RETRIES => retries += 1,
                Err(e) => return Err(e),
            }
            let now = self.reap(engine);
            self.tally.sample(now);
            // What is only read back is not moved.
            if now >= publish && matches!(self.source, Source::Order(_)) {
                self.done.store(&self.tally);
                publish = now + PUBLISH_NS;
            }
            if self.ramp_end.is_some_and(|end| now >= end) {
                self.begin_to_count(now);
            }
            if now >= deadline || self.ends.reached() {
                self.end(now.min(deadline));
                // A run that was to last so long did, also where its last result came long before.
                self.last = self.last.max(now.min(deadline));
            }
        }
        if self.ramp_end.is_some() {
            self.begin_to_count(self.last);
        }
        Ok(())
    }

    /// Nothing new begins but what an earlier I/O left half done.
    #[cold]
    fn end(&mut self, at: u64) {
        self.ended_at.get_or_insert(at);
        // What is not due yet will not begin; but where all that was drawn is read back, it has to be written, and so
        // has what was trimmed.
        if !self.job.verify && !self.writes_trimmed() {
            self.pending = None;
        }
        if let Some(pace) = &mut self.pace {
            pace.release();
        }
        self.source.finish();
    }

    /// Queues what there is room for and what is due; says when the next one is, if there is room for it.
    #[inline]
    fn fill<E: Engine>(&mut self, engine: &mut E) -> Option<u64> {
        // What the kernel has not taken is handed over once more, and alone: it keeps its stamp, by which its latency
        // counts and which the latency programs are told, and what is new has another.
        let left = engine.left() as usize;
        self.batch.drain(..self.batch.len().saturating_sub(left));
        self.held = false;
        if left > 0 || self.over || self.free.is_empty() {
            return None;
        }
        let most = match self.job.iodepth_batch {
            0 => u32::MAX,
            most => most,
        };
        let simple = self.is_simple();
        // The last look was a moment ago, and no latency is taken.
        let near = simple && self.job.timestamps == Timestamps::Off;
        let now = if near { self.looked } else { self.stamps.now_ns() };
        self.handed = now;
        if let Some(beacon) = &self.beacon {
            beacon.handed(now);
        }
        if simple {
            self.fill_simply(engine, most, now);
            return None;
        }
        if self.has_to_think(engine) {
            return None;
        }
        let mut queued = 0;
        while queued < most {
            let Some(slot) = self.free.next() else { break };
            if self.syncs_due > 0 {
                self.syncs_due -= 1;
                self.trips[slot as usize] =
                    Trip { begin: now, load: Load::new(0, Errand::Sync, true), ..Trip::NONE };
                engine.queue_sync(slot, self.syncs.next(), self.job.fsync == 0);
            } else {
                // Each direction of a mix has a rate of its own: what is due comes next.
                if let Some(pace) = self.pace.as_ref().filter(|pace| pace.chooses()) {
                    let next = self.job.directions().map(|direction| (pace.due(direction), direction));
                    if let Some((due, direction)) = next.min_by_key(|(due, _)| *due) {
                        if due > now {
                            return Some(due);
                        }
                        self.source.want(direction);
                    }
                }
                let Some(piece) = self.pending.take().or_else(|| self.source.next()) else {
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
                    begin = pace.began(piece.direction, now);
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

    /// Of a job with times of thought: whether what is on its way is waited for first. Where nothing is, it thinks.
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

    fn writes_trimmed(&self) -> bool {
        self.job.rw == Pattern::TrimWrite
    }

    /// Of what is trimmed and then written: a write waits for the trims that are on their way, as the drive may do what
    /// it has at once in any order. A trim is not queued behind a write, which it would hold up where it is done at
    /// once. So do fio's engines that trim by a call of its own; its io_uring_cmd does not wait.
    #[inline]
    fn has_to_wait(&mut self, piece: &Piece, queued: u32) -> bool {
        match piece.direction {
            Direction::Read => false,
            Direction::Write => {
                self.held = self.trims > 0;
                self.held
            }
            Direction::Trim => self.writes_trimmed() && queued > 0,
        }
    }

    /// I/Os are due at once, all or none are timed, and each only has to be handed over.
    #[inline]
    fn is_simple(&self) -> bool {
        self.pace.is_none() && self.pending.is_none() && self.plain && matches!(self.source, Source::Order(_))
    }

    /// [`Self::fill`] for the usual load: what it does for each I/O is the generator's own cost.
    #[inline(never)]
    fn fill_simply<E: Engine>(&mut self, engine: &mut E, most: u32, now: u64) {
        let Self { free: Free { slots, count }, trips, batch, source: Source::Order(sequence), .. } = self
        else {
            return;
        };
        let timed = self.job.timestamps == Timestamps::Every;
        let mut departing = Departing {
            engine,
            trips,
            slots: &*slots,
            left: *count,
            begin: now,
            sent: if E::IS_SYNCHRONOUS { now } else { 0 },
            timed,
            nop: self.job.nop,
        };
        let most = u64::from(most).min(*count as u64);
        self.over |= sequence.hand_out(most, &mut departing) < most;
        let left = departing.left;
        if timed {
            batch.extend(slots[left..*count].iter().rev());
        }
        *count = left;
    }

    #[inline]
    fn depart<E: Engine>(&mut self, engine: &mut E, slot: u32, piece: &Piece, begin: u64) {
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
        self.trips[slot as usize] = Trip {
            begin,
            // As in fio, all of a synchronous I/O is completion.
            sent: if E::IS_SYNCHRONOUS { begin } else { 0 },
            load: Load::new(
                if self.job.nop { 0 } else { piece.bytes },
                Errand::Transfer(piece.direction),
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
        engine.queue(slot, piece);
        if piece.direction == Direction::Write {
            self.writes += 1;
            let every = u64::from(self.job.fsync.max(self.job.fdatasync));
            if every > 0 {
                self.syncs.wrote(piece.file, self.writes);
                self.syncs_due += u32::from(self.writes.is_multiple_of(every));
            }
        }
    }

    /// Submits and waits in two calls, so that the end of the submission is seen.
    fn enter_apart<E: Engine>(&mut self, engine: &mut E, wait: u32, timeout: Option<u64>) -> io::Result<u32> {
        let taken = engine.enter(0, None)?;
        let sent = self.stamps.now_ns();
        for slot in self.batch.iter().take(taken as usize) {
            let trip = &mut self.trips[*slot as usize];
            if let Errand::Transfer(direction) = trip.load.errand()
                && trip.load.is_timed()
            {
                trip.sent = sent;
                // What had been due earlier was handed over with the others.
                self.tally.sent(direction, sent.saturating_sub(self.handed));
            }
        }
        // What is left goes by a call whose end is seen too.
        if wait > 0 && engine.left() == 0 {
            match engine.enter(wait, timeout) {
                // The wait ended early; what was handed over before it was.
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

    /// Counts what is there; the moment is that of the look.
    #[inline(never)]
    fn reap<E: Engine>(&mut self, engine: &mut E) -> u64 {
        let now = self.stamps.now_ns();
        self.looked = now;
        let Self { tally, trips, free: Free { slots, count }, verification, unwritten, ended, .. } = self;
        // What every result changes is kept in registers.
        let (slots, trips) = (&mut slots[..], &trips[..]);
        let (mut free, mut failures, mut ends) = (*count, self.failures, false);
        let looks = matches!(self.source, Source::ReadBack(_));
        let mends = !unwritten.is_empty();
        let (settles, mut settled) = (looks || mends || self.job.rw == Pattern::TrimWrite, 0);
        let is_trim = |trip: &Trip| trip.load.errand() == Errand::Transfer(Direction::Trim);
        let on_error = self.job.on_error;
        let mut look = tally.look(now);
        let reaped = engine.reap(|slot, answer| {
            slots[free] = slot;
            free += 1;
            let trip = &trips[slot as usize];
            if answer >= 0 && answer as u32 == trip.load.bytes() {
                failures = 0;
                if settles {
                    if looks {
                        verification.unchecked.push(slot);
                    }
                    if mends {
                        unwritten.arrived(slot, trip);
                    }
                    settled += u32::from(is_trim(trip));
                }
                return look.arrived(trip);
            }
            settled += u32::from(settles && is_trim(trip));
            unwritten.failed(slot, trip);
            if answer > 0 {
                failures = 0;
                return look.arrived_short(trip, answer as u32);
            }
            // 0: the end of the file, where there was data when the run began.
            let errno = if answer == 0 { libc::ENODATA } else { -answer };
            if let (0, Errand::Transfer(direction)) = (answer, trip.load.errand()) {
                ended[direction.index()] += 1;
            }
            look.failed(trip, errno);
            failures += 1;
            ends |= on_error == OnError::Stop || matches!(errno, libc::ENODEV | libc::ENXIO);
        });
        look.end();
        (*count, self.failures) = (free, failures);
        self.trims -= settled;
        if reaped > 0 {
            if let Some(beacon) = &self.beacon {
                beacon.looked(now);
            }
            tally.reaped(reaped);
            self.last = now;
        }
        if looks {
            self.check(engine);
        }
        self.over |= ends || self.failures >= ERRORS_IN_A_ROW;
        now
    }

    /// The ramp is over: nothing of it counts but what failed.
    #[cold]
    fn begin_to_count(&mut self, now: u64) {
        self.ramp_end = None;
        self.tally.forget_transfers(now);
        self.started_ms = wall_clock_ms();
        self.usage = cpus::usage();
        (self.first, self.last) = (now, now);
    }

    fn time_to(&mut self, until: u64) -> u64 {
        until.saturating_sub(self.stamps.now_ns())
    }

    /// How to wait for the next I/O to be due: for so many results, for so long. Shortly before, it only looks
    /// whether there are results, so that no wake-up comes late.
    fn until_due<E: Engine>(&mut self, engine: &E, due: u64) -> (u32, Option<u64>) {
        if engine.in_flight() == 0 {
            self.sleep_until(due.saturating_sub(SPIN_NS));
            return (0, None);
        }
        match self.time_to(due).checked_sub(SPIN_NS) {
            Some(left) if left > 0 => (1, Some(left)),
            _ => (0, None),
        }
    }

    /// Sleeps, but not through an end.
    fn sleep_until(&mut self, until: u64) {
        while !self.ends.reached() {
            let left = self.time_to(until);
            if left == 0 {
                return;
            }
            std::thread::sleep(Duration::from_nanos(left.min(NAP_NS)));
        }
    }

    pub fn finish(self, result: &mut JobResult) {
        let usage = self.used;
        self.verification.finish(result);
        result.never_began = self.never_began;
        result.ended = self.ended;
        result.user_ns = usage.user_ns - self.usage.user_ns;
        result.system_ns = usage.system_ns - self.usage.system_ns;
        result.context_switches = usage.context_switches - self.usage.context_switches;
        result.major_faults = usage.major_faults - self.usage.major_faults;
        result.minor_faults = usage.minor_faults - self.usage.minor_faults;
        result.started_ms = self.started_ms;
        result.duration_ns = self.last.saturating_sub(self.first);
        self.done.store(&self.tally);
        self.tally.finish(result);
    }
}

/// I/Os of one batch, on their way into the engine.
struct Departing<'a, E> {
    engine: &'a mut E,
    trips: &'a mut [Trip],
    slots: &'a [u32],
    /// So many of the slots are free.
    left: usize,
    begin: u64,
    sent: u64,
    timed: bool,
    nop: bool,
}

impl<E: Engine> Taker for Departing<'_, E> {
    #[inline(always)]
    fn take(&mut self, piece: Piece) {
        self.left -= 1;
        let slot = self.slots[self.left];
        let trip = &mut self.trips[slot as usize];
        // Where it lies does not matter to an I/O that nobody verifies.
        trip.begin = self.begin;
        trip.sent = self.sent;
        let bytes = if self.nop { 0 } else { piece.bytes };
        trip.load = Load::new(bytes, Errand::Transfer(piece.direction), self.timed);
        self.engine.queue(slot, &piece);
    }
}

/// The buffer of a slot that is not on its way.
fn slot_bytes<E: Engine>(engine: &mut E, slot: u32, bytes: u32) -> &mut [u8] {
    // SAFETY: the slot's buffer has room for the largest block of the job, and the engine, which is borrowed
    // exclusively, touches it only between queue and reap.
    unsafe { std::slice::from_raw_parts_mut(engine.buffer(slot), bytes as usize) }
}

/// Milliseconds since 1970 by the wall clock.
fn wall_clock_ms() -> Option<u64> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

#[cfg(test)]
mod tests;
