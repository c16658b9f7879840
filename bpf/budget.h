/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Limits what stacks of waits cost by sampling the waits that have one: at random in proportion to
 * their length, and always above a threshold, which follows from the budget. A sampled wait is
 * scaled up by the inverse of its probability, whatever the threshold was, so that sums are right
 * on average. For programs that define `config` before this header.
 */
#ifndef BIOPSY_BUDGET_H
#define BIOPSY_BUDGET_H

#include "kernel.h"
#include "wire.h"

/* Once raised, the threshold never drops below this: the time of a clock read. */
#define LEAST_THRESHOLD 256
/* Far above what any budget needs. */
#define MOST_THRESHOLD (1ull << 36)
/*
 * Limit on a period's spending, in budgets, when the load changes suddenly: the rest of the period
 * has no stacks. Before that the threshold is a thousand times higher already.
 */
#define MOST_BUDGETS 16

static __always_inline void set_threshold(struct wire_budget *budget, __u64 threshold)
{
	budget->threshold = threshold < MOST_THRESHOLD ? threshold : MOST_THRESHOLD;
	if (budget->most_threshold < budget->threshold)
		budget->most_threshold = budget->threshold;
}

/*
 * Begins a new period. The threshold rises by the factor that the last period overspent, unless it
 * rose within that period. It drops by at most a quarter, and to half of that after a period
 * without a stack: weights that change much would increase the variance of the estimates beyond
 * what the number of samples requires.
 */
static __always_inline void begin_period(struct wire_budget *budget, __u64 now)
{
	__u64 since = now - budget->period_began, threshold = budget->threshold;
	__u64 most = config.budget_ns | 1, spent = budget->period_ns, empty;

	if (since < config.period_ns)
		return;
	/* Neither product exceeds 63 bits: a period spends little more than MOST_BUDGETS, as a
	 * ratio in 256ths. */
	if (budget->raise_at)
		threshold = budget->threshold;
	else if (spent > most)
		threshold = (threshold * ((spent << 8) / most) >> 8) | LEAST_THRESHOLD;
	else
		threshold -= threshold / 4 * (most - spent) / most;
	/* Periods without waits say nothing about the load, except that the threshold may be too
	 * high. */
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
 * Accounts for the time of one stack. If spending is a whole budget ahead of the elapsed part of
 * the period, the load has changed: the threshold doubles at once, and again for each further
 * eighth of a budget that is spent too early. (Doubling for each eighth, however late, raised it to
 * many times the necessary value: of 1,100 stacks that the budget of two seconds buys, only 670
 * were taken.)
 */
static __always_inline void spend(struct wire_budget *budget, __u64 now, __u64 ns)
{
	__u64 most = config.budget_ns, gone = now - budget->period_began, part;
	int is_soon;

	budget->stack_ns += ns;
	budget->period_ns += ns;
	if (gone > config.period_ns)
		gone = config.period_ns;
	/* The period in 1024ths, so that the product fits. */
	part = most * ((gone << 10) / (config.period_ns | 1)) >> 10;
	if (budget->period_ns < budget->raise_at || budget->period_ns < most + part)
		return;
	is_soon = !budget->raise_at || gone - budget->raised < config.period_ns / 8;
	/* A period, and the time that MOST_BUDGETS of it can take, fit into 31 bits. */
	budget->raise_at = budget->period_ns + most / 8;
	budget->raised = gone;
	if (!is_soon)
		return;
	set_threshold(budget, budget->threshold < LEAST_THRESHOLD ? LEAST_THRESHOLD
								  : 2 * budget->threshold);
}

/* Probability 1: probabilities are in units of 2^-32. */
#define SURE (1ull << 32)
/* A wait is scaled up to at most this many. */
#define MOST_WEIGHT (1u << 16)

/* Probability that a wait is sampled, in proportion to its length. */
static __always_inline __u64 chance_of(__u64 length, __u64 threshold)
{
	__u64 chance;

	if (length >= threshold || length >= MOST_THRESHOLD)
		return SURE;
	/* A length has at most 36 bits, so its product fits. */
	chance = threshold < SURE ? (length << 32) / threshold : (length << 24) / (threshold >> 8);
	return chance < SURE / MOST_WEIGHT ? SURE / MOST_WEIGHT : chance;
}

/* Decides at random whether the wait is sampled. */
static __always_inline int is_lucky(__u64 chance)
{
	return chance >= SURE || bpf_get_prandom_u32() < chance;
}

/* The weight of a sampled wait, in 256ths: the inverse of its probability. */
static __always_inline __u64 weight_of(__u64 chance)
{
	return chance >= SURE ? 256 : (256ull << 32) / (chance | 1);
}

#endif
