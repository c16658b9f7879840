//! Flame graphs of programs whose shares are known. Root.

mod live;
#[path = "programs/mod.rs"]
mod programs;

use std::collections::BTreeMap;
use std::fs;

use live::tool::{no_tracing, object, run};
use live::view::number;
use programs::Folder;

const FLAME: &str = "biopsy.flame/1";

fn can_see(test: &str) -> bool {
    let why = if live::tool::is_root() { no_tracing() } else { Some("it needs root") };
    if let Some(why) = why {
        println!("skipped: {test}: {why}");
    }
    why.is_none()
}

/// Runs a program under `biopsy flame`: the folded lines, and what the program said.
#[track_caller]
fn folded(options: &[&str], folder: &Folder, program: &str) -> (BTreeMap<String, u64>, String) {
    let out = folder.path("out.folded");
    let said = folder.path("said");
    let command = format!("exec {} >{}", folder.path(program).display(), said.display());
    let mut words = vec!["flame", "--folded", "--max-loss", "100", "-o", out.to_str().unwrap()];
    words.extend(options);
    words.extend(["--", "sh", "-c", &command]);
    let output = run(&words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line = |line: &str| {
        let (stack, value) = line.rsplit_once(' ').unwrap();
        (stack.to_string(), value.parse().unwrap())
    };
    (fs::read_to_string(&out).unwrap().lines().map(line).collect(), fs::read_to_string(&said).unwrap())
}

fn sum(lines: &BTreeMap<String, u64>, is_in: impl Fn(&str) -> bool) -> f64 {
    lines.iter().filter(|(stack, _)| is_in(stack)).map(|(_, n)| *n as f64).sum()
}

/// The same work six, three and one times, in three functions. Without optimisation every function has its frame: a leaf
/// that has none hides its caller.
const SHARES: &str = r#"
#include <time.h>
static volatile unsigned long sink;
static void work(long times) { for (long i = 0; i < times * 100000; i++) sink += i; }
__attribute__((noinline)) void sixty(void) { work(6); __asm__(""); }
__attribute__((noinline)) void thirty(void) { work(3); __asm__(""); }
__attribute__((noinline)) void ten(void) { work(1); __asm__(""); }
int main(void) { while (clock() < 4 * CLOCKS_PER_SEC) { sixty(); thirty(); ten(); } return 0; }
"#;

#[test]
fn functions_have_the_shares_that_they_take() {
    if !can_see("functions_have_the_shares_that_they_take") {
        return;
    }
    let folder = Folder::new("shares");
    folder.compile("known_shares", SHARES, &["-O0"]);
    let (lines, _) = folded(&["-F", "997", "--comm", "known_shares"], &folder, "known_shares");
    let all = sum(&lines, |_| true);
    assert!(all > 2_000.0, "{all} samples");
    for (name, share) in [("sixty", 60.0), ("thirty", 30.0), ("ten", 10.0)] {
        let seen = 100.0 * sum(&lines, |stack| stack.split(';').any(|frame| frame == name)) / all;
        assert!((seen - share).abs() < 3.0, "{name} takes {share} %, and {seen:.1} % of {all} samples");
    }
}

/// User mode and the kernel by turns, each as long as the thread's own clock says.
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
    if !can_see("user_mode_and_the_kernel_have_their_shares") {
        return;
    }
    let folder = Folder::new("sides");
    folder.compile("known_sides", SIDES, &["-O0"]);
    let (lines, said) = folded(&["-F", "997", "--comm", "known_sides"], &folder, "known_sides");
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
    if !can_see("a_deep_stack_is_whole") {
        return;
    }
    let folder = Folder::new("deep");
    folder.compile("deep", DEEP, &["-O0"]);
    let (lines, _) = folded(&["-F", "199", "--comm", "deep"], &folder, "deep");
    let depth = |stack: &String| stack.split(';').filter(|frame| *frame == "down").count();
    let deepest = lines.keys().map(depth).max().unwrap_or(0);
    assert_eq!(deepest, 116, "{:?}", lines.keys().next());
    let whole = sum(&lines, |stack| depth(&stack.to_string()) == 116);
    assert!(whole > 0.9 * sum(&lines, |_| true), "{whole} of {}", sum(&lines, |_| true));
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

/// The program's own clock holds the time until it ran again; what it waited for a CPU is not blocked time.
#[test]
fn a_sleeper_is_off_the_cpu_as_long_as_it_sleeps() {
    if !can_see("a_sleeper_is_off_the_cpu_as_long_as_it_sleeps") {
        return;
    }
    let folder = Folder::new("sleeps");
    folder.compile("sleeper", SLEEPS, &["-O0"]);
    let (lines, said) = folded(&["--off-cpu", "--comm", "sleeper"], &folder, "sleeper");
    let slept: f64 = said.trim().parse().unwrap();
    let seen = sum(&lines, |stack| stack.contains("hrtimer_nanosleep_[k]"));
    assert!(seen <= slept * 1.001 && seen >= 60.0 * 20e6 * 0.999, "{seen} ns of {slept}: {lines:?}");
}

#[test]
fn a_name_of_a_thread_harms_no_picture_and_nothing_is_no_picture() {
    if !can_see("a_name_of_a_thread_harms_no_picture_and_nothing_is_no_picture") {
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
    assert_eq!(output.status.code(), Some(4));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("there is nothing to draw"), "{said}");
    assert!(!none.exists(), "an empty picture");
}

/// What could not be written does not stand where JSON is promised; what is not drawn is said.
#[test]
fn what_is_not_written_or_not_drawn_is_said() {
    if !can_see("what_is_not_written_or_not_drawn_is_said") {
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
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("all waits were shorter than --min-block"), "{said}");
}
