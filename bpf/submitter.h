/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Who handed a bio in. Taken when the bio enters the block layer: later events run in whatever task
 * the interrupt came into. For the latency programs, whose `config` must stand before it.
 */
#ifndef BIOPSY_SUBMITTER_H
#define BIOPSY_SUBMITTER_H

#include "bios.h"
#include "compat.h"
#include "wire.h"

/* Whether the current task is in a cgroup of this level, or below it. */
static __always_inline int is_below(int level, __u64 cgroup)
{
#ifdef NO_SWAP
	/* 5.10 does not tell tracing programs a cgroup's ancestors. */
	return 0;
#else
	return bpf_get_current_ancestor_cgroup_id(level) == cgroup;
#endif
}

/*
 * The cgroup that the block controller charges, which for write-back is not the current task's. In
 * v2 that is the nearest above the task's with the controller switched on, often the root: there
 * the task's own says more.
 */
static __always_inline __u64 cgroup_of_bio(struct bio *bio)
{
	__u64 charged = 0;
	int level = 0;

	if (bpf_core_field_exists(struct bio, bi_blkg)) {
		struct blkcg_gq *group = BPF_CORE_READ(bio, bi_blkg);

		if (group) {
			charged = BPF_CORE_READ(group, blkcg, css.cgroup, kn, id);
			level = BPF_CORE_READ(group, blkcg, css.cgroup, level);
		}
	}
	if (config.unified_cgroups && (!charged || is_below(level, charged)))
		return bpf_get_current_cgroup_id();
	return charged;
}

static __noinline void note_submitter(struct bio *bio, struct wire_submitter *submitter)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	__u64 id = bpf_get_current_pid_tgid();

	if (!submitter)
		return;
	submitter->cgroup = cgroup_of_bio(bio);
	submitter->pid = id >> 32;
	submitter->tid = id;
	submitter->cpu = bpf_get_smp_processor_id();
	submitter->flags = BPF_CORE_READ(task, flags) & PF_KTHREAD ? SUBMITTER_KERNEL : 0;
	/* A process has the name of its first thread. */
	if (config.group_by & BY_PROCESS)
		BPF_CORE_READ_STR_INTO(&submitter->comm, task, group_leader, comm);
	else
		bpf_get_current_comm(submitter->comm, sizeof(submitter->comm));
	submitter->sector = BPF_CORE_READ(bio, bi_iter.bi_sector);
	submitter->bytes = BPF_CORE_READ(bio, bi_iter.bi_size);
}

/* A split's front part comes from whom the whole came from. */
static __always_inline void copy_submitter(struct wire_submitter *to, struct wire_submitter *from)
{
	if (to && from)
		*to = *from;
}

#endif
