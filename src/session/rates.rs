//! Samples the kernel's counters of the devices ten times a second.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::analyze::rates::{DeviceRates, Window};
use crate::host::counters::Counters;

const EVERY: Duration = Duration::from_millis(100);

/// Of a longer run the last: 10 minutes.
const MOST: usize = 6_000;

struct Device {
    name: String,
    last: Option<(Instant, Counters)>,
    windows: VecDeque<Window>,
}

/// All devices.
pub struct RateSampler {
    devices: Vec<Device>,
    due: Instant,
}

impl RateSampler {
    pub fn new<'a>(devices: impl Iterator<Item = &'a str>) -> Self {
        let device = |name: &str| Device { name: name.to_string(), last: None, windows: VecDeque::new() };
        Self { devices: devices.map(device).collect(), due: Instant::now() }
    }

    /// Called several times a second: takes a sample where one is due.
    pub fn tick(&mut self) {
        if Instant::now() < self.due {
            return;
        }
        for device in &mut self.devices {
            device.sample();
        }
        // A tick that comes late is no reason for two in a row.
        self.due = Instant::now() + EVERY;
    }

    /// The devices that did something.
    pub fn end(self) -> Vec<DeviceRates> {
        let rates = self.devices.into_iter().map(|device| {
            let windows: Vec<Window> = device.windows.into();
            DeviceRates::new(device.name, &windows)
        });
        rates.filter(|rates| rates.busy > 0.0).collect()
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
            self.windows.extend(Window::between(&last, &counters, ns));
            if self.windows.len() > MOST {
                self.windows.pop_front();
            }
        }
    }
}
