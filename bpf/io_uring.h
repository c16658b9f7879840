/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Follows io_uring requests: their submission, their completion, and the io_uring_enter that
 * returns their results. For the latency programs, which define `config` before this header.
 */
#ifndef BIOPSY_IO_URING_H
#define BIOPSY_IO_URING_H

#include "generator.h"
#include "op_table.h"

/*
 * A ring that a thread waits on, with the results that other tasks complete meanwhile: a worker,
 * the kernel's SQPOLL thread, or another submitting thread. Found by the hash of the ring's
 * address; another ring with the same hash is not followed while a thread waits.
 */
#define RING_BITS 10

struct ring {
	__u64 ring;
	/* Head of the list of results: an index of `operations` + 1. */
	__u32 pending;
	/* Number of waiting system calls. */
	__u32 waiters;
};

MAPPED_ARRAY(rings, struct ring, 1 << RING_BITS);

static __always_inline __u32 ring_index(__u64 address)
{
	return ((__u32)(address >> 6) * 0x9e3779b1u) >> (32 - RING_BITS);
}

static __always_inline struct ring *ring_numbered(__u32 index)
{
	return bpf_map_lookup_elem(&rings, &index);
}

/* Walk over the operations whose results a returning io_uring_enter fetches. */
struct returning {
	__u64 now;
	__u32 next;
	/* The index of the call. */
	__u32 waiter;
};

static long count_next(__u32 i, struct returning *returning)
{
	__u32 number = returning->next;
	struct wire_place *operation;

	if (!number || over)
		return 1;
	operation = op_at(number - 1);
	/* Only its caller modifies an ended operation. */
	if (!operation || operation->state != OPERATION_ENDED)
		return 1;
	returning->next = operation->next;
	op_count(operation, returning->now, number, returning->waiter);
	return 0;
}

/* Counts operations whose fetch has no event. */
static __always_inline void count_unseen(__u32 first)
{
	struct returning unseen = {};

	unseen.next = first;
	bpf_loop(MOST_RESULTS, count_next, &unseen, 0);
}

/* A call waits for results of a ring, and will return with them. */
static __always_inline void ring_waited_on(__u64 address)
{
	struct caller *caller = current_caller();
	__u32 index = ring_index(address);
	struct ring *ring = ring_numbered(index);

	if (!ring || !caller || caller->kind != CALL_RING || caller->ring)
		return;
	if (ring->ring != address) {
		if (ring->waiters)
			return;
		ring->ring = address;
	}
	/* These were completed when the previous waiter was just about to return: it is unknown
	 * which call fetched them. */
	if (unlikely(!ring->waiters && ring->pending))
		count_unseen(__sync_lock_test_and_set(&ring->pending, 0));
	__sync_fetch_and_add(&ring->waiters, 1);
	caller->ring = index + 1;
}

/*
 * A waiting call returns, with the results of other tasks as well. Returns the head of their list,
 * + 1.
 */
static __always_inline __u32 ring_results(__u32 index)
{
	struct ring *ring = ring_numbered(index);

	if (!ring)
		return 0;
	__sync_fetch_and_add(&ring->waiters, -1);
	return __sync_lock_test_and_set(&ring->pending, 0);
}

/* An io_uring_enter returns to a thread of the generator, which will poll for the results. */
static __always_inline void keep_results(struct caller *caller)
{
	struct gathered gathered = {.first = caller->pending};

	if (!caller->ring)
		return;
	gathered.next = ring_results(caller->ring - 1);
	if (gathered.next)
		bpf_loop(MOST_RESULTS, gather_next, &gathered, 0);
	caller->pending = gathered.first;
}

/* An io_uring_enter returns to its application, which sees the results. */
static __always_inline void ring_returned(struct caller *caller)
{
	struct returning returning = {};

	if (!caller->pending && !caller->ring)
		return;
	returning.now = bpf_ktime_get_ns();
	returning.next = caller->pending;
	returning.waiter = call_place(caller->tid);
	bpf_loop(MOST_RESULTS, count_next, &returning, 0);
	caller->pending = 0;
	if (caller->ring) {
		returning.next = ring_results(caller->ring - 1);
		bpf_loop(MOST_RESULTS, count_next, &returning, 0);
	}
}

/*
 * io_uring opcodes that read, write, sync (8: a range), allocate (17), splice (30) or carry a
 * driver command (46); numbers of the UAPI, which never change.
 */
#define RING_FOLLOWED                                                                              \
	(1ull << 1 | 1ull << 2 | 1ull << 3 | 1ull << 4 | 1ull << 5 | 1ull << 22 | 1ull << 23 |     \
	 1ull << 8 | 1ull << 17 | 1ull << 30 | 1ull << 46 | 1ull << 60 | 1ull << 61)

static __always_inline void note_submitted(__u32 place)
{
	struct operation_parts *parts = operation_parts_at(place);

	if (!parts)
		return;
	parts->submitted = bpf_ktime_get_ns();
	parts_begun(place);
	note_origin(place);
}

static __always_inline void ring_punted(__u64 request)
{
	__u32 number = op_find(request);
	struct operation_parts *parts = number ? operation_parts_at(number - 1) : 0;

	if (parts)
		parts->punted = bpf_ktime_get_ns();
}

/*
 * Drops the entry of a request that is not followed. An earlier request at this address may have
 * ended without a completion: then it is counted like one whose request is reused.
 */
static __always_inline void forget_request(__u64 request)
{
	__u32 number = op_find(request);
	struct wire_place *operation = op_numbered(number);

	if (!operation || over)
		return;
	if (operation->state == OPERATION_LIVE)
		op_end_unseen(operation, number);
	operation->state = OPERATION_FREE;
}

/* Records the fields for the event of an io_uring operation. */
static __always_inline void note_request(__u32 place, struct io_kiocb *req)
{
	struct facts *facts = begin_facts(place, CALL_RING);

	if (!facts)
		return;
	facts->opcode = req->opcode;
	if (bpf_core_field_exists(struct io_kiocb, cqe))
		facts->user_data = BPF_CORE_READ(req, cqe.user_data);
}

static __always_inline void ring_submitted(struct io_kiocb *req)
{
	struct caller *caller;
	__u32 number;

	if (unlikely(req->opcode >= 64 || !(RING_FOLLOWED >> req->opcode & 1) ||
		     !(following & FOLLOW_STARTS))) {
		forget_request((__u64)req);
		caller = current_caller();
		/* Its bios do not belong to the request before it. */
		if (!(following & FOLLOW_STARTS) && caller && caller->kind == CALL_RING)
			caller->current = 0;
		return;
	}
	caller = current_caller();
	if (caller && caller->kind == CALL_RING) {
		number = op_begin((__u64)req, caller->entered, 1);
		caller->current = number;
	} else {
		/* The kernel's SQPOLL thread fetched it from the ring. */
		number = op_begin((__u64)req, bpf_ktime_get_ns(), 1);
	}
	if ((config.parts_enabled || config.throttle_enabled) && number)
		note_submitted(number - 1);
	if (config.events_enabled && number)
		note_request(number - 1, req);
}

/*
 * Leaves an operation that ended to a thread that waits on its ring. Returns 1 if there is one,
 * which will count the operation.
 */
VERIFIED_ONCE int leave_to_waiter(__u64 address, __u32 number)
{
	struct ring *ring = ring_numbered(ring_index(address));
	struct wire_place *operation;

	if (!follows_operations())
		return 0;
	operation = op_at(number - 1);
	if (!ring || !operation || ring->ring != address || !ring->waiters)
		return 0;
	operation->state = OPERATION_ENDED;
	for (int i = 0; i < 8; i++) {
		__u32 first = *(volatile __u32 *)&ring->pending;

		operation->next = first;
		barrier();
		if (__sync_val_compare_and_swap(&ring->pending, first, number) == first)
			return 1;
	}
	return 0;
}

/* The result of an io_uring request becomes visible. */
static __always_inline void ring_completed(__u64 request, const unsigned long long *ctx)
{
	__u32 number = op_find(request);
	struct wire_place *operation = op_numbered(number);
	struct caller *caller;
	__u64 now;

	if (!operation || over)
		return;
	/* Read before fetching the result: a clock read waits for all earlier loads. */
	now = bpf_ktime_get_ns();
	op_fetch_result(operation, number);
	/* It was served from the page cache, or by a device that is not traced. */
	if (!operation->parts || !running) {
		operation->state = OPERATION_FREE;
		return;
	}
	/* The operation ends later than its part: the time until now belongs to its complete
	 * stage. */
	operation->stamps.ended = now;
	operation->stamps.fused = 0;
	caller = current_caller();
	if (likely(caller && caller->kind == CALL_RING)) {
		if (caller->current == number)
			caller->current = 0;
		operation->next = caller->pending;
		barrier();
		operation->state = OPERATION_ENDED;
		caller->pending = number;
		return;
	}
	if (leave_to_waiter(argument_address(ctx, 0), number))
		return;
	/* Completed by a task on its way to user space, or by a worker: the thread that polls the
	 * ring sees it, without an event. */
	op_count(operation, 0, number, 0);
}

#endif
