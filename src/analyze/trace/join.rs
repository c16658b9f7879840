//! Joins I/Os and operations, which come in separate events, by operation number.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use super::event::{ended, traced};
use super::io::TracedIo;
use super::scene::{Scene, TracedDevice};
use crate::wire::events::{Event, WireIo, WireOperation};

/// How long an I/O waits for the end of its operation.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Maximum number of waiting operations.
const MOST_WAITING: usize = 1 << 17;
/// Events sent before that of an operation have arrived once the rings were emptied twice; other operations of its I/O
/// may end slightly later.
const ROUNDS: u64 = 3;

/// Hashes numbers that the kernel side counts up: their low bits vary most.
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

type NumberMap<T> = HashMap<u64, T, BuildHasherDefault<ByNumber>>;

/// Joins I/Os with their operations. An I/O is returned when its operation's event has arrived, or after a timeout.
#[derive(Debug, Default)]
pub struct Join {
    devices: Vec<TracedDevice>,
    round: u64,
    /// By operation: its I/Os, and when they came.
    waiting: NumberMap<Vec<(u64, WireIo)>>,
    /// Start of each wait, and the operation waited for.
    since: VecDeque<(u64, u64)>,
    /// Operations whose I/Os may still be in another ring.
    ended: NumberMap<FinishedOperation>,
    /// Operations to forget, by round.
    forget: VecDeque<(u64, u64)>,
    /// Operations by the I/O that ended them, where that names another operation.
    merged: NumberMap<Vec<WireOperation>>,
    /// I/Os of several bios, complete except for the other bios' operations.
    held: VecDeque<(u64, TracedIo)>,
    /// I/Os returned.
    pub ios: u64,
    /// I/Os returned without the end of their operation.
    pub unjoined: u64,
    /// Operations whose event came but that no I/O showed.
    pub unshown: u64,
}

#[derive(Debug)]
struct FinishedOperation {
    operation: WireOperation,
    shown: bool,
}

impl Join {
    pub fn new(scene: &Scene) -> Self {
        Self { devices: scene.devices.clone(), round: 1, ..Self::default() }
    }

    /// Takes the events read from all rings at `now_ns`, and returns the complete I/Os. `emptied`: the rings had no
    /// further events.
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

    /// No more events come: returns the remaining I/Os.
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
        self.ended.insert(operation.operation, FinishedOperation { operation, shown });
    }

    /// An I/O of several bios waits for the other bios' operations, which end at the same time.
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

    /// Returns the I/Os that have waited longest without their operation.
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

    /// Returns held I/Os, and forgets operations, that are this many rounds old.
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

#[cfg(test)]
mod tests {
    use super::super::fixtures::{io, numbers, operation, scene};
    use super::super::operation::{OperationEnd, SubmitMethod, TracedOperation};
    use super::*;
    use crate::wire::events::IO_MERGED;

    fn end(io: &TracedIo) -> OperationEnd {
        io.operation.unwrap().end.unwrap()
    }

    #[test]
    fn an_io_waits_for_its_operation_and_their_stages_add_up() {
        let mut join = Join::new(&scene());
        assert_eq!(join.round(0, [Event::Io(io(1, 5))], true), []);
        let out = join.round(1, [Event::Operation(operation(5, 1))], true);
        let [io] = &out[..] else { panic!("{out:?}") };
        assert_eq!((io.total_ns, io.offset, io.bytes), (Some(5_001), Some(4096), Some(4096)));
        assert_eq!(io.stages.iter().map(|(_, ns)| ns).sum::<u64>(), 5_001);
        let end = end(io);
        assert_eq!((end.kind, end.user_data, end.opcode), (SubmitMethod::Ring, Some(77), Some(0)));
        assert_eq!(end.stages.unwrap().iter().map(|(_, ns)| ns).sum::<u64>(), 6_100);
        assert_eq!((end.total_ns, end.last), (Some(6_100), true));
        join.finish();
        assert_eq!((join.ios, join.unjoined, join.unshown), (1, 0, 0));
    }

    /// The rings are read one after the other, so an operation can come before its I/O.
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
    fn an_empty_flush_ends_its_operation_without_stages_of_its_own() {
        let waiter =
            |number: u64, ended| WireIo { op: 4, queued: 0, issued: 0, reaped: 0, ended, ..io(number, 5) };
        let flush = operation(5, 2);
        // The operation of an io_uring request ends after it.
        for waited in [flush.ended, flush.ended - 100] {
            let events =
                [Event::Io(waiter(1, waited - 1)), Event::Io(waiter(2, waited)), Event::Operation(flush)];
            let out = Join::new(&scene()).round(0, events, true);
            assert_eq!(out.iter().map(|io| end(io).last).collect::<Vec<_>>(), [false, true]);
            assert!(out.iter().all(|io| io.total_ns.is_none() && io.stages.iter().next().is_none()));
        }
        // Another I/O was the last one, and was not selected.
        let out = Join::new(&scene()).round(0, [Event::Io(waiter(2, 2_000)), Event::Operation(flush)], true);
        assert!(!end(&out[0]).last);
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
        // The end comes for the other I/O.
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
        // An operation that comes too late is counted.
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
}
