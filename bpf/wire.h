/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Every struct that crosses the line between kernel and user space: fixed-width unsigned fields,
 * explicit padding, asserted sizes. The build writes them as Rust (bpf/records.rs).
 */
#ifndef BIOPSY_WIRE_H
#define BIOPSY_WIRE_H

#include "wire/files.h"

#define HIST_SUB_BITS 4
#define HIST_MAX_BITS 40
#define HIST_BUCKETS  ((HIST_MAX_BITS - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

/* Of a histogram of nanoseconds. All zero is the empty one: hence the complement of the minimum. */
struct wire_extent {
	__u64 sum;
	__u64 not_min;
	__u64 max;
};
_Static_assert(sizeof(struct wire_extent) == 24, "wire_extent");

/* The same where the sum stands elsewhere. */
struct wire_bounds {
	__u64 not_min;
	__u64 max;
};
_Static_assert(sizeof(struct wire_bounds) == 16, "wire_bounds");

/* Classes of requests, in the order of `Op` in src/analyze/op.rs. */
enum wire_op {
	OP_READ,
	OP_WRITE,
	OP_FUA,
	OP_FLUSH,
	OP_EMPTY_FLUSH,
	OP_DISCARD,
	OP_WRITE_ZEROES,
	OP_PASSTHROUGH,
	OPS,
};

/* Reads and writes have a row per shard; the others are rare and have one row per device. */
#define OPS_SHARDED 2

enum wire_stage {
	STAGE_QUEUE,
	STAGE_DEVICE,
	STAGE_COMPLETE,
	STAGES,
};

/*
 * What completed: one row per device, shard and operation. An I/O of a bio-based device has no
 * stages: its whole time stands in the place of device. Of the I/Os that belong to no operation a
 * second set of rows has the stages, and nothing else.
 */
struct wire_row {
	__u64 bytes;
	/* With the bytes, queue and device fill one cache line: an I/O touches it and one per
	 * bucket. */
	struct wire_extent extents[STAGES];
	/* Completed without a start in a slot that was never used: most likely issued before the
	 * trace. */
	__u64 untimed;
	/* Completed without a start although the slot had been used: the issue event was lost. */
	__u64 no_start;
	/* Completed with nothing to time: an empty flush is never issued. */
	__u64 never_issued;
	/* Timed or an empty flush, and of no operation that is followed: nobody waits for it, or
	 * nobody is seen to. */
	__u64 unowned;
	/* The kernel's side: held while an extent is raised without compare-and-swap. */
	__u64 lock;
	/* Of a bio-based device: parts of the timed bios, beyond one each, that the kernel counts
	 * as I/Os of their own. */
	__u64 further;
	/* Of a device below a bio-based one: its bios, and the time of each from its own entry into
	 * the block layer to the end of its request. */
	__u64 bios;
	__u64 bio_ns;
	/* Timed, and waited for a flush after its data. */
	__u64 flushed;
	/* Timed or an empty flush, and whether of an operation is not known: not all were followed
	 * when it came. */
	__u64 unclassified;
	__u64 pad[4];
	__u64 counts[STAGES * HIST_BUCKETS];
};
_Static_assert(sizeof(struct wire_row) == 192 + 3 * 8 * 592, "wire_row");

#define SHARED_ROWS	      1
#define SHARED_OPERATION_ROWS 2
/* It has no requests. */
#define BIO_BASED 4
/* A bio-based device that is traced stands on it. */
#define BELOW 8
/* Where the driver flushes first and then writes, the kernel counts a write with a flush ahead as
 * two I/Os (dm). */
#define FLUSHES_APART	    16
#define SHARED_UNOWNED_ROWS 32
/* Only one partition of the disk is traced. */
#define PARTITION 64

/* Stages of an operation, and their sum. */
enum wire_operation_stage {
	OPERATION_SUBMIT,
	OPERATION_QUEUE,
	OPERATION_DEVICE,
	OPERATION_COMPLETE,
	OPERATION_REAP,
	OPERATION_TOTAL,
	OPERATION_STAGES,
};

/* Which stages an operation has. */
enum wire_cover {
	COVER_ALL,
	/* Nobody was seen to fetch the result: user space polls the ring. */
	COVER_NO_REAP,
	/* A system call that waits, on a device whose driver says nothing before
	 * block_rq_complete: there device ends and reap begins. */
	COVER_NO_COMPLETE,
	COVERS,
};

/* Operations whose total lies in one power of two, and the sums of their stages; one cache line. */
struct wire_total {
	__u64 operations;
	__u64 sums[OPERATION_STAGES];
	__u64 pad;
};
_Static_assert(sizeof(struct wire_total) == 64, "wire_total");

/*
 * Operations that ended: a row per device, cover, shard and class of their last request with data,
 * or of an empty flush where none had any. Each touches the first two cache lines, that of its
 * class, and one per bucket.
 */
struct wire_operation_row {
	struct wire_bounds bounds[OPERATION_STAGES];
	/* Ended with stamps of several parts: counted, and without stages. */
	__u64 torn;
	/* Nobody was seen to fetch them, on a device where `complete` is not known either: counted,
	 * and without stages. */
	__u64 bare;
	__u64 lock;
	__u64 pad;
	/* By the highest bit of the total. */
	struct wire_total by_total[HIST_MAX_BITS + 1];
	__u64 counts[OPERATION_STAGES * HIST_BUCKETS];
};
_Static_assert(sizeof(struct wire_operation_row) == 128 + 41 * 64 + 6 * 8 * 592,
	       "wire_operation_row");

/* Parts of stages, in the order of `Part` in src/analyze/parts.rs. */
enum wire_part {
	PART_SUBMIT_BATCH,
	PART_IO_WQ,
	PART_THROTTLE,
	/* From here to PART_RETRY they are of a request. */
	PART_ALLOC,
	PART_PLUG,
	PART_SCHED,
	PART_REQUEUE,
	PART_RETRY,
	PART_COMPLETE_BATCH,
	PART_ENDIO,
	PART_CQE,
	PART_WAKE,
	PARTS,
};

enum wire_part_unit {
	UNIT_IO,
	/* And its cover. */
	UNIT_OPERATION,
	PART_UNITS = UNIT_OPERATION + COVERS,
};

/* A row per device, unit and class. */
struct wire_part_row {
	struct wire_extent extents[PARTS];
	__u64 lock;
	/* I/Os or operations whose queue stage could not be taken apart. */
	__u64 unknown;
	__u64 counts[PARTS * HIST_BUCKETS];
};
_Static_assert(sizeof(struct wire_part_row) == 304 + 12 * 8 * 592, "wire_part_row");

/* Numbers of system calls below this can be followed. */
#define WIRE_SYSCALLS 512

/* What a system call has to do with operations. */
enum wire_call {
	CALL_OTHER,
	/* The operation itself, if it does I/O: it returns with the result. */
	CALL_WAITS,
	/* io_uring_enter: carries requests there and results back. */
	CALL_RING,
	/* io_submit: carries iocbs there. */
	CALL_AIO,
	/* io_getevents: brings their results. */
	CALL_AIO_FETCH,
	/* ioctl: waits, where it is one of block devices. Never seen in an event. */
	CALL_COMMAND,
};

/* A traced device: user space writes it before anything is attached. */
struct wire_device {
	__u32 major;
	__u32 first_minor;
	/* Its first slot, the slots of each hardware queue, and how many hardware queues it has. */
	__u32 slot_base;
	__u32 slots_per_queue;
	__u32 hw_queues;
	/* Its first row; shards per hardware queue; first row of the rare operations. */
	__u32 row_base;
	__u32 shards;
	__u32 rare_row_base;
	/* SHARED_ROWS, SHARED_OPERATION_ROWS, SHARED_UNOWNED_ROWS: several CPUs add to one row;
	 * BIO_BASED, BELOW, FLUSHES_APART, PARTITION. */
	__u32 flags;
	/* Its first row of operations, and how many CPUs have rows of their own. */
	__u32 operation_row_base;
	__u32 operation_shards;
	/* The same of its I/Os of no operation; theirs lie among the rows of I/Os. */
	__u32 unowned_row_base;
	__u32 unowned_shards;
	/* Of a PARTITION: its number as the kernel has it, and where it lies on the disk. */
	__u32 partition;
	__u64 first_sector;
	__u64 sectors;
};
_Static_assert(sizeof(struct wire_device) == 72, "wire_device");

/* What the latency programs are told, once, before they are loaded. */
struct wire_latency_config {
	/* RQF_FLUSH_SEQ: a macro with another value in 6.1, so user space asks BTF. */
	__u32 rqf_flush_seq;
	/* RQF_TIMED_OUT, likewise. */
	__u32 rqf_timed_out;
	__u32 devices;
	/* 0: block_bio_queue is not attached, there is no queue stage. */
	__u32 queue_enabled;
	/* Test aid: forget every Nth issue event. */
	__u32 drop_issue;
	/* Sets in the table of bios, minus 1. */
	__u32 bio_mask;
	/* 0: operations are not followed. */
	__u32 operations_enabled;
	/* 0: nobody asks whose an I/O is. */
	__u32 submitter_enabled;
	/* 0: stages are not taken apart. */
	__u32 parts_enabled;
	/* 0: blk-throttle does not hold anything back: nobody looks for what it held. */
	__u32 throttle_enabled;
	/* 0: no traced device is bio-based. */
	__u32 bios_enabled;
	/* 0: there is no event per I/O. Else submitter_enabled is set too. */
	__u32 events_enabled;
	/* Which I/Os have one: a bit per class, every Nth, and those that took at least as long. */
	__u32 event_ops;
	__u32 event_every;
	__u64 event_slower_ns;
	/* Stacks of who hands in, and events only of I/Os that have one; 0: neither. What the
	 * stacks of a CPU may take of each period. */
	__u64 stack_budget_ns;
	__u64 stack_period_ns;
	__u32 stacks_enabled;
	/* How many rows of groups there are, the others' included; 0: no groups. */
	__u32 most_groups;
	/* BY_*: what tells groups apart. */
	__u32 group_by;
	/* FILTER_*: only what these submitters hand in is followed; 0: everything is. */
	__u32 filter_enabled;
	/* CPUs on either side of the matrix; 0: there is none. */
	__u32 matrix_cpus;
	/* The block controller lives in the one hierarchy that all tasks are in (v2). */
	__u32 unified_cgroups;
	/* The process whose threads are in `generators`; 0: none. */
	__u32 generator;
	/* 0: bios are not counted by process. */
	__u32 count_processes;
	/* biopsy's own process, as the kernel numbers it; 0: not known. */
	__u32 own_process;
	/* FILES_*: of which bios the file is found; 0: of none. */
	__u32 files_enabled;
};
_Static_assert(sizeof(struct wire_latency_config) == 120, "wire_latency_config");

/* Threads of the generator, found by thread id. */
#define GENERATOR_BITS 12

/*
 * What a thread of the load generator says of itself, in memory that it shares with the programs.
 * Times are of CLOCK_MONOTONIC by the thread's own clock.
 */
struct wire_generator {
	/* When it began to hand in what its next call carries. */
	__u64 handed;
	/* When it last looked for results and found some: it took all that were there. */
	__u64 looked;
	/* The kernel's side: of its last call that did an I/O and waited for it. 0: it is counted.
	 */
	__u64 entered;
	__u64 returned;
	/* 0: the place is free. */
	__u32 tid;
	__u32 pad[7];
};
_Static_assert(sizeof(struct wire_generator) == 64, "wire_generator");

/* What an I/O can be told apart by. */
enum wire_dimension {
	BY_DEVICE = 1,
	BY_OP = 2,
	BY_QUEUE = 4,
	BY_SIZE = 8,
	BY_CPU = 16,
	BY_PROCESS = 32,
	BY_CGROUP = 64,
	BY_FILE = 128,
};

/* A group of I/Os; what was not asked for is 0. */
struct wire_group_key {
	__u64 cgroup;
	struct wire_file file;
	__u32 device;
	__u32 queue;
	/* Of the submitter. */
	__u32 cpu;
	__u32 pid;
	__u16 op;
	/* 0: no bytes, else 1 + the highest bit of their number. */
	__u16 size;
	/* GROUP_SUBMITTER: cpu, pid and cgroup are known. */
	__u32 known;
};
_Static_assert(sizeof(struct wire_group_key) == 48, "wire_group_key");

#define GROUP_SUBMITTER 1
/* The queue of an I/O of a device without requests. */
#define NO_QUEUE (~0u)

/* Where a group's I/Os are counted. */
struct wire_group {
	/* Of its rows. Row 0 is that of the I/Os for whose group there was no room. */
	__u32 number;
	/* The process that submitted its first I/O, where groups are made by file: it may have that
	 * open. 0: not known. */
	__u32 opener;
	/* Of the process, as its first I/O named it: any bytes. */
	char comm[16];
};
_Static_assert(sizeof(struct wire_group) == 24, "wire_group");

/* Which of a submitter's features must be among those that were named. */
enum wire_filter {
	FILTER_PID = 1,
	FILTER_COMM = 2,
	FILTER_CGROUP = 4,
	/* Of the measured command, or of a kernel thread. */
	FILTER_COMMAND = 8,
};

/* Who handed in a bio: the task that was running when it entered the block layer. */
struct wire_submitter {
	/* Of the block controller where the kernel has it, v1 or v2: the inode of its folder. */
	__u64 cgroup;
	__u32 pid;
	__u32 tid;
	__u32 cpu;
	/* enum submitter_flags. */
	__u8 flags;
	/* The stack stands for 1 << stands_for I/Os; while it was taken so many requests waited in
	   the task's plug; and it took so many times 1 << STACK_TOOK_BITS ns, at most 255. */
	__u8 stands_for;
	__u8 plugged;
	__u8 took;
	/* Of the thread; of the process where groups are made by process. Any bytes. */
	char comm[16];
	/* Of the bio as it came: where it begins on the disk, and its length. */
	__u64 sector;
	__u32 bytes;
	/* The number of the stack that it was handed in by; 0: none was taken; NO_ROOM: there was
	   none to keep it. */
	__u32 stack;
};
_Static_assert(sizeof(struct wire_submitter) == 56, "wire_submitter");

enum submitter_flags {
	SUBMITTER_KERNEL = 1, /* a kernel thread, which writes back or serves a layer */
	SUBMITTER_PART = 2,   /* of a part that was split off: all else is the whole bio's */
};

#define NO_ROOM		0xffffffff
#define STACK_TOOK_BITS 7

/* Records of the event stream begin with what they are. */
enum wire_event {
	EVENT_IO = 1,
	EVENT_OPERATION,
};

enum wire_io_marks {
	/* `by` says who handed it in. */
	IO_HAS_SUBMITTER = 1,
	/* Several bios make up the request: it may serve more operations than `operation`. */
	IO_MERGED = 2,
	/* It was issued before the trace. */
	IO_STARTED_BEFORE = 4,
	/* One of its stages ended before it began. */
	IO_NEGATIVE = 8,
	/* The driver did not say when it reaped the completion: `reaped` is `ended`. */
	IO_FUSED = 16,
	/* From `reaped` on it waited for a flush, which is no stage. */
	IO_FLUSHED = 32,
	/* It is a bio of a device without requests: `queued` and `ended` are all that is known. */
	IO_BIO = 64,
};

/* An I/O that was counted. */
struct wire_io {
	__u32 kind;
	__u32 marks;
	/* Its number, unique in the run; 0: there is no event of it. */
	__u64 io;
	/* The number of the operation that its first bio belongs to; 0: none is known. */
	__u64 operation;
	/* CLOCK_MONOTONIC; 0: not known. */
	__u64 queued;
	__u64 issued;
	__u64 reaped;
	__u64 ended;
	/* Of the request at its issue. */
	__u64 sector;
	__u32 bytes;
	__u32 cmd_flags;
	__u32 device;
	/* The first slot of its hardware queue; of a bio: in how many parts the kernel counts it.
	 */
	__u32 slot_base;
	__u32 op;
	/* Where it completed. */
	__u32 cpu;
	struct wire_submitter by;
	struct wire_file file;
};
_Static_assert(sizeof(struct wire_io) == 88 + 56 + 16, "wire_io");

/* An operation that was counted, of whose I/Os at least one has an event. */
struct wire_operation {
	__u32 kind;
	/* Of io_uring. */
	__u32 opcode;
	__u64 operation;
	/* Of io_uring and libaio: what the application gave it. */
	__u64 user_data;
	__u64 entered;
	/* Of the part that finished last, and the operation that its I/O names. */
	__u64 queued;
	__u64 issued;
	__u64 reaped;
	__u64 ended;
	__u64 io;
	__u64 leader;
	/* When its application saw the result; 0: that is not known. */
	__u64 seen;
	/* enum wire_call. */
	__u32 from;
	__u32 parts;
	/* The driver did not say when it reaped the completion. */
	__u32 fused;
	__u32 pad;
};
_Static_assert(sizeof(struct wire_operation) == 104, "wire_operation");

/* Of one CPU: what it sent to user space, and what it could not send. */
struct wire_emitter {
	/* I/Os of the classes and times that are asked for. */
	__u64 matched;
	/* How many of them to pass by next; user space begins it anywhere below `event_every`. */
	__u64 skip;
	/* I/Os that were given a number, which have an event or are lost. */
	__u64 numbers;
	__u64 lost_ios;
	__u64 lost_operations;
	/* Operations that ended with the first part of an I/O, which has its number at the end. */
	__u64 early_operations;
	__u64 pad[2];
};
_Static_assert(sizeof(struct wire_emitter) == 64, "wire_emitter");

/* The places of bios and requests among the arguments of their events, counted from 0. */
struct wire_arguments {
	__u32 bio_queue;
	__u32 bio_backmerge;
	__u32 bio_frontmerge;
	__u32 bio_split;
	__u32 rq_merge;
	__u32 rq_issue;
	__u32 rq_requeue;
	__u32 bio_complete;
};
_Static_assert(sizeof(struct wire_arguments) == 32, "wire_arguments");

/* Rare things, counted per device. */
struct wire_counters {
	__u64 splits;
	__u64 merges;
	__u64 requeues;
	__u64 retries;
	__u64 negative;
	/* Tag or queue number outside the device's slots: the I/O is counted and has no stages. */
	__u64 out_of_range;
	/* A slot still held an issue when the next one came: a completion event was lost. */
	__u64 stale;
	/* Issued, and the time when its bio entered the block layer was not known. */
	__u64 no_queue_start;
	/* Bios that had to give up their place in the table, and that completed without it. */
	__u64 evicted;
	__u64 evicted_ended;
	/* Bios that blk-throttle's worker brought, and of which no operation is known. */
	__u64 held_unknown;
	/* Requests of more bios than are looked at: the others' operations were not told. */
	__u64 too_many_bios;
};
_Static_assert(sizeof(struct wire_counters) == 96, "wire_counters");

/*
 * A request in flight, one cache line. The slot belongs to one tag of one hardware queue; `request`
 * verifies it and every consumer clears it, so that a missed event reads as "no start".
 */
struct wire_slot {
	__u64 request;
	__u64 queued;
	__u64 issued;
	__u64 reaped;
	/* When it completed, where its result waits here for its operation. */
	__u64 ended;
	/* The operation of its only bio, or REF_IN_TABLE. */
	__u64 generation;
	__u32 op_ref;
	/* Where there are groups: that of the I/O, and the CPU that it was handed in on, + 1. */
	__u32 group;
	__u16 cpu;
	/* With `ended`. */
	__u16 device;
	__u8 op;
	__u8 fused;
	__u8 state;
	__u8 used;
};
_Static_assert(sizeof(struct wire_slot) == 64, "wire_slot");

/* A bio of a bio-based device, from block_bio_queue to block_bio_complete; one cache line. */
struct wire_bio_io {
	/* Its address; 0: free. */
	__u64 bio;
	__u64 queued;
	/* The operation that it belongs to. */
	__u64 generation;
	__u32 op_ref;
	__u32 device;
	__u32 bytes;
	__u32 op;
	/* In how many parts the kernel counts it. */
	__u32 parts;
	/* It came with data and a flush ahead, and the driver counts the two apart if it does them
	 * apart. */
	__u32 flush_ahead;
	/* Where there are groups: as in a slot. */
	__u32 group;
	__u32 cpu;
	/* Its place in the table. */
	__u32 place;
	__u32 pad;
};
_Static_assert(sizeof(struct wire_bio_io) == 64, "wire_bio_io");

/* What the interrupt programs are told before they are loaded. */
struct wire_interrupts_config {
	__u32 devices;
	__u32 rqf_flush_seq;
	__u32 cpus;
	/* One of so many interrupts is timed, on average. */
	__u32 time_every;
	/* This kernel runs a program inside itself: one of a softirq's I/O within that of an
	 * interrupt's. */
	__u32 nested_runs;
};
_Static_assert(sizeof(struct wire_interrupts_config) == 20, "wire_interrupts_config");

/* Completions of one interrupt: more than 2^16 share the last bucket. */
#define CARRIED_BITS	16
#define CARRIED_BUCKETS ((CARRIED_BITS - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

/* What a timed interrupt came into. */
enum wire_interrupted {
	INTERRUPTED_IDLE,
	INTERRUPTED_KERNEL,
	INTERRUPTED_USER,
	INTERRUPTED_KINDS,
};

/* The name of the task that a timed interrupt came into is taken of one in so many: that costs as
 * much as all the rest. */
#define INTERRUPTED_NAME_EVERY 8

/*
 * An interrupt vector, or a poll queue, whose polls stand in the place of interrupts. Two handlers
 * of one vector never run at once, nor do two polls of one queue, so that plain additions do;
 * `outside` is what others add.
 */
struct wire_vector {
	/* All that an interrupt touches, but for the bucket of what the one before it carried; a
	 * cache line. */

	/* Whose calls are counted, where several share the line; 0: none was seen. */
	__u64 action;
	/* Calls of its handler; or polls that found something. */
	__u64 interrupts;
	/* Completions, by the handler itself, and by a softirq or thread behind it. */
	__u64 inside;
	__u64 outside;
	/* Both together at the last interrupt's entry: what came since is what that one carried. */
	__u64 counted;
	/* The number of the next interrupt that is timed. */
	__u64 next_timed;
	/* When the last one came, where the time to the next is wanted; else 0. */
	__u64 arrived;
	/* By the queue of the first I/O that it reaped: + 1; 0: none yet. */
	__u32 queue;
	/* Where the last ones came to: + 1; 0: none yet. */
	__u32 cpu;

	/* The number of the last one that came to another CPU. */
	__u64 cpu_since;
	/* The most that one carried, above what the buckets tell exactly. */
	__u64 most;
	/* Nothing was ours (IRQ_NONE), or the handler's thread is to do it. */
	__u64 unhandled;
	__u64 threaded;
	/* The thread of the handler. */
	__u32 thread;
	/* With `queue`. */
	__u32 device;
	/* Of the timed ones. */
	__u64 interrupted[INTERRUPTED_KINDS];
	struct wire_extent handler;
	struct wire_extent apart;
	__u64 pad[2];
	__u64 carried[CARRIED_BUCKETS];
	__u64 handler_counts[HIST_BUCKETS];
	__u64 apart_counts[HIST_BUCKETS];
};
_Static_assert(sizeof(struct wire_vector) == 192 + 8 * 208 + 2 * 8 * 592, "wire_vector");

/* Whose interrupts complete the I/Os of a hardware queue. */
enum wire_queue_kind {
	/* It is seen when the driver reaps the entry (NVMe). */
	QUEUE_BY_REAP,
	/* It is known by the vector's name, and the completion of an I/O is the first that is seen.
	 */
	QUEUE_BY_NAME,
	/* None: it is polled. */
	QUEUE_POLLED,
	/* It has no vector that is known. */
	QUEUE_UNKNOWN,
};

/* A hardware queue. */
struct wire_queue {
	/* Of its vector, or its own as a poll queue: + 1; 0: none. */
	__u32 place;
	__u32 kind;
	/* The device has one queue only: its completions go to a softirq of the CPU that they
	 * come to, or of one that is asked by an IPI. Those of others do so by an IPI only. */
	__u32 single;
	__u32 pad;
	/* Entries that were reaped neither by its interrupt nor by a poll of a poll queue. */
	__u64 elsewhere;
};
_Static_assert(sizeof(struct wire_queue) == 24, "wire_queue");

/* Classes of I/O that the kernel has counters of; and what none counts. */
enum wire_counted {
	COUNTED_READ,
	COUNTED_WRITE,
	COUNTED_DISCARD,
	COUNTED_FLUSH,
	COUNTED_NONE,
	COUNTED_CLASSES,
};

/* Where an I/O completed; else in a task. */
enum wire_context {
	IN_INTERRUPT,
	/* In a softirq, of a device with one queue. */
	IN_SOFTIRQ,
	/* In a softirq that another CPU asked for, of a device with several. */
	IN_REMOTE_SOFTIRQ,
	CONTEXTS,
};

/* I/Os of one device that completed on one CPU; a cache line. */
struct wire_completions {
	__u64 ios[COUNTED_CLASSES];
	__u64 contexts[CONTEXTS];
};
_Static_assert(sizeof(struct wire_completions) == 64, "wire_completions");

/* Softirqs of the block layer on one CPU. */
struct wire_softirq {
	__u64 runs;
	/* Of those: by ksoftirqd. */
	__u64 deferred;
	__u64 next_timed;
	struct wire_extent time;
	__u64 timed;
	/* Requests of disks that are not traced that completed in them. */
	__u64 others;
};
_Static_assert(sizeof(struct wire_softirq) == 64, "wire_softirq");

/* What can befall a request. */
enum wire_error_event {
	ERROR_FAILED,	/* it ended with an error */
	ERROR_RETRIED,	/* it is tried again, after the device answered or timed out */
	ERROR_REQUEUED, /* the driver gave it back without having started it */
};

/* The same trouble, again and again. */
struct wire_error {
	__u32 device; /* major << 20 | minor of the disk; 0: of no disk */
	__u16 event;
	__u16 op;
	/* Of one that ended: a blk_status_t, or an errno below zero. */
	__u32 status;
};
_Static_assert(sizeof(struct wire_error) == 12, "wire_error");

struct wire_error_row {
	__u64 events;
	__u64 bytes;
};
_Static_assert(sizeof(struct wire_error_row) == 16, "wire_error_row");

#include "wire/operations.h"
#include "wire/process_ios.h"
#include "wire/stacks.h"
#include "wire/locks.h"
#include "wire/pagecache.h"
#include "wire/threads.h"
#include "wire/blocked.h"

#endif
