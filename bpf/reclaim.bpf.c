/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Time in reclaim of memory, by the stack of who reclaims.
 *
 *   mm_vmscan_direct_reclaim_begin/end    a task wants memory and there is none
 *   mm_vmscan_memcg_reclaim_begin/end     the same within the limit of its cgroup
 *   mm_vmscan_node_reclaim_begin/end      of one node (vm.zone_reclaim_mode)
 *   mm_vmscan_kswapd_wake/sleep           the kernel's thread of a node
 *   mm_vmscan_balance_pgdat_begin/end     what it does between them (7.x)
 *   mm_vmscan_lru_shrink_inactive         before there is the latter: when it was done with a batch
 *
 * Both events of a pair are in one function, so that the stack is the same at either: it is taken
 * at the end, when it is known how long it took, by the same rule as that of a lock's waiters.
 * Reclaim above a soft limit is inside one of these, and not counted again. Arguments are not
 * read: 7.x moved them.
 */

/* One object serves every kernel: 5.10 has no compare-and-swap. */
#define NO_SWAP

#include "waits.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Begins for which there was no room. */
__u64 no_room = 0;

struct reclaiming {
	/* 0: it does not. */
	__u64 began;
	/* Of kswapd: when it was done with its last batch. */
	__u64 last;
	/* Its kind, + 1. */
	__u32 kind;
	__u32 pad;
};

/* By thread. One that reclaims does not end meanwhile, so that none stays here. */
HASH(reclaiming, __u32, struct reclaiming, 16384);

static __always_inline int begin(__u32 kind)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	__u64 id = bpf_get_current_pid_tgid();
	struct reclaiming now = {.kind = kind + 1};
	__u32 tid = id;

	if (!running)
		return 0;
	if ((!config.own_process_enabled && id >> 32 == ours) ||
	    (config.filter_enabled && !passes_filter(task)))
		return 0;
	now.began = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&reclaiming, &tid, &now, BPF_ANY))
		__sync_fetch_and_add(&no_room, 1);
	return 0;
}

/* A row and a place of its own for each program of a CPU; see waits.h. */
static __always_inline __u32 place_of(__u32 program)
{
	return program * config.cpus + bpf_get_smp_processor_id();
}

static __always_inline void take(void *ctx, struct wire_waits_row *row, __u32 place, __u32 kind,
				 __u64 took, __u64 now)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct taken taken = {.took = took};
	struct wait_scratch *s;

	sum_up(&row->all, 1, took);
	if (took < config.least_ns) {
		sum_up(&row->brief, 1, took);
		return;
	}
	name_waits(row, task, 1, took);
	begin_period(&row->budget, now);
	taken.chance = chance_of(took, threshold_of(row));
	if (!is_lucky(taken.chance))
		return;
	s = bpf_map_lookup_elem(&wait_scratch, &place);
	if (!s)
		return;
	if (is_over_budget(&row->budget)) {
		row->over++;
		go_bare_of(row, task, taken);
		return;
	}
	take_current(ctx, row, task, s, (kind + 1) << WAIT_RECLAIM_SHIFT, taken);
	spend(&row->budget, now, bpf_ktime_get_ns() - now);
}

static __always_inline int end(void *ctx, __u32 program, __u32 kind, int is_known)
{
	__u32 tid = bpf_get_current_pid_tgid(), place = place_of(program);
	struct wire_waits_row *row;
	struct reclaiming *one;
	__u64 took, now;

	if (!running)
		return 0;
	row = bpf_map_lookup_elem(&wait_rows, &place);
	if (!row)
		return 0;
	row->events++;
	one = bpf_map_lookup_elem(&reclaiming, &tid);
	if (!one || one->kind != kind + 1) {
		/* Or of somebody who was not asked for. */
		row->unmatched++;
		return 0;
	}
	now = bpf_ktime_get_ns();
	if (is_known)
		took = now - one->began;
	else
		took = one->last > one->began ? one->last - one->began : 0;
	bpf_map_delete_elem(&reclaiming, &tid);
	take(ctx, row, place, kind, took, now);
	return 0;
}

#define RECLAIM(name, number, kind)                                                                \
	SEC("?tp_btf/mm_vmscan_" #name "_begin")                                                   \
	int BPF_PROG(name##_begin)                                                                 \
	{                                                                                          \
		return begin(kind);                                                                \
	}                                                                                          \
	SEC("?tp_btf/mm_vmscan_" #name "_end")                                                     \
	int BPF_PROG(name##_end)                                                                   \
	{                                                                                          \
		return end(ctx, number, kind, 1);                                                  \
	}

RECLAIM(direct_reclaim, 0, RECLAIM_DIRECT)
RECLAIM(memcg_reclaim, 1, RECLAIM_MEMCG)
RECLAIM(node_reclaim, 2, RECLAIM_NODE)
RECLAIM(balance_pgdat, 3, RECLAIM_KSWAPD)

/*
 * Between two runs the thread naps for a tenth of a second, and only when nobody wakes it then goes
 * to sleep: so a run's end is that of its last batch of pages, where the kernel does not say it.
 */
SEC("?tp_btf/mm_vmscan_kswapd_wake")
int BPF_PROG(kswapd_wake)
{
	__u32 tid = bpf_get_current_pid_tgid();

	if (running && bpf_map_lookup_elem(&reclaiming, &tid))
		end(ctx, 3, RECLAIM_KSWAPD, 0);
	return begin(RECLAIM_KSWAPD);
}

SEC("?tp_btf/mm_vmscan_kswapd_sleep")
int BPF_PROG(kswapd_sleep)
{
	return end(ctx, 4, RECLAIM_KSWAPD, 0);
}

SEC("?tp_btf/mm_vmscan_lru_shrink_inactive")
int BPF_PROG(kswapd_batch)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	__u32 tid = bpf_get_current_pid_tgid();
	struct reclaiming *one;

	if (!running || !(BPF_CORE_READ(task, flags) & PF_KTHREAD))
		return 0;
	one = bpf_map_lookup_elem(&reclaiming, &tid);
	if (one)
		one->last = bpf_ktime_get_ns();
	return 0;
}
