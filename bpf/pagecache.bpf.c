/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Measures memory reclaim and read-ahead: which tasks do it, how often, for how long, and with what
 * result.
 *
 *   mm_vmscan_direct_reclaim_begin/end             a task allocates memory and none is free
 *   mm_vmscan_memcg_reclaim_begin/end              the same within the limit of its cgroup
 *   mm_vmscan_memcg_softlimit_reclaim_begin/end    of a cgroup above its soft limit, inside another
 *   mm_vmscan_node_reclaim_begin/end               of one node (vm.zone_reclaim_mode)
 *   mm_vmscan_kswapd_wake/sleep                    kswapd, the kernel thread of a node
 *   mm_vmscan_balance_pgdat_begin/end              its runs between these (7.x)
 *   mm_vmscan_lru_isolate                          a batch of pages is isolated from a list
 *   mm_vmscan_lru_shrink_inactive                  the result for the batch
 *   mm_vmscan_throttled                            reclaim sleeps (5.16)
 *   page_cache_ra_unbounded/order                  pages are read ahead (6.16)
 *   mm_filemap_get_pages/fault/map_pages           pages of files are accessed (6.12)
 *
 * Arguments that moved between versions are not read: 7.x swapped the order and the flags of the
 * begin events and added the cgroup. A reclaim takes at least microseconds, and a batch is 32
 * pages, so hash maps and atomic additions are a small part of either.
 */

/* Compare-and-swap is not needed here, so one object serves every kernel. */
#define NO_SWAP

#include "kernel.h"
#include "compat.h"
#include "wire.h"
#include "cgroups.h"
#include "hist.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Written once, between open and load. */
const volatile struct wire_pagecache_config config = {};

/* Set when all programs are attached, cleared before the first is detached. */
volatile __u32 running = 0;

struct wire_pagecache_lost lost = {};

/* Index kind × nodes + node. */
ARRAY(reclaims, struct wire_reclaim, 1);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, RECLAIM_KINDS);
	__type(key, __u32);
	__type(value, struct wire_isolated);
} isolated SEC(".maps");

HASH(reclaimers, struct wire_reclaimer_key, struct wire_reclaimer, 4096);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wire_readahead);
} readaheads SEC(".maps");

/* The reclaim that a thread is currently in. */
struct within {
	/* By kind; 0: not in it. */
	__u64 began[RECLAIM_KINDS];
	/* When it finished its last batch of pages. */
	__u64 last;
	/* kswapd: its node. */
	__u64 node;
};

/* By thread. A thread does not exit while it reclaims, so no entry is left behind. */
HASH(withins, __u32, struct within, 16384);

static __always_inline struct wire_reclaim *reclaim_of(__u32 kind, __u32 node)
{
	__u32 at = kind * config.nodes + node;

	if (node >= config.nodes) {
		__sync_fetch_and_add(&lost.no_node, 1);
		return 0;
	}
	return bpf_map_lookup_elem(&reclaims, &at);
}

static __always_inline struct within *within_of(__u32 thread)
{
	return bpf_map_lookup_elem(&withins, &thread);
}

static __always_inline int begin(__u32 kind, __u32 node)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct within *within, new = {};
	struct wire_reclaim *row;

	if (!running)
		return 0;
	row = reclaim_of(kind, node);
	if (row)
		__sync_fetch_and_add(&row->begun, 1);
	within = within_of(thread);
	if (!within) {
		if (bpf_map_update_elem(&withins, &thread, &new, BPF_ANY)) {
			__sync_fetch_and_add(&lost.no_room, 1);
			return 0;
		}
		within = within_of(thread);
		if (!within)
			return 0;
		within->node = node;
	}
	within->began[kind] = bpf_ktime_get_ns();
	return 0;
}

static __always_inline void note_reclaimer(__u32 kind, __u64 took, __u64 pages)
{
	struct wire_reclaimer_key key = {.kind = kind, .pid = bpf_get_current_pid_tgid() >> 32};
	struct wire_reclaimer *row, new = {};

	key.cgroup = group_of((struct task_struct *)bpf_get_current_task(), memory_cgrp_id);
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	row = bpf_map_lookup_elem(&reclaimers, &key);
	if (!row) {
		/* Another thread of the process may have added it first. */
		bpf_map_update_elem(&reclaimers, &key, &new, BPF_NOEXIST);
		row = bpf_map_lookup_elem(&reclaimers, &key);
	}
	if (!row) {
		__sync_fetch_and_add(&lost.unnamed, 1);
		return;
	}
	__sync_fetch_and_add(&row->count, 1);
	__sync_fetch_and_add(&row->ns, took);
	__sync_fetch_and_add(&row->pages, pages);
	/* Two threads at once may leave the lower value; the histograms have the higher one. */
	if (row->max_ns < took)
		row->max_ns = took;
}

static __always_inline void count_end(__u32 kind, __u32 node, __u64 took)
{
	struct wire_reclaim *row = reclaim_of(kind, node);

	if (!row)
		return;
	__sync_fetch_and_add(&row->ended, 1);
	__sync_fetch_and_add(&row->time.sum, took);
	count_time(row->counts, &row->time.not_min, &row->time.max, &row->lock, took, 1);
}

static __always_inline int end(__u32 kind, __u64 pages)
{
	__u32 thread = bpf_get_current_pid_tgid();
	struct within *within;
	__u64 took, others = 0;

	if (!running)
		return 0;
	within = within_of(thread);
	if (!within || !within->began[kind]) {
		__sync_fetch_and_add(&lost.no_begin, 1);
		return 0;
	}
	took = bpf_ktime_get_ns() - within->began[kind];
	count_end(kind, within->node, took);
	within->began[kind] = 0;
#pragma unroll
	for (int i = 0; i < RECLAIM_KINDS; i++)
		others |= within->began[i];
	if (!others)
		bpf_map_delete_elem(&withins, &thread);
	if (kind != RECLAIM_KSWAPD)
		note_reclaimer(kind, took, pages);
	return 0;
}

#define RECLAIM(name, kind)                                                                        \
	SEC("tp_btf/mm_vmscan_" #name "_begin")                                                    \
	int BPF_PROG(name##_begin)                                                                 \
	{                                                                                          \
		return begin(kind, bpf_get_numa_node_id());                                        \
	}                                                                                          \
	SEC("tp_btf/mm_vmscan_" #name "_end")                                                      \
	int BPF_PROG(name##_end, unsigned long pages)                                              \
	{                                                                                          \
		return end(kind, pages);                                                           \
	}

RECLAIM(direct_reclaim, RECLAIM_DIRECT)
RECLAIM(memcg_reclaim, RECLAIM_MEMCG)
RECLAIM(memcg_softlimit_reclaim, RECLAIM_SOFTLIMIT)
RECLAIM(node_reclaim, RECLAIM_NODE)

/*
 * Between two runs kswapd naps for a tenth of a second, and goes to sleep only if nothing wakes it
 * during that time. So, if the kernel has no event for it, a run ends with its last batch of pages.
 */
static __always_inline void end_kswapd(void)
{
	struct within *within = within_of(bpf_get_current_pid_tgid());
	__u64 began;

	if (!within || !within->began[RECLAIM_KSWAPD])
		return;
	began = within->began[RECLAIM_KSWAPD];
	within->began[RECLAIM_KSWAPD] = 0;
	count_end(RECLAIM_KSWAPD, within->node, within->last > began ? within->last - began : 0);
}

SEC("?tp_btf/mm_vmscan_kswapd_wake")
int BPF_PROG(kswapd_wake, int node)
{
	if (!running)
		return 0;
	end_kswapd();
	return begin(RECLAIM_KSWAPD, node);
}

SEC("?tp_btf/mm_vmscan_kswapd_sleep")
int BPF_PROG(kswapd_sleep)
{
	if (running)
		end_kswapd();
	return 0;
}

SEC("?tp_btf/mm_vmscan_balance_pgdat_begin")
int BPF_PROG(balance_begin, int node)
{
	return begin(RECLAIM_KSWAPD, node);
}

SEC("?tp_btf/mm_vmscan_balance_pgdat_end")
int BPF_PROG(balance_end)
{
	return end(RECLAIM_KSWAPD, 0);
}

/* The innermost kind of reclaim that the thread is currently in. */
static __always_inline __u32 innermost(struct within *within)
{
	if (!within)
		return RECLAIM_OTHER;
	if (within->began[RECLAIM_SOFTLIMIT])
		return RECLAIM_SOFTLIMIT;
	if (within->began[RECLAIM_MEMCG])
		return RECLAIM_MEMCG;
	if (within->began[RECLAIM_NODE])
		return RECLAIM_NODE;
	if (within->began[RECLAIM_DIRECT])
		return RECLAIM_DIRECT;
	if (within->began[RECLAIM_KSWAPD])
		return RECLAIM_KSWAPD;
	return RECLAIM_OTHER;
}

SEC("tp_btf/mm_vmscan_lru_shrink_inactive")
int BPF_PROG(lru_shrink_inactive, int node, unsigned long scanned, unsigned long reclaimed,
	     void *stat, int priority, int file)
{
	struct wire_reclaim *row;
	struct within *within;
	__u32 kind;

	if (!running)
		return 0;
	within = within_of(bpf_get_current_pid_tgid());
	kind = innermost(within);
	if (kind == RECLAIM_KSWAPD && within)
		within->last = bpf_ktime_get_ns();
	row = reclaim_of(kind, node);
	if (!row)
		return 0;
	__sync_fetch_and_add(&row->batches, 1);
	if (file) {
		__sync_fetch_and_add(&row->scanned[1], scanned);
		__sync_fetch_and_add(&row->reclaimed[1], reclaimed);
	} else {
		__sync_fetch_and_add(&row->scanned[0], scanned);
		__sync_fetch_and_add(&row->reclaimed[0], reclaimed);
	}
	return 0;
}

/* Before 6.8 an isolate mode preceded the index of the list (3dfbb555c98a). */
SEC("tp_btf/mm_vmscan_lru_isolate")
int lru_isolate(unsigned long long *ctx)
{
	struct wire_isolated *row;
	__u64 lru, scanned, taken;
	__u32 kind;

	if (!running)
		return 0;
	if (config.lru_argument == 6)
		asm volatile("%0 = *(u64 *)(%1 + 48)" : "=r"(lru) : "r"(ctx));
	else
		asm volatile("%0 = *(u64 *)(%1 + 56)" : "=r"(lru) : "r"(ctx));
	scanned = ctx[3];
	taken = ctx[5];
	/* Active lists have odd numbers: pages taken from those move to the inactive lists. */
	if ((__u32)lru & 1)
		return 0;
	kind = innermost(within_of(bpf_get_current_pid_tgid()));
	row = bpf_map_lookup_elem(&isolated, &kind);
	if (!row)
		return 0;
	if ((__u32)lru) {
		__sync_fetch_and_add(&row->looked_at[1], scanned);
		__sync_fetch_and_add(&row->taken[1], taken);
	} else {
		__sync_fetch_and_add(&row->looked_at[0], scanned);
		__sync_fetch_and_add(&row->taken[0], taken);
	}
	return 0;
}

SEC("?tp_btf/mm_vmscan_throttled")
int BPF_PROG(throttled, int node, int timeout_us, int delayed_us)
{
	struct wire_reclaim *row;

	if (!running)
		return 0;
	row = reclaim_of(innermost(within_of(bpf_get_current_pid_tgid())), node);
	if (!row)
		return 0;
	__sync_fetch_and_add(&row->throttled, 1);
	if (delayed_us > 0)
		__sync_fetch_and_add(&row->throttled_us, delayed_us);
	return 0;
}

static __always_inline struct wire_readahead *readahead(void)
{
	__u32 zero = 0;

	return running ? bpf_map_lookup_elem(&readaheads, &zero) : 0;
}

/*
 * Atomic, since on 7.x a task can be preempted in between by another that counts on this CPU too.
 */
static __always_inline int ask(__u64 pages)
{
	struct wire_readahead *row = readahead();

	if (!row)
		return 0;
	__sync_fetch_and_add(&row->calls, 1);
	__sync_fetch_and_add(&row->asked, pages);
	return 0;
}

/*
 * The flags contain the lowest and then the highest order of a mapping's folios, in five bits each.
 */
#define FOLIO_ORDER_BITS 5
#define PAGE_SHIFT	 12

/*
 * Pages that read-ahead requests in folios of several pages. If the mapping does not support such
 * folios, it calls page_cache_ra_unbounded, which is counted separately.
 */
static __always_inline __u64 large_pages(struct inode *inode, __u64 index, struct file_ra_state *ra)
{
	__u64 flags, end, pages;
	__u32 shift;

	if (!bpf_core_enum_value_exists(enum mapping_flags, AS_FOLIO_ORDER_MIN))
		return 0;
	flags = BPF_CORE_READ(inode, i_mapping, flags);
	shift = bpf_core_enum_value(enum mapping_flags, AS_FOLIO_ORDER_MIN) + FOLIO_ORDER_BITS;
	if (!(flags >> (shift & 63) & ((1 << FOLIO_ORDER_BITS) - 1)))
		return 0;
	/* Not beyond the end of the file. */
	end = (BPF_CORE_READ(inode, i_size) + (1 << PAGE_SHIFT) - 1) >> PAGE_SHIFT;
	pages = BPF_CORE_READ(ra, size);
	if (index >= end)
		return 0;
	return pages < end - index ? pages : end - index;
}

SEC("?tp_btf/page_cache_ra_unbounded")
int BPF_PROG(ra_unbounded, struct inode *inode, unsigned long index, unsigned long pages)
{
	return ask(pages);
}

SEC("?tp_btf/page_cache_ra_order")
int BPF_PROG(ra_order, struct inode *inode, unsigned long index, struct file_ra_state *ra)
{
	__u64 pages = running ? large_pages(inode, index, ra) : 0;

	return pages ? ask(pages) : 0;
}

/* The same by function entry instead of events, before 6.16, if functions can be probed. */
SEC("?fentry/page_cache_ra_unbounded")
int BPF_PROG(ra_unbounded_call, struct readahead_control *control, unsigned long pages)
{
	return ask(pages);
}

SEC("?fentry/page_cache_ra_order")
int BPF_PROG(ra_order_call, struct readahead_control *control, struct file_ra_state *ra)
{
	struct address_space *mapping = control->mapping;
	__u64 pages;

	if (!running)
		return 0;
	pages = large_pages(BPF_CORE_READ(mapping, host), control->_index, ra);
	return pages ? ask(pages) : 0;
}

/*
 * The last read of a thread: a long read has one event per batch of folios, each with the same end.
 * Threads with the same index make each other's continued reads count again, which is the only
 * effect.
 */
struct last_read {
	__u64 mapping;
	__u64 end;
	__u64 index;
	__u64 thread;
};

#define LAST_READS 4096

ARRAY(last_reads, struct last_read, LAST_READS);

SEC("?tp_btf/mm_filemap_get_pages")
int BPF_PROG(get_pages, struct address_space *mapping, unsigned long index, unsigned long last)
{
	__u32 thread = bpf_get_current_pid_tgid();
	__u32 place = thread & (LAST_READS - 1);
	struct wire_readahead *row = readahead();
	struct last_read *read;
	int again;

	read = bpf_map_lookup_elem(&last_reads, &place);
	if (!row || !read)
		return 0;
	again = read->thread == thread && read->mapping == (__u64)mapping && read->end == last &&
		index > read->index;
	read->thread = thread;
	read->mapping = (__u64)mapping;
	read->end = last;
	read->index = index;
	if (again || last < index)
		return 0;
	__sync_fetch_and_add(&row->reads, 1);
	__sync_fetch_and_add(&row->wanted, last - index + 1);
	return 0;
}

SEC("?tp_btf/mm_filemap_fault")
int BPF_PROG(fault)
{
	struct wire_readahead *row = readahead();

	if (row)
		__sync_fetch_and_add(&row->faulted, 1);
	return 0;
}

SEC("?tp_btf/mm_filemap_map_pages")
int BPF_PROG(map_pages, struct address_space *mapping, unsigned long first, unsigned long last)
{
	struct wire_readahead *row = readahead();

	if (row && last >= first)
		__sync_fetch_and_add(&row->mapped, last - first + 1);
	return 0;
}
