/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Who was named with -p, --comm and --cgroup. What is asked of whom is the matter of each view. */
#ifndef BIOPSY_WANTED_H
#define BIOPSY_WANTED_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>

struct comm {
	char bytes[16];
};

/* What was named, of each kind; user space fills them. */
HASH(wanted_pids, __u32, __u8, 1);

HASH(wanted_comms, struct comm, __u8, 1);

/* With all that were below them when the view began. */
HASH(wanted_cgroups, __u64, __u8, 1);

#endif
