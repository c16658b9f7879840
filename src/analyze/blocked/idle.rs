//! Removes waits of threads that have nothing to do: they sleep for a timer, an event or their next work item.

use std::collections::BTreeMap;

use crate::analyze::stacks::KERNEL_MARK;
use crate::merge::SaturatingSum as _;

/// Kernel functions in which a task sleeps until a timer, an event, a child or another task's message. Waits for a
/// futex or a pipe are excluded: they may be for a lock, or for another program's output.
const SLEEPS: [&str; 21] = [
    "do_nanosleep",
    "hrtimer_nanosleep",
    "do_epoll_wait",
    "ep_poll",
    "do_sys_poll",
    "do_select",
    "do_wait",
    "do_sigtimedwait",
    "__do_sys_pause",
    "sigsuspend",
    "inet_csk_accept",
    "unix_accept",
    "unix_stream_read_generic",
    "__skb_wait_for_more_packets",
    "sk_wait_data",
    "n_tty_read",
    "do_syslog",
    "devkmsg_read",
    "signalfd_read_iter",
    "timerfd_read_iter",
    "inotify_read",
];

/// Functions of waits for a disk, memory or a lock. A task that sleeps in one of these below one of [`SLEEPS`] is
/// blocked, for example in a page fault.
const BLOCKED: [&str; 9] = [
    "io_schedule",
    "io_schedule_timeout",
    "handle_mm_fault",
    "__mutex_lock",
    "__lock_sock",
    "rwsem_down_read_slowpath",
    "rwsem_down_write_slowpath",
    "rt_mutex_slowlock",
    "request_wait_answer",
];

/// The main loops of kernel threads, with the functions that they call to do work: without one of these the thread
/// waits for work.
const WORKERS: [(&str, &[&str]); 14] = [
    ("worker_thread", &["process_one_work"]),
    ("rescuer_thread", &["process_one_work"]),
    ("io_wq_worker", &["io_worker_handle_work"]),
    ("io_wqe_worker", &["io_worker_handle_work"]),
    ("io_sq_thread", &["__io_sq_thread", "io_submit_sqes"]),
    ("smpboot_thread_fn", &["run_ksoftirqd", "cpu_stopper_thread", "rcu_cpu_kthread"]),
    ("kswapd", &["balance_pgdat"]),
    ("kcompactd", &["kcompactd_do_work", "compact_zone"]),
    ("khugepaged", &["khugepaged_scan_mm_slot", "collapse_huge_page"]),
    ("kjournald2", &["jbd2_journal_commit_transaction"]),
    ("kthreadd", &["create_kthread", "kernel_thread"]),
    ("rcu_gp_kthread", &[]),
    ("oom_reaper", &["__oom_reap_task_mm", "oom_reap_task"]),
    ("irq_thread", &["irq_thread_fn", "irq_forced_thread_fn"]),
];

/// Removes idle waits from folded stacks. Returns their time in ns.
pub fn take_out(folded: &mut BTreeMap<String, u64>) -> u64 {
    let mut idle = Vec::new();
    folded.retain(|stack, ns| {
        let is_idle = is_idle(stack);
        idle.extend(is_idle.then_some(*ns));
        !is_idle
    });
    idle.into_iter().saturating_sum()
}

fn is_idle(stack: &str) -> bool {
    let frames: Vec<&str> =
        stack.split(';').filter_map(|frame| frame.strip_suffix(KERNEL_MARK)).map(plain).collect();
    let has = |name: &str| frames.contains(&name);
    if BLOCKED.into_iter().any(has) {
        return false;
    }
    SLEEPS.into_iter().any(has)
        || WORKERS.iter().any(|(thread, work)| has(thread) && !work.iter().any(|name| has(name)))
}

/// Removes the suffix of a split function: `kswapd.isra.0`.
fn plain(name: &str) -> &str {
    name.split_once('.').map_or(name, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleepers_and_idle_workers_are_taken_out() {
        let stack = |frames: &str| {
            let frames: Vec<String> = frames.split(' ').map(|frame| format!("{frame}_[k]")).collect();
            format!("thread;main;{}", frames.join(";"))
        };
        let idle = [
            "ret_from_fork kthread worker_thread schedule",
            "entry_SYSCALL_64 do_nanosleep schedule",
            "__x64_sys_epoll_wait do_epoll_wait.part.0 schedule_hrtimeout_range",
            "kthread kswapd kswapd_try_to_sleep schedule",
        ];
        let busy = [
            "kthread worker_thread process_one_work blkdev_issue_flush io_schedule",
            "__x64_sys_read filemap_read folio_wait_bit_common io_schedule",
            "kthread kswapd balance_pgdat shrink_node schedule",
            "__x64_sys_futex futex_wait schedule",
            "__x64_sys_io_uring_enter io_cqring_wait schedule",
            "__x64_sys_poll do_sys_poll asm_exc_page_fault handle_mm_fault filemap_fault io_schedule",
        ];
        let mut all: BTreeMap<String, u64> =
            idle.iter().chain(&busy).zip(1u64..).map(|(frames, ns)| (stack(frames), ns)).collect();
        assert_eq!(take_out(&mut all), 1 + 2 + 3 + 4);
        assert_eq!(all.values().sum::<u64>(), 5 + 6 + 7 + 8 + 9 + 10);
        // User frames say nothing about the kernel.
        let mut user = BTreeMap::from([("a;do_nanosleep;x_[k]".to_string(), 7)]);
        assert_eq!((take_out(&mut user), user.len()), (0, 1));
    }
}
