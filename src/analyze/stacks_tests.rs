//! Tests of profiles with literal samples.

use super::*;
use crate::wire::stacks::WORK;
use proptest::prelude::*;

/// Builds samples from function names, leaf first; addresses are derived from the names.
struct Stacks {
    raw: RawProfile,
    names: Names,
}

impl Stacks {
    fn new(sampler: Sampler) -> Self {
        let raw = RawProfile {
            sampler,
            frequency: 499,
            cpus: 2,
            duration_ns: 1_000_000_000,
            idle_ns: None,
            samples: Default::default(),
            maps: Default::default(),
            leaders: Default::default(),
            lost: 0,
            damaged: 0,
            map_bytes: 0,
            program_runs: 0,
            program_ns: 0,
        };
        Self { raw, names: Names::default() }
    }

    fn add(&mut self, who: (&[u8], u32, u32), kernel: &[&str], user: &[&str], tally: SampleTotal) -> Sample {
        let (comm, pid, flags) = who;
        // Addresses are 16 apart: a lookup one byte before is still the same function.
        let address = |name: &str| 16 * (1 + name.bytes().map(u64::from).sum::<u64>());
        let (k, u): (Vec<u64>, Vec<u64>) =
            (kernel.iter().map(|n| address(n)).collect(), user.iter().map(|n| address(n)).collect());
        let sample = Sample::new(pid, pid, flags, comm, &k, &u);
        for (at, name) in sample.kernel_lookups().zip(kernel) {
            self.names.kernel.insert(at, vec![name.to_string()]);
        }
        for (at, name) in sample.user_lookups().zip(user) {
            // `outer<inner` is an inlined function.
            self.names.user.insert((pid, at), name.split('<').map(str::to_string).collect());
        }
        self.raw.samples.insert(sample.clone(), tally);
        sample
    }

    fn class(&mut self, pid: u32, flags: u32, kernel: &[&str]) -> CpuClass {
        let sample = self.add((b"x", pid, flags), kernel, &[], SampleTotal { samples: 1, period: 1 });
        classify(&sample, &self.names)
    }
}

#[test]
fn workers_of_io_uring_are_a_class_of_their_own() {
    let mut s = Stacks::new(Sampler::CpuClock);
    let mut class = |comm: &[u8], flags, kernel: &[&str]| {
        let sample = s.add((comm, 9, flags), kernel, &[], SampleTotal { samples: 1, period: 1 });
        classify(&sample, &s.names)
    };
    assert_eq!(class(b"iou-wrk-4711", 0, &["io_wq_worker"]), CpuClass::IoWq);
    assert_eq!(class(b"iou-wrk-4711", 0, &["__irq_exit_rcu", "io_wq_worker"]), CpuClass::Softirq);
    assert_eq!(class(b"io_wqe_worker-0", KTHREAD, &["io_wqe_worker"]), CpuClass::IoWq, "before 5.12");
    assert_eq!(
        class(b"iou-wrk-4711", 0, &[]),
        CpuClass::User,
        "somebody of that name: workers have no user mode"
    );
    assert_eq!(class(b"iou-sqp-4711", 0, &["io_sq_thread"]), CpuClass::System);
}

#[test]
fn every_class_from_both_sides() {
    let mut s = Stacks::new(Sampler::CpuClock);
    assert_eq!(s.class(9, 0, &[]), CpuClass::User);
    assert_eq!(s.class(9, KERNEL_FAILED, &[]), CpuClass::System, "in the kernel, although unseen");
    assert_eq!(s.class(9, 0, &["vfs_read", "do_syscall_64"]), CpuClass::System);
    assert_eq!(
        s.class(9, 0, &["do_user_addr_fault", "exc_page_fault", "asm_exc_page_fault"]),
        CpuClass::System
    );
    assert_eq!(s.class(9, KTHREAD, &["loop_process_work", "kthread"]), CpuClass::Kthread);
    assert_eq!(s.class(0, KTHREAD, &["pv_native_safe_halt", "default_idle", "do_idle"]), CpuClass::Idle);
    assert_eq!(s.class(0, KTHREAD, &["do_idle"]), CpuClass::Idle);
    assert_eq!(s.class(0, KTHREAD, &[]), CpuClass::Idle);
}

#[test]
fn interrupts_are_told_by_the_frame_nearest_to_the_leaf() {
    let mut s = Stacks::new(Sampler::Cycles);
    let irq = ["nvme_irq", "__common_interrupt", "common_interrupt", "asm_common_interrupt"];
    assert_eq!(s.class(9, 0, &irq), CpuClass::Irq);
    assert_eq!(s.class(0, KTHREAD, &[&irq[..], &["default_idle"]].concat()), CpuClass::Irq);
    assert_eq!(s.class(9, 0, &["asm_sysvec_apic_timer_interrupt"]), CpuClass::Irq);
    let softirq = ["blk_done_softirq", "handle_softirqs", "__irq_exit_rcu", "sysvec_call_function_single"];
    assert_eq!(s.class(9, 0, &softirq), CpuClass::Softirq);
    assert_eq!(s.class(9, KTHREAD, &["handle_softirqs.isra.0", "run_ksoftirqd"]), CpuClass::Softirq);
    assert_eq!(s.class(0, KTHREAD, &[&irq[..], &softirq[..]].concat()), CpuClass::Irq, "on top of a softirq");
    // Interrupts are enabled again here: a late tick at this point belongs to the handler, a call from it to the task.
    let exit = ["irqentry_exit_to_user_mode", "asm_sysvec_reschedule_ipi"];
    assert_eq!(s.class(9, 0, &exit), CpuClass::Irq);
    assert_eq!(s.class(9, 0, &[&["__schedule", "schedule"], &exit[..]].concat()), CpuClass::System);
    // Names that only look similar.
    assert_eq!(s.class(9, 0, &["request_threaded_irq", "sysvec"]), CpuClass::System);
    let polled = ["blk_mq_complete_request", "__flush_smp_call_function_queue", "do_idle"];
    assert_eq!(s.class(0, KTHREAD, &polled), CpuClass::Irq);
}

/// An interrupt is unrelated to the interrupted thread.
#[test]
fn interrupts_stand_by_themselves() {
    let mut s = Stacks::new(Sampler::CpuClock);
    let tally = SampleTotal { samples: 1, period: 0 };
    let task = ["vfs_read", "do_syscall_64"];
    let irq = ["nvme_irq", "__common_interrupt", "common_interrupt", "asm_common_interrupt"];
    s.add((b"fio", 7, 0), &[&irq[..], &task[..]].concat(), &["main"], tally);
    let softirq = ["blk_done_softirq", "handle_softirqs", "__irq_exit_rcu", "sysvec_call_function_single"];
    s.add((b"fio", 7, 0), &[&softirq[..], &task[..]].concat(), &["main"], tally);
    let over = ["schedule", "irqentry_exit", "asm_sysvec_reschedule_ipi"];
    s.add((b"fio", 7, 0), &over, &["main"], tally);
    let summary = summarize(&s.raw, &s.names);
    assert_eq!(
        summary.folded.keys().map(String::as_str).collect::<Vec<_>>(),
        [
            "[hard interrupts];asm_common_interrupt_[k];common_interrupt_[k];__common_interrupt_[k];nvme_irq_[k]",
            "[softirqs];__irq_exit_rcu_[k];handle_softirqs_[k];blk_done_softirq_[k]",
            "fio;main;asm_sysvec_reschedule_ipi_[k];irqentry_exit_[k];schedule_[k]",
        ]
    );
}

#[test]
fn workers_of_a_ring_stand_with_its_process() {
    let mut s = Stacks::new(Sampler::CpuClock);
    let tally = SampleTotal { samples: 1, period: 0 };
    s.add((b"fio", 7, 0), &["io_uring_enter"], &[], tally);
    s.add((b"iou-wrk-7", 7, 0), &["vfs_read", "io_wq_worker"], &[], tally);
    s.add((b"iou-wrk-9", 9, 0), &["io_wq_worker"], &[], tally);
    // Each is the first thread of its process here; a worker never is.
    let worker = |sample: &Sample| sample.comm_bytes().starts_with(RING_WORKER);
    let samples: Vec<_> = s.raw.samples.drain().collect();
    s.raw.samples = samples
        .into_iter()
        .map(|(sample, tally)| match worker(&sample) {
            true => {
                let (kernel, user) = (sample.kernel().to_vec(), sample.user().to_vec());
                (Sample::new(sample.pid, 100, 0, sample.comm_bytes(), &kernel, &user), tally)
            }
            false => (sample, tally),
        })
        .collect();
    let summary = summarize(&s.raw, &s.names);
    assert_eq!(
        summary.folded.keys().map(String::as_str).collect::<Vec<_>>(),
        [
            "fio;[io_uring workers];io_wq_worker_[k];vfs_read_[k]",
            "fio;io_uring_enter_[k]",
            "iou-wrk-9;io_wq_worker_[k]",
        ]
    );
    // The process's own threads were never sampled on a CPU, but its name was read.
    s.raw.leaders.insert(9, b"a;b".to_vec());
    let summary = summarize(&s.raw, &s.names);
    assert_eq!(
        summary.folded.get("a\\x3bb;[io_uring workers];io_wq_worker_[k]"),
        Some(&1),
        "{:?}",
        summary.folded
    );
}

/// A kworker's name only says on which CPU it is.
#[test]
fn workers_stand_under_what_they_work_on() {
    let mut raw = RawProfile { samples: Default::default(), ..Stacks::new(Sampler::CpuClock).raw };
    let name = |text: &str| {
        let mut bytes = [0; 32];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect::<Vec<u64>>()
    };
    let worker = |comm: &[u8], work: &str| Sample::new(9, 9, KTHREAD | WORK, comm, &[64], &name(work));
    let sample = worker(b"kworker/0:1H", "loop0");
    assert_eq!((sample.user(), sample.work().unwrap()), (&[][..], b"loop0".to_vec()));
    let other = sample.with_kernel(&[80, 96]);
    assert_eq!((other.kernel(), other.work()), (&[80, 96][..], sample.work()), "what it works on stays");
    // Writeback reports the number of the disk, or of something that is no disk.
    let flushes = [worker(b"kworker/u8:1", "flush-7:0"), worker(b"kworker/u8:1", "flush-0:51")];
    let others = [worker(b"kworker/1:2", "loop0"), worker(b"kworker/1:3", ""), worker(b"k", "a;b\n")];
    for sample in [sample].into_iter().chain(flushes).chain(others) {
        raw.samples.insert(sample, SampleTotal { samples: 1, period: 1 });
    }
    let names = Names {
        kernel: [(64, vec!["f".to_string()])].into(),
        disks: [((7, 0), "loop0".to_string())].into(),
        ..Names::default()
    };
    let summary = summarize(&raw, &names);
    let folded: Vec<_> = summary.folded.iter().map(|(key, n)| (key.as_str(), *n)).collect();
    assert_eq!(
        folded,
        [
            ("kworkers for a\\x3bb\\x0a;f_[k]", 1),
            ("kworkers for flush-0:51;f_[k]", 1),
            ("kworkers for loop0;f_[k]", 3),
            ("kworkers without work;f_[k]", 1),
        ]
    );
    assert!(addresses(&raw).user.is_empty(), "a name is no address");
}

#[test]
fn folds_from_thread_to_leaf() {
    let mut s = Stacks::new(Sampler::CpuClock);
    let tally = SampleTotal { samples: 3, period: 0 };
    s.add((b"fio", 7, 0), &["read_leaf", "do_syscall_64"], &["syscall", "run<step", "main"], tally);
    s.add((b"swapper/0", 0, KTHREAD), &["default_idle"], &[], SampleTotal { samples: 5, period: 0 });
    let summary = summarize(&s.raw, &s.names);
    let folded: Vec<_> = summary.folded.iter().collect();
    assert_eq!(folded, [(&"fio;main;run;step;syscall;do_syscall_64_[k];read_leaf_[k]".to_string(), &3)]);
    assert_eq!(summary.samples, 8);
    assert_eq!(summary.classes, BTreeMap::from([(CpuClass::System, 3), (CpuClass::Idle, 5)]));
    // 3 of 8 samples of 2 CPUs in one second.
    assert_eq!(summary.class_ns(CpuClass::System), Some(750_000_000));
    assert_eq!(summary.top, [("fio".to_string(), 7, 750_000_000)]);
}

#[test]
fn what_has_no_name_or_no_stack_is_kept() {
    let mut s = Stacks::new(Sampler::CpuClock);
    let one = SampleTotal { samples: 1, period: 0 };
    s.raw.samples.insert(Sample::new(7, 7, 0, b"a", &[64], &[80]), one);
    s.raw.samples.insert(Sample::new(8, 8, 0, b"b", &[], &[]), one);
    s.raw.samples.insert(Sample::new(9, 9, KERNEL_FAILED, b"c", &[], &[]), one);
    s.raw.samples.insert(Sample::new(10, 10, 0, b"d", &[], &[96; MAX_FRAMES]), one);
    s.raw.samples.insert(Sample::new(11, 11, 0, b"e", &[64, 65, 66], &[]), one);
    let summary = summarize(&s.raw, &s.names);
    let keys: Vec<_> = summary.folded.keys().map(String::as_str).collect();
    assert_eq!(keys[..3], ["a;[unknown];[unknown]_[k]", "b;[unknown]", "c;[unknown]_[k]"]);
    assert_eq!(keys[3..5], ["d;[truncated];[unknown]", "e;[unknown]_[k]"], "a run of unknown frames is one");
    assert_eq!(addresses(&s.raw).user[&7].iter().collect::<Vec<_>>(), [&79], "below a system call");
}

/// With `cycles` a sample is weighted by its period, and idle comes from the kernel's accounting.
#[test]
fn cycles_weigh_by_period_and_idle_is_filled_in() {
    let mut s = Stacks::new(Sampler::Cycles);
    // 4 samples of the sampler's start-up cover 40 cycles: they count once, not four times.
    s.add((b"attach", 7, 0), &["perf_ioctl"], &[], SampleTotal { samples: 4, period: 40 });
    s.add((b"fio", 8, 0), &["vfs_read"], &[], SampleTotal { samples: 396, period: 400_000 });
    s.raw.idle_ns = Some(1_500_000_000);
    let summary = summarize(&s.raw, &s.names);
    assert_eq!((summary.folded["attach;perf_ioctl_[k]"], summary.folded["fio;vfs_read_[k]"]), (1, 400));
    // 1.5 s of 2 CPU seconds are idle: three times as much as busy.
    assert_eq!(summary.classes[&CpuClass::Idle], 1203);
    let busy = summary.class_ns(CpuClass::System).unwrap();
    assert!(busy.abs_diff(500_000_000) < 1_000_000, "{busy}");
}

/// The timer does not tick on an idle CPU: the busy CPU's samples must not gain weight.
#[test]
fn idle_time_that_the_timer_missed_is_filled_in() {
    let mut s = Stacks::new(Sampler::CpuClock);
    s.add((b"fio", 8, 0), &["vfs_read"], &[], SampleTotal { samples: 499, period: 0 });
    let busy_ns = |s: &Stacks| summarize(&s.raw, &s.names).class_ns(CpuClass::System).unwrap();
    assert_eq!(busy_ns(&s), 2_000_000_000, "without an account: as if both CPUs had been busy");
    s.raw.idle_ns = Some(1_000_000_000);
    assert_eq!(busy_ns(&s), 1_000_000_000);
    // Half of the missing ticks were idle; the others were lost otherwise.
    s.raw.idle_ns = Some(500_000_000);
    assert_eq!(summarize(&s.raw, &s.names).classes[&CpuClass::Idle], 250);
    // Samples dropped by the ring are not idle time.
    (s.raw.idle_ns, s.raw.lost) = (Some(1_000_000_000), 499);
    assert_eq!(summarize(&s.raw, &s.names).classes.get(&CpuClass::Idle), None);
}

#[test]
fn an_empty_window_is_no_division_by_zero() {
    let s = Stacks::new(Sampler::Cycles);
    let summary = summarize(&s.raw, &s.names);
    assert_eq!((summary.samples, summary.class_ns(CpuClass::User)), (0, None));
}

/// A process chooses its name: it must not be able to forge a frame, a line or a count.
#[test]
fn hostile_names_are_raw_in_the_table_and_escaped_in_folded_lines() {
    let mut s = Stacks::new(Sampler::CpuClock);
    let comm = b"a;b\n\x1b[2J\\\xff";
    s.add((comm, 7, 0), &[], &["<[u8; 8]>::x"], SampleTotal { samples: 1, period: 0 });
    s.names.user.values_mut().for_each(|v| *v = vec!["<[u8; 8]>::\u{202e}x".to_string()].into());
    let summary = summarize(&s.raw, &s.names);
    let key = summary.folded.keys().next().unwrap();
    assert_eq!(key, "a\\x3bb\\x0a\\x1b[2J\\x5c\\xff;<[u8\\x3b 8]>::\\u{202e}x");
    assert_eq!(summary.top[0].0, "a;b\n\u{1b}[2J\\\u{fffd}");
}

proptest! {
    #[test]
    fn escaped_names_have_no_separator_and_no_control(name in proptest::collection::vec(any::<u8>(), 0..40)) {
        let mut out = String::new();
        escape(&name, &mut out);
        prop_assert!(!out.contains(';') && !out.chars().any(char::is_control));
    }
}
