/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Follows biopsy's own load generator: its threads report when they submit and when they poll for
 * results. Their operations begin and end with these stamps, not with those of the system calls.
 * For the latency programs, which define `config` before this header.
 *
 * A thread polls after the return of the call that brought a result. So returned operations are
 * kept, and counted in the thread's next followed call, which shows when the thread has polled.
 */
#ifndef BIOPSY_GENERATOR_H
#define BIOPSY_GENERATOR_H

#include "op_table.h"
#include "wire.h"

MAPPED_ARRAY(generators, struct wire_generator, 1);

/* The current task's report, if it is a thread of the generator. */
static __always_inline struct wire_generator *generator_thread(void)
{
	__u64 task = bpf_get_current_pid_tgid();
	__u32 index = (__u32)task & ((1 << GENERATOR_BITS) - 1);
	struct wire_generator *thread;

	if (likely(!config.generator) || task >> 32 != config.generator)
		return 0;
	thread = bpf_map_lookup_elem(&generators, &index);
	return thread && thread->tid == (__u32)task ? thread : 0;
}

/* When a thread began to prepare what a call submits; 0: not reported. */
static __always_inline __u64 submit_began(struct wire_generator *thread)
{
	return *(volatile __u64 *)&thread->handed;
}

/* Walk over the operations whose results a thread has not polled for yet. */
struct looking {
	__u64 looked;
	__u32 next;
	__u32 kept;
	/* The index of the call. */
	__u32 waiter;
	__u32 pad;
};

static long look_at_next(__u32 i, struct looking *looking)
{
	__u32 number = looking->next;
	struct wire_place *operation;

	if (!number)
		return 1;
	operation = op_at(number - 1);
	/* Only its caller modifies an ended operation. */
	if (!operation || operation->state != OPERATION_ENDED) {
		looking->next = 0;
		return 1;
	}
	looking->next = operation->next;
	if (operation->stamps.ended > looking->looked) {
		operation->next = looking->kept;
		looking->kept = number;
		return 0;
	}
	op_count(operation, looking->looked, number, looking->waiter);
	return 0;
}

/*
 * Counts a blocking call. It ended when the thread polled after it; or, if the thread did not poll
 * between two calls, when the first one returned.
 */
VERIFIED_ONCE int count_kept_call(struct caller *caller, struct wire_generator *thread)
{
	__u64 entered, seen;

	if (!config.generator || !caller || !thread)
		return 0;
	entered = thread->entered;
	seen = *(volatile __u64 *)&thread->looked;
	if (seen < thread->returned)
		seen = thread->returned;
	op_count_call(caller, entered, seen);
	thread->entered = 0;
	return 0;
}

/*
 * A thread of the generator enters a call: counts the operations whose results it has polled for.
 * Returns the head of the list of the others, + 1.
 */
static __always_inline __u32 count_looked_at(struct caller *caller, struct wire_generator *thread)
{
	struct looking looking = {};

	if (thread->entered)
		count_kept_call(caller, thread);
	if (!caller->pending)
		return 0;
	looking.looked = *(volatile __u64 *)&thread->looked;
	looking.next = caller->pending;
	looking.waiter = call_place(caller->tid);
	bpf_loop(MOST_RESULTS, look_at_next, &looking, 0);
	return looking.kept;
}

/* A blocking call of a generator thread returns. */
static __always_inline void keep_call(const struct caller *caller, struct wire_generator *thread)
{
	thread->returned = bpf_ktime_get_ns();
	thread->entered = caller->entered;
}

/* Results that other tasks completed, moved to the list of the returning call. */
struct gathered {
	__u32 next;
	__u32 first;
};

static long gather_next(__u32 i, struct gathered *gathered)
{
	__u32 number = gathered->next;
	struct wire_place *operation;

	if (!number)
		return 1;
	operation = op_at(number - 1);
	if (!operation || operation->state != OPERATION_ENDED)
		return 1;
	gathered->next = operation->next;
	operation->next = gathered->first;
	gathered->first = number;
	return 0;
}

#endif
