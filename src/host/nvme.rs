//! Reads an NVMe drive's use of its namespaces and its health, with read-only commands.
//!
//! The layouts are those of the NVM Express specifications: Identify Namespace of the NVM command set, Identify
//! Controller, the feature Host Controlled Thermal Management (10h), and the log page SMART / Health Information (02h).

pub mod command;
pub mod identity;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use command::{IDENTIFY_BYTES, feature, identify_controller, identify_namespace, log_page, namespace_of};

/// Number and length of the SMART / Health log page.
const HEALTH: u8 = 0x02;
const HEALTH_BYTES: usize = 512;

/// The feature that gives the temperatures of Host Controlled Thermal Management.
const THERMAL_MANAGEMENT: u8 = 0x10;

/// The part of a namespace that holds data, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Use {
    /// NSZE: the size of the namespace.
    #[serde(rename = "size_bytes")]
    pub size: u64,
    /// NCAP: the bytes that may be allocated at once.
    #[serde(rename = "capacity_bytes")]
    pub capacity: u64,
    /// NUSE: the bytes that are allocated. Drives that do not count them report the capacity.
    #[serde(rename = "used_bytes")]
    pub used: u64,
}

impl Use {
    /// Decodes the Identify Namespace structure; None if it gives no size, or if the block size is out of range.
    pub fn of(identify: &[u8; IDENTIFY_BYTES]) -> Option<Self> {
        let shift = format_of(identify)?.shift;
        let bytes = |at: usize| number(&identify[at..at + 8]).checked_mul(1 << shift);
        let found = Self { size: bytes(0)?, capacity: bytes(8)?, used: bytes(16)? };
        (found.size > 0).then_some(found)
    }
}

/// The format of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamespaceFormat {
    /// Size of the logical block, as a power of two.
    pub shift: u32,
    /// Bytes of metadata per block.
    pub metadata: u16,
}

/// The format in use, from the Identify Namespace structure; None if its block size is out of range.
pub fn format_of(identify: &[u8; IDENTIFY_BYTES]) -> Option<NamespaceFormat> {
    let format = usize::from(format_in_use(identify));
    let [low, high, shift @ 9..=16, _] = identify[128 + 4 * format..][..4] else { return None };
    Some(NamespaceFormat { shift: shift.into(), metadata: u16::from_le_bytes([low, high]) })
}

/// The number of the format in use (FLBAS): the lower four bits, then the bit for the place of the metadata, then the
/// upper two.
fn format_in_use(identify: &[u8; IDENTIFY_BYTES]) -> u8 {
    let flbas = identify[26];
    flbas & 0xf | (flbas >> 5 & 0x3) << 4
}

/// The drive's own rating of a format, relative to its other formats (RP).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Performance {
    Best,
    Better,
    Good,
    Degraded,
}

impl Performance {
    pub fn name(self) -> &'static str {
        match self {
            Self::Best => "best",
            Self::Better => "better",
            Self::Good => "good",
            Self::Degraded => "degraded",
        }
    }
}

/// A format that the namespace supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Choice {
    /// Its number, as the format command takes it.
    pub format: u8,
    pub block_bytes: u64,
    /// Per block.
    pub metadata_bytes: u16,
    pub performance: Performance,
    pub in_use: bool,
}

/// All formats that the namespace supports, by number, without those whose block size is out of range.
pub fn choices_of(identify: &[u8; IDENTIFY_BYTES]) -> Vec<Choice> {
    // NLBAF counts from 0, and there are at most 64.
    let last = identify[25].min(63);
    let choice = |format: u8| {
        let [low, high, shift @ 9..=16, performance] = identify[128 + 4 * usize::from(format)..][..4] else {
            return None;
        };
        Some(Choice {
            format,
            block_bytes: 1 << shift,
            metadata_bytes: u16::from_le_bytes([low, high]),
            performance: match performance & 3 {
                0 => Performance::Best,
                1 => Performance::Better,
                2 => Performance::Good,
                _ => Performance::Degraded,
            },
            in_use: format_in_use(identify) == format,
        })
    };
    (0..=last).filter_map(choice).collect()
}

/// The counters that a drive maintains: the others always stay 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MaintainedCounters {
    /// By level.
    pub throttling: [bool; 2],
    pub warning_minutes: bool,
    pub critical_minutes: bool,
}

impl MaintainedCounters {
    /// From the Identify Controller structure and, if the drive has the feature, its value; None if the value could not
    /// be read.
    ///
    /// T1 and T2 belong only to Host Controlled Thermal Management: the bit of HCTMA says that the drive has it, and a
    /// temperature of 0 switches the level off. The minutes above WCTEMP and CCTEMP count only if these temperatures
    /// are set; the minutes between the two need both.
    fn of(controller: &[u8; IDENTIFY_BYTES], temperatures: Option<u32>) -> Self {
        let word = |at: usize| number(&controller[at..at + 2]);
        let (warning, critical) = (word(266) > 0, word(268) > 0);
        let levels = temperatures.unwrap_or(u32::MAX);
        let has = has_thermal_management(controller);
        Self {
            throttling: [levels >> 16, levels & 0xffff].map(|kelvin| has && kelvin > 0),
            warning_minutes: warning && critical,
            critical_minutes: critical,
        }
    }
}

/// HCTMA: Host Controlled Thermal Management Attributes.
fn has_thermal_management(controller: &[u8; IDENTIFY_BYTES]) -> bool {
    controller[322] & 1 != 0
}

/// The health of a drive at one time. Counters accumulate over its whole life; None if the drive does not maintain the
/// counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Health {
    /// The bits of its critical warning.
    pub critical_warning: u8,
    /// Composite temperature in degrees Celsius; None if the drive gives none.
    #[serde(rename = "temperature_celsius")]
    pub temperature: Option<i32>,
    /// Minutes above the warning and the critical temperature.
    pub warning_minutes: Option<u32>,
    pub critical_minutes: Option<u32>,
    /// Number of light (T1) and heavy (T2) throttle transitions, and seconds in each.
    #[serde(rename = "throttle_transitions")]
    pub transitions: [Option<u32>; 2],
    pub throttled_seconds: [Option<u32>; 2],
    /// Used share of its rated life and remaining share of its spare blocks, in percent.
    pub percent_used: u8,
    pub percent_spare: u8,
    /// Uncorrected errors of media and data integrity, up to 2^64 - 1.
    pub media_errors: u64,
}

impl Health {
    /// Decodes the log page.
    pub fn of(page: &[u8; HEALTH_BYTES], counted: MaintainedCounters) -> Self {
        // A drive maintains a counter that is not 0, whatever its other fields say.
        let word = |at: usize, counted: bool| {
            let value = number(&page[at..at + 4]) as u32;
            (counted || value > 0).then_some(value)
        };
        // In kelvins, as whole degrees; 0 means that no temperature is given.
        let kelvin = number(&page[1..3]) as i32;
        let [light, heavy] = counted.throttling;
        Self {
            critical_warning: page[0],
            temperature: (kelvin > 0).then_some(kelvin - 273),
            warning_minutes: word(192, counted.warning_minutes),
            critical_minutes: word(196, counted.critical_minutes),
            transitions: [word(216, light), word(220, heavy)],
            throttled_seconds: [word(224, light), word(228, heavy)],
            percent_spare: page[3],
            percent_used: page[5],
            media_errors: if number(&page[168..176]) > 0 { u64::MAX } else { number(&page[160..168]) },
        }
    }

    /// The increase of a counter since an earlier sample; None if the drive does not maintain it.
    pub fn grown(&self, before: &Self, of: fn(&Self) -> Option<u32>) -> Option<u32> {
        // A counter that was absent before was still 0 then.
        Some(of(self)?.saturating_sub(of(before).unwrap_or(0)))
    }

    /// Whether the drive counts its throttling.
    fn counts_throttling(&self) -> bool {
        self.transitions.iter().chain(&self.throttled_seconds).any(Option::is_some)
    }

    /// Whether the drive was throttled or too hot between an earlier sample and this one. None if no counter grew and
    /// the drive does not count its throttling.
    pub fn suffered_since(&self, before: &Self) -> Option<bool> {
        let counters: [fn(&Self) -> Option<u32>; 6] = [
            |h| h.transitions[0],
            |h| h.transitions[1],
            |h| h.throttled_seconds[0],
            |h| h.throttled_seconds[1],
            |h| h.warning_minutes,
            |h| h.critical_minutes,
        ];
        let grew = counters.iter().any(|of| self.grown(before, *of).is_some_and(|grown| grown > 0));
        (grew || self.counts_throttling()).then_some(grew)
    }
}

/// Decodes a little-endian number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// An open namespace: its block device.
#[derive(Debug)]
pub struct Namespace {
    file: File,
    id: u32,
}

impl Namespace {
    /// Opens the disk of this kernel name for read-only commands. None if it is not an NVMe drive; the error says why
    /// the drive cannot be queried.
    pub fn open(root: &Path, disk: &str) -> Option<io::Result<Self>> {
        disk.starts_with("nvme").then(|| Self::open_node(root, disk))
    }

    fn open_node(root: &Path, disk: &str) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(root.join("dev").join(disk))?;
        let data = file.metadata()?;
        let number = fs::read_to_string(root.join("sys/class/block").join(disk).join("dev"))?;
        let is = format!("{}:{}", libc::major(data.rdev()), libc::minor(data.rdev()));
        if !data.file_type().is_block_device() || number.trim() != is {
            return Err(io::Error::other("its node in /dev is another device"));
        }
        let id = namespace_of(file.as_raw_fd())?;
        Ok(Self { file, id })
    }

    /// The use of the namespace; None if the drive does not give it.
    pub fn usage(&self) -> io::Result<Option<Use>> {
        Ok(Use::of(&identify_namespace(self.file.as_raw_fd(), self.id)?))
    }

    /// The health of its drive.
    pub fn health(&self) -> io::Result<Health> {
        let fd = self.file.as_raw_fd();
        health_of(fd, &identify_controller(fd)?)
    }
}

fn health_of(fd: RawFd, controller: &[u8; IDENTIFY_BYTES]) -> io::Result<Health> {
    // If the drive has the feature but does not give its value, assume that it counts.
    let temperatures =
        if has_thermal_management(controller) { feature(fd, THERMAL_MANAGEMENT).ok() } else { None };
    Ok(Health::of(&log_page(fd, HEALTH)?, MaintainedCounters::of(controller, temperatures)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_tells_its_use_in_blocks_of_its_format() {
        let mut identify = [0u8; IDENTIFY_BYTES];
        assert_eq!(Use::of(&identify), None);
        identify[0..8].copy_from_slice(&1000u64.to_le_bytes());
        identify[8..16].copy_from_slice(&900u64.to_le_bytes());
        identify[16..24].copy_from_slice(&10u64.to_le_bytes());
        // Format 1 of two: 512 and 4096 bytes.
        identify[26] = 1;
        identify[130] = 9;
        identify[134] = 12;
        assert_eq!(Use::of(&identify), Some(Use { size: 4_096_000, capacity: 3_686_400, used: 40_960 }));
        identify[26] = 0;
        assert_eq!(Use::of(&identify).map(|found| found.used), Some(5120));
        identify[26] = 2;
        assert_eq!(Use::of(&identify), None, "a format without a size");
    }

    #[test]
    fn formats_are_those_that_the_namespace_supports() {
        let mut identify = [0u8; IDENTIFY_BYTES];
        assert_eq!(choices_of(&identify), [], "not one has a size");
        // NLBAF gives three formats, of which the second is none; the bytes of a fourth mean nothing.
        identify[25] = 2;
        identify[26] = 0x12;
        identify[128..132].copy_from_slice(&[0, 0, 9, 2]);
        identify[136..140].copy_from_slice(&[8, 1, 12, 0xfc]);
        identify[140..144].copy_from_slice(&[0, 0, 12, 0]);
        let small = Choice {
            format: 0,
            block_bytes: 512,
            metadata_bytes: 0,
            performance: Performance::Good,
            in_use: false,
        };
        let large = Choice {
            format: 2,
            block_bytes: 4096,
            metadata_bytes: 264,
            performance: Performance::Best,
            in_use: true,
        };
        assert_eq!(choices_of(&identify), [small, large]);
        // The highest count that the field can hold, which is above the limit of 64.
        identify[25] = 255;
        identify[26] = 0x6f;
        identify[128 + 4 * 63 + 2] = 12;
        let all = choices_of(&identify);
        assert_eq!(all.last().map(|last| (last.format, last.in_use)), Some((63, true)));
    }

    #[test]
    fn the_health_log_is_read_where_the_specification_has_it() {
        const ALL: MaintainedCounters =
            MaintainedCounters { throttling: [true; 2], warning_minutes: true, critical_minutes: true };
        let mut page = [0u8; HEALTH_BYTES];
        assert_eq!(Health::of(&page, MaintainedCounters::default()), Health::default());
        let calm = Health::of(&page, ALL);
        assert_eq!((calm.transitions, calm.throttled_seconds), ([Some(0); 2], [Some(0); 2]));
        assert_eq!((calm.warning_minutes, calm.critical_minutes), (Some(0), Some(0)));
        page[0] = 0x02;
        page[1..3].copy_from_slice(&343u16.to_le_bytes());
        (page[3], page[5]) = (98, 4);
        page[160] = 7;
        page[192..196].copy_from_slice(&5u32.to_le_bytes());
        page[196..200].copy_from_slice(&1u32.to_le_bytes());
        page[216..220].copy_from_slice(&3u32.to_le_bytes());
        page[220..224].copy_from_slice(&2u32.to_le_bytes());
        page[224..228].copy_from_slice(&12u32.to_le_bytes());
        page[228..232].copy_from_slice(&0x0100_0000u32.to_le_bytes());
        let expected = Health {
            critical_warning: 2,
            temperature: Some(70),
            warning_minutes: Some(5),
            critical_minutes: Some(1),
            transitions: [Some(3), Some(2)],
            throttled_seconds: [Some(12), Some(1 << 24)],
            percent_used: 4,
            percent_spare: 98,
            media_errors: 7,
        };
        assert_eq!(Health::of(&page, ALL), expected);
        assert_eq!(Health::of(&page, MaintainedCounters::default()), expected, "who counted does count");
    }

    #[test]
    fn what_a_drive_counts_is_what_it_is_able_to_and_set_to() {
        let mut controller = [0u8; IDENTIFY_BYTES];
        assert_eq!(MaintainedCounters::of(&controller, None), MaintainedCounters::default());
        // Without the warning temperature, the minutes between the two do not count.
        controller[268..270].copy_from_slice(&373u16.to_le_bytes());
        let minutes = |counted: MaintainedCounters| (counted.warning_minutes, counted.critical_minutes);
        assert_eq!(minutes(MaintainedCounters::of(&controller, None)), (false, true));
        controller[266..268].copy_from_slice(&343u16.to_le_bytes());
        assert_eq!(minutes(MaintainedCounters::of(&controller, None)), (true, true));
        let levels = |controller: &_, set| MaintainedCounters::of(controller, set).throttling;
        assert_eq!(levels(&controller, Some(0x0150_0160)), [false, false], "it has no such management");
        // The neighbouring bytes are other fields: EDSTT, DSTO and FWUG before, MNTMT after.
        controller[316..322].fill(0xff);
        controller[324..328].fill(0xff);
        assert_eq!(levels(&controller, None), [false, false]);
        controller[322] = 1;
        for (set, expected) in [
            (None, [true, true]),
            (Some(0), [false, false]),
            (Some(0x0150_0000), [true, false]),
            (Some(0x0000_0160), [false, true]),
        ] {
            assert_eq!(levels(&controller, set), expected, "{set:?}");
        }
    }

    #[test]
    fn only_what_grew_is_suffered() {
        let counts = |light, heavy| Health {
            transitions: [Some(light), Some(heavy)],
            throttled_seconds: [Some(0); 2],
            ..Health::default()
        };
        let before = Health { temperature: Some(30), critical_minutes: Some(0), ..counts(7, 1) };
        assert_eq!(before.suffered_since(&before), Some(false));
        let warmer = Health { temperature: Some(80), critical_warning: 2, ..before };
        assert_eq!(warmer.suffered_since(&before), Some(false), "warm alone is not slow");
        for after in [
            counts(8, 1),
            counts(7, 2),
            Health { throttled_seconds: [Some(1), Some(0)], ..before },
            Health { critical_minutes: Some(1), ..before },
        ] {
            assert_eq!(after.suffered_since(&before), Some(true), "{after:?}");
        }
    }

    #[test]
    fn who_does_not_count_was_not_found_to_be_fast() {
        let blind = Health { warning_minutes: Some(3), ..Health::default() };
        assert_eq!(blind.suffered_since(&blind), None);
        assert_eq!(blind.grown(&blind, |h| h.transitions[0]), None);
        let hot = Health { warning_minutes: Some(4), ..blind };
        assert_eq!(hot.suffered_since(&blind), Some(true));
        // By its fields the drive does not count, but then a counter grew.
        let slowed = Health { transitions: [Some(2), None], ..blind };
        assert_eq!(slowed.suffered_since(&blind), Some(true));
        assert_eq!(slowed.grown(&blind, |h| h.transitions[0]), Some(2));
    }

    #[test]
    fn other_disks_are_not_asked() {
        assert!(Namespace::open(Path::new("/"), "sda").is_none());
        assert!(Namespace::open(Path::new("/nonexistent"), "nvme0n1").is_some_and(|found| found.is_err()));
    }
}
