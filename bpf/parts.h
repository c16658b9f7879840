/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Breaks stages down into parts: what a request waited for in its queue, and what an operation's
 * submission and completion were spent on. The parts are in tables parallel to those of bios, slots
 * and operations, filled only with `config.parts_enabled` (or throttle_enabled): the default view
 * neither loads nor writes them. For the latency programs, which define `config` before this
 * header.
 */
#ifndef BIOPSY_PARTS_H
#define BIOPSY_PARTS_H

#include "bios.h"
#include "compat.h"
#include "hist.h"
#include "owner.h"
#include "wire.h"

/* A part that a request did not have: not inserted, never refused, not retried. */
#define NO_PART (~0ull)

/* When each bio of the set with the same index got its request. */
struct bio_parts {
	__u64 allocated[BIO_WAYS];
};

MAPPED_ARRAY(bio_parts, struct bio_parts, 1);

/* Of the request in the slot with the same index. */
struct slot_parts {
	__u64 request;
	__u64 allocated;
	/* 0: it bypassed the scheduler's and the software queues. */
	__u64 inserted;
	__u64 first_issued;
	__u64 reissued;
	/* The operation that ended with this request: its index in `operation_parts` + 1, and when
	 * it finished. */
	__u64 place;
	__u64 finished;
	__u64 spans[PART_RETRY - PART_ALLOC + 1];
	__u64 pad[4];
};
_Static_assert(sizeof(struct slot_parts) == 128, "slot_parts");

MAPPED_ARRAY(slot_parts, struct slot_parts, 1);

/* Of the operation with the same index, or, after these, of the call of a task. */
struct operation_parts {
	__u64 submitted;
	__u64 punted;
	/* Of its last part: how long blk-throttle held it back after its submission; 0: not
	 * throttled. */
	__u64 throttled;
	/* Time of block_rq_complete, and of the end of the bios' own callbacks. */
	__u64 finished;
	__u64 done;
	/* Of a call: when its task was last woken, and when it ran after that. */
	__u64 woken;
	__u64 ran;
	/* Of a call: an address on its task's kernel stack. */
	__u64 stack;
	__u64 spans[PART_RETRY - PART_ALLOC + 1];
	/* blk-throttle throttled one of its bios. */
	__u64 held;
	__u64 pad2[2];
};
_Static_assert(sizeof(struct operation_parts) == 128, "operation_parts");

MAPPED_ARRAY(operation_parts, struct operation_parts, 1);

/* User space sets the size: Σ over devices of units × operations. */
MAPPED_ARRAY(part_rows, struct wire_part_row, 1);

static __always_inline struct wire_part_row *part_row(__u32 device, __u32 unit, __u32 op)
{
	__u32 index = (device * PART_UNITS + unit) * OPS + op;

	return bpf_map_lookup_elem(&part_rows, &index);
}

static __always_inline struct operation_parts *operation_parts_at(__u32 index)
{
	return bpf_map_lookup_elem(&operation_parts, &index);
}

/* Another operation begins in this entry. */
static __always_inline void parts_begun(__u32 place)
{
	struct operation_parts *parts = operation_parts_at(place);

	if (!parts)
		return;
	parts->punted = 0;
	parts->throttled = 0;
	parts->held = 0;
}

static __always_inline struct slot_parts *slot_parts_at(__u32 index)
{
	return bpf_map_lookup_elem(&slot_parts, &index);
}

static __always_inline struct bio_parts *bio_parts_at(__u32 index)
{
	return bpf_map_lookup_elem(&bio_parts, &index);
}

/* The first of a request's bios has got its request. */
static __always_inline void bio_allocated(__u64 bio)
{
	__u32 way, index;
	struct bio_parts *parts;

	if (!find_bio_at(bio, &way, &index))
		return;
	parts = bio_parts_at(index);
	if (parts)
		parts->allocated[way] = bpf_ktime_get_ns();
}

/*
 * When a request was allocated for this bio; 0: it was merged into an existing request, or the
 * allocation was missed. A value left by an earlier bio in this way is older than this one's entry.
 */
static __always_inline __u64 allocation_of(const struct bio_set *set, __u32 index, __u32 way)
{
	struct bio_parts *parts = bio_parts_at(index);
	__u64 allocated = parts ? parts->allocated[way & (BIO_WAYS - 1)] : 0;

	return allocated >= set->queued[way & (BIO_WAYS - 1)] ? allocated : 0;
}

/*
 * Sets the value of a bio that is put into the table after its entry: the stamp of an earlier bio
 * may be later than that entry.
 */
static __always_inline void set_allocation(__u32 index, __u32 way, __u64 allocated)
{
	struct bio_parts *parts = bio_parts_at(index);

	if (parts)
		parts->allocated[way & (BIO_WAYS - 1)] = allocated;
}

/* The earliest allocation among a request's bios. */
struct first_allocated {
	__u64 bio;
	__u64 allocated;
};

static long earlier_allocation(__u32 i, struct first_allocated *first)
{
	__u32 way, index;
	struct bio_set *set;
	__u64 allocated;

	if (!first->bio)
		return 1;
	set = find_bio_at(first->bio, &way, &index);
	allocated = set ? allocation_of(set, index, way) : 0;
	if (allocated && (!first->allocated || allocated < first->allocated))
		first->allocated = allocated;
	first->bio = next_bio(first->bio);
	return !first->bio;
}

/*
 * Starts a request at its first issue. Its first bio need not be the one that it was allocated for:
 * a front merge puts a later one first.
 */
static __noinline int parts_issued(__u32 index, __u64 request, __u64 bio, __u64 now)
{
	struct slot_parts *parts = slot_parts_at(index);
	struct first_allocated first = {.bio = bio};

	if (!parts)
		return 0;
#ifdef NO_SWAP
	earlier_allocation(0, &first);
#else
	bpf_loop(MOST_BIOS, earlier_allocation, &first, 0);
#endif
	if (parts->request != request || parts->inserted < first.allocated)
		parts->inserted = 0;
	parts->allocated = first.allocated;
	/* The next request in this slot must be inserted anew. */
	parts->request = 0;
	parts->first_issued = now;
	parts->reissued = 0;
	parts->place = 0;
	return 0;
}

/* The request was merged into another one. */
static __always_inline void parts_vanished(__u32 index, __u64 request)
{
	struct slot_parts *parts = slot_parts_at(index);

	if (parts && parts->request == request)
		parts->request = 0;
}

static __always_inline void parts_reissued(__u32 index, __u64 now)
{
	struct slot_parts *parts = slot_parts_at(index);

	if (parts)
		parts->reissued = now;
}

static __always_inline void parts_inserted(__u32 index, __u64 request)
{
	struct slot_parts *parts = slot_parts_at(index);

	if (!parts)
		return;
	parts->inserted = bpf_ktime_get_ns();
	parts->request = request;
}

static __always_inline void add_part(struct wire_part_row *row, __u32 part, __u64 ns)
{
	if (ns != NO_PART)
		add_time(row->extents, row->counts, &row->lock, part, ns, 1);
}

/*
 * Breaks down the queue and device stages of a request, or of one of its bios. From `queued` to
 * `issued`, each point in time is in one part; time before the bio's own entry is in none.
 * `allocated` is 0 for a bio that was merged into an existing request.
 */
static __always_inline void take_apart(__u64 *spans, const struct slot_parts *of, __u64 queued,
				       __u64 allocated, __u64 issued)
{
	__u64 inserted = of->inserted, first = of->first_issued, plugged = inserted ?: first;
	__u64 at = queued;

	for (__u32 i = 0; i < PART_RETRY - PART_ALLOC + 1; i++)
		spans[i] = NO_PART;
	if (of->reissued > issued)
		spans[PART_RETRY - PART_ALLOC] = of->reissued - issued;
	if (!queued || !of->allocated || plugged > first || first > issued || queued > issued)
		return;
	if (queued <= allocated && allocated <= issued) {
		spans[PART_ALLOC - PART_ALLOC] = allocated - queued;
		at = allocated;
	}
	if (at <= plugged) {
		spans[PART_PLUG - PART_ALLOC] = plugged - at;
		at = plugged;
	}
	if (inserted && at <= first) {
		spans[PART_SCHED - PART_ALLOC] = first - at;
		at = first;
	}
	if (at < issued)
		spans[PART_REQUEUE - PART_ALLOC] = issued - at;
}

/* Counts the spans that `take_apart` found. `queue` is the stage; NO_PART: there is none. */
static __always_inline void count_spans(struct wire_part_row *row, const __u64 *spans, __u64 queue)
{
	__u64 sum = 0;

	for (__u32 i = 0; i <= PART_REQUEUE - PART_ALLOC; i++)
		sum += spans[i] == NO_PART ? 0 : spans[i];
	if (spans[PART_RETRY - PART_ALLOC] != NO_PART)
		add_part(row, PART_RETRY, spans[PART_RETRY - PART_ALLOC]);
	if (queue == NO_PART)
		return;
	/* The stamp of the allocation is missing; or two parts of an operation were written at
	 * once. */
	if (sum != queue) {
		__sync_fetch_and_add(&row->unknown, 1);
		return;
	}
	for (__u32 i = PART_ALLOC; i <= PART_REQUEUE; i++)
		add_part(row, i, spans[i - PART_ALLOC]);
}

/* The request completes. */
VERIFIED_ONCE int parts_completed(const struct wire_slot *slot, __u32 index, __u32 device, __u32 op)
{
	struct slot_parts *parts = slot_parts_at(index);
	struct wire_part_row *row;

	if (!config.parts_enabled || !slot || !parts || op >= OPS)
		return 0;
	row = part_row(device, UNIT_IO, op);
	if (!row)
		return 0;
	take_apart(parts->spans, parts, slot->queued, parts->allocated, slot->issued);
	count_spans(row, parts->spans, slot->queued ? slot->issued - slot->queued : NO_PART);
	return 0;
}

/* A request completes that is part of an operation; the stamps are those of the operation's bio. */
VERIFIED_ONCE int parts_joined(__u32 place, __u32 index, const struct wire_stamps *of,
			       __u64 allocated)
{
	struct operation_parts *to = operation_parts_at(place);
	struct slot_parts *from = slot_parts_at(index);

	if (!config.parts_enabled || !to || !from || !of)
		return 0;
	take_apart(to->spans, from, of->queued, allocated, of->issued);
	to->throttled = 0;
	to->finished = of->ended;
	to->done = 0;
	from->place = place + 1;
	from->finished = of->ended;
	return 0;
}

/* When the request in a slot was allocated for its only bio. */
static __always_inline __u64 allocated_at(__u32 index)
{
	struct slot_parts *parts = slot_parts_at(index);

	return parts ? parts->allocated : 0;
}

/* A part of an operation ended that was no request, and has no parts of one. */
static __always_inline void parts_of_none(__u32 place, __u64 finished)
{
	struct operation_parts *to = operation_parts_at(place);

	if (!to)
		return;
	for (__u32 i = 0; i < PART_RETRY - PART_ALLOC + 1; i++)
		to->spans[i] = NO_PART;
	to->throttled = 0;
	to->finished = finished;
	to->done = 0;
}

/* All callbacks of a request's bios have run. */
static __always_inline void parts_done(__u32 index)
{
	struct slot_parts *from = slot_parts_at(index);
	struct operation_parts *to;

	if (!from || !from->place)
		return;
	to = operation_parts_at(from->place - 1);
	if (to && to->finished == from->finished)
		to->done = bpf_ktime_get_ns();
	from->place = 0;
}

/* Data of an operation for `count_parts`. */
struct whole {
	struct wire_stamps stamps;
	__u64 entered;
	__u64 seen;
	/* Its index in `operation_parts`, and the index of the call that fetched its result. */
	__u32 place;
	__u32 waiter;
};

/* Which stages an operation has. */
static __always_inline __u32 cover_of(const struct wire_stamps *of, __u64 seen)
{
	if (!seen)
		return COVER_NO_REAP;
	return of->fused ? COVER_NO_COMPLETE : COVER_ALL;
}

VERIFIED_ONCE int count_parts(const struct whole *of)
{
	struct operation_parts *parts, *waiter;
	struct wire_part_row *row;
	__u64 from, queue;

	if (!of || of->stamps.op >= OPS)
		return 0;
	parts = operation_parts_at(of->place);
	row = part_row(of->stamps.device, UNIT_OPERATION + cover_of(&of->stamps, of->seen),
		       of->stamps.op);
	if (!parts || !row)
		return 0;
	from = of->stamps.queued ? of->stamps.queued : of->stamps.issued;
	/* Such an operation is counted without stages. */
	if ((!of->seen && of->stamps.fused) || from < of->entered || of->stamps.issued < from)
		return 0;
	if (parts->submitted >= of->entered)
		add_part(row, PART_SUBMIT_BATCH, parts->submitted - of->entered);
	if (parts->punted && parts->punted <= from)
		add_part(row, PART_IO_WQ, from - parts->punted);
	if (parts->throttled)
		add_part(row, PART_THROTTLE, parts->throttled);
	queue = of->stamps.queued ? of->stamps.issued - from - parts->throttled : NO_PART;
	count_spans(row, parts->spans, queue);
	from = parts->finished;
	if (of->stamps.reaped <= from && from <= of->stamps.ended) {
		if (of->stamps.reaped < from)
			add_part(row, PART_COMPLETE_BATCH, from - of->stamps.reaped);
		/* The result may be visible before the callbacks end: then there is no such
		 * part. */
		if (from < parts->done && parts->done <= of->stamps.ended) {
			add_part(row, PART_ENDIO, parts->done - from);
			from = parts->done;
		}
		if (from < of->stamps.ended)
			add_part(row, PART_CQE, of->stamps.ended - from);
	}
	waiter = of->seen ? operation_parts_at(of->waiter) : 0;
	if (!waiter)
		return 0;
	from = waiter->woken > of->stamps.ended ? waiter->woken : of->stamps.ended;
	if (waiter->woken && from < waiter->ran && waiter->ran <= of->seen)
		add_part(row, PART_WAKE, waiter->ran - from);
	return 0;
}

#endif
