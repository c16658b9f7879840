//! I/O of other processes on a device: as the difference from the load's own count, and by process.

use super::Summaries;
use super::facts;
use crate::analyze::latency::{DeviceLatency, OpLatency};
use crate::analyze::op::Op;
use crate::analyze::sharing::Relation;
use crate::analyze::sharing::{ProcessShare, shares};
use crate::load::{Direction, LoadSummary};
use crate::merge::SaturatingSum as _;
use crate::units::in_percent;

/// Maximum number of processes named.
const MOST_NAMED: usize = 3;

/// A process with a smaller share of a device is not named.
const NAMED_SHARE: f64 = 0.01;

/// The load and its device, if the I/O of others can be determined.
pub fn told<'a>(s: &Summaries<'a>) -> Option<(&'a LoadSummary, &'a DeviceLatency)> {
    let load = s.load?;
    let device = s.latency.device(load.device.as_ref()?)?;
    // The load's count excludes its ramp.
    let only_reads = !load.job.rw.has(Direction::Write) && !load.job.rw.has(Direction::Trim) && !load.job.nop;
    if !only_reads || !load.job.ramp_time.is_zero() || !facts::covered(s) {
        return None;
    }
    if device.ios < facts::MIN_IOS || facts::device_view(s, device).doubt(s).is_some() {
        return None;
    }
    Some((load, device))
}

/// I/Os that are not the load's, by class; reads only if their number is meaningful.
pub fn foreign(load: &LoadSummary, device: &DeviceLatency) -> Vec<(Op, u64)> {
    let of_class = |(op, of): (&Op, &OpLatency)| {
        let ios = match op {
            Op::Read if !load.job.direct => 0,
            Op::Read if beyond(load, device).is_some() => 0,
            Op::Read => of.ios.saturating_sub(load.operations() + load.errors()),
            Op::Flush | Op::EmptyFlush => 0,
            // If unknown, they are attributed to the journal.
            Op::Fua => of.unowned.map_or(0, |unowned| of.ios.saturating_sub(unowned)),
            Op::Write | Op::Discard | Op::WriteZeroes | Op::Passthrough => of.ios,
        };
        (*op, ios)
    };
    device.ops.iter().map(of_class).filter(|(_, ios)| *ios > 0).collect()
}

/// Bytes read beyond the load's, used if I/Os were split or merged so that their number is meaningless. None: it is
/// meaningful.
pub fn beyond(load: &LoadSummary, device: &DeviceLatency) -> Option<u64> {
    let read = device.ops.get(&Op::Read).filter(|_| load.job.direct)?;
    (device.splits > 0 || device.merges > 0).then(|| read.bytes.saturating_sub(load.bytes()))
}

/// Bytes of all classes.
pub fn moved(device: &DeviceLatency) -> u64 {
    device.ops.values().map(|of| of.bytes).saturating_sum()
}

/// Upper bound of the I/Os on the load's device that are not the load's; None if unknown.
pub fn ios(s: &Summaries<'_>) -> Option<u64> {
    let (load, device) = told(s)?;
    let read = device.ops.get(&Op::Read).map_or(0, |read| read.ios);
    // Their size is unknown: assumed to be the overall mean.
    let reckoned = |bytes: u64| (read as f64 * bytes as f64 / moved(device).max(1) as f64) as u64;
    let reads = beyond(load, device).map_or(0, reckoned);
    Some(reads + foreign(load, device).iter().map(|(_, ios)| ios).saturating_sum())
}

/// Processes on the device that are neither measured nor kernel threads, most bytes first.
pub fn by_process<'a>(s: &Summaries<'_>, device: &'a DeviceLatency) -> Vec<ProcessShare<'a>> {
    let is_neighbour = |share: &ProcessShare<'_>| {
        let process = share.process;
        process.pid.is_some()
            && match (s.latency.filtered, process.relation) {
                (_, Relation::Kernel) => false,
                (true, _) => !process.selected,
                // Without relations a command's I/O cannot be distinguished from others'.
                (false, relation) => relation == Relation::Other,
            }
    };
    shares(device).into_iter().filter(is_neighbour).collect()
}

/// The share of the device's I/O that is known to belong to others: on the load's device as the difference from the
/// load, otherwise by process.
pub fn share(s: &Summaries<'_>, device: &DeviceLatency) -> f64 {
    match s.load {
        Some(_) => ios(s).map_or(0.0, |ios| ios as f64 / device.ios.max(1) as f64),
        // Without a command or a filter the run is about all of it.
        None if !s.command && !s.latency.filtered => 0.0,
        None => by_process(s, device).iter().map(ProcessShare::largest_known).sum(),
    }
}

/// `fio (4711) 24 %, dd (812) 2 %`; None if no process has a share worth naming.
pub fn names(s: &Summaries<'_>, device: &DeviceLatency) -> Option<String> {
    let all = by_process(s, device);
    let named = all.iter().filter(|share| share.largest_known() >= NAMED_SHARE).take(MOST_NAMED);
    let named: Vec<String> = named
        .map(|share| {
            let pid = share.process.pid.unwrap_or_default();
            format!("{} ({pid}) {}", share.process.comm, in_percent(share.largest_known()))
        })
        .collect();
    (!named.is_empty()).then(|| named.join(", "))
}

/// Lower bound of the device's I/Os outside the selected processes, and all that the kernel counted. None: no such
/// filter.
pub fn outside_the_filter(device: &DeviceLatency) -> Option<(u64, u64)> {
    let all = device.all_ios?;
    Some((all.min.saturating_sub(device.ios), all.min))
}
