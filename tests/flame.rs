//! `biopsy flame` without probes: two profiles side by side, and words that do not go together.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

fn biopsy(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_biopsy")).arg("flame").args(words).output().unwrap()
}

/// Removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("flame-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const NONE: &str = "fio;read;submit_bio_[k] 9000\nfio;main 1000\n";
const DEADLINE: &str = "fio;read;submit_bio_[k] 9000\nfio;read;submit_bio_[k];blk_mq_do_dispatch_sched_[k] 3000\nfio;main 1000\n";

#[test]
fn a_difference_names_what_appeared() {
    let folder = Folder::new("difference");
    let (before, after) = (folder.file("none", NONE), folder.file("mq-deadline", DEADLINE));
    let picture = folder.path("diff.svg");
    let output = biopsy(&["--diff", &before, &after, "-o", &picture, "--ios", "1000000", "1000000"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("1 frame that appeared") && text.contains("blk_mq_do_dispatch_sched"), "{text}");
    assert!(text.contains("samples per million I/Os: 10000 before, 13000 after (+30.0 %)"), "{text}");
    assert!(text.contains(&format!("picture: {picture}")), "{text}");
    assert!(fs::read_to_string(&picture).unwrap().contains("blk_mq_do_dispatch_sched"));

    let output = biopsy(&["--diff", &before, &after, "-o", &picture, "--json"]);
    let view: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(view["what"], "difference");
    assert_eq!(view["appeared"], serde_json::json!(["blk_mq_do_dispatch_sched"]));
    assert_eq!((view["a"].as_str(), view["b"].as_str()), (Some(&*before), Some(&*after)));
    assert_eq!(view["unit"], "samples");
    assert_eq!(view["product"], serde_json::json!({"path": picture, "format": "svg"}));
    let drawn = fs::read_to_string(&picture).unwrap();
    assert!(drawn.contains(">shares of all · 13,000 samples against 10,000 samples</text>"), "{drawn}");
    biopsy(&["--diff", &before, &after, "-o", &picture, "--unit", "ns", "--durations", "1s", "1s"]);
    let drawn = fs::read_to_string(&picture).unwrap();
    assert!(drawn.contains(">per time · 13.0 µs against 10.0 µs</text>"), "{drawn}");

    let output = biopsy(&["--diff", &before, &before, "-o", &picture]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("no frame moved"), "{text}");
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let folder = Folder::new("refused");
    let good = folder.file("good", NONE);
    let picture = folder.path("diff.svg");
    for (name, text, why) in [
        ("empty", "", "it has no stack"),
        ("words", "a;b c\n", "line 1 is not folded text"),
        ("huge", "a 99999999999999999999\n", "line 1 is not folded text"),
    ] {
        let bad = folder.file(name, text);
        let output = biopsy(&["--diff", &good, &bad, "-o", &picture]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains(why) && said.contains("name a file that"), "{said}");
    }
    for words in [
        vec!["--diff", &good, "/dev/zero", "-o", &picture],
        vec!["--diff", &good, "/nowhere/at/all", "-o", &picture],
        vec!["--on-cpu", "--off-cpu"],
        vec!["--folded", "--pprof"],
        vec!["--json", "-o", "-"],
        // Two files are neither measured nor chosen from.
        vec!["--diff", &good, &good, "-o", &picture, "--cgroup", "/"],
        vec!["--diff", &good, &good, "-o", &picture, "--for", "1s"],
        vec!["--min-width", "60%", "--on-cpu", "-o", &picture],
        // What the kind or the form has no use for is not passed over.
        vec!["--off-cpu", "-F", "99", "-o", &picture],
        vec!["--max-cost", "5%", "-o", &picture],
        vec!["--on-cpu", "--max-cost", "5%", "-o", &picture],
        vec!["--folded", "--width", "800", "-o", &picture],
        vec!["--pprof", "--min-width", "1%", "-o", &picture],
    ] {
        let output = biopsy(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout.is_empty(), "{words:?}");
    }
    assert!(!fs::exists(&picture).unwrap(), "a picture of nothing");
}

/// Each with what it goes with, in one sentence, whatever rights there are.
#[test]
fn an_option_without_use_is_named() {
    let folder = Folder::new("unfit");
    let picture = folder.path("picture.svg");
    for (words, option, with) in [
        (&["--off-cpu", "-d", "X"][..], "--device", "--io"),
        (&["--on-cpu", "-d", "X"], "--device", "--io"),
        (&["--reclaim", "-d", "X"], "--device", "--io"),
        (&["-d", "X"], "--device", "--io"),
        (&["--on-cpu", "--min-block", "1ms"], "--min-block", "--off-cpu"),
        (&["--lock-wait", "--min-block", "1ms"], "--min-block", "--off-cpu"),
        (&["--off-cpu", "--unit", "ns"], "--unit", "--diff"),
        (&["--on-cpu", "--durations", "1s", "1s"], "--durations", "--diff"),
        (&["--io", "--ios", "1", "2"], "--ios", "--diff"),
        (&["--ios", "1", "2"], "--ios", "--diff"),
        (&["--lock-wait", "--io-wait"], "--io-wait", "--off-cpu"),
        (&["--io", "--io-wait"], "--io-wait", "--off-cpu"),
        (&["--on-cpu", "--io-wait"], "--io-wait", "--off-cpu"),
    ] {
        let output = biopsy(&[words, &["--for", "100ms", "-o", &picture]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{words:?}: {said}");
        assert!(said.contains(&format!("{option} goes with {with}")), "{words:?}: {said}");
        assert!(output.stdout.is_empty() && !fs::exists(&picture).unwrap(), "{words:?}");
    }
}

/// Times that are taken for samples would make each difference certain.
#[test]
fn a_difference_of_times_is_never_certain() {
    let folder = Folder::new("unit");
    // 11 ms and 7 ms, which would be a difference between samples.
    let (before, after) = (
        folder.file("a", "fio;read 11000000\nfio;write 1\n"),
        folder.file("b", "fio;read 7000000\nfio;write 9\n"),
    );
    let picture = folder.path("diff.svg");
    for (files, words, warns, is_time) in [
        ([&before, &after], &[][..], true, true),
        // One of the two is enough.
        ([&after, &before], &[], true, true),
        ([&before, &after], &["--unit", "ns"], false, true),
        ([&before, &after], &["--unit", "samples"], false, false),
        ([&after, &after], &[], false, false),
    ] {
        let output = biopsy(&[&["--diff", files[0], files[1], "-o", &picture, "--json"], words].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
        let warning = format!("{before} adds up to 11,000,001");
        assert_eq!((said.contains(&warning), said.lines().count()), (warns, warns.into()), "{said}");
        let view: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(view["unit"], if is_time { "nanoseconds" } else { "samples" }, "{words:?}");
        for change in view["changes"].as_array().unwrap() {
            assert_eq!(change["own"]["interval"].is_null(), is_time, "{words:?}: {change}");
        }
    }
    let output = biopsy(&["--diff", &before, &after, "-o", &picture, "--durations", "1s", "1s"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("threads on average") && !text.contains(" yes "), "{text}");
}
