//! Checks sums that must agree in every measurement: stages with totals, classes with devices, values with buckets.

use super::super::latency::{DeviceLatency, OpLatency};
use super::super::op::Op;
use super::super::operations::OperationLatency;
use super::super::stage::Stage;
use crate::hist::{Histogram, MAX_BITS};

/// Σ of the stages = the total, over the same operations, in all and in each power of two.
pub fn add_up(all: &OperationLatency) -> Result<(), String> {
    let n = all.total.count();
    let left: u64 = all.not_covered.values().sum();
    if n + left != all.operations {
        return Err(format!("{n} operations have stages and {left} are named, of {}", all.operations));
    }
    for (stage, hist) in &all.stages {
        agrees(hist).map_err(|why| format!("{}: {why}", stage.name()))?;
        // A system call throttled by blk-throttle has no submit stage, because the end of its submission is unknown.
        let held = *stage == Stage::Submit && hist.count() < n;
        if hist.count() != n && !held {
            return Err(format!("{} operations have {} and {n} a total", hist.count(), stage.name()));
        }
        let of_classes: u64 = all.by_total.iter().filter_map(|class| class.sums_ns.get(stage)).sum();
        if of_classes != hist.sum() {
            let (name, sum) = (stage.name(), hist.sum());
            return Err(format!("{name} is {sum} ns, and {of_classes} ns over the classes of the total"));
        }
    }
    agrees(&all.total).map_err(|why| format!("total: {why}"))?;
    let stages: u64 = all.stages.values().map(Histogram::sum).sum();
    if stages != all.total.sum() {
        return Err(format!("the stages add up to {stages} ns and the total is {} ns", all.total.sum()));
    }
    let in_classes: u64 = all.by_total.iter().map(|class| class.operations).sum();
    if in_classes != n {
        return Err(format!("{in_classes} operations are in classes of the total, of {n}"));
    }
    for class in &all.by_total {
        let sum: u128 = class.sums_ns.values().map(|ns| u128::from(*ns)).sum();
        let each = u128::from(class.operations);
        // The highest class has no upper bound.
        let above = class.upper_ns <= 1 << MAX_BITS && sum >= each * u128::from(class.upper_ns);
        if sum < each * u128::from(class.lower_ns) || above {
            return Err(format!(
                "{each} operations of {} to {} ns took {sum} ns together",
                class.lower_ns, class.upper_ns
            ));
        }
    }
    Ok(())
}

/// Classes, queues and the device have the same counts, and every histogram is consistent.
pub fn counts_agree(device: &DeviceLatency) -> Result<(), String> {
    let same = |what: &str, found: u64, wanted: u64| {
        if found == wanted { Ok(()) } else { Err(format!("{found} {what}, of {wanted}")) }
    };
    same("I/Os are in classes", device.ops.values().map(|op| op.ios).sum(), device.ios)?;
    same("bytes are in classes", device.ops.values().map(|op| op.bytes).sum(), device.bytes)?;
    // A bio-based device has no queues, and the other classes have no row per queue.
    if !device.bio_based {
        let queued = [Op::Read, Op::Write].iter().filter_map(|op| device.ops.get(op)).map(|op| op.ios).sum();
        same("I/Os are in queues", device.queues.iter().map(|queue| queue.ios).sum(), queued)?;
    }
    let of_ops = device.ops.values().map(|op| &op.request_stages);
    let of_queues = device.queues.iter().map(|queue| &queue.request_stages);
    for (stage, hist) in of_ops.chain(of_queues).flatten() {
        agrees(hist).map_err(|why| format!("{}: {why}", stage.name()))?;
    }
    for (op, of) in &device.ops {
        unowned_agree(*op, of).map_err(|why| format!("{}: I/Os without operation: {why}", op.name()))?;
    }
    Ok(())
}

/// The I/Os of no operation have stages that are included in the stages of all I/Os.
fn unowned_agree(op: Op, of: &OpLatency) -> Result<(), String> {
    let timed = of.unowned_timed();
    // An empty flush has no stages.
    if let Some(counted) = of.unowned.filter(|n| *n != timed && op != Op::EmptyFlush) {
        return Err(format!("{timed} I/Os have a device stage, of {counted}"));
    }
    let stages =
        of.unowned_stages.iter().map(|(stage, hist)| (stage.name(), hist, of.request_stages.get(stage)));
    let bio = of.unowned_bio.iter().map(|hist| ("bio", hist, of.bio.as_ref()));
    for (name, hist, all) in stages.chain(bio) {
        agrees(hist).map_err(|why| format!("{name}: {why}"))?;
        let all = all.ok_or_else(|| format!("no I/O at all has {name}"))?;
        let left = all.since(hist);
        if left.count() + hist.count() != all.count() || left.sum() + hist.sum() != all.sum() {
            return Err(format!("{name}: {} I/Os took {} ns, and all took less", hist.count(), hist.sum()));
        }
        // The rest, which belongs to operations, must be consistent too.
        agrees(&left).map_err(|why| format!("{name} of operations: {why}"))?;
    }
    Ok(())
}

/// Sum and extremes are stored separately from the buckets, and must be possible with them: this finds a lost addition.
pub fn agrees(hist: &Histogram) -> Result<(), String> {
    let (mut least, mut most) = (0u128, 0u128);
    let mut endless = false;
    let (mut first, mut last) = (None, None);
    for (lower, upper, n) in hist.buckets() {
        least += u128::from(lower) * u128::from(n);
        most += u128::from(upper - 1) * u128::from(n);
        // The last bucket also has everything above it.
        endless |= upper == 1 << MAX_BITS;
        first.get_or_insert((lower, upper));
        last = Some((lower, upper));
    }
    let (Some(first), Some(last), Some(min), Some(max)) = (first, last, hist.min(), hist.max()) else {
        return if hist.sum() == 0 { Ok(()) } else { Err(format!("{} ns in no value", hist.sum())) };
    };
    let sum = u128::from(hist.sum());
    if sum < least || sum > most && !endless {
        return Err(format!("the values add up to {sum} ns, and the buckets to {least} to {most} ns"));
    }
    if min < first.0 || min >= first.1 && !endless || max < last.0 || max >= last.1 && !endless {
        return Err(format!(
            "{min} to {max} ns are the extremes of buckets from {} to {} ns",
            first.0, last.1
        ));
    }
    Ok(())
}
