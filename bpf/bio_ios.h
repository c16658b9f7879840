/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Measures I/Os of bio-based devices, which have no requests (dm, md, zram): a bio from
 * block_bio_queue to block_bio_complete. For the latency programs, which define `config` before
 * this header.
 *
 * The kernel has a completion event for bios that no request completes, once per queued bio. For a
 * split bio it comes when the last part has ended, and there is one for each part that was split
 * off. The operation of a bio is recorded at its entry: a driver may reassign the bio further down.
 */
#ifndef BIOPSY_BIO_IOS_H
#define BIOPSY_BIO_IOS_H

#include "compat.h"
#include "wire.h"
#include "events.h"
#include "hist.h"
#include "op_table.h"
#include "rows.h"

/* Whether the device is bio-based; always false if no such device is traced. */
static __always_inline int is_bio_based(struct owner *owner)
{
	return CAN_FOLLOW && config.bios_enabled && owner->layer & BIO_BASED;
}

/*
 * Bios of one slab page share a row of the table, as in bios.h; a full row overflows into the next.
 */
#define BIO_IO_BITS	14
#define BIO_IO_ROW_BITS 5
#define BIO_IO_PROBES	8

/* Has one entry if no traced device is bio-based. */
MAPPED_ARRAY(bio_ios, struct wire_bio_io, 1 << BIO_IO_BITS);

/* Further fields for the event of a bio. */
struct bio_event {
	struct wire_submitter by;
	__u32 cmd_flags;
	__u32 pad;
	struct wire_file file;
};
_Static_assert(sizeof(struct bio_event) == 80, "bio_event");

/* Parallel to `bio_ios`, with the same index and size, if `config.events_enabled`. */
MAPPED_ARRAY(bio_events, struct bio_event, 1);

/* The class of a bio, whose flags are those of a request. */
static __always_inline __u32 op_of_bio(struct bio *bio)
{
	__u32 flags = bio->bi_opf;
	__u32 op = classify(flags);

	if (!bio->bi_iter.bi_size && (op == OP_WRITE || op == OP_FUA) && flags & preflush_flag())
		return OP_EMPTY_FLUSH;
	return op;
}

static __always_inline __u32 bio_io_place(__u64 bio, __u32 probe)
{
	__u32 row = ((__u32)bio >> 12) * 0x9e3779b1u >> 16;
	__u32 index = (row << BIO_IO_ROW_BITS | ((__u32)bio >> 7 & ((1 << BIO_IO_ROW_BITS) - 1)));

	return (index + (probe << BIO_IO_ROW_BITS)) & ((1 << BIO_IO_BITS) - 1);
}

static __always_inline struct wire_bio_io *bio_io_at(__u64 bio, __u32 probe)
{
	__u32 place = bio_io_place(bio, probe);

	return bpf_map_lookup_elem(&bio_ios, &place);
}

static __always_inline struct wire_bio_io *find_bio_io(__u64 bio)
{
	for (__u32 i = 0; i < BIO_IO_PROBES; i++) {
		struct wire_bio_io *io = bio_io_at(bio, i);

		if (io && io->bio == bio)
			return io;
	}
	return 0;
}

/*
 * NULL: events are disabled. Uses the index stored in the entry: verifiers like 6.1's would
 * otherwise walk all that follows once for each probe of the table.
 */
static __always_inline struct bio_event *event_of(const struct wire_bio_io *io)
{
	__u32 place = io->place;

	return config.events_enabled ? bpf_map_lookup_elem(&bio_events, &place) : 0;
}

#define COUNT_OF(number, field)                                                                    \
	({                                                                                         \
		__u32 key = (number);                                                              \
		struct wire_counters *c = bpf_map_lookup_elem(&counters, &key);                    \
		if (c)                                                                             \
			__sync_fetch_and_add(&c->field, 1);                                        \
	})

/* Drops an entry left over from an earlier bio at this address. */
static __always_inline void forget_bio_io(__u64 bio)
{
	struct wire_bio_io *io = find_bio_io(bio);

	if (io)
		io->bio = 0;
}

/* Finds an entry for a bio, and evicts the oldest one if all probed entries are in use. */
static __always_inline struct wire_bio_io *place_bio_io(__u64 bio)
{
	struct wire_bio_io *oldest = find_bio_io(bio);

	/* The end of the earlier bio at this address was missed. */
	if (oldest) {
		if (running)
			COUNT_OF(oldest->device, stale);
		return oldest;
	}
	for (__u32 i = 0; i < BIO_IO_PROBES; i++) {
		struct wire_bio_io *io = bio_io_at(bio, i);

		if (!io)
			return 0;
		if (!io->bio && !__sync_val_compare_and_swap(&io->bio, 0, bio)) {
			io->place = bio_io_place(bio, i);
			return io;
		}
		if (!oldest || io->queued < oldest->queued)
			oldest = io;
	}
	if (oldest) {
		COUNT_OF(oldest->device, evicted);
		oldest->bio = bio;
	}
	return oldest;
}

/*
 * Adds a bio that enters the block layer; `private` is its bi_private. Returns its index + 1; 0: no
 * room.
 */
VERIFIED_ONCE int keep_bio_io(const struct wire_bio_io *fresh, __u64 private, __u32 layer)
{
	struct wire_bio_io *io;

	if (!fresh)
		return 0;
	io = place_bio_io(fresh->bio);
	if (!io)
		return 0;
	io->queued = fresh->queued;
	io->device = fresh->device;
	io->bytes = fresh->bytes;
	io->op = fresh->op;
	io->parts = fresh->parts;
	io->flush_ahead = fresh->flush_ahead;
	if (config.most_groups) {
		io->group = fresh->group;
		io->cpu = fresh->cpu;
	}
	io->op_ref = 0;
	if (follows_operations())
		op_attach_bio((const void *)private, fresh->bio, layer, &io->op_ref,
			      &io->generation);
	return io->place + 1;
}

/* Finds the group of a bio that enters the block layer. */
static __noinline void find_group(struct bio *bio, struct wire_bio_io *fresh,
				  const struct origin *origin)
{
	struct wire_submitter submitter = {};
	struct wire_group_key all = {
	    .device = fresh->device,
	    .op = fresh->op,
	    .queue = NO_QUEUE,
	    .size = size_class(fresh->bytes),
	};

	note_submitter(bio, &submitter, origin);
	if (config.group_by & BY_FILE)
		find_file(fresh->bio, &all.file);
	fresh->group = group_of_bio(&all, &submitter);
	fresh->cpu = submitter.cpu + 1;
}

/* Records the submitter of a bio for its event. */
static __always_inline void note_event(struct bio *bio, __u64 address, __u32 place,
				       const struct origin *origin)
{
	struct bio_event *event = bpf_map_lookup_elem(&bio_events, &place);

	if (!event)
		return;
	event->cmd_flags = bio->bi_opf;
	note_submitter(bio, &event->by, origin);
	if (config.files_enabled & FILES_EACH)
		find_file(address, &event->file);
}

static __always_inline int begin_bio_io(struct bio *bio, __u64 address, struct owner *owner,
					const struct origin *origin, __u64 now)
{
	struct wire_bio_io fresh = {
	    .bio = address,
	    .queued = now,
	    .device = owner->device,
	    .bytes = bio->bi_iter.bi_size,
	    .op = op_of_bio(bio),
	    .parts = 1,
	};
	int place;

	fresh.flush_ahead =
	    owner->layer & FLUSHES_APART && fresh.bytes && bio->bi_opf & preflush_flag();
	if (config.most_groups)
		find_group(bio, &fresh, origin);
	place = keep_bio_io(&fresh, (__u64)BPF_CORE_READ(bio, bi_private), owner->layer);
	if (config.events_enabled && place > 0)
		note_event(bio, address, place - 1, origin);
	return 0;
}

/* The front part begins where the whole bio did; the rest begins after it. */
static __always_inline void split_event(const struct wire_bio_io *rest,
					const struct wire_bio_io *front, __u32 bytes)
{
	struct bio_event *from = event_of(rest);
	struct bio_event *to = event_of(front);

	if (!from || !to)
		return;
	*to = *from;
	to->by.flags |= SUBMITTER_PART;
	to->by.bytes = bytes;
	from->by.sector += bytes >> 9;
	from->by.bytes -= bytes;
}

/*
 * Handles a split; returns 1 if the bio is known. dm continues with the bio itself for the rest.
 * Other drivers allocate a bio for the front part, which has no block_bio_queue and is chained to
 * the rest.
 */
VERIFIED_ONCE int part_bio_io(__u64 bio, __u64 parent, __u32 device, __u32 bytes)
{
	struct wire_bio_io *io = find_bio_io(bio);
	struct wire_bio_io *rest, *front;

	if (io) {
		io->parts++;
		return 1;
	}
	rest = find_bio_io(parent);
	if (!rest || rest->device != device)
		return 0;
	front = place_bio_io(bio);
	if (!front)
		return 0;
	split_event(rest, front, bytes);
	front->queued = rest->queued;
	front->device = device;
	front->bytes = bytes;
	front->op = rest->op;
	front->parts = 1;
	front->flush_ahead = 0;
	front->op_ref = rest->op_ref;
	front->generation = rest->generation;
	if (config.most_groups) {
		front->group = rest->group;
		front->cpu = rest->cpu;
	}
	rest->bytes -= bytes;
	return 1;
}

static __always_inline int split_bio_io(struct bio *bio, __u64 address, struct owner *owner)
{
	return part_bio_io(address, (__u64)BPF_CORE_READ(bio, bi_private), owner->device,
			   bio->bi_iter.bi_size);
}

static __always_inline struct wire_row *row_of_device(__u32 device, __u32 op, int *shared)
{
	struct wire_device *facts = bpf_map_lookup_elem(&devices, &device);
	__u32 shard, index;

	if (!facts || op >= OPS)
		return 0;
	*shared = 1;
	index = facts->rare_row_base + op - OPS_SHARDED;
	if (op < OPS_SHARDED) {
		*shared = facts->flags & SHARED_ROWS;
		shard = bpf_get_smp_processor_id();
		if (facts->shards && shard >= facts->shards)
			shard %= facts->shards;
		index = facts->row_base + shard * OPS_SHARDED + op;
	}
	return bpf_map_lookup_elem(&rows, &index);
}

static __always_inline void count_bio_in_group(const struct wire_bio_io *io, __u64 device)
{
	time_in_group(io->group, NO_TIME, device, NO_TIME);
	if (io->parts > 1)
		COUNT_GROUP(io->group, further, io->parts - 1);
	if (config.matrix_cpus)
		count_in_matrix(io->cpu, io->parts);
}

/*
 * Sends the event of a completed bio. Must precede the completion of its operation, which may end
 * then.
 */
VERIFIED_ONCE int emit_bio(const struct wire_bio_io *bio, const struct bio_event *event, __u64 now,
			   __u32 marks)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct wire_emitter *emitter = bpf_map_lookup_elem(&emitters, &cpu);
	struct wire_io io = {.marks = marks, .ended = now, .sector = ~0ull};
	struct facts *facts;

	if (!bio || !emitter)
		return 0;
	if (!(marks & (IO_STARTED_BEFORE | IO_NEGATIVE)))
		io.queued = bio->queued;
	io.bytes = bio->bytes;
	io.device = bio->device;
	io.slot_base = bio->parts;
	io.op = bio->op;
	if (config.stacks_enabled && !(event && event->by.stack))
		return 0;
	if (config.throttle_enabled && !config.stacks_enabled)
		begin_held(&io, bio->op_ref, bio->generation);
	if (!is_asked_for(&io, emitter))
		return 0;
	number_io(&io, cpu, emitter);
	if (event) {
		if (io.bytes)
			io.sector = event->by.sector;
		io.cmd_flags = event->cmd_flags;
		io.by = event->by;
		io.file = event->file;
	}
	facts = facts_of(bio->op_ref, bio->generation);
	if (facts) {
		facts->io = io.io;
		facts->leader = facts->id;
		io.operation = facts->id;
	}
	send_io(&io, cpu, emitter);
	return 0;
}

/*
 * Adds the whole time of a bio that belongs to no operation, which the main row has already. Adds
 * as if the row were shared, so that the verifier need not check both variants.
 */
VERIFIED_ONCE int time_unowned_bio(__u32 device, __u32 op, __u64 time)
{
	struct wire_row *row;
	int shared = 1;

	/* Verified even if never called, like add_stages. */
	if (!follows_operations())
		return 0;
	row = unowned_row(device, op, &shared);
	if (row)
		add_time(row->extents, row->counts, &row->lock, STAGE_DEVICE, time, 1);
	return 0;
}

static __always_inline void count_bio_io(const struct wire_bio_io *io,
					 const struct bio_event *event, __u64 now)
{
	struct part part = {
	    .stamps =
		{
		    .queued = io->queued,
		    .issued = io->queued,
		    .reaped = now,
		    .ended = now,
		    .device = io->device,
		    .op = io->op,
		    .fused = 1,
		    .group = io->group + 1,
		},
	    .slot = NO_SLOT,
	};
	struct wire_row *row;
	int shared = 1;

	row = row_of_device(io->device, io->op, &shared);
	if (!row)
		return;
	add(&row->bytes, io->bytes, shared);
	if (config.most_groups)
		COUNT_GROUP(io->group, bytes, io->bytes);
	if (now < io->queued) {
		COUNT_OF(io->device, negative);
		add(&row->untimed, 1, shared);
		if (config.events_enabled)
			emit_bio(io, event, now, IO_BIO | IO_HAS_SUBMITTER | IO_NEGATIVE);
		if (config.most_groups)
			COUNT_GROUP(io->group, untimed, 1);
		return;
	}
	if (config.events_enabled)
		emit_bio(io, event, now, IO_BIO | IO_HAS_SUBMITTER);
	add_time(row->extents, row->counts, &row->lock, STAGE_DEVICE, now - io->queued, shared);
	if (io->parts > 1)
		add(&row->further, io->parts - 1, shared);
	if (config.most_groups)
		count_bio_in_group(io, now - io->queued);
	if (!follows_operations())
		return;
	if (io->op_ref & REF_UNCLASSIFIED) {
		add(&row->unclassified, 1, shared);
	} else if (!(io->op_ref && op_complete_bio(io->op_ref, io->generation, &part, 0))) {
		add(&row->unowned, 1, shared);
		time_unowned_bio(io->device, io->op, now - io->queued);
		if (config.most_groups)
			COUNT_GROUP(io->group, unowned, 1);
	}
}

/* Returns 1 if the bio began on a traced bio-based device. */
VERIFIED_ONCE int end_bio_io(__u64 address, __u32 flags, __u64 now)
{
	struct wire_bio_io *io = CAN_FOLLOW ? find_bio_io(address) : 0;

	if (!io)
		return 0;
	/* A dm that performs data and flush separately (not in 7.2) clears the flag in between. */
	if (io->flush_ahead && !(flags & preflush_flag()))
		io->parts++;
	if (running)
		count_bio_io(io, event_of(io), now);
	io->bio = 0;
	return 1;
}

/*
 * Sums up the times of a request's bios, each from its own entry: the layer above is compared with
 * them.
 */
static __always_inline void count_bios(struct wire_row *row, struct owner *owner,
				       const struct part *part, int shared)
{
	if (!CAN_FOLLOW || !config.bios_enabled || !(owner->layer & BELOW))
		return;
	add(&row->bios, part->bios, shared);
	add(&row->bio_ns, part->bio_ns, shared);
}

/* A bio ends whose begin is unknown. */
VERIFIED_ONCE int end_unknown(__u64 parent, __u32 device, __u32 op, __u32 flags, __u64 now)
{
	struct wire_counters *counts = bpf_map_lookup_elem(&counters, &device);
	struct wire_bio_io *rest = find_bio_io(parent);
	struct wire_row *row;
	int shared = 1;

	/* md splits bios without an event: the front part is chained to the rest. Its sector is
	 * unknown. */
	if (rest && rest->device == device) {
		struct wire_bio_io front = *rest;

		front.bytes = 0;
		front.parts = 1;
		count_bio_io(&front, event_of(rest), now);
		return 0;
	}
	row = row_of_device(device, op, &shared);
	if (!row || !counts || config.filter_enabled)
		return 0;
	if (counts->evicted > counts->evicted_ended) {
		__sync_fetch_and_add(&counts->evicted_ended, 1);
		add(&row->no_start, 1, shared);
		return 0;
	}
	add(&row->untimed, 1, shared);
	if (config.events_enabled) {
		struct wire_bio_io before = {.device = device, .op = op, .parts = 1};
		struct bio_event event = {.cmd_flags = flags};

		emit_bio(&before, &event, now, IO_BIO | IO_STARTED_BEFORE);
	}
	if (config.most_groups) {
		struct wire_group_key all = {.device = device, .op = op, .queue = NO_QUEUE};

		COUNT_GROUP(group_of_bio(&all, 0), untimed, 1);
	}
	return 0;
}
#endif
