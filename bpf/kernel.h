/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The kernel types and fields that we read, as hand-written CO-RE views: no vmlinux.h is needed. */
#ifndef KERNEL_H
#define KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

/* ---- stacks ---- */

/* uapi/linux/bpf.h: fixed numbers, the same on every kernel. */
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_RINGBUF	  27
#define BPF_F_USER_STACK	  (1ULL << 8)
#define BPF_RB_NO_WAKEUP	  (1ULL << 0)

/* linux/sched.h: a macro, so not in BTF; unchanged since 2.6. */
#define PF_KTHREAD 0x00200000

struct task_struct {
	unsigned int flags;
} __attribute__((preserve_access_index));

/* The registers in front of it differ by architecture: CO-RE finds the offset. */
struct bpf_perf_event_data {
	__u64 sample_period;
} __attribute__((preserve_access_index));

/* ---- end of stacks ---- */

#endif
