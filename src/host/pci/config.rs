//! Reads packet size, interrupt vectors and power management from the configuration space of a PCI function.
//!
//! Any user may read the first 64 bytes. The capability lists after them are for root (CAP_SYS_ADMIN) only: for others
//! the kernel ends the file there.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::super::Aspm;

/// Size of the conventional space, which contains all fields that are read.
const BYTES: usize = 256;
/// The status bit for a list of capabilities, and the offset of its first entry.
const STATUS: usize = 0x06;
const HAS_CAPABILITIES: u16 = 1 << 4;
const FIRST_CAPABILITY: usize = 0x34;
const EXPRESS: u8 = 0x10;
const MSI_X: u8 = 0x11;
/// The number of bytes that the kernel shows to any user; the rest is for root.
const SHOWN_TO_ALL: usize = 64;
/// Offsets from the start of the PCI Express capability.
const DEVICE_CONTROL: usize = 8;
const LINK_CONTROL: usize = 16;
/// The list has at most this many entries of 4 bytes after the header; a longer one is a loop.
const MOST_CAPABILITIES: usize = 48;

/// The fields that could be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Config {
    /// Maximum payload in bytes of a packet that the function sends.
    pub payload_bytes: Option<u32>,
    /// Number of MSI-X vectors of the function.
    pub msix_vectors: Option<u32>,
    pub aspm: Option<Aspm>,
    /// Only the first part may be read: an absent field may lie after it.
    pub cut: bool,
}

impl Config {
    /// Reads the function's directory in sysfs.
    pub fn read(function: &Path) -> Self {
        let mut bytes = Vec::with_capacity(BYTES);
        let read = File::open(function.join("config"))
            .and_then(|file| file.take(BYTES as u64).read_to_end(&mut bytes));
        if read.is_ok() { Self::parse(&bytes) } else { Self { cut: true, ..Self::default() } }
    }

    fn parse(bytes: &[u8]) -> Self {
        let mut config = Self { cut: bytes.len() <= SHOWN_TO_ALL, ..Self::default() };
        let word = |at: usize| Some(u16::from_le_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        if word(STATUS).is_none_or(|status| status & HAS_CAPABILITIES == 0) {
            return config;
        }
        let mut at = bytes.get(FIRST_CAPABILITY).copied().unwrap_or(0);
        for _ in 0..MOST_CAPABILITIES {
            // The two lowest bits are reserved.
            let here = usize::from(at & !3);
            let (Some(kind), Some(next)) = (bytes.get(here), bytes.get(here + 1)) else { break };
            match *kind {
                _ if here < 0x40 => break,
                EXPRESS => {
                    // 128 bytes times a power of two; 6 and 7 are reserved.
                    let size = word(here + DEVICE_CONTROL).map(|control| control >> 5 & 7);
                    config.payload_bytes = size.filter(|size| *size < 6).map(|size| 128 << size);
                    config.aspm = word(here + LINK_CONTROL).map(|control| Aspm::of(control & 3));
                }
                MSI_X => config.msix_vectors = word(here + 2).map(|control| u32::from(control & 0x7ff) + 1),
                _ => {}
            }
            at = *next;
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A drive with power management at 0x40, MSI-X at 0x50 and PCI Express at 0x70.
    fn space() -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        bytes[STATUS] = 0x10;
        bytes[FIRST_CAPABILITY] = 0x40;
        bytes[0x40..0x42].copy_from_slice(&[0x01, 0x50]);
        bytes[0x50..0x54].copy_from_slice(&[MSI_X, 0x70, 0x81, 0x80]);
        bytes[0x70..0x72].copy_from_slice(&[EXPRESS, 0x00]);
        // Payload of 256 bytes, reads of 512; L1 is on.
        bytes[0x78..0x7a].copy_from_slice(&0x2930_u16.to_le_bytes());
        bytes[0x80] = 0x42;
        bytes
    }

    #[test]
    fn capabilities_are_found_behind_each_other() {
        let config = Config::parse(&space());
        // The drives of machine T, as lspci prints it: `MSI-X: Enable+ Count=130`.
        assert_eq!(config.msix_vectors, Some(130));
        assert_eq!((config.payload_bytes, config.aspm), (Some(256), Some(Aspm::L1)));
    }

    #[test]
    fn what_is_not_for_all_to_read_is_absent() {
        assert_eq!(Config::parse(&space()[..64]), Config { cut: true, ..Config::default() });
        assert!(!Config::parse(&space()).cut, "what it has not got is not hidden");
        let mut circle = space();
        circle[0x71] = 0x40;
        assert_eq!(Config::parse(&circle), Config::parse(&space()));
        let mut reserved = space();
        reserved[0x78] = 0xd0;
        assert_eq!(Config::parse(&reserved).payload_bytes, None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(
            random in prop::collection::vec(any::<u8>(), 0..300),
            changes in prop::collection::vec((0..BYTES, any::<u8>()), 0..20),
            length in 0..=BYTES,
        ) {
            let mut changed = space();
            changes.into_iter().for_each(|(at, byte)| changed[at] = byte);
            changed.truncate(length);
            for bytes in [random, changed] {
                let config = Config::parse(&bytes);
                prop_assert!(config.msix_vectors.is_none_or(|count| (1..=2048).contains(&count)));
                prop_assert!(config.payload_bytes.is_none_or(|bytes| (128..=4096).contains(&bytes)));
            }
        }
    }
}
