//! Finding: a PCI link runs below what both of its ends support.

use std::collections::BTreeMap;

use super::facts::percent;
use super::links::{self, LinkTraffic, in_gigabytes};
use super::numbers;
use super::{Rule, Summaries};
use crate::findings::{Finding, Number, Severity};
use crate::host::warnings::warnings;
use crate::host::{BlockDevice, Host, Link};
use crate::units::in_percent;

/// Load of the link as it is now from which on the degradation costs something. With random arrivals a transfer waits
/// for 0.5 x 0.7 / (1 - 0.7) = 1.2 others on average: from here on the wait exceeds the transfer itself.
pub const LOADED: f64 = 0.70;

const POSSIBLE_LANES: Number = Number::new("possible_lanes", "lanes that both ends support");
const POSSIBLE_SPEED_GTS: Number = Number::new("possible_speed_gts", "speed that both ends support, in GT/s");

pub const RULE: Rule = Rule { id: "link-degraded", page: PAGE, find };

const PAGE: &str = "\
A PCIe link runs slower or narrower than it could.

Untrained lanes, a slot with fewer contacts, a riser or cable of an older generation, or a firmware
setting: the drive works, but at half or a quarter of its bandwidth.

How it is computed
  Found if the speed (GT/s) or the width (lanes) is below what both the device at its lower end and
  the port at its upper end support.
  A warning if the traced devices below transfer 70 % or more of what the link can carry now: from
  there on, a transfer waits for others longer than it takes itself. If the packet size is not
  known, 70 % of what the largest usual packets (512 bytes) allow. Else a note: nothing shows that
  this run suffered. If the link is also full, link-bound becomes a note.
  Only links above traced devices with I/O are examined. biopsy devices warns of all links below the
  drive's own maximum, even if the port supports no more.
  From: devices[].links[].link: speed_gts, width, max_speed_gts, max_width, port_max_speed_gts,
  port_max_width, usable_bytes_per_second; latency.devices[].ops.*.bytes.

When it is wrong
  - Some links slow down when idle and speed up under load. The speed was read at the start.
  - Bifurcation and risers can remove lanes that port and drive both have: the slot offers no more.
  - The rate is a mean over the run; bursts may reach the limit of the link even if the mean is low.
  - In a virtual machine links are not examined.

What to do
  Check the firmware setting of the slot (try Gen4 instead of Auto), another slot or cable, and the
  seating of the drive. lspci -vv shows the state of the link (LnkSta: downgraded). Look for
  corrected errors (AER) in the kernel log: they make links retrain at a lower speed.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    links::carried(s).iter().filter_map(|carried| judge(s, carried)).collect()
}

/// What both ends support, if more than the link's current state; None if an end does not report it.
fn both(link: &Link) -> Option<(f64, u32)> {
    let speed = link.max_speed_gts.zip(link.port_max_speed_gts).map(|(own, port)| own.min(port));
    let width = link.max_width.zip(link.port_max_width).map(|(own, port)| own.min(port));
    let is_slower = speed.is_some_and(|both| link.speed_gts < both);
    let is_narrower = width.is_some_and(|both| link.width < both);
    (is_slower || is_narrower).then(|| {
        (speed.unwrap_or(link.speed_gts).max(link.speed_gts), width.unwrap_or(link.width).max(link.width))
    })
}

fn judge(s: &Summaries<'_>, carried: &LinkTraffic<'_>) -> Option<Finding> {
    let link = &carried.hop.link;
    let (speed, width) = both(link)?;
    let (rate, verb) = carried.most();
    let ceiling = Some(link.usable_bytes_per_second[1]).filter(|most| *most > 0.0);
    // A rate above the ceiling proves nothing.
    let share =
        ceiling.filter(|_| carried.is_sound(s) && !links::is_beyond(link, rate)).map(|most| rate / most);
    let is_loaded = share.is_some_and(|share| share >= LOADED);
    let mut numbers = BTreeMap::from([
        (numbers::SPEED_GTS, link.speed_gts),
        (numbers::LANES, f64::from(link.width)),
        (POSSIBLE_SPEED_GTS, speed),
        (POSSIBLE_LANES, f64::from(width)),
        (numbers::RAW_BYTES_PER_SECOND, link.raw_bytes_per_second),
        (numbers::CARRIED_BYTES_PER_SECOND, rate),
    ]);
    numbers.extend(share.map(|share| (numbers::CEILING_SHARE_PERCENT, percent(share))));
    let mut evidence: Vec<String> = facts(link, carried).into_iter().collect();
    evidence.push(match (share, ceiling) {
        (Some(share), Some(most)) => format!(
            "{} were {verb} over it, {} of the {} that it can carry now",
            in_gigabytes(rate),
            in_percent(share),
            in_gigabytes(most)
        ),
        _ => "the measured traffic is too uncertain to tell how close the link is to its limit".to_string(),
    });
    let subject = carried.subject();
    let runs =
        format!("{} runs below the {speed} GT/s x{width} that both of its ends support", carried.called());
    Some(Finding {
        id: RULE.id,
        subject,
        severity: if is_loaded { Severity::Warning } else { Severity::Note },
        confidence: if is_loaded { 0.95 } else { 0.9 },
        sentence: match share {
            Some(share) => {
                format!("T{}, and this run uses {} of it.", &runs[1..], in_percent(share.min(1.0)))
            }
            None => format!("T{}.", &runs[1..]),
        },
        numbers,
        evidence,
        advice: "Check the firmware setting of the slot, the riser or cable, the seating of the drive, and \
            the kernel log for corrected PCIe errors."
            .to_string(),
        check: match &carried.hop.function {
            function if carried.own => format!("biopsy devices; lspci -vv -s {function} | grep Lnk"),
            function => format!("lspci -vv -s {function} | grep Lnk"),
        },
        worth: None,
    })
}

/// The sentence that `biopsy devices` has for it.
fn facts(link: &Link, carried: &LinkTraffic<'_>) -> Option<String> {
    if !carried.own {
        return None;
    }
    let device = BlockDevice { link: Some(link.clone()), ..BlockDevice::default() };
    let all = warnings(&Host::default(), &[&device]);
    all.into_iter().find(|warning| warning.id == RULE.id).map(|warning| warning.sentence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::fixtures::Case;

    /// 8 GT/s x4 where both ends support 16; it carries 3.6005 GB/s.
    fn case(rate: f64) -> Case {
        let mut case = Case::new(50_000, 32);
        case.at_link(3.938e9, Some(256));
        change(&mut case, |link| (link.max_speed_gts, link.port_max_speed_gts) = (Some(16.0), Some(16.0)));
        case.reads(rate);
        case
    }

    fn change(case: &mut Case, what: impl Fn(&mut Link)) {
        what(&mut case.disk().hops[0].link);
        case.disk().link = Some(case.disk().hops[0].link.clone());
    }

    fn found(case: &Case) -> Vec<Finding> {
        find(&case.summaries())
    }

    #[test]
    fn near_its_limit_it_is_a_warning_and_else_a_note() {
        let loaded = found(&case(2.5205e9));
        assert_eq!((loaded.len(), loaded[0].severity), (1, Severity::Warning), "70.0 %");
        assert_eq!(
            loaded[0].sentence,
            "The PCIe link of vda (8 GT/s x4) runs below the 16 GT/s x4 that both of its ends support, and this run \
             uses 70 % of it."
        );
        assert_eq!(
            loaded[0].evidence[0],
            "the PCIe link runs at 8 GT/s x4 and the drive can do 16 GT/s x4; the port above it can do 16 GT/s x4"
        );
        assert_eq!(found(&case(2.52e9))[0].severity, Severity::Note, "69.99 %");
    }

    #[test]
    fn both_ends_must_be_able_to_do_more() {
        let with = |max, port| {
            let mut case = case(3.5e9);
            change(&mut case, |link| (link.max_speed_gts, link.port_max_speed_gts) = (max, port));
            found(&case).len()
        };
        assert_eq!(with(Some(16.0), Some(16.0)), 1);
        assert_eq!((with(Some(16.0), Some(8.0)), with(Some(8.0), Some(16.0))), (0, 0));
        assert_eq!((with(Some(16.0), None), with(None, Some(16.0))), (0, 0), "what one end does not tell");
    }

    #[test]
    fn lanes_count_as_speed_does() {
        let mut narrow = Case::new(50_000, 32);
        narrow.at_link(3.938e9, Some(256));
        assert!(found(&narrow).is_empty());
        change(&mut narrow, |link| link.width = 2);
        let found = found(&narrow).remove(0);
        assert_eq!((found.numbers["lanes"], found.numbers["possible_lanes"]), (2.0, 4.0));
    }

    #[test]
    fn rates_that_are_in_doubt_or_cannot_be_make_no_warning() {
        let mut lossy = case(3.5e9);
        lossy.latency.devices[0].lost_ios = 1_000;
        assert_eq!(found(&lossy)[0].severity, Severity::Note);
        assert!(!found(&lossy)[0].numbers.contains_key("ceiling_share_percent"));
        // It was idle and slow at the time of the check.
        let found = found(&case(7.0e9)).remove(0);
        assert_eq!(found.severity, Severity::Note);
        assert!(found.sentence.ends_with("of its ends support."), "{}", found.sentence);
    }

    #[test]
    fn without_io_or_in_a_virtual_machine_it_is_no_finding() {
        let mut case = case(3.5e9);
        case.host.virtualization = Some("kvm".into());
        assert!(found(&case).is_empty());
        case.host.virtualization = None;
        case.latency.devices[0].ios = 0;
        assert!(found(&case).is_empty());
    }
}
