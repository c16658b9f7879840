/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Time off the CPU, by stack: how long tasks sleep, and where.
 *
 *   sched_switch  a task that sleeps leaves its CPU, and one that was woken gets it
 *   iter/task     once at either end of the window: who sleeps at that moment
 *
 * A wait is from the one to the other, without what the kernel's own account (sched_info) says that
 * the task then waited for a CPU, and without the time that its stack took. Each is counted.
 *
 * A stack takes ten times as long as all the rest, and its user's side can be taken only by the
 * task itself as it leaves, before it is known how long it will sleep. So chance decides, twice.
 *
 * As the task leaves: in proportion to how long it slept at most of late. Both sides are taken.
 *
 * As it gets back: where it slept so much longer than that (SECOND times) that it would have to
 * stand for too many. Only the kernel's side can be had then; the task has not run yet.
 *
 * Above a threshold, which follows from the budget, a wait is sure to be taken; it is the one of
 * when the task left, for the one of later depends on what was chosen meanwhile. Whichever of the
 * two it was, a wait counts for as many as it was unlikely in all: that keeps sums right on average
 * whatever a task does next, and the second chance keeps one of a task that has slept much longer
 * than ever from counting for thousands. A second chance for every wait, which was there first,
 * left a quarter of what tasks slept without the user's side, and none of that was needed.
 *
 * Two simpler ways were measured beside it. Stacks at the end alone (want_user is 0) need no guess
 * and take half of the time, but have no user's side at all. Chance at the beginning alone made two
 * and a half times of what tasks slept that sleep for microseconds and now and then for
 * milliseconds.
 *
 * Interrupts are off in all of this, and the lock of a run queue is held: nothing here allocates.
 * That is why who sleeps is in a table made in advance, and not in storage of its task.
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
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct wire_sleeper);
} sleepers SEC(".maps");

/* What it waits for; a negative number: it is not asked for. */
static __always_inline int kind_of(struct task_struct *task, __u32 state)
{
	if (BPF_CORE_READ_BITFIELD(task, in_iowait))
		return WAIT_IO;
	if (state & TASK_UNINTERRUPTIBLE && !(state & TASK_NOLOAD))
		return WAIT_UNINTERRUPTIBLE;
	return config.want_io ? -1 : 0;
}

static __always_inline struct wire_sleeper *sleeper_of(struct wire_waits_row *row,
						       struct task_struct *task)
{
	struct wire_sleeper *sleeper, new = {.longest = MOST_THRESHOLD};
	__u32 tid = task->pid;

	sleeper = bpf_map_lookup_elem(&sleepers, &tid);
	if (likely(sleeper))
		return sleeper;
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

/* How long a task has slept of the time since it left its CPU: neither on one since, nor waiting.
 */
static __always_inline __u64 slept(struct task_struct *task, struct wire_sleeper *sleeper,
				   __u64 since)
{
	__u64 awake =
	    task->se.sum_exec_runtime - sleeper->ran + run_delay_of(task) - sleeper->run_delay;

	return awake < since ? since - awake : 0;
}

static __always_inline __u64 chance_kept(struct wire_sleeper *sleeper)
{
	return sleeper->chance >= SURE - 1 ? SURE : sleeper->chance;
}

/*
 * The task has run since, and that it got a CPU had no event: there are machines where the kernel
 * tells of no switch from some of its tasks, and runs that it skips. How long it slept is known all
 * the same, and to whom that goes where the stack was taken before.
 */
static __always_inline void end_unseen(struct wire_waits_row *row, struct task_struct *task,
				       struct wire_sleeper *sleeper, __u64 now)
{
	__u64 took = slept(task, sleeper, now - sleeper->began), weight = 256;

	sleeper->began = 0;
	row->unmatched++;
	count(row, sleeper->flags, took);
	if (took < config.least_ns) {
		sum_up(&row->brief, 1, took);
		return;
	}
	sum_up(&sleeper->all, 1, took);
	/* There is no second chance. */
	if (took < sleeper->threshold) {
		if (!(sleeper->flags & SLEEPER_CHOSEN))
			return;
		weight = weight_of(chance_kept(sleeper));
	}
	if (sleeper->flags & SLEEPER_STACK)
		credit(&sleeper->key, weight, took * weight >> 8);
	else
		sum_up(&row->bare, weight >> 8, took * weight >> 8);
}

/* A task ends; its number may be given to another. */
static __always_inline void forget(struct wire_waits_row *row, struct task_struct *task)
{
	__u32 tid = task->pid;
	struct wire_sleeper *sleeper = bpf_map_lookup_elem(&sleepers, &tid);

	if (!sleeper)
		return;
	if (sleeper->all.count)
		name_waits_of(row, task, sleeper->all.count, sleeper->all.ns);
	bpf_map_delete_elem(&sleepers, &tid);
}

/* The current task leaves its CPU to sleep. */
static __always_inline void fall_asleep(void *ctx, struct wire_waits_row *row, __u32 cpu,
					struct task_struct *task, __u32 state, __u64 now)
{
	struct wire_sleeper *sleeper;
	__u32 flags;
	__u64 threshold, chance = 0, began = now;
	int kind;

	if (state & TASK_DEAD) {
		forget(row, task);
		return;
	}
	kind = kind_of(task, state);
	if (kind < 0 || (!config.want_ours && (__u32)task->tgid == ours) ||
	    (config.want_filter && !is_wanted(task))) {
		row->filtered++;
		return;
	}
	sleeper = sleeper_of(row, task);
	if (!sleeper)
		return;
	if (unlikely(sleeper->began))
		end_unseen(row, task, sleeper, now);
	flags = kind;
	begin_period(row, now);
	threshold = threshold_of(row);
	sleeper->threshold = threshold;
	if (config.want_user) {
		chance = chance_of(sleeper->longest, threshold);
		if (is_lucky(chance))
			flags |= SLEEPER_CHOSEN;
	}
	if (flags & SLEEPER_CHOSEN && !is_over_budget(row, sleeper->longest)) {
		struct wait_scratch *s = bpf_map_lookup_elem(&wait_scratch, &cpu);

		if (s) {
			row->stacks++;
			if (take_current(ctx, row, task, s, kind)) {
				sleeper->key = s->key;
				flags |= SLEEPER_STACK;
			} else {
				row->full++;
			}
			began = bpf_ktime_get_ns();
			spend(row, began - now);
		}
	}
	sleeper->chance = chance >= SURE ? SURE - 1 : chance;
	sleeper->flags = flags;
	sleeper->run_delay = run_delay_of(task);
	sleeper->ran = task->se.sum_exec_runtime;
	/* What its stack took is none of its wait, or those that were chosen would be longer ones.
	 */
	sleeper->began = began;
}

/* How long a task that gets the CPU now has waited for one since it was woken. */
static __always_inline __u64 queued_for(struct task_struct *task, struct wire_sleeper *sleeper)
{
	__u64 delay, since, clock;

	if (!bpf_core_field_exists(task->sched_info.last_queued) ||
	    !bpf_core_field_exists(task->se.cfs_rq))
		return 0;
	/* It may have been moved from one CPU to the next meanwhile: that is in the sum already. */
	delay = task->sched_info.run_delay - sleeper->run_delay;
	since = task->sched_info.last_queued;
	clock = task->se.cfs_rq->rq->clock;
	return since && clock > since ? delay + (clock - since) : delay;
}

/* The kernel's side of a task that does not run; 0: no room for it. */
static __always_inline int take_other(struct wire_waits_row *row, struct task_struct *task,
				      struct wait_scratch *s, __u32 flags)
{
	long kernel = bpf_get_task_stack(task, s->wait.stack.ips, STACK_BYTES, 0);
	__u32 work = 0;

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
	return keep(row, s, task->tgid, flags);
}

#define SLEEPER_KIND (WAIT_IO | WAIT_UNINTERRUPTIBLE)

/* How much less likely than in proportion to its length a wait may be. */
#define SECOND 4

/* The longest sleep of late: each shorter one makes it a little less. */
static __always_inline void remember(struct wire_sleeper *sleeper, __u64 took)
{
	__u64 longest = sleeper->longest;

	/* MOST_THRESHOLD: the first one. */
	if (took < longest && longest < MOST_THRESHOLD)
		took = longest - (longest - took) / 16;
	sleeper->longest = took < MOST_THRESHOLD ? took : MOST_THRESHOLD - 1;
}

/* A task gets the CPU, and has not run yet. */
static __always_inline void wake_up(struct wire_waits_row *row, __u32 cpu, struct task_struct *task,
				    __u64 now)
{
	__u32 tid = task->pid;
	struct wire_sleeper *sleeper = bpf_map_lookup_elem(&sleepers, &tid);
	__u64 took, queued, chance, weight, stands_for, spent;
	struct wait_scratch *s;

	if (!sleeper || !sleeper->began)
		return;
	took = now - sleeper->began;
	sleeper->began = 0;
	queued = queued_for(task, sleeper);
	if (queued > took)
		queued = took;
	took -= queued;
	row->queued_ns += queued;
	count(row, sleeper->flags, took);
	remember(sleeper, took);
	if (took < config.least_ns) {
		sum_up(&row->brief, 1, took);
		return;
	}
	sum_up(&sleeper->all, 1, took);
	begin_period(row, now);
	chance = chance_of(took, sleeper->threshold);
	if (chance < SURE) {
		__u64 first = chance_kept(sleeper);

		if (config.want_user)
			chance /= SECOND;
		if (chance < first)
			chance = first;
		/* What is left of it for those that were not chosen; all are, of a sure one. */
		if (!(sleeper->flags & SLEEPER_CHOSEN) &&
		    !is_lucky(((chance - first) << 32) / ((SURE - first) | 1)))
			return;
	}
	weight = weight_of(chance);
	stands_for = took * weight >> 8;
	if (sleeper->flags & SLEEPER_STACK) {
		credit(&sleeper->key, weight, stands_for);
		return;
	}
	s = bpf_map_lookup_elem(&wait_scratch, &cpu);
	if (!s)
		return;
	if (is_over_budget(row, took)) {
		row->over++;
		sum_up(&row->bare, weight >> 8, stands_for);
		return;
	}
	spent = bpf_ktime_get_ns();
	row->stacks++;
	if (take_other(row, task, s, sleeper->flags & SLEEPER_KIND)) {
		credit(&s->key, weight, stands_for);
	} else {
		row->full++;
		sum_up(&row->bare, weight >> 8, stands_for);
	}
	spend(row, bpf_ktime_get_ns() - spent);
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(blocked_switch, int preempted, struct task_struct *from, struct task_struct *to)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct wire_waits_row *row;
	__u64 state, now;

	if (!running)
		return 0;
	row = bpf_map_lookup_elem(&wait_rows, &cpu);
	if (!row)
		return 0;
	row->events++;
	now = bpf_ktime_get_ns();
	if (to->pid)
		wake_up(row, cpu, to, now);
	if (preempted)
		return 0;
	/* The task's own word may be another by now, since who wakes it does not wait for this. */
	if (config.has_state)
		asm volatile("%0 = *(u64 *)(%1 + 24)" : "=r"(state) : "r"(ctx));
	else
		state = state_of(from);
	if ((__u32)state)
		fall_asleep(ctx, row, cpu, from, state, now);
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
	struct wire_sleeper new = {.longest = MOST_THRESHOLD};
	__u32 tid = task->pid;
	int kind;

	if (!is_asleep(task))
		return;
	kind = kind_of(task, state_of(task));
	if (kind < 0 || (!config.want_ours && (__u32)task->tgid == ours) ||
	    (config.want_filter && !is_wanted(task)))
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

/* A wait that still goes on when the window ends has gone on up to then. */
static __always_inline void end_open(struct wire_waits_row *row, __u32 place,
				     struct task_struct *task, struct wire_sleeper *sleeper)
{
	__u64 took = slept(task, sleeper, ended - sleeper->began);
	struct wait_scratch *s;

	sleeper->began = 0;
	count(row, sleeper->flags, took);
	if (took < config.least_ns) {
		sum_up(&row->brief, 1, took);
		return;
	}
	sum_up(&sleeper->all, 1, took);
	if (sleeper->flags & SLEEPER_STACK) {
		credit(&sleeper->key, 256, took);
		return;
	}
	s = bpf_map_lookup_elem(&wait_scratch, &place);
	/* One that was woken since has another stack by now. */
	if (!s || !config.budget_ns || !is_asleep(task)) {
		sum_up(&row->bare, 1, took);
		return;
	}
	row->stacks++;
	if (take_other(row, task, s, sleeper->flags & SLEEPER_KIND)) {
		credit(&s->key, 256, took);
	} else {
		row->full++;
		sum_up(&row->bare, 1, took);
	}
}

static __always_inline void end_sleeper(struct wire_waits_row *row, __u32 place,
					struct task_struct *task)
{
	__u32 tid = task->pid;
	struct wire_sleeper *sleeper = bpf_map_lookup_elem(&sleepers, &tid);

	if (!sleeper)
		return;
	if (sleeper->began && sleeper->began < ended)
		end_open(row, place, task, sleeper);
	if (sleeper->all.count)
		name_waits_of(row, task, sleeper->all.count, sleeper->all.ns);
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
		end_sleeper(row, place, task);
	else
		note_sleeper(row, task);
	return 0;
}
