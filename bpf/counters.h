/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Counts rare events per traced device. For the latency programs, which define `config` before this
 * header.
 */
#ifndef BIOPSY_COUNTERS_H
#define BIOPSY_COUNTERS_H

#include "owner.h"
#include "wire.h"

ARRAY(counters, struct wire_counters, MAX_DEVICES);

static __always_inline struct wire_counters *counters_of(struct owner *owner)
{
	return bpf_map_lookup_elem(&counters, &owner->device);
}

#define COUNT(owner, field)                                                                        \
	({                                                                                         \
		struct wire_counters *c = counters_of(owner);                                      \
		if (c)                                                                             \
			__sync_fetch_and_add(&c->field, 1);                                        \
	})

#endif
