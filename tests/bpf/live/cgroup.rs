//! Makes cgroups for tests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use biopsy::host::cgroups::Hierarchy;

use super::disk::Disk;
use crate::support::skip::skipped;

/// A cgroup of the block controller's hierarchy, which is removed at the end.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// None: no cgroup can be made on this machine, and the test is skipped.
    pub fn new(name: &str) -> Option<Self> {
        Self::of("blkio", name)
    }

    /// A cgroup of the memory controller with a limit of so many bytes.
    pub fn with_memory(name: &str, bytes: u64) -> Option<Self> {
        let group = Self::of("memory", name)?;
        // v1, v2.
        let limits = ["memory.limit_in_bytes", "memory.max"].map(|file| group.0.join(file));
        if !limits.iter().any(|file| std::fs::write(file, bytes.to_string()).is_ok()) {
            skipped("no limit of memory can be set");
            return None;
        }
        Some(group)
    }

    /// A cgroup of the CPU controller, whose processes share so many microseconds of CPU time in each 100 ms.
    pub fn with_cpu_quota(name: &str, microseconds: u32) -> Option<Self> {
        let group = Self::of("cpu", name)?;
        // v1, v2.
        let quotas =
            [("cpu.cfs_quota_us", microseconds.to_string()), ("cpu.max", format!("{microseconds} 100000"))];
        if !quotas.iter().any(|(file, quota)| std::fs::write(group.0.join(file), quota).is_ok()) {
            skipped("no CPU quota can be set");
            return None;
        }
        Some(group)
    }

    fn of(controller: &str, name: &str) -> Option<Self> {
        let hierarchy = Hierarchy::of_controller(Path::new("/"), controller);
        let Some(hierarchy) = hierarchy else {
            skipped(format_args!("no cgroup hierarchy with the controller {controller}"));
            return None;
        };
        let group = Self(Path::new(&hierarchy.point).join(format!("{name}-{}", std::process::id())));
        match std::fs::create_dir_all(&group.0) {
            Ok(()) => Some(group),
            Err(error) => {
                skipped(format_args!("no cgroup can be made: {error}"));
                None
            }
        }
    }

    /// Makes a cgroup below this one.
    pub fn below(&self, name: &str) -> Self {
        let below = Self(self.0.join(name));
        std::fs::create_dir(&below.0).unwrap();
        below
    }

    /// The path, as `--cgroup` and the views print it.
    pub fn name(&self) -> String {
        let hierarchy = Hierarchy::read(Path::new("/")).unwrap();
        format!("/{}", self.0.strip_prefix(&hierarchy.point).unwrap().display())
    }

    /// Limits the processes of this cgroup to so many reads per second from a disk. False without cgroup v1, which
    /// alone has this file: then the test is skipped.
    pub fn limit_reads(&self, disk: &Disk, per_second: u32) -> bool {
        let number = std::fs::read_to_string(format!("/sys/block/{}/dev", disk.name)).unwrap();
        let limit = format!("{} {per_second}", number.trim());
        let written = std::fs::write(self.0.join("blkio.throttle.read_iops_device"), limit);
        if let Err(error) = &written {
            skipped(format_args!("no limit of cgroup v1: {error}"));
        }
        written.is_ok()
    }

    /// Does the work with the current thread in the cgroup. Only for v1, where the threads of a process may be in
    /// different cgroups.
    pub fn thread_within(&self, work: impl FnOnce()) {
        let outside = self.0.parent().unwrap().join("tasks");
        std::fs::write(self.0.join("tasks"), "0").unwrap();
        work();
        std::fs::write(outside, "0").unwrap();
    }

    /// Does the work with this process in the cgroup, so that its page cache is charged to that: the kernel charges the
    /// cgroup of the first thread.
    pub fn process_within<T>(&self, work: impl FnOnce() -> T) -> T {
        let inside = self.0.join("cgroup.procs");
        std::fs::write(&inside, "0").unwrap();
        let back = Back(self.0.parent().unwrap().join("cgroup.procs"));
        let done = work();
        drop(back);
        done
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A shell command that runs `command` in the cgroup and waits for it.
    pub fn within(&self, command: &str) -> String {
        format!("sh -c 'echo 0 >{}/cgroup.procs; exec {command}'", self.0.display())
    }
}

/// Moves the process out of the cgroup, even if the work panics.
struct Back(PathBuf);

impl Drop for Back {
    fn drop(&mut self) {
        if let Err(error) = std::fs::write(&self.0, "0") {
            eprintln!("this process stays in its group: {error}");
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has ended leaves its cgroup a little later.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("{} stays", self.0.display());
    }
}
