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
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u8);
} wanted_pids SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct comm);
	__type(value, __u8);
} wanted_comms SEC(".maps");

/* With all that were below them when the view began. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u8);
} wanted_cgroups SEC(".maps");

#endif
