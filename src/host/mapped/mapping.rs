//! Lines of `/proc/PID/maps`.

use std::sync::Arc;

use super::FileId;

/// A piece of memory with code in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Of `start` in the file.
    pub offset: u64,
    pub device: (u32, u32),
    pub inode: u64,
    /// Of the file, without ` (deleted)`; `[vdso]` and the like; empty for memory without a name. Any bytes.
    pub path: Arc<[u8]>,
    pub deleted: bool,
}

impl Mapping {
    pub fn file_id(&self) -> FileId {
        FileId { device: self.device, inode: self.inode }
    }

    /// A file is behind it (in memory only, too: `/memfd:x`).
    pub fn is_file(&self) -> bool {
        self.path.first() == Some(&b'/') && self.inode != 0
    }

    /// The kernel put it there.
    pub fn is_special(&self) -> bool {
        matches!(&*self.path, b"[vdso]" | b"[vsyscall]" | b"[uprobes]")
    }

    /// Memory that only looks like a file: a runtime may have put code of its own there.
    pub fn is_made(&self) -> bool {
        self.path.starts_with(b"/memfd:") || self.path.starts_with(b"/dev/")
    }

    /// An address is the same place in both.
    pub fn same_place(&self, other: &Self, address: u64) -> bool {
        self.path == other.path
            && self.file_id() == other.file_id()
            && (!self.is_file() || self.offset_of(address) == other.offset_of(address))
    }

    /// Where an address of it is in the file.
    pub fn offset_of(&self, address: u64) -> u64 {
        self.offset.wrapping_add(address.wrapping_sub(self.start))
    }

    /// The same addresses mean the same in both.
    pub(super) fn agrees(&self, other: &Self) -> bool {
        self.file_id() == other.file_id()
            && self.path == other.path
            && (!self.is_file() || self.offset_of(other.start) == other.offset)
    }
}

/// The mappings with code in them. Not text: a path may hold any bytes.
pub fn mappings(maps: &[u8]) -> Vec<Mapping> {
    let mut all: Vec<Mapping> = maps.split(|&b| b == b'\n').filter_map(parse).collect();
    // The kernel prints them by address; nobody else has to.
    all.sort_by_key(|mapping| mapping.start);
    all
}

/// `55d0-55e0 r-xp 00002000 fe:01 1234     /usr/bin/x (deleted)`
fn parse(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let mut field = || {
        let end = rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
        let (field, behind) = rest.split_at(end);
        rest = behind.get(1..).unwrap_or_default();
        std::str::from_utf8(field).ok()
    };
    let (range, rights, offset, device, inode) = (field()?, field()?, field()?, field()?, field()?);
    let code = rights.len() == 4 && rights.as_bytes()[2] == b'x';
    let blanks = rest.iter().position(|&b| b != b' ').unwrap_or(rest.len());
    let path = &rest[blanks..];
    let kept = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let mapping = Mapping {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        device: (hex(major)? as u32, hex(minor)? as u32),
        inode: inode.parse().ok()?,
        path: kept.into(),
        deleted: kept.len() < path.len(),
    };
    (code && mapping.start < mapping.end).then_some(mapping)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let map =
            parse(b"5583f2a00000-5583f2a10000 r-xp 00002000 fe:01 1234     /usr/a b (deleted)").unwrap();
        assert_eq!((map.start, map.end, map.offset), (0x5583f2a00000, 0x5583f2a10000, 0x2000));
        assert_eq!((map.device, map.inode, map.deleted), ((0xfe, 1), 1234, true));
        assert_eq!((&*map.path, map.offset_of(0x5583f2a00010)), (&b"/usr/a b"[..], 0x2010));
        assert!(map.is_file() && !map.is_special());
        assert!(parse(b"1000-2000 r-xp 0 fe:01 1 /x\xff").is_some(), "any bytes");
        let made = parse(b"7f0000000000-7f0000001000 r-xp 00000000 00:00 0 ").unwrap();
        assert_eq!((&*made.path, made.is_file(), made.is_special()), (&b""[..], false, false));
        let vdso = parse(b"7ffd1000-7ffd2000 r-xp 00000000 00:00 0   [vdso]").unwrap();
        assert_eq!((vdso.is_file(), vdso.is_special()), (false, true));
        for bad in [
            "",
            "/",
            "7ffd1000-7ffd2000 rw-p 00000000 00:00 0   [stack]",
            "zz-yy r-xp 0 0:0 0 /x",
            "1-2 /x",
            "2000-1000 r-xp 0 0:0 0 /x",
            "1000-2000 r-xp 0 00 0 /x",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn the_same_file_at_the_same_place_agrees() {
        let line = |text: &str| parse(text.as_bytes()).unwrap();
        let old = line("1000-3000 r-xp 00001000 fe:01 7 /x");
        assert!(old.agrees(&line("2000-3000 r-xp 00002000 fe:01 7 /x")), "a part of it");
        assert!(!old.agrees(&line("2000-3000 r-xp 00003000 fe:01 7 /x")), "moved");
        assert!(!old.agrees(&line("1000-3000 r-xp 00001000 fe:01 8 /x")), "replaced");
    }

    proptest::proptest! {
        #[test]
        fn damaged_maps_never_panic(maps in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            mappings(&maps);
        }

        #[test]
        fn any_numbers_never_panic(a: u64, b: u64, c: u64, at: u64) {
            for mapping in mappings(format!("{a:x}-{b:x} r-xp {c:x} 8:1 5 /x").as_bytes()) {
                mapping.offset_of(at);
            }
        }
    }
}
