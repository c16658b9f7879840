/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Commands of a driver's own (passthrough): requests that no bio brings through block_bio_queue, so
 * that their issue is the first that is seen of them. For the latency programs, whose `config` must
 * stand before it.
 */
#ifndef BIOPSY_COMMANDS_H
#define BIOPSY_COMMANDS_H

#include "filter.h"
#include "joins.h"
#include "submitter.h"

/*
 * A command of the driver's own is seen for the first time: what block_bio_queue tells of others is
 * told here, as far as its submitter is the current task. True where it passed the filter.
 */
static __always_inline int begin_command(struct wire_slot *slot, struct request *rq)
{
	struct bio *bio = FIELD(rq, bio);
	struct bio_set *set;
	__u32 way, index;

	if (!config.want_operations)
		return 0;
	if (!link_command(slot, (__u64)BPF_CORE_READ(rq, end_io_data))) {
		if (keep_bios() && bio)
			take_bio((__u64)bio);
		return 0;
	}
	if ((!config.want_submitter && !config.want_filter) || !bio)
		return 0;
	if (config.want_filter && !is_wanted(bio, 0)) {
		take_bio((__u64)bio);
		return 0;
	}
	set = place_bio((__u64)bio, &way, &index);
	if (!set)
		return 0;
	/* No stage of it begins here. */
	set->queued[way] = 0;
	set->link[way] = slot->link;
	set->proof[way] = slot->proof;
	slot->link = LINK_IN_TABLE;
	if (config.want_submitter)
		note_submitter(bio, submitter_at(index, way), 0);
	if (config.want_files & FILES_EACH)
		clear_file(file_at(index, way));
	return 1;
}

/* From its first issue on a command that the driver refused waits in a queue. */
static __always_inline void refused_command(struct wire_slot *slot, __u64 bio)
{
	struct bio_set *set;
	__u32 way;

	if (slot->queued)
		return;
	slot->queued = slot->issued;
	set = slot->link & LINK_IN_TABLE ? find_bio(bio, &way) : 0;
	if (set)
		set->queued[way] = slot->queued;
}

#endif
