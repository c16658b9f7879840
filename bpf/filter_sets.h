/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Declares the sets that -p, --comm and --cgroup select by. Each view decides which task it looks
 * up.
 */
#ifndef BIOPSY_FILTER_SETS_H
#define BIOPSY_FILTER_SETS_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>

struct comm {
	char bytes[16];
};

/* User space fills these with the arguments of each option. */
HASH(filter_pids, __u32, __u8, 1);

HASH(filter_comms, struct comm, __u8, 1);

/* Includes all descendants that existed when the view began. */
HASH(filter_cgroups, __u64, __u8, 1);

#endif
