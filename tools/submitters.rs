//! Whose I/O is measured: `-p`, `--comm` and `--cgroup`.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use biopsy::host::cgroups::Hierarchy;
use biopsy::host::processes;
use biopsy::probe::filter::Filter;
use biopsy::refusal::Refusal;

use crate::cli::Submitters;
use crate::output::warn;

/// The submitters that were named, as they are on this machine.
pub struct Chosen {
    pub filter: Filter,
    folders: Vec<PathBuf>,
    looked: Cell<Instant>,
}

/// How often it is looked whether they are still there.
const LOOK_EVERY: Duration = Duration::from_millis(200);

impl Chosen {
    /// Refused where one of them is not there.
    pub fn new(named: &Submitters) -> Result<Self> {
        let root = Path::new("/");
        let pids = named.pids.iter().map(|pid| processes::find(root, *pid)).collect::<Result<_>>()?;
        let mut folders = Vec::new();
        let mut cgroups = Vec::new();
        if !named.cgroups.is_empty() {
            let hierarchy = hierarchy()?;
            for text in &named.cgroups {
                let folder = hierarchy.find(text)?;
                cgroups.extend(hierarchy.ids(&folder));
                folders.push(folder);
            }
        }
        let filter = Filter { pids, comms: named.comms.clone(), cgroups, command: false };
        Ok(Self { filter, folders, looked: Cell::new(Instant::now()) })
    }

    /// As words for a caption; None: everybody.
    pub fn words(&self) -> Option<String> {
        let pids = self.filter.pids.iter().map(|pid| format!("process {pid}"));
        let comms = self.filter.comms.iter().map(|comm| format!("threads named {comm}"));
        let groups = self.folders.iter().map(|folder| format!("cgroup {}", folder.display()));
        let all: Vec<String> = pids.chain(comms).chain(groups).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Whether all processes, or all cgroups, that were named are gone: nothing more can come. Says so once.
    pub fn are_gone(&self) -> bool {
        if self.looked.get().elapsed() < LOOK_EVERY {
            return false;
        }
        self.looked.set(Instant::now());
        let pids = &self.filter.pids;
        let what = if !pids.is_empty() && !pids.iter().any(|pid| processes::is_running(Path::new("/"), *pid))
        {
            if pids.len() == 1 { "the process of -p has" } else { "the processes of -p have" }
        } else if !self.folders.is_empty() && !self.folders.iter().any(|folder| folder.is_dir()) {
            if self.folders.len() == 1 {
                "the cgroup of --cgroup has"
            } else {
                "the cgroups of --cgroup have"
            }
        } else {
            return false;
        };
        warn(&format!("{what} ended, and so does the measurement"));
        true
    }
}

/// The block controller's, which is named in a refusal where there is none.
pub fn hierarchy() -> Result<Hierarchy> {
    Hierarchy::read(Path::new("/")).ok_or_else(|| {
        let why =
            "no cgroup hierarchy with the block controller is mounted: mount -t cgroup2 none /sys/fs/cgroup";
        Refusal::Refused(why.to_string()).into()
    })
}
