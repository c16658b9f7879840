/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The sets that -p, --comm and --cgroup select by. Each view decides which task it looks up. */
#ifndef BIOPSY_FILTER_SETS_H
#define BIOPSY_FILTER_SETS_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>

struct comm {
	char bytes[16];
};

/* Filled by user space: what each option names. */
HASH(filter_pids, __u32, __u8, 1);

HASH(filter_comms, struct comm, __u8, 1);

/* With all that were below them when the view began. */
HASH(filter_cgroups, __u64, __u8, 1);

#endif
