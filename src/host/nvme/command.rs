//! Sends one command to an NVMe drive, by an ioctl or as an entry of an io_uring.

use std::io;
use std::os::fd::RawFd;

use zerocopy::{Immutable, IntoBytes};

/// Opcodes of the admin commands that only read.
const GET_LOG_PAGE: u8 = 0x02;
const IDENTIFY: u8 = 0x06;
const GET_FEATURES: u8 = 0x0a;

/// The data structure that Identify returns.
const OF_NAMESPACE: u32 = 0x00;
const OF_CONTROLLER: u32 = 0x01;

/// The namespace id that addresses the whole drive.
const WHOLE_DRIVE: u32 = 0xffff_ffff;

/// Length of each Identify data structure.
pub const IDENTIFY_BYTES: usize = 4096;

/// `NVME_IOCTL_ID`, `NVME_IOCTL_ADMIN_CMD` and `NVME_IOCTL_IO_CMD` of linux/nvme_ioctl.h.
const NVME_IOCTL_ID: libc::Ioctl = 0x4e40;
const NVME_IOCTL_ADMIN_CMD: libc::Ioctl = 0xc048_4e41;
const NVME_IOCTL_IO_CMD: libc::Ioctl = 0xc048_4e43;

/// `struct nvme_uring_cmd` of linux/nvme_ioctl.h; the last field of `struct nvme_admin_cmd` is its result.
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

/// The queue that takes a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    Admin,
    Io,
}

impl Command {
    /// Sends the command by an ioctl and waits. Returns 0, or the NVMe status with which the drive refuses it.
    ///
    /// # Safety
    /// At its address there must be as many bytes as it says, for the drive to read or write.
    pub unsafe fn send(&mut self, fd: RawFd, queue: Queue) -> io::Result<u32> {
        let call = match queue {
            Queue::Admin => NVME_IOCTL_ADMIN_CMD,
            Queue::Io => NVME_IOCTL_IO_CMD,
        };
        loop {
            // SAFETY: the caller guarantees the buffer; the kernel writes the result into the command.
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

/// The namespace id of an open device.
pub fn namespace_of(fd: RawFd) -> io::Result<u32> {
    // SAFETY: the call takes no argument.
    match u32::try_from(unsafe { libc::ioctl(fd, NVME_IOCTL_ID) }) {
        Ok(id @ 1..) => Ok(id),
        Ok(_) => Err(io::Error::other("the driver reports no namespace number")),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// The Identify data structure of a namespace.
pub fn identify_namespace(fd: RawFd, namespace: u32) -> io::Result<[u8; IDENTIFY_BYTES]> {
    let mut data = [0; IDENTIFY_BYTES];
    ask(fd, IDENTIFY, namespace, OF_NAMESPACE, &mut data)?;
    Ok(data)
}

/// The Identify data structure of the controller.
pub fn identify_controller(fd: RawFd) -> io::Result<[u8; IDENTIFY_BYTES]> {
    let mut data = [0; IDENTIFY_BYTES];
    ask(fd, IDENTIFY, 0, OF_CONTROLLER, &mut data)?;
    Ok(data)
}

/// A log page of the drive, from its start.
pub fn log_page<const BYTES: usize>(fd: RawFd, page: u8) -> io::Result<[u8; BYTES]> {
    let mut data = [0; BYTES];
    // The number of dwords, counted from 0, goes above the page number.
    let dwords = (BYTES / 4 - 1) as u32;
    ask(fd, GET_LOG_PAGE, WHOLE_DRIVE, u32::from(page) | dwords << 16, &mut data)?;
    Ok(data)
}

/// The current value of a feature.
pub fn feature(fd: RawFd, feature: u8) -> io::Result<u32> {
    ask(fd, GET_FEATURES, 0, feature.into(), &mut [])
}

/// Sends an admin command that fills `data`. Returns its result.
fn ask(fd: RawFd, opcode: u8, namespace: u32, cdw10: u32, data: &mut [u8]) -> io::Result<u32> {
    let address = if data.is_empty() { 0 } else { data.as_mut_ptr() as u64 };
    let mut command =
        Command { opcode, namespace, address, bytes: data.len() as u32, cdw10, ..Command::default() };
    // SAFETY: the buffer is valid and borrowed exclusively.
    match unsafe { command.send(fd, Queue::Admin) }? {
        0 => Ok(command.result),
        status => Err(io::Error::other(format!("the drive refuses it (status {status:#x})"))),
    }
}
