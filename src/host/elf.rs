//! Reads the build-id and the segments of an untrusted ELF file. Symbols and line tables are left to the modules that
//! symbolize addresses.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// An identifier that the linker writes into a binary. It is the same in the stripped file, in its debug file, and on
/// every machine.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId(Arc<[u8]>);

impl BuildId {
    /// None if it is too short to distinguish binaries, or longer than any linker makes it.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (8..=64).contains(&bytes.len()).then(|| Self(bytes.into()))
    }

    /// Parses the hexadecimal digits of [`fmt::Display`].
    pub fn parse(hex: &str) -> Option<Self> {
        let digits: Vec<u8> = hex.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
        let bytes: Vec<u8> = digits.chunks(2).map(|pair| pair.iter().fold(0, |a, d| a << 4 | d)).collect();
        digits.len().is_multiple_of(2).then(|| Self::new(&bytes)).flatten()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A segment of a file that is loaded into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadSegment {
    pub offset: u64,
    /// Its address according to the file's own tables.
    pub address: u64,
    /// Its length in the file; zeroes that exist only in memory are not code.
    pub bytes: u64,
}

/// The identity of an ELF file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Elf {
    pub build_id: Option<BuildId>,
    pub loads: Vec<LoadSegment>,
    /// The file names other files with its debug information (`.gnu_debuglink` and similar sections), or its sections
    /// cannot be read. Following such a name would open a file that an untrusted binary chose.
    pub points_elsewhere: bool,
}

/// No linker creates more. The limits bound the reads that a damaged file can cause.
const MOST_SEGMENTS: u64 = 256;
const MOST_SECTIONS: u64 = 4096;
const MOST_NOTES: u64 = 64 << 10;
const MOST_NAMES: u64 = 256 << 10;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;
const ELSEWHERE: [&[u8]; 3] = [b".gnu_debuglink", b".gnu_debugaltlink", b".debug_sup"];

impl Elf {
    /// None if it is not an ELF file of this byte order (little endian).
    pub fn read(file: &File) -> Option<Self> {
        let end = file.metadata().ok()?.len();
        Self::parse(end, |offset, bytes| file.read_exact_at(bytes, offset).is_ok())
    }

    /// Parses a file in memory.
    pub fn of(image: &[u8]) -> Option<Self> {
        Self::parse(image.len() as u64, |offset, bytes| {
            let from = usize::try_from(offset).ok();
            let piece = from.and_then(|from| image.get(from..)?.get(..bytes.len()));
            piece.inspect(|piece| bytes.copy_from_slice(piece)).is_some()
        })
    }

    fn parse(end: u64, read_at: impl Fn(u64, &mut [u8]) -> bool) -> Option<Self> {
        let read = |offset: u64, bytes: u64| {
            // Nothing is allocated for ranges beyond the end of the file.
            if offset.checked_add(bytes)? > end {
                return None;
            }
            let mut buffer = vec![0; bytes as usize];
            read_at(offset, &mut buffer).then_some(Fields(buffer))
        };
        let head = read(0, 52)?;
        if head.0[..4] != *b"\x7fELF" || head.0[5] != 1 {
            return None;
        }
        let wide = match head.0[4] {
            1 => false,
            2 => true,
            _ => return None,
        };
        let head = if wide { read(0, 64)? } else { head };
        let word = |fields: &Fields, at| if wide { fields.u64(at) } else { fields.u32(at).map(u64::from) };
        let (segments_at, sections_at) =
            if wide { (head.u64(32)?, head.u64(40)?) } else { (head.u32(28)?.into(), head.u32(32)?.into()) };
        // Size and number of segments, size and number of sections, and the index of the section with the names.
        let [size, number, section_size, sections, names] = {
            let at = if wide { 54 } else { 42 };
            let mut halves = [0; 5];
            for (i, half) in halves.iter_mut().enumerate() {
                *half = u64::from(head.u16(at + 2 * i)?);
            }
            halves
        };
        let mut elf = Self { points_elsewhere: true, ..Self::default() };
        let segment_bytes = if wide { 56 } else { 32 };
        for i in 0..number.min(MOST_SEGMENTS) {
            if size < segment_bytes {
                break;
            }
            let Some(segment) = segments_at.checked_add(i * size).and_then(|at| read(at, segment_bytes))
            else {
                break;
            };
            let (offset, address, bytes) = match wide {
                true => (segment.u64(8)?, segment.u64(16)?, segment.u64(32)?),
                false => (segment.u32(4)?.into(), segment.u32(8)?.into(), segment.u32(16)?.into()),
            };
            match segment.u32(0)? {
                PT_LOAD => elf.loads.push(LoadSegment { offset, address, bytes }),
                PT_NOTE if elf.build_id.is_none() => {
                    let notes = read(offset, bytes.min(MOST_NOTES));
                    elf.build_id = notes.and_then(|notes| build_id(&notes.0));
                }
                _ => {}
            }
        }
        let shape = if wide { (64, 24, 32) } else { (40, 16, 20) };
        if (1..=MOST_SECTIONS).contains(&sections) && section_size >= shape.0 && names < sections {
            let section = |i: u64| sections_at.checked_add(i * section_size).and_then(|at| read(at, shape.0));
            let all: Option<Vec<Fields>> = (0..sections).map(section).collect();
            let strings = all.as_ref().and_then(|all| {
                let strings = &all[names as usize];
                read(word(strings, shape.1)?, word(strings, shape.2)?.min(MOST_NAMES))
            });
            if let (Some(all), Some(strings)) = (all, strings) {
                let name = |section: &Fields| {
                    let name = strings.0.get(section.u32(0)? as usize..)?;
                    name.split(|&byte| byte == 0).next()
                };
                elf.points_elsewhere =
                    all.iter().any(|section| name(section).is_none_or(|name| ELSEWHERE.contains(&name)));
            }
        }
        Some(elf)
    }

    /// The address of a file offset according to the file's own tables.
    pub fn address(&self, offset: u64) -> Option<u64> {
        let load = self.loads.iter().find(|l| offset >= l.offset && offset - l.offset < l.bytes)?;
        load.address.checked_add(offset - load.offset)
    }

    /// Whether an address of the file's own tables lies in a loaded segment.
    pub fn has(&self, address: u64) -> bool {
        self.loads.iter().any(|load| address >= load.address && address - load.address < load.bytes)
    }
}

/// Finds the GNU build-id in a note segment.
fn build_id(notes: &[u8]) -> Option<BuildId> {
    let mut at = 0usize;
    loop {
        let rest = Fields(notes.get(at..)?.to_vec());
        let (name, bytes, kind) = (rest.u32(0)? as usize, rest.u32(4)? as usize, rest.u32(8)?);
        // Name and content are padded to four bytes. The lengths in a damaged file must not overflow.
        let content = 12usize.checked_add(name.checked_next_multiple_of(4)?)?;
        let next = content.checked_add(bytes.checked_next_multiple_of(4)?)?;
        if kind == NT_GNU_BUILD_ID && rest.0.get(12..12 + 4) == Some(b"GNU\0") && name == 4 {
            return BuildId::new(rest.0.get(content..content.checked_add(bytes)?)?);
        }
        at = at.checked_add(next)?;
    }
}

/// Reads little-endian numbers at byte offsets.
struct Fields(Vec<u8>);

impl Fields {
    fn u16(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(self.0.get(at..at + 2)?.try_into().ok()?))
    }

    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(self.0.get(at..at + 8)?.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn own() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    /// A file with one segment, one note and one section.
    fn small() -> Vec<u8> {
        let mut file = vec![0u8; 64 + 2 * 56 + 36 + 2 * 64 + 32];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(32, &64u64.to_le_bytes());
        put(40, &212u64.to_le_bytes());
        for (i, half) in [56u16, 2, 64, 2, 1].iter().enumerate() {
            put(54 + 2 * i, &half.to_le_bytes());
        }
        put(64, &PT_LOAD.to_le_bytes());
        put(64 + 8, &0x1000u64.to_le_bytes());
        put(64 + 16, &0x40_2000u64.to_le_bytes());
        put(64 + 32, &0x500u64.to_le_bytes());
        put(120, &PT_NOTE.to_le_bytes());
        put(120 + 8, &176u64.to_le_bytes());
        put(120 + 32, &36u64.to_le_bytes());
        put(176, &4u32.to_le_bytes());
        put(180, &20u32.to_le_bytes());
        put(184, &NT_GNU_BUILD_ID.to_le_bytes());
        put(188, b"GNU\0\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14");
        put(212 + 64, &1u32.to_le_bytes());
        put(212 + 64 + 24, &340u64.to_le_bytes());
        put(212 + 64 + 32, &32u64.to_le_bytes());
        put(341, b".shstrtab\0.gnu_debuglink\0");
        file
    }

    #[test]
    fn a_file_has_an_identity_and_segments() {
        let mut file = small();
        let elf = Elf::of(&file).unwrap();
        let id = elf.build_id.clone().unwrap();
        assert_eq!(id.to_string(), "0102030405060708090a0b0c0d0e0f1011121314");
        assert_eq!(BuildId::parse(&id.to_string()), Some(id));
        assert_eq!([elf.address(0x1010), elf.address(0x1500), elf.address(0)], [Some(0x40_2010), None, None]);
        assert!(!elf.points_elsewhere);
        // Rename the other section to a link to a debug file.
        file[212..216].copy_from_slice(&11u32.to_le_bytes());
        assert!(Elf::of(&file).unwrap().points_elsewhere);
    }

    #[test]
    fn what_is_no_build_id_is_none() {
        for bad in ["", "0", "zz", "0102030405060", "01020304", &"00".repeat(65)] {
            assert_eq!(BuildId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_own_binary_has_segments() {
        let file = File::open("/proc/self/exe").unwrap();
        let elf = Elf::read(&file).unwrap();
        assert_eq!(Some(&elf), Elf::of(&own()).as_ref());
        assert!(!elf.loads.is_empty());
    }

    proptest! {
        #[test]
        fn damage_never_panics(
            at in proptest::collection::vec((0usize..372, any::<u8>()), 0..12),
            cut in 0usize..372,
        ) {
            let mut file = small();
            at.iter().for_each(|(at, byte)| file[*at] = *byte);
            file.truncate(372 - cut);
            if let Some(elf) = Elf::of(&file) {
                for offset in [0, 0x1000, u64::MAX] {
                    elf.address(offset);
                }
            }
        }
    }
}
