/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What is counted per traced device beside its I/Os. For the latency programs, whose `config` must
 * stand before it.
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
