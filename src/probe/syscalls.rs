//! Lists the system calls that carry operations.

use crate::wire::{CALL_AIO, CALL_AIO_FETCH, CALL_COMMAND, CALL_RING, CALL_WAITS};

/// System calls that are an operation themselves if they do I/O: they return with the result.
const WAIT: [libc::c_long; 20] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    libc::SYS_splice,
    libc::SYS_fallocate,
    libc::SYS_msync,
    libc::SYS_syncfs,
    libc::SYS_sync,
];

/// x86-64's number, which the libc crate does not have.
const IO_PGETEVENTS: libc::c_long = 333;

/// System call numbers with their kind (`enum wire_call`), from this architecture's own table. A 32-bit program on a
/// 64-bit kernel uses other numbers: its calls are looked up here all the same, and are not found or taken for another
/// blocking call.
pub fn followed() -> impl Iterator<Item = (usize, u8)> {
    WAIT.into_iter()
        .map(|number| (number, CALL_WAITS))
        .chain([(libc::SYS_io_uring_enter, CALL_RING), (libc::SYS_io_submit, CALL_AIO)])
        .chain([(libc::SYS_ioctl, CALL_COMMAND)])
        .chain([(libc::SYS_io_getevents, CALL_AIO_FETCH), (IO_PGETEVENTS, CALL_AIO_FETCH)])
        .filter_map(|(number, kind)| Some((usize::try_from(number).ok()?, kind)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::SYSCALLS;

    #[test]
    fn each_number_fits_the_table_and_stands_once() {
        let mut numbers: Vec<usize> = followed().map(|(number, _)| number).collect();
        assert!(numbers.iter().all(|n| *n < SYSCALLS));
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all);
    }
}
