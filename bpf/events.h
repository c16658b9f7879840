/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * An event per I/O. For the latency programs, whose `config` must stand before it; nothing of it is
 * left in the kernel without `config.want_events`.
 */
#ifndef BIOPSY_EVENTS_H
#define BIOPSY_EVENTS_H

#include "bios.h"
#include "compat.h"
#include "emit.h"
#include "joins.h"
#include "owner.h"
#include "submitter.h"
#include "wire.h"

/* I/Os that took less are not among the slowest: user space raises it as it finds slower ones. */
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

/* What the operation of a bio has to know of the I/O that finishes for it. */
struct finishing {
	__u64 bio;
	__u64 io;
	__u64 leader;
};

#ifdef NO_SWAP
/* Operations are not followed here. Nobody else lets go of the bio. */
static __always_inline void meet(struct bio_set *set, __u32 way, struct finishing *finishing)
{
	set->bio[way] = 0;
}

static __always_inline void meet_others(struct finishing *finishing)
{
}
#else
/* The facts of the operation that a bio belongs to, while that is not over. */
static __always_inline struct facts *facts_of(__u64 link, __u64 proof)
{
	struct operation *operation;
	struct caller *caller;

	if (!link)
		return 0;
	if (link & LINK_CALLER) {
		caller = place_of(link);
		if (!caller || caller->tid != (__u32)link || caller->entered != proof)
			return 0;
		return facts_at(call_place(link));
	}
	operation = operation_at(link - 1);
	if (!operation || operation->entered != proof || operation->request <= OPERATION_ENDED)
		return 0;
	return facts_at(link - 1);
}

static __always_inline void meet(struct bio_set *set, __u32 way, struct finishing *finishing)
{
	struct facts *facts = facts_of(set->link[way], set->proof[way]);

	if (!config.want_operations)
		set->bio[way] = 0;
	if (!facts)
		return;
	if (!finishing->leader)
		finishing->leader = facts->id;
	facts->io = finishing->io;
	facts->leader = finishing->leader;
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
	bpf_loop(MOST_BIOS, meet_next, finishing, 0);
}
#endif

/* An I/O that is counted, with what its event is made from. The verifier takes no pointer to a bio
 * for a number where it is an argument, but it does within a struct. */
struct counted {
	/* 0: it has none, as a flush. */
	__u64 bio;
	/* It has no other one. */
	__u64 alone;
	struct wire_io io;
};

/* The number of a CPU's I/O stays below 2^53, up to which numbers are exact in JSON. */
#define IO_CPU_BITS 13

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
	__u32 way, index;

	if (!counted || !emitter)
		return 0;
	io = &counted->io;
	if (!is_asked_for(io, emitter))
		return 0;
	io->kind = EVENT_IO;
	io->io = ++emitter->numbers << IO_CPU_BITS | (cpu & ((1 << IO_CPU_BITS) - 1));
	io->cpu = cpu;
	if (counted->bio)
		set = find_bio_at(counted->bio, &way, &index);
	if (set) {
		by = submitter_at(index, way);
		if (by) {
			io->marks |= IO_HAS_SUBMITTER;
			io->by = *by;
		}
		finishing.bio = counted->bio;
		finishing.io = io->io;
		meet(set, way, &finishing);
		io->operation = finishing.leader;
		if (!counted->alone) {
			io->marks |= IO_MERGED;
			meet_others(&finishing);
		}
	}
	if (!emit(cpu, io, sizeof(*io)))
		emitter->lost_ios++;
	return 0;
}

#endif
