//! Computes what an interval lost, and whether the rest can be trusted.

use std::collections::BTreeMap;

use super::counting::{Counting, in_flight};
use super::latency::{DeviceLatency, LatencySummary};
use crate::envelope::Lost;
use crate::merge::SaturatingSum as _;
use crate::wire::reading::{DeviceSample, Reading};
use crate::wire::rows::IoRow;

/// Losses of the interval on the summary's devices, by kind.
///
/// `ios` has completions that lack stages they should have, issues whose completion was never observed, and I/Os that
/// only the kernel's counters know of (`uncounted`). Requests in flight when the trace began are not a loss.
pub fn lost(summary: &LatencySummary, start: &Reading, end: &Reading) -> Lost {
    let mut kinds = BTreeMap::new();
    let mut add = |kind: &str, n: u64| *kinds.entry(kind.to_string()).or_insert(0) += n;
    let summarized = |device: &DeviceSample| summary.device(&device.name).is_some();
    for last in end.devices.iter().filter(|device| summarized(device)) {
        let first = start.device(&last.name);
        // Counts only: subtracting the rows' histograms would be most of the work.
        let since = |of: &dyn Fn(&DeviceSample) -> u64| of(last).saturating_sub(first.map_or(0, of));
        let rows = |of: fn(&IoRow) -> u64| {
            since(&|device| device.each().map(|(_, _, row)| of(row)).saturating_sum())
        };
        add("no_start", rows(|row| row.no_start));
        add("slot", since(&|device| device.counters.out_of_range));
        add("unseen_completion", summary.device(&last.name).map_or(0, |device| device.unseen));
        add("no_queue_start", since(&|device| device.counters.no_queue_start));
        add("too_many_bios", since(&|device| device.counters.too_many_bios));
        add("started_before", rows(|row| row.untimed));
    }
    let missed = |reading: &Reading| -> u64 { reading.missed.values().saturating_sum() };
    add("missed", missed(end).saturating_sub(missed(start)));
    add("unfollowed_operations", end.unfollowed.saturating_sub(start.unfollowed));
    let uncounted: u64 = summary.devices.iter().map(DeviceLatency::uncounted).saturating_sum();
    add("uncounted", uncounted);
    // A completion that the kernel skipped leaves its slot taken, so it is in `unseen_completion`.
    let ios = LOSSES.iter().filter_map(|kind| kinds.get(*kind)).saturating_sum();
    Lost { ios, probes: BTreeMap::from([("latency".to_string(), kinds)]), ..Lost::default() }
}

/// Issues whose completion event never came: the slot was still taken when the tag was issued again (`stale`), or at
/// the end although the kernel has nothing in flight any more.
///
/// Measured on 6.18 in a VM with an idle second CPU: for some time completion events do not run the program, although
/// the kernel counts the I/Os and counts no recursion miss. On virtio-blk perf misses the same events, on a loop device
/// it does not.
pub(super) fn unseen(counting: Counting, last: &DeviceSample, delta: &DeviceSample) -> u64 {
    // With iostats off the kernel does not count I/Os in flight either.
    let counted = last
        .kernel_before
        .as_ref()
        .filter(|counters| counters.iostats != Some(false) || counting.ignores_the_flag(last));
    let in_flight = counted.map_or(u64::MAX, in_flight);
    delta.counters.stale + last.held.saturating_sub(in_flight)
}

/// Why a result must not be trusted; None if it may. `max_loss` in percent.
pub fn distrust(summary: &LatencySummary, lost: &Lost, max_loss: f64) -> Option<String> {
    let ios: u64 = summary.ios();
    let gone: Vec<&str> = summary.devices.iter().filter(|d| d.vanished).map(|d| d.name.as_str()).collect();
    if !gone.is_empty() {
        return Some(format!(
            "{} vanished during the run: the figures end there; run again on a device that stays",
            gone.join(", ")
        ));
    }
    let negative: u64 = summary.devices.iter().map(|d| d.negative).saturating_sum();
    if negative > 0 {
        return Some(format!(
            "{negative} I/Os ended before they began: the CPUs' clocks disagree, so no stage can be \
             trusted (see `dmesg | grep -i tsc`)"
        ));
    }
    let all = ios.saturating_add(lost.ios);
    let percent = if all == 0 { 0.0 } else { lost.ios as f64 * 100.0 / all as f64 };
    if percent > max_loss {
        // Other probes lose the same I/Os and count them again.
        let of_latency = || lost.probes.get("latency").into_iter().flatten().filter(|(_, n)| **n > 0);
        let kinds: Vec<String> = of_latency()
            .filter(|(kind, _)| LOSSES.contains(&kind.as_str()))
            .map(|(kind, n)| format!("{} {n}", kind.replace('_', " ")))
            .collect();
        let slots = of_latency().find(|(kind, _)| *kind == "slot").map_or(0, |(_, n)| *n);
        let remedy = if slots > lost.ios / 2 {
            "a queue became deeper during the run (nr_requests or scheduler changed), and its new requests \
             have no room in the tables: start again"
        } else {
            "run longer or with less load, or allow more"
        };
        return Some(format!(
            "{} of {all} I/Os ({percent:.2} %) were missed ({}), more than --max-loss {max_loss} % allows: \
             {remedy}",
            lost.ios,
            kinds.join(", ")
        ));
    }
    let share = |n: u64, of: u64| n as f64 * 100.0 / of.max(1) as f64;
    let above =
        |device: &&DeviceLatency| share(device.excess(), device.comparable().max(device.excess())) > max_loss;
    summary.devices.iter().find(above).map(|device| {
        format!(
            "{}: {} more I/Os were accounted for than the kernel counted ({:.2} % of {}), so its counters were \
             off for a while or the figures are wrong: echo 1 > /sys/block/{}/queue/iostats, and run again",
            device.name,
            device.excess(),
            share(device.excess(), device.comparable()),
            device.comparable(),
            device.disk_name()
        )
    })
}

/// The kinds that add up to `lost.ios`; the others cost a stage or are not a loss.
const LOSSES: [&str; 4] = ["no_start", "slot", "unseen_completion", "uncounted"];

#[cfg(test)]
mod tests {
    use super::super::fixtures::{reading, sample};
    use super::super::latency::summarize;
    use super::*;
    use crate::host::Host;
    use crate::wire::WireCounters;

    /// The kernel counts one of three I/Os as complete, and two slots are still taken by requests issued just before
    /// the end. What the kernel has counted was missed; the rest may be in flight.
    #[test]
    fn what_the_kernel_has_completed_and_is_still_out_was_not_seen() {
        let cases = [(3, 2, 2, 0), (3, 1, 1, 1), (2, 5, 1, 0), (1, 5, 0, 0)];
        for (counted, young, unseen, uncounted) in cases {
            let mut end = sample(&[100], counted, counted);
            end.young = young;
            let mut end = reading(1, end);
            let start = reading(0, sample(&[], 0, 0));
            let summary = summarize(&Host::default(), &start, &end);
            let found = lost(&summary, &start, &end);
            let kind = |name: &str| found.probes["latency"][name];
            assert_eq!(
                (kind("unseen_completion"), kind("uncounted")),
                (unseen, uncounted),
                "{counted} {young}"
            );
            assert_eq!(found.ios, counted - 1);
            // With a filter on submitters nothing can be compared.
            end.filtered = true;
            let summary = summarize(&Host::default(), &start, &end);
            assert_eq!(lost(&summary, &start, &end).ios, 0);
        }
    }

    #[test]
    fn what_completes_without_a_start_is_lost_and_not_counted_twice() {
        let mut end = sample(&[100, 100], 3, 3);
        end.rows[0].no_start = 1;
        end.counters = WireCounters { out_of_range: 2, stale: 4, ..WireCounters::default() };
        // Two slots are taken and the kernel has one I/O in flight: one completion was missed.
        end.held = 2;
        end.kernel_before.as_mut().unwrap().in_flight = 1;
        let (start, mut end) = (reading(0, sample(&[], 0, 0)), reading(1, end));
        end.missed.insert("rq_complete", 4);
        end.missed.insert("rq_issue", 8);
        let summary = summarize(&Host::default(), &start, &end);
        let lost = lost(&summary, &start, &end);
        assert_eq!((lost.ios, lost.probes["latency"]["missed"]), (1 + 2 + 4 + 1, 12));
        assert_eq!((summary.devices[0].ios, summary.devices[0].lost_ios), (2, 8));
        assert!(distrust(&summary, &lost, 0.1).unwrap().contains("8 of 10"));
        assert_eq!(distrust(&summary, &lost, 80.0), None);
    }

    /// The I/O is traced; its operations are not.
    #[test]
    fn a_request_of_too_many_bios_is_named_and_no_lost_io() {
        let mut end = sample(&[100, 100], 2, 2);
        end.counters.too_many_bios = 2;
        let mut start = sample(&[], 0, 0);
        start.counters.too_many_bios = 1;
        let (start, end) = (reading(0, start), reading(1, end));
        let lost = lost(&summarize(&Host::default(), &start, &end), &start, &end);
        assert_eq!((lost.ios, lost.probes["latency"]["too_many_bios"]), (0, 1));
    }

    /// queue/iostats was 0 for a while.
    #[test]
    fn what_the_kernel_did_not_count_is_not_to_be_trusted() {
        let why = |kernel, iostats| {
            let mut last = sample(&[100; 20], kernel, kernel);
            last.kernel_after.as_mut().unwrap().iostats = Some(iostats);
            let (start, end) = (reading(0, sample(&[], 0, 0)), reading(1, last));
            let summary = summarize(&Host::default(), &start, &end);
            distrust(&summary, &lost(&summary, &start, &end), 0.1)
        };
        let sentence = why(17, true).unwrap();
        assert!(
            sentence
                .starts_with("sda: 3 more I/Os were accounted for than the kernel counted (15.00 % of 20)"),
            "{sentence}"
        );
        assert!(sentence.contains("/sys/block/sda/queue/iostats"), "{sentence}");
        assert_eq!((why(20, true), why(17, false)), (None, None));
    }

    #[test]
    fn for_requests_without_a_place_less_load_is_no_remedy() {
        let mut last = sample(&[100; 20], 60, 60);
        last.counters = WireCounters { out_of_range: 40, ..WireCounters::default() };
        let (start, end) = (reading(0, sample(&[], 0, 0)), reading(1, last));
        let summary = summarize(&Host::default(), &start, &end);
        let mut lost = lost(&summary, &start, &end);
        // The interrupt programs missed them too.
        lost.probes.insert("interrupts".into(), BTreeMap::from([("uncounted".into(), 40)]));
        let why = distrust(&summary, &lost, 0.1).unwrap();
        assert!(
            why.contains("(slot 40)") && why.ends_with("start again") && !why.contains("less load"),
            "{why}"
        );
    }

    #[test]
    fn what_only_the_kernel_counted_is_lost() {
        let (start, end) = (reading(0, sample(&[], 0, 0)), reading(1, sample(&[100, 100], 5, 5)));
        let summary = summarize(&Host::default(), &start, &end);
        assert_eq!(summary.devices[0].kernel_check(), Some(false));
        assert_eq!(lost(&summary, &start, &end).ios, 3);
    }
}
