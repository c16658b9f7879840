//! Implements the helper process that reads the ELF files and DWARF of other programs; see [`super::child`] for the
//! reason.

use std::fs;
use std::io::{self, BufWriter, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::child::{GREETING, Request, encode};
use super::elf::ElfReader;

/// Serves one request: reads it from the socket on stdout, and writes the answers for the file on stdin back to the
/// socket.
///
/// # Errors
/// When stdout is not a socket, or the parent uses another protocol.
pub(super) fn serve() -> io::Result<()> {
    let socket = UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?);
    if socket.peer_addr().is_err() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "this verb is for biopsy itself"));
    }
    let request = Request::read(&socket)?;
    confine(&request)?;
    let mut out = BufWriter::with_capacity(32 << 10, socket);
    out.write_all(&GREETING)?;
    out.flush()?;
    let reader = ElfReader::new(Path::new("/proc/self/fd/0"), request.debug);
    let mut flushed = Instant::now();
    let mut record = Vec::new();
    for address in request.addresses {
        record.clear();
        encode(&reader.names(address), &mut record);
        out.write_all(&record)?;
        if flushed.elapsed() > Duration::from_millis(100) {
            out.flush()?;
            flushed = Instant::now();
        }
    }
    out.flush()
}

/// Sets the limits of this process, and makes it exit with its parent.
fn confine(request: &Request) -> io::Result<()> {
    let limit = |which, bytes: u64| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: reads one rlimit that lives across the call. A limit that cannot be set is merely absent.
        unsafe { libc::setrlimit(which, &raw const limit) };
    };
    limit(libc::RLIMIT_DATA, own_data().saturating_add(request.bytes));
    limit(libc::RLIMIT_CORE, 0);
    limit(libc::RLIMIT_CPU, request.seconds);
    // SAFETY: plain numbers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    }
    // The parent may have exited before the signal was requested.
    if std::os::unix::process::parent_id() != request.parent {
        return Err(ErrorKind::NotConnected.into());
    }
    Ok(())
}

/// Bytes of private memory that this process has already.
fn own_data() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}
