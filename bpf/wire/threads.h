/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Threads, as threads.bpf.c finds them. src/wire/threads.rs is the other side. */
#ifndef BIOPSY_WIRE_THREADS_H
#define BIOPSY_WIRE_THREADS_H

/* The most that the kernel takes of a stack where nobody has set kernel.perf_event_max_stack. */
#define THREAD_FRAMES 127

/* Bits of wire_thread.flags. */
enum wire_thread_flags {
	THREAD_ON_CPU = 1,
	THREAD_IN_IOWAIT = 2,
	THREAD_KERNEL = 4,    /* a kernel thread, or a worker of io_uring's or vhost's: it never
			       * is in user mode, and its registers there mean nothing */
	THREAD_COMPAT = 8,    /* the system call's number is one of 32-bit programs */
	THREAD_SYSCALL = 16,  /* `syscall` is known */
	THREAD_NO_STACK = 32, /* a stack was asked for, and the kernel gave none */
	THREAD_BEHIND = 64,   /* it waits for the CPU that looks */
};

/* One thread in one round; `frames` addresses of 8 bytes follow, leaf first. */
struct wire_thread {
	__u32 pid;
	__u32 tid;
	/* As the scheduler keeps them: the letter that tools show is made of both. */
	__u32 state;
	__u32 exit_state;
	__u32 flags;
	__u32 syscall;
	__u32 frames;
	/* Major << 20 | minor of the disk that it handed its last bio to, where it has waited for
	 * I/O ever since, and of the lowest one that this bio came to meanwhile; both 0: not
	 * known. */
	__u32 device;
	__u32 lower;
	/* The CPU that it is on, or was on last. */
	__u32 cpu;
	__u64 cgroup;
	/* Of one behind: when it left the CPU, by the clock of its run queue. */
	__u64 last_ran;
	char comm[16]; /* written by strangers: any bytes */
};
_Static_assert(sizeof(struct wire_thread) == 72, "wire_thread");

/* Told once, before the programs are loaded. */
struct wire_threads_config {
	/* Threads that wait for anything at all, not only for I/O or without being interruptible.
	 */
	__u32 sleepers_enabled;
	__u32 stacks_enabled;
	__u32 cgroups_enabled;
	/* The block controller is in the one hierarchy (v2). */
	__u32 unified_cgroups;
	__u32 devices_enabled;
};

#endif
