/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Declares the records of operations in flight that programs and user space share. Included by
 * wire.h.
 */
#ifndef BIOPSY_WIRE_OPERATIONS_H
#define BIOPSY_WIRE_OPERATIONS_H

/*
 * Bits of an `op_ref`, which names the operation of a bio. It is stored with the bio and then with
 * its request. Its number is the operation's index + 1, or a thread id; 0: no operation. Indexes
 * are reused, so `generation` is stored with it: the time when the operation was entered.
 */
/* Thread ids have at most 22 bits. */
#define REF_NUMBER ((1u << 22) - 1)
/* The operation is the system call that this thread is in. */
#define REF_CALLER (1u << 31)
/* blk-throttle throttled the bio: its queue stage began when its operation was submitted. */
#define REF_THROTTLED (1u << 30)
/* The bio does the operation's own I/O: the operation cannot end before it. */
#define REF_DIRECT (1u << 29)
/* Of a request: the result waits in the request's slot for the operation. */
#define REF_WAITS (1u << 28)
/* Of a request: the data of its bios is in the table of bios. */
#define REF_IN_TABLE (1u << 27)
/* Of a request: a driver command (passthrough), which may have no bio. */
#define REF_COMMAND (1u << 26)
/* No operation was found while not all operations were followed: whether it has one is unknown. */
#define REF_UNCLASSIFIED (1u << 25)

/*
 * Which operations are followed: bits of `following`, set by user space
 * (src/probe/latency/slices.rs). An I/O whose bio has no operation belongs to none only after all
 * operations that were in flight when following began have ended (FOLLOW_ALL).
 */
#define FOLLOW_STARTS 1
#define FOLLOW_ENDS   2
#define FOLLOW_ALL    4

/* Stamps of the part of an operation that finished last. */
struct wire_stamps {
	__u64 queued;
	__u64 issued;
	__u64 reaped;
	/* When the result became visible: the CQE of an io_uring request, else the end of the
	 * part. */
	__u64 ended;
	__u16 device;
	__u16 op;
	/* The driver has no event for reaping the completion. */
	__u16 fused;
	/* The group in which it is counted as well, + 1; 0: none. */
	__u16 group;
};

enum operation_state {
	OPERATION_FREE,
	OPERATION_LIVE,
	/* Its result is visible; its caller will count it. */
	OPERATION_ENDED,
};

/* An operation in flight. */
struct wire_place {
	/*
	 * Address of the request. It is kept after the operation has ended: io_uring reuses its
	 * requests, and a request that already has a slot needs no atomic instruction to claim one.
	 * Such an instruction would wait for all pending stores of this CPU.
	 */
	__u64 request;
	__u64 entered;
	/* The next operation of the same caller, + 1. */
	__u16 next;
	/* Block-layer requests that finished for it. */
	__u16 parts;
	/* Slot in which the result of its first request will be, + 1; 0: only here. */
	__u32 slot : 30;
	__u32 state : 2;
	struct wire_stamps stamps;
};
_Static_assert(sizeof(struct wire_place) == 64, "wire_place");

#endif
