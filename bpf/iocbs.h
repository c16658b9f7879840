/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Operations of Linux AIO (libaio), found by their iocbs; and iocbs as io_submit hands them in,
 * where blk-throttle may hold their bios back: its worker brings these when the call is long over,
 * and then only the iocb says whose they are. Only `config.want_throttle` fills that table. For the
 * latency programs, whose `config` must stand before it.
 */
#ifndef BIOPSY_IOCBS_H
#define BIOPSY_IOCBS_H

#include "operations.h"
#include "submitter.h"

#define IOCB_BITS 13
/* Places that an iocb may take. Every io_submit of the machine is noted here: with one place per
 * key, an iocb of another process would soon overwrite one that is held. */
#define IOCB_WAYS 4

struct iocb {
	/* Of its context, its address and its application's word. */
	__u64 key;
	/* The io_submit that handed it in, and by which process. */
	__u64 entered;
	__u32 process;
	/* Its operation began: what comes with the same key when that is over is a later hand-in,
	 * which was not noted. */
	__u32 joined;
	__u32 pad[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct iocb);
} iocbs SEC(".maps");

#ifndef NO_SWAP
/* What an io_submit is called with. */
struct handed {
	__u64 entered;
	/* The context as its application knows it, and where the iocbs' addresses are. */
	__u64 ring;
	__u64 iocbs;
	__u64 left;
	/* The context as the kernel knows it. */
	__u64 context;
};

/* The first of the places that a key may have. */
static __always_inline __u32 iocb_index(__u64 key)
{
	return key >> 20 & ((1 << IOCB_BITS) - IOCB_WAYS);
}

static __always_inline struct iocb *iocb_at(__u32 index)
{
	return bpf_map_lookup_elem(&iocbs, &index);
}

/* The place for a key: its own, or that of the oldest iocb. What is held while four others are
 * submitted for the same places belongs to no operation, and is counted as that. */
static __always_inline __u32 place_for_iocb(__u64 key)
{
	__u32 first = iocb_index(key), place = first;
	__u64 oldest = ~0ull;

	for (__u32 i = 0; i < IOCB_WAYS; i++) {
		struct iocb *noted = iocb_at(first + i);

		if (!noted)
			continue;
		if (noted->key == key)
			return first + i;
		if (noted->entered < oldest) {
			oldest = noted->entered;
			place = first + i;
		}
	}
	return place;
}

/* Behind the calls' places. */
static __always_inline __u32 iocb_place(__u32 index)
{
	return (1 << OPERATION_BITS) + (1 << CALLER_BITS) + index;
}

/* A process's contexts. */
struct contexts {
	__u64 table;
	__u64 ring;
	/* What was found; 0: nothing. */
	__u64 context;
	__u32 next;
	__u32 all;
};

/* Whether the context in the next place is the one with this ring. */
static long look_at_context(__u32 i, struct contexts *contexts)
{
	struct kioctx *context = 0;

	if (contexts->next >= contexts->all)
		return 1;
	bpf_probe_read_kernel(&context, sizeof(context),
			      (const void *)(contexts->table +
					     bpf_core_field_offset(struct kioctx_table, table) +
					     contexts->next * sizeof(context)));
	contexts->next++;
	if (!context || BPF_CORE_READ(context, user_id) != contexts->ring)
		return 0;
	contexts->context = (__u64)context;
	return 1;
}

/* Contexts that are looked at where the ring does not say which it is. */
#define MOST_CONTEXTS 1024

/* The context that an application knows by its ring; 0: there is none. */
static __always_inline __u64 context_of(__u64 ring)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	struct contexts contexts = {.ring = ring};
	struct kioctx_table *table;

	if (!bpf_core_field_exists(task->mm->ioctx_table) ||
	    !bpf_core_field_exists(struct aio_kiocb, ki_ctx))
		return 0;
	table = BPF_CORE_READ(task, mm, ioctx_table);
	contexts.table = (__u64)table;
	contexts.all = BPF_CORE_READ(table, nr);
	if (!bpf_probe_read_user(&contexts.next, sizeof(contexts.next), (const void *)ring))
		look_at_context(0, &contexts);
	else
		/* Before the kernel itself has looked there, that page need not be mapped. */
		bpf_loop(MOST_CONTEXTS, look_at_context, &contexts, 0);
	return contexts.context;
}

static long note_next_iocb(__u32 i, struct handed *handed)
{
	struct iocb *noted;
	__u64 iocb = 0, data = 0, key;
	__u32 place;

	if (!handed->left)
		return 1;
	handed->left--;
	/* How many there are is the caller's word; the kernel too ends where it cannot read. */
	if (bpf_probe_read_user(&iocb, sizeof(iocb), (const void *)handed->iocbs))
		return 1;
	handed->iocbs += sizeof(iocb);
	if (bpf_probe_read_user(&data, sizeof(data), (const void *)iocb))
		return 0;
	key = aio_key(iocb, data, handed->context);
	place = place_for_iocb(key);
	noted = iocb_at(place);
	if (!noted)
		return 1;
	noted->key = 0;
	barrier();
	noted->entered = handed->entered;
	noted->process = current_process();
	noted->joined = 0;
	note_origin(iocb_place(place));
	barrier();
	noted->key = key;
	return 0;
}

VERIFIED_ONCE int note_iocbs(const struct handed *handed)
{
	struct handed walk;

	if (!config.want_throttle || !handed)
		return 0;
	walk = *handed;
	walk.context = context_of(walk.ring);
	if (walk.context)
		bpf_loop(1 << IOCB_BITS, note_next_iocb, &walk, 0);
	return 0;
}

/* The iocb of a kiocb, if it was noted: its number + 1; 0: it was not. */
static __always_inline __u32 noted_iocb(__u64 kiocb)
{
	struct aio_kiocb *aio = (struct aio_kiocb *)kiocb;
	__u32 first;
	__u64 key;

	if (!bpf_core_field_exists(struct aio_kiocb, ki_ctx))
		return 0;
	key = aio_key(BPF_CORE_READ(aio, ki_res.obj), BPF_CORE_READ(aio, ki_res.data),
		      (__u64)BPF_CORE_READ(aio, ki_ctx));
	first = iocb_index(key);
	for (__u32 i = 0; i < IOCB_WAYS; i++) {
		struct iocb *noted = iocb_at(first + i);

		if (noted && noted->key == key)
			return first + i + 1;
	}
	return 0;
}

/* An iocb with what tells it from others. */
struct aio {
	__u64 key;
	__u64 data;
	__u64 entered;
};

/* The operation of an iocb of libaio, + 1, which may begin here; 0: it has no place. */
static __always_inline __u32 join_aio(const struct aio *aio)
{
	__u32 number = find_operation(aio->key);
	struct wire_place *operation = number ? operation_at(number - 1) : 0;

	if (unlikely(over))
		return 0;
	if (operation) {
		/* One of several bios. */
		if (operation->entered == aio->entered)
			return number;
		/* The iocb is in use again, and nobody was seen to fetch the last result; or it is
		 * out twice, with the same word, and nobody can tell the two apart. */
		fetch_result(operation, number);
		if (operation->parts && running)
			count_whole(&operation->stamps, operation->entered, 0, number - 1, 0);
		else
			__sync_fetch_and_add(&unfollowed, 1);
		operation->state = OPERATION_FREE;
	}
	number = begin_operation(aio->key, aio->entered, 0);
	if ((config.want_parts || config.want_throttle) && number)
		parts_begun(number - 1);
	if (config.want_events && number) {
		struct facts *facts = begin_facts(number - 1, CALL_AIO);

		if (facts)
			facts->user_data = aio->data;
	}
	return number;
}

/* The operation of a kiocb that io_submit hands in, or has handed in at this time, + 1; 0: it is
 * not one of libaio's. */
VERIFIED_ONCE __u32 aio_operation(__u64 kiocb, __u64 entered)
{
	struct aio_kiocb *of = (struct aio_kiocb *)kiocb;
	struct aio aio = {.entered = entered};
	struct iocb *noted;
	__u64 iocb;
	__u32 held;

	if (!config.want_operations)
		return 0;
	iocb = BPF_CORE_READ(of, ki_res.obj);
	held = config.want_throttle ? noted_iocb(kiocb) : 0;
	noted = held ? iocb_at(held - 1) : 0;
	if (!entered) {
		/* The throttling worker brings it: no memory of the application's is there. */
		if (!noted)
			return 0;
		aio.data = BPF_CORE_READ(of, ki_res.data);
		aio.key = aio_key(iocb, aio.data, noted->process);
		if (noted->joined && !find_operation(aio.key))
			return 0;
		noted->joined = 1;
		aio.entered = noted->entered;
		return join_aio(&aio);
	}
	/* Whatever else a bio may carry there has no such iocb: both hold the application's word.
	 */
	if (bpf_probe_read_user(&aio.data, sizeof(aio.data), (const void *)iocb) ||
	    aio.data != BPF_CORE_READ(of, ki_res.data))
		return 0;
	aio.key = aio_key(iocb, aio.data, current_process());
	if (noted && noted->entered == entered)
		noted->joined = 1;
	return join_aio(&aio);
}
#endif /* NO_SWAP */

#endif
