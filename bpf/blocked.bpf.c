/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Time off the CPU, by stack: how long tasks sleep, and where.
 *
 *   sched_switch    a task that sleeps leaves its CPU, and one that was woken gets it
 *   irq_work_entry  behind that, in the name of the latter, where its stack is to be taken
 *   iter/task       once at either end of the window: who sleeps at that moment
 *
 * A wait is from the one to the other, without what the kernel's own account (sched_info) says that
 * the task then waited for a CPU. Each is counted.
 *
 * A stack takes ten times as long as all the rest, so that chance decides which waits have theirs:
 * as a wait ends, in proportion to its length. Each then stands for the same time, which is the
 * least that shares of time can scatter; those above the threshold, which follows from the budget,
 * are taken for sure.
 *
 * But at the switch the task's memory of user mode is not mapped yet, and from outside of it the
 * kernel leaves all frames out that are in its section of functions that wait (mutexes as well). So
 * a record is written to a ring of perf's which wants to wake its reader with each. That is done in
 * an interrupt of its own CPU (irq_work), which comes as soon as the switch is over and interrupts
 * are on again, in the name of the task and before it has done anything else. There both sides are
 * taken. Nobody reads that ring, and it has no end.
 *
 * Two other ways were built and measured. Both sides as the task goes to sleep, by how long it
 * slept of late: of one that slept for 200 us to 40 ms by turns the shares were off by up to 60
 * points at 0.1 % of a CPU. The kernel's side alone: half of the price, and no user's side.
 *
 * Interrupts are off in all of this, and in sched_switch the lock of a run queue is held: nothing
 * here allocates. That is why who sleeps is in a table made in advance, and not in storage of its
 * task.
 */

/* One object serves every kernel: 5.10 has no compare-and-swap. */
#define NO_SWAP

#include "waits.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* linux/sched.h: macros, so not in BTF; the same numbers from 5.10 to 7.2. */
#define TASK_UNINTERRUPTIBLE 0x0002
#define TASK_DEAD	     0x0080
#define TASK_NOLOAD	     0x0400

/* When the window ended; 0: it has just begun. */
__u64 ended = 0;

/* Threads that sleep, or did; until they end. User space sets the size. */
HASH(sleepers, __u32, struct wire_sleeper, 1024);

/* What it waits for; a negative number: it is not asked for. */
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

/* Counts a wait, whoever's it is. */
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

/* Of a task at this moment, by the kernel's own account: how long it has waited for CPUs. */
static __always_inline __u64 run_delay_of(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->sched_info.run_delay))
		return 0;
	return task->sched_info.run_delay;
}

#define SLEEPER_KIND (WAIT_IO | WAIT_UNINTERRUPTIBLE)

/* How long a task that has had a CPU since, or may have, slept of the time since it left one:
 * neither on a CPU, nor waiting for one. */
static __always_inline __u64 slept(struct task_struct *task, struct wire_sleeper *sleeper,
				   __u64 since)
{
	__u64 awake =
	    task->se.sum_exec_runtime - sleeper->ran + run_delay_of(task) - sleeper->run_delay;

	return awake < since ? since - awake : 0;
}

/*
 * The task has run since, and that it got a CPU had no event: there are machines where the kernel
 * tells of no switch from some of its tasks, and runs that it skips. How long it slept is known all
 * the same; where, nobody knows any more.
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

/* A task ends; its number may be given to another. */
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

/* The current task leaves its CPU to sleep. */
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

/* The scheduler's clock as it last looked at it, on the CPU that the task was on last; 0: nobody
 * can tell. */
static __always_inline __u64 clock_of(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->se.cfs_rq))
		return 0;
	return task->se.cfs_rq->rq->clock;
}

/*
 * The current task goes to sleep, for which the scheduler has just looked at its clock: so far that
 * of events is ahead of it. Where it went on to look for work on other CPUs it was longer ago: the
 * least counts, unless the two clocks have drifted apart since, which they do by less than one part
 * in 1024.
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
 * How long a task that gets the CPU now has waited for one since it was woken. Not by the clock
 * that the scheduler has at hand: where who is woken takes the CPU at once, it does not look again
 * (rq_clock_skip_update), and all of the way out of idle, 15 us in a virtual machine, would count
 * as blocked.
 */
static __always_inline __u64 queued_for(struct wire_waits_row *row, struct task_struct *task,
					struct wire_sleeper *sleeper, __u64 now)
{
	__u64 delay, since, clock, looked;

	if (!bpf_core_field_exists(task->sched_info.last_queued) ||
	    !bpf_core_field_exists(task->se.cfs_rq))
		return 0;
	/* It may have been moved from one CPU to the next meanwhile: that is in the sum already. */
	delay = task->sched_info.run_delay - sleeper->run_delay;
	since = task->sched_info.last_queued;
	if (!since)
		return delay;
	looked = clock_of(task);
	clock = row->ahead_at ? now - row->ahead : looked;
	/* It is never less than what it was. */
	if (clock < looked)
		clock = looked;
	return clock > since ? delay + (clock - since) : delay;
}

/* The kernel's side of a task that does not run; enum stack_flags. */
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

/* So many without an interrupt in a row: this machine has none of its own for such work. */
#define MOST_LOST 16

/* The interrupt did not come, or too late; the task may be another by now. */
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

/* Has its stack taken as soon as the task runs; 0: that cannot be. */
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

/* A task gets the CPU, and has not run yet. */
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
	/* The interrupt's program has the time of both. */
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
	/* However it leaves, it has run. */
	if (sleeper && unlikely(sleeper->began)) {
		end_unseen(row, from, sleeper, slept(from, sleeper, now - sleeper->began));
		sleeper->began = 0;
	}
	if (preempted)
		return 0;
	/* The task's own word may be another by now, since who wakes it does not wait for this. */
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

/* Longer ago the task may have gone on since: where the interrupt does not come at once. */
#define LATE_NS 1000000
/* What it costs to come, at most: later it was held up by others. */
#define MOST_ENTRY_NS 20000

/* Of all interrupts for such work the next one behind a switch. */
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
	/* With the rest of the switch, which is about what the interrupt's own end takes. */
	spend(&row->budget, now,
	      bpf_ktime_get_ns() - now + (entry < MOST_ENTRY_NS ? entry : MOST_ENTRY_NS));
	return 0;
}

/* Neither on a CPU nor on its way to one. */
static __always_inline int is_asleep(struct task_struct *task)
{
	if (!state_of(task) || task->exit_state)
		return 0;
	return !bpf_core_field_exists(struct task_struct, on_cpu) || !task->on_cpu;
}

/* Who sleeps when the window begins has slept since then, as far as it is concerned. */
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
		/* It is there already if it ran meanwhile. */
		if (!bpf_map_lookup_elem(&sleepers, &tid))
			row->unkept++;
		return;
	}
	/* It has been woken in between, and this came too late. */
	if (!is_asleep(task))
		bpf_map_delete_elem(&sleepers, &tid);
}

/* Where one is made; only one look goes on at a time. */
ARRAY(asleep, struct wire_asleep, 1);

/* Says where the task entered the kernel, by which its user's side can be read from outside. */
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
	/* Before FRED (6.9) a word, behind it a part of one. */
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

/* A wait that still goes on when the window ends has gone on up to then. */
static __always_inline void end_open(struct bpf_iter__task *ctx, struct wire_waits_row *row,
				     __u32 place, struct task_struct *task,
				     struct wire_sleeper *sleeper)
{
	__u64 asleep_for = slept(task, sleeper, bpf_ktime_get_ns() - sleeper->began);
	struct taken taken = {.took = ended - sleeper->began, .chance = SURE};
	struct wait_scratch *s;
	__u32 flags;

	/* What it has run behind the end is not of the window. */
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
	/* One that was woken since has another stack by now, even if it sleeps again. */
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

/* User space runs it when the window begins, and when it has ended. Its row is the last one. */
SEC("?iter/task")
int blocked_look(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	__u32 place = config.cpus;
	struct wire_waits_row *row;

	/* NULL behind the last one. */
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
