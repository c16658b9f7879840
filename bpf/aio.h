/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Handles the system calls of Linux AIO (libaio): io_submit, whose iocbs are recorded for
 * blk-throttle's worker, and io_getevents, which fetches results. An operation begins with its
 * first bio. For the latency programs, which define `config` before this header.
 */
#ifndef BIOPSY_AIO_H
#define BIOPSY_AIO_H

#include "op_table.h"

/* Arguments of an io_submit. */
struct io_submit {
	__u64 entered;
	/* The context id that the application passes, and the address of its array of iocb
	 * pointers. */
	__u64 ring;
	__u64 iocbs;
	__u64 left;
	/* The kernel's address of the context. */
	__u64 context;
};

/* Search through a process's contexts. */
struct contexts {
	__u64 table;
	__u64 ring;
	/* The context that was found; 0: none. */
	__u64 context;
	__u32 next;
	__u32 all;
};

/* Whether the next context in the table is the one with this ring. */
static long look_at_context(__u32 i, struct contexts *contexts)
{
	struct kioctx *context = 0;

	if (contexts->next >= contexts->all)
		return 1;
	bpf_probe_read_kernel(&context, sizeof(context),
			      (const void *)(contexts->table +
					     bpf_core_field_offset(struct kioctx_table, table) +
					     contexts->next * sizeof(context)));
	contexts->next++;
	if (!context || BPF_CORE_READ(context, user_id) != contexts->ring)
		return 0;
	contexts->context = (__u64)context;
	return 1;
}

/* Contexts that are searched if the ring does not give the index. */
#define MOST_CONTEXTS 1024

/* The context with the id that the application uses, its ring; 0: there is none. */
static __always_inline __u64 context_of(__u64 ring)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct contexts contexts = {.ring = ring};
	struct kioctx_table *table;

	if (!bpf_core_field_exists(task->mm->ioctx_table) ||
	    !bpf_core_field_exists(struct aio_kiocb, ki_ctx))
		return 0;
	table = BPF_CORE_READ(task, mm, ioctx_table);
	contexts.table = (__u64)table;
	contexts.all = BPF_CORE_READ(table, nr);
	if (!bpf_probe_read_user(&contexts.next, sizeof(contexts.next), (const void *)ring))
		look_at_context(0, &contexts);
	else
		/* The page with the index may not be mapped until the kernel itself has read it. */
		bpf_loop(MOST_CONTEXTS, look_at_context, &contexts, 0);
	return contexts.context;
}

static long note_next_iocb(__u32 i, struct io_submit *call)
{
	__u64 iocb = 0, data = 0;

	if (!call->left)
		return 1;
	call->left--;
	/* The application sets the number of iocbs; like the kernel, stop at the first unreadable
	 * one. */
	if (bpf_probe_read_user(&iocb, sizeof(iocb), (const void *)call->iocbs))
		return 1;
	call->iocbs += sizeof(iocb);
	if (bpf_probe_read_user(&data, sizeof(data), (const void *)iocb))
		return 0;
	return op_note_iocb(aio_key(iocb, data, call->context), call->entered);
}

VERIFIED_ONCE int note_iocbs(const struct io_submit *call)
{
	struct io_submit walk;

	if (!config.throttle_enabled || !call)
		return 0;
	walk = *call;
	walk.context = context_of(walk.ring);
	if (walk.context)
		bpf_loop(1 << IOCB_BITS, note_next_iocb, &walk, 0);
	return 0;
}

/* An io_submit is entered. */
static __always_inline void aio_submitted(struct pt_regs *regs, __u64 entered)
{
	struct io_submit call = {
	    .entered = entered,
	    .ring = BPF_CORE_READ(regs, di),
	    .left = BPF_CORE_READ(regs, si),
	    .iocbs = BPF_CORE_READ(regs, dx),
	};

	note_iocbs(&call);
}

/* struct io_event of the UAPI: the application's data, the address of its iocb, and two results. */
#define AIO_EVENT_BYTES 32

/* The results that an io_getevents returns. */
struct fetched {
	__u64 now;
	__u64 event;
	__u32 left;
	/* The index of the call. */
	__u32 waiter;
};

static long count_fetched(__u32 i, struct fetched *fetched)
{
	struct wire_place *operation;
	__u64 words[2] = {};
	__u32 number;

	if (!fetched->left || over)
		return 1;
	fetched->left--;
	bpf_probe_read_user(words, sizeof(words), (const void *)fetched->event);
	fetched->event += AIO_EVENT_BYTES;
	number = op_find(aio_key(words[1], words[0], current_process()));
	operation = op_numbered(number);
	if (!operation)
		return 0;
	op_fetch_result(operation, number);
	if (operation->parts && running)
		op_count(operation, fetched->now, number, fetched->waiter);
	else
		operation->state = OPERATION_FREE;
	return 0;
}

/* An io_getevents returns this many results. */
static __always_inline void aio_returned(struct caller *caller, long results)
{
	struct fetched fetched = {};

	if (results > 0) {
		fetched.now = bpf_ktime_get_ns();
		fetched.event = caller->results;
		fetched.left = results;
		fetched.waiter = call_place(caller->tid);
		bpf_loop(MOST_RESULTS, count_fetched, &fetched, 0);
	}
	caller->results = 0;
}

#endif
