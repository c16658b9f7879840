//! Tests the loop with an engine that does what a kernel may do: it takes only some operations of a batch and completes
//! them in any order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::super::job::{Arrivals, Rate, Target};
use super::super::control::Control;
use super::*;
use crate::wire::generator::WireGenerator;

const BLOCK: usize = 4096;

/// An operation, and the stamp in the thread's slot when it was queued.
#[derive(Debug, Clone, Copy)]
struct Queued {
    slot: u32,
    piece: PlannedIo,
    handed: u64,
}

/// Completes trims at once, and a write when it is waited for or many are in flight.
struct Odd<'a> {
    buffers: Vec<u8>,
    queued: Vec<Queued>,
    outside: Vec<Queued>,
    waits: bool,
    /// Calls that only wait: a signal interrupts every third.
    only_waits: u32,
    /// Maximum number of operations taken per call.
    takes: usize,
    peak: usize,
    place: &'a WireGenerator,
    /// Operations taken with a wrong stamp.
    wrong: u32,
    /// By offset: the last operation on a block, and whether it is complete.
    blocks: BTreeMap<u64, (Direction, bool)>,
    done: Vec<PlannedIo>,
}

impl<'a> Odd<'a> {
    fn new(job: &Job, takes: usize, place: &'a WireGenerator) -> Self {
        Self {
            buffers: vec![0; BLOCK * job.iodepth as usize],
            queued: Vec::new(),
            outside: Vec::new(),
            waits: false,
            only_waits: 0,
            takes,
            peak: 0,
            place,
            wrong: 0,
            blocks: BTreeMap::new(),
            done: Vec::new(),
        }
    }

    fn handed(&self) -> u64 {
        self.place.handed.load(Ordering::Acquire)
    }
}

impl Engine for Odd<'_> {
    const IS_SYNCHRONOUS: bool = false;
    const SUBMITS_APART: bool = false;

    fn queue(&mut self, slot: u32, piece: &PlannedIo) {
        if piece.direction == Direction::Write
            && let Some((Direction::Trim, over)) = self.blocks.get(&piece.offset)
        {
            assert!(over, "the write of {} may come before its trim", piece.offset);
        }
        self.blocks.insert(piece.offset, (piece.direction, false));
        self.queued.push(Queued { slot, piece: *piece, handed: self.handed() });
    }

    fn queue_sync(&mut self, _slot: u32, _file: u16, _data_only: bool) {
        unreachable!("no job here syncs")
    }

    fn enter(&mut self, wait: u32, _timeout_ns: Option<u64>) -> io::Result<u32> {
        if wait > 0 && self.queued.is_empty() {
            self.only_waits += 1;
            if self.only_waits.is_multiple_of(3) {
                return Err(io::Error::from_raw_os_error(libc::EINTR));
            }
        }
        let taken = self.queued.len().min(self.takes);
        let handed = self.handed();
        self.wrong += self.queued[..taken].iter().filter(|one| one.handed != handed).count() as u32;
        self.outside.extend(self.queued.drain(..taken));
        self.peak = self.peak.max(self.outside.len());
        // Like the kernel, it does not wait unless it took everything.
        self.waits = wait > 0 && self.queued.is_empty();
        Ok(taken as u32)
    }

    fn left(&self) -> u32 {
        self.queued.len() as u32
    }

    fn reap(&mut self, mut found: impl FnMut(u32, i32)) -> u32 {
        let (waits, many) = (std::mem::take(&mut self.waits), self.outside.len() > 5);
        let over = self.outside.iter().rposition(|one| match one.piece.direction {
            Direction::Trim => true,
            _ => waits || many,
        });
        let Some(over) = over else { return 0 };
        let Queued { slot, piece, .. } = self.outside.remove(over);
        self.blocks.insert(piece.offset, (piece.direction, true));
        self.done.push(piece);
        found(slot, BLOCK as i32);
        1
    }

    fn in_flight(&self) -> u32 {
        (self.queued.len() + self.outside.len()) as u32
    }

    fn buffer(&self, slot: u32) -> *mut u8 {
        self.buffers.as_ptr().wrapping_add(slot as usize * BLOCK).cast_mut()
    }
}

fn job(rw: Pattern) -> Job {
    Job {
        rw,
        iodepth: 8,
        time_based: false,
        runtime: None,
        submissions: true,
        ..Job::new(Target::Existing("x".into()))
    }
}

/// Runs the job on `blocks` blocks. Returns the engine and the thread's result.
fn run<'a>(job: &Job, blocks: usize, takes: usize, places: &'a [WireGenerator]) -> (Odd<'a>, JobResult) {
    let bytes = (blocks * BLOCK) as u64;
    let regions = [Region { begin: 0, bytes, moved: bytes, block: 512 }];
    let (others, own) = (Meeting::new(1), Meeting::new(1));
    let control = Control::new(&[job], false);
    let plan = ThreadPlan {
        job,
        number: 0,
        cpus: Vec::new(),
        places: &[],
        regions: &regions,
        others: &others,
        own: &own,
        control: &control,
        place: 0,
        round_ns: 0,
        setup: None,
        run: 1,
        counter: false,
        shared: &[],
    };
    let (stop, exit, done) = (AtomicBool::new(false), AtomicBool::new(false), ThreadProgress::default());
    let mut engine = Odd::new(job, takes, &places[0]);
    let submit_stamps = SubmitStamps::new(places);
    assert!(submit_stamps.is_some());
    let ends = Ends { stop: &stop, exit: &exit };
    let mut cycle = Cycle::new(plan, Stamps::new(false), submit_stamps, ends, &done);
    cycle.run(&mut engine).unwrap();
    let mut result = JobResult::default();
    cycle.finish(&mut result);
    (engine, result)
}

#[test]
fn what_the_kernel_did_not_take_keeps_its_stamps() {
    for (rw, takes) in [(Pattern::RandRead, 3), (Pattern::RandRead, 1), (Pattern::RandWrite, 3)] {
        let places = [WireGenerator::default()];
        let job = Job { number_ios: Some(500), ..job(rw) };
        let (engine, result) = run(&job, 1_000, takes, &places);
        assert_eq!((engine.wrong, engine.done.len()), (0, 500), "{rw:?}, {takes} at once");
        let transfer = &result.transfers[job.directions().next().unwrap().index()];
        // The end of each submission was measured exactly once.
        assert_eq!((transfer.operations, transfer.slat.count(), transfer.clat.count()), (500, 500, 500));
        assert_eq!(result.submitted.sum(), 500, "and none was forgotten");
        assert!(transfer.slat.sum() + transfer.clat.sum() == transfer.lat.sum(), "they are parts of a whole");
    }
}

#[test]
fn no_write_overtakes_its_trim_at_any_depth() {
    for takes in [usize::MAX, 1] {
        let places = [WireGenerator::default()];
        let job = job(Pattern::TrimWrite);
        let (engine, result) = run(&job, 64, takes, &places);
        let [_, writes, trims] = &result.transfers;
        assert_eq!((writes.operations, trims.operations), (64, 64));
        assert!(engine.peak > 4, "writes are on their way at once: {}", engine.peak);
        assert_eq!(engine.wrong, 0);
        assert_eq!((writes.slat.count(), trims.slat.count()), (64, 64));
    }
}

#[test]
fn what_was_trimmed_is_written_also_when_the_time_is_over() {
    let rate =
        |write, trim| Some(Rate { iops: [None, write, trim], bytes: [None; 3], arrivals: Arrivals::Even });
    for rate in [None, rate(None, Some(5_000)), rate(Some(5_000), None), rate(Some(4_000), Some(5_000))] {
        let places = [WireGenerator::default()];
        let runtime = Some(Duration::from_millis(20));
        let job = Job { time_based: true, runtime, rate, ..job(Pattern::TrimWrite) };
        let (engine, result) = run(&job, 16, usize::MAX, &places);
        let [_, writes, trims] = &result.transfers;
        assert!(
            trims.operations > 16 && writes.operations == trims.operations,
            "{rate:?}: {trims:?} {writes:?}"
        );
        assert!(engine.blocks.values().all(|last| *last == (Direction::Write, true)), "{rate:?}");
    }
}
