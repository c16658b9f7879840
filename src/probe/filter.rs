//! Selects the submitters whose I/O the latency probe follows.

use anyhow::Result;
use libbpf_rs::{MapCore, MapFlags};

use super::skel::latency::OpenLatencySkel;
use crate::envelope::{Missing, Reason};
use crate::wire::groups::{FILTER_CGROUP, FILTER_COMM, FILTER_COMMAND, FILTER_PID};

/// Length of a thread's name in the kernel, including the final 0.
pub const COMM_BYTES: usize = 16;

/// Selected submitters. A submitter passes if it matches each kind that has names; a kind without names matches all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    pub pids: Vec<u32>,
    /// Names of threads, as the kernel has them.
    pub comms: Vec<String>,
    /// Cgroup ids, including those of all descendants.
    pub cgroups: Vec<u64>,
    /// Only processes of the measured command, and kernel threads.
    pub command: bool,
}

impl Filter {
    /// `FILTER_*`; 0: everything passes.
    pub fn kinds(&self) -> u32 {
        let kinds = [
            (FILTER_PID, self.pids.is_empty()),
            (FILTER_COMM, self.comms.is_empty()),
            (FILTER_CGROUP, self.cgroups.is_empty()),
            (FILTER_COMMAND, !self.command),
        ];
        kinds.iter().filter(|(_, empty)| !empty).map(|(kind, _)| kind).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.kinds() == 0
    }

    /// Makes room in the maps.
    pub fn size(&self, open: &mut OpenLatencySkel<'_>) -> libbpf_rs::Result<()> {
        let room = |n: usize| n.max(1) as u32;
        let maps = &mut open.maps;
        maps.filter_pids.set_max_entries(room(self.pids.len()))?;
        maps.filter_comms.set_max_entries(room(self.comms.len()))?;
        maps.filter_cgroups.set_max_entries(room(self.cgroups.len()))
    }

    /// Writes the names into the maps of a probe, before anything is attached.
    pub fn fill(&self, pids: &impl MapCore, comms: &impl MapCore, cgroups: &impl MapCore) -> Result<()> {
        for pid in &self.pids {
            pids.update(&pid.to_ne_bytes(), &[1], MapFlags::ANY)?;
        }
        for comm in &self.comms {
            let mut bytes = [0; COMM_BYTES];
            let name = &comm.as_bytes()[..comm.len().min(COMM_BYTES - 1)];
            bytes[..name.len()].copy_from_slice(name);
            comms.update(&bytes, &[1], MapFlags::ANY)?;
        }
        for cgroup in &self.cgroups {
            cgroups.update(&cgroup.to_ne_bytes(), &[1], MapFlags::ANY)?;
        }
        Ok(())
    }

    /// What lock waits lack because of the filter.
    pub fn missing_of_locks(&self) -> Vec<Missing> {
        if self.is_empty() {
            return Vec::new();
        }
        vec![Missing {
            part: Some("interrupts".to_string()),
            reason: Reason::Filtered,
            why: "an interrupt that waits for a lock counts for the task that it interrupted".to_string(),
            ..Missing::default()
        }]
    }

    /// What the measurement lacks because of the filter.
    pub fn missing(&self) -> Vec<Missing> {
        if self.is_empty() {
            return Vec::new();
        }
        let gap = |part: &str, why: &str| Missing {
            part: Some(part.to_string()),
            reason: Reason::Filtered,
            why: why.to_string(),
            ..Missing::default()
        };
        let unsubmitted = match self.command {
            true => gap(
                "passthrough",
                "driver commands without data, or issued by another task, have no known submitter and are \
                 left out; I/O of kernel threads and device flushes count for the command",
            ),
            false => gap(
                "flush, passthrough",
                "device flushes, and driver commands without data or issued by another task, have no known \
                 submitter and are left out",
            ),
        };
        vec![
            gap("kernel_ios", "the kernel does not count I/O per process, so the counts cannot be checked"),
            unsubmitted,
            gap("started_before", "I/Os that were in the driver at the start have no known submitter"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_without_names_lets_all_pass() {
        let none = Filter::default();
        assert!(none.is_empty() && none.missing().is_empty());
        let some = Filter { pids: vec![1], cgroups: vec![2], ..Filter::default() };
        assert_eq!(some.kinds(), FILTER_PID | FILTER_CGROUP);
        assert!(some.missing().iter().any(|gap| gap.part.as_deref() == Some("kernel_ios")));
    }
}
