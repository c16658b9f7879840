/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Declares the records of lock contention. Included by wire.h alone. */
#ifndef BIOPSY_WIRE_LOCKS_H
#define BIOPSY_WIRE_LOCKS_H

/*
 * Flags of contention_begin in include/trace/events/lock.h, unchanged since they were added in
 * 5.19.
 */
#define LOCK_SPIN   1
#define LOCK_READ   2
#define LOCK_WRITE  4
#define LOCK_RT	    8
#define LOCK_PERCPU 16
#define LOCK_MUTEX  32

/* Lock type, derived from the flags. */
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
	/* Cgroups are those of v2. */
	__u32 unified_cgroups;
	/* Take stacks. */
	__u32 stacks_enabled;
	/* Time that stacks may take on each CPU in each period. */
	__u64 budget_ns;
	__u64 period_ns;
	/* The kernel has an event for the release of a lock that a thread sleeps on. */
	__u32 holders_enabled;
	/* Stacks also record the waiting thread and its user stack. */
	__u32 waiters_enabled;
};
_Static_assert(sizeof(struct wire_locks_config) == 40, "wire_locks_config");

/*
 * Waits of about the same length. Count and sum are adjacent because CPUs that share a lock take
 * turns writing here.
 */
struct wire_waits {
	__u64 count;
	__u64 sum;
};
_Static_assert(sizeof(struct wire_waits) == 16, "wire_waits");

/* Waits for one lock, or for all locks of a kind that had no room. */
struct wire_lock {
	__u64 not_min;
	__u64 max;
	/* Guards both on kernels without compare-and-swap. */
	__u64 lock;
	/* Of the waits: acquisitions that failed, and acquisitions for reading. */
	__u64 failed;
	__u64 reads;
	/* Of all its events. */
	__u32 flags;
	__u32 pad;
	struct wire_waits waits[HIST_BUCKETS];
};
_Static_assert(sizeof(struct wire_lock) == 48 + 16 * HIST_BUCKETS, "wire_lock");

/* In a lock's flags: at least one wait was recorded. */
#define LOCK_SEEN (1u << 31)

/* Slots of the per-CPU caches: kinds of waits, and processes. */
#define LOCK_PLACES	    128
#define LOCK_PROCESS_PLACES 32

/*
 * Waits of about the same length for one lock on one CPU that are not yet in the lock's row; one
 * cache line.
 */
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

/* The same for a process. */
struct wire_lock_recent_process {
	/* Process id + 1; 0: none. */
	__u32 pid;
	__u32 pad;
	__u64 contentions;
	__u64 sum;
	__u64 max;
};
_Static_assert(sizeof(struct wire_lock_recent_process) == 32, "wire_lock_recent_process");

/* Counters of one CPU. Only that CPU writes them. */
struct wire_lock_cpu {
	/* contention_begin events by kind; one wait may have several. */
	__u64 begins[LOCK_KINDS];
	/* Of those: the task was already waiting and waits in another way (first spinning, then
	 * sleeping). */
	__u64 repeats;
	/* Events of tasks that were filtered out. */
	__u64 filtered;
	/* Waits that ended here, and their time. */
	__u64 contentions;
	__u64 wait_ns;
	__u64 spin_contentions;
	__u64 spin_wait_ns;
	/* Ends without a begin: it was before the interval, or was missed. */
	__u64 unmatched;
	/* Begins whose end was missed. */
	__u64 abandoned;
	/* Begins for which the table of waits had no room. */
	__u64 unkept;
	/* Entries into the slow path of spinlocks, if it can be probed. */
	__u64 slow_calls;
	/* Waits whose lock, or whose process, had no room in the tables. */
	__u64 other_locks;
	__u64 other_processes;
	/* Stacks taken; refused by the kernel; no room in the table; skipped because the budget was
	 * spent. */
	__u64 stacks;
	__u64 stacks_failed;
	__u64 stacks_full;
	__u64 stacks_over;
	struct wire_budget budget;
	/* Releases of locks that had no room in the table of holders. */
	__u64 other_holders;
	/* Stacks recorded without the waiting thread, which had no room. */
	__u64 other_waiters;
	__u64 pad;
};
_Static_assert(sizeof(struct wire_lock_cpu) == 256, "wire_lock_cpu");

/*
 * Holder of a lock that other threads slept on. Its hold time is known only while a waiter is
 * queued throughout, since then every release has an event. It begins when a waiter acquired the
 * lock (exact), or when the first waiter queued up behind the holder (a lower bound).
 */
struct wire_lock_holder {
	__u64 releases;
	/* Of the releases: those with a hold time, and of these those with only a lower bound. */
	__u64 holds;
	__u64 at_least;
	__u64 hold_ns;
	__u64 max_hold_ns;
	/* Hold time of the last release; 0: unknown. */
	__u64 last_hold_ns;
	/* A waiter has been queued without a break since then; 0: none is queued. */
	__u64 queued_since;
	/* When a waiter acquired the lock that it has not released yet; 0: another task holds
	 * it. */
	__u64 got;
	__u32 queued;
	/* It was released at least once since `queued_since`. */
	__u32 released;
	/* Of all its waiters. */
	__u32 flags;
	/* Thread group that released it last. */
	__u32 pid;
	char comm[16]; /* untrusted: any bytes */
};
_Static_assert(sizeof(struct wire_lock_holder) == 96, "wire_lock_holder");

/* A task that sleeps on a lock right now. */
struct wire_lock_waiter {
	__u64 lock;
	__u64 began;
	__u32 flags;
	__u32 pid;
	__u32 tid;
	__u32 pad;
	char comm[16]; /* untrusted: any bytes */
};
_Static_assert(sizeof(struct wire_lock_waiter) == 48, "wire_lock_waiter");

/* A process that waited. */
struct wire_lock_process {
	__u64 contentions;
	struct wire_extent wait;
	__u64 lock;
	char comm[16]; /* untrusted: any bytes */
};
_Static_assert(sizeof(struct wire_lock_process) == 56, "wire_lock_process");

#define LOCK_STACK_FRAMES 64

/* The waiting thread and its user stack. */
struct wire_lock_who_key {
	/* Hash of the name and the frames; 0: not requested, or no room. */
	__u64 hash;
	__u32 pid;
	/* enum stack_flags. */
	__u32 flags;
};
_Static_assert(sizeof(struct wire_lock_who_key) == 16, "wire_lock_who_key");

struct wire_lock_who {
	char comm[16]; /* untrusted: any bytes */
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

/* Waits for one lock with one stack. */
struct wire_lock_stack {
	/* Estimates if the threshold excluded waits; contentions are in units of 1/256. */
	__u64 contentions;
	__u64 wait_ns;
	/* Number of stacks taken. */
	__u64 samples;
	__u32 frames;
	__u32 pad;
	__u64 ips[LOCK_STACK_FRAMES];
};
_Static_assert(sizeof(struct wire_lock_stack) == 32 + 8 * LOCK_STACK_FRAMES, "wire_lock_stack");

/* Member offsets in structs of the NVMe driver, which is a module and may not be loaded. */
struct wire_nvme_places {
	__u32 size; /* of struct nvme_queue */
	__u32 sq_lock;
	__u32 cq_poll_lock;
	__u32 dev;
	__u32 qid;
	__u32 queues;	/* in struct nvme_dev */
	__u32 instance; /* of the controller, in struct nvme_dev */
	__u32 known;
};
_Static_assert(sizeof(struct wire_nvme_places) == 32, "wire_nvme_places");

/* Most bytes of kernel memory that are read at once to name a lock. */
#define PEEK_BYTES 1024

#endif
