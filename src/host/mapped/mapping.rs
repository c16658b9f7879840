//! Parses lines of `/proc/PID/maps`.

use std::ops::Range;
use std::sync::Arc;

use super::FileId;

/// An executable mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    /// Offset of `start` in the file.
    pub offset: u64,
    pub device: (u32, u32),
    pub inode: u64,
    /// Path of the file without ` (deleted)`; or a name as `[vdso]`; empty for memory without a name. Any bytes.
    pub path: Arc<[u8]>,
    pub deleted: bool,
}

impl Mapping {
    pub fn file_id(&self) -> FileId {
        FileId { device: self.device, inode: self.inode }
    }

    /// Whether a file backs it (including a file in memory: `/memfd:x`).
    pub fn is_file(&self) -> bool {
        self.path.first() == Some(&b'/') && self.inode != 0
    }

    /// Whether the kernel created it.
    pub fn is_special(&self) -> bool {
        matches!(&*self.path, b"[vdso]" | b"[vsyscall]" | b"[uprobes]")
    }

    /// Memory that only looks like a file: a runtime may have written generated code to it.
    pub fn is_made(&self) -> bool {
        self.path.starts_with(b"/memfd:") || self.path.starts_with(b"/dev/")
    }

    /// Whether an address is the same place in both.
    pub fn same_place(&self, other: &Self, address: u64) -> bool {
        self.path == other.path
            && self.file_id() == other.file_id()
            && (!self.is_file() || self.offset_of(address) == other.offset_of(address))
    }

    /// The file offset of an address.
    pub fn offset_of(&self, address: u64) -> u64 {
        self.offset.wrapping_add(address.wrapping_sub(self.start))
    }

    /// Sets the name as the kernel writes it, in `/proc` or in a record of its own.
    #[must_use]
    pub fn named(mut self, name: &[u8]) -> Self {
        let kept = name.strip_suffix(b" (deleted)").unwrap_or(name);
        self.deleted = kept.len() < name.len();
        self.path = if kept == b"//anon" { Arc::default() } else { kept.into() };
        if !self.is_file() {
            // `/proc` has no offset there, and a record has the address in memory.
            self.offset = 0;
        }
        self
    }

    /// The part of it between two addresses, of which at least one lies in it.
    fn part(&self, start: u64, end: u64) -> Option<Self> {
        let offset = if self.is_file() { self.offset_of(start) } else { self.offset };
        (start < end).then(|| Self { start, end, offset, ..self.clone() })
    }

    /// Whether each address means the same in both.
    pub(super) fn agrees(&self, other: &Self) -> bool {
        self.file_id() == other.file_id()
            && self.path == other.path
            && (!self.is_file() || self.offset_of(other.start) == other.offset)
    }
}

/// Parses the executable mappings. Not text: a path may hold any bytes.
pub fn mappings(maps: &[u8]) -> Vec<Mapping> {
    let mut all: Vec<Mapping> = maps.split(|&b| b == b'\n').filter_map(parse).collect();
    // The kernel prints them by address; input from another source may be unsorted.
    all.sort_by_key(|mapping| mapping.start);
    all
}

/// The range of mappings of `all` that overlap a new one. `all` is sorted by address and has no overlaps.
fn covered(all: &[Mapping], new: &Mapping) -> Range<usize> {
    let from = all.partition_point(|old| old.end <= new.start);
    from..from + all[from..].partition_point(|old| old.start < new.end)
}

/// Whether a mapping overlaps only mappings that agree with it.
pub fn fits(all: &[Mapping], new: &Mapping) -> bool {
    all[covered(all, new)].iter().all(|old| old.agrees(new))
}

/// Inserts a mapping over the existing ones, sorted by address; the parts of them that it does not cover stay.
pub fn put_over(all: &mut Vec<Mapping>, new: Mapping) {
    let Range { start: from, end: to } = covered(all, &new);
    let ahead = all[from..to].first().and_then(|old| old.part(old.start, new.start));
    let behind = all[from..to].last().and_then(|old| old.part(new.end, old.end));
    let parts = ahead.into_iter().chain([new]).chain(behind);
    // Adjacent parts that continue each other are merged: code that is generated page by page would cost a mapping per
    // page.
    let mut joined: Vec<Mapping> = Vec::with_capacity(3);
    let (left, right) = (from.saturating_sub(1), (to + 1).min(all.len()));
    let around = (all[left..from].to_vec(), all[to..right].to_vec());
    for part in around.0.into_iter().chain(parts).chain(around.1) {
        match joined.last_mut() {
            Some(last) if last.end == part.start && last.agrees(&part) && last.deleted == part.deleted => {
                last.end = part.end;
            }
            _ => joined.push(part),
        }
    }
    all.splice(left..right, joined);
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
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (start, end) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    let mapping = Mapping {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        device: (hex(major)? as u32, hex(minor)? as u32),
        inode: inode.parse().ok()?,
        path: Arc::default(),
        deleted: false,
    };
    (code && mapping.start < mapping.end).then(|| mapping.named(&rest[blanks..]))
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

    #[test]
    fn what_is_mapped_over_another_cuts_it() {
        let line = |text: &str| parse(text.as_bytes()).unwrap();
        let mut all = vec![line("1000-9000 r-xp 00001000 fe:01 7 /x"), line("a000-b000 r-xp 0 fe:01 8 /y")];
        let put = |all: &mut Vec<Mapping>, text: &str| {
            let (new, fits) = (line(text), fits(all, &line(text)));
            put_over(all, new);
            fits
        };
        assert!(put(&mut all, "3000-4000 r-xp 00003000 fe:01 7 /x"), "the same bytes of it");
        assert_eq!(all.len(), 2, "and so they are one: {all:?}");
        assert!(!put(&mut all, "8000-a800 r-xp 00000000 fe:01 9 /z"));
        let places: Vec<_> = all.iter().map(|m| (m.start, m.end, m.offset, m.inode)).collect();
        assert_eq!(places, [(0x1000, 0x8000, 0x1000, 7), (0x8000, 0xa800, 0, 9), (0xa800, 0xb000, 0x800, 8)]);
        assert!(!put(&mut all, "2000-3000 r-xp 00000000 00:00 0 "));
        assert!(put(&mut all, "3800-3900 r-xp 00003800 fe:01 7 /x"));
        let places: Vec<_> = all.iter().map(|m| (m.start, m.end, m.offset)).collect();
        assert_eq!(places[..3], [(0x1000, 0x2000, 0x1000), (0x2000, 0x3000, 0), (0x3000, 0x8000, 0x3000)]);
    }

    proptest::proptest! {
        #[test]
        fn each_address_means_what_came_last(
            pieces in proptest::collection::vec((0u64..60, 1u64..20, 1u64..4), 0..20),
        ) {
            let mut all = Vec::new();
            let mut last = vec![0; 100];
            for (start, pages, inode) in pieces {
                let (at, end) = (start << 12, (start + pages) << 12);
                put_over(&mut all, parse(format!("{at:x}-{end:x} r-xp {at:x} fe:01 {inode} /x").as_bytes()).unwrap());
                last[start as usize..(start + pages) as usize].fill(inode);
            }
            for pair in all.windows(2) {
                proptest::prop_assert!(pair[0].end <= pair[1].start, "{:?}", all);
            }
            for (page, inode) in last.into_iter().enumerate() {
                let at = (page as u64) << 12;
                let found = all.iter().find(|m| (m.start..m.end).contains(&at));
                proptest::prop_assert_eq!(found.map_or(0, |m| m.inode), inode);
                proptest::prop_assert!(found.is_none_or(|m| m.offset_of(at) == at));
            }
        }

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
