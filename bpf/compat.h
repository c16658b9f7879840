/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Hides differences between kernels: one helper per difference, decided by what BTF contains, not
 * by version numbers. src/probe/btf.rs decides what only user space can: prototypes and flag
 * values.
 */
#ifndef BIOPSY_COMPAT_H
#define BIOPSY_COMPAT_H

#include "kernel.h"
#include "wire.h"

/*
 * Atomics that return the old value came with 5ffa25502b5a and 5ca419f2864a (5.12). Older kernels
 * reject a program that contains one, even if it is unreachable. So latency_old.bpf.c builds
 * everything a second time with NO_SWAP defined: there only additions are atomic.
 */
#ifdef NO_SWAP
/*
 * Try-lock by fetch-and-add: at most one contender sees only its own increment. The loser undoes
 * its increment. It must give up and not spin: the holder may be the task that this program
 * interrupted.
 */
static __always_inline int try_lock(__u64 *lock)
{
	__sync_fetch_and_add(lock, 1);
	return *(volatile __u64 *)lock == 1;
}

static __always_inline void let_go(__u64 *lock)
{
	__sync_fetch_and_add(lock, -1);
}

/* A constant, so that the compiler leaves the code that it guards out of the object. */
#define CAN_FOLLOW 0
#else
/*
 * Whether operations, bio-based devices, groups and files can be followed. Kernels without
 * compare-and-swap also have no events that name an io_uring request.
 */
#define CAN_FOLLOW 1
#endif

/*
 * A kernel without BTF has no typed arguments and no checked field accesses. latency_raw.bpf.c
 * builds everything a third time with RAW defined, as raw tracepoints, whose programs read each
 * field with a helper.
 */
#ifdef RAW
#define EVENT(name)	   SEC("raw_tp/" name)
#define FIELD(from, field) BPF_CORE_READ(from, field)
#else
#define EVENT(name)	   SEC("tp_btf/" name)
#define FIELD(from, field) ((from)->field)
#endif

/*
 * A function that the verifier checks once, and not once per call path. Before e5069b9c23b3 (5.12)
 * such functions take no pointers. Before 2afae08c9dcb (6.8) they are verified even if never
 * called, so each first tests whether its feature is enabled: a kernel that rejects one must not
 * reject the whole object.
 */
#ifdef NO_SWAP
#define VERIFIED_ONCE static __always_inline
#else
#define VERIFIED_ONCE __noinline
#endif

/*
 * Increments a counter and returns the old value. For test aids only: with NO_SWAP two CPUs may get
 * the same value.
 */
static __always_inline __u64 count_up(__u64 *cell)
{
#ifdef NO_SWAP
	return (*(volatile __u64 *)cell)++;
#else
	return __sync_fetch_and_add(cell, 1);
#endif
}

/* Set once, before the programs are loaded, like `config`. */
const volatile struct wire_arguments arguments = {};

/*
 * Returns an event's argument by its index. 5.11 dropped the leading request queue argument from
 * request events (a54895fa057c), from bio events, with the request of a merged bio (e8a676d61c07),
 * and from split events (eb6f7f7cd3af). Stable 5.10 took the first of these, from .137 on.
 *
 * Each index has its own load, because the compiler would fold them into one load at a computed
 * index, which the verifier rejects. The compiler removes the branches that are not taken.
 */
static __always_inline void *argument(const unsigned long long *ctx, __u32 place)
{
	void *value;

	if (place == 0)
		asm volatile("%0 = *(u64 *)(%1 + 0)" : "=r"(value) : "r"(ctx));
	else if (place == 1)
		asm volatile("%0 = *(u64 *)(%1 + 8)" : "=r"(value) : "r"(ctx));
	else
		asm volatile("%0 = *(u64 *)(%1 + 16)" : "=r"(value) : "r"(ctx));
	return value;
}

/* The same argument as a scalar, on which the verifier allows arithmetic; for cold paths. */
static __always_inline __u64 argument_address(const unsigned long long *ctx, __u32 place)
{
	__u64 address = 0;

	bpf_probe_read_kernel(&address, sizeof(address), ctx + place);
	return address;
}

/* Until d152c682f03c (5.15) only a request had its disk; f3fa33acca9f (5.17) removed that field. */
struct request___disk {
	struct gendisk *rq_disk;
} CORE;

/* Before 309dca309fc3 (5.12) a bio pointed to its disk. */
struct bio___disk {
	struct gendisk *bi_disk;
} CORE;

/*
 * These helpers are always inlined: a call would turn a pointer that the verifier trusts into a
 * scalar.
 */
/*
 * Both are read with the helper, as they are needed only when a queue is first seen. For each
 * pointer dereferenced from an event's argument, on each path, newer verifiers (seen on 6.18)
 * search all types linearly for a list of trusted fields, which takes about 1.5 ms.
 */
static __always_inline struct gendisk *request_disk(struct request *rq)
{
	if (bpf_core_field_exists(struct request_queue, disk))
		return BPF_CORE_READ(rq, q, disk);
	return BPF_CORE_READ((struct request___disk *)rq, rq_disk);
}

/* Since 309dca309fc3 (5.12) a bio points to its block device, which may be a partition. */
static __always_inline int bio_has_bdev(void)
{
	return bpf_core_field_exists(struct bio, bi_bdev);
}

/* Device number of a bio's block device; 0: only its disk is known. */
static __always_inline __u32 bio_device_number(struct bio *bio)
{
	return bio_has_bdev() ? BPF_CORE_READ(bio, bi_bdev, bd_dev) : 0;
}

static __always_inline struct gendisk *bio_disk(struct bio *bio)
{
	if (bio_has_bdev())
		return BPF_CORE_READ(bio, bi_bdev, bd_disk);
	return BPF_CORE_READ((struct bio___disk *)bio, bi_disk);
}

/* An address that distinguishes bios of different block devices. */
static __always_inline const void *bio_home(struct bio *bio)
{
	if (bio_has_bdev())
		return FIELD(bio, bi_bdev);
	return FIELD((struct bio___disk *)bio, bi_disk);
}

/* Before 2f064a59a11f (5.14), which made it `__state`. */
struct task_struct___state {
	volatile long state;
} CORE;

static __always_inline __u32 state_of(struct task_struct *task)
{
	if (bpf_core_field_exists(struct task_struct, __state))
		return task->__state;
	return ((struct task_struct___state *)task)->state;
}

/* Before bcf9033e5449 (5.16) the CPU was not in thread_info. */
struct task_struct___cpu {
	unsigned int cpu;
} CORE;

/* The CPU that the task runs on, or whose run queue it is on. */
static __always_inline __u32 cpu_of(struct task_struct *task)
{
	if (bpf_core_field_exists(struct thread_info, cpu))
		return task->thread_info.cpu;
	return ((struct task_struct___cpu *)task)->cpu;
}

struct vhost_task {
} CORE;

/* Whether a task with these flags never runs in user mode. */
static __always_inline int has_no_user_side(__u32 flags)
{
	if (flags & (PF_KTHREAD | PF_IO_WORKER))
		return 1;
	return bpf_core_type_exists(struct vhost_task) && flags & PF_USER_WORKER;
}

/* Before e32cf5dfbe22 (5.17) set_child_tid pointed to a kernel thread's struct kthread. */
struct task_struct___kthread {
	void *set_child_tid;
} CORE;

static __always_inline struct kthread *kthread_of(struct task_struct *task)
{
	if (bpf_core_field_exists(struct task_struct, worker_private))
		return BPF_CORE_READ(task, worker_private);
	return BPF_CORE_READ((struct task_struct___kthread *)task, set_child_tid);
}

/* THREAD_SIZE of x86-64. */
#define THREAD_BYTES 16384

/*
 * User registers of a thread that is not running, saved at kernel entry. The helper came with
 * dd6e10fbd9fb (5.15). Before it, the registers are at the very end of the stack: the padding after
 * them came with FRED (6.9).
 */
static __always_inline const struct pt_regs *registers_of(struct task_struct *task)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return (const struct pt_regs *)bpf_task_pt_regs(task);
	return (const void *)((__u64)BPF_CORE_READ(task, stack) + THREAD_BYTES -
			      bpf_core_type_size(struct pt_regs));
}

static __always_inline __u32 fua_flag(void)
{
	return 1u << bpf_core_enum_value(enum req_flag_bits, __REQ_FUA);
}

static __always_inline __u32 preflush_flag(void)
{
	return 1u << bpf_core_enum_value(enum req_flag_bits, __REQ_PREFLUSH);
}

/* Flag with which NVMe marks the I/O of a multipath device (REQ_NVME_MPATH). */
static __always_inline __u32 driver_flag(void)
{
	if (!bpf_core_enum_value_exists(enum req_flag_bits, __REQ_DRV))
		return 0;
	return 1u << bpf_core_enum_value(enum req_flag_bits, __REQ_DRV);
}

/* Set by file systems on I/O of their metadata. */
static __always_inline __u32 metadata_flag(void)
{
	return 1u << bpf_core_enum_value(enum req_flag_bits, __REQ_META);
}

/* Set on swap-out (not on swap-in). */
static __always_inline __u32 swap_flag(void)
{
	return 1u << bpf_core_enum_value(enum req_flag_bits, __REQ_SWAP);
}

/*
 * Newer kernels renamed the field that leads from a tail page to its head page, and the offset
 * within a bio_vec.
 */
struct page___info {
	unsigned long compound_info;
} CORE;

struct bvec_iter___offset {
	unsigned int bi_offset;
} CORE;

struct bio___offset {
	struct bvec_iter___offset bi_iter;
} CORE;

/*
 * The low half of a pointer as a scalar. The verifier forbids arithmetic on kernel pointers; a
 * 32-bit move turns one into an unknown scalar (for programs that may leak pointers, as all tracing
 * programs with CAP_PERFMON may).
 */
static __always_inline __u32 low_half(const void *pointer)
{
	__u32 low;

	asm volatile("%0 = %1" : "=w"(low) : "w"((__u32)(__u64)pointer));
	return low;
}

static __always_inline int current_is_kernel_thread(void)
{
#ifdef NO_SWAP
	/* Tracing programs may call bpf_get_current_task_btf since 3ca1032ab7ab (5.11). */
	return BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), flags) & PF_KTHREAD;
#else
	struct task_struct *task = bpf_get_current_task_btf();

	return task->flags & PF_KTHREAD;
#endif
}

/* In kernels since 6.2: lets a program load from any address as from a struct of this type. */
extern void *bpf_rdonly_cast(const void *address, __u32 type) __ksym __weak;

/* Reads eight bytes of kernel memory; 0 if nothing is mapped there. */
static __always_inline __u64 word_at(const void *address)
{
	__u64 word = 0;

	/* A load costs a tenth of the helper. Any struct that begins with a number serves. */
	if (bpf_ksym_exists(bpf_rdonly_cast)) {
		struct timespec64 *number =
		    bpf_rdonly_cast(address, bpf_core_type_id_kernel(struct timespec64));

		return number->tv_sec;
	}
	bpf_probe_read_kernel(&word, sizeof(word), address);
	return word;
}

/* Whether the struct of a single-bio direct I/O on a block device embeds the bio. */
static __always_inline int has_blkdev_dio(void)
{
	return bpf_core_field_exists(struct blkdev_dio, bio);
}

/* The direct I/O that embeds the bio at this address; it begins with its kiocb. */
static __always_inline const void *blkdev_dio_of(__u64 bio)
{
	return (const void *)(bio - bpf_core_field_offset(struct blkdev_dio, bio));
}

/* The class of a request or bio. */
static __always_inline __u32 classify(__u32 cmd_flags)
{
	__u32 op = cmd_flags & REQ_OP_MASK;

	if (op == REQ_OP_READ)
		return OP_READ;
	if (op == REQ_OP_FLUSH)
		return OP_FLUSH;
	if (op == REQ_OP_DISCARD)
		return OP_DISCARD;
	if (op == REQ_OP_WRITE_ZEROES)
		return OP_WRITE_ZEROES;
	if (op >= REQ_OP_FIRST_DRIVER)
		return OP_PASSTHROUGH;
	if (cmd_flags & fua_flag())
		return OP_FUA;
	/* Zone and erase operations: the kernel counts odd numbers as writes. */
	return op & 1 ? OP_WRITE : OP_READ;
}

/*
 * Whether the device had processed a requeued request before, so that it has answered or timed out.
 * At block_rq_requeue both are still visible in the request, for every driver. RQF_TIMED_OUT is a
 * macro before 6.12: user space passes its bit.
 */
static __always_inline int was_tried(struct request *rq, __u32 rqf_timed_out)
{
	return FIELD(rq, state) == MQ_RQ_COMPLETE || FIELD(rq, rq_flags) & rqf_timed_out;
}

#endif
