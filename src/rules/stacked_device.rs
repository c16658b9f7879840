//! Finding: a stacked device takes time of its own above the devices below it.

use std::collections::BTreeMap;

use super::command;
use super::facts::{self, percent};
use super::numbers;
use super::{Rule, Summaries};
use crate::analyze::latency::DeviceLatency;
use crate::analyze::layers::{Inside, Unsaid, inside};
use crate::analyze::op::Op;
use crate::findings::{Finding, Number, Severity};
use crate::host::select::is_head;
use crate::units::{bytes, count, counted, in_percent, time};

/// Share of an I/O's time on the upper device that is spent in the layer itself, from which on it is reported. Without
/// it the rate at the same depth would grow by 1 / (1 - 0.2) = 1.25.
pub const COST: f64 = 0.20;

const LAYER_MEAN_NS: Number = Number::new("layer_mean_ns", "mean time in the layer");
const LAYER_PERCENT: Number = Number::new("layer_percent", "layer's share of the I/O");
const LAYERS: Number = Number::new("layers", "devices below");
const LOWER_MEAN_NS: Number = Number::new("lower_mean_ns", "mean time below the layer");
const UPPER_MEAN_NS: Number = Number::new("upper_mean_ns", "mean time of an I/O above the layer");

pub const RULE: Rule = Rule { id: "stacked-device", page: PAGE, find };

const PAGE: &str = "\
The layers of a stacked device (dm, md, loop) take time.

How it is computed
  For each traced device with others below it: time in the layer = mean time of an I/O on it - mean
  time of the I/O below that serves it. Computed only if there is exactly one I/O below for each
  above, with the same bytes: then the lower one lies within the upper one.
  A warning if the layer has 20 % of the upper device's time or more. Else a note, and only for the
  device that biopsy's own load drives: its figures are those of the stack, not of the drive.
  Paths of an NVMe multipath drive are not a layer. Needs 100 I/Os.
  From: latency.devices[].layers, .ops.*.ios, .bytes, .bio, .request_stages of the device and of
  those below; devices[].layers, .driver. With biopsy's own load, of reads only.

When it is wrong
  - Split, merged, repeated, cached or compressed I/Os, and other processes' I/O on the lower
    device, hide the layer's time: the evidence gives the reason, and there is no warning.
  - The time in the layer contains waiting: for a thread that encrypts or copies, for a lock, for a
    CPU. On a busy machine it is not only the layer's own work.
  - It is part of the operation, but not of the drive: it is no reason to replace the drive.
  - A loop device on a file of a memory file system has no device below and is not found.

What to do
  Drive the lower device too (reads do no harm) and compare: biopsy load LOWER --rw randread.
  - Encryption: cryptsetup --perf-no_read_workqueue --perf-no_write_workqueue.
  - Loop device: losetup --direct-io=on.
  - RAID: the chunk size.
  Else use fewer layers.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    s.latency.devices.iter().filter_map(|device| judge(s, device)).collect()
}

/// The device and its driver: `dm-0 (dm)`.
fn called(s: &Summaries<'_>, name: &str) -> String {
    match facts::disk(s, name).and_then(|disk| disk.driver.as_deref()) {
        Some(driver) => format!("{name} ({driver})"),
        None => name.to_string(),
    }
}

/// The time of all measurable classes on the device and below; otherwise why none is measurable.
fn cost(s: &Summaries<'_>, device: &DeviceLatency) -> Result<Inside, Option<Unsaid>> {
    let (mut all, mut why) = (Inside::default(), None);
    // The load only reads.
    let ours = |op: &Op| s.load.is_none() || *op == Op::Read;
    for op in device.ops.keys().copied().filter(ours) {
        match inside(s.latency, device, op) {
            Some(Ok(one)) => {
                let both = |of: fn(&Inside) -> u64| of(&all).saturating_add(of(&one));
                all = Inside::new(both(|of| of.ios), both(|of| of.upper_ns), both(|of| of.lower_ns));
            }
            Some(Err(unsaid)) => why = Some(unsaid),
            None => {}
        }
    }
    if all.ios >= facts::MIN_IOS && all.upper_ns > 0 { Ok(all) } else { Err(why) }
}

fn judge(s: &Summaries<'_>, device: &DeviceLatency) -> Option<Finding> {
    let below = facts::below(s, &device.name);
    if device.ios < facts::MIN_IOS
        || below.is_empty()
        || facts::disk(s, &device.name).is_some_and(|disk| is_head(s.host, disk))
    {
        return None;
    }
    let is_target = s.load.is_some_and(|load| load.device.as_ref() == Some(&device.name));
    let all = std::iter::once(device).chain(below.iter().filter_map(|name| s.latency.device(name)));
    let doubt = all.filter_map(|one| facts::device_view(s, one).doubt(s)).next();
    let cost = if doubt.is_some() { Err(None) } else { cost(s, device) };
    let share = cost.as_ref().ok().map(|of| (of.upper_ns - of.lower_ns) as f64 / of.upper_ns as f64);
    let is_dear = share.is_some_and(|share| share >= COST);
    if !is_dear && !is_target {
        return None;
    }
    let name = &device.name;
    let stack: Vec<String> = below.iter().map(|lower| called(s, lower)).collect();
    let mut numbers = BTreeMap::from([(LAYERS, below.len() as f64)]);
    let mut evidence = vec![format!("{} is layered on {}", called(s, name), stack.join(", "))];
    match (&cost, &doubt) {
        (Ok(of), _) => {
            let layer = of.mean_ns;
            numbers.insert(UPPER_MEAN_NS, of.upper_mean_ns);
            numbers.insert(LOWER_MEAN_NS, of.lower_mean_ns);
            numbers.insert(LAYER_MEAN_NS, layer);
            numbers.insert(numbers::IOS, of.ios as f64);
            numbers.extend(share.map(|share| (LAYER_PERCENT, percent(share))));
            evidence.push(format!(
                "{}: {} on average on {name}, of which {} in the layer and {} below",
                counted(of.ios, "I/O"),
                time(of.upper_mean_ns as u64),
                time(layer as u64),
                time(of.lower_mean_ns as u64)
            ));
        }
        (Err(_), Some(doubt)) => evidence.push(format!("the time in the layer was not measured: {doubt}")),
        (Err(why), None) => evidence.push(format!("the time in the layer was not measured: {}", reason(why))),
    }
    let sentence = match share {
        Some(share) => format!(
            "{} of the time of an I/O on {name} is spent in the layer itself, and the rest on {} below it.",
            in_percent(share),
            device.below()
        ),
        None => format!(
            "{name} is layered on {}, and its figures are those of the whole stack.",
            stack.join(", ")
        ),
    };
    let lowest = below.last().map_or(name.as_str(), String::as_str);
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: if is_dear { Severity::Warning } else { Severity::Note },
        // The layer's own waits cannot be distinguished from its work.
        confidence: if is_dear { 0.8 } else { 0.9 },
        sentence,
        numbers,
        evidence,
        advice: format!(
            "Compare with {lowest} alone (biopsy load /dev/{lowest} only reads). If the layer costs the \
             time, check its settings, or do without it."
        ),
        check: match s.load.filter(|_| is_target) {
            Some(load) => command::load(load, load.job.iodepth, load.job.numjobs),
            None => command::latency(name),
        },
        worth: None,
    })
}

fn reason(unsaid: &Option<Unsaid>) -> String {
    match unsaid {
        Some(Unsaid::NotTraced(name)) => format!("{name} below it is not traced"),
        Some(Unsaid::NotOneToOne { upper, lower }) => format!(
            "{} of {} on it became {} of {} below: they are split, merged or cached, or other processes \
             use the lower device",
            counted(upper.0, "I/O"),
            bytes(upper.1 as f64),
            count(lower.0),
            bytes(lower.1 as f64)
        ),
        Some(Unsaid::NotTimed) | None => "not all of its I/Os were timed completely".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::latency::OpLatency;
    use crate::analyze::stage::Stage;
    use crate::host::BlockDevice;
    use crate::rules::fixtures::{Case, hist};

    /// Bios of `dm-0` of `upper` ns each, on a disk whose requests take 80 µs: 5 in the queue, 75 in the device.
    fn case(upper: u64) -> Case {
        let mut case = Case::new(10_000, 8);
        case.stage(Stage::Queue, 5_000, 5_000);
        case.stage(Stage::Device, 75_000, 75_000);
        let reads = OpLatency {
            ios: 10_000,
            bytes: 10_000 * 4096,
            bio: Some(hist(10_000, upper, upper)),
            ..OpLatency::default()
        };
        case.latency.devices.push(DeviceLatency {
            name: "dm-0".into(),
            ios: 10_000,
            bytes: reads.bytes,
            layers: vec!["vda".into()],
            bio_based: true,
            ops: BTreeMap::from([(Op::Read, reads)]),
            ..DeviceLatency::default()
        });
        let dm = BlockDevice {
            name: "dm-0".into(),
            driver: Some("dm".into()),
            layers: vec!["vda".into()],
            ..BlockDevice::default()
        };
        case.host.devices.push(dm);
        case.load = None;
        case
    }

    fn found(case: &Case) -> Vec<Finding> {
        find(&case.summaries())
    }

    #[test]
    fn a_fifth_of_the_time_is_dear() {
        let dear = found(&case(100_000));
        assert_eq!((dear.len(), dear[0].subject.as_str()), (1, "dm-0"));
        assert_eq!((dear[0].severity, dear[0].numbers["layer_percent"]), (Severity::Warning, 20.0));
        assert_eq!(dear[0].numbers["layer_mean_ns"], 20_000.0);
        assert_eq!(dear[0].evidence[0], "dm-0 (dm) is layered on vda (virtio_blk)");
        assert_eq!(
            dear[0].evidence[1],
            "10,000 I/Os: 100 µs on average on dm-0, of which 20.0 µs in the layer and 80.0 µs below"
        );
        assert!(found(&case(99_900)).is_empty(), "19.9 %, and nobody's aim");
    }

    #[test]
    fn the_aim_of_the_load_is_named_even_where_the_layer_is_cheap() {
        let mut cheap = case(81_000);
        cheap.load = Case::new(10_000, 8).load;
        assert!(found(&cheap).is_empty(), "vda is driven");
        cheap.load.as_mut().unwrap().device = Some("dm-0".into());
        let note = found(&cheap).remove(0);
        assert_eq!((note.severity, note.confidence), (Severity::Note, 0.9));
        assert!(note.sentence.starts_with("1 % of the time of an I/O on dm-0"), "{}", note.sentence);
    }

    #[test]
    fn a_layer_that_cannot_be_told_is_never_dear() {
        let mut other = case(200_000);
        other.read().bytes += 4096;
        assert!(found(&other).is_empty());
        other.load = Case::new(10_000, 8).load;
        other.load.as_mut().unwrap().device = Some("dm-0".into());
        let note = found(&other).remove(0);
        assert_eq!(note.severity, Severity::Note);
        assert!(
            note.evidence[1].contains("10,000 I/Os of 39.1 MiB on it became 10,000 of 39.1 MiB below"),
            "{:?}",
            note.evidence
        );
        let mut lossy = case(200_000);
        assert_eq!(found(&lossy).len(), 1);
        lossy.latency.devices[0].lost_ios = 1_000;
        assert!(found(&lossy).is_empty(), "lost below");
    }

    #[test]
    fn paths_are_no_layer() {
        let mut head = case(200_000);
        let names = ["nvme0c0n1", "nvme0n1"];
        for (at, name) in names.iter().enumerate() {
            head.latency.devices[at].name = name.to_string();
            head.host.devices[at].name = name.to_string();
            head.host.devices[at].driver = Some("nvme".into());
        }
        head.host.devices[1].layers = vec![names[0].into()];
        head.latency.devices[1].layers = vec![names[0].into()];
        head.host.devices[0].hidden = true;
        assert!(found(&head).is_empty());
    }
}
