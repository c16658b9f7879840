/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Parts of stages: what a request waited for in its queue, what an operation's submission and
 * completion were spent on. Kept in tables beside those of bios, slots and operations, which only
 * `config.want_parts` (or want_throttle) fills: the default view neither loads nor writes them. For
 * the latency programs, whose `config` must stand before it.
 */
#ifndef BIOPSY_PARTS_H
#define BIOPSY_PARTS_H

#include "bios.h"
#include "compat.h"
#include "hist.h"
#include "owner.h"
#include "stamps.h"
#include "wire.h"

/* A part that a request did not have: not inserted, never refused, not tried again. */
#define NO_PART (~0ull)

/* When each bio of the set with the same number got its request. */
struct bio_parts {
	__u64 allocated[BIO_WAYS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bio_parts);
} bio_parts SEC(".maps");

/* Of the request in the slot with the same number. */
struct slot_parts {
	__u64 request;
	__u64 allocated;
	/* 0: it went past the scheduler's and the software queues. */
	__u64 inserted;
	__u64 first_issued;
	__u64 reissued;
	/* The operation that its end finished: a number of `operation_parts` + 1, and its proof. */
	__u64 place;
	__u64 finished;
	__u64 spans[PART_RETRY - PART_ALLOC + 1];
	__u64 pad[4];
};
_Static_assert(sizeof(struct slot_parts) == 128, "slot_parts");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot_parts);
} slot_parts SEC(".maps");

/* Of the operation with the same number, or, behind these, of the call of a task. */
struct operation_parts {
	__u64 submitted;
	__u64 punted;
	/* blk-throttle held it from its submission for this long; 0: not. */
	__u64 throttled;
	/* Its last part: block_rq_complete, and the end of the bios' own callbacks. */
	__u64 finished;
	__u64 done;
	/* Of a call: when its task was last woken, and when it then ran. */
	__u64 woken;
	__u64 ran;
	/* Of a call: its task's kernel stack, the lower half of the address. */
	__u64 stack;
	__u64 spans[PART_RETRY - PART_ALLOC + 1];
	__u64 pad2[3];
};
_Static_assert(sizeof(struct operation_parts) == 128, "operation_parts");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct operation_parts);
} operation_parts SEC(".maps");

/*
 * Whose kernel stack it is: thread ids by the stack's address. A bio that a task waits for lies on
 * its stack, or points there; so a bio that comes late, from the throttling worker, is joined to
 * its call.
 */
#define STACK_BITS	   14
#define KERNEL_STACK_SHIFT 14

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} stack_owners SEC(".maps");

static __always_inline __u32 *stack_owner(__u32 low)
{
	__u32 index = ((low >> KERNEL_STACK_SHIFT) * 0x9e3779b1u) >> (32 - STACK_BITS);

	return bpf_map_lookup_elem(&stack_owners, &index);
}

/* Sized by user space: Σ over devices of units × operations. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wire_part_row);
} part_rows SEC(".maps");

static __always_inline struct wire_part_row *part_row(__u32 device, __u32 unit, __u32 op)
{
	__u32 index = (device * PART_UNITS + unit) * OPS + op;

	return bpf_map_lookup_elem(&part_rows, &index);
}

static __always_inline struct operation_parts *operation_parts_at(__u32 index)
{
	return bpf_map_lookup_elem(&operation_parts, &index);
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

/* The request begins a new life at its first issue. */
static __noinline int parts_issued(__u32 index, __u64 request, __u64 bio, __u64 now)
{
	struct slot_parts *parts = slot_parts_at(index);
	struct bio_parts *of_bio = 0;
	__u32 way = 0, set;

	if (!parts)
		return 0;
	if (parts->request != request)
		parts->inserted = 0;
	if (bio && find_bio_at(bio, &way, &set))
		of_bio = bio_parts_at(set);
	parts->allocated = of_bio ? of_bio->allocated[way & (BIO_WAYS - 1)] : 0;
	/* The next life of the slot has to be inserted anew. */
	parts->request = 0;
	parts->first_issued = now;
	parts->reissued = 0;
	parts->place = 0;
	return 0;
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
 * The request completes. From `queued` to `issued` each moment is in one part; where a stamp is
 * missing it has none.
 */
VERIFIED_ONCE int parts_completed(const struct wire_slot *slot, __u32 index, __u32 device, __u32 op)
{
	struct slot_parts *parts = slot_parts_at(index);
	__u64 queued, issued, allocated, inserted, first;
	struct wire_part_row *row;

	if (!slot || !parts || op >= OPS)
		return 0;
	for (__u32 i = 0; i < PART_RETRY - PART_ALLOC + 1; i++)
		parts->spans[i] = NO_PART;
	queued = slot->queued;
	issued = slot->issued;
	allocated = parts->allocated;
	inserted = parts->inserted;
	first = parts->first_issued;
	if (queued && queued <= allocated && allocated <= first && first <= issued &&
	    (!inserted || (allocated <= inserted && inserted <= first))) {
		parts->spans[PART_ALLOC - PART_ALLOC] = allocated - queued;
		parts->spans[PART_PLUG - PART_ALLOC] = (inserted ? inserted : first) - allocated;
		if (inserted)
			parts->spans[PART_SCHED - PART_ALLOC] = first - inserted;
		if (issued > first)
			parts->spans[PART_REQUEUE - PART_ALLOC] = issued - first;
	}
	if (parts->reissued > issued)
		parts->spans[PART_RETRY - PART_ALLOC] = parts->reissued - issued;
	row = part_row(device, UNIT_IO, op);
	if (!row)
		return 0;
	for (__u32 i = PART_ALLOC; i <= PART_RETRY; i++)
		add_part(row, i, parts->spans[i - PART_ALLOC]);
	return 0;
}

/* A request's end is that of a part of an operation. */
VERIFIED_ONCE int parts_joined(__u32 place, __u32 index, __u64 finished)
{
	struct operation_parts *to = operation_parts_at(place);
	struct slot_parts *from = slot_parts_at(index);

	if (!to || !from)
		return 0;
	for (__u32 i = 0; i < PART_RETRY - PART_ALLOC + 1; i++)
		to->spans[i] = from->spans[i];
	to->finished = finished;
	to->done = 0;
	from->place = place + 1;
	from->finished = finished;
	return 0;
}

/* A part of an operation ended that was no request, and has none of a request's parts. */
static __always_inline void parts_of_none(__u32 place, __u64 finished)
{
	struct operation_parts *to = operation_parts_at(place);

	if (!to)
		return;
	for (__u32 i = 0; i < PART_RETRY - PART_ALLOC + 1; i++)
		to->spans[i] = NO_PART;
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

/* What an operation is made of, for `count_parts`. */
struct whole {
	struct stamps stamps;
	__u64 entered;
	__u64 seen;
	/* Its place in `operation_parts`, and that of the call that brought its result. */
	__u32 place;
	__u32 waiter;
};

VERIFIED_ONCE int count_parts(const struct whole *of)
{
	struct operation_parts *parts, *waiter;
	struct wire_part_row *row;
	__u64 from;

	if (!of || of->stamps.op >= OPS)
		return 0;
	parts = operation_parts_at(of->place);
	row = part_row(of->stamps.device, UNIT_OPERATION, of->stamps.op);
	if (!parts || !row)
		return 0;
	if (parts->submitted >= of->entered)
		add_part(row, PART_SUBMIT_BATCH, parts->submitted - of->entered);
	if (parts->punted && parts->punted <= of->stamps.queued)
		add_part(row, PART_IO_WQ, of->stamps.queued - parts->punted);
	if (parts->throttled)
		add_part(row, PART_THROTTLE, parts->throttled);
	for (__u32 i = PART_ALLOC; i <= PART_RETRY; i++)
		add_part(row, i, parts->spans[i - PART_ALLOC]);
	from = parts->finished;
	if (of->stamps.reaped <= from && from <= of->stamps.ended) {
		if (of->stamps.reaped < from)
			add_part(row, PART_COMPLETE_BATCH, from - of->stamps.reaped);
		/* The result may be visible before the callbacks' end: then there is no such part.
		 */
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
