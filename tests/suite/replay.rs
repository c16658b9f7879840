//! Tests `-i`: JSON that `--json` printed is shown again, without rights, whatever else the file contains.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Output, Stdio};

use crate::support::scratch::Scratch;
use crate::support::tool::{biopsy, finish, one_error, quiet, refused, run, stderr};
use biopsy::analyze::latency::{DeviceLatency, LatencySummary, OpLatency};
use biopsy::analyze::op::Op;
use biopsy::analyze::threads::ThreadSummary;
use biopsy::envelope::Envelope;
use biopsy::hist::Histogram;
use biopsy::recording::{Piece, Pieces, Span};
use biopsy::render::{json, text};
use proptest::prelude::*;

/// A second with so many reads.
pub fn second(ios: u64) -> (Envelope, LatencySummary) {
    let bio: Histogram = (1..=ios).map(|at| at * 1_000).collect();
    let op = OpLatency { ios, bytes: ios * 4096, bio: Some(bio), ..OpLatency::default() };
    let device = DeviceLatency {
        name: "sda\x1b[31m<b>".into(),
        ios,
        bytes: ios * 4096,
        ops: BTreeMap::from([(Op::Read, op)]),
        ..DeviceLatency::default()
    };
    let summary = LatencySummary { duration_ns: 1_000_000_000, devices: vec![device], ..Default::default() };
    let envelope = Envelope {
        version: "0.1.0".into(),
        start: "2026-11-28T20:00:00.000Z".into(),
        duration_ns: 1_000_000_000,
        ..Envelope::default()
    };
    (envelope, summary.derived())
}

pub fn lines(all: &[u64]) -> Vec<u8> {
    let line = |ios: &u64| {
        let (envelope, summary) = second(*ios);
        json::view(&envelope, &summary, None)
    };
    all.iter().flat_map(line).collect()
}

fn file(scratch: &Scratch, bytes: &[u8]) -> String {
    scratch.write("run.ndjson", bytes);
    scratch.path().join("run.ndjson").to_string_lossy().into_owned()
}

pub fn fed(words: &[&str], bytes: &[u8]) -> Output {
    let mut child = biopsy(words).stdin(Stdio::piped()).spawn().unwrap();
    let (mut stdin, bytes) = (child.stdin.take().unwrap(), bytes.to_vec());
    // The tool may exit before it has read everything.
    let feeder = std::thread::spawn(move || drop(stdin.write_all(&bytes)));
    let output = finish(child);
    feeder.join().unwrap();
    output
}

#[test]
fn what_was_printed_is_shown_again() {
    let scratch = Scratch::new("replay");
    let bytes =
        [lines(&[3, 500]), json::view(&Envelope::default(), &ThreadSummary::default(), None)].concat();
    let path = file(&scratch, &bytes);
    let again = run(&["latency", "-i", &path, "--json"]);
    quiet(&again);
    assert_eq!(again.stdout, lines(&[3, 500]));
    let shown = fed(&["latency", "--long", "--input", "-", "--color", "never"], &bytes);
    quiet(&shown);
    let style = text::Style::default();
    let expected: String = [(3, false), (500, true)]
        .map(|(ios, brief)| {
            let (envelope, summary) = second(ios);
            text::latency::render(&envelope, &summary, None, text::Style { brief, ..style })
        })
        .concat();
    assert_eq!(String::from_utf8(shown.stdout).unwrap(), expected);
    assert!(!expected.contains('\x1b'), "names are a stranger's");
    let written = scratch.path().join("again.json");
    quiet(&run(&["latency", "-i", &path, "--json", "-o", &written.to_string_lossy()]));
    assert_eq!(std::fs::read(written).unwrap(), lines(&[3, 500]));
}

#[test]
fn a_span_is_what_began_within_it() {
    let at = |second: u64| {
        let (envelope, summary) = self::second(second + 1);
        let envelope = Envelope { start: format!("2026-11-28T20:00:0{second}.000Z"), ..envelope };
        json::view(&envelope, &summary, None)
    };
    let bytes: Vec<u8> = (0..5).flat_map(at).collect();
    let shown =
        |from: &str, to: &str| fed(&["latency", "-i", "-", "--json", "--from", from, "--to", to], &bytes);
    for (from, to) in [("1s", "3s"), ("20:00:01Z", "20:00:03Z"), ("2026-11-28T20:00:01Z", "3s")] {
        let output = shown(from, to);
        quiet(&output);
        assert_eq!(output.stdout, [at(1), at(2)].concat(), "{from} {to}");
    }
    let none = "stdin: it has no biopsy.latency/1 between --from and --to, only from 2026-11-28T20:00:00.000Z to \
                2026-11-28T20:00:04.000Z";
    refused(&shown("1h", "2h"), 1, &[none]);
    refused(&shown("soon", "2h"), 2, &["'soon' is not a time: use 14:30:05"]);
    refused(&run(&["latency", "--from", "1s"]), 2, &["--input <FILE>"]);
}

#[test]
fn a_damaged_file_is_shown_up_to_the_damage() {
    let scratch = Scratch::new("replay-damage");
    let bytes = lines(&[3, 500]);
    let path = file(&scratch, &bytes[..bytes.len() - 40]);
    let cut = run(&["latency", "-i", &path, "--json"]);
    one_error(&cut, 1, &["run.ndjson: line 2: it is truncated after"]);
    assert_eq!(cut.stdout, lines(&[3]));
    refused(
        &run(&["locks", "-i", &file(&scratch, &bytes)]),
        1,
        &["it has no biopsy.locks/1, only biopsy.latency/1"],
    );
    refused(
        &run(&["top", "--plain", "-i", &file(&scratch, b"")]),
        1,
        &["it has no biopsy.top/1: it is empty"],
    );
    refused(
        &run(&["latency", "-i", "/nonexistent\x1b[31m"]),
        2,
        &["cannot read /nonexistent", "no such file"],
    );
    refused(
        &fed(&["latency", "-i", "-"], b"{\"schema\":\"\\u001b[31m\"}"),
        1,
        &["stdin: line 1: it is not a result of biopsy"],
    );
    let later = br#"{"schema":"biopsy.latency/9"}"#;
    refused(&fed(&["latency", "-i", "-"], later), 1, &["biopsy.latency/9 is newer than"]);
    refused(&run(&["latency", "-i", "/dev/zero"]), 1, &["line 1: it is longer than 8 MiB"]);
    refused(&run(&["latency", "-i", "/"]), 1, &["/: it is not a recording: it has no manifest.json"]);
}

#[test]
fn what_measures_has_no_place_beside_it() {
    for words in [
        &["latency", "-i", "-", "-d", "sda"][..],
        &["latency", "-i", "-", "1"],
        &["latency", "-i", "-", "--by", "process"],
        &["latency", "-i", "-", "-p", "1"],
        &["interrupts", "-i", "-", "--for", "1s"],
        &["locks", "-i", "-", "--no-spin"],
        &["threads", "-i", "-", "--stacks", "folded"],
        &["errors", "-i", "-", "--", "true"],
        &["top", "--plain", "-i", "-", "-d", "sda"],
    ] {
        let output = fed(words, b"");
        refused(&output, 2, &["cannot be used with"]);
        // Only the wrong argument is named.
        assert!(!stderr(&output).contains("fault"), "{}", stderr(&output));
    }
}

/// Short lines that need much memory take bounded memory.
#[test]
fn a_bomb_takes_bounded_memory() {
    // The mappings of the executable come on top.
    const MOST: libc::rlim_t = 384 << 20;
    let of = |view: &str, body: &str| format!(r#"{{"schema":"biopsy.{view}/1",{body}}}"#);
    let many = |one: &str, times: usize| vec![one; times].join(",");
    let bombs = [
        ("latency", of("latency", &format!(r#""devices":[{}]"#, many("{}", 29_000)))),
        (
            "latency",
            of(
                "latency",
                &format!(r#""devices":[{{"ops":{{"read":{{"by_total":[{}]}}}}}}]"#, many("{}", 29_000)),
            ),
        ),
        ("latency", of("latency", &format!(r#""missing":[{}]"#, many("{}", 29_000)))),
        (
            "interrupts",
            of(
                "interrupts",
                &format!(r#""vectors":[{}],"devices":[{}]"#, many("{}", 14_000), many("{}", 14_000)),
            ),
        ),
        ("threads", of("threads", &format!(r#""threads":[{}]"#, many("{}", 29_000)))),
        ("locks", of("locks", &format!(r#""locks":[{}]"#, many("[]", 190_000)))),
        ("latency", of("latency", &format!(r#""devices":[{}]"#, many("[1,1,1,1,1,1,1,1]", 190_000)))),
        ("latency", of("latency", &format!(r#""x":[{}]"#, many("1", 4_000_000)))),
        ("latency", "[".repeat(4 << 20)),
    ];
    for (view, bomb) in bombs {
        let mut command = biopsy(&[view, "-i", "-", "--json"]);
        let limit = libc::rlimit { rlim_cur: MOST, rlim_max: MOST };
        // SAFETY: setrlimit is async-signal-safe, and reads a struct that lives.
        unsafe {
            command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_AS, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let feeder = std::thread::spawn(move || drop(stdin.write_all(bomb.as_bytes())));
        let output = finish(child);
        feeder.join().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{view}: {:?} {said}", output.status);
    }
}

/// The pieces before the first unreadable one, and the error of that one.
fn read(bytes: &[u8]) -> (Vec<Piece<LatencySummary>>, Option<String>) {
    let (mut pieces, mut all) = (Pieces::new(bytes, Span::default()), Vec::new());
    loop {
        match pieces.read() {
            Ok(Some(piece)) => all.push(piece),
            Ok(None) => return (all, None),
            Err(error) => return (all, Some(format!("{error:#}"))),
        }
    }
}

#[test]
fn what_was_written_is_read() {
    let bytes = lines(&[3, 500]);
    let (all, error) = read(&bytes);
    assert_eq!((all.len(), error), (2, None));
    let again: Vec<u8> =
        all.iter().flat_map(|piece| json::view(&piece.envelope, &piece.view, piece.command_status)).collect();
    assert_eq!(again, bytes);
    let (envelope, summary) = second(3);
    assert_eq!((&all[0].envelope, &all[0].view), (&envelope, &summary));
    let with_status = json::view(&envelope, &summary, Some(7));
    assert_eq!(read(&with_status).0[0].command_status, Some(7));
}

#[test]
fn other_views_are_left_out_and_alone_they_are_named() {
    let threads = json::view(&Envelope::default(), &ThreadSummary::default(), None);
    let both = [threads.clone(), b"\n  \n".to_vec(), lines(&[3]), threads.clone()].concat();
    assert_eq!((read(&both).0.len(), read(&both).1), (1, None));
    let alone = read(&threads).1.unwrap();
    assert_eq!(alone, "it has no biopsy.latency/1, only biopsy.threads/1");
    assert_eq!(read(b"").1.unwrap(), "it has no biopsy.latency/1: it is empty");
}

/// Large lines are parsed one at a time, and the faster thread does not block the other one forever.
#[test]
fn large_lines_come_in_their_order() {
    let line = |ios: u64| {
        let mut line = lines(&[ios]);
        // Blanks between the values make the line large.
        let blanks = " ".repeat(if ios.is_multiple_of(3) { 10 } else { (1 << 20) + 1 });
        line.splice(1..1, blanks.into_bytes());
        line
    };
    let all: Vec<u64> = (1..=40).collect();
    let bytes: Vec<u8> = all.iter().flat_map(|ios| line(*ios)).collect();
    for _ in 0..10 {
        let mut read = Vec::new();
        let add = |piece: Piece<LatencySummary>| {
            read.push(piece.view.ios());
            Ok(())
        };
        Pieces::new(&bytes[..], Span::default()).each(add).unwrap();
        assert_eq!(read, all);
    }
    // A reader that stops early ends the other threads.
    let mut left = 3;
    let some = |_: Piece<LatencySummary>| {
        left -= 1;
        anyhow::ensure!(left > 0, "enough");
        Ok(())
    };
    let error = Pieces::new(&bytes[..], Span::default()).each(some).unwrap_err();
    assert_eq!(error.to_string(), "enough");
}

#[test]
fn blank_lines_are_nothing() {
    let bytes = [vec![b'\n'; 1 << 20], lines(&[3]), b"  \n\n".to_vec(), b"}".to_vec()].concat();
    let (all, error) = read(&bytes);
    assert_eq!((all.len(), error.unwrap().contains("line 1048580: ")), (1, true));
}

#[test]
fn an_interval_that_is_there_twice_is_not_merged() {
    let (mut envelope, summary) = second(3);
    envelope.start = "2026-11-28T10:00:00.000Z".to_string();
    let line = json::view(&envelope, &summary, None);
    let scratch = Scratch::new("twice");
    let path = scratch.path().join("run.ndjson");
    std::fs::write(&path, [line.clone(), line].concat()).unwrap();
    let path = path.to_str().unwrap();
    assert!(run(&["latency", "-i", path]).status.success(), "as it is it can be shown");
    let refused = run(&["latency", "-i", path, "--merge"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(
        said.contains("run.ndjson: the interval that begins at 2026-11-28T10:00:00.000Z does not follow"),
        "{said}"
    );
}

#[test]
fn a_cut_at_any_byte_leaves_what_is_before() {
    let bytes = lines(&[3, 4]);
    let first = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for end in 0..bytes.len() - 1 {
        let (all, error) = read(&bytes[..end]);
        // A line without its newline is complete.
        assert_eq!(all.len(), usize::from(end >= first - 1), "cut at {end}");
        let whole = [0, first - 1, first].contains(&end);
        let said = error.unwrap_or_default();
        match whole {
            true => assert!(!said.contains("cut"), "{said}"),
            false => assert!(said.starts_with("line ") && said.contains("it is truncated after"), "{said}"),
        }
    }
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let said = |line: &str| read(line.as_bytes()).1.unwrap();
    assert_eq!(
        said(r#"{"schema":"biopsy.latency/2"}"#),
        "line 1: biopsy.latency/2 is newer than biopsy.latency/1: read it with the biopsy that wrote it"
    );
    assert_eq!(said(r#"{"schema":"fio"}"#), "line 1: it is not a result of biopsy");
    assert_eq!(said(r#"{"a":1}"#), "line 1: it cannot be read from byte 7 on: missing field `schema`");
    assert!(said(r#"{"schema":"biopsy.latency/1","devices":7}"#).contains("invalid type: integer `7`"));
    assert!(said("\u{0}\u{1b}[31m").starts_with("line 1: it is not JSON: -i takes"));
    assert!(said(&"[".repeat(5_000)).starts_with("line 1: it is not JSON: -i takes"));
    let objects = format!(r#"{{"schema":"biopsy.latency/1","devices":[{}{{}}]}}"#, "{},".repeat(40_000));
    assert_eq!(said(&objects), "line 1: it has too many objects or lists");
    assert_eq!(said(&" x".repeat(5 << 20)), "line 1: it is longer than 8 MiB");
}

proptest! {
    #[test]
    fn any_bytes_are_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        read(&bytes);
    }

    /// After a change of one byte there is a result, or an error that names its line.
    #[test]
    fn a_flipped_byte_is_an_answer(at in 0usize..2_000, byte in any::<u8>()) {
        let mut bytes = lines(&[3, 40]);
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Some(said) = read(&bytes).1 {
            prop_assert!(said.starts_with("line ") || said.starts_with("it has no"), "{}", said);
        }
    }
}
