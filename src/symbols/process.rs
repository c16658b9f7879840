//! Resolves addresses of a process: to a file and an offset in it, or to code that the process generated.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::FromRawFd as _;
use std::path::Path;
use std::sync::Arc;

use super::files::FileKey;
use super::perf_map::PerfMap;
use super::place::Place;
use crate::host::elf::Elf;
use crate::host::mapped::{self, FileId, Generation, MappedFile, MappedFiles, Mapping};

/// What an address of a process refers to.
#[derive(Debug, Clone)]
pub(super) enum Meaning {
    /// Nothing was mapped there, or no code.
    Nothing,
    /// The process called exec during the measurement, and both programs have this address.
    Ambiguous,
    /// Code that the process generated, and named.
    Made(String),
    Place {
        place: Place,
        /// The file to read; None if it is gone, or no longer the one that ran.
        file: Option<(FileKey, Arc<MappedFile>)>,
    },
}

/// Resolves addresses with recorded mappings of processes, and with those of live ones.
#[derive(Debug)]
pub(super) struct Processes<'a> {
    kept: &'a MappedFiles,
    live: MappedFiles,
    /// Files that were not kept open, by path: each is opened once.
    opened: HashMap<FileId, Option<Arc<MappedFile>>>,
    paths: HashMap<Arc<[u8]>, Arc<str>>,
    vdso: &'a Vdso,
    /// The mappings of some process may not be read.
    pub refused: bool,
    pub ambiguous: usize,
    /// Processes that exited before their mappings were read, so that their addresses cannot be resolved.
    pub ended: usize,
    /// Unresolved addresses of exited processes of which some mappings were recorded.
    pub unmapped: usize,
}

impl<'a> Processes<'a> {
    pub fn new(kept: &'a MappedFiles, vdso: &'a Vdso) -> Self {
        Self {
            kept,
            live: MappedFiles::default(),
            opened: HashMap::new(),
            paths: HashMap::new(),
            vdso,
            refused: false,
            ambiguous: 0,
            ended: 0,
            unmapped: 0,
        }
    }

    /// Resolves the addresses of a process.
    pub fn meanings(&mut self, pid: u32, addresses: &BTreeSet<u64>) -> Vec<(u64, Meaning)> {
        let kept = self.kept.generations(pid);
        // A process with another start time merely reused the process id.
        let same = kept
            .last()
            .is_none_or(|last| last.began.is_none() || last.began == mapped::began(&mapped::folder(pid)))
            && !kept.last().is_some_and(|last| last.ended);
        let unknown = kept.is_empty() || !addresses.iter().all(|address| self.kept.covers(pid, *address));
        let made = kept.iter().any(|generation| generation.perf_map.is_some());
        let mut over = !same;
        if same && (unknown || made) {
            let read = self.live.read(Path::new("/"), pid);
            let refused = |error: &io::Error| {
                matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::QuotaExceeded)
            };
            over = read.as_ref().is_err_and(|error| !refused(error));
            self.refused |=
                kept.is_empty() && read.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
        }
        let programs = kept.iter().map(|generation| (generation, true)).rev();
        let live = self.live.generations(pid).to_vec();
        let all: Vec<(&Generation, bool)> =
            live.iter().map(|generation| (generation, false)).chain(programs).collect();
        let maps: Vec<PerfMap> = all
            .iter()
            .filter_map(|(generation, _)| generation.perf_map.as_ref()?.file())
            .map(PerfMap::read)
            .collect();
        let meanings: Vec<(u64, Meaning)> =
            addresses.iter().map(|&address| (address, self.meaning(address, &all, &maps))).collect();
        let nothing = meanings.iter().filter(|(_, meaning)| matches!(meaning, Meaning::Nothing)).count();
        if over && nothing > 0 {
            match kept.is_empty() {
                true => self.ended += 1,
                false => self.unmapped += nothing,
            }
        }
        meanings
    }

    fn meaning(&mut self, address: u64, all: &[(&Generation, bool)], maps: &[PerfMap]) -> Meaning {
        let mut found: Option<(&Mapping, bool)> = None;
        for (generation, kept) in all {
            let Some(mapping) = generation.find(address) else { continue };
            match found {
                None => found = Some((mapping, *kept)),
                Some((other, _)) if other.same_place(mapping, address) => {
                    // The file that was opened while the process was sampled is more reliable.
                    if *kept {
                        found = Some((mapping, true));
                    }
                }
                Some(_) => {
                    self.ambiguous += 1;
                    return Meaning::Ambiguous;
                }
            }
        }
        if !found.is_some_and(|(mapping, _)| mapping.is_file() && !mapping.is_made())
            && let Some(name) = maps.iter().find_map(|map| map.name(address))
        {
            return Meaning::Made(name);
        }
        match found {
            Some((mapping, kept)) => self.place(mapping, kept, address),
            None => Meaning::Nothing,
        }
    }

    fn place(&mut self, mapping: &Mapping, kept: bool, address: u64) -> Meaning {
        let file = match mapping.is_file() {
            true => {
                let source = if kept { self.kept } else { &self.live };
                match source.file(mapping.file_id()).cloned() {
                    // Too many files were open; the file that has its path now may still be the same.
                    Some(closed) if !closed.is_open() => {
                        let now = self.opened(mapping);
                        let same = now.filter(|now| now.file().is_some_and(|file| closed.is_still(file)));
                        Some(same.unwrap_or(closed))
                    }
                    Some(open) => Some(open),
                    None => self.opened(mapping),
                }
            }
            false => self.vdso.of(mapping),
        };
        let offset = match mapping.is_special() {
            true => address - mapping.start,
            false => mapping.offset_of(address),
        };
        let path = self.paths.entry(Arc::clone(&mapping.path));
        let path = path.or_insert_with_key(|path| String::from_utf8_lossy(path).into());
        let elf = file.as_ref().and_then(|file| file.elf());
        let place = Place {
            build_id: elf.and_then(|elf| elf.build_id.clone()),
            file: Arc::clone(path),
            offset,
            address: elf.and_then(|elf| elf.address(offset)),
        };
        let file = file.map(|file| (super::files::Files::key(&file), file));
        Meaning::Place { place, file }
    }

    /// The file that has the path of a mapping now, if it is the mapped one.
    fn opened(&mut self, mapping: &Mapping) -> Option<Arc<MappedFile>> {
        let id = mapping.file_id();
        let open = || {
            let file = mapped::at_path(Path::new("/"), mapping)?;
            Some(Arc::new(file))
        };
        self.opened.entry(id).or_insert_with(open).clone()
    }
}

/// The vDSO, which the kernel maps into every process: it is the same in all of them, so this process's own is read.
#[derive(Debug)]
pub(super) struct Vdso {
    file: Option<Arc<MappedFile>>,
    bytes: u64,
}

impl Vdso {
    pub fn read() -> Self {
        let maps = mapped::mappings(&fs::read("/proc/self/maps").unwrap_or_default());
        let own = maps.iter().find(|mapping| &*mapping.path == b"[vdso]");
        let file = own.and_then(|own| {
            // SAFETY: the kernel mapped these bytes readable, and nothing unmaps them.
            let image = unsafe {
                std::slice::from_raw_parts(own.start as usize as *const u8, (own.end - own.start) as usize)
            };
            Elf::of(image)?;
            MappedFile::new(in_memory(image)?).map(Arc::new)
        });
        Self { file, bytes: own.map_or(0, |own| own.end - own.start) }
    }

    pub fn file(&self) -> Option<&Arc<MappedFile>> {
        self.file.as_ref()
    }

    /// This process's vDSO if the mapping is the same. That of a 32-bit process differs, and lies below 4 GiB.
    fn of(&self, mapping: &Mapping) -> Option<Arc<MappedFile>> {
        let same = &*mapping.path == b"[vdso]"
            && mapping.end - mapping.start == self.bytes
            && mapping.start >= 1 << 32;
        same.then(|| self.file.clone()).flatten()
    }
}

fn in_memory(bytes: &[u8]) -> Option<File> {
    // SAFETY: a NUL-terminated name; the result is checked.
    let fd = unsafe { libc::memfd_create(c"biopsy-vdso".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return None;
    }
    // SAFETY: just opened, and nothing else owns it.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(bytes).ok()?;
    Some(file)
}
