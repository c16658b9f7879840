//! Claims a device: makes sure that nothing else uses it, and that nothing can begin to use it.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::device_graph::{self, Above, DeviceGraph, DeviceNumber, unpacked};
use super::mounted;
use super::openers;
use crate::refusal::{Refusal, reason};

/// How often to retry while a process has the device open only briefly (udev, after a write).
const LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// The machine that the guard checks, and a hook for tests.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    /// Parent of `proc`, `sys` and `dev`: `/` except in tests.
    pub root: &'a Path,
    /// Called between the checks and the opening: tests change there what a name refers to.
    pub meanwhile: &'a dyn Fn(),
}

impl Machine<'static> {
    /// This machine.
    pub fn here() -> Self {
        Self { root: Path::new("/"), meanwhile: &|| {} }
    }
}

/// Serialises the checks: one check must not see what another opens briefly.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file that a path referred to when it was checked, held with O_PATH, without being opened.
#[derive(Debug)]
pub struct CheckedFile {
    /// Path without symbolic links.
    pub path: PathBuf,
    pub data: Metadata,
    held: File,
}

impl CheckedFile {
    pub fn of(path: &Path) -> io::Result<Self> {
        let resolved = fs::canonicalize(path)?;
        let flags = libc::O_PATH | libc::O_NOFOLLOW;
        let held = OpenOptions::new().read(true).custom_flags(flags).open(&resolved)?;
        let data = held.metadata()?;
        Ok(Self { path: resolved, data, held })
    }

    /// Opens this same file, whatever its name refers to by now.
    pub fn open(&self, write: bool, flags: libc::c_int) -> io::Result<File> {
        let itself = format!("/proc/self/fd/{}", self.held.as_raw_fd());
        // O_NONBLOCK: does not wait for a tape or a FIFO.
        let flags = flags | libc::O_NONBLOCK | libc::O_NOCTTY;
        OpenOptions::new().read(true).write(write).custom_flags(flags).open(itself)
    }

    /// The magic number of its file system; 0 where unavailable.
    pub fn file_system(&self) -> i64 {
        // SAFETY: zeroed is a valid statfs, and the call only writes to it.
        unsafe {
            let mut fs: libc::statfs = std::mem::zeroed();
            if libc::fstatfs(self.held.as_raw_fd(), &mut fs) == 0 { fs.f_type as i64 } else { 0 }
        }
    }

    pub fn fd(&self) -> RawFd {
        self.held.as_raw_fd()
    }

    /// Refuses if the opened file or the name is not the one that was checked.
    pub fn unchanged(&self, path: &Path, opened: &File) -> Result<(), Refusal> {
        let opened = opened.metadata().ok();
        let named = fs::metadata(path).ok();
        if [opened, named].iter().all(|now| now.as_ref().is_some_and(|now| same(now, &self.data))) {
            return Ok(());
        }
        Err(Refusal::Refused(format!(
            "{} became something else between check and open: nothing was written; name a path that does \
             not change, such as the device node itself",
            path.display()
        )))
    }
}

fn same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino(), a.rdev(), a.file_type()) == (b.dev(), b.ino(), b.rdev(), b.file_type())
}

/// A refusal because the device is in use, in one sentence.
pub fn kept(path: &Path, fact: &str, remedy: &str) -> Refusal {
    Refusal::Refused(format!("{} must not be written while {fact}: {remedy}", path.display()))
}

/// Claims a block device for this run, with its sibling partitions: (the device, the others).
///
/// `number` is the block device's, `open` opens what is to be written, `path` is what the user named, `own` are
/// descriptors that do not count. The exclusive open comes between two checks of all processes. From then on nothing
/// can mount, map or swap to it, and the second check finds a process that opened it in between.
pub fn claim(
    machine: Machine<'_>,
    path: &Path,
    number: DeviceNumber,
    own: &[RawFd],
    open: &dyn Fn() -> io::Result<File>,
) -> Result<(File, Vec<File>), Refusal> {
    let kin = DeviceGraph::of_device(machine.root, number)?;
    not_the_root(machine.root, path, &kin)?;
    patiently(|| unused(machine.root, path, &kin, own))?;
    (machine.meanwhile)();
    let file =
        patiently(|| open().map_err(|error| unclaimed(machine.root, path, &kin, own, &kin.name, &error)))?;
    let mut claims = Vec::new();
    let mut own: Vec<RawFd> = own.iter().copied().chain([file.as_raw_fd()]).collect();
    for (number, name) in &kin.claims {
        let beside = || {
            let node = device_graph::node(machine.root, name, *number).ok_or_else(|| {
                kept(
                    path,
                    &format!("its neighbour {name} has no node in /dev"),
                    "make it (mknod) or start udev",
                )
            })?;
            let flags = libc::O_EXCL | libc::O_NONBLOCK;
            let opened = OpenOptions::new().read(true).custom_flags(flags).open(node);
            opened.map_err(|error| unclaimed(machine.root, path, &kin, &own, name, &error))
        };
        let claimed = patiently(beside)?;
        own.push(claimed.as_raw_fd());
        claims.push(claimed);
    }
    // Layers and names can have changed since: check everything again.
    let now = DeviceGraph::of_device(machine.root, number)?;
    if (&now.name, now.sequence) != (&kin.name, kin.sequence) {
        return Err(Refusal::Refused(format!(
            "{} became another device between check and open: nothing was written; try again when no \
             device is added or removed",
            path.display()
        )));
    }
    if now.claims != kin.claims {
        let fact = "partitions or paths of it come and go";
        return Err(kept(path, fact, "try again when it is not being partitioned"));
    }
    not_the_root(machine.root, path, &now)?;
    patiently(|| unused(machine.root, path, &now, &own))?;
    Ok((file, claims))
}

/// Retries while something is in the way that may be gone in a moment.
pub fn patiently<T>(attempt: impl Fn() -> Result<T, Refusal>) -> Result<T, Refusal> {
    let mut looks = 1;
    loop {
        match attempt() {
            Err(Refusal::Refused(_)) if looks < LOOKS => {}
            outcome => return outcome,
        }
        looks += 1;
        thread::sleep(BETWEEN_LOOKS);
    }
}

/// Refuses the disk of the root file system, its partitions, and every device stacked on it.
fn not_the_root(root: &Path, path: &Path, kin: &DeviceGraph) -> Result<(), Refusal> {
    let ground = mounted::ground(root);
    if let Some(disk) = kin.disks.intersection(&ground.disks).next() {
        let relation = if *disk == kin.name { "it is" } else { "it is a part of" };
        let fact = format!("{relation} {}, the disk of the root file system", disk.escape_debug());
        return Err(kept(path, &fact, "choose another device, or a file (--overwrite) on this one"));
    }
    match ground.unknown {
        // A file system claims its own devices, so only devices below those can escape the claim.
        Some(kind) if !kin.below.is_empty() => Err(kept(
            path,
            &format!("the disk of the root file system ({kind}) is unknown, and this device could be it"),
            "choose a device that is not layered on another",
        )),
        _ => Ok(()),
    }
}

/// Refuses a device or file in use: by layers, mounts, swap or processes.
pub fn unused(root: &Path, path: &Path, kin: &DeviceGraph, own: &[RawFd]) -> Result<(), Refusal> {
    nothing_above(path, kin)?;
    let unreadable = |what: &str, error: &io::Error| {
        let fact = format!("{what} cannot be read ({}), so its users are unknown", reason(error));
        kept(path, &fact, "run as root with procfs mounted (mount -t proc proc /proc)")
    };
    match mounted::swapped(root, kin) {
        Ok(None) => {}
        Ok(Some((what, area))) => {
            let fact = format!("{} is used as swap", what.escape_debug());
            return Err(kept(path, &fact, &format!("run swapoff {area}, or choose another one")));
        }
        Err(error) => return Err(unreadable("/proc/swaps", &error)),
    }
    let unread = |unread: openers::Unread| {
        kept(
            path,
            &format!("process {} ({}) cannot be examined: {}", unread.pid, unread.comm, unread.why),
            "run as root (CAP_SYS_PTRACE and CAP_SYS_ADMIN), outside of a container",
        )
    };
    let mounted = mounted::mounted(root, kin).map_err(|error| unreadable("/proc", &error))?;
    if let Ok(Some(mounted)) = &mounted {
        let at = match &mounted.seen_by {
            None => String::new(),
            Some((pid, comm)) => format!(" in the mount namespace of process {pid} ({comm})"),
        };
        let fact = format!("{} is mounted on {}{at}", mounted.what.escape_debug(), mounted.point);
        return Err(kept(path, &fact, "unmount it there, or choose another device"));
    }
    if let Some(why) = mounted::hidden(root) {
        let fact = format!("processes can be hidden ({why})");
        return Err(kept(
            path,
            &fact,
            "run as root outside of a container, with /proc mounted without hidepid",
        ));
    }
    let seen = openers::scan(root, kin, own).map_err(|error| unreadable("/proc", &error))?;
    if let Some(opener) = seen.opener {
        return Err(opened(path, &opener));
    }
    match mounted.err().or(seen.unread) {
        Some(process) => Err(unread(process)),
        None => Ok(()),
    }
}

/// Refuses a device under another device or an export.
pub fn nothing_above(path: &Path, kin: &DeviceGraph) -> Result<(), Refusal> {
    let Some(Above { upper, lower }) = kin.above.first() else { return Ok(()) };
    let (upper, lower) = (upper.escape_debug(), lower.escape_debug());
    let remedy = match upper.to_string().as_str() {
        name if name.starts_with("loop") => format!("detach it (losetup -d /dev/{upper})"),
        name if name.starts_with("dm-") => format!("remove it (dmsetup remove /dev/{upper}, vgchange -an)"),
        name if name.starts_with("md") => format!("stop it (mdadm --stop /dev/{upper})"),
        _ => "remove it".to_string(),
    };
    Err(kept(path, &format!("{upper} is layered on {lower}"), &format!("{remedy}, or choose another one")))
}

/// The sentence for a process that has it open.
pub fn opened(path: &Path, opener: &openers::Opener) -> Refusal {
    let (pid, comm, what) = (opener.pid, &opener.comm, opener.what.escape_debug());
    let how = if opener.mapped { "mapped" } else { "open" };
    if pid == std::process::id() {
        let remedy = "use one job for it, or let the jobs share it";
        return kept(path, &format!("this run itself ({comm}, process {pid}) has {what} {how}"), remedy);
    }
    kept(path, &format!("process {pid} ({comm}) has {what} {how}"), "end it, or choose another one")
}

/// The sentence for a device that could not be opened exclusively.
fn unclaimed(
    root: &Path,
    path: &Path,
    kin: &DeviceGraph,
    own: &[RawFd],
    name: &str,
    error: &io::Error,
) -> Refusal {
    let shown = path.display();
    match error.raw_os_error() {
        Some(libc::EBUSY) => {
            // Names whatever began to use it in the last moment.
            if let Err(refusal) = unused(root, path, kin, own) {
                return refusal;
            }
            let holder = btrfs(root, name).unwrap_or_else(|| {
                "the kernel or another program (a file system unmounted lazily or in a hidden namespace, a member \
                 of RAID, LVM or ZFS, an exclusive opening)"
                    .to_string()
            });
            kept(path, &format!("{} is in use by {holder}", name.escape_debug()), "release it there first")
        }
        Some(libc::EROFS) => read_only(path),
        Some(libc::EACCES | libc::EPERM) => Refusal::Refused(format!(
            "no permission to write {shown}: run as root, or see that it is not read-only (blockdev --setrw)"
        )),
        Some(libc::ENXIO | libc::ENODEV | libc::ENOMEDIUM) => {
            Refusal::Refused(format!("no device behind {shown} ({}): plug it in", reason(error)))
        }
        _ => Refusal::Refused(format!("cannot open {shown} to write it: {}", reason(error))),
    }
}

/// The sentence for a read-only device.
pub fn read_only(path: &Path) -> Refusal {
    Refusal::Refused(format!(
        "{} is read-only: choose another one, or make it writable (blockdev --setrw) if nothing relies on that",
        path.display()
    ))
}

/// The btrfs that a device belongs to: the mount table lists only one of several members.
fn btrfs(root: &Path, name: &str) -> Option<String> {
    let systems = fs::read_dir(root.join("sys/fs/btrfs")).ok()?;
    systems.flatten().find(|system| system.path().join("devices").join(name).exists()).map(|system| {
        format!("the btrfs file system {}", system.file_name().to_string_lossy().escape_debug())
    })
}

/// Whether the block device is read-only.
pub fn is_read_only(file: &File) -> io::Result<bool> {
    const BLKROGET: libc::Ioctl = 0x125e;
    let mut flag: libc::c_int = 0;
    // SAFETY: BLKROGET writes one int to the address.
    match unsafe { libc::ioctl(file.as_raw_fd(), BLKROGET, &mut flag) } {
        0 => Ok(flag != 0),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The device number of a node, if it is a block device.
pub fn block_number(data: &Metadata) -> Option<DeviceNumber> {
    data.file_type().is_block_device().then(|| unpacked(data.rdev()))
}
