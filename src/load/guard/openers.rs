//! Finds the processes that have a device or file open: descriptors and mappings of every process.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::device_graph::{DeviceGraph, DeviceNumber};
use crate::refusal::reason;

/// A process that uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opener {
    pub pid: u32,
    /// Its name, escaped.
    pub comm: String,
    /// Name of the device or file.
    pub what: String,
    pub mapped: bool,
}

/// A process that cannot be inspected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    pub pid: u32,
    pub comm: String,
    pub why: String,
}

/// The result of scanning all processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanResult {
    pub opener: Option<Opener>,
    pub unread: Option<Unread>,
}

/// Scans every process below `root`/proc until one has a device of `kin` open. `own` are this process's descriptors
/// that do not count.
///
/// Processes that begin meanwhile are scanned too: a process that is about to exit can pass a descriptor on.
pub fn scan(root: &Path, kin: &DeviceGraph, own: &[RawFd]) -> io::Result<ScanResult> {
    let proc = root.join("proc");
    let this = fs::canonicalize(proc.join("self")).ok();
    let this: Option<u32> = this.and_then(|path| path.file_name()?.to_str()?.parse().ok());
    let mut seen = ScanResult::default();
    let mut known = BTreeSet::new();
    // A limit for a machine that keeps starting processes.
    for _ in 0..64 {
        let new: Vec<u32> = processes(&proc)?.into_iter().filter(|pid| known.insert(*pid)).collect();
        if new.is_empty() {
            break;
        }
        for pid in new {
            let mut process = ProcessScan {
                directory: proc.join(pid.to_string()),
                kin,
                own: if this == Some(pid) { own } else { &[] },
                found: None,
            };
            let looked = process.look(pid, this);
            if let Some((what, mapped)) = process.found.take() {
                let comm = comm(&process.directory);
                seen.opener = Some(Opener { pid, comm, what, mapped });
                return Ok(seen);
            }
            if let Err(error) = looked
                && !gone(&error)
                && seen.unread.is_none()
            {
                let comm = comm(&process.directory);
                seen.unread = Some(Unread { pid, comm, why: reason(&error) });
            }
        }
    }
    Ok(seen)
}

/// The ids of all processes.
pub fn processes(proc: &Path) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(proc)? {
        found.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

/// The name of a process: any bytes, so escaped.
pub fn comm(process: &Path) -> String {
    let bytes = fs::read(process.join("comm")).unwrap_or_default();
    let name: String = String::from_utf8_lossy(&bytes).trim_end_matches('\n').chars().take(64).collect();
    name.escape_debug().to_string()
}

/// Whether the process, thread, descriptor or mapping ended during the scan.
pub fn gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

struct ProcessScan<'a> {
    directory: std::path::PathBuf,
    kin: &'a DeviceGraph,
    own: &'a [RawFd],
    /// The device found, and whether it is a mapping.
    found: Option<(String, bool)>,
}

impl ProcessScan<'_> {
    fn look(&mut self, pid: u32, this: Option<u32>) -> io::Result<()> {
        self.descriptors("fd")?;
        // Threads can have descriptor tables of their own.
        let comparable = this == Some(std::process::id());
        for thread in numbers(&self.directory.join("task"))? {
            if self.found.is_none() && !(thread == pid || comparable && same_table(pid, thread)) {
                present(self.descriptors(&format!("task/{thread}/fd")))?;
            }
        }
        if self.found.is_none() {
            self.mappings()?;
        }
        Ok(())
    }

    fn descriptors(&mut self, table: &str) -> io::Result<()> {
        let folder = self.directory.join(table);
        for fd in numbers(&folder)? {
            if self.own.iter().any(|own| u32::try_from(*own) == Ok(fd)) {
                continue;
            }
            let path = folder.join(fd.to_string());
            let Some(data) = present(stat(&path))? else { continue };
            if let Some(what) = self.kin.named(&data) {
                self.found = Some((what, false));
                return Ok(());
            }
            // Kernels differ in the file type that they report for a ring.
            let nameless = data.mode & libc::S_IFMT == 0 || libc::major(data.identity.0) == 0;
            if nameless && fs::read_link(&path).is_ok_and(|link| link.as_os_str() == "anon_inode:[io_uring]")
            {
                present(self.registered(&folder, fd))?;
                if self.found.is_some() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Finds registered files, which a ring holds without a descriptor: the kernel prints only their paths.
    fn registered(&mut self, folder: &Path, fd: u32) -> io::Result<()> {
        const LOOKS: u32 = 50;
        let info = folder.with_file_name("fdinfo").join(fd.to_string());
        let mut text = String::new();
        // While the ring is busy, the kernel does not print them.
        for _ in 0..LOOKS {
            text = String::from_utf8_lossy(&fs::read(&info)?).into_owned();
            if text.contains("UserFiles:") {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        if !text.contains("UserFiles:") {
            return Err(io::Error::other("its io_uring is too busy to show its files"));
        }
        for path in registered_files(&text) {
            let base = path.rsplit('/').next().unwrap_or_default();
            let below = path.strip_prefix('/').map(|path| self.directory.join("root").join(path));
            let found = match below.map_or(Ok(None), |below| present(stat(&below))) {
                Ok(Some(data)) => self.kin.named(&data),
                // The path is removed or hidden by now, or printed without its directories, as before 5.18.
                _ => self.kin.has_name(base).then(|| base.to_string()),
            };
            if let Some(what) = found {
                self.found = Some((what, false));
                break;
            }
        }
        Ok(())
    }

    fn mappings(&mut self) -> io::Result<()> {
        // Only paths can have text that is not UTF-8.
        let Some(maps) = present(fs::read(self.directory.join("maps")))? else { return Ok(()) };
        let mut before = None;
        for line in String::from_utf8_lossy(&maps).lines() {
            let Some(mapping) = mapping(line) else { continue };
            // The mappings of one file are consecutive.
            if before.replace(mapping.file) == Some(mapping.file) {
                continue;
            }
            let path = self.directory.join(format!("map_files/{:x}-{:x}", mapping.begin, mapping.end));
            let Some(data) = present(stat(&path))? else { continue };
            if let Some(what) = self.kin.named(&data) {
                self.found = Some((what, true));
                return Ok(());
            }
        }
        Ok(())
    }
}

/// A line of `maps` for a file.
#[derive(Debug, PartialEq, Eq)]
struct MapsLine<'a> {
    begin: u64,
    end: u64,
    /// Device, inode and path.
    file: &'a str,
}

/// `7f1-7f2 r--p 00000000 fe:00 1234   /usr/lib/x.so`.
fn mapping(line: &str) -> Option<MapsLine<'_>> {
    let mut words = line.splitn(4, ' ');
    let (begin, end) = words.next()?.split_once('-')?;
    let file = words.nth(2)?;
    let inode = file.split(' ').nth(1)?;
    if inode == "0" {
        return None;
    }
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(MapsLine { begin: number(begin)?, end: number(end)?, file })
}

/// The list under `UserFiles:` of an io_uring's fdinfo: `    0: /dev/sda`.
fn registered_files(fdinfo: &str) -> impl Iterator<Item = &str> {
    let list = fdinfo.lines().skip_while(|line| !line.starts_with("UserFiles:")).skip(1);
    list.map_while(|line| {
        let (number, path) = line.split_once(": ")?;
        number.trim().parse::<u32>().ok()?;
        Some(path.trim())
    })
}

impl DeviceGraph {
    /// The name of the device or file that a descriptor refers to.
    fn named(&self, data: &StatxFields) -> Option<String> {
        match data.mode & libc::S_IFMT {
            libc::S_IFBLK => self.blocks.get(&data.number).cloned(),
            libc::S_IFCHR => self.chars.get(&data.number).cloned(),
            libc::S_IFREG => self.files.get(&data.identity).cloned(),
            _ => None,
        }
    }
}

/// The fields of statx that are compared.
struct StatxFields {
    mode: u32,
    number: DeviceNumber,
    identity: (u64, u64),
}

/// Does not ask a file server, which might not answer.
fn stat(path: &Path) -> io::Result<StatxFields> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut data = MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
    let mask = libc::STATX_TYPE | libc::STATX_INO;
    // SAFETY: the path is a C string, and the call writes one statx; zeroed is a valid one.
    let data = unsafe {
        if libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, mask, data.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        data.assume_init()
    };
    Ok(StatxFields {
        mode: u32::from(data.stx_mode),
        number: (data.stx_rdev_major, data.stx_rdev_minor),
        identity: (libc::makedev(data.stx_dev_major, data.stx_dev_minor), data.stx_ino),
    })
}

/// None for what ended meanwhile.
pub fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The numeric names in a directory of procfs.
pub fn numbers(directory: &Path) -> io::Result<Vec<u32>> {
    let Some(entries) = present(fs::read_dir(directory))? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let Some(entry) = present(entry)? else { break };
        found.extend(entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(found)
}

/// Whether two tasks share their descriptor table, as nearly all threads do. False where that is not known.
fn same_table(a: u32, b: u32) -> bool {
    /// `enum kcmp_type` of linux/kcmp.h.
    const KCMP_FILES: libc::c_long = 2;
    // SAFETY: the call takes numbers only.
    unsafe { libc::syscall(libc::SYS_kcmp, a as libc::c_long, b as libc::c_long, KCMP_FILES, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_read_and_hostile_ones_are_not() {
        let line = "7f00-8000 r--s 00000000 00:06 1234                       /dev/loop0 (deleted)";
        let found = mapping(line).unwrap();
        assert_eq!((found.begin, found.end), (0x7f00, 0x8000));
        assert!(found.file.starts_with("00:06 1234"));
        for none in
            ["", "a", "7f00-8000 rw-p 00000000 00:00 0", "7f00 r--p 0 00:06 1 /x", "x-y r--p 0 00:06 1 /x"]
        {
            assert_eq!(mapping(none), None, "{none:?}");
        }
    }

    #[test]
    fn files_of_a_ring_are_read_from_its_list() {
        let info = "pos:\t0\nflags:\t02\nUserFiles:\t3\n    0: /dev/loop0\n    2: /tmp/a\\040b\nUserBufs:\t1\n    0: 0x1/4096\n";
        assert_eq!(registered_files(info).collect::<Vec<_>>(), ["/dev/loop0", "/tmp/a\\040b"]);
        assert_eq!(registered_files("pos:\t0\n").count(), 0);
    }
}
