//! The sections on the machine and on how it was measured.

use std::collections::BTreeSet;

use super::contents::folded;
use super::tables::{Cell, facts, header, open_table, text, widen};
use super::{Report, charts, escape};
use crate::analyze::latency::DeviceLatency;
use crate::host::BlockDevice;
use crate::render::topology;
use crate::rules::Summaries;
use crate::units::{bytes, count, counted, range, significant, time};

/// Kernel, CPUs, and the devices with I/O or below such devices.
pub fn machine(s: &Summaries<'_>) -> String {
    let host = s.host;
    let mut rows = vec![("kernel", host.kernel.clone())];
    rows.extend(host.cpu_model.clone().map(|model| ("CPU", model)));
    rows.push(("CPUs", format!("{} online, {} NUMA nodes", host.cpus_online, host.numa_nodes)));
    rows.extend(host.memory_bytes.map(|memory| ("memory", bytes(memory as f64))));
    rows.extend(host.virtualization.clone().map(|name| ("virtual machine", name)));
    let mut out = facts(&rows);
    let traced = traced(s);
    host.devices
        .iter()
        .filter(|disk| traced.contains(disk.name.as_str()))
        .for_each(|disk| out.push_str(&device(disk)));
    out
}

/// The devices with I/O, and the load's device.
fn traced<'a>(s: &Summaries<'a>) -> BTreeSet<&'a str> {
    let carried = s.latency.devices.iter().filter(|device| device.ios > 0).map(|device| device.name.as_str());
    carried.chain(s.load.and_then(|load| load.device.as_deref())).collect()
}

/// The path from each drive to memory.
pub fn topology(s: &Summaries<'_>) -> String {
    let map = topology::map(s.host, &traced(s));
    if map.is_empty() {
        return map;
    }
    let mut note = "Each link with its speed per lane, its width and its data rate in one direction (a \
        range if the packet size cannot be read). In colour: links below what both ends can do, or limited \
        by the port above, and switches whose link carries less than the links of the drives below it \
        together. Thick frames: the drives of this run."
        .to_string();
    if s.host.virtualization.is_some() {
        note.push_str(" This is a virtual machine: links and root complexes are what its hypervisor shows.");
    }
    format!("<p class=\"soft small\">{note}</p>\n{}", charts::wide(&map))
}

fn device(disk: &BlockDevice) -> String {
    let mut rows: Vec<(&str, String)> = Vec::new();
    let model: Vec<&str> =
        [&disk.model, &disk.firmware, &disk.serial].into_iter().filter_map(|part| part.as_deref()).collect();
    if !model.is_empty() {
        rows.push(("model, firmware, serial", model.join(", ")));
    }
    rows.extend(disk.driver.clone().map(|driver| ("driver", driver)));
    if disk.tells("size") {
        rows.push(("size", bytes(disk.size_bytes as f64)));
    }
    if let Some(active) = &disk.scheduler {
        let others: Vec<&str> =
            disk.schedulers.iter().filter(|name| *name != active).map(String::as_str).collect();
        let rest = if others.is_empty() { String::new() } else { format!(" (also: {})", others.join(", ")) };
        rows.push(("scheduler", format!("{active}{rest}")));
    }
    // For these, 0 means that the kernel reports nothing.
    let amount = |value: u64| if value == 0 { "not reported".to_string() } else { bytes(value as f64) };
    if disk.max_request_bytes > 0 || disk.max_hw_request_bytes > 0 {
        let (soft, hard) = (amount(disk.max_request_bytes), amount(disk.max_hw_request_bytes));
        rows.push(("largest request", format!("{soft} (hardware {hard})")));
    }
    if disk.logical_block_bytes > 0 || disk.physical_block_bytes > 0 {
        let size = |value: u32| if value == 0 { "not reported".to_string() } else { value.to_string() };
        let (logical, physical) = (size(disk.logical_block_bytes), size(disk.physical_block_bytes));
        rows.push(("blocks", format!("{logical} logical, {physical} physical")));
    }
    if disk.tells("read_ahead_kb") {
        let read_ahead = match disk.read_ahead_bytes {
            0 => "off".to_string(),
            size => bytes(size as f64),
        };
        rows.push(("read-ahead", read_ahead));
    }
    let tags: Vec<String> = disk.queues.iter().map(|q| q.tags.to_string()).collect();
    let same = tags.windows(2).all(|pair| pair[0] == pair[1]);
    if let Some(first) = tags.first() {
        let each = if same { first.clone() } else { tags.join(", ") };
        let requests = disk.requests.map_or(String::new(), |n| format!(", nr_requests {n}"));
        rows.push(("queues", format!("{} with {each} tags{requests}", disk.queues.len())));
    }
    rows.extend(disk.numa_node.map(|node| ("NUMA node", node.to_string())));
    rows.extend(disk.pci_address.clone().map(|address| ("PCI", address)));
    if let Some(link) = &disk.link {
        let most = match (link.max_speed_gts, link.max_width) {
            (Some(speed), Some(width)) => format!(" (could be {speed} GT/s x{width})"),
            _ => String::new(),
        };
        rows.push(("link", format!("{} GT/s x{}{most}", link.speed_gts, link.width)));
    }
    if !disk.layers.is_empty() {
        rows.push(("layered on", disk.layers.join(", ")));
    }
    if !disk.mounted_at.is_empty() {
        rows.push(("mounted at", disk.mounted_at.join(", ")));
    }
    format!("<h3>{}</h3>\n{}", escape(&disk.name), facts(&rows))
}

/// Command, versions, interval, losses by kind, and the cost of the probes.
pub fn measurement(report: &Report<'_>) -> String {
    let s = &report.summaries;
    let envelope = s.envelope;
    let mut rows = vec![
        ("start", envelope.start.clone()),
        ("window", time(envelope.duration_ns)),
        ("version", format!("biopsy {}, kernel {}", envelope.version, envelope.kernel)),
        (
            "missed or lost",
            format!(
                "{}, {}, {}",
                counted(envelope.lost.ios, "I/O"),
                counted(envelope.lost.events, "event"),
                counted(envelope.lost.samples, "sample")
            ),
        ),
    ];
    rows.extend(report.command_status.map(|status| ("command", format!("ended with status {status}"))));
    let kinds: Vec<String> = envelope
        .lost
        .probes
        .iter()
        .flat_map(|(probe, kinds)| kinds.iter().map(move |(kind, n)| (probe, kind, *n)))
        .filter(|(_, _, n)| *n > 0)
        .map(|(probe, kind, n)| format!("{probe} {kind} {}", count(n)))
        .collect();
    if !kinds.is_empty() {
        rows.push(("of these, by kind", kinds.join(", ")));
    }
    s.latency.devices.iter().filter(|d| d.ios > 0).for_each(|d| rows.push(("counted", seen(d))));
    let cost = &envelope.cost;
    let ns = |value: Option<f64>| {
        value.map_or("not measured".to_string(), |v| format!("{} ns", significant(v, 3)))
    };
    rows.push((
        "cost",
        format!(
            "{} per I/O, plus {} per I/O to call the programs; {} of a CPU; {} of maps",
            ns(cost.ns_per_io),
            ns(cost.attach_ns_per_io),
            cost.cpu_percent.map_or("-".to_string(), |v| format!("{} %", significant(v, 2))),
            bytes(cost.map_bytes as f64)
        ),
    ));
    let mut out = format!("<pre>{}</pre>\n{}", escape(report.command), facts(&rows));
    if !cost.programs.is_empty() {
        let programs =
            cost.programs.iter().map(|program| vec![text(&program.name), Cell::Number(count(program.runs))]);
        let mut rows: Vec<_> = programs.collect();
        let mut header = header(&["<program", "runs"]);
        let run: Vec<Option<f64>> = cost.programs.iter().map(|p| Some(p.ns as f64)).collect();
        widen(&mut header, &mut rows, "run time", &run);
        let each: Vec<Option<f64>> =
            cost.programs.iter().map(|p| Some(p.ns as f64 / p.runs.max(1) as f64)).collect();
        widen(&mut header, &mut rows, "per run", &each);
        let mut programs = open_table(&header, rows);
        if let Some(baseline) = cost.baseline_ns_per_run {
            programs.push_str(&format!(
                "<p class=\"soft small\">Run times by the kernel's statistics. An empty program takes {} \
                 ns per run, which is subtracted in the cost per I/O.</p>\n",
                significant(baseline, 3)
            ));
        }
        out.push_str(&folded("Programs of the probes", &programs));
    }
    out
}

fn seen(device: &DeviceLatency) -> String {
    let checked = match device.kernel_total() {
        Some(b) => format!("the kernel counted {}", range(count(b.min), count(b.max))),
        None => "the kernel's counters cannot be compared".to_string(),
    };
    format!(
        "{}: {}, {checked}; {}, {}, {}, {}, {}",
        device.name,
        counted(device.ios, "I/O"),
        counted(device.splits, "split"),
        counted(device.merges, "merge"),
        counted(device.requeues, "requeue"),
        counted(device.retries, "retry"),
        counted(device.negative, "negative stage")
    )
}
