/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The application's side of operations: system calls and requests of io_uring, their entry, their
 * return, and what happens to them and their tasks in between. For the latency programs, whose
 * `config` must stand before it.
 */
#ifndef BIOPSY_CALLS_H
#define BIOPSY_CALLS_H

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

static __always_inline void operation_ended(__u64 request)
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
	struct operation *operation;

	if (!returning->next)
		return 1;
	operation = operation_at(returning->next - 1);
	/* Nobody but its caller touches an ended operation. */
	if (!operation || operation->request != OPERATION_ENDED)
		return 1;
	count_whole(&operation->stamps, operation->entered, returning->now, returning->next - 1,
		    returning->waiter);
	returning->next = operation->next;
	operation->request = 0;
	return 0;
}

/* More results than this do not come back with one system call. */
#define MOST_RESULTS	32768

/* struct io_event of the UAPI. */
#define AIO_EVENT_BYTES 32
#define AIO_EVENT_OBJ	8

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
	struct operation *operation;
	__u64 iocb = 0;
	__u32 number;

	if (!fetched->left)
		return 1;
	fetched->left--;
	bpf_probe_read_user(&iocb, sizeof(iocb), (const void *)(fetched->event + AIO_EVENT_OBJ));
	fetched->event += AIO_EVENT_BYTES;
	number = find_operation(aio_key(iocb));
	operation = number ? operation_at(number - 1) : 0;
	if (!operation)
		return 0;
	if (operation->parts && running)
		count_whole(&operation->stamps, operation->entered, fetched->now, number - 1,
			    fetched->waiter);
	operation->request = 0;
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
	parts->stack = low >> KERNEL_STACK_SHIFT;
	parts->throttled = 0;
	*owner = tid;
}

static __always_inline void call_entered(__u32 kind, struct pt_regs *regs)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct caller *caller = place_of(tid);

	if (!caller)
		return;
	if (caller->tid != tid) {
		/* It may have died within its call; after 10 s nobody believes in it any more. */
		if (caller->kind && bpf_ktime_get_ns() - caller->entered < 10000000000ull) {
			__sync_fetch_and_add(&unfollowed, 1);
			return;
		}
		caller->tid = tid;
	}
	caller->results = 0;
	if (kind == CALL_AIO_FETCH)
		caller->results = BPF_CORE_READ(regs, r10);
	caller->parts = 0;
	caller->layered = 0;
	if (config.want_throttle && kind == CALL_WAITS)
		call_waits(tid, (__u64)regs);
	caller->entered = bpf_ktime_get_ns();
	if (config.want_events)
		begin_facts(call_place(tid), kind);
	barrier();
	caller->kind = kind;
}

static __always_inline void call_returned(long result)
{
	struct caller *caller = current_caller();

	if (!caller)
		return;
	if (caller->kind == CALL_WAITS) {
		/* The end of the window cuts operations off: they are not counted. */
		if (caller->parts && running)
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
	} else if (caller->kind == CALL_RING && caller->pending) {
		struct returning returning = {};

		returning.now = bpf_ktime_get_ns();
		returning.next = caller->pending;
		returning.waiter = call_place(caller->tid);
		bpf_loop(MOST_RESULTS, count_next, &returning, 0);
		caller->pending = 0;
	}
	caller->kind = 0;
	/* A bio that is still out must not find this call in the next one. */
	caller->entered = 0;
}

/* Operations of io_uring that read or write; numbers of the UAPI, never changed. */
#define RING_READ_OR_WRITE                                                                         \
	(1ull << 1 | 1ull << 2 | 1ull << 3 | 1ull << 4 | 1ull << 5 | 1ull << 22 | 1ull << 23)

static __always_inline void submitted(__u32 place)
{
	struct operation_parts *parts = operation_parts_at(place);

	if (!parts)
		return;
	parts->submitted = bpf_ktime_get_ns();
	parts->punted = 0;
	parts->throttled = 0;
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

	if (req->opcode >= 64 || !(RING_READ_OR_WRITE >> req->opcode & 1))
		return;
	caller = current_caller();
	if (caller && caller->kind == CALL_RING) {
		number = begin_operation((__u64)req, caller->entered);
		caller->current = number;
	} else {
		/* The kernel's own thread fetched it from the ring (SQPOLL). */
		number = begin_operation((__u64)req, bpf_ktime_get_ns());
	}
	if ((config.want_parts || config.want_throttle) && number)
		submitted(number - 1);
	if (config.want_events && number)
		note_request(number - 1, req);
}

/* An io_uring request's result becomes visible. */
static __always_inline void operation_ended(__u64 request)
{
	__u32 number = find_operation(request);
	struct operation *operation;
	struct caller *caller;

	if (!number)
		return;
	operation = operation_at(number - 1);
	if (!operation)
		return;
	/* From the page cache, or on a device that is not traced. */
	if (!operation->parts || !running) {
		operation->request = 0;
		return;
	}
	/* The part's end is not the operation's: the time until here is its complete stage's. */
	operation->stamps.ended = bpf_ktime_get_ns();
	operation->stamps.fused = 0;
	caller = current_caller();
	if (caller && caller->kind == CALL_RING) {
		if (caller->current == number)
			caller->current = 0;
		operation->next = caller->pending;
		barrier();
		operation->request = OPERATION_ENDED;
		caller->pending = number;
		return;
	}
	/* On the way to user space or in a worker: who polls the ring sees it, and nobody sees him.
	 */
	count_whole(&operation->stamps, operation->entered, 0, number - 1, 0);
	operation->request = 0;
}

#endif /* NO_SWAP */

#endif
