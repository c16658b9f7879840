//! Checks the order, sum and count of stages.

use super::super::latency::DeviceLatency;
use super::super::op::Op;
use super::super::operations;
use super::super::stage::Stage;
use super::sums::{add_up, counts_agree};
use super::{Invariant, NOT_FOLLOWED, TestedRun, fail, figure, not_tested, pass};
use crate::hist::Histogram;

/// No stage ends before it begins.
pub fn order(m: &TestedRun<'_>) -> Invariant {
    let negative: u64 = m.summary.devices.iter().map(|d| d.negative).sum();
    let broken = (negative > 0).then(|| {
        format!("{negative} I/Os ended before they began: the CPUs' clocks disagree (dmesg | grep -i tsc)")
    });
    m.of_ios("stage-order", vec![figure("ios", m.ios()), figure("negative", negative)], broken)
}

/// The stages of operations add up to their totals, to the nanosecond: in each cover, and in each power of two of the
/// total.
pub fn sums(m: &TestedRun<'_>) -> Invariant {
    const NAME: &str = "stage-sums";
    if m.summary.devices.iter().all(|device| device.operations.is_none()) {
        return not_tested(NAME, NOT_FOLLOWED);
    }
    let (mut count, mut stages_ns, mut total_ns, mut classes) = (0, 0, 0, 0);
    let mut broken = None;
    for delta in m.deltas() {
        for (number, op) in Op::ALL.into_iter().enumerate() {
            let rows = delta.each_operation().filter(|(_, of, _)| *of == number);
            for covered in operations::by_cover(rows.map(|(cover, _, row)| (cover, row))) {
                count += covered.operations;
                stages_ns += covered.stages.values().map(Histogram::sum).sum::<u64>();
                total_ns += covered.total.sum();
                classes += covered.by_total.len() as u64;
                let place = || format!("{} of {}", op.name(), delta.name);
                broken = broken.or(add_up(&covered).err().map(|why| format!("{}: {why}", place())));
            }
        }
    }
    if count == 0 && broken.is_none() {
        return not_tested(NAME, "no operation ended");
    }
    let numbers = vec![
        figure("operations", count),
        figure("stages_ns", stages_ns),
        figure("total_ns", total_ns),
        figure("classes", classes),
    ];
    match broken {
        Some(why) => fail(NAME, numbers, why),
        None => pass(NAME, numbers),
    }
}

/// Each histogram is consistent, and has every I/O except for those reported as missing.
pub fn histograms(m: &TestedRun<'_>) -> Invariant {
    let (mut device_count, mut queue_count, mut named) = (0, 0, 0);
    let mut broken = None;
    for (device, delta) in m.summary.devices.iter().filter_map(|device| {
        let delta = m.deltas().find(|delta| delta.name == device.name)?;
        Some((device, delta))
    }) {
        let place = |why: String| format!("{}: {why}", device.name);
        broken = broken.or(counts_agree(device).err().map(place));
        let (with_device, with_queue) = counts(device);
        device_count += with_device;
        queue_count += with_queue;
        let absent = delta.counters.no_queue_start;
        named += absent;
        // Without the event (a path of a multipath drive) no I/O has a stamp.
        if with_queue == 0 {
            continue;
        }
        // A missing stamp is counted at the issue: I/Os in flight at the end, and lost ones, are in no histogram.
        let out = device.in_flight_end.unwrap_or(0)
            + device.kernel_total().map_or(0, |b| b.max - b.min)
            + device.lost_ios;
        let without = with_device.saturating_sub(with_queue);
        if !(without..=without + out).contains(&absent) && broken.is_none() {
            broken = Some(place(format!(
                "{without} I/Os have no queue stage, and {absent} are named as having none"
            )));
        }
    }
    let numbers = vec![
        figure("ios", m.ios()),
        figure("device_stage", device_count),
        figure("queue_stage", queue_count),
        figure("no_queue_start", named),
        figure("started_before", m.summary.devices.iter().map(|d| d.started_before).sum()),
    ];
    m.of_ios("histograms", numbers, broken)
}

/// I/Os with a bio: how many have a device stage, and how many a queue stage.
fn counts(device: &DeviceLatency) -> (u64, u64) {
    let with_bio = [Op::Read, Op::Write, Op::Fua, Op::Discard, Op::WriteZeroes];
    let count = |stage| {
        let of = |op| device.ops.get(op)?.request_stages.get(&stage).map(Histogram::count);
        with_bio.iter().filter_map(of).sum()
    };
    (count(Stage::Device), count(Stage::Queue))
}
