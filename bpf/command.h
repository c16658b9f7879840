/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The processes of the measured command: those that biopsy forks while it starts the command, and
 * their descendants, also where the parent has exited. For the latency programs, whose `config`
 * must stand before it.
 */
#ifndef BIOPSY_COMMAND_H
#define BIOPSY_COMMAND_H

#include "kernel.h"

/* Live processes by id. User space sets the size. */
HASH(command_processes, __u32, __u8, 1);

/* Set while biopsy starts the command: it forks for other reasons too. */
volatile __u32 starts_command = 0;

/* Processes of the command for which the table had no room. */
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

/* Another process may get the id. */
static __always_inline void thread_exited(struct task_struct *task)
{
	struct signal_struct *signal = task->signal;
	__u32 pid = task->tgid;
	struct atomic live;

	/* The main thread may exit before others. */
	BPF_CORE_READ_INTO(&live, signal, live);
	if (!live.counter && is_of_command(pid))
		bpf_map_delete_elem(&command_processes, &pid);
}

#endif
