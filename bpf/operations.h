/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Operations: what applications hand over, from the system call that carries it to its return. For
 * the latency programs, whose `config` must stand before it.
 *
 * An operation is an io_uring request, an iocb of Linux AIO, or a read or write system call. It is
 * begun by its entry (calls.h), learns its stages from the request that finishes last among its
 * parts (joins.h), ends when its result is visible, and is counted when its application gets to see
 * that:
 *
 *   entered ... queued ... issued ... reaped ... ended ... (return of the system call)
 *       submit     queue      device    complete     reap
 */
#ifndef BIOPSY_OPERATIONS_H
#define BIOPSY_OPERATIONS_H

#include "compat.h"
#include "wire.h"
#include "hist.h"
#include "bios.h"
#include "emit.h"
#include "groups.h"
#include "links.h"
#include "owner.h"
#include "parts.h"
#include "slots.h"
#include "stamps.h"

/* A task within a system call that can carry I/O. Found by thread id; two ids of one place take
 * turns: the second is not followed while the first is inside. */
#define CALLER_BITS 14

struct caller {
	__u32 tid;
	__u8 kind;
	/* It has handed in a bio to a bio-based device that is traced. */
	__u8 layered;
	/* Requests that finished for the system call it is in. */
	__u16 parts;
	__u64 entered;
	union {
		struct {
			/* io_uring: the last request that this call submitted, and the first of
			 * those whose result it has not returned with, or that a thread of the
			 * generator has not looked at; numbers of `operations` + 1. */
			__u16 current;
			__u16 pending;
			/* The ring that it waits on: a number of `rings` + 1. */
			__u32 ring;
		};
		/* io_getevents: where the application wants its results. */
		__u64 results;
	};
	struct wire_stamps stamps;
};
_Static_assert(sizeof(struct caller) == 64, "caller");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << CALLER_BITS);
	__type(key, __u32);
	__type(value, struct caller);
} callers SEC(".maps");

/* An io_uring request in flight. */
#define OPERATION_BITS	   14
#define OPERATION_ROW_BITS 4
#define OPERATION_ROW	   (1 << OPERATION_ROW_BITS)
#define OPERATION_PROBES   8

enum operation_state {
	OPERATION_FREE,
	OPERATION_LIVE,
	/* Its result is visible, and its caller will count it. */
	OPERATION_ENDED,
};

struct wire_place {
	/*
	 * Address of the request. It stays when the operation is over: io_uring uses its requests
	 * again and again, and who has a place already needs no atomic instruction to take one,
	 * which would wait for every store of this CPU that is on its way.
	 */
	__u64 request;
	__u64 entered;
	/* The next one of the same caller, + 1. */
	__u16 next;
	/* Requests of the block layer that finished for it. */
	__u16 parts;
	/* Where the result of its first request will be, + 1; 0: only here. */
	__u32 slot : 30;
	__u32 state : 2;
	struct wire_stamps stamps;
};
_Static_assert(sizeof(struct wire_place) == 64, "operation");
_Static_assert(OPERATION_BITS < 16, "next");

/*
 * A ring of io_uring on which somebody waits, and the results that others put there meanwhile: a
 * worker, the kernel's thread that fetches requests (SQPOLL), or another thread that submits.
 * Found by the ring's address; another ring in its place is not followed while somebody waits.
 */
#define RING_BITS 10

struct ring {
	__u64 ring;
	/* The first of the results; a number of `operations` + 1. */
	__u32 pending;
	/* System calls that wait. */
	__u32 waiters;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << RING_BITS);
	__type(key, __u32);
	__type(value, struct ring);
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << OPERATION_BITS);
	__type(key, __u32);
	__type(value, struct wire_place);
} operations SEC(".maps");

/* Sized by user space: Σ over devices of covers × (shards × OPS_SHARDED + rare operations). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wire_operation_row);
} operation_rows SEC(".maps");

/* More results than this do not come back with one system call. */
#define MOST_RESULTS 32768

/* Operations that could not be followed: their place was taken. */
__u64 unfollowed = 0;

#ifndef NO_SWAP
static __always_inline struct caller *place_of(__u32 tid)
{
	__u32 index = tid & ((1 << CALLER_BITS) - 1);

	return bpf_map_lookup_elem(&callers, &index);
}

/* The system call that the current task is in, where that can carry I/O. */
static __always_inline struct caller *current_caller(void)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct caller *caller = place_of(tid);

	return caller && caller->tid == tid && caller->kind ? caller : 0;
}

/*
 * Requests are slab objects of 256 bytes (248 in 6.18): those of one page share a row, and a row
 * that is taken sends them to the next, not to their neighbours' places.
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

static __always_inline struct wire_place *operation_at(__u32 index)
{
	index &= (1 << OPERATION_BITS) - 1;
	return bpf_map_lookup_elem(&operations, &index);
}

/* A request that is not in the place where it is looked for first. The verifier takes no pointer of
 * the kernel's for a number where it is an argument, but it does within a struct. */
struct sought {
	__u64 request;
	__u32 place;
	__u32 pad;
};

/* The number of the place that a request has or had, + 1; 0: none. */
VERIFIED_ONCE __u32 find_place(const struct sought *sought)
{
	__u32 place = sought ? sought->place : 0;

	for (__u32 i = 0; i < OPERATION_PROBES; i++) {
		struct wire_place *operation = operation_at(operation_index(place, i));

		if (sought && operation && operation->request == sought->request)
			return operation_index(place, i) + 1;
	}
	return 0;
}

/* The number of a request's operation + 1; 0: none. */
static __always_inline __u32 find_operation(__u64 request)
{
	__u32 place = operation_place(request) & ((1 << OPERATION_BITS) - 1);
	struct wire_place *operation = operation_at(place);
	__u32 number = place + 1;

	if (unlikely(!operation || operation->request != request)) {
		struct sought sought = {.request = request, .place = place};

		number = find_place(&sought);
		operation = number ? operation_at(number - 1) : 0;
	}
	return operation && operation->state == OPERATION_LIVE ? number : 0;
}

/* The stamps of a request, as its slot has them. */
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

/* The greatest number stands for all above it. */
static __always_inline void count_part(__u16 *parts)
{
	*parts += *parts != 0xffff;
}

/* A request finished for an operation: the last one to do so gives it its stages. True where it is
 * that so far. */
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
	__u32 link = *(volatile __u32 *)&slot->link;

	return *(volatile __u8 *)&slot->state == SLOT_DONE && link & LINK_WAITS &&
	       (link & LINK_NUMBER) == number && slot->proof == entered;
}

/* Takes what its first request left in a slot. */
VERIFIED_ONCE int fetch_result(struct wire_place *operation, __u32 number)
{
	struct wire_slot *slot;
	struct wire_stamps stamps;

	if (!config.want_operations || !operation || !operation->slot)
		return 0;
	slot = slot_numbered(operation->slot - 1);
	if (!slot || !holds_result(slot, number, operation->entered))
		return 0;
	stamps_in(slot, &stamps);
	barrier();
	/* Else another request was issued in between, and that has brought them here; or is about
	 * to take the slot, and has as well. */
	if (holds_result(slot, number, operation->entered) &&
	    !(operation->parts && operation->stamps.issued == stamps.issued))
		add_result(operation, &stamps);
	return 0;
}

/*
 * libaio names an operation by the address of the application's iocb, which may be used again while
 * it is in flight, and by the application's own word. These and the process make a key that no
 * address of the kernel equals, and whose low bits spread: processes that were forked have the same
 * addresses. Two keys are alike once in 2^62.
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

/* Of a process that ended, or that fetches its results without a system call. */
static __always_inline int abandoned(struct wire_place *operation, __u32 number, __u64 now)
{
	/* Negative: of a call that began after the one that asks. */
	if ((__s64)(now - operation->entered) <= AIO_LONG_AGO)
		return 0;
	/* Its caller's place was another's meanwhile; or it took long, and its caller will come. */
	if (operation->state == OPERATION_ENDED)
		return (__s64)(now - operation->stamps.ended) > AIO_LONG_AGO;
	if (operation->request >> 63)
		return 0;
	fetch_result(operation, number);
	return operation->parts;
}

/* A place that nobody needs is not taken from its request before this: it may come back. */
#define OPERATION_REST 10000000ll

static __always_inline int is_over(const struct wire_place *operation, __s64 rest, __u64 now)
{
	return operation->state == OPERATION_FREE &&
	       (!rest || (__s64)(now - operation->entered) >= rest);
}

/* Takes a place for a request that has none; its number + 1; 0: there is none to be had. */
VERIFIED_ONCE __u32 take_place(const struct sought *sought, __u64 now)
{
	if (!sought)
		return 0;
	/* First those that are not in use for long, then any. */
	for (__u32 i = 0; i < 2 * OPERATION_PROBES; i++) {
		__u32 number = operation_index(sought->place, i % OPERATION_PROBES) + 1;
		struct wire_place *operation = operation_at(number - 1);
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

/* A place for a request that does not find its own at once; its number + 1; 0: none. */
VERIFIED_ONCE __u32 new_place(const struct sought *sought, __u64 now)
{
	__u32 number = sought ? find_place(sought) : 0;
	struct wire_place *operation = number ? operation_at(number - 1) : 0;

	if (!sought)
		return 0;
	if (operation && operation->state != OPERATION_ENDED)
		return number;
	/* Its last life still waits for the return of the thread that reaped it, while another
	 * thread uses the ring: the place is left to that. */
	if (operation)
		operation->request = OPERATION_LEFT;
	return take_place(sought, now);
}

/* The calls' places in `operation_parts` lie behind the operations'. */
static __always_inline __u32 call_place(__u32 tid)
{
	return (1 << OPERATION_BITS) + (tid & ((1 << CALLER_BITS) - 1));
}

_Static_assert((1 << OPERATION_BITS) + (1 << CALLER_BITS) == 1 << FACTS_BITS, "facts");

static __always_inline struct wire_operation_row *operation_row(__u32 device, __u32 op, __u32 cover,
								int *shared)
{
	struct wire_device *facts = bpf_map_lookup_elem(&devices, &device);
	__u32 index;

	if (!facts || op >= OPS || cover >= COVERS)
		return 0;
	index = facts->operation_row_base;
	*shared = 1;
	if (op < OPS_SHARDED) {
		__u32 shards = facts->operation_shards;
		__u32 shard = bpf_get_smp_processor_id();

		*shared = facts->flags & SHARED_OPERATION_ROWS;
		if (shards && shard >= shards)
			shard %= shards;
		index += (shard * COVERS + cover) * OPS_SHARDED + op;
	} else {
		index += facts->operation_shards * COVERS * OPS_SHARDED;
		index += cover * (OPS - OPS_SHARDED) + op - OPS_SHARDED;
	}
	return bpf_map_lookup_elem(&operation_rows, &index);
}

static __always_inline void count_stage(struct wire_operation_row *row, __u32 stage, __u64 time,
					int shared)
{
	count_time(row->counts + stage * HIST_BUCKETS, &row->bounds[stage].not_min,
		   &row->bounds[stage].max, &row->lock, time, shared);
}

/*
 * The stages of one operation. `seen` is when its application saw the result; 0: that is not known.
 * `in_group`: in the row of its group and not in that of the device.
 */
static __always_inline int add_operation(const struct wire_stamps *of, __u64 entered, __u64 seen,
					 int in_group)
{
	__u64 queued, issued, reaped, ended, last, none, begun, submit, queue, device, complete,
	    reap, total;
	struct wire_operation_row *row;
	struct wire_total *class;
	__u32 cover;
	int shared = 1;
	__u64 i;

	if (!of)
		return 0;
	/* Once: another part may write over them at this moment. 0: no bio entered the block layer,
	 * and submission goes on until the issue. */
	queued = *(const volatile __u64 *)&of->queued;
	issued = *(const volatile __u64 *)&of->issued;
	reaped = *(const volatile __u64 *)&of->reaped;
	ended = *(const volatile __u64 *)&of->ended;
	cover = cover_of(of, seen);
	if (in_group)
		row = group_operation_row(of->group, cover);
	else
		row = operation_row(of->device, of->op, cover, &shared);
	if (!row)
		return 0;
	/* Neither is known: no other operations have just these stages. */
	if (unlikely(!seen && of->fused)) {
		__sync_fetch_and_add(&row->bare, 1);
		return 0;
	}
	last = seen ? seen : ended;
	/* Without a branch, both ways of which the verifier would follow to the end. */
	none = ((queued - 1) & ~queued) >> 63;
	asm volatile("" : "+r"(none));
	begun = queued + none * issued;
	/*
	 * Two parts that finish on two CPUs at once may leave a mixture. Counted, and without
	 * stages.
	 */
	if (unlikely(begun < entered || issued < begun || reaped < issued || ended < reaped ||
		     last < ended)) {
		__sync_fetch_and_add(&row->torn, 1);
		return 0;
	}
	submit = begun - entered;
	queue = issued - begun;
	device = reaped - issued;
	complete = ended - reaped;
	reap = last - ended;
	total = last - entered;
	/* 0: blk-throttle held it, and nobody knows when it was handed in. */
	if (submit)
		count_stage(row, OPERATION_SUBMIT, submit, shared);
	if (likely(!none))
		count_stage(row, OPERATION_QUEUE, queue, shared);
	count_stage(row, OPERATION_DEVICE, device, shared);
	if (cover != COVER_NO_COMPLETE)
		count_stage(row, OPERATION_COMPLETE, complete, shared);
	if (seen)
		count_stage(row, OPERATION_REAP, reap, shared);
	count_stage(row, OPERATION_TOTAL, total, shared);
	i = unlikely(total >> HIST_MAX_BITS) ? HIST_MAX_BITS : msb64(total | 1);
	/* 6.1's verifier follows no 32-bit bound into a 64-bit register. */
	asm volatile("%0 &= 63" : "+r"(i));
	if (i > HIST_MAX_BITS)
		return 0;
	class = &row->by_total[i];
	add(&class->operations, 1, shared);
	add(&class->sums[OPERATION_SUBMIT], submit, shared);
	add(&class->sums[OPERATION_QUEUE], queue, shared);
	add(&class->sums[OPERATION_DEVICE], device, shared);
	add(&class->sums[OPERATION_COMPLETE], complete, shared);
	add(&class->sums[OPERATION_REAP], reap, shared);
	add(&class->sums[OPERATION_TOTAL], total, shared);
	return 0;
}

VERIFIED_ONCE int count_operation(const struct wire_stamps *of, __u64 entered, __u64 seen)
{
	return config.want_operations ? add_operation(of, entered, seen, 0) : 0;
}

VERIFIED_ONCE int count_in_group(const struct wire_stamps *of, __u64 entered, __u64 seen)
{
	/* Before 2afae08c9dcb (6.8) it is verified where it is not called as well. */
	return config.most_groups ? add_operation(of, entered, seen, 1) : 0;
}

/* I/Os that finished for the operation in a place. */
static __always_inline __u32 parts_at(__u32 place)
{
	struct wire_place *operation;
	struct caller *caller;

	if (place >> OPERATION_BITS) {
		caller = place_of(place - (1 << OPERATION_BITS));
		return caller ? caller->parts : 0;
	}
	operation = operation_at(place);
	return operation ? operation->parts : 0;
}

/* Sends an operation that is counted, where an I/O with an event belongs to it. */
VERIFIED_ONCE int emit_operation(struct wire_operation *operation, const struct wire_stamps *of,
				 __u32 place)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct facts *facts = facts_at(place);
	struct wire_emitter *emitter;

	if (!operation || !of || !facts || !facts->io)
		return 0;
	operation->kind = EVENT_OPERATION;
	operation->opcode = facts->opcode;
	operation->operation = facts->id;
	operation->user_data = facts->user_data;
	operation->queued = of->queued;
	operation->issued = of->issued;
	operation->reaped = of->reaped;
	operation->ended = of->ended;
	operation->io = facts->io;
	operation->leader = facts->leader;
	operation->from = facts->from;
	operation->parts = parts_at(place);
	operation->fused = of->fused;
	emitter = bpf_map_lookup_elem(&emitters, &cpu);
	if (!emit(cpu, operation, sizeof(*operation)) && emitter)
		__sync_fetch_and_add(&emitter->lost_operations, 1);
	return 0;
}

/* Counts an operation that ended, and its parts. */
static __always_inline void count_whole(const struct wire_stamps *of, __u64 entered, __u64 seen,
					__u32 place, __u32 waiter)
{
	if (config.most_groups) {
		/* Both rows are told the same, whatever part writes over it meanwhile. */
		struct wire_stamps once = *of;

		count_operation(&once, entered, seen);
		count_in_group(&once, entered, seen);
	} else {
		count_operation(of, entered, seen);
	}
	if (config.want_events) {
		struct wire_operation operation = {.entered = entered, .seen = seen};

		emit_operation(&operation, of, place);
	}
	if (config.want_parts) {
		struct whole whole = {.stamps = *of, .entered = entered, .seen = seen};

		whole.place = place;
		whole.waiter = waiter;
		count_parts(&whole);
	}
}

/*
 * An operation is over, and nothing told when its result was there: it was to have none
 * (IOSQE_CQE_SKIP_SUCCESS).
 */
VERIFIED_ONCE int end_unseen(struct wire_place *operation, __u32 number)
{
	if (!config.want_operations || !operation)
		return 0;
	fetch_result(operation, number);
	if (!operation->parts || !running)
		return 0;
	operation->stamps.fused = 1;
	count_whole(&operation->stamps, operation->entered, 0, number - 1, 0);
	return 0;
}

/* A request begins, in the place of its last life if it had one, which may not be over for all that
 * is known. */
static __always_inline __u32 begin_operation(__u64 request, __u64 entered, int may_live)
{
	__u32 place = operation_place(request) & ((1 << OPERATION_BITS) - 1);
	struct wire_place *operation = operation_at(place);
	__u32 number = place + 1;

	if (unlikely(over))
		return 0;
	if (unlikely(!operation || operation->request != request ||
		     operation->state == OPERATION_ENDED)) {
		struct sought sought = {.request = request, .place = place};

		number = new_place(&sought, entered);
		operation = number ? operation_at(number - 1) : 0;
		if (!operation)
			return 0;
	}
	if (may_live && unlikely(operation->state == OPERATION_LIVE))
		end_unseen(operation, number);
	operation->entered = entered;
	operation->next = 0;
	operation->parts = 0;
	operation->slot = 0;
	operation->state = OPERATION_LIVE;
	return number;
}

#endif /* NO_SWAP */

#endif
