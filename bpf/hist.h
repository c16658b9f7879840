/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Implements the histogram of src/hist.rs in the kernel: log-linear with 4 sub-bucket bits. There
 * is a bucket per value below 16, and above it 16 per power of two, so that a bucket's midpoint is
 * off by at most 1/32. It uses shifts only, and no loop. Values from 2^40 ns (18 minutes) share the
 * last bucket; sum, minimum and maximum stay exact.
 */
#ifndef BIOPSY_HIST_H
#define BIOPSY_HIST_H

#include "compat.h"
#include "wire.h"

/*
 * The highest bit of a value below 2^63, computed without branches: those would be mispredicted on
 * the hot path, and the verifier would follow both sides of each.
 */
static __always_inline __u32 msb64(__u64 value)
{
	__u32 bit, step;

	/* The sign of limit - value tells whether the value is above. */
	bit = ((0xffffffffull - value) >> 63) << 5;
	value >>= bit;
	step = ((0xffffull - value) >> 63) << 4;
	value >>= step;
	bit += step;
	step = ((0xffull - value) >> 63) << 3;
	value >>= step;
	bit += step;
	step = ((0xfull - value) >> 63) << 2;
	value >>= step;
	bit += step;
	/* A table of the highest bits of 0 to 15, two bits each. */
	return bit + ((0xffffaa50u >> (value << 1)) & 3);
}

static __always_inline __u32 hist_index(__u64 value)
{
	__u32 shift;

	if (value < (1 << HIST_SUB_BITS))
		return value;
	if (unlikely(value >> HIST_MAX_BITS))
		return HIST_BUCKETS - 1;
	shift = msb64(value) - HIST_SUB_BITS;
	return ((shift + 1) << HIST_SUB_BITS) + ((value >> shift) & ((1 << HIST_SUB_BITS) - 1));
}

/* `shared`: other CPUs add to this cell too. */
static __always_inline void add(__u64 *cell, __u64 value, int shared)
{
	if (shared)
		__sync_fetch_and_add(cell, value);
	else
		*cell += value;
}

/* Raises *cell of the row with this lock to at least value, while other CPUs may do the same. */
static __always_inline void raise_shared(__u64 *lock, __u64 *cell, __u64 value)
{
	__u64 seen = *(volatile __u64 *)cell;

	/* An attempt fails only if another CPU raised the cell in between; 8 failures in a row do
	 * not happen. */
#ifdef NO_SWAP
	/*
	 * Nor do they here, except in an interrupt of the very instructions that hold the lock.
	 * Then the extent stays unchanged, and user space uses the bound of the outermost bucket.
	 */
	for (int i = 0; i < 8 && seen < value; i++) {
		if (try_lock(lock) && *(volatile __u64 *)cell < value)
			*(volatile __u64 *)cell = value;
		let_go(lock);
		seen = *(volatile __u64 *)cell;
	}
#else
	for (int i = 0; i < 8 && seen < value; i++)
		seen = __sync_val_compare_and_swap(cell, seen, value);
#endif
}

VERIFIED_ONCE int extend_shared(__u64 *not_min, __u64 *max, __u64 *lock, __u64 value)
{
	if (!not_min || !max || !lock)
		return 0;
	raise_shared(lock, not_min, ~value);
	raise_shared(lock, max, value);
	return 0;
}

/*
 * Counts a time in its bucket, and updates the minimum and maximum. `shared`: other CPUs add to
 * these cells too. Otherwise plain additions suffice, since the kernel does not run a program
 * recursively on a CPU and the programs do not migrate. (Before 05b24ff9b2cf, 6.1, it does run one
 * that interrupts itself: there user space marks every row as shared.) `lock` is the row's.
 */
static __always_inline void count_time(__u64 *counts, __u64 *not_min, __u64 *max, __u64 *lock,
				       __u64 value, int shared)
{
	__u64 i = hist_index(value);

	/* 6.1's verifier does not carry a 32-bit bound into a 64-bit register. */
	asm volatile("" : "+r"(i));
	if (i >= HIST_BUCKETS)
		return;
	if (shared) {
		__sync_fetch_and_add(&counts[i], 1);
		extend_shared(not_min, max, lock, value);
		return;
	}
	counts[i]++;
	if (*not_min < ~value)
		*not_min = ~value;
	if (*max < value)
		*max = value;
}

/* Adds a time to a stage's extent and to the stage's part of `counts`. */
static __always_inline void add_time(struct wire_extent *extents, __u64 *counts, __u64 *lock,
				     __u32 stage, __u64 value, int shared)
{
	struct wire_extent *extent = &extents[stage];

	add(&extent->sum, value, shared);
	count_time(counts + stage * HIST_BUCKETS, &extent->not_min, &extent->max, lock, value,
		   shared);
}

#endif
