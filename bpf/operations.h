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
#include "owner.h"
#include "parts.h"
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
			 * those whose result it has not returned with; numbers of `operations`
			 * + 1. */
			__u32 current;
			__u32 pending;
		};
		/* io_getevents: where the application wants its results. */
		__u64 results;
	};
	struct stamps stamps;
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

struct operation {
	/* Address of the request; 0: free, OPERATION_ENDED: its result is visible. */
	__u64 request;
	__u64 entered;
	/* The next one of the same caller, + 1. */
	__u32 next;
	/* Requests of the block layer that finished for it. */
	__u32 parts;
	struct stamps stamps;
};
_Static_assert(sizeof(struct operation) == 64, "operation");

#define OPERATION_ENDED 1

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << OPERATION_BITS);
	__type(key, __u32);
	__type(value, struct operation);
} operations SEC(".maps");

/* Sized by user space: Σ over devices of covers × (shards × OPS_SHARDED + rare operations). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wire_operation_row);
} operation_rows SEC(".maps");

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

static __always_inline struct operation *operation_at(__u32 index)
{
	index &= (1 << OPERATION_BITS) - 1;
	return bpf_map_lookup_elem(&operations, &index);
}

/* The number of a request's operation + 1; 0: none. */
static __always_inline __u32 find_operation(__u64 request)
{
	__u32 place = operation_place(request);

	for (__u32 i = 0; i < OPERATION_PROBES; i++) {
		struct operation *operation = operation_at(operation_index(place, i));

		if (operation && operation->request == request)
			return operation_index(place, i) + 1;
	}
	return 0;
}

/*
 * libaio names an operation by the address of the application's iocb. That and the process make a
 * key that no address of the kernel equals, and whose low bits spread.
 */
#define AIO_LONG_AGO 10000000000ull

static __always_inline __u64 aio_key(__u64 iocb)
{
	__u64 process = bpf_get_current_pid_tgid() >> 32;

	return ((iocb ^ process << 47) * 0x9e3779b97f4a7c15ull >> 1) | 2;
}

/* Of a process that ended, or that fetches its results without a system call. */
static __always_inline int abandoned(const struct operation *operation, __u64 now)
{
	return !(operation->request >> 63) && operation->parts &&
	       now - operation->entered > AIO_LONG_AGO;
}

static __always_inline __u32 begin_operation(__u64 request, __u64 entered)
{
	__u32 place = operation_place(request);

	for (__u32 i = 0; i < OPERATION_PROBES; i++) {
		struct operation *operation = operation_at(operation_index(place, i));
		__u64 held;

		if (!operation)
			return 0;
		held = operation->request;
		/* The same address: its last life ended without a completion (IOSQE_CQE_SKIP). */
		if (held && held != request && !abandoned(operation, entered))
			continue;
		if (__sync_val_compare_and_swap(&operation->request, held, request) != held)
			continue;
		operation->entered = entered;
		operation->parts = 0;
		operation->next = 0;
		return operation_index(place, i) + 1;
	}
	__sync_fetch_and_add(&unfollowed, 1);
	return 0;
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

/*
 * The stages of one operation. `seen` is when its application saw the result; 0: that is not known.
 * `in_group`: in the row of its group and not in that of the device.
 */
static __always_inline int add_operation(const struct stamps *of, __u64 entered, __u64 seen,
					 int in_group)
{
	__u64 queued, issued, reaped, ended, last, submit, queue, device, complete, reap, total;
	struct wire_operation_row *row;
	struct wire_total *class;
	__u32 cover = COVER_ALL;
	int shared = 1;
	__u64 i;

	if (!of)
		return 0;
	/* Once: another part may write over them at this moment. */
	queued = *(const volatile __u64 *)&of->queued;
	issued = *(const volatile __u64 *)&of->issued;
	reaped = *(const volatile __u64 *)&of->reaped;
	ended = *(const volatile __u64 *)&of->ended;
	if (!seen)
		cover = COVER_NO_REAP;
	else if (of->fused)
		cover = COVER_NO_COMPLETE;
	if (in_group)
		row = group_operation_row(of->group, cover);
	else
		row = operation_row(of->device, of->op, cover, &shared);
	if (!row)
		return 0;
	/* Neither is known: no other operations have just these stages. */
	if (!seen && of->fused) {
		__sync_fetch_and_add(&row->bare, 1);
		return 0;
	}
	last = seen ? seen : ended;
	/*
	 * Two parts that finish on two CPUs at once may leave a mixture. Counted, and without
	 * stages.
	 */
	if (queued < entered || issued < queued || reaped < issued || ended < reaped ||
	    last < ended) {
		__sync_fetch_and_add(&row->torn, 1);
		return 0;
	}
	submit = queued - entered;
	queue = issued - queued;
	device = reaped - issued;
	complete = ended - reaped;
	reap = last - ended;
	total = last - entered;
	/* 0: blk-throttle held it, and nobody knows when it was handed in. */
	if (submit)
		add_time(row->extents, row->counts, &row->lock, OPERATION_SUBMIT, submit, shared);
	add_time(row->extents, row->counts, &row->lock, OPERATION_QUEUE, queue, shared);
	add_time(row->extents, row->counts, &row->lock, OPERATION_DEVICE, device, shared);
	if (cover != COVER_NO_COMPLETE)
		add_time(row->extents, row->counts, &row->lock, OPERATION_COMPLETE, complete,
			 shared);
	if (seen)
		add_time(row->extents, row->counts, &row->lock, OPERATION_REAP, reap, shared);
	add_time(row->extents, row->counts, &row->lock, OPERATION_TOTAL, total, shared);
	i = total >> HIST_MAX_BITS ? HIST_MAX_BITS : msb64(total | 1);
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
	if (seen)
		add(&class->sums[OPERATION_REAP], reap, shared);
	return 0;
}

VERIFIED_ONCE int count_operation(const struct stamps *of, __u64 entered, __u64 seen)
{
	return add_operation(of, entered, seen, 0);
}

VERIFIED_ONCE int count_in_group(const struct stamps *of, __u64 entered, __u64 seen)
{
	/* Before 94e1c70a3452 (6.8) it is verified where it is not called as well. */
	return config.most_groups ? add_operation(of, entered, seen, 1) : 0;
}

/* I/Os that finished for the operation in a place. */
static __always_inline __u32 parts_at(__u32 place)
{
	struct operation *operation;
	struct caller *caller;

	if (place >> OPERATION_BITS) {
		caller = place_of(place - (1 << OPERATION_BITS));
		return caller ? caller->parts : 0;
	}
	operation = operation_at(place);
	return operation ? operation->parts : 0;
}

/* Sends an operation that is counted, where an I/O with an event belongs to it. */
VERIFIED_ONCE int emit_operation(struct wire_operation *operation, const struct stamps *of,
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
static __always_inline void count_whole(const struct stamps *of, __u64 entered, __u64 seen,
					__u32 place, __u32 waiter)
{
	if (config.most_groups) {
		/* Both rows are told the same, whatever part writes over it meanwhile. */
		struct stamps once = *of;

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

#endif /* NO_SWAP */

#endif
