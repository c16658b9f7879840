//! Records the kernel's counters ten times a second, in memory that does not grow with the run.

use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::clock::{now_ns, thread_ns};
use crate::host::memory_reading::MemoryReading;
use crate::wire::pagecache::Step;

/// Initial time between two readings.
const STEP: Duration = Duration::from_millis(100);

/// Above this many readings the series is thinned out: an hour at one per second.
const MOST: usize = 3600;

/// Readings at equal distances; the distance doubles whenever there are too many.
#[derive(Debug)]
struct ReadingSeries {
    steps: Vec<Step>,
    most: usize,
    every: Duration,
}

impl ReadingSeries {
    fn new(most: usize) -> Self {
        Self { steps: Vec::new(), most, every: STEP }
    }

    /// Adds a reading. When there are too many, every second one is dropped and the first one stays. Counters are
    /// cumulative, so nothing is lost: the steps become longer.
    fn push(&mut self, step: Step) {
        if self.steps.len() >= self.most {
            let mut at = 0;
            self.steps.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.every *= 2;
        }
        self.steps.push(step);
    }

    /// Returns the steps for a reading at `at_ns`. The last step up to that time stays, as the next one begins there,
    /// and so do later ones. The distance of further readings is reset.
    fn take(&mut self, at_ns: u64) -> Vec<Step> {
        let all = self.steps.clone();
        let up_to = self.steps.partition_point(|step| step.memory.at_ns <= at_ns);
        self.steps.drain(..up_to.saturating_sub(1));
        self.every = STEP;
        all
    }
}

/// The thread that reads.
pub struct Recorder {
    series: Arc<Mutex<ReadingSeries>>,
    /// Dropping it stops the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// `reclaims`: how often tasks had to reclaim so far, as counted by the probe. `spins`: time of spinning waits.
    pub fn start(
        root: PathBuf,
        disks: Vec<String>,
        reclaims: impl Fn() -> Option<u64> + Send + 'static,
        spins: impl Fn() -> Option<u64> + Send + 'static,
    ) -> Result<Self> {
        let series = Arc::new(Mutex::new(ReadingSeries::new(MOST)));
        let shared = Arc::clone(&series);
        let (stop, stopped) = mpsc::channel();
        let look = move || Step {
            cpu_ns: thread_ns(),
            memory: MemoryReading::read(&root, &disks, now_ns()),
            reclaims: reclaims(),
            spin_wait_ns: spins(),
        };
        let thread = std::thread::Builder::new()
            .name("biopsy-memory".to_string())
            .spawn(move || {
                let mut due = Instant::now();
                loop {
                    let step = look();
                    let mut series = shared.lock().unwrap_or_else(PoisonError::into_inner);
                    series.push(step);
                    // A late reading does not make the next ones follow at once.
                    due = (due + series.every).max(Instant::now() + series.every / 2);
                    drop(series);
                    let wait = due.saturating_duration_since(Instant::now());
                    match stopped.recv_timeout(wait) {
                        Err(RecvTimeoutError::Timeout) => {}
                        _ => break,
                    }
                }
            })
            .context("the thread that reads memory counters cannot be started")?;
        Ok(Self { series, stop: Some(stop), thread: Some(thread) })
    }

    /// The steps up to now, for a reading at that time; later readings do not include them.
    pub fn take(&self, at_ns: u64) -> Vec<Step> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner).take(at_ns)
    }

    /// Ends the thread; returns the steps since the last reading.
    pub fn end(mut self) -> Vec<Step> {
        self.stop();
        std::mem::take(&mut self.series.lock().unwrap_or_else(PoisonError::into_inner).steps)
    }

    fn stop(&mut self) {
        drop(self.stop.take());
        // If the thread panicked, the earlier steps remain.
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // After `stop` nothing is left to do.
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(at_ns: u64) -> Step {
        Step { memory: MemoryReading { at_ns, ..MemoryReading::default() }, ..Step::default() }
    }

    /// However long the run, the first reading stays, and the distances are equal.
    #[test]
    fn a_long_series_is_thinned_out_evenly() {
        let mut series = ReadingSeries::new(8);
        let mut at = 0;
        for _ in 0..100 {
            series.push(step(at));
            at += series.every.as_millis() as u64;
        }
        let times: Vec<u64> = series.steps.iter().map(|step| step.memory.at_ns).collect();
        assert!(times.len() <= 8 && times.len() >= 4, "{times:?}");
        assert_eq!(times[0], 0);
        let every = series.every.as_millis() as u64;
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == every), "{every}: {times:?}");
    }

    /// Steps up to 35: the next reading begins with the step across that boundary.
    #[test]
    fn a_reading_takes_the_steps_but_for_the_one_at_its_edge() {
        let mut series = ReadingSeries::new(8);
        let times = |steps: Vec<Step>| steps.iter().map(|step| step.memory.at_ns).collect::<Vec<_>>();
        [10, 20, 30, 40].into_iter().for_each(|at_ns| series.push(step(at_ns)));
        series.every = 4 * STEP;
        assert_eq!(times(series.take(35)), [10, 20, 30, 40]);
        assert_eq!(series.every, STEP);
        series.push(step(50));
        assert_eq!(times(series.take(60)), [30, 40, 50]);
        assert_eq!(times(series.take(70)), [50]);
        assert_eq!(times(series.take(45)), [50], "it is behind that edge");
        assert_eq!(times(series.steps), [50]);
    }

    #[test]
    fn the_thread_reads_until_it_is_stopped() {
        let recorder = Recorder::start(PathBuf::from("/"), Vec::new(), || Some(7), || None).unwrap();
        let series = Arc::clone(&recorder.series);
        std::thread::sleep(Duration::from_millis(350));
        let steps = recorder.end();
        assert!((2..=5).contains(&steps.len()), "{}", steps.len());
        assert!(steps.iter().all(|step| step.reclaims == Some(7) && step.memory.memory.free_bytes.is_some()));
        // Their cost is known from the second one on, and is a fraction of the time.
        let spent: Vec<u64> = steps.iter().map(|step| step.cpu_ns).collect();
        assert!(spent.is_sorted_by(|a, b| a < b) && spent[spent.len() - 1] < 350_000_000, "{spent:?}");
        std::thread::sleep(2 * STEP);
        assert!(series.lock().unwrap().steps.is_empty(), "it reads no more");
    }
}
