//! Lists the BPF objects that this process holds in the kernel, and checks whether they are gone after detaching.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use libbpf_rs::libbpf_sys;

/// The kernel frees programs in a worker, some time after the last reference is dropped.
const PATIENCE: Duration = Duration::from_secs(5);

/// Kinds of objects; ids of a kind are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ObjectKind {
    Program,
    Link,
    Map,
}

impl ObjectKind {
    /// The key in `/proc/self/fdinfo/N`. A link's file also names its program, so links come first.
    const LINES: [(&'static str, Self); 3] =
        [("link_id:", Self::Link), ("prog_id:", Self::Program), ("map_id:", Self::Map)];

    /// The next id after `id` in the kernel's list; None at its end.
    fn next(self, id: u32) -> io::Result<Option<u32>> {
        let ask = match self {
            Self::Program => libbpf_sys::bpf_prog_get_next_id,
            Self::Link => libbpf_sys::bpf_link_get_next_id,
            Self::Map => libbpf_sys::bpf_map_get_next_id,
        };
        let mut next = 0;
        // SAFETY: takes a number, and writes one to an address that lives across the call.
        match unsafe { ask(id, &raw mut next) } {
            0 => Ok(Some(next)),
            failed if failed == -libc::ENOENT => Ok(None),
            failed => Err(io::Error::from_raw_os_error(-failed)),
        }
    }
}

/// Programs, links and maps, by id.
#[derive(Debug, Clone, Default)]
pub struct LoadedObjects(BTreeSet<(ObjectKind, u32)>);

impl LoadedObjects {
    /// The objects of which this process has descriptors.
    pub fn by_this_process() -> io::Result<Self> {
        let mut held = BTreeSet::new();
        for entry in fs::read_dir("/proc/self/fdinfo")? {
            // The directory's own descriptor is listed, and closed by now.
            let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
            held.extend(id(&text));
        }
        Ok(Self(held))
    }

    /// Number of objects.
    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// How many of them the kernel still has after the time that it needs to free them. Fails if its lists cannot be
    /// read (CAP_SYS_ADMIN).
    pub fn left(&self) -> io::Result<u64> {
        let begin = Instant::now();
        loop {
            let left = self.listed()?;
            if left == 0 || begin.elapsed() > PATIENCE {
                return Ok(left);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// How many of them are in the kernel's lists now.
    pub fn listed(&self) -> io::Result<u64> {
        let mut found = 0;
        for (_, kind) in ObjectKind::LINES {
            let mut id = 0;
            while let Some(next) = kind.next(id)? {
                found += u64::from(self.0.contains(&(kind, next)));
                id = next;
            }
        }
        Ok(found)
    }
}

/// The object of a descriptor, from its lines in `/proc`.
fn id(text: &str) -> Option<(ObjectKind, u32)> {
    ObjectKind::LINES.into_iter().find_map(|(key, kind)| {
        let line = text.lines().find_map(|line| line.strip_prefix(key))?;
        Some((kind, line.trim().parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_known_by_its_lines() {
        let link = "pos:\t0\nlink_type:\ttracing\nlink_id:\t7\nprog_tag:\tx\nprog_id:\t99\n";
        assert_eq!(id(link), Some((ObjectKind::Link, 7)));
        assert_eq!(id("prog_type:\t26\nprog_id:\t99\n"), Some((ObjectKind::Program, 99)));
        assert_eq!(id("map_type:\t2\nmap_id:\t12\n"), Some((ObjectKind::Map, 12)));
        assert_eq!(id("pos:\t0\nflags:\t02\n"), None);
    }
}
