/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Finds the cgroups of a task. */

#ifndef BIOPSY_CGROUPS_H
#define BIOPSY_CGROUPS_H

#include "kernel.h"
#include "compat.h"

static __always_inline __u64 group_at(struct task_struct *task, __u32 controller)
{
	const void *set = BPF_CORE_READ(task, cgroups);
	struct cgroup_subsys_state *state = 0;

	bpf_probe_read_kernel(&state, sizeof(state),
			      set + bpf_core_field_offset(struct css_set, subsys) +
				  sizeof(state) * controller);
	return state ? BPF_CORE_READ(state, cgroup, kn, id) : 0;
}

/*
 * The id of a task's cgroup for one controller (`io_cgrp_id`): on v1 in the controller's own
 * hierarchy, on v2 the nearest ancestor that has it enabled. 0: the kernel has no such controller.
 * A macro, because the controller's number depends on the kernel and is resolved when a program is
 * loaded.
 */
#define group_of(task, controller)                                                                 \
	(bpf_core_enum_value_exists(enum cgroup_subsys_id, controller)                             \
	     ? group_at(task, bpf_core_enum_value(enum cgroup_subsys_id, controller))              \
	     : 0)

/* The id of the cgroup that filters compare: of v2, or of the block controller if that is on v1. */
static __always_inline __u64 cgroup_of_task(struct task_struct *task, __u32 unified)
{
	if (unified || !bpf_core_enum_value_exists(enum cgroup_subsys_id, io_cgrp_id))
		return BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	return group_of(task, io_cgrp_id);
}

#endif
