/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The application's side of operations: system calls and requests of io_uring, their entry, their
 * return, and what happens to them and their tasks in between. For the latency programs, whose
 * `config` must stand before it.
 */
#ifndef BIOPSY_CALLS_H
#define BIOPSY_CALLS_H

#include "generator.h"
#include "iocbs.h"
#include "operations.h"

/* Known to belong to a system call whose number the kernel gave; user space fills it. */
const volatile __u8 syscall_kinds[WIRE_SYSCALLS] = {};

#ifdef NO_SWAP
/* Operations are not followed here. */
static __always_inline void call_entered(__u32 kind, struct pt_regs *regs)
{
}

static __always_inline void call_returned(long result)
{
}

static __always_inline void ring_submitted(struct io_kiocb *req)
{
}

static __always_inline void operation_ended(__u64 request, const unsigned long long *ctx)
{
}

static __always_inline void ring_waited_on(__u64 address)
{
}

static __always_inline void ring_punted(__u64 request)
{
}

static __always_inline void task_woken(__u32 tid)
{
}

static __always_inline void task_runs(__u32 tid)
{
}
#else
/* The operations whose results a returning io_uring_enter brings. */
struct returning {
	__u64 now;
	__u32 next;
	/* The call's place. */
	__u32 waiter;
};

static long count_next(__u32 i, struct returning *returning)
{
	struct wire_place *operation;

	if (!returning->next || over)
		return 1;
	operation = operation_at(returning->next - 1);
	/* Nobody but its caller touches an ended operation. */
	if (!operation || operation->state != OPERATION_ENDED)
		return 1;
	count_whole(&operation->stamps, operation->entered, returning->now, returning->next - 1,
		    returning->waiter);
	returning->next = operation->next;
	operation->state = OPERATION_FREE;
	return 0;
}

/* struct io_event of the UAPI: the application's word, the address of its iocb, and results. */
#define AIO_EVENT_BYTES 32

/* The results that io_getevents returns with. */
struct fetched {
	__u64 now;
	__u64 event;
	__u32 left;
	/* The call's place. */
	__u32 waiter;
};

static long count_fetched(__u32 i, struct fetched *fetched)
{
	struct wire_place *operation;
	__u64 words[2] = {};
	__u32 number;

	if (!fetched->left || over)
		return 1;
	fetched->left--;
	bpf_probe_read_user(words, sizeof(words), (const void *)fetched->event);
	fetched->event += AIO_EVENT_BYTES;
	number = find_operation(aio_key(words[1], words[0], current_process()));
	operation = number ? operation_at(number - 1) : 0;
	if (!operation)
		return 0;
	fetch_result(operation, number);
	if (operation->parts && running)
		count_whole(&operation->stamps, operation->entered, fetched->now, number - 1,
			    fetched->waiter);
	operation->state = OPERATION_FREE;
	return 0;
}

/* The registers of a system call lie on the kernel stack of its task. */
static __always_inline void call_waits(__u32 tid, __u64 regs)
{
	__u32 low = low_half((const void *)regs);
	struct operation_parts *parts = operation_parts_at(call_place(tid));
	__u32 *owner = stack_owner(low);

	if (!parts || !owner)
		return;
	parts->stack = regs;
	parts->throttled = 0;
	*owner = tid;
	note_origin(call_place(tid));
}

/*
 * Whether an ioctl is one of block devices (BLKDISCARD), SCSI (SG_IO), file systems (FITRIM) or
 * NVMe, by the letter in its number. Others may run for long and take page faults meanwhile, as
 * KVM_RUN does, whose I/O is no operation of theirs.
 */
static __always_inline int is_io_command(struct pt_regs *regs)
{
	__u8 letter = BPF_CORE_READ(regs, si) >> 8;

	/* From 0x80 on these are the waits of ntsync. */
	if (letter == 'N')
		return !(BPF_CORE_READ(regs, si) & 0x80);
	return letter == 0x12 || letter == 0x22 || letter == 'X';
}

/* An io_submit is entered. */
static __always_inline void aio_submitted(struct pt_regs *regs, __u64 entered)
{
	struct handed handed = {
	    .entered = entered,
	    .ring = BPF_CORE_READ(regs, di),
	    .left = BPF_CORE_READ(regs, si),
	    .iocbs = BPF_CORE_READ(regs, dx),
	};

	note_iocbs(&handed);
}

/* Nobody will say when these were looked at. */
static __always_inline void count_unseen(__u32 first)
{
	struct returning unseen = {};

	unseen.next = first;
	bpf_loop(MOST_RESULTS, count_next, &unseen, 0);
}

static __always_inline void call_entered(__u32 kind, struct pt_regs *regs)
{
	struct wire_generator *thread = generator_thread();
	__u32 tid = bpf_get_current_pid_tgid();
	struct caller *caller = place_of(tid);
	__u64 handed = 0;
	__u32 kept = 0;

	if (!caller)
		return;
	if (kind == CALL_COMMAND) {
		if (!is_io_command(regs))
			return;
		kind = CALL_WAITS;
	}
	if (caller->tid != tid) {
		/* It may have died within its call; after 10 s nobody believes in it any more. */
		if (caller->kind && bpf_ktime_get_ns() - caller->entered < 10000000000ull) {
			__sync_fetch_and_add(&unfollowed, 1);
			return;
		}
		if (config.generator && !caller->kind && caller->pending)
			count_unseen(caller->pending);
		caller->pending = 0;
		caller->tid = tid;
	}
	if (thread) {
		kept = count_looked_at(caller, thread);
		/* libaio's results may be taken without a call: nobody sees which look took which.
		 */
		if (kind == CALL_RING || kind == CALL_WAITS)
			handed = handed_in(thread);
	}
	caller->results = 0;
	if (kind == CALL_AIO_FETCH) {
		if (kept)
			count_unseen(kept);
		caller->results = BPF_CORE_READ(regs, r10);
	} else if (thread) {
		caller->pending = kept;
	}
	caller->parts = 0;
	caller->layered = 0;
	if (config.want_throttle && kind == CALL_WAITS)
		call_waits(tid, (__u64)regs);
	caller->entered = handed ? handed : bpf_ktime_get_ns();
	if (config.want_throttle && kind == CALL_AIO)
		aio_submitted(regs, caller->entered);
	if (config.want_events)
		begin_facts(call_place(tid), kind);
	barrier();
	caller->kind = kind;
}

static __always_inline __u32 ring_index(__u64 address)
{
	return ((__u32)(address >> 6) * 0x9e3779b1u) >> (32 - RING_BITS);
}

static __always_inline struct ring *ring_numbered(__u32 index)
{
	return bpf_map_lookup_elem(&rings, &index);
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
	/* What was put there when the last one was just about to return: nobody saw who took it. */
	if (unlikely(!ring->waiters && ring->pending))
		count_unseen(__sync_lock_test_and_set(&ring->pending, 0));
	__sync_fetch_and_add(&ring->waiters, 1);
	caller->ring = index + 1;
}

/* The call that has waited returns: with what others put there, too. The first of that, + 1. */
static __always_inline __u32 waited(__u32 index)
{
	struct ring *ring = ring_numbered(index);

	if (!ring)
		return 0;
	__sync_fetch_and_add(&ring->waiters, -1);
	return __sync_lock_test_and_set(&ring->pending, 0);
}

/* An io_uring_enter returns to a thread of the generator, which will look at what it brought. */
static __always_inline void keep_results(struct caller *caller)
{
	struct gathered gathered = {.first = caller->pending};

	if (!caller->ring)
		return;
	gathered.next = waited(caller->ring - 1);
	if (gathered.next)
		bpf_loop(MOST_RESULTS, gather_next, &gathered, 0);
	caller->pending = gathered.first;
}

/* An operation ended on a ring. True where somebody waits there, who will count it. */
VERIFIED_ONCE int leave_to_waiter(__u64 address, __u32 number)
{
	struct ring *ring = ring_numbered(ring_index(address));
	struct wire_place *operation;

	if (!config.want_operations)
		return 0;
	operation = operation_at(number - 1);
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

static __always_inline void call_returned(long result)
{
	struct caller *caller = current_caller();
	struct wire_generator *thread;

	if (!caller)
		return;
	thread = generator_thread();
	if (caller->kind == CALL_WAITS) {
		/* The end of the window cuts operations off: they are not counted. */
		if (caller->parts && running && thread)
			keep_call(caller, thread);
		else if (caller->parts && running)
			count_whole(&caller->stamps, caller->entered, bpf_ktime_get_ns(),
				    call_place(caller->tid), call_place(caller->tid));
	} else if (caller->kind == CALL_AIO_FETCH) {
		struct fetched fetched = {};

		if (result > 0) {
			fetched.now = bpf_ktime_get_ns();
			fetched.event = caller->results;
			fetched.left = result;
			fetched.waiter = call_place(caller->tid);
			bpf_loop(MOST_RESULTS, count_fetched, &fetched, 0);
		}
		caller->results = 0;
	} else if (caller->kind == CALL_RING && thread) {
		keep_results(caller);
	} else if (caller->kind == CALL_RING && (caller->pending || caller->ring)) {
		struct returning returning = {};

		returning.now = bpf_ktime_get_ns();
		returning.next = caller->pending;
		returning.waiter = call_place(caller->tid);
		bpf_loop(MOST_RESULTS, count_next, &returning, 0);
		caller->pending = 0;
		if (caller->ring) {
			returning.next = waited(caller->ring - 1);
			bpf_loop(MOST_RESULTS, count_next, &returning, 0);
		}
	}
	caller->kind = 0;
	/* A bio that is still out must not find this call in the next one. */
	caller->entered = 0;
}

/*
 * Operations of io_uring that read, write, sync (a range: 8), allocate (17), splice (30) or carry a
 * command of the driver's own (46); numbers of the UAPI, never changed.
 */
#define RING_FOLLOWED                                                                              \
	(1ull << 1 | 1ull << 2 | 1ull << 3 | 1ull << 4 | 1ull << 5 | 1ull << 22 | 1ull << 23 |     \
	 1ull << 8 | 1ull << 17 | 1ull << 30 | 1ull << 46 | 1ull << 60 | 1ull << 61)

static __always_inline void submitted(__u32 place)
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
	__u32 number = find_operation(request);
	struct operation_parts *parts = number ? operation_parts_at(number - 1) : 0;

	if (parts)
		parts->punted = bpf_ktime_get_ns();
}

/* The parts of the call that a task is in. */
static __always_inline struct operation_parts *call_of(__u32 tid)
{
	struct caller *caller = place_of(tid);

	return caller && caller->tid == tid && caller->kind ? operation_parts_at(call_place(tid))
							    : 0;
}

static __always_inline void task_woken(__u32 tid)
{
	struct operation_parts *parts = call_of(tid);

	if (parts)
		parts->woken = bpf_ktime_get_ns();
}

static __always_inline void task_runs(__u32 tid)
{
	struct operation_parts *parts = call_of(tid);

	if (parts && parts->ran < parts->woken)
		parts->ran = bpf_ktime_get_ns();
}

/* A request that is not followed may have been in its last life, and that have ended without a
 * completion: it counts as one whose request is used again. */
static __always_inline void forget_request(__u64 request)
{
	__u32 number = find_operation(request);
	struct wire_place *operation = number ? operation_at(number - 1) : 0;

	if (!operation || over)
		return;
	if (operation->state == OPERATION_LIVE)
		end_unseen(operation, number);
	operation->state = OPERATION_FREE;
}

/* What the event of an operation of io_uring will say. */
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

	if (unlikely(req->opcode >= 64 || !(RING_FOLLOWED >> req->opcode & 1))) {
		forget_request((__u64)req);
		return;
	}
	caller = current_caller();
	if (caller && caller->kind == CALL_RING) {
		number = begin_operation((__u64)req, caller->entered, 1);
		caller->current = number;
	} else {
		/* The kernel's own thread fetched it from the ring (SQPOLL). */
		number = begin_operation((__u64)req, bpf_ktime_get_ns(), 1);
	}
	if ((config.want_parts || config.want_throttle) && number)
		submitted(number - 1);
	if (config.want_events && number)
		note_request(number - 1, req);
}

/* An io_uring request's result becomes visible. */
static __always_inline void operation_ended(__u64 request, const unsigned long long *ctx)
{
	__u32 number = find_operation(request);
	struct wire_place *operation = number ? operation_at(number - 1) : 0;
	struct caller *caller;
	__u64 now;

	if (!operation || over)
		return;
	/* Before the result: a clock waits for all that was to be loaded before it. */
	now = bpf_ktime_get_ns();
	fetch_result(operation, number);
	/* From the page cache, or on a device that is not traced. */
	if (!operation->parts || !running) {
		operation->state = OPERATION_FREE;
		return;
	}
	/* The part's end is not the operation's: the time until here is its complete stage's. */
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
	/* On the way to user space or in a worker: who polls the ring sees it, and nobody sees him.
	 */
	count_whole(&operation->stamps, operation->entered, 0, number - 1, 0);
	operation->state = OPERATION_FREE;
}

#endif /* NO_SWAP */

#endif
