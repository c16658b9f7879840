/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Declares the records of blocked time and of memory reclaim by stack. Included by wire.h alone. */
#ifndef BIOPSY_WIRE_BLOCKED_H
#define BIOPSY_WIRE_BLOCKED_H

/* Kinds of waits, in the same word as enum stack_flags. */
enum wire_wait_flags {
	/* The kernel counts the task as waiting for I/O (in_iowait). */
	WAIT_IO = 16,
	/* No signal wakes it (state D), and it is not an idle kernel thread. */
	WAIT_UNINTERRUPTIBLE = 32,
	/* The task has a user stack, which was not taken. */
	WAIT_NO_USER = 64,
	/* Reclaim: enum wire_reclaim_kind + 1, from this bit on. */
	WAIT_RECLAIM_SHIFT = 8,
};

/* Written once, between open and load. */
struct wire_waits_config {
	/* Rows per program. */
	__u32 cpus;
	/* FILTER_*. */
	__u32 filter_enabled;
	/* Cgroups are those of v2. */
	__u32 unified_cgroups;
	/* Record only waits for I/O. */
	__u32 io_enabled;
	/* Record biopsy's own threads as well. */
	__u32 own_process_enabled;
	/* The fourth argument of sched_switch is the state in which the task is switched out (since
	 * 5.18). */
	__u32 has_state;
	/* Shorter waits have no stacks. */
	__u64 least_ns;
	/* Time that stacks may take on each CPU in each period. */
	__u64 budget_ns;
	__u64 period_ns;
};
_Static_assert(sizeof(struct wire_waits_config) == 48, "wire_waits_config");

/* Completed waits of one kind. */
struct wire_sum {
	__u64 count;
	__u64 ns;
};
_Static_assert(sizeof(struct wire_sum) == 16, "wire_sum");

/* Counters of one program on one CPU. Only that CPU writes them. */
struct wire_waits_row {
	/* All selected waits, with or without a stack. */
	struct wire_sum all;
	/* Of `all`: waits for I/O as the kernel marks them; and of the others, uninterruptible
	 * ones. */
	struct wire_sum io;
	struct wire_sum uninterruptible;
	/* Waits shorter than `least_ns`, which have no stacks. */
	struct wire_sum brief;
	/* Waits that should have a stack and have none, or that such waits are scaled up to. */
	struct wire_sum bare;
	/* Waits that began before the interval, where that was observed. */
	struct wire_sum before;
	/* Run-queue delay after a wait: from the wakeup until the task got a CPU. */
	__u64 queued_ns;
	/* Events, and events of tasks that were filtered out. */
	__u64 events;
	__u64 filtered;
	/* How often a task had no room in the table of sleeping tasks. */
	__u64 unkept;
	/* Reclaim: ends without a begin. Tasks: ends without an event, known from the task's
	 * scheduler statistics; final scan: waits that ended before it reached them. */
	__u64 unmatched;
	/* Stacks taken, and reasons why stacks are in no row. */
	__u64 stacks;
	__u64 full;
	__u64 over;
	struct wire_budget budget;
	/* Waits whose process had no room in the process table. */
	__u64 unnamed;
	/* Stacks whose interrupt did not arrive: the user stack, or both stacks, are missing. */
	__u64 uninterrupted;
	/* A wait whose stack is pending: thread (0: none), kind, length, sampling probability in
	 * units of 2^-32 (0: certain), and end time. */
	__u32 half_tid;
	__u32 half_flags;
	__u64 half_took;
	__u64 half_ended;
	__u32 half_chance;
	/* How many in a row had no interrupt. */
	__u32 half_lost;
	/* The largest observed lead of the event clock over the scheduler's clock, and when it was
	 * observed. */
	__u64 ahead;
	__u64 ahead_at;
	__u64 pad[6];
};
_Static_assert(sizeof(struct wire_waits_row) == 320, "wire_waits_row");

/* Sums over waits of one kind. */
struct wire_waits_sum {
	/* Estimates if waits were sampled; waits are in units of 1/256. */
	__u64 waits;
	__u64 ns;
	/* Of `ns`: waits that were certain to have a stack; this is not an estimate. */
	__u64 sure_ns;
	/* Variance of `ns` under sampling: the sum of (1 - probability) times the squared scaled-up
	 * length of each sampled wait, in units of 2^20 ns^2. */
	__u64 squares;
	/* Number of sampled waits in the sums. */
	__u64 samples;
};
_Static_assert(sizeof(struct wire_waits_sum) == 40, "wire_waits_sum");

/* Waits with one stack. */
struct wire_wait_stack {
	struct wire_waits_sum sum;
	struct wire_task_stack stack;
};
_Static_assert(sizeof(struct wire_wait_stack) == 64 + 16 * STACK_FRAMES, "wire_wait_stack");

/* Threads of the same name in one process. */
struct wire_wait_process {
	__u32 pid;
	char comm[16];
};
_Static_assert(sizeof(struct wire_wait_process) == 20, "wire_wait_process");

/* Waits of such threads. */
struct wire_waiter {
	/* Exact: all waits that may have stacks. */
	struct wire_sum all;
	/* Of `all`: waits that should have a stack and have none. */
	struct wire_waits_sum bare;
};
_Static_assert(sizeof(struct wire_waiter) == 56, "wire_waiter");

/* State of a thread when it was switched out. */
struct wire_sleeper {
	/* When; 0: it is running, or is not recorded. */
	__u64 began;
	/* Its cumulative run-queue delay and CPU time until then. */
	__u64 run_delay;
	__u64 ran;
	/* Its completed waits that may have had a stack. */
	struct wire_sum all;
	/* enum wire_sleeper_flags, and the flags of the wait. */
	__u32 flags;
	/* Its process, and its name when first observed. */
	struct wire_wait_process process;
};
_Static_assert(sizeof(struct wire_sleeper) == 64, "wire_sleeper");

enum wire_sleeper_flags {
	/* It was already asleep when the interval began. */
	SLEEPER_BEFORE = 1 << 16,
};

/*
 * A thread asleep at the end of the interval. It has its own record because its user stack can only
 * be read from another process.
 */
struct wire_asleep {
	/* The stack that its wait was added to, without the user stack. */
	struct wire_stack_key key;
	__u64 took;
	/* User registers at kernel entry. */
	__u64 ip;
	__u64 sp;
	__u64 bp;
	/* Its context switches so far, voluntary or not. */
	__u64 switches;
	__u32 tid;
	__u32 pad;
};
_Static_assert(sizeof(struct wire_asleep) == 72, "wire_asleep");

#endif
