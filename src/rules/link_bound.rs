//! Finding: a PCI link is saturated.

use std::collections::BTreeMap;

use super::command;
use super::facts::{self, percent};
use super::links::{self, Full, TOLERANCE, ceilings, in_gigabytes};
use super::numbers;
use super::{Rule, Summaries};
use crate::findings::{Finding, NotExamined, Number, Severity};
use crate::units::in_percent;

const CEILING_HIGH_BYTES_PER_SECOND: Number =
    Number::new("ceiling_high_bytes_per_second", "highest capacity of the link, in bytes per second");
const CEILING_LOW_BYTES_PER_SECOND: Number =
    Number::new("ceiling_low_bytes_per_second", "lowest capacity of the link, in bytes per second");
const PAYLOAD_BYTES: Number = Number::new("payload_bytes", "payload of a packet");
const WRITTEN_BYTES_PER_SECOND: Number = Number::new("written_bytes_per_second", "bytes written per second");

pub const RULE: Rule = Rule { id: "link-bound", page: PAGE, find };

const PAGE: &str = "\
The PCIe link is the bottleneck: it carries all it can.

How it is computed
  Bytes per second, reads and writes separately (a link has lanes for each direction), summed over
  all traced devices below a link: a drive's own link, and those that drives share above a switch.
  The ceiling is what the line rate (lanes x speed, after encoding) leaves for data: each packet has
  24 bytes of overhead, 16 at 64 GT/s. Found at 95 % of the ceiling, with at least 100 I/Os. Of
  several links above the same devices, the one nearest to its ceiling is named. Confidence 0.9.
  If the packet size cannot be read, it may be 128, 256, 512 bytes or more. Sizes too small for the
  measured rate are ruled out. Found if the rate is at 95 % of what one of the others allows: with
  confidence 0.6 for 512 bytes or more, else 0.4, because the link may have larger packets.
  A rate above what any packets allow is no finding: the ceiling or the count is wrong. It is listed
  under what was not examined.
  From: latency.devices[].ops.read, .write, .fua: .bytes; devices[].links[].link: speed_gts, width,
  payload_bytes, usable_bytes_per_second. Reads of biopsy's own load are divided by the load's time.

When it is wrong
  - Devices below a switch that are not traced (-d) use the uplink too: it may be full earlier.
  - The rate is a mean over the run: bursts that fill the link are missed.
  - A drive fetches the data of a write by reading memory, which many root ports answer in 64-byte
    pieces: the true ceiling of writes is lower, and a full link may be missed.
  - A root complex may carry less than its links: see root-complex-shared.
  - Commands, completions and interrupts use the link too: a few percent with small I/Os.
  - In a virtual machine links are not examined: the hypervisor does not show the real ones.

What to do
  biopsy devices shows each link and what both ends support (see link-degraded). Use a faster slot,
  move drives of a shared link to other ports, or use larger packets (pci=pcie_bus_perf). Else
  transfer fewer bytes: more depth does not help.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    links::full(s).iter().map(|full| finding(s, full)).collect()
}

/// Links whose ceilings cannot be right.
pub fn beyond(s: &Summaries<'_>) -> Vec<NotExamined> {
    let wrong = links::carried(s).into_iter().filter(|carried| {
        let (rate, _) = carried.most();
        carried.is_sound(s) && links::is_beyond(&carried.hop.link, rate)
    });
    wrong
        .map(|carried| {
            let (rate, verb) = carried.most();
            let most = ceilings(&carried.hop.link).last().map_or(0.0, |(_, most)| *most);
            NotExamined {
                what: carried.called(),
                why: format!(
                    "{} were {verb} over it, but by sysfs it can carry only {}: its speed, width or packet \
                     size, or the count, is wrong",
                    in_gigabytes(rate),
                    in_gigabytes(most)
                ),
            }
        })
        .collect()
}

fn finding(s: &Summaries<'_>, full: &Full<'_>) -> Finding {
    let carried = &full.carried;
    let link = &carried.hop.link;
    let (rate, verb) = carried.most();
    let known = link.payload_bytes.is_some();
    let all = ceilings(link);
    // This rate is impossible with smaller packets.
    let fitting: Vec<f64> =
        all.iter().map(|(_, most)| *most).filter(|most| rate <= most * TOLERANCE).collect();
    let low = fitting.first().copied().unwrap_or(full.ceiling);
    let high = fitting.last().copied().unwrap_or(full.ceiling);
    let mut numbers = BTreeMap::from([
        (numbers::CARRIED_BYTES_PER_SECOND, rate),
        (numbers::READ_BYTES_PER_SECOND, carried.read),
        (WRITTEN_BYTES_PER_SECOND, carried.written),
        (CEILING_LOW_BYTES_PER_SECOND, low),
        (CEILING_HIGH_BYTES_PER_SECOND, high),
        (numbers::CEILING_SHARE_PERCENT, percent(full.share())),
        (numbers::RAW_BYTES_PER_SECOND, link.raw_bytes_per_second),
        (numbers::SPEED_GTS, link.speed_gts),
        (numbers::LANES, f64::from(link.width)),
        (numbers::DEVICES, carried.devices.len() as f64),
    ]);
    numbers.extend(link.payload_bytes.map(|bytes| (PAYLOAD_BYTES, f64::from(bytes))));
    let mut evidence = vec![format!(
        "{} were read and {} written, in separate directions; the line rate is {}",
        in_gigabytes(carried.read),
        in_gigabytes(carried.written),
        in_gigabytes(link.raw_bytes_per_second)
    )];
    evidence.push(match (known, full.payload) {
        (true, Some(bytes)) => {
            format!("with packets of {bytes} bytes it carries at most {} of data", in_gigabytes(full.ceiling))
        }
        (_, size) => format!(
            "its packet size cannot be read: with {} it carries {}, with other sizes up to {}",
            size.map_or("more than 512 bytes".to_string(), |bytes| format!("{bytes} bytes")),
            in_gigabytes(full.ceiling),
            in_gigabytes(high)
        ),
    });
    if !carried.own {
        let each = carried.devices.iter().map(|device| device.name.as_str());
        evidence.push(format!("traced devices below it: {}", each.collect::<Vec<_>>().join(" ")));
    }
    let mut confidence = full.confidence;
    // With several devices the subject is not a device's name, by which losses are looked up.
    if carried.subject() != carried.devices[0].name {
        let noted: Vec<String> =
            carried.devices.iter().flat_map(|device| facts::noted(s, &device.name)).collect();
        if !noted.is_empty() {
            evidence.extend(noted);
            confidence *= facts::NOTED_CONFIDENCE;
        }
    }
    let sentence = if known {
        format!(
            "{} is full: {} are {verb} over it, {} of the {} that it can carry.",
            capital(&carried.called()),
            in_gigabytes(rate),
            in_percent(full.share().min(1.0)),
            in_gigabytes(full.ceiling)
        )
    } else {
        format!(
            "{} may be full: {} are {verb} over it, {} to {} of what it can carry; its packet size is \
             unknown.",
            capital(&carried.called()),
            in_gigabytes(rate),
            in_percent(rate / high),
            in_percent((rate / low).min(1.0))
        )
    };
    Finding {
        id: RULE.id,
        subject: carried.subject(),
        severity: Severity::Warning,
        confidence,
        sentence,
        numbers,
        evidence,
        advice: if carried.own {
            "Check with biopsy devices whether both ends of the link can do more (link-degraded). Else use \
             another slot, larger packets (pci=pcie_bus_perf) or fewer bytes. More depth does not help."
        } else {
            "Move some drives to a port that does not share this link. More depth does not help."
        }
        .to_string(),
        check: match s.load {
            Some(load) => command::load(load, load.job.iodepth, load.job.numjobs),
            None => command::latency_by_second(&carried.devices[0].name),
        },
        worth: None,
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::latency::OpLatency;
    use crate::analyze::op::Op;
    use crate::host::Hop;
    use crate::rules::fixtures::Case;

    /// A disk at a link of 3.938 GB/s (8 GT/s, four lanes) that reads `rate` bytes a second.
    fn case(rate: f64, payload: Option<u32>) -> Case {
        let mut case = Case::new(50_000, 32);
        case.at_link(3.938e9, payload);
        case.reads(rate);
        case
    }

    fn found(case: &Case) -> Vec<Finding> {
        find(&case.summaries())
    }

    #[test]
    fn the_share_has_two_sides() {
        // 3.938 x 256 / 280 = 3.6005 GB/s; 95 % of it is 3.4205.
        let full = found(&case(3.421e9, Some(256)));
        assert_eq!((full.len(), full[0].subject.as_str(), full[0].confidence), (1, "vda", 0.9));
        assert_eq!(full[0].numbers["ceiling_share_percent"].round(), 95.0);
        assert!(full[0].sentence.starts_with("The PCIe link of vda (8 GT/s x4) is full: 3.42 GB/s are read"));
        assert!(found(&case(3.420e9, Some(256))).is_empty());
    }

    /// Published (source E): 1,660 MB/s on 5 GT/s x4 was limited by the bus, and 3,379 MB/s on 8 GT/s x4 by the drive,
    /// at 83.0 and 85.8 % of the line rates.
    #[test]
    fn the_same_share_of_two_line_rates_is_the_bus_and_is_not() {
        let mut gen2 = case(1.660e9, Some(128));
        gen2.at_link(2.0e9, Some(128));
        assert_eq!(found(&gen2)[0].numbers["ceiling_share_percent"].round(), 99.0);
        assert!(found(&case(3.379e9, Some(256))).is_empty(), "93.8 %");
        // Same if the payload size is not readable.
        gen2.at_link(2.0e9, None);
        let may = found(&gen2).remove(0);
        assert_eq!(may.confidence, links::CONFIDENCE[2]);
        assert!(
            may.sentence.contains("may be full") && may.sentence.contains("83 % to 99 %"),
            "{}",
            may.sentence
        );
        assert!(found(&case(3.379e9, None)).is_empty(), "too fast for 128 bytes and too slow for 256");
    }

    #[test]
    fn an_unknown_payload_is_of_medium_confidence_at_most() {
        // Packets of 512 bytes carry 3.7617 GB/s.
        let found = found(&case(3.70e9, None));
        assert_eq!((found[0].confidence, found[0].severity), (links::CONFIDENCE[1], Severity::Warning));
        assert!(found[0].confidence <= 0.6 && !found[0].numbers.contains_key("payload_bytes"));
        assert!(!links::limits(&case(3.70e9, None).summaries(), "vda"));
        assert!(links::limits(&case(3.50e9, Some(256)).summaries(), "vda"));
    }

    #[test]
    fn more_than_the_link_carries_shows_a_wrong_ceiling() {
        // Up to 1 % is due to the interval's edges.
        let at = case(3.63e9, Some(256));
        assert!(found(&at)[0].sentence.contains("100 %") && beyond(&at.summaries()).is_empty());
        let above = case(3.64e9, Some(256));
        assert!(found(&above).is_empty());
        let flagged = beyond(&above.summaries()).remove(0);
        assert!(
            flagged.why.contains("3.64 GB/s were read over it, but by sysfs it can carry only 3.60 GB/s"),
            "{}",
            flagged.why
        );
        assert!(beyond(&case(3.96e9, None).summaries()).is_empty());
        assert_eq!(beyond(&case(3.98e9, None).summaries()).len(), 1);
    }

    #[test]
    fn directions_do_not_add_up() {
        let mut case = case(2.0e9, Some(256));
        case.load = None;
        let written = |bytes: f64| OpLatency { ios: 1_000, bytes: bytes as u64, ..OpLatency::default() };
        case.latency.devices[0].ops.insert(Op::Write, written(3.0e9));
        assert!(found(&case).is_empty(), "5.0 GB/s, but 3.0 in one direction");
        case.latency.devices[0].ops.insert(Op::Write, written(3.5e9));
        assert!(found(&case)[0].sentence.contains("are written over it"));
    }

    /// Two drives at 3.6 GB/s each, and an uplink of their switch.
    fn shared(rate: f64, uplink: f64) -> Case {
        let mut case = case(0.0, Some(256));
        let mut above = case.disk().hops[0].clone();
        above.link.usable_bytes_per_second = [uplink; 2];
        let up = Hop { function: "0000:3f:00.0".into(), port: Some("0000:00:01.0".into()), ..above };
        case.disk().hops.push(up);
        case.twin("vdb");
        case.load = None;
        case.reads(rate);
        case
    }

    #[test]
    fn the_drives_of_an_uplink_are_summed() {
        let full = found(&shared(2.4e9, 5.0e9));
        assert_eq!((full.len(), full[0].subject.as_str()), (1, "0000:00:01.0: vda vdb"));
        assert_eq!(full[0].numbers["carried_bytes_per_second"], 4.8e9);
        assert!(found(&shared(2.37e9, 5.0e9)).is_empty(), "94.8 %");
        // If it is alone below the uplink, both links have the same device: the narrower one is named.
        let mut alone = shared(3.45e9, 3.5e9);
        alone.latency.devices.truncate(1);
        assert_eq!(found(&alone)[0].subject, "0000:00:01.0: vda", "98.6 % of one and 95.8 % of the other");
    }

    #[test]
    fn what_is_not_sure_is_not_found() {
        let mut lossy = case(3.5e9, Some(256));
        assert_eq!(found(&lossy).len(), 1);
        lossy.latency.devices[0].lost_ios = 1_000;
        assert!(found(&lossy).is_empty());
        let mut virtual_machine = case(3.5e9, Some(256));
        virtual_machine.host.virtualization = Some("kvm".into());
        assert!(found(&virtual_machine).is_empty());
        let mut unknown = case(3.5e9, Some(256));
        unknown.disk().hops.clear();
        assert!(found(&unknown).is_empty());
    }
}
