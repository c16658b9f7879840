/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Yardsticks: what the kernel's program statistics and the clock themselves cost on this machine
 * at this moment. Attached only while the statistics are switched on.
 */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Does nothing: its run time is that of the statistics alone. */
SEC("tp_btf/block_rq_issue")
int BPF_PROG(baseline, struct request *rq)
{
	return 0;
}

/* The same beside the programs of locks, which block I/O may never come to. */
SEC("?tp_btf/contention_begin")
int BPF_PROG(lock_baseline, void *lock, unsigned int flags)
{
	return 0;
}

/* The same beside the program of blocked tasks. */
SEC("?tp_btf/sched_switch")
int BPF_PROG(switch_baseline)
{
	return 0;
}

/*
 * One clock read on each event that begins or ends a stage: what no tool that stamps these events
 * can go below. For the benchmark.
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
