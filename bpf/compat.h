/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * One helper per kernel difference, decided by what BTF has and not by version numbers.
 * The Rust side (src/probe/btf.rs) decides what only user space can: prototypes and flag values.
 */
#ifndef BIOPSY_COMPAT_H
#define BIOPSY_COMPAT_H

#include "kernel.h"

/* Before d152c682f03c (5.17) a request pointed to its disk; f3fa33acca9f removed the field. */
struct request___disk {
	struct gendisk *rq_disk;
} CORE;

/* Before 309dca309fc3 (5.12) a bio pointed to its disk. */
struct bio___disk {
	struct gendisk *bi_disk;
} CORE;

/*
 * The helpers are always inlined: a call would make a plain number of a pointer that the verifier
 * trusts.
 */
static __always_inline struct gendisk *request_disk(struct request *rq)
{
	if (bpf_core_field_exists(struct request_queue, disk))
		return rq->q->disk;
	return ((struct request___disk *)rq)->rq_disk;
}

static __always_inline struct gendisk *bio_disk(struct bio *bio)
{
	if (bpf_core_field_exists(struct bio, bi_bdev))
		return bio->bi_bdev->bd_disk;
	return ((struct bio___disk *)bio)->bi_disk;
}

/* The address that tells bios of different block devices apart. */
static __always_inline const void *bio_home(struct bio *bio)
{
	if (bpf_core_field_exists(struct bio, bi_bdev))
		return bio->bi_bdev;
	return ((struct bio___disk *)bio)->bi_disk;
}

static __always_inline __u32 fua_flag(void)
{
	return 1u << bpf_core_enum_value(enum req_flag_bits, __REQ_FUA);
}

/*
 * The low half of a pointer as a number. The verifier forbids arithmetic on kernel pointers; a
 * 32-bit move makes an unknown scalar of one (for programs that may leak pointers, as all tracing
 * programs with CAP_PERFMON may).
 */
static __always_inline __u32 low_half(const void *pointer)
{
	__u32 low;

	asm volatile("%0 = %1" : "=w"(low) : "w"((__u32)(__u64)pointer));
	return low;
}

/* Since 5.11 tracing programs may ask for the task itself. */
static __always_inline int current_is_kernel_thread(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return task->flags & PF_KTHREAD;
}

/* Where the direct I/O of a block device with one bio is built around that bio. */
static __always_inline int has_blkdev_dio(void)
{
	return bpf_core_field_exists(struct blkdev_dio, bio);
}

/* The direct I/O around a bio at this address; it begins with its kiocb. */
static __always_inline const void *blkdev_dio_of(__u64 bio)
{
	return (const void *)(bio - bpf_core_field_offset(struct blkdev_dio, bio) +
			      bpf_core_field_offset(struct blkdev_dio, iocb));
}

#endif
