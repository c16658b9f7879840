/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Time by stack: a table that keeps every distinct stack with the time that was spent in it, and a
 * budget for taking stacks. For the programs of blocked tasks and of reclaim.
 *
 * A row and a place to take a stack to belong to programs of one CPU of which none runs inside
 * another: one alone, since the kernel does not run a program inside itself, also where programs
 * can be preempted (7.x), or such that run with interrupts off.
 */
#ifndef BIOPSY_WAITS_H
#define BIOPSY_WAITS_H

#include "kernel.h"
#include "compat.h"
#include "task_stack.h"
#include "filter_sets.h"
#include "wire.h"
#include "cgroups.h"

/* Written once, between open and load. */
const volatile struct wire_waits_config config = {};

#include "budget.h"

/* Opens and closes the window for all programs at once. */
volatile __u32 running = 0;

/* Our own process, as the kernel numbers it. */
__u32 ours = 0;

/* User space sets the sizes. Made in advance: where these programs run nobody may wait for memory.
 */
HASH(wait_stacks, struct wire_stack_key, struct wire_wait_stack, 1024);

/* Who waited; with sums of 0 as soon as there is a stack, for whoever reads the memory maps of
 * processes while they live. */
HASH(waiters, struct wire_wait_process, struct wire_waiter, 8192);

/* The same of threads whose process found no room there, by their name alone (pid 0). */
HASH(waiter_names, struct wire_wait_process, struct wire_waiter, 1024);

ARRAY(wait_rows, struct wire_waits_row, 1);

struct wait_scratch {
	struct wire_stack_key key;
	struct wire_wait_stack wait;
};

ARRAY(wait_scratch, struct wait_scratch, 1);

/* Whether a task is among those that were named. */
static __always_inline int passes_filter(struct task_struct *task)
{
	if (config.filter_enabled & FILTER_PID) {
		__u32 pid = BPF_CORE_READ(task, tgid);

		if (!bpf_map_lookup_elem(&filter_pids, &pid))
			return 0;
	}
	if (config.filter_enabled & FILTER_COMM) {
		struct comm comm = {};

		BPF_CORE_READ_STR_INTO(&comm.bytes, task, comm);
		if (!bpf_map_lookup_elem(&filter_comms, &comm))
			return 0;
	}
	if (config.filter_enabled & FILTER_CGROUP) {
		__u64 cgroup = cgroup_of_task(task, config.unified_cgroups);

		if (!bpf_map_lookup_elem(&filter_cgroups, &cgroup))
			return 0;
	}
	return 1;
}

static __always_inline void sum_up(struct wire_sum *sum, __u64 count, __u64 ns)
{
	sum->count += count;
	sum->ns += ns;
}

/* From where on every wait has its stack. */
static __always_inline __u64 threshold_of(struct wire_waits_row *row)
{
	return row->budget.threshold > config.least_ns ? row->budget.threshold : config.least_ns;
}

/* A wait that was taken: how long it was, and how likely it was to be. */
struct taken {
	__u64 took;
	__u64 chance;
};

static __always_inline __u64 stands_for(struct taken taken)
{
	return taken.took * weight_of(taken.chance) >> 8;
}

static __always_inline void credit(struct wire_waits_sum *sum, struct taken taken)
{
	__u64 ns = stands_for(taken), square;

	__sync_fetch_and_add(&sum->waits, weight_of(taken.chance));
	__sync_fetch_and_add(&sum->ns, ns);
	__sync_fetch_and_add(&sum->samples, 1);
	if (taken.chance >= SURE) {
		__sync_fetch_and_add(&sum->sure_ns, ns);
		return;
	}
	/* What is not sure stands for MOST_THRESHOLD at most: its square has 52 bits, and the part
	 * of it is in 1024ths. */
	square = ns < SURE ? ns * ns >> 20 : (ns >> 10) * (ns >> 10);
	__sync_fetch_and_add(&sum->squares, square * ((SURE - taken.chance) >> 22) >> 10);
}

static __always_inline struct wire_wait_process process_of(struct task_struct *task)
{
	struct wire_wait_process process = {.pid = BPF_CORE_READ(task, tgid)};

	BPF_CORE_READ_STR_INTO(&process.comm, task, comm);
	return process;
}

/* Where waits of a process stand, of which `count` are told for the first time. NULL: not even
 * their name has room. */
static __always_inline struct wire_waiter *
waiter_of(struct wire_waits_row *row, const struct wire_wait_process *process, __u64 count)
{
	struct wire_waiter *waiter = bpf_map_lookup_elem(&waiters, process), none = {};
	struct wire_wait_process name;

	if (waiter)
		return waiter;
	/* Another CPU may have been first. */
	bpf_map_update_elem(&waiters, process, &none, BPF_NOEXIST);
	waiter = bpf_map_lookup_elem(&waiters, process);
	if (waiter)
		return waiter;
	row->unnamed += count;
	name = *process;
	name.pid = 0;
	bpf_map_update_elem(&waiter_names, &name, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&waiter_names, &name);
}

/* Adds waits that may have stacks to those of a process. */
static __always_inline void name_waits(struct wire_waits_row *row, struct task_struct *task,
				       __u64 count, __u64 ns)
{
	struct wire_wait_process process = process_of(task);
	struct wire_waiter *waiter = waiter_of(row, &process, count);

	if (!waiter)
		return;
	__sync_fetch_and_add(&waiter->all.count, count);
	__sync_fetch_and_add(&waiter->all.ns, ns);
}

/* A wait that should have a stack and cannot: it stands with its process without one, so that the
 * stacks of others do not have to stand for it. */
static __always_inline void go_bare(struct wire_waits_row *row,
				    const struct wire_wait_process *process, struct taken taken)
{
	struct wire_waiter *waiter;

	sum_up(&row->bare, weight_of(taken.chance) >> 8, stands_for(taken));
	/* Without a budget nobody asks for stacks. */
	if (!config.budget_ns)
		return;
	waiter = waiter_of(row, process, 0);
	if (waiter)
		credit(&waiter->bare, taken);
}

static __always_inline void go_bare_of(struct wire_waits_row *row, struct task_struct *task,
				       struct taken taken)
{
	struct wire_wait_process process = process_of(task);

	go_bare(row, &process, taken);
}

/* A wait goes to the stack that was taken of it, which gets its place in the table; 0: there is no
 * room. */
static __always_inline int keep(struct wire_waits_row *row, struct wait_scratch *s, __u32 pid,
				__u32 flags, struct taken taken)
{
	struct wire_wait_process process = {};
	struct wire_wait_stack *known;

	/* Before the hash, behind which they are read anew: the verifier would go through it once
	 * for each combination of flags that it knows. */
	s->key.pid = pid;
	s->key.flags = flags;
	hash_task_stack(&s->wait.stack, &s->key);
	barrier();
	process.pid = s->key.pid;
	__builtin_memcpy(process.comm, s->wait.stack.comm, sizeof(process.comm));
	known = bpf_map_lookup_elem(&wait_stacks, &s->key);
	if (!known) {
		__builtin_memset(&s->wait.sum, 0, sizeof(s->wait.sum));
		/* Another CPU may have been first. */
		bpf_map_update_elem(&wait_stacks, &s->key, &s->wait, BPF_NOEXIST);
		known = bpf_map_lookup_elem(&wait_stacks, &s->key);
		if (known && s->wait.stack.user_frames && !(s->key.flags & STACK_WORK))
			waiter_of(row, &process, 0);
	}
	if (!known) {
		row->full++;
		go_bare(row, &process, taken);
		return 0;
	}
	row->stacks++;
	credit(&known->sum, taken);
	return 1;
}

/* Takes both stacks of the current task, which `task` is. */
static __always_inline void take_current(void *ctx, struct wire_waits_row *row,
					 struct task_struct *task, struct wait_scratch *s,
					 __u32 flags, struct taken taken)
{
	flags |= take_task_stack(ctx, task, &s->wait.stack);
	keep(row, s, bpf_get_current_pid_tgid() >> 32, flags, taken);
}

/* Called by user space, never attached: who we are. */
SEC("raw_tp")
int who_we_are(void *ctx)
{
	ours = bpf_get_current_pid_tgid() >> 32;
	return 0;
}

#endif
