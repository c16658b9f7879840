/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * When a bio entered the block layer. For the latency programs, whose `config` must stand before
 * it.
 */
#ifndef BIOPSY_BIOS_H
#define BIOPSY_BIOS_H

#include "compat.h"
#include "wire.h"

static __always_inline int follows_operations(void)
{
	return CAN_FOLLOW && config.operations_enabled;
}

/*
 * When a bio entered the block layer, until its request is issued, or, where the request has others
 * too, until it has completed. A set holds four bios whose pointers hash alike and helps its
 * neighbour out; where both are full the oldest goes, which is then counted as no_queue_start.
 */
#define BIO_WAYS 4

struct bio_set {
	__u64 bio[BIO_WAYS];
	__u64 queued[BIO_WAYS];
	/* The operation that each belongs to; see `op_ref`. */
	__u64 generation[BIO_WAYS];
	__u32 op_ref[BIO_WAYS];
	__u64 pad[2];
#ifdef NO_SWAP
	__u64 lock;
#endif
};

MAPPED_ARRAY(bios, struct bio_set, 1);

/* Of each bio of the set with the same number, where `config.submitter_enabled`; as many, then. */
struct bio_submitters {
	struct wire_submitter of[BIO_WAYS];
};

MAPPED_ARRAY(submitters, struct bio_submitters, 1);

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
	if (unlikely(found >= BIO_WAYS)) {
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

	if (!config.submitter_enabled)
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

/* Where a bio is put into a set; BIO_WAYS: it has no room. */
static __always_inline __u32 put_into(struct bio_set *set, __u64 bio)
{
	/* Its last life may have ended without an issue: an error before the request. */
	__u32 found = bio_way(set, bio);

	return found < BIO_WAYS ? found : take_way(set, bio);
}

/* The same in the set beside its own. */
static __noinline __u32 put_beside(struct bio_set *set, __u64 bio)
{
	return set ? put_into(set, bio) : BIO_WAYS;
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
	found = put_into(set, bio);
	if (unlikely(found >= BIO_WAYS)) {
		struct bio_set *next = bio_set_at(home ^ 1);

		found = put_beside(next, bio);
		if (next && found < BIO_WAYS) {
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

/*
 * Bios of a request that are looked at. Each has a segment at least, of which there may be 65535
 * (max_segments: 128 by default, 2048 of some SCSI hosts). What has more is counted.
 */
#define MOST_BIOS 4096
/* Where loops are unrolled: only front merges put a later bio first, and those are few. */
#define MOST_BIOS_UNROLLED 8

struct first {
	__u64 bio;
	__u64 queued;
};

/* Operations and submitters need each bio of a request again when that completes. */
static __always_inline int keep_bios(void)
{
	return config.operations_enabled || config.submitter_enabled;
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

/* The stamp and the operation of a request's only bio move to its slot. */
static __always_inline void move_bio(struct wire_slot *slot, __u64 bio, __u32 cmd_flags)
{
	__u32 way;
	struct bio_set *set = find_bio(bio, &way);

	if (!set)
		return;
	slot->queued = set->queued[way];
	if (config.operations_enabled) {
		slot->op_ref = set->op_ref[way];
		slot->generation = set->generation[way];
	}
	/* An event tells who handed it in; and where the path of a multipath drive fails, NVMe
	 * takes the bio from its request and hands it to another path, without a word. */
	if (config.events_enabled || (config.operations_enabled && cmd_flags & driver_flag()))
		slot->op_ref = REF_IN_TABLE;
	else if (!config.most_groups && !config.parts_enabled)
		set->bio[way] = 0;
}

/* Groups and parts have been found by the bio: it goes, if it has moved. */
static __always_inline void moved_bio(const struct wire_slot *slot, __u64 bio)
{
	if ((config.most_groups || config.parts_enabled) && slot->queued &&
	    !(slot->op_ref & REF_IN_TABLE))
		take_bio(bio);
}

/*
 * Finds when the first of a request's bios entered the block layer. A front merge puts a later one
 * first. True where there are bios that were not looked at, and had to be.
 */
static __always_inline int first_queued(struct wire_slot *slot, struct bio *bio, __u32 cmd_flags)
{
	struct first first = {.bio = (__u64)bio};

	if (!bio)
		return 0;
	if (likely(!FIELD(bio, bi_next))) {
		move_bio(slot, (__u64)bio, cmd_flags);
		return 0;
	}

#ifdef NO_SWAP
	/* bpf_loop is younger than compare-and-swap: 5.17. */
	for (__u32 i = 0; i < MOST_BIOS_UNROLLED && first.bio; i++)
		earlier_bio(i, &first);
#else
	bpf_loop(MOST_BIOS, earlier_bio, &first, 0);
#endif
	slot->queued = first.queued;
	slot->op_ref = REF_IN_TABLE;
	if (!first.bio)
		return 0;
	/* Those that came to the request's end were let go of as they came, and have no stamp. */
	return keep_bios() || peek_bio(first.bio);
}

#endif
