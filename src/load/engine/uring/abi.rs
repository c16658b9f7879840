//! The io_uring ABI: structures and constants of linux/io_uring.h.

use std::mem::offset_of;

/// `io_uring_params.flags`
pub const SETUP_IOPOLL: u32 = 1 << 0;
pub const SETUP_SQPOLL: u32 = 1 << 1;
pub const SETUP_COOP_TASKRUN: u32 = 1 << 8;
pub const SETUP_SQE128: u32 = 1 << 10;
pub const SETUP_CQE32: u32 = 1 << 11;
pub const SETUP_SINGLE_ISSUER: u32 = 1 << 12;
pub const SETUP_DEFER_TASKRUN: u32 = 1 << 13;
pub const SETUP_NO_SQARRAY: u32 = 1 << 16;

/// `io_uring_params.features`
pub const FEAT_SINGLE_MMAP: u32 = 1 << 0;
/// SQPOLL accepts any file, not only registered ones (5.11).
pub const FEAT_SQPOLL_NONFIXED: u32 = 1 << 7;
pub const FEAT_EXT_ARG: u32 = 1 << 8;
/// Same age as the first kernel that requires no privilege for SQPOLL (5.13).
pub const FEAT_RSRC_TAGS: u32 = 1 << 10;

/// mmap offsets of the parts of a ring.
pub const OFF_SQ_RING: i64 = 0;
pub const OFF_CQ_RING: i64 = 0x800_0000;
pub const OFF_SQES: i64 = 0x1000_0000;

/// Flags of `io_uring_enter`.
pub const ENTER_GETEVENTS: u32 = 1 << 0;
pub const ENTER_SQ_WAKEUP: u32 = 1 << 1;
pub const ENTER_EXT_ARG: u32 = 1 << 3;
pub const ENTER_REGISTERED_RING: u32 = 1 << 4;

/// In the ring: the SQPOLL thread sleeps.
pub const SQ_NEED_WAKEUP: u32 = 1 << 0;

/// Operations of `io_uring_register`.
pub const REGISTER_BUFFERS: u32 = 0;
pub const REGISTER_FILES: u32 = 2;
pub const UNREGISTER_FILES: u32 = 3;
pub const REGISTER_PROBE: u32 = 8;
pub const REGISTER_RING_FDS: u32 = 20;
pub const UNREGISTER_RING_FDS: u32 = 21;

/// Opcodes ...
pub const OP_NOP: u8 = 0;
pub const OP_FSYNC: u8 = 3;
pub const OP_READ_FIXED: u8 = 4;
pub const OP_WRITE_FIXED: u8 = 5;
pub const OP_READ: u8 = 22;
pub const OP_WRITE: u8 = 23;
pub const OP_URING_CMD: u8 = 46;
/// ... and their flags. The NOP flags exist since Linux 6.13.
pub const NOP_FILE: u32 = 1 << 1;
pub const NOP_FIXED_FILE: u32 = 1 << 2;
pub const NOP_FIXED_BUFFER: u32 = 1 << 3;
pub const FSYNC_DATASYNC: u32 = 1 << 0;
pub const URING_CMD_FIXED: u32 = 1 << 0;
/// The file is a registered one.
pub const SQE_FIXED_FILE: u8 = 1 << 0;

/// Flag of a probed operation.
pub const OP_SUPPORTED: u16 = 1 << 0;

/// `struct io_sqring_offsets`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct SqOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub flags: u32,
    pub dropped: u32,
    pub array: u32,
    pub reserved: u32,
    pub user_address: u64,
}

/// `struct io_cqring_offsets`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct CqOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub overflow: u32,
    pub cqes: u32,
    pub flags: u32,
    pub reserved: u32,
    pub user_address: u64,
}

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Params {
    pub sq_entries: u32,
    pub cq_entries: u32,
    pub flags: u32,
    pub sq_thread_cpu: u32,
    pub sq_thread_idle: u32,
    pub features: u32,
    pub wq_fd: u32,
    pub reserved: [u32; 3],
    pub sq_off: SqOffsets,
    pub cq_off: CqOffsets,
}

const _: () = assert!(size_of::<SqOffsets>() == 40 && size_of::<CqOffsets>() == 40);
const _: () = assert!(size_of::<Params>() == 120);

/// What an entry does, and with which file: its first eight bytes.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verb {
    pub opcode: u8,
    pub flags: u8,
    pub priority: u16,
    pub fd: i32,
}

/// The first 48 bytes, common to the entries of all operations.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Head {
    pub verb: Verb,
    /// For a command, its opcode number.
    pub offset: u64,
    pub rest: Rest,
}

/// The part that mostly stays the same when a slot is reused.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Rest {
    pub address: u64,
    pub bytes: u32,
    pub op_flags: u32,
    pub user_data: u64,
    /// Index of a registered buffer.
    pub buffer: u16,
    pub personality: u16,
    pub file_index: u32,
}

/// `struct io_uring_sqe`, with extra bytes after its head.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Entry<const MORE: usize> {
    pub head: Head,
    pub more: [u8; MORE],
}

/// Extra bytes of a normal entry, and of one for commands.
pub const USUAL: usize = 16;
pub const COMMAND: usize = 80;

const _: () = assert!(size_of::<Entry<USUAL>>() == 64 && size_of::<Entry<COMMAND>>() == 128);
const _: () = assert!(offset_of!(Head, rest) == 16 && offset_of!(Rest, user_data) == 16);
const _: () = assert!(offset_of!(Rest, buffer) == 24);
const _: () = assert!(offset_of!(Entry<COMMAND>, more) == 48);

/// `struct io_uring_cqe` with extra words.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Completion<const MORE: usize> {
    pub user_data: u64,
    pub result: i32,
    pub flags: u32,
    pub more: [u64; MORE],
}

/// Extra words of a normal result, and of one for commands.
pub const NOTHING: usize = 0;
pub const ANSWER: usize = 2;

const _: () = assert!(size_of::<Completion<NOTHING>>() == 16 && size_of::<Completion<ANSWER>>() == 32);

/// `struct io_uring_getevents_arg`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct WaitArguments {
    pub signals: u64,
    pub signals_bytes: u32,
    pub min_wait_us: u32,
    /// Address of a [`Time`].
    pub time: u64,
}

/// `struct __kernel_timespec`.
#[repr(C)]
#[derive(Debug)]
pub struct Time {
    pub seconds: i64,
    pub nanoseconds: i64,
}

/// `struct io_uring_rsrc_update`.
#[repr(C)]
#[derive(Debug)]
pub struct Registration {
    pub offset: u32,
    pub reserved: u32,
    pub data: u64,
}

const _: () = assert!(size_of::<WaitArguments>() == 24 && size_of::<Time>() == 16);
const _: () = assert!(size_of::<Registration>() == 16);

/// `struct io_uring_probe_op`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ProbedOperation {
    pub opcode: u8,
    pub reserved: u8,
    pub flags: u16,
    pub reserved_too: u32,
}

/// Number of operations in a probe.
pub const PROBED: usize = 256;

/// `struct io_uring_probe`.
#[repr(C)]
#[derive(Debug)]
pub struct Probe {
    pub last: u8,
    pub count: u8,
    pub reserved: u16,
    pub reserved_too: [u32; 3],
    pub operations: [ProbedOperation; PROBED],
}

const _: () = assert!(size_of::<Probe>() == 16 + 8 * PROBED);
