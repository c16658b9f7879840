//! Sends each I/O of a latency view to another thread, which writes them.

use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::Result;

use super::io_events::IoSink;
use super::trace::{TraceTotals, Tracer};
use crate::analyze::trace::TraceSummary;
use crate::analyze::trace::io::TracedIo;
use crate::analyze::trace::scene::Scene;
use crate::envelope::Envelope;
use crate::host::Host;
use crate::probe::latency::LatencyProbe;
use crate::wire::reading::Reading;

/// Maximum number of I/Os in the queue, at about 400 bytes each.
const MOST_WAITING: usize = 1 << 16;

/// The writing thread's end.
pub struct IoReceiver {
    from: Receiver<Message>,
    done: Sender<usize>,
}

impl IoReceiver {
    /// The next message; None: the latency view has ended.
    pub fn next(&self) -> Option<Message> {
        self.from.recv().ok()
    }

    /// Reports that `ios` I/Os were written.
    pub fn done(&self, ios: usize) {
        // The latency view ends first.
        let _gone = self.done.send(ios);
    }
}

/// The latency view's end.
pub struct IoSender {
    to: Sender<Message>,
    done: Receiver<usize>,
    waiting: usize,
}

/// Creates both ends.
pub fn link() -> (IoSender, IoReceiver) {
    let ((to, from), (done, is_done)) = (channel(), channel());
    (IoSender { to, done: is_done, waiting: 0 }, IoReceiver { from, done })
}

impl IoSender {
    fn send(&mut self, message: Message) {
        // A thread that has ended reports the reason itself.
        let _gone = self.to.send(message);
    }

    fn send_ios(&mut self, ios: Vec<TracedIo>) {
        self.waiting += ios.len();
        self.send(Message::Ios(ios));
        self.waiting -= self.done.try_iter().sum::<usize>();
        while self.waiting > MOST_WAITING {
            let Ok(done) = self.done.recv() else { return };
            self.waiting -= done;
        }
    }
}

/// A message to the thread. The stream ends with [`Self::End`], or early with the latency view.
pub enum Message {
    Begin(Scene),
    Ios(Vec<TracedIo>),
    End(Result<Box<(TraceTotals, TraceSummary)>>),
}

/// Sends I/Os. If the other thread is too slow it waits, and events that find no room in the rings meanwhile are
/// counted as lost.
pub struct StreamSink<'a> {
    host: &'a Host,
    /// The selected devices; empty: all.
    devices: &'a [String],
    /// Whether a device's I/Os are sent, by its number.
    is_sent: Vec<bool>,
    left_out: u64,
    to: IoSender,
}

impl<'a> StreamSink<'a> {
    pub fn new(host: &'a Host, devices: &'a [String], to: IoSender) -> Self {
        Self { host, devices, is_sent: Vec::new(), left_out: 0, to }
    }

    fn has(&self, device: &str) -> bool {
        self.devices.is_empty() || self.devices.iter().any(|name| name == device)
    }
}

impl IoSink for StreamSink<'_> {
    fn begin(&mut self, scene: Scene) {
        self.is_sent = scene.devices.iter().map(|device| self.has(&device.name)).collect();
        self.to.send(Message::Begin(scene));
    }

    fn add(&mut self, mut ios: Vec<TracedIo>) {
        let all = ios.len();
        ios.retain(|io| self.is_sent.get(io.device) == Some(&true));
        self.left_out += (all - ios.len()) as u64;
        self.to.send_ios(ios);
    }

    fn end(&mut self, probe: &LatencyProbe, tracer: &Tracer, last: &Reading, start: Envelope) {
        let end = TraceTotals::read(self.host, probe, last, start).map(|mut whole| {
            whole.latency.devices.retain(|device| self.has(&device.name));
            let [shown, matched] =
                [tracer.ios(), whole.emitted.matched].map(|ios| ios.saturating_sub(self.left_out));
            let trace = tracer.summary(shown, matched, whole.latency.devices.clone());
            Box::new((whole, trace))
        });
        self.to.send(Message::End(end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::trace::scene::TracedDevice;

    #[test]
    fn ios_of_the_named_devices_are_sent() {
        let (to, from) = link();
        let (host, devices) = (Host::default(), ["dm-0".to_string()]);
        let mut sink = StreamSink::new(&host, &devices, to);
        let device = |name: &str| TracedDevice { name: name.to_string(), ..TracedDevice::default() };
        sink.begin(Scene { devices: vec![device("sda"), device("dm-0")], ..Scene::default() });
        let io = |number, device| TracedIo { number, device, ..TracedIo::default() };
        sink.add(vec![io(1, 0), io(2, 1), io(3, 7)]);
        assert!(matches!(from.next(), Some(Message::Begin(scene)) if scene.devices.len() == 2));
        let Some(Message::Ios(ios)) = from.next() else { panic!("there are I/Os") };
        assert_eq!((ios.len(), ios[0].number, sink.left_out), (1, 2, 2));
        // It waits for a slow reader, and goes on without one.
        let many = || vec![io(4, 1); MOST_WAITING];
        std::thread::scope(|scope| {
            scope.spawn(move || {
                from.done(1);
                while let Some(Message::Ios(ios)) = from.next() {
                    assert!(ios.len() <= MOST_WAITING);
                    from.done(ios.len());
                    if ios.len() == 1 {
                        return;
                    }
                }
            });
            (0..3).for_each(|_| sink.add(many()));
            sink.add(vec![io(5, 1)]);
        });
        (0..3).for_each(|_| sink.add(many()));
    }
}
