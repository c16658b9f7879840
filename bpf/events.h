/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * An event per I/O. For the latency programs, whose `config` must stand before it; nothing of it is
 * left in the kernel without `config.events_enabled`.
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
 * I/Os that took less are not among the slowest: user space raises it as it finds slower ones, and
 * lowers it where an interval of the flight recorder begins.
 */
volatile __u64 event_floor_ns = 0;

/* Whether an I/O is among those that have an event. */
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

/* Where the request in the slot with the same number lay on the disk when it was issued. */
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

/* What the operation of a bio has to know of the I/O that finishes for it. */
struct finishing {
	__u64 bio;
	__u64 io;
	__u64 leader;
};

/* Where operations are followed, theirs forgets the bio. */
static __always_inline void let_go_of(struct bio_set *set, __u32 way)
{
	if (!CAN_FOLLOW && set)
		set->bio[way] = 0;
}

/* The facts of the operation that a bio belongs to, while that is not over. */
static __always_inline struct facts *facts_of(__u32 op_ref, __u64 generation)
{
	__u32 place = op_place(op_ref, generation);

	return place ? facts_at(place - 1) : 0;
}

/* An I/O that blk-throttle held waits since its operation was submitted, while that is not over. */
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

/* An I/O that is counted, with what its event is made from. The verifier takes no pointer to a bio
 * for a number where it is an argument, but it does within a struct. */
struct counted {
	/* 0: it has none, as a flush. */
	__u64 bio;
	/* It has no other one. */
	__u64 alone;
	/* Whose it is, where no bio says it: see `op_ref`. */
	__u64 generation;
	__u32 op_ref;
	__u32 pad;
	struct wire_io io;
};

/*
 * Sends what is known of an I/O that was counted, with who handed it in and the operation that it
 * belongs to. Before its bios are let go of.
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
	/* With stacks the times of some stand for those that were counted, and these begin where
	   the bio enters. */
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
