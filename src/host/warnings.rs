//! Facts about the set-up that cost speed or blind the kernel's counters. No measurement, no advice:
//! whether they matter is for the rules to say.

use serde::Serialize;

use super::{BlockDevice, Host, Link};

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
    warnings
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
