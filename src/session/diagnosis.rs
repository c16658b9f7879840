//! Summarizes the latencies for a diagnosis.

use crate::analyze::latency::{LatencySummary, summarize};
use crate::analyze::{loss, missing, sharing};
use crate::envelope::{Envelope, Missing, Reason};
use crate::host::Host;
use crate::load::LoadSummary;
use crate::probe::Probe;
use crate::probe::latency::LatencyProbe;
use crate::wire::reading::Reading;

/// Context of the measurement.
pub struct RunContext<'a> {
    pub host: &'a Host,
    /// Disks and partitions that the user named.
    pub devices: &'a [String],
    /// Whether a command was measured.
    pub command: bool,
    /// None: the load was not ours.
    pub load: Option<&'a LoadSummary>,
}

impl RunContext<'_> {
    /// The latencies of the relevant devices, and the envelope with all losses, costs and gaps.
    pub fn summarize(
        &self,
        probe: &LatencyProbe,
        end: &Reading,
        envelope: Envelope,
    ) -> (Envelope, LatencySummary) {
        let start = probe.start();
        let whole = summarize(self.host, start, end);
        let cost = probe.cost(whole.ios_per_second());
        // I/O on devices that the command does not use is not part of the run.
        let mut latency = if self.command { sharing::of_command(&whole) } else { whole };
        let mut missing = probe.missing().to_vec();
        missing.extend(of_disk(self.host, self.devices));
        missing.extend(missing::stages(&latency));
        if let Some(load) = self.load {
            let driven = latency.devices.iter_mut().find(|device| Some(&device.name) == load.device.as_ref());
            driven.into_iter().for_each(|device| device.operations = Some(load.operations()));
            missing.extend(load.missing.iter().map(|why| without(why)));
        }
        let lost = loss::lost(&latency, start, end);
        (Envelope { duration_ns: latency.duration_ns, lost, cost, missing, ..envelope }, latency)
    }
}

/// A gap of the load.
fn without(why: &str) -> Missing {
    Missing {
        part: Some("load".to_string()),
        reason: Reason::NotAvailable,
        why: why.to_string(),
        ..Missing::default()
    }
}

/// Lists the figures of named partitions that are known only for the whole disk.
fn of_disk(host: &Host, names: &[String]) -> impl Iterator<Item = Missing> {
    let partitions = names.iter().filter_map(|name| Some((name, &host.device(name)?.name)));
    partitions.filter(|(name, disk)| name != disk).map(|(name, disk)| Missing {
        device: Some(name.clone()),
        part: Some("tags, queues, interrupts, locks".to_string()),
        reason: Reason::Partition,
        why: format!("these are not per partition: they are those of the whole disk {disk}"),
        ..Missing::default()
    })
}
