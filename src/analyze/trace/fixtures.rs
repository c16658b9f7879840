//! Literal events for the tests of the join.

use super::io::TracedIo;
use super::scene::{Scene, TracedDevice};
use crate::wire::CALL_RING;
use crate::wire::events::{WireIo, WireOperation};

pub fn scene() -> Scene {
    let device = TracedDevice { slots_per_queue: 257, ..TracedDevice::default() };
    let second = TracedDevice { slot_base: 257, slots_per_queue: 64, ..TracedDevice::default() };
    Scene { devices: vec![device, second], ..Scene::default() }
}

pub fn io(number: u64, operation: u64) -> WireIo {
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

/// Ended by the I/O with this number.
pub fn operation(id: u64, number: u64) -> WireOperation {
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

/// The numbers by which tests identify I/Os.
pub fn numbers(ios: &[TracedIo]) -> Vec<u64> {
    ios.iter().map(|io| io.number).collect()
}
