//! Trims through a system call: only the NVMe command engine has asynchronous requests for them.

use super::super::job::Job;
use super::OpenTarget;
use super::sync::answer;

/// `BLKDISCARD` of linux/fs.h, which libc does not have.
const BLKDISCARD: libc::Ioctl = 0x1277;

/// Trims a range: discards it on a device, punches a hole in a file. Returns its bytes, or a negative errno.
pub fn trim(place: &OpenTarget, offset: u64, bytes: u32) -> i32 {
    let (Ok(moved), Ok(begin)) = (i32::try_from(bytes), libc::off_t::try_from(offset)) else {
        return -libc::EINVAL;
    };
    let told = answer(|| {
        if place.is_device {
            let range = [offset, u64::from(bytes)];
            // SAFETY: the call reads two numbers.
            unsafe { libc::ioctl(place.fd, BLKDISCARD, &raw const range) as isize }
        } else {
            let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: it touches no memory.
            unsafe { libc::fallocate(place.fd, hole, begin, libc::off_t::from(bytes)) as isize }
        }
    });
    if told < 0 { told } else { moved }
}

/// Explains that a job that only trims does not use its depth, because the engine has no trim requests.
pub fn one_by_one(job: &Job) -> Option<String> {
    let deep = job.rw.only_trims() && job.iodepth > 1 && !job.nop;
    deep.then(|| {
        let engine = job.engine.name();
        format!("iodepth: {engine} trims synchronously, one after the other; use --numjobs for more at once")
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{BLOCK, Disk, Scratch};
    use super::*;

    #[test]
    fn a_trimmed_part_of_a_file_reads_as_zeroes_and_the_rest_as_before() {
        let file = Scratch::filled("trim", 4 * BLOCK, 7);
        assert_eq!(trim(&file.place(), BLOCK.into(), 2 * BLOCK), 2 * BLOCK as i32);
        let bytes = file.bytes();
        let of = |block: usize| &bytes[block * BLOCK as usize..][..BLOCK as usize];
        assert!(of(0).iter().chain(of(3)).all(|byte| *byte == 7));
        assert!(of(1).iter().chain(of(2)).all(|byte| *byte == 0));
        assert_eq!(bytes.len(), 4 * BLOCK as usize, "a hole makes no file shorter");
    }

    #[test]
    fn a_trimmed_part_of_a_device_reads_as_zeroes_and_the_rest_as_before() {
        let Some(disk) = Disk::filled("trim", 1 << 20, 7) else { return };
        assert_eq!(trim(&disk.place(), BLOCK.into(), 2 * BLOCK), 2 * BLOCK as i32);
        let bytes = disk.bytes();
        let of = |block: usize| &bytes[block * BLOCK as usize..][..BLOCK as usize];
        assert!(of(0).iter().chain(of(3)).all(|byte| *byte == 7));
        assert!(of(1).iter().chain(of(2)).all(|byte| *byte == 0));
        assert_eq!(trim(&disk.place(), 1, BLOCK), -libc::EINVAL, "no whole blocks");
        assert_eq!(trim(&disk.place(), 1 << 20, BLOCK), -libc::EINVAL, "past the end");
    }

    #[test]
    fn a_trim_that_cannot_be_is_an_errno() {
        let file = Scratch::filled("trim-errors", BLOCK, 1);
        assert_eq!(trim(&file.place(), 0, 0), -libc::EINVAL);
        assert_eq!(trim(&file.place(), 0, u32::MAX), -libc::EINVAL);
        assert_eq!(trim(&file.place(), u64::MAX, BLOCK), -libc::EINVAL);
        assert_eq!(trim(&OpenTarget { is_device: true, ..file.place() }, 0, BLOCK), -libc::ENOTTY);
        for is_device in [false, true] {
            assert_eq!(trim(&OpenTarget { fd: -1, is_device }, 0, BLOCK), -libc::EBADF);
        }
    }
}
