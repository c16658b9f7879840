/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Keeps a small stack per CPU of spinning waits: their begins are kept there until they end. */
#ifndef BIOPSY_LOCK_SPINS_H
#define BIOPSY_LOCK_SPINS_H

#include "kernel.h"
#include "compat.h"
#include "wire.h"

struct wait {
	__u64 lock;
	/* 0: the waiting task was filtered out. */
	__u64 began;
	__u32 flags;
	/* Identifies the spinning context. */
	__u32 context;
};

/* Task, softirq, interrupt and NMI, each with a rwlock and the spinlock inside it. */
#define SPINS_DEEP 8

struct spins {
	/* Written last when a wait is added, so that an interrupt sees only complete entries. */
	__u32 depth;
	__u32 pad;
	struct wait at[SPINS_DEEP];
	/* Padding: no CPU writes to another's cache line. */
	__u64 rest[7];
};
_Static_assert(sizeof(struct spins) == 256, "spins");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	/* Begins at a page, and so at a cache line. */
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct spins);
} spins SEC(".maps");

/*
 * Bounds the index where every verifier sees it: 5.10's has forgotten an earlier comparison by
 * then.
 */
static __always_inline struct wait *wait_at(struct spins *waits, __u64 depth)
{
	asm volatile("" : "+r"(depth));
	return &waits->at[depth & (SPINS_DEEP - 1)];
}

/*
 * Identifies a thread between two of its context switches: a spinning task is not switched out. Two
 * are equal by chance once in 2^32.
 */
static __always_inline __u32 context_of(__u32 tid, __u64 switches)
{
	return tid * 0x9e3779b1u ^ (__u32)switches;
}

/*
 * The context of the current task: first for programs that may dereference its pointer, then for
 * the others.
 */
static __always_inline __u32 current_context(void)
{
	struct task_struct *task = bpf_get_current_task_btf();

	return context_of(bpf_get_current_pid_tgid(), task->nvcsw + task->nivcsw);
}

static __always_inline __u32 read_current_context(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();

	return context_of(bpf_get_current_pid_tgid(),
			  BPF_CORE_READ(task, nvcsw) + BPF_CORE_READ(task, nivcsw));
}

/*
 * Drops waits of another context, which cannot be going on any more. Their ends were missed, as the
 * kernel does not run a program for code that interrupts that program. Otherwise each would be
 * taken for the begin of a much later wait.
 */
static __always_inline __u32 drop_ended(struct wire_lock_cpu *row, struct spins *waits, __u32 depth,
					__u32 context)
{
	for (int i = 0; i < SPINS_DEEP; i++) {
		if (!depth || wait_at(waits, depth - 1)->context == context)
			break;
		row->abandoned++;
		depth--;
	}
	return depth;
}

static __always_inline void begin_spin(struct wire_lock_cpu *row, __u32 cpu, __u64 lock,
				       __u32 flags, int selected, __u32 context)
{
	struct spins *waits = bpf_map_lookup_elem(&spins, &cpu);
	struct wait *wait;
	__u32 depth;

	if (!waits)
		return;
	depth = drop_ended(row, waits, waits->depth, context);
	/* Waits never nest so deeply: ends were missed. */
	if (unlikely(depth >= SPINS_DEEP)) {
		row->abandoned += SPINS_DEEP;
		depth = 0;
	}
	/* Nor does a CPU wait for a lock that it is waiting for already. */
	wait = wait_at(waits, depth - 1);
	if (depth && unlikely(wait->lock == lock)) {
		row->abandoned++;
		depth--;
	}
	wait = wait_at(waits, depth);
	wait->lock = lock;
	wait->flags = flags;
	wait->context = context;
	wait->began = selected ? bpf_ktime_get_ns() : 0;
	barrier();
	*(volatile __u32 *)&waits->depth = depth + 1;
}

/* Removes the topmost wait for this lock. Waits on top of it have missed their ends. */
static __always_inline int end_spin(struct wire_lock_cpu *row, __u32 cpu, __u64 lock, int any,
				    __u32 context, struct wait *out)
{
	struct spins *waits = bpf_map_lookup_elem(&spins, &cpu);
	__u32 depth;

	if (!waits)
		return 0;
	depth = *(volatile __u32 *)&waits->depth;
	for (__u32 i = 0; i < SPINS_DEEP; i++) {
		__u32 at = depth - 1 - i;
		struct wait *wait;

		if (i >= depth)
			break;
		wait = wait_at(waits, at);
		/* Of another context: the next begin removes it, or this context's end does. */
		if (wait->context != context || (!any && wait->lock != lock))
			continue;
		*out = *wait;
		barrier();
		*(volatile __u32 *)&waits->depth = at;
		row->abandoned += i;
		return 1;
	}
	return 0;
}

#endif
