/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Builds an event per I/O. For the latency programs, which define `config` before this header.
 * Without `config.events_enabled` the verifier removes all of it.
 */
#ifndef BIOPSY_EVENTS_H
#define BIOPSY_EVENTS_H

#include "bios.h"
#include "compat.h"
#include "emit.h"
#include "files.h"
#include "op_table.h"
#include "owner.h"
#include "submitter.h"
#include "wire.h"

/*
 * Faster I/Os are not among the slowest. User space raises this as it finds slower ones, and lowers
 * it when an interval of the flight recorder begins.
 */
volatile __u64 event_floor_ns = 0;

/* Whether an I/O is selected to have an event. */
static __always_inline int is_asked_for(const struct wire_io *io, struct wire_emitter *emitter)
{
	__u64 begin = io->queued ? io->queued : io->issued;
	__u64 took = begin ? io->ended - begin : 0;

	if (!(config.event_ops >> (io->op & 31) & 1) || took < config.event_slower_ns)
		return 0;
	emitter->matched++;
	if (emitter->skip) {
		emitter->skip--;
		return 0;
	}
	if (config.event_every)
		emitter->skip = config.event_every - 1;
	return took >= event_floor_ns;
}

/* Position on the disk, at issue, of the request in the slot with the same index. */
struct range {
	__u64 sector;
	__u32 bytes;
	__u32 pad;
};

MAPPED_ARRAY(ranges, struct range, 1);

static __always_inline void note_range(__u32 index, struct request *rq)
{
	struct range *range = bpf_map_lookup_elem(&ranges, &index);

	if (!range)
		return;
	range->sector = FIELD(rq, __sector);
	range->bytes = FIELD(rq, __data_len);
}

static __always_inline void range_of(__u32 index, struct wire_io *io)
{
	struct range *range = bpf_map_lookup_elem(&ranges, &index);

	if (!range)
		return;
	io->sector = range->sector;
	io->bytes = range->bytes;
}

/* What the operation of a bio records about the I/O that finishes for it. */
struct finishing {
	__u64 bio;
	__u64 io;
	__u64 leader;
};

/* Removes a bio, unless the code that follows operations removes it later. */
static __always_inline void let_go_of(struct bio_set *set, __u32 way)
{
	if (!CAN_FOLLOW && set)
		set->bio[way] = 0;
}

/* The entry of the operation that a bio belongs to, while that is in flight. */
static __always_inline struct facts *facts_of(__u32 op_ref, __u64 generation)
{
	__u32 place = op_place(op_ref, generation);

	return place ? facts_at(place - 1) : 0;
}

/*
 * Moves the begin of a throttled I/O to the submission of its operation, if that is still in
 * flight.
 */
static __always_inline void begin_held(struct wire_io *io, __u32 op_ref, __u64 generation)
{
	__u64 since;

	if (!CAN_FOLLOW || !io->queued || !(op_ref & REF_THROTTLED))
		return;
	since = op_submission(op_ref, generation);
	if (since && since < io->queued)
		io->queued = since;
}

static __always_inline void meet(struct bio_set *set, __u32 way, struct finishing *finishing)
{
	struct facts *facts = CAN_FOLLOW ? facts_of(set->op_ref[way], set->generation[way]) : 0;

	if (!follows_operations())
		set->bio[way] = 0;
	if (!facts)
		return;
	if (!finishing->leader)
		finishing->leader = facts->id;
	facts->io = finishing->io;
	facts->leader = finishing->leader;
}

static __always_inline void meet_command(__u32 op_ref, __u64 generation, struct wire_io *io)
{
	struct facts *facts = CAN_FOLLOW && op_ref & REF_NUMBER ? facts_of(op_ref, generation) : 0;

	if (!facts)
		return;
	facts->io = io->io;
	facts->leader = facts->id;
	io->operation = facts->id;
}

static long meet_next(__u32 i, struct finishing *finishing)
{
	struct bio_set *set;
	__u32 way;

	finishing->bio = next_bio(finishing->bio);
	if (!finishing->bio)
		return 1;
	set = find_bio(finishing->bio, &way);
	if (set)
		meet(set, way, finishing);
	return 0;
}

static __always_inline void meet_others(struct finishing *finishing)
{
	if (CAN_FOLLOW)
		bpf_loop(MOST_BIOS, meet_next, finishing, 0);
}

/*
 * An I/O to be counted, with the data for its event. A struct, since the verifier does not accept a
 * pointer to a bio as a scalar argument, but does as a struct member.
 */
struct counted {
	/* 0: it has no bio, like a flush. */
	__u64 bio;
	/* It has only this bio. */
	__u64 alone;
	/* Its operation, if it has no bio: see `op_ref`. */
	__u64 generation;
	__u32 op_ref;
	__u32 pad;
	struct wire_io io;
};

/*
 * Sends the event of an I/O, with its submitter and operation. Must precede the removal of its
 * bios.
 */
VERIFIED_ONCE int emit_io(struct counted *counted)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct wire_emitter *emitter = bpf_map_lookup_elem(&emitters, &cpu);
	struct finishing finishing = {};
	struct wire_submitter *by;
	struct bio_set *set = 0;
	struct wire_io *io;
	__u32 way = 0, index = 0;

	if (!counted || !emitter)
		return 0;
	io = &counted->io;
	if (counted->bio)
		set = find_bio_at(counted->bio, &way, &index);
	by = set ? submitter_at(index, way) : 0;
	if (config.stacks_enabled && !(by && by->stack)) {
		let_go_of(set, way);
		return 0;
	}
	/* With stacks, the times of sampled I/Os are scaled up to the counted ones, and those begin
	 * at the entry of the bio. */
	if (config.throttle_enabled && !config.stacks_enabled && set)
		begin_held(io, set->op_ref[way], set->generation[way]);
	if (!is_asked_for(io, emitter)) {
		let_go_of(set, way);
		return 0;
	}
	number_io(io, cpu, emitter);
	if (set) {
		if (by) {
			io->marks |= IO_HAS_SUBMITTER;
			io->by = *by;
		}
		copy_file(&io->file, file_at(index, way));
		finishing.bio = counted->bio;
		finishing.io = io->io;
		meet(set, way, &finishing);
		io->operation = finishing.leader;
		if (!counted->alone) {
			io->marks |= IO_MERGED;
			meet_others(&finishing);
		}
	}
	meet_command(counted->op_ref, counted->generation, io);
	send_io(io, cpu, emitter);
	return 0;
}

#endif
