//! Records several views at once, each with its probe on its own thread, with synchronised intervals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::wall_clock;
use super::watch::{self, Grid, IntervalView, Live, Pieces};
use super::window::Window;
use crate::probe::Probe;

/// The interval that all views share.
#[derive(Debug, Clone, Copy)]
pub struct Opening {
    pub at: Instant,
    pub interval: Duration,
    pub length: Option<Duration>,
}

/// The open interval as seen by a view's thread.
pub struct OpenInterval<'a> {
    pub opening: Opening,
    over: &'a AtomicBool,
    begun: Sender<()>,
}

impl<'a> OpenInterval<'a> {
    /// Signals that the view counts.
    pub fn window(self) -> Window<'a> {
        drop(self.begun);
        Window::beside(self.over, self.opening.length.map(|length| self.opening.at + length))
    }
}

/// The result of a view.
pub struct ViewResult<T> {
    pub view: &'static str,
    /// None: its thread panicked.
    pub tape: Option<T>,
    /// Why it must not be trusted, or why it ended early.
    pub doubt: Result<Option<String>>,
}

struct Thread<'scope, T> {
    view: &'static str,
    /// A message opens the interval. If it is dropped first, there is none.
    open: Sender<Opening>,
    /// Closes when the view counts, or the thread has failed.
    begun: Receiver<()>,
    handle: ScopedJoinHandle<'scope, (T, Result<Option<String>>)>,
}

/// The recorded views; `T` receives the output of each.
pub struct Views<'scope, 'env, T> {
    scope: &'scope Scope<'scope, 'env>,
    threads: Vec<Thread<'scope, T>>,
    over: Arc<AtomicBool>,
    max_loss: f64,
}

impl<'scope, 'env, T: Send + 'scope> Views<'scope, 'env, T> {
    /// Loss above `max_loss` percent makes a view untrustworthy.
    pub fn new(scope: &'scope Scope<'scope, 'env>, max_loss: f64) -> Self {
        Self { scope, threads: Vec::new(), over: Arc::default(), max_loss }
    }

    /// Prepares a live view on its own thread, and returns when that is done. `show` receives its intervals.
    ///
    /// # Errors
    ///
    /// The error of `prepare`: then the view is not recorded.
    pub fn add<V: Live>(
        &mut self,
        view: &'static str,
        tape: T,
        prepare: impl FnOnce() -> Result<(V, V::Probe)> + Send + 'scope,
        mut show: impl FnMut(&mut T, &IntervalView<'_, V::Summary>) -> Result<()> + Send + 'scope,
    ) -> Result<()> {
        let max_loss = self.max_loss;
        let record = move |(mut live, mut probe): (V, V::Probe), tape: &mut T, opened: OpenInterval<'_>| {
            let start = wall_clock::envelope();
            probe.begin()?;
            let Opening { at, interval, .. } = opened.opening;
            let window = opened.window();
            let pieces = Pieces { start, grid: Some(Grid::new(at, interval)), count: None };
            let show = |_: &V::Probe, shown: &IntervalView<'_, V::Summary>| show(tape, shown);
            watch::follow(&mut live, &mut probe, window, pieces, max_loss, show)
        };
        self.add_with(view, tape, prepare, record)
    }

    /// Same as [`Self::add`], for any view: `record` does everything from the opening of the interval on. It calls
    /// [`OpenInterval::window`] once it counts, and returns why its recording must not be trusted, if so.
    pub fn add_with<P>(
        &mut self,
        view: &'static str,
        mut tape: T,
        prepare: impl FnOnce() -> Result<P> + Send + 'scope,
        record: impl FnOnce(P, &mut T, OpenInterval<'_>) -> Result<Option<String>> + Send + 'scope,
    ) -> Result<()> {
        let over = Arc::clone(&self.over);
        let (prepared, is_prepared) = mpsc::channel();
        let (open, opening) = mpsc::channel();
        let (is_begun, begun) = mpsc::channel::<()>();
        let work = move || {
            let ready = match prepare() {
                Ok(ready) => ready,
                Err(error) => {
                    // Sending fails if the receiver is gone, which can be ignored.
                    let _sent = prepared.send(Err(error));
                    return (tape, Ok(None));
                }
            };
            let _sent = prepared.send(Ok(()));
            let Ok(opening) = opening.recv() else { return (tape, Ok(None)) };
            let doubt = record(ready, &mut tape, OpenInterval { opening, over: &over, begun: is_begun });
            (tape, doubt)
        };
        let handle = std::thread::Builder::new()
            .name(format!("biopsy-{view}"))
            .spawn_scoped(self.scope, work)
            .context("a thread for a view cannot be started")?;
        is_prepared.recv().context("the thread of a view has ended")??;
        self.threads.push(Thread { view, open, begun, handle });
        Ok(())
    }

    /// Opens the interval, and returns when all views count.
    pub fn begin(&self, opening: Opening) {
        for thread in &self.threads {
            // A thread that has ended reports the reason when it is joined.
            let _told = thread.open.send(opening);
        }
        for thread in &self.threads {
            // The channel only closes: nothing is sent.
            let _ended = thread.begun.recv();
        }
    }

    /// Whether one of the views has stopped early.
    pub fn has_failed(&self) -> bool {
        self.threads.iter().any(|thread| thread.handle.is_finished())
    }

    /// Closes the interval, and waits for the last intervals.
    pub fn finish(mut self) -> Vec<ViewResult<T>> {
        self.over.store(true, Ordering::Relaxed);
        let ended = |Thread { view, open, handle, .. }: Thread<'scope, T>| {
            drop(open);
            match handle.join() {
                Ok((tape, doubt)) => ViewResult { view, tape: Some(tape), doubt },
                Err(_) => {
                    ViewResult { view, tape: None, doubt: Err(anyhow!("the thread of {view} has panicked")) }
                }
            }
        };
        std::mem::take(&mut self.threads).into_iter().map(ended).collect()
    }
}

impl<T> Drop for Views<'_, '_, T> {
    /// After an error of the caller the threads must end, because their scope waits for them.
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
