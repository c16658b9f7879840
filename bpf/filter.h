/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Whose bios are followed. Decided when a bio enters the block layer, where the task that runs is
 * the one that hands it in. For the latency programs, whose `config` must stand before it.
 */
#ifndef BIOPSY_FILTER_H
#define BIOPSY_FILTER_H

#include "bios.h"
#include "command.h"
#include "submitter.h"
#include "filter_sets.h"
#include "wire.h"

/*
 * Whether who hands in this bio is among those that were named: the current task, or, where
 * blk-throttle's worker brings it, who handed it in before.
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
		/* Write-back, journals and layers may work for the command, and nothing says for
		 * whom they do. */
		return current_is_kernel_thread() ||
		       is_of_command(bpf_get_current_pid_tgid() >> 32);
	}
	return 1;
}

/* No process submits a device flush. On the devices of a command it counts like the I/O of kernel
 * threads. */
static __always_inline int hides_flushes(void)
{
	return config.filter_enabled && !(config.filter_enabled & FILTER_COMMAND);
}

/* Whether a bio that is in the block layer passed the filter. */
static __always_inline int is_followed(__u64 bio)
{
	__u32 way;

	return !config.filter_enabled || find_bio(bio, &way);
}

#endif
