/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Counts a completed operation: its stages by device and by group, its parts, and its event. For
 * the latency programs, which define `config` before this header.
 *
 *   entered ... queued ... issued ... reaped ... ended ... (return of the system call)
 *       submit     queue      device    complete     reap
 */
#ifndef BIOPSY_OP_ROWS_H
#define BIOPSY_OP_ROWS_H

#include "compat.h"
#include "emit.h"
#include "groups.h"
#include "hist.h"
#include "owner.h"
#include "parts.h"
#include "wire.h"

/* User space sets the size: Σ over devices of covers × (shards × OPS_SHARDED + rare operations). */
MAPPED_ARRAY(operation_rows, struct wire_operation_row, 1);

static __always_inline struct wire_operation_row *operation_row(__u32 device, __u32 op, __u32 cover,
								int *shared)
{
	struct wire_device *facts = bpf_map_lookup_elem(&devices, &device);
	__u32 index;

	if (!facts || op >= OPS || cover >= COVERS)
		return 0;
	index = facts->operation_row_base;
	*shared = 1;
	if (op < OPS_SHARDED) {
		__u32 shards = facts->operation_shards;
		__u32 shard = bpf_get_smp_processor_id();

		*shared = facts->flags & SHARED_OPERATION_ROWS;
		if (shards && shard >= shards)
			shard %= shards;
		index += (shard * COVERS + cover) * OPS_SHARDED + op;
	} else {
		index += facts->operation_shards * COVERS * OPS_SHARDED;
		index += cover * (OPS - OPS_SHARDED) + op - OPS_SHARDED;
	}
	return bpf_map_lookup_elem(&operation_rows, &index);
}

static __always_inline void count_stage(struct wire_operation_row *row, __u32 stage, __u64 time,
					int shared)
{
	count_time(row->counts + stage * HIST_BUCKETS, &row->bounds[stage].not_min,
		   &row->bounds[stage].max, &row->lock, time, shared);
}

/* The times of an operation, by stage. */
struct op_times {
	__u64 ns[OPERATION_STAGES];
	/* No bio entered the block layer: submission lasts until the issue. */
	__u64 no_queue;
};

/* Reads the stamps once: another part may overwrite them concurrently. */
static __always_inline void read_stamps(const struct wire_stamps *of, struct wire_stamps *once)
{
	once->queued = *(const volatile __u64 *)&of->queued;
	once->issued = *(const volatile __u64 *)&of->issued;
	once->reaped = *(const volatile __u64 *)&of->reaped;
	once->ended = *(const volatile __u64 *)&of->ended;
}

/* Computes the stages of an operation; 0: its stamps contradict each other. */
static __always_inline int times_of(const struct wire_stamps *of, __u64 entered, __u64 last,
				    struct op_times *times)
{
	/* Without a branch, both sides of which the verifier would follow to the end. */
	__u64 none = ((of->queued - 1) & ~of->queued) >> 63, begun;

	asm volatile("" : "+r"(none));
	begun = of->queued + none * of->issued;
	if (unlikely(begun < entered || of->issued < begun || of->reaped < of->issued ||
		     of->ended < of->reaped || last < of->ended))
		return 0;
	times->no_queue = none;
	times->ns[OPERATION_SUBMIT] = begun - entered;
	times->ns[OPERATION_QUEUE] = of->issued - begun;
	times->ns[OPERATION_DEVICE] = of->reaped - of->issued;
	times->ns[OPERATION_COMPLETE] = of->ended - of->reaped;
	times->ns[OPERATION_REAP] = last - of->ended;
	times->ns[OPERATION_TOTAL] = last - entered;
	return 1;
}

/* Adds to the sums for the power of two of an operation's total time. */
static __always_inline void add_to_class(struct wire_operation_row *row,
					 const struct op_times *times, int shared)
{
	__u64 total = times->ns[OPERATION_TOTAL];
	__u64 i = unlikely(total >> HIST_MAX_BITS) ? HIST_MAX_BITS : msb64(total | 1);
	struct wire_total *class;

	/* 6.1's verifier does not carry a 32-bit bound into a 64-bit register. */
	asm volatile("%0 &= 63" : "+r"(i));
	if (i > HIST_MAX_BITS)
		return;
	class = &row->by_total[i];
	add(&class->operations, 1, shared);
	for (int stage = 0; stage < OPERATION_STAGES; stage++)
		add(&class->sums[stage], times->ns[stage], shared);
}

/*
 * Adds the stages of one operation. `seen` is when its application saw the result; 0: unknown.
 * `in_group`: add to the row of its group instead of the row of the device.
 */
static __always_inline int add_operation(const struct wire_stamps *of, __u64 entered, __u64 seen,
					 int in_group)
{
	struct wire_operation_row *row;
	struct wire_stamps once;
	struct op_times times;
	__u32 cover;
	int shared = 1;

	if (!of)
		return 0;
	read_stamps(of, &once);
	cover = cover_of(of, seen);
	if (in_group)
		row = group_operation_row(of->group, cover);
	else
		row = operation_row(of->device, of->op, cover, &shared);
	if (!row)
		return 0;
	/* Neither is known: such operations have no comparable set of stages. */
	if (unlikely(!seen && of->fused)) {
		__sync_fetch_and_add(&row->bare, 1);
		return 0;
	}
	/* Two parts that finish on two CPUs at once may leave a mixture of stamps. */
	if (unlikely(!times_of(&once, entered, seen ? seen : once.ended, &times))) {
		__sync_fetch_and_add(&row->torn, 1);
		return 0;
	}
	/* 0: blk-throttle throttled it, and the time of its submission is unknown. */
	if (times.ns[OPERATION_SUBMIT])
		count_stage(row, OPERATION_SUBMIT, times.ns[OPERATION_SUBMIT], shared);
	if (likely(!times.no_queue))
		count_stage(row, OPERATION_QUEUE, times.ns[OPERATION_QUEUE], shared);
	count_stage(row, OPERATION_DEVICE, times.ns[OPERATION_DEVICE], shared);
	if (cover != COVER_NO_COMPLETE)
		count_stage(row, OPERATION_COMPLETE, times.ns[OPERATION_COMPLETE], shared);
	if (seen)
		count_stage(row, OPERATION_REAP, times.ns[OPERATION_REAP], shared);
	count_stage(row, OPERATION_TOTAL, times.ns[OPERATION_TOTAL], shared);
	add_to_class(row, &times, shared);
	return 0;
}

VERIFIED_ONCE int count_operation(const struct wire_stamps *of, __u64 entered, __u64 seen)
{
	return follows_operations() ? add_operation(of, entered, seen, 0) : 0;
}

VERIFIED_ONCE int count_in_group(const struct wire_stamps *of, __u64 entered, __u64 seen)
{
	/* Before 2afae08c9dcb (6.8) it is verified even if never called. */
	return config.most_groups ? add_operation(of, entered, seen, 1) : 0;
}

/*
 * Sends the event of a counted operation if one of its I/Os has an event. Its `parts` are the I/Os
 * that finished for it.
 */
VERIFIED_ONCE int emit_operation(struct wire_operation *operation, const struct wire_stamps *of,
				 __u32 place)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct facts *facts = facts_at(place);
	struct wire_emitter *emitter;

	if (!operation || !of || !facts || !facts->io)
		return 0;
	operation->kind = EVENT_OPERATION;
	operation->opcode = facts->opcode;
	operation->operation = facts->id;
	operation->user_data = facts->user_data;
	operation->queued = of->queued;
	operation->issued = of->issued;
	operation->reaped = of->reaped;
	operation->ended = of->ended;
	operation->io = facts->io;
	operation->leader = facts->leader;
	operation->from = facts->from;
	operation->fused = of->fused;
	emitter = bpf_map_lookup_elem(&emitters, &cpu);
	if (!emit(cpu, operation, sizeof(*operation)) && emitter)
		__sync_fetch_and_add(&emitter->lost_operations, 1);
	return 0;
}

/*
 * Counts a completed operation and its parts. `place` and `waiter` are indexes in `operation_parts`
 * and `operation_facts`: of the operation, and of the call that fetched its result.
 */
static __always_inline void count_ended(const struct wire_stamps *of, const __u16 *parts,
					__u64 entered, __u64 seen, __u32 place, __u32 waiter)
{
	if (config.most_groups) {
		/* Both rows get the same stamps, even if a part overwrites them meanwhile. */
		struct wire_stamps once = *of;

		count_operation(&once, entered, seen);
		count_in_group(&once, entered, seen);
	} else {
		count_operation(of, entered, seen);
	}
	if (config.events_enabled) {
		struct wire_operation operation = {
		    .entered = entered, .seen = seen, .parts = *parts};

		emit_operation(&operation, of, place);
	}
	if (config.parts_enabled) {
		struct whole whole = {.stamps = *of, .entered = entered, .seen = seen};

		whole.place = place;
		whole.waiter = waiter;
		count_parts(&whole);
	}
}

#endif
