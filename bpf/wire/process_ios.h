/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Declares the records of bios by device and process. Included by wire.h alone. */
#ifndef BIOPSY_WIRE_PROCESS_IOS_H
#define BIOPSY_WIRE_PROCESS_IOS_H

/* How a process relates to biopsy. */
enum wire_relation {
	/* So far, only workers have submitted bios on its behalf. */
	RELATION_UNKNOWN,
	RELATION_OWN,
	/* It belongs to the measured command. */
	RELATION_COMMAND,
	RELATION_KERNEL,
	RELATION_OTHER,
};

/* Key of the bios counted by device and submitting process. */
struct wire_process_key {
	__u32 device;
	/* NO_PROCESS: all processes that had no room in the table. */
	__u32 pid;
	/* The bios passed the filter, or there is no filter. */
	__u32 selected;
};
_Static_assert(sizeof(struct wire_process_key) == 12, "wire_process_key");

#define NO_PROCESS (~0u)

struct wire_process_ios {
	__u64 bios;
	/* Of reads and writes only: a discard transfers no data. */
	__u64 bytes;
	/* Name of the process, read at its first bio and at the 2nd, 4th, 8th, ...: any bytes. */
	char comm[16];
	/* enum wire_relation. */
	__u32 relation;
	__u32 pad;
};
_Static_assert(sizeof(struct wire_process_ios) == 40, "wire_process_ios");

#endif
