/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What bpf/pagecache.bpf.c and bpf/paths.bpf.c count. For wire.h. */
#ifndef BIOPSY_WIRE_PAGECACHE_H
#define BIOPSY_WIRE_PAGECACHE_H

/* Who reclaims memory. The later ones run inside the first ones where they nest. */
enum wire_reclaim_kind {
	RECLAIM_KSWAPD,
	/* A task that wants memory, for the machine. */
	RECLAIM_DIRECT,
	/* The same for its cgroup, which has reached its limit; or somebody wrote to
	   memory.reclaim. */
	RECLAIM_MEMCG,
	/* Of a cgroup above its soft limit (v1): inside one of the first two. */
	RECLAIM_SOFTLIMIT,
	/* Of one node only (vm.zone_reclaim_mode). */
	RECLAIM_NODE,
	/* None that was seen to begin. */
	RECLAIM_OTHER,
	RECLAIM_KINDS,
};

/* Pages of programs, and of files. */
#define PAGE_KINDS 2

/* One kind of reclaim on one node: by kind × nodes + node. */
struct wire_reclaim {
	/* The kernel's side: held while an extent is raised. */
	__u64 lock;
	/* Of the node where the task ran; of kswapd its own. */
	__u64 begun;
	__u64 ended;
	struct wire_extent time;
	/* Batches of pages of this node, and what they held (lru_shrink_inactive). */
	__u64 batches;
	__u64 scanned[PAGE_KINDS];
	__u64 reclaimed[PAGE_KINDS];
	/* Sleeps in reclaim that is not worth going on, and how long they took. */
	__u64 throttled;
	__u64 throttled_us;
	__u64 pad[3];
	__u64 counts[HIST_BUCKETS];
};
_Static_assert(sizeof(struct wire_reclaim) == 128 + 8 * HIST_BUCKETS, "wire_reclaim");

/* Pages that a kind of reclaim took from the inactive lists to look at. */
struct wire_isolated {
	__u64 looked_at[PAGE_KINDS];
	__u64 taken[PAGE_KINDS];
};
_Static_assert(sizeof(struct wire_isolated) == 32, "wire_isolated");

/* Whose reclaim it was, of those that are not kswapd's. */
struct wire_reclaimer_key {
	/* Of the memory controller: the inode number of its folder; 0: none. */
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

/* Read-ahead of the machine; a set per CPU. */
struct wire_readahead {
	/* Calls, and the pages that they asked for. */
	__u64 calls;
	__u64 asked;
	/* Reads of files through the page cache, and the pages that they wanted. */
	__u64 reads;
	__u64 wanted;
	/* Pages of mapped files that were touched; and those that were mapped as a neighbour was,
	 * for they were in the cache: whether anybody touched them no event tells. */
	__u64 faulted;
	__u64 mapped;
	__u64 pad[2];
};
_Static_assert(sizeof(struct wire_readahead) == 64, "wire_readahead");

struct wire_pagecache_config {
	__u32 nodes;
	/* The place of `lru` among the arguments of mm_vmscan_lru_isolate. */
	__u32 lru_argument;
};
_Static_assert(sizeof(struct wire_pagecache_config) == 8, "wire_pagecache_config");

/* What finds no place, or no begin. */
struct wire_pagecache_lost {
	/* Begins of reclaim for which there was no room. */
	__u64 no_room;
	/* Ends whose begin was before the window, or was not seen. */
	__u64 no_begin;
	/* Reclaims whose process had no row of its own. */
	__u64 unnamed;
	/* Of nodes with a number that user space did not know. */
	__u64 no_node;
};
_Static_assert(sizeof(struct wire_pagecache_lost) == 32, "wire_pagecache_lost");

/* Functions of the kernel's that can be followed, the last of which is where spinlocks are waited
 * for. */
#define PATHS	  16
#define PATH_SPIN (PATHS - 1)

/* A function; a set per CPU. */
struct wire_path {
	__u64 calls;
	__u64 ns;
	/* Waits for spinlocks below it. */
	__u64 spins;
	__u64 spin_ns;
};
_Static_assert(sizeof(struct wire_path) == 32, "wire_path");

struct wire_paths_lost {
	/* Begins for which there was no room. */
	__u64 no_room;
	/* Begins of a function that the task is in already: in an interrupt, or the end was missed.
	 */
	__u64 torn;
	/* Ends without a begin: it was before the window, or one of those. */
	__u64 no_begin;
};
_Static_assert(sizeof(struct wire_paths_lost) == 24, "wire_paths_lost");

#endif
