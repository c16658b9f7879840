//! Renders the machine's devices as a tree: disks first, with the devices stacked on them indented below.

use super::{bytes, clean, common_bytes, counted, gigabytes, significant, time};
use crate::envelope::Missing;
use crate::host::absence;
use crate::host::cpu::ranges;
use crate::host::frequency::Frequency;
use crate::host::idle::{Idle, IdleState, Wakeup};
use crate::host::iocost::{IoCost, Target};
use crate::host::nvme::Choice;
use crate::host::nvme::identity::Identity;
use crate::host::pci::sharing::{self, RootComplex};
use crate::host::select::Selection;
use crate::host::smt::Smt;
use crate::host::warnings::Warning;
use crate::host::{BlockDevice, Host, Link, NumaNode, Partition, Throttle};

const HEADER: [&str; 8] =
    ["device", "size", "driver", "scheduler", "queues×tags", "max I/O KiB", "NUMA", "mounted at"];
/// Numbers are right-aligned, words left-aligned.
const RIGHT: [bool; 8] = [false, true, false, false, true, true, true, false];
/// The column of mount points.
const MOUNTED: usize = HEADER.len() - 1;
/// From here on, a limit of the hardware is none: drivers set the largest number.
const NO_LIMIT: u64 = u32::MAX as u64;
/// Further mount points (containers have hundreds of bind mounts) are only counted.
const MOUNTS_SHOWN: usize = 4;
/// Limits of further cgroups are only counted.
const LIMITS_SHOWN: usize = 4;
/// Further sets of CPUs with different settings are only counted.
const SETS_SHOWN: usize = 4;
/// Line width of the prose below the table.
const WIDTH: usize = 80;

/// The whole view.
pub fn devices(host: &Host, selection: &Selection<'_>, warnings: &[Warning], missing: &[Missing]) -> String {
    let mut out = format!("{}\n{}\n", machine(host), processors(host));
    if selection.devices.is_empty() {
        out.push_str("no block device in use\n");
    } else {
        let unit = SizeUnit::common(&selection.devices);
        out.push_str(&columns(&Tree::rows(&selection.devices, unit), unit.1));
        out.push('\n');
        selection.devices.iter().for_each(|device| out.push_str(&details(host, device)));
        let shared = shared(&selection.devices);
        // In a virtual machine the links and root complexes are not the real ones.
        if !shared.is_empty() && host.virtualization.is_none() {
            out.push_str(&format!("\n{shared}"));
        }
    }
    if !warnings.is_empty() || !missing.is_empty() {
        out.push('\n');
    }
    for warning in warnings {
        out.push_str(&format!("warning: {}: {}\n", clean(&warning.device), clean(&warning.sentence)));
        if let Some(remedy) = &warning.remedy {
            out.push_str(&format!("    remedy: {}\n", clean(remedy)));
        }
    }
    for line in missing {
        let remedy = line.remedy.as_ref().map_or(String::new(), |remedy| format!("; {remedy}"));
        out.push_str(&format!("missing: {}\n", clean(&format!("{}{remedy}", line.why))));
    }
    if !selection.placeholders.is_empty() {
        let devices = counted(selection.placeholders.len() as u64, "empty device");
        let mut drivers: Vec<String> =
            selection.placeholders.iter().filter_map(|device| device.driver.as_deref().map(clean)).collect();
        drivers.dedup();
        let drivers = drivers.join(", ");
        out.push_str(&format!("\n{devices} not shown ({drivers}): use --all\n"));
    }
    out
}

/// One line with what a reader of a pasted report asks first.
fn machine(host: &Host) -> String {
    let mut parts = vec![format!("{}, Linux {}", clean(&host.hostname), clean(&host.kernel))];
    parts.extend(host.cpu_model.as_deref().map(clean));
    parts.push(counted(host.cpus_online.into(), "CPU"));
    parts.push(counted(host.numa_nodes.into(), "NUMA node"));
    parts.extend(host.memory_bytes.map(|size| format!("{} of memory", bytes(size as f64))));
    parts.extend(host.virtualization.as_deref().map(|name| format!("virtual machine ({})", clean(name))));
    fold("", parts)
}

/// CPU frequency and idle settings, and the NUMA nodes: a line each, if there is something to report.
fn processors(host: &Host) -> String {
    let mut out = fold("CPUs: ", [threads(&host.smt), speeds(host)].concat()) + "\n";
    if let Some(idle) = &host.idle {
        let driver = idle.driver.as_deref().map_or(String::new(), |name| format!(" of {}", clean(name)));
        let governor =
            idle.governor.as_deref().map_or(String::new(), |name| format!(" (governor {})", clean(name)));
        out.push_str(&fold(
            &format!("idle states{driver}{governor} with wake-up latency: "),
            sleeps(idle, host.cpus_online),
        ));
        out.push('\n');
    }
    if host.nodes.len() > 1 {
        let node = |node: &NumaNode| {
            let memory = host.node_memory.get(&node.node);
            let memory = memory.map_or("memory not reported".to_string(), |size| bytes(*size as f64));
            format!("{} with {memory} and CPUs {}", node.node, ranges(&node.cpus))
        };
        out.push_str(&fold("NUMA nodes: ", host.nodes.iter().map(node).collect()));
        out.push('\n');
    }
    out
}

/// `8 cores with 16 threads, SMT on`.
fn threads(smt: &Smt) -> Vec<String> {
    let mut parts: Vec<String> = smt.cores.map(|cores| counted(cores.into(), "core")).into_iter().collect();
    let word = match (smt.control.as_deref(), smt.active) {
        (Some("on"), Some(false)) => Some("SMT on, but one thread a core".to_string()),
        (Some("on"), _) => Some("SMT on".to_string()),
        (Some("off"), _) => Some("SMT off".to_string()),
        (Some("forceoff"), _) => Some("SMT forced off".to_string()),
        (Some("notsupported"), _) => Some("no SMT".to_string()),
        (Some("notimplemented") | None, Some(true)) => Some("SMT on".to_string()),
        (Some("notimplemented") | None, Some(false)) => Some("no SMT".to_string()),
        (Some("notimplemented") | None, None) => None,
        (Some(other), _) => Some(format!("SMT {}", clean(other))),
    };
    parts.extend(word);
    parts
}

/// `powersave of intel_pstate (energy preference balance_performance)`, for each set of CPUs with different settings; or why it
/// is unknown.
fn speeds(host: &Host) -> Vec<String> {
    let several = host.frequencies.len() > 1;
    let speed = |set: &Frequency| {
        let word = |value: &Option<String>| value.as_deref().map_or("unknown".to_string(), clean);
        let mut text = format!("governor {} of {}", word(&set.governor), word(&set.driver));
        if let Some(preference) = &set.preference {
            text.push_str(&format!(" (energy preference {})", clean(preference)));
        }
        if let (Some(low), Some(high)) = (set.min_khz, set.max_khz) {
            text.push_str(&format!(" at {} to {} GHz", gigahertz(low), gigahertz(high)));
        }
        if several {
            text.push_str(&format!(" on CPUs {}", ranges(&set.cpus)));
        }
        text
    };
    let mut parts: Vec<String> = host.frequencies.iter().take(SETS_SHOWN).map(speed).collect();
    if host.frequencies.len() > SETS_SHOWN {
        parts.push(format!("and {} more settings", host.frequencies.len() - SETS_SHOWN));
    }
    let absent = absence::of_cpus(host).into_iter();
    parts.extend(absent.filter_map(|absence| match &absence.what[..] {
        "idle" => Some(format!("no idle states ({})", absence.why)),
        "frequency" => Some(format!("no frequency governor ({})", absence.why)),
        _ => None,
    }));
    parts
}

fn gigahertz(khz: u64) -> String {
    significant(khz as f64 / 1e6, 2)
}

/// `C6 133 µs (off on 2 CPUs)`: each idle state with its maximum wake-up latency.
fn sleeps(idle: &Idle, online: u32) -> Vec<String> {
    let state = |state: &IdleState| {
        let mut text = state.name.as_deref().map_or(format!("state {}", state.state), clean);
        if let Some(us) = state.exit_us {
            text.push_str(&format!(" {us} µs"));
        }
        match state.off_cpus.len() {
            0 => {}
            off if off == online as usize => text.push_str(" (off)"),
            off => text.push_str(&format!(" (off on {})", counted(off as u64, "CPU"))),
        }
        text
    };
    let mut parts: Vec<String> = idle.states.iter().map(state).collect();
    if let Wakeup::Limit(us) = idle.wakeup {
        parts.push(format!("limited to {us} µs by /dev/cpu_dma_latency"));
    }
    parts
}

/// Joins parts to lines of at most [`WIDTH`] columns, if a part fits; continuation lines are indented.
fn fold(start: &str, parts: Vec<String>) -> String {
    let mut out = start.to_string();
    let mut column = start.chars().count();
    let last = parts.len().saturating_sub(1);
    for (at, part) in parts.into_iter().enumerate() {
        let length = part.chars().count() + 1;
        if at > 0 && column + length + 1 > WIDTH {
            out.push_str("\n    ");
            column = 4;
        } else if at > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(&part);
        if at < last {
            out.push(',');
        }
        column += length;
    }
    out
}

/// Traverses the shown devices.
struct Tree<'a> {
    shown: &'a [&'a BlockDevice],
    unit: SizeUnit,
    seen: Vec<&'a str>,
    rows: Vec<Vec<String>>,
}

/// The common unit of all sizes, and its bytes.
#[derive(Clone, Copy)]
struct SizeUnit(f64, &'static str);

impl SizeUnit {
    fn common(shown: &[&BlockDevice]) -> Self {
        let partitions = shown.iter().flat_map(|device| &device.partitions);
        let sizes = shown.iter().map(|disk| disk.size_bytes).chain(partitions.map(|part| part.size_bytes));
        let (scale, unit) = common_bytes(sizes.map(|bytes| bytes as f64));
        Self(scale, unit)
    }

    fn of(self, bytes: u64) -> String {
        if bytes == 0 { "-".to_string() } else { rounded(significant(bytes as f64 / self.0, 3)) }
    }
}

/// As in `queue/max_sectors_kb`.
fn kib(bytes: u64) -> String {
    if bytes == 0 { "-".to_string() } else { (bytes / 1024).to_string() }
}

/// Sizes are mostly powers of two: `4`, not `4.00`.
fn rounded(figure: String) -> String {
    match figure.split_once('.') {
        Some((whole, rest)) if rest.bytes().all(|digit| digit == b'0') => whole.to_string(),
        _ => figure,
    }
}

impl<'a> Tree<'a> {
    fn rows(shown: &'a [&'a BlockDevice], unit: SizeUnit) -> Vec<Vec<String>> {
        let mut tree = Self { shown, unit, seen: Vec::new(), rows: Vec::new() };
        let is_shown = |name: &String| shown.iter().any(|device| device.name == *name);
        for device in shown.iter().filter(|device| !device.layers.iter().any(is_shown)) {
            tree.disk(device, "", "");
        }
        // A cycle of layers has no lowest device; each still gets its row.
        for device in shown {
            if !tree.seen.contains(&device.name.as_str()) {
                tree.disk(device, "", "");
            }
        }
        tree.rows
    }

    /// `lead` is the prefix of the name, `below` that of the names of devices stacked on it.
    fn disk(&mut self, device: &'a BlockDevice, lead: &str, below: &str) {
        let name = match &device.alias {
            Some(alias) => format!("{lead}{} ({})", clean(&device.name), clean(alias)),
            None => format!("{lead}{}", clean(&device.name)),
        };
        // An array has a row under each of its disks, but its figures are shown once.
        if self.seen.contains(&device.name.as_str()) {
            let mut row = vec![String::new(); HEADER.len()];
            (row[0], row[MOUNTED]) = (name, "see above".to_string());
            self.rows.push(row);
            return;
        }
        self.seen.push(&device.name);
        self.rows.push(disk_cells(name, device, self.unit));
        let through: Vec<&String> =
            device.partitions.iter().flat_map(|partition| &partition.holders).collect();
        let direct: Vec<&'a BlockDevice> =
            self.above(&device.holders).filter(|upper| !through.contains(&&upper.name)).collect();
        let last = device.partitions.len() + direct.len();
        for (at, partition) in device.partitions.iter().enumerate() {
            let (branch, stem) = branches(at + 1 == last, below);
            let name = format!("{branch}{}", clean(&partition.name));
            self.rows.push(partition_cells(name, partition, self.unit));
            let uppers: Vec<&'a BlockDevice> = self.above(&partition.holders).collect();
            self.all(&uppers, &stem);
        }
        self.all(&direct, below);
    }

    fn all(&mut self, devices: &[&'a BlockDevice], below: &str) {
        for (at, device) in devices.iter().enumerate() {
            let (branch, stem) = branches(at + 1 == devices.len(), below);
            self.disk(device, &branch, &stem);
        }
    }

    fn above(&self, names: &'a [String]) -> impl Iterator<Item = &'a BlockDevice> + use<'a> {
        let shown = self.shown;
        names.iter().filter_map(move |name| shown.iter().find(|device| device.name == *name).copied())
    }
}

/// The prefixes of a branch's name, and of everything below it.
fn branches(last: bool, below: &str) -> (String, String) {
    if last {
        (format!("{below}└─"), format!("{below}  "))
    } else {
        (format!("{below}├─"), format!("{below}│ "))
    }
}

fn disk_cells(name: String, device: &BlockDevice, unit: SizeUnit) -> Vec<String> {
    let in_partition = |path: &&String, list: fn(&Partition) -> &Vec<String>| {
        device.partitions.iter().any(|partition| list(partition).contains(path))
    };
    let mounts: Vec<&String> =
        device.mounted_at.iter().filter(|path| !in_partition(path, |p| &p.mounted_at)).collect();
    let swaps: Vec<&String> = device.swaps.iter().filter(|path| !in_partition(path, |p| &p.swaps)).collect();
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_string());
    vec![
        name,
        unit.of(device.size_bytes),
        or_dash(device.driver.as_deref().map(clean)),
        or_dash(device.scheduler.as_deref().map(clean)),
        queues(device),
        kib(device.max_request_bytes),
        or_dash(device.numa_node.map(|node| node.to_string())),
        places(&mounts, &swaps),
    ]
}

fn partition_cells(name: String, partition: &Partition, unit: SizeUnit) -> Vec<String> {
    let mut row = vec![String::new(); HEADER.len()];
    row[0] = name;
    row[1] = unit.of(partition.size_bytes);
    row[MOUNTED] =
        places(&partition.mounted_at.iter().collect::<Vec<_>>(), &partition.swaps.iter().collect::<Vec<_>>());
    row
}

fn places(mounts: &[&String], swaps: &[&String]) -> String {
    let mut parts: Vec<String> = mounts.iter().take(MOUNTS_SHOWN).map(|path| clean(path)).collect();
    if mounts.len() > MOUNTS_SHOWN {
        parts.push(format!("and {} more", mounts.len() - MOUNTS_SHOWN));
    }
    // The device's own name adds nothing; the name of a swap file does.
    parts.extend(swaps.iter().map(|name| {
        if name.starts_with("/dev/") { "[swap]".to_string() } else { format!("[swap {}]", clean(name)) }
    }));
    parts.join(", ")
}

/// `4×1023`; a range if queues differ.
fn queues(device: &BlockDevice) -> String {
    let tags = || device.queues.iter().map(|queue| queue.tags);
    match (tags().min(), tags().max()) {
        (Some(least), Some(most)) if least == most => format!("{}×{most}", device.queues.len()),
        (Some(least), Some(most)) => format!("{}×{least}-{most}", device.queues.len()),
        _ => "-".to_string(),
    }
}

/// `8 GT/s x4 (could be 16 x4)` if the drive supports more.
fn link(link: &Link) -> String {
    let now = format!("{} GT/s x{}", link.speed_gts, link.width);
    let speed = link.max_speed_gts.unwrap_or(link.speed_gts);
    let width = link.max_width.unwrap_or(link.width);
    if speed > link.speed_gts || width > link.width {
        format!("{now} (could be {speed} x{width})")
    } else {
        now
    }
}

/// Limits and sizes are mostly powers of two: `4 MiB`, not `4.00 MiB`.
fn size(value: u64) -> String {
    if value == 0 {
        return "-".to_string();
    }
    bytes(value as f64).replace(".00 ", " ").replace(".0 ", " ")
}

/// Details that do not fit into the table, one line per device; empty if there are none.
fn details(host: &Host, device: &BlockDevice) -> String {
    let mut parts = Vec::new();
    parts.extend(device.model.as_deref().map(clean));
    parts.extend(device.serial.as_deref().map(|serial| format!("serial {}", clean(serial))));
    parts.extend(device.firmware.as_deref().map(|firmware| format!("firmware {}", clean(firmware))));
    parts.extend(device.identity.iter().flat_map(told));
    if let Some(address) = &device.pci_address {
        let root = device
            .root_complex
            .as_deref()
            .map(|root| format!(" (root complex {})", clean(root)))
            .unwrap_or_default();
        parts.push(format!("PCI {}{root}", clean(address)));
    }
    parts.extend(device.link.iter().flat_map(|of| {
        let raw = significant(of.raw_bytes_per_second / 1e9, 3);
        let usable = gigabytes(of.usable_bytes_per_second);
        // An emulated drive is as fast as its emulator.
        let whose = if host.virtualization.is_some() { " (as the hypervisor shows it)" } else { "" };
        [format!("PCIe link {}", link(of)), format!("{raw} GB/s raw and {usable} usable{whose}")]
    }));
    // The capacity of the drive's own link is useless if a later link is narrower.
    let narrowest =
        device.hops.iter().min_by(|a, b| a.link.raw_bytes_per_second.total_cmp(&b.link.raw_bytes_per_second));
    let narrowest = narrowest.filter(|hop| {
        host.virtualization.is_none()
            && device
                .link
                .as_ref()
                .is_some_and(|own| hop.link.raw_bytes_per_second < own.raw_bytes_per_second)
    });
    parts.extend(narrowest.map(|hop| {
        let usable = gigabytes(hop.link.usable_bytes_per_second);
        format!("narrowest link above it: {} at {}, {usable} usable", clean(&hop.function), link(&hop.link))
    }));
    parts.extend(
        device.link.as_ref().and_then(|link| link.payload_bytes).map(|size| format!("PCIe payload {size} B")),
    );
    parts.extend(device.link.as_ref().and_then(|link| link.aspm).map(|aspm| format!("ASPM {}", aspm.name())));
    parts.extend(device.iommu.as_deref().map(|mode| format!("IOMMU {}", clean(mode))));
    if !device.vectors.is_empty() {
        let used = device.vectors.len() as u64;
        parts.push(match device.msix_vectors {
            Some(all) => format!("{used} of {} in use", counted(all.into(), "interrupt vector")),
            None => counted(used, "interrupt vector"),
        });
    }
    let poll_queues = device.poll_queues.filter(|count| *count > 0);
    parts.extend(poll_queues.map(|count| counted(count.into(), "poll queue")));
    if device.hidden {
        parts.push("hidden path of a multipath drive".to_string());
    }
    parts.extend(device.backing_file.as_deref().map(|file| format!("backing file {}", clean(file))));
    if !device.slaves.is_empty() {
        let slaves: Vec<String> = device.slaves.iter().map(|name| clean(name)).collect();
        parts.push(format!("stacked on {}", slaves.join(", ")));
    }
    if device.max_hw_request_bytes > device.max_request_bytes {
        parts.push(match device.max_hw_request_bytes {
            most if most >= NO_LIMIT => "no I/O size limit in hardware".to_string(),
            most => format!("max I/O in hardware {}", size(most)),
        });
    }
    parts.extend(device.requests.map(|requests| format!("nr_requests {requests}")));
    if device.tells("read_ahead_kb") {
        parts.push(format!(
            "read-ahead {}",
            if device.read_ahead_bytes == 0 { "off".to_string() } else { size(device.read_ahead_bytes) }
        ));
    }
    if device.logical_block_bytes > 0 {
        let (logical, physical) = (device.logical_block_bytes, device.physical_block_bytes);
        parts.push(format!("sectors {logical}/{physical} B (logical/physical)"));
    }
    parts.extend(device.write_cache.as_deref().map(|mode| format!("write cache: {}", clean(mode))));
    parts.extend(device.writeback_throttle_us.map(|us| match us {
        0 => "write-back throttling off".to_string(),
        us => format!("write-back throttling keeps reads below {}", time(us.saturating_mul(1_000))),
    }));
    parts.extend(settings(device));
    parts.extend(limits(host, device));
    parts.extend(host.costs.iter().filter(|cost| cost.device == device.name).filter_map(cost));
    fold(&format!("{}: ", clean(&device.name)), parts) + "\n"
}

/// Queue settings that differ from the kernel's defaults, by their sysfs names.
fn settings(device: &BlockDevice) -> Vec<String> {
    let mut parts = Vec::new();
    parts.extend(device.rq_affinity.filter(|value| *value != 1).map(|value| format!("rq_affinity {value}")));
    parts.extend(device.nomerges.filter(|value| *value != 0).map(|value| format!("nomerges {value}")));
    parts.extend(device.iostats.filter(|on| !on).map(|_| "iostats 0".to_string()));
    parts
}

/// Facts that an NVMe drive reports.
fn told(identity: &Identity) -> Vec<String> {
    let mut parts = Vec::new();
    parts.extend(identity.transfer_bytes.map(|most| format!("max transfer {} (MDTS)", size(most))));
    parts.extend(identity.usage.map(|of| {
        format!("{} % of the namespace in use", significant(of.used as f64 / of.size as f64 * 100.0, 3))
    }));
    parts.extend(
        identity
            .metadata_bytes
            .filter(|bytes| *bytes > 0)
            .map(|bytes| format!("{bytes} B of metadata per block")),
    );
    // A single format is no choice, and its block size is listed with the other limits.
    if let Some(formats) = identity.formats.as_ref().filter(|all| all.len() > 1) {
        let format = |choice: &Choice| {
            let metadata = match choice.metadata_bytes {
                0 => String::new(),
                bytes => format!("+{bytes}"),
            };
            let used = if choice.in_use { ", in use" } else { "" };
            format!("{}{metadata} B ({}{used})", choice.block_bytes, choice.performance.name())
        };
        let all: Vec<String> = formats.iter().map(format).collect();
        parts.push(format!("LBA formats {}", all.join(" ")));
    }
    parts.extend(
        identity
            .coalescing
            .filter(|of| of.is_on())
            .map(|of| format!("interrupt coalescing: {} completions or {} µs", of.completions, of.time_us)),
    );
    if let Some(health) = &identity.health {
        parts.extend(health.temperature.map(|degrees| format!("{degrees} °C")));
        parts.push(format!("{} % of rated endurance used", health.percent_used));
        let throttled: u64 =
            health.throttled_seconds.iter().flatten().map(|seconds| u64::from(*seconds)).sum();
        if throttled > 0 {
            parts.push(format!("throttled by heat for {throttled} s since it was made"));
        }
        if health.media_errors > 0 {
            parts.push(counted(health.media_errors, "media error"));
        }
    }
    parts
}

/// cgroup limits on the device; first those that apply to this process.
fn limits(host: &Host, device: &BlockDevice) -> Vec<String> {
    let mut limits: Vec<&Throttle> =
        host.throttles.iter().filter(|limit| limit.device == device.name).collect();
    limits.sort_by_key(|limit| !limit.own);
    let mut parts: Vec<String> = limits
        .iter()
        .take(LIMITS_SHOWN)
        .map(|limit| {
            let own = if limit.own { " (of this process)" } else { "" };
            format!("cgroup {}{own} limited to {}", clean(&limit.cgroup), allowed(limit))
        })
        .collect();
    if limits.len() > LIMITS_SHOWN {
        parts.push(format!("and {} more limited cgroups", limits.len() - LIMITS_SHOWN));
    }
    parts
}

/// `2 MiB/s of reads and 120 reads a second`.
fn allowed(limit: &Throttle) -> String {
    let rate = |value: Option<u64>, of: &str| Some(format!("{}/s of {of}", bytes(value? as f64)));
    let ios = |value: Option<u64>, of: &str| Some(format!("{} a second", counted(value?, of)));
    let all = [
        rate(limit.read_bytes_per_second, "reads"),
        rate(limit.write_bytes_per_second, "writes"),
        ios(limit.read_ios_per_second, "read"),
        ios(limit.write_ios_per_second, "write"),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

/// io.cost settings: `io.cost on (reads: p95 below 10.0 ms; 50 to 150 % of its model)`.
fn cost(cost: &IoCost) -> Option<String> {
    let target = |side: &str, target: Target| {
        let percentile = target.percentile.filter(|percentile| *percentile > 0.0)?;
        Some(format!("{side}: p{percentile} below {}", time(target.latency_us?.saturating_mul(1_000))))
    };
    let mut parts: Vec<String> =
        [target("reads", cost.read), target("writes", cost.write)].into_iter().flatten().collect();
    if let (Some(low), Some(high)) = (cost.min_percent, cost.max_percent) {
        parts.push(format!("{low} to {high} % of its model"));
    }
    let how = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join("; ")) };
    cost.enabled?.then(|| format!("io.cost on{how}"))
}

/// Paths to memory shared by several drives, one line each.
fn shared(devices: &[&BlockDevice]) -> String {
    let line = |start: String, first: Vec<String>, names: &[String]| {
        let names = names.iter().map(|name| clean(name));
        fold(&start, first.into_iter().chain(names).collect()) + "\n"
    };
    let below = |names: &[String], usable| {
        format!("{} with links of {}", counted(names.len() as u64, "drive"), gigabytes(usable))
    };
    let mut out = String::new();
    for shared in sharing::links(devices) {
        let usable = gigabytes(shared.link.usable_bytes_per_second);
        let parts = vec![
            format!("{}, {usable} usable", link(&shared.link)),
            format!("below it {}", below(&shared.devices, shared.devices_usable_bytes_per_second)),
        ];
        out.push_str(&line(format!("link of {}: ", clean(&shared.function)), parts, &shared.devices));
    }
    let carries = |complex: &&RootComplex| {
        complex.devices.len() > 1 && complex.devices_usable_bytes_per_second[0] > 0.0
    };
    for complex in sharing::root_complexes(devices).iter().filter(carries) {
        let parts = vec![below(&complex.devices, complex.devices_usable_bytes_per_second)];
        out.push_str(&line(format!("root complex {}: ", clean(&complex.name)), parts, &complex.devices));
    }
    out
}

/// Drops columns that are empty for all devices.
fn columns(rows: &[Vec<String>], unit: &str) -> String {
    let header = HEADER.map(|name| if name == "size" { format!("size {unit}") } else { name.to_string() });
    let is_used =
        |column: &usize| *column == 0 || rows.iter().any(|row| !matches!(row[*column].as_str(), "" | "-"));
    let used: Vec<usize> = (0..HEADER.len()).filter(is_used).collect();
    let width = |text: &str| text.chars().count();
    let widest = |column: usize| {
        rows.iter().map(|row| width(&row[column])).max().unwrap_or(0).max(width(&header[column]))
    };
    let widths: Vec<usize> = (0..HEADER.len()).map(widest).collect();
    let line = |cell: &dyn Fn(usize) -> String| {
        let padded = |column: &usize| {
            let text = cell(*column);
            let pad = " ".repeat(widths[*column].saturating_sub(width(&text)));
            if RIGHT[*column] { format!("{pad}{text}") } else { format!("{text}{pad}") }
        };
        let text = used.iter().map(padded).collect::<Vec<_>>().join("  ");
        format!("{}\n", text.trim_end())
    };
    let mut out = line(&|column| header[column].clone());
    for row in rows {
        out.push_str(&line(&|column| row[column].clone()));
    }
    out
}
