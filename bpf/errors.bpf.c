/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Counts errors of block I/O and requeued requests, by device, class and cause.
 *
 *   block_rq_complete   with an error. block_rq_error (5.18) omits those that the kernel does not
 *                       log: passthrough, and requests marked quiet
 *   block_rq_requeue    returned by the driver: it had no room for the request, or it is retried
 */

/* One object serves every kernel: 5.10 has no compare-and-swap. */
#define NO_SWAP

#include "kernel.h"
#include "compat.h"
#include "wire.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* See was_tried. */
const volatile __u32 rqf_timed_out = 0;

/* Recording is on. */
volatile __u32 running = 0;

/* Events that had no room for a row. */
__u64 no_room = 0;

/* One row per kind of error and device. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct wire_error);
	__type(value, struct wire_error_row);
} error_rows SEC(".maps");

static __always_inline int count(struct request *rq, __u32 event, __u32 status, __u32 bytes)
{
	struct gendisk *disk = request_disk(rq);
	struct wire_error key = {
	    .event = event, .status = status, .op = classify(BPF_CORE_READ(rq, cmd_flags))};
	struct wire_error_row none = {}, *row;

	/* A queue without a disk: a controller's admin commands. */
	if (disk)
		key.device = BPF_CORE_READ(disk, major) << 20 | BPF_CORE_READ(disk, first_minor);
	row = bpf_map_lookup_elem(&error_rows, &key);
	if (!row) {
		/* Another CPU may have added it meanwhile. */
		bpf_map_update_elem(&error_rows, &key, &none, BPF_NOEXIST);
		row = bpf_map_lookup_elem(&error_rows, &key);
	}
	if (!row) {
		__sync_fetch_and_add(&no_room, 1);
		return 0;
	}
	__sync_fetch_and_add(&row->events, 1);
	__sync_fetch_and_add(&row->bytes, bytes);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(errors_complete, struct request *rq, int error, unsigned int nr_bytes)
{
	/* A negative errno on 5.10, a blk_status_t of eight bits on 6.1. */
	__u32 status = error < 0 ? error : error & 0xff;

	if (!status || !running)
		return 0;
	return count(rq, ERROR_FAILED, status, nr_bytes);
}

SEC("tp_btf/block_rq_requeue")
int BPF_PROG(errors_requeue)
{
	struct request *rq = argument(ctx, arguments.rq_requeue);

	if (!running)
		return 0;
	return count(rq, was_tried(rq, rqf_timed_out) ? ERROR_RETRIED : ERROR_REQUEUED, 0,
		     FIELD(rq, __data_len));
}
