//! Finding: other processes use the device that the load drives.

use std::collections::BTreeMap;

use super::facts::{self, FOREIGN, percent};
use super::numbers;
use super::{Rule, Summaries, neighbours};
use crate::analyze::latency::DeviceLatency;
use crate::analyze::sharing::ProcessShare;
use crate::findings::{Finding, Number, Severity};
use crate::merge::SaturatingSum as _;
use crate::units::{bytes, count, counted, in_percent};

/// From half on the device works more for others than for the load.
pub const MUCH: f64 = 0.50;

/// A system writes fewer by itself in a few seconds.
pub const LEAST: u64 = 20;

/// By count, and by bytes.
const CONFIDENCE: [f64; 2] = [0.9, 0.7];

const FOREIGN_BYTES: Number = Number::new("foreign_bytes", "bytes of other processes");
const FOREIGN_IOS: Number = Number::new("foreign_ios", "I/Os of other processes");
const FOREIGN_PERCENT: Number = Number::new("foreign_percent", "share of other processes");

pub const RULE: Rule = Rule { id: "foreign-io", page: PAGE, find };

const PAGE: &str = "\
Other processes use the device during the measurement.

They take tags, bandwidth and time, so the load's figures are lower than those of an idle device.

How it is computed
  With -- COMMAND, -p, --comm or --cgroup: bios by the process that submits them; foreign are those
  of processes that are neither measured nor kernel threads. If processes were not counted: the I/Os
  that the kernel counted, without those that were measured.
  Else only for biopsy's own load, if it only reads, without a ramp, and the trace covers at least
  99 % of it; on the device that it drives. These are foreign:
  - reads beyond the load's operations (including failed ones). If I/Os were split or merged, the
    bytes read beyond the load's are counted instead, as a share of all bytes;
  - all writes, discards and passthrough commands. Flushes do not count, nor do forced writes (FUA)
    that belong to no operation: a journal makes both.
  Found from 5 % of the I/Os (or bytes) and 20 I/Os (or the bytes of 20 operations) on. A warning
  from 50 % on, else a note. Confidence 0.9 by I/Os, 0.7 by bytes.
  From: load.ios, .bytes, .errors; latency.devices[].ops.*.ios, .bytes, .ios_without_operation;
  latency.devices[].splits, .merges, .processes.

When it is wrong
  - The trace is a little longer than the load: I/O just before and after it counts.
  - A file system's own reads for the load's file (extents, directory) count as foreign.
  - I/O of a journal and of write-back counts, but its origin is not known. Write-back may come from
    before the run.
  - If the load reads through the page cache, foreign reads are not counted.
  - For a volume, only the volume is examined, not the disks below, where other volumes may lie.
  - Another partition of the same disk is the same device: its I/O counts. With -d PARTITION it
    does not.

What to do
  Stop the named processes or use an idle device; otherwise read the figures as those of a shared
  device. biopsy latency -d DEV --by process --for 5s shows their latencies.
";

/// Needs a load of our own, or selected processes.
pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    match s.load {
        Some(_) => judge(s).into_iter().collect(),
        None => {
            let judge = |device: &DeviceLatency| match device.processes {
                Some(_) => by_bios(s, device),
                None => outside(s, device),
            };
            s.latency.devices.iter().filter_map(judge).collect()
        }
    }
}

/// From the bios of each process, when a command or selected processes are measured.
fn by_bios(s: &Summaries<'_>, device: &DeviceLatency) -> Option<Finding> {
    if !s.command && !s.latency.filtered {
        return None;
    }
    let others = neighbours::by_process(s, device);
    let bios: u64 = others.iter().map(|share| share.process.bios).saturating_sum();
    let share: f64 = others.iter().map(ProcessShare::largest_known).sum();
    let all: u64 = device.processes.iter().flatten().map(|row| row.bios).saturating_sum();
    if bios < LEAST || share < FOREIGN || device.ios < facts::MIN_IOS {
        return None;
    }
    let name = &device.name;
    let of = if others.iter().any(|share| share.of_bytes.is_some()) { "bytes" } else { "I/Os" };
    let names = neighbours::names(s, device).unwrap_or_else(|| "many small ones".to_string());
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: if share >= MUCH { Severity::Warning } else { Severity::Note },
        confidence: CONFIDENCE[0],
        sentence: format!("{} of the {of} of {name} are from other processes: {names}.", in_percent(share)),
        numbers: BTreeMap::from([
            (FOREIGN_PERCENT, percent(share)),
            (FOREIGN_BYTES, others.iter().map(|share| share.process.bytes).sum::<u64>() as f64),
            (FOREIGN_IOS, bios as f64),
            (numbers::DEVICE_IOS, all as f64),
        ]),
        evidence: vec![format!(
            "{} of the {} that processes submitted to {name} belong neither to the {} nor to the kernel",
            count(bios),
            counted(all, "bio"),
            if s.command { "command" } else { "selected processes" }
        )],
        advice: "Stop these processes for the measurement, or use a dedicated device.".to_string(),
        check: format!("biopsy latency -d {name} --by process --for 5s"),
        worth: None,
    })
}

/// From the kernel's count of all I/Os, when only selected processes are measured.
fn outside(s: &Summaries<'_>, device: &DeviceLatency) -> Option<Finding> {
    let (ios, all) = neighbours::outside_the_filter(device)?;
    let share = ios as f64 / all.max(1) as f64;
    // A device that the selected processes do not use is not part of the run.
    if ios < LEAST || share < FOREIGN || device.ios < facts::MIN_IOS {
        return None;
    }
    let name = &device.name;
    let mut evidence = vec![format!(
        "the kernel counted {} of {name}, of which {} are from the selected processes",
        counted(all, "I/O"),
        count(device.ios)
    )];
    evidence.extend(by_process(s, device));
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: if share >= MUCH { Severity::Warning } else { Severity::Note },
        confidence: CONFIDENCE[0],
        sentence: format!(
            "{} of the I/Os of {name} are from other processes than the selected ones.",
            in_percent(share)
        ),
        numbers: BTreeMap::from([
            (FOREIGN_PERCENT, percent(share)),
            (FOREIGN_IOS, ios as f64),
            (numbers::DEVICE_IOS, all as f64),
        ]),
        evidence,
        advice: "Find these processes, and stop them for the measurement.".to_string(),
        check: format!("biopsy latency -d {name} --by process --for 5s"),
        worth: None,
    })
}

/// `by process, of the bytes: fio (4711) 24 %`
fn by_process(s: &Summaries<'_>, device: &DeviceLatency) -> Option<String> {
    let has_bytes = device.processes.iter().flatten().any(|row| row.bytes > 0);
    let of = if has_bytes { "bytes" } else { "I/Os" };
    Some(format!("by process, share of the {of}: {}", neighbours::names(s, device)?))
}

fn judge(s: &Summaries<'_>) -> Option<Finding> {
    let (load, device) = neighbours::told(s)?;
    let by_class = neighbours::foreign(load, device);
    let ios: u64 = by_class.iter().map(|(_, ios)| ios).saturating_sum();
    let of_ios = ios as f64 / device.ios as f64;
    let beyond = neighbours::beyond(load, device);
    let of_bytes = beyond.map_or(0.0, |beyond| beyond as f64 / neighbours::moved(device).max(1) as f64);
    // At least as many bytes as that many operations of the load have.
    let enough = beyond.is_some_and(|beyond| beyond >= LEAST * load.bytes() / load.operations().max(1));
    let by_bytes = enough && of_bytes >= FOREIGN && of_bytes >= of_ios;
    if !by_bytes && (ios < LEAST || of_ios < FOREIGN) {
        return None;
    }
    let share = if by_bytes { of_bytes } else { of_ios };
    let name = &device.name;
    let mut classes: Vec<String> =
        by_class.iter().map(|(op, ios)| format!("{} {}", count(*ios), op.name().replace('_', " "))).collect();
    classes.extend(
        beyond.filter(|beyond| *beyond > 0).map(|beyond| format!("{} of reads", bytes(beyond as f64))),
    );
    let mut evidence: Vec<String> = by_process(s, device).into_iter().collect();
    evidence.extend([
        format!("not from the load, by type: {}", classes.join(", ")),
        format!(
            "{} on {name}; the load did {} ({})",
            counted(device.ios, "I/O"),
            counted(load.operations(), "operation"),
            bytes(load.bytes() as f64)
        ),
    ]);
    if beyond.is_some() {
        evidence.push(
            "I/Os were split or merged, so reads of other processes are counted only in bytes".to_string(),
        );
    }
    if !load.job.direct {
        evidence.push(
            "the load reads through the page cache, so reads of other processes cannot be counted"
                .to_string(),
        );
    }
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: if share >= MUCH { Severity::Warning } else { Severity::Note },
        confidence: CONFIDENCE[usize::from(by_bytes)],
        sentence: format!(
            "{} of the {} of {name} are not from the load: other processes use it at the same time.",
            in_percent(share),
            if by_bytes { "bytes" } else { "I/Os" }
        ),
        numbers: BTreeMap::from([
            (FOREIGN_PERCENT, percent(share)),
            if by_bytes { (FOREIGN_BYTES, beyond.unwrap_or(0) as f64) } else { (FOREIGN_IOS, ios as f64) },
            (numbers::DEVICE_IOS, device.ios as f64),
            (numbers::OPERATIONS, load.operations() as f64),
        ]),
        evidence,
        advice: "Stop these processes for the measurement, or use a dedicated device.".to_string(),
        check: format!("biopsy latency -d {name} --by process --for 5s"),
        worth: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::counting::Bracket;
    use crate::analyze::latency::OpLatency;
    use crate::analyze::op::Op;
    use crate::analyze::sharing::{ProcessIos, Relation};
    use crate::load::Pattern;
    use crate::rules::fixtures::{Case, SECOND};

    /// A load of 10,000 reads, and I/Os of other processes.
    fn case(others: &[(Op, u64)]) -> Case {
        let mut case = Case::new(10_000, 32);
        for (op, ios) in others {
            let device = &mut case.latency.devices[0];
            let of = device.ops.entry(*op).or_default();
            of.ios += ios;
            of.bytes += ios * 4096;
            device.ios += ios;
        }
        case
    }

    fn found(case: &Case) -> Option<Finding> {
        judge(&case.summaries())
    }

    #[test]
    fn the_shares_have_two_sides() {
        // 527 of 10,527 are 5.006 %.
        assert!(found(&case(&[(Op::Write, 526)])).is_none());
        let some = found(&case(&[(Op::Write, 527)])).unwrap();
        assert_eq!(
            (some.severity, some.numbers["foreign_ios"], some.confidence),
            (Severity::Note, 527.0, 0.9)
        );
        assert_eq!(found(&case(&[(Op::Read, 9_999)])).unwrap().severity, Severity::Note);
        let much = found(&case(&[(Op::Read, 10_000)])).unwrap();
        assert_eq!(much.severity, Severity::Warning);
        assert_eq!(
            much.sentence,
            "50 % of the I/Os of vda are not from the load: other processes use it at the same time."
        );
        assert_eq!(much.evidence[0], "not from the load, by type: 10,000 read");
    }

    #[test]
    fn a_few_are_the_systems_own() {
        let few = |ios| {
            let mut case = Case::new(100, 1);
            case.latency.devices[0].ops.insert(Op::Write, OpLatency { ios, ..OpLatency::default() });
            case.latency.devices[0].ios += ios;
            found(&case).is_some()
        };
        assert_eq!((few(19), few(20)), (false, true));
    }

    #[test]
    fn a_journal_is_left_out() {
        assert!(found(&case(&[(Op::Flush, 2_000), (Op::EmptyFlush, 2_000), (Op::Fua, 2_000)])).is_none());
        let mut database = case(&[(Op::Fua, 2_000)]);
        database.latency.devices[0].ops.get_mut(&Op::Fua).unwrap().unowned = Some(500);
        assert_eq!(found(&database).unwrap().numbers["foreign_ios"], 1_500.0);
    }

    #[test]
    fn parts_of_operations_are_the_loads() {
        let mut parts = case(&[]);
        parts.read().ios = 80_000;
        parts.latency.devices[0].ios = 80_000;
        parts.latency.devices[0].splits = 70_000;
        assert!(found(&parts).is_none(), "the bytes are those of the load");
        parts.read().bytes = 10_000 * 4096 * 4 / 3;
        let beyond = found(&parts).unwrap();
        assert_eq!((beyond.numbers["foreign_percent"].round(), beyond.confidence), (25.0, 0.7));
        assert!(beyond.sentence.starts_with("25 % of the bytes of vda"), "{}", beyond.sentence);
        assert!(!beyond.numbers.contains_key("foreign_ios"), "how many they were is not known");
        // The load's failed reads were I/Os as well.
        let mut failed = case(&[(Op::Read, 2_500)]);
        failed.failed(2_500);
        assert!(found(&failed).is_none());
    }

    #[test]
    fn what_cannot_be_compared_is_not() {
        let one = || case(&[(Op::Read, 5_000)]);
        assert!(found(&one()).is_some());
        let mut none = one();
        none.load = None;
        assert!(found(&none).is_none());
        let mut cached = one();
        cached.load.as_mut().unwrap().job.direct = false;
        assert!(found(&cached).is_none());
        let mut short = one();
        short.load.as_mut().unwrap().duration_ns = 2 * SECOND;
        assert!(found(&short).is_none(), "the trace covers half of it");
        let mut writes = one();
        writes.load.as_mut().unwrap().job.rw = Pattern::RandWrite;
        assert!(found(&writes).is_none());
        let mut lossy = one();
        lossy.latency.devices[0].lost_ios = 1_000;
        assert!(found(&lossy).is_none());
    }

    #[test]
    fn the_neighbours_of_a_command_are_named() {
        let row = |pid, comm: &str, relation, bios, bytes| ProcessIos {
            pid: Some(pid),
            comm: comm.to_string(),
            relation,
            bios,
            bytes,
            ..ProcessIos::default()
        };
        let mut case = Case::new(10_000, 32);
        case.load = None;
        case.command = true;
        let shared = |case: &mut Case, others: u64| {
            case.latency.devices[0].processes = Some(vec![
                row(7, "fio", Relation::Other, 100, others),
                row(8, "dd", Relation::Command, 5_000, 75 << 20),
                row(9, "kworker/1:1", Relation::Kernel, 5_000, 0),
            ]);
        };
        shared(&mut case, 25 << 20);
        let found = find(&case.summaries());
        assert_eq!(found[0].sentence, "25 % of the bytes of vda are from other processes: fio (7) 25 %.");
        assert_eq!((found[0].severity, found[0].numbers["foreign_ios"]), (Severity::Note, 100.0));
        shared(&mut case, 75 << 20);
        assert_eq!(find(&case.summaries())[0].severity, Severity::Warning);
        shared(&mut case, 3 << 20);
        assert!(find(&case.summaries()).is_empty(), "4 %");
        shared(&mut case, 75 << 20);
        case.command = false;
        assert!(find(&case.summaries()).is_empty(), "the I/O of all processes is measured");
    }

    #[test]
    fn the_io_outside_a_filter_is_the_neighbours() {
        let mut case = Case::new(10_000, 32);
        case.load = None;
        assert!(find(&case.summaries()).is_empty(), "everybody's I/O is measured");
        let all = |n| Some(Bracket { min: n, max: n + 10 });
        case.latency.devices[0].all_ios = all(10_400);
        assert!(find(&case.summaries()).is_empty(), "4 %");
        case.latency.devices[0].all_ios = all(11_000);
        assert_eq!(find(&case.summaries())[0].severity, Severity::Note);
        case.latency.devices[0].all_ios = all(40_000);
        let found = find(&case.summaries());
        assert_eq!((found[0].severity, found[0].numbers["foreign_percent"]), (Severity::Warning, 75.0));
        assert!(found[0].sentence.starts_with("75 % of the I/Os of vda"), "{}", found[0].sentence);
    }
}
