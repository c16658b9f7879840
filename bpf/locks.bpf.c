/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Measures lock contention: which threads waited for which lock, and how long.
 *
 *   contention_begin   a task, or an interrupt on top of it, found the lock taken (since 5.19)
 *   contention_end     it acquired the lock, or gave up
 *   contended_release  the holder of a lock that other threads sleep on releases it (since 7.2)
 *   slow path          of spinlocks, by kprobes: replaces the events above where there are none;
 *                      else for the first waiter, which spins on the pending bit without an event
 *
 * A spinning task is not preempted, so the begin of its wait is kept on its CPU: several levels, as
 * interrupts nest, and two per level, as the slow path of a rwlock takes a spinlock. The begin of a
 * sleeping wait is kept in task storage. No program runs while no lock is contended.
 */

/* One object serves every kernel: 5.10 has no compare-and-swap. */
#define NO_SWAP

#include "kernel.h"
#include "compat.h"
#include "modules.h"
#include "filter_sets.h"
#include "wire.h"
#include "cgroups.h"
#include "hist.h"
#include "lock_spins.h"
#include "lock_rows.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Written once, between open and load. */
const volatile struct wire_locks_config config = {};

#include "lock_stacks.h"

/* Starts and stops recording for all programs at once. */
volatile __u32 running = 0;

MAPPED_ARRAY(lock_cpus, struct wire_lock_cpu, 1);

/* A sleeping task waits for one lock at a time. Freed with its task. */
struct sleep {
	struct wait wait;
	/* It is in the lock's queue, and not merely spinning in front of it. */
	__u64 queued;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sleep);
} sleeps SEC(".maps");

/* By lock. User space sets the size. */
HASH(lock_holders, __u64, struct wire_lock_holder, 1);

/* Tasks still waiting at the end, by thread; filled when user space runs the iterator. */
HASH(lock_waiters, __u32, struct wire_lock_waiter, 4096);

static __always_inline __u64 cgroup_of_current(void)
{
	if (config.unified_cgroups ||
	    !bpf_core_enum_value_exists(enum cgroup_subsys_id, io_cgrp_id))
		return bpf_get_current_cgroup_id();
	return group_of((struct task_struct *)bpf_get_current_task(), io_cgrp_id);
}

/* Whether the current task passes the filter. */
static __always_inline int passes_filter(void)
{
	if (config.filter_enabled & FILTER_PID) {
		__u32 pid = bpf_get_current_pid_tgid() >> 32;

		if (!bpf_map_lookup_elem(&filter_pids, &pid))
			return 0;
	}
	if (config.filter_enabled & FILTER_COMM) {
		struct comm comm = {};

		bpf_get_current_comm(comm.bytes, sizeof(comm.bytes));
		if (!bpf_map_lookup_elem(&filter_comms, &comm))
			return 0;
	}
	if (config.filter_enabled & FILTER_CGROUP) {
		__u64 cgroup = cgroup_of_current();

		if (!bpf_map_lookup_elem(&filter_cgroups, &cgroup))
			return 0;
	}
	return 1;
}

/*
 * Whether the task spins until it has the lock, so that its begin is kept on the CPU. A task that
 * spins on a mutex may go to sleep.
 */
static __always_inline int is_spin(__u32 flags)
{
	return (flags & (LOCK_SPIN | LOCK_MUTEX)) == LOCK_SPIN;
}

static __always_inline void end(void *ctx, struct wire_lock_cpu *row, __u32 cpu,
				const struct wait *wait, int failed)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 took = now - wait->began;
	int is_new;

	row->contentions++;
	row->wait_ns += took;
	if (is_spin(wait->flags)) {
		row->spin_contentions++;
		row->spin_wait_ns += took;
	}
	count_process(row, cpu, took);
	is_new = count_lock(row, cpu, wait, took, failed);
	if (config.stacks_enabled)
		sample(ctx, row, cpu, wait->lock, took, now, is_new);
}

static __always_inline struct wire_lock_holder *holder_of(__u64 lock)
{
	struct wire_lock_holder *holder = bpf_map_lookup_elem(&lock_holders, &lock);

	if (unlikely(!holder)) {
		struct wire_lock_holder one = {};

		/* Another CPU may have added it first. */
		bpf_map_update_elem(&lock_holders, &lock, &one, BPF_NOEXIST);
		holder = bpf_map_lookup_elem(&lock_holders, &lock);
	}
	return holder;
}

/*
 * A waiter joins the lock's queue. The kernel reports this under the queue's lock, so every later
 * release finds a waiter there, and has an event.
 */
static __always_inline void enqueue(__u64 lock, __u32 flags, __u64 now)
{
	struct wire_lock_holder *holder = holder_of(lock);

	if (!holder)
		return;
	__sync_fetch_and_add(&holder->queued, 1);
	holder->flags |= flags;
	if (!holder->queued_since) {
		holder->got = 0;
		holder->released = 0;
		holder->queued_since = now;
	}
}

/*
 * A waiter leaves the lock's queue: it acquired the lock, or gave up. Other waiters may still be
 * there.
 */
static __always_inline void dequeue(__u64 lock, int was_queued, int got, __u64 now)
{
	struct wire_lock_holder *holder = bpf_map_lookup_elem(&lock_holders, &lock);

	if (!holder)
		return;
	if (got)
		holder->got = now;
	if (!was_queued || !holder->queued)
		return;
	__sync_fetch_and_add(&holder->queued, -1);
	if (!holder->queued)
		holder->queued_since = 0;
}

SEC("?tp_btf/contended_release")
int BPF_PROG(lock_release, void *lock)
{
	struct wire_lock_holder *holder;
	struct wire_lock_cpu *row;
	__u64 now, since, took;
	__u32 cpu = bpf_get_smp_processor_id();

	if (!running)
		return 0;
	row = bpf_map_lookup_elem(&lock_cpus, &cpu);
	if (!row)
		return 0;
	holder = holder_of((__u64)lock);
	if (!holder) {
		row->other_holders++;
		return 0;
	}
	now = bpf_ktime_get_ns();
	since = holder->got;
	holder->last_hold_ns = 0;
	__sync_fetch_and_add(&holder->releases, 1);
	/* Other kinds of locks may have several holders at once: which of them began when is
	 * unknown. */
	if (holder->flags & (LOCK_MUTEX | LOCK_RT) && holder->queued_since) {
		if (!since && !holder->released) {
			since = holder->queued_since;
			holder->at_least++;
		}
		if (since) {
			took = now - since;
			holder->holds++;
			holder->hold_ns += took;
			holder->last_hold_ns = took;
			if (holder->max_hold_ns < took)
				holder->max_hold_ns = took;
		}
	}
	holder->got = 0;
	holder->released = 1;
	holder->pid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(holder->comm, sizeof(holder->comm));
	return 0;
}

SEC("?tp_btf/contention_begin")
int BPF_PROG(lock_begin, void *lock, unsigned int flags)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct wire_lock_cpu *row;
	struct sleep *sleep;
	__u32 kind;
	int selected;

	if (!running)
		return 0;
	row = bpf_map_lookup_elem(&lock_cpus, &cpu);
	if (!row)
		return 0;
	kind = kind_of(flags);
	if (kind < LOCK_KINDS)
		row->begins[kind]++;
	selected = !config.filter_enabled || passes_filter();
	if (!selected)
		row->filtered++;
	if (is_spin(flags)) {
		begin_spin(row, cpu, (__u64)lock, flags, selected, current_context());
		return 0;
	}
	if (!selected)
		return 0;
	sleep = bpf_task_storage_get(&sleeps, bpf_get_current_task_btf(), 0,
				     BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!sleep) {
		row->unkept++;
		return 0;
	}
	if (sleep->wait.lock == (__u64)lock) {
		row->repeats++;
		sleep->wait.flags |= flags;
	} else {
		if (unlikely(sleep->wait.lock))
			row->abandoned++;
		sleep->wait.flags = flags;
		sleep->wait.began = bpf_ktime_get_ns();
		sleep->wait.lock = (__u64)lock;
		sleep->queued = 0;
	}
	if (config.holders_enabled && !(flags & LOCK_SPIN) && !sleep->queued) {
		sleep->queued = 1;
		enqueue((__u64)lock, sleep->wait.flags, bpf_ktime_get_ns());
	}
	return 0;
}

SEC("?tp_btf/contention_end")
int BPF_PROG(lock_end, void *lock, int ret)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct wire_lock_cpu *row;
	struct sleep *sleep;
	struct wait wait;

	if (!running)
		return 0;
	row = bpf_map_lookup_elem(&lock_cpus, &cpu);
	if (!row)
		return 0;
	if (end_spin(row, cpu, (__u64)lock, 0, current_context(), &wait)) {
		if (wait.began)
			end(ctx, row, cpu, &wait, ret);
		return 0;
	}
	sleep = bpf_task_storage_get(&sleeps, bpf_get_current_task_btf(), 0, 0);
	if (!sleep || sleep->wait.lock != (__u64)lock) {
		/* Or the end of a task that was filtered out. */
		if (!config.filter_enabled)
			row->unmatched++;
		return 0;
	}
	wait = sleep->wait;
	sleep->wait.lock = 0;
	if (config.holders_enabled)
		dequeue((__u64)lock, sleep->queued, !ret, bpf_ktime_get_ns());
	sleep->queued = 0;
	end(ctx, row, cpu, &wait, ret);
	return 0;
}

/* Lists the tasks that are still waiting, when user space asks: each thread once. */
SEC("?iter/task")
int waiting(struct bpf_iter__task *ctx)
{
	struct wire_lock_waiter waiter = {};
	struct task_struct *task = ctx->task;
	struct sleep *sleep;

	/* NULL after the last task. */
	if (!task)
		return 0;
	sleep = bpf_task_storage_get(&sleeps, task, 0, 0);
	if (!sleep || !sleep->wait.lock)
		return 0;
	waiter.lock = sleep->wait.lock;
	waiter.began = sleep->wait.began;
	waiter.flags = sleep->wait.flags;
	waiter.pid = task->tgid;
	waiter.tid = task->pid;
	bpf_core_read_str(waiter.comm, sizeof(waiter.comm), &task->comm);
	bpf_map_update_elem(&lock_waiters, &waiter.tid, &waiter, BPF_ANY);
	return 0;
}

/* In addition to the events: counts entries into the slow path, with an event or without. */
SEC("?kprobe")
int slow_call(struct pt_regs *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct wire_lock_cpu *row;

	if (!running)
		return 0;
	row = bpf_map_lookup_elem(&lock_cpus, &cpu);
	if (row)
		row->slow_calls++;
	return 0;
}

/* Instead of the events: spinlocks only, and all tasks that wait for them. */
SEC("?kprobe")
int slow_begin(struct pt_regs *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct wire_lock_cpu *row;
	int selected;

	if (!running)
		return 0;
	row = bpf_map_lookup_elem(&lock_cpus, &cpu);
	if (!row)
		return 0;
	row->slow_calls++;
	row->begins[LOCK_KIND_SPIN]++;
	selected = !config.filter_enabled || passes_filter();
	if (!selected)
		row->filtered++;
	begin_spin(row, cpu, BPF_CORE_READ(ctx, di), LOCK_SPIN, selected, read_current_context());
	return 0;
}

/* The return does not name the lock: it is the one that was entered last on this CPU. */
SEC("?kretprobe")
int slow_end(struct pt_regs *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct wire_lock_cpu *row;
	struct wait wait;

	if (!running)
		return 0;
	row = bpf_map_lookup_elem(&lock_cpus, &cpu);
	if (!row)
		return 0;
	if (!end_spin(row, cpu, 0, 1, read_current_context(), &wait))
		row->unmatched++;
	else if (wait.began)
		end(ctx, row, cpu, &wait, 0);
	return 0;
}

/* The bytes that `peek` read. */
__u8 peeked[PEEK_BYTES] = {};

/*
 * Called by user space, never attached: reads kernel memory at the first argument, with the length
 * in the second, and returns whether it could be read. Without an address: returns the address of
 * the current task.
 */
SEC("raw_tp")
int peek(struct bpf_raw_tracepoint_args *ctx)
{
	const void *address = (const void *)ctx->args[0];
	__u64 bytes = ctx->args[1];

	if (!address) {
		*(__u64 *)peeked = bpf_get_current_task();
		return 0;
	}
	if (bytes > PEEK_BYTES)
		return 1;
	return bpf_probe_read_kernel(peeked, bytes, address) ? 1 : 0;
}

struct wire_nvme_places nvme_places = {};

/* Called once by user space: CO-RE uses the module's BTF, which libbpf finds. */
SEC("?raw_tp")
int nvme_layout(void *ctx)
{
	if (!bpf_core_type_exists(struct nvme_queue) || !bpf_core_type_exists(struct nvme_dev))
		return 1;
	nvme_places.size = bpf_core_type_size(struct nvme_queue);
	nvme_places.sq_lock = bpf_core_field_offset(struct nvme_queue, sq_lock);
	nvme_places.cq_poll_lock = bpf_core_field_offset(struct nvme_queue, cq_poll_lock);
	nvme_places.dev = bpf_core_field_offset(struct nvme_queue, dev);
	nvme_places.qid = bpf_core_field_offset(struct nvme_queue, qid);
	nvme_places.queues = bpf_core_field_offset(struct nvme_dev, queues);
	nvme_places.instance = bpf_core_field_offset(struct nvme_dev, ctrl.instance);
	nvme_places.known = 1;
	return 0;
}

/* Since a992d7a39774 (6.13). */
extern struct kmem_cache *bpf_get_kmem_cache(__u64 addr) __ksym __weak;

/* Called by user space: returns the name of the slab cache that the first argument lies in. */
SEC("?raw_tp")
int slab(struct bpf_raw_tracepoint_args *ctx)
{
	struct kmem_cache *cache;

	if (!bpf_get_kmem_cache)
		return 1;
	cache = bpf_get_kmem_cache(ctx->args[0]);
	if (!cache)
		return 1;
	return bpf_probe_read_kernel_str(peeked, 64, cache->name) > 0 ? 0 : 1;
}
