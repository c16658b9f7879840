/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What crosses the line of files: what bios read or write. Included by wire.h alone. */
#ifndef BIOPSY_WIRE_FILES_H
#define BIOPSY_WIRE_FILES_H

/* What a bio reads or writes. */
enum wire_file_kind {
	FILE_NONE,
	FILE_REGULAR,
	/* A block device itself, past its page cache or through it. */
	FILE_RAW_DEVICE,
	FILE_SWAP,
	FILE_METADATA,
	FILE_JOURNAL,
	/* All files for which the table had no room. */
	FILE_OTHERS,
};

struct wire_file {
	/* Of FILE_REGULAR. */
	__u64 inode;
	/* The kernel's dev_t: of FILE_REGULAR the file system's, else the block device's. */
	__u32 device;
	__u32 kind;
};
_Static_assert(sizeof(struct wire_file) == 16, "wire_file");

/* Addresses of functions that a bio's end calls (bi_end_io); 0: this kernel has none, or does not
 * show it. */
struct wire_file_callbacks {
	/* iomap_dio_bio_end_io, iomap_dio_simple_end_io */
	__u64 iomap_direct;
	__u64 iomap_simple;
	/* blkdev_bio_end_io, and its _async and _simple */
	__u64 device_direct;
	__u64 device_direct_async;
	__u64 device_direct_simple;
	/* dio_bio_end_io, dio_bio_end_aio */
	__u64 direct;
	__u64 direct_async;
	/* submit_bio_wait_endio, in newer kernels bio_wait_end_io */
	__u64 wait;
	/* xlog_bio_end_io */
	__u64 xfs_log;
	/* end_bio_bh_io_sync, and journal_end_buffer_io_sync, which its buffer (b_end_io) calls */
	__u64 buffer;
	__u64 journal;
};
_Static_assert(sizeof(struct wire_file_callbacks) == 88, "wire_file_callbacks");

/* The file is found of every bio, for groups or events. */
#define FILES_EACH 1
/* Bios are counted by device and file; see FILE_SAMPLED_FROM. */
#define FILES_COUNTED 2

/* Bios of a process on a device of which each one's file is found; behind them of one in so many,
 * which is counted as that many. */
#define FILE_SAMPLED_FROM  256
#define FILE_SAMPLED_EVERY 16

/* Bios are counted by device and file. */
struct wire_file_key {
	struct wire_file file;
	__u32 device;
	/* The bios passed the filter; without one all do. */
	__u32 selected;
};
_Static_assert(sizeof(struct wire_file_key) == 24, "wire_file_key");

struct wire_file_ios {
	/* Scaled up, see FILE_SAMPLED_FROM. */
	__u64 bios;
	__u64 bytes;
	/* As they are. */
	__u64 sampled;
	/* The process that submitted the first of them. */
	__u32 opener;
	__u32 pad;
};
_Static_assert(sizeof(struct wire_file_ios) == 32, "wire_file_ios");

#endif
