//! Resolves the submitters to measure: `-p`, `--comm` and `--cgroup`.

use std::path::{Path, PathBuf};

use crate::host::cgroups::Hierarchy;
use crate::host::processes;
use crate::probe::filter::Filter;
use crate::refusal::Refusal;
use anyhow::Result;

/// The selected submitters, as found on this machine.
pub struct SubmitterFilter {
    pub filter: Filter,
    folders: Vec<PathBuf>,
}

impl SubmitterFilter {
    /// Processes by id, threads by name, cgroups by path. Refused if one does not exist.
    pub fn new(pids: &[u32], comms: &[String], paths: &[String]) -> Result<Self> {
        let root = Path::new("/");
        let pids = pids.iter().map(|pid| processes::find(root, *pid)).collect::<Result<_>>()?;
        let mut folders = Vec::new();
        let mut cgroups = Vec::new();
        if !paths.is_empty() {
            let hierarchy = hierarchy()?;
            for text in paths {
                let folder = hierarchy.find(text)?;
                cgroups.extend(hierarchy.ids(&folder));
                folders.push(folder);
            }
        }
        let filter = Filter { pids, comms: comms.to_vec(), cgroups, command: false };
        Ok(Self { filter, folders })
    }

    /// A caption; None: all submitters.
    pub fn words(&self) -> Option<String> {
        let pids = self.filter.pids.iter().map(|pid| format!("process {pid}"));
        let comms = self.filter.comms.iter().map(|comm| format!("threads named {comm}"));
        let groups = self.folders.iter().map(|folder| format!("cgroup {}", folder.display()));
        let all: Vec<String> = pids.chain(comms).chain(groups).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// A message if all selected processes, or all cgroups, are gone: no more I/O can come.
    pub fn gone(&self) -> Option<&'static str> {
        let pids = &self.filter.pids;
        let root = Path::new("/");
        if !pids.is_empty() && !pids.iter().any(|pid| processes::is_running(root, *pid)) {
            return Some(match pids.len() {
                1 => "the process of -p has ended: the measurement ends",
                _ => "the processes of -p have ended: the measurement ends",
            });
        }
        if !self.folders.is_empty() && !self.folders.iter().any(|folder| folder.is_dir()) {
            return Some(match self.folders.len() {
                1 => "the cgroup of --cgroup is gone: the measurement ends",
                _ => "the cgroups of --cgroup are gone: the measurement ends",
            });
        }
        None
    }
}

/// The hierarchy of the block controller; without one, a refusal that names it.
pub fn hierarchy() -> Result<Hierarchy> {
    Hierarchy::read(Path::new("/")).ok_or_else(|| {
        let why =
            "no cgroup hierarchy with the block controller is mounted: mount -t cgroup2 none /sys/fs/cgroup";
        Refusal::Refused(why.to_string()).into()
    })
}
