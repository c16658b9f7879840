/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which class of I/O a request is. */
#ifndef BIOPSY_CLASSES_H
#define BIOPSY_CLASSES_H

#include "compat.h"
#include "wire.h"

static __always_inline __u32 classify(__u32 cmd_flags)
{
	__u32 op = cmd_flags & REQ_OP_MASK;

	if (op == REQ_OP_READ)
		return OP_READ;
	if (op == REQ_OP_FLUSH)
		return OP_FLUSH;
	if (op == REQ_OP_DISCARD)
		return OP_DISCARD;
	if (op == REQ_OP_WRITE_ZEROES)
		return OP_WRITE_ZEROES;
	if (op >= REQ_OP_FIRST_DRIVER)
		return OP_PASSTHROUGH;
	if (cmd_flags & fua_flag())
		return OP_FUA;
	/* Zone and erase operations: the kernel counts what is odd as a write. */
	return op & 1 ? OP_WRITE : OP_READ;
}

#endif
