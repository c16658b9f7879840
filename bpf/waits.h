/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Sums up waiting time by stack: a table of all distinct stacks with the time spent in each, and a
 * budget for taking stacks. For the programs of blocked tasks and of reclaim.
 *
 * A row and its scratch space belong to programs on one CPU that never run nested. Either there is
 * a single program, which the kernel does not run recursively, even if programs can be preempted
 * (7.x), or the programs run with interrupts off.
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

/* Starts and stops recording for all programs at once. */
volatile __u32 running = 0;

/* biopsy's own process id in the initial PID namespace. */
__u32 ours = 0;

/* User space sets the sizes. Preallocated: these programs run where memory cannot be allocated. */
HASH(wait_stacks, struct wire_stack_key, struct wire_wait_stack, 1024);

/*
 * Waiting threads, by process and name. A row with sums of 0 is added as soon as there is a stack,
 * so that user space can read the process's memory maps while it lives.
 */
HASH(waiters, struct wire_wait_process, struct wire_waiter, 8192);

/* The same for threads whose process had no room there, by name only (pid 0). */
HASH(waiter_names, struct wire_wait_process, struct wire_waiter, 1024);

ARRAY(wait_rows, struct wire_waits_row, 1);

struct wait_scratch {
	struct wire_stack_key key;
	struct wire_wait_stack wait;
};

ARRAY(wait_scratch, struct wait_scratch, 1);

/* Whether a task passes the filter. */
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

/* From this length on, every wait has a stack. */
static __always_inline __u64 threshold_of(struct wire_waits_row *row)
{
	return row->budget.threshold > config.least_ns ? row->budget.threshold : config.least_ns;
}

/* A sampled wait: its length, and the probability with which it was sampled. */
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
	/* A wait below probability 1 is scaled up to at most MOST_THRESHOLD: its square has 52
	 * bits, and the factor is in 1024ths. */
	square = ns < SURE ? ns * ns >> 20 : (ns >> 10) * (ns >> 10);
	__sync_fetch_and_add(&sum->squares, square * ((SURE - taken.chance) >> 22) >> 10);
}

static __always_inline struct wire_wait_process process_of(struct task_struct *task)
{
	struct wire_wait_process process = {.pid = BPF_CORE_READ(task, tgid)};

	BPF_CORE_READ_STR_INTO(&process.comm, task, comm);
	return process;
}

/*
 * The row of a process's waits. `count` waits are recorded for the first time, and are counted as
 * unnamed if the process has no row. NULL: the name has no row either.
 */
static __always_inline struct wire_waiter *
waiter_of(struct wire_waits_row *row, const struct wire_wait_process *process, __u64 count)
{
	struct wire_waiter *waiter = bpf_map_lookup_elem(&waiters, process), none = {};
	struct wire_wait_process name;

	if (waiter)
		return waiter;
	/* Another CPU may have added it first. */
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

/* Adds waits that may have stacks to the row of their process. */
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

/*
 * Records a wait that should have a stack and has none: it is counted for its process without a
 * stack, so that stacks of other waits are not scaled up to cover it.
 */
static __always_inline void go_bare(struct wire_waits_row *row,
				    const struct wire_wait_process *process, struct taken taken)
{
	struct wire_waiter *waiter;

	sum_up(&row->bare, weight_of(taken.chance) >> 8, stands_for(taken));
	/* Without a budget no stacks are requested. */
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

/* Adds a wait to its stack, which is added to the table if it is new; 0: the table is full. */
static __always_inline int keep(struct wire_waits_row *row, struct wait_scratch *s, __u32 pid,
				__u32 flags, struct taken taken)
{
	struct wire_wait_process process = {};
	struct wire_wait_stack *known;

	/* Written before the hash and reloaded after it: the verifier would otherwise walk the hash
	 * once for each combination of flags. */
	s->key.pid = pid;
	s->key.flags = flags;
	hash_task_stack(&s->wait.stack, &s->key);
	barrier();
	process.pid = s->key.pid;
	__builtin_memcpy(process.comm, s->wait.stack.comm, sizeof(process.comm));
	known = bpf_map_lookup_elem(&wait_stacks, &s->key);
	if (!known) {
		__builtin_memset(&s->wait.sum, 0, sizeof(s->wait.sum));
		/* Another CPU may have added it first. */
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

/* Takes both stacks of the current task; `task` is that task. */
static __always_inline void take_current(void *ctx, struct wire_waits_row *row,
					 struct task_struct *task, struct wait_scratch *s,
					 __u32 flags, struct taken taken)
{
	flags |= take_task_stack(ctx, task, &s->wait.stack);
	keep(row, s, bpf_get_current_pid_tgid() >> 32, flags, taken);
}

/* Called by user space, never attached: records biopsy's own process id. */
SEC("raw_tp")
int who_we_are(void *ctx)
{
	ours = bpf_get_current_pid_tgid() >> 32;
	return 0;
}

#endif
