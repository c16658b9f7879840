/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Declares every record that crosses between the BPF programs and user space. Records have
 * fixed-width unsigned fields, explicit padding and asserted sizes. The build generates the Rust
 * types from them (bpf/records.rs).
 */
#ifndef BIOPSY_WIRE_H
#define BIOPSY_WIRE_H

#include "wire/files.h"

#define HIST_SUB_BITS 4
#define HIST_MAX_BITS 40
#define HIST_BUCKETS  ((HIST_MAX_BITS - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

/*
 * Sum, minimum and maximum of a histogram of nanoseconds. The minimum is stored as its complement,
 * so that all zeros is an empty extent.
 */
struct wire_extent {
	__u64 sum;
	__u64 not_min;
	__u64 max;
};
_Static_assert(sizeof(struct wire_extent) == 24, "wire_extent");

/* The same without the sum, for rows that keep their sums elsewhere. */
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

/* Reads and writes have one row per shard; the rare classes have one row per device. */
#define OPS_SHARDED 2

enum wire_stage {
	STAGE_QUEUE,
	STAGE_DEVICE,
	STAGE_COMPLETE,
	STAGES,
};

/*
 * Completed I/Os: one row per device, shard and operation class. An I/O of a bio-based device has
 * no stages: its whole time is counted as the device stage. A second set of rows has the stages,
 * and nothing else, of I/Os that belong to no operation.
 */
struct wire_row {
	__u64 bytes;
	/* With `bytes`, the queue and device extents fill one cache line: an I/O touches that line
	 * and one line per bucket. */
	struct wire_extent extents[STAGES];
	/* Completed without a start time, in a slot that was never used: most likely issued before
	 * the trace. */
	__u64 untimed;
	/* Completed without a start time in a slot that had been used: the issue event was lost. */
	__u64 no_start;
	/* Completed, with nothing to time: an empty flush is never issued. */
	__u64 never_issued;
	/* Timed, or an empty flush, and part of no operation that is followed: no thread waits for
	 * it, or none was observed to wait. */
	__u64 unowned;
	/* Kernel side only: taken while an extent is updated on kernels without
	 * compare-and-swap. */
	__u64 lock;
	/* Bio-based device: parts of the timed bios, beyond the first of each, that the kernel
	 * counts as separate I/Os. */
	__u64 further;
	/* Device below a bio-based one: its bios, and the time of each from its own entry into the
	 * block layer to the end of its request. */
	__u64 bios;
	__u64 bio_ns;
	/* Timed I/Os that waited for a flush after their data. */
	__u64 flushed;
	/* Timed, or an empty flush, and it is unknown whether it belongs to an operation: not all
	 * operations were followed when it was submitted. */
	__u64 unclassified;
	__u64 pad[4];
	__u64 counts[STAGES * HIST_BUCKETS];
};
_Static_assert(sizeof(struct wire_row) == 192 + 3 * 8 * 592, "wire_row");

#define SHARED_ROWS	      1
#define SHARED_OPERATION_ROWS 2
/* The device has no requests. */
#define BIO_BASED 4
/* A traced bio-based device is stacked on this device. */
#define BELOW 8
/*
 * The driver (dm) flushes first and then writes, so that the kernel counts a write with PREFLUSH as
 * two I/Os.
 */
#define FLUSHES_APART	    16
#define SHARED_UNOWNED_ROWS 32
/* Only one partition of the disk is traced. */
#define PARTITION 64

/* Stages of an operation, then their sum. */
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
	/* No fetch of the result was observed: user space polls the ring. */
	COVER_NO_REAP,
	/* A blocking system call on a device whose driver has no event before block_rq_complete:
	 * device ends and reap begins at that event. */
	COVER_NO_COMPLETE,
	COVERS,
};

/*
 * Operations whose total lies within one power of two, and the sums of their stages; one cache
 * line.
 */
struct wire_total {
	__u64 operations;
	__u64 sums[OPERATION_STAGES];
	__u64 pad;
};
_Static_assert(sizeof(struct wire_total) == 64, "wire_total");

/*
 * Completed operations: one row per device, cover, shard and class. The class is that of the
 * operation's last request with data, or empty flush if no request had data. An operation touches
 * the first two cache lines, the line of its class, and one line per bucket.
 */
struct wire_operation_row {
	struct wire_bounds bounds[OPERATION_STAGES];
	/* Operations whose stamps come from several parts: counted, without stages. */
	__u64 torn;
	/* Operations without an observed fetch, on a device where `complete` is unknown as well:
	 * counted, without stages. */
	__u64 bare;
	__u64 lock;
	__u64 pad;
	/* Indexed by the highest bit of the total. */
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
	/* From here to PART_RETRY: parts of a request. */
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
	/* Plus the operation's cover. */
	UNIT_OPERATION,
	PART_UNITS = UNIT_OPERATION + COVERS,
};

/* A row per device, unit and class. */
struct wire_part_row {
	struct wire_extent extents[PARTS];
	__u64 lock;
	/* I/Os or operations whose queue stage could not be broken down. */
	__u64 unknown;
	__u64 counts[PARTS * HIST_BUCKETS];
};
_Static_assert(sizeof(struct wire_part_row) == 304 + 12 * 8 * 592, "wire_part_row");

/* System calls with numbers below this can be followed. */
#define WIRE_SYSCALLS 512

/* How a system call is related to operations. */
enum wire_call {
	CALL_OTHER,
	/* The call itself is the operation, if it does I/O: it returns with the result. */
	CALL_WAITS,
	/* io_uring_enter: submits requests and fetches results. */
	CALL_RING,
	/* io_submit: submits iocbs. */
	CALL_AIO,
	/* io_getevents: fetches the results of iocbs. */
	CALL_AIO_FETCH,
	/* ioctl: a blocking operation if it is one of the block device ioctls. Never appears in an
	 * event. */
	CALL_COMMAND,
};

/* A traced device. User space writes it before anything is attached. */
struct wire_device {
	__u32 major;
	__u32 first_minor;
	/* The device's first slot, the slots per hardware queue, and the number of hardware
	 * queues. */
	__u32 slot_base;
	__u32 slots_per_queue;
	__u32 hw_queues;
	/* The device's first row, the shards per hardware queue, and the first row of the rare
	 * operation classes. */
	__u32 row_base;
	__u32 shards;
	__u32 rare_row_base;
	/* SHARED_ROWS, SHARED_OPERATION_ROWS, SHARED_UNOWNED_ROWS: several CPUs add to one row.
	 * BIO_BASED, BELOW, FLUSHES_APART, PARTITION. */
	__u32 flags;
	/* The device's first row of operations, and the number of CPUs with their own rows. */
	__u32 operation_row_base;
	__u32 operation_shards;
	/* The same for I/Os of no operation; their rows are among the rows of I/Os. */
	__u32 unowned_row_base;
	__u32 unowned_shards;
	/* PARTITION: the kernel's partition number, and the partition's extent on the disk. */
	__u32 partition;
	__u64 first_sector;
	__u64 sectors;
};
_Static_assert(sizeof(struct wire_device) == 72, "wire_device");

/* Configuration of the latency programs, written once before they are loaded. */
struct wire_latency_config {
	/* RQF_FLUSH_SEQ: a macro with another value in 6.1, so user space takes it from BTF. */
	__u32 rqf_flush_seq;
	/* RQF_TIMED_OUT, likewise. */
	__u32 rqf_timed_out;
	__u32 devices;
	/* 0: block_bio_queue is not attached, so there is no queue stage. */
	__u32 queue_enabled;
	/* Test aid: drop every Nth issue event. */
	__u32 drop_issue;
	/* Sets in the table of bios, minus 1. */
	__u32 bio_mask;
	/* 0: operations are not followed. */
	__u32 operations_enabled;
	/* 0: submitters are not recorded. */
	__u32 submitter_enabled;
	/* 0: stages are not broken down. */
	__u32 parts_enabled;
	/* 0: blk-throttle throttles no bio, so throttled bios are not looked up. */
	__u32 throttle_enabled;
	/* 0: no traced device is bio-based. */
	__u32 bios_enabled;
	/* 0: no event per I/O. Otherwise submitter_enabled is set as well. */
	__u32 events_enabled;
	/* Which I/Os have an event: a bit per class, every Nth, and only those that took at least
	 * event_slower_ns. */
	__u32 event_ops;
	__u32 event_every;
	__u64 event_slower_ns;
	/* Take stacks of submitters, and send events only for I/Os that have a stack; 0: neither.
	 * The budget is the time that stacks may take on each CPU in each period. */
	__u64 stack_budget_ns;
	__u64 stack_period_ns;
	__u32 stacks_enabled;
	/* Rows of groups, including the row for the others; 0: no groups. */
	__u32 most_groups;
	/* BY_*: the dimensions that I/Os are grouped by. */
	__u32 group_by;
	/* FILTER_*: only I/O of matching submitters is followed; 0: all I/O is. */
	__u32 filter_enabled;
	/* CPUs on either side of the matrix; 0: no matrix. */
	__u32 matrix_cpus;
	/* The block controller is in the unified hierarchy (cgroup v2), which contains all
	 * tasks. */
	__u32 unified_cgroups;
	/* The process whose threads are in `generators`; 0: none. */
	__u32 generator;
	/* 0: bios are not counted by process. */
	__u32 count_processes;
	/* biopsy's own process id in the initial PID namespace; 0: unknown. */
	__u32 own_process;
	/* FILES_*: the bios whose file is looked up; 0: none. */
	__u32 files_enabled;
};
_Static_assert(sizeof(struct wire_latency_config) == 120, "wire_latency_config");

/* Table of the generator's threads, indexed by thread id. */
#define GENERATOR_BITS 12

/*
 * What a thread of the load generator reports, in memory that it shares with the programs. Times
 * are CLOCK_MONOTONIC, read by the thread.
 */
struct wire_generator {
	/* When it began to prepare the I/Os that its next call submits. */
	__u64 handed;
	/* When it last polled for results and found some; it took all that were there. */
	__u64 looked;
	/* Kernel side only: times of its last blocking call that did an I/O. 0: already counted. */
	__u64 entered;
	__u64 returned;
	/* 0: the entry is free. */
	__u32 tid;
	__u32 pad[7];
};
_Static_assert(sizeof(struct wire_generator) == 64, "wire_generator");

/* Dimensions by which I/Os can be grouped. */
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

/* A group of I/Os; dimensions that were not requested are 0. */
struct wire_group_key {
	__u64 cgroup;
	struct wire_file file;
	__u32 device;
	__u32 queue;
	/* CPU and process of the submitter. */
	__u32 cpu;
	__u32 pid;
	__u16 op;
	/* 0: no bytes; otherwise 1 + the highest bit of the byte count. */
	__u16 size;
	/* GROUP_SUBMITTER: cpu, pid and cgroup are valid. */
	__u32 known;
};
_Static_assert(sizeof(struct wire_group_key) == 48, "wire_group_key");

#define GROUP_SUBMITTER 1
/* Queue of an I/O on a device without requests. */
#define NO_QUEUE (~0u)

/* The row in which a group's I/Os are counted. */
struct wire_group {
	/* Row number. Row 0 collects the I/Os whose group had no room. */
	__u32 number;
	/* With grouping by file, the process that submitted the group's first I/O: it may have the
	 * file open. 0: unknown. */
	__u32 opener;
	/* Name of the process at its first I/O: any bytes. */
	char comm[16];
};
_Static_assert(sizeof(struct wire_group) == 24, "wire_group");

/* Which features of a submitter are compared with the filter. */
enum wire_filter {
	FILTER_PID = 1,
	FILTER_COMM = 2,
	FILTER_CGROUP = 4,
	/* Belongs to the measured command, or is a kernel thread. */
	FILTER_COMMAND = 8,
};

/* The submitter of a bio: the task that was running when the bio entered the block layer. */
struct wire_submitter {
	/* Cgroup of the block controller, v1 or v2, as the inode of its directory. */
	__u64 cgroup;
	__u32 pid;
	__u32 tid;
	__u32 cpu;
	/* enum submitter_flags. */
	__u8 flags;
	/* The stack is scaled up to 1 << stands_for I/Os. `plugged` requests waited in the task's
	 * plug while the stack was taken. Taking it cost `took` times 1 << STACK_TOOK_BITS ns, at
	 * most 255. */
	__u8 stands_for;
	__u8 plugged;
	__u8 took;
	/* Name of the thread, or of the process with grouping by process: any bytes. */
	char comm[16];
	/* Start sector and length of the bio as submitted. */
	__u64 sector;
	__u32 bytes;
	/* Number of the stack that submitted it; 0: no stack was taken; NO_ROOM: the table was
	 * full. */
	__u32 stack;
};
_Static_assert(sizeof(struct wire_submitter) == 56, "wire_submitter");

enum submitter_flags {
	SUBMITTER_KERNEL = 1, /* a kernel thread, for write-back or a stacked device */
	SUBMITTER_PART = 2,   /* only this part was split off: all else is the whole bio's */
};

#define NO_ROOM		0xffffffff
#define STACK_TOOK_BITS 7

/* First field of each record in the event stream. */
enum wire_event {
	EVENT_IO = 1,
	EVENT_OPERATION,
};

enum wire_io_marks {
	/* `by` has the submitter. */
	IO_HAS_SUBMITTER = 1,
	/* The request has several bios: it may serve more operations than `operation`. */
	IO_MERGED = 2,
	/* It was issued before the trace. */
	IO_STARTED_BEFORE = 4,
	/* One of its stages has a negative length. */
	IO_NEGATIVE = 8,
	/* The driver has no event for reaping the completion: `reaped` equals `ended`. */
	IO_FUSED = 16,
	/* After `reaped` it waited for a flush, which is no stage. */
	IO_FLUSHED = 32,
	/* A bio of a device without requests: only `queued` and `ended` are known. */
	IO_BIO = 64,
};

/* An I/O that was counted. */
struct wire_io {
	__u32 kind;
	__u32 marks;
	/* Unique number in the run; 0: the I/O has no event. */
	__u64 io;
	/* Number of the operation that its first bio belongs to; 0: unknown. */
	__u64 operation;
	/* CLOCK_MONOTONIC; 0: unknown. */
	__u64 queued;
	__u64 issued;
	__u64 reaped;
	__u64 ended;
	/* Of the request when it was issued. */
	__u64 sector;
	__u32 bytes;
	__u32 cmd_flags;
	__u32 device;
	/* First slot of its hardware queue. For a bio: the number of I/Os that the kernel counts it
	 * as. */
	__u32 slot_base;
	__u32 op;
	/* CPU on which it completed. */
	__u32 cpu;
	struct wire_submitter by;
	struct wire_file file;
};
_Static_assert(sizeof(struct wire_io) == 88 + 56 + 16, "wire_io");

/* A completed operation of which at least one I/O has an event. */
struct wire_operation {
	__u32 kind;
	/* io_uring opcode. */
	__u32 opcode;
	__u64 operation;
	/* io_uring and libaio: the application's user_data. */
	__u64 user_data;
	__u64 entered;
	/* Stamps of the part that finished last, its I/O, and the operation that this I/O names. */
	__u64 queued;
	__u64 issued;
	__u64 reaped;
	__u64 ended;
	__u64 io;
	__u64 leader;
	/* When the application fetched the result; 0: unknown. */
	__u64 seen;
	/* enum wire_call. */
	__u32 from;
	__u32 parts;
	/* The driver has no event for reaping the completion. */
	__u32 fused;
	__u32 pad;
};
_Static_assert(sizeof(struct wire_operation) == 104, "wire_operation");

/* Event counters of one CPU: what it sent to user space, and what it could not send. */
struct wire_emitter {
	/* I/Os that match the requested classes and times. */
	__u64 matched;
	/* How many of them to skip next; user space initialises it to any number below
	 * `event_every`. */
	__u64 skip;
	/* I/Os that were given a number: each has an event or is lost. */
	__u64 numbers;
	__u64 lost_ios;
	__u64 lost_operations;
	/* Operations that ended with the first part of an I/O, whose number is assigned at its
	 * end. */
	__u64 early_operations;
	__u64 pad[2];
};
_Static_assert(sizeof(struct wire_emitter) == 64, "wire_emitter");

/* Index of the bio or request among the arguments of each event, counted from 0. */
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

/* Rare events, counted per device. */
struct wire_counters {
	__u64 splits;
	__u64 merges;
	__u64 requeues;
	__u64 retries;
	__u64 negative;
	/* Tag or queue number outside the device's slots: the I/O is counted, without stages. */
	__u64 out_of_range;
	/* A slot still had an issued request when the next one was issued: a completion event was
	 * lost. */
	__u64 stale;
	/* Issued requests whose bio's entry into the block layer is unknown. */
	__u64 no_queue_start;
	/* Bios that were evicted from the table, and bios that completed after that. */
	__u64 evicted;
	__u64 evicted_ended;
	/* Bios submitted by blk-throttle's worker whose operation is unknown. */
	__u64 held_unknown;
	/* Requests with more bios than are examined: the operations of the others did not get the
	 * result. */
	__u64 too_many_bios;
};
_Static_assert(sizeof(struct wire_counters) == 96, "wire_counters");

/*
 * A request in flight; one cache line. The slot belongs to one tag of one hardware queue. `request`
 * verifies the owner, and every consumer clears it, so that a missed event reads as "no start".
 */
struct wire_slot {
	__u64 request;
	__u64 queued;
	__u64 issued;
	__u64 reaped;
	/* Completion time, while the result waits here for its operation. */
	__u64 ended;
	/* Operation of its only bio, or REF_IN_TABLE. */
	__u64 generation;
	__u32 op_ref;
	/* With groups: the group of the I/O, and its submission CPU, each + 1. */
	__u32 group;
	__u16 cpu;
	/* Valid with `ended`. */
	__u16 device;
	__u8 op;
	__u8 fused;
	__u8 state;
	__u8 used;
};
_Static_assert(sizeof(struct wire_slot) == 64, "wire_slot");

/* A bio of a bio-based device between block_bio_queue and block_bio_complete; one cache line. */
struct wire_bio_io {
	/* Address of the bio; 0: free. */
	__u64 bio;
	__u64 queued;
	/* Operation of the bio. */
	__u64 generation;
	__u32 op_ref;
	__u32 device;
	__u32 bytes;
	__u32 op;
	/* The number of I/Os that the kernel counts it as. */
	__u32 parts;
	/* It was submitted with data and PREFLUSH; the driver counts two I/Os if it does the flush
	 * separately. */
	__u32 flush_ahead;
	/* With groups: as in wire_slot. */
	__u32 group;
	__u32 cpu;
	/* Index in the table. */
	__u32 place;
	__u32 pad;
};
_Static_assert(sizeof(struct wire_bio_io) == 64, "wire_bio_io");

/* Configuration of the interrupt programs, written before they are loaded. */
struct wire_interrupts_config {
	__u32 devices;
	__u32 rqf_flush_seq;
	__u32 cpus;
	/* One of this many interrupts is timed, on average. */
	__u32 time_every;
	/* This kernel runs a program recursively: for the I/O of a softirq inside that of an
	 * interrupt. */
	__u32 nested_runs;
};
_Static_assert(sizeof(struct wire_interrupts_config) == 20, "wire_interrupts_config");

/* Histogram of completions per interrupt; more than 2^16 share the last bucket. */
#define CARRIED_BITS	16
#define CARRIED_BUCKETS ((CARRIED_BITS - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

/* The context that a timed interrupt arrived in. */
enum wire_interrupted {
	INTERRUPTED_IDLE,
	INTERRUPTED_KERNEL,
	INTERRUPTED_USER,
	INTERRUPTED_KINDS,
};

/*
 * The name of the interrupted task is read for one in this many timed interrupts: that costs as
 * much as all the rest.
 */
#define INTERRUPTED_NAME_EVERY 8

/*
 * Counters of an interrupt vector, or of a poll queue, whose polls take the place of interrupts.
 * Handlers of one vector never run concurrently, nor do polls of one queue, so plain additions
 * suffice; all other contexts add to `outside`.
 */
struct wire_vector {
	/* One cache line with all that an interrupt touches, except the bucket of the completions
	 * of the one before. */

	/* The handler that is counted, if several share the line; 0: none observed yet. */
	__u64 action;
	/* Calls of the handler, or polls that found completions. */
	__u64 interrupts;
	/* Completions by the handler itself, and by a softirq or thread on its behalf. */
	__u64 inside;
	__u64 outside;
	/* inside + outside at the entry of the last interrupt: the difference since then belongs to
	 * that interrupt. */
	__u64 counted;
	/* Number of the next interrupt to time. */
	__u64 next_timed;
	/* Arrival time of the last interrupt if the gap to the next one is measured, else 0. */
	__u64 arrived;
	/* Queue of the first I/O that it reaped, + 1; 0: none yet. */
	__u32 queue;
	/* CPU that the last interrupts arrived on, + 1; 0: none yet. */
	__u32 cpu;

	/* Number of the last interrupt that arrived on another CPU. */
	__u64 cpu_since;
	/* Most completions of one interrupt, if above the range of exact buckets. */
	__u64 most;
	/* Calls that returned IRQ_NONE (not our device), or that woke the handler's thread. */
	__u64 unhandled;
	__u64 threaded;
	/* Thread of the threaded handler. */
	__u32 thread;
	/* Valid with `queue`. */
	__u32 device;
	/* Contexts of the timed interrupts. */
	__u64 interrupted[INTERRUPTED_KINDS];
	struct wire_extent handler;
	struct wire_extent apart;
	__u64 pad[2];
	__u64 carried[CARRIED_BUCKETS];
	__u64 handler_counts[HIST_BUCKETS];
	__u64 apart_counts[HIST_BUCKETS];
};
_Static_assert(sizeof(struct wire_vector) == 192 + 8 * 208 + 2 * 8 * 592, "wire_vector");

/* How the interrupt that completes a hardware queue's I/Os is identified. */
enum wire_queue_kind {
	/* By an event where the driver reaps the entry (NVMe). */
	QUEUE_BY_REAP,
	/* By the vector's name; the first observed event is the completion of the I/O. */
	QUEUE_BY_NAME,
	/* No interrupt: the queue is polled. */
	QUEUE_POLLED,
	/* No vector is known. */
	QUEUE_UNKNOWN,
};

/* A hardware queue. */
struct wire_queue {
	/* Index of its vector, or of itself as a poll queue, + 1; 0: none. */
	__u32 place;
	__u32 kind;
	/* The device has a single queue: its completions go to a softirq of the CPU that they
	 * arrive on, or of another CPU by an IPI. Those of devices with several queues use a
	 * softirq only after an IPI. */
	__u32 single;
	__u32 pad;
	/* Entries reaped neither by its interrupt nor by polling a poll queue. */
	__u64 elsewhere;
};
_Static_assert(sizeof(struct wire_queue) == 24, "wire_queue");

/* Classes of I/O for which the kernel has counters, and a class for all others. */
enum wire_counted {
	COUNTED_READ,
	COUNTED_WRITE,
	COUNTED_DISCARD,
	COUNTED_FLUSH,
	COUNTED_NONE,
	COUNTED_CLASSES,
};

/* Context in which an I/O completed; otherwise a task. */
enum wire_context {
	IN_INTERRUPT,
	/* In a softirq; device with one queue. */
	IN_SOFTIRQ,
	/* In a softirq raised from another CPU; device with several queues. */
	IN_REMOTE_SOFTIRQ,
	CONTEXTS,
};

/* I/Os of one device that completed on one CPU; one cache line. */
struct wire_completions {
	__u64 ios[COUNTED_CLASSES];
	__u64 contexts[CONTEXTS];
};
_Static_assert(sizeof(struct wire_completions) == 64, "wire_completions");

/* Block-layer softirqs on one CPU. */
struct wire_softirq {
	__u64 runs;
	/* Of `runs`: run by ksoftirqd. */
	__u64 deferred;
	__u64 next_timed;
	struct wire_extent time;
	__u64 timed;
	/* Completed requests of disks that are not traced. */
	__u64 others;
};
_Static_assert(sizeof(struct wire_softirq) == 64, "wire_softirq");

/* Kinds of request errors. */
enum wire_error_event {
	ERROR_FAILED,	/* it ended with an error */
	ERROR_RETRIED,	/* it is retried after the device answered or timed out */
	ERROR_REQUEUED, /* the driver returned it without starting it */
};

/* Key of one repeated error. */
struct wire_error {
	__u32 device; /* major << 20 | minor of the disk; 0: no disk */
	__u16 event;
	__u16 op;
	/* Of a failed request: a blk_status_t, or a negative errno. */
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
