/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * By which way an I/O was handed in: the stacks of some of the bios that enter the block layer, one
 * in so many as their budget allows. For the latency programs, whose `config` must stand before it;
 * nothing of it is left in the kernel without `config.stacks_enabled`.
 */
#ifndef BIOPSY_SUBMIT_STACKS_H
#define BIOPSY_SUBMIT_STACKS_H

#include "compat.h"
#include "task_stack.h"
#include "wire.h"

/* User space sets the sizes. Made in advance: bios enter where nobody may wait for memory. */
HASH(submit_stacks, struct wire_stack_key, struct wire_submit_stack, 1);

/* One per CPU, as `submit_scratch`. */
MAPPED_ARRAY(submit_rows, struct wire_submit_row, 1);

/* Too large for the BPF stack. */
struct submit_scratch {
	struct wire_stack_key key;
	struct wire_submit_stack taken;
};

ARRAY(submit_scratch, struct submit_scratch, 1);

/* A number is that of a CPU and what that has counted up to. */
#define SUBMIT_NUMBER_BITS 16
/* Far beyond what any budget asks for. */
#define MOST_ONE_IN 20
/* Of a period's budget, when the load is suddenly another: then the rest of the period has no
 * stacks. */
#define MOST_SUBMIT_BUDGETS 4

/*
 * The number of the stack in a CPU's scratch, which gets one where it is new; 0: there is no room.
 * Not static: see VERIFIED_ONCE. What is a function's argument is no key of a map for 6.1.
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
		/* Another CPU may have been first. */
		if (!bpf_map_update_elem(&submit_stacks, &s->key, &s->taken, BPF_NOEXIST)) {
			row->numbered++;
			return s->taken.number;
		}
		known = bpf_map_lookup_elem(&submit_stacks, &s->key);
	}
	return known ? known->number : 0;
}

/* A new period: more may be taken. */
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
 * What a stack took. Where the budget is spent within a period half as many are taken, and again
 * each time that another half is: bios of the rest of a period in which none are taken have no
 * weight.
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
 * Takes the stack by which the current task hands in a bio, where it is this one's turn. Which ones
 * are taken is left to chance, or a load with a rhythm would be seen on one foot. Before the bio
 * has its stamp: what it takes is in no stage of the I/O, but in its operation's submit, and in the
 * queue of the requests that wait in the task's plug meanwhile.
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
	/* An interrupt may hand in a bio, too. */
	if (row->busy) {
		row->nested++;
		return 0;
	}
	row->busy = 1;
	began = bpf_ktime_get_ns();
	/* As likely as the gap before it was drawn. */
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
	/* From 0 to twice as many, less 2: in the mean one of 1 << one_in. */
	row->skip = bpf_get_prandom_u32() % ((2u << (row->one_in & 31)) - 1);
	row->busy = 0;
	return 0;
}

/* Where the stack of this bio was taken last on this CPU. */
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
