/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What stacks of waits may cost, and so which waits have one: by chance in proportion to their
 * length, and above a threshold, which the budget sets, for sure. Whatever the threshold was, a
 * wait that was taken counts for as many as it was unlikely: sums are right on average. For
 * programs whose `config` must stand before it.
 */
#ifndef BIOPSY_BUDGET_H
#define BIOPSY_BUDGET_H

#include "kernel.h"
#include "wire.h"

/* The threshold never goes below, once it is up: a clock read's time. */
#define LEAST_THRESHOLD 256
/* Far beyond what any budget asks for. */
#define MOST_THRESHOLD (1ull << 36)
/* Of a period's budget, when the load is suddenly another: then the rest of the period has no
 * stacks. The threshold is a thousand times higher long before. */
#define MOST_BUDGETS 16

static __always_inline void set_threshold(struct wire_budget *budget, __u64 threshold)
{
	budget->threshold = threshold < MOST_THRESHOLD ? threshold : MOST_THRESHOLD;
	if (budget->most_threshold < budget->threshold)
		budget->most_threshold = budget->threshold;
}

/*
 * A new period. The threshold goes up by what the last one overspent, where it has not done so
 * already, and comes down by a quarter at most, and to half of that after one without a stack: what
 * a stack stands for must not change much, or estimates would scatter more than so many need to.
 */
static __always_inline void begin_period(struct wire_budget *budget, __u64 now)
{
	__u64 since = now - budget->period_began, threshold = budget->threshold;
	__u64 most = config.budget_ns | 1, spent = budget->period_ns, empty;

	if (since < config.period_ns)
		return;
	/* Neither product is beyond 63 bits: a period's stacks take MOST_BUDGETS and a little, the
	 * part of which is in 256ths. */
	if (budget->raise_at)
		threshold = budget->threshold;
	else if (spent > most)
		threshold = (threshold * ((spent << 8) / most) >> 8) | LEAST_THRESHOLD;
	else
		threshold -= threshold / 4 * (most - spent) / most;
	/* Of periods in which nobody waited nothing can be learned, but that it may be too high. */
	empty = since / (config.period_ns | 1) + !spent;
	threshold = empty < 64 ? threshold >> empty / 2 : 0;
	set_threshold(budget, threshold < LEAST_THRESHOLD ? 0 : threshold);
	budget->period_began = now;
	budget->period_ns = 0;
	budget->raise_at = 0;
}

static __always_inline int is_over_budget(struct wire_budget *budget)
{
	return budget->period_ns >= MOST_BUDGETS * config.budget_ns;
}

/*
 * What a stack took. Where that runs ahead of the part of the period that is over by a whole
 * budget, the load is another than before: the threshold doubles at once, and with each further
 * eighth that comes sooner than it should. (Doubled with each eighth, however late, it came to many
 * times what it had to be: of 1,100 stacks that two seconds' budget buys there were 670.)
 */
static __always_inline void spend(struct wire_budget *budget, __u64 now, __u64 ns)
{
	__u64 most = config.budget_ns, gone = now - budget->period_began, part;
	int is_soon;

	budget->stack_ns += ns;
	budget->period_ns += ns;
	if (gone > config.period_ns)
		gone = config.period_ns;
	/* In 1024ths of a period: the product has room. */
	part = most * ((gone << 10) / (config.period_ns | 1)) >> 10;
	if (budget->period_ns < budget->raise_at || budget->period_ns < most + part)
		return;
	is_soon = !budget->raise_at || gone - budget->raised < config.period_ns / 8;
	/* A period and what MOST_BUDGETS of it come to have 31 bits. */
	budget->raise_at = budget->period_ns + most / 8;
	budget->raised = gone;
	if (!is_soon)
		return;
	set_threshold(budget, budget->threshold < LEAST_THRESHOLD ? LEAST_THRESHOLD
								  : 2 * budget->threshold);
}

/* Chances are in parts of it. */
#define SURE (1ull << 32)
/* At most for so many waits one may stand. */
#define MOST_WEIGHT (1u << 16)

/* In proportion to a length: how likely it is taken. */
static __always_inline __u64 chance_of(__u64 length, __u64 threshold)
{
	__u64 chance;

	if (length >= threshold || length >= MOST_THRESHOLD)
		return SURE;
	/* A length of 36 bits has room for as many more as that. */
	chance = threshold < SURE ? (length << 32) / threshold : (length << 24) / (threshold >> 8);
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

#endif
