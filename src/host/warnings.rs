//! Facts about the set-up that cost speed or blind the kernel's counters. No measurement, no advice:
//! whether they matter is for the rules to say.

use serde::Serialize;

use super::pci::sharing::{self, RootComplex, SharedLink};
use super::{BlockDevice, Host, Link};

/// Four drives of 4 lanes are what one slot of 16 holds: more than one device's worth begins above.
const CROWD: usize = 5;

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    pub device: String,
    /// A short word that scripts can test.
    pub id: &'static str,
    /// One sentence.
    pub sentence: String,
}

/// All facts about these devices, in their order.
pub fn warnings(host: &Host, devices: &[&BlockDevice]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for device in devices {
        let mut warn =
            |id, sentence: String| warnings.push(Warning { device: device.name.clone(), id, sentence });
        if let Some(sentence) = device.link.as_ref().and_then(link_degraded) {
            warn("link-degraded", sentence);
        }
        if let Some(health) = device.identity.as_ref().and_then(|identity| identity.health)
            && health.critical_warning != 0
        {
            warn("drive-warning", drive_warning(health.critical_warning));
        }
        if let Some(scheduler) = device.scheduler.as_deref().filter(|name| *name != "none")
            && device.driver.as_deref() == Some("nvme")
        {
            warn(
                "scheduler-on-nvme",
                format!(
                    "the I/O scheduler {scheduler} is active on an NVMe drive; the kernel's default there is none"
                ),
            );
        }
        if device.iostats == Some(false) && counts_by_the_flag(device) {
            warn(
                "iostats-off",
                "queue/iostats is 0: the kernel does not count its I/Os, and no result can be checked against it"
                    .to_string(),
            );
        }
        if host.numa_nodes > 1 && device.pci_address.is_some() && device.numa_node.is_none() {
            warn(
                "numa-unknown",
                format!(
                    "the firmware does not say which of the {} NUMA nodes it is attached to",
                    host.numa_nodes
                ),
            );
        }
    }
    // What a hypervisor shows of links and root complexes is not the machine's.
    if host.virtualization.is_none() {
        warnings
            .extend(sharing::links(devices).iter().filter(|shared| shared.is_narrower()).map(link_shared));
        // Of all drives, not of those that somebody looks at.
        let all: Vec<&BlockDevice> = host.devices.iter().collect();
        let crowded = root_complex_shared(&sharing::root_complexes(&all), host.root_complexes.len());
        let is_shown = |warning: &Warning| {
            devices.iter().any(|device| device.root_complex.as_ref() == Some(&warning.device))
        };
        warnings.extend(crowded.filter(is_shown));
    }
    warnings
}

/// The bits of the byte Critical Warning of a drive's health.
fn drive_warning(bits: u8) -> String {
    const MEANINGS: [&str; 6] = [
        "the spare blocks run out",
        "the temperature is beyond a threshold",
        "the drive is no longer reliable",
        "the media is read-only",
        "the backup of its volatile memory failed",
        "the persistent memory region is read-only or unreliable",
    ];
    let known = (0..MEANINGS.len()).filter(|bit| bits >> bit & 1 == 1).map(|bit| MEANINGS[bit]);
    let said: Vec<&str> = known.collect();
    let said = if said.is_empty() { "a reason of its own".to_string() } else { said.join(", ") };
    format!("the drive warns of itself: {said} (critical warning {bits:#04x})")
}

/// A link above drives whose own links are faster together.
fn link_shared(shared: &SharedLink) -> Warning {
    Warning {
        device: shared.function.clone(),
        id: "link-shared",
        sentence: format!(
            "its link runs at {:.1} GB/s, and the links of the {} drives below it at {:.1} GB/s together: {}",
            shared.link.raw_bytes_per_second / 1e9,
            shared.devices.len(),
            shared.devices_raw_bytes_per_second / 1e9,
            shared.devices.join(" ")
        ),
    }
}

/// A hint, and no more: what a root complex carries is not in its links, and only drives that are slower together than
/// alone show that it is too little. `complexes` is how many there are to choose from.
fn root_complex_shared(used: &[RootComplex], complexes: usize) -> Option<Warning> {
    let drives: usize = used.iter().map(|complex| complex.devices.len()).sum();
    let crowded = used.iter().max_by_key(|complex| complex.devices.len())?;
    let count = crowded.devices.len();
    let others = used.iter().filter(|complex| complex.name != crowded.name);
    let next = others.map(|complex| complex.devices.len()).max().unwrap_or(0);
    (count >= CROWD && complexes > 1 && count > 2 * next).then(|| Warning {
        device: crowded.name.clone(),
        id: "root-complex-shared",
        sentence: format!(
            "{count} of {drives} drives are below this one of {complexes} root complexes, which may carry less than their \
             links: if they are slower together than alone, part them"
        ),
    })
}

/// zram and RAM disks show 0 and count all the same: only the request path and these drivers look at
/// the flag.
fn counts_by_the_flag(device: &BlockDevice) -> bool {
    device.request_based || matches!(device.driver.as_deref(), Some("dm" | "md" | "nvme"))
}

/// The link below what the drive can do, and whether the port above it is the reason.
fn link_degraded(link: &Link) -> Option<String> {
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
    Some(format!(
        "the PCIe link runs at {} GT/s x{} and the drive can do {speed} GT/s x{width}{port}",
        now.0, now.1
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complex(name: &str, drives: usize) -> RootComplex {
        let devices = vec![String::new(); drives];
        RootComplex { name: name.to_string(), devices, devices_usable_bytes_per_second: [0.0; 2] }
    }

    #[test]
    fn what_a_drive_warns_of_is_said_in_words() {
        assert_eq!(
            drive_warning(0x09),
            "the drive warns of itself: the spare blocks run out, the media is read-only (critical warning 0x09)"
        );
        assert!(drive_warning(0x80).contains("a reason of its own (critical warning 0x80)"));
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
        assert!(before.starts_with("8 of 10 drives are below this one of 4 root complexes"), "{before}");
        assert_eq!(hint(&[2, 4, 4], 4), None);
        // Two sockets with five stacks each, and the drives at one of each.
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
        assert_eq!(link_degraded(&link(16.0, 4)), None);
        assert!(link_degraded(&link(8.0, 4)).is_some());
        assert!(link_degraded(&link(16.0, 2)).is_some());
        assert_eq!(link_degraded(&Link { max_speed_gts: None, max_width: None, ..link(2.5, 1) }), None);
    }

    #[test]
    fn the_port_is_named_where_it_is_known() {
        let text =
            link_degraded(&Link { port_max_speed_gts: Some(8.0), port_max_width: Some(4), ..link(8.0, 4) });
        assert!(text.unwrap().ends_with("the port above it can do 8 GT/s x4"));
    }
}
