//! What every view ends with: how sure it is, what was lost, what it cost, and what is not in it.

use super::{bytes, clean, count, counted, range, significant};
use crate::analyze::latency::DeviceLatency;
use crate::envelope::{Envelope, Missing};

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
            "check {name}: seen {}, of {all} that the kernel counted of all submitters\n",
            count(seen)
        );
    }
    let Some(b) = device.kernel_total() else {
        return format!(
            "check {name}: the kernel's counters are off, not readable, or hold passthrough commands as reads and \
             writes, so this was not checked\n"
        );
    };
    let range = range(count(b.min), count(b.max));
    let verdict = match device.kernel_check() {
        Some(true) => "ok",
        _ => "DIFFERS",
    };
    format!("check {name}: seen {}, kernel counted {range}: {verdict}{in_flight}\n", count(seen))
}

/// Loss by kind; the kinds that are zero are left out.
pub fn lost(envelope: &Envelope) -> String {
    let lost = &envelope.lost;
    let kinds: Vec<String> =
        lost.kinds().map(|(kind, n)| format!("{} {}", clean(&kind.replace('_', " ")), count(n))).collect();
    let detail = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    let (ios, events) = (counted(lost.ios, "I/O"), counted(lost.events, "event"));
    format!("lost {ios}, {events}, {}{detail}\n", counted(lost.samples, "sample"))
}

/// What the probes cost.
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
        _ if cost.ios.is_none() => {
            format!(
                "cost not measured: the kernel's program statistics were not on (--no-cost leaves them off); maps {maps}\n"
            )
        }
        _ => format!(
            "cost not measured: too few I/Os while the kernel's program statistics were on; maps {maps}\n"
        ),
    }
}

/// What is not in the table, one line per reason.
pub fn missing(missing: &[Missing], devices: &[&str]) -> String {
    let mut lines: Vec<(String, Vec<String>, Vec<String>)> = Vec::new();
    for m in missing {
        if m.device.as_deref().is_some_and(|name| !devices.contains(&name)) {
            continue;
        }
        let what = match (&m.stage, &m.part) {
            (Some(stage), Some(part)) => format!("{stage}/{part}"),
            (Some(one), None) | (None, Some(one)) => one.clone(),
            (None, None) => "all stages".to_string(),
        };
        let falls = m.included_in.as_ref().map_or(String::new(), |i| format!(" (its time is part of {i})"));
        let remedy = m.remedy.as_ref().map_or(String::new(), |r| format!("; {r}"));
        let why = format!("{}{falls}{remedy}", m.why);
        let at = lines.iter().position(|(reason, ..)| *reason == why).unwrap_or_else(|| {
            lines.push((why, Vec::new(), Vec::new()));
            lines.len() - 1
        });
        let (_, stages, names) = &mut lines[at];
        if !stages.contains(&what) {
            stages.push(what);
        }
        names.extend(m.device.clone().filter(|name| !names.contains(name)));
    }
    lines
        .into_iter()
        .map(|(why, stages, names)| {
            let of =
                if names.is_empty() { String::new() } else { format!(" on {}", clean(&names.join(", "))) };
            format!("not seen: {}{of}: {}\n", clean(&stages.join(", ")), clean(&why))
        })
        .collect()
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
        assert!(cost(&envelope).contains("too few I/Os"));
        envelope.missing.push(Missing { part: Some("cost".into()), ..Missing::default() });
        assert_eq!(cost(&envelope), "cost not measured (see below); maps 0 B\n");
    }

    #[test]
    fn stages_that_are_absent_for_one_reason_share_a_line() {
        let gap = |stage: &str| Missing {
            stage: Some(stage.into()),
            why: "not joined".into(),
            ..Missing::default()
        };
        assert_eq!(missing(&[gap("submit"), gap("reap")], &[]), "not seen: submit, reap: not joined\n");
        let on = |name: &str, stage: &str| Missing { device: Some(name.into()), ..gap(stage) };
        assert_eq!(
            missing(&[on("sda", "queue"), on("sda", "device"), on("sdb", "queue")], &["sda", "sdb"]),
            "not seen: queue, device on sda, sdb: not joined\n"
        );
    }
}
