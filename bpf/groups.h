/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Counts I/Os and operations a second time, by group: the dimensions that the user selects. For the
 * latency programs, which define `config` before this header.
 *
 * A request gets its group when it is issued, as all of its bios are known then. It belongs to the
 * submitter of its first bio, and so do the operations that it serves.
 */
#ifndef BIOPSY_GROUPS_H
#define BIOPSY_GROUPS_H

#include "bios.h"
#include "files.h"
#include "hist.h"
#include "rows.h"
#include "wire.h"

/* User space sizes all maps: `config.most_groups` entries, times the covers for operations. */
HASH(groups, struct wire_group_key, struct wire_group, 1);

MAPPED_ARRAY(group_rows, struct wire_row, 1);

MAPPED_ARRAY(group_operation_rows, struct wire_operation_row, 1);

/* I/Os by submission CPU and completion CPU. */
MAPPED_ARRAY(matrix, __u64, 1);

/* Rows in use, without the row of the others. */
__u64 groups_made = 0;

#define BY_SUBMITTER (BY_CPU | BY_PROCESS | BY_CGROUP)

static __always_inline struct wire_row *group_row(__u32 group)
{
	return bpf_map_lookup_elem(&group_rows, &group);
}

/* Operation row of a group, which is given as its number + 1. */
static __always_inline struct wire_operation_row *group_operation_row(__u32 group, __u32 cover)
{
	__u32 index = (group - 1) * COVERS + cover;

	return group ? bpf_map_lookup_elem(&group_operation_rows, &index) : 0;
}

/* The properties of a request that decide its group. */
struct grouped {
	struct wire_group_key all;
	/* Address of its first bio; 0: no submitted bio. */
	__u64 bio;
};

/* Submitter of a request's first bio, whose file is put into the key; NULL: unknown. */
static __always_inline struct wire_submitter *submitter_of(__u64 bio, struct wire_group_key *key)
{
	__u32 way, index;

	if (!find_bio_at(bio, &way, &index))
		return 0;
	if (config.group_by & BY_FILE)
		copy_file(&key->file, file_at(index, way));
	return submitter_at(index, way);
}

struct known {
	__u64 bio;
	__u64 found;
};

static long known_bio(__u32 i, struct known *known)
{
	__u32 way;

	if (find_bio(known->bio, &way)) {
		known->found = known->bio;
		return 1;
	}
	known->bio = next_bio(known->bio);
	return !known->bio;
}

/* The first of a request's bios; with a filter, the first that passed it. */
static __always_inline __u64 first_bio(__u64 bio)
{
	struct known known = {.bio = bio};

	if (!config.filter_enabled)
		return bio;
	bpf_loop(MOST_BIOS, known_bio, &known, 0);
	return known.found;
}

static __always_inline __u32 make_group(const struct wire_group_key *key,
					const struct wire_submitter *submitter)
{
	struct wire_group group = {}, *other;

	if (*(volatile __u64 *)&groups_made + 1 >= config.most_groups)
		return 0;
	group.number = __sync_fetch_and_add(&groups_made, 1) + 1;
	if (group.number >= config.most_groups)
		return 0;
	if (submitter && config.group_by & BY_PROCESS)
		__builtin_memcpy(group.comm, submitter->comm, sizeof(group.comm));
	if (submitter && config.group_by & BY_FILE)
		group.opener = submitter->pid;
	if (!bpf_map_update_elem(&groups, key, &group, BPF_NOEXIST))
		return group.number;
	/* Another CPU was faster. */
	other = bpf_map_lookup_elem(&groups, key);
	return other ? other->number : 0;
}

/* Number of an I/O's group; 0: no room. `all` has the I/O's own properties in all dimensions. */
static __always_inline __u32 number_of(const struct wire_group_key *all,
				       const struct wire_submitter *submitter)
{
	struct wire_group_key key = {};
	struct wire_group *group;
	__u32 by = config.group_by;

	if (by & BY_DEVICE)
		key.device = all->device;
	if (by & BY_OP)
		key.op = all->op;
	if (by & BY_QUEUE)
		key.queue = all->queue;
	if (by & BY_SIZE)
		key.size = all->size;
	if (by & BY_FILE)
		key.file = all->file;
	if (by & BY_SUBMITTER && submitter) {
		key.known = GROUP_SUBMITTER;
		if (by & BY_CPU)
			key.cpu = submitter->cpu;
		if (by & BY_PROCESS)
			key.pid = submitter->pid;
		if (by & BY_CGROUP)
			key.cgroup = submitter->cgroup;
	}
	group = bpf_map_lookup_elem(&groups, &key);
	return group ? group->number : make_group(&key, submitter);
}

/*
 * Number of a request's group; 0: unknown. Also stores the submission CPU + 1 in the request. Not
 * static: verified once, but before 2afae08c9dcb (6.8) even if never called.
 */
VERIFIED_ONCE __u32 group_of(struct grouped *request)
{
	struct wire_submitter *submitter = 0;

	if (!CAN_FOLLOW || !request || !config.most_groups)
		return 0;
	if (config.group_by & (BY_SUBMITTER | BY_FILE) && request->bio)
		submitter = submitter_of(first_bio(request->bio), &request->all);
	if (submitter)
		request->all.cpu = submitter->cpu + 1;
	return number_of(&request->all, submitter);
}

/* The group of an I/O with a known submitter. */
VERIFIED_ONCE __u32 group_of_bio(const struct wire_group_key *all,
				 const struct wire_submitter *submitter)
{
	return CAN_FOLLOW && all && config.most_groups ? number_of(all, submitter) : 0;
}

/* The size class of an I/O of this many bytes. */
static __always_inline __u16 size_class(__u32 bytes)
{
	return bytes ? msb64(bytes) + 1 : 0;
}

/* The bio of a device flush has no submitter. */
static __always_inline __u32 group_of_request(struct request *rq, __u32 device, __u32 op,
					      __u32 bytes, __u32 *cpu)
{
	struct grouped request = {
	    .all =
		{
		    .device = device,
		    .op = op,
		    .queue = rq->mq_hctx->queue_num,
		    .size = size_class(bytes),
		},
	    .bio = op == OP_FLUSH ? 0 : (__u64)rq->bio,
	};
	__u32 group = group_of(&request);

	*cpu = request.all.cpu;
	return group;
}

/* Stores the group in the slot when the request is issued. */
static __always_inline void note_group(struct wire_slot *slot, struct request *rq, __u32 device,
				       __u32 op)
{
	__u32 cpu = 0;

	slot->group = group_of_request(rq, device, op, rq->__data_len, &cpu);
	slot->cpu = cpu;
}

static __always_inline void time_in_group(__u32 group, __u64 queue, __u64 device, __u64 complete)
{
	add_stages(group_row(group), queue, device, complete, 1);
}

/* Adds to a field of a group's row. */
#define COUNT_GROUP(group, field, value)                                                           \
	({                                                                                         \
		struct wire_row *of_group = group_row(group);                                      \
		if (of_group)                                                                      \
			__sync_fetch_and_add(&of_group->field, value);                             \
	})

/* Counts I/Os from their submission CPU, which is given + 1, to the current CPU. */
static __always_inline void count_in_matrix(__u32 cpu, __u64 ios)
{
	__u32 here = bpf_get_smp_processor_id(), index;
	__u64 *cell;

	if (!cpu || cpu > config.matrix_cpus || here >= config.matrix_cpus)
		return;
	index = (cpu - 1) * config.matrix_cpus + here;
	cell = bpf_map_lookup_elem(&matrix, &index);
	if (cell)
		__sync_fetch_and_add(cell, ios);
}

#endif
