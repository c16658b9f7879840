//! The bios of each process on a device, as rows for text and HTML.

use crate::analyze::latency::DeviceLatency;
use crate::analyze::sharing::Relation;
use crate::analyze::sharing::{ProcessShare, shares};
use crate::units::{bytes, count, in_percent};

/// Column headings.
pub const HEADER: [&str; 6] = ["process", "pid", "whose", "I/Os", "bytes", "share"];

/// Which columns are text.
pub const IS_TEXT: [bool; 6] = [true, false, true, false, false, false];

/// A row per process, most bytes first, and how many are left out. The share is of the bytes, or of the I/Os if none
/// has bytes.
pub fn rows(device: &DeviceLatency, most: usize) -> (Vec<[String; 6]>, usize) {
    let all = shares(device);
    // With a process filter some bios passed it and others did not.
    let is_filtered = all.iter().any(|share| !share.process.selected);
    (all.iter().take(most).map(|share| row(share, is_filtered)).collect(), all.len().saturating_sub(most))
}

fn row(share: &ProcessShare<'_>, is_filtered: bool) -> [String; 6] {
    let process = share.process;
    [
        process.pid.map_or("(many others)".to_string(), |_| process.comm.clone()),
        process.pid.map_or("-".to_string(), |pid| pid.to_string()),
        match process.relation {
            Relation::Other if is_filtered && process.selected => "chosen".to_string(),
            relation => whose(relation).to_string(),
        },
        count(process.bios),
        bytes(process.bytes as f64),
        in_percent(share.largest_known()),
    ]
}

fn whose(relation: Relation) -> &'static str {
    match relation {
        Relation::Own => "biopsy",
        Relation::Command => "the command",
        Relation::Kernel => "kernel thread",
        Relation::Other => "other",
        Relation::Unknown => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::sharing::ProcessIos;

    #[test]
    fn the_largest_come_first_and_the_rest_is_counted() {
        let row = |pid, bytes| ProcessIos {
            pid,
            comm: "fio".to_string(),
            relation: Relation::Command,
            bios: 10,
            bytes,
            ..ProcessIos::default()
        };
        let processes = Some(vec![row(Some(7), 3 << 20), row(None, 1 << 20), row(Some(8), 0)]);
        let (shown, left) = rows(&DeviceLatency { processes, ..DeviceLatency::default() }, 2);
        assert_eq!(shown[0].join("|"), "fio|7|the command|10|3.00 MiB|75 %");
        assert_eq!((shown[1][0].as_str(), shown[1][1].as_str(), left), ("(many others)", "-", 1));
    }
}
