/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Operations: what applications hand over, from the system call that carries it to its return. For
 * the latency programs, whose `config` must stand before it.
 *
 * An operation is an io_uring request or a read or write system call. It is begun by its entry,
 * learns its stages from the request that finishes last among its parts, ends when its result is
 * visible, and is counted when its application gets to see that:
 *
 *   entered ... queued ... issued ... reaped ... ended ... (return of the system call)
 *       submit     queue      device    complete     reap
 *
 * A bio is joined to its operation when it enters the block layer: by the kiocb behind it, which is
 * the io_uring request itself, or by the task, for a system call that waits.
 */
#ifndef BIOPSY_OPERATIONS_H
#define BIOPSY_OPERATIONS_H

#include "compat.h"
#include "wire.h"
#include "hist.h"
#include "bios.h"
#include "emit.h"
#include "groups.h"
#include "owner.h"
#include "parts.h"
#include "stamps.h"

/* Known to belong to a system call whose number the kernel gave; user space fills it. */
const volatile __u8 syscall_kinds[WIRE_SYSCALLS] = {};

/* A task within a system call that can carry I/O. Found by thread id; two ids of one place take
 * turns: the second is not followed while the first is inside. */
#define CALLER_BITS 14

struct caller {
	__u32 tid;
	__u8 kind;
	/* It has handed in a bio to a bio-based device that is traced. */
	__u8 layered;
	/* Requests that finished for the system call it is in. */
	__u16 parts;
	__u64 entered;
	union {
		struct {
			/* io_uring: the last request that this call submitted, and the first of
			 * those whose result it has not returned with; numbers of `operations`
			 * + 1. */
			__u32 current;
			__u32 pending;
		};
		/* io_getevents: where the application wants its results. */
		__u64 results;
	};
	struct stamps stamps;
};
_Static_assert(sizeof(struct caller) == 64, "caller");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << CALLER_BITS);
	__type(key, __u32);
	__type(value, struct caller);
} callers SEC(".maps");

/* An io_uring request in flight. */
#define OPERATION_BITS	   14
#define OPERATION_ROW_BITS 4
#define OPERATION_ROW	   (1 << OPERATION_ROW_BITS)
#define OPERATION_PROBES   8

struct operation {
	/* Address of the request; 0: free, OPERATION_ENDED: its result is visible. */
	__u64 request;
	__u64 entered;
	/* The next one of the same caller, + 1. */
	__u32 next;
	/* Requests of the block layer that finished for it. */
	__u32 parts;
	struct stamps stamps;
};
_Static_assert(sizeof(struct operation) == 64, "operation");

#define OPERATION_ENDED 1

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << OPERATION_BITS);
	__type(key, __u32);
	__type(value, struct operation);
} operations SEC(".maps");

/* Sized by user space: Σ over devices of covers × (shards × OPS_SHARDED + rare operations). */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wire_operation_row);
} operation_rows SEC(".maps");

/* Operations that could not be followed: their place was taken. */
__u64 unfollowed = 0;

/* Of an I/O that is a bio. */
#define NO_SLOT (~0u)

/* What a request that completes says to the operations of its bios. */
struct part {
	__u64 bio;
	struct stamps stamps;
	/* The request's, or NO_SLOT. */
	__u32 slot;
	__u32 pad;
	/* One of the bios belongs to an operation that is followed. A flag: the verifier would go
	 * through every value of a count. */
	__u64 owned;
	/* Bios of which the entry was known, and their time from there on. */
	__u64 bios;
	__u64 bio_ns;
};

#ifdef NO_SWAP
/* Kernels without compare-and-swap have no events that name an io_uring request either. */
static __always_inline void link_bio(const void *private, __u64 address, __u32 layer, __u64 *link,
				     __u64 *proof)
{
}

static __always_inline int finish_bios(struct part *part, int alone)
{
	return 0;
}

static __always_inline void call_entered(__u32 kind, struct pt_regs *regs)
{
}

static __always_inline void call_returned(long result)
{
}

static __always_inline void ring_submitted(struct io_kiocb *req)
{
}

static __always_inline void operation_ended(__u64 request)
{
}

static __always_inline void ring_punted(__u64 request)
{
}

static __always_inline void task_woken(__u32 tid)
{
}

static __always_inline void task_runs(__u32 tid)
{
}
#else
static __always_inline struct caller *place_of(__u32 tid)
{
	__u32 index = tid & ((1 << CALLER_BITS) - 1);

	return bpf_map_lookup_elem(&callers, &index);
}

/* The system call that the current task is in, where that can carry I/O. */
static __always_inline struct caller *current_caller(void)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct caller *caller = place_of(tid);

	return caller && caller->tid == tid && caller->kind ? caller : 0;
}

/*
 * Requests are slab objects of 256 bytes (248 in 6.18): those of one page share a row, and a row
 * that is taken sends them to the next, not to their neighbours' places.
 */
static __always_inline __u32 operation_place(__u64 request)
{
	__u32 low = low_half((const void *)request);
	__u32 row = ((low >> 12) * 0x9e3779b1u) >> 16;

	return row << OPERATION_ROW_BITS | (low >> 8 & (OPERATION_ROW - 1));
}

static __always_inline __u32 operation_index(__u32 place, __u32 probe)
{
	return (place + probe * OPERATION_ROW) & ((1 << OPERATION_BITS) - 1);
}

static __always_inline struct operation *operation_at(__u32 index)
{
	index &= (1 << OPERATION_BITS) - 1;
	return bpf_map_lookup_elem(&operations, &index);
}

/* The number of a request's operation + 1; 0: none. */
static __always_inline __u32 find_operation(__u64 request)
{
	__u32 place = operation_place(request);

	for (__u32 i = 0; i < OPERATION_PROBES; i++) {
		struct operation *operation = operation_at(operation_index(place, i));

		if (operation && operation->request == request)
			return operation_index(place, i) + 1;
	}
	return 0;
}

/*
 * libaio names an operation by the address of the application's iocb. That and the process make a
 * key that no address of the kernel equals, and whose low bits spread.
 */
#define AIO_LONG_AGO	10000000000ull

static __always_inline __u64 aio_key(__u64 iocb)
{
	__u64 process = bpf_get_current_pid_tgid() >> 32;

	return ((iocb ^ process << 47) * 0x9e3779b97f4a7c15ull >> 1) | 2;
}

/* Of a process that ended, or that fetches its results without a system call. */
static __always_inline int abandoned(const struct operation *operation, __u64 now)
{
	return !(operation->request >> 63) && operation->parts &&
	       now - operation->entered > AIO_LONG_AGO;
}

static __always_inline __u32 begin_operation(__u64 request, __u64 entered)
{
	__u32 place = operation_place(request);

	for (__u32 i = 0; i < OPERATION_PROBES; i++) {
		struct operation *operation = operation_at(operation_index(place, i));
		__u64 held;

		if (!operation)
			return 0;
		held = operation->request;
		/* The same address: its last life ended without a completion (IOSQE_CQE_SKIP). */
		if (held && held != request && !abandoned(operation, entered))
			continue;
		if (__sync_val_compare_and_swap(&operation->request, held, request) != held)
			continue;
		operation->entered = entered;
		operation->parts = 0;
		operation->next = 0;
		return operation_index(place, i) + 1;
	}
	__sync_fetch_and_add(&unfollowed, 1);
	return 0;
}

int count_operation(const struct stamps *of, __u64 entered, __u64 seen);
int count_in_group(const struct stamps *of, __u64 entered, __u64 seen);

/* The calls' places in `operation_parts` lie behind the operations'. */
static __always_inline __u32 call_place(__u32 tid)
{
	return (1 << OPERATION_BITS) + (tid & ((1 << CALLER_BITS) - 1));
}

_Static_assert((1 << OPERATION_BITS) + (1 << CALLER_BITS) == 1 << FACTS_BITS, "facts");

/* I/Os that finished for the operation in a place. */
static __always_inline __u32 parts_at(__u32 place)
{
	struct operation *operation;
	struct caller *caller;

	if (place >> OPERATION_BITS) {
		caller = place_of(place - (1 << OPERATION_BITS));
		return caller ? caller->parts : 0;
	}
	operation = operation_at(place);
	return operation ? operation->parts : 0;
}

/* Sends an operation that is counted, where an I/O with an event belongs to it. */
__noinline int emit_operation(struct wire_operation *operation, const struct stamps *of,
			      __u32 place)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct facts *facts = facts_at(place);
	struct wire_emitter *emitter;

	if (!operation || !of || !facts || !facts->io)
		return 0;
	operation->kind = EVENT_OPERATION;
	operation->opcode = facts->opcode;
	operation->operation = facts->id;
	operation->user_data = facts->user_data;
	operation->queued = of->queued;
	operation->issued = of->issued;
	operation->reaped = of->reaped;
	operation->ended = of->ended;
	operation->io = facts->io;
	operation->leader = facts->leader;
	operation->from = facts->from;
	operation->parts = parts_at(place);
	operation->fused = of->fused;
	emitter = bpf_map_lookup_elem(&emitters, &cpu);
	if (!emit(cpu, operation, sizeof(*operation)) && emitter)
		__sync_fetch_and_add(&emitter->lost_operations, 1);
	return 0;
}

/* Counts an operation that ended, and its parts. */
static __always_inline void count_whole(const struct stamps *of, __u64 entered, __u64 seen,
					__u32 place, __u32 waiter)
{
	if (config.most_groups) {
		/* Both rows are told the same, whatever part writes over it meanwhile. */
		struct stamps once = *of;

		count_operation(&once, entered, seen);
		count_in_group(&once, entered, seen);
	} else {
		count_operation(of, entered, seen);
	}
	if (config.want_events) {
		struct wire_operation operation = {.entered = entered, .seen = seen};

		emit_operation(&operation, of, place);
	}
	if (config.want_parts) {
		struct whole whole = {.stamps = *of, .entered = entered, .seen = seen};

		whole.place = place;
		whole.waiter = waiter;
		count_parts(&whole);
	}
}

/* The operation of a kiocb that io_submit hands in, + 1; 0: it is not one of libaio's. */
VERIFIED_ONCE __u32 aio_operation(__u64 kiocb, __u64 entered)
{
	struct aio_kiocb *aio = (struct aio_kiocb *)kiocb;
	__u64 iocb = BPF_CORE_READ(aio, ki_res.obj);
	struct operation *operation;
	__u64 key, data = 0;
	__u32 number;

	/* Whatever else a bio may carry there has no such iocb: both hold the application's word.
	 */
	if (bpf_probe_read_user(&data, sizeof(data), (const void *)iocb) ||
	    data != BPF_CORE_READ(aio, ki_res.data))
		return 0;
	key = aio_key(iocb);
	number = find_operation(key);
	operation = number ? operation_at(number - 1) : 0;
	if (operation) {
		/* One of several bios. */
		if (operation->entered == entered)
			return number;
		/* The iocb is in use again, and nobody was seen to fetch the last result. */
		if (operation->parts && running)
			count_whole(&operation->stamps, operation->entered, 0, number - 1, 0);
	}
	number = begin_operation(key, entered);
	if (config.want_events && number) {
		struct facts *facts = begin_facts(number - 1, CALL_AIO);

		if (facts)
			facts->user_data = data;
	}
	return number;
}

/* The call whose task has this address on its kernel stack. */
static __always_inline struct caller *call_on_stack(__u64 address)
{
	__u32 low = low_half((const void *)address);
	__u32 *tid = stack_owner(low);
	struct caller *caller = tid ? place_of(*tid) : 0;
	struct operation_parts *parts;

	if (!caller || caller->tid != *tid || caller->kind != CALL_WAITS)
		return 0;
	parts = operation_parts_at(call_place(*tid));
	return parts && parts->stack == low >> KERNEL_STACK_SHIFT ? caller : 0;
}

/* A bio that the throttling worker brings, of a call that waits for it. */
static __noinline struct caller *held_call(__u64 bio, __u64 private, __u64 iocb)
{
	struct caller *caller = call_on_stack(bio);

	if (!caller)
		caller = call_on_stack(private);
	if (!caller)
		caller = call_on_stack(iocb);
	return caller;
}

/*
 * The operation of a bio that enters the block layer, as a link to be kept with the bio: the number
 * of the operation, or the thread id with LINK_CALLER, and when it was entered as its proof.
 */
#define LINK_CALLER	(1ull << 63)
/* blk-throttle held it back: its queue began when its operation was submitted. */
#define LINK_THROTTLED	(1ull << 62)

/*
 * An operation belongs to the device that it was handed to. Where that is bio-based and traced, the
 * bios below are its layer's: only those that name their kiocb themselves are the application's.
 */
static __always_inline int is_of_layer(struct caller *caller, __u32 layer)
{
	if (!config.want_bios || !caller)
		return 0;
	if (layer & BELOW && caller->layered)
		return 1;
	if (layer & BIO_BASED)
		caller->layered = 1;
	return 0;
}

static __always_inline void link_bio(const void *private, __u64 address, __u32 layer, __u64 *link,
				     __u64 *proof)
{
	struct caller *caller = current_caller();
	int of_layer = is_of_layer(caller, layer);
	struct operation *operation;
	__u64 iocb = 0, held = 0;
	__u32 number;

	*link = 0;
	if (caller && caller->kind == CALL_WAITS) {
		if (of_layer)
			return;
		*link = LINK_CALLER | caller->tid;
		*proof = caller->entered;
		return;
	}
	/*
	 * Kernel threads write back and serve layers: nobody waits for them. Only blk-throttle's
	 * brings what an application handed in, some time after it did.
	 */
	if (!caller && current_is_kernel_thread()) {
		if (!config.want_throttle)
			return;
		held = LINK_THROTTLED;
	}
	/*
	 * A direct I/O of the block device keeps its kiocb around the only bio, others (and those
	 * of file systems on iomap) point to what begins with it. A kiocb of io_uring is its
	 * request.
	 */
	if (private)
		iocb = word_at(private);
	else if (has_blkdev_dio())
		iocb = word_at(blkdev_dio_of(address));
	if (config.want_throttle && held) {
		caller = held_call(address, (__u64) private, iocb);
		if (caller) {
			*link = LINK_CALLER | held | caller->tid;
			*proof = caller->entered;
			return;
		}
	}
	if (caller && caller->kind == CALL_AIO)
		number = iocb ? aio_operation(iocb, caller->entered) : 0;
	else
		number = iocb ? find_operation(iocb) : 0;
	/* A buffered read, and a bio of a stacked device, know no kiocb: the request that this call
	 * is submitting. */
	if (!number && caller && caller->kind == CALL_RING && !of_layer)
		number = caller->current;
	operation = number ? operation_at(number - 1) : 0;
	if (!operation)
		return;
	*link = number | held;
	*proof = operation->entered;
}

/*
 * The time until its last bio came from the throttling worker is no submission. Where a system call
 * that waits handed it in nobody knows: its queue begins at its entry.
 */
static __always_inline void held_back(struct stamps *stamps, __u64 submitted, __u32 place)
{
	struct operation_parts *parts = operation_parts_at(place);

	if (!parts || submitted > stamps->queued)
		return;
	parts->throttled = stamps->queued - submitted;
	stamps->queued = submitted;
}

/* When a request of io_uring was submitted. */
static __always_inline __u64 submission(const struct operation *operation, __u32 place)
{
	struct operation_parts *parts = operation_parts_at(place);

	return parts && parts->submitted > operation->entered ? parts->submitted
							      : operation->entered;
}

static __always_inline void join_parts(__u32 place, const struct part *part)
{
	if (part->slot == NO_SLOT)
		parts_of_none(place, part->stamps.ended);
	else
		parts_joined(place, part->slot, part->stamps.ended);
}

/* True where the operation is still there. */
static __always_inline int finish_part(__u64 link, __u64 proof, const struct part *part)
{
	__u32 number = link;
	struct operation *operation;

	if (link & LINK_CALLER) {
		struct caller *caller = place_of(link);

		/* It has returned since: a read-ahead that it did not wait for. */
		if (!caller || caller->tid != (__u32)link || caller->entered != proof)
			return 0;
		caller->stamps = part->stamps;
		caller->parts++;
		if (config.want_parts)
			join_parts(call_place(link), part);
		if (config.want_throttle && link & LINK_THROTTLED)
			held_back(&caller->stamps, caller->entered, call_place(link));
		return 1;
	}
	operation = operation_at(number - 1);
	if (!operation || operation->entered != proof || operation->request <= OPERATION_ENDED)
		return 0;
	operation->stamps = part->stamps;
	operation->parts++;
	if (config.want_parts)
		join_parts(number - 1, part);
	if (config.want_throttle && link & LINK_THROTTLED)
		held_back(&operation->stamps, submission(operation, number - 1), number - 1);
	return 1;
}

static __always_inline void finish_bio(struct part *part)
{
	__u32 way;
	struct bio_set *set = find_bio(part->bio, &way);

	if (!set)
		return;
	part->stamps.queued = set->queued[way];
	if (config.want_bios) {
		part->bios++;
		part->bio_ns += part->stamps.ended - part->stamps.queued;
	}
	if (set->link[way] && finish_part(set->link[way], set->proof[way], part))
		part->owned = 1;
	set->bio[way] = 0;
}

static long finish_next(__u32 i, struct part *part)
{
	finish_bio(part);
	part->bio = next_bio(part->bio);
	return !part->bio;
}

/*
 * True where one of the bios belongs to an operation that is followed. Not static: the verifier
 * looks at it once, and not for each way that leads here.
 */
VERIFIED_ONCE int finish_bios(struct part *part, int alone)
{
	struct part walk;

	if (!part)
		return 0;
	if (alone) {
		finish_bio(part);
		return part->owned != 0;
	}
	walk = *part;
	bpf_loop(MOST_BIOS, finish_next, &walk, 0);
	part->bios = walk.bios;
	part->bio_ns = walk.bio_ns;
	return walk.owned != 0;
}

static __always_inline struct wire_operation_row *operation_row(__u32 device, __u32 op, __u32 cover,
								int *shared)
{
	struct wire_device *facts = bpf_map_lookup_elem(&devices, &device);
	__u32 index;

	if (!facts || op >= OPS || cover >= COVERS)
		return 0;
	index = facts->operation_row_base;
	*shared = 1;
	if (op < OPS_SHARDED) {
		__u32 shards = facts->operation_shards;
		__u32 shard = bpf_get_smp_processor_id();

		*shared = facts->flags & SHARED_OPERATION_ROWS;
		if (shards && shard >= shards)
			shard %= shards;
		index += (shard * COVERS + cover) * OPS_SHARDED + op;
	} else {
		index += facts->operation_shards * COVERS * OPS_SHARDED;
		index += cover * (OPS - OPS_SHARDED) + op - OPS_SHARDED;
	}
	return bpf_map_lookup_elem(&operation_rows, &index);
}

/*
 * The stages of one operation. `seen` is when its application saw the result; 0: that is not known.
 * `in_group`: in the row of its group and not in that of the device.
 */
static __always_inline int add_operation(const struct stamps *of, __u64 entered, __u64 seen,
					 int in_group)
{
	__u64 queued, issued, reaped, ended, last, submit, queue, device, complete, reap, total;
	struct wire_operation_row *row;
	struct wire_total *class;
	__u32 cover = COVER_ALL;
	int shared = 1;
	__u64 i;

	if (!of)
		return 0;
	/* Once: another part may write over them at this moment. */
	queued = *(const volatile __u64 *)&of->queued;
	issued = *(const volatile __u64 *)&of->issued;
	reaped = *(const volatile __u64 *)&of->reaped;
	ended = *(const volatile __u64 *)&of->ended;
	if (!seen)
		cover = COVER_NO_REAP;
	else if (of->fused)
		cover = COVER_NO_COMPLETE;
	if (in_group)
		row = group_operation_row(of->group, cover);
	else
		row = operation_row(of->device, of->op, cover, &shared);
	if (!row)
		return 0;
	/* Neither is known: no other operations have just these stages. */
	if (!seen && of->fused) {
		__sync_fetch_and_add(&row->bare, 1);
		return 0;
	}
	last = seen ? seen : ended;
	/*
	 * Two parts that finish on two CPUs at once may leave a mixture. Counted, and without
	 * stages.
	 */
	if (queued < entered || issued < queued || reaped < issued || ended < reaped ||
	    last < ended) {
		__sync_fetch_and_add(&row->torn, 1);
		return 0;
	}
	submit = queued - entered;
	queue = issued - queued;
	device = reaped - issued;
	complete = ended - reaped;
	reap = last - ended;
	total = last - entered;
	/* 0: blk-throttle held it, and nobody knows when it was handed in. */
	if (submit)
		add_time(row->extents, row->counts, &row->lock, OPERATION_SUBMIT, submit, shared);
	add_time(row->extents, row->counts, &row->lock, OPERATION_QUEUE, queue, shared);
	add_time(row->extents, row->counts, &row->lock, OPERATION_DEVICE, device, shared);
	if (cover != COVER_NO_COMPLETE)
		add_time(row->extents, row->counts, &row->lock, OPERATION_COMPLETE, complete,
			 shared);
	if (seen)
		add_time(row->extents, row->counts, &row->lock, OPERATION_REAP, reap, shared);
	add_time(row->extents, row->counts, &row->lock, OPERATION_TOTAL, total, shared);
	i = total >> HIST_MAX_BITS ? HIST_MAX_BITS : msb64(total | 1);
	/* 6.1's verifier follows no 32-bit bound into a 64-bit register. */
	asm volatile("%0 &= 63" : "+r"(i));
	if (i > HIST_MAX_BITS)
		return 0;
	class = &row->by_total[i];
	add(&class->operations, 1, shared);
	add(&class->sums[OPERATION_SUBMIT], submit, shared);
	add(&class->sums[OPERATION_QUEUE], queue, shared);
	add(&class->sums[OPERATION_DEVICE], device, shared);
	add(&class->sums[OPERATION_COMPLETE], complete, shared);
	if (seen)
		add(&class->sums[OPERATION_REAP], reap, shared);
	return 0;
}

/* Not static: verified once. */
__noinline int count_operation(const struct stamps *of, __u64 entered, __u64 seen)
{
	return add_operation(of, entered, seen, 0);
}

__noinline int count_in_group(const struct stamps *of, __u64 entered, __u64 seen)
{
	/* Before 94e1c70a3452 (6.8) it is verified where it is not called as well. */
	return config.most_groups ? add_operation(of, entered, seen, 1) : 0;
}

/* The operations whose results a returning io_uring_enter brings. */
struct returning {
	__u64 now;
	__u32 next;
	/* The call's place. */
	__u32 waiter;
};

static long count_next(__u32 i, struct returning *returning)
{
	struct operation *operation;

	if (!returning->next)
		return 1;
	operation = operation_at(returning->next - 1);
	/* Nobody but its caller touches an ended operation. */
	if (!operation || operation->request != OPERATION_ENDED)
		return 1;
	count_whole(&operation->stamps, operation->entered, returning->now, returning->next - 1,
		    returning->waiter);
	returning->next = operation->next;
	operation->request = 0;
	return 0;
}

/* More results than this do not come back with one system call. */
#define MOST_RESULTS	32768

/* struct io_event of the UAPI. */
#define AIO_EVENT_BYTES 32
#define AIO_EVENT_OBJ	8

/* The results that io_getevents returns with. */
struct fetched {
	__u64 now;
	__u64 event;
	__u32 left;
	/* The call's place. */
	__u32 waiter;
};

static long count_fetched(__u32 i, struct fetched *fetched)
{
	struct operation *operation;
	__u64 iocb = 0;
	__u32 number;

	if (!fetched->left)
		return 1;
	fetched->left--;
	bpf_probe_read_user(&iocb, sizeof(iocb), (const void *)(fetched->event + AIO_EVENT_OBJ));
	fetched->event += AIO_EVENT_BYTES;
	number = find_operation(aio_key(iocb));
	operation = number ? operation_at(number - 1) : 0;
	if (!operation)
		return 0;
	if (operation->parts && running)
		count_whole(&operation->stamps, operation->entered, fetched->now, number - 1,
			    fetched->waiter);
	operation->request = 0;
	return 0;
}

/* The registers of a system call lie on the kernel stack of its task. */
static __always_inline void call_waits(__u32 tid, __u64 regs)
{
	__u32 low = low_half((const void *)regs);
	struct operation_parts *parts = operation_parts_at(call_place(tid));
	__u32 *owner = stack_owner(low);

	if (!parts || !owner)
		return;
	parts->stack = low >> KERNEL_STACK_SHIFT;
	parts->throttled = 0;
	*owner = tid;
}

static __always_inline void call_entered(__u32 kind, struct pt_regs *regs)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct caller *caller = place_of(tid);

	if (!caller)
		return;
	if (caller->tid != tid) {
		/* It may have died within its call; after 10 s nobody believes in it any more. */
		if (caller->kind && bpf_ktime_get_ns() - caller->entered < 10000000000ull) {
			__sync_fetch_and_add(&unfollowed, 1);
			return;
		}
		caller->tid = tid;
	}
	caller->results = 0;
	if (kind == CALL_AIO_FETCH)
		caller->results = BPF_CORE_READ(regs, r10);
	caller->parts = 0;
	caller->layered = 0;
	if (config.want_throttle && kind == CALL_WAITS)
		call_waits(tid, (__u64)regs);
	caller->entered = bpf_ktime_get_ns();
	if (config.want_events)
		begin_facts(call_place(tid), kind);
	barrier();
	caller->kind = kind;
}

static __always_inline void call_returned(long result)
{
	struct caller *caller = current_caller();

	if (!caller)
		return;
	if (caller->kind == CALL_WAITS) {
		/* The end of the window cuts operations off: they are not counted. */
		if (caller->parts && running)
			count_whole(&caller->stamps, caller->entered, bpf_ktime_get_ns(),
				    call_place(caller->tid), call_place(caller->tid));
	} else if (caller->kind == CALL_AIO_FETCH) {
		struct fetched fetched = {};

		if (result > 0) {
			fetched.now = bpf_ktime_get_ns();
			fetched.event = caller->results;
			fetched.left = result;
			fetched.waiter = call_place(caller->tid);
			bpf_loop(MOST_RESULTS, count_fetched, &fetched, 0);
		}
	} else if (caller->kind == CALL_RING && caller->pending) {
		struct returning returning = {};

		returning.now = bpf_ktime_get_ns();
		returning.next = caller->pending;
		returning.waiter = call_place(caller->tid);
		bpf_loop(MOST_RESULTS, count_next, &returning, 0);
		caller->pending = 0;
	}
	caller->kind = 0;
	/* A bio that is still out must not find this call in the next one. */
	caller->entered = 0;
}

/* Operations of io_uring that read or write; numbers of the UAPI, never changed. */
#define RING_READ_OR_WRITE                                                                         \
	(1ull << 1 | 1ull << 2 | 1ull << 3 | 1ull << 4 | 1ull << 5 | 1ull << 22 | 1ull << 23)

static __always_inline void submitted(__u32 place)
{
	struct operation_parts *parts = operation_parts_at(place);

	if (!parts)
		return;
	parts->submitted = bpf_ktime_get_ns();
	parts->punted = 0;
	parts->throttled = 0;
}

static __always_inline void ring_punted(__u64 request)
{
	__u32 number = find_operation(request);
	struct operation_parts *parts = number ? operation_parts_at(number - 1) : 0;

	if (parts)
		parts->punted = bpf_ktime_get_ns();
}

/* The parts of the call that a task is in. */
static __always_inline struct operation_parts *call_of(__u32 tid)
{
	struct caller *caller = place_of(tid);

	return caller && caller->tid == tid && caller->kind ? operation_parts_at(call_place(tid))
							    : 0;
}

static __always_inline void task_woken(__u32 tid)
{
	struct operation_parts *parts = call_of(tid);

	if (parts)
		parts->woken = bpf_ktime_get_ns();
}

static __always_inline void task_runs(__u32 tid)
{
	struct operation_parts *parts = call_of(tid);

	if (parts && parts->ran < parts->woken)
		parts->ran = bpf_ktime_get_ns();
}

/* What the event of an operation of io_uring will say. */
static __always_inline void note_request(__u32 place, struct io_kiocb *req)
{
	struct facts *facts = begin_facts(place, CALL_RING);

	if (!facts)
		return;
	facts->opcode = req->opcode;
	if (bpf_core_field_exists(struct io_kiocb, cqe))
		facts->user_data = BPF_CORE_READ(req, cqe.user_data);
}

static __always_inline void ring_submitted(struct io_kiocb *req)
{
	struct caller *caller;
	__u32 number;

	if (req->opcode >= 64 || !(RING_READ_OR_WRITE >> req->opcode & 1))
		return;
	caller = current_caller();
	if (caller && caller->kind == CALL_RING) {
		number = begin_operation((__u64)req, caller->entered);
		caller->current = number;
	} else {
		/* The kernel's own thread fetched it from the ring (SQPOLL). */
		number = begin_operation((__u64)req, bpf_ktime_get_ns());
	}
	if ((config.want_parts || config.want_throttle) && number)
		submitted(number - 1);
	if (config.want_events && number)
		note_request(number - 1, req);
}

/* An io_uring request's result becomes visible. */
static __always_inline void operation_ended(__u64 request)
{
	__u32 number = find_operation(request);
	struct operation *operation;
	struct caller *caller;

	if (!number)
		return;
	operation = operation_at(number - 1);
	if (!operation)
		return;
	/* From the page cache, or on a device that is not traced. */
	if (!operation->parts || !running) {
		operation->request = 0;
		return;
	}
	/* The part's end is not the operation's: the time until here is its complete stage's. */
	operation->stamps.ended = bpf_ktime_get_ns();
	operation->stamps.fused = 0;
	caller = current_caller();
	if (caller && caller->kind == CALL_RING) {
		if (caller->current == number)
			caller->current = 0;
		operation->next = caller->pending;
		barrier();
		operation->request = OPERATION_ENDED;
		caller->pending = number;
		return;
	}
	/* On the way to user space or in a worker: who polls the ring sees it, and nobody sees him.
	 */
	count_whole(&operation->stamps, operation->entered, 0, number - 1, 0);
	operation->request = 0;
}

#endif /* NO_SWAP */

#endif
