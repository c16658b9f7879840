/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Counts interrupts of block devices, and the completions of each.
 *
 *   irq_handler_entry   an interrupt begins: all completions since the previous one belong to that
 *   nvme_sq             the driver reaps a completion entry (NVMe only)
 *   irq_handler_exit    the handler ends
 *   softirq_entry/exit  around block softirqs, which complete I/Os of devices with one queue
 *   block_rq_complete   an I/O is complete; for drivers without a reap event, this is its reaping
 *
 * Per interrupt there is no clock read, except for a sample, no hash map, and no cache line that
 * another CPU writes. Which vector serves which queue follows from pointers if the driver keeps
 * them (the action's dev_id is the NVMe queue that the hardware context has as driver_data).
 * Otherwise user space sets it.
 */

/* Compare-and-swap is not needed here, so one object serves every kernel. */
#define NO_SWAP

#include "kernel.h"
#include "compat.h"
#include "wire.h"
#include "hist.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Written once, between open and load. */
const volatile struct wire_interrupts_config config = {};

#include "owner.h"

/* Index of the vector of an interrupt number, + 1; 0: not followed. */
ARRAY(vector_places, __u32, 1);

/* Vectors, followed by poll queues. */
MAPPED_ARRAY(vectors, struct wire_vector, 1);

/* How many interrupts of a vector arrived on a CPU before they moved; index vector × CPUs + CPU. */
ARRAY(vector_cpus, __u64, 1);

/* Indexed like the slots in struct owner: the device's first + queue. */
ARRAY(queues, struct wire_queue, 1);

/* Index device × CPUs + CPU. */
MAPPED_ARRAY(completions, struct wire_completions, 1);

MAPPED_ARRAY(softirqs, struct wire_softirq, 1);

/* What a CPU is currently processing; one cache line. */
struct frame {
	/* The dev_id of the running handler; 0: none that is followed. */
	__u64 handler;
	/* Begin of the handler and of the block softirq; 0: not timed. */
	__u64 began;
	__u64 softirq_began;
	/* Index of the vector + 1; 0: no handler runs. */
	__u32 vector;
	__u32 carried;
	/* The vector's queue is known. */
	__u32 known;
	/* A block softirq runs. */
	__u32 softirq;
	/* Number of the interrupt whose handler runs. */
	__u32 number;
	/* Index of the poll queue whose batch is in progress, + 1. */
	__u32 polled;
	/* The task in which the last block softirq ran, and whether it was ksoftirqd. */
	__u32 looked_at;
	__u32 is_ksoftirqd;
	/* Cache: vector index of the last followed interrupt, + 1, and its number. The next
	 * interrupt mostly has the same number. */
	__u16 last_place;
	__u16 last_number;
	__u32 pad;
};
_Static_assert(sizeof(struct frame) == 64, "frame");

MAPPED_ARRAY(frames, struct frame, 1);

/* Vector of a handler that woke its thread, by dev_id: the index + 1. */
HASH(threaded_handlers, __u64, __u32, 8192);

struct task_name {
	char comm[16];
};

/* Timed interrupts by the name of the interrupted task. */
HASH(interrupted_tasks, struct task_name, __u64, 1024);

/* Timed interrupts of tasks whose name had no room. */
__u64 unnamed_tasks = 0;

static __always_inline struct frame *frame_of(__u32 cpu)
{
	return bpf_map_lookup_elem(&frames, &cpu);
}

/* `place` is the index + 1, as everywhere. */
static __always_inline struct wire_vector *vector_at(__u32 place)
{
	__u32 index = place - 1;

	return bpf_map_lookup_elem(&vectors, &index);
}

/*
 * Whether this event of a series is timed. The distance to the next timed one is random each time,
 * so that it cannot align with a pattern of the load.
 */
static __always_inline int is_timed(__u64 number, __u64 *next)
{
	__u32 spread = 2 * config.time_every - 1;

	if (unlikely(!*next))
		*next = 1 + bpf_get_prandom_u32() % spread;
	if (number < *next)
		return 0;
	*next = number + 1 + bpf_get_prandom_u32() % spread;
	return 1;
}

static __always_inline void count_into(struct wire_extent *extent, __u64 *counts, __u64 value)
{
	extent->sum += value;
	count_time(counts, &extent->not_min, &extent->max, 0, value, 0);
}

/* Counts the completions of the previous interrupt when the next one arrives. */
static __always_inline void end_carried(struct wire_vector *vector)
{
	__u64 all = vector->inside + *(volatile __u64 *)&vector->outside;
	__u64 carried = all - vector->counted;
	__u64 i = hist_index(carried);

	vector->counted = all;
	/* Smaller values have exact buckets. */
	if (unlikely(carried >= 1 << HIST_SUB_BITS) && vector->most < carried)
		vector->most = carried;
	asm volatile("" : "+r"(i));
	if (i >= CARRIED_BUCKETS)
		i = CARRIED_BUCKETS - 1;
	vector->carried[i]++;
}

/* Records the context that a timed interrupt arrived in. */
static __noinline int note_interrupted(__u32 place)
{
	struct wire_vector *vector = vector_at(place);
	struct task_struct *task = (void *)bpf_get_current_task();
	struct task_name name = {};
	__u64 one = 1, *count;

	if (!vector)
		return 0;
	if (!(__u32)bpf_get_current_pid_tgid()) {
		vector->interrupted[INTERRUPTED_IDLE]++;
		return 0;
	}
	if (BPF_CORE_READ(task, flags) & PF_KTHREAD)
		vector->interrupted[INTERRUPTED_KERNEL]++;
	else
		vector->interrupted[INTERRUPTED_USER]++;
	if (config.time_every > 1 && bpf_get_prandom_u32() % INTERRUPTED_NAME_EVERY)
		return 0;
	bpf_get_current_comm(name.comm, sizeof(name.comm));
	count = bpf_map_lookup_elem(&interrupted_tasks, &name);
	if (count)
		__sync_fetch_and_add(count, 1);
	else if (bpf_map_update_elem(&interrupted_tasks, &name, &one, BPF_NOEXIST))
		__sync_fetch_and_add(&unnamed_tasks, 1);
	return 0;
}

/*
 * The vector's interrupts arrive on this CPU from now on; `before` is the number of the last one on
 * the old CPU.
 */
static __noinline int move_vector(__u32 place, __u32 cpu, __u64 before)
{
	struct wire_vector *vector = vector_at(place);
	__u64 *count;
	__u32 at;

	if (!vector)
		return 0;
	at = (place - 1) * config.cpus + vector->cpu - 1;
	count = vector->cpu ? bpf_map_lookup_elem(&vector_cpus, &at) : 0;
	if (count)
		*count += before - vector->cpu_since;
	vector->cpu_since = before;
	vector->cpu = cpu + 1;
	return 0;
}

/* Index of an interrupt's vector, + 1; 0: not followed. */
static __always_inline __u32 place_of(struct frame *frame, __u32 number)
{
	__u32 *place;

	if (frame->last_place && frame->last_number == number)
		return frame->last_place;
	place = bpf_map_lookup_elem(&vector_places, &number);
	if (!place || !*place)
		return 0;
	/* Larger numbers do not fit into the cached halves. */
	if (*place <= 0xffff && number <= 0xffff) {
		frame->last_place = *place;
		frame->last_number = number;
	}
	return *place;
}

/*
 * Identifies a handler among those that share a line, even if the driver frees and requests its
 * vector again (an NVMe reset): then the action is a new one, and the queue is the same.
 */
static __always_inline __u64 identity(struct irqaction *action)
{
	__u64 device = (__u64)action->dev_id;

	return device ? device : (__u64)action;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_entry, int irq, struct irqaction *action)
{
	struct wire_vector *vector;
	__u32 number = irq, cpu;
	struct frame *frame;
	__u32 place;

	if (!running)
		return 0;
	cpu = bpf_get_smp_processor_id();
	frame = frame_of(cpu);
	if (!frame)
		return 0;
	place = place_of(frame, number);
	if (!place) {
		/* The end of an earlier handler may have been missed. */
		if (unlikely(frame->vector))
			frame->vector = 0;
		return 0;
	}
	vector = vector_at(place);
	if (!vector)
		return 0;
	frame->vector = place;
	frame->number = number;
	frame->handler = (__u64)action->dev_id;
	frame->carried = 0;
	frame->began = 0;
	frame->known = vector->queue;
	/* On a shared line each interrupt calls all handlers; only one of them is counted. */
	if (unlikely(vector->action != identity(action))) {
		if (vector->action)
			return 0;
		vector->action = identity(action);
	}
	if (unlikely(vector->cpu != cpu + 1))
		move_vector(place, cpu, vector->interrupts);
	if (vector->interrupts)
		end_carried(vector);
	vector->interrupts++;
	if (is_timed(vector->interrupts, &vector->next_timed)) {
		__u64 now = bpf_ktime_get_ns();

		if (vector->arrived)
			count_into(&vector->apart, vector->apart_counts, now - vector->arrived);
		vector->arrived = now;
		frame->began = now;
	} else if (vector->arrived) {
		count_into(&vector->apart, vector->apart_counts,
			   bpf_ktime_get_ns() - vector->arrived);
		vector->arrived = 0;
	}
	return 0;
}

/* The handler woke its thread, whose completions belong to the interrupt. */
static __noinline int note_thread(__u32 place, __u64 handler, __u32 thread)
{
	struct wire_vector *vector = vector_at(place);

	if (!vector || vector->thread == thread)
		return 0;
	if (bpf_map_update_elem(&threaded_handlers, &handler, &place, BPF_ANY))
		__sync_fetch_and_add(&unlearned, 1);
	else
		vector->thread = thread;
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_exit, int irq, struct irqaction *action, int ret)
{
	struct frame *frame = frame_of(bpf_get_smp_processor_id());
	struct wire_vector *vector;

	if (!frame || !frame->vector || frame->number != (__u32)irq)
		return 0;
	vector = vector_at(frame->vector);
	if (!vector)
		return 0;
	if (frame->began) {
		count_into(&vector->handler, vector->handler_counts,
			   bpf_ktime_get_ns() - frame->began);
		/* After the clock read, so that it is not part of the handler's time. */
		note_interrupted(frame->vector);
	}
	if (frame->carried) {
		/* On a shared line, count the handler that has completions, which the admin queue's
		 * mostly has not. */
		if (unlikely(vector->action != identity(action) && !vector->inside))
			vector->action = identity(action);
		vector->inside += frame->carried;
	} else if (ret == IRQ_NONE && vector->action == identity(action)) {
		vector->unhandled++;
	}
	if (unlikely(ret & IRQ_WAKE_THREAD)) {
		vector->threaded++;
		note_thread(frame->vector, frame->handler, BPF_CORE_READ(action, thread, pid));
	}
	frame->handler = 0;
	frame->vector = 0;
	return 0;
}

/* "ksoftirq", the prefix of those threads' names. */
#define KSOFTIRQ 0x71726974666f736bull

static __noinline int has_name_of_ksoftirqd(void)
{
	union {
		char comm[16];
		__u64 first;
	} name = {};

	bpf_get_current_comm(name.comm, sizeof(name.comm));
	if (name.first != KSOFTIRQ)
		return 0;
	/* Any task may call itself so. */
	return !!(BPF_CORE_READ((struct task_struct *)bpf_get_current_task(), flags) & PF_KTHREAD);
}

/*
 * Whether the block softirq was deferred to ksoftirqd. Mostly it runs in the same task as last
 * time.
 */
static __always_inline int is_ksoftirqd(struct frame *frame)
{
	__u32 thread = bpf_get_current_pid_tgid();

	if (frame->looked_at != thread) {
		frame->looked_at = thread;
		frame->is_ksoftirqd = thread && has_name_of_ksoftirqd();
	}
	return frame->is_ksoftirqd;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_begin, unsigned int kind)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct wire_softirq *row;
	struct frame *frame;

	if (kind != BLOCK_SOFTIRQ || !running)
		return 0;
	frame = frame_of(cpu);
	row = bpf_map_lookup_elem(&softirqs, &cpu);
	if (!frame || !row)
		return 0;
	frame->softirq = 1;
	frame->softirq_began = 0;
	row->runs++;
	if (is_ksoftirqd(frame))
		row->deferred++;
	if (is_timed(row->runs, &row->next_timed))
		frame->softirq_began = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_end, unsigned int kind)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct wire_softirq *row;
	struct frame *frame;
	__u64 took;

	if (kind != BLOCK_SOFTIRQ)
		return 0;
	frame = frame_of(cpu);
	row = bpf_map_lookup_elem(&softirqs, &cpu);
	if (!frame || !row)
		return 0;
	frame->softirq = 0;
	if (!frame->softirq_began)
		return 0;
	took = bpf_ktime_get_ns() - frame->softirq_began;
	frame->softirq_began = 0;
	row->timed++;
	row->time.sum += took;
	if (row->time.not_min < ~took)
		row->time.not_min = ~took;
	if (row->time.max < took)
		row->time.max = took;
	return 0;
}

/* The queue that a vector serves, from the first I/O that its handler reaps. */
static __noinline int note_queue(__u32 place, __u32 device, __u32 queue)
{
	struct wire_vector *vector = vector_at(place);

	if (!vector)
		return 0;
	vector->device = device + 1;
	vector->queue = queue + 1;
	return 0;
}

/*
 * A batch of a poll queue lasts until an I/O completes on this CPU. Since 5.16 (f794f3351f26) the
 * driver reaps all entries that it finds and then completes them; before that, and for passthrough,
 * each entry is a batch of its own.
 */
static __always_inline void reaped_by_poll(struct frame *frame, __u32 place)
{
	struct wire_vector *queue = vector_at(place);

	if (!queue)
		return;
	if (frame->polled != place) {
		frame->polled = place;
		if (queue->interrupts)
			end_carried(queue);
		queue->interrupts++;
	}
	queue->inside++;
}

/* An entry that was not reaped by its queue's interrupt handler. */
static __always_inline void reaped_outside(struct frame *frame, struct owner *owner, __u64 handler,
					   __u32 hw_queue)
{
	struct wire_queue *queue = 0;
	struct wire_vector *vector;
	__u32 *place;

	if (owner && owner->traced)
		queue = bpf_map_lookup_elem(&queues, &owner->slot_base);
	/* Polling has the highest rates: it is checked first, without a hash map. */
	if (queue && queue->kind == QUEUE_POLLED) {
		reaped_by_poll(frame, queue->place);
		return;
	}
	place = bpf_map_lookup_elem(&threaded_handlers, &handler);
	vector = place ? vector_at(*place) : 0;
	if (vector && vector->thread == (__u32)bpf_get_current_pid_tgid()) {
		__sync_fetch_and_add(&vector->outside, 1);
		if (unlikely(!vector->queue) && owner && owner->traced)
			note_queue(*place, owner->device, hw_queue);
		return;
	}
	if (queue)
		__sync_fetch_and_add(&queue->elsewhere, 1);
}

/* NVMe: the driver reaps the completion entry. The tracepoint is in a module. */
SEC("?tp_btf/nvme_sq")
int BPF_PROG(nvme_sq, struct request *rq)
{
	struct frame *frame = frame_of(bpf_get_smp_processor_id());
	struct blk_mq_hw_ctx *hctx;
	struct owner *owner;
	__u64 handler;

	/* For the verifier, arguments of module tracepoints may be NULL (6.12 and newer). */
	if (!rq || !running || !frame)
		return 0;
	hctx = rq->mq_hctx;
	handler = (__u64)hctx->driver_data;
	if (frame->handler == handler && frame->vector) {
		frame->carried++;
		if (unlikely(!frame->known)) {
			owner = owner_of_request(rq);
			frame->known = 1;
			/* Not for the admin queue, or for a disk that is not traced. */
			if (owner)
				note_queue(frame->vector, owner->device, hctx->queue_num);
		}
		return 0;
	}
	reaped_outside(frame, owner_of_request(rq), handler, hctx->queue_num);
	return 0;
}

/* The same as a raw tracepoint, if the types of the module cannot be read or do not exist. */
SEC("?raw_tp/nvme_sq")
int BPF_PROG(nvme_sq_raw, struct request *rq)
{
	struct frame *frame = frame_of(bpf_get_smp_processor_id());
	struct blk_mq_hw_ctx *hctx;
	struct owner *owner;
	__u64 handler;

	if (!running || !frame)
		return 0;
	hctx = BPF_CORE_READ(rq, mq_hctx);
	handler = (__u64)BPF_CORE_READ(hctx, driver_data);
	owner = other_owner_of_request(rq, owner_place(low_half(hctx)));
	if (frame->handler == handler && frame->vector) {
		frame->carried++;
		if (unlikely(!frame->known) && owner && owner->traced) {
			frame->known = 1;
			note_queue(frame->vector, owner->device, BPF_CORE_READ(hctx, queue_num));
		}
		return 0;
	}
	reaped_outside(frame, owner, handler, BPF_CORE_READ(hctx, queue_num));
	return 0;
}

/* Counts a completion for the interrupt of its queue, for a driver without a reap event. */
static __always_inline void carried_by_name(struct frame *frame, struct wire_queue *queue)
{
	struct wire_vector *vector;

	if (queue->place == frame->vector) {
		frame->carried++;
		return;
	}
	vector = vector_at(queue->place);
	if (vector)
		__sync_fetch_and_add(&vector->outside, 1);
}

/* The kernel's counter that includes the request. */
static __always_inline __u32 counted_as(__u32 cmd_flags)
{
	__u32 op = cmd_flags & REQ_OP_MASK;

	if (op == REQ_OP_READ)
		return COUNTED_READ;
	if (op == REQ_OP_FLUSH)
		return COUNTED_FLUSH;
	if (op == REQ_OP_DISCARD)
		return COUNTED_DISCARD;
	if (op >= REQ_OP_FIRST_DRIVER)
		return COUNTED_NONE;
	/* Zone and erase operations: the kernel counts odd numbers as writes. */
	return op & 1 ? COUNTED_WRITE : COUNTED_READ;
}

/*
 * Counts a request of a disk that is not traced, so that its share of the softirq time is not
 * charged to traced disks.
 */
static __always_inline void note_other(void)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct frame *frame = running ? frame_of(cpu) : 0;
	struct wire_softirq *row;

	if (!frame || !frame->softirq || frame->vector)
		return;
	row = bpf_map_lookup_elem(&softirqs, &cpu);
	if (row)
		row->others++;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(rq_complete, struct request *rq, int error, unsigned int nr_bytes)
{
	struct owner *owner = owner_of_request(rq);
	__u32 cpu, class, at;
	struct wire_completions *row;
	struct wire_queue *queue;
	struct frame *frame;

	if (!owner) {
		note_other();
		return 0;
	}
	class = counted_as(rq->cmd_flags);
	/* Counted when the kernel counts it: when all of it is complete, and not before its
	 * flush. */
	if (nr_bytes < rq->__data_len)
		return 0;
	if (class != COUNTED_FLUSH && rq->rq_flags & config.rqf_flush_seq)
		return 0;
	cpu = bpf_get_smp_processor_id();
	at = owner->device * config.cpus + cpu;
	row = bpf_map_lookup_elem(&completions, &at);
	frame = frame_of(cpu);
	queue = bpf_map_lookup_elem(&queues, &owner->slot_base);
	if (!row || !frame || !queue)
		return 0;
	if (queue->kind == QUEUE_BY_NAME)
		carried_by_name(frame, queue);
	add(&row->ios[class], 1, config.nested_runs);
	if (frame->vector)
		add(&row->contexts[IN_INTERRUPT], 1, config.nested_runs);
	else if (!frame->softirq)
		frame->polled = 0;
	else if (queue->single)
		add(&row->contexts[IN_SOFTIRQ], 1, config.nested_runs);
	else
		add(&row->contexts[IN_REMOTE_SOFTIRQ], 1, config.nested_runs);
	return 0;
}
