/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Decides whose bios are followed, when a bio enters the block layer: there the submitter is the
 * current task. For the latency programs, which define `config` before this header.
 */
#ifndef BIOPSY_FILTER_H
#define BIOPSY_FILTER_H

#include "bios.h"
#include "command.h"
#include "submitter.h"
#include "filter_sets.h"
#include "wire.h"

/*
 * Whether the submitter of this bio passes the filter: the current task, or the original submitter
 * if blk-throttle's worker submits the bio.
 */
static __noinline int passes_filter(struct bio *bio, const struct origin *origin)
{
	if (config.filter_enabled & FILTER_PID) {
		__u32 pid = bpf_get_current_pid_tgid() >> 32;

		if (origin)
			pid = origin->by.pid;
		if (!bpf_map_lookup_elem(&filter_pids, &pid))
			return 0;
	}
	if (config.filter_enabled & FILTER_COMM) {
		struct comm comm = {};

		bpf_get_current_comm(comm.bytes, sizeof(comm.bytes));
		if (origin)
			__builtin_memcpy(comm.bytes, origin->comm, sizeof(comm.bytes));
		if (!bpf_map_lookup_elem(&filter_comms, &comm))
			return 0;
	}
	if (config.filter_enabled & FILTER_CGROUP) {
		__u64 cgroup = origin ? cgroup_of_held(bio, origin) : cgroup_of_bio(bio);

		if (!bpf_map_lookup_elem(&filter_cgroups, &cgroup))
			return 0;
	}
	if (config.filter_enabled & FILTER_COMMAND) {
		if (origin)
			return is_of_command(origin->by.pid);
		/* Kernel threads for write-back, journals and stacked devices may work for the
		 * command, and nothing shows on whose behalf they do. */
		return current_is_kernel_thread() ||
		       is_of_command(bpf_get_current_pid_tgid() >> 32);
	}
	return 1;
}

/*
 * No process submits a device flush. For a command, flushes on its devices count like the I/O of
 * kernel threads.
 */
static __always_inline int hides_flushes(void)
{
	return config.filter_enabled && !(config.filter_enabled & FILTER_COMMAND);
}

/* Whether a bio in the block layer passed the filter. */
static __always_inline int is_followed(__u64 bio)
{
	__u32 way;

	return !config.filter_enabled || find_bio(bio, &way);
}

#endif
