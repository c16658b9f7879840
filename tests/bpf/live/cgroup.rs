//! Groups of the block controller, of our own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use biopsy::host::cgroups::Hierarchy;

use super::disk::Disk;
use crate::support::skip::skipped;

/// A group of the block controller's hierarchy, removed at the end.
#[derive(Debug)]
pub struct Group(PathBuf);

impl Group {
    /// None, and the test is skipped, where this machine has none to make.
    pub fn new(name: &str) -> Option<Self> {
        Self::of("blkio", name)
    }

    /// A group of the memory controller, whose processes have at most so many bytes.
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

    /// A group of the CPU controller, whose processes have together so many microseconds of CPU time in each 100 ms.
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

    /// A group in it.
    pub fn below(&self, name: &str) -> Self {
        let below = Self(self.0.join(name));
        std::fs::create_dir(&below.0).unwrap();
        below
    }

    /// As `--cgroup` and the views call it.
    pub fn name(&self) -> String {
        let hierarchy = Hierarchy::read(Path::new("/")).unwrap();
        format!("/{}", self.0.strip_prefix(&hierarchy.point).unwrap().display())
    }

    /// Lets those in it read so often per second from a disk. False, and the test is skipped, where only v1 has
    /// such a file and this is not v1.
    pub fn limit_reads(&self, disk: &Disk, per_second: u32) -> bool {
        let number = std::fs::read_to_string(format!("/sys/block/{}/dev", disk.name)).unwrap();
        let limit = format!("{} {per_second}", number.trim());
        let written = std::fs::write(self.0.join("blkio.throttle.read_iops_device"), limit);
        if let Err(error) = &written {
            skipped(format_args!("no limit of cgroup v1: {error}"));
        }
        written.is_ok()
    }

    /// Does the work with the current thread in the group. Of v1, where a thread may be apart from its process.
    pub fn thread_within(&self, work: impl FnOnce()) {
        let outside = self.0.parent().unwrap().join("tasks");
        std::fs::write(self.0.join("tasks"), "0").unwrap();
        work();
        std::fs::write(outside, "0").unwrap();
    }

    /// Does the work with this process in the group, whose page cache is then charged to it: the kernel charges the
    /// group that the first thread is in.
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

    /// The command in the group, and a shell that waits for it.
    pub fn within(&self, command: &str) -> String {
        format!("sh -c 'echo 0 >{}/cgroup.procs; exec {command}'", self.0.display())
    }
}

/// Takes the process out of its group, also where the work panics.
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
        // Who ended is out of it a moment later.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() || !self.0.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("{} stays", self.0.display());
    }
}
