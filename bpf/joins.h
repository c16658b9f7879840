/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which operation a bio belongs to: found when it enters the block layer, by the kiocb behind it,
 * which is the io_uring request itself, or by the task, for a system call that waits; and told when
 * the bio's request completes. For the latency programs, whose `config` must stand before it.
 */
#ifndef BIOPSY_JOINS_H
#define BIOPSY_JOINS_H

#include "operations.h"

/* Of an I/O that is a bio. */
#define NO_SLOT (~0u)

/* What a request that completes says to the operations of its bios. */
struct part {
	__u64 bio;
	struct stamps stamps;
	/* The request's, or NO_SLOT. */
	__u32 slot;
	__u32 pad;
	/* One of the bios belongs to an operation that is followed. A flag: the verifier would go
	 * through every value of a count. */
	__u64 owned;
	/* Bios of which the entry was known, and their time from there on. */
	__u64 bios;
	__u64 bio_ns;
};

#ifdef NO_SWAP
/* Kernels without compare-and-swap have no events that name an io_uring request either. */
static __always_inline void link_bio(const void *private, __u64 address, __u32 layer, __u64 *link,
				     __u64 *proof)
{
}

static __always_inline int finish_bios(struct part *part, int alone)
{
	return 0;
}

#else
/* The operation of a kiocb that io_submit hands in, + 1; 0: it is not one of libaio's. */
VERIFIED_ONCE __u32 aio_operation(__u64 kiocb, __u64 entered)
{
	struct aio_kiocb *aio = (struct aio_kiocb *)kiocb;
	__u64 iocb = BPF_CORE_READ(aio, ki_res.obj);
	struct operation *operation;
	__u64 key, data = 0;
	__u32 number;

	/* Whatever else a bio may carry there has no such iocb: both hold the application's word.
	 */
	if (bpf_probe_read_user(&data, sizeof(data), (const void *)iocb) ||
	    data != BPF_CORE_READ(aio, ki_res.data))
		return 0;
	key = aio_key(iocb);
	number = find_operation(key);
	operation = number ? operation_at(number - 1) : 0;
	if (operation) {
		/* One of several bios. */
		if (operation->entered == entered)
			return number;
		/* The iocb is in use again, and nobody was seen to fetch the last result. */
		if (operation->parts && running)
			count_whole(&operation->stamps, operation->entered, 0, number - 1, 0);
	}
	number = begin_operation(key, entered);
	if (config.want_events && number) {
		struct facts *facts = begin_facts(number - 1, CALL_AIO);

		if (facts)
			facts->user_data = data;
	}
	return number;
}

/* The call whose task has this address on its kernel stack. */
static __always_inline struct caller *call_on_stack(__u64 address)
{
	__u32 low = low_half((const void *)address);
	__u32 *tid = stack_owner(low);
	struct caller *caller = tid ? place_of(*tid) : 0;
	struct operation_parts *parts;

	if (!caller || caller->tid != *tid || caller->kind != CALL_WAITS)
		return 0;
	parts = operation_parts_at(call_place(*tid));
	return parts && parts->stack == low >> KERNEL_STACK_SHIFT ? caller : 0;
}

/* A bio that the throttling worker brings, of a call that waits for it. */
static __noinline struct caller *held_call(__u64 bio, __u64 private, __u64 iocb)
{
	struct caller *caller = call_on_stack(bio);

	if (!caller)
		caller = call_on_stack(private);
	if (!caller)
		caller = call_on_stack(iocb);
	return caller;
}

/*
 * The operation of a bio that enters the block layer, as a link to be kept with the bio: the number
 * of the operation, or the thread id with LINK_CALLER, and when it was entered as its proof.
 */
#define LINK_CALLER    (1ull << 63)
/* blk-throttle held it back: its queue began when its operation was submitted. */
#define LINK_THROTTLED (1ull << 62)

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

static __always_inline void link_bio(const void *private, __u64 address, __u32 layer, __u64 *link,
				     __u64 *proof)
{
	struct caller *caller = current_caller();
	int of_layer = is_of_layer(caller, layer);
	struct operation *operation;
	__u64 iocb = 0, held = 0;
	__u32 number;

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
		held = LINK_THROTTLED;
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
	if (config.want_throttle && held) {
		caller = held_call(address, (__u64) private, iocb);
		if (caller) {
			*link = LINK_CALLER | held | caller->tid;
			*proof = caller->entered;
			return;
		}
	}
	if (caller && caller->kind == CALL_AIO)
		number = iocb ? aio_operation(iocb, caller->entered) : 0;
	else
		number = iocb ? find_operation(iocb) : 0;
	/* A buffered read, and a bio of a stacked device, know no kiocb: the request that this call
	 * is submitting. */
	if (!number && caller && caller->kind == CALL_RING && !of_layer)
		number = caller->current;
	operation = number ? operation_at(number - 1) : 0;
	if (!operation)
		return;
	*link = number | held;
	*proof = operation->entered;
}

/*
 * The time until its last bio came from the throttling worker is no submission. Where a system call
 * that waits handed it in nobody knows: its queue begins at its entry.
 */
static __always_inline void held_back(struct stamps *stamps, __u64 submitted, __u32 place)
{
	struct operation_parts *parts = operation_parts_at(place);

	if (!parts || submitted > stamps->queued)
		return;
	parts->throttled = stamps->queued - submitted;
	stamps->queued = submitted;
}

/* When a request of io_uring was submitted. */
static __always_inline __u64 submission(const struct operation *operation, __u32 place)
{
	struct operation_parts *parts = operation_parts_at(place);

	return parts && parts->submitted > operation->entered ? parts->submitted
							      : operation->entered;
}

static __always_inline void join_parts(__u32 place, const struct part *part)
{
	if (part->slot == NO_SLOT)
		parts_of_none(place, part->stamps.ended);
	else
		parts_joined(place, part->slot, part->stamps.ended);
}

/* True where the operation is still there. */
static __always_inline int finish_part(__u64 link, __u64 proof, const struct part *part)
{
	__u32 number = link;
	struct operation *operation;

	if (link & LINK_CALLER) {
		struct caller *caller = place_of(link);

		/* It has returned since: a read-ahead that it did not wait for. */
		if (!caller || caller->tid != (__u32)link || caller->entered != proof)
			return 0;
		caller->stamps = part->stamps;
		caller->parts++;
		if (config.want_parts)
			join_parts(call_place(link), part);
		if (config.want_throttle && link & LINK_THROTTLED)
			held_back(&caller->stamps, caller->entered, call_place(link));
		return 1;
	}
	operation = operation_at(number - 1);
	if (!operation || operation->entered != proof || operation->request <= OPERATION_ENDED)
		return 0;
	operation->stamps = part->stamps;
	operation->parts++;
	if (config.want_parts)
		join_parts(number - 1, part);
	if (config.want_throttle && link & LINK_THROTTLED)
		held_back(&operation->stamps, submission(operation, number - 1), number - 1);
	return 1;
}

static __always_inline void finish_bio(struct part *part)
{
	__u32 way;
	struct bio_set *set = find_bio(part->bio, &way);

	if (!set)
		return;
	part->stamps.queued = set->queued[way];
	if (config.want_bios) {
		part->bios++;
		part->bio_ns += part->stamps.ended - part->stamps.queued;
	}
	if (set->link[way] && finish_part(set->link[way], set->proof[way], part))
		part->owned = 1;
	set->bio[way] = 0;
}

static long finish_next(__u32 i, struct part *part)
{
	finish_bio(part);
	part->bio = next_bio(part->bio);
	return !part->bio;
}

/*
 * True where one of the bios belongs to an operation that is followed. Not static: the verifier
 * looks at it once, and not for each way that leads here.
 */
VERIFIED_ONCE int finish_bios(struct part *part, int alone)
{
	struct part walk;

	if (!part)
		return 0;
	if (alone) {
		finish_bio(part);
		return part->owned != 0;
	}
	walk = *part;
	bpf_loop(MOST_BIOS, finish_next, &walk, 0);
	part->bios = walk.bios;
	part->bio_ns = walk.bio_ns;
	return walk.owned != 0;
}

#endif /* NO_SWAP */

#endif
