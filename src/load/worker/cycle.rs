//! The main loop of a thread: submits I/Os, reaps completions, counts them.

mod back;
mod submit;

use std::io;
use std::time::{Duration, SystemTime};

use super::super::buffers::Slots;
use super::super::content::Content;
use super::super::engine::Engine;
use super::super::job::{Direction, Job, OnError, Pattern, Timestamps};
use super::super::pace::Pace;
use super::super::sequence::{PlannedIo, Region, Sequence};
use super::super::stamps::Stamps;
use super::super::submit_stamps::SubmitStamps;
use super::super::tally::{ExpectedResult, InFlight, OpKind, Tally};
use super::super::{JobResult, cpus};
use super::cache::Cache;
use super::depth_search::{DepthSearch, SearchStep};
use super::floor::Floor;
use super::free::Free;
use super::gate::Meeting;
use super::priorities::Priorities;
use super::source::IoSource;
use super::syncs::Syncs;
use super::unwritten::Unwritten;
use super::verification::Verification;
use super::{Ends, ThreadPlan, ThreadProgress};

/// A job ends after this many consecutive errors: only errors will follow.
pub const ERRORS_IN_A_ROW: u32 = 1_000;
/// Interval at which a job publishes its progress.
const PUBLISH_NS: u64 = 50_000_000;
/// How often a call is retried that fails for lack of memory.
const RETRIES: u32 = 1_000;
/// Where one call submits and waits, one call in this many is split in two, to measure when the submission ends.
const APART_EVERY: u32 = 64;
/// A thread stops sleeping this long before an I/O is due: a wake-up takes up to that long.
const SPIN_NS: u64 = 50_000;
/// The longest sleep without checking whether to stop.
const NAP_NS: u64 = 50_000_000;

/// The loop and its state. Per batch it makes two clock reads and one system call. Per operation it makes no
/// allocation, takes no lock and touches no shared memory.
pub struct Cycle<'a> {
    job: &'a Job,
    number: u32,
    regions: &'a [Region],
    source: IoSource,
    others: &'a Meeting,
    own: &'a Meeting,
    /// Its end ends others.
    exits: bool,
    /// When its round began.
    round_ns: u64,
    content: Content,
    unwritten: Unwritten,
    cache: Option<Cache>,
    /// Fast path: nothing is written, all or no I/Os are timed, no pass is counted, and no depth is searched.
    plain: bool,
    verification: Verification,
    pace: Option<Pace>,
    floor: Option<Floor>,
    depth_search: Option<DepthSearch>,
    priorities: Option<Priorities>,
    pub too_slow: Option<String>,
    /// Loops left.
    loops: u32,
    /// I/Os of the longest loop before this one.
    looped: u64,
    /// When its time was over, or it was stopped.
    ended_at: Option<u64>,
    never_began: Option<u64>,
    pub stamps: Stamps,
    submit_stamps: Option<SubmitStamps<'a>>,
    ends: Ends<'a>,
    done: &'a ThreadProgress,
    tally: Tally,
    usage: cpus::Usage,
    /// CPU usage at the end of the load.
    used: cpus::Usage,
    trips: Vec<InFlight>,
    free: Free,
    /// Slots of a batch whose submission is timed.
    batch: Vec<u32>,
    /// The next I/O, which is not due yet.
    pending: Option<PlannedIo>,
    /// Trims in flight, of a job that writes what it trims.
    trims: u32,
    /// The pending I/O waits for one of them.
    held: bool,
    /// When the last batch began.
    handed: u64,
    /// When completions were last checked.
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
    /// By direction: failures that found the end of the target.
    ended: [u64; 3],
    /// Nothing more begins.
    over: bool,
}

impl<'a> Cycle<'a> {
    pub fn new(
        plan: ThreadPlan<'a>,
        stamps: Stamps,
        submit_stamps: Option<SubmitStamps<'a>>,
        ends: Ends<'a>,
        done: &'a ThreadProgress,
    ) -> Self {
        let depth = Slots::depth_of(plan.job);
        let cache = Cache::new(&plan);
        let priorities = Priorities::new(plan.job, plan.number);
        let is_sampled = matches!(plan.job.timestamps, Timestamps::Sampled(_));
        Self {
            job: plan.job,
            number: plan.number,
            regions: plan.regions,
            source: IoSource::Order(Sequence::new(plan.job, plan.regions, plan.number)),
            others: plan.others,
            own: plan.own,
            exits: plan.control.has_exitall(),
            round_ns: plan.round_ns,
            unwritten: Unwritten::new(if plan.job.verify { depth as usize } else { 0 }),
            plain: !is_sampled
                && !plan.job.rw.has(Direction::Write)
                && cache.is_none()
                && priorities.is_none()
                && plan.job.latency_target.is_none(),
            cache,
            content: Content::new(plan.job, plan.number).of_run(plan.run),
            verification: Verification::default(),
            pace: Pace::new(plan.job, plan.number),
            floor: Floor::new(plan.job),
            depth_search: DepthSearch::new(plan.job),
            priorities,
            too_slow: None,
            loops: plan.job.loops.saturating_sub(1),
            looped: 0,
            ended_at: None,
            never_began: None,
            stamps,
            submit_stamps,
            ends,
            done,
            tally: Tally::default(),
            usage: cpus::Usage::default(),
            used: cpus::Usage::default(),
            trips: vec![InFlight::NONE; depth as usize],
            free: Free::all(depth),
            batch: Vec::with_capacity(depth as usize),
            pending: None,
            trims: 0,
            held: false,
            handed: 0,
            looked: 0,
            // Threads time different I/Os, not all the first one.
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

    /// Whether it ended because of consecutive errors.
    pub fn gave_up(&self) -> bool {
        self.failures >= ERRORS_IN_A_ROW
    }

    /// Runs the load, then the read-back.
    pub fn run<E: Engine>(&mut self, engine: &mut E) -> io::Result<()> {
        if self.job.rw.has(Direction::Write) {
            for slot in 0..self.trips.len() as u32 {
                let bytes = self.job.bs[Direction::Write.index()].largest();
                self.content.fill(slot_bytes(engine, slot, bytes as u32));
            }
        }
        let writer = (self.others.attend(), self.own.attend());
        if !self.job.startdelay.is_zero() {
            let delay = u64::try_from(self.job.startdelay.as_nanos()).unwrap_or(u64::MAX);
            self.sleep_until(self.round_ns.saturating_add(delay));
        }
        let deadline = self.begin();
        let driven = self.turn(engine, deadline).and_then(|()| self.end_sync(engine));
        drop(writer);
        self.used = cpus::usage();
        if let Some(pace) = self.pace.take() {
            self.never_began = pace.never_began(self.first, self.ended_at.unwrap_or(self.first));
        }
        driven?;
        let looks = self.job.verify && self.job.do_verify && self.job.rw.has(Direction::Write);
        // A thread whose end ends the others cannot wait for them.
        let others = if self.exits { self.own } else { self.others };
        let ends = self.ends;
        if !looks || ends.reached() {
            return Ok(());
        }
        others.wait(|| ends.reached()).map_or(Ok(()), |_reader| self.look_back(engine))
    }

    /// fio's `end_fsync`: syncs each target, one after the other.
    fn end_sync<E: Engine>(&mut self, engine: &mut E) -> io::Result<()> {
        let files = if self.job.end_fsync && self.job.rw.writes() { self.regions.len() } else { 0 };
        for file in 0..files as u16 {
            let Some(slot) = self.free.next() else { return Ok(()) };
            let begin = self.stamps.now_ns();
            if let Some(submit_stamps) = &self.submit_stamps {
                submit_stamps.handed(begin);
            }
            self.trips[slot as usize] =
                InFlight { begin, load: ExpectedResult::new(0, OpKind::Sync, true), ..InFlight::NONE };
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

    /// Starts the clock. Returns when the time is over.
    fn begin(&mut self) -> u64 {
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.usage = cpus::usage();
        self.first = self.stamps.now_ns();
        (self.last, self.looked) = (self.first, self.first);
        self.tally = Tally::begin(self.first, ns(self.job.logs.interval))
            .by_priority(self.priorities.is_some())
            .late_above(self.depth_search.as_ref().map(DepthSearch::late_above_ns));
        self.started_ms = wall_clock_ms();
        if let Some(pace) = &mut self.pace {
            pace.begin(self.first);
        }
        if let Some(floor) = &mut self.floor {
            floor.begin(self.first);
        }
        if let Some(search) = &mut self.depth_search {
            search.begin(self.first);
        }
        let ramp = ns(self.job.ramp_time);
        self.ramp_end = Some(self.first.saturating_add(ramp)).filter(|_| ramp > 0);
        let runtime = self.job.runtime.map_or(u64::MAX, |time| ns(time).saturating_add(ramp));
        self.first.saturating_add(runtime)
    }

    /// Runs until the time or the source is over, and nothing is in flight.
    fn turn<E: Engine>(&mut self, engine: &mut E, deadline: u64) -> io::Result<()> {
        let mut publish = self.last + PUBLISH_NS;
        let (mut retries, mut round) = (0u32, 0u32);
        self.over = self.ends.reached();
        while !self.over || engine.in_flight() > 0 {
            let wakes = self.fill(engine);
            let (wait, timeout) = match wakes {
                // Waits for completions only where there is no room, or nothing more will begin.
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
                // EINTR: a signal; check the stop flag. EBUSY: completions must be reaped first.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => {}
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) && retries < RETRIES => retries += 1,
                Err(e) => return Err(e),
            }
            let now = self.reap(engine);
            self.tally.sample(now);
            if let Some(floor) = &mut self.floor
                && !self.over
                && let Some(why) = floor.missed(&self.tally, now)
            {
                self.too_slow = Some(why);
                self.end(now);
            }
            self.search_depth(now);
            // Reads of the read-back do not count as progress.
            if now >= publish && matches!(self.source, IoSource::Order(_)) {
                self.done.store(&self.tally);
                publish = now + PUBLISH_NS;
            }
            if now >= deadline || self.ends.reached() {
                self.end(now.min(deadline));
                // A run with a fixed duration lasted that long, even if its last completion came much earlier.
                self.last = self.last.max(now.min(deadline));
            }
        }
        if self.ramp_end.is_some() {
            self.begin_to_count(self.last);
        }
        Ok(())
    }

    /// Feeds the depth search of a job with `latency_target`.
    #[inline]
    fn search_depth(&mut self, now: u64) {
        let is_over = self.over || self.ended_at.is_some() || !matches!(self.source, IoSource::Order(_));
        let Some(search) = self.depth_search.as_mut().filter(|_| !is_over && self.ramp_end.is_none()) else {
            return;
        };
        match search.look(self.tally.operations(), self.tally.late(), now) {
            SearchStep::Continue => {}
            SearchStep::Forget => self.count_anew(now),
            SearchStep::Done => self.end(now),
            SearchStep::TooSlow(why) => {
                self.too_slow = Some(why);
                self.end(now);
            }
        }
    }

    /// Begins nothing new except for the rest of an unfinished I/O.
    #[cold]
    fn end(&mut self, at: u64) {
        self.ended_at.get_or_insert(at);
        // An I/O that is not due yet will not begin. But with a read-back of everything drawn it must be written, and
        // so must a trimmed block.
        if !self.job.verify && !self.writes_trimmed() {
            self.pending = None;
        }
        if let Some(pace) = &mut self.pace {
            pace.release();
        }
        self.source.finish();
        self.loops = 0;
    }

    /// Reaps and counts completions; all get the time of this check.
    #[inline(never)]
    fn reap<E: Engine>(&mut self, engine: &mut E) -> u64 {
        let now = self.stamps.now_ns();
        self.looked = now;
        // Before these completions are counted: they came after the ramp as far as can be told.
        if let Some(end) = self.ramp_end.filter(|end| now >= *end) {
            self.begin_to_count(end);
        }
        let Self { tally, trips, free: Free { slots, count }, verification, unwritten, ended, .. } = self;
        // Values that every completion changes are kept in registers.
        let (slots, trips) = (&mut slots[..], &trips[..]);
        let (mut free, mut failures, mut ends) = (*count, self.failures, false);
        let looks = matches!(self.source, IoSource::ReadBack(_));
        let mends = !unwritten.is_empty();
        let (settles, mut settled) = (looks || mends || self.job.rw == Pattern::TrimWrite, 0);
        let is_trim = |trip: &InFlight| trip.load.kind() == OpKind::Transfer(Direction::Trim);
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
            if let (0, OpKind::Transfer(direction)) = (answer, trip.load.kind()) {
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
            if let Some(submit_stamps) = &self.submit_stamps {
                submit_stamps.looked(now);
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

    /// The ramp was over at `end`: nothing of it counts except for failures. The interval begins at that time, even if
    /// no completion has come since, because the deadline counts from it.
    #[cold]
    fn begin_to_count(&mut self, end: u64) {
        self.ramp_end = None;
        let begun = self.transfers_in_flight() + u64::from(self.pending.is_some());
        if let IoSource::Order(sequence) = &mut self.source {
            sequence.count_from_here(self.job, begun);
        }
        self.count_anew(end);
        if let Some(search) = &mut self.depth_search {
            search.begin(end);
        }
    }

    #[cold]
    fn count_anew(&mut self, from: u64) {
        self.tally.forget_transfers(from);
        self.started_ms = wall_clock_ms();
        self.usage = cpus::usage();
        (self.first, self.last) = (from, from);
    }

    fn transfers_in_flight(&self) -> u64 {
        let mut busy = vec![true; self.trips.len()];
        self.free.slots[..self.free.count].iter().for_each(|slot| busy[*slot as usize] = false);
        let transfers = |(trip, busy): &(&InFlight, bool)| *busy && trip.load.kind() != OpKind::Sync;
        self.trips.iter().zip(busy).filter(transfers).count() as u64
    }

    fn time_to(&mut self, until: u64) -> u64 {
        until.saturating_sub(self.stamps.now_ns())
    }

    /// How to wait until the next I/O is due: for how many completions, and how long. Shortly before, it polls, so that
    /// no wake-up comes late.
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

    /// Sleeps, but returns early if the run ends.
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
        result.too_slow = self.too_slow;
        result.latency_depth = self.depth_search.as_ref().map(DepthSearch::depth);
        result.depth_is_found = self.depth_search.as_ref().is_some_and(DepthSearch::is_found);
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

/// The buffer of a slot that is not in flight.
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
