//! Tests flame graphs of programs whose shares are known. Needs root.

use std::collections::BTreeMap;
use std::fs;

use crate::live::cgroup::Group;
use crate::live::disk::Disk;
use crate::live::folded::{can_see, folded, sum};
use crate::live::view::{during_script, number};
use crate::support::programs::Folder;
use crate::support::tool::{object, run};

const FLAME: &str = "biopsy.flame/1";

/// Three functions that use the CPU for six, three and one hundredths of a second in turn. Each visit covers many
/// samples: with visits as short as the time between two samples, some functions would be sampled more often than
/// others. Without optimisation every function has its frame: a leaf without one hides its caller.
const SHARES: &str = r#"
#include <time.h>
static volatile unsigned long sink;
static double used(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}
static void work(double seconds)
{
	double end = used() + seconds;
	while (used() < end) for (long i = 0; i < 50000; i++) sink += i;
}
__attribute__((noinline)) void sixty(void) { work(0.06); __asm__(""); }
__attribute__((noinline)) void thirty(void) { work(0.03); __asm__(""); }
__attribute__((noinline)) void ten(void) { work(0.01); __asm__(""); }
int main(void) { while (used() < 4) { sixty(); thirty(); ten(); } return 0; }
"#;

#[test]
fn functions_have_the_shares_that_they_take() {
    if !can_see() {
        return;
    }
    let folder = Folder::new("shares");
    folder.compile("known_shares", SHARES, &["-O0"]);
    let (lines, _) = folded(&["-F", "997", "--comm", "known_shares"], &folder.path(""), "known_shares");
    let within = |stack: &str, name: &str| stack.split(';').any(|frame| frame == name);
    // Without exec, the loader and the interrupts (which have stacks of their own): how long these take depends on
    // other work.
    let all = sum(&lines, |stack| within(stack, "main"));
    assert!(all > 2_000.0, "{all} samples: {lines:?}");
    for (name, share) in [("sixty", 60.0), ("thirty", 30.0), ("ten", 10.0)] {
        let seen = 100.0 * sum(&lines, |stack| within(stack, name)) / all;
        assert!((seen - share).abs() < 3.0, "{name} takes {share} %, and {seen:.1} % of {all} samples");
    }
}

/// With the program and its symbols, functions without a name at run time can be named later, on another machine.
#[test]
fn what_has_no_name_can_be_named_elsewhere() {
    if !can_see() {
        return;
    }
    let folder = Folder::new("nameless");
    folder.compile("known_shares", SHARES, &["-O0", "-Wl,--build-id"]);
    let (whole, bare) = (folder.path("known_shares"), folder.path("bare"));
    let tool = |name: &str, args: &[&str]| {
        let output = std::process::Command::new(name).args(args).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    tool("strip", &["-o", bare.to_str().unwrap(), whole.to_str().unwrap()]);
    let out = folder.path("out.pb.gz");
    let words =
        ["flame", "--pprof", "-F", "499", "--comm", "bare", "--json", "-o", out.to_str().unwrap(), "--"];
    let output = run(&[&words[..], &[bare.to_str().unwrap()]].concat());
    let view = object(&output, FLAME);
    let (mut all, mut sixty, mut stubs) = (0.0, 0.0, 0.0);
    for place in view["unnamed"].as_array().unwrap() {
        let frame = view["frames"].as_array().unwrap().iter().find(|frame| frame["frame"] == place["frame"]);
        let (Some(frame), Some(address)) = (frame, place["address"].as_u64()) else { continue };
        if place["file"] != bare.to_str().unwrap() {
            continue;
        }
        let notes = tool("readelf", &["-n", whole.to_str().unwrap()]);
        assert!(notes.contains(place["build_id"].as_str().unwrap()), "{place} {notes}");
        let line = tool("addr2line", &["-f", "-e", whole.to_str().unwrap(), &format!("{address:#x}")]);
        let own = number(&frame["own"]) as f64;
        let name = line.lines().next().unwrap().to_string();
        // A stub of the PLT has no symbol: a call of the C library may be sampled there.
        if name == "??" {
            stubs += own;
            continue;
        }
        assert!(
            ["work", "used", "sixty", "thirty", "ten", "main"].contains(&name.as_str()),
            "{place} is {name}"
        );
        all += own;
        sixty += if name == "work" { own } else { 0.0 };
    }
    // All samples are in the loop.
    assert!(all > 500.0 && sixty > 0.95 * all && stubs < 0.01 * all, "{sixty} of {all}, {stubs}: {view}");
}

/// A program that runs in user mode and in the kernel in turn, each for a time by the thread's own clock.
const SIDES: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static volatile unsigned long sink;
static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}
int main(void)
{
	static char room[1 << 20];
	int zero = open("/dev/zero", O_RDONLY);
	long user = 0, kernel = 0;
	while (user + kernel < 3000000000L) {
		long begin = now();
		for (long i = 0; i < 2000000; i++)
			sink += i;
		long between = now();
		for (int i = 0; i < 40; i++)
			if (read(zero, room, sizeof(room)) < 0)
				return 1;
		user += between - begin;
		kernel += now() - between;
	}
	printf("%ld %ld\n", user, kernel);
	return 0;
}
"#;

#[test]
fn user_mode_and_the_kernel_have_their_shares() {
    if !can_see() {
        return;
    }
    let folder = Folder::new("sides");
    folder.compile("known_sides", SIDES, &["-O0"]);
    let (lines, said) = folded(&["-F", "997", "--comm", "known_sides"], &folder.path(""), "known_sides");
    let times: Vec<f64> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let truth = 100.0 * times[1] / (times[0] + times[1]);
    let all = sum(&lines, |stack| !stack.starts_with('['));
    let seen = 100.0 * sum(&lines, |stack| !stack.starts_with('[') && stack.contains("_[k]")) / all;
    assert!((seen - truth).abs() < 3.0, "{truth:.1} % in the kernel, and {seen:.1} % of {all} samples");
}

const DEEP: &str = r#"
static volatile unsigned long sink;
__attribute__((noinline)) long down(int depth)
{
	if (depth == 0) {
		for (long i = 0; i < 700000000; i++)
			sink += i;
		return sink;
	}
	return down(depth - 1) + sink;
}
int main(void) { return down(115) & 1; }
"#;

#[test]
fn a_deep_stack_is_whole() {
    if !can_see() {
        return;
    }
    let folder = Folder::new("deep");
    folder.compile("deep", DEEP, &["-O0"]);
    let (lines, _) = folded(&["-F", "199", "--comm", "deep"], &folder.path(""), "deep");
    let depth = |stack: &String| stack.split(';').filter(|frame| *frame == "down").count();
    let deepest = lines.keys().map(depth).max().unwrap_or(0);
    assert_eq!(deepest, 116, "{:?}", lines.keys().next());
    // Before main are exec and the loader, whose time depends on the disk and on other load.
    let within = |stack: &str| stack.split(';').any(|frame| frame == "main");
    let (whole, all) = (sum(&lines, |stack| depth(&stack.to_string()) == 116), sum(&lines, within));
    let cut: Vec<_> = lines.iter().filter(|(stack, _)| depth(stack) != 116).collect();
    assert!(all > 50.0 && whole > 0.9 * all, "{whole} of {all}: {cut:?}");
}

const SLEEPS: &str = r#"
#include <stdio.h>
#include <time.h>
int main(void)
{
	struct timespec nap = { .tv_nsec = 20000000 }, begin, end;
	long slept = 0;
	for (int i = 0; i < 60; i++) {
		clock_gettime(CLOCK_MONOTONIC, &begin);
		nanosleep(&nap, 0);
		clock_gettime(CLOCK_MONOTONIC, &end);
		slept += (end.tv_sec - begin.tv_sec) * 1000000000L + end.tv_nsec - begin.tv_nsec;
	}
	printf("%ld\n", slept);
	return 0;
}
"#;

/// The program's own clock includes the time until it ran again; its wait for a CPU is not blocked time.
#[test]
fn a_sleeper_is_off_the_cpu_as_long_as_it_sleeps() {
    if !can_see() {
        return;
    }
    let folder = Folder::new("sleeps");
    folder.compile("sleeper", SLEEPS, &["-O0"]);
    let (lines, said) =
        folded(&["--off-cpu", "--all-waits", "--comm", "sleeper"], &folder.path(""), "sleeper");
    let slept: f64 = said.trim().parse().unwrap();
    let seen = sum(&lines, |stack| stack.contains("hrtimer_nanosleep_[k]"));
    // If the kernel delivers no switch event for the thread, as here for one sleep in some hundreds, its accounting
    // gives the length of the sleep, but the stack is unknown.
    let unseen = sum(&lines, |stack| stack == "sleeper;[stack not taken]");
    let all = seen + unseen;
    assert!(
        all <= slept * 1.001 && all >= 60.0 * 20e6 * 0.999,
        "{seen} and {unseen} ns of {slept}: {lines:?}"
    );
    assert!(unseen <= 0.1 * all, "{unseen} of {all}");
}

#[test]
fn a_name_of_a_thread_harms_no_picture_and_nothing_is_no_picture() {
    if !can_see() {
        return;
    }
    let folder = Folder::new("hostile");
    let text = r#"
#include <sys/prctl.h>
#include <time.h>
static volatile unsigned long sink;
int main(void)
{
	prctl(PR_SET_NAME, "</g><script>x;");
	while (clock() < 2 * CLOCKS_PER_SEC)
		for (long i = 0; i < 1000000; i++)
			sink += i;
	return 0;
}
"#;
    folder.compile("hostile", text, &["-O1"]);
    let out = folder.path("out.svg");
    let output = run(&[
        "flame",
        "-F",
        "199",
        "--comm",
        "</g><script>x;",
        "-o",
        out.to_str().unwrap(),
        "--json",
        "--",
        folder.path("hostile").to_str().unwrap(),
    ]);
    let view = object(&output, FLAME);
    assert!(number(&view["total"]) > 50 && view["product"]["format"] == "svg", "{view}");
    let picture = fs::read_to_string(&out).unwrap();
    assert!(picture.contains("&lt;script&gt;x") && !picture.contains("<script>x"), "the name is not escaped");

    let none = folder.path("none.svg");
    let output = run(&["flame", "--for", "300ms", "--comm", "nobody-at-all", "-o", none.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("there is nothing to draw"), "{said}");
    assert!(!none.exists(), "an empty picture");
}

/// If the graph cannot be written, stdout has the JSON object only; if nothing is drawn, a message says why.
#[test]
fn what_is_not_written_or_not_drawn_is_said() {
    if !can_see() {
        return;
    }
    let spin = "i=0; while [ $i -lt 500000 ]; do i=$((i + 1)); done";
    let output = run(&["flame", "--folded", "--json", "-o", "/dev/full", "--", "sh", "-c", spin]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let view: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(view["schema"], FLAME);
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write /dev/full"));

    let folder = Folder::new("brief");
    folder.compile("brief", SLEEPS, &["-O0"]);
    let program = folder.path("brief");
    let words = ["flame", "--off-cpu", "--comm", "brief", "--min-block", "2s", "--folded", "-o", "-", "--"];
    let output = run(&[&words[..], &[program.to_str().unwrap()]].concat());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("all waits were shorter than --min-block"), "{said}");
    assert!(said.contains("60 waits, "), "{said}");
}

/// A program in which the number of blocks that each function reads is known.
const READERS: &str = include_str!("../../../vmtest/guest/shares.c");

/// The sums of folded stacks: in total, by leaf, and below the frames of two functions.
fn sums(path: &std::path::Path) -> (u64, BTreeMap<String, u64>, [f64; 2]) {
    let (mut all, mut leaves, mut functions) = (0, BTreeMap::new(), [0.0; 2]);
    for line in fs::read_to_string(path).unwrap().lines() {
        let (stack, value) = line.rsplit_once(' ').unwrap();
        let value: u64 = value.parse().unwrap();
        all += value;
        *leaves.entry(stack.rsplit(';').next().unwrap().to_string()).or_default() += value;
        for (sum, name) in functions.iter_mut().zip(["thrice", "once"]) {
            *sum += if stack.split(';').any(|frame| frame == name) { value as f64 } else { 0.0 };
        }
    }
    (all, leaves, functions)
}

/// Each stage of each I/O is under the code that submitted it, and the sums are those that `latency` measures of the
/// same I/Os: it runs around `flame`.
#[test]
fn the_time_of_ios_stands_with_who_handed_them_in() {
    let Some(disk) = Disk::new(64) else { return };
    let folder = Folder::new("routes");
    folder.compile("shares", READERS, &["-O0", "-fno-omit-frame-pointer", "-static"]);
    let (out, about, clock) = (folder.path("out.folded"), folder.path("about.json"), folder.path("clock"));
    let program = folder.path("shares");
    let read = |cost: &str, rounds: &str| {
        let inner = format!(
            "exec {} flame --io -d {} --max-cost {cost} --comm shares --folded -o {} --json --no-cost --max-loss 5 \
             -- sh -c 'exec {} io {} {rounds} >{}' >{}",
            crate::support::tool::binary(),
            disk.name,
            out.display(),
            program.display(),
            disk.path,
            clock.display(),
            about.display(),
        );
        // The kernel does not deliver every completion event: then the test runs it again.
        for _ in 0..crate::live::ATTEMPTS {
            let outside = during_script(&[&disk], &["--comm", "shares", "--max-loss", "5"], &inner);
            let inside: serde_json::Value =
                serde_json::from_str(&fs::read_to_string(&about).unwrap()).unwrap();
            assert_eq!((&inside["what"], &inside["unit"]), (&"io".into(), &"nanoseconds".into()), "{inside}");
            if inside["lost"]["ios"] == 0 && outside.json["lost"]["ios"] == 0 {
                let device = outside.device(&disk).clone();
                assert_eq!(inside["measured"], device["ios"]);
                // The time in the two functions by the program's own clock.
                let clock = fs::read_to_string(&clock).unwrap();
                let passed: Vec<f64> = clock.split_whitespace().map(|ns| ns.parse().unwrap()).collect();
                return (device, inside, sums(&out), passed);
            }
        }
        panic!("no run without a hidden completion");
    };

    // With a stack for each I/O.
    let (_, inside, (all, _, [thrice, once]), passed) = read("100", "1500");
    assert_eq!((&inside["total"], &inside["measured"]), (&all.into(), &6_000.into()), "{inside}");
    assert_eq!(inside["source"], "stacks of 6,000 of 6,000 I/Os");
    let share = |[a, b]: [f64; 2]| 100.0 * a / (a + b);
    let due = share([passed[0], passed[1]]);
    println!("thrice() has {:.1} %, {due:.1} % by its clock", share([thrice, once]));
    assert!(
        (share([thrice, once]) - due).abs() < 3.0,
        "{thrice} and {once} of {all}, {passed:?} by the clock"
    );
    let whole = all as f64 / (passed[0] + passed[1]);
    assert!((0.6..1.0).contains(&whole), "{whole} of the time that passed");

    // With stacks for some I/Os: the sum is that of all, and the shares are within the printed interval.
    let (outside, inside, (all, leaves, functions), passed) = read("0.3", "6000");
    let sampled: u64 =
        inside["source"].as_str().unwrap().split(' ').nth(2).unwrap().replace(',', "").parse().unwrap();
    assert!(inside["total"] == all && sampled > 50 && sampled < 20_000, "{inside}");
    let said = inside["notes"].to_string();
    let (_, half) = said.split_once("are exact to ±").unwrap_or_else(|| panic!("{said}"));
    let half: f64 = half.split(' ').next().unwrap().parse().unwrap();
    let (seen, due) = (share(functions), share([passed[0], passed[1]]));
    println!("thrice() has {seen:.1} ± {half} % by {sampled} stacks, {due:.1} % by its clock");
    // Twice the half width: one run of 20,000 is outside.
    assert!((seen - due).abs() < 2.0 * half, "{seen} ± {half} %, {due} %");

    let reads = &outside["ops"]["read"];
    for (stage, stages) in
        [("submit", "stages"), ("queue", "request_stages"), ("device", "request_stages"), ("reap", "stages")]
    {
        let outer = number(&reads[stages][stage]["sum_ns"]) as f64;
        let inner = leaves[&format!("[{stage}]")] as f64;
        println!("{stage}: {inner} here, {outer} there");
        // Two programs run at each event, one after the other: the second one's time includes the first one.
        let between = 24_000.0 * 800.0;
        assert!((inner - outer).abs() < 0.05 * outer + between, "{stage}: {inner} here, {outer} there");
    }

    let output = run(&[
        "flame",
        "--io",
        "-d",
        &disk.name,
        "--for",
        "300ms",
        "--json",
        "-o",
        folder.path("x").to_str().unwrap(),
    ]);
    let view: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&view["total"], &view["product"]), (&0.into(), &serde_json::Value::Null), "{view}");
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is nothing to draw: no I/O"));
    assert!(!folder.path("x").exists(), "an empty picture");
}

/// This holds also for operations of io_uring, which end after their I/Os; the time for taking the stacks is not
/// included.
#[test]
fn stages_of_operations_add_up() {
    let Some(disk) = Disk::new(64) else { return };
    let folder = Folder::new("stages");
    let (out, about) = (folder.path("out.svg"), folder.path("about.json"));
    let inner = format!(
        "exec {tool} flame --io -d {disk} -o {} --json --no-cost --max-loss 5 -- \
         {tool} load {path} --no-drive-check --iodepth 8 --runtime 1s >{}",
        out.display(),
        about.display(),
        tool = crate::support::tool::binary(),
        disk = disk.name,
        path = disk.path,
    );
    let (outside, inside) = (0..8)
        .find_map(|_| {
            let outside = during_script(&[&disk], &["--max-loss", "5"], &inner);
            let text = fs::read_to_string(&about).unwrap();
            // The load prints JSON as well.
            let line = text.lines().find(|line| line.contains(FLAME)).unwrap_or_else(|| panic!("{text}"));
            let inside: serde_json::Value = serde_json::from_str(line).unwrap();
            let whole = inside["lost"]["ios"] == 0 && outside.json["lost"]["ios"] == 0;
            whole.then_some((outside, inside))
        })
        .expect("a run without a hidden completion");
    assert_eq!(inside["devices"], serde_json::json!([disk.name]), "{inside}");
    let handed_in = inside["handed_in"].as_array().unwrap();
    let of = |stage: &str| handed_in.iter().filter_map(|row| row["stages"][stage].as_f64()).sum::<f64>();
    let all: f64 = handed_in.iter().map(|row| row["total"].as_f64().unwrap()).sum();
    assert_eq!(all, number(&inside["total"]) as f64, "{inside}");
    assert!(handed_in[0]["who"] == "load-0" && handed_in[0]["function"] == "blkdev_direct_IO", "{inside}");

    let reads = &outside.device(&disk)["ops"]["read"];
    for stage in ["submit", "queue", "device", "complete", "reap"] {
        let (inner, outer) = (of(stage), number(&reads["stages"][stage]["sum_ns"]) as f64);
        println!("{stage}: {inner} here, {outer} there");
        // Two programs run at each event, one after the other: the second one's time includes the first one.
        let between = number(&inside["measured"]) as f64 * 1_000.0;
        assert!((inner - outer).abs() < 0.1 * outer + between, "{stage}: {inner} here, {outer} there");
    }
    let picture = fs::read_to_string(&out).unwrap();
    assert!(
        picture.contains(&disk.name) && picture.contains(" ran"),
        "no device, or no command, in the caption"
    );
}

/// The profile of a cgroup has all of its CPU time, and none of other processes.
#[test]
fn the_cpu_time_of_a_group_is_drawn_alone() {
    if !can_see() {
        return;
    }
    let Some(group) = Group::new("biopsy-flame") else { return };
    let spin = "i=0; while [ $i -lt 1000000 ]; do i=$((i + 1)); done";
    let folder = Folder::new("group");
    let out = folder.path("out.folded");
    let both = format!("sh -c '{spin}' & echo 0 >{}/cgroup.procs; {spin}; wait", group.path().display());
    let output = run(&[
        "flame",
        "--folded",
        "-F",
        "199",
        "--cgroup",
        &group.name(),
        "-o",
        out.to_str().unwrap(),
        "--json",
        "--",
        "bash",
        "-c",
        &both,
    ]);
    let view = object(&output, FLAME);
    let text = fs::read_to_string(&out).unwrap();
    // bash moves into the cgroup; sh began before that.
    assert!(number(&view["total"]) > 30 && text.contains("bash;"), "{view} {text}");
    assert!(!text.lines().any(|line| line.starts_with("sh;")), "{text}");
}
