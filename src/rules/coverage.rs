//! Lists what could have mattered but was not examined, so that silence is not taken for "fine".

use super::{Summaries, cpu, facts, link_bound, numa_remote, regime, root_complex_shared, thermal_throttle};
use crate::analyze::latency::DeviceLatency;
use crate::analyze::stage::Stage;
use crate::findings::NotExamined;
use crate::host::BlockDevice;
use crate::host::pci::sharing;

/// Topics that no probe of this version covers.
const NO_PROBE: &[&str] = &["the device's wear and caches"];

/// The list for this run.
pub fn list(s: &Summaries<'_>) -> Vec<NotExamined> {
    let mut list = Vec::new();
    let mut add =
        |what: &str, why: &str| list.push(NotExamined { what: what.to_string(), why: why.to_string() });
    if s.load.is_none() {
        add(
            "the application's own operations",
            "the load is not biopsy's own, so its depth, rate and latencies are unknown",
        );
    }
    if s.load.is_some() && regime::regime(s).is_none() {
        let failed = s.envelope.missing.iter().find(|m| m.part.as_deref() == Some("experiment"));
        let why = failed.map_or(
            "other depths were not tried, were cut short, or differ too much from block to block",
            |missing| missing.why.as_str(),
        );
        add("whether more I/Os in flight give more IOPS", why);
    }
    for stage in Stage::ALL {
        if unseen(s, stage) {
            let why = s
                .envelope
                .missing
                .iter()
                .find(|m| m.part.is_none() && m.stage.as_deref() == Some(stage.name()))
                .map_or("no probe can measure it here", |m| m.why.as_str());
            add(&format!("stage {}", stage.name()), why);
        }
    }
    match (s.profile, cpu::profile(s)) {
        (None, _) => {
            let refused = s.envelope.missing.iter().find(|m| m.part.as_deref() == Some("profile"));
            let why = refused.map_or("no profile could be taken", |missing| missing.why.as_str());
            add("CPU profile", why);
        }
        (Some(_), None) => add("CPU profile", "the profile has too few samples or lost too many"),
        (_, Some(profile)) => {
            if let Some(note) = &profile.sampler_note {
                add("hard interrupts and code with interrupts off", note);
            }
        }
    }
    if !facts::has_parts(s) {
        add("parts of stages (throttle, tags, plug, scheduler)", facts::why_no_parts(s));
    }
    if s.interrupts.is_none() {
        let refused = s.envelope.missing.iter().find(|m| m.part.as_deref() == Some("interrupts"));
        let why = refused.map_or("interrupts were not counted", |missing| missing.why.as_str());
        add("interrupts per queue and completions per interrupt", why);
    }
    let mut pressure = |what: &str, looked: bool, part: &str, else_why: &str| {
        let refused = s.envelope.missing.iter().find(|m| m.part.as_deref() == Some(part));
        if !looked {
            add(what, refused.map_or(else_why, |missing| missing.why.as_str()));
        }
    };
    pressure("lock contention", s.locks.is_some(), "locks", "locks were not measured");
    let reclaim = s.pagecache.is_some_and(|seen| seen.scanned_pages.is_some() || seen.reclaims.is_some());
    pressure("page-cache reclaim", reclaim, "pagecache", "the page cache was not measured");
    let ahead = s.pagecache.is_some_and(|seen| seen.readahead.is_some());
    pressure("use of read-ahead", ahead, "readahead", "read-ahead was not measured");
    pressure("thread waits", s.threads.is_some(), "threads", "threads were not sampled");
    links(s, &mut add);
    NO_PROBE.iter().for_each(|what| add(what, "this version has no probe for it"));
    list.extend(link_bound::beyond(s));
    list.extend(numa_remote::unknown(s));
    list.extend(root_complex_shared::unknown(s));
    list.extend(thermal_throttle::unknown(s));
    list
}

/// Parts of the path between the traced devices and memory that could not be judged.
fn links(s: &Summaries<'_>, add: &mut impl FnMut(&str, &str)) {
    let traced = s.latency.devices.iter().filter(|device| device.ios > 0);
    let disks: Vec<&BlockDevice> = traced.filter_map(|device| facts::disk(s, &device.name)).collect();
    let mut of_pci = disks.iter().filter(|disk| disk.pci_address.is_some()).peekable();
    if s.host.virtualization.is_some() && of_pci.peek().is_some() {
        add("PCIe links", "not checked in a virtual machine");
    } else if of_pci.any(|disk| disk.hops.is_empty()) {
        add("PCIe links", "sysfs shows no speed and width of them");
    }
    if s.scaling.is_none() && sharing::root_complexes(&disks).iter().any(|complex| complex.devices.len() > 1)
    {
        add(
            "capacity of the drives' root complex",
            "this needs the rate of each drive alone: name the other drives with --beside",
        );
    }
}

/// Whether a device that the run is about lacks the stage.
fn unseen(s: &Summaries<'_>, stage: Stage) -> bool {
    let of_operations = |device: &DeviceLatency| {
        device.ops.values().filter_map(|op| op.operations.as_ref()).any(|all| all.stages.contains_key(&stage))
    };
    facts::device_views(s)
        .iter()
        .any(|p| p.ios > 0 && !p.stages.contains_key(&stage) && !of_operations(p.device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Missing;
    use crate::rules::fixtures::Case;
    use crate::rules::inputs::PageCache;

    #[test]
    fn the_way_to_memory_is_named_where_it_is_not_known() {
        let mut case = Case::new(1_000, 32);
        let has = |case: &Case, what: &str| list(&case.summaries()).iter().any(|n| n.what.contains(what));
        assert!(!has(&case, "PCIe"), "no disk of PCI");
        case.disk().pci_address = Some("0000:41:00.0".into());
        assert!(has(&case, "PCIe links"), "without a speed");
        case.at_link(4e9, Some(256));
        assert!(!has(&case, "PCIe links"));
        (case.disk().driver, case.disk().root_complex) = (Some("nvme".into()), Some("pci0000:40".into()));
        assert!(!has(&case, "root complex"));
        case.twin("vdb");
        assert!(has(&case, "root complex"));
        case.host.virtualization = Some("kvm".into());
        assert!(has(&case, "PCIe links"));
    }

    #[test]
    fn interrupts_are_named_where_they_were_not_counted() {
        let mut case = Case::new(1_000, 32);
        let why = |case: &Case| {
            let all = list(&case.summaries());
            all.into_iter().find(|n| n.what.starts_with("interrupts per queue")).map(|n| n.why)
        };
        assert_eq!(why(&case).as_deref(), Some("interrupts were not counted"));
        case.envelope.missing.push(Missing {
            part: Some("interrupts".into()),
            why: "interrupts were not counted: no rights".into(),
            ..Missing::default()
        });
        assert!(why(&case).unwrap().ends_with("no rights"));
        case.interrupt(41, &[(0, 1_000)], 1_000, 1);
        assert_eq!(why(&case), None);
    }

    #[test]
    fn memory_locks_and_threads_are_named_where_nobody_looked() {
        let mut case = Case::new(1_000, 32);
        let what = ["lock contention", "page-cache reclaim", "use of read-ahead", "thread waits"];
        let named = |case: &Case| {
            let all = list(&case.summaries());
            what.iter().filter(|what| all.iter().any(|n| n.what == **what)).count()
        };
        assert_eq!(named(&case), 4);
        case.locks = Some(Default::default());
        case.threads = Some(Default::default());
        case.pagecache = Some(PageCache { reclaims: Some(Default::default()), ..PageCache::default() });
        assert_eq!(named(&case), 1, "read-ahead");
        case.pagecache.as_mut().unwrap().readahead = Some(Default::default());
        assert_eq!(named(&case), 0);
        case.locks = None;
        let why = "locks were not measured: no rights".to_string();
        case.envelope.missing.push(Missing {
            part: Some("locks".into()),
            why: why.clone(),
            ..Missing::default()
        });
        assert!(list(&case.summaries()).iter().any(|n| n.why == why));
    }

    #[test]
    fn absent_stages_and_absent_profiles_are_named_with_their_reason() {
        let mut case = Case::new(1_000, 32);
        case.envelope.missing.push(Missing {
            stage: Some("reap".into()),
            why: "no event marks it".into(),
            ..Missing::default()
        });
        let has = |case: &Case, what: &str, why: &str| {
            list(&case.summaries()).iter().any(|n| n.what == what && n.why.contains(why))
        };
        assert!(has(&case, "stage reap", "no event marks it"));
        assert!(!has(&case, "stage device", ""));
        assert!(!has(&case, "CPU profile", ""));
        case.profile = None;
        assert!(has(&case, "CPU profile", "no profile"));
    }
}
