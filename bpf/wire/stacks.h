/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What crosses the line of stacks: samples of CPUs, and stacks of the current task. Included by
 * wire.h alone. */
#ifndef BIOPSY_WIRE_STACKS_H
#define BIOPSY_WIRE_STACKS_H

/* The kernel's own default limit (kernel.perf_event_max_stack). */
#define STACK_FRAMES 127

enum stack_flags {
	STACK_KTHREAD = 1,	 /* the task is a kernel thread: no user stack was asked for */
	STACK_KERNEL_FAILED = 2, /* no kernel stack, although there may be one */
	STACK_USER_FAILED = 4,	 /* no user stack, although the task has a user side */
	STACK_WORK = 8,		 /* of a worker of a workqueue: WORK_FRAMES hold what it works on */
};

/* In place of a user's frames: a name that ends in zeros. */
#define WORK_FRAMES 4

/*
 * Head of one sample. kernel_frames, then user_frames addresses of 8 bytes follow, each leaf
 * first. A sample without kernel frames and without STACK_KERNEL_FAILED was taken in user mode.
 */
struct wire_stack_sample {
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
_Static_assert(sizeof(struct wire_stack_sample) == 48, "wire_stack_sample");

/* What the sampler is told. */
struct stack_config {
	/* Only tasks of these groups. */
	__u32 cgroups_enabled;
	/* Groups are those of v2. */
	__u32 unified_cgroups;
};

/* Samples that user space will never see. */
struct wire_stack_counters {
	__u64 ring_full;  /* no room in the ring buffer (or its lock was taken, in an NMI) */
	__u64 no_scratch; /* never: the lookup of an existing array slot failed */
};
_Static_assert(sizeof(struct wire_stack_counters) == 16, "wire_stack_counters");

/* What the stacks of waits on one CPU may cost. Only that one writes it. */
struct wire_budget {
	/* What they took. */
	__u64 stack_ns;
	/* Waits below it are sampled in proportion to their length; 0: none are left out. */
	__u64 threshold;
	/* That it ever was. */
	__u64 most_threshold;
	__u64 period_began;
	/* What they took in the period, when the threshold may go up at once, and when in the
	   period that came last. */
	__u64 period_ns;
	__u32 raise_at;
	__u32 raised;
};
_Static_assert(sizeof(struct wire_budget) == 48, "wire_budget");

/* Both sides of a task's stack. */
struct wire_task_stack {
	__u32 kernel_frames;
	__u32 user_frames;
	char comm[16]; /* written by strangers: any bytes */
	/* The kernel's, then the user's, each leaf first. */
	__u64 ips[2 * STACK_FRAMES];
};
_Static_assert(sizeof(struct wire_task_stack) == 24 + 16 * STACK_FRAMES, "wire_task_stack");

struct wire_stack_key {
	/* Of all frames and of the thread's name: two sums of the same, which do not collide both.
	 */
	__u64 hash[2];
	__u32 pid;
	/* enum stack_flags, and those of who takes the stack. */
	__u32 flags;
};
_Static_assert(sizeof(struct wire_stack_key) == 24, "wire_stack_key");

/* Who hands I/Os in: what a submitter's `stack` is the number of. */
struct wire_submit_stack {
	__u32 number;
	__u32 pad;
	struct wire_task_stack stack;
};
_Static_assert(sizeof(struct wire_submit_stack) == 32 + 16 * STACK_FRAMES, "wire_submit_stack");

/* Of one CPU. Only that one writes it. */
struct wire_submit_row {
	/* Stacks that should have been taken: the table was full, the budget was spent (bios that
	   such would have stood for), or the CPU was about to take another. */
	__u64 full;
	__u64 over;
	__u64 nested;
	__u64 period_began;
	/* What the stacks took in it. */
	__u64 period_ns;
	/* Of the period, when fewer are taken. */
	__u64 raise_at;
	/* The last that was taken: of whose bio, and what its submitter says of it. */
	__u64 bio;
	__u32 stack;
	__u32 stands_for;
	__u32 plugged;
	__u32 took;
	/* Bios until the next. */
	__u32 skip;
	/* One of 1 << one_in is taken. */
	__u32 one_in;
	/* Stacks that this CPU has numbered. */
	__u32 numbered;
	__u32 busy;
	__u32 pad[10];
};
_Static_assert(sizeof(struct wire_submit_row) == 128, "wire_submit_row");

#endif
