//! Reads what a drive can do and its health, with read-only commands.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::{IDENTIFY_BYTES, feature, identify_controller, identify_namespace};
use super::{Choice, Health, Namespace, Use, choices_of, format_of, health_of, number};
use crate::host::Host;

/// The feature Interrupt Coalescing.
const COALESCING: u8 = 0x08;
/// The memory page size, in which MDTS counts. Drives may use a larger page (CAP.MPSMIN), which no command returns; no
/// drive that Linux supports on x86 does.
const PAGE: u64 = 4096;

/// The answers of one namespace and its drive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Identity {
    /// MDTS: the largest transfer of one command; None: the drive has no such limit.
    #[serde(rename = "max_transfer_bytes")]
    pub transfer_bytes: Option<u64>,
    /// None: not given.
    pub coalescing: Option<Coalescing>,
    /// None: the drive does not give it.
    #[serde(rename = "namespace")]
    pub usage: Option<Use>,
    /// Bytes of metadata per block.
    pub metadata_bytes: Option<u16>,
    /// The formats that the namespace supports; None: not given.
    pub formats: Option<Vec<Choice>>,
    pub health: Option<Health>,
}

impl Identity {
    /// The format in use, and one that the drive itself reports as faster. Both are without metadata.
    pub fn faster_format(&self) -> Option<(Choice, Choice)> {
        let formats = self.formats.as_deref()?;
        let now = formats.iter().find(|choice| choice.in_use && choice.metadata_bytes == 0)?;
        let others = formats.iter().filter(|choice| choice.metadata_bytes == 0);
        let best = others.min_by_key(|choice| choice.performance)?;
        (best.performance < now.performance).then_some((*now, *best))
    }
}

/// Coalescing of completions into one interrupt (feature 08h). It can be disabled for single vectors (09h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Coalescing {
    /// An interrupt comes after this many completions,
    pub completions: u32,
    /// or this long after the first of them.
    pub time_us: u32,
}

impl Coalescing {
    /// Decodes the feature's value.
    fn of(value: u32) -> Self {
        // The threshold counts from 0, the time is in 100 us.
        let (threshold, time) = (value & 0xff, value >> 8 & 0xff);
        Self { completions: threshold + 1, time_us: time * 100 }
    }

    /// With one completion or no time, coalescing is off.
    pub fn is_on(self) -> bool {
        self.completions > 1 && self.time_us > 0
    }
}

/// MDTS as bytes: a power of two of pages.
fn transfer_bytes(controller: &[u8; IDENTIFY_BYTES]) -> Option<u64> {
    let shift = number(&controller[77..78]) as u32;
    // A larger value is not a size.
    (1..=32).contains(&shift).then(|| PAGE << shift)
}

impl Namespace {
    /// The identity that this process may read, and the first error that stops it from reading the rest: the kernel
    /// lets users identify a drive whose node they may open, and no more. Commands that the drive itself refuses are
    /// absent without an error.
    fn identity(&self) -> io::Result<(Identity, Option<io::Error>)> {
        let fd = self.file.as_raw_fd();
        let mut denied = None;
        let controller = identify_controller(fd)?;
        let namespace = heard(identify_namespace(fd, self.id), &mut denied);
        let identity = Identity {
            transfer_bytes: transfer_bytes(&controller),
            coalescing: heard(feature(fd, COALESCING), &mut denied).map(Coalescing::of),
            usage: namespace.as_ref().and_then(Use::of),
            metadata_bytes: namespace.as_ref().and_then(format_of).map(|format| format.metadata),
            formats: namespace.as_ref().map(choices_of).filter(|all| !all.is_empty()),
            health: heard(health_of(fd, &controller), &mut denied),
        };
        Ok((identity, denied))
    }
}

/// The answer; keeps the first error that does not come from the drive.
fn heard<T>(answer: io::Result<T>, denied: &mut Option<io::Error>) -> Option<T> {
    match answer {
        Ok(told) => Some(told),
        Err(error) => {
            if error.raw_os_error().is_some() {
                denied.get_or_insert(error);
            }
            None
        }
    }
}

/// Queries the NVMe drives among these devices. Returns the names of drives with incomplete answers, and the errors.
pub fn identify(root: &Path, host: &mut Host, names: &[String]) -> Vec<(String, io::Error)> {
    let mut untold = Vec::new();
    // The paths of a multipath drive have no nodes; the head is queried.
    let asked = host.devices.iter_mut().filter(|device| !device.hidden && names.contains(&device.name));
    for device in asked {
        let Some(told) = Namespace::open(root, &device.name) else { continue };
        match told.and_then(|namespace| namespace.identity()) {
            Ok((identity, denied)) => {
                device.identity = Some(identity);
                untold.extend(denied.map(|error| (device.name.clone(), error)));
            }
            Err(error) => untold.push((device.name.clone(), error)),
        }
    }
    untold
}

#[cfg(test)]
mod tests {
    use super::super::Performance;
    use super::*;

    #[test]
    fn coalescing_is_on_where_both_of_its_numbers_are() {
        assert!([0, 0x0007, 0x0a00].iter().all(|value| !Coalescing::of(*value).is_on()));
        let on = Coalescing::of(0x0a07);
        assert_eq!(on, Coalescing { completions: 8, time_us: 1_000 });
        assert!(on.is_on());
    }

    #[test]
    fn who_may_not_ask_is_told_so_and_who_is_refused_by_the_drive_is_not() {
        let mut denied = None;
        assert_eq!(heard(Ok(1), &mut denied), Some(1));
        assert_eq!(heard::<u8>(Err(io::Error::other("the drive refuses it")), &mut denied), None);
        assert!(denied.is_none());
        assert_eq!(heard::<u8>(Err(io::Error::from_raw_os_error(libc::EACCES)), &mut denied), None);
        assert_eq!(heard::<u8>(Err(io::Error::from_raw_os_error(libc::EIO)), &mut denied), None);
        assert_eq!(denied.unwrap().raw_os_error(), Some(libc::EACCES));
    }

    #[test]
    fn another_format_is_faster_only_where_the_drive_says_so() {
        let choice = |format, performance, metadata_bytes| Choice {
            format,
            block_bytes: 512 << format,
            metadata_bytes,
            performance,
            in_use: format == 0,
        };
        let faster = |formats: &[Choice]| {
            let identity = Identity { formats: Some(formats.to_vec()), ..Identity::default() };
            identity.faster_format().map(|(_, other)| other.format)
        };
        let now = choice(0, Performance::Good, 0);
        assert_eq!(faster(&[now, choice(1, Performance::Good, 0)]), None);
        assert_eq!(
            faster(&[now, choice(1, Performance::Better, 0), choice(2, Performance::Best, 0)]),
            Some(2)
        );
        assert_eq!(faster(&[now, choice(1, Performance::Best, 8)]), None, "metadata is another use");
        assert_eq!((faster(&[now, choice(1, Performance::Degraded, 0)]), faster(&[])), (None, None));
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
