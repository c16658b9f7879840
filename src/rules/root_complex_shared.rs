//! Finding: drives below one root complex are slower together than alone.

use std::collections::BTreeMap;

use super::facts::{self, percent};
use super::links::{FULL, ceilings, in_gigabytes, slot};
use super::{Rule, Summaries};
use crate::findings::{Finding, NotExamined, Number, Severity, Worth};
use crate::host::BlockDevice;
use crate::host::pci::sharing;
use crate::load::{DriveScaling, Scaling};
use crate::units::in_percent;

/// Share of the sum of the drives alone from which on nothing relevant is lost: runs of one drive vary by a few
/// percent.
pub const TOGETHER: f64 = 0.90;

/// Share of a CPU from which on the host, not the shared path, may cause the loss.
pub const BUSY: f64 = 0.90;

const ALONE_BYTES_PER_SECOND: Number =
    Number::new("alone_bytes_per_second", "bytes per second of the drives alone");
const DRIVES: Number = Number::new("drives", "drives");
const NEAREST_LINK_PERCENT: Number =
    Number::new("nearest_link_percent", "fullest link, share of its capacity");
const TOGETHER_BYTES_PER_SECOND: Number =
    Number::new("together_bytes_per_second", "bytes per second of the drives together");
const TOGETHER_PERCENT: Number = Number::new("together_percent", "share of the sum of the drives alone");

pub const RULE: Rule = Rule { id: "root-complex-shared", page: PAGE, find };

const PAGE: &str = "\
Drives below one root complex slow each other down.

How it is computed
  With --beside DEV, diagnose drives its target and each of those drives alone, then all together,
  with the same load, before the traced run. Each step takes a fifth of --runtime, at least 1 s.
  Found for the drives below one root complex if together they transfer less than 90 % of the sum of
  their rates alone, while each link above them is below 95 % of what it can carry (if the packet
  size is not known: with the smallest usual packets). Confidence 0.8.
  Listed under what was not examined, instead of found, if there may be another reason:
  - a thread of the load used 90 % of a CPU, or all CPUs together did, or their use is not known;
  - two of the drives are namespaces or functions of one;
  - the speed of a link is not known, as in a virtual machine;
  - a run was cut short or had errors.
  From: scaling.drives[].alone_bytes_per_second, .together_bytes_per_second; scaling.worker_percent,
  .machine_percent; devices[].root_complex, .links[].link.

When it is wrong
  - Drives may slow down on their own between the runs: heat, garbage collection, a cache that the
    first run filled. Repeat it.
  - Drives behind one network, host adapter or hypervisor share that too.
  - The memory of one NUMA node may be the limit: all drives transfer to it.
  - Small blocks load the CPUs before the root complex: use --bs 128k.

What to do
  Distribute the drives over the machine's root complexes: biopsy devices lists them and their
  ports.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    judged(s).into_iter().filter_map(|(_, judged)| judged.ok().flatten()).collect()
}

/// The root complexes whose drives lose throughput for an unknown reason.
pub fn unknown(s: &Summaries<'_>) -> Vec<NotExamined> {
    let doubtful = judged(s).into_iter().filter_map(|(name, judged)| Some((name, judged.err()?)));
    doubtful.map(|(name, why)| NotExamined { what: format!("capacity of {name}"), why }).collect()
}

/// A drive, and its results.
type ScaledDrive<'a> = (&'a BlockDevice, &'a DriveScaling);

/// By root complex: the finding; or why the loss of its drives proves nothing.
fn judged(s: &Summaries<'_>) -> Vec<(String, Result<Option<Finding>, String>)> {
    let Some(scaling) = s.scaling else { return Vec::new() };
    let all: Vec<ScaledDrive<'_>> = scaling
        .drives
        .iter()
        .filter_map(|drive| Some((facts::disk(s, drive.device.as_deref()?)?, drive)))
        .collect();
    let disks: Vec<&BlockDevice> = all.iter().map(|(disk, _)| *disk).collect();
    let below = |name: &str| -> Vec<ScaledDrive<'_>> {
        all.iter().filter(|(disk, _)| disk.root_complex.as_deref() == Some(name)).copied().collect()
    };
    let shared = sharing::root_complexes(&disks).into_iter().filter(|complex| complex.devices.len() > 1);
    shared
        .map(|complex| {
            let judged = judge(s, scaling, &complex.name, &below(&complex.name), complex.devices.len());
            (complex.name, judged)
        })
        .collect()
}

fn judge(
    s: &Summaries<'_>,
    scaling: &Scaling,
    complex: &str,
    drives: &[ScaledDrive<'_>],
    different: usize,
) -> Result<Option<Finding>, String> {
    let sum =
        |of: fn(&DriveScaling) -> Option<f64>| drives.iter().map(|(_, drive)| of(drive)).sum::<Option<f64>>();
    let Some((alone, together)) = sum(|drive| drive.alone).zip(sum(|drive| drive.together)) else {
        return Err("a run of its drives was cut short or had errors".to_string());
    };
    if together >= alone * TOGETHER {
        return Ok(None);
    }
    if drives.len() > different {
        return Err("two of its drives are namespaces or functions of the same drive".to_string());
    }
    let worker = scaling.worker_percent / 100.0;
    if worker >= BUSY {
        let share = in_percent(worker);
        return Err(format!(
            "its drives are slower together, but a thread of the load used {share} of its CPU"
        ));
    }
    match scaling.machine_percent.map(|percent| percent / 100.0) {
        None => {
            return Err("its drives are slower together, but the CPU load was not measured".to_string());
        }
        Some(busy) if busy >= BUSY => {
            let share = in_percent(busy);
            return Err(format!("its drives are slower together, but all CPUs together were {share} busy"));
        }
        Some(_) => {}
    }
    let Some(nearest) = nearest(s, drives) else {
        return Err(
            "its drives are slower together, but the capacity of the links above them is unknown".to_string()
        );
    };
    if nearest >= FULL {
        return Ok(None);
    }
    Ok(Some(finding(complex, drives, alone, together, nearest)))
}

/// Load of the busiest link above the drives while all were driven; None: unknown.
fn nearest(s: &Summaries<'_>, drives: &[ScaledDrive<'_>]) -> Option<f64> {
    if s.host.virtualization.is_some() || drives.iter().any(|(disk, _)| disk.hops.is_empty()) {
        return None;
    }
    // By the device at the lower end: its bytes, and the minimum capacity of its link.
    let mut links: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for (disk, drive) in drives {
        for hop in &disk.hops {
            let (_, least) = *ceilings(&hop.link).first()?;
            links.entry(slot(hop)).or_insert((0.0, least)).0 += drive.together?;
        }
    }
    Some(links.values().map(|(rate, least)| rate / least).fold(0.0, f64::max))
}

fn finding(complex: &str, drives: &[ScaledDrive<'_>], alone: f64, together: f64, nearest: f64) -> Finding {
    let share = together / alone;
    let each = |(disk, drive): &ScaledDrive<'_>| {
        let rate = |rate: Option<f64>| rate.map_or("-".to_string(), in_gigabytes);
        format!("{}: {} alone, {} with the others", disk.name, rate(drive.alone), rate(drive.together))
    };
    let mut evidence: Vec<String> = drives.iter().map(each).collect();
    evidence.push(format!("the fullest link is at {} of its capacity", in_percent(nearest)));
    Finding {
        id: RULE.id,
        subject: complex.to_string(),
        severity: Severity::Warning,
        confidence: 0.8,
        sentence: format!(
            "{} drives below {complex} transfer {} together, {} of the {} that they transfer alone, and no \
             link is full.",
            drives.len(),
            in_gigabytes(together),
            in_percent(share),
            in_gigabytes(alone)
        ),
        numbers: BTreeMap::from([
            (DRIVES, drives.len() as f64),
            (TOGETHER_BYTES_PER_SECOND, together),
            (ALONE_BYTES_PER_SECOND, alone),
            (TOGETHER_PERCENT, percent(share)),
            (NEAREST_LINK_PERCENT, percent(nearest)),
        ]),
        evidence,
        advice: "Distribute the drives over the machine's root complexes (biopsy devices lists them)."
            .to_string(),
        check: "biopsy devices".to_string(),
        worth: Some(Worth {
            metric: "bytes_per_second_ratio".to_string(),
            low: 1.0,
            high: (alone / together.max(1.0)).max(1.0),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixtures::Case;

    /// Published (source T): eight drives below 0000:40 that read 7.13 GB/s each alone and 39.4 together, each at a
    /// link of four lanes at 16 GT/s that carries 7.52 GB/s.
    fn case(together: f64) -> Case {
        let mut case = Case::new(10_000, 32);
        case.at_link(7.524e9 * 280.0 / 256.0, Some(256));
        let mut drives = Vec::new();
        let first = case.host.devices.remove(0);
        for number in 0..8 {
            let mut disk = first.clone();
            (disk.name, disk.driver) = (format!("nvme{number}n1"), Some("nvme".into()));
            let address = format!("0000:4{number}:00.0");
            disk.hops[0].function.clone_from(&address);
            (disk.pci_address, disk.root_complex) = (Some(address), Some("pci0000:40".into()));
            drives.push(DriveScaling {
                target: format!("/dev/{}", disk.name),
                device: Some(disk.name.clone()),
                alone: Some(7.13e9),
                together: Some(together / 8.0),
            });
            case.host.devices.push(disk);
        }
        case.scaling =
            Some(Scaling { drives, each_ns: 1, worker_percent: 50.0, machine_percent: Some(60.0) });
        case
    }

    fn found(case: &Case) -> Option<Finding> {
        find(&case.summaries()).pop()
    }

    fn why(case: &Case) -> String {
        assert!(found(case).is_none());
        unknown(&case.summaries()).pop().map_or(String::new(), |unknown| unknown.why)
    }

    #[test]
    fn eight_drives_below_one_root_complex() {
        let found = found(&case(39.4e9)).unwrap();
        assert_eq!(
            found.sentence,
            "8 drives below pci0000:40 transfer 39.40 GB/s together, 69 % of the 57.04 GB/s that they transfer alone, and no \
             link is full."
        );
        assert_eq!(found.subject, "pci0000:40");
        assert_eq!(found.worth.unwrap().high, 57.04 / 39.4);
    }

    #[test]
    fn parted_over_the_root_complexes_nobody_is_blamed() {
        let mut parted = case(39.4e9);
        for (number, disk) in parted.host.devices.iter_mut().enumerate() {
            disk.root_complex = Some(format!("pci0000:{number}0"));
        }
        assert_eq!((found(&parted), why(&parted)), (None, String::new()));
    }

    #[test]
    fn the_loss_has_two_sides() {
        assert!(found(&case(51.33e9)).is_some());
        assert_eq!(why(&case(51.34e9)), "", "90 % of 57.04");
        let mut none = case(39.4e9);
        none.scaling = None;
        assert_eq!(why(&none), "", "nobody asked");
    }

    #[test]
    fn a_drive_that_was_not_measured_alone_proves_nothing() {
        let mut some = case(39.4e9);
        some.scaling.as_mut().unwrap().drives[3].alone = None;
        assert!(why(&some).contains("cut short"));
        let mut twice = case(39.4e9);
        twice.host.devices[1].hops[0].function = "0000:40:00.1".into();
        assert!(why(&twice).contains("namespaces"));
    }

    #[test]
    fn a_full_link_explains_it() {
        let full = |share: f64| {
            let mut full = case(39.4e9);
            for disk in &mut full.host.devices {
                disk.hops[0].link.usable_bytes_per_second = [39.4e9 / 8.0 / share; 2];
            }
            full
        };
        assert!(found(&full(0.949)).is_some());
        assert_eq!(why(&full(0.951)), "");
        let mut unknown = case(39.4e9);
        unknown.host.devices[0].hops.clear();
        assert!(why(&unknown).contains("links"));
        let mut guest = case(39.4e9);
        guest.host.virtualization = Some("kvm".into());
        assert!(why(&guest).contains("links"));
    }

    #[test]
    fn a_link_that_they_share_carries_the_bytes_of_all() {
        let mut shared = case(39.4e9);
        let above = |case: &mut Case, usable: f64| {
            for disk in &mut case.host.devices {
                let mut hop = disk.hops[0].clone();
                hop.function = "0000:02:00.0".into();
                hop.link.usable_bytes_per_second = [usable; 2];
                disk.hops.push(hop);
            }
        };
        above(&mut shared, 40e9);
        assert_eq!(why(&shared), "", "98.5 % of the uplink");
        let mut wide = case(39.4e9);
        above(&mut wide, 42e9);
        assert_eq!(found(&wide).unwrap().numbers["nearest_link_percent"].round(), 94.0);
    }

    #[test]
    fn busy_cpus_may_be_what_they_lose_by() {
        let busy = |worker: f64, machine: Option<f64>| {
            let mut case = case(39.4e9);
            let scaling = case.scaling.as_mut().unwrap();
            (scaling.worker_percent, scaling.machine_percent) = (worker, machine);
            case
        };
        assert!(found(&busy(89.9, Some(89.9))).is_some());
        assert!(why(&busy(90.0, Some(50.0))).contains("a thread of the load"));
        assert!(why(&busy(50.0, Some(90.0))).contains("all CPUs"));
        assert!(why(&busy(50.0, None)).contains("not measured"));
    }
}
