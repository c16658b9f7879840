/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The file that a bio reads or writes, found when the bio enters the block layer. For the latency
 * programs, whose `config` must stand before it.
 *
 * Direct I/O: the file of its kiocb, which the bio's callback leads to. Buffered I/O: the mapping
 * of the bio's current page. A page of direct I/O is the application's buffer and may be mapped
 * from another file, so the page has to be on its way: locked and not up to date, or under
 * write-back. Inodes are those of the file system below an overlay.
 */
#ifndef BIOPSY_FILES_H
#define BIOPSY_FILES_H

#include "bios.h"
#include "compat.h"
#include "wire.h"

/* Told once, before the programs are loaded, like `config`. */
const volatile struct wire_file_callbacks file_callbacks = {};

/* Of each bio of the set with the same number, where `config.files_enabled` has FILES_EACH; as
 * many, then. */
struct bio_files {
	struct wire_file of[BIO_WAYS];
};

MAPPED_ARRAY(files, struct bio_files, 1);

/* The file of the bio that stands in a way of a set; NULL: it is not found. */
static __always_inline struct wire_file *file_at(__u32 index, __u32 way)
{
	struct bio_files *set;

	if (!CAN_FOLLOW || !(config.files_enabled & FILES_EACH))
		return 0;
	set = bpf_map_lookup_elem(&files, &index);
	return set ? &set->of[way & (BIO_WAYS - 1)] : 0;
}

/* A field of a struct at an address that is a plain number: eight bytes from its beginning on. */
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

/* What is no file is named by the block device that it lies on. */
static __always_inline void note_kind(struct wire_file *file, __u64 bio, __u32 kind)
{
	file->device = WORD_OF(WORD_OF(bio, bio, bi_bdev), block_device, bd_dev);
	file->kind = kind;
}

/*
 * The head of a page. What tail pages have names it, or, where the word is called compound_info
 * (seen on 7.3), may be a mask of its address: a negative number of less than 32 bits.
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

/* The page that a bio goes on with. */
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

/* Whether the kernel itself transfers this page: an application's buffer is up to date. */
static __always_inline int is_in_transfer(__u64 flags, __u32 op)
{
	if (op != REQ_OP_READ)
		return page_flag(flags, bpf_core_enum_value(enum pageflags, PG_writeback));
	return page_flag(flags, bpf_core_enum_value(enum pageflags, PG_locked)) &&
	       !page_flag(flags, bpf_core_enum_value(enum pageflags, PG_uptodate));
}

/* The low bits of a mapping say that it is none (PAGE_MAPPING_FLAGS). */
#define MAPPING_TAGS 3

/* The kiocb is the first member of iomap_dio and of iomap_dio_simple, its file that of the kiocb.
 */
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

/* The task waits for a bio of direct I/O: that of a block device (from 6.0 on) lies on the stack
 * and is of no pool, that of a file within an iomap_dio_simple (seen on 7.3). */
static __always_inline void note_waited(struct wire_file *file, __u64 bio)
{
	if (!WORD_OF(bio, bio, bi_pool))
		note_kind(file, bio, FILE_RAW_DEVICE);
	else if (has_simple_direct())
		note_kiocb(file, simple_direct_of(bio));
}

/* Buffered I/O, swap, and direct I/O whose callback does not say what it is. */
static __always_inline void note_page(struct wire_file *file, __u64 bio, __u32 op, __u64 callback)
{
	__u64 page = current_page(bio), flags, mapping, inode = 0;
	int in_transfer, is_block = 0;

	if (!page)
		return;
	page = head_of(page);
	/* Its flags are its first word. */
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
		/* What file systems read and write through buffers of the device is on its way
		 * without a mark of the page. */
		if (in_transfer || is_block) {
			note_inode(file, inode);
			return;
		}
	}
	/* A read() or write() past the page cache may have the callback of all who wait for a bio.
	 * Only there the pages are an application's. */
	if (mapping && is_callback(callback, file_callbacks.wait) && !current_is_kernel_thread())
		note_waited(file, bio);
}

/* Whether it is the log of ext4 (jbd2) that is written, or that of XFS. Since buffers lost their
 * own callback (seen on 7.3) the bio's is what was theirs. */
static __always_inline int is_journal(__u64 callback, __u64 private)
{
	if (is_callback(callback, file_callbacks.xfs_log) ||
	    is_callback(callback, file_callbacks.journal))
		return 1;
	return bpf_core_field_exists(struct buffer_head, b_end_io) &&
	       is_callback(callback, file_callbacks.buffer) &&
	       is_callback(WORD_OF(private, buffer_head, b_end_io), file_callbacks.journal);
}

/* Finds what a bio reads or writes. Nothing is found of what has no data. */
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

/* A bio of which nothing is known stands in this place from now on. */
static __always_inline void clear_file(struct wire_file *file)
{
	if (file)
		file->kind = FILE_NONE;
}

/* A split's front part is of the file that the whole is of. */
static __always_inline void copy_file(struct wire_file *to, const struct wire_file *from)
{
	if (to && from)
		*to = *from;
}

#endif
