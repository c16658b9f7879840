/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Declares the counters of bpf/pagecache.bpf.c and bpf/paths.bpf.c. Included by wire.h. */
#ifndef BIOPSY_WIRE_PAGECACHE_H
#define BIOPSY_WIRE_PAGECACHE_H

/* Kinds of memory reclaim. Where kinds nest, the later ones run inside the first ones. */
enum wire_reclaim_kind {
	RECLAIM_KSWAPD,
	/* Direct reclaim for the machine, by an allocating task. */
	RECLAIM_DIRECT,
	/* Direct reclaim for the task's cgroup at its limit, or by a write to memory.reclaim. */
	RECLAIM_MEMCG,
	/* Of a cgroup above its soft limit (v1): runs inside one of the first two. */
	RECLAIM_SOFTLIMIT,
	/* Of one node only (vm.zone_reclaim_mode). */
	RECLAIM_NODE,
	/* Its begin was missed. */
	RECLAIM_OTHER,
	RECLAIM_KINDS,
};

/* Anonymous pages, and file pages. */
#define PAGE_KINDS 2

/* One kind of reclaim on one node; index kind × nodes + node. */
struct wire_reclaim {
	/* Kernel side only: taken while an extent is updated. */
	__u64 lock;
	/* Counted at the node where the task ran; kswapd at its own node. */
	__u64 begun;
	__u64 ended;
	struct wire_extent time;
	/* Batches of pages of this node, and their pages (lru_shrink_inactive). */
	__u64 batches;
	__u64 scanned[PAGE_KINDS];
	__u64 reclaimed[PAGE_KINDS];
	/* Sleeps of reclaim that made too little progress, and their time. */
	__u64 throttled;
	__u64 throttled_us;
	__u64 pad[3];
	__u64 counts[HIST_BUCKETS];
};
_Static_assert(sizeof(struct wire_reclaim) == 128 + 8 * HIST_BUCKETS, "wire_reclaim");

/* Pages of the inactive lists that a kind of reclaim scanned and isolated. */
struct wire_isolated {
	__u64 looked_at[PAGE_KINDS];
	__u64 taken[PAGE_KINDS];
};
_Static_assert(sizeof(struct wire_isolated) == 32, "wire_isolated");

/* Process that reclaimed memory, other than kswapd. */
struct wire_reclaimer_key {
	/* Cgroup of the memory controller, as the inode number of its directory; 0: none. */
	__u64 cgroup;
	/* Thread group. */
	__u32 pid;
	__u32 kind;
	char comm[16];
};
_Static_assert(sizeof(struct wire_reclaimer_key) == 32, "wire_reclaimer_key");

struct wire_reclaimer {
	__u64 count;
	__u64 ns;
	__u64 max_ns;
	__u64 pages;
};
_Static_assert(sizeof(struct wire_reclaimer) == 32, "wire_reclaimer");

/* Read-ahead of the whole machine; one record per CPU. */
struct wire_readahead {
	/* Read-ahead calls, and the pages that they requested. */
	__u64 calls;
	__u64 asked;
	/* Reads of files through the page cache, and the pages that they needed. */
	__u64 reads;
	__u64 wanted;
	/* Faults on pages of mapped files; and cached pages that were mapped around a faulting page
	 * (fault-around). No event shows whether these were accessed. */
	__u64 faulted;
	__u64 mapped;
	__u64 pad[2];
};
_Static_assert(sizeof(struct wire_readahead) == 64, "wire_readahead");

struct wire_pagecache_config {
	__u32 nodes;
	/* Index of `lru` among the arguments of mm_vmscan_lru_isolate. */
	__u32 lru_argument;
};
_Static_assert(sizeof(struct wire_pagecache_config) == 8, "wire_pagecache_config");

/* Events that could not be counted or paired. */
struct wire_pagecache_lost {
	/* Begins of reclaim that had no room. */
	__u64 no_room;
	/* Ends whose begin was before the interval, or was missed. */
	__u64 no_begin;
	/* Reclaims whose process had no row. */
	__u64 unnamed;
	/* Events of nodes with a number that user space did not know. */
	__u64 no_node;
};
_Static_assert(sizeof(struct wire_pagecache_lost) == 32, "wire_pagecache_lost");

/* Number of kernel functions that can be followed; the last one is the spinlock slow path. */
#define PATHS	  16
#define PATH_SPIN (PATHS - 1)

/* One function; one record per CPU. */
struct wire_path {
	__u64 calls;
	__u64 ns;
	/* Spinlock waits below it. */
	__u64 spins;
	__u64 spin_ns;
};
_Static_assert(sizeof(struct wire_path) == 32, "wire_path");

struct wire_paths_lost {
	/* Begins that had no room. */
	__u64 no_room;
	/* Begins of a function that the task is already in: called from an interrupt, or the end
	 * was missed. */
	__u64 torn;
	/* Ends without a begin: it was before the interval, or had no room. */
	__u64 no_begin;
};
_Static_assert(sizeof(struct wire_paths_lost) == 24, "wire_paths_lost");

#endif
