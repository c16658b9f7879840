//! What processes have mapped: read while they live, kept for when they have ended.
//!
//! A command under test has ended by the time that its frames are to be named. So the list of its mappings is kept,
//! and the files in it stay open: a file that was deleted or replaced since is still the one that ran.

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
pub struct Mapped {
    /// Shared by the copies of a profile.
    processes: HashMap<u32, Arc<Vec<Generation>>>,
    files: HashMap<FileId, Arc<MappedFile>>,
    mappings: usize,
    /// Files that are open now.
    open: usize,
    /// The kernel's own records of what was mapped that are missing.
    lost: u64,
    no_records: Option<NoRecords>,
    programs: Programs,
}

/// Why the kernel gave no records of what processes map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRecords {
    /// They have the process numbers of our namespace, samples those of the machine.
    PidNamespace,
    /// Perf events were refused.
    Refused,
    /// Their ring buffers found no room in the limit of locked memory.
    LockedMemory,
}

/// What a process had mapped at one time: an `exec` begins another, and so does another process of the same number.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Generation {
    /// When the process began, in ticks since boot: a number that is used again belongs to another process.
    /// None: it was not told.
    pub began: Option<u64>,
    /// Those with code in them, by address.
    pub mappings: Vec<Mapping>,
    /// What the process itself says of code that it made.
    pub perf_map: Option<Arc<MappedFile>>,
    /// The process has ended: what has its number now is another one.
    pub ended: bool,
}

impl Generation {
    pub fn find(&self, address: u64) -> Option<&Mapping> {
        let behind = self.mappings.partition_point(|m| m.start <= address);
        self.mappings[..behind].last().filter(|m| address < m.end)
    }

    /// Whether all of another is in it, at the same addresses.
    fn holds(&self, other: &[Mapping]) -> bool {
        let is_in =
            |new: &Mapping| self.find(new.start).is_some_and(|old| new.end <= old.end && old.agrees(new));
        other.iter().all(is_in)
    }

    /// Takes in a later reading of the same program; false when it is of another, which has something else where this
    /// one has a file.
    fn take(&mut self, later: &Self) -> bool {
        let fits = |new: &Mapping| {
            let from = self.mappings.partition_point(|m| m.end <= new.start);
            self.mappings[from..].iter().take_while(|m| m.start < new.end).all(|old| old.agrees(new))
        };
        if self.began != later.began || self.ended != later.ended || !later.mappings.iter().all(fits) {
            return false;
        }
        for new in &later.mappings {
            // A library that was unloaded since stays known. What grew is longer in the later reading.
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

/// How far two clocks may be apart that were read one after the other.
const AS_OF_ERROR_NS: i128 = 1_000_000;

impl Mapped {
    /// A bound on what a machine that starts thousands of processes a second can cost.
    pub const MOST_PROCESSES: usize = 32_768;
    const MOST_MAPPINGS: usize = 500_000;
    const MOST_GENERATIONS: usize = 8;
    const MOST_FILES: usize = 512;
    /// Files that are not kept open have their build-id here.
    const MOST_IDENTITIES: usize = 16_384;

    /// Reads what a process has mapped now, and opens what it has not seen of it before.
    ///
    /// # Errors
    /// When the process has ended, or is one that we may not look into.
    pub fn read(&mut self, root: &Path, pid: u32) -> io::Result<()> {
        let folder = root.join(format!("proc/{pid}"));
        if self.processes.len() >= Self::MOST_PROCESSES && !self.processes.contains_key(&pid) {
            return Err(io::Error::new(ErrorKind::QuotaExceeded, "too many processes"));
        }
        let text = fs::read(folder.join("maps"))?;
        let mut generation =
            Generation { began: began(&folder), mappings: mappings(&text), ..Generation::default() };
        // Empty for a process on its way out: what was read before is better.
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
            // Where the numbers of the file system differ from those of the mapping (btrfs and overlayfs have such),
            // the mapping must still be there: an exec in between would give another file.
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

    /// Takes in mappings from elsewhere, as `/proc/PID/maps` has them: no file is open then.
    pub fn insert(&mut self, pid: u32, maps: &[u8]) {
        self.put(pid, Generation { mappings: mappings(maps), ..Generation::default() });
    }

    /// Takes in a program that a process ran by the kernel's own records, `/proc` having no more of it; with `ended`
    /// it was the last one. Its files are those at their paths below one of `roots`, where they are the mapped ones and
    /// have not changed since `as_of_ns` (since 1970), when the last of them was mapped: a file that another was written
    /// over, or that got its number, is none of it.
    pub fn record(&mut self, roots: &[&Path], pid: u32, mappings: Vec<Mapping>, ended: bool, as_of_ns: i128) {
        if self.processes.len() >= Self::MOST_PROCESSES && !self.processes.contains_key(&pid) {
            return;
        }
        for mapping in mappings.iter().filter(|m| m.is_file()) {
            let id = mapping.file_id();
            if self.files.get(&id).is_none_or(|file| !file.is_open())
                && let Some(file) = roots.iter().find_map(|root| file::at_path(root, mapping))
            {
                // Else nobody may look for it later.
                let same = file.changed_ns() <= as_of_ns + AS_OF_ERROR_NS;
                self.hold(id, if same { file } else { MappedFile::ambiguous(id) });
            }
        }
        let generations = self.processes.get(&pid).map_or(&[][..], |generations| generations);
        // Its end is told all the same: nobody may look for it among the living.
        let known = generations.last().is_some_and(|last| last.holds(&mappings) && last.ended == ended)
            || !ended && generations.iter().any(|one| one.holds(&mappings));
        if !known {
            self.put(pid, Generation { mappings, ended, ..Generation::default() });
        }
    }

    /// A process ran an earlier program while its threads were called so, and only then. `number` stands for that in
    /// place of the process' own; or what is given, where another does already.
    pub fn ran(&mut self, pid: u32, name: &[u8], number: u32) -> u32 {
        self.programs.add(pid, name, number)
    }

    /// What stands for the programs of processes that ran several.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Forgets what was read of a process while it ran a program with these mappings.
    pub fn forget(&mut self, pid: u32, mappings: &[Mapping]) {
        let Some(generations) = self.processes.get_mut(&pid) else { return };
        let program = Generation { mappings: mappings.to_vec(), ..Generation::default() };
        let generations = Arc::make_mut(generations);
        let before: usize = generations.iter().map(|g| g.mappings.len()).sum();
        // The kernel records no page that all processes have.
        let files = |generation: &Generation| -> Vec<Mapping> {
            generation.mappings.iter().filter(|mapping| mapping.is_file()).cloned().collect()
        };
        generations.retain(|generation| !program.holds(&files(generation)));
        self.mappings -= before - generations.iter().map(|g| g.mappings.len()).sum::<usize>();
        if generations.is_empty() {
            self.processes.remove(&pid);
        }
    }

    /// Records that the kernel could not make, or that found no room.
    pub fn lose(&mut self, records: u64) {
        self.lost += records;
    }

    /// Records of programs that are missing: of what lived briefly, functions may have no names for it.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    pub fn set_no_records(&mut self, why: Option<NoRecords>) {
        self.no_records = why;
    }

    /// Why the kernel gave no records; None: it gave them, or they were not opened.
    pub fn no_records(&self) -> Option<NoRecords> {
        self.no_records
    }

    /// Keeps a file that a mapping is of, open where there is room for that.
    fn hold(&mut self, id: FileId, mut file: MappedFile) {
        if self.open >= Self::MOST_FILES.min(file::limit()) {
            file.close();
        }
        match self.files.get(&id) {
            // The same number, but another file: the first was deleted while nobody held it open.
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

    /// What is known of a process, oldest first.
    pub fn generations(&self, pid: u32) -> &[Generation] {
        self.processes.get(&pid).map_or(&[], |generations| generations.as_slice())
    }

    /// Whether an address of a process lies in a mapping with code that is known.
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

/// When a process began, in ticks since boot.
pub fn began(folder: &Path) -> Option<u64> {
    let stat = fs::read(folder.join("stat")).ok()?;
    // The name is in brackets, and may have any of them in it.
    let behind = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let fields = std::str::from_utf8(&stat[behind..]).ok()?;
    // Field 22, and the first behind the name is the third.
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
        let mut mapped = Mapped::default();
        mapped.insert(1, &text(&[PROGRAM]));
        assert!(mapped.covers(1, 0x2fff) && !mapped.covers(1, 0x8000) && !mapped.covers(2, 0x2000));
        mapped.insert(1, &text(&[PROGRAM, LIBRARY]));
        mapped.insert(1, &text(&[PROGRAM]));
        assert_eq!(mapped.generations(1).len(), 1);
        assert!(mapped.covers(1, 0x8000), "unloaded since, but it was there");
        assert_eq!(mapped.mappings, 2);
    }

    /// Not to be told apart by their addresses: a process calls exec, and both programs lie at the same place.
    #[test]
    fn another_program_is_another_generation() {
        let mut mapped = Mapped::default();
        mapped.insert(1, &text(&[PROGRAM]));
        mapped.insert(1, &text(&["1000-2000 r-xp 00000000 fe:01 11 /bin/c"]));
        assert_eq!(mapped.generations(1).len(), 2);
        let paths: Vec<_> =
            mapped.generations(1).iter().map(|g| g.find(0x1000).unwrap().path.to_vec()).collect();
        assert_eq!(paths, [b"/bin/a".to_vec(), b"/bin/c".to_vec()]);
    }

    /// By records, where `/proc` had told a part before the exec.
    #[test]
    fn an_earlier_program_goes_to_a_number_of_its_own() {
        let (root, earlier) = (Path::new("/nowhere"), (1 << 31) + 5);
        let mut mapped = Mapped::default();
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
        let mut mapped = Mapped::default();
        for inode in 0..20 {
            mapped.insert(1, format!("1000-2000 r-xp 0 fe:01 {inode} /x").as_bytes());
        }
        assert_eq!((mapped.generations(1).len(), mapped.mappings), (8, 8));
        let many: Vec<u8> = (1..300_000u64)
            .flat_map(|i| format!("{i:x}000-{i:x}800 r-xp 0 fe:01 1 /x\n").into_bytes())
            .collect();
        mapped.insert(2, &many);
        mapped.insert(3, &many);
        assert!(mapped.mappings <= Mapped::MOST_MAPPINGS);
        assert!(mapped.covers(2, 0x5000) && !mapped.covers(3, 0x5000), "the bound holds for all together");
    }

    #[test]
    fn this_process_is_read_with_its_files_open() {
        let mut mapped = Mapped::default();
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
