/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Takes the kernel and user stack of the current task, and hashes them into the key that identifies
 * equal stacks. No stack-id map is used: its ids collide, and a collision loses or mixes up stacks.
 */
#ifndef BIOPSY_TASK_STACK_H
#define BIOPSY_TASK_STACK_H

#include "kernel.h"
#include "compat.h"
#include "wire.h"
#include "work.h"

#define STACK_BYTES (STACK_FRAMES * sizeof(__u64))

/* Takes both stacks. Returns enum stack_flags. */
static __always_inline __u32 take_task_stack(void *ctx, struct task_struct *task,
					     struct wire_task_stack *stack)
{
	long kernel, user = 0;
	__u32 flags = 0;

	kernel = bpf_get_stack(ctx, stack->ips, STACK_BYTES, 0);
	if (kernel < 0) {
		flags |= STACK_KERNEL_FAILED;
		kernel = 0;
	}
	if (has_no_user_side(BPF_CORE_READ(task, flags))) {
		flags |= STACK_KTHREAD;
		user = name_work(task, (void *)stack->ips + kernel) * sizeof(__u64);
		if (user)
			flags |= STACK_WORK;
	} else {
		user =
		    bpf_get_stack(ctx, (void *)stack->ips + kernel, STACK_BYTES, BPF_F_USER_STACK);
		if (user < 0) {
			flags |= STACK_USER_FAILED;
			user = 0;
		}
	}
	stack->kernel_frames = kernel / sizeof(__u64);
	stack->user_frames = user / sizeof(__u64);
	bpf_get_current_comm(stack->comm, sizeof(stack->comm));
	return flags;
}

static __always_inline void hash_task_stack(const struct wire_task_stack *stack,
					    struct wire_stack_key *key)
{
	const __u64 *name = (const __u64 *)stack->comm;
	__u64 one, two;
	__u32 frames;

	/* Reloaded from memory, so that the verifier knows nothing about it and merges all paths
	 * that lead here: the loop of 254 rounds is otherwise walked for each path. */
	barrier();
	frames = stack->kernel_frames + stack->user_frames;
	one = (name[0] + frames) * 0x9e3779b97f4a7c15ull;
	two = (name[1] ^ stack->kernel_frames) * 0xc2b2ae3d27d4eb4full;
	for (__u32 i = 0; i < 2 * STACK_FRAMES; i++) {
		if (i >= frames)
			break;
		one = (one ^ stack->ips[i]) * 0x9e3779b97f4a7c15ull;
		one ^= one >> 29;
		two = (two + stack->ips[i]) * 0xc2b2ae3d27d4eb4full;
		two ^= two >> 31;
	}
	key->hash[0] = one;
	key->hash[1] = two;
}

#endif
