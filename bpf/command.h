/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Tracks the processes of the measured command: those that biopsy forks while it starts the
 * command, and all their descendants, even after a parent has exited. For the latency programs,
 * which define `config` before this header.
 */
#ifndef BIOPSY_COMMAND_H
#define BIOPSY_COMMAND_H

#include "kernel.h"

/* Live processes, by process id. User space sets the size. */
HASH(command_processes, __u32, __u8, 1);

/* Set while biopsy starts the command, since it forks for other reasons too. */
volatile __u32 starts_command = 0;

/* Processes of the command that had no room in the table. */
__u64 untracked_processes = 0;

static __always_inline int is_of_command(__u32 pid)
{
	return bpf_map_lookup_elem(&command_processes, &pid) != 0;
}

static __always_inline void process_forked(struct task_struct *parent, struct task_struct *child)
{
	__u32 from = parent->tgid, pid = child->tgid;
	__u8 present = 1;

	/* A thread of the same process. */
	if (pid == from)
		return;
	if (!(starts_command && from == config.own_process) && !is_of_command(from))
		return;
	if (bpf_map_update_elem(&command_processes, &pid, &present, BPF_ANY))
		__sync_fetch_and_add(&untracked_processes, 1);
}

/* Removes a process whose last thread exits: its id may be reused. */
static __always_inline void thread_exited(struct task_struct *task)
{
	struct signal_struct *signal = task->signal;
	__u32 pid = task->tgid;
	struct atomic live;

	/* The main thread may exit before other threads. */
	BPF_CORE_READ_INTO(&live, signal, live);
	if (!live.counter && is_of_command(pid))
		bpf_map_delete_elem(&command_processes, &pid);
}

#endif
