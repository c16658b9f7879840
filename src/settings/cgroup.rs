//! Supports cgroup limits (version 2) that can be varied: their files, and their values as the kernel shows them.

use std::fs;
use std::path::{Path, PathBuf};

/// A file of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Per disk: `rbps`, `wbps`, `riops`, `wiops`.
    IoMax,
    IoWeight,
    CpuMax,
    MemoryHigh,
}

/// The value of `io.max` for a disk without a line.
const NO_IO_MAX: [(&str, &str); 4] = [("rbps", "max"), ("wbps", "max"), ("riops", "max"), ("wiops", "max")];

/// Default period of `cpu.max`, in microseconds.
const PERIOD: &str = "100000";

/// The kernel counts memory in pages.
const PAGE: u64 = 4096;

impl Limit {
    pub const ALL: [Self; 4] = [Self::IoMax, Self::IoWeight, Self::CpuMax, Self::MemoryHigh];

    pub fn file(self) -> &'static str {
        match self {
            Self::IoMax => "io.max",
            Self::IoWeight => "io.weight",
            Self::CpuMax => "cpu.max",
            Self::MemoryHigh => "memory.high",
        }
    }

    /// The value as the kernel shows it; None: invalid for this file.
    pub fn canonical(self, value: &str) -> Option<String> {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match self {
            Self::IoMax => io_max(value),
            Self::IoWeight => is_number(value).then(|| value.to_string()),
            Self::CpuMax => {
                let (quota, period) = value.split_once(' ').unwrap_or((value, PERIOD));
                let is_valid = (quota == "max" || is_number(quota)) && is_number(period);
                is_valid.then(|| format!("{quota} {period}"))
            }
            Self::MemoryHigh if value == "max" => Some(value.to_string()),
            Self::MemoryHigh => {
                let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
                let shift = match value[digits.len()..].to_ascii_lowercase().as_str() {
                    "" => 0,
                    "k" => 10,
                    "m" => 20,
                    "g" => 30,
                    _ => return None,
                };
                let bytes = digits.parse::<u64>().ok()?.checked_mul(1 << shift)?;
                Some((bytes / PAGE * PAGE).to_string())
            }
        }
    }

    /// Examples of valid values, for an error.
    pub fn example(self) -> &'static str {
        match self {
            Self::IoMax => "riops=1000 or 'rbps=1048576 wbps=max', or max",
            Self::IoWeight => "a number from 1 to 10000",
            Self::CpuMax => "50000 for half a CPU, or max",
            Self::MemoryHigh => "bytes as in 1g, or max",
        }
    }

    /// The first word of the value's line, for a disk with this number.
    pub fn line(self, disk: Option<&str>) -> Option<String> {
        match self {
            Self::IoMax => disk.map(str::to_string),
            Self::IoWeight => Some("default".to_string()),
            Self::CpuMax | Self::MemoryHigh => None,
        }
    }

    /// The value if the file has no such line.
    pub fn absent(self) -> Option<String> {
        (self == Self::IoMax).then(|| io_max("max")).flatten()
    }
}

/// All four limits; those that are not given are `max`.
fn io_max(value: &str) -> Option<String> {
    let mut limits = NO_IO_MAX;
    for word in value.split_whitespace().filter(|word| *word != "max") {
        let (name, limit) = word.split_once('=')?;
        let is_valid = limit == "max" || limit.parse::<u64>().is_ok();
        limits.iter_mut().find(|(known, _)| *known == name).filter(|_| is_valid)?.1 = limit;
    }
    Some(limits.map(|(name, limit)| format!("{name}={limit}")).join(" "))
}

/// The directory of a cgroup by its path from the root cgroup; None: the cgroup of this process.
pub fn folder(root: &Path, path: Option<&str>) -> PathBuf {
    let own = || {
        let text = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").to_string()
    };
    let path = path.map_or_else(own, str::to_string);
    root.join("sys/fs/cgroup").join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_as_the_kernel_shows_them() {
        let of = |limit: Limit, value: &str| limit.canonical(value);
        let some = |text: &str| Some(text.to_string());
        assert_eq!(of(Limit::IoMax, "riops=1000"), some("rbps=max wbps=max riops=1000 wiops=max"));
        assert_eq!(of(Limit::IoMax, "max"), Limit::IoMax.absent());
        assert_eq!(of(Limit::IoMax, "wbps=5 rbps=max"), some("rbps=max wbps=5 riops=max wiops=max"));
        assert_eq!(of(Limit::CpuMax, "50000"), some("50000 100000"));
        assert_eq!(of(Limit::CpuMax, "max 20000"), some("max 20000"));
        assert_eq!(of(Limit::MemoryHigh, "1g"), some("1073741824"));
        assert_eq!(of(Limit::MemoryHigh, "5000"), some("4096"));
        assert_eq!(of(Limit::IoWeight, "200"), some("200"));
        for (limit, wrong) in [
            (Limit::IoMax, "1000"),
            (Limit::IoMax, "riops=x"),
            (Limit::IoMax, "x=1"),
            (Limit::CpuMax, "half"),
            (Limit::MemoryHigh, "1x"),
            (Limit::MemoryHigh, "99999999999g"),
            (Limit::IoWeight, "heavy"),
        ] {
            assert_eq!(of(limit, wrong), None, "{wrong}");
        }
    }
}
