//! Samples threads from the files of `/proc`, for users who may not load programs.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Options;
use super::kernel::Add;
use crate::envelope::{Missing, Reason};
use crate::host::threads::{self, Syscall};
use crate::wire::threads::{Call, Sighting, ThreadTally};

pub struct Files {
    root: PathBuf,
    /// Interned names of wait channels and cgroups.
    names: HashSet<Arc<str>>,
}

impl Files {
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf(), names: HashSet::new() }
    }

    /// Samples all visible threads once.
    pub fn round(&mut self, options: &Options, tally: &mut ThreadTally, add: &mut Add<'_>) {
        let (all, more) = threads::all(&self.root, &options.pids);
        tally.look_at(all.len() as u64);
        tally.loss().cut += u64::from(more);
        // The sampling thread itself is always running.
        let own = std::process::id();
        for thread in all {
            let Some(stat) = thread.stat() else {
                tally.loss().unread += 1;
                continue;
            };
            if !options.sleepers && !matches!(stat.state, 'R' | 'D') || thread.pid == own {
                continue;
            }
            let mut comm = [0; 16];
            let length = stat.comm.len().min(comm.len() - 1);
            comm[..length].copy_from_slice(&stat.comm[..length]);
            let runs = stat.state == 'R';
            let call = match () {
                () if stat.is_kernel => Call::None,
                () if runs => Call::Unknown,
                () => match thread.syscall() {
                    Some(Syscall::Number(number)) => Call::Number(number),
                    Some(Syscall::None) => Call::None,
                    Some(Syscall::Running) => Call::Unknown,
                    None => {
                        tally.loss().unread += 1;
                        Call::Unknown
                    }
                },
            };
            let wchan = if runs { None } else { thread.wchan() };
            let cgroup = match options.reads_cgroups() {
                true => thread.cgroup(options.unified_cgroups),
                false => None,
            };
            let sighting = Sighting {
                comm,
                state: stat.state,
                call,
                wchan: wchan.map(|name| self.once(name)),
                cgroup_path: cgroup.map(|path| self.once(path)),
                ..Sighting::default()
            };
            add(tally, sighting, thread.pid, &[]);
        }
    }

    fn once(&mut self, name: String) -> Arc<str> {
        let name: Arc<str> = name.into();
        if let Some(known) = self.names.get(&name) {
            return Arc::clone(known);
        }
        self.names.insert(Arc::clone(&name));
        name
    }
}

/// What the files do not show, and why only files are used.
pub fn missing(why: &str) -> Vec<Missing> {
    let of = |part: &str, what: &str| Missing {
        part: Some(part.to_string()),
        reason: Reason::Refused,
        why: format!("{what}: {why}"),
        ..Missing::default()
    };
    vec![
        of("kstack", "/proc shows no kernel stacks"),
        of("on_cpu", "/proc does not distinguish running threads from threads that wait for a CPU"),
        of("in_iowait", "/proc does not distinguish I/O waits from other waits"),
        of("device", "/proc does not show the device that a thread waits for"),
        Missing {
            part: Some("syscall".to_string()),
            reason: Reason::Refused,
            why: "system calls and wait channels of other users' threads are shown only with the right to \
                 debug them; such threads count in `unread`"
                .to_string(),
            remedy: Some("run as root".to_string()),
            ..Missing::default()
        },
    ]
}
