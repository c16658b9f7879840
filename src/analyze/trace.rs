//! Each I/O with the operation that it belongs to: two events that come apart, joined by number.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use super::latency::{Op, Stage};
use crate::envelope::Lost;
use crate::host::Host;
use crate::wire::events::{
    Emitted, Event, IO_FLUSHED, IO_FUSED, IO_HAS_SUBMITTER, IO_MERGED, IO_NEGATIVE, IO_STARTED_BEFORE,
    SUBMITTER_KERNEL, WireIo, WireOperation,
};
use crate::wire::{CALL_AIO, CALL_RING, WireDevice};

/// What the numbers in events mean on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scene {
    /// Start of the window, CLOCK_MONOTONIC.
    pub start_ns: u64,
    pub devices: Vec<TracedDevice>,
    /// NUMA node by CPU; empty on a kernel without NUMA.
    pub nodes: BTreeMap<u32, u32>,
    /// Flags of a request by bit, in the kernel's own words: `sync`, `fua`, `meta`.
    pub flags: BTreeMap<u32, String>,
    /// Paths of control groups by the kernel's id.
    pub cgroups: BTreeMap<u64, String>,
}

impl Scene {
    /// The machine's facts; the devices in the order of their numbers in events.
    pub fn new<'a>(
        host: &Host,
        devices: impl Iterator<Item = (&'a str, &'a WireDevice)>,
        flags: &BTreeMap<u32, String>,
        start_ns: u64,
    ) -> Self {
        let is_nvme = |name: &str| {
            host.device(name).is_some_and(|d| d.driver.as_deref().is_some_and(|v| v.starts_with("nvme")))
        };
        let device = |(name, wire): (&str, &WireDevice)| TracedDevice {
            name: name.to_string(),
            nvme: is_nvme(name),
            slot_base: wire.slot_base,
            slots_per_queue: wire.slots_per_queue,
        };
        let nodes = host.nodes.iter().flat_map(|node| node.cpus.iter().map(|cpu| (*cpu, node.node)));
        Self {
            start_ns,
            devices: devices.map(device).collect(),
            nodes: nodes.collect(),
            flags: flags.clone(),
            cgroups: BTreeMap::new(),
        }
    }

    /// Whether all groups of these I/Os have a path.
    pub fn knows_cgroups(&self, ios: &[TracedIo]) -> bool {
        let mut ids = ios.iter().filter_map(|io| io.owner?.cgroup);
        ids.all(|id| self.cgroups.contains_key(&id))
    }

    /// Of the I/O's device.
    pub fn name(&self, io: &TracedIo) -> &str {
        self.devices.get(io.device).map_or("", |device| &device.name)
    }

    /// The NVMe standard's number of an I/O's queue.
    pub fn qid(&self, io: &TracedIo) -> Option<u32> {
        self.devices.get(io.device).filter(|device| device.nvme).map(|_| io.queue + 1)
    }

    /// Since the start of the window: when it ended.
    pub fn at_ns(&self, io: &TracedIo) -> u64 {
        io.ended_ns.saturating_sub(self.start_ns)
    }

    /// The words for an I/O's flags.
    pub fn flag_names(&self, io: &TracedIo) -> impl Iterator<Item = &str> {
        let bits = io.flags;
        self.flags.iter().filter(move |(bit, _)| bits >> **bit & 1 == 1).map(|(_, name)| name.as_str())
    }

    /// Path of a group.
    pub fn cgroup(&self, id: u64) -> Option<&str> {
        self.cgroups.get(&id).map(String::as_str)
    }
}

/// A device by its number in events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TracedDevice {
    pub name: String,
    /// Its hardware queues have numbers of the NVMe standard, one higher: 0 is the admin queue.
    pub nvme: bool,
    pub slot_base: u32,
    pub slots_per_queue: u32,
}

/// The classes as a bit each; all where none is named.
pub fn mask(ops: &[Op]) -> u32 {
    if ops.is_empty() { u32::MAX } else { ops.iter().fold(0, |mask, op| mask | 1 << *op as u32) }
}

/// One I/O.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TracedIo {
    /// Unique in the run.
    pub number: u64,
    /// Its place among the devices of the scene.
    pub device: usize,
    pub queue: u32,
    pub op: Option<Op>,
    /// `REQ_*`, operation included.
    pub flags: u32,
    /// On the disk; None where it has no place, as a flush.
    pub offset: Option<u64>,
    pub bytes: u32,
    /// CLOCK_MONOTONIC; None: before the trace, or never.
    pub queued_ns: Option<u64>,
    pub issued_ns: Option<u64>,
    pub ended_ns: u64,
    /// Queue, device and complete.
    pub stages: Stages,
    /// From `queued_ns` to `ended_ns`, or from `issued_ns` where that is all.
    pub total_ns: Option<u64>,
    /// It was issued before the trace, and so has no stages.
    pub started_before: bool,
    /// A stage ended before it began: the clocks disagree.
    pub negative: bool,
    /// After its data it waited for a flush, which `total_ns` has and no stage.
    pub flushed: bool,
    pub owner: Option<Owner>,
    pub completion_cpu: u32,
    pub operation: Option<TracedOperation>,
    /// Other operations that ended with this I/O, since their bios were merged into it.
    pub merged: Vec<TracedOperation>,
}

/// Stages that are there, in the order of [`Stage::ALL`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stages([Option<u64>; 5]);

impl Stages {
    /// Name and length of each that is there.
    pub fn iter(&self) -> impl Iterator<Item = (Stage, u64)> + '_ {
        Stage::ALL.into_iter().zip(self.0).filter_map(|(stage, ns)| Some((stage, ns?)))
    }

    pub fn get(&self, stage: Stage) -> Option<u64> {
        self.0[stage as usize]
    }
}

/// The task that handed an I/O in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Owner {
    pub pid: u32,
    pub tid: u32,
    /// Any bytes, up to the first zero.
    pub comm: [u8; 16],
    /// The kernel's id; None where its kernel has no block controller.
    pub cgroup: Option<u64>,
    /// Where it ran.
    pub cpu: u32,
    /// A kernel thread.
    pub kernel: bool,
}

impl Owner {
    /// The name of the task, with what is no text replaced.
    pub fn name(&self) -> std::borrow::Cow<'_, str> {
        let length = self.comm.iter().position(|b| *b == 0).unwrap_or(self.comm.len());
        String::from_utf8_lossy(&self.comm[..length])
    }
}

/// One operation, as far as it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TracedOperation {
    /// Unique in the run.
    pub id: u64,
    /// None: it had not ended when the I/O was shown, or its event is lost.
    pub end: Option<OperationEnd>,
}

/// What is known when an operation has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperationEnd {
    pub kind: Kind,
    /// What the application gave it; None for a system call, which has no such thing.
    pub user_data: Option<u64>,
    /// Of io_uring.
    pub opcode: Option<u32>,
    /// I/Os that finished for it.
    pub ios: u32,
    /// This I/O was the last of them, and the operation's stages are its.
    pub last: bool,
    /// They add up to the total. None where parts that ended at one moment left a mixture of stamps.
    pub stages: Option<Stages>,
    pub total_ns: Option<u64>,
}

/// What hands an operation over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// A system call that returns with the result.
    #[default]
    Call,
    Ring,
    Aio,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Ring => "io_uring",
            Self::Aio => "aio",
        }
    }
}

/// How long an I/O waits for the end of its operation.
const PATIENCE_NS: u64 = 1_000_000_000;
/// And how many of them do.
const MOST_WAITING: usize = 1 << 17;
/// What was sent before an operation has come by the time that the rings were emptied twice; others that share its
/// I/O may end a little later.
const ROUNDS: u64 = 3;

/// Keys are numbers that the kernel side counts up: the low bits differ most.
#[derive(Debug, Clone, Copy, Default)]
struct ByNumber(u64);

impl Hasher for ByNumber {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type Numbered<T> = HashMap<u64, T, BuildHasherDefault<ByNumber>>;

/// Joins I/Os with their operations. An I/O comes out when its operation's event is there, or when it has
/// waited for too long.
#[derive(Debug, Default)]
pub struct Join {
    devices: Vec<TracedDevice>,
    round: u64,
    /// By operation: its I/Os, and when they came.
    waiting: Numbered<Vec<(u64, WireIo)>>,
    /// When something began to wait, and for which operation.
    since: VecDeque<(u64, u64)>,
    /// Operations whose I/Os may still be in another ring.
    ended: Numbered<Ended>,
    /// In the order in which they are forgotten: by round.
    forget: VecDeque<(u64, u64)>,
    /// Operations by the I/O that ended them where that names another one.
    merged: Numbered<Vec<WireOperation>>,
    /// I/Os of several bios, complete but for the operations of the others.
    held: VecDeque<(u64, TracedIo)>,
    /// I/Os that came out.
    pub ios: u64,
    /// Of them: they name an operation whose end is not known.
    pub unjoined: u64,
    /// Operations whose event came and that no I/O showed.
    pub unshown: u64,
}

#[derive(Debug)]
struct Ended {
    operation: WireOperation,
    shown: bool,
}

impl Join {
    pub fn new(scene: &Scene) -> Self {
        Self { devices: scene.devices.clone(), round: 1, ..Self::default() }
    }

    /// Takes what a look at all rings brought at `now_ns`, and gives the I/Os that are complete. `emptied`:
    /// the rings held no more than that.
    pub fn round(
        &mut self,
        now_ns: u64,
        events: impl IntoIterator<Item = Event>,
        emptied: bool,
    ) -> Vec<TracedIo> {
        let mut out = Vec::new();
        for event in events {
            match event {
                Event::Io(io) => self.io(now_ns, io, &mut out),
                Event::Operation(operation) => self.operation(operation, &mut out),
            }
        }
        while self
            .since
            .front()
            .is_some_and(|(since, _)| since + PATIENCE_NS <= now_ns || self.since.len() > MOST_WAITING)
        {
            self.give_up(&mut out);
        }
        if emptied {
            self.round += 1;
        }
        self.settle(self.round, &mut out);
        out
    }

    /// Nothing comes any more: gives what is left.
    pub fn finish(&mut self) -> Vec<TracedIo> {
        let mut out = Vec::new();
        while !self.since.is_empty() {
            self.give_up(&mut out);
        }
        self.settle(u64::MAX, &mut out);
        self.unshown += self.merged.drain().map(|(_, all)| all.len() as u64).sum::<u64>();
        out
    }

    fn io(&mut self, now_ns: u64, io: WireIo, out: &mut Vec<TracedIo>) {
        if io.operation == 0 {
            return self.show(traced(&self.devices, &io, None), out);
        }
        if let Some(ended) = self.ended.get_mut(&io.operation) {
            ended.shown = true;
            let io = traced(&self.devices, &io, Some(&ended.operation));
            return self.hold_or_show(io, out);
        }
        self.since.push_back((now_ns, io.operation));
        self.waiting.entry(io.operation).or_default().push((now_ns, io));
    }

    fn operation(&mut self, operation: WireOperation, out: &mut Vec<TracedIo>) {
        let own = self.waiting.remove(&operation.operation).unwrap_or_default();
        let follows = operation.leader != operation.operation;
        let shown = !own.is_empty() || follows;
        for (_, io) in own {
            let io = traced(&self.devices, &io, Some(&operation));
            self.hold_or_show(io, out);
        }
        if follows {
            self.merged.entry(operation.io).or_default().push(operation);
        }
        self.forget.push_back((self.round, operation.operation));
        self.ended.insert(operation.operation, Ended { operation, shown });
    }

    /// An I/O of several bios waits for the operations of the others, which end at the same time.
    fn hold_or_show(&mut self, (merged, io): (bool, TracedIo), out: &mut Vec<TracedIo>) {
        if merged {
            self.held.push_back((self.round, io));
        } else {
            self.show((merged, io), out);
        }
    }

    fn show(&mut self, (merged, mut io): (bool, TracedIo), out: &mut Vec<TracedIo>) {
        if merged {
            let others = self.merged.remove(&io.number).unwrap_or_default();
            io.merged = others.iter().map(|operation| ended(operation, true)).collect();
        }
        self.ios += 1;
        self.unjoined += u64::from(io.operation.is_some_and(|operation| operation.end.is_none()));
        out.push(io);
    }

    /// Shows the I/Os that have waited longest without their operation.
    fn give_up(&mut self, out: &mut Vec<TracedIo>) {
        let Some((since, operation)) = self.since.pop_front() else { return };
        let Some(mut ios) = self.waiting.remove(&operation) else { return };
        ios.retain(|(came, io)| {
            let late = *came <= since;
            if late {
                self.held.push_back((0, traced(&self.devices, io, None).1));
            }
            !late
        });
        if !ios.is_empty() {
            self.waiting.insert(operation, ios);
        }
        self.settle(0, out);
    }

    /// Shows what was held, and forgets operations, of this many rounds ago.
    fn settle(&mut self, round: u64, out: &mut Vec<TracedIo>) {
        let over = |then: u64| then == 0 || then.saturating_add(ROUNDS) <= round;
        let (late, held): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.held).into_iter().partition(|(then, _)| over(*then));
        self.held = held;
        for (_, io) in late {
            self.show((true, io), out);
        }
        let too_many = |forget: &VecDeque<_>| forget.len() > MOST_WAITING;
        while self.forget.front().is_some_and(|(then, _)| over(*then)) || too_many(&self.forget) {
            let Some((_, id)) = self.forget.pop_front() else { break };
            self.unshown += u64::from(self.ended.remove(&id).is_some_and(|ended| !ended.shown));
        }
    }
}

/// An I/O as it is shown, with its operation where that has ended, and whether others may have shared it.
fn traced(devices: &[TracedDevice], io: &WireIo, operation: Option<&WireOperation>) -> (bool, TracedIo) {
    let marked = |mark: u32| io.marks & mark != 0;
    let known = |stamp: u64| (stamp != 0).then_some(stamp);
    let device = devices.get(io.device as usize);
    let queue = device.map_or(0, |d| io.slot_base.saturating_sub(d.slot_base) / d.slots_per_queue.max(1));
    let op = Op::ALL.get(io.op as usize).copied();
    let placeless = matches!(op, Some(Op::Flush | Op::EmptyFlush | Op::Passthrough));
    let (queued, issued) = (known(io.queued), known(io.issued));
    let reaped = known(io.reaped);
    let mut stages = [None; 5];
    stages[Stage::Queue as usize] = span(queued, issued);
    stages[Stage::Device as usize] = span(issued, reaped);
    if !marked(IO_FUSED | IO_FLUSHED) {
        stages[Stage::Complete as usize] = span(reaped, Some(io.ended));
    }
    let end = operation.map(|operation| {
        let last = (operation.issued, operation.reaped) == (io.issued, io.reaped);
        ended(operation, last)
    });
    let by = &io.by;
    let traced = TracedIo {
        number: io.io,
        device: io.device as usize,
        queue,
        op,
        flags: io.cmd_flags,
        offset: (!placeless && io.sector != u64::MAX).then(|| io.sector.saturating_mul(512)),
        bytes: io.bytes,
        queued_ns: queued,
        issued_ns: issued,
        ended_ns: io.ended,
        stages: Stages(stages),
        total_ns: span(queued.or(issued), Some(io.ended)),
        started_before: marked(IO_STARTED_BEFORE),
        negative: marked(IO_NEGATIVE),
        flushed: marked(IO_FLUSHED),
        owner: marked(IO_HAS_SUBMITTER).then(|| Owner {
            pid: by.pid,
            tid: by.tid,
            comm: by.comm,
            cgroup: (by.cgroup != 0).then_some(by.cgroup),
            cpu: by.cpu,
            kernel: by.flags & SUBMITTER_KERNEL != 0,
        }),
        completion_cpu: io.cpu,
        operation: end.or((io.operation != 0).then_some(TracedOperation { id: io.operation, end: None })),
        merged: Vec::new(),
    };
    (marked(IO_MERGED), traced)
}

fn span(begin: Option<u64>, end: Option<u64>) -> Option<u64> {
    end?.checked_sub(begin?)
}

fn ended(operation: &WireOperation, last: bool) -> TracedOperation {
    let seen = (operation.seen != 0).then_some(operation.seen);
    let stamps = [
        operation.entered,
        operation.queued,
        operation.issued,
        operation.reaped,
        operation.ended,
        seen.unwrap_or(operation.ended),
    ];
    let in_order = stamps.is_sorted();
    let mut stages: [Option<u64>; 5] = std::array::from_fn(|i| stamps[i + 1].checked_sub(stamps[i]));
    if operation.fused != 0 {
        stages[Stage::Complete as usize] = None;
    }
    if seen.is_none() {
        stages[Stage::Reap as usize] = None;
    }
    let kind = match u8::try_from(operation.from) {
        Ok(CALL_RING) => Kind::Ring,
        Ok(CALL_AIO) => Kind::Aio,
        _ => Kind::Call,
    };
    TracedOperation {
        id: operation.operation,
        end: Some(OperationEnd {
            kind,
            user_data: (kind != Kind::Call).then_some(operation.user_data),
            opcode: (kind == Kind::Ring).then_some(operation.opcode),
            ios: operation.parts,
            last,
            stages: in_order.then_some(Stages(stages)),
            total_ns: in_order.then(|| stamps[5] - stamps[0]),
        }),
    }
}

/// The slowest I/Os of a run.
#[derive(Debug, Default)]
pub struct Slowest {
    most: usize,
    /// By how long they took; those that took equally long, by number.
    ios: BTreeMap<(u64, u64), TracedIo>,
}

impl Slowest {
    pub fn new(most: usize) -> Self {
        Self { most, ios: BTreeMap::new() }
    }

    /// Keeps an I/O while it is among the slowest. One that was never timed is not.
    pub fn add(&mut self, io: TracedIo) {
        let Some(took) = io.total_ns else { return };
        self.ios.insert((took, io.number), io);
        while self.ios.len() > self.most {
            self.ios.pop_first();
        }
    }

    /// Less than this is not among them any more.
    pub fn floor_ns(&self) -> u64 {
        let full = self.ios.len() >= self.most;
        self.ios.first_key_value().filter(|_| full).map_or(0, |((took, _), _)| took + 1)
    }

    /// The slowest first.
    pub fn into_sorted(self) -> impl Iterator<Item = TracedIo> {
        self.ios.into_values().rev()
    }
}

/// What the event stream was, beside the counts of the whole window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TraceSummary {
    /// I/Os that were shown.
    pub shown: u64,
    pub emitted: Emitted,
    /// I/Os that name an operation whose end was not seen: it had not ended, or its event is lost.
    pub unjoined: u64,
    /// Operations that ended and that no I/O showed: the I/O's event is lost, or too late.
    pub unshown: u64,
}

/// The loss of the window with that of the events.
pub fn lost(mut all: Lost, emitted: &Emitted) -> Lost {
    let kinds = [
        ("io_ring_full", emitted.lost_ios),
        ("operation_ring_full", emitted.lost_operations),
        ("damaged", emitted.damaged),
    ];
    all.events += kinds.iter().map(|(_, n)| n).sum::<u64>();
    all.probes
        .insert("trace".to_string(), kinds.into_iter().map(|(kind, n)| (kind.to_string(), n)).collect());
    all
}

/// Why the stream must not be trusted; None: it may.
pub fn distrust(emitted: &Emitted, max_loss: f64) -> Option<String> {
    let lost = emitted.lost_ios + emitted.damaged;
    let percent = if emitted.ios == 0 { 0.0 } else { lost as f64 * 100.0 / emitted.ios as f64 };
    (percent > max_loss).then(|| {
        format!(
            "{lost} of {} I/Os ({percent:.2} %) are not shown, since the reader was too slow, more than --max-loss \
             {max_loss} % allows: write to a file with -o, leave the cost out with --no-cost, or ask for fewer with \
             --slower-than, --every or --top",
            emitted.ios
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> Scene {
        let device = TracedDevice { slots_per_queue: 257, ..TracedDevice::default() };
        let second = TracedDevice { slot_base: 257, slots_per_queue: 64, ..TracedDevice::default() };
        Scene { devices: vec![device, second], ..Scene::default() }
    }

    fn io(number: u64, operation: u64) -> WireIo {
        WireIo {
            io: number,
            operation,
            queued: 1_000,
            issued: 1_200,
            reaped: 5_000 + number,
            ended: 6_000 + number,
            sector: 8,
            bytes: 4096,
            ..WireIo::default()
        }
    }

    /// Ended by the I/O of this number.
    fn operation(id: u64, number: u64) -> WireOperation {
        WireOperation {
            operation: id,
            user_data: 77,
            entered: 900,
            queued: 1_000,
            issued: 1_200,
            reaped: 5_000 + number,
            ended: 6_500,
            seen: 7_000,
            io: number,
            leader: id,
            from: u32::from(CALL_RING),
            parts: 1,
            ..WireOperation::default()
        }
    }

    fn numbers(ios: &[TracedIo]) -> Vec<u64> {
        ios.iter().map(|io| io.number).collect()
    }

    fn end(io: &TracedIo) -> OperationEnd {
        io.operation.unwrap().end.unwrap()
    }

    #[test]
    fn an_io_waits_for_its_operation_and_their_stages_add_up() {
        let mut join = Join::new(&scene());
        assert_eq!(join.round(0, [Event::Io(io(1, 5))], true), []);
        let out = join.round(1, [Event::Operation(operation(5, 1))], true);
        let [io] = &out[..] else { panic!("{out:?}") };
        assert_eq!((io.total_ns, io.offset, io.bytes), (Some(5_001), Some(4096), 4096));
        assert_eq!(io.stages.iter().map(|(_, ns)| ns).sum::<u64>(), 5_001);
        let end = end(io);
        assert_eq!((end.kind, end.user_data, end.opcode), (Kind::Ring, Some(77), Some(0)));
        assert_eq!(end.stages.unwrap().iter().map(|(_, ns)| ns).sum::<u64>(), 6_100);
        assert_eq!((end.total_ns, end.last), (Some(6_100), true));
        join.finish();
        assert_eq!((join.ios, join.unjoined, join.unshown), (1, 0, 0));
    }

    /// The rings are looked at one after the other, so an operation can come before its I/O.
    #[test]
    fn the_order_of_the_rings_does_not_matter() {
        let mut join = Join::new(&scene());
        assert_eq!(join.round(0, [Event::Operation(operation(5, 1))], true), []);
        let out = join.round(1, [Event::Io(io(1, 5))], true);
        assert!(end(&out[0]).last);
        for round in 2..5 {
            assert_eq!(join.round(round, [], true), []);
        }
        assert!(join.ended.is_empty() && join.forget.is_empty());
        assert_eq!(join.unshown, 0);
    }

    #[test]
    fn of_several_ios_the_last_has_the_stages_of_the_operation() {
        let mut join = Join::new(&scene());
        let out = join.round(
            0,
            [Event::Io(io(1, 5)), Event::Io(io(2, 5)), Event::Operation(operation(5, 2))],
            true,
        );
        assert_eq!(numbers(&out), [1, 2]);
        assert_eq!([end(&out[0]).last, end(&out[1]).last], [false, true]);
    }

    #[test]
    fn without_an_operation_nothing_waits() {
        let mut join = Join::new(&scene());
        let out = join.round(0, [Event::Io(io(1, 0))], true);
        assert_eq!((numbers(&out), out[0].operation), (vec![1], None));
    }

    #[test]
    fn patience_ends() {
        let mut join = Join::new(&scene());
        join.round(0, [Event::Io(io(1, 5))], true);
        join.round(PATIENCE_NS / 2, [Event::Io(io(2, 5))], true);
        let out = join.round(PATIENCE_NS, [], true);
        assert_eq!(numbers(&out), [1]);
        assert_eq!(out[0].operation, Some(TracedOperation { id: 5, end: None }));
        // The end comes for the other one.
        assert_eq!(numbers(&join.round(PATIENCE_NS + 1, [Event::Operation(operation(5, 2))], true)), [2]);
        assert_eq!((join.ios, join.unjoined), (2, 1));
        join.round(PATIENCE_NS + 2, [Event::Io(io(3, 6))], true);
        assert_eq!(numbers(&join.finish()), [3]);
        assert_eq!((join.ios, join.unjoined, join.unshown), (3, 2, 0));
    }

    #[test]
    fn only_so_many_wait() {
        let mut join = Join::new(&scene());
        let out = join.round(0, (1..=MOST_WAITING as u64 + 3).map(|n| Event::Io(io(n, n))), true);
        assert_eq!(numbers(&out), [1, 2, 3]);
    }

    #[test]
    fn merged_operations_stand_with_the_io_that_they_share() {
        let mut join = Join::new(&scene());
        let shared = WireIo { marks: IO_MERGED, ..io(1, 5) };
        let other = WireOperation { leader: 5, ..operation(6, 1) };
        let mut out = join.round(0, [Event::Io(shared), Event::Operation(operation(5, 1))], true);
        out.extend(join.round(1, [Event::Operation(other)], true));
        assert_eq!(out, [], "the second may come late");
        let out = join.round(2, [], true);
        assert_eq!(out[0].merged.iter().map(|o| o.id).collect::<Vec<_>>(), [6]);
        // One that comes too late is counted.
        join.round(3, [Event::Operation(WireOperation { operation: 7, ..other })], true);
        join.finish();
        assert_eq!((join.ios, join.unshown), (1, 1));
    }

    #[test]
    fn an_operation_whose_io_is_lost_is_counted() {
        let mut join = Join::new(&scene());
        (0..4).for_each(|n| assert_eq!(join.round(n, [Event::Operation(operation(n + 1, n))], true), []));
        join.finish();
        assert_eq!(join.unshown, 4);
    }

    #[test]
    fn what_cannot_be_seen_is_absent() {
        let flush = WireIo {
            op: 3,
            sector: u64::MAX,
            queued: 0,
            marks: IO_FUSED,
            slot_base: 257 + 64,
            device: 1,
            ..io(1, 0)
        };
        let (_, flush) = traced(&scene().devices, &flush, None);
        assert_eq!((flush.op, flush.offset, flush.owner, flush.queue), (Some(Op::Flush), None, None, 1));
        assert_eq!(flush.stages.iter().map(|(stage, _)| stage).collect::<Vec<_>>(), [Stage::Device]);
        assert_eq!(flush.total_ns, Some(4_801));
        let before = WireIo { marks: IO_STARTED_BEFORE, ended: 9, ..WireIo::default() };
        let (_, before) = traced(&scene().devices, &before, None);
        assert_eq!((before.stages.iter().count(), before.total_ns), (0, None));
        // Nobody fetched it; and a device that is in no table.
        let unseen = ended(&WireOperation { seen: 0, ..operation(5, 1) }, true).end.unwrap();
        assert_eq!((unseen.stages.unwrap().get(Stage::Reap), unseen.total_ns), (None, Some(5_600)));
        let torn = ended(&WireOperation { issued: 1, ..operation(5, 1) }, true).end.unwrap();
        assert_eq!((torn.stages, torn.total_ns), (None, None));
        assert_eq!(traced(&[], &WireIo { device: 9, op: 99, ..io(1, 0) }, None).1.op, None);
    }

    #[test]
    fn the_slowest_are_kept_in_order() {
        let mut slowest = Slowest::new(2);
        assert_eq!(slowest.floor_ns(), 0);
        for (number, took) in [(1, 30), (2, 10), (3, 20), (4, 30), (5, 5)] {
            slowest.add(TracedIo { number, total_ns: Some(took), ..TracedIo::default() });
        }
        slowest.add(TracedIo::default());
        assert_eq!(slowest.floor_ns(), 31);
        assert_eq!(numbers(&slowest.into_sorted().collect::<Vec<_>>()), [4, 1]);
    }

    #[test]
    fn lost_events_are_loss() {
        let emitted = Emitted { ios: 1000, lost_ios: 1, lost_operations: 3, ..Emitted::default() };
        let all = lost(Lost::default(), &emitted);
        assert_eq!((all.events, all.probes["trace"]["io_ring_full"]), (4, 1));
        assert_eq!(distrust(&emitted, 0.1), None);
        assert!(distrust(&Emitted { lost_ios: 2, ..emitted }, 0.1).unwrap().contains("2 of 1000"));
        assert_eq!(distrust(&Emitted::default(), 0.0), None);
    }
}
