/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What crosses the line of lock contention. Included by wire.h alone. */
#ifndef BIOPSY_WIRE_LOCKS_H
#define BIOPSY_WIRE_LOCKS_H

/* include/trace/events/lock.h: flags of contention_begin, the same since they came in 5.19. */
#define LOCK_SPIN   1
#define LOCK_READ   2
#define LOCK_WRITE  4
#define LOCK_RT	    8
#define LOCK_PERCPU 16
#define LOCK_MUTEX  32

/* What the flags say the lock is. */
enum wire_lock_kind {
	LOCK_KIND_SPIN,
	LOCK_KIND_RWLOCK,
	LOCK_KIND_MUTEX,
	LOCK_KIND_RWSEM,
	LOCK_KIND_PERCPU_RWSEM,
	LOCK_KIND_RT_MUTEX,
	LOCK_KIND_SEMAPHORE,
	LOCK_KINDS,
};

/* Written once, between open and load. */
struct wire_locks_config {
	__u32 cpus;
	/* FILTER_*. */
	__u32 filter_enabled;
	/* Groups are those of v2. */
	__u32 unified_cgroups;
	/* Stacks are taken. */
	__u32 stacks_enabled;
	/* What the stacks of a CPU may take of each period. */
	__u64 budget_ns;
	__u64 period_ns;
	/* The kernel says who releases a lock that somebody sleeps for. */
	__u32 holders_enabled;
	/* Of stacks also who waits, with the user's side. */
	__u32 waiters_enabled;
};
_Static_assert(sizeof(struct wire_locks_config) == 40, "wire_locks_config");

/* Waits of about the same length: side by side, for CPUs that share a lock write here by turns. */
struct wire_waits {
	__u64 count;
	__u64 sum;
};
_Static_assert(sizeof(struct wire_waits) == 16, "wire_waits");

/* Waits for one lock, or for all of a kind that found no room. */
struct wire_lock {
	__u64 not_min;
	__u64 max;
	/* Of both, without compare-and-swap. */
	__u64 lock;
	/* Of the waits: who gave up, and who wanted to share it. */
	__u64 failed;
	__u64 reads;
	/* Of all its events. */
	__u32 flags;
	__u32 pad;
	struct wire_waits waits[HIST_BUCKETS];
};
_Static_assert(sizeof(struct wire_lock) == 48 + 16 * HIST_BUCKETS, "wire_lock");

/* In the flags of a lock: it has had a wait. */
#define LOCK_SEEN (1u << 31)

/* How many kinds of waits each CPU keeps to itself, and those of how many processes. */
#define LOCK_PLACES	    128
#define LOCK_PROCESS_PLACES 32

/* Waits of about the same length for one lock, on one CPU, that its row does not have yet; a cache
 * line. */
struct wire_lock_recent {
	/* 0: none. */
	__u64 lock;
	__u64 count;
	__u64 sum;
	__u64 not_min;
	__u64 max;
	__u64 failed;
	__u64 reads;
	__u32 flags;
	__u32 bucket;
};
_Static_assert(sizeof(struct wire_lock_recent) == 64, "wire_lock_recent");

/* The same of a process. */
struct wire_lock_recent_process {
	/* + 1; 0: none. */
	__u32 pid;
	__u32 pad;
	__u64 contentions;
	__u64 sum;
	__u64 max;
};
_Static_assert(sizeof(struct wire_lock_recent_process) == 32, "wire_lock_recent_process");

/* What one CPU saw. Only that CPU writes it. */
struct wire_lock_cpu {
	/* Events of the kernel's, by kind; one wait may have several. */
	__u64 begins[LOCK_KINDS];
	/* Of those: of who waited already, and goes on otherwise (spinning first, then asleep). */
	__u64 repeats;
	/* Not of whom was asked for. */
	__u64 filtered;
	/* Waits that ended here, and their time. */
	__u64 contentions;
	__u64 wait_ns;
	__u64 spin_contentions;
	__u64 spin_wait_ns;
	/* Ends whose begin was not seen: before the window, or missed. */
	__u64 unmatched;
	/* Begins whose end was never seen. */
	__u64 abandoned;
	/* Begins that found no place to be kept in. */
	__u64 unkept;
	/* Entries into the slow path of spinlocks, where that can be probed. */
	__u64 slow_calls;
	/* Waits whose lock, or whose process, had no room in the tables. */
	__u64 other_locks;
	__u64 other_processes;
	/* Stacks taken; refused by the kernel; without room; left out since the budget was spent.
	 */
	__u64 stacks;
	__u64 stacks_failed;
	__u64 stacks_full;
	__u64 stacks_over;
	struct wire_budget budget;
	/* Releases whose lock had no room in the table of holders. */
	__u64 other_holders;
	/* Stacks that were taken without who waits, for whom there was no room. */
	__u64 other_waiters;
	__u64 pad;
};
_Static_assert(sizeof(struct wire_lock_cpu) == 256, "wire_lock_cpu");

/*
 * Who had a lock that others slept for. How long is known where somebody was queued all the time,
 * for then no release goes without an event: from the moment at which a waiter got it (exact), or
 * from the moment at which the first one queued up behind whoever had it (at least so long).
 */
struct wire_lock_holder {
	__u64 releases;
	/* Of them: with a known time, and of those with a lower bound alone. */
	__u64 holds;
	__u64 at_least;
	__u64 hold_ns;
	__u64 max_hold_ns;
	/* Of the last release; 0: not known. */
	__u64 last_hold_ns;
	/* Somebody is queued since, without a break; 0: nobody is. */
	__u64 queued_since;
	/* A waiter got it then, and has not released it since; 0: somebody else has it. */
	__u64 got;
	__u32 queued;
	/* It was released since somebody is queued. */
	__u32 released;
	/* Of all its waiters. */
	__u32 flags;
	/* The thread group that released it last. */
	__u32 pid;
	char comm[16]; /* written by strangers: any bytes */
};
_Static_assert(sizeof(struct wire_lock_holder) == 96, "wire_lock_holder");

/* Who sleeps and waits for a lock at this moment. */
struct wire_lock_waiter {
	__u64 lock;
	__u64 began;
	__u32 flags;
	__u32 pid;
	__u32 tid;
	__u32 pad;
	char comm[16]; /* written by strangers: any bytes */
};
_Static_assert(sizeof(struct wire_lock_waiter) == 48, "wire_lock_waiter");

/* A process that waited. */
struct wire_lock_process {
	__u64 contentions;
	struct wire_extent wait;
	__u64 lock;
	char comm[16]; /* written by strangers: any bytes */
};
_Static_assert(sizeof(struct wire_lock_process) == 56, "wire_lock_process");

#define LOCK_STACK_FRAMES 64

/* Who waits, and the way to the kernel. */
struct wire_lock_who_key {
	/* Of the name and the frames; 0: not asked for, or without room. */
	__u64 hash;
	__u32 pid;
	/* enum stack_flags. */
	__u32 flags;
};
_Static_assert(sizeof(struct wire_lock_who_key) == 16, "wire_lock_who_key");

struct wire_lock_who {
	char comm[16]; /* written by strangers: any bytes */
	__u32 frames;
	__u32 pad;
	__u64 ips[STACK_FRAMES];
};
_Static_assert(sizeof(struct wire_lock_who) == 24 + 8 * STACK_FRAMES, "wire_lock_who");

struct wire_lock_stack_key {
	__u64 lock;
	__u64 hash;
	struct wire_lock_who_key who;
};
_Static_assert(sizeof(struct wire_lock_stack_key) == 32, "wire_lock_stack_key");

/* One way to wait for one lock. */
struct wire_lock_stack {
	/* Estimates where the threshold left waits out; contentions in 256ths. */
	__u64 contentions;
	__u64 wait_ns;
	/* Stacks that were taken. */
	__u64 samples;
	__u32 frames;
	__u32 pad;
	__u64 ips[LOCK_STACK_FRAMES];
};
_Static_assert(sizeof(struct wire_lock_stack) == 32 + 8 * LOCK_STACK_FRAMES, "wire_lock_stack");

/* Where members lie in the structs of the NVMe driver, which is a module and may not be loaded. */
struct wire_nvme_places {
	__u32 size; /* of struct nvme_queue */
	__u32 sq_lock;
	__u32 cq_poll_lock;
	__u32 dev;
	__u32 qid;
	__u32 queues;	/* in struct nvme_dev */
	__u32 instance; /* of its controller, in struct nvme_dev */
	__u32 known;
};
_Static_assert(sizeof(struct wire_nvme_places) == 32, "wire_nvme_places");

/* The most bytes of the kernel's memory that are read at once, to name a lock. */
#define PEEK_BYTES 1024

#endif
