/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Measures I/Os that are requests: from their issue to the driver, which begins the device stage,
 * to their completion, where each is counted. For the latency programs, which define `config`
 * before this header.
 *
 * An I/O is counted where the kernel counts it: at the completion that covers the rest of the
 * request.
 */
#ifndef BIOPSY_REQUEST_IOS_H
#define BIOPSY_REQUEST_IOS_H

#include "bio_ios.h"
#include "bios.h"
#include "compat.h"
#include "counters.h"
#include "events.h"
#include "filter.h"
#include "groups.h"
#include "op_table.h"
#include "parts.h"
#include "rows.h"
#include "slots.h"
#include "submitter.h"
#include "wire.h"

/*
 * Begins a driver command (passthrough). It has no bio that passes block_bio_queue, so its issue
 * does what that event does for other requests, as far as the current task is its submitter.
 * Returns 1 if it passed the filter.
 */
static __always_inline int begin_command(struct wire_slot *slot, struct request *rq)
{
	struct bio *bio = FIELD(rq, bio);
	struct bio_set *set;
	__u32 way, index;

	if (!config.operations_enabled)
		return 0;
	if (!op_attach_command(slot, (__u64)BPF_CORE_READ(rq, end_io_data))) {
		if (keep_bios() && bio)
			take_bio((__u64)bio);
		return 0;
	}
	if ((!config.submitter_enabled && !config.filter_enabled) || !bio)
		return 0;
	if (config.filter_enabled && !passes_filter(bio, 0)) {
		take_bio((__u64)bio);
		return 0;
	}
	set = place_bio((__u64)bio, &way, &index);
	if (!set)
		return 0;
	/* No stage begins here. */
	set->queued[way] = 0;
	set->op_ref[way] = slot->op_ref;
	set->generation[way] = slot->generation;
	slot->op_ref = REF_IN_TABLE;
	if (config.submitter_enabled)
		note_submitter(bio, submitter_at(index, way), 0);
	if (config.files_enabled & FILES_EACH)
		clear_file(file_at(index, way));
	return 1;
}

/* A command that the driver refused waits in a queue from its first issue on. */
static __always_inline void refused_command(struct wire_slot *slot, __u64 bio)
{
	struct bio_set *set;
	__u32 way;

	if (slot->queued)
		return;
	slot->queued = slot->issued;
	set = slot->op_ref & REF_IN_TABLE ? find_bio(bio, &way) : 0;
	if (set)
		set->queued[way] = slot->queued;
}

static __u64 issues;

/* Returns 1 if this is the reissue of a request that the driver had requeued: its stages go on. */
static __always_inline int is_reissue(struct wire_slot *slot, __u32 index, __u32 op, __u64 bio,
				      __u64 now)
{
	if (slot->state == SLOT_RETRIED) {
		slot->state = SLOT_REISSUED;
		if (config.parts_enabled)
			parts_reissued(index, now);
		return 1;
	}
	if (slot->state != SLOT_REFUSED)
		return 0;
	if (unlikely(op >= REQ_OP_FIRST_DRIVER))
		refused_command(slot, bio);
	slot->issued = now;
	slot->state = SLOT_ISSUED;
	return 1;
}

/* A request is issued to the driver: queue ends, device begins. */
static __always_inline int issue_request(struct request *rq)
{
	struct owner *owner = owner_of_request(rq);
	struct wire_slot *slot;
	struct bio *bio;
	__u64 now;
	__u32 op, index;
	int followed = 0, more = 0;

	if (!owner)
		return 0;
	/* Read here and not where it is needed: see request_disk. */
	bio = FIELD(rq, bio);
	now = bpf_ktime_get_ns();
	if (config.drop_issue && count_up(&issues) % config.drop_issue == 0)
		return 0;
	op = op_of(rq);
	slot = slot_of(rq, owner, op, &index);
	if (!slot)
		return 0;
	if (unlikely(slot->request == (__u64)rq)) {
		if (is_reissue(slot, index, op, (__u64)bio, now))
			return 0;
		COUNT(owner, stale);
	}
	op_fetch_late(slot, index);
	slot->queued = 0;
	slot->op_ref = 0;
	if (config.queue_enabled && op != REQ_OP_FLUSH && op < REQ_OP_FIRST_DRIVER) {
		more = first_queued(slot, bio, FIELD(rq, cmd_flags));
		if (!slot->queued && !config.filter_enabled)
			COUNT(owner, no_queue_start);
	}
	if (unlikely(op >= REQ_OP_FIRST_DRIVER))
		followed = begin_command(slot, rq);
	/* No process submits a device flush, but the operation that waits for it may be
	 * followed. */
	if (config.filter_enabled && !followed && !slot->queued && op != REQ_OP_FLUSH) {
		slot->request = 0;
		slot->state = 0;
		return 0;
	}
	if (unlikely(more))
		COUNT(owner, too_many_bios);
	if (config.most_groups)
		note_group(slot, rq, owner->device, classify(FIELD(rq, cmd_flags)));
	if (config.parts_enabled)
		parts_issued(index, (__u64)rq, (__u64)bio, now);
	moved_bio(slot, (__u64)bio);
	if (config.operations_enabled)
		op_await_result(slot, index);
	slot->issued = now;
	slot->reaped = 0;
	slot->state = SLOT_ISSUED;
	slot->used = 1;
	if (config.events_enabled)
		note_range(index, rq);
	slot->request = (__u64)rq;
	return 0;
}

/* The driver requeues a request: before it reached the device, or for a retry. */
static __always_inline int requeue_request(struct request *rq)
{
	struct owner *owner = owner_of_request(rq);
	struct wire_slot *slot;
	__u32 index;
	int tried;

	if (!owner)
		return 0;
	tried = was_tried(rq, config.rqf_timed_out);
	slot = slot_of(rq, owner, op_of(rq), &index);
	if (config.filter_enabled && !is_issued(slot, rq))
		return 0;
	if (tried)
		COUNT(owner, retries);
	else
		COUNT(owner, requeues);
	if (!is_issued(slot, rq))
		return 0;
	if (follows_operations())
		op_requeue(slot, index, (__u64)FIELD(rq, bio));
	slot->reaped = 0;
	if (tried || slot->state == SLOT_RETRIED || slot->state == SLOT_REISSUED)
		slot->state = SLOT_RETRIED;
	else
		slot->state = SLOT_REFUSED;
	return 0;
}

/* A completing request. */
struct completion {
	struct request *rq;
	struct owner *owner;
	/* NULL: it has none, or it is not needed. */
	struct bio *bio;
	struct wire_slot *slot;
	struct wire_row *row;
	__u64 now;
	/* End of the device stage. */
	__u64 end;
	__u32 bytes;
	__u32 op;
	/* Index of the slot. */
	__u32 index;
	/* Other CPUs add to the row as well. */
	int shared;
};

/* Finds the device, slot and class of a completing request. 0: it is not followed. */
static __always_inline int identify(struct completion *of, struct request *rq, __u32 bytes)
{
	struct owner *owner = owner_of_request(rq);
	__u32 op, flags, index = 0;
	struct bio *bio = 0;
	struct wire_slot *slot;
	__u64 now;

	if (!owner)
		return 0;
	/* Read here and not where it is needed: see request_disk. */
	if (keep_bios())
		bio = FIELD(rq, bio);
	now = bpf_ktime_get_ns();
	flags = FIELD(rq, cmd_flags);
	op = classify(flags);
	slot = slot_of(rq, owner, flags & REQ_OP_MASK, &index);
	if (config.filter_enabled && !is_issued(slot, rq) &&
	    (bytes || !bio || !is_followed((__u64)bio)))
		return 0;
	/*
	 * A write without data and without an issue only waited for a flush. (It may have the FUA
	 * flag or not. A write with data that is followed by a flush was issued, and completes a
	 * second time with 0 bytes.)
	 */
	if (unlikely(!bytes) && (op == OP_WRITE || op == OP_FUA) && slot &&
	    slot->request != (__u64)rq)
		op = OP_EMPTY_FLUSH;
	*of = (struct completion){
	    .rq = rq,
	    .owner = owner,
	    .bio = bio,
	    .slot = slot,
	    .now = now,
	    .bytes = bytes,
	    .op = op,
	    .index = index,
	};
	return 1;
}

/* The group of a completing request: the one that it was issued with, if it was. */
static __always_inline __u32 group_at_completion(const struct completion *of)
{
	__u32 cpu;

	if (is_issued(of->slot, of->rq))
		return of->slot->group;
	return group_of_request(of->rq, of->owner->device, of->op, of->bytes, &cpu);
}

/* Fields of an I/O's event that come from its request; its begin is not among them. */
static __always_inline struct counted counted_io(const struct completion *of, __u32 marks)
{
	struct request *rq = of->rq;
	/* A local copy: as an argument of FIELD, `of->bio` would be looked up in the kernel's BTF
	 * as well. */
	struct bio *bio = of->bio;
	struct counted counted = {
	    .bio = (__u64)bio,
	    .alone = !bio || !FIELD(bio, bi_next),
	    .io =
		{
		    .marks = marks,
		    .ended = of->now,
		    .sector = FIELD(rq, __sector),
		    .bytes = FIELD(rq, __data_len),
		    .cmd_flags = FIELD(rq, cmd_flags),
		    .device = of->owner->device,
		    .slot_base = of->owner->slot_base,
		    .op = of->op,
		},
	};

	return counted;
}

/* What the operations of the request's bios record. */
static __always_inline struct part part_of(const struct completion *of, __u64 issued, __u64 end,
					   int fused, __u32 group)
{
	struct part part = {
	    .bio = (__u64)of->bio,
	    .stamps =
		{
		    .issued = issued,
		    .reaped = end,
		    .ended = of->now,
		    .device = of->owner->device,
		    .op = of->op,
		    .fused = fused,
		    .group = group + 1,
		},
	    .slot = of->index,
	};

	return part;
}

/* A part of the request completes; more is to come. */
static __always_inline void complete_partly(const struct completion *of)
{
	struct wire_slot *slot = of->slot;

	if (follows_operations() && is_issued(slot, of->rq) && slot->op_ref & REF_IN_TABLE) {
		struct part part = part_of(of, slot->issued, slot->reaped ? slot->reaped : of->now,
					   !slot->reaped, slot->group);

		part.bytes = of->bytes;
		op_complete_part(&part);
	}
}

/* A write completes that waited for a flush, which has completed on its queue. */
static __always_inline void complete_empty_flush(const struct completion *of, __u32 group)
{
	struct part part = part_of(of, 0, 0, 0, group);
	int unowned = !op_complete_flush(&part, flush_index(of->owner));

	if (unowned && part.unclassified) {
		add(&of->row->unclassified, 1, of->shared);
		return;
	}
	add(&of->row->unowned, unowned, of->shared);
	if (config.most_groups)
		COUNT_GROUP(group, unowned, unowned);
}

/* Counts a request whose issue was missed: it has no stages. */
static __always_inline void account_unissued(const struct completion *of)
{
	struct wire_slot *slot = of->slot;
	struct wire_row *row = of->row;
	__u32 group = 0;

	if (of->op == OP_EMPTY_FLUSH)
		add(&row->never_issued, 1, of->shared);
	else if (slot->used)
		add(&row->no_start, 1, of->shared);
	else
		add(&row->untimed, 1, of->shared);
	if (config.events_enabled && (of->op == OP_EMPTY_FLUSH || !slot->used)) {
		__u32 before = of->op == OP_EMPTY_FLUSH ? 0 : IO_STARTED_BEFORE;
		struct counted counted = counted_io(of, before);

		emit_io(&counted);
	}
	if (config.most_groups) {
		group = group_at_completion(of);
		if (of->op == OP_EMPTY_FLUSH)
			COUNT_GROUP(group, never_issued, 1);
		else if (!slot->used)
			COUNT_GROUP(group, untimed, 1);
	}
	if (follows_operations() && of->op == OP_EMPTY_FLUSH)
		complete_empty_flush(of, group);
}

/* Counts the request and its bytes. 0: it is not complete yet, or has no stages. */
static __always_inline int account(struct completion *of)
{
	struct request *rq = of->rq;
	struct wire_slot *slot = of->slot;

	/* Not in identify: there the verifier would process a third more. */
	of->shared = of->op >= OPS_SHARDED || of->owner->shared;
	of->row = row_of(of->owner, of->op);
	if (!of->row)
		return 0;
	/* No process submits a device flush, and it concerns the whole disk. */
	if ((hides_flushes() || (partitions && of->owner->layer & PARTITION)) &&
	    of->op == OP_FLUSH) {
		if (slot)
			slot->request = 0;
		return 0;
	}
	if (of->bytes)
		add(&of->row->bytes, of->bytes, of->shared);
	if (config.most_groups)
		COUNT_GROUP(group_at_completion(of), bytes, of->bytes);
	if (unlikely(of->bytes < FIELD(rq, __data_len))) {
		complete_partly(of);
		return 0;
	}
	if (unlikely(of->op != OP_FLUSH && FIELD(rq, rq_flags) & config.rqf_flush_seq)) {
		/*
		 * The data is written, and a flush follows: the device stage of this write ends
		 * here. Its wait for the flush is in no stage; the flush itself has its own row.
		 */
		if (slot && slot->request == (__u64)rq) {
			if (!slot->reaped)
				slot->reaped = of->now;
			slot->state = SLOT_FLUSHING;
		}
		return 0;
	}
	if (unlikely(!slot)) {
		COUNT(of->owner, out_of_range);
		return 0;
	}
	if (unlikely(slot->request != (__u64)rq)) {
		account_unissued(of);
		return 0;
	}
	return 1;
}

static __always_inline __u64 queue_of(const struct wire_slot *slot)
{
	return slot->queued ? slot->issued - slot->queued : NO_TIME;
}

static __always_inline int has_complete(const struct wire_slot *slot)
{
	return slot->reaped && slot->state != SLOT_FLUSHING;
}

static __always_inline __u64 complete_of(const struct completion *of)
{
	return has_complete(of->slot) ? of->now - of->slot->reaped : NO_TIME;
}

/*
 * Adds the stages to the row of the device, and their parts. 0: the stamps contradict each other.
 */
static __always_inline int time_stages(struct completion *of)
{
	struct wire_slot *slot = of->slot;
	struct wire_row *row = of->row;

	slot->request = 0;
	of->end = slot->reaped ? slot->reaped : of->now;
	if (unlikely(of->end < slot->issued || of->now < of->end || slot->queued > slot->issued)) {
		COUNT(of->owner, negative);
		add(&row->untimed, 1, of->shared);
		if (config.events_enabled) {
			struct counted counted = counted_io(of, IO_NEGATIVE);

			emit_io(&counted);
		}
		if (config.most_groups)
			COUNT_GROUP(slot->group, untimed, 1);
		return 0;
	}
	add_time(row->extents, row->counts, &row->lock, STAGE_DEVICE, of->end - slot->issued,
		 of->shared);
	if (slot->queued)
		add_time(row->extents, row->counts, &row->lock, STAGE_QUEUE,
			 slot->issued - slot->queued, of->shared);
	if (has_complete(slot))
		add_time(row->extents, row->counts, &row->lock, STAGE_COMPLETE,
			 of->now - slot->reaped, of->shared);
	if (unlikely(slot->state == SLOT_FLUSHING))
		add(&row->flushed, flushed_behind(flush_index(of->owner), slot->reaped),
		    of->shared);
	if (config.parts_enabled)
		parts_completed(slot, of->index, of->owner->device, of->op);
	return 1;
}

/* Sends the event of the I/O, and adds it to its group. */
static __always_inline void emit_completion(const struct completion *of)
{
	struct wire_slot *slot = of->slot;

	if (config.events_enabled) {
		struct counted counted = counted_io(of, slot->reaped ? 0 : IO_FUSED);

		if (slot->state == SLOT_FLUSHING)
			counted.io.marks |= IO_FLUSHED;
		counted.io.queued = slot->queued;
		counted.io.issued = slot->issued;
		counted.io.reaped = of->end;
		range_of(of->index, &counted.io);
		counted.op_ref = slot->op_ref;
		counted.generation = slot->generation;
		emit_io(&counted);
	}
	if (config.most_groups) {
		time_in_group(slot->group, queue_of(slot), of->end - slot->issued, complete_of(of));
		if (config.matrix_cpus)
			count_in_matrix(slot->cpu, 1);
	}
}

/*
 * Gives the operations of the request's bios their stages. Must follow the event, which needs the
 * bios.
 */
static __always_inline void complete_operation(const struct completion *of)
{
	struct wire_slot *slot = of->slot;
	struct part part = part_of(of, slot->issued, of->end, !slot->reaped, slot->group);

	if (!keep_bios() || (!of->bio && !(slot->op_ref & REF_COMMAND)))
		return;
	if (op_complete(slot, &part)) {
		/* The operation counts it. */
	} else if (unlikely(part.unclassified)) {
		add(&of->row->unclassified, 1, of->shared);
	} else {
		add(&of->row->unowned, 1, of->shared);
		time_unowned(of->owner->device, of->op, queue_of(slot), of->end - slot->issued,
			     complete_of(of));
		if (config.most_groups)
			COUNT_GROUP(slot->group, unowned, 1);
	}
	count_bios(of->row, of->owner, &part, of->shared);
}

#endif
