//! What a diagnosis makes of its latencies.

use crate::analyze::latency::{LatencySummary, summarize};
use crate::analyze::{loss, missing, sharing};
use crate::envelope::{Envelope, Missing, Reason};
use crate::host::Host;
use crate::load::LoadSummary;
use crate::probe::Probe;
use crate::probe::latency::LatencyProbe;
use crate::wire::reading::Reading;

/// What the window was of.
pub struct Run<'a> {
    pub host: &'a Host,
    /// Disks and partitions that were named.
    pub devices: &'a [String],
    /// A command was measured.
    pub command: bool,
    /// None: the load was not ours.
    pub load: Option<&'a LoadSummary>,
}

impl Run<'_> {
    /// Latencies of the devices that the run is about, and the envelope of all that was lost, cost and not seen.
    pub fn summarize(
        &self,
        probe: &LatencyProbe,
        end: &Reading,
        envelope: Envelope,
    ) -> (Envelope, LatencySummary) {
        let start = probe.start();
        let whole = summarize(self.host, start, end);
        let cost = probe.cost(whole.ios_per_second());
        // What happens on devices that a command does not use is not what the run is about.
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

/// What the load ran without.
fn without(why: &str) -> Missing {
    Missing {
        part: Some("load".to_string()),
        reason: Reason::NotAvailable,
        why: why.to_string(),
        ..Missing::default()
    }
}

/// Of a named partition: what is that of its disk.
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
