/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Structs of operations in flight that programs and user space share. Included by wire.h. */
#ifndef BIOPSY_WIRE_OPERATIONS_H
#define BIOPSY_WIRE_OPERATIONS_H

/*
 * Bits of an `op_ref`: which operation a bio belongs to. It is kept with the bio and then with its
 * request: the number of the operation + 1, or a thread id; 0: none. Numbers are used again, so
 * `generation` is kept with it: when the operation was entered.
 */
/* Thread ids have at most 22 bits. */
#define REF_NUMBER ((1u << 22) - 1)
/* It is the system call that this thread is in. */
#define REF_CALLER (1u << 31)
/* blk-throttle held the bio back: its queue began when its operation was submitted. */
#define REF_THROTTLED (1u << 30)
/* The bio does its operation's own I/O: that cannot end before it. */
#define REF_DIRECT (1u << 29)
/* Of a request: its result waits in its slot for the operation. */
#define REF_WAITS (1u << 28)
/* Of a request: what is needed of its bios is in their table. */
#define REF_IN_TABLE (1u << 27)
/* Of a request: a command of the driver's own, which may have no bio. */
#define REF_COMMAND (1u << 26)
/* It found no operation when not all were followed: whether it has one is not known. */
#define REF_UNCLASSIFIED (1u << 25)

/*
 * Which operations are followed, bits of `following`. User space sets it; see
 * src/probe/latency/slices.rs. An I/O whose bio finds no operation belongs to none only where those
 * that were under way when following began have ended (FOLLOW_ALL).
 */
#define FOLLOW_STARTS 1
#define FOLLOW_ENDS   2
#define FOLLOW_ALL    4

/* Of the part of an operation that finished last. */
struct wire_stamps {
	__u64 queued;
	__u64 issued;
	__u64 reaped;
	/* The result is visible: of a request of io_uring its CQE, else the end of the part. */
	__u64 ended;
	__u16 device;
	__u16 op;
	/* The driver did not say when it reaped the completion. */
	__u16 fused;
	/* The group that it is counted in as well, + 1; 0: none. */
	__u16 group;
};

enum operation_state {
	OPERATION_FREE,
	OPERATION_LIVE,
	/* Its result is visible, and its caller will count it. */
	OPERATION_ENDED,
};

/* An operation in flight. */
struct wire_place {
	/*
	 * Address of the request. It stays when the operation is over: io_uring uses its requests
	 * again and again, and a request that has a place needs no atomic instruction to take one,
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
_Static_assert(sizeof(struct wire_place) == 64, "wire_place");

#endif
