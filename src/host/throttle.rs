//! Reads the limits that cgroups set on devices: `io.max` of cgroup v2, `blkio.throttle.*` of v1.

use std::fs;
use std::path::Path;

use super::attribute::{device_number, file};
use super::mounts::{Mount, mounts};
use super::{BlockDevice, Throttle};

/// Bounds the cost on a machine with tens of thousands of cgroups.
const MOST_GROUPS: usize = 20_000;

/// Files of v1 and the limit in each.
const V1: [(&str, ThrottleLimit); 4] = [
    ("blkio.throttle.read_bps_device", ThrottleLimit::ReadBytes),
    ("blkio.throttle.write_bps_device", ThrottleLimit::WriteBytes),
    ("blkio.throttle.read_iops_device", ThrottleLimit::ReadIos),
    ("blkio.throttle.write_iops_device", ThrottleLimit::WriteIos),
];

#[derive(Debug, Clone, Copy)]
enum ThrottleLimit {
    ReadBytes,
    WriteBytes,
    ReadIos,
    WriteIos,
}

impl ThrottleLimit {
    /// The limit of a key of `io.max`.
    fn of_key(key: &str) -> Option<Self> {
        match key {
            "rbps" => Some(Self::ReadBytes),
            "wbps" => Some(Self::WriteBytes),
            "riops" => Some(Self::ReadIos),
            "wiops" => Some(Self::WriteIos),
            _ => None,
        }
    }

    fn set(self, throttle: &mut Throttle, value: u64) {
        *match self {
            Self::ReadBytes => &mut throttle.read_bytes_per_second,
            Self::WriteBytes => &mut throttle.write_bytes_per_second,
            Self::ReadIos => &mut throttle.read_ios_per_second,
            Self::WriteIos => &mut throttle.write_ios_per_second,
        } = Some(value);
    }
}

/// All limits of all visible cgroups on existing disks. The scan visits every cgroup, so a command runs it only if it
/// needs limits.
pub fn throttles(root: &Path, devices: &[BlockDevice]) -> Vec<Throttle> {
    let own = file(&root.join("proc/self/cgroup")).unwrap_or_default();
    let mut found = Vec::new();
    for mount in hierarchies(root) {
        let top = root.join(mount.point.trim_start_matches('/'));
        let v2 = mount.kind == "cgroup2";
        let own = own_group(&own, v2, &mount);
        let mut groups = vec![String::new()];
        let mut next = 0;
        while let Some(group) = groups.get(next).cloned() {
            next += 1;
            let directory = top.join(&group);
            let is_own = own.as_deref().is_some_and(|own| Path::new(own).starts_with(&group));
            let mut limits = if v2 { of_v2(&directory) } else { of_v1(&directory) };
            for (number, throttle) in &mut limits {
                let Some(device) = devices.iter().find(|d| (d.major, d.minor) == *number) else { continue };
                (throttle.cgroup, throttle.device) = (format!("/{group}"), device.name.clone());
                throttle.own = is_own;
                found.push(throttle.clone());
            }
            let room = MOST_GROUPS.saturating_sub(groups.len());
            groups.extend(below(&directory, &group).into_iter().take(room));
        }
    }
    found
}

/// Whether limits can be read at all: a hierarchy with the block controller is mounted. Each v2 cgroup that has the
/// controller has an `io.max`, except the root, which is never limited.
pub fn are_told(root: &Path) -> bool {
    hierarchies(root).iter().any(|mount| {
        let controllers = root.join(mount.point.trim_start_matches('/')).join("cgroup.controllers");
        mount.kind == "cgroup"
            || file(&controllers).unwrap_or_default().split_whitespace().any(|name| name == "io")
    })
}

/// The mounts of v2 and of v1's block controller.
fn hierarchies(root: &Path) -> Vec<Mount> {
    let has_limits = |mount: &Mount| match mount.kind.as_str() {
        "cgroup2" => true,
        "cgroup" => root.join(mount.point.trim_start_matches('/')).join(V1[0].0).exists(),
        _ => false,
    };
    mounts(root).into_iter().filter(has_limits).collect()
}

/// The directories directly below, as paths from the top; links are not followed.
fn below(directory: &Path, group: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let directories = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let path = |name: String| if group.is_empty() { name } else { format!("{group}/{name}") };
    directories.map(|entry| path(entry.file_name().to_string_lossy().into_owned())).collect()
}

/// The cgroup of this process, relative to the mount of its hierarchy: `0::/path` in v2, `7:blkio:/path` in v1.
fn own_group(text: &str, v2: bool, mount: &Mount) -> Option<String> {
    let path = text.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let wanted =
            if v2 { controllers.is_empty() } else { controllers.split(',').any(|name| name == "blkio") };
        wanted.then_some(path)
    })?;
    let path = Path::new(path).strip_prefix(&mount.root).ok()?;
    Some(path.to_string_lossy().into_owned())
}

/// Parses `8:0 rbps=2097152 wbps=max riops=max wiops=120`, one line per device.
fn of_v2(directory: &Path) -> Vec<((u32, u32), Throttle)> {
    let text = file(&directory.join("io.max")).unwrap_or_default();
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let number = device_number(words.next()?)?;
        let mut throttle = Throttle::default();
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            // `max` is not a number and not a limit.
            if let (Some(limit), Ok(value)) = (ThrottleLimit::of_key(key), value.parse()) {
                limit.set(&mut throttle, value);
            }
        }
        throttle.limits().next()?;
        Some((number, throttle))
    };
    text.lines().filter_map(line).collect()
}

/// Parses `8:0 2097152`, one line per device, in a file per limit.
fn of_v1(directory: &Path) -> Vec<((u32, u32), Throttle)> {
    let mut all: Vec<((u32, u32), Throttle)> = Vec::new();
    for (name, limit) in V1 {
        for line in file(&directory.join(name)).unwrap_or_default().lines() {
            let Some((number, value)) = line.split_once(' ') else { continue };
            let (Some(number), Ok(value)) = (device_number(number), value.trim().parse()) else { continue };
            let at = all.iter().position(|(of, _)| *of == number).unwrap_or_else(|| {
                all.push((number, Throttle::default()));
                all.len() - 1
            });
            limit.set(&mut all[at].1, value);
        }
    }
    all
}
