/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Time by stack: a table that keeps every distinct stack with the time that was spent in it, and a
 * budget for taking stacks. For the programs of blocked tasks and of reclaim.
 *
 * A row and a place to take a stack to belong to one program on one CPU. The kernel does not run a
 * program inside itself there, so that nothing else touches them, also where programs can be
 * preempted (7.x).
 */
#ifndef BIOPSY_WAITS_H
#define BIOPSY_WAITS_H

#include "kernel.h"
#include "compat.h"
#include "task_stack.h"
#include "wanted.h"
#include "wire.h"
#include "cgroups.h"

/* Written once, between open and load. */
const volatile struct wire_waits_config config = {};

/* Opens and closes the window for all programs at once. */
volatile __u32 running = 0;

/* Our own process, as the kernel numbers it. */
__u32 ours = 0;

/* User space sets the sizes. Made in advance: where these programs run nobody may wait for memory.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct wire_stack_key);
	__type(value, struct wire_wait_stack);
} wait_stacks SEC(".maps");

/* Who waited, exactly; with a sum of 0 as soon as there is a stack, for whoever reads the memory
 * maps of processes while they live. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct wire_wait_process);
	__type(value, struct wire_sum);
} wait_processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wire_waits_row);
} wait_rows SEC(".maps");

struct wait_scratch {
	struct wire_stack_key key;
	struct wire_wait_stack wait;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wait_scratch);
} wait_scratch SEC(".maps");

/* Whether a task is among those that were named. */
static __always_inline int is_wanted(struct task_struct *task)
{
	if (config.want_filter & FILTER_PID) {
		__u32 pid = BPF_CORE_READ(task, tgid);

		if (!bpf_map_lookup_elem(&wanted_pids, &pid))
			return 0;
	}
	if (config.want_filter & FILTER_COMM) {
		struct comm comm = {};

		BPF_CORE_READ_STR_INTO(&comm.bytes, task, comm);
		if (!bpf_map_lookup_elem(&wanted_comms, &comm))
			return 0;
	}
	if (config.want_filter & FILTER_CGROUP) {
		__u64 cgroup = cgroup_of_task(task, config.unified_cgroups);

		if (!bpf_map_lookup_elem(&wanted_cgroups, &cgroup))
			return 0;
	}
	return 1;
}

static __always_inline void sum_up(struct wire_sum *sum, __u64 count, __u64 ns)
{
	sum->count += count;
	sum->ns += ns;
}

/* The threshold never goes below, once it is up: a clock read's time. */
#define LEAST_THRESHOLD 256
/* Far beyond what any budget asks for. */
#define MOST_THRESHOLD (1ull << 32)
/* Of a period's budget, when the load is suddenly another: then the rest of the period has no
 * stacks. The threshold is a thousand times higher long before. */
#define MOST_BUDGETS 16

static __always_inline void set_threshold(struct wire_waits_row *row, __u64 threshold)
{
	row->threshold = threshold < MOST_THRESHOLD ? threshold : MOST_THRESHOLD;
	if (row->most_threshold < row->threshold)
		row->most_threshold = row->threshold;
}

/*
 * A new period. The threshold goes up by what the last one overspent, and comes down by a quarter
 * at most, or half after one without a stack: what a stack stands for must not change much, or
 * estimates would scatter more than so many need to.
 */
static __always_inline void begin_period(struct wire_waits_row *row, __u64 now)
{
	__u64 since = now - row->period_began, threshold = row->threshold;
	__u64 budget = config.budget_ns | 1, spent = row->period_ns, empty;

	if (since < config.period_ns)
		return;
	/* Neither product is beyond 63 bits: a period's stacks take MOST_BUDGETS and a little. */
	if (spent > budget)
		threshold = threshold * spent / budget | LEAST_THRESHOLD;
	else
		threshold -= threshold / 4 * (budget - spent) / budget;
	/* Of periods in which nobody waited nothing can be learned, but that it may be too high. */
	empty = since / (config.period_ns | 1) + !spent;
	threshold = empty < 64 ? threshold >> empty / 2 : 0;
	set_threshold(row, threshold < LEAST_THRESHOLD ? 0 : threshold);
	row->period_began = now;
	row->period_ns = 0;
	row->raise_at = 0;
}

static __always_inline int is_over_budget(struct wire_waits_row *row)
{
	return row->period_ns >= MOST_BUDGETS * config.budget_ns;
}

/* What a stack took. Where that runs ahead of the part of the period that is over by a whole
 * budget, the load is another than before: the threshold doubles at once, and with each further
 * eighth. */
static __always_inline void spend(struct wire_waits_row *row, __u64 now, __u64 ns)
{
	__u64 budget = config.budget_ns, gone = now - row->period_began;

	row->stack_ns += ns;
	row->period_ns += ns;
	if (gone > config.period_ns)
		gone = config.period_ns;
	/* In 1024ths of a period: the product has room. */
	gone = budget * ((gone << 10) / (config.period_ns | 1)) >> 10;
	if (row->period_ns < row->raise_at || row->period_ns < budget + gone)
		return;
	row->raise_at = row->period_ns + budget / 8;
	set_threshold(row, row->threshold < LEAST_THRESHOLD ? LEAST_THRESHOLD : 2 * row->threshold);
}

/* From where on every wait has its stack. */
static __always_inline __u64 threshold_of(struct wire_waits_row *row)
{
	return row->threshold > config.least_ns ? row->threshold : config.least_ns;
}

/* Chances are in parts of it. */
#define SURE (1ull << 32)
/* At most for so many waits one may stand. */
#define MOST_WEIGHT (1u << 16)

/* A wait that was taken: how long it was, and how likely it was to be. */
struct taken {
	__u64 took;
	__u64 chance;
};

/* In proportion to a length: how likely it is taken. */
static __always_inline __u64 chance_of(__u64 length, __u64 threshold)
{
	__u64 chance;

	if (length >= threshold || length >= MOST_THRESHOLD)
		return SURE;
	chance = (length << 32) / threshold;
	return chance < SURE / MOST_WEIGHT ? SURE / MOST_WEIGHT : chance;
}

/* Whether it is. */
static __always_inline int is_lucky(__u64 chance)
{
	return chance >= SURE || bpf_get_prandom_u32() < chance;
}

/* For how many waits like it one stands that was as likely, in 256ths. */
static __always_inline __u64 weight_of(__u64 chance)
{
	return chance >= SURE ? 256 : (256ull << 32) / (chance | 1);
}

static __always_inline __u64 stands_for(struct taken taken)
{
	return taken.took * weight_of(taken.chance) >> 8;
}

/* A wait goes to a stack that was kept. */
static __always_inline int credit(const struct wire_stack_key *key, struct taken taken)
{
	struct wire_wait_stack *stack = bpf_map_lookup_elem(&wait_stacks, key);
	__u64 ns = stands_for(taken), square;

	if (!stack)
		return 0;
	__sync_fetch_and_add(&stack->waits, weight_of(taken.chance));
	__sync_fetch_and_add(&stack->ns, ns);
	__sync_fetch_and_add(&stack->samples, 1);
	if (taken.chance >= SURE) {
		__sync_fetch_and_add(&stack->sure_ns, ns);
		return 1;
	}
	/* The part in 1024ths: the square of a time that is not sure has 48 bits. */
	square = (ns >> 8) * (ns >> 8);
	__sync_fetch_and_add(&stack->squares, square * ((SURE - taken.chance) >> 22) >> 10);
	return 1;
}

/* Adds waits to those of a process; nothing is a wait of whom there is a stack. */
static __always_inline void name_waits(struct wire_waits_row *row,
				       const struct wire_wait_process *process, __u64 count,
				       __u64 ns)
{
	struct wire_sum *sum = bpf_map_lookup_elem(&wait_processes, process);

	if (!sum) {
		struct wire_sum none = {};

		/* Another CPU may have been first. */
		bpf_map_update_elem(&wait_processes, process, &none, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&wait_processes, process);
	}
	if (!sum) {
		row->unnamed += count;
		return;
	}
	if (count) {
		__sync_fetch_and_add(&sum->count, count);
		__sync_fetch_and_add(&sum->ns, ns);
	}
}

static __always_inline void name_waits_of(struct wire_waits_row *row, struct task_struct *task,
					  __u64 count, __u64 ns)
{
	struct wire_wait_process process = {.pid = BPF_CORE_READ(task, tgid)};

	BPF_CORE_READ_STR_INTO(&process.comm, task, comm);
	name_waits(row, &process, count, ns);
}

/* Gives the stack its place in the table; 0: there is no room. */
static __always_inline int place(struct wire_waits_row *row, struct wait_scratch *s)
{
	struct wire_wait_process process = {};

	if (bpf_map_lookup_elem(&wait_stacks, &s->key))
		return 1;
	s->wait.waits = 0;
	s->wait.ns = 0;
	s->wait.samples = 0;
	s->wait.sure_ns = 0;
	s->wait.squares = 0;
	/* Another CPU may have been first. */
	if (bpf_map_update_elem(&wait_stacks, &s->key, &s->wait, BPF_NOEXIST) &&
	    !bpf_map_lookup_elem(&wait_stacks, &s->key))
		return 0;
	if (s->wait.stack.user_frames && !(s->key.flags & STACK_WORK)) {
		process.pid = s->key.pid;
		__builtin_memcpy(process.comm, s->wait.stack.comm, sizeof(process.comm));
		name_waits(row, &process, 0, 0);
	}
	return 1;
}

/* The same of the stack that was taken. */
static __always_inline int keep(struct wire_waits_row *row, struct wait_scratch *s, __u32 pid,
				__u32 flags)
{
	/* Before the hash, behind which they are read anew: the verifier would go through it once
	 * for each combination of flags that it knows. */
	s->key.pid = pid;
	s->key.flags = flags;
	hash_task_stack(&s->wait.stack, &s->key);
	barrier();
	return place(row, s);
}

/* A wait that should have a stack and cannot: it stands with its process without one, so that the
 * stacks of others do not have to stand for it. `s` knows the name of its thread. */
static __always_inline void go_bare(struct wire_waits_row *row, struct wait_scratch *s, __u32 pid,
				    __u32 flags, struct taken taken)
{
	sum_up(&row->bare, weight_of(taken.chance) >> 8, stands_for(taken));
	/* Without a budget nobody asks for stacks. */
	if (!config.budget_ns)
		return;
	s->wait.stack.kernel_frames = 0;
	s->wait.stack.user_frames = 0;
	s->key.pid = pid;
	s->key.flags = flags | WAIT_NO_STACK;
	/* A name is as good as a hash of it. */
	__builtin_memcpy(s->key.hash, s->wait.stack.comm, sizeof(s->key.hash));
	if (place(row, s))
		credit(&s->key, taken);
}

/* Takes both stacks of the current task, which `task` is; 0: they found no room. */
static __always_inline int take_current(void *ctx, struct wire_waits_row *row,
					struct task_struct *task, struct wait_scratch *s,
					__u32 flags)
{
	flags |= take_task_stack(ctx, task, &s->wait.stack, 1);
	return keep(row, s, bpf_get_current_pid_tgid() >> 32, flags);
}

/* Called by user space, never attached: who we are. */
SEC("raw_tp")
int who_we_are(void *ctx)
{
	ours = bpf_get_current_pid_tgid() >> 32;
	return 0;
}

#endif
