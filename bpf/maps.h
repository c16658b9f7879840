/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Defines macros that declare maps. User space sets the size of maps that are declared with one
 * entry.
 */
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
 * Maps of the hot path are mmapable: only then does the kernel begin their values at a page
 * boundary, so that elements of 64 bytes are cache lines. (Otherwise values follow a header, which
 * is 312 bytes on 6.18.)
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
