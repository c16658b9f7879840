/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Measures the stages of each request: queue, device, complete. op_table.h adds the stages of the
 * operations that it serves.
 *
 *   block_bio_queue     queue begins: the bio enters the block layer; its stamp is kept by address
 *   block_bio_complete  a bio of a device without requests ends, see bio_ios.h
 *   block_rq_issue      queue ends, device begins: the request is issued to the driver
 *   nvme_sq             device ends, complete begins: the driver reaps the entry, NVMe only
 *   block_rq_complete   the last stage ends, the I/O is counted
 *
 * Each event reads the clock once. There is no hash map. On a device with one row per CPU, no event
 * writes to a cache line that other CPUs write.
 */
#include "kernel.h"
#include "compat.h"
#include "wire.h"
#include "hist.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Written once, between open and load: the verifier removes what is disabled. */
const volatile struct wire_latency_config config = {};

#include "owner.h"
#include "counters.h"
#include "slots.h"
#include "bios.h"
#include "submitter.h"
#include "command.h"
#include "filter.h"
#include "bio_ios.h"
#include "request_ios.h"
#include "syscalls.h"
#include "process_ios.h"
#include "file_ios.h"

/*
 * Whether a bio of a traced device is filtered out. Also removes an entry with the same address,
 * left by a followed bio that ended without a request.
 */
static __always_inline int is_left_out(struct bio *bio, __u64 address, struct owner *owner,
				       const struct origin *origin)
{
	if (passes_filter(bio, origin))
		return 0;
	if (is_bio_based(owner))
		forget_bio_io(address);
	else
		take_bio(address);
	return 1;
}

/*
 * The original submitter of a bio that blk-throttle's worker submits. NULL: the submitter is the
 * current task, or is unknown, which is counted.
 */
static __always_inline struct origin *origin_of(struct bio *bio, __u64 address, struct owner *owner,
						int counts)
{
	struct late_bio late = {.bio = address};
	__u32 held;

	if (!CAN_FOLLOW || !config.throttle_enabled || !current_is_kernel_thread())
		return 0;
	late.private = (__u64)BPF_CORE_READ(bio, bi_private);
	held = op_find_throttled(&late);
	if (!held && counts && running && is_throttle_worker())
		COUNT(owner, held_unknown);
	return origin_at(held);
}

/*
 * Takes the stack of the submitting task if the bio will be followed. A separate function, since
 * the BPF stack of a program and its callees is small.
 */
static __noinline int look_at_route(void *ctx)
{
	struct bio *bio = argument(ctx, arguments.bio_queue);

	if (!running || !owner_of_bio(bio) || (config.filter_enabled && !passes_filter(bio, 0)))
		return 0;
	return take_route(ctx);
}

/*
 * Counts a bio by process. A separate function, since bio_queue has nearly used up its BPF stack.
 */
static __noinline int count_bio(void *ctx)
{
	struct bio *bio = argument(ctx, arguments.bio_queue);
	struct origin *origin = 0;
	struct counted_bio of = {};
	struct owner *owner;

	if (!running)
		return 0;
	owner = owner_of_bio(bio);
	if (!owner)
		return 0;
	if (config.throttle_enabled)
		origin = origin_of(bio, argument_address(ctx, arguments.bio_queue), owner, 0);
	of.device = owner->device;
	of.selected = !config.filter_enabled || passes_filter(bio, origin);
	of.before = count_process_io(bio, of.device, origin, of.selected);
	if (config.files_enabled & FILES_COUNTED)
		count_file_io(argument_address(ctx, arguments.bio_queue), &of, origin);
	return 0;
}

EVENT("block_bio_queue")
int BPF_PROG(bio_queue)
{
	struct origin *origin = 0;
	struct owner *owner;
	struct bio_set *set;
	struct bio *bio;
	__u64 now;
	__u32 way, index;

	if (config.count_processes)
		count_bio(ctx);
	if (config.stacks_enabled)
		look_at_route(ctx);
	bio = argument(ctx, arguments.bio_queue);
	owner = owner_of_bio(bio);
	if (!owner)
		return 0;
	if (config.throttle_enabled)
		origin = origin_of(bio, argument_address(ctx, arguments.bio_queue), owner, 1);
	if (config.filter_enabled &&
	    is_left_out(bio, argument_address(ctx, arguments.bio_queue), owner, origin))
		return 0;
	now = bpf_ktime_get_ns();
	if (is_bio_based(owner))
		return begin_bio_io(bio, argument_address(ctx, arguments.bio_queue), owner, origin,
				    now);
	set = place_bio((__u64)bio, &way, &index);
	if (!set)
		return 0;
	set->queued[way] = now;
	if (config.submitter_enabled)
		note_submitter(bio, submitter_at(index, way), origin);
	if (config.files_enabled & FILES_EACH)
		find_file(*(volatile __u64 *)&set->bio[way], file_at(index, way));
	if (config.operations_enabled)
		/* The address as a scalar, on which the verifier allows arithmetic. */
		op_attach_bio(FIELD(bio, bi_private), *(volatile __u64 *)&set->bio[way],
			      owner->layer, &set->op_ref[way], &set->generation[way]);
	return 0;
}

/* A bio is merged into a waiting request: from here on only its operation needs its own stamp. */
EVENT("block_bio_backmerge")
int BPF_PROG(bio_backmerge)
{
	struct bio *bio = argument(ctx, arguments.bio_backmerge);
	struct owner *owner = owner_of_bio(bio);

	if (!owner || !is_followed((__u64)bio))
		return 0;
	if (!keep_bios())
		take_bio((__u64)bio);
	if (running)
		COUNT(owner, merges);
	return 0;
}

/*
 * The bio becomes the request's first. Its stamp stays: at the issue the request's bios are walked
 * from the first on, and the earliest stamp counts.
 */
EVENT("block_bio_frontmerge")
int BPF_PROG(bio_frontmerge)
{
	struct bio *bio = argument(ctx, arguments.bio_frontmerge);
	struct owner *owner = owner_of_bio(bio);

	if (owner && running && is_followed((__u64)bio))
		COUNT(owner, merges);
	return 0;
}

/* Two requests become one: `rq` vanishes without a completion. */
EVENT("block_rq_merge")
int BPF_PROG(rq_merge)
{
	struct request *rq = argument(ctx, arguments.rq_merge);
	struct owner *owner = owner_of_request(rq);
	struct wire_slot *slot;
	__u32 index;

	if (!owner)
		return 0;
	if (!config.filter_enabled || is_followed((__u64)FIELD(rq, bio)))
		COUNT(owner, merges);
	slot = slot_of(rq, owner, op_of(rq), &index);
	if (slot && slot->request == (__u64)rq)
		slot->request = 0;
	if (slot && config.parts_enabled)
		parts_vanished(index, (__u64)rq);
	return 0;
}

EVENT("block_split")
int BPF_PROG(bio_split)
{
	struct bio *bio = argument(ctx, arguments.bio_split);
	struct owner *owner = owner_of_bio(bio);
	struct bio_set *from, *to;
	__u32 old, old_index, new, new_index;

	if (!owner)
		return 0;
	if (running && !config.filter_enabled)
		COUNT(owner, splits);
	if (is_bio_based(owner)) {
		int known = split_bio_io(bio, argument_address(ctx, arguments.bio_split), owner);

		if (config.filter_enabled && running && known)
			COUNT(owner, splits);
		return 0;
	}
	if (!config.queue_enabled)
		return 0;
	/*
	 * `bio` is the new front part and has no block_bio_queue of its own. The rest (bi_private,
	 * set by bio_chain just before this event) keeps the stamp of the original. The front part
	 * inherits the stamp and the operation.
	 */
	from = find_bio_at((__u64)FIELD(bio, bi_private), &old, &old_index);
	to = from ? place_bio((__u64)bio, &new, &new_index) : 0;
	if (config.filter_enabled && !from) {
		/* This may once have been the address of a followed bio. */
		take_bio((__u64)bio);
		return 0;
	}
	if (!to)
		return 0;
	if (config.filter_enabled && running)
		COUNT(owner, splits);
	to->queued[new] = from->queued[old];
	if (follows_operations()) {
		/* It has several parts now, which may be issued on several CPUs at once. */
		from->op_ref[old] &= ~REF_DIRECT;
		to->op_ref[new] = from->op_ref[old];
		to->generation[new] = from->generation[old];
	}
	if (config.submitter_enabled)
		copy_submitter(submitter_at(new_index, new), submitter_at(old_index, old));
	if (config.files_enabled & FILES_EACH)
		copy_file(file_at(new_index, new), file_at(old_index, old));
	if (config.parts_enabled)
		set_allocation(new_index, new, 0);
	return 0;
}

/*
 * A bio ends that no request has completed: on a bio-based device, or by an error before the
 * request.
 */
SEC("?tp_btf/block_bio_complete")
int BPF_PROG(bio_complete)
{
	struct bio *bio = argument(ctx, arguments.bio_complete);
	__u64 address = argument_address(ctx, arguments.bio_complete);
	__u64 now = bpf_ktime_get_ns();
	struct owner *owner;

	if (end_bio_io(address, FIELD(bio, bi_opf), now))
		return 0;
	owner = owner_of_bio(bio);
	/* With a filter: a bio that did not pass it. */
	if (owner && is_bio_based(owner) && running)
		end_unknown((__u64)BPF_CORE_READ(bio, bi_private), owner->device, op_of_bio(bio),
			    FIELD(bio, bi_opf), now);
	return 0;
}

EVENT("block_rq_issue")
int BPF_PROG(rq_issue)
{
	return issue_request(argument(ctx, arguments.rq_issue));
}

/* The driver returns the request: before it reached the device, or for a retry. */
EVENT("block_rq_requeue")
int BPF_PROG(rq_requeue)
{
	return requeue_request(argument(ctx, arguments.rq_requeue));
}

/* NVMe: the driver reaps the completion entry. The tracepoint is in a module, so it is optional. */
SEC("?tp_btf/nvme_sq")
int BPF_PROG(nvme_sq, struct request *rq)
{
	struct owner *owner;
	struct wire_slot *slot;
	__u32 index;

	/* For the verifier, arguments of module tracepoints may be NULL (6.12 and newer). */
	if (!rq)
		return 0;
	owner = owner_of_request(rq);
	if (!owner)
		return 0;
	slot = slot_of(rq, owner, op_of(rq), &index);
	if (slot && slot->request == (__u64)rq)
		slot->reaped = bpf_ktime_get_ns();
	return 0;
}

/*
 * The same as a raw tracepoint, for users who may not read the types of a module (CAP_SYS_ADMIN):
 * its arguments are scalars, so each field is copied. The hardware queue is known since the issue.
 */
SEC("?raw_tp/nvme_sq")
int BPF_PROG(nvme_sq_raw, struct request *rq)
{
	struct blk_mq_hw_ctx *hctx = BPF_CORE_READ(rq, mq_hctx);
	struct owner *owner;
	struct wire_slot *slot;
	__u32 index;
	int tag;

	if (!running)
		return 0;
	owner = find_owner((__u64)hctx, owner_place(low_half(hctx)));
	if (!owner || !owner->traced)
		return 0;
	tag = BPF_CORE_READ(rq, internal_tag);
	if (tag < 0)
		tag = BPF_CORE_READ(rq, tag);
	slot = slot_at(owner, tag, BPF_CORE_READ(rq, cmd_flags) & REQ_OP_MASK, &index);
	if (slot && slot->request == (__u64)rq)
		slot->reaped = bpf_ktime_get_ns();
	return 0;
}

EVENT("block_rq_complete")
int BPF_PROG(rq_complete, struct request *rq, int error, unsigned int nr_bytes)
{
	struct completion of;

	if (identify(&of, rq, nr_bytes) && account(&of) && time_stages(&of)) {
		emit_completion(&of);
		complete_operation(&of);
	}
	return 0;
}

static __always_inline int call_begins(struct pt_regs *regs, long number)
{
	if (CAN_FOLLOW && number >= 0 && number < WIRE_SYSCALLS && syscall_kinds[number])
		call_entered(syscall_kinds[number], regs);
	return 0;
}

static __always_inline int call_ends(long result)
{
	if (CAN_FOLLOW)
		call_returned(result);
	return 0;
}

SEC("?tp_btf/sys_enter")
int BPF_PROG(sys_enter, struct pt_regs *regs, long number)
{
	return call_begins(regs, number);
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(sys_exit, struct pt_regs *regs, long result)
{
	return call_ends(result);
}

/*
 * The same at the functions of those system calls that can do I/O, so that no other call takes the
 * slow path. User space loads these two programs once per function (src/probe/latency/calls.rs).
 */
SEC("?fentry/__x64_sys_io_uring_enter")
int BPF_PROG(call_enter, struct pt_regs *regs)
{
	return call_begins(regs, FIELD(regs, orig_ax));
}

SEC("?fexit/__x64_sys_io_uring_enter")
int BPF_PROG(call_exit, struct pt_regs *regs, long result)
{
	return call_ends(result);
}

SEC("?tp_btf/io_uring_submit_req")
int BPF_PROG(ring_submit_req, struct io_kiocb *req)
{
	if (CAN_FOLLOW)
		ring_submitted(req);
	return 0;
}

/* The same until 6.2, with a second argument. */
SEC("?tp_btf/io_uring_submit_sqe")
int BPF_PROG(ring_submit_sqe, struct io_kiocb *req)
{
	if (CAN_FOLLOW)
		ring_submitted(req);
	return 0;
}

SEC("?tp_btf/io_uring_complete")
int BPF_PROG(ring_complete, struct io_ring_ctx *ring, void *req)
{
	if (CAN_FOLLOW && req)
		ring_completed((__u64)req, ctx);
	return 0;
}

SEC("?tp_btf/io_uring_cqring_wait")
int BPF_PROG(ring_wait)
{
	if (CAN_FOLLOW)
		ring_waited_on(argument_address(ctx, 0));
	return 0;
}

/* A request was allocated for the bio. */
SEC("?tp_btf/block_getrq")
int BPF_PROG(bio_getrq, struct bio *bio)
{
	if (owner_of_bio(bio))
		bio_allocated((__u64)bio);
	return 0;
}

/*
 * The request is inserted into a scheduler's or a software queue instead of being issued directly.
 */
SEC("?tp_btf/block_rq_insert")
int BPF_PROG(rq_insert, struct request *rq)
{
	struct owner *owner = owner_of_request(rq);
	struct wire_slot *slot;
	__u32 index;

	if (!owner)
		return 0;
	slot = slot_of(rq, owner, op_of(rq), &index);
	/* A request that the driver refused may be inserted again, which belongs to its requeue
	 * part. */
	if (slot && slot->request != (__u64)rq)
		parts_inserted(index, (__u64)rq);
	return 0;
}

/* Since 5a80bd075f3b (6.5): all bios of the request have ended. */
SEC("?tp_btf/block_io_done")
int BPF_PROG(io_done, struct request *rq)
{
	/* Its bios are gone, and with them its partition; the slot has the device. */
	struct owner *owner = owner_of_queue(rq);
	__u32 index;

	if (owner && slot_of(rq, owner, op_of(rq), &index))
		parts_done(index);
	return 0;
}

SEC("?tp_btf/io_uring_queue_async_work")
int BPF_PROG(ring_queue_work, struct io_kiocb *req)
{
	if (!CAN_FOLLOW)
		return 0;
	if (config.parts_enabled)
		ring_punted((__u64)req);
	/* The worker may finish before the call begins to wait. */
	ring_waited_on((__u64)BPF_CORE_READ(req, ctx));
	return 0;
}

SEC("?tp_btf/sched_waking")
int BPF_PROG(task_waking, struct task_struct *task)
{
	if (CAN_FOLLOW)
		task_woken(task->pid);
	return 0;
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(task_switch, int preempted, struct task_struct *from, struct task_struct *to)
{
	if (CAN_FOLLOW)
		task_runs(to->pid);
	return 0;
}

SEC("?tp_btf/sched_process_fork")
int BPF_PROG(process_fork, struct task_struct *parent, struct task_struct *child)
{
	process_forked(parent, child);
	return 0;
}

SEC("?tp_btf/sched_process_exit")
int BPF_PROG(process_exit, struct task_struct *task)
{
	thread_exited(task);
	return 0;
}
