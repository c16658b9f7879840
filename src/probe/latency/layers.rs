//! Chooses the devices that are traced together: bio-based ones, and devices below the selected ones.

use anyhow::Result;

use super::options::Options;
use crate::envelope::{Missing, Reason};
use crate::host::{BlockDevice, Host, select};
use crate::probe::plan::{self, Plan};
use crate::probe::skel;
use crate::refusal::Refusal;
use crate::wire::{BELOW, MAX_DEVICES};

/// Drivers whose bios have a completion event of their own and are counted by the kernel: these are traced without
/// being named.
const KNOWN: [&str; 3] = ["dm", "md", "zram"];

/// Whether bios of devices without requests can be followed. On kernels without compare-and-swap, drivers still counted
/// bios in their own ways.
pub fn sees_bios() -> bool {
    skel::is_usual()
}

const OLD_MULTIPATH: &str = "this kernel does not report the path of an I/O on a multipath drive: use \
    Linux 6.1 or newer, or boot with nvme_core.multipath=N";

/// Everything that is traced for these options: disks with requests first, each once. Also returns how many unused
/// disks were left out.
pub fn plan(host: &Host, options: &Options) -> Result<(Plan, usize)> {
    select::disjoint(host, &options.devices)?;
    let (mut chosen, left_out) =
        if options.devices.is_empty() { in_use(host, options) } else { (named(host, options), 0) };
    if !sees_bios() {
        let paths = chosen.iter().filter(|(device, _)| device.hidden).count();
        // Their requests name the head, not the path.
        chosen.retain(|(device, _)| device.request_based && !device.hidden);
        if chosen.is_empty() && paths > 0 {
            return Err(Refusal::Refused(OLD_MULTIPATH.to_string()).into());
        }
    }
    // A stable sort: the device of a slot is searched by slot number, so disks that have slots come first.
    chosen.sort_by_key(|(device, _)| !device.request_based);
    let mut plan = Plan::new(chosen.iter().map(|(device, _)| *device), host.cpus_possible)?;
    for (planned, (device, added_for)) in plan.devices.iter_mut().zip(&chosen) {
        planned.added_for = added_for.clone();
        let partition = device.partitions.iter().find(|partition| options.devices.contains(&partition.name));
        partition.into_iter().for_each(|partition| planned.narrow(partition));
    }
    let is_above = |head: &BlockDevice| chosen.iter().any(|(path, _)| head.layers.contains(&path.name));
    for head in host.devices.iter().filter(|device| is_above(device) && select::is_head(host, device)) {
        plan.add_head(head);
    }
    let uppers: Vec<&BlockDevice> =
        chosen.iter().map(|(device, _)| *device).filter(|device| !device.request_based).collect();
    let lower: Vec<&str> =
        uppers.iter().flat_map(|upper| select::below(host, upper)).map(|disk| disk.name.as_str()).collect();
    for planned in plan.devices.iter_mut().chain(&mut plan.heads).filter(|d| lower.contains(&d.disk.as_str()))
    {
        planned.wire.flags |= BELOW;
    }
    Ok((plan, left_out))
}

type DeviceLayers<'a> = Vec<(&'a BlockDevice, Vec<String>)>;

/// All disks with requests, and the stacked ones that are in use, as far as there is room.
fn in_use<'a>(host: &'a Host, options: &Options) -> (DeviceLayers<'a>, usize) {
    let (mut all, left_out) = plan::in_use(&host.devices);
    if options.layers {
        let stacked = host.devices.iter().filter(|d| {
            let known = d.driver.as_deref().is_some_and(|driver| KNOWN.contains(&driver));
            !d.request_based && known && d.size_bytes > 0
        });
        let room = MAX_DEVICES.saturating_sub(all.len());
        all.extend(stacked.take(room));
    }
    (all.into_iter().map(|device| (device, Vec::new())).collect(), left_out)
}

/// The named disks, the disks of named partitions, and with layers all disks below them, each with the names for which
/// it was added.
fn named<'a>(host: &'a Host, options: &Options) -> DeviceLayers<'a> {
    let is_named = |device: &BlockDevice| {
        let partitions = device.partitions.iter().map(|partition| &partition.name);
        std::iter::once(&device.name).chain(partitions).any(|name| options.devices.contains(name))
    };
    let mut all: DeviceLayers<'_> = host
        .devices
        .iter()
        .filter(|device| is_named(device) && (device.request_based || options.layers))
        .map(|device| (device, Vec::new()))
        .collect();
    if !options.layers || options.only_named {
        return all;
    }
    let uppers: Vec<&BlockDevice> = all.iter().map(|(device, _)| *device).collect();
    for upper in uppers {
        for lower in select::below(host, upper) {
            // A head's bios become those of its paths, which are below it.
            if is_named(lower) || select::is_head(host, lower) {
                continue;
            }
            match all.iter_mut().find(|(device, _)| device.name == lower.name) {
                Some((_, added_for)) => added_for.push(upper.name.clone()),
                None => all.push((lower, vec![upper.name.clone()])),
            }
        }
    }
    all
}

/// A bio has no stages: it is unknown when a driver takes it, and when a device completes it.
pub fn missing_stages(plan: &Plan) -> Vec<Missing> {
    let devices = plan.devices.iter().filter(|device| device.is_bio_based());
    let gaps = devices.flat_map(|device| {
        ["queue", "device", "complete"].map(|stage| Missing {
            device: Some(device.name.clone()),
            stage: Some(stage.to_string()),
            reason: Reason::BioBased,
            included_in: Some("bio".to_string()),
            why: "the device has no requests: a bio's time is from block_bio_queue to block_bio_complete; \
                in operations it is the device stage, and complete begins after it"
                .to_string(),
            ..Missing::default()
        })
    });
    gaps.collect()
}

#[cfg(test)]
mod tests {
    use super::super::plan::PlannedDevice;
    use super::*;
    use crate::host::Partition;

    fn disk(name: &str, driver: &str, layers: &[&str]) -> BlockDevice {
        BlockDevice {
            name: name.to_string(),
            driver: Some(driver.to_string()),
            request_based: !["dm", "md", "zram", "bcache"].contains(&driver),
            size_bytes: 1 << 30,
            layers: layers.iter().map(|layer| layer.to_string()).collect(),
            ..BlockDevice::default()
        }
    }

    fn host() -> Host {
        let devices = vec![
            disk("bcache0", "bcache", &["sdb"]),
            disk("dm-0", "dm", &["md0"]),
            disk("loop0", "loop", &["sdc"]),
            disk("md0", "md", &["sda", "sdb"]),
            disk("sda", "sd", &[]),
            disk("sdb", "sd", &[]),
            disk("sdc", "sd", &[]),
            BlockDevice { size_bytes: 0, ..disk("zram0", "zram", &[]) },
        ];
        Host { devices, cpus_possible: 2, ..Host::default() }
    }

    fn planned(devices: &[&str], layers: bool) -> Vec<(String, Vec<String>)> {
        let devices = devices.iter().map(|name| name.to_string()).collect();
        let (plan, _) = plan(&host(), &Options { devices, layers, ..Options::default() }).unwrap();
        plan.devices.into_iter().map(|device| (device.name, device.added_for)).collect()
    }

    fn names(planned: Vec<(String, Vec<String>)>) -> Vec<String> {
        planned.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn what_lies_below_a_named_disk_is_added_for_it() {
        let found = planned(&["dm-0", "sdb"], true);
        let expected = [("sdb", &[][..]), ("sda", &["dm-0"]), ("dm-0", &[]), ("md0", &["dm-0"])];
        let found: Vec<(&str, Vec<&str>)> = found
            .iter()
            .map(|(name, added)| (name.as_str(), added.iter().map(String::as_str).collect()))
            .collect();
        assert_eq!(found, expected.map(|(name, added)| (name, added.to_vec())));
        assert_eq!(names(planned(&["loop0"], true)), ["loop0", "sdc"]);
        assert_eq!(names(planned(&["loop0", "dm-0"], false)), ["loop0"]);
    }

    #[test]
    fn without_a_name_only_known_kinds_of_bios_are_traced() {
        assert_eq!(names(planned(&[], true)), ["loop0", "sda", "sdb", "sdc", "dm-0", "md0"]);
        assert_eq!(names(planned(&[], false)), ["loop0", "sda", "sdb", "sdc"]);
        assert_eq!(names(planned(&["bcache0"], true)), ["sdb", "bcache0"]);
    }

    /// Otherwise bios of a stacked device would be taken for the application's.
    #[test]
    fn what_lies_below_a_bio_based_disk_is_told_so() {
        let (plan, _) = plan(&host(), &Options { layers: true, ..Options::default() }).unwrap();
        let below: Vec<&str> =
            plan.devices.iter().filter(|d| d.wire.flags & BELOW != 0).map(|d| d.name.as_str()).collect();
        assert_eq!(below, ["sda", "sdb", "md0"]);
    }

    /// The bios of a path entered the block layer at its head.
    #[test]
    fn the_head_of_a_path_is_known_and_not_shown() {
        let mut host = host();
        let path = BlockDevice { hidden: true, ..disk("nvme0c0n1", "nvme", &[]) };
        let head = BlockDevice { request_based: false, ..disk("nvme0n1", "nvme", &["nvme0c0n1"]) };
        let above = disk("dm-7", "dm", &["nvme0n1"]);
        host.devices.extend([path, head, above]);
        let of = |devices: &[&str]| {
            let devices = devices.iter().map(|name| name.to_string()).collect();
            let (plan, _) = plan(&host, &Options { devices, layers: true, ..Options::default() }).unwrap();
            let names = |all: &[PlannedDevice]| {
                all.iter().map(|d| (d.name.clone(), d.wire.flags & BELOW != 0)).collect::<Vec<_>>()
            };
            (names(&plan.devices), names(&plan.heads))
        };
        let named = |name: &str, below| (name.to_string(), below);
        assert_eq!(of(&["nvme0c0n1"]), (vec![named("nvme0c0n1", false)], vec![named("nvme0n1", false)]));
        let (devices, heads) = of(&["dm-7"]);
        assert_eq!(devices, [named("nvme0c0n1", true), named("dm-7", false)]);
        assert_eq!(heads, [named("nvme0n1", true)]);
        assert_eq!(of(&["sda"]).1, []);
    }

    #[test]
    fn a_stage_of_a_bio_is_part_of_the_whole() {
        let plan =
            plan(&host(), &Options { devices: vec!["md0".into()], layers: true, ..Options::default() });
        let missing = missing_stages(&plan.unwrap().0);
        let stages: Vec<&str> = missing.iter().filter_map(|m| m.stage.as_deref()).collect();
        assert_eq!(stages, ["queue", "device", "complete"]);
        assert!(missing.iter().all(|m| m.device.as_deref() == Some("md0")));
        assert!(
            missing.iter().all(|m| m.why.starts_with("the device has no requests")),
            "operations have them"
        );
    }

    #[test]
    fn a_partition_stands_in_the_place_of_its_disk() {
        let mut host = host();
        let partition = Partition {
            name: "sda2".into(),
            major: 8,
            minor: 2,
            start_bytes: 1 << 20,
            size_bytes: 1 << 30,
            ..Default::default()
        };
        let sda = host.devices.iter_mut().find(|disk| disk.name == "sda").unwrap();
        sda.partitions.push(partition);
        let of = |devices: &[&str]| {
            let devices = devices.iter().map(|name| name.to_string()).collect();
            plan(&host, &Options { devices, layers: true, ..Options::default() })
        };
        let (one, _) = of(&["sda2"]).unwrap();
        let [device] = one.devices.as_slice() else { panic!("{one:?}") };
        assert_eq!((device.name.as_str(), device.disk.as_str()), ("sda2", "sda"));
        let wire = device.wire;
        assert_eq!((wire.partition, wire.first_sector, wire.sectors), (8 << 20 | 2, 2048, 1 << 21));
        assert!(device.is_partition());
        // The array is on sda, which is there already as its partition.
        let (both, _) = of(&["md0", "sda2"]).unwrap();
        let names: Vec<(&str, bool)> =
            both.devices.iter().map(|d| (d.name.as_str(), d.added_for.is_empty())).collect();
        assert_eq!(names, [("sda2", true), ("sdb", false), ("md0", true)]);
        assert!(of(&["sda", "sda2"]).is_err());
    }
}
