//! Keeps the mapped files of processes, read while the processes live, for symbolizing after they have ended.
//!
//! A command under test has ended when its frames are symbolized. So the list of its mappings is kept, and the files in
//! it stay open: a file that was deleted or replaced since is still the file that ran.

mod file;
mod mapping;
mod perf_map;
mod programs;

use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use file::{FileId, MappedFile, Owner, at_path, open_regular};
pub use mapping::{Mapping, fits, mappings, put_over};
pub use programs::Programs;

/// The mappings of processes, and the files in them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MappedFiles {
    /// Shared by the copies of a profile.
    processes: HashMap<u32, Arc<Vec<Generation>>>,
    files: HashMap<FileId, Arc<MappedFile>>,
    mappings: usize,
    /// Number of open files.
    open: usize,
    /// Missing records: the kernel's own records of mappings that were lost.
    lost: u64,
    no_records: Option<NoRecords>,
    programs: Programs,
}

/// Why the kernel gave no records of mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRecords {
    /// The records have process ids of our namespace; samples have those of the machine.
    PidNamespace,
    /// Perf events were refused.
    Refused,
    /// The limit of locked memory has no room for their ring buffers.
    LockedMemory,
}

/// The mappings of a process at one time. An `exec` starts another generation, and so does another process with the
/// same id.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Generation {
    /// Start time of the process in ticks since boot: a reused process id belongs to another process. None: unknown.
    pub began: Option<u64>,
    /// Executable mappings, by address.
    pub mappings: Vec<Mapping>,
    /// The perf map, in which the process itself names the code that it generated.
    pub perf_map: Option<Arc<MappedFile>>,
    /// The process has ended: a process with the same id is now another one.
    pub ended: bool,
}

impl Generation {
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let behind = self.mappings.partition_point(|m| m.start <= address);
        self.mappings[..behind].last().filter(|m| address < m.end)
    }

    /// Whether it contains all mappings of another, at the same addresses.
    fn holds(&self, other: &[Mapping]) -> bool {
        let is_in =
            |new: &Mapping| self.find(new.start).is_some_and(|old| new.end <= old.end && old.agrees(new));
        other.iter().all(is_in)
    }

    /// Merges a later reading of the same program. False if the reading is of another program, which maps something
    /// else at the place of a file of this one.
    fn take(&mut self, later: &Self) -> bool {
        let fits = |new: &Mapping| {
            let from = self.mappings.partition_point(|m| m.end <= new.start);
            self.mappings[from..].iter().take_while(|m| m.start < new.end).all(|old| old.agrees(new))
        };
        if self.began != later.began || self.ended != later.ended || !later.mappings.iter().all(fits) {
            return false;
        }
        for new in &later.mappings {
            // A library that was unloaded since is kept. A mapping that grew is longer in the later reading.
            self.mappings.retain(|old| old.end <= new.start || new.end <= old.start);
            let at = self.mappings.partition_point(|m| m.start < new.start);
            self.mappings.insert(at, new.clone());
        }
        if later.perf_map.is_some() {
            self.perf_map.clone_from(&later.perf_map);
        }
        true
    }
}

/// The largest difference between two clocks that were read one after the other.
const AS_OF_ERROR_NS: i128 = 1_000_000;

impl MappedFiles {
    /// Bounds the cost on a machine that starts thousands of processes a second.
    pub const MOST_PROCESSES: usize = 32_768;
    const MOST_MAPPINGS: usize = 500_000;
    const MOST_GENERATIONS: usize = 8;
    const MOST_FILES: usize = 512;
    /// Files that are not kept open, of which only the build-id is kept.
    const MOST_IDENTITIES: usize = 16_384;

    /// Reads the current mappings of a process, and opens the files that were not opened before.
    ///
    /// # Errors
    /// If the process has ended, or this process may not inspect it.
    pub fn read(&mut self, root: &Path, pid: u32) -> io::Result<()> {
        let folder = root.join(format!("proc/{pid}"));
        if self.processes.len() >= Self::MOST_PROCESSES && !self.processes.contains_key(&pid) {
            return Err(io::Error::new(ErrorKind::QuotaExceeded, "too many processes"));
        }
        let text = fs::read(folder.join("maps"))?;
        let mut generation =
            Generation { began: began(&folder), mappings: mappings(&text), ..Generation::default() };
        // Empty for a process that exits: an earlier reading is better.
        if generation.mappings.is_empty() {
            return Err(ErrorKind::NotFound.into());
        }
        let mut again = None;
        for mapping in generation.mappings.iter().filter(|m| m.is_file()) {
            let id = mapping.file_id();
            if self.files.get(&id).is_some_and(|file| file.is_open()) {
                continue;
            }
            let Some(file) = file::of_process(&folder, mapping) else { continue };
            // On btrfs and overlayfs, the numbers of the file system differ from those of the mapping. Then the mapping
            // must still be there: an exec in between would give another file.
            if file.id() != id {
                let now = again.get_or_insert_with(|| {
                    fs::read(folder.join("maps")).map(|text| mappings(&text)).unwrap_or_default()
                });
                if !now.contains(mapping) {
                    continue;
                }
            }
            self.hold(id, file);
        }
        if generation.mappings.iter().any(|m| (!m.is_file() || m.is_made()) && !m.is_special())
            && self.open < Self::MOST_FILES.min(file::limit())
        {
            generation.perf_map = perf_map::of_process(&folder, pid).map(Arc::new);
            self.open += usize::from(generation.perf_map.is_some());
        }
        self.put(pid, generation);
        Ok(())
    }

    /// Adds mappings from another source, in the format of `/proc/PID/maps`; none of their files is open.
    pub fn insert(&mut self, pid: u32, maps: &[u8]) {
        self.put(pid, Generation { mappings: mappings(maps), ..Generation::default() });
    }

    /// Adds a program that a process ran, from the kernel's own records, because `/proc` no longer has it. `ended`: it
    /// was the last program of the process.
    ///
    /// Its files are opened at their paths below one of `roots`. A file counts only if it is the mapped one and has not
    /// changed since `as_of_ns` (since 1970), when the last of them was mapped: a file that was overwritten, or another
    /// file that reused its number, does not count.
    pub fn record(&mut self, roots: &[&Path], pid: u32, mappings: Vec<Mapping>, ended: bool, as_of_ns: i128) {
        if self.processes.len() >= Self::MOST_PROCESSES && !self.processes.contains_key(&pid) {
            return;
        }
        for mapping in mappings.iter().filter(|m| m.is_file()) {
            let id = mapping.file_id();
            if self.files.get(&id).is_none_or(|file| !file.is_open())
                && let Some(file) = roots.iter().find_map(|root| file::at_path(root, mapping))
            {
                // If it changed, mark it ambiguous, so that no later search finds another file.
                let same = file.changed_ns() <= as_of_ns + AS_OF_ERROR_NS;
                self.hold(id, if same { file } else { MappedFile::ambiguous(id) });
            }
        }
        let generations = self.processes.get(&pid).map_or(&[][..], |generations| generations);
        // The end is recorded in any case, so that the process is not looked up among the living.
        let known = generations.last().is_some_and(|last| last.holds(&mappings) && last.ended == ended)
            || !ended && generations.iter().any(|one| one.holds(&mappings));
        if !known {
            self.put(pid, Generation { mappings, ended, ..Generation::default() });
        }
    }

    /// Records that a process ran an earlier program, during which (and only then) its threads had this name. `number`
    /// then replaces the process id. Returns the number in use, which is the first one if there is one already.
    pub fn ran(&mut self, pid: u32, name: &[u8], number: u32) -> u32 {
        self.programs.add(pid, name, number)
    }

    /// The numbers of the programs of processes that ran several.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Drops the readings of a process from the time when it ran a program with these mappings.
    pub fn forget(&mut self, pid: u32, mappings: &[Mapping]) {
        let Some(generations) = self.processes.get_mut(&pid) else { return };
        let program = Generation { mappings: mappings.to_vec(), ..Generation::default() };
        let generations = Arc::make_mut(generations);
        let before: usize = generations.iter().map(|g| g.mappings.len()).sum();
        // The kernel does not record the pages that all processes share.
        let files = |generation: &Generation| -> Vec<Mapping> {
            generation.mappings.iter().filter(|mapping| mapping.is_file()).cloned().collect()
        };
        generations.retain(|generation| !program.holds(&files(generation)));
        self.mappings -= before - generations.iter().map(|g| g.mappings.len()).sum::<usize>();
        if generations.is_empty() {
            self.processes.remove(&pid);
        }
    }

    /// Counts records that the kernel could not make, or that did not fit in the buffer.
    pub fn lose(&mut self, records: u64) {
        self.lost += records;
    }

    /// Number of lost records: functions of short-lived programs may lack names.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    pub fn set_no_records(&mut self, why: Option<NoRecords>) {
        self.no_records = why;
    }

    /// Why the kernel gave no records; None if it gave them, or if they were not requested.
    pub fn no_records(&self) -> Option<NoRecords> {
        self.no_records
    }

    /// Keeps the file of a mapping, open if the limit allows it.
    fn hold(&mut self, id: FileId, mut file: MappedFile) {
        if self.open >= Self::MOST_FILES.min(file::limit()) {
            file.close();
        }
        match self.files.get(&id) {
            // The same number with another file: the first file was deleted when no process held it open.
            Some(known) if known.build_id() != file.build_id() => {
                self.files.insert(id, Arc::new(MappedFile::ambiguous(id)));
            }
            Some(_) => {}
            None if self.files.len() < Self::MOST_IDENTITIES => {
                self.open += usize::from(file.is_open());
                self.files.insert(id, Arc::new(file));
            }
            None => {}
        }
    }

    fn put(&mut self, pid: u32, generation: Generation) {
        let generations = Arc::make_mut(self.processes.entry(pid).or_default());
        let before: usize = generations.iter().map(|g| g.mappings.len()).sum();
        if self.mappings - before + generation.mappings.len() > Self::MOST_MAPPINGS {
            return;
        }
        if !generations.last_mut().is_some_and(|last| last.take(&generation)) {
            generations.push(generation);
            if generations.len() > Self::MOST_GENERATIONS {
                generations.remove(0);
            }
        }
        self.mappings += generations.iter().map(|g| g.mappings.len()).sum::<usize>() - before;
    }

    /// The generations of a process, oldest first.
    pub fn generations(&self, pid: u32) -> &[Generation] {
        self.processes.get(&pid).map_or(&[], |generations| generations.as_slice())
    }

    /// Whether an address of a process lies in a recorded mapping.
    pub fn covers(&self, pid: u32, address: u64) -> bool {
        self.generations(pid).iter().any(|generation| generation.find(address).is_some())
    }

    /// The file of a mapping, as it was when the process lived.
    pub fn file(&self, id: FileId) -> Option<&Arc<MappedFile>> {
        self.files.get(&id)
    }

    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Number of processes.
    pub fn len(&self) -> usize {
        self.processes.len()
    }
}

/// Start time of a process, in ticks since boot.
pub fn began(folder: &Path) -> Option<u64> {
    let stat = fs::read(folder.join("stat")).ok()?;
    // The name is in brackets, and may itself contain brackets.
    let behind = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let fields = std::str::from_utf8(&stat[behind..]).ok()?;
    // Field 22; the first field after the name is field 3.
    fields.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

/// `/proc/PID` of this machine.
pub fn folder(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &[&str]) -> Vec<u8> {
        lines.join("\n").into_bytes()
    }

    const PROGRAM: &str = "1000-3000 r-xp 00000000 fe:01 10 /bin/a";
    const LIBRARY: &str = "8000-9000 r-xp 00001000 fe:01 20 /lib/b";

    #[test]
    fn a_library_that_comes_later_joins_the_program() {
        let mut mapped = MappedFiles::default();
        mapped.insert(1, &text(&[PROGRAM]));
        assert!(mapped.covers(1, 0x2fff) && !mapped.covers(1, 0x8000) && !mapped.covers(2, 0x2000));
        mapped.insert(1, &text(&[PROGRAM, LIBRARY]));
        mapped.insert(1, &text(&[PROGRAM]));
        assert_eq!(mapped.generations(1).len(), 1);
        assert!(mapped.covers(1, 0x8000), "unloaded since, but it was there");
        assert_eq!(mapped.mappings, 2);
    }

    /// The addresses do not distinguish the programs: a process calls exec, and both programs lie at the same address.
    #[test]
    fn another_program_is_another_generation() {
        let mut mapped = MappedFiles::default();
        mapped.insert(1, &text(&[PROGRAM]));
        mapped.insert(1, &text(&["1000-2000 r-xp 00000000 fe:01 11 /bin/c"]));
        assert_eq!(mapped.generations(1).len(), 2);
        let paths: Vec<_> =
            mapped.generations(1).iter().map(|g| g.find(0x1000).unwrap().path.to_vec()).collect();
        assert_eq!(paths, [b"/bin/a".to_vec(), b"/bin/c".to_vec()]);
    }

    /// From records, after `/proc` gave a part of them before the exec.
    #[test]
    fn an_earlier_program_goes_to_a_number_of_its_own() {
        let (root, earlier) = (Path::new("/nowhere"), (1 << 31) + 5);
        let mut mapped = MappedFiles::default();
        mapped.insert(1, &text(&[PROGRAM, "9000-a000 r-xp 00000000 00:00 0 [vdso]"]));
        let all = mappings(&text(&[PROGRAM, LIBRARY]));
        mapped.forget(1, &all);
        assert!(mapped.generations(1).is_empty() && mapped.mappings == 0);
        let number = mapped.ran(1, b"a", earlier);
        mapped.record(&[root], number, all.clone(), true, i128::MAX / 2);
        mapped.record(&[root], number, all, true, i128::MAX / 2);
        mapped.insert(1, &text(&["1000-2000 r-xp 00000000 fe:01 11 /bin/c"]));
        let programs = mapped.programs();
        assert_eq!([programs.of(1, b"a"), programs.of(1, b"c")], [earlier, 1]);
        assert_eq!((mapped.generations(earlier).len(), mapped.generations(1).len()), (1, 1));
        assert!(mapped.generations(earlier)[0].ended && !mapped.generations(1)[0].ended);
        assert!(mapped.covers(earlier, 0x8000) && !mapped.covers(1, 0x8000));
        mapped.forget(1, &mappings(&text(&[LIBRARY])));
        assert!(mapped.covers(1, 0x1000), "another program's");
    }

    #[test]
    fn a_process_costs_no_more_than_its_bound() {
        let mut mapped = MappedFiles::default();
        for inode in 0..20 {
            mapped.insert(1, format!("1000-2000 r-xp 0 fe:01 {inode} /x").as_bytes());
        }
        assert_eq!((mapped.generations(1).len(), mapped.mappings), (8, 8));
        let many: Vec<u8> = (1..300_000u64)
            .flat_map(|i| format!("{i:x}000-{i:x}800 r-xp 0 fe:01 1 /x\n").into_bytes())
            .collect();
        mapped.insert(2, &many);
        mapped.insert(3, &many);
        assert!(mapped.mappings <= MappedFiles::MOST_MAPPINGS);
        assert!(mapped.covers(2, 0x5000) && !mapped.covers(3, 0x5000), "the bound holds for all together");
    }

    #[test]
    fn this_process_is_read_with_its_files_open() {
        let mut mapped = MappedFiles::default();
        let pid = std::process::id();
        mapped.read(Path::new("/"), pid).unwrap();
        let here = this_process_is_read_with_its_files_open as fn() as usize as u64;
        let mapping = mapped.generations(pid)[0].find(here).unwrap();
        let file = mapped.file(mapping.file_id()).unwrap();
        assert!(file.is_open() && file.elf().is_some(), "{file:?}");
        assert!(mapped.generations(pid)[0].began.is_some());
        let open = mapped.open;
        mapped.read(Path::new("/"), pid).unwrap();
        assert_eq!(mapped.open, open, "nothing is opened twice");
        assert!(mapped.read(Path::new("/"), 1 << 30).is_err());
    }
}
