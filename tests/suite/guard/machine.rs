//! Makes devices, folders and processes for tests, and a view of this machine for the guard.

use crate::support::skip::skipped;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub const MIB: u64 = 1 << 20;

/// Lets only one test run at a time: the descriptors of one would count in another.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn is_root() -> bool {
    // SAFETY: the call takes and changes nothing.
    unsafe { libc::geteuid() == 0 }
}

/// A folder of the test in memory, which is removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = Self::path(std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(process: u32, number: u32) -> PathBuf {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        parent.join(format!("biopsy-guard-{process}-{number}"))
    }

    /// The first folder that a process made.
    pub fn first_of(process: u32) -> PathBuf {
        Self::path(process, 0)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.join(name);
        File::create(&path).and_then(|file| file.set_len(bytes)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _kept = fs::remove_dir_all(&self.0);
    }
}

/// A loop device over a file or a device of the test.
pub struct Disk {
    pub name: String,
    pub path: PathBuf,
    _folder: Option<Folder>,
}

impl Disk {
    /// None: no loop device can be made here, and the test is skipped.
    pub fn new() -> Option<Self> {
        Self::partitioned(&[])
    }

    /// A loop device with partitions of (first MiB, MiB).
    pub fn partitioned(partitions: &[(i64, i64)]) -> Option<Self> {
        if !is_root() {
            skipped("a loop device needs root");
            return None;
        }
        let folder = Folder::new();
        let file = folder.file("disk", 32 * MIB);
        match Self::over(&file) {
            Ok(mut disk) => {
                disk._folder = Some(folder);
                for (number, (first, length)) in (1..).zip(partitions) {
                    disk.add(number, *first, *length);
                }
                Some(disk)
            }
            Err(error) => {
                skipped(format_args!("no loop device can be made here: {error}"));
                None
            }
        }
    }

    pub fn over(backing: &Path) -> std::io::Result<Self> {
        const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
        const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
        const LO_FLAGS_PARTSCAN: u32 = 8;
        let backing = OpenOptions::new().read(true).write(true).open(backing)?;
        for _ in 0..20 {
            let control = File::open("/dev/loop-control")?;
            // SAFETY: the call takes and changes no memory.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(std::io::Error::last_os_error());
            }
            let name = format!("loop{number}");
            let path = Path::new("/dev").join(&name);
            let device = OpenOptions::new().read(true).write(true).open(&path)?;
            // `struct loop_config`: descriptor, block size, then loop_info64, whose flags are its word 13.
            let mut config = [0u32; 76];
            config[0] = backing.as_raw_fd() as u32;
            config[2 + 13] = LO_FLAGS_PARTSCAN;
            // SAFETY: the call reads one loop_config, 304 bytes, from the address.
            if unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, config.as_ptr()) } == 0 {
                return Ok(Self { name, path, _folder: None });
            }
            let error = std::io::Error::last_os_error();
            // Another process took the device first.
            if error.raw_os_error() != Some(libc::EBUSY) {
                return Err(error);
            }
        }
        Err(std::io::Error::other("all are taken"))
    }

    /// Adds a partition by ioctl, since not every kernel can read a partition table.
    pub fn add(&self, number: i32, first: i64, length: i64) {
        #[repr(C)]
        struct Partition {
            start: i64,
            length: i64,
            number: i32,
            names: [u8; 128],
        }
        #[repr(C)]
        struct Argument {
            operation: i32,
            flags: i32,
            bytes: i32,
            data: *mut Partition,
        }
        const BLKPG: libc::Ioctl = 0x1269;
        const ADD: i32 = 1;
        let mib = MIB as i64;
        let mut partition = Partition { start: first * mib, length: length * mib, number, names: [0; 128] };
        let bytes = size_of::<Partition>() as i32;
        let argument = Argument { operation: ADD, flags: 0, bytes, data: &raw mut partition };
        let device = OpenOptions::new().read(true).write(true).open(&self.path).unwrap();
        // SAFETY: the call reads both structs, which outlive it.
        let done = unsafe { libc::ioctl(device.as_raw_fd(), BLKPG, &raw const argument) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    pub fn part(&self, number: u32) -> PathBuf {
        PathBuf::from(format!("{}p{number}", self.path.display()))
    }

    pub fn number(&self) -> u64 {
        fs::metadata(&self.path).unwrap().rdev()
    }
}

impl Disk {
    /// Detaches the file, as `losetup -d` does.
    pub fn detach(&self) {
        const LOOP_CLR_FD: libc::Ioctl = 0x4C01;
        if let Ok(device) = File::open(&self.path) {
            // SAFETY: the call takes and changes no memory.
            unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD) };
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.detach();
    }
}

/// The view of this machine for the guard: the machine itself, if every process can be inspected. Some machines have a
/// process that even root cannot inspect: then the view has all others, and one test checks that the real machine is
/// refused.
pub struct View {
    pub root: PathBuf,
    _folder: Option<Folder>,
}

impl View {
    pub fn new() -> Self {
        let pids = || {
            let all = fs::read_dir("/proc").unwrap().flatten();
            all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        };
        let unread = |pid: &u32| {
            fs::read_link(format!("/proc/{pid}/ns/mnt"))
                .is_err_and(|error| matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)))
        };
        if !pids().any(|pid| unread(&pid)) {
            return Self { root: "/".into(), _folder: None };
        }
        let folder = Folder::new();
        let proc = folder.join("proc");
        fs::create_dir(&proc).unwrap();
        for name in ["sys", "dev"] {
            symlink(Path::new("/").join(name), folder.join(name)).unwrap();
        }
        for pid in pids().filter(|pid| !unread(pid)) {
            symlink(format!("/proc/{pid}"), proc.join(pid.to_string())).unwrap();
        }
        for name in ["self", "swaps"] {
            symlink(Path::new("/proc").join(name), proc.join(name)).unwrap();
        }
        Self { root: folder.0.clone(), _folder: Some(folder) }
    }
}
