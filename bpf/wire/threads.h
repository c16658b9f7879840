/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Declares the records of threads that threads.bpf.c samples; src/wire/threads.rs decodes them. */
#ifndef BIOPSY_WIRE_THREADS_H
#define BIOPSY_WIRE_THREADS_H

/* The kernel's default limit of frames (kernel.perf_event_max_stack). */
#define THREAD_FRAMES 127

/* Bits of wire_thread.flags. */
enum wire_thread_flags {
	THREAD_ON_CPU = 1,
	THREAD_IN_IOWAIT = 2,
	THREAD_KERNEL = 4,    /* a kernel thread, or a worker of io_uring's or vhost's: it never
			       * is in user mode, and its registers there mean nothing */
	THREAD_COMPAT = 8,    /* the system call's number is one of 32-bit programs */
	THREAD_SYSCALL = 16,  /* `syscall` is valid */
	THREAD_NO_STACK = 32, /* a stack was requested, and the kernel returned none */
	THREAD_BEHIND = 64,   /* it waits for the CPU that takes the sample */
};

/* One thread in one sample; `frames` addresses of 8 bytes follow, leaf first. */
struct wire_thread {
	__u32 pid;
	__u32 tid;
	/* As in task_struct: the state letter that tools show combines both. */
	__u32 state;
	__u32 exit_state;
	__u32 flags;
	__u32 syscall;
	__u32 frames;
	/* For a thread in an I/O wait: major << 20 | minor of the disk that it submitted its last
	 * bio to, and of the lowest disk that this bio has reached so far; both 0: unknown. */
	__u32 device;
	__u32 lower;
	/* The CPU that it runs on, or ran on last. */
	__u32 cpu;
	__u64 cgroup;
	/* With THREAD_BEHIND: when it was switched out, by its run queue's clock. */
	__u64 last_ran;
	char comm[16]; /* untrusted: any bytes */
};
_Static_assert(sizeof(struct wire_thread) == 72, "wire_thread");

/* Written once, before the programs are loaded. */
struct wire_threads_config {
	/* Include threads in any sleep, not only in I/O waits or uninterruptible sleeps. */
	__u32 sleepers_enabled;
	__u32 stacks_enabled;
	__u32 cgroups_enabled;
	/* The block controller is in the unified hierarchy (v2). */
	__u32 unified_cgroups;
	__u32 devices_enabled;
};

#endif
