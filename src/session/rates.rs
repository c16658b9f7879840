//! Samples the kernel's counters of the devices ten times a second.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::analyze::rates::{DeviceRates, DeviceWindows, RateInterval};
use crate::host::counters::Counters;

const EVERY: Duration = Duration::from_millis(100);

struct Device {
    name: String,
    last: Option<(Instant, Counters)>,
    /// Each window with its end.
    windows: VecDeque<(Instant, RateInterval)>,
}

/// The samples of all devices.
pub struct RateSampler {
    devices: Vec<Device>,
    due: Instant,
}

impl RateSampler {
    pub fn new<'a>(devices: impl Iterator<Item = &'a str>) -> Self {
        let device = |name: &str| Device { name: name.to_string(), last: None, windows: VecDeque::new() };
        Self { devices: devices.map(device).collect(), due: Instant::now() }
    }

    /// Takes a sample if one is due; call it several times a second.
    pub fn tick(&mut self) {
        if Instant::now() < self.due {
            return;
        }
        for device in &mut self.devices {
            device.sample();
        }
        // A late tick must not cause two samples in a row.
        self.due = Instant::now() + EVERY;
    }

    /// The windows that ended after `from` and not after `to`, of the devices with any I/O.
    pub fn between(&self, from: Instant, to: Instant) -> Vec<DeviceWindows> {
        let used = |device: &&Device| device.last.is_some_and(|(_, counters)| counters.ios() > 0);
        let windows = |device: &Device| DeviceWindows {
            name: device.name.clone(),
            windows: (device.windows.iter().filter(|(end, _)| *end > from && *end <= to))
                .map(|(_, window)| *window)
                .collect(),
        };
        self.devices.iter().filter(used).map(windows).collect()
    }

    /// The devices with any activity.
    pub fn end(self) -> Vec<DeviceRates> {
        let all = self.devices.into_iter().map(|device| {
            let windows = device.windows.into_iter().map(|(_, window)| window).collect();
            DeviceWindows { name: device.name, windows }
        });
        DeviceRates::of_all(all)
    }
}

impl Device {
    fn sample(&mut self) {
        let Ok(counters) = Counters::read_counts(Path::new("/"), &self.name) else {
            self.last = None;
            return;
        };
        let now = Instant::now();
        if let Some((then, last)) = self.last.replace((now, counters)) {
            let ns = now.duration_since(then).as_nanos() as u64;
            self.windows.extend(RateInterval::between(&last, &counters, ns).map(|window| (now, window)));
            if self.windows.len() > DeviceWindows::MOST {
                self.windows.pop_front();
            }
        }
    }
}
