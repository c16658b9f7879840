//! Tests the on-CPU sampler on the running kernel. Needs root; skipped, with the reason, if the sampler is refused.

use std::thread;
use std::time::{Duration, Instant};

use crate::live::attached::attached;
use crate::support::programs::{Folder, Running};
use crate::support::skip::skipped;
use crate::support::tool::symbolizer;
use biopsy::analyze::stack_quality::{Ending, unwinding};
use biopsy::analyze::stacks::{CpuClass, ProfileSummary, addresses, summarize};
use biopsy::clock::thread_ns;
use biopsy::probe::Probe;
use biopsy::probe::cost::Statistics;
use biopsy::probe::stacks::StacksProbe;
use biopsy::refusal::Refusal;
use biopsy::wire::stacks::{RawProfile, Sample, Sampler};

const FREQUENCY: u64 = 499;

/// Returns the probe. None: this machine cannot have it, and the test is skipped.
fn attach() -> Option<StacksProbe> {
    attached(StacksProbe::attach(FREQUENCY))
}

#[inline(never)]
fn busy_in_test(until: Instant) -> u64 {
    let mut x = 1u64;
    while Instant::now() < until {
        // Neither an iterator nor a call: without optimisation those would be the leaf.
        let mut i = 0;
        while i < 1_000_000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(i);
            i += 1;
        }
    }
    x
}

fn describe(raw: &RawProfile, summary: &ProfileSummary) {
    println!(
        "{:?}: seen {} expected {:?} lost {} damaged {} distinct {} in {:.3} s on {} CPUs, {} KiB of maps",
        raw.sampler,
        raw.seen(),
        raw.expected(),
        raw.lost,
        raw.damaged,
        raw.samples.len(),
        raw.duration_ns as f64 / 1e9,
        raw.cpus,
        raw.map_bytes >> 10,
    );
    println!("{:?}, idle by /proc/stat {:?} ns", summary.classes, raw.idle_ns);
    println!("{} ns in {} runs of the program", raw.program_ns, raw.program_runs);
    let mut folded: Vec<_> = summary.folded.iter().collect();
    folded.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    for (key, n) in folded.iter().take(40) {
        println!("{n:6} {key}");
    }
    println!("{:?}", &summary.top[..summary.top.len().min(8)]);
}

/// A busy thread per CPU for a second: the samples must give the threads the CPU time that the scheduler gave them
/// (other processes may take a part), by name and function, and the timer must have ticked at its rate. One thread per
/// CPU, since a timer may leave out idle CPUs.
#[test]
fn busy_threads_are_found_by_name_and_function() {
    let Some(probe) = attach() else { return };
    let cpus = thread::available_parallelism().unwrap().get();
    let until = Instant::now() + Duration::from_secs(1);
    let spin = || {
        thread::Builder::new()
            .name("biopsy-spin".into())
            .spawn(move || (busy_in_test(until), thread_ns()).1)
            .unwrap()
    };
    let threads: Vec<_> = (0..cpus).map(|_| spin()).collect();
    let given: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    let raw = probe.finish().unwrap();
    let symbolizing = Instant::now();
    let names = symbolizer().names(&addresses(&raw));
    println!("symbolized in {:?}", symbolizing.elapsed());
    let summary = summarize(&raw, &names);
    describe(&raw, &summary);

    assert_eq!(raw.damaged, 0);
    let with = |needle: &str| -> u64 {
        summary.folded.iter().filter(|(k, _)| k.contains(needle)).map(|(_, n)| n).sum()
    };
    let (named, all) = (with("busy_in_test"), with("biopsy-spin;"));
    assert!(named * 10 > all * 9, "{named} of {all} samples name the function");
    let (name, pid, ns) = summary.top.iter().find(|(name, ..)| name == "biopsy-spin").unwrap();
    assert_eq!((name.as_str(), *pid), ("biopsy-spin", std::process::id()));
    assert!(ns.abs_diff(given) * 4 < given, "{ns} ns by samples, {given} ns by the scheduler");
    if let Some(expected) = raw.expected() {
        let seen = raw.seen() + raw.lost;
        assert!(seen.abs_diff(expected) * 100 <= expected * 15, "{seen} samples, expected {expected}");
        assert!(raw.lost * 100 <= expected, "{} lost", raw.lost);
    }
}

/// Readings at arbitrary times: each run of the program is a sample of exactly one reading, the readings cover the
/// whole time, and a thread that computes on one CPU has the CPU time that the scheduler gave it.
#[test]
fn readings_lose_no_sample_and_count_none_twice() {
    let Some(mut probe) = attached(StacksProbe::prepare(FREQUENCY, &[])) else { return };
    let statistics = Statistics::on();
    assert_eq!((probe.start().seen(), probe.start().duration_ns), (0, 0));
    probe.begin().unwrap();
    let began = Instant::now();
    let spin = thread::Builder::new().name("biopsy-spin-1".into()).spawn(move || {
        // SAFETY: zeroed is an empty set of CPUs, and the calls only write to it and read it.
        let pinned = unsafe {
            let mut cpus: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(0, &mut cpus);
            libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus)
        };
        assert_eq!(pinned, 0);
        (busy_in_test(began + Duration::from_secs(2)), thread_ns()).1
    });
    let mut all: Vec<RawProfile> = Vec::new();
    // Intervals that are in phase neither with the reading of the ring nor with the samples.
    for wait_ms in [1, 0, 37, 150, 3, 211, 97, 402, 0, 333, 19, 251] {
        thread::sleep(Duration::from_millis(wait_ms));
        all.push(probe.read().unwrap());
    }
    let given = spin.unwrap().join().unwrap();
    let took = began.elapsed();
    all.push(probe.detach().unwrap());
    assert!(probe.read().is_err() && probe.detach().is_err(), "it has ended");

    let sum = |of: &dyn Fn(&RawProfile) -> u64| all.iter().map(of).sum::<u64>();
    let (seen, lost) = (sum(&RawProfile::seen), sum(&|raw| raw.lost));
    let (runs, duration) = (sum(&|raw| raw.program_runs), sum(&|raw| raw.duration_ns));
    println!("{} readings: {seen} samples, {lost} lost, {runs} runs in {duration} ns", all.len());
    if statistics.is_some() {
        assert_eq!(seen + lost, runs);
    }
    assert!(duration.abs_diff(took.as_nanos() as u64) < 100_000_000, "{duration} ns of {took:?}");
    let own = |raw: &RawProfile| -> u64 {
        let own = raw.samples.iter().filter(|(sample, _)| sample.comm_bytes() == b"biopsy-spin-1");
        own.map(|(_, tally)| tally.samples).sum()
    };
    let ns = sum(&own) * 1_000_000_000 / FREQUENCY;
    println!("{ns} ns by samples, {given} ns by the scheduler");
    assert!(ns.abs_diff(given) * 4 < given, "{ns} ns by samples, {given} ns by the scheduler");
    assert!(all.iter().filter(|raw| own(raw) > 0).count() > 5, "in each that is long enough");
    // The last reading has names for what began in an earlier one.
    let last = all.iter().rfind(|raw| own(raw) > 20).unwrap();
    let summary = summarize(last, &symbolizer().names(&addresses(last)));
    assert!(summary.folded.keys().any(|key| key.contains("busy_in_test")), "{:?}", summary.folded);
}

/// Time in the kernel is `system`, and its stacks have kernel frames above the user's.
#[test]
fn system_time_is_seen_with_both_stacks() {
    let Some(probe) = attach() else { return };
    let until = Instant::now() + Duration::from_millis(500);
    let mut zeros = vec![0u8; 1 << 20];
    let mut file = std::fs::File::open("/dev/zero").unwrap();
    while Instant::now() < until {
        std::io::Read::read_exact(&mut file, &mut zeros).unwrap();
    }
    let raw = probe.finish().unwrap();
    let names = symbolizer().names(&addresses(&raw));
    let summary = summarize(&raw, &names);
    describe(&raw, &summary);
    if let Some(missing) = names.missing.first() {
        skipped(format_args!("{}", missing.why));
        return;
    }
    assert!(summary.classes.get(&CpuClass::System).is_some_and(|&n| n > 20), "{:?}", summary.classes);
    let deep = |key: &&String| {
        key.contains("read") && key.contains("_zero_[k]") && key.contains("do_syscall_64_[k]")
    };
    assert!(summary.folded.keys().any(|key| deep(&key)), "no user stack below read_zero: {summary:?}");
}

/// After a drop during the run, or a finish, no program, link or event of ours is left.
#[test]
fn nothing_stays_attached() {
    let Some(probe) = attach() else { return };
    let descriptors = |kind: &str| {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        links
            .filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .filter(|l| l.to_string_lossy().contains(kind))
            .count()
    };
    // Other tests of this file may run in the same process: only the decrease is due to this test.
    let before = descriptors("perf_event");
    assert!(before > 0);
    let start = Instant::now();
    drop(probe);
    println!("detached in {:?}", start.elapsed());
    let wait = Instant::now() + Duration::from_secs(5);
    while descriptors("perf_event") >= before && Instant::now() < wait {
        thread::sleep(Duration::from_millis(20));
    }
    assert!(descriptors("perf_event") < before);
}

/// Too many samples per second are refused in one sentence before the measurement.
#[test]
fn an_impossible_frequency_is_refused() {
    for frequency in [0, u64::MAX] {
        let error = StacksProbe::attach(frequency).unwrap_err();
        let refusal = error.downcast_ref::<Refusal>().unwrap_or_else(|| panic!("{error:#}"));
        println!("{refusal}");
        assert!(matches!(refusal, Refusal::Usage(_) | Refusal::Refused(_)));
    }
}

/// Idle time is not drawn, and is not distributed over the threads that ran.
#[test]
fn idle_time_is_nobodys() {
    let Some(probe) = attach() else { return };
    thread::sleep(Duration::from_millis(500));
    let raw = probe.finish().unwrap();
    let summary = summarize(&raw, &symbolizer().names(&addresses(&raw)));
    describe(&raw, &summary);
    assert!(!summary.folded.keys().any(|k| k.starts_with("swapper") && k.ends_with("safe_halt_[k]")));
    let (idle, account) = (summary.class_ns(CpuClass::Idle).unwrap_or(0), raw.idle_ns.unwrap());
    // The kernel's account advances in ticks of 10 ms per CPU, and there are few samples.
    assert!(idle.abs_diff(account) < 250_000_000, "{idle} ns by samples, {account} by the kernel");
    assert_eq!(raw.sampler == Sampler::CpuClock, summary.sampler_note.is_some());
}

/// A program that has exited before its names are looked up, and whose file was deleted, still has names: its file was
/// held open while it ran. Its stacks begin at the entry point, and so do not count as cut.
#[test]
fn a_program_that_is_gone_has_names() {
    const SPIN: &str = "#include <stdio.h>\n\
        volatile unsigned long sink;\n\
        __attribute__((noinline)) void spin_in_the_gone(void) { for (int i = 0; i < 1000; i++) sink += i; }\n\
        int main(void) { printf(\"1\\n\"); fflush(stdout); for (;;) spin_in_the_gone(); }\n";
    let folder = Folder::new("gone");
    folder.compile("gone-by-now", SPIN, &["-O1", "-g", "-fno-omit-frame-pointer"]);
    let Some(probe) = attach() else { return };
    let run = Running::start(&folder, "gone-by-now");
    let pid = run.pid();
    thread::sleep(Duration::from_millis(700));
    std::fs::remove_file(folder.path("gone-by-now")).unwrap();
    run.kill();
    let raw = probe.finish().unwrap();
    let names = symbolizer().names(&addresses(&raw));
    let of = |keep: &dyn Fn(&str) -> bool| -> u64 {
        let own = raw.samples.iter().filter(|(sample, _)| sample.pid == pid && !sample.user().is_empty());
        let leaf =
            |sample: &Sample| sample.user_lookups().next().and_then(|at| names.user(pid, at).last().cloned());
        own.filter(|(sample, _)| leaf(sample).is_some_and(|name| keep(&name)))
            .map(|(_, tally)| tally.samples)
            .sum()
    };
    let (all, named) = (of(&|_| true), of(&|name| name == "spin_in_the_gone"));
    println!("{named} of {all} samples");
    assert!(all > 50 && named * 10 > all * 9, "{named} of {all}");

    let mut own = raw.clone();
    own.samples.retain(|sample, _| sample.pid == pid);
    let judged = unwinding(&own, &names);
    println!("{:?}", judged.endings);
    let whole = judged.endings.get(&Ending::Root).copied().unwrap_or(0);
    assert!(whole * 10 > judged.samples() * 8, "{judged:?}");
}
