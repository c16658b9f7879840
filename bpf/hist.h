/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The histogram of src/hist.rs in the kernel: log-linear with 4 sub-bucket bits. Below 16 a bucket
 * per value, above it 16 per power of two, so that a bucket's midpoint is at most 1/32 off.
 * Shifts only, no loop. Values from 2^40 ns (18 minutes) share the last bucket; sum, lowest and
 * highest stay exact.
 */
#ifndef BIOPSY_HIST_H
#define BIOPSY_HIST_H

#include "compat.h"
#include "wire.h"

/*
 * The highest bit of a value below 2^63, by arithmetic: branches would be guessed wrong on the hot
 * path, and the verifier would follow each of them.
 */
static __always_inline __u32 msb64(__u64 value)
{
	__u32 bit, step;

	/* The sign of limit - value says whether the value lies above. */
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
	/* The highest bit of 0 to 15, two bits each. */
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

/* Raises *cell, of the row with this lock, to at least value while other CPUs may do the same. */
static __always_inline void raise_shared(__u64 *lock, __u64 *cell, __u64 value)
{
	__u64 seen = *(volatile __u64 *)cell;

	/* A try fails only when another CPU raised the cell in between; 8 in a row do not happen.
	 */
#ifdef NO_SWAP
	/*
	 * Nor do here, but in an interrupt of the very instructions that hold the lock. Then the
	 * extent stays, and user space takes the bound of the outermost bucket.
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
 * Counts a time in its bucket, and extends the lowest and highest. `shared`: other CPUs add to
 * these too. Without it plain additions do: the kernel does not run a program on a CPU inside
 * itself, and the programs do not migrate. (Before 05b24ff9b2cf, 6.1, it does run one that
 * interrupts itself: there user space makes every row a shared one.) `lock` is the row's.
 */
static __always_inline void count_time(__u64 *counts, __u64 *not_min, __u64 *max, __u64 *lock,
				       __u64 value, int shared)
{
	__u64 i = hist_index(value);

	/* 6.1's verifier follows no 32-bit bound into a 64-bit register. */
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

/* Adds a time to the stage's extent and to its part of `counts`. */
static __always_inline void add_time(struct wire_extent *extents, __u64 *counts, __u64 *lock,
				     __u32 stage, __u64 value, int shared)
{
	struct wire_extent *extent = &extents[stage];

	add(&extent->sum, value, shared);
	count_time(counts + stage * HIST_BUCKETS, &extent->not_min, &extent->max, lock, value,
		   shared);
}

#endif
