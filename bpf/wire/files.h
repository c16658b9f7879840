/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Declares the records of the files that bios read or write. Included by wire.h alone. */
#ifndef BIOPSY_WIRE_FILES_H
#define BIOPSY_WIRE_FILES_H

/* What a bio reads or writes. */
enum wire_file_kind {
	FILE_NONE,
	FILE_REGULAR,
	/* A block device itself, with direct or buffered I/O. */
	FILE_RAW_DEVICE,
	FILE_SWAP,
	FILE_METADATA,
	FILE_JOURNAL,
	/* All files that had no room in the table. */
	FILE_OTHERS,
};

struct wire_file {
	/* FILE_REGULAR only. */
	__u64 inode;
	/* The kernel's dev_t: the file system's for FILE_REGULAR, else the block device's. */
	__u32 device;
	__u32 kind;
};
_Static_assert(sizeof(struct wire_file) == 16, "wire_file");

/*
 * Addresses of functions that bi_end_io of a bio can point to; 0: this kernel does not have or does
 * not show the function.
 */
struct wire_file_callbacks {
	/* iomap_dio_bio_end_io, iomap_dio_simple_end_io */
	__u64 iomap_direct;
	__u64 iomap_simple;
	/* blkdev_bio_end_io, and its variants _async and _simple */
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
	/* end_bio_bh_io_sync, and journal_end_buffer_io_sync, which b_end_io of its buffer points
	 * to */
	__u64 buffer;
	__u64 journal;
};
_Static_assert(sizeof(struct wire_file_callbacks) == 88, "wire_file_callbacks");

/* The file is looked up for every bio, for groups or events. */
#define FILES_EACH 1
/* Bios are counted by device and file; see FILE_SAMPLED_FROM. */
#define FILES_COUNTED 2

/*
 * The file is looked up for this many first bios of a process on a device, and after them for one
 * bio in FILE_SAMPLED_EVERY, which counts as that many.
 */
#define FILE_SAMPLED_FROM  256
#define FILE_SAMPLED_EVERY 16

/* Key of the bios counted by device and file. */
struct wire_file_key {
	struct wire_file file;
	__u32 device;
	/* The bios passed the filter, or there is no filter. */
	__u32 selected;
};
_Static_assert(sizeof(struct wire_file_key) == 24, "wire_file_key");

struct wire_file_ios {
	/* Scaled up; see FILE_SAMPLED_FROM. */
	__u64 bios;
	__u64 bytes;
	/* Bios actually looked up. */
	__u64 sampled;
	/* The process that submitted the first of them. */
	__u32 opener;
	__u32 pad;
};
_Static_assert(sizeof(struct wire_file_ios) == 32, "wire_file_ios");

#endif
