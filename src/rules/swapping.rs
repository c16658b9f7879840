//! A device's I/O is swap.

use super::command;
use super::facts::{self, Picture, percent};
use super::numbers;
use super::{Rule, Summaries};
use crate::analyze::files::FileKind;
use crate::findings::{Finding, Number, Numbers, Severity};
use crate::units::{bytes, in_percent};

/// Of a device's bytes, from which on swap is what it works for.
pub const SOME: f64 = 0.1;
pub const MOST: f64 = 0.5;

const SWAP_BYTES_PER_SECOND: Number = Number::new("swap_bytes_per_second", "swap, in bytes per second");
const SWAP_PERCENT: Number = Number::new("swap_percent", "swap's share of the bytes");

pub const RULE: Rule = Rule { id: "swapping", page: PAGE, find };

const PAGE: &str = "\
Memory is short: the device's I/O is swap.

Pages of processes are written to swap to free memory, and read back when they are used again. A
process waits for each page that is read back.

How it is computed
  swap_percent = bytes of swap / bytes of all files of the device. A note from 10 % on, a warning
  from 50 % on, with at least 100 I/Os. Only without biopsy's own load. Confidence 0.85.
  From: latency.devices[].files.

When it is wrong
  - Files are sampled: the first 256 I/Os of each process, then one in 16.
  - Swap may be written early, without a process that waits: see the reads, and the stalls in
    /proc/pressure/memory.
  - Compressed swap in memory (zram) is cheap: a high share of it may be what was intended.
  - With a filter by process, only swap that these processes write or read themselves counts.

What to do
  Find the process or memory cgroup that grew, and give it more memory or less to do. A memory
  cgroup at its limit swaps while the machine has free memory: raise memory.max or memory.high.
  vm.swappiness chooses between swap and the page cache; it frees nothing.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    if s.load.is_some() {
        return Vec::new();
    }
    facts::pictures(s).iter().filter(|p| p.sound(s)).filter_map(judge).collect()
}

fn judge(p: &Picture<'_>) -> Option<Finding> {
    let files = p.device.files.as_ref()?;
    let is_swap = |kind: &FileKind| *kind == FileKind::Swap;
    let swap = files.iter().filter(|row| row.file.as_ref().is_some_and(|file| is_swap(&file.kind)));
    let (moved, share) = swap.fold((0, 0.0), |(bytes, share), row| (bytes + row.bytes, share + row.share));
    if moved == 0 || share < SOME {
        return None;
    }
    let name = &p.device.name;
    let rate = moved as f64 * 1e9 / p.duration_ns.max(1) as f64;
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: if share >= MOST { Severity::Warning } else { Severity::Note },
        confidence: 0.85,
        sentence: format!("Memory is short: {} of {name}'s bytes are swap, {}/s.", in_percent(share), bytes(rate)),
        numbers: Numbers::from([
            (SWAP_PERCENT, percent(share)),
            (SWAP_BYTES_PER_SECOND, rate),
            (numbers::IOS_PER_SECOND, p.rate()),
        ]),
        evidence: Vec::new(),
        advice: "Find the process or memory cgroup that grew (memory.current, memory.swap.current), and give it more \
                 memory or less to do."
            .to_string(),
        check: command::latency_by_second(name),
        worth: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::files::{File, FileIos};
    use crate::rules::diagnose;
    use crate::rules::literal::Case;

    /// Reads of which so many percent are swap.
    fn case(percent: u64) -> Case {
        let mut case = Case::new(40_000, 4);
        case.load = None;
        let row = |kind, percent: u64| FileIos {
            file: Some(File { device: (254, 0), kind }),
            others: false,
            bios: 400 * percent,
            bytes: 1_000_000 * percent,
            sampled: 10,
            share: percent as f64 / 100.0,
        };
        let rows = vec![row(FileKind::Swap, percent), row(FileKind::RawDevice, 100 - percent)];
        case.latency.devices[0].files = Some(rows);
        case
    }

    #[test]
    fn swap_is_named_by_its_share() {
        let found = diagnose(&case(50).summaries()).findings;
        assert_eq!((found[0].id, found[0].severity), (RULE.id, Severity::Warning), "{found:?}");
        assert_eq!(found[0].sentence, "Memory is short: 50 % of vda's bytes are swap, 47.7 MiB/s.");
        assert_eq!(find(&case(49).summaries())[0].severity, Severity::Note);
        assert_eq!(find(&case(10).summaries()).len(), 1);
        assert!(find(&case(9).summaries()).is_empty());
        assert!(find(&case(0).summaries()).is_empty());
    }

    #[test]
    fn a_load_of_our_own_does_not_swap_and_unknown_files_say_nothing() {
        let mut of_ours = case(90);
        of_ours.load = Case::new(1_000, 1).load;
        assert!(find(&of_ours.summaries()).is_empty());
        let mut unknown = case(90);
        unknown.latency.devices[0].files = None;
        assert!(find(&unknown.summaries()).is_empty());
    }
}
