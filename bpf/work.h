/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Names the work of a workqueue worker. The worker's own name says nothing: kworker/0:1H runs all
 * work of its CPU. The worker struct has the description that ps shows after the name. For the
 * block layer's own workqueue, kblockd, the disk follows from the address of the work.
 */
#ifndef BIOPSY_WORK_H
#define BIOPSY_WORK_H

#include "kernel.h"
#include "compat.h"
#include "wire.h"

/* The disk of what may be a request queue; NULL if it is none: its disk would point back. */
static __always_inline struct gendisk *disk_of_queue(struct request_queue *queue)
{
	struct gendisk *disk = BPF_CORE_READ(queue, disk);

	return disk && BPF_CORE_READ(disk, queue) == queue ? disk : 0;
}

/* The disk of a kblockd work, which is embedded in a hardware context or a request queue. */
static __always_inline struct gendisk *disk_of_work(__u64 work)
{
	struct blk_mq_hw_ctx *hctx;
	struct gendisk *disk;
	__u64 queue;

	/* Since d152c682f03c (5.15). */
	if (!bpf_core_field_exists(struct request_queue, disk))
		return 0;
	hctx = (void *)(work - bpf_core_field_offset(struct blk_mq_hw_ctx, run_work));
	disk = disk_of_queue(BPF_CORE_READ(hctx, queue));
	if (disk)
		return disk;
	queue = work - bpf_core_field_offset(struct request_queue, requeue_work);
	disk = disk_of_queue((void *)queue);
	if (disk)
		return disk;
	queue = work - bpf_core_field_offset(struct request_queue, timeout_work);
	return disk_of_queue((void *)queue);
}

static __always_inline int is_kblockd(const char *name)
{
	static const char kblockd[] = "kblockd";

	for (__u32 i = 0; i < sizeof(kblockd); i++)
		if (name[i] != kblockd[i])
			return 0;
	return 1;
}

/*
 * Writes the name of a worker's current work into the place of the user frames, which a worker does
 * not have; an empty name: the worker is idle. Returns the number of frames used; 0: the task is no
 * workqueue worker, or it could not be read.
 */
static __always_inline __u32 name_work(struct task_struct *task, void *frames)
{
	char name[WORK_FRAMES * sizeof(__u64)] = {};
	struct worker *worker;
	struct gendisk *disk;
	__u64 work;

	if (!(BPF_CORE_READ(task, flags) & PF_WQ_WORKER))
		return 0;
	worker = BPF_CORE_READ(kthread_of(task), data);
	if (!worker)
		return 0;
	work = (__u64)BPF_CORE_READ(worker, current_work);
	if (work) {
		BPF_CORE_READ_STR_INTO(&name, worker, desc);
		disk = is_kblockd(name) ? disk_of_work(work) : 0;
		if (disk)
			BPF_CORE_READ_STR_INTO(&name, disk, disk_name);
	}
	__builtin_memcpy(frames, name, sizeof(name));
	return WORK_FRAMES;
}

#endif
