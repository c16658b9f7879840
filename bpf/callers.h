/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Tasks within system calls that can carry I/O, found by thread id or by their kernel stack.
 */
#ifndef BIOPSY_CALLERS_H
#define BIOPSY_CALLERS_H

#include "compat.h"
#include "parts.h"
#include "wire.h"

/* Two thread ids of one place take turns: the second is not followed while the first is inside. */
#define CALLER_BITS 14

struct caller {
	__u32 tid;
	__u8 kind;
	/* It has submitted a bio to a bio-based device that is traced. */
	__u8 layered;
	/* Requests that finished for the system call it is in. */
	__u16 parts;
	__u64 entered;
	union {
		struct {
			/* io_uring: the last request that this call submitted, and the first of
			 * those whose result it has not returned with, or that a thread of the
			 * generator has not looked at; numbers of `operations` + 1. */
			__u16 current;
			__u16 pending;
			/* The ring that it waits on: a number of `rings` + 1. */
			__u32 ring;
		};
		/* io_getevents: where the application wants its results. */
		__u64 results;
	};
	struct wire_stamps stamps;
};
_Static_assert(sizeof(struct caller) == 64, "caller");

MAPPED_ARRAY(callers, struct caller, 1 << CALLER_BITS);

/*
 * Whose kernel stack it is: thread ids by the stack's address. A bio that a task waits for lies on
 * its stack, or points there; so a bio that comes late, from the throttling worker, finds its call.
 */
#define STACK_BITS	   14
#define KERNEL_STACK_SHIFT 14

MAPPED_ARRAY(stack_owners, __u32, 1);

static __always_inline struct caller *caller_at(__u32 tid)
{
	__u32 index = tid & ((1 << CALLER_BITS) - 1);

	return bpf_map_lookup_elem(&callers, &index);
}

/* The system call that the current task is in, where that can carry I/O. */
static __always_inline struct caller *current_caller(void)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct caller *caller = caller_at(tid);

	return caller && caller->tid == tid && caller->kind ? caller : 0;
}

/* The call that a thread was in at this entry; NULL: it has returned since. */
static __always_inline struct caller *call_entered_at(__u32 tid, __u64 generation)
{
	struct caller *caller = caller_at(tid);

	return caller && caller->tid == tid && caller->entered == generation ? caller : 0;
}

/* The calls' places in `operation_parts`, which are the last ones, behind the operations'. */
static __always_inline __u32 call_place(__u32 tid)
{
	return (1 << FACTS_BITS) - (1 << CALLER_BITS) + (tid & ((1 << CALLER_BITS) - 1));
}

static __always_inline __u32 *stack_owner(__u32 low)
{
	__u32 index = ((low >> KERNEL_STACK_SHIFT) * 0x9e3779b1u) >> (32 - STACK_BITS);

	return bpf_map_lookup_elem(&stack_owners, &index);
}

/* All of the address: the lower half of many a bio's, elsewhere in memory, is that of a stack, too.
 */
static __always_inline int is_same_stack(__u64 one, __u64 other)
{
	return one >> KERNEL_STACK_SHIFT == other >> KERNEL_STACK_SHIFT;
}

/* The call whose task has this address on its kernel stack. */
static __always_inline struct caller *call_on_stack(__u64 address)
{
	__u32 low = low_half((const void *)address);
	__u32 *tid = stack_owner(low);
	struct caller *caller = tid ? caller_at(*tid) : 0;
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
	struct caller *caller = caller_at(tid);
	struct operation_parts *parts;

	if (!stack || !caller || caller->tid != tid || caller->kind != CALL_WAITS)
		return 0;
	parts = operation_parts_at(call_place(tid));
	/* What is no task has no such stack. */
	return parts && is_same_stack(parts->stack, stack) ? caller : 0;
}

/* A bio that the throttling worker brings, of a call that waits for it. */
static __noinline struct caller *throttled_call(__u64 bio, __u64 private, __u64 iocb)
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

#endif
