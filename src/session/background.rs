//! A probe on a thread of its own, for as long as the main thread measures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};

use crate::probe::Probe;

/// A probe that runs; `T` is what its thread makes of the window.
pub struct Background<T> {
    /// Told: the window opens. Dropped before: there is none.
    open: Sender<()>,
    /// It is open, or the thread has failed.
    opened: Receiver<()>,
    stop: Arc<AtomicBool>,
    /// The thread has detached, or has failed.
    stopped: Receiver<()>,
    /// Dropped or told: the thread may go on to what costs CPU time.
    go: Sender<()>,
    thread: JoinHandle<Result<T>>,
}

impl<T: Send + 'static> Background<T> {
    /// Prepares on the new thread, and returns when that is done. `summarize` gets the first and the last reading.
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
                    // It fails where the receiver is gone, which needs no answer.
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
            // An error: the other side is gone, and nobody waits for a summary; there it is all the same.
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

    /// Opens the window, and does not wait for it. A failure is that of [`Self::finish`].
    pub fn begin(&self) {
        // A thread that has ended says why when it is joined.
        let _told = self.open.send(());
    }

    /// Returns when the window is open.
    pub fn begun(&self) {
        // It only ever ends: nothing is sent.
        let _ended = self.opened.recv();
    }

    /// Closes the window, and does not wait for it. One that nobody opened is empty.
    pub fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.begin();
    }

    /// Closes the window, and returns when nothing of the probe is attached any more.
    pub fn stop(&self) {
        self.end();
        // It only ever ends: nothing is sent.
        let _ended = self.stopped.recv();
    }

    /// What came of it.
    pub fn finish(self) -> Result<T> {
        self.stop();
        drop((self.open, self.go));
        self.thread.join().map_err(|_| anyhow!("the thread of a probe has panicked"))?
    }
}
