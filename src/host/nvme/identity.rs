//! What a drive can do and how it fares, as it tells by commands that read only.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use serde::Serialize;

use super::command::{IDENTIFY_BYTES, feature, identify_controller};
use super::{Health, Namespace, Use, number};
use crate::envelope::Missing;
use crate::host::{BlockDevice, Host};
use crate::refusal::reason;

/// The feature that has completions wait for each other before they interrupt.
const COALESCING: u8 = 0x08;
/// The page of memory that sizes are counted in. Drives may count in larger ones (CAP.MPSMIN), which no command tells;
/// none does that Linux drives on x86.
const PAGE: u64 = 4096;

/// What could be learned of one namespace and its drive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Identity {
    /// MDTS: the most that one command moves; None: the drive has no such limit.
    pub transfer_bytes: Option<u64>,
    pub coalescing: Option<Coalescing>,
    /// None: the drive does not tell.
    pub usage: Option<Use>,
    /// Bytes beside each block.
    pub metadata_bytes: Option<u16>,
    pub health: Option<Health>,
}

/// How completions are gathered for an interrupt (feature 08h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Coalescing {
    /// An interrupt comes at so many completions.
    pub completions: u32,
    /// Or so long after the first of them.
    pub time_us: u32,
}

impl Coalescing {
    /// From the feature's value. None: it is off, which a time or a threshold of 0 says.
    fn of(value: u32) -> Option<Self> {
        // The threshold is counted from 0, the time in 100 us.
        let (threshold, time) = (value & 0xff, value >> 8 & 0xff);
        (threshold > 0 && time > 0).then_some(Self { completions: threshold + 1, time_us: time * 100 })
    }
}

/// MDTS as bytes: a power of two of pages.
fn transfer_bytes(controller: &[u8; IDENTIFY_BYTES]) -> Option<u64> {
    let shift = number(&controller[77..78]) as u32;
    // Above, it is no size.
    (1..=32).contains(&shift).then(|| PAGE << shift)
}

impl Namespace {
    /// All of it; what the drive refuses to tell is absent.
    pub fn identity(&self) -> io::Result<Identity> {
        let fd = self.file.as_raw_fd();
        let controller = identify_controller(fd)?;
        Ok(Identity {
            transfer_bytes: transfer_bytes(&controller),
            coalescing: feature(fd, COALESCING).ok().and_then(Coalescing::of),
            usage: self.usage().ok().flatten(),
            metadata_bytes: self.format().ok().flatten().map(|format| format.metadata),
            health: self.health().ok(),
        })
    }
}

/// Asks the NVMe drives of this machine, and says which ones could not be.
pub fn identify(root: &Path, host: &mut Host) -> Vec<Missing> {
    let mut missing = Vec::new();
    // The paths of a multipath drive have no nodes; the drive itself tells.
    for device in host.devices.iter_mut().filter(|device| !device.hidden) {
        let Some(told) = Namespace::open(root, &device.name) else { continue };
        match told.and_then(|namespace| namespace.identity()) {
            Ok(identity) => device.identity = Some(identity),
            Err(error) => missing.push(unknown(device, &error)),
        }
    }
    missing
}

fn unknown(device: &BlockDevice, error: &io::Error) -> Missing {
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    Missing {
        device: Some(device.name.clone()),
        reason: "not-told".to_string(),
        why: format!("health and limits of the drive {}: {}", device.name, reason(error)),
        remedy: denied.then(|| "run it as root".to_string()),
        ..Missing::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coalescing_is_on_where_both_of_its_numbers_are() {
        assert_eq!(Coalescing::of(0), None);
        assert_eq!((Coalescing::of(0x0007), Coalescing::of(0x0a00)), (None, None));
        assert_eq!(Coalescing::of(0x0a07), Some(Coalescing { completions: 8, time_us: 1_000 }));
    }

    #[test]
    fn the_largest_transfer_is_a_power_of_pages() {
        let mut controller = [0; IDENTIFY_BYTES];
        assert_eq!(transfer_bytes(&controller), None, "no limit");
        controller[77] = 7;
        assert_eq!(transfer_bytes(&controller), Some(512 << 10));
        controller[77] = 255;
        assert_eq!(transfer_bytes(&controller), None);
    }
}
