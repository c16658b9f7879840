//! Supports groups by file: passes kernel addresses to the programs, and finds the names of the files that they found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::skel::latency::types::wire_file_callbacks;
use crate::envelope::{Missing, Reason};
use crate::host::kallsyms::Kallsyms;
use crate::host::mounts;
use crate::host::open_files::{self, DELETED, FileId};
use crate::wire::files::{FILE_REGULAR, WireFile};

/// The functions that identify a bio by its completion callback.
pub fn callbacks(symbols: &Kallsyms) -> wire_file_callbacks {
    let address = |name: &str| symbols.function(name).unwrap_or(0);
    wire_file_callbacks {
        iomap_direct: address("iomap_dio_bio_end_io"),
        iomap_simple: address("iomap_dio_simple_end_io"),
        device_direct: address("blkdev_bio_end_io"),
        device_direct_async: address("blkdev_bio_end_io_async"),
        device_direct_simple: address("blkdev_bio_end_io_simple"),
        direct: address("dio_bio_end_io"),
        direct_async: address("dio_bio_end_aio"),
        wait: symbols.function("submit_bio_wait_endio").unwrap_or_else(|| address("bio_wait_end_io")),
        xfs_log: address("xlog_bio_end_io"),
        buffer: address("end_bio_bh_io_sync"),
        journal: address("journal_end_buffer_io_sync"),
    }
}

/// Arbitrary non-zero addresses, for the verifier.
pub fn any_callbacks() -> wire_file_callbacks {
    wire_file_callbacks {
        iomap_direct: 1,
        iomap_simple: 2,
        device_direct: 3,
        device_direct_async: 4,
        device_direct_simple: 5,
        direct: 6,
        direct_async: 7,
        wait: 8,
        xfs_log: 9,
        buffer: 10,
        journal: 11,
    }
}

/// The gap if kernel symbols have no addresses.
pub fn missing() -> Missing {
    Missing {
        part: Some("file".to_string()),
        reason: Reason::NoSymbols,
        why: "/proc/kallsyms shows no addresses, so direct I/O has no file names".to_string(),
        remedy: Some("run as root, or grant CAP_SYSLOG".to_string()),
        ..Missing::default()
    }
}

/// Names of files that the programs found. They are looked up as soon as a file has its first I/O, since the process
/// may exit or close it.
#[derive(Debug, Default)]
pub struct FileNames {
    root: PathBuf,
    names: BTreeMap<FileId, Name>,
    /// Files whose names were searched everywhere and not found.
    unnamed: BTreeSet<FileId>,
    /// Number of files at the last lookup.
    files: u64,
}

#[derive(Debug)]
struct Name {
    text: String,
    /// Whether the name led to the file when it was found. If it no longer does, the file was removed or replaced.
    leads: bool,
}

impl FileNames {
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf(), ..Self::default() }
    }

    /// Whether there are new files since the last lookup; the caller counts the files.
    pub fn is_behind(&self, files: u64) -> bool {
        files != self.files
    }

    /// Looks up the names of new files in the processes that submitted their first I/Os.
    pub fn look(&mut self, files: u64, openers: &[(WireFile, u32)]) {
        self.files = files;
        let mut by_process: BTreeMap<u32, BTreeSet<FileId>> = BTreeMap::new();
        for (file, pid) in openers {
            if let Some(id) = id(file).filter(|id| self.is_new(id)) {
                by_process.entry(*pid).or_default().insert(id);
            }
        }
        for (pid, wanted) in by_process {
            let found = open_files::of_process(&self.root, pid, &wanted);
            self.keep(found);
        }
    }

    /// Looks up the names of these files everywhere, once per file.
    pub fn look_everywhere(&mut self, files: &[WireFile]) {
        let mut wanted: BTreeSet<FileId> = files.iter().filter_map(id).filter(|id| self.is_new(id)).collect();
        if wanted.is_empty() {
            return;
        }
        let mounts = mounts::mounts(&self.root);
        let of_file_system = |id: &FileId| Some((*id, open_files::of_file_system(&mounts, *id)?));
        self.keep(wanted.iter().filter_map(of_file_system).collect());
        wanted.retain(|id| !self.names.contains_key(id));
        if !wanted.is_empty() {
            self.keep(open_files::of_all(&self.root, &wanted));
        }
        wanted.retain(|id| !self.names.contains_key(id));
        self.unnamed.extend(wanted);
    }

    /// Looks up the names of files that were not looked up before, given the processes that submitted their I/Os.
    /// Returns those that were found.
    pub fn learn(&mut self, openers: impl Iterator<Item = (WireFile, u32)>) -> Vec<(WireFile, String)> {
        let is_new = |(file, _): &(WireFile, u32)| id(file).is_some_and(|id| self.is_new(&id));
        let openers: BTreeMap<WireFile, u32> = openers.filter(is_new).collect();
        if openers.is_empty() {
            return Vec::new();
        }
        let openers: Vec<(WireFile, u32)> = openers.into_iter().collect();
        self.look(0, &openers);
        let files: Vec<WireFile> = openers.iter().map(|(file, _)| *file).collect();
        self.look_everywhere(&files);
        files.into_iter().filter_map(|file| Some((file, self.name(&file)?))).collect()
    }

    fn is_new(&self, id: &FileId) -> bool {
        !self.names.contains_key(id) && !self.unnamed.contains(id)
    }

    /// The current name of a file; None: it is no file, or none was found.
    pub fn name(&self, file: &WireFile) -> Option<String> {
        let id = id(file)?;
        let name = self.names.get(&id)?;
        let gone = name.leads && open_files::has_moved(&self.root, id, &name.text);
        Some(if gone { format!("{}{DELETED}", name.text) } else { name.text.clone() })
    }

    fn keep(&mut self, found: BTreeMap<FileId, String>) {
        for (id, text) in found {
            let leads = open_files::leads_to(&self.root, id, &text);
            self.names.insert(id, Name { text, leads });
        }
    }
}

fn id(file: &WireFile) -> Option<FileId> {
    let (major, minor) = file.major_minor();
    (file.kind == FILE_REGULAR).then_some(FileId { major, minor, inode: file.inode })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::wire::files::FILE_SWAP;

    fn wire(path: &Path) -> WireFile {
        let data = fs::metadata(path).unwrap();
        let device = libc::major(data.dev()) << 20 | libc::minor(data.dev());
        WireFile { inode: data.ino(), device, kind: FILE_REGULAR }
    }

    #[test]
    fn a_name_outlives_the_process_and_the_file() {
        let path = std::env::temp_dir().join(format!("biopsy-file-names-{}", std::process::id()));
        let open = fs::File::create(&path).unwrap();
        let file = wire(&path);
        let mut names = FileNames::new(Path::new("/"));
        assert!(names.is_behind(1) && !names.is_behind(0));
        names.look(1, &[(file, std::process::id()), (WireFile { kind: FILE_SWAP, ..file }, 1)]);
        assert!(!names.is_behind(1));
        drop(open);
        let text = path.to_str().unwrap().to_string();
        assert_eq!(names.name(&file), Some(text.clone()));
        fs::remove_file(&path).unwrap();
        assert_eq!(names.name(&file), Some(format!("{text} (deleted)")));
        assert_eq!(names.name(&WireFile { kind: FILE_SWAP, ..file }), None);
    }

    #[test]
    fn what_is_nowhere_is_looked_for_once() {
        let nowhere = WireFile { inode: 1 << 60, device: 1 << 20, kind: FILE_REGULAR };
        let mut names = FileNames::new(Path::new("/"));
        names.look_everywhere(&[nowhere]);
        assert_eq!((names.name(&nowhere), names.unnamed.len()), (None, 1));
        names.look_everywhere(&[nowhere]);
        assert_eq!(names.unnamed.len(), 1);
    }

    #[test]
    fn callbacks_are_0_where_a_kernel_has_none() {
        let symbols = Kallsyms::parse(
            "ffffffff81000000 t iomap_dio_bio_end_io\nffffffff81000100 t blkdev_bio_end_io_async",
        );
        let known = callbacks(&symbols);
        assert_eq!(
            (known.iomap_direct, known.device_direct_async),
            (0xffff_ffff_8100_0000, 0xffff_ffff_8100_0100)
        );
        assert_eq!((known.device_direct, known.wait), (0, 0));
    }
}
