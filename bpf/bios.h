/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Records when each bio entered the block layer. For the latency programs, which define `config`
 * before this header.
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
 * Entry time of each bio, kept until its request is issued, or until it completes if the request
 * has several bios. A set has four ways for bios whose addresses hash alike, and overflows into its
 * neighbour. If both are full, the oldest bio is evicted, which is then counted as no_queue_start.
 */
#define BIO_WAYS 4

struct bio_set {
	__u64 bio[BIO_WAYS];
	__u64 queued[BIO_WAYS];
	/* Operation of each bio; see `op_ref`. */
	__u64 generation[BIO_WAYS];
	__u32 op_ref[BIO_WAYS];
	__u64 pad[2];
#ifdef NO_SWAP
	__u64 lock;
#endif
};

MAPPED_ARRAY(bios, struct bio_set, 1);

/*
 * Submitter of each bio of the set with the same index, if `config.submitter_enabled`; the map then
 * has as many entries.
 */
struct bio_submitters {
	struct wire_submitter of[BIO_WAYS];
};

MAPPED_ARRAY(submitters, struct bio_submitters, 1);

/*
 * Bios of one slab page share 32 consecutive sets, so that those of one queue stay within a few
 * pages: a TLB miss in a virtual machine costs more than all the rest of the program. The page's
 * address is hashed, since slabs lie at regular distances and its bits alone would collide.
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

/* Always 0, but the verifier does not know that. */
volatile __u32 unknown_zero = 0;

/*
 * Hides from the verifier which way of a set was found: it would otherwise walk all that follows
 * once for each way.
 */
static __always_inline __u32 any_way(__u32 way)
{
	return (way | unknown_zero) & (BIO_WAYS - 1);
}

/* The way of a bio in a set; BIO_WAYS: not in the set. */
static __always_inline __u32 bio_way(struct bio_set *set, __u64 bio)
{
	for (__u32 i = 0; i < BIO_WAYS; i++)
		if (set->bio[i] == bio)
			return i;
	return BIO_WAYS;
}

/* The set that contains a bio, with its index and the bio's way; NULL: the bio is unknown. */
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

/* Submitter of the bio in one way of a set; NULL: submitters are not recorded. */
static __always_inline struct wire_submitter *submitter_at(__u32 index, __u32 way)
{
	struct bio_submitters *set;

	if (!config.submitter_enabled)
		return 0;
	set = bpf_map_lookup_elem(&submitters, &index);
	return set ? &set->of[way & (BIO_WAYS - 1)] : 0;
}

/* Entry time of a bio, or 0. */
static __always_inline __u64 peek_bio(__u64 bio)
{
	__u32 way;
	struct bio_set *set = find_bio(bio, &way);

	return set ? set->queued[way] : 0;
}

/* Removes a bio; returns its entry time, or 0. */
static __always_inline __u64 take_bio(__u64 bio)
{
	__u32 way;
	struct bio_set *set = find_bio(bio, &way);

	if (!set)
		return 0;
	set->bio[way] = 0;
	return set->queued[way];
}

/* Puts a bio into a free way, unless another CPU was faster. */
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

/* Claims a free way of a set; BIO_WAYS: the set is full. */
static __always_inline __u32 take_way(struct bio_set *set, __u64 bio)
{
	/* Another CPU may claim the same way concurrently: then the next one is tried. */
	for (__u32 i = 0; i < BIO_WAYS; i++)
		if (!set->bio[i] && put_bio(set, i, bio))
			return i;
	return BIO_WAYS;
}

/* Replaces the oldest bio of a full set. */
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

/* The way for a bio in a set; BIO_WAYS: the set is full. */
static __always_inline __u32 put_into(struct bio_set *set, __u64 bio)
{
	/* An earlier bio at this address may have ended without an issue: an error before the
	 * request. */
	__u32 found = bio_way(set, bio);

	return found < BIO_WAYS ? found : take_way(set, bio);
}

/* The same for the neighbouring set. */
static __noinline __u32 put_beside(struct bio_set *set, __u64 bio)
{
	return set ? put_into(set, bio) : BIO_WAYS;
}

/* Finds room for a bio that enters the block layer; returns the set, its index and the way. */
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

/* The next bio of the same request; 0: none. */
static __always_inline __u64 next_bio(__u64 bio)
{
	__u64 next = 0;

	bpf_probe_read_kernel(&next, sizeof(next),
			      (const void *)(bio + bpf_core_field_offset(struct bio, bi_next)));
	return next;
}

/*
 * Bios of a request that are examined. Each has at least one segment, of which a request may have
 * 65535 (max_segments: 128 by default, 2048 on some SCSI hosts). Requests with more bios are
 * counted.
 */
#define MOST_BIOS 4096
/* For unrolled loops: only front merges put a later bio first, and those are few. */
#define MOST_BIOS_UNROLLED 8

struct first {
	__u64 bio;
	__u64 queued;
};

/*
 * Whether the bios of a request stay in the table until it completes, for operations and
 * submitters.
 */
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

/* Moves the entry time and the operation of a request's only bio to its slot. */
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
	/* Two cases need the bio until completion. Its event has the submitter. And if a path of an
	 * NVMe multipath device fails, the driver takes the bio from its request and resubmits it
	 * on another path, without an event. */
	if (config.events_enabled || (config.operations_enabled && cmd_flags & driver_flag()))
		slot->op_ref = REF_IN_TABLE;
	else if (!config.most_groups && !config.parts_enabled)
		set->bio[way] = 0;
}

/* Groups and parts have been looked up by the bio: remove it if it has moved to the slot. */
static __always_inline void moved_bio(const struct wire_slot *slot, __u64 bio)
{
	if ((config.most_groups || config.parts_enabled) && slot->queued &&
	    !(slot->op_ref & REF_IN_TABLE))
		take_bio(bio);
}

/*
 * Finds the earliest entry time of a request's bios, since a front merge puts a later bio first.
 * Returns 1 if some bios that matter were not examined.
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
	/* bpf_loop (5.17) is younger than compare-and-swap. */
	for (__u32 i = 0; i < MOST_BIOS_UNROLLED && first.bio; i++)
		earlier_bio(i, &first);
#else
	bpf_loop(MOST_BIOS, earlier_bio, &first, 0);
#endif
	slot->queued = first.queued;
	slot->op_ref = REF_IN_TABLE;
	if (!first.bio)
		return 0;
	/* Bios merged at the request's end were removed at the merge, and have no entry time. */
	return keep_bios() || peek_bio(first.bio);
}

#endif
