/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What crosses the line of time by stack: of blocked tasks, and of reclaim. Included by wire.h
 * alone. */
#ifndef BIOPSY_WIRE_BLOCKED_H
#define BIOPSY_WIRE_BLOCKED_H

/* Beside those of enum stack_flags: what kind of wait it was. */
enum wire_wait_flags {
	/* The kernel counts the task as one that waits for I/O (in_iowait). */
	WAIT_IO = 16,
	/* No signal wakes it (state D), and it is no idle kernel thread. */
	WAIT_UNINTERRUPTIBLE = 32,
	/* There is a user's side, and it was not taken. */
	WAIT_NO_USER = 64,
	/* Of reclaim: enum wire_reclaim_kind + 1, from this bit on. */
	WAIT_RECLAIM_SHIFT = 8,
};

/* Written once, between open and load. */
struct wire_waits_config {
	/* Rows of one program. */
	__u32 cpus;
	/* FILTER_*. */
	__u32 filter_enabled;
	/* Groups are those of v2. */
	__u32 unified_cgroups;
	/* Only waits for I/O. */
	__u32 io_enabled;
	/* Our own threads as well. */
	__u32 own_process_enabled;
	/* The fourth argument of sched_switch is the state in which the task leaves (5.18). */
	__u32 has_state;
	/* Shorter ones have no stacks. */
	__u64 least_ns;
	/* What the stacks of a CPU may take of each period. */
	__u64 budget_ns;
	__u64 period_ns;
};
_Static_assert(sizeof(struct wire_waits_config) == 48, "wire_waits_config");

/* Waits of one kind, ended. */
struct wire_sum {
	__u64 count;
	__u64 ns;
};
_Static_assert(sizeof(struct wire_sum) == 16, "wire_sum");

/* Of one program on one CPU. Only that one writes it. */
struct wire_waits_row {
	/* All that were asked for, with a stack or without. */
	struct wire_sum all;
	/* Of those: of I/O by the kernel's mark; of the others those that no signal ends. */
	struct wire_sum io;
	struct wire_sum uninterruptible;
	/* Shorter than what may have a stack. */
	struct wire_sum brief;
	/* That should have had a stack and have none, or for which such ones stand. */
	struct wire_sum bare;
	/* Whose begin lies before the window, where that was seen. */
	struct wire_sum before;
	/* Behind a wait: until the task that was woken got a CPU. */
	__u64 queued_ns;
	/* Events, and those that were not of whom was asked for. */
	__u64 events;
	__u64 filtered;
	/* Tasks that found no room in the table of those that sleep, each time. */
	__u64 unkept;
	/* Of reclaim: ends without a begin. Of tasks: ends that had no event, and are known from
	   the account of the task; of the look at the end: waits that ended before it came. */
	__u64 unmatched;
	/* Stacks taken, and why those that stand in no row do not. */
	__u64 stacks;
	__u64 full;
	__u64 over;
	struct wire_budget budget;
	/* Waits whose process found no room in its table. */
	__u64 unnamed;
	/* Stacks for which no interrupt came: without a user's side, or without both. */
	__u64 uninterrupted;
	/* A wait whose stack is to come: whose (0: none), its kind, how long it was, how likely it
	   was to be taken in parts of 2^32 (0: it was sure), and when it ended. */
	__u32 half_tid;
	__u32 half_flags;
	__u64 half_took;
	__u64 half_ended;
	__u32 half_chance;
	/* How many in a row have had no interrupt. */
	__u32 half_lost;
	/* The clock of events less that of the scheduler, at most, and when that was seen. */
	__u64 ahead;
	__u64 ahead_at;
	__u64 pad[6];
};
_Static_assert(sizeof(struct wire_waits_row) == 320, "wire_waits_row");

/* What waits of one kind add up to. */
struct wire_waits_sum {
	/* Estimates where waits were left out; waits in 256ths. */
	__u64 waits;
	__u64 ns;
	/* Of the time: waits that were sure to have a stack, which is no estimate. */
	__u64 sure_ns;
	/* How far `ns` may be off: the variance of a sum in which a wait has its chance, the sum of
	   (1 - chance) times what it stands for squared, in units of 2^20 ns^2. */
	__u64 squares;
	/* Waits that are in it. */
	__u64 samples;
};
_Static_assert(sizeof(struct wire_waits_sum) == 40, "wire_waits_sum");

/* One way to wait. */
struct wire_wait_stack {
	struct wire_waits_sum sum;
	struct wire_task_stack stack;
};
_Static_assert(sizeof(struct wire_wait_stack) == 64 + 16 * STACK_FRAMES, "wire_wait_stack");

/* Threads of one name in a process. */
struct wire_wait_process {
	__u32 pid;
	char comm[16];
};
_Static_assert(sizeof(struct wire_wait_process) == 20, "wire_wait_process");

/* Their waits. */
struct wire_waiter {
	/* Exactly: those that may have stacks. */
	struct wire_sum all;
	/* Of these: that should have one and have none. */
	struct wire_waits_sum bare;
};
_Static_assert(sizeof(struct wire_waiter) == 56, "wire_waiter");

/* What a thread was in when it left its CPU. */
struct wire_sleeper {
	/* When; 0: it runs, or nobody asks. */
	__u64 began;
	/* How long it had waited for CPUs until then, and been on them, all in all. */
	__u64 run_delay;
	__u64 ran;
	/* Its waits that have ended and may have had a stack. */
	struct wire_sum all;
	/* enum wire_sleeper_flags, with the flags of its wait. */
	__u32 flags;
	/* Whose thread it is, and what that was called when it was first seen. */
	struct wire_wait_process process;
};
_Static_assert(sizeof(struct wire_sleeper) == 64, "wire_sleeper");

enum wire_sleeper_flags {
	/* It slept already when the window began. */
	SLEEPER_BEFORE = 1 << 16,
};

/* Who sleeps at the end of the window: a record of its own, since its user's side can be read only
 * from outside. */
struct wire_asleep {
	/* The stack that its wait was added to, without a user's side. */
	struct wire_stack_key key;
	__u64 took;
	/* Where it entered the kernel. */
	__u64 ip;
	__u64 sp;
	__u64 bp;
	/* How often it has left a CPU so far, by itself or not. */
	__u64 switches;
	__u32 tid;
	__u32 pad;
};
_Static_assert(sizeof(struct wire_asleep) == 72, "wire_asleep");

#endif
