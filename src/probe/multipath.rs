//! Lists what cannot be observed on the paths of an NVMe multipath device.

use super::plan::Plan;
use crate::envelope::{Missing, Reason};
use crate::host::{BlockDevice, Host};

/// A bio enters the block layer once, at the head device, and only there has an event. On a path whose head is not in
/// the plan, the queue stage has no start.
pub fn missing_queue(host: &Host, plan: &Plan) -> Vec<Missing> {
    let is_known = |path: &&BlockDevice| plan.heads.iter().any(|head| path.holders.contains(&head.name));
    let paths = plan.devices.iter().filter_map(|d| host.device(&d.name)).filter(|d| d.hidden);
    paths
        .filter(|path| !is_known(path))
        .map(|path| Missing {
            device: Some(path.name.clone()),
            stage: Some("queue".to_string()),
            reason: Reason::NoEvent,
            why: format!(
                "a path of the multipath drive {}, where block_bio_queue reports the bio; no event marks \
                 when the path gets it",
                path.holders.join(", ")
            ),
            ..Missing::default()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_unknown_heads_have_no_queue_stage() {
        let disk = |name: &str, hidden, above: &[&str]| BlockDevice {
            name: name.to_string(),
            hidden,
            request_based: true,
            holders: above.iter().map(|name| name.to_string()).collect(),
            ..BlockDevice::default()
        };
        let devices = vec![disk("nvme0c0n1", true, &["nvme0n1"]), disk("vda", false, &["dm-0"])];
        let host = Host { devices, ..Host::default() };
        let mut plan = Plan::new(host.devices.iter(), 2).unwrap();
        let missing = missing_queue(&host, &plan);
        assert_eq!(missing.len(), 1);
        assert_eq!(
            (missing[0].device.as_deref(), missing[0].stage.as_deref()),
            (Some("nvme0c0n1"), Some("queue"))
        );
        assert!(missing[0].why.starts_with("a path of the multipath drive nvme0n1,"), "{}", missing[0].why);
        plan.add_head(&disk("nvme0n1", false, &[]));
        assert!(missing_queue(&host, &plan).is_empty());
    }
}
