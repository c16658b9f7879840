//! Finding: reads are answered without the media: they never reach the device, or the device has no data there.

use std::collections::BTreeMap;

use super::command;
use super::facts::{self, DeviceView, percent};
use super::numbers;
use super::{Rule, Summaries};
use crate::findings::{Finding, Number, Numbers, Severity, Worth};
use crate::load::{BlockCounts, LoadSummary};
use crate::units::{bytes, counted, in_percent};

/// The device must have read this share of the operations' bytes. Not 1.0: the interval and the load need not begin and
/// end in the same microsecond.
pub const READ_SHARE: f64 = 0.95;

/// Share of sampled blocks without content from which on it is reported: a file may well have a block of zeros. `biopsy
/// load` warns from here on as well.
pub const EMPTY_SHARE: f64 = 0.05;

/// From this share on it can dominate the figures: if such reads cost nothing, those with content would run at less
/// than 0.75 of the rate.
pub const MOSTLY_SHARE: f64 = 0.25;

/// Fewer sampled blocks are too imprecise: of 32 two are 6 %.
pub const MIN_SAMPLES: u64 = 32;

/// The namespace's usage is taken for the load's reads if they cover this much of it.
pub const WHOLE_SHARE: f64 = 0.9;

/// Factor on the confidence of findings that rely on the device's speed.
pub const CONFIDENCE_LEFT: f64 = 0.7;

const DEVICE_IOS_PER_OPERATION_RATIO: Number =
    Number::new("device_ios_per_operation_ratio", "I/Os of the device per operation");
const DEVICE_READ_BYTES: Number = Number::new("device_read_bytes", "bytes read from the device");
const DEVICE_READ_PERCENT: Number =
    Number::new("device_read_percent", "share of the returned bytes that the device read");
const NAMESPACE_CAPACITY_BYTES: Number = Number::new("namespace_capacity_bytes", "capacity of the namespace");
const NAMESPACE_USED_BYTES: Number = Number::new("namespace_used_bytes", "in use of the namespace");
const OPERATION_BYTES: Number = Number::new("operation_bytes", "bytes that the operations returned");
const SAMPLED_BLOCKS: Number = Number::new("sampled_blocks", "sampled blocks");
const ZERO_BLOCKS: Number = Number::new("zero_blocks", "blocks of zeros only");
const ZERO_PERCENT: Number = Number::new("zero_percent", "share of blocks of zeros only");

pub const RULE: Rule = Rule { id: "deallocated-read", page: PAGE, find };

const PAGE: &str = "\
Reads are answered without touching the medium.

The figures then say little about the device. A file that was allocated but never written reads at
memory speed, without one read on the disk. A drive answers reads of blocks that were never written,
or were discarded, from its tables.

How it is computed
  - Reads that do not reach the device: device_read_percent = bytes that the device read / bytes
    that the load's operations returned. Critical below 95 %. Bytes are compared, not counts,
    because splits and merges change the counts. Confidence 0.95, or 0.8 for a scratch file: biopsy
    has filled it, so a cache or compression answers.
  - Reads that return zeros: before the load, up to 64 blocks of what it will read are read past the
    page cache. zero_percent = blocks of zeros / blocks read. With at least 32 blocks, a note from
    5 % on and a warning from 25 % on. Confidence 0.6; it is 0.9 if the load reads at least 90 % of
    an NVMe namespace and the drive itself reports as much of it as unused (less two standard
    deviations of the sample). With a warning, the confidence of findings that depend on the speed
    of the device is multiplied by 0.7. If zeros took no time, data would read at (1 - zero_percent)
    of the rate.
  Only for biopsy's own load, if it has 100 operations, the trace covers at least 99 % of it, and at
  most 1 % of the I/Os are missed. A scratch file is not sampled.
  From: load.ios, .bytes, .content, .namespace; latency.devices[].ops.read.ios, .bytes.

When it is wrong
  - Reads by other processes count as the load's and can hide that its own reads do not arrive.
  - A file system that compresses, deduplicates or stores small files in its metadata reads fewer
    bytes than it returns, although nothing is deallocated.
  - Some file systems answer direct reads from the page cache. The load refuses those it recognises.
  - Zeros that were written look the same. Most drives store and read them like other data; some
    compress or deallocate them.
  - Hard disks seek for zeros too: they are left out, but not in a virtual machine, where disks may
    claim to be rotational.
  - Some drives return other bytes than zeros for deallocated blocks; these are not detected.
  - Holes in what lies below a loop device or a virtual disk are not examined.

What to do
  Write the target before reading it, or give a directory: biopsy then fills a scratch file with
  incompressible data. For a file, filefrag -v FILE shows unwritten extents.
";

/// Only for biopsy's own load: otherwise the operations are not counted.
pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    let Some(load) = s.load.filter(|_| facts::covered(s)) else {
        return Vec::new();
    };
    judge(s, load).into_iter().collect()
}

/// The load's reads, and what the device did for them.
struct Reads<'a> {
    load: &'a LoadSummary,
    target: &'a str,
    operations: u64,
    wanted: u64,
    ios: u64,
    read: u64,
}

impl Reads<'_> {
    /// None where they cannot be compared.
    fn of<'a>(s: &Summaries<'a>, load: &'a LoadSummary) -> Option<Reads<'a>> {
        let target = load.device.as_ref()?;
        let (wanted, operations) = (load.bytes(), load.operations());
        if operations < facts::MIN_IOS || wanted == 0 {
            return None;
        }
        let pictures = facts::device_views(s);
        // A missing trace means no I/O only if requests would have been traced.
        if pictures.is_empty() && !facts::disk(s, target).is_some_and(|disk| disk.request_based) {
            return None;
        }
        let in_doubt = pictures.iter().any(|p| p.doubt(s).is_some())
            || facts::loss(operations, facts::unattributed_lost(s)) > facts::MAX_LOSS;
        let sum = |of: fn(&DeviceView<'_>) -> u64| pictures.iter().map(of).sum();
        let (ios, read) = (sum(|p| p.ios), sum(|p| p.bytes));
        (!in_doubt).then_some(Reads { load, target, operations, wanted, ios, read })
    }

    fn share(&self) -> f64 {
        self.read as f64 / self.wanted as f64
    }

    fn evidence(&self) -> Vec<String> {
        vec![
            format!(
                "the operations returned {} in {}",
                bytes(self.wanted as f64),
                counted(self.operations, "read")
            ),
            format!(
                "{} read {} in {} in the same time",
                self.target,
                bytes(self.read as f64),
                counted(self.ios, "I/O")
            ),
        ]
    }

    fn numbers(&self) -> Numbers {
        BTreeMap::from([
            (numbers::OPERATIONS, self.operations as f64),
            (OPERATION_BYTES, self.wanted as f64),
            (numbers::DEVICE_IOS, self.ios as f64),
            (DEVICE_READ_BYTES, self.read as f64),
            (DEVICE_READ_PERCENT, percent(self.share())),
            (DEVICE_IOS_PER_OPERATION_RATIO, self.ios as f64 / self.operations as f64),
        ])
    }
}

fn judge(s: &Summaries<'_>, load: &LoadSummary) -> Option<Finding> {
    let reads = Reads::of(s, load)?;
    if reads.share() < READ_SHARE { Some(unread(&reads)) } else { empty(s, &reads) }
}

/// The reads do not reach the device.
fn unread(reads: &Reads<'_>) -> Finding {
    let Reads { load, target, .. } = reads;
    let mut evidence = reads.evidence();
    if let Some(fill) = load.fill {
        evidence.push(format!(
            "the scratch file was filled with {} before: a cache or compression answers, not a hole",
            bytes(fill.bytes as f64)
        ));
    }
    if let Some(sampled) = load.drive.sampled.filter(|sampled| sampled.empty() > 0) {
        evidence.push(format!(
            "of {} before the load, {} had no content: {} in holes, {} in unwritten extents, {} read as \
             zeros",
            counted(sampled.samples, "sampled block"),
            sampled.empty(),
            sampled.holes,
            sampled.unwritten,
            sampled.zeros
        ));
    }
    let advice = if load.fill.is_some() {
        "Choose a directory on a file system that neither compresses nor caches direct reads."
    } else {
        "Write the target once before reading it, or give a directory: a filled scratch file is used then."
    };
    Finding {
        id: RULE.id,
        subject: target.to_string(),
        severity: Severity::Critical,
        confidence: if load.fill.is_some() { 0.8 } else { 0.95 },
        sentence: format!(
            "The device did not do the reads: {target} read only {} of the bytes that the operations \
             returned, so the figures say nothing about it.",
            in_percent(reads.share())
        ),
        numbers: reads.numbers(),
        evidence,
        advice: advice.to_string(),
        check: if load.fill.is_some() { "biopsy diagnose .".to_string() } else { command::diagnose(load) },
        worth: None,
    }
}

/// Sampled blocks of a load on a device where reading zeros may cost less than content.
struct Zeros {
    zeros: u64,
    read: u64,
}

impl Zeros {
    fn of(s: &Summaries<'_>, load: &LoadSummary) -> Option<Self> {
        let BlockCounts { samples, holes, unwritten, zeros, unreadable, unread } = load.drive.sampled?;
        let read = samples - holes - unwritten - unreadable - unread;
        let disk = load.device.as_ref().and_then(|name| facts::disk(s, name));
        // A virtual disk reports itself as rotational unless its host says otherwise.
        let has_arm = s.host.virtualization.is_none() && disk.and_then(|disk| disk.rotational) == Some(true);
        let of = Self { zeros, read };
        (!has_arm && read >= MIN_SAMPLES && of.share() >= EMPTY_SHARE).then_some(of)
    }

    fn share(&self) -> f64 {
        self.zeros as f64 / self.read as f64
    }

    /// Two standard deviations of such a sample below its share.
    fn least_share(&self) -> f64 {
        let share = self.share();
        (share - 2.0 * (share * (1.0 - share) / self.read as f64).sqrt()).max(EMPTY_SHARE)
    }
}

/// The reads reach the device, but find no data there.
fn empty(s: &Summaries<'_>, reads: &Reads<'_>) -> Option<Finding> {
    let Reads { load, target, .. } = reads;
    let found = Zeros::of(s, load)?;
    let share = found.share();
    let mut evidence = reads.evidence();
    evidence.push(format!(
        "of {} read before the load, {} had only zeros",
        counted(found.read, "sampled block"),
        found.zeros
    ));
    let mut numbers = reads.numbers();
    numbers.extend([
        (SAMPLED_BLOCKS, found.read as f64),
        (ZERO_BLOCKS, found.zeros as f64),
        (ZERO_PERCENT, percent(share)),
    ]);
    // Drives without such a counter report that everything is in use.
    let told = load.drive.usage.filter(|usage| usage.used < usage.capacity);
    let mut is_told = false;
    if let Some(usage) = told {
        let unused = 1.0 - usage.used as f64 / usage.capacity as f64;
        is_told = load.size as f64 >= WHOLE_SHARE * usage.size as f64 && unused >= found.least_share();
        numbers.insert(NAMESPACE_USED_BYTES, usage.used as f64);
        numbers.insert(NAMESPACE_CAPACITY_BYTES, usage.capacity as f64);
        evidence.push(format!(
            "{} of {} of the namespace are in use, as the drive reports",
            bytes(usage.used as f64),
            bytes(usage.capacity as f64)
        ));
    }
    if !is_told {
        evidence.push("written zeros look the same, and most drives read those like other data".to_string());
    }
    Some(Finding {
        id: RULE.id,
        subject: target.to_string(),
        severity: if share >= MOSTLY_SHARE { Severity::Warning } else { Severity::Note },
        confidence: if is_told { 0.9 } else { 0.6 },
        sentence: format!(
            "The reads reach {target}, but {} of its sampled blocks hold only zeros: if discarded or never \
             written, the device answers without its media, and the figures are too good.",
            in_percent(share)
        ),
        numbers,
        evidence,
        advice: format!(
            "Fill {} with data before reading it, if its content is not needed, or give a directory: then \
             a filled scratch file is read.",
            load.target
        ),
        check: command::diagnose(load),
        worth: (share < 1.0).then(|| Worth { metric: "iops_ratio".to_string(), low: 1.0 - share, high: 1.0 }),
    })
}

/// The note for findings that rely on the device's speed; None where reads returned content.
pub fn doubt(found: &[Finding]) -> Option<String> {
    let empty =
        found.iter().find(|finding| finding.id == RULE.id && finding.severity >= Severity::Warning)?;
    let share = empty.numbers.get(&ZERO_PERCENT)?;
    Some(format!(
        "{} of the sampled blocks were zeros (deallocated-read): reads of real data may be slower",
        in_percent(share / 100.0)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::op::Op;
    use crate::host::nvme::Use;
    use crate::rules::fixtures::Case;

    #[test]
    fn an_unwritten_file_is_found_and_a_written_one_is_not() {
        let mut case = Case::new(100_000, 32);
        assert!(find(&case.summaries()).is_empty());
        case.latency.devices.clear();
        let found = find(&case.summaries());
        assert_eq!((found[0].severity, found[0].numbers["device_read_percent"]), (Severity::Critical, 0.0));
    }

    #[test]
    fn what_lay_there_before_is_evidence() {
        let mut case = Case::new(100_000, 32);
        case.latency.devices.clear();
        let line =
            |case: &Case| find(&case.summaries())[0].evidence.iter().find(|e| e.contains("sampled")).cloned();
        assert_eq!(line(&case), None, "nobody looked");
        let sampled = BlockCounts { samples: 64, holes: 3, unwritten: 60, ..BlockCounts::default() };
        case.load.as_mut().unwrap().drive.sampled = Some(sampled);
        let said = line(&case).unwrap();
        assert!(
            said.starts_with("of 64 sampled blocks before the load, 63 had no content: 3 in holes, 60"),
            "{said}"
        );
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

    /// A sample of 64 blocks with this many zero blocks.
    fn sampled(case: &mut Case, zeros: u64) {
        let sampled = BlockCounts { samples: 64, zeros, ..BlockCounts::default() };
        case.load.as_mut().unwrap().drive.sampled = Some(sampled);
    }

    #[test]
    fn reads_that_reach_the_device_and_find_zeros_are_found() {
        let mut case = Case::new(100_000, 32);
        let found = |case: &Case| find(&case.summaries()).into_iter().next();
        sampled(&mut case, 3);
        assert_eq!(found(&case), None, "4.7 %");
        sampled(&mut case, 4);
        assert_eq!(found(&case).unwrap().severity, Severity::Note);
        sampled(&mut case, 16);
        let some = found(&case).unwrap();
        assert_eq!((some.severity, some.confidence), (Severity::Warning, 0.6));
        assert_eq!((some.numbers["zero_percent"], some.numbers["sampled_blocks"]), (25.0, 64.0));
        assert_eq!(
            some.worth,
            Some(Worth { metric: "iops_ratio".into(), low: 0.75, high: 1.0 }),
            "at worst the other reads take all the time"
        );
        assert_eq!(some.check, "biopsy diagnose /dev/vda --rw randread --bs 4k --iodepth 32 --numjobs 1");
        sampled(&mut case, 64);
        let all = found(&case).unwrap();
        assert!(
            all.sentence.contains("The reads reach vda, but 100 % of its sampled blocks"),
            "{}",
            all.sentence
        );
        assert_eq!(all.worth, None, "nothing is known of reads of content");
        case.read().bytes /= 2;
        assert_eq!(found(&case).unwrap().severity, Severity::Critical, "they do not reach it");
    }

    #[test]
    fn a_drive_that_says_the_same_makes_it_nearly_sure() {
        let mut case = Case::new(100_000, 32);
        sampled(&mut case, 32);
        let mut with = |used| {
            case.load.as_mut().unwrap().drive.usage = Some(Use { size: 1 << 40, capacity: 1 << 40, used });
            find(&case.summaries()).remove(0)
        };
        assert_eq!(
            with((1 << 40) / 16 * 9).confidence,
            0.6,
            "a file's zeros are not what the drive has free"
        );
        case.load.as_mut().unwrap().size = 1 << 40;
        let mut with = |used| {
            case.load.as_mut().unwrap().drive.usage = Some(Use { size: 1 << 40, capacity: 1 << 40, used });
            find(&case.summaries()).remove(0)
        };
        assert_eq!(with(1 << 40).confidence, 0.6, "it keeps no count, or says the contrary");
        assert_eq!(
            with((1 << 40) / 8 * 7).confidence,
            0.6,
            "an eighth is not in use, and half of the blocks are zeros"
        );
        let told = with((1 << 40) / 16 * 9);
        assert_eq!((told.confidence, told.numbers["namespace_used_bytes"]), (0.9, 618_475_290_624.0));
        assert!(
            !told.evidence.iter().any(|line| line.contains("zeros look the same")),
            "{:?}",
            told.evidence
        );
        sampled(&mut case, 4);
        case.load.as_mut().unwrap().drive.usage =
            Some(Use { size: 1 << 40, capacity: 1 << 40, used: (1 << 40) - 4096 });
        assert_eq!(find(&case.summaries())[0].confidence, 0.6, "one free block is not 5 %");
    }

    #[test]
    fn zeros_are_no_finding_where_they_prove_nothing() {
        let mut case = Case::new(100_000, 32);
        sampled(&mut case, 64);
        case.disk().rotational = Some(true);
        assert!(find(&case.summaries()).is_empty(), "an arm seeks for zeros too");
        case.host.virtualization = Some("kvm".into());
        assert_eq!(find(&case.summaries()).len(), 1, "a virtual disk only says so");
        let of_file = BlockCounts { samples: 64, holes: 2, unread: 31, zeros: 31, ..BlockCounts::default() };
        case.load.as_mut().unwrap().drive.sampled = Some(of_file);
        assert!(find(&case.summaries()).is_empty(), "31 blocks were read");
        sampled(&mut case, 64);
        case.envelope.lost.ios = 1_020;
        assert!(find(&case.summaries()).is_empty(), "whether the reads reach it is not known");
    }
}
