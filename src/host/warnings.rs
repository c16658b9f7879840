//! Warns of settings that cost speed or make the kernel's counters unreliable, with a remedy for each. These are not
//! measurements: the rules decide whether they matter to a load.

use std::borrow::Cow;
use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cpu::ranges;
use super::frequency::Frequency;
use super::idle::{Idle, Wakeup};
use super::pci::sharing::{self, RootComplex, SharedLink};
use super::{BlockDevice, Host, Link, Throttle};

/// One slot of 16 lanes holds four drives of 4 lanes: from five drives on, they need more than one slot.
const CROWD: usize = 5;
/// A CPU that takes longer than this to wake adds more than twice the read time of the fastest drives (about 10 us).
const DEEP_US: u64 = 20;

/// One warning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Warning {
    /// The disk, PCI function, root complex or CPUs (`cpus 0-7`) concerned.
    pub device: String,
    /// A short word that scripts can test.
    pub id: Cow<'static, str>,
    /// One sentence.
    pub sentence: String,
    /// A remedy; None if there is none on this machine.
    pub remedy: Option<String>,
}

/// All warnings about these devices, in their order, then those of the machine that affect them.
pub fn warnings(host: &Host, devices: &[&BlockDevice]) -> Vec<Warning> {
    let mut warnings: Vec<Warning> = Vec::new();
    // The namespaces and functions of a drive share its properties.
    let (mut drives, mut functions, mut links) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for device in devices {
        warnings.extend(of_drive(device).filter(|_| drives.insert(device.drive())));
        let function = device.pci_address.as_deref().unwrap_or(&device.name);
        if functions.insert(function) {
            warnings.extend(of_function(host, device));
            if host.virtualization.is_none() {
                warnings.extend(of_links(device, &mut links));
            }
        }
        warnings.extend(of_disk(device));
        let own = |limit: &&Throttle| limit.own && limit.device == device.name;
        warnings.extend(host.throttles.iter().filter(own).map(cgroup_limit));
    }
    // The links and root complexes that a hypervisor shows are not those of the machine.
    if host.virtualization.is_none() {
        warnings
            .extend(sharing::links(devices).iter().filter(|shared| shared.is_narrower()).map(link_shared));
        // All drives count here, not only the selected ones.
        let all: Vec<&BlockDevice> = host.devices.iter().collect();
        let crowded = root_complex_shared(&sharing::root_complexes(&all), host.root_complexes.len());
        let is_shown = |warning: &Warning| {
            devices.iter().any(|device| device.root_complex.as_ref() == Some(&warning.device))
        };
        warnings.extend(crowded.filter(is_shown));
    }
    // A rotating disk is slower than the wake-up of any CPU.
    let is_fast = |device: &&BlockDevice| device.pci_address.is_some() && device.rotational == Some(false);
    if devices.iter().any(is_fast) {
        warnings.extend(host.idle.as_ref().and_then(idle_deep));
    }
    if !devices.is_empty() {
        warnings.extend(host.frequencies.iter().filter_map(frequency_held));
    }
    warnings
}

/// The warning that a drive reports about itself, through any of its namespaces.
fn of_drive(device: &BlockDevice) -> Option<Warning> {
    let bits = device.identity.as_ref()?.health?.critical_warning;
    (bits != 0).then(|| Warning {
        device: device.name.clone(),
        id: "drive-warning".into(),
        sentence: drive_warning(bits),
        remedy: Some(format!(
            "read all of it with `nvme smart-log /dev/{}`, and save what is on it",
            device.name
        )),
    })
}

/// Warnings about its PCI function.
fn of_function(host: &Host, device: &BlockDevice) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |id: &'static str, sentence, remedy: &str| {
        let remedy = Some(remedy.to_string());
        warnings.push(Warning { device: device.name.clone(), id: id.into(), sentence, remedy });
    };
    if host.numa_nodes > 1 && device.pci_address.is_some() && device.numa_node.is_none() {
        warn(
            "numa-unknown",
            format!(
                "the firmware does not report which of the {} NUMA nodes it is attached to",
                host.numa_nodes
            ),
            "look for newer firmware of the machine; until then, the node from which it is fastest is the \
             nearest",
        );
    }
    warnings
}

/// Warnings about its own link and the links above it, which drives share: each once. `told` has the functions at their
/// lower ends.
fn of_links<'a>(device: &'a BlockDevice, told: &mut BTreeSet<&'a str>) -> Vec<Warning> {
    let own = device.link.iter().map(|link| (device.name.as_str(), "drive", link));
    let above = device.hops.iter().skip(1).filter(|hop| told.insert(&hop.function));
    let above = above.map(|hop| (hop.function.as_str(), "switch or bridge", &hop.link));
    let warning = |(device, what, link): (&str, &str, &Link)| {
        let (sentence, remedy) = link_degraded(link, what)?;
        Some(Warning {
            device: device.to_string(),
            id: "link-degraded".into(),
            sentence,
            remedy: Some(remedy.to_string()),
        })
    };
    own.chain(above).filter_map(warning).collect()
}

/// Warnings about the settings of its queue.
fn of_disk(device: &BlockDevice) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |id: &'static str, sentence: String, remedy: String| {
        warnings.push(Warning { device: device.name.clone(), id: id.into(), sentence, remedy: Some(remedy) });
    };
    if let Some((now, other)) = device.identity.as_ref().and_then(|identity| identity.faster_format()) {
        warn(
            "format-slower",
            format!(
                "it is formatted with blocks of {} B, which the drive itself rates {}, and blocks of {} B {}",
                now.block_bytes,
                now.performance.name(),
                other.block_bytes,
                other.performance.name()
            ),
            format!("reformat it with format {}, before it is next filled: all data is lost", other.format),
        );
    }
    if let Some(scheduler) = device.scheduler.as_deref().filter(|name| *name != "none")
        && device.driver.as_deref() == Some("nvme")
    {
        warn(
            "scheduler-on-nvme",
            format!("the I/O scheduler {scheduler} is active on an NVMe drive; the kernel's default is none"),
            format!("`echo none > /sys/block/{}/queue/scheduler`, unless it was set on purpose", device.name),
        );
    }
    if device.iostats == Some(false) && counts_by_the_flag(device) {
        warn(
            "iostats-off",
            "queue/iostats is 0: the kernel does not count its I/Os, so no result can be checked".to_string(),
            format!("`echo 1 > /sys/block/{}/queue/iostats`", device.name),
        );
    }
    warnings
}

/// The cgroup of this process limits the device, so it also limits a load that biopsy starts.
fn cgroup_limit(limit: &Throttle) -> Warning {
    Warning {
        device: limit.device.clone(),
        id: "cgroup-limit".into(),
        sentence: format!("the cgroup {} limits it, and processes started from here run in it", limit.cgroup),
        remedy: Some(
            "measure from another cgroup, or lift the limit (io.max; v1: blkio.throttle.*)".to_string(),
        ),
    }
}

/// CPUs whose idle states are so deep that they delay the handling of an interrupt.
fn idle_deep(idle: &Idle) -> Option<Warning> {
    let deep: Vec<_> = idle.deeper_than(DEEP_US).collect();
    let mut cpus: Vec<u32> = deep.iter().flat_map(|(state, _)| &state.cpus).copied().collect();
    cpus.sort_unstable();
    cpus.dedup();
    let (deepest, us) = deep.iter().max_by_key(|(_, us)| *us)?;
    let name = deepest.name.clone().unwrap_or_else(|| format!("state {}", deepest.state));
    let unless = match &idle.wakeup {
        Wakeup::Untold(_) => ", unless a program that holds /dev/cpu_dma_latency prevents it",
        Wakeup::Limit(_) | Wakeup::Unlimited => "",
    };
    Some(Warning {
        device: format!("cpus {}", ranges(&cpus)),
        id: "idle-deep".into(),
        sentence: format!(
            "idle CPUs may enter {name}, with a wake-up latency of up to {us} µs{unless}: I/Os that a \
             sleeping CPU completes wait for that"
        ),
        remedy: Some(format!(
            "if latency matters more than power, `cpupower idle-set -D {}` prevents it until the next boot",
            DEEP_US + 1
        )),
    })
}

/// CPUs that the governor holds at a low frequency.
fn frequency_held(set: &Frequency) -> Option<Warning> {
    let (held, driver) = (set.held_khz()?, set.driver.as_deref()?);
    let [held, most] = [held, set.hardware_max_khz?].map(|khz| khz as f64 / 1e6);
    let cpus = ranges(&set.cpus);
    Some(Warning {
        device: format!("cpus {cpus}"),
        id: "frequency-held".into(),
        sentence: format!(
            "the governor powersave of {driver} keeps them at {held:.1} GHz, but they can do {most:.1} GHz"
        ),
        remedy: Some(format!("`cpupower -c {cpus} frequency-set -g performance`")),
    })
}

/// Decodes the bits of Critical Warning of a drive's health.
fn drive_warning(bits: u8) -> String {
    const MEANINGS: [&str; 6] = [
        "the spare blocks are running out",
        "the temperature is beyond a threshold",
        "the drive is no longer reliable",
        "the media is read-only",
        "the backup of its volatile memory failed",
        "the persistent memory region is read-only or unreliable",
    ];
    let known = (0..MEANINGS.len()).filter(|bit| bits >> bit & 1 == 1).map(|bit| MEANINGS[bit]);
    let said: Vec<&str> = known.collect();
    let said = if said.is_empty() { "an unlisted reason".to_string() } else { said.join(", ") };
    format!("the drive reports a critical warning: {said} ({bits:#04x})")
}

/// A link above drives whose own links are together faster.
fn link_shared(shared: &SharedLink) -> Warning {
    Warning {
        device: shared.function.clone(),
        id: "link-shared".into(),
        sentence: format!(
            "its link runs at {:.1} GB/s, and the links of the {} drives below it at {:.1} GB/s together: {}",
            shared.link.raw_bytes_per_second / 1e9,
            shared.devices.len(),
            shared.devices_raw_bytes_per_second / 1e9,
            shared.devices.join(" ")
        ),
        remedy: Some("move some to separate ports, if they are read at the same time".to_string()),
    }
}

/// Only a hint: the links do not show how much a root complex can carry, and only drives that are slower together than
/// alone prove a bottleneck. `complexes` is the number of root complexes to choose from.
fn root_complex_shared(used: &[RootComplex], complexes: usize) -> Option<Warning> {
    let drives: usize = used.iter().map(|complex| complex.devices.len()).sum();
    let crowded = used.iter().max_by_key(|complex| complex.devices.len())?;
    let count = crowded.devices.len();
    let others = used.iter().filter(|complex| complex.name != crowded.name);
    let next = others.map(|complex| complex.devices.len()).max().unwrap_or(0);
    (count >= CROWD && complexes > 1 && count > 2 * next).then(|| Warning {
        device: crowded.name.clone(),
        id: "root-complex-shared".into(),
        sentence: format!(
            "{count} of {drives} drives are below this root complex (one of {complexes}), which may carry \
             less than their links"
        ),
        remedy: Some("if they are slower together than alone, move some to another root complex".to_string()),
    })
}

/// Whether the device counts I/Os only if the flag is set. zram and RAM disks show 0 and still count: only the request
/// path and these drivers check the flag.
fn counts_by_the_flag(device: &BlockDevice) -> bool {
    device.request_based || matches!(device.driver.as_deref(), Some("dm" | "md" | "nvme"))
}

/// The link runs below the capability of `what` at its lower end. Also decides whether the port above it is the reason.
fn link_degraded(link: &Link, what: &str) -> Option<(String, &'static str)> {
    let slower = link.max_speed_gts.is_some_and(|max| link.speed_gts < max);
    let narrower = link.max_width.is_some_and(|max| link.width < max);
    if !slower && !narrower {
        return None;
    }
    let speed = link.max_speed_gts.unwrap_or(link.speed_gts);
    let width = link.max_width.unwrap_or(link.width);
    let port = match (link.port_max_speed_gts, link.port_max_width) {
        (Some(speed), Some(width)) => format!("; the port above it can do {speed} GT/s x{width}"),
        _ => String::new(),
    };
    let now = (link.speed_gts, link.width);
    let sentence = format!(
        "the PCIe link runs at {} GT/s x{} and the {what} can do {speed} GT/s x{width}{port}",
        now.0, now.1
    );
    // The port is the reason if it cannot do better itself.
    let by_port = (!slower || link.port_max_speed_gts.is_some_and(|max| max <= now.0))
        && (!narrower || link.port_max_width.is_some_and(|max| max <= now.1));
    let remedy = if by_port {
        "only another port can do more"
    } else {
        "reseat it and its cable, and look for a limit in the firmware's settings"
    };
    Some((sentence, remedy))
}

#[cfg(test)]
mod tests {
    use super::super::Hop;
    use super::super::idle::IdleState;
    use super::super::nvme::Health;
    use super::super::nvme::identity::Identity;
    use super::*;

    fn complex(name: &str, drives: usize) -> RootComplex {
        let devices = vec![String::new(); drives];
        RootComplex { name: name.to_string(), devices, devices_usable_bytes_per_second: [0.0; 2] }
    }

    #[test]
    fn what_a_drive_warns_of_is_said_in_words() {
        assert_eq!(
            drive_warning(0x09),
            "the drive reports a critical warning: the spare blocks are running out, the media is read-only (0x09)"
        );
        assert!(drive_warning(0x80).contains("an unlisted reason (0x80)"));
    }

    #[test]
    fn drives_are_hinted_at_where_they_could_be_parted() {
        let hint = |drives: &[usize], complexes| {
            let name = |at: usize| format!("pci0000:{at}0");
            let used: Vec<RootComplex> =
                drives.iter().enumerate().map(|(at, count)| complex(&name(at), *count)).collect();
            root_complex_shared(&used, complexes).map(|warning| (warning.device, warning.sentence))
        };
        let (device, before) = hint(&[2, 8], 4).unwrap();
        assert_eq!(device, "pci0000:10");
        assert!(before.starts_with("8 of 10 drives are below this root complex (one of 4)"), "{before}");
        assert_eq!(hint(&[2, 4, 4], 4), None);
        // Two sockets with five root complexes each, and the drives at one of each.
        assert_eq!((hint(&[4, 4], 10), hint(&[12, 12], 10)), (None, None));
        assert_eq!(hint(&[8, 4], 4), None, "twice as many");
        assert!(hint(&[9, 4], 4).is_some());
        assert!(hint(&[5], 2).is_some(), "all are at one");
        assert_eq!(hint(&[4], 4), None, "four of 4 lanes are the 16 of one slot");
        assert_eq!((hint(&[8], 1), hint(&[], 4)), (None, None));
    }

    fn link(speed_gts: f64, width: u32) -> Link {
        Link { speed_gts, width, max_speed_gts: Some(16.0), max_width: Some(4), ..Link::default() }
    }

    #[test]
    fn a_link_is_degraded_only_below_the_drives_own_maximum() {
        assert_eq!(link_degraded(&link(16.0, 4), "drive"), None);
        assert!(link_degraded(&link(8.0, 4), "drive").is_some());
        assert!(link_degraded(&link(16.0, 2), "drive").is_some());
        assert_eq!(
            link_degraded(&Link { max_speed_gts: None, max_width: None, ..link(2.5, 1) }, "drive"),
            None
        );
    }

    #[test]
    fn another_port_is_the_remedy_only_where_the_port_is_the_reason() {
        let remedy = |link: Link| link_degraded(&link, "drive").unwrap().1;
        let at = |speed, width, of: Link| Link {
            port_max_speed_gts: Some(speed),
            port_max_width: Some(width),
            ..of
        };
        assert!(remedy(at(16.0, 4, link(8.0, 4))).starts_with("reseat"), "both ends can do more");
        assert!(remedy(at(16.0, 2, link(16.0, 2))).starts_with("only another port"));
        assert!(remedy(at(8.0, 4, link(8.0, 2))).starts_with("reseat"), "the lanes are not the port's fault");
        assert!(remedy(link(8.0, 4)).starts_with("reseat"), "nobody knows the port");
    }

    /// A drive with two namespaces, and a path to another drive.
    fn drives() -> Vec<BlockDevice> {
        let health = Health { critical_warning: 1, ..Health::default() };
        let identity = Some(Identity { health: Some(health), ..Identity::default() });
        let drive = |name: &str, address: &str| BlockDevice {
            name: name.into(),
            driver: Some("nvme".into()),
            pci_address: Some(address.into()),
            rotational: Some(false),
            link: Some(link(8.0, 4)),
            identity: identity.clone(),
            ..BlockDevice::default()
        };
        vec![
            drive("nvme0n1", "0000:01:00.0"),
            drive("nvme0n2", "0000:01:00.0"),
            drive("nvme1n1", "0000:02:00.0"),
        ]
    }

    fn told(host: &Host) -> Vec<(String, Cow<'static, str>)> {
        let devices: Vec<&BlockDevice> = host.devices.iter().collect();
        warnings(host, &devices).into_iter().map(|warning| (warning.device, warning.id)).collect()
    }

    #[test]
    fn a_drive_warns_once_however_many_namespaces_it_has() {
        let host = Host { devices: drives(), ..Host::default() };
        let expected = [
            ("nvme0n1", "drive-warning"),
            ("nvme0n1", "link-degraded"),
            ("nvme1n1", "drive-warning"),
            ("nvme1n1", "link-degraded"),
        ];
        assert_eq!(told(&host), expected.map(|(device, id)| (device.to_string(), id.into())));
    }

    #[test]
    fn a_slow_link_above_drives_is_told_once_and_never_in_a_virtual_machine() {
        let mut devices = drives();
        let uplink = Hop { function: "0000:00:01.0".into(), link: link(8.0, 2), ..Hop::default() };
        for device in &mut devices {
            device.identity = None;
            device.link = Some(link(16.0, 4));
            let function = device.pci_address.clone().unwrap();
            device.hops = vec![Hop { function, link: link(16.0, 4), ..Hop::default() }, uplink.clone()];
        }
        let mut host = Host { devices, ..Host::default() };
        assert!(told(&host).contains(&("0000:00:01.0".to_string(), "link-degraded".into())));
        assert_eq!(told(&host).iter().filter(|(_, id)| *id == "link-degraded").count(), 1);
        let shown: Vec<&BlockDevice> = host.devices.iter().collect();
        let all = warnings(&host, &shown);
        let sentence = &all.iter().find(|warning| warning.id == "link-degraded").unwrap().sentence;
        assert_eq!(sentence, "the PCIe link runs at 8 GT/s x2 and the switch or bridge can do 16 GT/s x4");
        host.virtualization = Some("kvm".into());
        assert!(told(&host).iter().all(|(_, id)| *id != "link-degraded"), "{:?}", told(&host));
    }

    #[test]
    fn deep_sleep_and_slow_cpus_are_told_where_a_drive_could_mind() {
        let state = |exit_us| IdleState {
            name: Some(format!("C{exit_us}")),
            exit_us: Some(exit_us),
            cpus: vec![0, 1, 3],
            ..IdleState::default()
        };
        let idle = Idle { states: vec![state(2), state(133), state(30)], ..Idle::default() };
        let slow = Frequency {
            driver: Some("acpi-cpufreq".into()),
            governor: Some("powersave".into()),
            min_khz: Some(1_500_000),
            hardware_max_khz: Some(3_400_000),
            cpus: vec![0, 1],
            ..Frequency::default()
        };
        let mut devices = drives();
        devices.iter_mut().for_each(|device| (device.link, device.identity) = (None, None));
        let mut host = Host { devices, idle: Some(idle), frequencies: vec![slow], ..Host::default() };
        let all: Vec<&BlockDevice> = host.devices.iter().collect();
        let [deep, held] = &warnings(&host, &all)[..] else { panic!() };
        assert_eq!((deep.device.as_str(), &*deep.id), ("cpus 0-1,3", "idle-deep"));
        assert!(
            deep.sentence.starts_with("idle CPUs may enter C133, with a wake-up latency of up to 133 µs"),
            "{deep:?}"
        );
        assert!(
            !deep.sentence.contains("unless") && deep.remedy.as_ref().unwrap().contains("idle-set -D 21")
        );
        assert_eq!((held.device.as_str(), &*held.id), ("cpus 0-1", "frequency-held"));
        assert!(held.sentence.ends_with("keeps them at 1.5 GHz, but they can do 3.4 GHz"), "{held:?}");

        host.idle.as_mut().unwrap().wakeup = Wakeup::Untold("permission denied".into());
        let all: Vec<&BlockDevice> = host.devices.iter().collect();
        assert!(
            warnings(&host, &all)[0].sentence.contains("unless a program that holds /dev/cpu_dma_latency")
        );
        host.devices.iter_mut().for_each(|device| device.rotational = Some(true));
        assert_eq!(
            told(&host),
            [("cpus 0-1".to_string(), "frequency-held".into())],
            "no disk that turns minds"
        );
        host.devices.clear();
        assert_eq!(told(&host), []);
    }

    #[test]
    fn the_port_is_named_where_it_is_known() {
        let text = link_degraded(
            &Link { port_max_speed_gts: Some(8.0), port_max_width: Some(4), ..link(8.0, 4) },
            "drive",
        );
        let (sentence, remedy) = text.unwrap();
        assert!(sentence.ends_with("the port above it can do 8 GT/s x4"), "{sentence}");
        assert_eq!(remedy, "only another port can do more");
    }
}
