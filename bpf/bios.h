/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * When a bio entered the block layer. For the latency programs, whose `config` must stand before
 * it.
 */
#ifndef BIOPSY_BIOS_H
#define BIOPSY_BIOS_H

#include "compat.h"
#include "wire.h"

/*
 * When a bio entered the block layer, until its request is issued. A cache line holds four bios
 * whose pointers hash alike; the fifth would push out the oldest, which is then counted as
 * no_queue_start.
 */
#define BIO_WAYS 4

struct bio_set {
	__u64 bio[BIO_WAYS];
	__u64 queued[BIO_WAYS];
#ifdef NO_SWAP
	__u64 lock;
#endif
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bio_set);
} bios SEC(".maps");

static __always_inline struct bio_set *bio_set_of(const void *bio)
{
	__u32 low = low_half(bio);
	/*
	 * Neighbours in a slab get neighbouring sets, so that the bios of one queue stay within a
	 * few pages: a TLB miss in a virtual machine costs more than all the rest of the program.
	 */
	__u32 index = ((low >> 7) ^ (low >> 15)) & config.bio_mask;

	return bpf_map_lookup_elem(&bios, &index);
}

/*
 * Puts a bio where `held` is (0: nothing), unless another CPU was faster: then the caller tries the
 * next way. A stamp that finds no way at all is counted as no_queue_start at the issue.
 */
static __always_inline int put_bio(struct bio_set *set, __u32 way, __u64 held, __u64 bio,
				   __u64 queued)
{
#ifdef NO_SWAP
	int mine = try_lock(&set->lock) && *(volatile __u64 *)&set->bio[way] == held;

	if (mine) {
		*(volatile __u64 *)&set->queued[way] = queued;
		*(volatile __u64 *)&set->bio[way] = bio;
	}
	let_go(&set->lock);
	return mine;
#else
	if (__sync_val_compare_and_swap(&set->bio[way], held, bio) != held)
		return 0;
	set->queued[way] = queued;
	return 1;
#endif
}

/* Forgets a bio; its stamp, or 0. */
static __always_inline __u64 take_bio(struct bio *bio)
{
	struct bio_set *set = bio_set_of(bio);

	if (!set)
		return 0;
	for (int i = 0; i < BIO_WAYS; i++) {
		if (set->bio[i] == (__u64)bio) {
			__u64 queued = set->queued[i];

			set->bio[i] = 0;
			return queued;
		}
	}
	return 0;
}

/* No way is free: the oldest stamp goes. */
static __noinline int evict(struct bio_set *set, __u64 bio, __u64 now)
{
	__u64 oldest = ~0ull, victim = 0;
	__u32 way = 0;

	if (!set)
		return 0;
	for (int i = 0; i < BIO_WAYS; i++) {
		if (set->queued[i] < oldest) {
			oldest = set->queued[i];
			victim = set->bio[i];
			way = i;
		}
	}
	way &= BIO_WAYS - 1;
	put_bio(set, way, victim, bio, now);
	return 0;
}

#endif
