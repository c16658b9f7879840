//! Compares the lines of `biopsy top --plain` with the kernel's own counters and with vmstat. Needs no rights.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};

use crate::support::scratch::Scratch;
use crate::support::skip::skipped;
use crate::support::tool::{biopsy, finish, forget_copy, refused, run, signal, stderr, without_rights};
use serde_json::Value;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

fn top(words: &[&str]) -> Output {
    run(&[&["top"], words].concat())
}

/// The kernel's counters: interrupts, context switches and processes of `/proc/stat`, and for each disk reads, read
/// sectors, writes and written sectors.
#[derive(Debug)]
struct Kernel {
    stat: [u64; 3],
    disks: BTreeMap<String, [u64; 4]>,
}

impl Kernel {
    fn now() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap();
        let value = |key: &str| {
            let line = stat.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        let mut disks = BTreeMap::new();
        for entry in fs::read_dir("/sys/block").unwrap().flatten() {
            // The disk may be removed meanwhile.
            let Ok(line) = fs::read_to_string(entry.path().join("stat")) else { continue };
            let n: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
            disks.insert(entry.file_name().into_string().unwrap(), [n[0], n[2], n[4], n[6]]);
        }
        Self { stat: [value("intr "), value("ctxt "), value("processes ")], disks }
    }
}

/// Reads lines as they are printed.
struct Lines {
    child: Child,
    from: BufReader<std::process::ChildStdout>,
}

impl Lines {
    fn of(words: &[&str]) -> Self {
        let mut child = biopsy(words).spawn().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        Self { child, from }
    }

    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        (self.from.read_line(&mut line).unwrap() > 0).then(|| serde_json::from_str(&line).unwrap())
    }
}

/// Makes writes that reach the disk, reads from it if the file system permits that, and processes.
fn work(scratch: &Scratch) {
    let path = scratch.path().join("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(&vec![7; 1 << 20]).unwrap();
    file.sync_all().unwrap();
    assert!(Command::new("true").status().unwrap().success());
}

/// The sum of the lines lies between what the kernel counted inside them and around them.
#[test]
fn the_lines_sum_up_to_the_kernels_own_counters() {
    let scratch = Scratch::new("top");
    let around = Kernel::now();
    let mut lines = Lines::of(&["top", "--json", "0.3"]);
    let mut all = vec![lines.next().unwrap()];
    let inside = Kernel::now();
    for _ in 0..4 {
        work(&scratch);
        all.push(lines.next().unwrap());
    }
    let inside_end = Kernel::now();
    signal(&lines.child, libc::SIGINT);
    all.extend(std::iter::from_fn(|| lines.next()));
    assert!(lines.child.wait().unwrap().success());
    let around_end = Kernel::now();
    assert!(all.len() >= 6, "the last piece is one: {}", all.len());

    let between = |what: &str, sum: u64, inner: (u64, u64), outer: (u64, u64)| {
        let (least, most) = (inner.1 - inner.0, outer.1 - outer.0);
        assert!((least..=most).contains(&sum), "{what}: {least} <= {sum} <= {most}");
    };
    for (at, key) in ["interrupts", "context_switches"].into_iter().enumerate() {
        let sum = all.iter().map(|line| number(&line[key])).sum();
        between(key, sum, (inside.stat[at], inside_end.stat[at]), (around.stat[at], around_end.stat[at]));
    }
    let sum = all.iter().map(|line| number(&line["tasks"]["new"])).sum();
    between("new", sum, (inside.stat[2], inside_end.stat[2]), (around.stat[2], around_end.stat[2]));
    assert!(sum >= 4, "{sum}");

    let mut sums: BTreeMap<String, [u64; 4]> = BTreeMap::new();
    let mut totals = [0; 4];
    for line in &all {
        let of = |disk: &Value| {
            let read = number(&disk["read_bytes"]) / 512;
            [number(&disk["reads"]), read, number(&disk["writes"]), number(&disk["written_bytes"]) / 512]
        };
        for disk in line["devices"].as_array().unwrap() {
            let sum = sums.entry(disk["name"].as_str().unwrap().to_string()).or_default();
            sum.iter_mut().zip(of(disk)).for_each(|(sum, n)| *sum += n);
        }
        totals.iter_mut().zip(of(&line["total"])).for_each(|(sum, n)| *sum += n);
    }
    let mut of_all = [0; 4];
    let mut seen = 0;
    for (name, sum) in &sums {
        of_all.iter_mut().zip(sum).for_each(|(all, n)| *all += n);
        // The disk of another test may appear and disappear.
        let Some([[a, b], [c, d]]) = (|| {
            let of = |kernel: &Kernel| kernel.disks.get(name).copied();
            Some([[of(&inside)?, of(&inside_end)?], [of(&around)?, of(&around_end)?]])
        })() else {
            continue;
        };
        for at in 0..4 {
            between(&format!("{name} {at}"), sum[at], (a[at], b[at]), (c[at], d[at]));
        }
        seen += 1;
    }
    assert_eq!(totals, of_all, "without -d each disk of the view counts, once");
    println!("{seen} disks, totals {totals:?}");
}

#[test]
fn shares_add_up_and_account_for_the_time() {
    let output = top(&["--json", "0.5", "4"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 4);
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["schema"], "biopsy.top/1");
        for key in ["version", "kernel", "start", "duration_ns", "lost", "cost", "missing"] {
            assert!(line.get(key).is_some(), "{key}");
        }
        let cpu = &line["cpu"];
        let shares = cpu["share"].as_object().unwrap();
        let sum: f64 = shares.values().map(|share| share.as_f64().unwrap()).sum();
        assert!(shares.len() == 7 && (sum - 1.0).abs() < 1e-9, "{cpu}");
        // Twice what whole ticks explain: on a virtual machine whose host takes CPUs away, ticks are late. A missing or
        // additional column would be more.
        let (off, error) = (cpu["unaccounted_share"].as_f64().unwrap(), cpu["error_share"].as_f64().unwrap());
        assert!(off.abs() <= 2.0 * error, "{cpu}");
        let memory = &line["memory"];
        let parts = ["used_bytes", "free_bytes", "buffers_bytes", "cached_bytes"];
        let sum: u64 = parts.iter().map(|key| number(&memory[*key])).sum();
        assert_eq!(sum, number(&memory["total_bytes"]));
        assert!((400_000_000..5_000_000_000).contains(&number(&line["duration_ns"])), "{line}");
    }
}

#[test]
fn text_has_one_header_and_columns_that_add_up() {
    let output = top(&["--plain", "0.2", "3"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2 + 3, "{text}");
    assert!(lines[1].starts_with("run blk new|usr sys idl wai hiq siq stl|"), "{text}");
    let bars = lines[1].matches('|').count();
    for line in &lines[2..] {
        let groups: Vec<Vec<&str>> =
            line.split('|').map(|group| group.split_whitespace().collect()).collect();
        assert_eq!(groups.len(), bars + 1, "{line}");
        let sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
        assert_eq!(sizes, [3, 7, 4, 2, 2, 2, 2, 2], "{line}");
        let percent: u32 = groups[1].iter().map(|cell| cell.parse::<u32>().unwrap()).sum();
        assert_eq!(percent, 100, "{line}");
    }
}

/// Both watch the same two seconds, except for the time that their start takes.
#[test]
fn it_says_what_vmstat_says() {
    if Command::new("vmstat").arg("-V").output().is_err() {
        skipped("no vmstat");
        return;
    }
    let vmstat = Command::new("vmstat").args(["-n", "2", "2"]).stdout(Stdio::piped()).spawn().unwrap();
    let ours = top(&["--json", "2", "1"]);
    let theirs = vmstat.wait_with_output().unwrap();
    let line: Value = serde_json::from_slice(&ours.stdout).unwrap();
    let text = String::from_utf8(theirs.stdout).unwrap();
    let mut lines = text.lines().skip(1);
    let names: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    let last: Vec<f64> = lines.last().unwrap().split_whitespace().map(|n| n.parse().unwrap()).collect();
    let theirs = |name: &str| last[names.iter().position(|known| *known == name).unwrap()];
    let share = |name: &str| 100.0 * line["cpu"]["share"][name].as_f64().unwrap();
    println!("{line}\n{text}");
    // What vmstat includes in `sy`: hard and soft interrupts.
    let system = share("system") + share("irq") + share("softirq");
    for (what, ours, theirs) in [
        ("user", share("user"), theirs("us")),
        ("system", system, theirs("sy")),
        ("idle", share("idle"), theirs("id")),
    ] {
        assert!((ours - theirs).abs() <= 15.0, "{what}: {ours} and {theirs}");
    }
    for (what, name) in [("interrupts_per_second", "in"), ("context_switches_per_second", "cs")] {
        let (ours, theirs) = (line[what].as_f64().unwrap(), theirs(name));
        assert!(ours <= 2.0 * theirs + 200.0 && theirs <= 2.0 * ours + 200.0, "{what}: {ours} and {theirs}");
    }
    let free = number(&line["memory"]["free_bytes"]) as f64 / 1024.0;
    assert!((free / theirs("free") - 1.0).abs() < 0.25, "{free} and {}", theirs("free"));
}

#[test]
fn the_screen_is_not_there_yet_and_bad_words_are_told() {
    let output = top(&[]);
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.lines().count() == 1 && said.contains("biopsy top --plain"), "{said}");
    assert!(output.stdout.is_empty());
    refused(&top(&["--plain", "-d", "no-such-disk"]), 3, &["no-such-disk"]);
    for words in
        [&["--plain", "0"][..], &["--plain", "1", "0"], &["--plain", "1x"], &["--plain", "--for", "1y"]]
    {
        assert_eq!(top(words).status.code(), Some(2), "{words:?}");
    }
}

/// A disk whose I/O the kernel counts. For others a note on stderr says that it does not.
fn counted_disk() -> Option<String> {
    let output = top(&["--json", "0.1", "1"]);
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    let Some(disk) = line["devices"].as_array().unwrap().first() else {
        skipped("no disk");
        return None;
    };
    Some(disk["name"].as_str().unwrap().to_string())
}

#[test]
fn a_disk_that_is_named_is_the_only_one() {
    let Some(name) = &counted_disk() else { return };
    let output = top(&["--json", "-d", name, "-d", name, "--for", "300ms"]);
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&Value> = line["devices"].as_array().unwrap().iter().map(|disk| &disk["name"]).collect();
    assert_eq!(names, [name]);
    assert!(number(&line["duration_ns"]) < 1_000_000_000, "--for is the end: {line}");
}

#[test]
fn ctrl_c_and_a_closed_pipe_end_it_quietly() {
    let Some(disk) = counted_disk() else { return };
    let mut child = biopsy(&["top", "--plain", "-d", &disk, "0.2"]).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..3 {
        out.read_line(&mut String::new()).unwrap();
    }
    signal(&child, libc::SIGINT);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let output = finish(child);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));

    let mut child = biopsy(&["top", "--plain", "-d", &disk, "0.1"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = finish(child);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
}

#[test]
fn nobody_may_watch() {
    let output = finish(without_rights(&["top", "--json", "0.2", "2"]).spawn().unwrap());
    forget_copy();
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 2);
    let line: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    for key in ["cpu", "memory", "paging", "interrupts", "context_switches"] {
        assert!(!line[key].is_null(), "{key}");
    }
    for key in ["running", "blocked", "new"] {
        assert!(line["tasks"][key].is_u64(), "{key}");
    }
}
