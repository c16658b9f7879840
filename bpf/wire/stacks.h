/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Declares the records of stacks: samples of CPUs, and stacks of the current task. Included by
 * wire.h alone.
 */
#ifndef BIOPSY_WIRE_STACKS_H
#define BIOPSY_WIRE_STACKS_H

/* The kernel's own default limit (kernel.perf_event_max_stack). */
#define STACK_FRAMES 127

enum stack_flags {
	STACK_KTHREAD = 1,	 /* the task is a kernel thread: no user stack was requested */
	STACK_KERNEL_FAILED = 2, /* no kernel stack, although there may be one */
	STACK_USER_FAILED = 4,	 /* no user stack, although the task has a user side */
	STACK_WORK = 8,		 /* of a workqueue worker: WORK_FRAMES hold the name of its work */
};

/* Frames that hold a zero-padded name in place of user frames. */
#define WORK_FRAMES 4

/*
 * Header of one sample. It is followed by kernel_frames and then user_frames addresses of 8 bytes,
 * each leaf first. A sample without kernel frames and without STACK_KERNEL_FAILED was taken in user
 * mode.
 */
struct wire_stack_sample {
	__u32 pid; /* thread group; 0: the idle task */
	__u32 tid;
	__u32 cpu;
	__u32 flags;
	__u64 period; /* weight of the sample: ns of cpu-clock, or cycles */
	__u16 kernel_frames;
	__u16 user_frames;
	__u32 pad;
	char comm[16]; /* untrusted: any bytes */
};
_Static_assert(sizeof(struct wire_stack_sample) == 48, "wire_stack_sample");

/* Configuration of the sampler. */
struct stack_config {
	/* Sample only tasks of these cgroups. */
	__u32 cgroups_enabled;
	/* Cgroups are those of v2. */
	__u32 unified_cgroups;
};

/* Samples that user space never receives. */
struct wire_stack_counters {
	__u64 ring_full;  /* no room in the ring buffer (or its lock was taken, in an NMI) */
	__u64 no_scratch; /* never: the lookup of an existing array slot failed */
};
_Static_assert(sizeof(struct wire_stack_counters) == 16, "wire_stack_counters");

/* Budget for stacks of waits on one CPU. Only that CPU writes it. */
struct wire_budget {
	/* Time that stacks have taken. */
	__u64 stack_ns;
	/* Shorter waits are sampled in proportion to their length; 0: all waits have a stack. */
	__u64 threshold;
	/* The highest threshold so far. */
	__u64 most_threshold;
	__u64 period_began;
	/* Stack time spent in the current period; the spent time at which the threshold may be
	 * raised early; and when in the period it was raised last. */
	__u64 period_ns;
	__u32 raise_at;
	__u32 raised;
};
_Static_assert(sizeof(struct wire_budget) == 48, "wire_budget");

/* Kernel and user stack of a task. */
struct wire_task_stack {
	__u32 kernel_frames;
	__u32 user_frames;
	char comm[16]; /* untrusted: any bytes */
	/* Kernel frames, then user frames, each leaf first. */
	__u64 ips[2 * STACK_FRAMES];
};
_Static_assert(sizeof(struct wire_task_stack) == 24 + 16 * STACK_FRAMES, "wire_task_stack");

struct wire_stack_key {
	/* Two different hashes of all frames and of the thread's name, which do not both
	 * collide. */
	__u64 hash[2];
	__u32 pid;
	/* enum stack_flags, and flags of the program that takes the stack. */
	__u32 flags;
};
_Static_assert(sizeof(struct wire_stack_key) == 24, "wire_stack_key");

/* Stack of a submitter; wire_submitter.stack has its number. */
struct wire_submit_stack {
	__u32 number;
	__u32 pad;
	struct wire_task_stack stack;
};
_Static_assert(sizeof(struct wire_submit_stack) == 32 + 16 * STACK_FRAMES, "wire_submit_stack");

/* Counters of one CPU. Only that CPU writes them. */
struct wire_submit_row {
	/* Stacks that were not taken: the table was full, the budget was spent (in bios that they
	 * would have been scaled up to), or the CPU was already taking one. */
	__u64 full;
	__u64 over;
	__u64 nested;
	__u64 period_began;
	/* Time that stacks took in the period. */
	__u64 period_ns;
	/* The value of period_ns at which the sampling rate drops. */
	__u64 raise_at;
	/* The last stack taken: its bio, and the fields of its submitter. */
	__u64 bio;
	__u32 stack;
	__u32 stands_for;
	__u32 plugged;
	__u32 took;
	/* Bios to skip until the next. */
	__u32 skip;
	/* One bio in 1 << one_in has a stack. */
	__u32 one_in;
	/* Number of stacks that this CPU has numbered. */
	__u32 numbered;
	__u32 busy;
	__u32 pad[10];
};
_Static_assert(sizeof(struct wire_submit_row) == 128, "wire_submit_row");

#endif
