//! Finding: the I/O is swap.

use super::command;
use super::facts::{self, DeviceView, percent};
use super::{Rule, Summaries};
use crate::analyze::files::{FileIos, FileKind};
use crate::findings::{Finding, Number, Numbers, Severity};
use crate::merge::SaturatingSum as _;
use crate::units::{bytes, count, counted, in_percent};

/// Share of the bytes of all devices of the run from which on swap is their main work.
pub const SOME: f64 = 0.1;
pub const MOST: f64 = 0.5;

/// Below this rate almost nothing waits for it: 256 pages a second.
const LEAST_BYTES_PER_SECOND: f64 = 1024.0 * 1024.0;

const SWAP_BYTES_PER_SECOND: Number = Number::new("swap_bytes_per_second", "swap, in bytes per second");
const SWAP_PERCENT: Number = Number::new("swap_percent", "share of swap in the bytes of all devices");

pub const RULE: Rule = Rule { id: "swapping", page: PAGE, find };

const PAGE: &str = "\
Memory is short: much of the I/O is swap.

Pages of processes are written to swap to free memory, and read back when they are used again. A
process waits for each page that is read back.

How it is computed
  swap_percent = bytes of swap / bytes of all devices of the run. A note from 10 % on, a warning
  from 50 % on, from 1 MiB of swap a second on. The device with the most of it is named. Not found
  with biopsy's own load. Confidence 0.85.
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
    judge(s).into_iter().collect()
}

fn judge(s: &Summaries<'_>) -> Option<Finding> {
    let pictures: Vec<DeviceView<'_>> = facts::device_views(s).into_iter().filter(|p| p.sound(s)).collect();
    let all: u64 = pictures.iter().flat_map(rows).map(|row| row.bytes).saturating_sum();
    let moved: u64 = pictures.iter().map(swapped).saturating_sum();
    let share = moved as f64 / all.max(1) as f64;
    let rate = moved as f64 * 1e9 / s.latency.duration_ns.max(1) as f64;
    if share < SOME || rate < LEAST_BYTES_PER_SECOND {
        return None;
    }
    let most = pictures.iter().max_by_key(|p| swapped(p))?;
    let name = &most.device.name;
    let (bios, sampled) = rows(most).filter(|row| is_swap(row)).fold((0, 0), |(bios, sampled), row| {
        (row.bios.saturating_add(bios), row.sampled.saturating_add(sampled))
    });
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: if share >= MOST { Severity::Warning } else { Severity::Note },
        confidence: 0.85,
        sentence: format!(
            "Memory is short: {} of all bytes are swap, {}/s, most of it on {name}.",
            in_percent(share),
            bytes(rate)
        ),
        numbers: Numbers::from([(SWAP_PERCENT, percent(share)), (SWAP_BYTES_PER_SECOND, rate)]),
        evidence: vec![format!(
            "about {} of {name} are swap ({} sampled)",
            counted(bios, "bio"),
            count(sampled)
        )],
        advice: "Find the process or memory cgroup that grew (memory.current, memory.swap.current), and give it more \
                 memory or less to do."
            .to_string(),
        check: command::latency_by_second(name),
        worth: None,
    })
}

fn rows<'a>(p: &DeviceView<'a>) -> impl Iterator<Item = &'a FileIos> {
    p.device.files.iter().flatten()
}

fn is_swap(row: &FileIos) -> bool {
    row.file.as_ref().is_some_and(|file| file.kind == FileKind::Swap)
}

fn swapped(p: &DeviceView<'_>) -> u64 {
    rows(p).filter(|row| is_swap(row)).map(|row| row.bytes).saturating_sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::files::IoFile;
    use crate::rules::diagnose;
    use crate::rules::fixtures::Case;

    /// Reads with this percentage of swap.
    fn case(percent: u64) -> Case {
        let mut case = Case::new(40_000, 4);
        case.load = None;
        let row = |kind, percent: u64| FileIos {
            file: Some(IoFile { kind, device: "254:0".to_string(), inode: None, path: None }),
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
        assert_eq!(
            found[0].sentence,
            "Memory is short: 50 % of all bytes are swap, 47.7 MiB/s, most of it on vda."
        );
        assert_eq!(find(&case(49).summaries())[0].severity, Severity::Note);
        assert_eq!(find(&case(10).summaries()).len(), 1);
        assert!(find(&case(9).summaries()).is_empty());
        assert!(find(&case(0).summaries()).is_empty());
    }

    /// A separate swap device with very little I/O, next to a busy disk.
    #[test]
    fn a_little_swap_beside_much_io_is_not_the_answer() {
        let mut both = case(0);
        let mut swap = case(100).latency.devices.remove(0);
        swap.name = "vdb".into();
        both.latency.devices.push(swap);
        assert_eq!(find(&both.summaries())[0].subject, "vdb");
        let rows = |case: &mut Case| {
            case.latency.devices[1].files.as_mut().unwrap().iter_mut().for_each(|row| row.bytes /= 10)
        };
        rows(&mut both);
        assert!(find(&both.summaries()).is_empty(), "9 % of all bytes");
        let mut slow = case(100);
        slow.latency.devices[0].files.as_mut().unwrap()[0].bytes = 1_000_000;
        assert!(find(&slow.summaries()).is_empty(), "less than 1 MiB a second");
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
