//! Parses the names that users have for kernel settings.

use std::path::{Path, PathBuf};

use super::cgroup::{self, Limit};
use crate::refusal::Refusal;

/// Names of settings of a disk's queue, and their files below `/sys/block/DISK/queue`.
const QUEUE: [(&str, &str); 10] = [
    // First: switching it resets some of the others.
    ("scheduler", "scheduler"),
    ("nr_requests", "nr_requests"),
    ("wbt", "wbt_lat_usec"),
    ("max_sectors", "max_sectors_kb"),
    ("rq_affinity", "rq_affinity"),
    ("nomerges", "nomerges"),
    ("iostats", "iostats"),
    ("io_timeout", "io_timeout"),
    ("write_cache", "write_cache"),
    // Last: changing limits of the queue may raise it.
    ("read_ahead", "read_ahead_kb"),
];

/// A kernel setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// A setting of a disk's queue: its index in [`QUEUE`].
    Queue(usize),
    /// A sysctl by its name: `vm.dirty_ratio`.
    Sysctl(String),
    /// A limit of a cgroup, given by its path from the root cgroup; None: the cgroup of this process.
    Cgroup(Option<String>, Limit),
}

impl Key {
    /// None: not a kernel setting, but perhaps an option of the load. The file name of a queue's setting is accepted
    /// too.
    pub fn parse(word: &str) -> Result<Option<Self>, Refusal> {
        if let Some(name) = word.strip_prefix("sysctl:") {
            let is_plain = |part: &str| {
                !part.is_empty()
                    && part != ".."
                    && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
            };
            return match name.split(['.', '/']).all(is_plain) {
                true => Ok(Some(Self::Sysctl(name.replace('/', ".")))),
                false => Err(Refusal::Usage(format!(
                    "sysctl:{} is not the name of a sysctl: write it as sysctl(8) does, as in \
                     sysctl:vm.dirty_ratio",
                    name.escape_debug()
                ))),
            };
        }
        if let Some(name) = word.strip_prefix("cgroup:") {
            let (path, file) = match name.rsplit_once(':') {
                Some((path, file)) => (Some(path.to_string()), file),
                None => (None, name),
            };
            let limit = Limit::ALL.into_iter().find(|limit| limit.file() == file);
            let is_inside = path.as_deref().is_none_or(|path| !path.split('/').any(|part| part == ".."));
            return match limit.filter(|_| is_inside) {
                Some(limit) => Ok(Some(Self::Cgroup(path, limit))),
                None => Err(Refusal::Usage(format!(
                    "{} is not a cgroup limit: write it as cgroup:PATH:FILE with one of {}",
                    word.escape_debug(),
                    Limit::ALL.map(Limit::file).join(", ")
                ))),
            };
        }
        Ok(QUEUE.iter().position(|(name, file)| *name == word || *file == word).map(Self::Queue))
    }

    /// The names of all settings of a queue.
    pub fn words() -> impl Iterator<Item = &'static str> {
        QUEUE.iter().map(|(name, _)| *name)
    }

    pub fn name(&self) -> String {
        match self {
            Self::Queue(index) => QUEUE[*index].0.to_string(),
            Self::Sysctl(name) => format!("sysctl:{name}"),
            Self::Cgroup(Some(path), limit) => format!("cgroup:{path}:{}", limit.file()),
            Self::Cgroup(None, limit) => format!("cgroup:{}", limit.file()),
        }
    }

    /// A value as the kernel shows it after it is set.
    pub fn canonical(&self, value: &str) -> Result<String, Refusal> {
        let Self::Cgroup(_, limit) = self else { return Ok(value.to_string()) };
        limit.canonical(value).ok_or_else(|| {
            let (name, value) = (self.name(), value.escape_debug());
            Refusal::Usage(format!("{name}={value} is not a valid value: give {}", limit.example()))
        })
    }

    /// The order in which settings are changed and restored.
    pub fn rank(&self) -> usize {
        match self {
            Self::Queue(index) => *index,
            Self::Sysctl(_) => QUEUE.len(),
            Self::Cgroup(..) => QUEUE.len() + 1,
        }
    }

    pub fn needs_disk(&self) -> bool {
        matches!(self, Self::Queue(_) | Self::Cgroup(_, Limit::IoMax))
    }

    pub fn path(&self, root: &Path, disk: &str) -> PathBuf {
        match self {
            Self::Queue(index) => root.join("sys/block").join(disk).join("queue").join(QUEUE[*index].1),
            Self::Sysctl(name) => root.join("proc/sys").join(name.replace('.', "/")),
            Self::Cgroup(path, limit) => cgroup::folder(root, path.as_deref()).join(limit.file()),
        }
    }

    /// The limit, for a cgroup setting.
    pub fn limit(&self) -> Option<Limit> {
        match self {
            Self::Cgroup(_, limit) => Some(*limit),
            _ => None,
        }
    }

    /// What changing it can cost other than time.
    pub fn risk(&self) -> Option<&'static str> {
        let name = self.name();
        (name == "write_cache").then_some(
            "with write_cache \"write through\" the kernel sends no flushes: a power failure can lose data that fsync \
             reported as safe",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_files_of_the_queue_or_sysctls() {
        let path = |word: &str| {
            Key::parse(word).unwrap().map(|key| key.path(Path::new("/"), "loop7").display().to_string())
        };
        assert_eq!(path("scheduler").as_deref(), Some("/sys/block/loop7/queue/scheduler"));
        assert_eq!(path("wbt").as_deref(), Some("/sys/block/loop7/queue/wbt_lat_usec"));
        assert_eq!(path("wbt_lat_usec"), path("wbt"));
        assert_eq!(path("sysctl:vm.dirty_ratio").as_deref(), Some("/proc/sys/vm/dirty_ratio"));
        assert_eq!(path("iodepth"), None);
        let of_cgroup = path("cgroup:/a.slice/b:c.scope:io.max");
        assert_eq!(of_cgroup.as_deref(), Some("/sys/fs/cgroup/a.slice/b:c.scope/io.max"));
        assert!(path("cgroup:cpu.max").is_some_and(|path| path.ends_with("/cpu.max")), "our own");
        for wrong in ["cgroup:/a:memory.max", "cgroup:", "cgroup:/../../etc:io.max"] {
            assert!(matches!(Key::parse(wrong), Err(Refusal::Usage(_))), "{wrong}");
        }
        for wrong in ["sysctl:", "sysctl:vm..x", "sysctl:../../etc/passwd", "sysctl:vm.a b"] {
            assert!(matches!(Key::parse(wrong), Err(Refusal::Usage(_))), "{wrong}");
        }
    }
}
