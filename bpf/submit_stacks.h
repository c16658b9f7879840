/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Samples submit stacks: the stacks of some of the bios that enter the block layer, at a rate that
 * the budget allows. For the latency programs, which define `config` before this header. Without
 * `config.stacks_enabled` the verifier removes all of it.
 */
#ifndef BIOPSY_SUBMIT_STACKS_H
#define BIOPSY_SUBMIT_STACKS_H

#include "compat.h"
#include "task_stack.h"
#include "wire.h"

/* User space sets the sizes. Preallocated: bios enter where memory cannot be allocated. */
HASH(submit_stacks, struct wire_stack_key, struct wire_submit_stack, 1);

/* One per CPU, like `submit_scratch`. */
MAPPED_ARRAY(submit_rows, struct wire_submit_row, 1);

/* Too large for the BPF stack. */
struct submit_scratch {
	struct wire_stack_key key;
	struct wire_submit_stack taken;
};

ARRAY(submit_scratch, struct submit_scratch, 1);

/* A stack's number consists of a CPU and that CPU's count. */
#define SUBMIT_NUMBER_BITS 16
/* Far above what any budget needs. */
#define MOST_ONE_IN 20
/*
 * Limit on a period's spending, in budgets, when the load changes suddenly: the rest of the period
 * has no stacks.
 */
#define MOST_SUBMIT_BUDGETS 4

/*
 * The number of the stack in a CPU's scratch space, which is assigned if the stack is new; 0: no
 * room. Not static: see VERIFIED_ONCE. For 6.1, a function's argument cannot be a map key, so the
 * scratch space is looked up here.
 */
VERIFIED_ONCE int number_stack(__u32 cpu)
{
	struct submit_scratch *s = bpf_map_lookup_elem(&submit_scratch, &cpu);
	struct wire_submit_row *row = bpf_map_lookup_elem(&submit_rows, &cpu);
	struct wire_submit_stack *known;

	if (!s || !row)
		return 0;
	hash_task_stack(&s->taken.stack, &s->key);
	known = bpf_map_lookup_elem(&submit_stacks, &s->key);
	if (!known) {
		s->taken.number = cpu << SUBMIT_NUMBER_BITS | ((row->numbered + 1) & 0xffff);
		/* Another CPU may have added it first. */
		if (!bpf_map_update_elem(&submit_stacks, &s->key, &s->taken, BPF_NOEXIST)) {
			row->numbered++;
			return s->taken.number;
		}
		known = bpf_map_lookup_elem(&submit_stacks, &s->key);
	}
	return known ? known->number : 0;
}

/* Begins a new period: the sampling rate may rise. */
static __always_inline void begin_submit_period(struct wire_submit_row *row, __u64 now)
{
	if (now - row->period_began < config.stack_period_ns)
		return;
	row->period_began = now;
	if (row->period_ns < config.stack_budget_ns / 2 && row->one_in)
		row->one_in--;
	row->period_ns = 0;
	row->raise_at = config.stack_budget_ns;
}

/*
 * Accounts for the time of a stack. If the budget is spent within a period, the sampling rate is
 * halved, and again each time that another half is spent. If sampling stopped instead, the bios of
 * the rest of the period would have no weight.
 */
static __always_inline void spend_on_submit(struct wire_submit_row *row, __u64 ns)
{
	row->period_ns += ns;
	if (row->period_ns < row->raise_at)
		return;
	row->raise_at += config.stack_budget_ns / 2;
	if (row->one_in < MOST_ONE_IN)
		row->one_in++;
}

/*
 * Takes the stack of the current task, which submits a bio, if this bio is sampled. The choice is
 * random, since a periodic choice could align with a periodic load. It precedes the bio's stamp, so
 * its cost is in no stage of the I/O, but in its operation's submit stage, and in the queue stage
 * of requests that wait in the task's plug meanwhile.
 */
static __always_inline int take_route(void *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct wire_submit_row *row;
	struct submit_scratch *s;
	struct task_struct *task;
	__u64 began;

	if (!config.stack_budget_ns)
		return 0;
	row = bpf_map_lookup_elem(&submit_rows, &cpu);
	if (!row)
		return 0;
	if (row->skip) {
		row->skip--;
		return 0;
	}
	s = bpf_map_lookup_elem(&submit_scratch, &cpu);
	if (!s)
		return 0;
	/* An interrupt may submit a bio as well. */
	if (row->busy) {
		row->nested++;
		return 0;
	}
	row->busy = 1;
	began = bpf_ktime_get_ns();
	/* The weight follows from the rate with which the preceding gap was drawn. */
	row->stands_for = row->one_in;
	begin_submit_period(row, began);
	if (row->period_ns >= MOST_SUBMIT_BUDGETS * config.stack_budget_ns) {
		row->over += 1ull << (row->one_in & 31);
	} else {
		s->key.pid = bpf_get_current_pid_tgid() >> 32;
		task = (void *)bpf_get_current_task();
		s->key.flags = take_task_stack(ctx, task, &s->taken.stack);
		row->stack = number_stack(cpu);
		row->bio = argument_address(ctx, arguments.bio_queue);
		if (!row->stack) {
			row->full++;
			row->stack = NO_ROOM;
		}
		row->plugged = BPF_CORE_READ(task, plug, rq_count);
		began = bpf_ktime_get_ns() - began;
		row->took = (began + (1 << STACK_TOOK_BITS) / 2) >> STACK_TOOK_BITS;
		spend_on_submit(row, began);
	}
	/* From 0 to twice the mean gap: on average one bio in 1 << one_in is sampled. */
	row->skip = bpf_get_prandom_u32() % ((2u << (row->one_in & 31)) - 1);
	row->busy = 0;
	return 0;
}

/* Fills in the stack of this bio if it is the last one taken on this CPU. */
static __always_inline void note_route(struct wire_submitter *by, __u64 bio)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct wire_submit_row *row = bpf_map_lookup_elem(&submit_rows, &cpu);

	if (!row || row->bio != bio)
		return;
	row->bio = 0;
	by->stack = row->stack;
	by->stands_for = row->stands_for;
	by->plugged = row->plugged < 255 ? row->plugged : 255;
	by->took = row->took < 255 ? row->took : 255;
}

#endif
