//! Tests that functions of processes that live for milliseconds get names by the kernel's own records, on and off the
//! CPU. Needs root; skipped, with the reason, if the probes are refused.

use std::collections::HashSet;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::live::attached::attached;
use crate::support::programs::Folder;
use crate::support::tool::symbolizer;
use biopsy::analyze::{blocked, stacks};
use biopsy::host::Host;
use biopsy::probe::blocked::{BlockedProbe, Options, WaitOptions};
use biopsy::probe::stacks::StacksProbe;
use biopsy::symbols::{Names, UNKNOWN};
use biopsy::wire::stacks::Sample;

/// How often a program is started, or a child forked.
const TIMES: usize = 200;
/// A multiple of 100 would be in phase with the kernel's timer.
const FREQUENCY: u64 = 999;

/// A program that uses so many ms of CPU time in a function of its own.
const SPIN: &str = "#define _GNU_SOURCE\n#include <time.h>\n#include <unistd.h>\n#include <stdio.h>\n\
    #include <stdlib.h>\n#include <sys/wait.h>\n#include <sys/syscall.h>\n\
    static long used(void) { struct timespec t; clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);\n\
    return t.tv_sec * 1000000000L + t.tv_nsec; }\n\
    volatile unsigned long sink;\n\
    #define SPIN(name) __attribute__((noinline)) void name(long ms) { long end = used() + ms * 1000000; \
    do { for (int i = 0; i < 20000; i++) sink += i; } while (used() < end); sink++; }\n";

const FLAGS: &[&str] = &["-O1", "-g", "-fno-omit-frame-pointer"];
const FIXED: &[&str] = &["-O1", "-g", "-fno-omit-frame-pointer", "-static", "-no-pie"];

fn compile(folder: &Folder, name: &str, body: &str, flags: &[&str]) {
    folder.compile(name, &format!("{SPIN}{body}"), flags);
}

fn sampler() -> Option<StacksProbe> {
    attached(StacksProbe::attach(FREQUENCY))
}

/// Starts a program that often, one process after the other, and returns their pids.
fn run(folder: &Folder, name: &str) -> HashSet<u32> {
    let one = || {
        let mut child = Command::new(folder.path(name)).spawn().unwrap();
        assert!(child.wait().unwrap().success());
        child.id()
    };
    (0..TIMES).map(|_| one()).collect()
}

/// Starts a program that waits for a line before it begins.
fn waiting(folder: &Folder, name: &str) -> Child {
    Command::new(folder.path(name)).stdin(Stdio::piped()).spawn().unwrap()
}

fn go(mut child: Child) {
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
}

fn frames(names: &Names, sample: &Sample) -> Vec<String> {
    let program = names.programs.of(sample.pid, sample.comm_bytes());
    let one = |at: u64| names.user(program, at).to_vec();
    sample.user_lookups().flat_map(one).collect()
}

/// Sample counts: all except those of libc's startup code, which are named and outside of `main`; those with the
/// function's name; and those whose innermost frame has no name.
struct Share {
    all: u64,
    named: u64,
    unknown: u64,
}

impl Share {
    fn of<'a>(samples: impl Iterator<Item = (&'a Sample, u64)>, names: &Names, function: &str) -> Self {
        let mut share = Self { all: 0, named: 0, unknown: 0 };
        for (sample, number) in samples {
            let frames = frames(names, sample);
            let has = |name: &str| frames.iter().any(|frame| frame == name);
            let unknown = frames.first().is_none_or(|leaf| leaf == UNKNOWN || leaf.contains("]+0x"));
            share.all += number * u64::from(unknown || has("main"));
            share.named += number * u64::from(has(function));
            share.unknown += number * u64::from(unknown);
        }
        println!("{function}: {} of {} samples, {} unknown", share.named, share.all, share.unknown);
        share
    }

    #[track_caller]
    fn nearly_all(&self, least: u64) {
        assert!(self.all >= least, "{} samples", self.all);
        assert!(self.named * 100 >= self.all * 95, "{} of {}", self.named, self.all);
    }
}

/// The samples in user mode of these processes with this name.
fn in_user<'a>(
    raw: &'a biopsy::wire::stacks::RawProfile,
    mine: impl Fn(&Sample) -> bool + 'a,
) -> impl Iterator<Item = (&'a Sample, u64)> {
    let user = move |sample: &Sample| sample.kernel().is_empty() && !sample.user().is_empty() && mine(sample);
    raw.samples.iter().filter(move |(sample, _)| user(sample)).map(|(sample, tally)| (sample, tally.samples))
}

#[test]
fn a_program_of_a_few_milliseconds_has_names() {
    let folder = Folder::new("brief");
    let body = "SPIN(spin_briefly) int main(void) { spin_briefly(4); return 0; }";
    compile(&folder, "brief", body, FLAGS);
    compile(&folder, "brief-fixed", body, FIXED);
    let Some(probe) = sampler() else { return };
    let all = ["brief", "brief-fixed"].map(|name| (name, run(&folder, name)));
    let raw = probe.finish().unwrap();
    let names = symbolizer().names(&stacks::addresses(&raw));
    println!("{:?} {} processes, {} lost", names.missing, raw.maps.len(), raw.maps.lost());
    for (name, pids) in all {
        let own = |sample: &Sample| pids.contains(&sample.pid) && sample.comm_bytes() == name.as_bytes();
        print!("{name}: ");
        let share = Share::of(in_user(&raw, own), &names, "spin_briefly");
        share.nearly_all(TIMES as u64);
        assert!(share.unknown * 100 <= share.all, "{} unknown", share.unknown);
    }
    assert_eq!(raw.maps.lost(), 0);
}

/// Children of a parent that began after the records, and of one that was there before; none is in `/proc` any more
/// when names are looked up.
#[test]
fn a_forked_child_of_a_few_milliseconds_has_names() {
    let folder = Folder::new("forked");
    let body = format!(
        "SPIN(spin_in_child) int main(void) {{ getchar(); for (int i = 0; i < {TIMES}; i++) {{ pid_t p = fork();\n\
         if (!p) {{ spin_in_child(4); _exit(0); }} waitpid(p, 0, 0); }} return 0; }}"
    );
    compile(&folder, "forks-before", &body, FLAGS);
    compile(&folder, "forks-within", &body, FLAGS);
    let before = waiting(&folder, "forks-before");
    let Some(probe) = sampler() else { return go(before) };
    let within = waiting(&folder, "forks-within");
    let parents = [before.id(), within.id()];
    go(before);
    go(within);
    let raw = probe.finish().unwrap();
    let names = symbolizer().names(&stacks::addresses(&raw));
    for name in ["forks-before", "forks-within"] {
        let child =
            |sample: &Sample| sample.comm_bytes() == name.as_bytes() && !parents.contains(&sample.pid);
        print!("{name}: ");
        Share::of(in_user(&raw, child), &names, "spin_in_child").nearly_all(TIMES as u64);
    }
}

/// A process that calls exec: each of its programs has its own names, wherever they lie in memory.
#[test]
fn a_program_that_calls_exec_is_not_named_as_the_next() {
    for (kind, flags) in [("anywhere", FLAGS), ("at a fixed address", FIXED)] {
        let folder = Folder::new(if flags == FLAGS { "chain" } else { "fixed" });
        let next = folder.path("chain-b");
        let first = format!(
            "SPIN(spin_of_first) int main(void) {{ spin_of_first(3); execl(\"{0}\", \"{0}\", (char *)0); return 1; }}",
            next.display()
        );
        compile(&folder, "chain-a", &first, flags);
        compile(
            &folder,
            "chain-b",
            "SPIN(spin_of_second) int main(void) { spin_of_second(3); return 0; }",
            flags,
        );
        let Some(probe) = sampler() else { return };
        let pids = run(&folder, "chain-a");
        let raw = probe.finish().unwrap();
        let names = symbolizer().names(&stacks::addresses(&raw));
        println!("{kind}:");
        for (comm, own, other) in
            [("chain-a", "spin_of_first", "spin_of_second"), ("chain-b", "spin_of_second", "spin_of_first")]
        {
            let mine = |sample: &Sample| pids.contains(&sample.pid) && sample.comm_bytes() == comm.as_bytes();
            let share = Share::of(in_user(&raw, mine), &names, own);
            assert!(share.all >= TIMES as u64, "{}", share.all);
            assert_eq!(Share::of(in_user(&raw, mine), &names, other).named, 0, "{comm}");
            share.nearly_all(TIMES as u64);
        }
    }
}

/// The kernel charges perf's rings and the memory of io_uring to the same user: biopsy's rings leave half of the
/// default RLIMIT_MEMLOCK (8 MiB) to programs of root without CAP_IPC_LOCK.
#[test]
fn root_without_cap_ipc_lock_can_set_up_io_uring_meanwhile() {
    let folder = Folder::new("rings");
    let file = folder.path("file");
    std::fs::write(&file, vec![1; 4 << 20]).unwrap();
    let Some(probe) = sampler() else { return };
    let mut load = Command::new(env!("CARGO_BIN_EXE_biopsy"));
    // Registered buffers of 3 MiB.
    load.arg("load").arg(&file).args(["--bs", "16k", "--iodepth", "192", "--runtime", "200ms", "--json"]);
    let limited = || {
        const CAP_IPC_LOCK: libc::c_ulong = 14;
        let limit = libc::rlimit { rlim_cur: 8 << 20, rlim_max: 8 << 20 };
        // SAFETY: plain numbers, and a struct that lives until the call returns.
        unsafe {
            libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);
            libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit);
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls and nothing else.
    unsafe { load.pre_exec(limited) };
    let output = load.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(!report.contains("RLIMIT_MEMLOCK"), "without registered buffers: {report}");
    assert!(probe.finish().unwrap().seen() > 0);
}

/// Waits in children that have ended before their names are looked up, of a parent that was there before.
#[test]
fn a_wait_of_a_child_that_has_ended_has_names() {
    let folder = Folder::new("sleeps");
    let nap = "__attribute__((noinline)) void nap(void) { struct timespec t = {0, 2000000};\n\
               syscall(SYS_nanosleep, &t, 0); sink++; }\n\
               __attribute__((noinline)) void sleep_in_child(void) { nap(); sink++; }\n";
    let forks = format!(
        "{nap} int main(void) {{ getchar(); for (int i = 0; i < {TIMES}; i++) {{ pid_t p = fork();\n\
         if (!p) {{ sleep_in_child(); _exit(0); }} waitpid(p, 0, 0); }} return 0; }}"
    );
    compile(&folder, "naps-forked", &forks, FLAGS);
    compile(
        &folder,
        "naps-itself",
        &format!("{nap} int main(void) {{ sleep_in_child(); return 0; }}"),
        FLAGS,
    );
    let parent = waiting(&folder, "naps-forked");
    let host = Host::read(Path::new("/")).unwrap();
    let waits = WaitOptions { max_cost: 100.0, ..WaitOptions::default() };
    let probe = BlockedProbe::attach(&host, Options { waits, ..Options::default() });
    let Some(probe) = attached(probe) else {
        return go(parent);
    };
    let of_parent = parent.id();
    go(parent);
    run(&folder, "naps-itself");
    let raw = probe.finish().unwrap();
    let names = symbolizer().names(&blocked::addresses(&raw));
    for name in ["naps-forked", "naps-itself"] {
        // Only sleeps in nanosleep, as the program makes them: the loader sleeps elsewhere.
        let asleep = |sample: &Sample| {
            let own = sample.comm_bytes() == name.as_bytes() && sample.pid != of_parent;
            let kernel = || sample.kernel_lookups().flat_map(|at| names.kernel(at));
            own && !sample.user().is_empty() && kernel().any(|name| name.contains("hrtimer_nanosleep"))
        };
        let samples = raw.samples.iter().filter(|(sample, _)| asleep(sample));
        print!("{name}: ");
        Share::of(samples.map(|(sample, waits)| (sample, waits.samples)), &names, "sleep_in_child")
            .nearly_all(TIMES as u64 / 2);
    }
}
