/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Measures a kernel function from entry to return: calls, time, and how much of the time is spent
 * waiting for spinlocks. User space loads this object once per function, with fentry or else with
 * kprobes, each with its index among PATHS, and all with the maps of the first. A function that a
 * kernel lacks, or does not allow to be probed, so does not affect the others.
 */
#define NO_SWAP

#include "kernel.h"
#include "compat.h"
#include "wire.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Index of the function; written between open and load. */
const volatile __u32 path = 0;

/*
 * Reread at each use: for verifiers like 6.12's, a variable whose address was passed to a helper
 * has no known bounds any more.
 */
#define AT (path & (PATHS - 1))

/* State of the first object, in a map because all objects share it. */
struct shared {
	__u32 running;
	__u32 pad;
	struct wire_paths_lost lost;
};

ARRAY(path_shared, struct shared, 1);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PATHS);
	__type(key, __u32);
	__type(value, struct wire_path);
} paths SEC(".maps");

/* The functions that a thread is currently in. */
struct calling {
	/* When each was entered; 0: not in it. */
	__u64 entered[PATHS];
	/* Spinlock waits since then. */
	__u64 spins[PATHS];
	__u64 spin_ns[PATHS];
};

/* By thread, and by negative CPU number for the idle tasks. */
HASH(callings, __u32, struct calling, 8192);

/* Initial value of a new entry: too large for the BPF stack, together with what else is there. */
ARRAY(nothing, struct calling, 1);

static __always_inline __u32 caller(void)
{
	__u32 thread = bpf_get_current_pid_tgid();

	return thread ? thread : -1 - bpf_get_smp_processor_id();
}

static __always_inline struct shared *shared(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&path_shared, &zero);
}

static __always_inline int enter(void)
{
	struct shared *all = shared();
	struct calling *calling;
	__u32 key = caller(), zero = 0;

	if (!all || !all->running)
		return 0;
	calling = bpf_map_lookup_elem(&callings, &key);
	/* The program of spinlock waits adds no entry: that takes a lock itself. */
	if (!calling && path == PATH_SPIN)
		return 0;
	if (!calling) {
		void *empty = bpf_map_lookup_elem(&nothing, &zero);

		if (!empty || bpf_map_update_elem(&callings, &key, empty, BPF_ANY)) {
			__sync_fetch_and_add(&all->lost.no_room, 1);
			return 0;
		}
		calling = bpf_map_lookup_elem(&callings, &key);
		if (!calling)
			return 0;
	}
	if (calling->entered[AT])
		__sync_fetch_and_add(&all->lost.torn, 1);
	calling->spins[AT] = 0;
	calling->spin_ns[AT] = 0;
	calling->entered[AT] = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int leave(void)
{
	struct shared *all = shared();
	struct calling *calling;
	struct wire_path *row;
	__u32 key = caller(), at = AT;
	__u64 took, within = 0;

	if (!all || !all->running)
		return 0;
	calling = bpf_map_lookup_elem(&callings, &key);
	if (!calling && path == PATH_SPIN)
		return 0;
	if (!calling || !calling->entered[AT]) {
		__sync_fetch_and_add(&all->lost.no_begin, 1);
		return 0;
	}
	took = bpf_ktime_get_ns() - calling->entered[AT];
	calling->entered[AT] = 0;
	row = bpf_map_lookup_elem(&paths, &at);
	if (row) {
		/* There is a row per CPU, but the programs of 7.x can be preempted in between. */
		__sync_fetch_and_add(&row->calls, 1);
		__sync_fetch_and_add(&row->ns, took);
		if (calling->spins[AT]) {
			__sync_fetch_and_add(&row->spins, calling->spins[AT]);
			__sync_fetch_and_add(&row->spin_ns, calling->spin_ns[AT]);
		}
	}
	/* For verifiers like 6.12's, a loop whose counter is used to compute an address is not
	 * bounded. */
#pragma unroll
	for (int i = 0; i < PATHS; i++) {
		if (!calling->entered[i])
			continue;
		within = 1;
		if (path == PATH_SPIN) {
			calling->spins[i]++;
			calling->spin_ns[i] += took;
		}
	}
	if (!within)
		bpf_map_delete_elem(&callings, &key);
	return 0;
}

/* The targets are placeholders: user space sets the function. */
SEC("?fentry/lru_add_drain")
int path_entry(void *ctx)
{
	return enter();
}

SEC("?fexit/lru_add_drain")
int path_exit(void *ctx)
{
	return leave();
}

SEC("?kprobe")
int path_kprobe(void *ctx)
{
	return enter();
}

SEC("?kretprobe")
int path_kretprobe(void *ctx)
{
	return leave();
}
