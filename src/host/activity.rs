//! Takes one sample of the machine's activity from the kernel's counters: tasks, CPU time, memory, paging, disks and
//! interrupts. It needs no privileges.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attribute::{file, names};
use super::counters::Counters;
use super::cpu::field;
use super::cpu_time::{CpuTime, parse_stat};
use super::{BlockDevice, Host};

/// Memory of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    pub total_bytes: u64,
    /// The rest: total less the others.
    pub used_bytes: u64,
    pub free_bytes: u64,
    /// Pages of block devices themselves.
    pub buffers_bytes: u64,
    /// Pages of files, and shared memory.
    pub cached_bytes: u64,
}

impl Memory {
    pub fn new(total_bytes: u64, free_bytes: u64, buffers_bytes: u64, cached_bytes: u64) -> Self {
        let others = free_bytes.saturating_add(buffers_bytes).saturating_add(cached_bytes);
        let used_bytes = total_bytes.saturating_sub(others);
        Self { total_bytes, used_bytes, free_bytes, buffers_bytes, cached_bytes }
    }
}

/// Two clocks: the second one continues while the machine is suspended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Clocks {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// CLOCK_BOOTTIME.
    pub boot_ns: u64,
}

/// One sample. A value that the kernel does not give is None.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Activity {
    pub clocks: Clocks,
    pub cpus: BTreeMap<u32, CpuTime>,
    /// Tasks that run or are runnable, without the task that reads this.
    pub running: Option<u64>,
    /// Tasks that wait for a disk.
    pub blocked: Option<u64>,
    /// Processes and threads that were created since boot. A later sample continues the same count.
    pub processes: Option<u64>,
    pub context_switches: Option<u64>,
    pub interrupts: Option<u64>,
    pub memory: Option<Memory>,
    /// Pages swapped in and out.
    pub swapped: Option<(u64, u64)>,
    pub disks: BTreeMap<String, Counters>,
}

impl Activity {
    /// Samples these disks below `root`; a disk that is gone is left out. `now` is called between the reads, because
    /// the host modules have no clock.
    pub fn read(root: &Path, disks: &[String], now: impl Fn() -> Clocks) -> Self {
        let mut activity = parse(&file(&root.join("proc/stat")).unwrap_or_default());
        activity.clocks = now();
        activity.memory = file(&root.join("proc/meminfo")).ok().and_then(|info| memory(&info));
        activity.swapped = file(&root.join("proc/vmstat")).ok().and_then(|vmstat| swapped(&vmstat));
        let counters = |name: &String| Some((name.clone(), Counters::read(root, name).ok()?));
        activity.disks = disks.iter().filter_map(counters).collect();
        activity
    }
}

/// Parses the text of `/proc/stat`.
fn parse(stat: &str) -> Activity {
    let reading = parse_stat(stat);
    let value = |key: &str| {
        let rest = stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
        rest.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    Activity {
        cpus: reading.cpus,
        // This process itself runs while it reads.
        running: value("procs_running").map(|running| running.saturating_sub(1)),
        blocked: value("procs_blocked"),
        processes: reading.processes,
        context_switches: reading.context_switches,
        // The first number is the sum of all interrupts, including those without a column of their own.
        interrupts: value("intr"),
        ..Activity::default()
    }
}

fn memory(info: &str) -> Option<Memory> {
    let bytes =
        |name: &str| field(info, name)?.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024);
    Some(Memory::new(bytes("MemTotal")?, bytes("MemFree")?, bytes("Buffers")?, bytes("Cached")?))
}

fn swapped(vmstat: &str) -> Option<(u64, u64)> {
    let value = |key: &str| vmstat.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
    Some((value("pswpin ")?, value("pswpout ")?))
}

/// The disks at the bottom of the stack: over them, each I/O counts once. A partition is part of its disk. I/O to a
/// device-mapper device, a RAID array, a loop device or a multipath head arrives at the disks below.
pub fn whole_disks(host: &Host) -> Vec<String> {
    // An unused disk that has its counters switched off has nothing to report.
    let silent = |device: &BlockDevice| device.iostats == Some(false) && device.is_placeholder();
    let bottom = |device: &&BlockDevice| device.layers.is_empty() && !silent(device);
    host.devices.iter().filter(bottom).map(|device| device.name.clone()).collect()
}

/// Those of these disks and partitions that lie on none of the others, directly or indirectly.
pub fn without_upper(host: &Host, disks: &[String]) -> Vec<String> {
    let stands_on_another = |name: &String| {
        let Some(device) = host.device(name) else { return false };
        let below = super::select::below(host, device);
        let slaves = std::iter::once(device).chain(below.iter().copied()).flat_map(|disk| &disk.slaves);
        below.iter().map(|lower| &lower.name).chain(slaves).any(|lower| disks.contains(lower))
    };
    disks.iter().filter(|name| !stands_on_another(name)).cloned().collect()
}

/// The names in `/sys/block`: if they change, disks were added or removed.
pub fn disk_names(root: &Path) -> Vec<String> {
    names(&root.join("sys/block"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_counters_have_their_place() {
        let stat = "cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\nintr 4711 1 2 3\nctxt 99\nbtime 1\n\
                    processes 77\nprocs_running 4\nprocs_blocked 2\nsoftirq 5 1\n";
        let seen = parse(stat);
        assert_eq!((seen.running, seen.blocked), (Some(3), Some(2)), "without the reader");
        assert_eq!(
            (seen.processes, seen.context_switches, seen.interrupts),
            (Some(77), Some(99), Some(4711))
        );
        assert_eq!(seen.cpus.len(), 1);
        let info = "MemTotal:  1000 kB\nMemFree: 100 kB\nMemAvailable: 5 kB\nBuffers: 20 kB\nCached: 300 kB\n\
                    SwapCached: 9 kB\n";
        let memory = memory(info).unwrap();
        assert_eq!(
            (memory.free_bytes, memory.cached_bytes, memory.used_bytes),
            (100 << 10, 300 << 10, 580 << 10)
        );
        assert_eq!(swapped("pswpin 3\npswpout 4\n"), Some((3, 4)));
    }

    #[test]
    fn what_is_not_told_is_not_zero() {
        assert_eq!(parse(""), Activity::default());
        assert_eq!(parse("procs_running x\nintr\n"), Activity::default());
        assert_eq!((memory("MemTotal: 5 kB\n"), swapped("pswpin 3\n")), (None, None));
        assert_eq!(Memory::new(1, 2, 0, 0).used_bytes, 0);
    }

    fn host(layers: &[(&str, &[&str])]) -> Host {
        let device = |(name, below): &(&str, &[&str])| BlockDevice {
            name: name.to_string(),
            layers: below.iter().map(ToString::to_string).collect(),
            ..BlockDevice::default()
        };
        Host { devices: layers.iter().map(device).collect(), ..Host::default() }
    }

    #[test]
    fn io_is_counted_once_whatever_lies_on_what() {
        let host = host(&[
            ("dm-0", &["md0"]),
            ("dm-1", &["dm-0"]),
            ("loop0", &["vda"]),
            ("loop1", &[]),
            ("md0", &["vdb", "vdc"]),
            ("nvme0c0n1", &[]),
            ("nvme0n1", &["nvme0c0n1"]),
            ("vda", &[]),
            ("vdb", &[]),
            ("vdc", &[]),
        ]);
        assert_eq!(whole_disks(&host), ["loop1", "nvme0c0n1", "vda", "vdb", "vdc"]);
        let mut uncounted = host.clone();
        uncounted.devices[3].driver = Some("loop".into());
        uncounted.devices[3].iostats = Some(false);
        assert_eq!(whole_disks(&uncounted), ["nvme0c0n1", "vda", "vdb", "vdc"]);
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(without_upper(&host, &names(&["dm-1", "vdb", "vda"])), ["vdb", "vda"]);
        assert_eq!(without_upper(&host, &names(&["dm-1", "dm-0"])), ["dm-0"]);
        assert_eq!(without_upper(&host, &names(&["dm-1", "vda", "gone"])), ["dm-1", "vda", "gone"]);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let text = String::from_utf8_lossy(&bytes);
            let _ = (parse(&text), memory(&text), swapped(&text));
        }
    }
}
