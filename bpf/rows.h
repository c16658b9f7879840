/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What completed, by device, shard and class. For the latency programs, whose `config` must stand
 * before it.
 */
#ifndef BIOPSY_ROWS_H
#define BIOPSY_ROWS_H

#include "compat.h"
#include "wire.h"
#include "owner.h"

/* Sized by user space: Σ shards × operations. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wire_row);
} rows SEC(".maps");

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

static __always_inline struct wire_row *row_of(struct owner *owner, __u32 op)
{
	__u32 index = owner->rare_row_base + op - OPS_SHARDED;

	if (op < OPS_SHARDED) {
		__u32 shard = 0, shards = owner->shards;

		if (shards > 1) {
			shard = bpf_get_smp_processor_id();
			/* A division costs as much as the rest of this function. */
			if (shard >= shards)
				shard %= shards;
		}
		index = owner->row_base + shard * OPS_SHARDED + op;
	}
	return bpf_map_lookup_elem(&rows, &index);
}

#endif
