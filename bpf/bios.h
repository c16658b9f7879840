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
 * When a bio entered the block layer, until its request is issued, or, where operations are
 * followed, until it has completed. A set holds four bios whose pointers hash alike and helps its
 * neighbour out; where both are full the oldest goes, which is then counted as no_queue_start.
 */
#define BIO_WAYS 4

struct bio_set {
	__u64 bio[BIO_WAYS];
	__u64 queued[BIO_WAYS];
	/* The operation that each belongs to; see operations.h. */
	__u64 link[BIO_WAYS];
	__u64 proof[BIO_WAYS];
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

/* Of each bio of the set with the same number, where `config.want_submitter`; as many, then. */
struct bio_submitters {
	struct wire_submitter of[BIO_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bio_submitters);
} submitters SEC(".maps");

/*
 * The bios of one slab page share 32 sets in a row, so that those of one queue stay within a few
 * pages: a TLB miss in a virtual machine costs more than all the rest of the program. Which row it
 * is must not follow from the page's address bit by bit, since slabs lie at regular distances.
 */
static __always_inline __u32 bio_home_set(__u64 bio)
{
	__u32 low = low_half((const void *)bio);
	__u32 row = ((low >> 12) * 0x9e3779b1u) >> 16;

	return (row << 5 | (low >> 7 & 31)) & config.bio_mask;
}

static __always_inline struct bio_set *bio_set_at(__u32 index)
{
	return bpf_map_lookup_elem(&bios, &index);
}

/* Always 0, and the verifier does not know it. */
volatile __u32 unknown_zero = 0;

/*
 * A place in a set as any place, for the verifier: it would go through all that follows once for
 * each of them.
 */
static __always_inline __u32 any_way(__u32 way)
{
	return (way | unknown_zero) & (BIO_WAYS - 1);
}

/* Where a bio stands in a set; BIO_WAYS: nowhere. */
static __always_inline __u32 bio_way(struct bio_set *set, __u64 bio)
{
	for (__u32 i = 0; i < BIO_WAYS; i++)
		if (set->bio[i] == bio)
			return i;
	return BIO_WAYS;
}

/* The set in which a bio stands, its number, and where in it; NULL: it is not known. */
static __always_inline struct bio_set *find_bio_at(__u64 bio, __u32 *way, __u32 *index)
{
	__u32 home = bio_home_set(bio);
	struct bio_set *set = bio_set_at(home);
	__u32 found;

	*index = home;
	found = set ? bio_way(set, bio) : BIO_WAYS;
	if (found >= BIO_WAYS) {
		*index = home ^ 1;
		set = bio_set_at(*index);
		found = set ? bio_way(set, bio) : BIO_WAYS;
		if (found >= BIO_WAYS)
			return 0;
	}
	*way = any_way(found);
	return set;
}

static __always_inline struct bio_set *find_bio(__u64 bio, __u32 *way)
{
	__u32 index;

	return find_bio_at(bio, way, &index);
}

/* Who handed in the bio that stands in a way of a set; NULL: nobody wants to know. */
static __always_inline struct wire_submitter *submitter_at(__u32 index, __u32 way)
{
	struct bio_submitters *set;

	if (!config.want_submitter)
		return 0;
	set = bpf_map_lookup_elem(&submitters, &index);
	return set ? &set->of[way & (BIO_WAYS - 1)] : 0;
}

/* The stamp of a bio, or 0. */
static __always_inline __u64 peek_bio(__u64 bio)
{
	__u32 way;
	struct bio_set *set = find_bio(bio, &way);

	return set ? set->queued[way] : 0;
}

/* Forgets a bio; its stamp, or 0. */
static __always_inline __u64 take_bio(__u64 bio)
{
	__u32 way;
	struct bio_set *set = find_bio(bio, &way);

	if (!set)
		return 0;
	set->bio[way] = 0;
	return set->queued[way];
}

/* Puts a bio into a free place, unless another CPU was faster. */
static __always_inline int put_bio(struct bio_set *set, __u32 way, __u64 bio)
{
#ifdef NO_SWAP
	int mine = try_lock(&set->lock) && !*(volatile __u64 *)&set->bio[way];

	if (mine)
		*(volatile __u64 *)&set->bio[way] = bio;
	let_go(&set->lock);
	return mine;
#else
	return !__sync_val_compare_and_swap(&set->bio[way], 0, bio);
#endif
}

/* Takes a free place of a set; BIO_WAYS: there is none. */
static __always_inline __u32 take_way(struct bio_set *set, __u64 bio)
{
	/* Another CPU may take the same way at this moment: then the next one is tried. */
	for (__u32 i = 0; i < BIO_WAYS; i++)
		if (!set->bio[i] && put_bio(set, i, bio))
			return i;
	return BIO_WAYS;
}

/* No way is free: the oldest goes. */
static __noinline __u32 evict(struct bio_set *set, __u64 bio)
{
	__u64 oldest = ~0ull;
	__u32 way = 0;

	if (!set)
		return 0;
	for (__u32 i = 0; i < BIO_WAYS; i++) {
		if (set->queued[i] < oldest) {
			oldest = set->queued[i];
			way = i;
		}
	}
	way &= BIO_WAYS - 1;
	set->bio[way] = bio;
	return way;
}

/* A place for a bio that enters the block layer: the set, its number, and where in it. */
static __always_inline struct bio_set *place_bio(__u64 bio, __u32 *way, __u32 *index)
{
	__u32 home = bio_home_set(bio);
	struct bio_set *set = bio_set_at(home);
	__u32 found;

	if (!set)
		return 0;
	*index = home;
	/* Its last life may have ended without an issue: an error before the request. */
	found = bio_way(set, bio);
	if (found >= BIO_WAYS)
		found = take_way(set, bio);
	if (found >= BIO_WAYS) {
		struct bio_set *next = bio_set_at(home ^ 1);

		found = next ? bio_way(next, bio) : BIO_WAYS;
		if (next && found >= BIO_WAYS)
			found = take_way(next, bio);
		if (found < BIO_WAYS) {
			set = next;
			*index = home ^ 1;
		} else {
			found = evict(set, bio);
		}
	}
	*way = any_way(found);
	return set;
}

/* The bio behind this one in its request; 0: none. */
static __always_inline __u64 next_bio(__u64 bio)
{
	__u64 next = 0;

	bpf_probe_read_kernel(&next, sizeof(next),
			      (const void *)(bio + bpf_core_field_offset(struct bio, bi_next)));
	return next;
}

/* A request has at most 128 segments of one page by default, and so about as many bios. */
#define MOST_BIOS 256
/* Where loops are unrolled: only front merges put a later bio first, and those are few. */
#define MOST_BIOS_UNROLLED 8

struct first {
	__u64 bio;
	__u64 queued;
};

/* Operations and submitters need the bio again when it completes. */
static __always_inline int keep_bios(void)
{
	return config.want_operations || config.want_submitter;
}

static __always_inline __u64 stamp_of(__u64 bio)
{
	return keep_bios() ? peek_bio(bio) : take_bio(bio);
}

static long earlier_bio(__u32 i, struct first *first)
{
	__u64 queued = stamp_of(first->bio);

	if (queued && (!first->queued || queued < first->queued))
		first->queued = queued;
	first->bio = next_bio(first->bio);
	return !first->bio;
}

/* When the first of a request's bios entered the block layer. A front merge puts a later one first.
 */
static __always_inline __u64 first_queued(struct bio *bio)
{
	struct first first = {.bio = (__u64)bio};

	if (!bio)
		return 0;
	/* Nearly always it is alone. */
	if (!bio->bi_next)
		return stamp_of((__u64)bio);

#ifdef NO_SWAP
	/* bpf_loop is younger than compare-and-swap: 5.17. */
	for (__u32 i = 0; i < MOST_BIOS_UNROLLED && first.bio; i++)
		earlier_bio(i, &first);
#else
	bpf_loop(MOST_BIOS, earlier_bio, &first, 0);
#endif
	return first.queued;
}

#endif
