//! Reads the event stream: a ring buffer per CPU, polled by the clock, and the counts of events that did not fit.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, RingBuffer, RingBufferBuilder, libbpf_sys};
use zerocopy::IntoBytes;

use super::maps;
use super::skel::latency::OpenLatencySkel;
use crate::wire::Record;
use crate::wire::events::{Event, EventCounts, WireEmitter, WireIo};

/// Which I/Os have an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventOptions {
    /// A bit per class of requests, in the order of `enum wire_op`.
    pub ops: u32,
    /// One in this many, by a counter per CPU; 0 and 1: all.
    pub every: u32,
    /// Only I/Os that took at least this long in the block layer.
    pub slower_ns: u64,
    /// Bytes of each CPU's ring buffer, rounded to a power of two of pages; None: chosen for this machine.
    pub ring_bytes: Option<u32>,
}

impl Default for EventOptions {
    fn default() -> Self {
        Self { ops: u32::MAX, every: 0, slower_ns: 0, ring_bytes: None }
    }
}

/// Limit per ring buffer: 30,000 I/Os with their operations, which is a seventh of a second at the highest rate of one
/// CPU.
const MOST_BYTES: u32 = 8 << 20;
/// Limit for all of them together.
const ALL_BYTES: u64 = 64 << 20;
const LEAST_BYTES: u32 = 4096;

/// Time between two polls of the ring buffers, which hold many times what arrives meanwhile.
const NAP: Duration = Duration::from_millis(5);
/// Most records that are taken per poll, from all ring buffers together.
const AT_ONCE: usize = 1 << 14;
/// After this many records, the next poll follows without a sleep.
const MANY: usize = 1 << 12;
/// A record with its header in a ring buffer; operations take less.
const RECORD_BYTES: u64 = size_of::<WireIo>() as u64 + 8;

/// The result of polling all ring buffers once.
#[derive(Debug, Default)]
pub struct PollResult {
    pub events: Vec<Event>,
    /// Whether the poll took every record that existed when it began.
    pub emptied: bool,
}

/// Records of the current poll so far.
#[derive(Default)]
struct Got {
    events: Vec<Event>,
    damaged: u64,
}

/// All ring buffers. A separate thread empties them, so that they stay empty while output is generated and written. It
/// stops when as many events wait as the ring buffers themselves hold. Then the ring buffers fill up, and the kernel
/// counts the events that do not fit. Dropping this ends the thread and frees the ring buffers.
pub struct Rings {
    shared: Arc<SharedQueue>,
    thread: Option<JoinHandle<()>>,
    emitters: MapHandle,
    cpus: u32,
    bytes: u32,
}

/// Sizes the maps, and configures the programs. Must be called before they are loaded.
pub fn prepare(open: &mut OpenLatencySkel<'_>, options: &EventOptions, cpus: u32) -> Result<()> {
    let maps = &mut open.maps;
    maps.event_rings.set_max_entries(cpus)?;
    maps.emitters.set_max_entries(cpus)?;
    // One per entry of these tables.
    let places = maps.operations.max_entries() + maps.callers.max_entries();
    maps.operation_facts.set_max_entries(places)?;
    let config = &mut maps.rodata_data.as_mut().context("the object has read-only data")?.config;
    config.events_enabled = 1;
    config.event_ops = options.ops;
    config.event_every = options.every;
    config.event_slower_ns = options.slower_ns;
    Ok(())
}

impl Rings {
    /// Creates a ring buffer per CPU, passes it to the programs through the maps of `bpf/emit.h`, and begins to poll
    /// before the programs run.
    pub fn new(
        event_rings: &impl MapCore,
        emitters: MapHandle,
        options: &EventOptions,
        cpus: u32,
    ) -> Result<Self> {
        let bytes = ring_bytes(options.ring_bytes, cpus);
        let opts = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let mut maps = Vec::new();
        for cpu in 0..cpus {
            let map = MapHandle::create(MapType::RingBuf, Some("event_ring"), 0, 0, bytes, &opts)
                .with_context(|| format!("a ring buffer of {bytes} bytes for CPU {cpu} cannot be made"))?;
            let number = map.as_fd().as_raw_fd();
            event_rings.update(&cpu.to_ne_bytes(), &number.to_ne_bytes(), MapFlags::ANY)?;
            let first = WireEmitter { skip: phase(options.every)?, ..WireEmitter::default() };
            emitters.update(&cpu.to_ne_bytes(), first.as_bytes(), MapFlags::ANY)?;
            maps.push(map);
        }
        let most = (u64::from(bytes) * u64::from(cpus) / RECORD_BYTES) as usize;
        let shared = Arc::new(SharedQueue::new(most));
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("biopsy-events".to_string())
            .spawn(move || theirs.end_with(empty(&maps, &theirs)))
            .context("the thread that empties the ring buffers of events cannot be started")?;
        Ok(Self { shared, thread: Some(thread), emitters, cpus, bytes })
    }

    /// The result of the next poll; None: there was none within `patience`, or there will be no more. Without
    /// `patience` it waits until [`Self::end`] takes effect.
    pub fn take(&self, patience: Option<Duration>) -> Result<Option<PollResult>> {
        self.shared.take(patience)
    }

    /// Returns a processed buffer for reuse.
    pub fn give_back(&self, events: Vec<Event>) {
        self.shared.give_back(events);
    }

    /// Requests the end: the programs send no more, so the ring buffers hold all that is left.
    pub fn end(&self) {
        self.shared.tell(|state| state.ending = true);
    }

    /// What the programs have counted so far.
    pub fn emitted(&self) -> Result<EventCounts> {
        let mut all = EventCounts { damaged: self.shared.damaged(), ..EventCounts::default() };
        for cpu in 0..self.cpus {
            all.add(&WireEmitter::decode(&maps::element(&self.emitters, cpu)?)?);
        }
        Ok(all)
    }

    /// Bytes of all ring buffers.
    pub fn bytes(&self) -> u64 {
        u64::from(self.bytes) * u64::from(self.cpus)
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        self.shared.tell(|state| state.gone = true);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// Polls the ring buffers until they are to end.
fn empty(maps: &[MapHandle], shared: &SharedQueue) -> Result<()> {
    let got = Rc::new(RefCell::new(Got::default()));
    let mut rings = Vec::new();
    for map in maps {
        let into = Rc::clone(&got);
        let mut builder = RingBufferBuilder::new();
        builder.add(map, move |record| {
            let mut got = into.borrow_mut();
            match Event::decode(record) {
                Ok(event) => got.events.push(event),
                Err(_) => got.damaged += 1,
            }
            0
        })?;
        rings.push(builder.build()?);
    }
    let mut first = 0;
    while let Some((buffer, ending)) = shared.room() {
        got.borrow_mut().events = buffer;
        let emptied = look(&rings, first)?;
        // Start with another one each time: the first can deliver more than the last.
        first = (first + 1) % rings.len().max(1);
        let mut got = got.borrow_mut();
        let events = std::mem::take(&mut got.events);
        let many = events.len() >= MANY;
        shared.bring(PollResult { events, emptied }, got.damaged);
        if ending && emptied {
            break;
        }
        if !ending && !many {
            shared.nap();
        }
    }
    Ok(())
}

/// Takes the available records, up to a limit, however fast others arrive. True: nothing was left.
fn look(rings: &[RingBuffer<'_>], first: usize) -> Result<bool> {
    let mut left = AT_ONCE;
    for i in 0..rings.len() {
        let Some(ring) = rings.get((first + i) % rings.len()) else { continue };
        let taken = ring.consume_raw_n(left);
        anyhow::ensure!(taken >= 0, "a ring buffer of events cannot be read: error {}", -taken);
        left = left.saturating_sub(taken as usize);
        if left == 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// State shared by the thread that empties the ring buffers and its owner.
struct SharedQueue {
    state: Mutex<QueueState>,
    /// Signals that there is something to take, or that it is over.
    came: Condvar,
    /// Signals that there is room, or that it should end.
    told: Condvar,
    /// Most events that may wait.
    most: usize,
}

#[derive(Default)]
struct QueueState {
    looks: VecDeque<PollResult>,
    /// Number of events in `looks`.
    waiting: usize,
    spare: Vec<Vec<Event>>,
    damaged: u64,
    ending: bool,
    gone: bool,
    over: Option<Result<()>>,
}

impl SharedQueue {
    fn new(most: usize) -> Self {
        Self { state: Mutex::default(), came: Condvar::new(), told: Condvar::new(), most }
    }

    /// If the thread panicked, its counts and lists are still consistent.
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, what: impl FnOnce(&mut QueueState)) {
        what(&mut self.state());
        self.told.notify_all();
    }

    fn damaged(&self) -> u64 {
        self.state().damaged
    }

    /// Waits until there is room for the result of a poll; returns a buffer, and whether to end. None: the owner is
    /// gone.
    fn room(&self) -> Option<(Vec<Event>, bool)> {
        let full = |state: &mut QueueState| state.waiting >= self.most && !state.gone;
        let waited = self.told.wait_while(self.state(), full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let buffer = state.spare.pop().unwrap_or_default();
        (!state.gone).then_some((buffer, state.ending))
    }

    fn bring(&self, taken: PollResult, damaged: u64) {
        let mut state = self.state();
        state.damaged = damaged;
        // Consecutive empty polls carry no information: only the first is kept.
        let news = !taken.events.is_empty() || state.looks.back().is_none_or(|last| !last.events.is_empty());
        if news {
            state.waiting += taken.events.len();
            state.looks.push_back(taken);
            self.came.notify_all();
        }
    }

    fn nap(&self) {
        let idle = |state: &mut QueueState| !state.ending && !state.gone;
        // Either the time is over or the end was requested: the caller checks both.
        let _either = self.told.wait_timeout_while(self.state(), NAP, idle);
    }

    fn end_with(&self, result: Result<()>) {
        self.state().over = Some(result);
        self.came.notify_all();
    }

    fn take(&self, patience: Option<Duration>) -> Result<Option<PollResult>> {
        let nothing = |state: &mut QueueState| state.looks.is_empty() && state.over.is_none();
        let state = self.state();
        let mut state = match patience {
            Some(patience) => self
                .came
                .wait_timeout_while(state, patience, nothing)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state),
            None => self.came.wait_while(state, nothing).unwrap_or_else(PoisonError::into_inner),
        };
        let Some(taken) = state.looks.pop_front() else {
            // The error is returned once.
            let result = state.over.as_mut().map_or(Ok(()), |over| std::mem::replace(over, Ok(())));
            return result.map(|()| None);
        };
        state.waiting -= taken.events.len();
        drop(state);
        self.told.notify_all();
        Ok(Some(taken))
    }

    fn give_back(&self, mut events: Vec<Event>) {
        events.clear();
        let mut state = self.state();
        // One to fill, one being processed, and one in between.
        if events.capacity() > 0 && state.spare.len() < 3 {
            state.spare.push(events);
        }
    }
}

/// Start value of a CPU's counter for every Nth I/O: random, or all CPUs would select in step.
fn phase(every: u32) -> Result<u64> {
    if every < 2 {
        return Ok(0);
    }
    let mut word = [0; 8];
    // SAFETY: writes at most the length of the buffer that it is given.
    let got = unsafe { libc::getrandom(word.as_mut_ptr().cast(), word.len(), 0) };
    anyhow::ensure!(got == word.len() as isize, "the kernel gave no random number");
    Ok(u64::from_ne_bytes(word) % u64::from(every))
}

fn ring_bytes(wanted: Option<u32>, cpus: u32) -> u32 {
    let share = (ALL_BYTES / u64::from(cpus.max(1))) as u32;
    let bytes = wanted.unwrap_or(share).clamp(LEAST_BYTES, MOST_BYTES);
    // A power of two that does not exceed the share.
    1 << bytes.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_share_what_there_is() {
        assert_eq!(ring_bytes(None, 2), MOST_BYTES);
        assert_eq!(ring_bytes(None, 384), 128 << 10);
        assert_eq!(ring_bytes(None, 8192), 8 << 10);
        assert_eq!(ring_bytes(Some(5000), 2), 4096);
        assert_eq!((ring_bytes(Some(1), 2), ring_bytes(Some(u32::MAX), 2)), (LEAST_BYTES, MOST_BYTES));
    }

    fn look(events: usize) -> PollResult {
        PollResult { events: vec![Event::Io(WireIo::default()); events], emptied: true }
    }

    /// Otherwise the queue would grow without a limit when the owner stops reading.
    #[test]
    fn no_look_is_made_while_enough_waits() {
        let shared = Arc::new(SharedQueue::new(4));
        shared.bring(look(3), 0);
        assert!(shared.room().is_some());
        shared.bring(look(3), 2);
        let theirs = Arc::clone(&shared);
        let waits = std::thread::spawn(move || theirs.room().map(|(_, ending)| ending));
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waits.is_finished());
        assert_eq!(shared.take(Some(Duration::ZERO)).unwrap().unwrap().events.len(), 3);
        assert_eq!(waits.join().unwrap(), Some(false));
        shared.tell(|state| state.ending = true);
        assert_eq!((shared.room().map(|(_, ending)| ending), shared.damaged()), (Some(true), 2));
        shared.bring(look(9), 2);
        shared.tell(|state| state.gone = true);
        assert!(shared.room().is_none());
    }

    #[test]
    fn looks_come_in_order_and_then_their_end() {
        let shared = SharedQueue::new(4);
        let take = || shared.take(Some(Duration::ZERO)).map(|taken| taken.map(|t| t.events.len()));
        assert_eq!(take().unwrap(), None);
        for events in [1, 0, 0, 0, 2] {
            shared.bring(look(events), 0);
        }
        assert_eq!([take().unwrap(), take().unwrap(), take().unwrap()], [Some(1), Some(0), Some(2)]);
        shared.bring(look(1), 0);
        shared.end_with(Err(anyhow::anyhow!("it broke")));
        // Received events are not lost, and the reason for the end is returned.
        assert_eq!(shared.take(None).unwrap().map(|t| t.events.len()), Some(1));
        assert_eq!(shared.take(None).unwrap_err().to_string(), "it broke");
        assert!(shared.take(None).unwrap().is_none());
    }

    #[test]
    fn a_phase_lies_below_its_period() {
        assert!((0..100).all(|_| phase(7).unwrap() < 7));
        assert_eq!((phase(0).unwrap(), phase(1).unwrap()), (0, 0));
    }
}
