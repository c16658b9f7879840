/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What crosses the line of bios by device and process. Included by wire.h alone. */
#ifndef BIOPSY_WIRE_PROCESS_IOS_H
#define BIOPSY_WIRE_PROCESS_IOS_H

/* How a process relates to biopsy. */
enum wire_relation {
	/* Only workers have submitted bios for it so far. */
	RELATION_UNKNOWN,
	RELATION_OWN,
	/* It belongs to the measured command. */
	RELATION_COMMAND,
	RELATION_KERNEL,
	RELATION_OTHER,
};

/* Bios are counted by device and submitting process. */
struct wire_process_key {
	__u32 device;
	/* NO_PROCESS: all processes for which the table had no room. */
	__u32 pid;
	/* The bios passed the filter; without one all do. */
	__u32 selected;
};
_Static_assert(sizeof(struct wire_process_key) == 12, "wire_process_key");

#define NO_PROCESS (~0u)

struct wire_process_ios {
	__u64 bios;
	/* Of reads and writes: a discard moves none. */
	__u64 bytes;
	/* Of the process, at its first bio and at the 2nd, 4th, 8th, ...: any bytes. */
	char comm[16];
	/* enum wire_relation. */
	__u32 relation;
	__u32 pad;
};
_Static_assert(sizeof(struct wire_process_ios) == 40, "wire_process_ios");

#endif
