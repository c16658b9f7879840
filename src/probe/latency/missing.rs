//! Describes what cannot be observed in a run, and why.

use super::super::plan::Plan;
use crate::envelope::{Missing, Reason};
use crate::host::{BlockDevice, Host, Throttle};

/// Why operations are not followed.
pub const NO_RING: &str = "this kernel has no event that names the submitted io_uring request";

/// The stages that only operations have.
pub fn operations(reason: Reason, why: &str) -> Vec<Missing> {
    ["submit", "reap"]
        .into_iter()
        .map(|stage| Missing {
            stage: Some(stage.to_string()),
            reason,
            why: why.to_string(),
            ..Missing::default()
        })
        .collect()
}

/// The gap if system calls are followed by their events instead.
pub fn functions() -> Missing {
    Missing {
        part: Some("functions".to_string()),
        reason: Reason::Refused,
        why: "this kernel refuses programs at the functions of system calls (fentry): all system calls are \
            traced"
            .to_string(),
        ..Missing::default()
    }
}

/// The gap for a stage that the user did not select.
pub fn not_asked_for(stage: &str) -> Missing {
    Missing {
        stage: Some(stage.to_string()),
        reason: Reason::NotAskedFor,
        why: format!("--stages leaves {stage} out"),
        ..Missing::default()
    }
}

/// The gap if the programs could not be attached again after a time slice.
pub fn not_followed_again(why: &str) -> Missing {
    Missing {
        part: Some("operations".to_string()),
        reason: Reason::Refused,
        why: format!("the programs that follow operations could not be re-attached: {why}"),
        remedy: Some("use --max-cost 0, which attaches them once".to_string()),
        ..Missing::default()
    }
}

/// The gap if even the shortest and rarest slices exceed the budget; both are in percent of the busiest CPU.
pub fn over_budget(taken: f64, budget: f64) -> Missing {
    Missing {
        part: Some("budget".to_string()),
        reason: Reason::OverBudget,
        why: format!(
            "following I/Os took {taken:.1} % of the busiest CPU, more than the {budget:.1} % of \
             --max-cost, although operations were followed as little as possible"
        ),
        remedy: Some("use --stages device, or name fewer devices with -d".to_string()),
        ..Missing::default()
    }
}

/// The gap if no stage is broken down.
pub fn parts(reason: Reason, why: &str) -> Missing {
    Missing { part: Some("detail".to_string()), reason, why: why.to_string(), ..Missing::default() }
}

/// The gap if the end of the bios' callbacks is not observed.
pub fn endio() -> Missing {
    Missing {
        stage: Some("complete".to_string()),
        part: Some("endio".to_string()),
        reason: Reason::NoEvent,
        included_in: Some("cqe".to_string()),
        why: "this kernel has no event block_io_done, which marks the end of a request's callbacks"
            .to_string(),
        remedy: Some("use Linux 6.5 or newer".to_string()),
        ..Missing::default()
    }
}

/// The gaps for limits that were set after the start.
pub fn throttled(limits: &[Throttle]) -> Vec<Missing> {
    let mut devices: Vec<&str> = limits.iter().map(|limit| limit.device.as_str()).collect();
    devices.sort_unstable();
    devices.dedup();
    let of_device = |device: &str| Missing {
        device: Some(device.to_string()),
        stage: Some("queue".to_string()),
        part: Some("throttle".to_string()),
        reason: Reason::LimitSetLater,
        included_in: None,
        why: "a cgroup limit on it was set during the run: throttled I/Os belong to no operation, and \
            their wait is in no stage"
            .to_string(),
        remedy: Some("run again now that the limit is set, or use --detail".to_string()),
    };
    devices.into_iter().map(of_device).collect()
}

/// The gap for the `complete` stage, which exists on NVMe only, and only with its event.
pub fn complete(host: &Host, plan: &Plan, nvme: Option<&Missing>) -> Vec<Missing> {
    let is_nvme = |name: &str| host.device(name).is_some_and(BlockDevice::is_nvme);
    let mut all = Vec::new();
    for device in plan.devices.iter().filter(|d| !d.is_bio_based()) {
        let gap = match (is_nvme(&device.name), nvme) {
            (true, None) => continue,
            (true, Some(refused)) => refused.clone(),
            (false, _) => Missing {
                reason: Reason::NoEvent,
                why: "only the NVMe driver has an event for it; elsewhere device ends and complete begins \
                    at block_rq_complete"
                    .to_string(),
                ..Missing::default()
            },
        };
        all.push(Missing {
            device: Some(device.name.clone()),
            stage: Some("complete".to_string()),
            included_in: Some("device".to_string()),
            ..gap
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_disk_with_a_later_limit_is_named_once() {
        let on = |device: &str| Throttle { device: device.to_string(), ..Throttle::default() };
        let found = throttled(&[on("sdb"), on("sda"), on("sdb")]);
        let names: Vec<_> = found.iter().filter_map(|missing| missing.device.as_deref()).collect();
        assert_eq!(names, ["sda", "sdb"]);
        assert!(found.iter().all(|m| m.reason == Reason::LimitSetLater && m.remedy.is_some()));
        assert!(throttled(&[]).is_empty());
    }
}
