/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Which operation a bio belongs to, in 32 bits that are kept with the bio and then with its
 * request: the number of the operation + 1, or a thread id, and what else is known of the join. 0:
 * none. Operations and calls come and go: when it was entered is kept beside it, as its proof.
 */
#ifndef BIOPSY_LINKS_H
#define BIOPSY_LINKS_H

/* Thread ids have at most 22 bits. */
#define LINK_NUMBER ((1u << 22) - 1)
/* It is the system call that this thread is in. */
#define LINK_CALLER (1u << 31)
/* blk-throttle held the bio back: its queue began when its operation was submitted. */
#define LINK_THROTTLED (1u << 30)
/* The bio does its operation's own I/O: that cannot end before it. */
#define LINK_DIRECT (1u << 29)
/* Of a request: its result waits in its slot for the operation. */
#define LINK_WAITS (1u << 28)
/* Of a request: what is needed of its bios stands in their table. */
#define LINK_IN_TABLE (1u << 27)
/* Of a request: a command of the driver's own, which may have no bio at all. */
#define LINK_COMMAND (1u << 26)

#endif
