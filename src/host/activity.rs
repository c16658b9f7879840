//! What a machine is busy with at one moment: tasks, CPU time, memory, paging, disks, interrupts, by the kernel's own
//! counters. It needs no rights.

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
    /// What is none of the others.
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

/// Two clocks: the second one goes on while the machine is suspended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Clocks {
    /// CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// CLOCK_BOOTTIME.
    pub boot_ns: u64,
}

/// One reading. What the kernel does not tell is None.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Activity {
    pub clocks: Clocks,
    pub cpus: BTreeMap<u32, CpuTime>,
    /// Tasks that run or want to, without the one that reads this.
    pub running: Option<u64>,
    /// Tasks that wait for a disk.
    pub blocked: Option<u64>,
    /// Processes and threads that were made since the machine started; so are the next ones counted.
    pub processes: Option<u64>,
    pub context_switches: Option<u64>,
    pub interrupts: Option<u64>,
    pub memory: Option<Memory>,
    /// Pages swapped in and out.
    pub swapped: Option<(u64, u64)>,
    pub disks: BTreeMap<String, Counters>,
}

impl Activity {
    /// Reads below `root`, of these disks; one that is gone is not in it. `now` is asked in the middle: this room has
    /// no clock.
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

/// The text of `/proc/stat`.
fn parse(stat: &str) -> Activity {
    let reading = parse_stat(stat);
    let value = |key: &str| {
        let rest = stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
        rest.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    Activity {
        cpus: reading.cpus,
        // This very process runs while it reads.
        running: value("procs_running").map(|running| running.saturating_sub(1)),
        blocked: value("procs_blocked"),
        processes: reading.processes,
        context_switches: reading.context_switches,
        // The first number is the sum of all, those without a line of their own among them.
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

/// The disks by which all I/O is counted once: those that stand on no other. Partitions are a part of theirs, and what
/// device mapper, RAID, a loop device's file or a multipath head do comes to the disks below.
pub fn whole_disks(host: &Host) -> Vec<String> {
    // One that nobody uses, and that could not be counted if somebody did, has nothing to say.
    let silent = |device: &BlockDevice| device.iostats == Some(false) && device.is_placeholder();
    let bottom = |device: &&BlockDevice| device.layers.is_empty() && !silent(device);
    host.devices.iter().filter(bottom).map(|device| device.name.clone()).collect()
}

/// Of these disks and partitions, those that stand on none of the others, directly or not.
pub fn without_upper(host: &Host, disks: &[String]) -> Vec<String> {
    let stands_on_another = |name: &String| {
        let Some(device) = host.device(name) else { return false };
        let below = super::select::below(host, device);
        let slaves = std::iter::once(device).chain(below.iter().copied()).flat_map(|disk| &disk.slaves);
        below.iter().map(|lower| &lower.name).chain(slaves).any(|lower| disks.contains(lower))
    };
    disks.iter().filter(|name| !stands_on_another(name)).cloned().collect()
}

/// The names in `/sys/block`: when they change, disks came or went.
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
