/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Records the submitter of a bio, when the bio enters the block layer: later events run in whatever
 * task the interrupt arrived in. For the latency programs, which define `config` before this
 * header.
 */
#ifndef BIOPSY_SUBMITTER_H
#define BIOPSY_SUBMITTER_H

#include "bios.h"
#include "compat.h"
#include "submit_stacks.h"
#include "wire.h"

/* Whether the current task is in a given cgroup at this level, or below it. */
static __always_inline int is_below(int level, __u64 cgroup)
{
#ifdef NO_SWAP
	/* On 5.10, tracing programs cannot read a cgroup's ancestors. */
	return 0;
#else
	return bpf_get_current_ancestor_cgroup_id(level) == cgroup;
#endif
}

/*
 * The cgroup that the block controller charges, which for write-back is not the current task's. In
 * v2 that is the task's nearest ancestor with the controller enabled, often the root: then the
 * task's own cgroup is more informative.
 */
static __always_inline __u64 cgroup_of_bio(struct bio *bio)
{
	__u64 charged = 0;
	int level = 0;

	if (bpf_core_field_exists(struct bio, bi_blkg)) {
		struct blkcg_gq *group = FIELD(bio, bi_blkg);

		if (group) {
			struct blkcg *blkcg = FIELD(group, blkcg);
			struct cgroup *cgroup = FIELD(blkcg, css.cgroup);
			struct kernfs_node *folder = FIELD(cgroup, kn);

			charged = FIELD(folder, id);
			level = FIELD(cgroup, level);
		}
	}
	if (config.unified_cgroups && (!charged || is_below(level, charged)))
		return bpf_get_current_cgroup_id();
	return charged;
}

/* The submitter of an operation, call or iocb whose bio may be throttled. */
struct origin {
	struct wire_submitter by;
	/* Name of the thread, in all cases. */
	char comm[16];
};

/*
 * Indexed like `operation_parts`, followed by the entries of `iocbs`. Filled if blk-throttle's
 * worker may submit bios on behalf of other tasks.
 */
MAPPED_ARRAY(origins, struct origin, 1);

static __always_inline int keep_origins(void)
{
	return config.throttle_enabled && (config.submitter_enabled || config.filter_enabled);
}

/* The origin in an entry, given as its index + 1; NULL: it is the current task. */
static __always_inline struct origin *origin_at(__u32 number)
{
	__u32 place = number - 1;

	return keep_origins() && number ? bpf_map_lookup_elem(&origins, &place) : 0;
}

/* The cgroup of a bio that was submitted a while ago. */
static __always_inline __u64 cgroup_of_held(struct bio *bio, const struct origin *origin)
{
	return origin->by.cgroup ? origin->by.cgroup : cgroup_of_bio(bio);
}

static __always_inline void note_task(struct wire_submitter *submitter)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	__u64 id = bpf_get_current_pid_tgid();

	submitter->pid = id >> 32;
	submitter->tid = id;
	submitter->cpu = bpf_get_smp_processor_id();
	submitter->flags = BPF_CORE_READ(task, flags) & PF_KTHREAD ? SUBMITTER_KERNEL : 0;
	submitter->stack = 0;
	/* A process has the name of its first thread. */
	if (config.group_by & BY_PROCESS)
		BPF_CORE_READ_STR_INTO(&submitter->comm, task, group_leader, comm);
	else
		bpf_get_current_comm(submitter->comm, sizeof(submitter->comm));
}

/*
 * Whether the bio that enters the block layer comes directly from blk-throttle's queue: the current
 * task is a worker of its workqueue.
 */
static __noinline int is_throttle_worker(void)
{
	static const char throttled[] = "kthrotld";
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct kthread *thread;
	struct worker *worker;
	char name[sizeof(throttled)] = {};

	if (!bpf_core_field_exists(task->worker_private) ||
	    !bpf_core_field_exists(struct worker, current_pwq) ||
	    !bpf_core_field_exists(struct kthread, data) ||
	    !(BPF_CORE_READ(task, flags) & PF_WQ_WORKER))
		return 0;
	/* A bio that a driver creates from a throttled one (dm's clones) was not throttled itself:
	 * it is submitted from within the submission of that one. */
	if (BPF_CORE_READ(task, bio_list))
		return 0;
	thread = BPF_CORE_READ(task, worker_private);
	worker = BPF_CORE_READ(thread, data);
	BPF_CORE_READ_STR_INTO(&name, worker, current_pwq, wq, name);
	for (__u32 i = 0; i < sizeof(throttled); i++)
		if (name[i] != throttled[i])
			return 0;
	return 1;
}

/* Records the current task as the submitter of the operation in this entry. */
static __always_inline void note_origin(__u32 place)
{
	struct origin *origin = origin_at(place + 1);

	if (!origin)
		return;
	note_task(&origin->by);
	/* On v1 it is not the task's cgroup, and the bio has it. */
	origin->by.cgroup = config.unified_cgroups ? bpf_get_current_cgroup_id() : 0;
	bpf_get_current_comm(origin->comm, sizeof(origin->comm));
}

static __noinline void note_submitter(struct bio *bio, struct wire_submitter *submitter,
				      const struct origin *origin)
{
	if (!submitter)
		return;
	if (origin) {
		*submitter = origin->by;
		submitter->cgroup = cgroup_of_held(bio, origin);
	} else {
		note_task(submitter);
		submitter->cgroup = cgroup_of_bio(bio);
	}
	submitter->sector = FIELD(bio, bi_iter.bi_sector);
	submitter->bytes = FIELD(bio, bi_iter.bi_size);
	if (config.stacks_enabled)
		note_route(submitter, (__u64)bio);
}

/* The front part of a split bio has the same submitter as the whole. */
static __always_inline void copy_submitter(struct wire_submitter *to, struct wire_submitter *from)
{
	if (to && from) {
		*to = *from;
		to->flags |= SUBMITTER_PART;
	}
}

#endif
