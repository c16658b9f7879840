//! The end of every view: checks, losses, cost, and gaps.

use super::{bytes, clean, count, counted, fit, range, significant, table};
use crate::analyze::latency::DeviceLatency;
use crate::envelope::{Cost, Envelope, Missing, ProgramCost};
use crate::render::gaps;

/// The check against the kernel's own counters.
pub fn check(device: &DeviceLatency) -> String {
    let name = clean(&device.name);
    let seen = device.comparable();
    let in_flight = match (device.in_flight_start, device.in_flight_end) {
        (Some(start), Some(end)) => format!(", in flight {start} at the start and {end} at the end"),
        _ => String::new(),
    };
    if let Some(all) = device.all_ios {
        let all = range(count(all.min), count(all.max));
        return format!(
            "check {name}: {} I/Os, of {all} that the kernel counted for all submitters\n",
            count(seen)
        );
    }
    let Some(b) = device.kernel_total() else {
        return format!(
            "check {name}: not checked: the kernel's counters are off, not readable, or count passthrough \
             commands as reads and writes\n"
        );
    };
    let range = range(count(b.min), count(b.max));
    let verdict = match device.kernel_check() {
        Some(true) => "ok",
        _ => "DIFFERS",
    };
    format!("check {name}: {} I/Os, kernel counted {range}: {verdict}{in_flight}\n", count(seen))
}

/// Losses by kind, without zeros.
pub fn lost(envelope: &Envelope) -> String {
    let lost = &envelope.lost;
    let kinds: Vec<String> =
        lost.kinds().map(|(kind, n)| format!("{} {}", clean(&kind.replace('_', " ")), count(n))).collect();
    let detail = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    let (ios, events) = (counted(lost.ios, "I/O"), counted(lost.events, "event"));
    format!("missed {ios} and {events}, lost {}{detail}\n", counted(lost.samples, "sample"))
}

/// The cost of the probes.
pub fn cost(envelope: &Envelope) -> String {
    let cost = &envelope.cost;
    let maps = bytes(cost.map_bytes as f64);
    match (cost.ns_per_io, cost.attach_ns_per_io, cost.cpu_percent) {
        (Some(net), Some(attach), Some(cpu)) => format!(
            "cost {net:.0} ns per I/O in the programs + {attach:.0} ns to call them, {} % of one CPU; maps {maps}\n",
            significant(cpu, 2)
        ),
        _ if envelope.missing.iter().any(|m| m.part.as_deref() == Some("cost")) => {
            format!("cost not measured (see below); maps {maps}\n")
        }
        // `locks` and `threads` count their programs' runs by waits and scans.
        _ if cost.ios.is_none() && !cost.programs.is_empty() => {
            format!("cost per I/O not measured (-v has the cost per program); maps {maps}\n")
        }
        _ if cost.ios.is_none() => {
            format!(
                "cost not measured: the kernel's program statistics were off (--no-cost does that); maps \
                 {maps}\n"
            )
        }
        _ => format!(
            "cost not measured: fewer than {} I/Os while the kernel's program statistics were on; maps {maps}\n",
            Cost::LEAST_IOS
        ),
    }
}

/// Runs and time of each BPF program, from the kernel's statistics.
pub fn programs(envelope: &Envelope) -> String {
    let row = |program: &ProgramCost| {
        let mean = (program.runs > 0).then(|| program.ns as f64 / program.runs as f64);
        vec![
            clean(&program.name),
            count(program.runs),
            mean.map_or("-".to_string(), |mean| format!("{mean:.0}")),
        ]
    };
    match envelope.cost.programs.is_empty() {
        true => "programs: no statistics\n".to_string(),
        false => {
            let rows: Vec<Vec<String>> = envelope.cost.programs.iter().map(row).collect();
            fit(&table(&["program", "runs", "ns each"], &rows), None)
        }
    }
}

/// Gaps of the table, one line per reason.
pub fn missing(missing: &[Missing], devices: &[&str]) -> String {
    let mut lines: Vec<(String, Vec<&Missing>)> = Vec::new();
    for m in of_devices(missing, devices) {
        let falls = m
            .included_in
            .as_ref()
            .map_or(String::new(), |stage| format!(" (its time is included in {stage})"));
        let remedy = m.remedy.as_ref().map_or(String::new(), |r| format!("; {r}"));
        let why = format!("{}{falls}{remedy}", m.why);
        match lines.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, all)) => all.push(m),
            None => lines.push((why, vec![m])),
        }
    }
    lines.into_iter().map(|(why, all)| format!("not measured: {}: {}\n", names(&all), clean(&why))).collect()
}

/// The gaps of several intervals in one line, without the reasons, which may differ between intervals.
pub fn missing_briefly(missing: &[Missing], devices: &[&str]) -> String {
    let mut groups: Vec<(&Option<String>, Vec<&Missing>)> = Vec::new();
    for m in of_devices(missing, devices) {
        match groups.iter_mut().find(|(stage, _)| **stage == m.stage) {
            Some((_, all)) => all.push(m),
            None => groups.push((&m.stage, vec![m])),
        }
    }
    let all: Vec<String> = groups.iter().map(|(_, all)| names(all)).collect();
    if all.is_empty() { String::new() } else { format!("not measured: {} (-v says why)\n", all.join("; ")) }
}

fn of_devices<'a>(missing: &'a [Missing], devices: &[&str]) -> impl Iterator<Item = &'a Missing> {
    missing.iter().filter(|m| m.device.as_deref().is_none_or(|name| devices.contains(&name)))
}

/// Stages and parts, each once, and the devices.
fn names(all: &[&Missing]) -> String {
    let mut what: Vec<String> = Vec::new();
    let mut devices: Vec<&str> = Vec::new();
    for m in all {
        let one = gaps::name(m).unwrap_or_else(|| "all stages".to_string());
        if !what.contains(&one) {
            what.push(one);
        }
        devices.extend(m.device.as_deref().filter(|name| !devices.contains(name)));
    }
    let of = if devices.is_empty() { String::new() } else { format!(" on {}", clean(&devices.join(", "))) };
    format!("{}{of}", clean(&what.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::analyze::counting::Bracket;
    use crate::analyze::latency::OpLatency;
    use crate::analyze::op::{KernelClass, Op};

    #[test]
    fn a_difference_from_the_kernel_is_shouted() {
        let reads = |min, max| Some(BTreeMap::from([(KernelClass::Read, Bracket { min, max }.into())]));
        let op = OpLatency { ios: 2000, ..OpLatency::default() };
        let mut device = DeviceLatency {
            name: "sda".into(),
            ios: 2000,
            kernel: reads(2001, 2003),
            ops: BTreeMap::from([(Op::Read, op)]),
            ..DeviceLatency::default()
        };
        assert!(check(&device).contains("2,001 to 2,003: DIFFERS"));
        device.kernel = reads(1999, 2000);
        assert!(check(&device).contains("1,999 to 2,000: ok"));
        device.kernel = None;
        assert!(check(&device).contains("not checked"));
    }

    #[test]
    fn a_cost_that_is_not_permitted_is_not_called_too_few() {
        let mut envelope = Envelope::default();
        assert!(cost(&envelope).contains("--no-cost"));
        envelope.cost.ios = Some(7);
        assert!(cost(&envelope).contains("fewer than 200 I/Os"));
        envelope.missing.push(Missing { part: Some("cost".into()), ..Missing::default() });
        assert_eq!(cost(&envelope), "cost not measured (see below); maps 0 B\n");
    }

    #[test]
    fn programs_are_rows() {
        let mut envelope = Envelope::default();
        assert_eq!(programs(&envelope), "programs: no statistics\n");
        let of = |name: &str, runs, ns| ProgramCost { name: name.to_string(), runs, ns };
        envelope.cost.programs = vec![of("rq_\x1bissue", 1_000, 61_000), of("never", 0, 0)];
        let text = programs(&envelope);
        let lines: Vec<String> =
            text.lines().skip(1).map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines, ["rq_\\u{1b}issue 1,000 61", "never 0 -"]);
    }

    #[test]
    fn stages_that_are_absent_for_one_reason_share_a_line() {
        let gap = |stage: &str| Missing {
            stage: Some(stage.into()),
            why: "not joined".into(),
            ..Missing::default()
        };
        assert_eq!(missing(&[gap("submit"), gap("reap")], &[]), "not measured: submit, reap: not joined\n");
        let on = |name: &str, stage: &str| Missing { device: Some(name.into()), ..gap(stage) };
        assert_eq!(
            missing(&[on("sda", "queue"), on("sda", "device"), on("sdb", "queue")], &["sda", "sdb"]),
            "not measured: queue, device on sda, sdb: not joined\n"
        );
        let spin = Missing { stage: None, part: Some("spin".into()), ..gap("") };
        assert_eq!(missing(&[spin], &[]), "not measured: CPU time spent spinning: not joined\n");
        let all = [
            on("sda", "queue"),
            on("sda", "layer"),
            on("sdb", "layer"),
            on("sda", "layer"),
            on("sdc", "layer"),
        ];
        assert_eq!(
            missing_briefly(&all, &["sda", "sdb"]),
            "not measured: queue on sda; layer on sda, sdb (-v says why)\n"
        );
        assert_eq!(missing_briefly(&all, &[]), "");
    }
}
