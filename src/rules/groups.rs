//! The headings under which `biopsy explain` lists the findings.

/// A heading, and the findings below it.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    pub heading: &'static str,
    /// Sorted.
    pub ids: &'static [&'static str],
}

pub const GROUPS: &[Group] = &[
    Group {
        heading: "The result itself",
        ids: &[
            "deallocated-read",
            "foreign-io",
            "generator-bound",
            "inconclusive",
            "not-enough-io",
            "polling-not-active",
        ],
    },
    Group {
        heading: "Limits that were set",
        ids: &["cpu-quota", "driver-queue-full", "split-io", "tag-starvation", "throttled", "volume-cap"],
    },
    Group {
        heading: "CPU, locks and memory",
        ids: &[
            "cache-too-small",
            "complete-cpu-bound",
            "cpu-contention",
            "cpu-steal",
            "direct-reclaim",
            "interrupt-bound",
            "interrupt-imbalance",
            "lock-contention",
            "pagecache-storm",
            "readahead",
            "scheduler-overhead",
            "submit-cpu-bound",
            "swapping",
            "worker-punt",
        ],
    },
    Group {
        heading: "Link and topology",
        ids: &["link-bound", "link-degraded", "numa-remote", "root-complex-shared", "stacked-device"],
    },
    Group {
        heading: "The device",
        ids: &["device-bound", "device-outlier", "flush-bound", "thermal-throttle"],
    },
    Group {
        heading: "Depth and load",
        ids: &["largest-stage", "offered-load", "polling-would-help", "queue-depth-too-low"],
    },
    Group { heading: "Notes of a load", ids: &["write-cliff"] },
];

#[cfg(test)]
mod tests {
    use super::super::pages;
    use super::*;

    /// A finding without a group would be missing from the list.
    #[test]
    fn every_finding_has_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|group| group.ids).copied().collect();
        let mut known: Vec<&str> = pages().map(|(id, _, _)| id).collect();
        grouped.sort();
        known.sort();
        assert_eq!(grouped, known);
    }

    #[test]
    fn the_findings_of_a_group_are_sorted() {
        assert!(GROUPS.iter().all(|group| !group.ids.is_empty() && group.ids.is_sorted()), "{GROUPS:?}");
    }
}
