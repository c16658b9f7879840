/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Every struct that crosses from the kernel side to user space. Mirror: src/wire.rs. */
#ifndef WIRE_H
#define WIRE_H

/* ---- stacks (mirror: src/wire/stacks.rs) ---- */

/* The kernel's own default limit (kernel.perf_event_max_stack). */
#define STACK_FRAMES 127

enum stack_flags {
	STACK_KTHREAD = 1,	 /* the task is a kernel thread: no user stack was asked for */
	STACK_KERNEL_FAILED = 2, /* no kernel stack, although there may be one */
	STACK_USER_FAILED = 4,	 /* no user stack, although the task has a user side */
};

/*
 * Head of one sample. kernel_frames, then user_frames addresses of 8 bytes follow, each leaf
 * first. A sample without kernel frames and without STACK_KERNEL_FAILED was taken in user mode.
 */
struct stack_sample {
	__u32 pid; /* thread group; 0: the idle task */
	__u32 tid;
	__u32 cpu;
	__u32 flags;
	__u64 period; /* what the sample stands for: ns of cpu-clock, or cycles */
	__u16 kernel_frames;
	__u16 user_frames;
	__u32 pad;
	char comm[16]; /* written by strangers: any bytes */
};
_Static_assert(sizeof(struct stack_sample) == 48, "src/wire/stacks.rs mirrors it");

/* Samples that user space will never see. */
struct stack_counters {
	__u64 ring_full;  /* no room in the ring buffer (or its lock was taken, in an NMI) */
	__u64 no_scratch; /* never: the lookup of an existing array slot failed */
};
_Static_assert(sizeof(struct stack_counters) == 16, "src/wire/stacks.rs mirrors it");

/* ---- end of stacks ---- */

#endif
