/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Emits events without an I/O for the benchmark of the event stream: as many at once as it
 * requests, on the same path as events of I/Os.
 */
#include "kernel.h"
#include "emit.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static long emit_one(__u32 i, void *none)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct wire_emitter *emitter = bpf_map_lookup_elem(&emitters, &cpu);
	struct wire_io io = {
	    .queued = 1,
	    .issued = 2,
	    .reaped = 3,
	    .ended = 4,
	    .sector = i,
	    .bytes = 4096,
	};

	if (!emitter)
		return 1;
	number_io(&io, cpu, emitter);
	send_io(&io, cpu, emitter);
	return 0;
}

/* Not attached: user space runs it. */
SEC("raw_tp")
int BPF_PROG(emit_events, __u64 count)
{
	bpf_loop(count, emit_one, 0, 0);
	return 0;
}
