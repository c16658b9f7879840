//! Computes what an interval of interrupts lost, and whether the rest can be trusted.

use std::collections::BTreeMap;

use super::super::counting::Bracket;
use super::{DeviceInterrupts, InterruptSummary, VectorSummary};
use crate::envelope::Lost;
use crate::merge::SaturatingSum as _;
use crate::wire::interrupts::Reading;

impl VectorSummary {
    /// Interrupts that the kernel certainly counted in the interval and that were missed.
    pub fn uncounted(&self) -> u64 {
        short(self.kernel, self.interrupts)
    }

    /// Whether the kernel's count agrees; None where that is unknown.
    pub fn kernel_check(&self) -> Option<bool> {
        self.kernel.map(|bracket| bracket.holds(self.interrupts))
    }
}

impl DeviceInterrupts {
    /// I/Os of the classes that the kernel counts: all but passthrough.
    pub fn comparable(&self) -> u64 {
        self.ios.saturating_sub(self.passthrough)
    }

    /// I/Os that the kernel certainly counted in the interval and that were missed.
    pub fn uncounted(&self) -> u64 {
        short(self.kernel_ios, self.comparable())
    }
}

fn short(kernel: Option<Bracket>, seen: u64) -> u64 {
    kernel.map_or(0, |bracket| bracket.min.saturating_sub(seen))
}

fn beyond(kernel: Option<Bracket>, seen: u64) -> u64 {
    kernel.map_or(0, |bracket| seen.saturating_sub(bracket.max))
}

/// Losses of the interval, by kind.
pub fn lost(summary: &InterruptSummary, start: &Reading, end: &Reading) -> Lost {
    let missed = |reading: &Reading| reading.missed.values().saturating_sum();
    let ios = summary.devices.iter().map(DeviceInterrupts::uncounted).saturating_sum();
    let interrupts = summary.vectors.iter().map(VectorSummary::uncounted).saturating_sum();
    let kinds = BTreeMap::from([
        ("missed".to_string(), missed(end).saturating_sub(missed(start))),
        ("uncounted".to_string(), ios),
        ("uncounted_interrupts".to_string(), interrupts),
        ("unnamed_tasks".to_string(), end.unnamed.saturating_sub(start.unnamed)),
    ]);
    Lost {
        ios,
        events: interrupts,
        probes: BTreeMap::from([("interrupts".to_string(), kinds)]),
        ..Lost::default()
    }
}

/// Why a result must not be trusted; None if it may. `max_loss` in percent of the I/Os and of the interrupts.
pub fn distrust(summary: &InterruptSummary, lost: &Lost, max_loss: f64) -> Option<String> {
    let gone: Vec<&str> = summary.devices.iter().filter(|d| d.vanished).map(|d| d.name.as_str()).collect();
    if !gone.is_empty() {
        return Some(format!(
            "{} vanished during the run: the figures end there; run again on a device that stays",
            gone.join(", ")
        ));
    }
    let interrupts: u64 = summary.vectors.iter().map(|vector| vector.interrupts).saturating_sum();
    for (noun, seen, lost) in [("I/Os", summary.ios(), lost.ios), ("interrupts", interrupts, lost.events)] {
        let all = seen.saturating_add(lost);
        let percent = if all == 0 { 0.0 } else { lost as f64 * 100.0 / all as f64 };
        if percent > max_loss {
            return Some(format!(
                "{lost} of {all} {noun} ({percent:.2} %) were missed, more than --max-loss {max_loss} % \
                 allows: run longer or with less load, or allow more"
            ));
        }
    }
    let too_many = |seen: u64, excess: u64| excess as f64 * 100.0 > max_loss * seen.max(1) as f64;
    let device =
        summary.devices.iter().find(|d| too_many(d.comparable(), beyond(d.kernel_ios, d.comparable())));
    if let Some(device) = device {
        return Some(format!(
            "{}: {} more I/Os were accounted for than the kernel counted, so its counters were off for a while \
             or the figures are wrong: echo 1 > /sys/block/{0}/queue/iostats, and run again",
            device.name,
            beyond(device.kernel_ios, device.comparable())
        ));
    }
    let vector = summary.vectors.iter().find(|v| too_many(v.interrupts, beyond(v.kernel, v.interrupts)))?;
    Some(format!(
        "interrupt {}: {} more were measured than /proc/interrupts counted: the figures are wrong; run again",
        vector.irq,
        beyond(vector.kernel, vector.interrupts)
    ))
}
