//! Finding: the block layer splits operations.

use std::collections::BTreeMap;

use super::command;
use super::facts::{self, DeviceView};
use super::numbers;
use super::{Rule, Summaries};
use crate::findings::{Finding, Number, Severity, Worth};
use crate::host::BlockDevice;
use crate::load::LoadSummary;
use crate::merge::SaturatingSum as _;
use crate::units::{bytes, count, counted, in_percent};

/// I/Os per operation from which on it is reported. Below it fewer than half of the operations are split: unaligned
/// ends, not a limit.
pub const FACTOR: f64 = 1.5;

/// The device's bytes may differ from the operations' by this share before reads of other processes are suspected in
/// the count.
pub const FOREIGN_SHARE: f64 = 0.1;

/// If more of the I/Os belong to no operation, the page cache caused them.
pub const UNOWNED: f64 = 0.1;

/// I/Os below this share of an operation's equal parts were split by something smaller than the size limit.
pub const PART_SHARE: f64 = 0.85;

/// From this size on the cost of one more request hardly matters.
const LARGE: f64 = 1048576.0;

const BLOCK_BYTES: Number = Number::new("block_bytes", "block size");
const IOS_PER_OPERATION_RATIO: Number = Number::new("ios_per_operation_ratio", "I/Os per operation");
const MAX_HW_REQUEST_BYTES: Number =
    Number::new("max_hw_request_bytes", "largest request that the hardware takes");
const MAX_REQUEST_BYTES: Number = Number::new("max_request_bytes", "largest request");
const SPLITS: Number = Number::new("splits", "splits");

pub const RULE: Rule = Rule { id: "split-io", page: PAGE, find };

const PAGE: &str = "\
The block layer splits operations into several I/Os.

Each part needs its own request, tag, command and completion. The operation is as slow as its
slowest part.

How it is computed
  ios_per_operation_ratio = I/Os of the device / operations. Found from 1.5 on.
  - With biopsy's own load, the generator counts the operations, and the mean I/O must be smaller
    than the block size by the same factor. Only on the device that is the target, not on disks
    below it.
  - Without it, ratio = I/Os / (I/Os - splits). Not found if more than 10 % of the I/Os belong to no
    operation: these are read-ahead and write-back, whose sizes the page cache chooses.
  The block size is then compared with two limits:
  - queue/max_sectors_kb, a soft limit that can be raised;
  - queue/max_hw_sectors_kb, the hard limit of driver and device. Then it is a note, as it is
    where the mean I/O is 1 MiB or more: what a request costs is little for so many bytes.
  If the block fits into the limit, or the mean I/O is below 85 % of equal parts of the block,
  another limit splits first: the number of segments, a boundary, or the extents of the file.
  From: load.ios, .bs; latency.devices[].splits, .ops.*.ios, .bytes; devices[].max_request_bytes,
  .max_hw_request_bytes.

When it is wrong
  - Reads by other processes count as parts. If the device reads over 10 % more bytes than the
    operations return, the confidence is 0.5.
  - Merges lower the ratio.
  - Without biopsy's own load a bio counts as an operation, but a large read may be several bios.
  - A split may cost nothing: if the bandwidth of the device is the limit, larger I/Os do not help.

What to do
  - Soft limit: raise queue/max_sectors_kb, at most to max_hw_sectors_kb.
  - Hard limit: use blocks of at most that size. This moves no more bytes per second, but each
    operation waits for one I/O only.
  - Segments: put the buffers into huge pages. Extents: see filefrag -v FILE.
  Measure before and after: the ratio is exact, the gain is not known in advance.
";

/// What causes the split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SplitCause {
    /// `max_sectors_kb`, and the maximum value that it could have.
    Soft(u64),
    Hard,
    /// Neither: segments, boundaries, extents.
    Other,
}

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    facts::device_views(s)
        .iter()
        .filter(|p| p.sound(s))
        .filter_map(|p| match s.load {
            Some(load) => with_load(s, load, p),
            None => without_load(p),
        })
        .collect()
}

fn with_load(s: &Summaries<'_>, load: &LoadSummary, p: &DeviceView<'_>) -> Option<Finding> {
    // Several lower devices share the operations of one target, so there is no factor per device.
    if load.device.as_deref() != Some(p.device.name.as_str()) || !facts::covered(s) {
        return None;
    }
    let operations = load.operations();
    if operations < facts::MIN_IOS || load.bytes() == 0 {
        return None;
    }
    let factor = p.ios as f64 / operations as f64;
    let foreign = p.bytes as f64 / load.bytes() as f64 - 1.0;
    // Parts are smaller than the operation; reads of other processes need not be.
    let smaller = (p.bytes as f64 / p.ios as f64) * FACTOR <= load.job.largest_block() as f64;
    if factor < FACTOR || !smaller {
        return None;
    }
    let mut finding = finding(p, factor, load.job.largest_block() as f64, Some(load));
    finding.numbers.insert(numbers::OPERATIONS, operations as f64);
    finding.numbers.insert(BLOCK_BYTES, load.job.largest_block() as f64);
    finding.evidence.insert(
        0,
        format!(
            "{} operations of {} became {} I/Os of {} on average",
            count(operations),
            bytes(load.job.largest_block() as f64),
            count(p.ios),
            bytes(p.bytes as f64 / p.ios as f64)
        ),
    );
    if foreign > FOREIGN_SHARE {
        finding.confidence = 0.5;
        finding.evidence.push(format!(
            "the device read {} more bytes than the operations requested: part of the factor is reads of \
             other processes",
            in_percent(foreign)
        ));
    }
    Some(finding)
}

fn without_load(p: &DeviceView<'_>) -> Option<Finding> {
    // Read-ahead and write-back are not operations: no application chooses their size.
    let unowned: u64 = p.device.ops.values().filter_map(|of| of.unowned).saturating_sum();
    let unclassified: u64 = p.device.ops.values().map(|of| of.unclassified).saturating_sum();
    if unowned as f64 > p.ios.saturating_sub(unclassified) as f64 * UNOWNED {
        return None;
    }
    let whole = p.ios.checked_sub(p.device.splits).filter(|whole| *whole > 0)?;
    let factor = p.ios as f64 / whole as f64;
    if factor < FACTOR {
        return None;
    }
    let mut finding = finding(p, factor, p.bytes as f64 / whole as f64, None);
    finding.confidence = 0.8;
    finding.evidence = vec![format!(
        "the block layer did {} of bios; the result was {}",
        counted(p.device.splits, "split"),
        counted(p.ios, "I/O")
    )];
    Some(finding)
}

/// `size`: bytes of an operation, or of a bio before the split.
fn finding(p: &DeviceView<'_>, factor: f64, size: f64, load: Option<&LoadSummary>) -> Finding {
    let name = &p.device.name;
    let disk = p.device.disk_name();
    let mean = p.bytes as f64 / p.ios.max(1) as f64;
    let limit = p.disk.map_or(SplitCause::Other, |disk| limit(disk, size, mean));
    let (soft, hard) = p.disk.map_or((0, 0), |d| (d.max_request_bytes, d.max_hw_request_bytes));
    let mut numbers = BTreeMap::from([
        (IOS_PER_OPERATION_RATIO, factor),
        (numbers::IO_MEAN_BYTES, mean),
        (numbers::DEVICE_IOS, p.ios as f64),
        (SPLITS, p.device.splits as f64),
    ]);
    if p.disk.is_some() {
        numbers.insert(MAX_REQUEST_BYTES, soft as f64);
        numbers.insert(MAX_HW_REQUEST_BYTES, hard as f64);
    }
    let (what, advice, worth) = match limit {
        SplitCause::Soft(value) => (
            format!("max_sectors_kb is {}, and the hardware takes {}", soft >> 10, hard >> 10),
            format!("Raise the soft limit: echo {} > /sys/block/{disk}/queue/max_sectors_kb", value >> 10),
            // At best one I/O per new maximum; at worst the next limit is only slightly larger.
            Some(Worth {
                metric: "ios_per_operation_ratio".to_string(),
                low: (size / value as f64).ceil().max(1.0).min(factor),
                high: factor,
            }),
        ),
        SplitCause::Hard => (
            format!("{} is the most that the hardware of {name} takes in one request", bytes(hard as f64)),
            format!("No setting changes this limit; operations of {} are not split.", bytes(hard as f64)),
            None,
        ),
        SplitCause::Other => (
            "the I/Os are smaller than the size limits: segments, a boundary or the file's extents split \
             first".into(),
            "Put the buffers in huge pages, or check the file's extents (filefrag -v) and queue/max_segments."
                .to_string(),
            None,
        ),
    };
    Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: if limit == SplitCause::Hard || mean >= LARGE { Severity::Note } else { Severity::Warning },
        confidence: 0.95,
        sentence: format!("Each operation becomes {factor:.1} I/Os on {name}: {what}."),
        numbers,
        evidence: vec![format!("the block layer did {} of bios", counted(p.device.splits, "split"))],
        advice,
        check: match (load, limit) {
            (Some(load), SplitCause::Soft(value)) => {
                let [is, advised] = [soft, value].map(|bytes| (bytes >> 10).to_string());
                command::compare_setting(load, disk, "max_sectors", &is, &advised)
            }
            _ => command::latency(name),
        },
        worth,
    }
}

/// A limit causes the split if the I/Os come near it: all parts but the last are as large as allowed, so for a size
/// just above the limit the mean is half of it.
fn limit(disk: &BlockDevice, size: f64, mean: f64) -> SplitCause {
    let (soft, hard) = (disk.max_request_bytes, disk.max_hw_request_bytes);
    if soft == 0 || size <= soft as f64 {
        return SplitCause::Other;
    }
    let parts = (size / soft as f64).ceil();
    if mean < size / parts * PART_SHARE {
        return SplitCause::Other;
    }
    if soft >= hard { SplitCause::Hard } else { SplitCause::Soft(hard.min(size as u64).max(soft) & !0x3ff) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixtures::Case;

    /// 1 MiB reads on a disk whose requests are at most `soft` bytes.
    fn case(factor: u64, soft: u64, hard: u64) -> Case {
        let mut case = Case::new(10_000 * factor, 32);
        let load = case.load.as_mut().unwrap();
        load.job.set_bs(1 << 20);
        load.jobs[0].transfers[0].operations = 10_000;
        load.jobs[0].transfers[0].bytes = 10_000 << 20;
        case.read().bytes = 10_000 << 20;
        case.latency.devices[0].splits = 10_000 * (factor - 1);
        case.disk().max_request_bytes = soft;
        case.disk().max_hw_request_bytes = hard;
        case
    }

    #[test]
    fn a_mebibyte_at_128_kib_is_eight_ios_and_the_soft_limit() {
        let found = find(&case(8, 128 << 10, 1 << 20).summaries());
        assert_eq!(found[0].numbers["ios_per_operation_ratio"], 8.0);
        assert_eq!(found[0].severity, Severity::Warning);
        assert!(
            found[0].advice.contains("echo 1024 > /sys/block/vda/queue/max_sectors_kb"),
            "{}",
            found[0].advice
        );
        assert!(
            found[0].check.starts_with("sudo biopsy compare --vary max_sectors=128,1024 -- load "),
            "{}",
            found[0].check
        );
        assert_eq!(found[0].worth.as_ref().map(|w| (w.low, w.high)), Some((1.0, 8.0)));
    }

    #[test]
    fn the_hardware_limit_is_a_note_and_smaller_parts_name_neither() {
        let hard = find(&case(2, 512 << 10, 512 << 10).summaries());
        assert_eq!((hard[0].severity, hard[0].worth.clone()), (Severity::Note, None));
        let other = find(&case(16, 512 << 10, 1 << 20).summaries());
        assert!(other[0].sentence.contains("segments"), "{}", other[0].sentence);
    }

    #[test]
    fn the_threshold_has_two_sides() {
        let mut case = case(2, 512 << 10, 1 << 20);
        case.read().ios = 15_000;
        assert_eq!(find(&case.summaries()).len(), 1);
        case.read().ios = 14_999;
        assert!(find(&case.summaries()).is_empty());
    }

    #[test]
    fn reads_of_others_are_not_parts() {
        let mut case = Case::new(20_000, 32);
        let load = case.load.as_mut().unwrap();
        load.jobs[0].transfers[0].operations = 10_000;
        load.jobs[0].transfers[0].bytes = 10_000 * 4096;
        assert!(find(&case.summaries()).is_empty(), "4 KiB I/Os are not parts of 4 KiB operations");
        let mut case = self::case(8, 128 << 10, 1 << 20);
        case.read().bytes = (10_000 << 20) * 5 / 4;
        assert_eq!(find(&case.summaries())[0].confidence, 0.5);
    }

    #[test]
    fn without_a_load_the_block_layers_own_count_serves() {
        let mut case = case(4, 128 << 10, 1 << 20);
        case.load = None;
        case.read().bytes = 40_000 * (128 << 10);
        let found = find(&case.summaries());
        assert_eq!((found[0].numbers["ios_per_operation_ratio"], found[0].confidence), (4.0, 0.8));
        case.latency.devices[0].splits = 13_333; // 40,000 / 26,667 is just below 1.5
        assert!(find(&case.summaries()).is_empty());
    }
}
