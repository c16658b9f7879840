//! Several views at once, each with its probe on a thread of its own, whose intervals end at the same moments.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::wall_clock;
use super::watch::{self, Grid, Live, Pieces, Shown};
use super::window::Window;
use crate::probe::Probe;

/// The window that all views share.
#[derive(Debug, Clone, Copy)]
pub struct Opening {
    pub at: Instant,
    pub interval: Duration,
    pub length: Option<Duration>,
}

/// The window that has opened, as the thread of a view sees it.
pub struct Opened<'a> {
    pub opening: Opening,
    over: &'a AtomicBool,
    begun: Sender<()>,
}

impl<'a> Opened<'a> {
    /// Says that the view counts.
    pub fn window(self) -> Window<'a> {
        drop(self.begun);
        Window::beside(self.over, self.opening.length.map(|length| self.opening.at + length))
    }
}

/// How a view ended.
pub struct Ended<T> {
    pub view: &'static str,
    /// None: its thread has panicked.
    pub tape: Option<T>,
    /// Why it is not to be trusted, or why it ended early.
    pub doubt: Result<Option<String>>,
}

struct Thread<'scope, T> {
    view: &'static str,
    /// Dropped before it was told: there is no window.
    open: Sender<Opening>,
    /// It counts, or the thread has failed.
    begun: Receiver<()>,
    handle: ScopedJoinHandle<'scope, (T, Result<Option<String>>)>,
}

/// The views that are recorded; `T` takes what each of them shows.
pub struct Views<'scope, 'env, T> {
    scope: &'scope Scope<'scope, 'env>,
    threads: Vec<Thread<'scope, T>>,
    over: Arc<AtomicBool>,
    max_loss: f64,
}

impl<'scope, 'env, T: Send + 'scope> Views<'scope, 'env, T> {
    /// Loss above `max_loss` percent is not to be trusted.
    pub fn new(scope: &'scope Scope<'scope, 'env>, max_loss: f64) -> Self {
        Self { scope, threads: Vec::new(), over: Arc::default(), max_loss }
    }

    /// Prepares a live view on a thread of its own, and returns when that is done. `show` takes its intervals.
    ///
    /// # Errors
    /// That of `prepare`: then the view is not among those that are recorded.
    pub fn add<V: Live>(
        &mut self,
        view: &'static str,
        tape: T,
        prepare: impl FnOnce() -> Result<(V, V::Probe)> + Send + 'scope,
        mut show: impl FnMut(&mut T, &Shown<'_, V::Summary>) -> Result<()> + Send + 'scope,
    ) -> Result<()> {
        let max_loss = self.max_loss;
        let record = move |(mut live, mut probe): (V, V::Probe), tape: &mut T, opened: Opened<'_>| {
            let start = wall_clock::envelope();
            probe.begin()?;
            let Opening { at, interval, .. } = opened.opening;
            let window = opened.window();
            let pieces = Pieces { start, grid: Some(Grid::new(at, interval)), count: None };
            let show = |_: &V::Probe, shown: &Shown<'_, V::Summary>| show(tape, shown);
            watch::follow(&mut live, &mut probe, window, pieces, max_loss, show)
        };
        self.add_with(view, tape, prepare, record)
    }

    /// The same of any view: `record` does all from the opening of the window on. It calls [`Opened::window`] once it
    /// counts, and returns why what it recorded is not to be trusted, if so.
    pub fn add_with<P>(
        &mut self,
        view: &'static str,
        mut tape: T,
        prepare: impl FnOnce() -> Result<P> + Send + 'scope,
        record: impl FnOnce(P, &mut T, Opened<'_>) -> Result<Option<String>> + Send + 'scope,
    ) -> Result<()> {
        let over = Arc::clone(&self.over);
        let (prepared, is_prepared) = mpsc::channel();
        let (open, opening) = mpsc::channel();
        let (is_begun, begun) = mpsc::channel::<()>();
        let work = move || {
            let ready = match prepare() {
                Ok(ready) => ready,
                Err(error) => {
                    // It fails where the receiver is gone, which needs no answer.
                    let _sent = prepared.send(Err(error));
                    return (tape, Ok(None));
                }
            };
            let _sent = prepared.send(Ok(()));
            let Ok(opening) = opening.recv() else { return (tape, Ok(None)) };
            let doubt = record(ready, &mut tape, Opened { opening, over: &over, begun: is_begun });
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

    /// Opens the window, and returns when all count.
    pub fn begin(&self, opening: Opening) {
        for thread in &self.threads {
            // A thread that has ended says why when it is joined.
            let _told = thread.open.send(opening);
        }
        for thread in &self.threads {
            // It only ever ends: nothing is sent.
            let _ended = thread.begun.recv();
        }
    }

    /// Whether one of them could not go on.
    pub fn has_failed(&self) -> bool {
        self.threads.iter().any(|thread| thread.handle.is_finished())
    }

    /// Closes the window, and waits for the last intervals.
    pub fn finish(mut self) -> Vec<Ended<T>> {
        self.over.store(true, Ordering::Relaxed);
        let ended = |Thread { view, open, handle, .. }: Thread<'scope, T>| {
            drop(open);
            match handle.join() {
                Ok((tape, doubt)) => Ended { view, tape: Some(tape), doubt },
                Err(_) => {
                    Ended { view, tape: None, doubt: Err(anyhow!("the thread of {view} has panicked")) }
                }
            }
        };
        std::mem::take(&mut self.threads).into_iter().map(ended).collect()
    }
}

impl<T> Drop for Views<'_, '_, T> {
    /// An error of the caller ends the threads, which their scope waits for.
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
