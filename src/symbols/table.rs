//! Reads the symbol tables of an ELF file, for files on which blazesym fails. These are stripped files with compressed
//! symbols (`.gnu_debugdata`, which Fedora and related distributions put into every program and library): blazesym then
//! rejects all other tables as well, even if that section is damaged.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use liblzma::read::XzDecoder;
use liblzma::stream::Stream;

use super::demangle::MOST;

/// The functions of a 64-bit file, by address.
#[derive(Debug, Default)]
pub(super) struct FunctionTable {
    functions: Vec<ElfFunction>,
    strings: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct ElfFunction {
    address: u64,
    bytes: u64,
    /// Offset in the strings.
    name: u64,
}

/// A larger table is not worth its memory here.
const MOST_BYTES: u64 = 256 << 20;
/// Memory limit for decompression: `xz -9` has dictionaries of 64 MiB.
const MOST_TO_UNPACK: u64 = 128 << 20;
const SYMTAB: u32 = 2;
const DYNSYM: u32 = 11;
const PACKED: &[u8] = b".gnu_debugdata\0";

/// Reads bytes of a file from an offset, all or none.
type ReadAt<'a> = &'a dyn Fn(u64, u64) -> Option<Vec<u8>>;

impl FunctionTable {
    pub fn read(path: &Path) -> Self {
        let of = |file: File| {
            let end = file.metadata().ok()?.len();
            let read = |offset: u64, bytes: u64| {
                let fits = bytes <= MOST_BYTES && offset.checked_add(bytes)? <= end;
                let mut buffer = vec![0; if fits { bytes as usize } else { return None }];
                file.read_exact_at(&mut buffer, offset).ok().map(|()| buffer)
            };
            let sections = Sections::of(&read)?;
            let own = sections.table();
            // The compressed table omits the file's dynamic symbols.
            let is_whole = own.as_ref().is_some_and(|(kind, _)| *kind == SYMTAB);
            let packed = if is_whole { None } else { sections.packed() };
            let packed = packed.and_then(|packed| Self::of_bytes(&packed));
            let own = own.and_then(|(_, table)| sections.functions(&table));
            Some(Self::all(own.into_iter().chain(packed)))
        };
        File::open(path).ok().and_then(of).unwrap_or_default()
    }

    /// The symbol table of a complete file in memory.
    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let read = |offset: u64, length: u64| {
            let end = usize::try_from(offset.checked_add(length)?).ok()?;
            bytes.get(usize::try_from(offset).ok()?..end).map(<[u8]>::to_vec)
        };
        let sections = Sections::of(&read)?;
        sections.functions(&sections.table()?.1)
    }

    fn all(tables: impl Iterator<Item = Self>) -> Self {
        let mut all = Self::default();
        for table in tables {
            let before = all.strings.len() as u64;
            all.strings.extend(table.strings);
            let moved = |function: ElfFunction| ElfFunction { name: function.name + before, ..function };
            all.functions.extend(table.functions.into_iter().map(moved));
        }
        all.functions.sort_by_key(|f| f.address);
        all
    }

    /// The mangled name of the function at an address.
    pub fn name(&self, address: u64) -> Option<String> {
        /// Functions overlap only in a damaged file.
        const LOOKS: usize = 64;
        let behind = self.functions.partition_point(|f| f.address <= address);
        let mut before = self.functions[..behind].iter().rev().take(LOOKS);
        let found = before.find(|f| address - f.address < f.bytes)?;
        let name = self.strings.get(usize::try_from(found.name).ok()?..)?;
        let end = name.iter().take(MOST).position(|&byte| byte == 0)?;
        (end > 0).then(|| String::from_utf8_lossy(&name[..end]).into_owned())
    }
}

/// The sections of a file.
struct Sections<'a> {
    read: ReadAt<'a>,
    /// Offset and size of a section header, their number, and the index of the section with their names.
    at: u64,
    size: u16,
    number: u16,
    names: u16,
}

impl<'a> Sections<'a> {
    fn of(read: ReadAt<'a>) -> Option<Self> {
        let head = read(0, 64)?;
        let is_known = head[..6] == *b"\x7fELF\x02\x01";
        is_known.then_some(())?;
        let half = |at| u16_at(&head, at);
        Some(Self { read, at: u64_at(&head, 40)?, size: half(58)?, number: half(60)?, names: half(62)? })
    }

    fn header(&self, i: u64) -> Option<Vec<u8>> {
        let is_inside = i < u64::from(self.number) && self.size >= 64;
        is_inside.then_some(())?;
        (self.read)(self.at.checked_add(i * u64::from(self.size))?, 64)
    }

    fn contents(&self, header: &[u8]) -> Option<Vec<u8>> {
        (self.read)(u64_at(header, 24)?, u64_at(header, 32)?)
    }

    fn headers(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        (0..u64::from(self.number)).filter_map(|i| self.header(i))
    }

    /// The header of the table of all symbols, or else of the dynamic symbols; and its type.
    fn table(&self) -> Option<(u32, Vec<u8>)> {
        let of_kind = |kind| Some((kind, self.headers().find(|header| u32_at(header, 4) == Some(kind))?));
        of_kind(SYMTAB).or_else(|| of_kind(DYNSYM))
    }

    /// The ELF file that is compressed inside this one.
    fn packed(&self) -> Option<Vec<u8>> {
        let names = self.contents(&self.header(self.names.into())?)?;
        let is_packed = |header: &Vec<u8>| {
            let name = u32_at(header, 0).and_then(|at| names.get(at as usize..));
            name.is_some_and(|name| name.starts_with(PACKED))
        };
        let packed = self.contents(&self.headers().find(is_packed)?)?;
        let stream = Stream::new_stream_decoder(MOST_TO_UNPACK, 0).ok()?;
        let mut whole = Vec::new();
        let unpacked =
            XzDecoder::new_stream(packed.as_slice(), stream).take(MOST_BYTES).read_to_end(&mut whole);
        unpacked.ok().map(|_| whole)
    }

    fn functions(&self, table: &[u8]) -> Option<FunctionTable> {
        let strings = self.contents(&self.header(u64::from(u32_at(table, 40)?))?)?;
        let symbols = self.contents(table)?;
        let function = |symbol: &[u8]| {
            // Functions (2) and indirect functions (10), with a section and a size.
            let is_wanted = matches!(symbol[4] & 15, 2 | 10) && u16_at(symbol, 6)? != 0;
            let function = ElfFunction {
                address: u64_at(symbol, 8)?,
                bytes: u64_at(symbol, 16)?,
                name: u64::from(u32_at(symbol, 0)?),
            };
            // A name beyond its string table would be read from another one.
            let is_inside = function.name < strings.len() as u64;
            (is_wanted && is_inside && function.bytes > 0).then_some(function)
        };
        let functions = symbols.chunks_exact(24).filter_map(function).collect();
        Some(FunctionTable { functions, strings })
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
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
        let table = FunctionTable::read(Path::new("/proc/self/exe"));
        let maps = crate::host::mapped::mappings(&std::fs::read("/proc/self/maps").unwrap());
        let here = findable_in_table as fn() as usize as u64;
        let offset = maps.iter().find(|m| (m.start..m.end).contains(&here)).unwrap().offset_of(here);
        let elf = crate::host::elf::Elf::read(&File::open("/proc/self/exe").unwrap()).unwrap();
        let address = elf.address(offset).unwrap();
        assert!(table.name(address).unwrap().contains("findable_in_table"));
        assert_eq!((table.name(1), table.name(u64::MAX)), (None, None));
    }

    proptest! {
        /// Header and sections of a small file, damaged.
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
            FunctionTable::read(&path).name(at);
            std::fs::remove_file(&path).unwrap();
        }
    }
}
