//! Makes the scratch file: creates it without a name, fills it and syncs it. No file can stay behind.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::buffers::Buffers;
use super::direct::{self, Facts, Obstacle};
use super::random::scribble;
use super::{Fill, guard};
use crate::clock;
use crate::refusal::{Refusal, reason};

/// Size without `--size`: large enough that a drive's cache cannot hold it.
const DEFAULT_BYTES: u64 = 1 << 30;
/// Free space to leave: a full file system harms its other users.
const RESERVE_BYTES: u64 = 1 << 30;
/// The file's length is a multiple of this: a whole number of logical blocks of any common disk.
const UNIT: u64 = 4096;
/// Size of a write: several device requests, so that the device has some queue depth.
const WRITE_BYTES: usize = 4 << 20;
/// Each part of this size begins a new random sequence, so no two parts are alike.
const PIECE_BYTES: usize = 1 << 20;

/// The default size of a scratch file in `directory`: 1 GiB, but at most an eighth of the free space.
pub fn default_bytes(directory: &Path) -> Result<u64, Refusal> {
    check_directory(directory)?;
    let eighth = free_bytes(directory)? / 8;
    Ok(DEFAULT_BYTES.min(eighth - eighth % PIECE_BYTES as u64).max(PIECE_BYTES as u64))
}

/// Creates an empty unnamed file in `directory`, after a check of the free space.
pub fn create(directory: &Path, bytes: u64) -> Result<(File, Facts), Refusal> {
    check_directory(directory)?;
    let name = directory.display();
    let file = nameless(directory).map_err(|e| cannot_create(directory, &e))?;
    let facts = direct::facts(&file, Path::new("/")).map_err(|o| guard::refused(directory, o))?;
    let (need, free) = (bytes.saturating_add(RESERVE_BYTES), free_bytes(directory)?);
    if free < need {
        return Err(Refusal::Refused(format!(
            "too little space in {name}: a scratch file of {bytes} bytes needs {need} free (1 GiB stays free \
             for others) and {free} are available; choose a smaller --size or another directory"
        )));
    }
    Ok((file, facts))
}

/// Writes incompressible bytes and syncs them. The file system would answer reads of allocated but unwritten blocks
/// without any device I/O, and some drives would answer reads of compressible data.
pub fn fill(
    file: &File,
    directory: &Path,
    bytes: u64,
    facts: &Facts,
    stop: &AtomicBool,
    progress: &dyn Fn(u64, u64),
) -> Result<Fill, Refusal> {
    let begin = clock::now_ns();
    let failed = |e: io::Error| cannot_fill(directory, &e);
    let length = bytes.next_multiple_of(UNIT.max(facts.block));
    // Allocates few extents; fails here if there is too little space.
    guard::allocate(file, length).map_err(failed)?;
    let mut buffer = Buffers::new(WRITE_BYTES).map_err(failed)?;
    let mut done = 0;
    while done < length {
        if stop.load(Ordering::Relaxed) {
            return Err(Refusal::Refused(
                "stopped while the file was being filled: nothing was measured".to_string(),
            ));
        }
        let chunk = (length - done).min(WRITE_BYTES as u64) as usize;
        let data = &mut buffer.as_mut_slice()[..chunk];
        for (i, piece) in data.chunks_mut(PIECE_BYTES).enumerate() {
            scribble(piece, &mut (begin ^ (done + (i * PIECE_BYTES) as u64)));
        }
        file.write_all_at(data, done).map_err(|e| match e.raw_os_error() {
            Some(libc::EINVAL) => guard::refused(directory, Obstacle::Unsupported),
            _ => failed(e),
        })?;
        done += chunk as u64;
        progress(done, length);
    }
    file.sync_data().map_err(failed)?;
    direct::try_read(file, facts.block).map_err(|o| guard::refused(directory, o))?;
    Ok(Fill { bytes: length, duration_ns: clock::now_ns() - begin })
}

fn check_directory(directory: &Path) -> Result<(), Refusal> {
    let metadata = fs::metadata(directory).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            Refusal::Refused(format!("{} does not exist: name a directory on a disk", directory.display()))
        }
        _ => guard::cannot_open(directory, &e),
    })?;
    if metadata.is_dir() {
        return Ok(());
    }
    Err(Refusal::Usage(format!(
        "{} is not a directory: --scratch needs one; leave --scratch out to read the file or device itself",
        directory.display()
    )))
}

/// Creates a file that never has a name (O_TMPFILE); where the file system does not support that, it is unlinked at
/// once.
fn nameless(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    // O_EXCL: the file can never be linked to a name either.
    let made = options.custom_flags(libc::O_TMPFILE | libc::O_EXCL | libc::O_DIRECT).open(directory);
    match made {
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)) => {}
        made => return made,
    }
    let path = directory.join(format!(".biopsy-{}-{:x}", std::process::id(), clock::now_ns()));
    let file = options.create_new(true).custom_flags(libc::O_DIRECT | libc::O_NOFOLLOW).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// Free bytes for this user.
fn free_bytes(directory: &Path) -> Result<u64, Refusal> {
    let path = std::ffi::CString::new(directory.as_os_str().as_bytes())
        .map_err(|e| guard::cannot_open(directory, &e.into()))?;
    let mut fs = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path is a C string, and the call fills the struct before it returns 0.
    let fs = unsafe {
        if libc::statvfs(path.as_ptr(), fs.as_mut_ptr()) != 0 {
            return Err(guard::cannot_open(directory, &io::Error::last_os_error()));
        }
        fs.assume_init()
    };
    Ok(fs.f_bavail.saturating_mul(fs.f_frsize))
}

fn cannot_create(directory: &Path, error: &io::Error) -> Refusal {
    let name = directory.display();
    Refusal::Refused(match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            format!(
                "no permission to make a scratch file in {name}: choose a directory that you can write to"
            )
        }
        Some(libc::EROFS) => format!("{name} is read-only: choose a directory that can be written"),
        Some(libc::EINVAL) => return guard::refused(directory, Obstacle::Unsupported),
        _ => format!("cannot make a scratch file in {name}: {}; choose another directory", reason(error)),
    })
}

fn cannot_fill(directory: &Path, error: &io::Error) -> Refusal {
    Refusal::Refused(format!(
        "cannot fill the scratch file in {}: {}; choose a smaller --size or another directory",
        directory.display(),
        reason(error)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_differ_and_do_not_compress() {
        let (mut a, mut b) = (vec![0; 4096], vec![0; 4096]);
        scribble(&mut a, &mut 1);
        scribble(&mut b, &mut (1 << 20));
        assert_ne!(a, b);
        let mut counts = [0u32; 256];
        a.iter().chain(&b).for_each(|byte| counts[usize::from(*byte)] += 1);
        // 32 of each byte expected, standard deviation 5.7.
        assert!(counts.iter().all(|n| (4..80).contains(n)), "{counts:?}");
    }

    #[test]
    fn a_file_in_place_of_a_directory_is_a_usage_error() {
        let exe = std::env::current_exe().unwrap();
        assert!(matches!(default_bytes(&exe), Err(Refusal::Usage(_))));
        assert!(matches!(default_bytes(Path::new("/nonexistent")), Err(Refusal::Refused(_))));
    }
}
