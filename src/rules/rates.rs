//! Facts from a device's rate samples, shared by several rules.

use super::Summaries;
use super::facts::{self, DeviceView};
use crate::analyze::rates::{DeviceRates, Following};
use crate::units::count;

/// Up to this variation a rate is steady. A rate set only by the load's waits varies more.
const STEADY: f64 = 0.02;

/// The samples of a device, if meaningful: they count the I/O of all processes.
pub fn of<'a>(s: &Summaries<'a>, p: &DeviceView<'_>) -> Option<&'a DeviceRates> {
    let rates = s.rates.iter().find(|rates| rates.device == p.device.name)?;
    (rates.is_enough() && facts::has_all_ios(s, p.device) && !p.device.vanished).then_some(rates)
}

/// I/Os per second with the variation, if steady.
pub fn steady_iops(rates: &DeviceRates) -> Option<(f64, f64)> {
    rates.iops().filter(|iops| iops.variation <= STEADY).map(|iops| (iops.median, iops.variation))
}

/// Same for bytes.
pub fn steady_bytes(rates: &DeviceRates) -> Option<(f64, f64)> {
    rates
        .bytes_per_second()
        .filter(|bytes| bytes.variation <= STEADY)
        .map(|bytes| (bytes.median, bytes.variation))
}

/// Without biopsy's own load: how the rate followed the I/Os in flight, if these varied.
pub fn following(s: &Summaries<'_>, p: &DeviceView<'_>) -> Option<Following> {
    if s.load.is_some() { None } else { of(s, p)?.following() }
}

/// `with 3.2 I/Os in flight 20,100 I/Os per second, with 9.8 in flight 20,400`
pub fn following_line(following: &Following) -> String {
    let [few, many] = following.in_flight;
    let [slow, fast] = following.iops.map(|iops| count(iops.round() as u64));
    format!("{few:.1} I/Os in flight: {slow} IOPS; {many:.1} in flight: {fast} IOPS")
}
