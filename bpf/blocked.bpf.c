/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Measures off-CPU time by stack: how long tasks sleep, and where.
 *
 *   sched_switch    a task that sleeps is switched out, and a woken task is switched in
 *   irq_work_entry  right after the switch, in the context of the woken task: takes its stack
 *   iter/task       once at each end of the interval: finds the tasks that sleep at that time
 *
 * A wait lasts from the switch-out to the switch-in, minus the run-queue delay after the wakeup
 * that the kernel accounts (sched_info). Every wait is counted.
 *
 * Taking a stack costs ten times as much as everything else, so waits are sampled: when a wait
 * ends, with a probability proportional to its length. Each sampled wait is then scaled up to the
 * same time, which gives shares of time the smallest possible variance. Waits above a threshold,
 * which follows from the budget, always have a stack.
 *
 * At the switch the task's user memory is not mapped yet, and for a task that is not current the
 * kernel omits all frames of its scheduler section (functions that wait, including mutexes). So the
 * program writes a record to a perf ring that requests a wakeup for each record. The kernel
 * delivers the wakeup in an interrupt on its own CPU (irq_work), as soon as the switch is over and
 * interrupts are enabled: in the context of the task, before it does anything else. There both
 * stacks are taken. Nothing reads that ring, and it never fills up.
 *
 * Two other designs were built and measured. Taking both stacks as the task goes to sleep, with a
 * probability that follows from its recent sleeps: for a task that slept 200 us and 40 ms in turn,
 * shares were off by up to 60 points at 0.1 % of a CPU. Taking only the kernel stack: half of the
 * cost, and no user stack.
 *
 * Interrupts are off in all of this, and sched_switch holds a run-queue lock, so nothing here may
 * allocate. That is why sleeping tasks are in a preallocated table, and not in task storage.
 */

/* One object serves every kernel: 5.10 has no compare-and-swap. */
#define NO_SWAP

#include "waits.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* linux/sched.h: macros, so not in BTF; the same numbers from 5.10 to 7.2. */
#define TASK_UNINTERRUPTIBLE 0x0002
#define TASK_DEAD	     0x0080
#define TASK_NOLOAD	     0x0400

/* When the interval ended; 0: it has just begun. */
__u64 ended = 0;

/* Threads that sleep or have slept, until they exit. User space sets the size. */
HASH(sleepers, __u32, struct wire_sleeper, 1024);

/* What the task waits for; negative: this wait is not recorded. */
static __always_inline int kind_of(struct task_struct *task, __u32 state)
{
	if (BPF_CORE_READ_BITFIELD(task, in_iowait))
		return WAIT_IO;
	if (state & TASK_UNINTERRUPTIBLE && !(state & TASK_NOLOAD))
		return WAIT_UNINTERRUPTIBLE;
	return config.io_enabled ? -1 : 0;
}

/* A ring of perf's for each CPU that is on, of which only the interrupt counts. User space sets the
 * size. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} self_interrupts SEC(".maps");

static __always_inline struct wire_sleeper *make_sleeper(struct wire_waits_row *row,
							 struct task_struct *task)
{
	struct wire_sleeper new = {};
	__u32 tid = task->pid;

	new.process.pid = task->tgid;
	BPF_CORE_READ_STR_INTO(&new.process.comm, task, comm);
	if (bpf_map_update_elem(&sleepers, &tid, &new, BPF_NOEXIST)) {
		row->unkept++;
		return 0;
	}
	return bpf_map_lookup_elem(&sleepers, &tid);
}

/* Counts a wait, whether or not its task has a row. */
static __always_inline void count(struct wire_waits_row *row, __u32 flags, __u64 took)
{
	sum_up(&row->all, 1, took);
	if (flags & WAIT_IO)
		sum_up(&row->io, 1, took);
	else if (flags & WAIT_UNINTERRUPTIBLE)
		sum_up(&row->uninterruptible, 1, took);
	if (flags & SLEEPER_BEFORE)
		sum_up(&row->before, 1, took);
}

/* Cumulative run-queue delay of a task, as the kernel accounts it. */
static __always_inline __u64 run_delay_of(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->sched_info.run_delay))
		return 0;
	return task->sched_info.run_delay;
}

#define SLEEPER_KIND (WAIT_IO | WAIT_UNINTERRUPTIBLE)

/*
 * How much of the time `since` its switch-out a task has slept, if it has run since or may have:
 * time neither on a CPU nor on a run queue.
 */
static __always_inline __u64 slept(struct task_struct *task, struct wire_sleeper *sleeper,
				   __u64 since)
{
	__u64 awake =
	    task->se.sum_exec_runtime - sleeper->ran + run_delay_of(task) - sleeper->run_delay;

	return awake < since ? since - awake : 0;
}

/*
 * Ends a wait whose switch-in had no event although the task has run since: on some machines the
 * kernel reports no switch from some of its tasks, and it skips a program's run while that program
 * is running. The length of the wait is known; its stack is lost.
 */
static __always_inline void end_unseen(struct wire_waits_row *row, struct task_struct *task,
				       struct wire_sleeper *sleeper, __u64 took)
{
	struct taken taken = {.took = took, .chance = SURE};

	row->unmatched++;
	count(row, sleeper->flags, took);
	if (took < config.least_ns) {
		sum_up(&row->brief, 1, took);
		return;
	}
	sum_up(&sleeper->all, 1, took);
	go_bare_of(row, task, taken);
}

/* A task exits; its thread id may be reused. */
static __always_inline void forget(struct wire_waits_row *row, struct task_struct *task)
{
	__u32 tid = task->pid;
	struct wire_sleeper *sleeper = bpf_map_lookup_elem(&sleepers, &tid);

	if (!sleeper)
		return;
	if (sleeper->all.count)
		name_waits(row, task, sleeper->all.count, sleeper->all.ns);
	bpf_map_delete_elem(&sleepers, &tid);
}

/* The current task is switched out to sleep. */
static __always_inline void fall_asleep(struct wire_waits_row *row, struct task_struct *task,
					struct wire_sleeper *sleeper, __u32 state, __u64 now)
{
	int kind;

	if (state & TASK_DEAD) {
		forget(row, task);
		return;
	}
	kind = kind_of(task, state);
	if (kind < 0 || (!config.own_process_enabled && (__u32)task->tgid == ours) ||
	    (config.filter_enabled && !passes_filter(task))) {
		row->filtered++;
		return;
	}
	if (!sleeper)
		sleeper = make_sleeper(row, task);
	if (!sleeper)
		return;
	sleeper->flags = kind;
	sleeper->run_delay = run_delay_of(task);
	sleeper->ran = task->se.sum_exec_runtime;
	sleeper->began = now;
}

/* The scheduler's clock at its last update on the CPU that the task last ran on; 0: unavailable. */
static __always_inline __u64 clock_of(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->se.cfs_rq))
		return 0;
	return task->se.cfs_rq->rq->clock;
}

/*
 * Records how far the event clock is ahead of the scheduler's clock. The current task goes to
 * sleep, for which the scheduler has just updated its clock. If it then searched other CPUs for
 * work, the update was longer ago, so the smallest lead counts, unless the clocks have drifted,
 * which they do by less than 1 in 1024.
 */
static __always_inline void compare_clocks(struct wire_waits_row *row, struct task_struct *task,
					   __u64 now)
{
	__u64 clock = clock_of(task), ahead = now - clock;

	if (!clock)
		return;
	if (row->ahead_at && (__s64)(ahead - row->ahead) > (__s64)((now - row->ahead_at) >> 10))
		ahead = row->ahead + ((now - row->ahead_at) >> 10);
	row->ahead = ahead;
	row->ahead_at = now;
}

/*
 * Run-queue delay of a task that is now switched in, since its wakeup. This does not use the
 * scheduler's current clock value: if the woken task takes the CPU at once, the scheduler does not
 * update it (rq_clock_skip_update), and the whole exit from idle, 15 us in a virtual machine, would
 * count as blocked.
 */
static __always_inline __u64 queued_for(struct wire_waits_row *row, struct task_struct *task,
					struct wire_sleeper *sleeper, __u64 now)
{
	__u64 delay, since, clock, looked;

	if (!bpf_core_field_exists(task->sched_info.last_queued) ||
	    !bpf_core_field_exists(task->se.cfs_rq))
		return 0;
	/* The task may have been migrated between CPUs meanwhile; that delay is in the sum
	 * already. */
	delay = task->sched_info.run_delay - sleeper->run_delay;
	since = task->sched_info.last_queued;
	if (!since)
		return delay;
	looked = clock_of(task);
	clock = row->ahead_at ? now - row->ahead : looked;
	/* The clock never goes backwards. */
	if (clock < looked)
		clock = looked;
	return clock > since ? delay + (clock - since) : delay;
}

/* Takes the kernel stack of a task that is not running. Returns enum stack_flags. */
static __always_inline __u32 take_other(struct task_struct *task, struct wait_scratch *s)
{
	long kernel = bpf_get_task_stack(task, s->wait.stack.ips, STACK_BYTES, 0);
	__u32 flags = 0, work = 0;

	if (kernel < 0) {
		flags |= STACK_KERNEL_FAILED;
		kernel = 0;
	}
	if (kernel > (long)STACK_BYTES)
		kernel = STACK_BYTES;
	if (has_no_user_side(task->flags)) {
		flags |= STACK_KTHREAD;
		work = name_work(task, (void *)s->wait.stack.ips + kernel);
		if (work)
			flags |= STACK_WORK;
	} else {
		flags |= WAIT_NO_USER;
	}
	s->wait.stack.kernel_frames = kernel / sizeof(__u64);
	s->wait.stack.user_frames = work;
	__builtin_memset(s->wait.stack.comm, 0, sizeof(s->wait.stack.comm));
	BPF_CORE_READ_STR_INTO(&s->wait.stack.comm, task, comm);
	return flags;
}

/*
 * After this many stacks in a row without an interrupt, the machine is taken to have no
 * self-interrupt for irq_work.
 */
#define MOST_LOST 16

/* The interrupt did not come, or came too late; another task may be running by now. */
static __always_inline void lose_half(struct wire_waits_row *row, struct task_struct *task)
{
	struct taken taken = {.took = row->half_took, .chance = row->half_chance ?: SURE};
	int is_its = BPF_CORE_READ(task, pid) == row->half_tid;

	row->half_tid = 0;
	row->half_lost++;
	row->uninterrupted++;
	if (is_its)
		go_bare_of(row, task, taken);
	else
		sum_up(&row->bare, weight_of(taken.chance) >> 8, stands_for(taken));
}

/* Requests the stack of the task as soon as it runs; 0: not possible. */
static __always_inline int ask_for_stack(void *ctx, struct wire_waits_row *row,
					 struct task_struct *task, __u32 flags, struct taken taken,
					 __u64 now)
{
	__u64 nothing = 0;

	if (row->half_lost >= MOST_LOST ||
	    bpf_perf_event_output(ctx, &self_interrupts, BPF_F_CURRENT_CPU, &nothing,
				  sizeof(nothing))) {
		row->uninterrupted++;
		return 0;
	}
	row->half_flags = flags;
	row->half_took = taken.took;
	row->half_chance = taken.chance >= SURE ? 0 : taken.chance;
	row->half_ended = now;
	row->half_tid = task->pid;
	return 1;
}

/* A task is switched in, and has not run yet. */
static __always_inline void wake_up(void *ctx, struct wire_waits_row *row, __u32 cpu,
				    struct task_struct *task, __u64 now)
{
	__u32 tid = task->pid, flags;
	struct wire_sleeper *sleeper = bpf_map_lookup_elem(&sleepers, &tid);
	struct taken taken;
	struct wait_scratch *s;
	__u64 queued, ran;

	if (!sleeper || !sleeper->began)
		return;
	taken.took = now - sleeper->began;
	sleeper->began = 0;
	queued = queued_for(row, task, sleeper, now);
	if (queued > taken.took)
		queued = taken.took;
	taken.took -= queued;
	row->queued_ns += queued;
	ran = task->se.sum_exec_runtime - sleeper->ran;
	if (unlikely(ran)) {
		end_unseen(row, task, sleeper, ran < taken.took ? taken.took - ran : 0);
		return;
	}
	count(row, sleeper->flags, taken.took);
	if (taken.took < config.least_ns) {
		sum_up(&row->brief, 1, taken.took);
		return;
	}
	sum_up(&sleeper->all, 1, taken.took);
	begin_period(&row->budget, now);
	taken.chance = chance_of(taken.took, threshold_of(row));
	if (!is_lucky(taken.chance))
		return;
	if (is_over_budget(&row->budget)) {
		row->over++;
		go_bare_of(row, task, taken);
		return;
	}
	flags = sleeper->flags & SLEEPER_KIND;
	/* The interrupt's program accounts for the time of both. */
	if (ask_for_stack(ctx, row, task, flags, taken, now))
		return;
	s = bpf_map_lookup_elem(&wait_scratch, &cpu);
	if (!s)
		return;
	flags |= take_other(task, s);
	keep(row, s, task->tgid, flags, taken);
	spend(&row->budget, now, bpf_ktime_get_ns() - now);
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(blocked_switch, int preempted, struct task_struct *from, struct task_struct *to)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct wire_sleeper *sleeper = 0;
	struct wire_waits_row *row;
	__u64 state, now;
	__u32 tid;

	if (!running)
		return 0;
	row = bpf_map_lookup_elem(&wait_rows, &cpu);
	if (!row)
		return 0;
	row->events++;
	if (unlikely(row->half_tid))
		lose_half(row, from);
	now = bpf_ktime_get_ns();
	if (to->pid)
		wake_up(ctx, row, cpu, to, now);
	tid = from->pid;
	if (tid)
		sleeper = bpf_map_lookup_elem(&sleepers, &tid);
	/* Whether it is preempted or sleeps, it has run. */
	if (sleeper && unlikely(sleeper->began)) {
		end_unseen(row, from, sleeper, slept(from, sleeper, now - sleeper->began));
		sleeper->began = 0;
	}
	if (preempted)
		return 0;
	/* The state in the task may have changed by now: a waker does not wait for this program. */
	if (config.has_state)
		asm volatile("%0 = *(u64 *)(%1 + 24)" : "=r"(state) : "r"(ctx));
	else
		state = state_of(from);
	if ((__u32)state) {
		compare_clocks(row, from, now);
		fall_asleep(row, from, sleeper, state, now);
	}
	return 0;
}

/* If the interrupt comes later than this, the task may have moved on. */
#define LATE_NS 1000000
/* Most that the interrupt's entry costs; a longer delay has other causes. */
#define MOST_ENTRY_NS 20000

/* Runs for every irq_work interrupt; it handles the first one after a switch. */
SEC("?tp_btf/irq_work_entry")
int blocked_goes_on(void *ctx)
{
	struct task_struct *task = (struct task_struct *)bpf_get_current_task();
	__u32 cpu = bpf_get_smp_processor_id();
	struct wire_waits_row *row = bpf_map_lookup_elem(&wait_rows, &cpu);
	struct wait_scratch *s;
	struct taken taken;
	__u64 now, entry;

	if (!row || !row->half_tid)
		return 0;
	s = bpf_map_lookup_elem(&wait_scratch, &cpu);
	if (!s)
		return 0;
	now = bpf_ktime_get_ns();
	entry = now - row->half_ended;
	if ((__u32)bpf_get_current_pid_tgid() != row->half_tid || entry > LATE_NS) {
		lose_half(row, task);
		return 0;
	}
	row->half_tid = 0;
	row->half_lost = 0;
	taken.took = row->half_took;
	taken.chance = row->half_chance ?: SURE;
	take_current(ctx, row, task, s, row->half_flags, taken);
	/* Includes the rest of the switch, which takes about as long as the interrupt's own
	 * exit. */
	spend(&row->budget, now,
	      bpf_ktime_get_ns() - now + (entry < MOST_ENTRY_NS ? entry : MOST_ENTRY_NS));
	return 0;
}

/* Neither on a CPU nor on a run queue. */
static __always_inline int is_asleep(struct task_struct *task)
{
	if (!state_of(task) || task->exit_state)
		return 0;
	return !bpf_core_field_exists(struct task_struct, on_cpu) || !task->on_cpu;
}

/* A task that sleeps when the interval begins: its wait is counted from then on. */
static __always_inline void note_sleeper(struct wire_waits_row *row, struct task_struct *task)
{
	struct wire_sleeper new = {};
	__u32 tid = task->pid;
	int kind;

	if (!is_asleep(task))
		return;
	kind = kind_of(task, state_of(task));
	if (kind < 0 || (!config.own_process_enabled && (__u32)task->tgid == ours) ||
	    (config.filter_enabled && !passes_filter(task)))
		return;
	new.run_delay = run_delay_of(task);
	new.ran = task->se.sum_exec_runtime;
	new.flags = kind | SLEEPER_BEFORE;
	new.process.pid = task->tgid;
	BPF_CORE_READ_STR_INTO(&new.process.comm, task, comm);
	new.began = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&sleepers, &tid, &new, BPF_NOEXIST)) {
		/* If it ran meanwhile, it is in the table already. */
		if (!bpf_map_lookup_elem(&sleepers, &tid))
			row->unkept++;
		return;
	}
	/* It was woken in between, and this entry came too late. */
	if (!is_asleep(task))
		bpf_map_delete_elem(&sleepers, &tid);
}

/* Buffer for a record; only one scan runs at a time. */
ARRAY(asleep, struct wire_asleep, 1);

/* Writes the user registers of the task, from which user space can unwind its user stack. */
static __always_inline void tell_registers(struct bpf_iter__task *ctx, struct task_struct *task,
					   const struct wire_stack_key *key, __u64 took)
{
	const struct pt_regs *registers;
	struct wire_asleep *to;
	unsigned long cs = 0;
	__u32 zero = 0;

	to = bpf_map_lookup_elem(&asleep, &zero);
	if (!to || !bpf_core_field_exists(struct pt_regs, bp))
		return;
	registers = registers_of(task);
	/* A full word before FRED (6.9), since then part of one. */
	if (bpf_core_read(&cs, sizeof(cs), &registers->cs) || (cs & 0xffff) != USER_CS ||
	    bpf_core_read(&to->ip, sizeof(to->ip), &registers->ip) ||
	    bpf_core_read(&to->sp, sizeof(to->sp), &registers->sp) ||
	    bpf_core_read(&to->bp, sizeof(to->bp), &registers->bp))
		return;
	to->key = *key;
	to->took = took;
	to->switches = task->nvcsw + task->nivcsw;
	to->tid = task->pid;
	bpf_seq_write(ctx->meta->seq, to, sizeof(*to));
}

/* Ends a wait that is still going on at the end of the interval. */
static __always_inline void end_open(struct bpf_iter__task *ctx, struct wire_waits_row *row,
				     __u32 place, struct task_struct *task,
				     struct wire_sleeper *sleeper)
{
	__u64 asleep_for = slept(task, sleeper, bpf_ktime_get_ns() - sleeper->began);
	struct taken taken = {.took = ended - sleeper->began, .chance = SURE};
	struct wait_scratch *s;
	__u32 flags;

	/* Excludes time that the task ran after the end. */
	if (asleep_for < taken.took)
		taken.took = asleep_for;
	sleeper->began = 0;
	count(row, sleeper->flags, taken.took);
	if (taken.took < config.least_ns) {
		sum_up(&row->brief, 1, taken.took);
		return;
	}
	sum_up(&sleeper->all, 1, taken.took);
	s = bpf_map_lookup_elem(&wait_scratch, &place);
	if (!s)
		return;
	flags = sleeper->flags & SLEEPER_KIND;
	/* A task that was woken since has another stack by now, even if it sleeps again. */
	if (!is_asleep(task) || task->se.sum_exec_runtime != sleeper->ran) {
		row->unmatched++;
		go_bare_of(row, task, taken);
		return;
	}
	if (!config.budget_ns) {
		go_bare_of(row, task, taken);
		return;
	}
	flags |= take_other(task, s);
	if (keep(row, s, task->tgid, flags, taken) && flags & WAIT_NO_USER)
		tell_registers(ctx, task, &s->key, taken.took);
}

static __always_inline void end_sleeper(struct bpf_iter__task *ctx, struct wire_waits_row *row,
					__u32 place, struct task_struct *task)
{
	__u32 tid = task->pid;
	struct wire_sleeper *sleeper = bpf_map_lookup_elem(&sleepers, &tid);

	if (!sleeper)
		return;
	if (sleeper->began && sleeper->began < ended)
		end_open(ctx, row, place, task, sleeper);
	if (sleeper->all.count)
		name_waits(row, task, sleeper->all.count, sleeper->all.ns);
	sleeper->all.count = 0;
}

/* Runs over all tasks when the interval begins and when it has ended. Its row is the last one. */
SEC("?iter/task")
int blocked_look(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	__u32 place = config.cpus;
	struct wire_waits_row *row;

	/* NULL after the last task. */
	if (!task || !task->pid)
		return 0;
	row = bpf_map_lookup_elem(&wait_rows, &place);
	if (!row)
		return 0;
	if (ended)
		end_sleeper(ctx, row, place, task);
	else
		note_sleeper(row, task);
	return 0;
}
