//! Converts one raw event into its I/O or operation.

use super::super::op::Op;
use super::super::stage::Stage;
use super::io::{Owner, Route, StageTimes, TracedIo};
use super::operation::{OperationEnd, SubmitMethod, TracedOperation};
use super::scene::TracedDevice;
use crate::wire::events::{
    IO_BIO, IO_FLUSHED, IO_FUSED, IO_HAS_SUBMITTER, IO_MERGED, IO_NEGATIVE, IO_STARTED_BEFORE,
    STACK_TOOK_BITS, SUBMITTER_KERNEL, SUBMITTER_PART, WireIo, WireOperation,
};
use crate::wire::{CALL_AIO, CALL_RING};

/// Converts an I/O, with its operation if that has ended. Also returns whether other operations may have shared it.
pub fn traced(devices: &[TracedDevice], io: &WireIo, operation: Option<&WireOperation>) -> (bool, TracedIo) {
    let marked = |mark: u32| io.marks & mark != 0;
    let known = |stamp: u64| (stamp != 0).then_some(stamp);
    let device = devices.get(io.device as usize);
    let bio = marked(IO_BIO);
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
        let last = match op {
            // A bio is issued on entry, for its operation, and reaped when it ends.
            _ if bio => (operation.issued, operation.reaped) == (io.queued, io.ended),
            // It has no stages of its own, and its operation has those of the flush that it waited for.
            Some(Op::EmptyFlush) => {
                operation.io == io.io && (operation.reaped..=operation.ended).contains(&io.ended)
            }
            _ => (operation.issued, operation.reaped) == (io.issued, io.reaped),
        };
        let mut traced = ended(operation, last);
        if let Some(end) = traced.end.as_mut().filter(|_| bio) {
            end.stages = end.stages.map(StageTimes::of_bio);
        }
        traced
    });
    let by = &io.by;
    let traced = TracedIo {
        number: io.io,
        device: io.device as usize,
        queue: (!bio).then_some(queue),
        op,
        flags: io.cmd_flags,
        offset: (!placeless && io.sector != u64::MAX).then(|| io.sector.saturating_mul(512)),
        // Unknown for a bio that began before the trace, or a part that its driver split off silently.
        bytes: (!bio || io.bytes > 0 || placeless).then_some(io.bytes),
        further: if bio { io.slot_base.saturating_sub(1) } else { 0 },
        queued_ns: queued,
        issued_ns: issued,
        ended_ns: io.ended,
        stages: StageTimes(stages),
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
        route: (marked(IO_HAS_SUBMITTER) && by.stack != 0).then(|| Route {
            stack: by.stack,
            stands_for: 1 << by.stands_for.min(63),
            plugged: by.plugged,
            took_ns: u64::from(by.took) << STACK_TOOK_BITS,
            part: by.flags & SUBMITTER_PART != 0,
        }),
        file: (io.file.kind != 0).then_some(io.file),
        completion_cpu: io.cpu,
        operation: end.or((io.operation != 0).then_some(TracedOperation { id: io.operation, end: None })),
        merged: Vec::new(),
    };
    (marked(IO_MERGED), traced)
}

fn span(begin: Option<u64>, end: Option<u64>) -> Option<u64> {
    end?.checked_sub(begin?)
}

/// Converts an ended operation. `last`: its I/O here was its last one.
pub fn ended(operation: &WireOperation, last: bool) -> TracedOperation {
    let seen = (operation.seen != 0).then_some(operation.seen);
    // A command of the driver itself has no bio: submission lasts until the issue.
    let no_queue = operation.queued == 0;
    let stamps = [
        operation.entered,
        if no_queue { operation.issued } else { operation.queued },
        operation.issued,
        operation.reaped,
        operation.ended,
        seen.unwrap_or(operation.ended),
    ];
    let in_order = stamps.is_sorted();
    let mut stages: [Option<u64>; 5] = std::array::from_fn(|i| stamps[i + 1].checked_sub(stamps[i]));
    if no_queue {
        stages[Stage::Queue as usize] = None;
    }
    if operation.fused != 0 {
        stages[Stage::Complete as usize] = None;
    }
    if seen.is_none() {
        stages[Stage::Reap as usize] = None;
    }
    let kind = match u8::try_from(operation.from) {
        Ok(CALL_RING) => SubmitMethod::Ring,
        Ok(CALL_AIO) => SubmitMethod::Aio,
        _ => SubmitMethod::Call,
    };
    TracedOperation {
        id: operation.operation,
        end: Some(OperationEnd {
            kind,
            user_data: (kind != SubmitMethod::Call).then_some(operation.user_data),
            opcode: (kind == SubmitMethod::Ring).then_some(operation.opcode),
            ios: operation.parts,
            last,
            stages: in_order.then_some(StageTimes(stages)),
            total_ns: in_order.then(|| stamps[5] - stamps[0]),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{io, operation, scene};
    use super::*;

    #[test]
    fn a_bio_is_one_time_and_so_is_its_operation() {
        let bio =
            WireIo { marks: IO_BIO, issued: 0, reaped: 0, slot_base: 3, op: 1, queued: 1_200, ..io(1, 5) };
        let whole = WireOperation { queued: 1_200, reaped: 6_001, ended: 6_001, ..operation(5, 1) };
        let (_, traced_bio) = traced(&scene().devices, &bio, Some(&whole));
        assert_eq!((traced_bio.queue, traced_bio.stages.iter().count()), (None, 0));
        assert_eq!((traced_bio.total_ns, traced_bio.further), (Some(4_801), 2));
        assert_eq!((traced_bio.offset, traced_bio.bytes), (Some(4096), Some(4096)));
        let end = traced_bio.operation.unwrap().end.unwrap();
        let stages: Vec<(Stage, u64)> = end.stages.unwrap().iter().collect();
        assert_eq!((end.last, end.total_ns), (true, Some(6_100)));
        assert_eq!(stages.iter().map(|(_, ns)| ns).sum::<u64>(), 6_100);
        assert_eq!(stages[..2], [(Stage::Submit, 300), (Stage::Device, 4_801)]);
        // The position of a part that md split off is unknown.
        let front = WireIo { sector: u64::MAX, bytes: 0, ..bio };
        let (_, front) = traced(&scene().devices, &front, None);
        assert_eq!((front.offset, front.bytes), (None, None));
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
        assert_eq!(
            (flush.op, flush.offset, flush.owner, flush.queue),
            (Some(Op::Flush), None, None, Some(1))
        );
        assert_eq!(flush.stages.iter().map(|(stage, _)| stage).collect::<Vec<_>>(), [Stage::Device]);
        assert_eq!(flush.total_ns, Some(4_801));
        let before = WireIo { marks: IO_STARTED_BEFORE, ended: 9, ..WireIo::default() };
        let (_, before) = traced(&scene().devices, &before, None);
        assert_eq!((before.stages.iter().count(), before.total_ns), (0, None));
        // Not fetched, and a device that is in no table.
        let unseen = ended(&WireOperation { seen: 0, ..operation(5, 1) }, true).end.unwrap();
        assert_eq!((unseen.stages.unwrap().get(Stage::Reap), unseen.total_ns), (None, Some(5_600)));
        // It has no bio: its submit lasts until the issue.
        let command = ended(&WireOperation { queued: 0, ..operation(5, 1) }, true).end.unwrap();
        let stages: Vec<(Stage, u64)> = command.stages.unwrap().iter().collect();
        assert_eq!(stages[..2], [(Stage::Submit, 300), (Stage::Device, 3_801)]);
        assert_eq!(command.total_ns, Some(stages.iter().map(|(_, ns)| ns).sum()));
        let torn = ended(&WireOperation { issued: 1, ..operation(5, 1) }, true).end.unwrap();
        assert_eq!((torn.stages, torn.total_ns), (None, None));
        assert_eq!(traced(&[], &WireIo { device: 9, op: 99, ..io(1, 0) }, None).1.op, None);
    }
}
