//! The symbol tables of an ELF file, for where blazesym gives up on them: one section that it cannot unpack
//! (`.gnu_debugdata`, which Fedora and its kin put into every stripped library) makes it refuse the others.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::demangle::MOST;

/// The functions of a 64-bit file, by address.
#[derive(Debug, Default)]
pub(super) struct Table {
    functions: Vec<Function>,
    strings: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Function {
    address: u64,
    bytes: u64,
    name: u64,
}

/// A table of more is not worth its memory here.
const MOST_BYTES: u64 = 256 << 20;
const SYMTAB: u32 = 2;
const DYNSYM: u32 = 11;

impl Table {
    pub fn read(path: &Path) -> Self {
        File::open(path).ok().and_then(|file| Self::of(&file)).unwrap_or_default()
    }

    fn of(file: &File) -> Option<Self> {
        let end = file.metadata().ok()?.len();
        let read = |offset: u64, bytes: u64| {
            let fits = bytes <= MOST_BYTES && offset.checked_add(bytes)? <= end;
            let mut buffer = vec![0; if fits { bytes as usize } else { return None }];
            file.read_exact_at(&mut buffer, offset).ok().map(|()| buffer)
        };
        let head = read(0, 64)?;
        if head[..6] != *b"\x7fELF\x02\x01" {
            return None;
        }
        let half = |bytes: &[u8], at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let (sections, size, number) = (u64_at(&head, 40)?, half(&head, 58), half(&head, 60));
        let section = |i: u64| {
            let inside = i < u64::from(number) && size >= 64;
            inside.then(|| read(sections.checked_add(i * u64::from(size))?, 64)).flatten()
        };
        let of_kind = |kind| (0..u64::from(number)).filter_map(section).find(|s| u32_at(s, 4) == Some(kind));
        let table = of_kind(SYMTAB).or_else(|| of_kind(DYNSYM))?;
        let strings = section(u64::from(u32_at(&table, 40)?))?;
        let strings = read(u64_at(&strings, 24)?, u64_at(&strings, 32)?)?;
        let symbols = read(u64_at(&table, 24)?, u64_at(&table, 32)?)?;
        let function = |symbol: &[u8]| {
            // Functions (2) and those that are chosen at the start (10), with a section and a size.
            let wanted = matches!(symbol[4] & 15, 2 | 10) && half(symbol, 6) != 0;
            let function = Function {
                address: u64_at(symbol, 8)?,
                bytes: u64_at(symbol, 16)?,
                name: u64::from(u32_at(symbol, 0)?),
            };
            (wanted && function.bytes > 0).then_some(function)
        };
        let mut functions: Vec<Function> = symbols.chunks_exact(24).filter_map(function).collect();
        functions.sort_by_key(|f| f.address);
        Some(Self { functions, strings })
    }

    /// The name of the function at an address, as linkers see it.
    pub fn name(&self, address: u64) -> Option<String> {
        /// Functions do not lie over each other, but in a damaged file.
        const LOOKS: usize = 64;
        let behind = self.functions.partition_point(|f| f.address <= address);
        let mut before = self.functions[..behind].iter().rev().take(LOOKS);
        let found = before.find(|f| address - f.address < f.bytes)?;
        let name = self.strings.get(usize::try_from(found.name).ok()?..)?;
        let end = name.iter().take(MOST).position(|&byte| byte == 0)?;
        (end > 0).then(|| String::from_utf8_lossy(&name[..end]).into_owned())
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[inline(never)]
    fn findable_in_table() {
        std::hint::black_box(1);
    }

    #[test]
    fn own_functions_are_in_the_table() {
        let table = Table::read(Path::new("/proc/self/exe"));
        let maps = crate::host::mapped::mappings(&std::fs::read("/proc/self/maps").unwrap());
        let here = findable_in_table as fn() as usize as u64;
        let offset = maps.iter().find(|m| (m.start..m.end).contains(&here)).unwrap().offset_of(here);
        let elf = crate::host::elf::Elf::read(&File::open("/proc/self/exe").unwrap()).unwrap();
        let address = elf.address(offset).unwrap();
        assert!(table.name(address).unwrap().contains("findable_in_table"));
        assert_eq!((table.name(1), table.name(u64::MAX)), (None, None));
    }

    proptest! {
        /// The head and the sections of a small file, damaged.
        #[test]
        fn damage_never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 64..512), at: u64) {
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            bytes[40..48].copy_from_slice(&64u64.to_le_bytes());
            bytes[58..62].copy_from_slice(&[64, 0, 7, 0]);
            if let Some(kind) = bytes.get_mut(68..72) {
                kind.copy_from_slice(&SYMTAB.to_le_bytes());
            }
            let path = std::env::temp_dir().join(format!("biopsy-table-{}", std::process::id()));
            std::fs::write(&path, &bytes).unwrap();
            Table::read(&path).name(at);
            std::fs::remove_file(&path).unwrap();
        }
    }
}
