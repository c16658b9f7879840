/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which operation a bio belongs to: found when it enters the block layer, by the kiocb behind it,
 * which is the io_uring request itself, or by the task, for a system call that waits; and told when
 * the bio's request completes. For the latency programs, whose `config` must stand before it.
 */
#ifndef BIOPSY_JOINS_H
#define BIOPSY_JOINS_H

#include "held.h"
#include "operations.h"

/* Of an I/O that is a bio. */
#define NO_SLOT (~0u)

/* What a request that completes says to the operations of its bios. */
struct part {
	__u64 bio;
	struct wire_stamps stamps;
	/* The request's, or NO_SLOT. */
	__u32 slot;
	/* Of a request of which only a part completes: how many bytes do. */
	__u32 bytes;
	/* One of the bios belongs to an operation that is followed. A flag: the verifier would go
	 * through every value of a count. */
	__u64 owned;
	/* Bios of which the entry was known, and their time from there on. */
	__u64 bios;
	__u64 bio_ns;
};

/* A request that completes in part: so many bytes of it, from its first bio on. */
struct partly {
	__u64 bio;
	__u64 ended;
	__u32 bytes;
	__u32 slot;
	__u16 device;
	__u16 op;
	__u32 pad;
};

/* A bio without data that was handed in to be told of a flush, which has completed. */
struct waiter {
	__u64 bio;
	__u64 ended;
	/* The flush's slot. */
	__u32 flush;
	__u16 device;
	/* + 1 */
	__u16 group;
};

#ifdef NO_SWAP
/* Kernels without compare-and-swap have no events that name an io_uring request either. */
static __always_inline void link_bio(const void *private, __u64 address, __u32 layer, __u32 *link,
				     __u64 *proof)
{
}

static __always_inline int link_command(struct wire_slot *slot, __u64 waiter)
{
	return 0;
}

static __always_inline void await_result(struct wire_slot *slot, __u32 index)
{
}

static __always_inline void hand_over_result(struct wire_slot *slot, __u32 index)
{
}

static __always_inline void put_back(struct wire_slot *slot, __u32 number, __u64 bio)
{
}

static __always_inline int finish(struct wire_slot *slot, struct part *part)
{
	return 0;
}

static __always_inline int finish_ended_bios(const struct wire_slot *slot,
					     const struct partly *partly)
{
	return 0;
}

static __always_inline int finish_waiter(const struct waiter *waiter)
{
	return 0;
}

#else
/*
 * An operation belongs to the device that it was handed to. Where that is bio-based and traced, the
 * bios below are its layer's: only those that name their kiocb themselves are the application's.
 */
static __always_inline int is_of_layer(struct caller *caller, __u32 layer)
{
	if (!config.want_bios || !caller)
		return 0;
	if (layer & BELOW && caller->layered)
		return 1;
	if (layer & BIO_BASED)
		caller->layered = 1;
	return 0;
}

/* The operation of the request that the current task works on as a worker of io_uring, + 1; 0:
 * none. */
VERIFIED_ONCE __u32 worker_operation(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct io_worker *worker;
	__u64 work;

	if (!config.want_operations || !bpf_core_field_exists(task->worker_private) ||
	    !(BPF_CORE_READ(task, flags) & PF_IO_WORKER))
		return 0;
	worker = BPF_CORE_READ(task, worker_private);
	work = (__u64)BPF_CORE_READ(worker, cur_work);
	return work ? find_operation(work - bpf_core_field_offset(struct io_kiocb, work)) : 0;
}

/* Finds the operation of a bio that enters the block layer. */
static __always_inline void link_bio(const void *private, __u64 address, __u32 layer, __u32 *link,
				     __u64 *proof)
{
	struct caller *caller = current_caller();
	int of_layer = is_of_layer(caller, layer);
	struct wire_place *operation;
	__u32 number, flags = 0;
	__u64 iocb = 0;

	*link = 0;
	if (caller && caller->kind == CALL_WAITS) {
		if (of_layer)
			return;
		*link = LINK_CALLER | caller->tid;
		*proof = caller->entered;
		return;
	}
	/*
	 * Kernel threads write back and serve layers: nobody waits for them. Only blk-throttle's
	 * brings what an application handed in, some time after it did.
	 */
	if (!caller && current_is_kernel_thread()) {
		if (!config.want_throttle)
			return;
		flags = LINK_THROTTLED;
	}
	/*
	 * A direct I/O of the block device keeps its kiocb around the only bio, others (and those
	 * of file systems on iomap) point to what begins with it. A kiocb of io_uring is its
	 * request.
	 */
	if (private)
		iocb = word_at(private);
	else if (has_blkdev_dio())
		iocb = word_at(blkdev_dio_of(address));
	if (config.want_throttle && flags) {
		caller = held_call(address, (__u64) private, iocb);
		if (caller) {
			*link = LINK_CALLER | flags | caller->tid;
			*proof = caller->entered;
			return;
		}
	}
	if (caller && caller->kind == CALL_AIO)
		number = iocb ? aio_operation(iocb, caller->entered) : 0;
	else
		number = iocb ? find_operation(iocb) : 0;
	if (config.want_throttle && flags && iocb && !number)
		number = aio_operation(iocb, 0);
	if (number)
		flags |= LINK_DIRECT;
	/* A buffered read, and a bio of a stacked device, know no kiocb: the request that this call
	 * is submitting, or that this worker has in hand. */
	if (!number && caller && caller->kind == CALL_RING && !of_layer)
		number = caller->current;
	if (!number && !caller && !(config.want_bios && layer & BELOW))
		number = worker_operation();
	operation = number ? operation_at(number - 1) : 0;
	if (!operation)
		return;
	if (config.want_throttle)
		flags = held_flag(number, flags);
	*link = number | flags;
	*proof = operation->entered;
}

/*
 * The operation of a request that no bio brought: a command of the driver's own. What waits for it
 * is the request of io_uring, whose command is its first member, or lies on the stack of the task
 * that is in a system call, which issues it itself unless the queue is busy. True where it is the
 * current task that handed it in.
 */
VERIFIED_ONCE int link_command(struct wire_slot *slot, __u64 waiter)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct caller *caller = current_caller();
	struct wire_place *operation;
	__u32 number;

	if (!config.want_operations || !slot)
		return 0;
	slot->link = LINK_COMMAND;
	if (caller && caller->kind == CALL_WAITS &&
	    is_same_stack(waiter, (__u64)BPF_CORE_READ(task, stack))) {
		slot->link |= LINK_CALLER | caller->tid;
		slot->proof = caller->entered;
		return 1;
	}
	number = find_operation(waiter);
	operation = number ? operation_at(number - 1) : 0;
	if (!operation)
		return 0;
	slot->link |= number | LINK_DIRECT;
	slot->proof = operation->entered;
	return caller && caller->kind == CALL_RING && caller->entered == operation->entered;
}

static __always_inline void join_parts(__u32 place, const struct part *part, __u64 allocated)
{
	if (part->slot == NO_SLOT)
		parts_of_none(place, part->stamps.ended);
	else
		parts_joined(place, part->slot, &part->stamps, allocated);
}

/* True where the operation is still there. `allocated`: when the bio got its request; 0: it joined
 * one.
 */
static __always_inline int finish_part(__u32 link, __u64 proof, const struct part *part,
				       __u64 allocated)
{
	__u32 number = link & LINK_NUMBER;
	struct wire_place *operation;

	if (link & LINK_CALLER) {
		struct caller *caller = place_of(number);

		/* It has returned since: a read-ahead that it did not wait for. */
		if (!caller || caller->tid != number || caller->entered != proof)
			return 0;
		caller->stamps = part->stamps;
		count_part(&caller->parts);
		if (config.want_parts)
			join_parts(call_place(number), part, allocated);
		if (config.want_throttle && link & LINK_THROTTLED)
			held_back(&caller->stamps, caller->entered, call_place(number));
		return 1;
	}
	operation = operation_at(number - 1);
	if (!operation || operation->entered != proof || operation->state != OPERATION_LIVE)
		return 0;
	/* Of the part that finished last are the stages, and all that they are made of. */
	if (!add_result(operation, &part->stamps))
		return 1;
	if (config.want_parts)
		join_parts(number - 1, part, allocated);
	if (config.want_throttle && link & LINK_THROTTLED)
		held_back(&operation->stamps, submission(operation, number - 1), number - 1);
	return 1;
}

static __always_inline void finish_bio(struct part *part)
{
	__u32 way, index;
	struct bio_set *set = find_bio_at(part->bio, &way, &index);
	__u64 allocated;

	if (!set)
		return;
	allocated = config.want_parts ? allocation_of(set, index, way) : 0;
	part->stamps.queued = set->queued[way];
	if (config.want_bios && part->stamps.queued) {
		part->bios++;
		part->bio_ns += part->stamps.ended - part->stamps.queued;
	}
	if (set->link[way] && finish_part(set->link[way], set->proof[way], part, allocated))
		part->owned = 1;
	set->bio[way] = 0;
}

static long finish_next(__u32 i, struct part *part)
{
	/* Its bios were taken away: NVMe hands them to another path. */
	if (!part->bio)
		return 1;
	finish_bio(part);
	part->bio = next_bio(part->bio);
	return !part->bio;
}

/*
 * True where one of the bios belongs to an operation that is followed. Not static: the verifier
 * looks at it once, and not for each way that leads here.
 */
VERIFIED_ONCE int finish_bios(struct part *part)
{
	struct part walk;

	if (!keep_bios() || !part)
		return 0;
	walk = *part;
	bpf_loop(MOST_BIOS, finish_next, &walk, 0);
	part->bios = walk.bios;
	part->bio_ns = walk.bio_ns;
	return walk.owned != 0;
}

static long finish_ended(__u32 i, struct part *part)
{
	__u32 bytes = 0;

	bpf_probe_read_kernel(
	    &bytes, sizeof(bytes),
	    (const void *)(part->bio + bpf_core_field_offset(struct bio, bi_iter.bi_size)));
	if (bytes > part->bytes)
		return 1;
	part->bytes -= bytes;
	if (config.want_events)
		lose_operation();
	return finish_next(i, part);
}

/* A part of a request completes: the bios that lie in it have ended, and their operations may go
 * on. */
VERIFIED_ONCE int finish_ended_bios(const struct wire_slot *slot, const struct partly *partly)
{
	struct part walk = {};

	if (!config.want_operations || !slot || !partly)
		return 0;
	walk.bio = partly->bio;
	walk.stamps.issued = slot->issued;
	walk.stamps.reaped = slot->reaped ? slot->reaped : partly->ended;
	walk.stamps.ended = partly->ended;
	walk.stamps.device = partly->device;
	walk.stamps.op = partly->op;
	walk.stamps.fused = !slot->reaped;
	walk.stamps.group = slot->group + 1;
	walk.slot = partly->slot;
	walk.bytes = partly->bytes;
	bpf_loop(MOST_BIOS, finish_ended, &walk, 0);
	return 0;
}

/*
 * A request is issued whose only bio is the first part of an operation of io_uring or libaio. That
 * finds its result in the slot, and who completes the request need not touch the operation: on
 * another CPU each cache line that goes there and back costs more than all else in a program.
 */
static __always_inline void await_result(struct wire_slot *slot, __u32 index)
{
	struct wire_place *operation;

	if (config.want_parts || !(slot->link & LINK_DIRECT) || slot->link & LINK_THROTTLED)
		return;
	operation = operation_at((slot->link & LINK_NUMBER) - 1);
	if (!operation || operation->entered != slot->proof || operation->slot)
		return;
	operation->slot = index + 1;
	slot->link |= LINK_WAITS;
}

/* Another request is about to take the slot before the operation of the last one has looked. */
static __always_inline void hand_over_result(struct wire_slot *slot, __u32 index)
{
	struct wire_place *operation;
	struct wire_stamps stamps;

	if (!config.want_operations || slot->state != SLOT_DONE)
		return;
	operation = operation_at((slot->link & LINK_NUMBER) - 1);
	if (!operation || operation->entered != slot->proof || operation->slot != index + 1 ||
	    operation->state != OPERATION_LIVE)
		return;
	stamps_in(slot, &stamps);
	add_result(operation, &stamps);
	/* Who reads the slot at this moment has to find them with the operation. */
	barrier();
	*(volatile __u32 *)&slot->link = 0;
}

/* The driver gives a request back, which may then be merged with others. */
static __always_inline void put_back(struct wire_slot *slot, __u32 number, __u64 bio)
{
	struct bio_set *set;
	__u32 way, index;

	if (!bio || !slot->queued || slot->link & LINK_IN_TABLE)
		return;
	set = place_bio(bio, &way, &index);
	if (!set)
		return;
	set->queued[way] = slot->queued;
	set->link[way] = slot->link & ~LINK_WAITS;
	set->proof[way] = slot->proof;
	if (config.want_parts)
		set_allocation(index, way, allocated_at(number));
	slot->link = LINK_IN_TABLE;
}

/* A request completes. True where it was a part of an operation that is followed. */
static __always_inline int finish(struct wire_slot *slot, struct part *part)
{
	__u32 link = slot->link;

	if (link & LINK_IN_TABLE)
		return finish_bios(part);
	if (config.want_bios) {
		part->bios = slot->queued != 0;
		part->bio_ns = slot->queued ? part->stamps.ended - slot->queued : 0;
	}
	if (!link || link == LINK_COMMAND)
		return 0;
	if (link & LINK_WAITS) {
		slot->reaped = part->stamps.reaped;
		slot->ended = part->stamps.ended;
		slot->device = part->stamps.device;
		slot->op = part->stamps.op;
		slot->fused = part->stamps.fused;
		/* All else is there when this is. */
		barrier();
		*(volatile __u8 *)&slot->state = SLOT_DONE;
		return 1;
	}
	part->stamps.queued = slot->queued;
	return finish_part(link, slot->proof, part,
			   config.want_parts ? allocated_at(part->slot) : 0);
}

/*
 * The operation of a write that a flush follows stays what it is, and only its stages become the
 * flush's: the class of its part with data.
 */
static __always_inline void keep_class(__u64 bio, struct wire_stamps *stamps)
{
	struct wire_place *operation;
	const struct wire_stamps *earlier;
	struct bio_set *set;
	__u32 way, link, parts;
	__u64 proof;

	set = find_bio(bio, &way);
	if (!set)
		return;
	link = set->link[way];
	proof = set->proof[way];
	if (link & LINK_CALLER) {
		struct caller *caller = place_of(link & LINK_NUMBER);

		if (!caller || caller->tid != (link & LINK_NUMBER) || caller->entered != proof)
			return;
		parts = caller->parts;
		earlier = &caller->stamps;
	} else {
		operation = link ? operation_at((link & LINK_NUMBER) - 1) : 0;
		if (!operation || operation->entered != proof || operation->state != OPERATION_LIVE)
			return;
		parts = operation->parts;
		fetch_result(operation, link & LINK_NUMBER);
		/* It must not be taken a second time, when the operation ends. */
		if (operation->parts != parts)
			operation->slot = 0;
		parts = operation->parts;
		earlier = &operation->stamps;
	}
	if (!parts)
		return;
	stamps->op = earlier->op;
	stamps->group = earlier->group;
}

/*
 * The flush has just completed on this hardware queue, so that its stages are those of who waited
 * for it: it was issued after the bio came. Where the next flush has been issued meanwhile its
 * stamps are lost: then they contradict each other, and the operation is counted as torn. True
 * where there is an operation.
 */
VERIFIED_ONCE int finish_waiter(const struct waiter *waiter)
{
	struct wire_slot *flush;
	struct part part = {.slot = NO_SLOT};

	if (!config.want_operations || !waiter)
		return 0;
	flush = slot_numbered(waiter->flush);
	if (!flush || !waiter->bio)
		return 0;
	part.bio = waiter->bio;
	part.stamps.issued = flush->request ? 0 : flush->issued;
	part.stamps.reaped = flush->reaped ? flush->reaped : waiter->ended;
	part.stamps.ended = waiter->ended;
	part.stamps.device = waiter->device;
	part.stamps.op = OP_EMPTY_FLUSH;
	part.stamps.fused = !flush->reaped;
	part.stamps.group = waiter->group;
	keep_class(waiter->bio, &part.stamps);
	/* Not by finish_bios, whose frame would be one more on the stack. */
	bpf_loop(MOST_BIOS, finish_next, &part, 0);
	return part.owned != 0;
}

#endif /* NO_SWAP */

#endif
