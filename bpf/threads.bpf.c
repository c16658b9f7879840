/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Samples what all threads are doing: state, system call, kernel stack, cgroup.
 *
 *   sample_threads   all threads in one run (6.7 and newer)
 *   sample_thread    the same as an iterator, one thread per run: takes ten times as long
 *   block_bio_queue  the disk that a thread submits a bio to, only if devices are enabled
 *
 * Most threads of a machine sleep and are skipped after three loads. The programs run when and
 * where user space starts them, so their cost is CPU time of the tool itself.
 */

/* Compare-and-swap is not needed here, so one object serves every kernel. */
#define NO_SWAP

#include "kernel.h"
#include "compat.h"
#include "wire.h"
#include "cgroups.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Written once, between open and load. */
const volatile struct wire_threads_config config = {};

/* Threads that were examined and skipped, and those that had no room in the ring buffer. */
__u64 passed = 0;
__u64 cut = 0;

/* User space sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} thread_ring SEC(".maps");

/* linux/sched.h: macros, so not in BTF; the same numbers from 5.10 to 7.2. */
#define TASK_INTERRUPTIBLE   0x0001
#define TASK_UNINTERRUPTIBLE 0x0002
#define TASK_NOLOAD	     0x0400
/* The bits for which `ps` shows a letter; a task that is being woken (0x200) has none of them. */
#define TASK_REPORTED 0x007f
/* Since 5f220be21418 (5.16), with PREEMPT_RT; in 5.10 above all states. */
#define TASK_RTLOCK_WAIT 0x1000

/*
 * Too large for the BPF stack. One is enough: user space starts one sample at a time, and the
 * program of the event does not use it.
 */
struct scratch {
	struct wire_thread head;
	__u64 ips[THREAD_FRAMES];
};

ARRAY(thread_scratch, struct scratch, 1);

/* The last bio of a thread: its disk, and how often the thread had slept by then. */
struct handed {
	/* With the thread id this distinguishes a thread from a later one. */
	__u64 start_time;
	__u64 switches;
	__u32 device;
	__u32 lower;
};

/* By thread. The oldest are evicted: their device is unknown. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct handed);
} handed_bios SEC(".maps");

static __always_inline int is_in_iowait(struct task_struct *task)
{
	return BPF_CORE_READ_BITFIELD(task, in_iowait);
}

static __always_inline int is_on_cpu(struct task_struct *task)
{
	return bpf_core_field_exists(struct task_struct, on_cpu) && task->on_cpu;
}

/* Neither runnable nor in an uninterruptible sleep. */
static __always_inline int is_asleep(__u32 state)
{
	if (!state)
		return 0;
	if (state & TASK_UNINTERRUPTIBLE)
		/* An idle kernel thread. */
		return !!(state & TASK_NOLOAD);
	return !(state & TASK_RTLOCK_WAIT);
}

/*
 * The system call that a thread is in. For a thread on a CPU the registers are those of its last
 * entry, and whether it has left the kernel since is unknown.
 */
static __always_inline void note_syscall(struct task_struct *task, struct wire_thread *to)
{
	const struct pt_regs *registers;
	unsigned long number = -1;

	if (!bpf_core_field_exists(struct pt_regs, orig_ax))
		return;
	registers = registers_of(task);
	if (bpf_core_read(&number, sizeof(number), &registers->orig_ax) || (long)number < 0)
		return;
	to->syscall = number;
	to->flags |= THREAD_SYSCALL;
	if (bpf_core_field_exists(struct thread_info, status) &&
	    BPF_CORE_READ(task, thread_info.status) & THREAD_STATUS_COMPAT)
		to->flags |= THREAD_COMPAT;
}

static __always_inline __u64 cgroup_of(struct task_struct *task)
{
	if (config.unified_cgroups)
		return BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
	/* The block controller's own hierarchy. */
	return group_of(task, io_cgrp_id);
}

/*
 * The disk that a thread waits for: the thread has submitted a bio, and has gone to sleep exactly
 * once since, which is this sleep. It may wait for older I/O, its own or another thread's, but not
 * for later I/O.
 */
static __always_inline void note_device(struct task_struct *task, struct wire_thread *to)
{
	struct handed *last = bpf_map_lookup_elem(&handed_bios, &to->tid);

	if (!last || last->start_time != BPF_CORE_READ(task, start_time) ||
	    last->switches + 1 != BPF_CORE_READ(task, nvcsw))
		return;
	to->device = last->device;
	to->lower = last->lower;
}

static __always_inline void note_thread(struct task_struct *task, struct wire_thread *to,
					__u32 state)
{
	to->pid = task->tgid;
	to->tid = task->pid;
	to->state = state;
	to->exit_state = task->exit_state;
	to->flags = has_no_user_side(task->flags) ? THREAD_KERNEL : 0;
	to->syscall = 0;
	to->device = 0;
	to->lower = 0;
	to->cpu = cpu_of(task);
	to->last_ran = 0;
	to->cgroup = config.cgroups_enabled ? cgroup_of(task) : 0;
	BPF_CORE_READ_STR_INTO(&to->comm, task, comm);
}

static __always_inline void sample(struct task_struct *task)
{
	struct scratch *scratch;
	struct wire_thread *to;
	__u32 state, zero = 0;
	long bytes = 0;
	int on_cpu;

	state = state_of(task);
	if (!config.sleepers_enabled && is_asleep(state) && !is_in_iowait(task)) {
		passed++;
		return;
	}
	/* Skips the idle task, which the loop begins with, and the sampling thread itself: both are
	 * always runnable. */
	if (!task->pid || (__u32)task->pid == (__u32)bpf_get_current_pid_tgid())
		return;
	scratch = bpf_map_lookup_elem(&thread_scratch, &zero);
	if (!scratch)
		return;
	to = &scratch->head;
	note_thread(task, to, state);
	on_cpu = is_on_cpu(task);
	/* A thread that has exited has no stack any more. */
	if (config.stacks_enabled && !on_cpu && !to->exit_state) {
		bytes = bpf_get_task_stack(task, scratch->ips, sizeof(scratch->ips), 0);
		/* The kernel does not unwind the stack of a running thread: this one was woken
		 * meanwhile. */
		if (bytes <= 0 && is_on_cpu(task)) {
			on_cpu = 1;
			bytes = 0;
			to->state = state = state_of(task);
			to->cpu = cpu_of(task);
		} else if (bytes <= 0) {
			to->flags |= THREAD_NO_STACK;
			bytes = 0;
		}
	}
	/* A thread that is being woken still has in_iowait set. */
	if (state & TASK_REPORTED && is_in_iowait(task))
		to->flags |= THREAD_IN_IOWAIT;
	if (on_cpu) {
		to->flags |= THREAD_ON_CPU;
	} else {
		if (!state && to->cpu == bpf_get_smp_processor_id()) {
			to->flags |= THREAD_BEHIND;
			to->last_ran = task->se.exec_start;
		}
		if (!(to->flags & THREAD_KERNEL))
			note_syscall(task, to);
		if (config.devices_enabled && to->flags & THREAD_IN_IOWAIT)
			note_device(task, to);
	}
	if (bytes > (long)sizeof(scratch->ips))
		bytes = sizeof(scratch->ips);
	to->frames = bytes / sizeof(__u64);
	/* User space reads the ring buffer when the sample is complete. */
	if (bpf_ringbuf_output(&thread_ring, scratch, sizeof(*to) + bytes, BPF_RB_NO_WAKEUP))
		cut++;
}

SEC("?iter/task")
int sample_thread(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;

	/* NULL after the last task. */
	if (task)
		sample(task);
	return 0;
}

/* Open-coded iterators over tasks, since c68a78ffe2cb (6.7). */
struct bpf_iter_task {
	__u64 opaque[3];
} __attribute__((aligned(8)));
extern int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *task,
			     unsigned int flags) __ksym __weak;
extern struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it) __ksym __weak;
extern void bpf_iter_task_destroy(struct bpf_iter_task *it) __ksym __weak;

/* BPF_TASK_ITER_ALL_THREADS, of an anonymous enum. */
#define ALL_THREADS 1

/* Open-coded iterators over numbers, since 6.4 (6018e1f407cc). */
struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));
extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym __weak;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym __weak;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym __weak;

#define AT_ONCE	   8
#define KNOWN_ROWS 8192

/*
 * Addresses of the threads of the last sample, for prefetching. Following the list of threads is
 * one cache miss per thread, since 100 ms later none of them is in a cache, and those misses are
 * most of the cost. Fetching many at once halves the time. The addresses serve only this: reading a
 * thread that has exited has no effect.
 */
struct known_tasks {
	__u64 at[AT_ONCE];
};

ARRAY(known_tasks, struct known_tasks, KNOWN_ROWS);

__u32 known_rows = 0;
/*
 * Threads in this sample so far. In memory and not in a register: the verifier then knows nothing
 * about the number and need not distinguish the turns of the loop.
 */
__u32 tasks = 0;
/* Keeps the compiler from removing the loads. */
__u32 fetched = 0;

/* Loads what the iteration and the first check of a thread need. */
static __always_inline __u32 touch(__u64 address)
{
	struct task_struct *task =
	    bpf_rdonly_cast((void *)address, bpf_core_type_id_kernel(struct task_struct));

	return low_half(task->thread_node.next) + low_half(task->signal) + state_of(task) +
	       task->exit_state;
}

static __always_inline void fetch_known(void)
{
	struct bpf_iter_num each;
	__u32 sum = 0;
	int *number;

	bpf_iter_num_new(&each, 0, known_rows);
	while ((number = bpf_iter_num_next(&each))) {
		__u32 row = *number;
		struct known_tasks *known = bpf_map_lookup_elem(&known_tasks, &row);

		if (!known)
			break;
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++)
			sum += touch(known->at[i]);
	}
	bpf_iter_num_destroy(&each);
	fetched = sum;
}

/* User space runs it once per sample. */
SEC("?raw_tp")
int sample_threads(void *ctx)
{
	struct bpf_iter_task each;
	struct task_struct *task;

	fetch_known();
	tasks = 0;
	bpf_iter_task_new(&each, 0, ALL_THREADS);
	while ((task = bpf_iter_task_next(&each))) {
		__u32 number = tasks++, row = number / AT_ONCE;
		struct known_tasks *known = bpf_map_lookup_elem(&known_tasks, &row);

		if (known)
			known->at[number % AT_ONCE] = (__u64)task;
		sample(task);
	}
	bpf_iter_task_destroy(&each);
	known_rows = (tasks + AT_ONCE - 1) / AT_ONCE;
	return 0;
}

static __always_inline __u32 number_of(struct gendisk *disk)
{
	return BPF_CORE_READ(disk, major) << 20 | BPF_CORE_READ(disk, first_minor);
}

SEC("?tp_btf/block_bio_queue")
int BPF_PROG(note_bio)
{
	struct bio *bio = argument(ctx, arguments.bio_queue);
	struct task_struct *task = (void *)bpf_get_current_task();
	__u32 tid = bpf_get_current_pid_tgid();
	__u64 switches = BPF_CORE_READ(task, nvcsw);
	struct handed *last;

	/* A bio that a stacked driver submits meanwhile is below the thread's own bio. */
	if (BPF_CORE_READ(task, bio_list)) {
		last = bpf_map_lookup_elem(&handed_bios, &tid);
		if (last && last->switches == switches)
			last->lower = number_of(bio_disk(bio));
	} else {
		struct handed now = {
		    .start_time = BPF_CORE_READ(task, start_time),
		    .switches = switches,
		    .device = number_of(bio_disk(bio)),
		};

		now.lower = now.device;
		/* The map never fills up: the oldest entry is evicted. */
		bpf_map_update_elem(&handed_bios, &tid, &now, BPF_ANY);
	}
	return 0;
}
