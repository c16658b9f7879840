//! Makes a load of Linux AIO by its system calls, since no package for it is present on every machine.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use super::disk::Disk;

const BLOCK: usize = 4096;

/// `struct iocb` of the UAPI.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    result_file: u32,
}

/// `struct io_event` of the UAPI.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    obj: u64,
    result: i64,
    result2: i64,
}

const PREAD: u16 = 0;
const PWRITE: u16 = 1;

/// An AIO context with `depth` reads or writes.
pub struct Aio {
    _file: File,
    context: u64,
    iocbs: Vec<Iocb>,
    _buffers: Vec<Box<Buffer>>,
}

#[repr(align(4096))]
struct Buffer([u8; BLOCK]);

impl Aio {
    /// Makes reads of blocks that are not adjacent.
    pub fn new(disk: &Disk, depth: usize) -> Self {
        Self::at(disk, depth, false, |index| index * 7)
    }

    /// Makes reads or writes of the given blocks.
    pub fn at(disk: &Disk, depth: usize, write: bool, block: impl Fn(i64) -> i64) -> Self {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(write)
            .custom_flags(libc::O_DIRECT)
            .open(&disk.path)
            .unwrap();
        let mut context = 0u64;
        // SAFETY: the kernel writes the context's number to a variable of this function.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, 4 * depth, &raw mut context) };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        let mut buffers: Vec<Box<Buffer>> = (0..depth).map(|_| Box::new(Buffer([0; BLOCK]))).collect();
        let iocbs = (0..)
            .zip(&mut buffers)
            .map(|(index, buffer)| Iocb {
                data: index,
                file: file.as_raw_fd().try_into().unwrap(),
                buffer: buffer.0.as_mut_ptr() as u64,
                bytes: BLOCK as u64,
                opcode: if write { PWRITE } else { PREAD },
                offset: block(index as i64) * BLOCK as i64,
                ..Iocb::default()
            })
            .collect();
        Self { _file: file, context, iocbs, _buffers: buffers }
    }

    /// Hands all of them in with one call.
    pub fn submit(&mut self) {
        let all: Vec<*mut Iocb> = self.iocbs.iter_mut().map(std::ptr::from_mut).collect();
        // SAFETY: the iocbs and their buffers live until the context is destroyed.
        let taken = unsafe { libc::syscall(libc::SYS_io_submit, self.context, all.len(), all.as_ptr()) };
        assert_eq!(taken, all.len() as libc::c_long, "{}", std::io::Error::last_os_error());
    }

    /// The same iocbs with other words, which the kernel copies: they may be out more than once.
    pub fn rename(&mut self, by: u64) {
        self.iocbs.iter_mut().for_each(|iocb| iocb.data += by);
    }

    /// Waits for all of them and fetches their results.
    pub fn fetch(&self) {
        let mut events = vec![Event::default(); self.iocbs.len()];
        let mut left = events.len();
        while left > 0 {
            // SAFETY: there is room for as many events as are requested.
            let found = unsafe {
                let none: *const libc::timespec = std::ptr::null();
                libc::syscall(libc::SYS_io_getevents, self.context, 1, left, events.as_mut_ptr(), none)
            };
            assert!(found > 0, "{}", std::io::Error::last_os_error());
            let found = usize::try_from(found).unwrap();
            assert!(events[..found].iter().all(|event| event.result == BLOCK as i64));
            left -= found;
        }
    }
}

impl Drop for Aio {
    fn drop(&mut self) {
        // SAFETY: the call waits for outstanding operations; the buffers are dropped after it.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}
