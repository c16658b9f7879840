/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef BIOPSY_STAMPS_H
#define BIOPSY_STAMPS_H

#include "kernel.h"

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

#endif
