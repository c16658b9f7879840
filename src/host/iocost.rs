//! Reads the settings of the controller io.cost for each device: with it, cgroup v2 shares a device by weight.
//!
//! Both files exist only in the root of the hierarchy, so a container cannot read them.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::BlockDevice;
use super::attribute::{device_number, file};
use super::mounts::mounts;

/// The settings of io.cost for a device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IoCost {
    /// Name of the disk.
    pub device: String,
    pub enabled: Option<bool>,
    /// Whether the following values were set (`user`), or the kernel chose them by the kind of device (`auto`).
    pub control: Option<String>,
    pub read: Target,
    pub write: Target,
    /// The range in which io.cost drives the device, in percent of its model.
    pub min_percent: Option<f64>,
    pub max_percent: Option<f64>,
    /// None: the kernel has no model for it.
    pub model: Option<Model>,
}

/// The latency above which a device counts as saturated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Target {
    /// The percentage of I/Os that must stay below; 0 disables the target.
    pub percentile: Option<f64>,
    pub latency_us: Option<u64>,
}

/// The capability of the device, as the controller assumes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Model {
    pub control: Option<String>,
    pub read: Rates,
    pub write: Rates,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Rates {
    pub bytes_per_second: Option<u64>,
    pub sequential_ios_per_second: Option<u64>,
    pub random_ios_per_second: Option<u64>,
}

/// Reads the settings of the given disks.
pub fn costs(root: &Path, devices: &[BlockDevice]) -> Vec<IoCost> {
    let mut found: Vec<IoCost> = Vec::new();
    let mounts = mounts(root);
    let Some(mount) = mounts.iter().find(|mount| mount.kind == "cgroup2") else { return found };
    let top = root.join(mount.point.trim_start_matches('/'));
    let lines = |name: &str| file(&top.join(name)).unwrap_or_default();
    let disk = |line: &str| {
        let number = device_number(line.split_whitespace().next()?)?;
        devices.iter().find(|device| (device.major, device.minor) == number).map(|device| device.name.clone())
    };
    for line in lines("io.cost.qos").lines() {
        found.extend(disk(line).map(|device| quality(device, line)));
    }
    for line in lines("io.cost.model").lines() {
        let Some(device) = disk(line) else { continue };
        let at = found.iter().position(|cost| cost.device == device).unwrap_or_else(|| {
            found.push(IoCost { device, ..IoCost::default() });
            found.len() - 1
        });
        found[at].model = Some(model(line));
    }
    found
}

/// `8:0 enable=1 ctrl=user rpct=95.00 rlat=10000 wpct=95.00 wlat=20000 min=50.00 max=150.00`.
fn quality(device: String, line: &str) -> IoCost {
    let target = |side: &str| Target {
        percentile: share(line, &format!("{side}pct")),
        latency_us: value(line, &format!("{side}lat")).and_then(|text| text.parse().ok()),
    };
    IoCost {
        device,
        enabled: match value(line, "enable") {
            Some("0") => Some(false),
            Some("1") => Some(true),
            _ => None,
        },
        control: value(line, "ctrl").map(str::to_string),
        read: target("r"),
        write: target("w"),
        min_percent: share(line, "min"),
        max_percent: share(line, "max"),
        model: None,
    }
}

/// `8:0 ctrl=auto model=linear rbps=488636629 rseqiops=8932 rrandiops=8518 wbps=427891549 wseqiops=28755 wrandiops=21940`.
fn model(line: &str) -> Model {
    let rates = |side: &str| {
        let number = |key: &str| value(line, &format!("{side}{key}")).and_then(|text| text.parse().ok());
        Rates {
            bytes_per_second: number("bps"),
            sequential_ios_per_second: number("seqiops"),
            random_ios_per_second: number("randiops"),
        }
    };
    Model { control: value(line, "ctrl").map(str::to_string), read: rates("r"), write: rates("w") }
}

fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_whitespace()
        .find_map(|word| word.split_once('=').filter(|(known, _)| *known == key))
        .map(|(_, v)| v)
}

/// Parses a percentage; text that is not a number, or a value out of range, is absent.
fn share(line: &str, key: &str) -> Option<f64> {
    value(line, key)?.parse().ok().filter(|share| (0.0..=10_000.0).contains(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lines_are_read_as_the_kernel_prints_them() {
        let line = "8:0 enable=1 ctrl=user rpct=95.00 rlat=10000 wpct=0.00 wlat=20000 min=50.00 max=150.00";
        let cost = quality("sda".into(), line);
        assert_eq!((cost.enabled, cost.control.as_deref()), (Some(true), Some("user")));
        assert_eq!(cost.read, Target { percentile: Some(95.0), latency_us: Some(10_000) });
        assert_eq!(
            (cost.write.percentile, cost.min_percent, cost.max_percent),
            (Some(0.0), Some(50.0), Some(150.0))
        );
        let line = "8:0 ctrl=auto model=linear rbps=488636629 rseqiops=8932 rrandiops=8518 wbps=1 wseqiops=2";
        let model = model(line);
        let read = Rates {
            bytes_per_second: Some(488_636_629),
            sequential_ios_per_second: Some(8_932),
            random_ios_per_second: Some(8_518),
        };
        assert_eq!((model.read, model.write.random_ios_per_second), (read, None));
    }

    #[test]
    fn what_is_no_number_is_absent() {
        let cost = quality("sda".into(), "8:0 enable=yes rpct=NaN rlat=-1 min=1e9 max= wlat");
        assert_eq!(cost, IoCost { device: "sda".into(), ..IoCost::default() });
    }
}
