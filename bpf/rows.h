/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Counts completed I/Os, by device, shard and class. For the latency programs, which define
 * `config` before this header.
 */
#ifndef BIOPSY_ROWS_H
#define BIOPSY_ROWS_H

#include "compat.h"
#include "wire.h"
#include "hist.h"
#include "owner.h"

/*
 * User space sets the size: Σ shards × operations, first for all I/Os and then for those of no
 * operation.
 */
MAPPED_ARRAY(rows, struct wire_row, 1);

static __always_inline struct wire_row *row_of(struct owner *owner, __u32 op)
{
	__u32 index = owner->rare_row_base + op - OPS_SHARDED;

	if (op < OPS_SHARDED) {
		__u32 shard = 0, shards = owner->shards;

		if (shards > 1) {
			shard = bpf_get_smp_processor_id();
			/* The division costs as much as the rest of this function. */
			if (shard >= shards)
				shard %= shards;
		}
		index = owner->row_base + shard * OPS_SHARDED + op;
	}
	return bpf_map_lookup_elem(&rows, &index);
}

/* A stage that an I/O does not have. */
#define NO_TIME (~0ull)

static __always_inline void add_stage(struct wire_row *row, __u32 stage, __u64 time, int shared)
{
	if (time != NO_TIME)
		add_time(row->extents, row->counts, &row->lock, stage, time, shared);
}

/* Adds the stages of one I/O to a row other than that of all I/Os. */
VERIFIED_ONCE int add_stages(struct wire_row *row, __u64 queue, __u64 device, __u64 complete,
			     int shared)
{
	/* Before 2afae08c9dcb (6.8) it is verified even if never called. */
	if (!row || !(config.operations_enabled || config.most_groups))
		return 0;
	add_stage(row, STAGE_QUEUE, queue, shared);
	add_stage(row, STAGE_DEVICE, device, shared);
	add_stage(row, STAGE_COMPLETE, complete, shared);
	return 0;
}

static __always_inline struct wire_row *unowned_row(__u32 device, __u32 op, int *shared)
{
	struct wire_device *facts = bpf_map_lookup_elem(&devices, &device);
	__u32 shard, index;

	if (!facts || op >= OPS)
		return 0;
	*shared = 1;
	index = facts->unowned_row_base;
	if (op < OPS_SHARDED) {
		*shared = facts->flags & SHARED_UNOWNED_ROWS;
		shard = bpf_get_smp_processor_id();
		if (facts->unowned_shards && shard >= facts->unowned_shards)
			shard %= facts->unowned_shards;
		index += shard * OPS_SHARDED + op;
	} else {
		index += facts->unowned_shards * OPS_SHARDED + op - OPS_SHARDED;
	}
	return bpf_map_lookup_elem(&rows, &index);
}

/*
 * Adds the stages of an I/O that belongs to no operation, which the row of all I/Os has already.
 * Splitting I/Os between two sets of rows per hardware queue would take more memory than there is
 * for many drives. And this way I/Os of operations do not pay for the others.
 */
static __always_inline void time_unowned(__u32 device, __u32 op, __u64 queue, __u64 served,
					 __u64 complete)
{
	int shared = 1;
	struct wire_row *row;

	if (!CAN_FOLLOW || !config.operations_enabled)
		return;
	row = unowned_row(device, op, &shared);
	add_stages(row, queue, served, complete, shared);
}
#endif
