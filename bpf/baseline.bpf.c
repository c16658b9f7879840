/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Does nothing: its run time is what the kernel's program statistics themselves cost on this
 * machine at this moment. It is attached only while the statistics are switched on.
 */
#include "kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("tp_btf/block_rq_issue")
int BPF_PROG(baseline, struct request *rq)
{
	return 0;
}
