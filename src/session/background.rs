//! Runs a probe on its own thread while the main thread measures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::probe::Probe;

/// A running probe; `T` is its thread's summary of the interval.
pub struct Background<T> {
    /// A message opens the interval. If it is dropped first, there is none.
    open: Sender<()>,
    /// Closes when the interval is open, or the thread has failed.
    opened: Receiver<()>,
    stop: Arc<AtomicBool>,
    /// Closes when the thread has detached, or has failed.
    stopped: Receiver<()>,
    /// After a message or a drop, the thread may start work that costs CPU time.
    go: Sender<()>,
    thread: JoinHandle<Result<T>>,
}

impl<T: Send + 'static> Background<T> {
    /// Prepares the probe on the new thread, and returns when that is done. `summarize` gets the first and the last
    /// reading.
    pub fn start<P: Probe>(
        prepare: impl FnOnce() -> Result<P> + Send + 'static,
        summarize: impl FnOnce(&P, &P::Reading, &P::Reading) -> T + Send + 'static,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (prepared, is_prepared) = mpsc::channel();
        let (open, may_open) = mpsc::channel::<()>();
        let (is_open, opened) = mpsc::channel::<()>();
        let (detached, stopped) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let asked = Arc::clone(&stop);
        let work = move || {
            let mut probe = match prepare() {
                Ok(probe) => probe,
                Err(error) => {
                    // Sending fails if the receiver is gone, which can be ignored.
                    let _sent = prepared.send(Err(error));
                    return Err(anyhow!("the probe was refused"));
                }
            };
            let _sent = prepared.send(Ok(()));
            may_open.recv().context("the measurement of a probe never started")?;
            probe.begin()?;
            drop(is_open);
            probe.wait(None, Duration::MAX, &|| asked.load(Ordering::Relaxed));
            let start = probe.start().clone();
            let end = probe.detach();
            drop(detached);
            // An error means that the other side is gone and does not wait for a summary; it is computed all the same.
            let _told = may_go.recv();
            Ok(summarize(&probe, &start, &end?))
        };
        let thread = std::thread::Builder::new()
            .name("biopsy-probe".to_string())
            .spawn(work)
            .context("a thread for a probe cannot be started")?;
        is_prepared.recv().context("the thread of a probe has ended")??;
        Ok(Self { open, opened, stop, stopped, go, thread })
    }

    /// Opens the interval without waiting for it. A failure is reported by [`Self::finish`].
    pub fn begin(&self) {
        // A thread that has ended reports the reason when it is joined.
        let _told = self.open.send(());
    }

    /// Waits until the interval is open.
    pub fn begun(&self) {
        // The channel only closes: nothing is sent.
        let _ended = self.opened.recv();
    }

    /// Closes the interval without waiting. An interval that was never opened is empty.
    pub fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.begin();
    }

    /// Closes the interval, and returns when the probe is detached.
    pub fn stop(&self) {
        self.end();
        // The channel only closes: nothing is sent.
        let _ended = self.stopped.recv();
    }

    /// Returns the summary.
    pub fn finish(self) -> Result<T> {
        self.stop();
        drop((self.open, self.go));
        self.thread.join().map_err(|_| anyhow!("the thread of a probe has panicked"))?
    }
}
