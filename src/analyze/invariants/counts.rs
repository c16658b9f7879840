//! Checks that everything the kernel counted was traced, or is reported as lost.

use std::collections::BTreeMap;

use super::super::counting::{Bracket, KernelCount};
use super::super::op::KernelClass;
use super::{Invariant, TestedRun, figure, not_tested, too_many};

/// The kernel's own counters: c − b ≤ seen + lost ≤ d − a, class by class.
pub fn kernel_counters(m: &TestedRun<'_>) -> Invariant {
    const NAME: &str = "kernel-counters";
    let mut classes: BTreeMap<KernelClass, (Bracket, u64)> = BTreeMap::new();
    let mut broken = Vec::new();
    let mut lost = 0;
    for device in &m.summary.devices {
        let Some(brackets) = &device.kernel else {
            let why = format!(
                "the kernel does not count the I/O of {0}: echo 1 > /sys/block/{0}/queue/iostats",
                device.disk_name()
            );
            return not_tested(NAME, &why);
        };
        lost += device.lost_ios;
        for (class, KernelCount { kernel: bracket, .. }) in brackets {
            let seen = device.counted(*class);
            let (sum, all) = classes.entry(*class).or_default();
            (sum.min, sum.max, *all) = (sum.min + bracket.min, sum.max + bracket.max, *all + seen);
            // Lost I/Os have no class.
            if seen > bracket.max || seen + device.lost_ios < bracket.min {
                broken.push(format!(
                    "{}: {seen} of type {} measured and {} missed of all types, but the kernel counted {} \
                     to {}",
                    device.name,
                    class.name(),
                    device.lost_ios,
                    bracket.min,
                    bracket.max
                ));
            }
        }
        let whole = device.kernel_total().unwrap_or_default();
        if broken.is_empty() && !whole.holds(device.comparable()) {
            broken.push(format!(
                "{}: {} I/Os measured or missed, but the kernel counted {} to {}",
                device.name,
                device.comparable(),
                whole.min,
                whole.max
            ));
        }
    }
    let used = classes.iter().filter(|(_, (bracket, seen))| bracket.max + seen > 0);
    let mut numbers: Vec<_> = used
        .flat_map(|(class, (bracket, seen))| {
            [("min", bracket.min), ("seen", *seen), ("max", bracket.max)]
                .map(|(what, n)| figure(&format!("{}_{what}", class.name()), n))
        })
        .collect();
    numbers.push(figure("lost", lost));
    m.of_ios(NAME, numbers, broken.into_iter().next())
}

/// Few I/Os lack stages, and all of them are reported.
pub fn loss(m: &TestedRun<'_>) -> Invariant {
    let numbers: Vec<_> = [figure("lost", m.lost.ios)]
        .into_iter()
        .chain(m.lost.kinds().map(|(kind, n)| figure(kind, n)))
        .collect();
    let broken = too_many(m, m.lost.ios).map(|share| format!("{share} of the I/Os were missed"));
    m.of_ios("loss", numbers, broken)
}
