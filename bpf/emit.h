/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Sends events to user space, one per I/O. Each CPU has its own ring buffer, and no wakeups are
 * sent: user space polls by the clock. Events without room are counted. For the latency programs,
 * and for the benchmark of this path (ring.bpf.c).
 */
#ifndef BIOPSY_EMIT_H
#define BIOPSY_EMIT_H

#include "kernel.h"
#include "wire.h"

/* User space creates the ring buffers, one per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(
	    values, struct {
		    __uint(type, BPF_MAP_TYPE_RINGBUF);
		    __uint(max_entries, 4096);
	    });
} event_rings SEC(".maps");

/* One per CPU. */
MAPPED_ARRAY(emitters, struct wire_emitter, 1);

/* Returns 0 if this CPU's ring buffer is full or does not exist. */
static __always_inline int emit(__u32 cpu, void *event, __u64 size)
{
	void *ring = bpf_map_lookup_elem(&event_rings, &cpu);

	return ring && !bpf_ringbuf_output(ring, event, size, BPF_RB_NO_WAKEUP);
}

/* I/O numbers stay below 2^53, up to which integers are exact in JSON. */
#define IO_CPU_BITS 13

/* Assigns a number to an I/O that will have an event. */
static __always_inline void number_io(struct wire_io *io, __u32 cpu, struct wire_emitter *emitter)
{
	io->kind = EVENT_IO;
	io->io = ++emitter->numbers << IO_CPU_BITS | (cpu & ((1 << IO_CPU_BITS) - 1));
	io->cpu = cpu;
}

/*
 * An operation has no event: it ended before its I/O got the number that the event would contain.
 */
static __always_inline void lose_operation(void)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct wire_emitter *emitter = bpf_map_lookup_elem(&emitters, &cpu);

	if (emitter)
		__sync_fetch_and_add(&emitter->early_operations, 1);
}

/* Sends an I/O, or counts it as lost. */
static __always_inline void send_io(struct wire_io *io, __u32 cpu, struct wire_emitter *emitter)
{
	if (!emit(cpu, io, sizeof(*io)))
		emitter->lost_ios++;
}

/*
 * Fields of an operation's event other than its stamps; indexed like the tables of operations and
 * of callers, in this order.
 */
struct facts {
	/* Unique in the run: built from how often the entry was used, and its index. */
	__u64 id;
	__u64 lives;
	__u64 user_data;
	/* The last I/O with an event that finished for it; 0: none. */
	__u64 io;
	/* The operation that this I/O names: another one if they share a request. */
	__u64 leader;
	__u32 from;
	__u32 opcode;
	__u64 pad[2];
};
_Static_assert(sizeof(struct facts) == 64, "facts");

/* Covers OPERATION_BITS and CALLER_BITS; user space sizes the map if it is used. */
#define FACTS_BITS 15

MAPPED_ARRAY(operation_facts, struct facts, 1);

static __always_inline struct facts *facts_at(__u32 number)
{
	return bpf_map_lookup_elem(&operation_facts, &number);
}

/* Starts another operation in this entry. */
static __always_inline struct facts *begin_facts(__u32 number, __u32 from)
{
	struct facts *facts = facts_at(number);

	if (!facts)
		return 0;
	facts->lives++;
	/* Below 2^53, up to which integers are exact in JSON. */
	facts->id = facts->lives << FACTS_BITS | number;
	facts->user_data = 0;
	facts->io = 0;
	facts->from = from;
	facts->opcode = 0;
	return facts;
}

#endif
