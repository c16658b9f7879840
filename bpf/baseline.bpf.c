/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Baselines: what the kernel's program statistics and the clock cost on this machine right now.
 * Attached only while the statistics are enabled.
 */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* An empty program: its run time is the cost of the statistics alone. */
SEC("tp_btf/block_rq_issue")
int BPF_PROG(baseline, struct request *rq)
{
	return 0;
}

/* The same at an event of the lock programs, as there may be no block I/O while they run. */
SEC("?tp_btf/contention_begin")
int BPF_PROG(lock_baseline, void *lock, unsigned int flags)
{
	return 0;
}

/* The same at the event of the program of blocked tasks. */
SEC("?tp_btf/sched_switch")
int BPF_PROG(switch_baseline)
{
	return 0;
}

/*
 * One clock read at each event that begins or ends a stage: a lower bound for any tool that takes
 * timestamps at these events. For the benchmark.
 */
static __always_inline int read_clock(void)
{
	bpf_ktime_get_ns();
	return 0;
}

SEC("?tp_btf/block_bio_queue")
int BPF_PROG(clock_queue, struct bio *bio)
{
	return read_clock();
}

SEC("?tp_btf/block_rq_issue")
int BPF_PROG(clock_issue, struct request *rq)
{
	return read_clock();
}

SEC("?tp_btf/block_rq_complete")
int BPF_PROG(clock_complete, struct request *rq)
{
	return read_clock();
}
