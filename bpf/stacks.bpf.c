/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Samples on-CPU stacks: one record per perf event overflow, with the whole stack.
 *
 * No stack-id map is used: its ids collide, and a collision loses or mixes up stacks. User space
 * counts equal stacks together.
 */
#include "kernel.h"
#include "compat.h"
#include "filter_sets.h"
#include "wire.h"
#include "cgroups.h"
#include "work.h"

#define STACK_BYTES (STACK_FRAMES * sizeof(__u64))

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Written once, between open and load. */
const volatile struct stack_config config = {};

struct wire_stack_counters counters = {};

/* Too large for the BPF stack. One per CPU is enough: an overflow does not interrupt another. */
struct scratch {
	struct wire_stack_sample head;
	__u64 ips[2 * STACK_FRAMES];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} stack_scratch SEC(".maps");

/* User space sets the size, by number of CPUs and frequency. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} stack_ring SEC(".maps");

SEC("perf_event")
int stack_sample(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0;
	struct scratch *s = bpf_map_lookup_elem(&stack_scratch, &zero);
	struct task_struct *task = (void *)bpf_get_current_task();
	__u64 id = bpf_get_current_pid_tgid();
	long kernel, user = 0;

	if (config.cgroups_enabled) {
		__u64 cgroup = cgroup_of_task(task, config.unified_cgroups);

		if (!bpf_map_lookup_elem(&filter_cgroups, &cgroup))
			return 0;
	}
	if (!s) {
		__sync_fetch_and_add(&counters.no_scratch, 1);
		return 0;
	}
	s->head.pid = id >> 32;
	s->head.tid = id;
	s->head.cpu = bpf_get_smp_processor_id();
	s->head.flags = BPF_CORE_READ(task, flags) & PF_KTHREAD ? STACK_KTHREAD : 0;
	s->head.period = ctx->sample_period;
	bpf_get_current_comm(s->head.comm, sizeof(s->head.comm));

	/* Unwinds from the interrupted registers, so the sampler's own interrupt is not in the
	 * stack. */
	kernel = bpf_get_stack(ctx, s->ips, STACK_BYTES, 0);
	if (kernel < 0) {
		s->head.flags |= STACK_KERNEL_FAILED;
		kernel = 0;
	}
	/* Placed right after the kernel frames, so that the ring buffer carries only actual
	 * frames. */
	if (s->head.flags & STACK_KTHREAD) {
		user = name_work(task, (void *)s->ips + kernel) * sizeof(__u64);
		if (user)
			s->head.flags |= STACK_WORK;
	} else if (s->head.pid) {
		user = bpf_get_stack(ctx, (void *)s->ips + kernel, STACK_BYTES, BPF_F_USER_STACK);
		if (user < 0) {
			s->head.flags |= STACK_USER_FAILED;
			user = 0;
		}
	}
	s->head.kernel_frames = kernel / sizeof(__u64);
	s->head.user_frames = user / sizeof(__u64);

	/* User space polls by the clock: a wakeup would cost more than the sample. */
	if (bpf_ringbuf_output(&stack_ring, s, sizeof(s->head) + kernel + user, BPF_RB_NO_WAKEUP))
		__sync_fetch_and_add(&counters.ring_full, 1);
	return 0;
}
