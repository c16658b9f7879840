/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Tracks tasks inside system calls that can do I/O, indexed by thread id or by kernel stack. */
#ifndef BIOPSY_CALLERS_H
#define BIOPSY_CALLERS_H

#include "compat.h"
#include "parts.h"
#include "wire.h"

/*
 * Thread ids with the same index share an entry: a second thread is not followed while the first is
 * inside a call.
 */
#define CALLER_BITS 14

struct caller {
	__u32 tid;
	__u8 kind;
	/* It has submitted a bio to a traced bio-based device. */
	__u8 layered;
	/* Requests that finished for the current system call. */
	__u16 parts;
	__u64 entered;
	union {
		struct {
			/* io_uring: the last request that this call submitted, and the head of the
			 * list of requests whose results it has not returned yet, or which a thread
			 * of the generator has not polled for. Indexes of `operations`, + 1. */
			__u16 current;
			__u16 pending;
			/* The ring that it waits on: an index of `rings`, + 1. */
			__u32 ring;
		};
		/* io_getevents: address of the application's array of results. */
		__u64 results;
	};
	struct wire_stamps stamps;
};
_Static_assert(sizeof(struct caller) == 64, "caller");

MAPPED_ARRAY(callers, struct caller, 1 << CALLER_BITS);

/*
 * Maps kernel stacks to thread ids. A bio that a task waits for is on the task's stack, or points
 * there, so that a bio submitted late, by the throttling worker, leads to its call.
 */
#define STACK_BITS	   14
#define KERNEL_STACK_SHIFT 14

MAPPED_ARRAY(stack_owners, __u32, 1);

static __always_inline struct caller *caller_at(__u32 tid)
{
	__u32 index = tid & ((1 << CALLER_BITS) - 1);

	return bpf_map_lookup_elem(&callers, &index);
}

/* The system call that the current task is in, if it can do I/O. */
static __always_inline struct caller *current_caller(void)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct caller *caller = caller_at(tid);

	return caller && caller->tid == tid && caller->kind ? caller : 0;
}

/* The call that a thread entered at this time; NULL: it has returned. */
static __always_inline struct caller *call_entered_at(__u32 tid, __u64 generation)
{
	struct caller *caller = caller_at(tid);

	return caller && caller->tid == tid && caller->entered == generation ? caller : 0;
}

/* Index of a call in `operation_parts`: calls come after the operations. */
static __always_inline __u32 call_place(__u32 tid)
{
	return (1 << FACTS_BITS) - (1 << CALLER_BITS) + (tid & ((1 << CALLER_BITS) - 1));
}

static __always_inline __u32 *stack_owner(__u32 low)
{
	__u32 index = ((low >> KERNEL_STACK_SHIFT) * 0x9e3779b1u) >> (32 - STACK_BITS);

	return bpf_map_lookup_elem(&stack_owners, &index);
}

/*
 * Compares whole addresses: the low half of many a bio's address, elsewhere in memory, equals that
 * of a stack.
 */
static __always_inline int is_same_stack(__u64 one, __u64 other)
{
	return one >> KERNEL_STACK_SHIFT == other >> KERNEL_STACK_SHIFT;
}

/* The call of the task whose kernel stack contains this address. */
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
 * The blocking call of a task, if this is the task's address. A multi-bio direct I/O on a block
 * device begins with the waiting task if the call blocks, and with its kiocb if it does not.
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
	/* If the address is not a task's, the stack does not match. */
	return parts && is_same_stack(parts->stack, stack) ? caller : 0;
}

/* The blocking call of a bio that the throttling worker submits. */
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
