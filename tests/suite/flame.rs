//! Tests `biopsy flame` without probes: files as input, comparisons of two, and options that exclude each other.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::support::skip::skipped;
use biopsy::analyze::flame::What;
use biopsy::analyze::profile::{Area, Place, Profile, Unit};
use biopsy::envelope::Envelope;
use biopsy::host::elf::BuildId;
use biopsy::render::pprof::{self, About, origin::Origin};

fn biopsy(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_biopsy")).arg("flame").args(words).output().unwrap()
}

/// A temporary folder that is removed with the test.
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
    assert!(text.contains(&format!("flame graph: {picture}")), "{text}");
    let drawn = fs::read_to_string(&picture).unwrap();
    assert!(drawn.contains("blk_mq_do_dispatch_sched"));
    // Each side names its source, as far as it is known.
    for side in ["folded text · 10,000 samples", "folded text · 13,000 samples"] {
        assert!(drawn.contains(side), "{side}");
    }

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
    assert!(output.status.success() && text.contains("no frame changed"), "{text}");
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
        ("binary", "\u{0}\u{1}", "at byte 0 of the profile"),
        ("packed", "\u{1f}", "line 1 is not folded text"),
    ] {
        let bad = folder.file(name, text);
        let output = biopsy(&["--diff", &good, &bad, "-o", &picture]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}: {said}");
        assert!(said.contains(why) && said.contains("name a file that"), "{said}");
    }
    for words in [
        vec!["--diff", &good, "/dev/zero", "-o", &picture],
        vec!["-i", "/dev/zero", "-o", &picture],
        vec!["-i", "/nowhere/at/all", "-o", &picture],
        vec!["-i", "/", "-o", &picture],
        // A file as input excludes options for a measurement or a selection.
        vec!["-i", &good, "--on-cpu", "-o", &picture],
        vec!["-i", &good, "--diff", &good, &good, "-o", &picture],
        vec!["-i", &good, "--for", "1s", "-o", &picture],
        vec!["-i", &good, "-p", "1", "-o", &picture],
        vec!["-i", &good, "--comm", "fio", "-o", &picture],
        vec!["-i", &good, "--cgroup", "/", "-o", &picture],
        vec!["-i", &good, "-F", "99", "-o", &picture],
        vec!["-i", &good, "--max-cost", "1%", "-o", &picture],
        vec!["-i", &good, "--no-cost", "-o", &picture],
        vec!["-i", &good, "-d", "sda", "-o", &picture],
        vec!["-i", &good, "--min-block", "1ms", "-o", &picture],
        vec!["-i", &good, "--ios", "1", "1", "-o", &picture],
        vec!["-i", &good, "-o", &picture, "--", "true"],
        vec!["--diff", &good, "/nowhere/at/all", "-o", &picture],
        vec!["--on-cpu", "--off-cpu"],
        vec!["--folded", "--pprof"],
        vec!["--json", "-o", "-"],
        // Two files as input exclude options for a measurement or a selection.
        vec!["--diff", &good, &good, "-o", &picture, "--cgroup", "/"],
        vec!["--diff", &good, &good, "-o", &picture, "--for", "1s"],
        vec!["--min-width", "60%", "--on-cpu", "-o", &picture],
        // An option that has no effect for this kind or format is refused.
        vec!["--off-cpu", "-F", "99", "-o", &picture],
        vec!["--max-cost", "5%", "-o", &picture],
        vec!["--on-cpu", "--max-cost", "5%", "-o", &picture],
        vec!["--folded", "--width", "800", "-o", &picture],
        vec!["--pprof", "--min-width", "1%", "-o", &picture],
    ] {
        let output = biopsy(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{words:?}: {said}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
    assert!(!fs::exists(&picture).unwrap(), "a picture of nothing");
}

/// Each such option is named in one sentence with what it needs, with any rights.
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
        (&["-i", "X", "--min-block", "1ms"], "--min-block", "--off-cpu"),
        (&["-i", "X", "-d", "sda"], "--device", "--io"),
        (&["-i", "X", "--io-wait"], "--io-wait", "--off-cpu"),
        (&["-i", "X", "--durations", "1s", "1s"], "--durations", "--diff"),
        (&["--on-cpu", "--durations", "1s", "1s"], "--durations", "--diff"),
        (&["--io", "--ios", "1", "2"], "--ios", "--diff"),
        (&["--ios", "1", "2"], "--ios", "--diff"),
        (&["--lock-wait", "--io-wait"], "--io-wait", "--off-cpu"),
        (&["--io", "--io-wait"], "--io-wait", "--off-cpu"),
        (&["--on-cpu", "--io-wait"], "--io-wait", "--off-cpu"),
    ] {
        let window: &[&str] = if words[0] == "-i" { &[] } else { &["--for", "100ms"] };
        let output = biopsy(&[words, window, &["-o", &picture]].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{words:?}: {said}");
        assert!(said.contains(&format!("{option} goes with {with}")), "{words:?}: {said}");
        assert!(output.stdout.is_empty() && !fs::exists(&picture).unwrap(), "{words:?}");
    }
}

/// Two functions, one of them inlined into the other; the program prints the address of the inner one.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) void *here(void) { return (char *)__builtin_return_address(0) - 1; }
static inline __attribute__((always_inline)) void *swallowed(void) {
    void *at = here();
    __asm__ volatile("");
    return at;
}
__attribute__((noinline)) static void *outer(void) { void *at = swallowed(); __asm__ volatile(""); return at; }
int main(void) { char c; printf("%p\n", outer()); fflush(stdout); return read(0, &c, 1) < 0; }
"#;

/// A profile as biopsy writes it if the program has no symbols.
fn unnamed(place: &Place, what: What, notes: &[&str]) -> Vec<u8> {
    let label = place.label();
    let mut profile = Profile::new(Unit::Samples);
    let ids =
        [("fio;7", Area::Label), ("main", Area::User), (&label, Area::User), ("nvme_irq", Area::Driver)]
            .map(|(name, area)| profile.frame(name, area));
    profile.add(&ids, 7);
    profile.add(&ids[..2], 2);
    let unnamed = BTreeMap::from([(label, place.clone())]);
    let origin = Origin {
        what: Some(what),
        place: "db1".to_string(),
        source: "cpu-clock at 99 Hz on 2 CPUs".to_string(),
        measured: 9,
        notes: notes.iter().map(|note| note.to_string()).collect(),
        envelope: Envelope { kernel: "6.1.2-db".to_string(), ..Envelope::default() },
        ..Origin::default()
    };
    let about = About {
        start_ns: 1_700_000_000_123_000_000,
        duration_ns: 2_500_000_000,
        period: Some(10_101_010),
        comments: origin.comments(),
        unnamed: Some(&unnamed),
    };
    match what {
        What::OnCpu => pprof::render(&pprof::on_cpu(&profile, 10_101_010), &about),
        _ => pprof::render(&pprof::off_cpu(&profile), &about),
    }
}

#[test]
fn a_recording_is_named_where_the_symbols_are() {
    let folder = crate::support::programs::Folder::new("flame-input");
    folder.compile("program", PROGRAM, &["-g", "-O2"]);
    let run = crate::support::programs::Running::start(&folder, "program");
    let program = folder.path("program");
    let place = Place {
        build_id: BuildId::parse(&folder.build_id("program").unwrap()),
        file: program.to_str().unwrap().into(),
        offset: run.offset(run.addresses[0]),
        // Only the offset in the file is known.
        address: None,
    };
    drop(run);
    let file = |name: &str| folder.path(name).to_str().unwrap().to_string();
    let (recording, out) = (file("on.pb.gz"), file("out"));
    fs::write(&recording, unnamed(&place, What::OnCpu, &["a \u{1b}[2Jnote"])).unwrap();
    let folded = || {
        let output = biopsy(&["-i", &recording, "--folded", "-o", &out]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (fs::read_to_string(&out).unwrap(), text)
    };

    // Without the program nothing is named; the last line about the names says so.
    fs::rename(&program, file("elsewhere")).unwrap();
    let (lines, text) = folded();
    assert_eq!(lines, format!("fio\\x3b7;main 2\nfio\\x3b7;main;{};nvme_irq_[k] 7\n", place.label()));
    let id = place.build_id.as_ref().unwrap();
    assert!(
        text.contains(&format!("1 frame is in a file that is not here (program, build-id {id})")),
        "{text}"
    );
    assert!(
        text.starts_with("on-CPU time of on.pb.gz  9 samples in 2 stacks in 2.50 s: cpu-clock at 99 Hz"),
        "{text}"
    );
    assert!(text.contains("recorded at 2023-11-14T22:13:20.123Z, Linux 6.1.2-db\n"), "{text}");
    assert!(text.contains("note") && !text.contains('\u{1b}'), "{text}");
    // A profile that is written again can still be named later.
    let again = file("again.pb.gz");
    assert!(biopsy(&["-i", &recording, "--pprof", "-o", &again]).status.success());

    fs::rename(file("elsewhere"), &program).unwrap();
    let named = "fio\\x3b7;main 2\nfio\\x3b7;main;outer;swallowed;nvme_irq_[k] 7\n";
    let (lines, text) = folded();
    assert_eq!(lines, named);
    assert!(text.contains("1 frame has a name now that had none\n"), "{text}");
    let output = biopsy(&["-i", &again, "--json", "--folded", "-o", &out]);
    assert_eq!(fs::read_to_string(&out).unwrap(), named);
    let view: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&view["what"], &view["unit"], &view["measured"]),
        (&"on-cpu".into(), &"samples".into(), &9.into())
    );
    assert_eq!(view["start"], "2023-11-14T22:13:20.123Z");
    assert_eq!((&view["duration_ns"], &view["kernel"]), (&2_500_000_000u64.into(), &"6.1.2-db".into()));
    assert_eq!(view["recording"], serde_json::json!({"file": "again.pb.gz", "values": "samples"}));
    assert_eq!(view["product"], serde_json::json!({"path": out, "format": "folded"}));

    let picture = file("on.svg");
    assert!(biopsy(&["-i", &recording, "-o", &picture, "--width", "900"]).status.success());
    let drawn = fs::read_to_string(&picture).unwrap();
    for words in [
        "on-CPU time of on.pb.gz<",
        "db1 · 2023-11-14T22:13:20.123Z · Linux 6.1.2-db<",
        "swallowed",
        "none lost",
    ] {
        assert!(drawn.contains(words), "{words}: {drawn}");
    }
    let scope = file("on.json");
    assert!(biopsy(&["-i", &recording, "--speedscope", "-o", &scope]).status.success());
    assert!(fs::read_to_string(&scope).unwrap().contains("swallowed"));

    // A comparison with folded text, which takes its unit from the recording; and with another kind, which is reported.
    let text = folder.path("text");
    fs::write(&text, "fio\\x3b7;main 1\n").unwrap();
    let words = ["--diff", text.to_str().unwrap(), &recording, "-o", &out, "--json"];
    let view: serde_json::Value = serde_json::from_slice(&biopsy(&words).stdout).unwrap();
    assert_eq!((&view["unit"], &view["all"]["after"]), (&"samples".into(), &1.0.into()));
    assert_eq!(
        (&view["changes"][0]["name"], &view["changes"][0]["area"]),
        (&"nvme_irq".into(), &"driver".into())
    );
    let off = file("off.pb.gz");
    fs::write(&off, unnamed(&place, What::OffCpu, &[])).unwrap();
    let output = biopsy(&["--diff", &off, &recording, "-o", &out]);
    assert_eq!(output.status.code(), Some(2), "nanoseconds and samples");
    let output = biopsy(&["--diff", &off, &recording, "-o", &out, "--unit", "ns"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("is off-CPU time and"), "{said}");
}

/// A loss that made the measurement doubtful makes its recording doubtful, too.
#[test]
fn a_recording_that_lost_too_much_is_no_better_for_being_read() {
    let folder = Folder::new("lost");
    let origin = Origin { what: Some(What::OffCpu), measured: u64::MAX, lost: u64::MAX, ..Origin::default() };
    let mut profile = Profile::new(Unit::Nanoseconds);
    let id = profile.frame("main", Area::User);
    profile.add(&[id], 5);
    let write = |name: &str, origin: &Origin| {
        let about = About { comments: origin.comments(), ..About::default() };
        let path = folder.path(name);
        fs::write(&path, pprof::render(&pprof::off_cpu(&profile), &about)).unwrap();
        path
    };
    let (lossy, picture) = (write("lossy", &origin), folder.path("out.svg"));
    let output = biopsy(&["-i", &lossy, "-o", &picture]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("more than --max-loss 0.1 % allows") && fs::exists(&picture).unwrap(), "{said}");
    assert_eq!(biopsy(&["-i", &lossy, "-o", &picture, "--max-loss", "100"]).status.code(), Some(0));
    let doubt = Origin { doubt: Some("sda vanished".to_string()), lost: 0, ..origin };
    let output = biopsy(&["-i", &write("doubt", &doubt), "-o", &picture]);
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8(output.stderr).unwrap().contains("sda vanished"));
}

/// A profile for pprof contains bytes of zero, and so may a name.
#[test]
fn folded_text_with_a_byte_of_zero_is_folded_text() {
    let folder = Folder::new("zero");
    let file = folder.file("zero.folded", "thread\0name;main 3\n");
    let out = folder.path("out");
    let output = biopsy(&["-i", &file, "--unit", "samples", "-o", &out]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let picture = fs::read_to_string(&out).unwrap();
    assert!(picture.contains("thread\\u{0}name") && !picture.contains('\0'), "{picture}");
}

#[test]
fn folded_text_becomes_any_product() {
    let folder = Folder::new("text");
    let file = folder.file("a\u{1b}.folded", DEADLINE);
    let [out, again] = ["out", "again"].map(|name| folder.path(name));
    let output = biopsy(&["-i", &file, "-o", &out]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        text.starts_with("samples of a\\u{1b}.folded  13,000 samples in 3 stacks: folded text\n"),
        "{text}"
    );
    assert!(
        text.contains("\nfolded text does not name its unit: taken as samples; use --unit ns if"),
        "{text}"
    );
    // Unknown facts are not printed.
    assert!(!text.contains("lost") && !text.contains("recorded"), "{text}");
    for form in ["--pprof", "--folded"] {
        assert!(biopsy(&["-i", &file, form, "-o", &out]).status.success());
        assert!(biopsy(&["-i", &out, "--folded", "-o", &again]).status.success(), "{form}");
        let mut lines: Vec<String> =
            fs::read_to_string(&again).unwrap().lines().map(str::to_string).collect();
        let mut expected: Vec<&str> = DEADLINE.lines().collect();
        lines.sort();
        expected.sort_unstable();
        assert_eq!(lines, expected, "{form}");
    }
    for (value, words, unit, warns) in [
        (3, &[][..], "samples", 0),
        (10_000_001, &[], "nanoseconds", 1),
        (10_000_001, &["--unit", "samples"], "samples", 0),
        (3, &["--unit", "ns"], "nanoseconds", 0),
    ] {
        let file = folder.file("value", &format!("a {value}\n"));
        let output = biopsy(&[&["-i", &file, "--json", "-o", &out], words].concat());
        let view: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(view["unit"], unit, "{value} {words:?}");
        // An assumption is reported in the JSON and below the graph.
        let noted = view["notes"].to_string().contains("taken as samples; use --unit ns");
        assert_eq!(noted, value == 3 && words.is_empty(), "{view}");
        let drawn = fs::read_to_string(&out).unwrap();
        assert_eq!(drawn.contains("taken as samples"), noted, "{drawn}");
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), warns, "{value} {words:?}");
        for key in ["what", "start", "duration_ns", "kernel", "lost", "cost", "measured"] {
            assert!(view[key].is_null() && view.get(key).is_some(), "{key}: {view}");
        }
    }
    for (name, text, why) in [
        ("empty", "", "it has no stack"),
        ("words", "a;b c\n", "line 1 is not folded text"),
        ("nul", "\u{0}", "at byte 0"),
        ("deep", &format!("{}a 1\n", "a;".repeat(4_096)), "its stack has more than 4096 frames"),
        ("long", &format!("a {}\n", "x".repeat(1 << 20)), "xxx...' is not an integer below 2^64"),
    ] {
        let bad = folder.file(name, text);
        let output = biopsy(&["-i", &bad, "-o", &folder.path("none")]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains(why) && said.contains("name a file that"), "{said}");
    }
    assert!(!fs::exists(folder.path("none")).unwrap());
}

/// Compares with profiles that Go writes; skipped without Go.
#[test]
fn go_reads_ours_and_its_own_is_read() {
    let go = |words: &[&str]| Command::new("go").args(words).output();
    if !go(&["version"]).is_ok_and(|output| output.status.success()) {
        skipped("there is no Go here");
        return;
    }
    let folder = Folder::new("go");
    let source = folder.file("spin.go", GO);
    let (theirs, ours, out) = (folder.path("theirs.prof"), folder.path("ours.pb.gz"), folder.path("out"));
    let output = go(&["run", &source, &theirs]).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = biopsy(&["-i", &theirs, "--json", "--pprof", "-o", &ours]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let view: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&view["unit"], &view["recording"]["values"]), (&"nanoseconds".into(), &"cpu".into()));
    assert!(view["start"].as_str().unwrap().starts_with("20"), "{view}");
    // Go's own sum, of its own file and of biopsy's.
    let sum = |file: &str| {
        let output = go(&["tool", "pprof", "-symbolize=none", "-raw", file]).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("samples/count cpu/nanoseconds"), "{text}");
        let samples = text.lines().skip_while(|line| !line.contains("samples/count")).skip(1);
        let value = |line: &str| line.split(':').next()?.split_whitespace().nth(1)?.parse::<u64>().ok();
        samples.take_while(|line| *line != "Locations").filter_map(value).sum::<u64>()
    };
    assert_eq!(view["total"], sum(&theirs));
    assert_eq!(sum(&ours), sum(&theirs));
    assert!(biopsy(&["-i", &theirs, "--unit", "samples", "--folded", "-o", &out]).status.success());
    let spins = fs::read_to_string(&out).unwrap();
    let spin = spins.lines().find(|line| line.contains("main.main;main.spin"));
    assert!(spin.is_some_and(|line| line.starts_with("runtime.main;main.main;main.spin")), "{spins}");
}

const GO: &str = r#"
package main

import (
	"os"
	"runtime/pprof"
	"time"
)

var sink int

//go:noinline
func spin(until time.Time) {
	for time.Now().Before(until) {
		for i := 0; i < 100000; i++ {
			sink += i * i
		}
	}
}

func main() {
	file, err := os.Create(os.Args[1])
	if err != nil {
		panic(err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		panic(err)
	}
	spin(time.Now().Add(time.Second))
	pprof.StopCPUProfile()
}
"#;

/// Times that are mistaken for samples would make each difference significant.
#[test]
fn a_difference_of_times_is_never_certain() {
    let folder = Folder::new("unit");
    // 11 ms and 7 ms, which would be a significant difference of samples.
    let (before, after) = (
        folder.file("a", "fio;read 11000000\nfio;write 1\n"),
        folder.file("b", "fio;read 7000000\nfio;write 9\n"),
    );
    let picture = folder.path("diff.svg");
    for (files, words, warns, is_time) in [
        ([&before, &after], &[][..], true, true),
        // One such file is enough.
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
