/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Tracks requests in flight, and keeps the results that operations have not fetched yet. For the
 * latency programs, which define `config` before this header.
 */
#ifndef BIOPSY_SLOTS_H
#define BIOPSY_SLOTS_H

#include "compat.h"
#include "owner.h"
#include "wire.h"

/* User space sets the size: Σ hardware queues × slots per queue. */
MAPPED_ARRAY(slots, struct wire_slot, 1);

enum slot_state {
	SLOT_ISSUED = 1,
	/* The driver returned it untouched: the next issue begins the device stage. */
	SLOT_REFUSED = 2,
	/* The driver returned it after the device had answered, or had timed out: the device stage
	 * goes on from here to the end. */
	SLOT_RETRIED = 3,
	/* It was issued again after that; if the driver refuses it now, it waits for the next
	 * retry. */
	SLOT_REISSUED = 5,
	/* The data is written, and a flush after it is pending. */
	SLOT_FLUSHING = 4,
	/* Completed: the stamps wait here for the operation. */
	SLOT_DONE = 6,
};

static __always_inline struct wire_slot *slot_numbered(__u32 index)
{
	return bpf_map_lookup_elem(&slots, &index);
}

static __always_inline struct wire_slot *slot_at(struct owner *owner, int tag, __u32 op,
						 __u32 *index)
{
	__u32 last = owner->slots - 1;

	if (op == REQ_OP_FLUSH)
		tag = last;
	else if ((__u32)tag >= last)
		return 0;
	*index = owner->slot_base + tag;
	return slot_numbered(*index);
}

/*
 * The slot of a request. With a scheduler, internal_tag is fixed for the request's lifetime while
 * the driver's tag changes; without one it is -1 and tag is fixed. The flush machinery's own
 * request borrows the tag of a waiting request, so each queue has one more slot for it.
 */
static __always_inline struct wire_slot *slot_of(struct request *rq, struct owner *owner, __u32 op,
						 __u32 *index)
{
	int tag = FIELD(rq, internal_tag);

	if (tag < 0)
		tag = FIELD(rq, tag);
	return slot_at(owner, tag, op, index);
}

/* The slot of the flush machinery's own request on this hardware queue. */
static __always_inline __u32 flush_index(const struct owner *owner)
{
	return owner->slot_base + owner->slots - 1;
}

/*
 * Whether a write whose data was written at this time has waited for a flush: a write with only
 * PREFLUSH reaches this state as well.
 */
VERIFIED_ONCE int flushed_behind(__u32 flush, __u64 written)
{
	struct wire_slot *slot = slot_numbered(flush);

	return slot && slot->issued >= written;
}

static __always_inline __u32 op_of(struct request *rq)
{
	return FIELD(rq, cmd_flags) & REQ_OP_MASK;
}

static __always_inline int is_issued(struct wire_slot *slot, struct request *rq)
{
	return slot && slot->request == (__u64)rq;
}

#endif
