/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Takes stacks of completed waits by lock, within a budget, and optionally the waiting threads. For
 * the lock programs, which define `config` before this header.
 */
#ifndef BIOPSY_LOCK_STACKS_H
#define BIOPSY_LOCK_STACKS_H

#include "kernel.h"
#include "compat.h"
#include "wire.h"
#include "work.h"
#include "budget.h"

HASH(lock_stacks, struct wire_lock_stack_key, struct wire_lock_stack, 4096);

/* A separate table, since one user stack leads to many waits. User space sets the size. */
HASH(lock_whos, struct wire_lock_who_key, struct wire_lock_who, 1);

/*
 * Scratch space for a stack; one per CPU. Used only by the programs that end a wait, of which one
 * is loaded, and which the kernel does not run recursively.
 */
struct scratch {
	struct wire_lock_stack_key key;
	struct wire_lock_stack stack;
	struct wire_lock_who who;
};

ARRAY(lock_scratch, struct scratch, 1);

/* Records the waiting thread and its user stack, and puts their hash into the key. */
static __always_inline void take_waiter(void *ctx, struct wire_lock_cpu *row, struct scratch *s)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	const __u64 *name = (const __u64 *)s->who.comm;
	long bytes = 0;
	__u64 hash;

	s->key.who.pid = bpf_get_current_pid_tgid() >> 32;
	s->key.who.flags = 0;
	if (has_no_user_side(BPF_CORE_READ(task, flags))) {
		s->key.who.flags = STACK_KTHREAD;
		bytes = name_work(task, s->who.ips) * sizeof(__u64);
		if (bytes)
			s->key.who.flags |= STACK_WORK;
	} else {
		bytes = bpf_get_stack(ctx, s->who.ips, sizeof(s->who.ips), BPF_F_USER_STACK);
		if (bytes < 0) {
			s->key.who.flags = STACK_USER_FAILED;
			bytes = 0;
		}
	}
	s->who.frames = bytes / sizeof(__u64);
	bpf_get_current_comm(s->who.comm, sizeof(s->who.comm));
	barrier();
	hash = (name[0] + s->who.frames) * 0x9e3779b97f4a7c15ull ^ name[1];
	for (__u32 i = 0; i < STACK_FRAMES; i++) {
		if (i >= s->who.frames)
			break;
		hash = (hash ^ s->who.ips[i]) * 0x9e3779b97f4a7c15ull;
		hash ^= hash >> 29;
	}
	s->key.who.hash = hash | 1;
	if (bpf_map_lookup_elem(&lock_whos, &s->key.who))
		return;
	/* Another CPU may have added it first. */
	if (bpf_map_update_elem(&lock_whos, &s->key.who, &s->who, BPF_NOEXIST) &&
	    !bpf_map_lookup_elem(&lock_whos, &s->key.who)) {
		row->other_waiters++;
		s->key.who.hash = 0;
	}
}

/* Takes the stack of this wait: always if requested, otherwise at random. */
static __always_inline void sample(void *ctx, struct wire_lock_cpu *row, __u32 cpu, __u64 lock,
				   __u64 took, __u64 now, int always)
{
	struct wire_lock_stack *stack;
	__u64 chance, weight, hash;
	struct scratch *s;
	long bytes;

	begin_period(&row->budget, now);
	chance = always ? SURE : chance_of(took, row->budget.threshold);
	if (!is_lucky(chance))
		return;
	weight = weight_of(chance);
	if (unlikely(is_over_budget(&row->budget))) {
		row->stacks_over++;
		return;
	}
	s = bpf_map_lookup_elem(&lock_scratch, &cpu);
	if (!s)
		return;
	bytes = bpf_get_stack(ctx, s->stack.ips, sizeof(s->stack.ips), 0);
	if (bytes <= 0) {
		row->stacks_failed++;
		return;
	}
	s->stack.frames = bytes / sizeof(__u64);
	hash = s->stack.frames;
	for (__u32 i = 0; i < LOCK_STACK_FRAMES; i++) {
		if (i >= s->stack.frames)
			break;
		hash = (hash ^ s->stack.ips[i]) * 0x9e3779b97f4a7c15ull;
		hash ^= hash >> 29;
	}
	s->key.lock = lock;
	s->key.hash = hash;
	if (config.waiters_enabled)
		take_waiter(ctx, row, s);
	stack = bpf_map_lookup_elem(&lock_stacks, &s->key);
	if (!stack) {
		s->stack.contentions = 0;
		s->stack.wait_ns = 0;
		s->stack.samples = 0;
		/* Another CPU may have added it first. */
		bpf_map_update_elem(&lock_stacks, &s->key, &s->stack, BPF_NOEXIST);
		stack = bpf_map_lookup_elem(&lock_stacks, &s->key);
	}
	if (stack) {
		__sync_fetch_and_add(&stack->contentions, weight);
		__sync_fetch_and_add(&stack->wait_ns, took * weight >> 8);
		__sync_fetch_and_add(&stack->samples, 1);
		row->stacks++;
	} else {
		row->stacks_full++;
	}
	spend(&row->budget, now, bpf_ktime_get_ns() - now);
}

#endif
