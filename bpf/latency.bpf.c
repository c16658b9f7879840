/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Measures the stages of each request: queue, device, complete. operations.h adds those of the
 * operations that it serves.
 *
 *   block_bio_queue     queue begins: the bio enters the block layer; its stamp is kept by address
 *   block_bio_complete  a bio of a device without requests ends, see bio_ios.h
 *   block_rq_issue      queue ends, device begins: the driver takes the request
 *   nvme_sq             device ends, complete begins: the driver reaps the entry, NVMe only
 *   block_rq_complete   the last stage ends, the I/O is counted
 *
 * Each event reads the clock once. There is no hash map, and on a device with one row per CPU no
 * write to a cache line that other CPUs write. An I/O is counted where the kernel counts it: at the
 * completion that covers the rest of the request.
 */
#include "kernel.h"
#include "compat.h"
#include "wire.h"
#include "hist.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Written once, between open and load: the verifier prunes what is switched off. */
const volatile struct wire_latency_config config = {};

#include "owner.h"
#include "counters.h"
#include "slots.h"
#include "bios.h"
#include "submitter.h"
#include "command.h"
#include "filter.h"
#include "groups.h"
#include "operations.h"
#include "joins.h"
#include "commands.h"
#include "calls.h"
#include "rows.h"
#include "events.h"
#include "bio_ios.h"
#include "process_ios.h"
#include "file_ios.h"

/*
 * Whether a bio of a traced device is to be left alone. Its address may be that of one that was
 * followed and ended without a request.
 */
static __always_inline int is_left_out(struct bio *bio, __u64 address, struct owner *owner,
				       const struct origin *origin)
{
	if (is_wanted(bio, origin))
		return 0;
	if (is_bio_based(owner))
		forget_bio_io(address);
	else
		take_bio(address);
	return 1;
}

/*
 * Who handed in a bio that blk-throttle's worker brings, which is not who brings it; NULL: it is
 * the current task, or nobody knows, which is counted.
 */
static __always_inline struct origin *origin_of(struct bio *bio, __u64 address, struct owner *owner,
						int counts)
{
	struct brought brought = {.bio = address};
	__u32 held;

#ifndef NO_SWAP
	if (!config.want_throttle || !current_is_kernel_thread())
		return 0;
#else
	return 0;
#endif
	brought.private = (__u64)BPF_CORE_READ(bio, bi_private);
	held = held_operation(&brought);
	if (!held && counts && running && is_throttle_worker())
		COUNT(owner, held_unknown);
	return origin_at(held);
}

/* The stack of who hands in a bio that will be followed. Apart from all else: what is on the stack
 * of a program and of those that it calls is little together. */
static __noinline int look_at_route(void *ctx)
{
	struct bio *bio = argument(ctx, arguments.bio_queue);

	if (!running || !owner_of_bio(bio) || (config.want_filter && !is_wanted(bio, 0)))
		return 0;
	return take_route(ctx);
}

/* Counts a bio by process. Apart from all else, for its stack: bio_queue has nearly used up its
 * own. */
static __noinline int count_bio(void *ctx)
{
	struct bio *bio = argument(ctx, arguments.bio_queue);
	struct origin *origin = 0;
	struct counted_bio of = {};
	struct owner *owner;

	if (!running)
		return 0;
	owner = owner_of_bio(bio);
	if (!owner)
		return 0;
	if (config.want_throttle)
		origin = origin_of(bio, argument_address(ctx, arguments.bio_queue), owner, 0);
	of.device = owner->device;
	of.selected = !config.want_filter || is_wanted(bio, origin);
	of.before = count_process_io(bio, of.device, origin, of.selected);
	if (config.want_files & FILES_COUNTED)
		count_file_io(argument_address(ctx, arguments.bio_queue), &of, origin);
	return 0;
}

EVENT("block_bio_queue")
int BPF_PROG(bio_queue)
{
	struct origin *origin = 0;
	struct owner *owner;
	struct bio_set *set;
	struct bio *bio;
	__u64 now;
	__u32 way, index;

	if (config.count_processes)
		count_bio(ctx);
	if (config.want_stacks)
		look_at_route(ctx);
	bio = argument(ctx, arguments.bio_queue);
	owner = owner_of_bio(bio);
	if (!owner)
		return 0;
	if (config.want_throttle)
		origin = origin_of(bio, argument_address(ctx, arguments.bio_queue), owner, 1);
	if (config.want_filter &&
	    is_left_out(bio, argument_address(ctx, arguments.bio_queue), owner, origin))
		return 0;
	now = bpf_ktime_get_ns();
	if (is_bio_based(owner))
		return begin_bio_io(bio, argument_address(ctx, arguments.bio_queue), owner, origin,
				    now);
	set = place_bio((__u64)bio, &way, &index);
	if (!set)
		return 0;
	set->queued[way] = now;
	if (config.want_submitter)
		note_submitter(bio, submitter_at(index, way), origin);
	if (config.want_files & FILES_EACH)
		find_file(*(volatile __u64 *)&set->bio[way], file_at(index, way));
	if (config.want_operations)
		/* The address as a plain number, of which the verifier allows arithmetic. */
		link_bio(FIELD(bio, bi_private), *(volatile __u64 *)&set->bio[way], owner->layer,
			 &set->link[way], &set->proof[way]);
	return 0;
}

/* A bio joins a request that is waiting: only its operation needs its own stamp from here on. */
EVENT("block_bio_backmerge")
int BPF_PROG(bio_backmerge)
{
	struct bio *bio = argument(ctx, arguments.bio_backmerge);
	struct owner *owner = owner_of_bio(bio);

	if (!owner || !is_followed((__u64)bio))
		return 0;
	if (!keep_bios())
		take_bio((__u64)bio);
	if (running)
		COUNT(owner, merges);
	return 0;
}

/*
 * The bio becomes the request's first. Its stamp stays: at the issue the request's bios are looked
 * at from the first on, and the earliest stamp counts.
 */
EVENT("block_bio_frontmerge")
int BPF_PROG(bio_frontmerge)
{
	struct bio *bio = argument(ctx, arguments.bio_frontmerge);
	struct owner *owner = owner_of_bio(bio);

	if (owner && running && is_followed((__u64)bio))
		COUNT(owner, merges);
	return 0;
}

/* Two requests become one: `rq` vanishes without a completion. */
EVENT("block_rq_merge")
int BPF_PROG(rq_merge)
{
	struct request *rq = argument(ctx, arguments.rq_merge);
	struct owner *owner = owner_of_request(rq);
	struct wire_slot *slot;
	__u32 index;

	if (!owner)
		return 0;
	if (!config.want_filter || is_followed((__u64)FIELD(rq, bio)))
		COUNT(owner, merges);
	slot = slot_of(rq, owner, op_of(rq), &index);
	if (slot && slot->request == (__u64)rq)
		slot->request = 0;
	if (slot && config.want_parts)
		parts_vanished(index, (__u64)rq);
	return 0;
}

EVENT("block_split")
int BPF_PROG(bio_split)
{
	struct bio *bio = argument(ctx, arguments.bio_split);
	struct owner *owner = owner_of_bio(bio);
	struct bio_set *from, *to;
	__u32 old, old_index, new, new_index;

	if (!owner)
		return 0;
	if (running && !config.want_filter)
		COUNT(owner, splits);
	if (is_bio_based(owner)) {
		int known = split_bio_io(bio, argument_address(ctx, arguments.bio_split), owner);

		if (config.want_filter && running && known)
			COUNT(owner, splits);
		return 0;
	}
	if (!config.want_queue)
		return 0;
	/*
	 * `bio` is the new front part and has no block_bio_queue of its own; the rest (bi_private,
	 * set by bio_chain just before this event) keeps the stamp of the original. The front
	 * inherits it, and the operation.
	 */
	from = find_bio_at((__u64)FIELD(bio, bi_private), &old, &old_index);
	to = from ? place_bio((__u64)bio, &new, &new_index) : 0;
	if (config.want_filter && !from) {
		/* Once this may have been the address of a bio that was followed. */
		take_bio((__u64)bio);
		return 0;
	}
	if (!to)
		return 0;
	if (config.want_filter && running)
		COUNT(owner, splits);
	to->queued[new] = from->queued[old];
	if (config.want_operations) {
		/* It has several parts now, which may be issued on several CPUs at once. */
		from->link[old] &= ~LINK_DIRECT;
		to->link[new] = from->link[old];
		to->proof[new] = from->proof[old];
	}
	if (config.want_submitter)
		copy_submitter(submitter_at(new_index, new), submitter_at(old_index, old));
	if (config.want_files & FILES_EACH)
		copy_file(file_at(new_index, new), file_at(old_index, old));
	if (config.want_parts)
		set_allocation(new_index, new, 0);
	return 0;
}

/* A bio ends that no request has ended: on a bio-based device, or by an error on the way. */
SEC("?tp_btf/block_bio_complete")
int BPF_PROG(bio_complete)
{
	struct bio *bio = argument(ctx, arguments.bio_complete);
	__u64 address = argument_address(ctx, arguments.bio_complete);
	__u64 now = bpf_ktime_get_ns();
	struct owner *owner;

	if (end_bio_io(address, FIELD(bio, bi_opf), now))
		return 0;
	owner = owner_of_bio(bio);
	/* With a filter: one that did not pass. */
	if (owner && is_bio_based(owner) && running)
		end_unknown((__u64)BPF_CORE_READ(bio, bi_private), owner->device, op_of_bio(bio),
			    FIELD(bio, bi_opf), now);
	return 0;
}

static __u64 issues;

EVENT("block_rq_issue")
int BPF_PROG(rq_issue)
{
	struct request *rq = argument(ctx, arguments.rq_issue);
	struct owner *owner = owner_of_request(rq);
	struct wire_slot *slot;
	struct bio *bio;
	__u64 now;
	__u32 op, index;
	int followed = 0, more = 0;

	if (!owner)
		return 0;
	/* Here and not where it is needed: see request_disk. */
	bio = FIELD(rq, bio);
	now = bpf_ktime_get_ns();
	if (config.drop_issue && count_up(&issues) % config.drop_issue == 0)
		return 0;
	op = op_of(rq);
	slot = slot_of(rq, owner, op, &index);
	if (!slot)
		return 0;
	if (unlikely(slot->request == (__u64)rq)) {
		if (slot->state == SLOT_RETRIED) {
			slot->state = SLOT_REISSUED;
			if (config.want_parts)
				parts_reissued(index, now);
			return 0;
		}
		if (slot->state == SLOT_REFUSED) {
			if (unlikely(op >= REQ_OP_FIRST_DRIVER))
				refused_command(slot, (__u64)bio);
			slot->issued = now;
			slot->state = SLOT_ISSUED;
			return 0;
		}
		COUNT(owner, stale);
	}
	hand_over_result(slot, index);
	slot->queued = 0;
	slot->link = 0;
	if (config.want_queue && op != REQ_OP_FLUSH && op < REQ_OP_FIRST_DRIVER) {
		more = first_queued(slot, bio, FIELD(rq, cmd_flags));
		if (!slot->queued && !config.want_filter)
			COUNT(owner, no_queue_start);
	}
	if (unlikely(op >= REQ_OP_FIRST_DRIVER))
		followed = begin_command(slot, rq);
	/* A flush is nobody's; what waits for it may be. */
	if (config.want_filter && !followed && !slot->queued && op != REQ_OP_FLUSH) {
		slot->request = 0;
		slot->state = 0;
		return 0;
	}
	if (unlikely(more))
		COUNT(owner, too_many_bios);
	if (config.most_groups)
		note_group(slot, rq, owner->device, classify(FIELD(rq, cmd_flags)));
	if (config.want_parts)
		parts_issued(index, (__u64)rq, (__u64)bio, now);
	moved_bio(slot, (__u64)bio);
	if (config.want_operations)
		await_result(slot, index);
	slot->issued = now;
	slot->reaped = 0;
	slot->state = SLOT_ISSUED;
	slot->used = 1;
	if (config.want_events)
		note_range(index, rq);
	slot->request = (__u64)rq;
	return 0;
}

/* Given back by the driver: before it touched the device, or to try again. */
EVENT("block_rq_requeue")
int BPF_PROG(rq_requeue)
{
	struct request *rq = argument(ctx, arguments.rq_requeue);
	struct owner *owner = owner_of_request(rq);
	struct wire_slot *slot;
	__u32 index;
	int tried;

	if (!owner)
		return 0;
	tried = was_tried(rq, config.rqf_timed_out);
	slot = slot_of(rq, owner, op_of(rq), &index);
	if (config.want_filter && !is_issued(slot, rq))
		return 0;
	if (tried)
		COUNT(owner, retries);
	else
		COUNT(owner, requeues);
	if (!is_issued(slot, rq))
		return 0;
	if (config.want_operations)
		put_back(slot, index, (__u64)FIELD(rq, bio));
	slot->reaped = 0;
	if (tried || slot->state == SLOT_RETRIED || slot->state == SLOT_REISSUED)
		slot->state = SLOT_RETRIED;
	else
		slot->state = SLOT_REFUSED;
	return 0;
}

/* NVMe: the driver takes the completion entry from the queue. Lives in a module, so it is optional.
 */
SEC("?tp_btf/nvme_sq")
int BPF_PROG(nvme_sq, struct request *rq)
{
	struct owner *owner;
	struct wire_slot *slot;
	__u32 index;

	/* Module tracepoints' arguments may be NULL for the verifier (6.12 and newer). */
	if (!rq)
		return 0;
	owner = owner_of_request(rq);
	if (!owner)
		return 0;
	slot = slot_of(rq, owner, op_of(rq), &index);
	if (slot && slot->request == (__u64)rq)
		slot->reaped = bpf_ktime_get_ns();
	return 0;
}

/*
 * The same for those who may not read the types of a module (CAP_SYS_ADMIN): the arguments of a raw
 * event are plain numbers, so that each field is copied. The hardware queue is known since the
 * issue.
 */
SEC("?raw_tp/nvme_sq")
int BPF_PROG(nvme_sq_raw, struct request *rq)
{
	struct blk_mq_hw_ctx *hctx = BPF_CORE_READ(rq, mq_hctx);
	struct owner *owner;
	struct wire_slot *slot;
	__u32 index;
	int tag;

	if (!running)
		return 0;
	owner = find_owner((__u64)hctx, owner_place(low_half(hctx)));
	if (!owner || !owner->traced)
		return 0;
	tag = BPF_CORE_READ(rq, internal_tag);
	if (tag < 0)
		tag = BPF_CORE_READ(rq, tag);
	slot = slot_at(owner, tag, BPF_CORE_READ(rq, cmd_flags) & REQ_OP_MASK, &index);
	if (slot && slot->request == (__u64)rq)
		slot->reaped = bpf_ktime_get_ns();
	return 0;
}

/* What the event of an I/O says of its request; nothing of when it began. */
static __always_inline struct counted counted_io(struct request *rq, struct bio *bio,
						 struct owner *owner, __u32 op, __u64 ended,
						 __u32 marks)
{
	struct counted counted = {
	    .bio = (__u64)bio,
	    .alone = !bio || !FIELD(bio, bi_next),
	    .io =
		{
		    .marks = marks,
		    .ended = ended,
		    .sector = FIELD(rq, __sector),
		    .bytes = FIELD(rq, __data_len),
		    .cmd_flags = FIELD(rq, cmd_flags),
		    .device = owner->device,
		    .slot_base = owner->slot_base,
		    .op = op,
		},
	};

	return counted;
}

/* The group of a request that completes: the one that it was issued with, where it was. */
static __always_inline __u32 group_at_completion(struct request *rq, struct owner *owner,
						 struct wire_slot *slot, __u32 op, __u32 bytes)
{
	__u32 cpu;

	if (is_issued(slot, rq))
		return slot->group;
	return group_of_request(rq, owner->device, op, bytes, &cpu);
}

static __always_inline void count_unissued(__u32 group, __u32 op, __u32 used)
{
	if (op == OP_EMPTY_FLUSH)
		COUNT_GROUP(group, never_issued, 1);
	else if (!used)
		COUNT_GROUP(group, untimed, 1);
}

EVENT("block_rq_complete")
int BPF_PROG(rq_complete, struct request *rq, int error, unsigned int nr_bytes)
{
	struct owner *owner = owner_of_request(rq);
	struct bio *bio = 0;
	__u32 op, flags, index = 0, group = 0;
	struct wire_slot *slot;
	struct wire_row *row;
	__u64 now, end;
	int shared;

	if (!owner)
		return 0;
	/* Here and not where it is needed: see request_disk. */
	if (keep_bios())
		bio = FIELD(rq, bio);
	now = bpf_ktime_get_ns();
	flags = FIELD(rq, cmd_flags);
	op = classify(flags);
	slot = slot_of(rq, owner, flags & REQ_OP_MASK, &index);
	if (config.want_filter && !is_issued(slot, rq) &&
	    (nr_bytes || !bio || !is_followed((__u64)bio)))
		return 0;
	/*
	 * A write without data and without an issue only waited for a flush. (Its FUA flag may be
	 * set or not; data with a flush behind it was issued and completes a second time with 0
	 * bytes.)
	 */
	if (unlikely(!nr_bytes) && (op == OP_WRITE || op == OP_FUA) && slot &&
	    slot->request != (__u64)rq)
		op = OP_EMPTY_FLUSH;
	shared = op >= OPS_SHARDED || owner->shared;
	row = row_of(owner, op);
	if (!row)
		return 0;
	/* No process submits a device flush, and it is of the whole disk. */
	if ((hides_flushes() || (partitions && owner->layer & PARTITION)) && op == OP_FLUSH) {
		if (slot)
			slot->request = 0;
		return 0;
	}
	if (nr_bytes)
		add(&row->bytes, nr_bytes, shared);
	if (config.most_groups)
		COUNT_GROUP(group_at_completion(rq, owner, slot, op, nr_bytes), bytes, nr_bytes);
	/* More to come. */
	if (unlikely(nr_bytes < FIELD(rq, __data_len))) {
		if (config.want_operations && is_issued(slot, rq) && slot->link & LINK_IN_TABLE) {
			struct partly partly = {
			    .bio = (__u64)bio,
			    .ended = now,
			    .bytes = nr_bytes,
			    .slot = index,
			    .device = owner->device,
			    .op = op,
			};

			finish_ended_bios(slot, &partly);
		}
		return 0;
	}
	if (unlikely(op != OP_FLUSH && FIELD(rq, rq_flags) & config.rqf_flush_seq)) {
		/*
		 * The data is written, a flush follows: the device stage of this write ends here.
		 * What it waits for the flush is in no stage; the flush itself has a row of its
		 * own.
		 */
		if (slot && slot->request == (__u64)rq) {
			if (!slot->reaped)
				slot->reaped = now;
			slot->state = SLOT_FLUSHING;
		}
		return 0;
	}
	if (unlikely(!slot)) {
		COUNT(owner, out_of_range);
		return 0;
	}
	if (unlikely(slot->request != (__u64)rq)) {
		if (op == OP_EMPTY_FLUSH)
			add(&row->never_issued, 1, shared);
		else if (slot->used)
			add(&row->no_start, 1, shared);
		else
			add(&row->untimed, 1, shared);
		if (config.want_events && (op == OP_EMPTY_FLUSH || !slot->used)) {
			__u32 before = op == OP_EMPTY_FLUSH ? 0 : IO_STARTED_BEFORE;
			struct counted counted = counted_io(rq, bio, owner, op, now, before);

			emit_io(&counted);
		}
		if (config.most_groups) {
			group = group_at_completion(rq, owner, slot, op, nr_bytes);
			count_unissued(group, op, slot->used);
		}
		if (config.want_operations && op == OP_EMPTY_FLUSH) {
			struct waiter waiter = {
			    .bio = (__u64)bio,
			    .ended = now,
			    .flush = flush_index(owner),
			    .device = owner->device,
			    .group = group + 1,
			};
			int unowned = !finish_waiter(&waiter);

			add(&row->unowned, unowned, shared);
			if (config.most_groups)
				COUNT_GROUP(group, unowned, unowned);
		}
		return 0;
	}
	slot->request = 0;
	end = slot->reaped ? slot->reaped : now;
	if (unlikely(end < slot->issued || now < end || slot->queued > slot->issued)) {
		COUNT(owner, negative);
		add(&row->untimed, 1, shared);
		if (config.want_events) {
			__u32 marks = IO_NEGATIVE;
			struct counted counted = counted_io(rq, bio, owner, op, now, marks);

			emit_io(&counted);
		}
		if (config.most_groups)
			COUNT_GROUP(slot->group, untimed, 1);
		return 0;
	}
	add_time(row->extents, row->counts, &row->lock, STAGE_DEVICE, end - slot->issued, shared);
	if (slot->queued)
		add_time(row->extents, row->counts, &row->lock, STAGE_QUEUE,
			 slot->issued - slot->queued, shared);
	if (slot->reaped && slot->state != SLOT_FLUSHING)
		add_time(row->extents, row->counts, &row->lock, STAGE_COMPLETE, now - slot->reaped,
			 shared);
	if (unlikely(slot->state == SLOT_FLUSHING))
		add(&row->flushed, flushed_behind(flush_index(owner), slot->reaped), shared);
	if (config.want_parts)
		parts_completed(slot, index, owner->device, op);
	if (config.want_events) {
		__u32 marks = slot->reaped ? 0 : IO_FUSED;
		struct counted counted = counted_io(rq, bio, owner, op, now, marks);

		if (slot->state == SLOT_FLUSHING)
			counted.io.marks |= IO_FLUSHED;
		counted.io.queued = slot->queued;
		counted.io.issued = slot->issued;
		counted.io.reaped = end;
		range_of(index, &counted.io);
		counted.link = slot->link;
		counted.proof = slot->proof;
		emit_io(&counted);
	}
	if (config.most_groups) {
		__u64 queue = slot->queued ? slot->issued - slot->queued : NO_TIME;
		int reaped = slot->reaped && slot->state != SLOT_FLUSHING;

		time_in_group(slot->group, queue, end - slot->issued,
			      reaped ? now - slot->reaped : NO_TIME);
		if (config.matrix_cpus)
			count_in_matrix(slot->cpu, 1);
	}
	if (keep_bios() && (bio || slot->link & LINK_COMMAND)) {
		struct part part = {
		    .bio = (__u64)bio,
		    .stamps =
			{
			    .issued = slot->issued,
			    .reaped = end,
			    .ended = now,
			    .device = owner->device,
			    .op = op,
			    .fused = !slot->reaped,
			    .group = slot->group + 1,
			},
		    .slot = index,
		};

		if (!finish(slot, &part)) {
			__u64 queue = slot->queued ? slot->issued - slot->queued : NO_TIME;
			int reaped = slot->reaped && slot->state != SLOT_FLUSHING;

			add(&row->unowned, 1, shared);
			time_unowned(owner->device, op, queue, end - slot->issued,
				     reaped ? now - slot->reaped : NO_TIME);
			if (config.most_groups)
				COUNT_GROUP(slot->group, unowned, 1);
		}
		count_bios(row, owner, &part, shared);
	}
	return 0;
}

SEC("?tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long number)
{
	if (number >= 0 && number < WIRE_SYSCALLS && syscall_kinds[number])
		call_entered(syscall_kinds[number], regs);
	return 0;
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long result)
{
	call_returned(result);
	return 0;
}

SEC("?tp_btf/io_uring_submit_req")
int BPF_PROG(ring_submit_req, struct io_kiocb *req)
{
	ring_submitted(req);
	return 0;
}

/* The same until 6.2, with a second argument. */
SEC("?tp_btf/io_uring_submit_sqe")
int BPF_PROG(ring_submit_sqe, struct io_kiocb *req)
{
	ring_submitted(req);
	return 0;
}

SEC("?tp_btf/io_uring_complete")
int BPF_PROG(ring_complete, struct io_ring_ctx *ring, void *req)
{
	if (req)
		operation_ended((__u64)req, ctx);
	return 0;
}

SEC("?tp_btf/io_uring_cqring_wait")
int BPF_PROG(ring_wait)
{
	ring_waited_on(argument_address(ctx, 0));
	return 0;
}

/* The bio has its request. */
SEC("?tp_btf/block_getrq")
int BPF_PROG(bio_getrq, struct bio *bio)
{
	if (owner_of_bio(bio))
		bio_allocated((__u64)bio);
	return 0;
}

/* The request is put into a scheduler's or a software queue, and not given to the driver at once.
 */
SEC("?tp_btf/block_rq_insert")
int BPF_PROG(rq_insert, struct request *rq)
{
	struct owner *owner = owner_of_request(rq);
	struct wire_slot *slot;
	__u32 index;

	if (!owner)
		return 0;
	slot = slot_of(rq, owner, op_of(rq), &index);
	/* Refused by the driver it may be put back there, which is its requeue part. */
	if (slot && slot->request != (__u64)rq)
		parts_inserted(index, (__u64)rq);
	return 0;
}

/* Since 5a80bd075f3b (6.5): the request's bios have all been ended. */
SEC("?tp_btf/block_io_done")
int BPF_PROG(io_done, struct request *rq)
{
	/* Its bios are gone, and with them its partition: the slot knows. */
	struct owner *owner = owner_of_queue(rq);
	__u32 index;

	if (owner && slot_of(rq, owner, op_of(rq), &index))
		parts_done(index);
	return 0;
}

SEC("?tp_btf/io_uring_queue_async_work")
int BPF_PROG(ring_queue_work, struct io_kiocb *req)
{
	if (config.want_parts)
		ring_punted((__u64)req);
	/* The worker may be done before the call begins to wait. */
	ring_waited_on((__u64)BPF_CORE_READ(req, ctx));
	return 0;
}

SEC("?tp_btf/sched_waking")
int BPF_PROG(task_waking, struct task_struct *task)
{
	task_woken(task->pid);
	return 0;
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(task_switch, int preempted, struct task_struct *from, struct task_struct *to)
{
	task_runs(to->pid);
	return 0;
}

SEC("?tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	process_forked(parent, child);
	return 0;
}

SEC("?tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
	thread_exited(task);
	return 0;
}
