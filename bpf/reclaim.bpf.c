/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Measures the time of memory reclaim, by stack of the reclaiming task.
 *
 *   mm_vmscan_direct_reclaim_begin/end    a task allocates memory and none is free
 *   mm_vmscan_memcg_reclaim_begin/end     the same within the limit of its cgroup
 *   mm_vmscan_node_reclaim_begin/end      of one node (vm.zone_reclaim_mode)
 *   mm_vmscan_kswapd_wake/sleep           kswapd, the kernel thread of a node
 *   mm_vmscan_balance_pgdat_begin/end     its runs between these (7.x)
 *   mm_vmscan_lru_shrink_inactive         without the latter: when kswapd finished a batch
 *
 * Both events of a pair are in the same function, so the stack is the same at either. It is taken
 * at the end, when the duration is known, and is sampled by the same rule as stacks of lock waits.
 * Reclaim above a soft limit happens inside one of these, and is not counted again. Arguments are
 * not read: 7.x moved them.
 */

/* One object serves every kernel: 5.10 has no compare-and-swap. */
#define NO_SWAP

#include "waits.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Begins that had no room. */
__u64 no_room = 0;

struct reclaiming {
	/* 0: the thread is not reclaiming. */
	__u64 began;
	/* kswapd: when it finished its last batch. */
	__u64 last;
	/* Kind + 1. */
	__u32 kind;
	__u32 pad;
};

/* By thread. A thread does not exit while it reclaims, so no entry is left behind. */
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

/* Index of the row and the scratch space, which each program has per CPU; see waits.h. */
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
		/* Or the end of a task that was filtered out. */
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
 * Between two runs kswapd naps for a tenth of a second, and goes to sleep only if nothing wakes it
 * during that time. So, if the kernel has no event for it, a run ends with its last batch of pages.
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
