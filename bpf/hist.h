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

static __always_inline __u32 msb64(__u64 value)
{
	__u32 bit = 0;

	if (value >> 32) {
		bit += 32;
		value >>= 32;
	}
	if (value >> 16) {
		bit += 16;
		value >>= 16;
	}
	if (value >> 8) {
		bit += 8;
		value >>= 8;
	}
	if (value >> 4) {
		bit += 4;
		value >>= 4;
	}
	if (value >> 2) {
		bit += 2;
		value >>= 2;
	}
	return bit + (value >> 1);
}

static __always_inline __u32 hist_index(__u64 value)
{
	__u32 shift;

	if (value < (1 << HIST_SUB_BITS))
		return value;
	if (value >> HIST_MAX_BITS)
		return HIST_BUCKETS - 1;
	shift = msb64(value) - HIST_SUB_BITS;
	return ((shift + 1) << HIST_SUB_BITS) + ((value >> shift) & ((1 << HIST_SUB_BITS) - 1));
}

/* Raises *cell, which is one of the row's, to at least value while other CPUs may do the same. */
static __always_inline void raise_shared(struct wire_row *row, __u64 *cell, __u64 value)
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
		if (try_lock(&row->lock) && *(volatile __u64 *)cell < value)
			*(volatile __u64 *)cell = value;
		let_go(&row->lock);
		seen = *(volatile __u64 *)cell;
	}
#else
	for (int i = 0; i < 8 && seen < value; i++)
		seen = __sync_val_compare_and_swap(cell, seen, value);
#endif
}

/*
 * `shared`: other CPUs add to this histogram too. Without it plain additions do: the kernel does
 * not run a program on a CPU inside itself, and the programs do not migrate. (Before
 * 05b24ff9b2cf, 6.1, it does run one that interrupts itself: there user space makes every row a
 * shared one.)
 */
static __always_inline void hist_add(struct wire_row *row, __u32 stage, __u64 value, int shared)
{
	struct wire_extent *extent = &row->extents[stage];
	__u32 i = hist_index(value);

	if (i >= HIST_BUCKETS)
		return;
	if (shared) {
		__sync_fetch_and_add(&row->counts[stage * HIST_BUCKETS + i], 1);
		__sync_fetch_and_add(&extent->sum, value);
		raise_shared(row, &extent->not_min, ~value);
		raise_shared(row, &extent->max, value);
		return;
	}
	row->counts[stage * HIST_BUCKETS + i]++;
	extent->sum += value;
	if (extent->not_min < ~value)
		extent->not_min = ~value;
	if (extent->max < value)
		extent->max = value;
}

#endif
