/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Declares maps. User space sets the size of those that have one entry here. */
#ifndef BIOPSY_MAPS_H
#define BIOPSY_MAPS_H

#include <bpf/bpf_helpers.h>

#define ARRAY(name, of, entries)                                                                   \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                  \
		__uint(max_entries, entries);                                                      \
		__type(key, __u32);                                                                \
		__type(value, of);                                                                 \
	} name SEC(".maps")

/*
 * The maps of the hot path are mmapable: only then does the kernel begin their values at a page,
 * and elements of 64 bytes are cache lines. (Else they follow a header, which is 312 bytes
 * on 6.18.)
 */
#define MAPPED_ARRAY(name, of, entries)                                                            \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                  \
		__uint(map_flags, BPF_F_MMAPABLE);                                                 \
		__uint(max_entries, entries);                                                      \
		__type(key, __u32);                                                                \
		__type(value, of);                                                                 \
	} name SEC(".maps")

#define HASH(name, from, to, entries)                                                              \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_HASH);                                                   \
		__uint(max_entries, entries);                                                      \
		__type(key, from);                                                                 \
		__type(value, to);                                                                 \
	} name SEC(".maps")

#endif
