/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Counts the bios of each process on each device, and records how each process relates to biopsy.
 * For the latency programs, which define `config` before this header.
 */
#ifndef BIOPSY_PROCESS_IOS_H
#define BIOPSY_PROCESS_IOS_H

#include "command.h"
#include "compat.h"
#include "rows.h"
#include "submitter.h"
#include "wire.h"

/* User space sets the size, and adds one NO_PROCESS row for each device. */
HASH(process_ios, struct wire_process_key, struct wire_process_ios, 1);

static __always_inline __u32 relation_of_current(void)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;

	if (current_is_kernel_thread())
		return RELATION_KERNEL;
	if (!config.own_process)
		return RELATION_UNKNOWN;
	if (pid == config.own_process)
		return RELATION_OWN;
	return is_of_command(pid) ? RELATION_COMMAND : RELATION_OTHER;
}

/*
 * Initial value of a row, never written: it does not fit on the BPF stack, which bio_queue has
 * nearly used up.
 */
struct wire_process_ios new_row = {};

static __noinline int name_process(struct wire_process_ios *row)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();

	if (row)
		BPF_CORE_READ_STR_INTO(&row->comm, task, group_leader, comm);
	return 0;
}

static __noinline struct wire_process_ios *add_process(struct wire_process_key *key,
						       const struct origin *origin)
{
	struct wire_process_ios *row;

	if (!key)
		return 0;
	bpf_map_update_elem(&process_ios, key, &new_row, BPF_NOEXIST);
	row = bpf_map_lookup_elem(&process_ios, key);
	if (!row) {
		key->pid = NO_PROCESS;
		key->selected = 0;
		return bpf_map_lookup_elem(&process_ios, key);
	}
	if (origin) {
		__builtin_memcpy(row->comm, origin->by.comm, sizeof(row->comm));
	} else {
		row->relation = relation_of_current();
	}
	return row;
}

/*
 * Counts a bio that a process submits: the current one, or the one that `origin` names. Returns how
 * many bios the process has submitted to the device before.
 */
static __always_inline __u64 count_process_io(struct bio *bio, __u32 device,
					      const struct origin *origin, __u32 selected)
{
	struct wire_process_key key = {
	    .device = device,
	    .pid = origin ? origin->by.pid : bpf_get_current_pid_tgid() >> 32,
	    .selected = selected,
	};
	struct wire_process_ios *row = bpf_map_lookup_elem(&process_ios, &key);
	__u64 before;
	__u32 op;

	if (!row)
		row = add_process(&key, origin);
	if (!row)
		return 0;
	before = row->bios;
	__sync_fetch_and_add(&row->bios, 1);
	/* The process may have called exec since: its name is read again at the 2nd, 4th, 8th, ...
	 * bio. */
	if (!origin && !(before & (before - 1)))
		name_process(row);
	op = classify(FIELD(bio, bi_opf));
	if (op == OP_READ || op == OP_WRITE || op == OP_FUA)
		__sync_fetch_and_add(&row->bytes, FIELD(bio, bi_iter.bi_size));
	if (!origin && row->relation == RELATION_UNKNOWN)
		row->relation = relation_of_current();
	return before;
}

#endif
