//! The `latency` view combined with events of single I/Os: one set of programs serves both.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::latency::LatencyView;
use super::trace::Tracer;
use super::watch::{Live, WatchInterval};
use crate::analyze::latency::LatencySummary;
use crate::analyze::trace::io::TracedIo;
use crate::analyze::trace::scene::Scene;
use crate::envelope::Envelope;
use crate::host::Host;
use crate::probe::Probe;
use crate::probe::latency::LatencyProbe;
use crate::wire::reading::Reading;

/// Receives the I/Os.
pub trait IoSink: Send {
    /// The interval opens; `scene` resolves the numbers in I/Os.
    fn begin(&mut self, scene: Scene);

    /// I/Os whose events were read.
    fn add(&mut self, ios: Vec<TracedIo>);

    /// All I/Os that had ended were read.
    fn settle(&mut self, _probe: &mut LatencyProbe) {}

    /// An interval has ended.
    fn end_interval(&mut self, _probe: &LatencyProbe) {}

    /// The measurement has ended with this reading; `start` has its start.
    fn end(&mut self, _probe: &LatencyProbe, _tracer: &Tracer, _last: &Reading, _start: Envelope) {}
}

/// How often the rings are read per tick at most.
const MOST_LOOKS: u32 = 64;

/// A latency probe with events.
pub struct EventProbe<'a> {
    host: &'a Host,
    probe: LatencyProbe,
    /// None: the interval is not open.
    tracer: Option<Tracer>,
    sink: RefCell<Box<dyn IoSink + 'a>>,
    failed: Option<anyhow::Error>,
}

impl<'a> EventProbe<'a> {
    /// `probe` must have events.
    pub fn new(host: &'a Host, probe: LatencyProbe, sink: Box<dyn IoSink + 'a>) -> Self {
        Self { host, probe, tracer: None, sink: RefCell::new(sink), failed: None }
    }

    fn take(&mut self) -> Result<()> {
        let Some(tracer) = &mut self.tracer else { return Ok(()) };
        let sink = self.sink.get_mut();
        // Handling these takes time in which as many may arrive: the rest waits for the next tick.
        for _ in 0..MOST_LOOKS {
            let ios = tracer.next(&mut self.probe, Duration::ZERO)?;
            if ios.is_empty() {
                break;
            }
            sink.add(ios);
        }
        sink.settle(&mut self.probe);
        Ok(())
    }
}

impl Probe for EventProbe<'_> {
    type Reading = Reading;

    fn begin(&mut self) -> Result<()> {
        self.probe.begin()?;
        let start_ns = self.probe.start().at_ns;
        let scene = Scene::new(self.host, self.probe.planned(), self.probe.request_flags(), start_ns);
        self.tracer = Some(Tracer::new(&scene));
        self.sink.get_mut().begin(scene);
        Ok(())
    }

    fn start(&self) -> &Reading {
        self.probe.start()
    }

    fn tick(&mut self) {
        self.probe.tick();
        if let Err(error) = self.take() {
            self.failed.get_or_insert(error);
        }
    }

    fn read(&self) -> Result<Reading> {
        match &self.failed {
            Some(error) => Err(anyhow!("{error:#}")),
            None => self.probe.read(),
        }
    }

    fn detach(&mut self) -> Result<Reading> {
        let end = self.probe.detach()?;
        self.take()?;
        self.probe.end_events();
        if let Some(tracer) = &mut self.tracer {
            while let Some(ios) = tracer.rest(&self.probe)? {
                self.sink.get_mut().add(ios);
            }
        }
        Ok(end)
    }
}

/// Shows latencies; the probe's sink receives the I/Os.
pub struct EventView<'a> {
    view: LatencyView<'a>,
    /// The envelope of the first interval.
    start: Option<Envelope>,
}

impl<'a> EventView<'a> {
    pub fn new(view: LatencyView<'a>) -> Self {
        Self { view, start: None }
    }
}

impl<'a> Live for EventView<'a> {
    type Probe = EventProbe<'a>;
    type Summary = LatencySummary;

    fn summary(
        &mut self,
        probe: &EventProbe<'a>,
        piece: &WatchInterval<'_, Reading>,
        envelope: Envelope,
    ) -> (Envelope, LatencySummary) {
        let start = self.start.get_or_insert_with(|| Envelope { read_ns: None, ..envelope.clone() });
        let mut sink = probe.sink.borrow_mut();
        sink.end_interval(&probe.probe);
        if let Some(tracer) = probe.tracer.as_ref().filter(|_| piece.is_last) {
            sink.end(&probe.probe, tracer, piece.to, start.clone());
        }
        self.view.summary(&probe.probe, piece, envelope)
    }

    fn distrust(&mut self, first: &Reading, last: &Reading, max_loss: f64) -> Option<String> {
        self.view.distrust(first, last, max_loss)
    }
}
