/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Tracks operations in flight: what applications submit, the bios that belong to it, and its
 * stages. For the latency programs, which define `config` before this header.
 *
 * An operation is an io_uring request, an iocb of Linux AIO, or a blocking system call (`struct
 * caller`). The functions `op_*` access the table; these make up an operation's life cycle:
 *
 *   op_begin        it is submitted (io_uring.h; an iocb by its first bio; a call by syscalls.h)
 *   op_attach_bio   a bio enters the block layer: it is matched by its kiocb, which is the io_uring
 *                   request itself, or by the task, for a blocking system call
 *   op_complete     the request of a bio completes: the last one gives the operation its stages
 *   op_count        the application sees the result
 */
#ifndef BIOPSY_OP_TABLE_H
#define BIOPSY_OP_TABLE_H

#include "bios.h"
#include "callers.h"
#include "compat.h"
#include "op_rows.h"
#include "slots.h"
#include "submitter.h"
#include "wire.h"

#define OPERATION_BITS	   14
#define OPERATION_ROW_BITS 4
#define OPERATION_ROW	   (1 << OPERATION_ROW_BITS)
#define OPERATION_PROBES   8
_Static_assert(OPERATION_BITS < 16, "next");
_Static_assert((1 << OPERATION_BITS) + (1 << CALLER_BITS) == 1 << FACTS_BITS, "facts");

MAPPED_ARRAY(operations, struct wire_place, 1 << OPERATION_BITS);

#define IOCB_BITS 13
/*
 * Associativity of the table of iocbs. Every io_submit on the machine is recorded there: with one
 * way per key, an iocb of another process would soon overwrite one whose bio is throttled.
 */
#define IOCB_WAYS 4

/*
 * An iocb as passed to io_submit. blk-throttle's worker submits a throttled bio long after the call
 * has returned, and then only the iocb identifies its operation.
 */
struct iocb {
	/* Hash of its context, its address and its aio_data. */
	__u64 key;
	/* When its io_submit was entered, and by which process. */
	__u64 entered;
	__u32 process;
	/* Its operation has begun: after that has ended, the same key belongs to a later iocb,
	 * which was not recorded. */
	__u32 joined;
	__u32 pad[2];
};

/* Filled only if `config.throttle_enabled`. */
MAPPED_ARRAY(iocbs, struct iocb, 1);

/* Upper limit on results per system call. */
#define MOST_RESULTS 32768

/* Operations that could not be followed: the table had no room. */
__u64 unfollowed = 0;

/*
 * Requests are slab objects of 256 bytes (248 in 6.18). Those of one page share a row, and a full
 * row overflows into the next row, not into the neighbouring entries.
 */
static __always_inline __u32 operation_place(__u64 request)
{
	__u32 low = low_half((const void *)request);
	__u32 row = ((low >> 12) * 0x9e3779b1u) >> 16;

	return row << OPERATION_ROW_BITS | (low >> 8 & (OPERATION_ROW - 1));
}

static __always_inline __u32 operation_index(__u32 place, __u32 probe)
{
	return (place + probe * OPERATION_ROW) & ((1 << OPERATION_BITS) - 1);
}

static __always_inline struct wire_place *op_at(__u32 index)
{
	index &= (1 << OPERATION_BITS) - 1;
	return bpf_map_lookup_elem(&operations, &index);
}

/* The operation with a number, which is its index + 1; 0: none. */
static __always_inline struct wire_place *op_numbered(__u32 number)
{
	return number ? op_at(number - 1) : 0;
}

/* The operation in this entry since this time, if it is in flight. */
static __always_inline struct wire_place *op_live(__u32 number, __u64 generation)
{
	struct wire_place *operation = op_at(number - 1);

	return operation && operation->entered == generation && operation->state == OPERATION_LIVE
		   ? operation
		   : 0;
}

/* Iocbs come after the calls. */
static __always_inline __u32 iocb_place(__u32 index)
{
	return (1 << FACTS_BITS) + index;
}

/* Index of the operation or call of a bio, + 1; 0: it has ended, or there is none. */
static __always_inline __u32 op_place(__u32 op_ref, __u64 generation)
{
	__u32 number = op_ref & REF_NUMBER;

	if (!number)
		return 0;
	if (op_ref & REF_CALLER)
		return call_entered_at(number, generation) ? call_place(number) + 1 : 0;
	return op_live(number, generation) ? number : 0;
}

/*
 * A request that is not in its first entry. A struct, since the verifier does not accept a kernel
 * pointer as a scalar argument, but does as a struct member.
 */
struct sought {
	__u64 request;
	__u32 place;
	__u32 pad;
};

/* Index of the entry that a request has or had, + 1; 0: none. */
VERIFIED_ONCE __u32 find_place(const struct sought *sought)
{
	__u32 place = sought ? sought->place : 0;

	for (__u32 i = 0; i < OPERATION_PROBES; i++) {
		struct wire_place *operation = op_at(operation_index(place, i));

		if (sought && operation && operation->request == sought->request)
			return operation_index(place, i) + 1;
	}
	return 0;
}

/* Index of a request's operation, + 1; 0: none. */
static __always_inline __u32 op_find(__u64 request)
{
	__u32 place = operation_place(request) & ((1 << OPERATION_BITS) - 1);
	struct wire_place *operation = op_at(place);
	__u32 number = place + 1;

	if (unlikely(!operation || operation->request != request)) {
		struct sought sought = {.request = request, .place = place};

		number = find_place(&sought);
		operation = op_numbered(number);
	}
	return operation && operation->state == OPERATION_LIVE ? number : 0;
}

/* Copies the stamps of a request from its slot. */
static __always_inline void stamps_in(const struct wire_slot *slot, struct wire_stamps *stamps)
{
	stamps->queued = slot->queued;
	stamps->issued = slot->issued;
	stamps->reaped = slot->reaped;
	stamps->ended = slot->ended;
	stamps->device = slot->device;
	stamps->op = slot->op;
	stamps->fused = slot->fused;
	stamps->group = slot->group + 1;
}

/* Saturates at the maximum. */
static __always_inline void count_part(__u16 *parts)
{
	*parts += *parts != 0xffff;
}

/*
 * A request finished for an operation: the last one to do so gives it its stages. Returns whether
 * this is the last one so far.
 */
static __always_inline int add_result(struct wire_place *operation,
				      const struct wire_stamps *stamps)
{
	int last = !operation->parts || operation->stamps.ended <= stamps->ended;

	if (last)
		operation->stamps = *stamps;
	count_part(&operation->parts);
	return last;
}

/* Whether a slot holds the result of this operation. */
static __always_inline int holds_result(struct wire_slot *slot, __u32 number, __u64 entered)
{
	__u32 op_ref = *(volatile __u32 *)&slot->op_ref;

	return *(volatile __u8 *)&slot->state == SLOT_DONE && op_ref & REF_WAITS &&
	       (op_ref & REF_NUMBER) == number && slot->generation == entered;
}

/* Fetches the result that the operation's first request left in a slot. */
VERIFIED_ONCE int op_fetch_result(struct wire_place *operation, __u32 number)
{
	struct wire_slot *slot;
	struct wire_stamps stamps;

	if (!follows_operations() || !operation || !operation->slot)
		return 0;
	slot = slot_numbered(operation->slot - 1);
	if (!slot || !holds_result(slot, number, operation->entered))
		return 0;
	stamps_in(slot, &stamps);
	barrier();
	/* Otherwise another request was issued in between and has moved the result here, or is
	 * about to take the slot and has moved it as well. */
	if (holds_result(slot, number, operation->entered) &&
	    !(operation->parts && operation->stamps.issued == stamps.issued))
		add_result(operation, &stamps);
	return 0;
}

/*
 * libaio identifies an operation by the address of the application's iocb, which may be reused
 * while in flight, and by aio_data. These and the process form a key that never equals a kernel
 * address, and whose low bits are well distributed: forked processes use the same addresses. Two
 * keys are equal by chance once in 2^62.
 */
#define AIO_LONG_AGO 10000000000ll

static __always_inline __u64 aio_key(__u64 iocb, __u64 data, __u64 process)
{
	__u64 key = iocb * 0x9e3779b97f4a7c15ull;

	key = (key ^ key >> 32 ^ data) * 0xd6e8feb86659fd93ull;
	key = (key ^ key >> 32 ^ process) * 0xd6e8feb86659fd93ull;
	return ((key ^ key >> 32) >> 1) | 2;
}

static __always_inline __u32 current_process(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

/*
 * Whether an operation was abandoned: its process ended, or fetches results without a system call.
 */
static __always_inline int abandoned(struct wire_place *operation, __u32 number, __u64 now)
{
	/* Negative if that call began after the current one. */
	if ((__s64)(now - operation->entered) <= AIO_LONG_AGO)
		return 0;
	/* Its caller's entry was used by another thread meanwhile; or it took long, and its caller
	 * will return. */
	if (operation->state == OPERATION_ENDED)
		return (__s64)(now - operation->stamps.ended) > AIO_LONG_AGO;
	if (operation->request >> 63)
		return 0;
	op_fetch_result(operation, number);
	return operation->parts;
}

/* A free entry stays with its request for at least this long: the request may be reused. */
#define OPERATION_REST 10000000ll

static __always_inline int is_over(const struct wire_place *operation, __s64 rest, __u64 now)
{
	return operation->state == OPERATION_FREE &&
	       (!rest || (__s64)(now - operation->entered) >= rest);
}

/* Claims an entry for a request without one; returns its index + 1; 0: none is available. */
VERIFIED_ONCE __u32 take_place(const struct sought *sought, __u64 now)
{
	if (!sought)
		return 0;
	/* First entries that have been free for long, then any. */
	for (__u32 i = 0; i < 2 * OPERATION_PROBES; i++) {
		__u32 number = operation_index(sought->place, i % OPERATION_PROBES) + 1;
		struct wire_place *operation = op_at(number - 1);
		__s64 rest = i < OPERATION_PROBES ? OPERATION_REST : 0;
		__u64 held;

		if (!operation)
			return 0;
		held = operation->request;
		if (!is_over(operation, rest, now) && !abandoned(operation, number, now))
			continue;
		if (__sync_val_compare_and_swap(&operation->request, held, sought->request) == held)
			return number;
	}
	__sync_fetch_and_add(&unfollowed, 1);
	return 0;
}

/* The address of no request. */
#define OPERATION_LEFT 1

/* Finds an entry for a request that is not in its first entry; returns its index + 1; 0: none. */
VERIFIED_ONCE __u32 new_place(const struct sought *sought, __u64 now)
{
	__u32 number = sought ? find_place(sought) : 0;
	struct wire_place *operation = op_numbered(number);

	if (!sought)
		return 0;
	if (operation && operation->state != OPERATION_ENDED)
		return number;
	/* The previous operation of this request still waits for the return of the thread that
	 * reaped it, while another thread uses the ring: that operation keeps the entry. */
	if (operation)
		operation->request = OPERATION_LEFT;
	return take_place(sought, now);
}

/*
 * Counts an operation whose result was seen at this time; `waiter` is the index of the call that
 * fetched it. `seen` 0: unknown. Frees the entry: another CPU may claim it at once.
 */
static __always_inline void op_count(struct wire_place *operation, __u64 seen, __u32 number,
				     __u32 waiter)
{
	count_ended(&operation->stamps, &operation->parts, operation->entered, seen, number - 1,
		    waiter);
	operation->state = OPERATION_FREE;
}

/* The same for a blocking system call. */
static __always_inline void op_count_call(struct caller *caller, __u64 entered, __u64 seen)
{
	__u32 place = call_place(caller->tid);

	count_ended(&caller->stamps, &caller->parts, entered, seen, place, place);
}

/* Ends an operation whose result has no event: it has no CQE (IOSQE_CQE_SKIP_SUCCESS). */
VERIFIED_ONCE int op_end_unseen(struct wire_place *operation, __u32 number)
{
	if (!follows_operations() || !operation)
		return 0;
	op_fetch_result(operation, number);
	if (!operation->parts || !running)
		return 0;
	operation->stamps.fused = 1;
	/* Its entry is not freed: its request goes on using it. */
	count_ended(&operation->stamps, &operation->parts, operation->entered, 0, number - 1, 0);
	return 0;
}

/*
 * Starts an operation for a request, in the entry of the request's previous operation if it had
 * one. `may_live`: the previous one may still be in flight as far as is known.
 */
static __always_inline __u32 op_begin(__u64 request, __u64 entered, int may_live)
{
	__u32 place = operation_place(request) & ((1 << OPERATION_BITS) - 1);
	struct wire_place *operation = op_at(place);
	__u32 number = place + 1;

	if (unlikely(over || !(following & FOLLOW_STARTS)))
		return 0;
	if (unlikely(!operation || operation->request != request ||
		     operation->state == OPERATION_ENDED)) {
		struct sought sought = {.request = request, .place = place};

		number = new_place(&sought, entered);
		operation = op_numbered(number);
		if (!operation)
			return 0;
	}
	if (may_live && unlikely(operation->state == OPERATION_LIVE))
		op_end_unseen(operation, number);
	operation->entered = entered;
	operation->next = 0;
	operation->parts = 0;
	operation->slot = 0;
	operation->state = OPERATION_LIVE;
	return number;
}

/* The first entry of a key's set. */
static __always_inline __u32 iocb_index(__u64 key)
{
	return key >> 20 & ((1 << IOCB_BITS) - IOCB_WAYS);
}

static __always_inline struct iocb *iocb_at(__u32 index)
{
	return bpf_map_lookup_elem(&iocbs, &index);
}

/*
 * The entry for a key: its own, or the oldest in the set. A throttled iocb that four others
 * displace from its set belongs to no operation, and is counted as that.
 */
static __always_inline __u32 place_for_iocb(__u64 key)
{
	__u32 first = iocb_index(key), place = first;
	__u64 oldest = ~0ull;

	for (__u32 i = 0; i < IOCB_WAYS; i++) {
		struct iocb *noted = iocb_at(first + i);

		if (!noted)
			continue;
		if (noted->key == key)
			return first + i;
		if (noted->entered < oldest) {
			oldest = noted->entered;
			place = first + i;
		}
	}
	return place;
}

/* Records an iocb that io_submit submits, under its key with its context. */
static __always_inline int op_note_iocb(__u64 key, __u64 entered)
{
	__u32 place = place_for_iocb(key);
	struct iocb *noted = iocb_at(place);

	if (!noted)
		return 1;
	noted->key = 0;
	barrier();
	noted->entered = entered;
	noted->process = current_process();
	noted->joined = 0;
	note_origin(iocb_place(place));
	barrier();
	noted->key = key;
	return 0;
}

/* Index of the recorded iocb of a kiocb, + 1; 0: not recorded. */
static __always_inline __u32 noted_iocb(__u64 kiocb)
{
	struct aio_kiocb *aio = (struct aio_kiocb *)kiocb;
	__u32 first;
	__u64 key;

	if (!bpf_core_field_exists(struct aio_kiocb, ki_ctx))
		return 0;
	key = aio_key(BPF_CORE_READ(aio, ki_res.obj), BPF_CORE_READ(aio, ki_res.data),
		      (__u64)BPF_CORE_READ(aio, ki_ctx));
	first = iocb_index(key);
	for (__u32 i = 0; i < IOCB_WAYS; i++) {
		struct iocb *noted = iocb_at(first + i);

		if (noted && noted->key == key)
			return first + i + 1;
	}
	return 0;
}

/* An iocb, with what distinguishes it from others. */
struct aio {
	__u64 key;
	__u64 data;
	__u64 entered;
};

/* Finds or begins the operation of a libaio iocb; returns its index + 1; 0: no room. */
static __always_inline __u32 join_aio(const struct aio *aio)
{
	__u32 number = op_find(aio->key);
	struct wire_place *operation = op_numbered(number);

	if (unlikely(over))
		return 0;
	if (operation) {
		/* One of several bios. */
		if (operation->entered == aio->entered)
			return number;
		/* The iocb was reused after its last result was fetched without an event. Or it is
		 * in flight twice with the same aio_data, and the two are indistinguishable. */
		op_fetch_result(operation, number);
		if (operation->parts && running)
			op_count(operation, 0, number, 0);
		else
			__sync_fetch_and_add(&unfollowed, 1);
		/* If no new operations are followed, op_begin leaves the entry unchanged. */
		operation->state = OPERATION_FREE;
	}
	number = op_begin(aio->key, aio->entered, 0);
	if ((config.parts_enabled || config.throttle_enabled) && number)
		parts_begun(number - 1);
	if (config.events_enabled && number) {
		struct facts *facts = begin_facts(number - 1, CALL_AIO);

		if (facts)
			facts->user_data = aio->data;
	}
	return number;
}

/*
 * The operation of a kiocb that io_submit submits, or submitted at this time; its index + 1; 0: it
 * is not a libaio kiocb.
 */
VERIFIED_ONCE __u32 op_find_aio(__u64 kiocb, __u64 entered)
{
	struct aio_kiocb *of = (struct aio_kiocb *)kiocb;
	struct aio aio = {.entered = entered};
	struct iocb *noted;
	__u64 iocb;
	__u32 held;

	if (!follows_operations())
		return 0;
	iocb = BPF_CORE_READ(of, ki_res.obj);
	held = config.throttle_enabled ? noted_iocb(kiocb) : 0;
	noted = held ? iocb_at(held - 1) : 0;
	if (!entered) {
		/* The throttling worker submits it: the application's memory is not mapped. */
		if (!noted)
			return 0;
		aio.data = BPF_CORE_READ(of, ki_res.data);
		aio.key = aio_key(iocb, aio.data, noted->process);
		if (noted->joined && !op_find(aio.key))
			return 0;
		noted->joined = 1;
		aio.entered = noted->entered;
		return join_aio(&aio);
	}
	/* If the bio carries something else there, it has no such iocb: a real one has the same
	 * aio_data in both places. */
	if (bpf_probe_read_user(&aio.data, sizeof(aio.data), (const void *)iocb) ||
	    aio.data != BPF_CORE_READ(of, ki_res.data))
		return 0;
	aio.key = aio_key(iocb, aio.data, current_process());
	if (noted && noted->entered == entered)
		noted->joined = 1;
	return join_aio(&aio);
}

/*
 * The kiocb of a bio; 0: none was found. A direct I/O of a block device has the kiocb in the struct
 * that embeds its only bio. Others (and those of file systems on iomap) point to a struct that
 * begins with it. A kiocb of io_uring is its request.
 */
static __always_inline __u64 kiocb_of(const void *private, __u64 bio)
{
	if (private)
		return word_at(private);
	return has_blkdev_dio() ? word_at(blkdev_dio_of(bio)) : 0;
}

/* A bio that a kernel thread submits: its address, and its bi_private. */
struct late_bio {
	__u64 bio;
	__u64 private;
};

/*
 * Index of the operation, call or iocb of a bio that the throttling worker submits, + 1; 0:
 * unknown.
 */
VERIFIED_ONCE __u32 op_find_throttled(const struct late_bio *late)
{
	struct caller *caller;
	__u32 number;
	__u64 iocb;

	if (!CAN_FOLLOW || !config.throttle_enabled || !late)
		return 0;
	iocb = kiocb_of((const void *)late->private, late->bio);
	caller = throttled_call(late->bio, late->private, iocb);
	if (caller)
		return call_place(caller->tid) + 1;
	if (!iocb)
		return 0;
	number = op_find(iocb);
	if (number)
		return number;
	number = noted_iocb(iocb);
	return number ? iocb_place(number - 1) + 1 : 0;
}

/*
 * Adds REF_THROTTLED if blk-throttle throttled this bio of an operation, or an earlier one. If an
 * io_uring request has to be split, its first bio, which may not wait, ends with EAGAIN after it
 * was throttled, and a worker submits another bio. The time since the submission was spent in the
 * throttle all the same.
 */
static __always_inline __u32 throttled_flag(__u32 number, __u32 flags)
{
	struct operation_parts *parts = operation_parts_at(number - 1);

	if (!parts)
		return flags;
	if (flags & REF_THROTTLED)
		parts->held = 1;
	return parts->held ? flags | REF_THROTTLED : flags;
}

/*
 * The time until the throttling worker submitted the last bio is not submission. For a blocking
 * system call the time of submission is unknown: its queue stage begins at its entry.
 */
static __always_inline void add_throttle(struct wire_stamps *stamps, __u64 submitted, __u32 place)
{
	struct operation_parts *parts = operation_parts_at(place);

	if (!parts || submitted > stamps->queued)
		return;
	parts->throttled = stamps->queued - submitted;
	stamps->queued = submitted;
}

/* When an io_uring request was submitted. */
static __always_inline __u64 submission(const struct wire_place *operation, __u32 place)
{
	struct operation_parts *parts = operation_parts_at(place);

	return parts && parts->submitted > operation->entered ? parts->submitted
							      : operation->entered;
}

/* When the operation of a throttled bio was submitted; 0: it has ended. */
static __always_inline __u64 op_submission(__u32 op_ref, __u64 generation)
{
	__u32 number = op_ref & REF_NUMBER;
	struct wire_place *operation;

	if (op_ref & REF_CALLER)
		return call_entered_at(number, generation) ? generation : 0;
	operation = op_live(number, generation);
	return operation ? submission(operation, number - 1) : 0;
}

/*
 * Whether a bio below a traced bio-based device belongs to that device's layer. An operation
 * belongs to the device that it was submitted to, so of the bios below only those that name their
 * kiocb themselves are the application's.
 */
static __always_inline int is_of_layer(struct caller *caller, __u32 layer)
{
	if (!config.bios_enabled || !caller)
		return 0;
	if (layer & BELOW && caller->layered)
		return 1;
	if (layer & BIO_BASED)
		caller->layered = 1;
	return 0;
}

/* Index of the operation that the current task, an io_uring worker, is executing, + 1; 0: none. */
VERIFIED_ONCE __u32 worker_operation(void)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct io_worker *worker;
	__u64 work;

	if (!follows_operations() || !bpf_core_field_exists(task->worker_private) ||
	    !(BPF_CORE_READ(task, flags) & PF_IO_WORKER))
		return 0;
	worker = BPF_CORE_READ(task, worker_private);
	work = (__u64)BPF_CORE_READ(worker, cur_work);
	return work ? op_find(work - bpf_core_field_offset(struct io_kiocb, work)) : 0;
}

/* Finds the operation of a bio that enters the block layer. */
static __always_inline void op_attach_bio(const void *private, __u64 address, __u32 layer,
					  __u32 *op_ref, __u64 *generation)
{
	struct caller *caller;
	struct wire_place *operation;
	__u32 number, flags = 0;
	__u64 iocb;
	int of_layer;

	if (!CAN_FOLLOW)
		return;
	*op_ref = likely(following & FOLLOW_ALL) ? 0 : REF_UNCLASSIFIED;
	if (unlikely(!following))
		return;
	caller = current_caller();
	of_layer = is_of_layer(caller, layer);
	if (caller && caller->kind == CALL_WAITS) {
		if (of_layer)
			return;
		*op_ref = REF_CALLER | caller->tid;
		*generation = caller->entered;
		return;
	}
	/*
	 * Kernel threads write back and serve stacked devices: no operation waits for them. Only
	 * blk-throttle's worker submits bios of applications, some time after the applications did.
	 */
	if (!caller && current_is_kernel_thread()) {
		if (!config.throttle_enabled)
			return;
		flags = REF_THROTTLED;
	}
	iocb = kiocb_of(private, address);
	if (config.throttle_enabled && flags) {
		caller = throttled_call(address, (__u64) private, iocb);
		if (caller) {
			*op_ref = REF_CALLER | flags | caller->tid;
			*generation = caller->entered;
			return;
		}
	}
	if (caller && caller->kind == CALL_AIO)
		number = iocb ? op_find_aio(iocb, caller->entered) : 0;
	else
		number = iocb ? op_find(iocb) : 0;
	if (config.throttle_enabled && flags && iocb && !number)
		number = op_find_aio(iocb, 0);
	if (number)
		flags |= REF_DIRECT;
	/* A buffered read, and a bio of a stacked device, have no kiocb: they belong to the request
	 * that this call is submitting, or that this worker is executing. */
	if (!number && caller && caller->kind == CALL_RING && !of_layer)
		number = caller->current;
	if (!number && !caller && !(config.bios_enabled && layer & BELOW))
		number = worker_operation();
	operation = op_numbered(number);
	if (!operation)
		return;
	if (config.throttle_enabled)
		flags = throttled_flag(number, flags);
	*op_ref = number | flags;
	*generation = operation->entered;
}

/*
 * Finds the operation of a request without a bio: a driver command. The command's waiter is the
 * io_uring request, whose command is its first member. Or it is on the stack of the task in a
 * system call, which issues the request itself unless the queue is busy. Returns 1 if the current
 * task submitted it.
 */
VERIFIED_ONCE int op_attach_command(struct wire_slot *slot, __u64 waiter)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct caller *caller = current_caller();
	struct wire_place *operation;
	__u32 number;

	if (!follows_operations() || !slot)
		return 0;
	slot->op_ref = REF_COMMAND;
	if (unlikely(!(following & FOLLOW_ALL)))
		slot->op_ref |= REF_UNCLASSIFIED;
	if (unlikely(!following))
		return 0;
	if (caller && caller->kind == CALL_WAITS &&
	    is_same_stack(waiter, (__u64)BPF_CORE_READ(task, stack))) {
		slot->op_ref = REF_COMMAND | REF_CALLER | caller->tid;
		slot->generation = caller->entered;
		return 1;
	}
	number = op_find(waiter);
	operation = op_numbered(number);
	if (!operation)
		return 0;
	slot->op_ref = REF_COMMAND | number | REF_DIRECT;
	slot->generation = operation->entered;
	return caller && caller->kind == CALL_RING && caller->entered == operation->entered;
}

/* For an I/O that is a bio. */
#define NO_SLOT (~0u)

/* What the operations of a request's bios record when it completes. */
struct part {
	__u64 bio;
	struct wire_stamps stamps;
	/* The request's slot, or NO_SLOT. */
	__u32 slot;
	/* If only a part of the request completes: its bytes. */
	__u32 bytes;
	/* One of the bios belongs to a followed operation. A flag, since the verifier would go
	 * through every value of a count. */
	__u32 owned;
	/* Whether the operation of one of the bios is unknown. */
	__u32 unclassified;
	/* Bios with a known entry time, and their total time since their entry. */
	__u64 bios;
	__u64 bio_ns;
};

static __always_inline void join_parts(__u32 place, const struct part *part, __u64 allocated)
{
	if (part->slot == NO_SLOT)
		parts_of_none(place, part->stamps.ended);
	else
		parts_joined(place, part->slot, &part->stamps, allocated);
}

/*
 * Returns 1 if the operation is still in flight. `allocated`: when the bio got its request; 0: it
 * was merged into one.
 */
static __always_inline int op_complete_bio(__u32 op_ref, __u64 generation, const struct part *part,
					   __u64 allocated)
{
	__u32 number = op_ref & REF_NUMBER;
	struct wire_place *operation;

	if (op_ref & REF_CALLER) {
		struct caller *caller = call_entered_at(number, generation);

		/* The call has returned: this is read-ahead that it did not wait for. */
		if (!caller)
			return 0;
		caller->stamps = part->stamps;
		count_part(&caller->parts);
		if (config.parts_enabled)
			join_parts(call_place(number), part, allocated);
		if (config.throttle_enabled && op_ref & REF_THROTTLED)
			add_throttle(&caller->stamps, caller->entered, call_place(number));
		return 1;
	}
	operation = op_live(number, generation);
	if (!operation)
		return 0;
	/* The stages, and all their parts, are those of the part that finished last. */
	if (!add_result(operation, &part->stamps))
		return 1;
	if (config.parts_enabled)
		join_parts(number - 1, part, allocated);
	if (config.throttle_enabled && op_ref & REF_THROTTLED)
		add_throttle(&operation->stamps, submission(operation, number - 1), number - 1);
	return 1;
}

static __always_inline void finish_bio(struct part *part)
{
	__u32 way, index;
	struct bio_set *set = find_bio_at(part->bio, &way, &index);
	__u64 allocated;

	if (!set)
		return;
	allocated = config.parts_enabled ? allocation_of(set, index, way) : 0;
	part->stamps.queued = set->queued[way];
	if (config.bios_enabled && part->stamps.queued) {
		part->bios++;
		part->bio_ns += part->stamps.ended - part->stamps.queued;
	}
	if (set->op_ref[way] & REF_UNCLASSIFIED)
		part->unclassified = 1;
	else if (set->op_ref[way] &&
		 op_complete_bio(set->op_ref[way], set->generation[way], part, allocated))
		part->owned = 1;
	set->bio[way] = 0;
}

static long finish_next(__u32 i, struct part *part)
{
	/* Its bios were removed: NVMe resubmits them on another path. */
	if (!part->bio)
		return 1;
	finish_bio(part);
	part->bio = next_bio(part->bio);
	return !part->bio;
}

/*
 * Returns 1 if one of the bios belongs to a followed operation. Not static: the verifier checks it
 * once, not once per call path.
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
	part->unclassified = walk.unclassified;
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
	if (config.events_enabled)
		lose_operation();
	return finish_next(i, part);
}

/* A part of a request completes: the bios in it have ended, and their operations may go on. */
VERIFIED_ONCE int op_complete_part(const struct part *part)
{
	struct part walk;

	if (!follows_operations() || !part)
		return 0;
	walk = *part;
	bpf_loop(MOST_BIOS, finish_ended, &walk, 0);
	return 0;
}

/*
 * Lets an io_uring or libaio operation find the result in the slot, if the issued request has only
 * one bio, which is the operation's first part. Then the completing CPU need not touch the
 * operation: on another CPU, each cache line that goes there and back costs more than all else in a
 * program.
 */
static __always_inline void op_await_result(struct wire_slot *slot, __u32 index)
{
	struct wire_place *operation;

	if (!CAN_FOLLOW || config.parts_enabled || !(slot->op_ref & REF_DIRECT) ||
	    slot->op_ref & REF_THROTTLED)
		return;
	operation = op_at((slot->op_ref & REF_NUMBER) - 1);
	if (!operation || operation->entered != slot->generation || operation->slot)
		return;
	operation->slot = index + 1;
	slot->op_ref |= REF_WAITS;
}

/*
 * Another request is about to take the slot before the previous operation has fetched its result.
 */
static __always_inline void op_fetch_late(struct wire_slot *slot, __u32 index)
{
	struct wire_place *operation;
	struct wire_stamps stamps;

	if (!follows_operations() || slot->state != SLOT_DONE)
		return;
	operation = op_live(slot->op_ref & REF_NUMBER, slot->generation);
	if (!operation || operation->slot != index + 1)
		return;
	stamps_in(slot, &stamps);
	add_result(operation, &stamps);
	/* A concurrent reader of the slot must find the result in the operation. */
	barrier();
	*(volatile __u32 *)&slot->op_ref = 0;
}

/* The driver requeues a request, which may then be merged with others. */
static __always_inline void op_requeue(struct wire_slot *slot, __u32 number, __u64 bio)
{
	struct bio_set *set;
	__u32 way, index;

	if (!bio || !slot->queued || slot->op_ref & REF_IN_TABLE)
		return;
	set = place_bio(bio, &way, &index);
	if (!set)
		return;
	set->queued[way] = slot->queued;
	set->op_ref[way] = slot->op_ref & ~REF_WAITS;
	set->generation[way] = slot->generation;
	if (config.parts_enabled)
		set_allocation(index, way, allocated_at(number));
	slot->op_ref = REF_IN_TABLE;
}

/* A request completes. Returns 1 if it was part of a followed operation. */
static __always_inline int op_complete(struct wire_slot *slot, struct part *part)
{
	__u32 op_ref = slot->op_ref;

	if (!CAN_FOLLOW)
		return 0;
	if (op_ref & REF_IN_TABLE)
		return finish_bios(part);
	if (config.bios_enabled) {
		part->bios = slot->queued != 0;
		part->bio_ns = slot->queued ? part->stamps.ended - slot->queued : 0;
	}
	if (op_ref & REF_UNCLASSIFIED)
		part->unclassified = 1;
	if (!op_ref || op_ref == REF_COMMAND || op_ref & REF_UNCLASSIFIED)
		return 0;
	if (op_ref & REF_WAITS) {
		slot->reaped = part->stamps.reaped;
		slot->ended = part->stamps.ended;
		slot->device = part->stamps.device;
		slot->op = part->stamps.op;
		slot->fused = part->stamps.fused;
		/* Publishes the fields above: they must be visible first. */
		barrier();
		*(volatile __u8 *)&slot->state = SLOT_DONE;
		return 1;
	}
	part->stamps.queued = slot->queued;
	return op_complete_bio(op_ref, slot->generation, part,
			       config.parts_enabled ? allocated_at(part->slot) : 0);
}

/*
 * The operation of a write that is followed by a flush keeps the class of its part with data; only
 * its stages become those of the flush.
 */
static __always_inline void keep_class(__u64 bio, struct wire_stamps *stamps)
{
	struct wire_place *operation;
	const struct wire_stamps *earlier;
	struct bio_set *set;
	__u32 way, op_ref, parts;
	__u64 generation;

	set = find_bio(bio, &way);
	if (!set)
		return;
	op_ref = set->op_ref[way];
	generation = set->generation[way];
	if (op_ref & REF_CALLER) {
		struct caller *caller = call_entered_at(op_ref & REF_NUMBER, generation);

		if (!caller)
			return;
		parts = caller->parts;
		earlier = &caller->stamps;
	} else {
		operation = op_ref & REF_NUMBER ? op_live(op_ref & REF_NUMBER, generation) : 0;
		if (!operation)
			return;
		parts = operation->parts;
		op_fetch_result(operation, op_ref & REF_NUMBER);
		/* The result must not be fetched a second time when the operation ends. */
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
 * Completes a bio without data that was submitted to wait for a flush, which has just completed on
 * this hardware queue. The flush was issued after the bio came, so its stages are those of the
 * bio's operation. If the next flush has been issued meanwhile, the stamps are lost: they
 * contradict each other, and the operation is counted as torn. Returns 1 if there is an operation.
 */
VERIFIED_ONCE int op_complete_flush(struct part *part, __u32 flush_slot)
{
	struct wire_slot *flush;
	struct part walk;

	if (!follows_operations() || !part)
		return 0;
	flush = slot_numbered(flush_slot);
	if (!flush || !part->bio)
		return 0;
	walk = *part;
	walk.slot = NO_SLOT;
	walk.stamps.issued = flush->request ? 0 : flush->issued;
	walk.stamps.reaped = flush->reaped ? flush->reaped : walk.stamps.ended;
	walk.stamps.fused = !flush->reaped;
	keep_class(walk.bio, &walk.stamps);
	/* Not through finish_bios, whose frame would be one more on the stack. */
	bpf_loop(MOST_BIOS, finish_next, &walk, 0);
	part->unclassified = walk.unclassified;
	return walk.owned != 0;
}

#endif
