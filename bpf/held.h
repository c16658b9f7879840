/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What blk-throttle held: its worker brings such a bio long after the call that handed it in, and
 * then it is found again by its iocb or by the kernel stack of the task that waits. For the latency
 * programs, whose `config` must stand before it.
 */
#ifndef BIOPSY_HELD_H
#define BIOPSY_HELD_H

#include "iocbs.h"
#include "operations.h"

/* A bio that a kernel thread brings: its address, and its own word. */
struct brought {
	__u64 bio;
	__u64 private;
};

#ifdef NO_SWAP
static __always_inline __u32 held_operation(const struct brought *brought)
{
	return 0;
}

static __always_inline int is_throttle_worker(void)
{
	return 0;
}

#else
/* The call whose task has this address on its kernel stack. */
static __always_inline struct caller *call_on_stack(__u64 address)
{
	__u32 low = low_half((const void *)address);
	__u32 *tid = stack_owner(low);
	struct caller *caller = tid ? place_of(*tid) : 0;
	struct operation_parts *parts;

	if (!caller || caller->tid != *tid || caller->kind != CALL_WAITS)
		return 0;
	parts = operation_parts_at(call_place(*tid));
	return parts && is_same_stack(parts->stack, address) ? caller : 0;
}

/*
 * The call that a task is in, if this is the address of one that waits. The direct I/O of a block
 * device with several bios begins with the task where a call waits for it, and with its kiocb where
 * none does.
 */
static __always_inline struct caller *call_of_waiter(__u64 address)
{
	struct task_struct *task = (struct task_struct *)address;
	__u32 tid = BPF_CORE_READ(task, pid);
	__u64 stack = (__u64)BPF_CORE_READ(task, stack);
	struct caller *caller = place_of(tid);
	struct operation_parts *parts;

	if (!stack || !caller || caller->tid != tid || caller->kind != CALL_WAITS)
		return 0;
	parts = operation_parts_at(call_place(tid));
	/* What is no task has no such stack. */
	return parts && is_same_stack(parts->stack, stack) ? caller : 0;
}

/* A bio that the throttling worker brings, of a call that waits for it. */
static __noinline struct caller *held_call(__u64 bio, __u64 private, __u64 iocb)
{
	struct caller *caller = call_on_stack(bio);

	if (!caller)
		caller = call_on_stack(private);
	if (!caller)
		caller = call_on_stack(iocb);
	if (!caller && iocb)
		caller = call_of_waiter(iocb);
	return caller;
}

/* The place of the operation, of the call, or of the iocb of a bio that the throttling worker
 * brings, + 1; 0: none is known. */
VERIFIED_ONCE __u32 held_operation(const struct brought *brought)
{
	struct caller *caller;
	__u64 iocb = 0;
	__u32 number;

	if (!config.want_throttle || !brought)
		return 0;
	if (brought->private)
		iocb = word_at((const void *)brought->private);
	else if (has_blkdev_dio())
		iocb = word_at(blkdev_dio_of(brought->bio));
	caller = held_call(brought->bio, brought->private, iocb);
	if (caller)
		return call_place(caller->tid) + 1;
	if (!iocb)
		return 0;
	number = find_operation(iocb);
	if (number)
		return number;
	number = noted_iocb(iocb);
	return number ? iocb_place(number - 1) + 1 : 0;
}

/* Whether the bio that enters the block layer comes from blk-throttle's queue itself: the current
 * task is a worker that has its work from there. */
static __noinline int is_throttle_worker(void)
{
	static const char throttled[] = "kthrotld";
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct kthread *thread;
	struct worker *worker;
	char name[sizeof(throttled)] = {};

	if (!bpf_core_field_exists(task->worker_private) ||
	    !bpf_core_field_exists(struct worker, current_pwq) ||
	    !bpf_core_field_exists(struct kthread, data) ||
	    !(BPF_CORE_READ(task, flags) & PF_WQ_WORKER))
		return 0;
	/* What a driver makes of a bio that was held (dm's clones) was not held itself: it comes
	 * from within the handing in of that one. */
	if (BPF_CORE_READ(task, bio_list))
		return 0;
	thread = BPF_CORE_READ(task, worker_private);
	worker = BPF_CORE_READ(thread, data);
	BPF_CORE_READ_STR_INTO(&name, worker, current_pwq, wq, name);
	for (__u32 i = 0; i < sizeof(throttled); i++)
		if (name[i] != throttled[i])
			return 0;
	return 1;
}

/*
 * Of a bio of an operation: LINK_THROTTLED, if blk-throttle held it, or an earlier one. Where a
 * request of io_uring has to be split, its first bio, which may not wait, ends with EAGAIN when it
 * was held already, and a worker hands in another one: the time since the submission was spent in
 * the throttle all the same.
 */
static __always_inline __u32 held_flag(__u32 number, __u32 flags)
{
	struct operation_parts *parts = operation_parts_at(number - 1);

	if (!parts)
		return flags;
	if (flags & LINK_THROTTLED)
		parts->held = 1;
	return parts->held ? flags | LINK_THROTTLED : flags;
}

/*
 * The time until its last bio came from the throttling worker is no submission. Where a system call
 * that waits handed it in nobody knows: its queue begins at its entry.
 */
static __always_inline void held_back(struct wire_stamps *stamps, __u64 submitted, __u32 place)
{
	struct operation_parts *parts = operation_parts_at(place);

	if (!parts || submitted > stamps->queued)
		return;
	parts->throttled = stamps->queued - submitted;
	stamps->queued = submitted;
}

/* When a request of io_uring was submitted. */
static __always_inline __u64 submission(const struct wire_place *operation, __u32 place)
{
	struct operation_parts *parts = operation_parts_at(place);

	return parts && parts->submitted > operation->entered ? parts->submitted
							      : operation->entered;
}
#endif /* NO_SWAP */

#endif
