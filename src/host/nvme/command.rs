//! One command to an NVMe drive, as the kernel's driver takes it: by a call of its own, or through a ring.

use std::io;
use std::os::fd::RawFd;

use zerocopy::{Immutable, IntoBytes};

/// Opcodes of the admin commands that only read.
const GET_LOG_PAGE: u8 = 0x02;
const IDENTIFY: u8 = 0x06;
const GET_FEATURES: u8 = 0x0a;

/// Which data structure is asked for.
const OF_NAMESPACE: u32 = 0x00;
const OF_CONTROLLER: u32 = 0x01;

/// The number that means all of the drive.
const WHOLE_DRIVE: u32 = 0xffff_ffff;

/// Length of each data structure that a drive tells of itself.
pub const IDENTIFY_BYTES: usize = 4096;

/// `NVME_IOCTL_ID`, `NVME_IOCTL_ADMIN_CMD` and `NVME_IOCTL_IO_CMD` of linux/nvme_ioctl.h.
const NVME_IOCTL_ID: libc::Ioctl = 0x4e40;
const NVME_IOCTL_ADMIN_CMD: libc::Ioctl = 0xc048_4e41;
const NVME_IOCTL_IO_CMD: libc::Ioctl = 0xc048_4e43;

/// `struct nvme_uring_cmd` of linux/nvme_ioctl.h; `struct nvme_admin_cmd` has its result in the last place.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, IntoBytes, Immutable)]
pub struct Command {
    pub opcode: u8,
    pub flags: u8,
    pub reserved: u16,
    pub namespace: u32,
    pub cdw2: u32,
    pub cdw3: u32,
    pub metadata: u64,
    pub address: u64,
    pub metadata_bytes: u32,
    pub bytes: u32,
    pub cdw10: u32,
    pub cdw11: u32,
    pub cdw12: u32,
    pub cdw13: u32,
    pub cdw14: u32,
    pub cdw15: u32,
    pub timeout_ms: u32,
    pub result: u32,
}

pub const COMMAND_BYTES: usize = 72;
const _: () = assert!(size_of::<Command>() == COMMAND_BYTES);

/// Where a command goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    Admin,
    Io,
}

impl Command {
    /// Sends it by a system call of its own, and waits. Returns 0, or the status of the NVMe specification with
    /// which the drive refuses it.
    ///
    /// # Safety
    /// At its address there must be as many bytes as it says, for the drive to read or write.
    pub unsafe fn send(&mut self, fd: RawFd, queue: Queue) -> io::Result<u32> {
        let call = match queue {
            Queue::Admin => NVME_IOCTL_ADMIN_CMD,
            Queue::Io => NVME_IOCTL_IO_CMD,
        };
        loop {
            // SAFETY: as this function asks for; the result is written into the command.
            let told = unsafe { libc::ioctl(fd, call, std::ptr::from_mut(self)) };
            match u32::try_from(told) {
                Ok(status) => return Ok(status),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }
}

/// The number of the namespace behind an open device.
pub fn namespace_of(fd: RawFd) -> io::Result<u32> {
    // SAFETY: the call takes no argument.
    match u32::try_from(unsafe { libc::ioctl(fd, NVME_IOCTL_ID) }) {
        Ok(id @ 1..) => Ok(id),
        Ok(_) => Err(io::Error::other("the driver reports no namespace number")),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// The data structure of a namespace.
pub fn identify_namespace(fd: RawFd, namespace: u32) -> io::Result<[u8; IDENTIFY_BYTES]> {
    let mut data = [0; IDENTIFY_BYTES];
    ask(fd, IDENTIFY, namespace, OF_NAMESPACE, &mut data)?;
    Ok(data)
}

/// The data structure of the controller.
pub fn identify_controller(fd: RawFd) -> io::Result<[u8; IDENTIFY_BYTES]> {
    let mut data = [0; IDENTIFY_BYTES];
    ask(fd, IDENTIFY, 0, OF_CONTROLLER, &mut data)?;
    Ok(data)
}

/// A log page of the drive, from its beginning on.
pub fn log_page<const BYTES: usize>(fd: RawFd, page: u8) -> io::Result<[u8; BYTES]> {
    let mut data = [0; BYTES];
    // How many words of four bytes, counted from 0, beside the page.
    let dwords = (BYTES / 4 - 1) as u32;
    ask(fd, GET_LOG_PAGE, WHOLE_DRIVE, u32::from(page) | dwords << 16, &mut data)?;
    Ok(data)
}

/// The value of a feature as it is set.
pub fn feature(fd: RawFd, feature: u8) -> io::Result<u32> {
    ask(fd, GET_FEATURES, 0, feature.into(), &mut [])
}

/// Sends an admin command that fills `data`. Returns its result.
fn ask(fd: RawFd, opcode: u8, namespace: u32, cdw10: u32, data: &mut [u8]) -> io::Result<u32> {
    let address = if data.is_empty() { 0 } else { data.as_mut_ptr() as u64 };
    let mut command =
        Command { opcode, namespace, address, bytes: data.len() as u32, cdw10, ..Command::default() };
    // SAFETY: the bytes are there and borrowed exclusively.
    match unsafe { command.send(fd, Queue::Admin) }? {
        0 => Ok(command.result),
        status => Err(io::Error::other(format!("the drive refuses it (status {status:#x})"))),
    }
}
