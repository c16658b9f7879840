//! Reads the CPU quotas of cgroups (`cpu.max` of v2, `cpu.cfs_quota_us` of v1), and how often the scheduler throttled
//! each cgroup.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attribute::{file, number, text};
use super::cgroups::Hierarchy;

/// A cgroup with a CPU quota, and what the scheduler counted in an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuQuota {
    /// Its path from the root of the hierarchy.
    pub cgroup: String,
    /// The quota is renewed for each period.
    pub period_ns: u64,
    /// CPU time per period, summed over all CPUs.
    pub quota_ns: u64,
    /// Periods in which the cgroup used up its quota and was throttled (`nr_throttled`).
    pub throttled_periods: u64,
    /// The processes in it and in the cgroups below.
    pub processes: Vec<u32>,
    /// biopsy is one of them: the quota applies to its load and to its command.
    pub own: bool,
}

impl CpuQuota {
    /// CPUs that the cgroup may use on average.
    pub fn cpus(&self) -> f64 {
        self.quota_ns as f64 / self.period_ns.max(1) as f64
    }

    /// The share of the interval's periods in which the cgroup was throttled, 0 to 1.
    pub fn throttled_share(&self, duration_ns: u64) -> f64 {
        let periods = duration_ns as f64 / self.period_ns.max(1) as f64;
        // The ends of the interval cut periods.
        (self.throttled_periods as f64 / periods.max(1.0)).min(1.0)
    }

    /// Reads the quotas of all cgroups and their counts so far. The scan visits every cgroup.
    pub fn read(root: &Path) -> Vec<Self> {
        let Some(hierarchy) = Hierarchy::of_controller(root, "cpu") else { return Vec::new() };
        let (own, v2) = (std::process::id(), hierarchy.unified);
        let groups = hierarchy.groups();
        let of_group = |(folder, cgroup): &(PathBuf, String)| {
            let mut quota = if v2 { of_v2(folder) } else { of_v1(folder) }?;
            let below = groups.iter().map(|(below, _)| below).filter(|below| below.starts_with(folder));
            quota.processes = below.flat_map(|folder| processes(folder)).collect();
            quota.own = quota.processes.contains(&own);
            Some(Self { cgroup: cgroup.clone(), ..quota })
        };
        groups.iter().filter_map(of_group).collect()
    }

    /// The change between two readings. A cgroup that was created in between is left out; for a quota that changed, the
    /// later value counts.
    pub fn between(start: &[Self], end: Vec<Self>) -> Vec<Self> {
        let since = |mut quota: Self| {
            let before = start.iter().find(|before| before.cgroup == quota.cgroup)?;
            quota.throttled_periods = quota.throttled_periods.checked_sub(before.throttled_periods)?;
            // A process may have ended in between.
            quota.processes.extend(&before.processes);
            quota.processes.sort_unstable();
            quota.processes.dedup();
            Some(quota)
        };
        end.into_iter().filter_map(since).collect()
    }
}

/// Parses `20000 100000`; `max 100000` is no quota.
fn of_v2(folder: &Path) -> Option<CpuQuota> {
    let text = text(&folder.join("cpu.max"))?;
    let (quota, period) = text.split_once(' ')?;
    with_stat(folder, quota.parse().ok()?, period.parse().ok()?)
}

/// A quota of -1 is no quota.
fn of_v1(folder: &Path) -> Option<CpuQuota> {
    with_stat(folder, number(&folder.join("cpu.cfs_quota_us"))?, number(&folder.join("cpu.cfs_period_us"))?)
}

fn with_stat(folder: &Path, quota_us: u64, period_us: u64) -> Option<CpuQuota> {
    let stat = file(&folder.join("cpu.stat")).ok()?;
    let throttled = stat.lines().find_map(|line| line.strip_prefix("nr_throttled "))?;
    Some(CpuQuota {
        period_ns: period_us.checked_mul(1000).filter(|ns| *ns > 0)?,
        quota_ns: quota_us.checked_mul(1000)?,
        throttled_periods: throttled.trim().parse().ok()?,
        ..CpuQuota::default()
    })
}

fn processes(folder: &Path) -> Vec<u32> {
    let text = file(&folder.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tree::Tree;

    const STAT: &str = "nr_periods 50\nnr_throttled 40\nthrottled_usec 3200000\n";

    #[test]
    fn a_group_of_v2_has_its_quota_and_the_processes_below_it() {
        let own = std::process::id();
        let machine = Tree::new(
            "cpu-quota-v2",
            &[
                ("proc/self/mounts", "cgroup2 /cg cgroup2 rw 0 0\n"),
                ("cg/cgroup.procs", "1\n"),
                ("cg/a/cpu.max", "20000 100000\n"),
                ("cg/a/cpu.stat", STAT),
                ("cg/a/cgroup.procs", "7\n"),
                ("cg/a/b/cpu.max", "max 100000\n"),
                ("cg/a/b/cgroup.procs", &format!("{own}\n")),
                ("cg/ab/cpu.max", "garbage"),
                ("cg/ab/cgroup.procs", "9\n"),
            ],
        );
        let start = CpuQuota::read(machine.root());
        assert_eq!(start.len(), 1, "{start:?}");
        assert_eq!((start[0].cgroup.as_str(), start[0].own, start[0].cpus()), ("/a", true, 0.2));
        assert!(start[0].processes.contains(&7) && start[0].processes.len() == 2, "{start:?}");
        machine.write("cg/a/cpu.stat", b"nr_periods 70\nnr_throttled 55\n");
        machine.write("cg/a/cgroup.procs", b"8\n");
        let quotas = CpuQuota::between(&start, CpuQuota::read(machine.root()));
        assert_eq!(quotas[0].throttled_periods, 15);
        assert_eq!(quotas[0].throttled_share(2_000_000_000), 0.75);
        assert!([7, 8].iter().all(|pid| quotas[0].processes.contains(pid)), "{quotas:?}");
        assert!(CpuQuota::between(&[], start).is_empty(), "its count at the start is not known");
    }

    #[test]
    fn a_group_of_v1_has_a_quota_unless_it_is_below_zero() {
        let machine = Tree::new(
            "cpu-quota-v1",
            &[
                (
                    "proc/self/mounts",
                    "cgroup /cg/cpu cgroup rw,cpu 0 0\ncgroup2 /cg/unified cgroup2 rw 0 0\n",
                ),
                ("cg/cpu/a/cpu.cfs_quota_us", "150000\n"),
                ("cg/cpu/a/cpu.cfs_period_us", "100000\n"),
                ("cg/cpu/a/cpu.stat", "nr_periods 5\nnr_throttled 4\nthrottled_time 320000000\n"),
                ("cg/cpu/b/cpu.cfs_quota_us", "-1\n"),
                ("cg/cpu/b/cpu.cfs_period_us", "100000\n"),
                ("cg/cpu/b/cpu.stat", STAT),
            ],
        );
        let quotas = CpuQuota::read(machine.root());
        assert_eq!(quotas.len(), 1, "{quotas:?}");
        assert_eq!((quotas[0].cgroup.as_str(), quotas[0].cpus()), ("/a", 1.5));
        assert_eq!((quotas[0].throttled_periods, quotas[0].own), (4, false));
    }
}
