/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Counts completed waits by lock and by process: first in a cache per CPU, then in rows that all
 * CPUs share.
 */
#ifndef BIOPSY_LOCK_ROWS_H
#define BIOPSY_LOCK_ROWS_H

#include "kernel.h"
#include "compat.h"
#include "wire.h"
#include "hist.h"
#include "lock_spins.h"

/* User space sets the sizes. */
HASH(locks, __u64, struct wire_lock, 1024);

/* One per kind: locks that had no room above. */
ARRAY(other_locks, struct wire_lock, LOCK_KINDS);

/* By thread group. */
HASH(lock_processes, __u32, struct wire_lock_process, 4096);

/*
 * Per-CPU caches of waits that are not yet in the shared rows, whose cache lines would otherwise
 * bounce between CPUs with each wait. Index CPU × slots + slot; only that CPU writes there.
 */
MAPPED_ARRAY(recent_locks, struct wire_lock_recent, LOCK_PLACES);

MAPPED_ARRAY(recent_processes, struct wire_lock_recent_process, LOCK_PROCESS_PLACES);

/* Rows added to both tables. User space looks for new locks and processes only if this changed. */
__u64 rows_added = 0;

/* Initial value of a new row: too large for the BPF stack. */
static const struct wire_lock no_lock = {};

static __always_inline __u32 kind_of(__u32 flags)
{
	if (flags & LOCK_RT)
		return LOCK_KIND_RT_MUTEX;
	if (flags & LOCK_PERCPU)
		return LOCK_KIND_PERCPU_RWSEM;
	if (flags & LOCK_MUTEX)
		return LOCK_KIND_MUTEX;
	if (flags & LOCK_SPIN)
		return flags & (LOCK_READ | LOCK_WRITE) ? LOCK_KIND_RWLOCK : LOCK_KIND_SPIN;
	return flags & (LOCK_READ | LOCK_WRITE) ? LOCK_KIND_RWSEM : LOCK_KIND_SEMAPHORE;
}

/*
 * Writes back a cache slot and gives it to another process. Returns whether that process has a row.
 */
static __noinline int take_process(struct wire_lock_recent_process *place, __u32 pid)
{
	struct wire_lock_process *process;
	__u32 old = place->pid - 1;

	process = place->pid ? bpf_map_lookup_elem(&lock_processes, &old) : 0;
	if (process) {
		__sync_fetch_and_add(&process->contentions, place->contentions);
		__sync_fetch_and_add(&process->wait.sum, place->sum);
		if (process->wait.max < place->max)
			raise_shared(&process->lock, &process->wait.max, place->max);
	}
	place->pid = 0;
	place->contentions = 0;
	place->sum = 0;
	place->max = 0;
	if (!bpf_map_lookup_elem(&lock_processes, &pid)) {
		struct wire_lock_process one = {};

		bpf_get_current_comm(one.comm, sizeof(one.comm));
		/* Another CPU may have added it first. */
		if (!bpf_map_update_elem(&lock_processes, &pid, &one, BPF_NOEXIST))
			__sync_fetch_and_add(&rows_added, 1);
		if (!bpf_map_lookup_elem(&lock_processes, &pid))
			return 0;
	}
	place->pid = pid + 1;
	return 1;
}

static __always_inline void count_process(struct wire_lock_cpu *row, __u32 cpu, __u64 took)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	__u32 at = cpu * LOCK_PROCESS_PLACES + pid % LOCK_PROCESS_PLACES;
	struct wire_lock_recent_process *place = bpf_map_lookup_elem(&recent_processes, &at);

	if (!place)
		return;
	if (unlikely(place->pid != pid + 1) && !take_process(place, pid)) {
		row->other_processes++;
		return;
	}
	place->contentions++;
	place->sum += took;
	if (place->max < took)
		place->max = took;
}

/* Adds the waits of a cache slot to the row of their lock. */
static __always_inline void add_waits(struct wire_lock *lock, const struct wire_lock_recent *place)
{
	__u64 i = place->bucket;
	struct wire_waits *waits;

	asm volatile("" : "+r"(i));
	if (i >= HIST_BUCKETS)
		return;
	waits = &lock->waits[i];
	__sync_fetch_and_add(&waits->count, place->count);
	__sync_fetch_and_add(&waits->sum, place->sum);
	if (unlikely(place->failed))
		__sync_fetch_and_add(&lock->failed, place->failed);
	if (place->reads)
		__sync_fetch_and_add(&lock->reads, place->reads);
	/* Not atomic: a concurrent writer writes the same value, unless the lock has waits of
	 * several kinds, and then more of each follow. */
	if (~lock->flags & place->flags)
		lock->flags |= place->flags;
	raise_shared(&lock->lock, &lock->not_min, place->not_min);
	raise_shared(&lock->lock, &lock->max, place->max);
}

/* The cache slot now belongs to the lock. */
#define PLACE_TAKEN 1
/* The lock had no row before. */
#define PLACE_IS_NEW 2

/*
 * Writes back a cache slot and gives it to waits of another length or for another lock. Without
 * PLACE_TAKEN that lock had no room for a row.
 */
static __noinline int take_place(struct wire_lock_recent *place, __u64 address, __u32 flags)
{
	struct wire_lock *lock = place->lock ? bpf_map_lookup_elem(&locks, &place->lock) : 0;
	int is_new = 0;

	if (lock)
		add_waits(lock, place);
	place->lock = 0;
	place->count = 0;
	place->sum = 0;
	place->not_min = 0;
	place->max = 0;
	place->failed = 0;
	place->reads = 0;
	place->flags = 0;
	lock = bpf_map_lookup_elem(&locks, &address);
	if (unlikely(!lock)) {
		is_new = !bpf_map_update_elem(&locks, &address, &no_lock, BPF_NOEXIST);
		lock = bpf_map_lookup_elem(&locks, &address);
		if (!lock)
			return 0;
		/* The kind of lock is set now, for a lookup of the lock's name before the slot is
		 * written back. */
		lock->flags |= flags;
		__sync_fetch_and_add(&rows_added, 1);
	}
	place->lock = address;
	return PLACE_TAKEN | (is_new ? PLACE_IS_NEW : 0);
}

/* Counts a wait for a lock without a row. */
static __noinline int count_other(struct wire_lock_cpu *row, const struct wait *wait, __u64 took,
				  int failed)
{
	__u32 kind = kind_of(wait->flags);
	struct wire_lock_recent one = {
	    .count = 1,
	    .sum = took,
	    .not_min = ~took,
	    .max = took,
	    .failed = !!failed,
	    .reads = !!(wait->flags & LOCK_READ),
	    .flags = wait->flags | LOCK_SEEN,
	    .bucket = hist_index(took),
	};
	struct wire_lock *lock = bpf_map_lookup_elem(&other_locks, &kind);

	row->other_locks++;
	if (lock)
		add_waits(lock, &one);
	return 0;
}

/* Counts a wait. Returns whether its lock is new and has got a row. */
static __always_inline int count_lock(struct wire_lock_cpu *row, __u32 cpu, const struct wait *wait,
				      __u64 took, int failed)
{
	__u32 bucket = hist_index(took);
	/* Neighbouring buckets use neighbouring slots. */
	__u32 at = ((wait->lock * 0x9e3779b97f4a7c15ull >> 32) + bucket) % LOCK_PLACES;
	struct wire_lock_recent *place;
	int taken = PLACE_TAKEN;

	at += cpu * LOCK_PLACES;
	place = bpf_map_lookup_elem(&recent_locks, &at);
	if (!place)
		return 0;
	if (unlikely(place->lock != wait->lock || place->bucket != bucket)) {
		taken = take_place(place, wait->lock, wait->flags | LOCK_SEEN);
		if (!taken)
			return count_other(row, wait, took, failed);
		place->bucket = bucket;
	}
	place->count++;
	place->sum += took;
	if (place->not_min < ~took)
		place->not_min = ~took;
	if (place->max < took)
		place->max = took;
	if (unlikely(failed))
		place->failed++;
	if (wait->flags & LOCK_READ)
		place->reads++;
	place->flags |= wait->flags | LOCK_SEEN;
	return taken & PLACE_IS_NEW;
}

#endif
