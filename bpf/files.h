/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Finds the file that a bio reads or writes, when the bio enters the block layer. For the latency
 * programs, which define `config` before this header.
 *
 * For direct I/O it is the file of the kiocb, which the bio's callback leads to. For buffered I/O
 * it is the mapping of the bio's current page. A page of direct I/O is the application's buffer and
 * may be mapped from another file, so the page must be in transfer: locked and not up to date, or
 * under write-back. Inodes are those of the file system below an overlay.
 */
#ifndef BIOPSY_FILES_H
#define BIOPSY_FILES_H

#include "bios.h"
#include "compat.h"
#include "wire.h"

/* Set once, before the programs are loaded, like `config`. */
const volatile struct wire_file_callbacks file_callbacks = {};

/*
 * File of each bio of the set with the same index, if `config.files_enabled` has FILES_EACH; the
 * map then has as many entries.
 */
struct bio_files {
	struct wire_file of[BIO_WAYS];
};

MAPPED_ARRAY(files, struct bio_files, 1);

/* The file of the bio in one way of a set; NULL: files are not recorded. */
static __always_inline struct wire_file *file_at(__u32 index, __u32 way)
{
	struct bio_files *set;

	if (!CAN_FOLLOW || !(config.files_enabled & FILES_EACH))
		return 0;
	set = bpf_map_lookup_elem(&files, &index);
	return set ? &set->of[way & (BIO_WAYS - 1)] : 0;
}

/* Reads a struct field at a scalar address: eight bytes from the begin of the field. */
#define WORD_OF(address, type, field)                                                              \
	word_at((const void *)((address) + bpf_core_field_offset(struct type, field)))

static __always_inline int is_callback(__u64 callback, __u64 known)
{
	return known && callback == known;
}

static __always_inline void note_inode(struct wire_file *file, __u64 inode)
{
	__u16 mode;

	if (!inode)
		return;
	mode = WORD_OF(inode, inode, i_mode);
	if ((mode & S_IFMT) == S_IFBLK) {
		file->device = WORD_OF(inode, inode, i_rdev);
		file->kind = FILE_RAW_DEVICE;
		return;
	}
	file->inode = WORD_OF(inode, inode, i_ino);
	file->device = WORD_OF(WORD_OF(inode, inode, i_sb), super_block, s_dev);
	file->kind = FILE_REGULAR;
}

/* I/O of no file is named by its block device. */
static __always_inline void note_kind(struct wire_file *file, __u64 bio, __u32 kind)
{
	file->device = WORD_OF(WORD_OF(bio, bio, bi_bdev), block_device, bd_dev);
	file->kind = kind;
}

/*
 * The head of a page. A tail page contains the address of its head; or, if the field is named
 * compound_info (seen on 7.3), possibly a mask of the address: a negative number of less than 32
 * bits.
 */
static __always_inline __u64 head_of(__u64 page)
{
	__u64 word;

	if (bpf_core_field_exists(struct page, compound_head))
		word = WORD_OF(page, page, compound_head);
	else if (bpf_core_field_exists(struct page___info, compound_info))
		word = WORD_OF(page, page___info, compound_info);
	else
		return page;
	if (!(word & 1))
		return page;
	return word >> 32 == 0xffffffff ? page & word : word - 1;
}

/* The page at a bio's current position. */
static __always_inline __u64 current_page(__u64 bio)
{
	__u64 vec = WORD_OF(bio, bio, bi_io_vec), page;
	__u32 index = WORD_OF(bio, bio, bi_iter.bi_idx), done;

	if (bpf_core_field_exists(struct bio, bi_iter.bi_bvec_done))
		done = WORD_OF(bio, bio, bi_iter.bi_bvec_done);
	else
		done = WORD_OF(bio, bio___offset, bi_iter.bi_offset);

	if (!vec)
		return 0;
	vec += (__u64)index * bpf_core_type_size(struct bio_vec);
	page = WORD_OF(vec, bio_vec, bv_page);
	if (!page)
		return 0;
	done += (__u32)WORD_OF(vec, bio_vec, bv_offset);
	return page + (__u64)(done >> PAGE_BITS) * bpf_core_type_size(struct page);
}

static __always_inline __u64 page_flag(__u64 flags, __u32 bit)
{
	return flags >> bit & 1;
}

/*
 * Whether the page cache itself transfers this page: a page of an application's buffer is up to
 * date.
 */
static __always_inline int is_in_transfer(__u64 flags, __u32 op)
{
	if (op != REQ_OP_READ)
		return page_flag(flags, bpf_core_enum_value(enum pageflags, PG_writeback));
	return page_flag(flags, bpf_core_enum_value(enum pageflags, PG_locked)) &&
	       !page_flag(flags, bpf_core_enum_value(enum pageflags, PG_uptodate));
}

/* Low bits of the mapping pointer that mark other uses (PAGE_MAPPING_FLAGS). */
#define MAPPING_TAGS 3

/* The kiocb is the first member of iomap_dio and of iomap_dio_simple; its file is the file. */
static __always_inline void note_kiocb(struct wire_file *file, __u64 first)
{
	__u64 iocb = word_at((const void *)first);

	note_inode(file, WORD_OF(WORD_OF(iocb, kiocb, ki_filp), file, f_inode));
}

static __always_inline int has_simple_direct(void)
{
	return bpf_core_field_exists(struct iomap_dio_simple, bio);
}

static __always_inline __u64 simple_direct_of(__u64 bio)
{
	return bio - bpf_core_field_offset(struct iomap_dio_simple, bio);
}

/*
 * A bio of direct I/O that the task waits for. A bio of a block device (since 6.0) is on the stack
 * and has no pool; a bio of a file is embedded in an iomap_dio_simple (seen on 7.3).
 */
static __always_inline void note_waited(struct wire_file *file, __u64 bio)
{
	if (!WORD_OF(bio, bio, bi_pool))
		note_kind(file, bio, FILE_RAW_DEVICE);
	else if (has_simple_direct())
		note_kiocb(file, simple_direct_of(bio));
}

/* Handles buffered I/O, swap, and direct I/O that its callback does not identify. */
static __always_inline void note_page(struct wire_file *file, __u64 bio, __u32 op, __u64 callback)
{
	__u64 page = current_page(bio), flags, mapping, inode = 0;
	int in_transfer, is_block = 0;

	if (!page)
		return;
	page = head_of(page);
	/* The flags are the page's first word. */
	flags = word_at((const void *)page);
	in_transfer = is_in_transfer(flags, op);
	mapping = WORD_OF(page, page, mapping);
	if (!mapping || mapping & MAPPING_TAGS) {
		if (op == REQ_OP_READ && in_transfer &&
		    page_flag(flags, bpf_core_enum_value(enum pageflags, PG_swapbacked))) {
			note_kind(file, bio, FILE_SWAP);
			return;
		}
	} else {
		inode = WORD_OF(mapping, address_space, host);
		if (inode)
			is_block = ((__u16)WORD_OF(inode, inode, i_mode) & S_IFMT) == S_IFBLK;
		/* Pages that file systems transfer through buffers of the device are in transfer
		 * without being marked. */
		if (in_transfer || is_block) {
			note_inode(file, inode);
			return;
		}
	}
	/* A read() or write() with direct I/O may use the generic callback for a synchronous bio.
	 * Only in that case are the pages an application's. */
	if (mapping && is_callback(callback, file_callbacks.wait) && !current_is_kernel_thread())
		note_waited(file, bio);
}

/*
 * Whether this is a write to the journal of ext4 (jbd2) or the log of XFS. Since buffers lost their
 * own callback (seen on 7.3), the bio has the callback that the buffer had.
 */
static __always_inline int is_journal(__u64 callback, __u64 private)
{
	if (is_callback(callback, file_callbacks.xfs_log) ||
	    is_callback(callback, file_callbacks.journal))
		return 1;
	return bpf_core_field_exists(struct buffer_head, b_end_io) &&
	       is_callback(callback, file_callbacks.buffer) &&
	       is_callback(WORD_OF(private, buffer_head, b_end_io), file_callbacks.journal);
}

/* Finds the file of a bio. Bios without data have none. */
VERIFIED_ONCE int find_file(__u64 bio, struct wire_file *file)
{
	__u64 callback, private;
	__u32 flags, op;

	if (!CAN_FOLLOW || !config.files_enabled || !file)
		return 0;
	file->inode = 0;
	file->device = 0;
	file->kind = FILE_NONE;
	flags = WORD_OF(bio, bio, bi_opf);
	op = flags & REQ_OP_MASK;
	if (op > REQ_OP_WRITE || !(__u32)WORD_OF(bio, bio, bi_iter.bi_size))
		return 0;
	callback = WORD_OF(bio, bio, bi_end_io);
	private = WORD_OF(bio, bio, bi_private);
	if (flags & swap_flag())
		note_kind(file, bio, FILE_SWAP);
	else if (is_callback(callback, file_callbacks.iomap_direct))
		note_kiocb(file, private);
	else if (is_callback(callback, file_callbacks.iomap_simple)) {
		if (has_simple_direct())
			note_kiocb(file, simple_direct_of(bio));
	} else if (is_callback(callback, file_callbacks.device_direct) ||
		   is_callback(callback, file_callbacks.device_direct_async) ||
		   is_callback(callback, file_callbacks.device_direct_simple))
		note_kind(file, bio, FILE_RAW_DEVICE);
	else if (is_callback(callback, file_callbacks.direct) ||
		 is_callback(callback, file_callbacks.direct_async)) {
		if (bpf_core_field_exists(struct dio, inode))
			note_inode(file, WORD_OF(private, dio, inode));
	} else if (is_journal(callback, private))
		note_kind(file, bio, FILE_JOURNAL);
	else if (flags & metadata_flag())
		note_kind(file, bio, FILE_METADATA);
	else
		note_page(file, bio, op, callback);
	return 0;
}

/* Marks the file of this way as unknown for its new bio. */
static __always_inline void clear_file(struct wire_file *file)
{
	if (file)
		file->kind = FILE_NONE;
}

/* The front part of a split bio has the same file as the whole. */
static __always_inline void copy_file(struct wire_file *to, const struct wire_file *from)
{
	if (to && from)
		*to = *from;
}

#endif
