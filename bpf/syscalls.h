/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Follows system calls that can do I/O: their entry, their return, and the wakeups of their tasks
 * in between. For the latency programs, which define `config` before this header.
 */
#ifndef BIOPSY_SYSCALLS_H
#define BIOPSY_SYSCALLS_H

#include "aio.h"
#include "generator.h"
#include "io_uring.h"
#include "op_table.h"

/* enum wire_call, indexed by system call number; user space fills it. */
const volatile __u8 syscall_kinds[WIRE_SYSCALLS] = {};

/* Records the kernel stack of the task, which contains the registers of its system call. */
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
 * Whether an ioctl belongs to block devices (BLKDISCARD), SCSI (SG_IO), file systems (FITRIM) or
 * NVMe, by the letter in its number. Other ioctls may run for long and take page faults meanwhile,
 * as KVM_RUN does: that I/O is no operation of theirs.
 */
static __always_inline int is_io_command(struct pt_regs *regs)
{
	__u8 letter = BPF_CORE_READ(regs, si) >> 8;

	/* From 0x80 on these are the wait ioctls of ntsync. */
	if (letter == 'N')
		return !(BPF_CORE_READ(regs, si) & 0x80);
	return letter == 0x12 || letter == 0x22 || letter == 'X';
}

static __always_inline void call_entered(__u32 kind, struct pt_regs *regs)
{
	struct wire_generator *thread = generator_thread();
	__u32 tid = bpf_get_current_pid_tgid();
	struct caller *caller = caller_at(tid);
	__u64 submitted = 0;
	__u32 kept = 0;

	if (!caller)
		return;
	if (kind == CALL_COMMAND) {
		if (!is_io_command(regs))
			return;
		kind = CALL_WAITS;
	}
	if (unlikely(kind == CALL_WAITS && !(following & FOLLOW_STARTS)))
		return;
	if (caller->tid != tid) {
		/* The other thread may have died within its call; after 10 s it is assumed to
		 * have. */
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
		/* libaio results may be fetched without a system call: it is unknown which poll
		 * fetched which result. */
		if (kind == CALL_RING || kind == CALL_WAITS)
			submitted = submit_began(thread);
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
	if (config.throttle_enabled && kind == CALL_WAITS)
		call_waits(tid, (__u64)regs);
	caller->entered = submitted ? submitted : bpf_ktime_get_ns();
	if (config.throttle_enabled && kind == CALL_AIO)
		aio_submitted(regs, caller->entered);
	if (config.events_enabled)
		begin_facts(call_place(tid), kind);
	barrier();
	caller->kind = kind;
}

static __always_inline void call_returned(long result)
{
	struct caller *caller = current_caller();
	struct wire_generator *thread;

	if (!caller)
		return;
	thread = generator_thread();
	if (caller->kind == CALL_WAITS) {
		/* Operations that are cut off by the end of the interval are not counted. */
		if (caller->parts && running && thread)
			keep_call(caller, thread);
		else if (caller->parts && running)
			op_count_call(caller, caller->entered, bpf_ktime_get_ns());
	} else if (caller->kind == CALL_AIO_FETCH) {
		aio_returned(caller, result);
	} else if (caller->kind == CALL_RING && thread) {
		keep_results(caller);
	} else if (caller->kind == CALL_RING) {
		ring_returned(caller);
	}
	caller->kind = 0;
	/* A bio still in flight must not match this thread's next call. */
	caller->entered = 0;
}

/* The parts of the call that a task is in. */
static __always_inline struct operation_parts *call_of(__u32 tid)
{
	struct caller *caller = caller_at(tid);

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

#endif
