//! Collects the files whose places are to be symbolized: each file is read once, however many processes have mapped it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;

use super::child::{self, Bounds, HelperProgram, Job};
use crate::host::elf::{BuildId, Elf};
use crate::host::mapped::{FileId, MappedFile, Owner, open_regular};

/// The names at a place: a function and the functions inlined into it, outermost first. All processes share one list.
pub(super) type NameList = Arc<[String]>;

/// Identifies a file: equal keys mean the same file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum FileKey {
    /// The same build-id, written by the same user: any user can put any build-id into a file with arbitrary names.
    Built(BuildId, Owner),
    /// A file at a point in time: without a build-id, only size and time reveal a change of its content.
    File(FileId, (u64, i64, i64)),
}

/// Names found so far, by file and by address in the file's own tables; an empty list if there is none. Kept for the
/// next call.
#[derive(Debug, Default)]
pub(super) struct NameCache {
    names: HashMap<FileKey, HashMap<u64, NameList>>,
    number: usize,
}

impl NameCache {
    /// Above this they are dropped: a live view may run for days.
    const MOST: usize = 1 << 20;

    pub fn get(&self, key: &FileKey, address: u64) -> Option<&NameList> {
        self.names.get(key)?.get(&address)
    }

    fn insert(&mut self, key: &FileKey, address: u64, names: NameList) {
        self.number += 1;
        self.names.entry(key.clone()).or_default().insert(address, names);
    }
}

/// Files with places to be symbolized.
#[derive(Debug, Default)]
pub(super) struct Files {
    wanted: BTreeMap<FileKey, FileLookup>,
}

#[derive(Debug)]
struct FileLookup {
    file: Arc<MappedFile>,
    addresses: BTreeSet<u64>,
}

/// Why places of a file have no names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Failures {
    /// Number of files that are damaged, or took too long.
    pub files: usize,
    pub refused: Option<String>,
}

/// Where distributions keep debug files, by build-id.
pub(super) const DEBUG_FOLDERS: [&str; 2] = ["/usr/lib/debug", "/lib/debug"];

impl Files {
    /// The key of a file.
    pub fn key(file: &MappedFile) -> FileKey {
        match file.build_id() {
            Some(id) => FileKey::Built(id.clone(), file.owner()),
            None => FileKey::File(file.id(), file.stamp()),
        }
    }

    /// Requests a name, unless it is known.
    pub fn want(&mut self, file: &Arc<MappedFile>, key: &FileKey, address: u64, known: &NameCache) {
        if known.get(key, address).is_none() {
            let new = || FileLookup { file: Arc::clone(file), addresses: BTreeSet::new() };
            self.wanted.entry(key.clone()).or_insert_with(new).addresses.insert(address);
        }
    }

    /// Finds all requested names.
    pub fn name(
        self,
        known: &mut NameCache,
        program: &HelperProgram,
        folders: &[PathBuf],
        bounds: Bounds,
    ) -> Failures {
        if known.number > NameCache::MOST {
            *known = NameCache::default();
        }
        let mut failures = Failures::default();
        let debug_of = |key: &FileKey| match key {
            FileKey::Built(id, _) => debug_file(folders, id),
            FileKey::File(..) => None,
        };
        let debug: Vec<Option<File>> = self.wanted.keys().map(debug_of).collect();
        // The debug file has more names; where it has none, the file itself may have one.
        let (mut jobs, mut of) = (Vec::new(), Vec::new());
        for ((key, wanted), debug) in self.wanted.iter().zip(&debug) {
            let addresses: Vec<u64> = wanted.addresses.iter().copied().collect();
            if let Some(debug) = debug {
                of.push(key);
                jobs.push(Job { file: debug.as_fd(), debug: true, addresses });
            } else if let Some(job) = own(wanted, addresses) {
                of.push(key);
                jobs.push(job);
            }
        }
        let mut rest = BTreeMap::new();
        run(program, &jobs, &of, known, bounds, &mut failures, |key, address| {
            rest.entry(key.clone()).or_insert_with(Vec::new).push(address);
        });
        let (mut jobs, mut of) = (Vec::new(), Vec::new());
        for ((key, wanted), _) in self.wanted.iter().zip(&debug).filter(|(_, debug)| debug.is_some()) {
            if let Some(job) = rest.remove(key).and_then(|addresses| own(wanted, addresses)) {
                of.push(key);
                jobs.push(job);
            }
        }
        run(program, &jobs, &of, known, bounds, &mut failures, |_, _| {});
        failures
    }
}

/// The file itself, if it is unchanged. A debug link in it is untrusted, and following it would open a file of someone
/// else's choice. So a file with a link is read without DWARF (distributions put one into every binary that has no
/// DWARF of its own).
fn own(wanted: &FileLookup, addresses: Vec<u64>) -> Option<Job<'_>> {
    let debug = wanted.file.elf().is_some_and(|elf| !elf.points_elsewhere);
    Some(Job { file: wanted.file.unchanged()?.as_fd(), debug, addresses })
}

fn run(
    program: &HelperProgram,
    jobs: &[Job<'_>],
    of: &[&FileKey],
    known: &mut NameCache,
    bounds: Bounds,
    failures: &mut Failures,
    mut unnamed: impl FnMut(&FileKey, u64),
) {
    let answers = child::names(program, jobs, bounds);
    failures.files += answers.failed.len();
    failures.refused = failures.refused.take().or(answers.refused.map(|error| error.to_string()));
    for ((job, key), names) in jobs.iter().zip(of).zip(answers.names) {
        for (address, names) in job.addresses.iter().zip(names) {
            if names.is_empty() {
                unnamed(key, *address);
            }
            known.insert(key, *address, names.into());
        }
    }
}

/// The debug file with a build-id, from directories in a distribution's layout.
pub(super) fn debug_file(folders: &[PathBuf], id: &BuildId) -> Option<File> {
    let hex = id.to_string();
    let (first, rest) = hex.split_at(2);
    folders.iter().find_map(|folder| {
        let path = folder.join(".build-id").join(first).join(format!("{rest}.debug"));
        let file = open_regular(&path, true)?;
        (Elf::read(&file)?.build_id.as_ref() == Some(id)).then_some(file)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debug_file_is_one_of_the_same_build() {
        let folder = std::env::temp_dir().join(format!("biopsy-debug-{}", std::process::id()));
        let own = File::open("/proc/self/exe").unwrap();
        // Some linkers write no build-id; then there is nothing to look up.
        if let Some(id) = Elf::read(&own).unwrap().build_id {
            let hex = id.to_string();
            let there = folder.join(".build-id").join(&hex[..2]);
            std::fs::create_dir_all(&there).unwrap();
            let path = there.join(format!("{}.debug", &hex[2..]));
            assert!(debug_file(std::slice::from_ref(&folder), &id).is_none());
            std::fs::write(&path, "another").unwrap();
            assert!(debug_file(std::slice::from_ref(&folder), &id).is_none());
            std::fs::copy("/proc/self/exe", &path).unwrap();
            assert!(debug_file(std::slice::from_ref(&folder), &id).is_some());
            std::fs::remove_dir_all(&folder).unwrap();
        }
    }
}
