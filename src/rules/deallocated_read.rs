//! Reads that never reach the device.

use std::collections::BTreeMap;

use super::facts::{self, percent};
use super::{Rule, Summaries};
use crate::findings::{Finding, Severity};
use crate::load::LoadSummary;
use crate::units::{bytes, counted, in_percent};

/// The device must have read this share of what the operations asked for. Not 1.0: the window and
/// the load need not begin and end in the same microsecond.
pub const READ_SHARE: f64 = 0.95;

pub const RULE: Rule = Rule { id: "deallocated-read", page: PAGE, find };

const PAGE: &str = "\
Operations are answered without a read on the device: holes, unwritten extents or the page cache.

The figures of such a run say nothing about the device. A file that was allocated and never written
reads at memory speed: more than a million \"IOPS\" were measured with not one read on the disk.

How it is computed
  device_share_percent = bytes that the device read / bytes that the operations of biopsy's own load
  returned. Found below 95 %. Bytes are compared and not counts alone, because a split turns one
  operation into several I/Os and a merge several into one; the count must be below 95 % as well,
  or no smaller than one I/O per operation can explain it.

From which numbers
  load.bytes, load.operations; latency.devices[].ops.read.bytes and .ios of the load's target, or of
  the devices below it when the target has no requests of its own (dm, md).

When it is wrong
  - Reads of others on the same device count as reads of the load and can hide the finding.
  - A file system that compresses, deduplicates or keeps small files in its metadata reads fewer
    bytes than it returns, and nothing is deallocated.
  - Some file systems answer direct reads from the page cache; biopsy's load refuses those it knows.
  - It does not see blocks that a drive itself has deallocated (after a discard): those reads reach
    the drive, which answers without touching its media and looks faster than it is.
  - A loop device counts every read; whether its backing file has holes shows one layer down.
  - It is not looked for when I/Os are lost, or when the trace covers less than 99 % of the load.

What to try
  Write the target before reading it: a directory as the target makes biopsy fill a scratch file
  with incompressible data. For a file: filefrag -v FILE shows unwritten extents.
";

/// With a load of our own only: otherwise nobody counts the operations.
pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    let Some(load) = s.load.filter(|_| facts::covered(s)) else {
        return Vec::new();
    };
    judge(s, load).into_iter().collect()
}

fn judge(s: &Summaries<'_>, load: &LoadSummary) -> Option<Finding> {
    let target = load.device.as_ref()?;
    let wanted = load.bytes();
    let operations = load.operations();
    if operations < facts::MIN_IOS || wanted == 0 {
        return None;
    }
    let pictures = facts::pictures(s);
    // Not traced at all means no I/O only where requests would have been seen.
    if pictures.is_empty() && !facts::disk(s, target).is_some_and(|disk| disk.request_based) {
        return None;
    }
    let in_doubt = pictures.iter().any(|p| p.doubt(s).is_some())
        || facts::loss(operations, facts::homeless(s)) > facts::MAX_LOSS;
    let read: u64 = pictures.iter().map(|p| p.bytes).sum();
    let ios: u64 = pictures.iter().map(|p| p.ios).sum();
    let share = read as f64 / wanted as f64;
    if in_doubt || share >= READ_SHARE {
        return None;
    }
    let mut evidence = vec![
        format!("the operations returned {} in {}", bytes(wanted as f64), counted(operations, "read")),
        format!("{target} read {} in {} in the same time", bytes(read as f64), counted(ios, "I/O")),
    ];
    if let Some(fill) = load.fill {
        evidence.push(format!(
            "the scratch file had been filled with {} before: a cache or compression answers, not a hole",
            bytes(fill.bytes as f64)
        ));
    }
    let advice = if load.fill.is_some() {
        "Choose a directory on a file system that neither compresses nor caches direct reads."
    } else {
        "Write the target once before reading it, or give a directory: a filled scratch file is used then."
    };
    Some(Finding {
        id: RULE.id,
        subject: target.clone(),
        severity: Severity::Critical,
        confidence: if load.fill.is_some() { 0.8 } else { 0.95 },
        sentence: format!(
            "The device did not do the reads: {target} read {} of the bytes that the operations returned, \
             so the figures say nothing about it.",
            in_percent(share)
        ),
        numbers: BTreeMap::from([
            ("operations", operations as f64),
            ("operation_bytes", wanted as f64),
            ("device_ios", ios as f64),
            ("device_read_bytes", read as f64),
            ("device_share_percent", percent(share)),
            ("device_ios_per_operation_ratio", ios as f64 / operations as f64),
        ]),
        evidence,
        advice: advice.to_string(),
        check: "biopsy diagnose .".to_string(),
        worth: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::latency::Op;
    use crate::rules::literal::Case;

    #[test]
    fn an_unwritten_file_is_found_and_a_written_one_is_not() {
        let mut case = Case::new(100_000, 32);
        assert!(find(&case.summaries()).is_empty());
        case.latency.devices.clear();
        let found = find(&case.summaries());
        assert_eq!((found[0].severity, found[0].numbers["device_share_percent"]), (Severity::Critical, 0.0));
    }

    #[test]
    fn the_threshold_is_95_percent_of_the_bytes() {
        let mut case = Case::new(100_000, 32);
        case.read().ios = 95_000;
        case.read().bytes = 95_000 * 4096;
        assert!(find(&case.summaries()).is_empty());
        case.read().bytes = 94_999 * 4096;
        assert_eq!(find(&case.summaries()).len(), 1);
    }

    #[test]
    fn merges_do_not_look_like_holes_and_splits_do_not_hide_them() {
        let mut case = Case::new(100_000, 32);
        case.read().ios = 12_500; // eight sequential operations in one request, all bytes read
        assert!(find(&case.summaries()).is_empty());
        case.read().ios = 400_000; // half of the bytes in eight I/Os per operation
        case.read().bytes = 50_000 * 4096;
        assert_eq!(find(&case.summaries()).len(), 1);
    }

    #[test]
    fn nothing_is_claimed_without_a_load_a_device_or_a_sound_trace() {
        let mut case = Case::new(100_000, 32);
        case.latency.devices[0].ops.remove(&Op::Read);
        assert_eq!(find(&case.summaries()).len(), 1);
        case.latency.duration_ns /= 2;
        assert!(find(&case.summaries()).is_empty(), "half of the load was not traced");
        case.latency.duration_ns *= 2;
        case.envelope.lost.ios = 1_020;
        assert!(find(&case.summaries()).is_empty(), "the reads may be among the lost");
        case.envelope.lost.ios = 0;
        case.load.as_mut().unwrap().device = None;
        assert!(find(&case.summaries()).is_empty(), "tmpfs has no device");
        case.load = None;
        assert!(find(&case.summaries()).is_empty());
    }
}
