//! Recordings: folders of compressed lines, packed ones, and what is left of them when they are damaged.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicU64;

use crate::replay::{fed, lines};
use crate::support::scratch::Scratch;
use crate::support::tool::{one_error, quiet, refused, run};
use biopsy::analyze::latency::LatencySummary;
use biopsy::envelope::{Envelope, Lost};
use biopsy::recording::folder::{Folder, MANIFEST};
use biopsy::recording::manifest::Manifest;
use biopsy::recording::pack::pack;
use biopsy::recording::tape::Tape;
use biopsy::recording::{Pieces, Span, source};
use biopsy::render::json;
use proptest::prelude::*;

/// A recording of seconds of latency with so many reads, as it is while it goes on.
fn record(at: &Path, all: &[u64]) {
    let mut folder = Folder::create(at).unwrap();
    folder.write(MANIFEST, &json::view(&Envelope::default(), &Manifest::default(), None)).unwrap();
    let mut tape = Tape::create(folder.path(), "latency", &AtomicU64::new(0).into()).unwrap();
    let envelope = Envelope { lost: Lost { ios: 2, ..Lost::default() }, ..Envelope::default() };
    for ios in all {
        tape.add(&lines(&[*ios]), &envelope, 0).unwrap();
    }
    assert_eq!((tape.recorded.intervals, tape.recorded.lost.ios), (all.len() as u64, 2 * all.len() as u64));
    let length = fs::metadata(at.join("latency.ndjson.zst")).unwrap().len();
    assert_eq!(tape.recorded.bytes, length);
    folder.keep();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The I/Os of each second that can be read, and why no more can.
fn read(path: &Path) -> (Vec<u64>, Option<String>) {
    let mut all = Vec::new();
    let lines = match source::open(path, "latency") {
        Ok(lines) => lines,
        Err(error) => return (all, Some(format!("{error:#}"))),
    };
    let mut pieces = Pieces::new(lines, Span::default());
    loop {
        match pieces.read::<LatencySummary>() {
            Ok(Some(piece)) => all.push(piece.view.devices[0].ios),
            Ok(None) => return (all, None),
            Err(error) => return (all, Some(format!("{error:#}"))),
        }
    }
}

#[test]
fn a_recording_reads_as_its_lines_in_every_form() {
    let scratch = Scratch::new("recording");
    let folder = scratch.path().join("run.biopsy");
    record(&folder, &[3, 500, 7]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join(MANIFEST))), (0o700, 0o600));
    assert_eq!(mode(&folder.join("latency.ndjson.zst")), 0o600);
    // A stranger's files are not packed.
    fs::write(folder.join("notes.txt"), "x").unwrap();
    quiet(&run(&["pack", text(&folder)]));
    let packed = scratch.path().join("run.biopsy.tar");
    let expected = lines(&[3, 500, 7]);
    for path in [&folder, &packed, &folder.join("latency.ndjson.zst")] {
        let again = run(&["latency", "-i", text(path), "--json"]);
        quiet(&again);
        assert_eq!(again.stdout, expected, "{}", path.display());
    }
    let piped = run(&["pack", text(&folder), "-o", "-"]);
    quiet(&piped);
    assert_eq!(piped.stdout, fs::read(&packed).unwrap(), "the same recording gives the same bytes");
    let read = fed(&["latency", "-i", "-", "--json"], &piped.stdout);
    quiet(&read);
    assert_eq!(read.stdout, expected);
    let names = String::from_utf8_lossy(&piped.stdout).into_owned();
    assert!(names.contains("run.biopsy/manifest.json") && !names.contains("notes.txt"));
    // What tar itself makes of it is read as well.
    let by_tar = scratch.path().join("by.tar");
    let mut tar = Command::new("tar");
    let made = tar.arg("-C").arg(scratch.path()).arg("-cf").arg(&by_tar).arg("run.biopsy").status().unwrap();
    assert!(made.success());
    assert_eq!(run(&["latency", "-i", text(&by_tar), "--json"]).stdout, expected);
}

#[test]
fn what_a_recording_does_not_have_is_named() {
    let scratch = Scratch::new("recording-without");
    let folder = scratch.path().join("run");
    record(&folder, &[3]);
    refused(&run(&["locks", "-i", text(&folder)]), 1, &["run: it has no locks, but latency"]);
    quiet(&run(&["pack", text(&folder)]));
    let packed = scratch.path().join("run.tar");
    refused(&run(&["locks", "-i", text(&packed)]), 1, &["run.tar: it has no locks, but latency"]);
    refused(&run(&["pack", text(&folder)]), 2, &["cannot make", "run.tar", "exists"]);
    refused(&run(&["pack", text(scratch.path())]), 1, &["is no recording: manifest.json is not in it"]);
    refused(&run(&["pack", "/nonexistent"]), 2, &["cannot read /nonexistent"]);
    refused(
        &run(&["record", "-o", text(&folder), "--with", "top", "--for", "1s"]),
        2,
        &["cannot make the folder"],
    );
    refused(
        &run(&["record", "-o", "/nonexistent/run", "--with", "top", "--for", "1s"]),
        2,
        &["no such file"],
    );
    // A link leads out of it, and is not followed into a packed one.
    let secret = scratch.path().join("secret");
    fs::write(&secret, "of somebody else").unwrap();
    symlink(&secret, folder.join("locks.ndjson.zst")).unwrap();
    let output = scratch.path().join("other.tar");
    refused(&run(&["pack", text(&folder), "-o", text(&output)]), 1, &["cannot pack", "locks.ndjson.zst"]);
    assert!(!output.exists(), "half of a recording stays nowhere");
}

#[test]
fn a_recording_cut_at_any_byte_is_read_to_its_last_whole_frame() {
    let scratch = Scratch::new("recording-cut");
    let folder = scratch.path().join("run");
    record(&folder, &[3, 4]);
    let file = folder.join("latency.ndjson.zst");
    let whole = fs::read(&file).unwrap();
    let ends = {
        let one = scratch.path().join("one");
        record(&one, &[3]);
        [fs::metadata(one.join("latency.ndjson.zst")).unwrap().len() as usize, whole.len()]
    };
    for end in 0..=whole.len() {
        fs::write(&file, &whole[..end]).unwrap();
        let (all, error) = read(&folder);
        // The last four bytes are the checksum alone.
        let frames = ends.iter().filter(|last| **last <= end + 4).count();
        assert_eq!(all, [3, 4][..frames], "cut at {end}");
        let said = error.unwrap_or_default();
        match (end, ends.contains(&end)) {
            (0, _) => assert!(said.ends_with("it is empty"), "{said}"),
            (_, true) => assert_eq!(said, ""),
            // Without its magic number it may be anything.
            (1..4, _) => assert!(said.starts_with("line 1: it cannot be read from byte 1 on"), "{said}"),
            _ => assert!(
                said.starts_with("line ") && said.contains("damaged or cut off"),
                "cut at {end}: {said}"
            ),
        }
    }
    // The verb says the same, with the file's name.
    fs::write(&file, &whole[..whole.len() - 9]).unwrap();
    let cut = run(&["latency", "-i", text(&folder), "--json"]);
    one_error(&cut, 1, &["run: line 2: the frame at byte ", "is damaged or cut off"]);
    assert_eq!(cut.stdout, lines(&[3]));
}

#[test]
fn a_packed_recording_cut_at_any_byte_is_read_to_its_last_whole_frame() {
    let scratch = Scratch::new("packed-cut");
    let folder = scratch.path().join("run");
    record(&folder, &[3, 4]);
    let mut whole = Vec::new();
    pack(&folder, "run", &mut whole).unwrap();
    let path = scratch.path().join("cut.tar");
    let mut most = 0;
    for end in (0..whole.len()).step_by(7) {
        fs::write(&path, &whole[..end]).unwrap();
        let (all, error) = read(&path);
        assert!([&[3, 4][..0], &[3], &[3, 4]].contains(&&all[..]), "{all:?}");
        assert!(all.len() >= most, "more of it is no less");
        most = all.len();
        assert!(all.len() == 2 || error.is_some(), "cut at {end}");
    }
    assert_eq!(most, 2);
}

/// A header of tar with this name and size, or of it what is told to be changed.
fn header(name: &str, size: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    // As a hostile archive has it: set_path refuses to climb.
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_size(size);
    header.set_mode(0o600);
    header.set_cksum();
    header
}

#[test]
fn hostile_archives_are_an_answer() {
    let scratch = Scratch::new("hostile-tar");
    let path = scratch.path().join("x.tar");
    let line = zstd::encode_all(&lines(&[3])[..], 3).unwrap();
    let of = |name: &str, size: u64, body: &[u8]| {
        let mut bytes = header(name, size).as_bytes().to_vec();
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    };
    let said = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        read(&path)
    };
    // Nothing is written anywhere, so that a path is a name alone.
    let climbing = of("../../../etc/latency.ndjson.zst", line.len() as u64, &line);
    assert_eq!(said(&climbing), (vec![3], None));
    let long = said(&of("run/latency.ndjson.zst", 1 << 33, &line));
    assert_eq!(long.0, [3], "what is there is read");
    let skipped = said(&of("run/other", 1 << 33, &line)).1.unwrap();
    assert!(
        skipped.contains("it is damaged or cut off at byte 0") && skipped.contains("bytes are missing"),
        "{skipped}"
    );
    let mut broken = of("run/latency.ndjson.zst", line.len() as u64, &line);
    broken[0] ^= 1;
    assert_eq!(said(&broken).1.unwrap(), "it is damaged or cut off at byte 0");
    let none = [of("\u{1b}[31m.ndjson.zst", 0, b""), vec![0; 1024]].concat();
    assert_eq!(said(&none).1.unwrap(), "it has no latency, but \\u{1b}[31m");
}

#[test]
fn frames_that_unpack_to_very_much_are_an_answer() {
    let scratch = Scratch::new("bombs");
    let said = |frame: &[u8]| {
        let path = scratch.path().join("bomb.zst");
        fs::write(&path, frame).unwrap();
        read(&path).1.unwrap()
    };
    // 1 GiB of zeros in 100 KB.
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..1024).for_each(|_| encoder.write_all(&zeros).unwrap());
    assert_eq!(said(&encoder.finish().unwrap()), "line 1: it is longer than 8 MiB");
    // A frame that asks for a window of 128 MiB.
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.set_parameter(zstd::zstd_safe::CParameter::WindowLog(27)).unwrap();
    (0..64).for_each(|_| encoder.write_all(&zeros).unwrap());
    let wide = said(&encoder.finish().unwrap());
    assert!(wide.starts_with("line 1: the frame at byte 0 or behind it is damaged or cut off"), "{wide}");
}

proptest! {
    /// A checksum is over each frame: what comes out is what went in.
    #[test]
    fn a_flipped_bit_is_no_other_number(at in 0usize..100_000, bit in 0u8..8, is_packed: bool) {
        let scratch = Scratch::new("flipped");
        let folder = scratch.path().join("run");
        record(&folder, &[3, 4]);
        let mut bytes = fs::read(folder.join("latency.ndjson.zst")).unwrap();
        if is_packed {
            bytes.clear();
            pack(&folder, "run", &mut bytes).unwrap();
        }
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        let path = scratch.path().join("flipped");
        fs::write(&path, &bytes).unwrap();
        let (all, error) = read(&path);
        prop_assert!([&[3, 4][..0], &[3], &[3, 4]].contains(&&all[..]), "{all:?}");
        prop_assert!(all.len() == 2 || error.is_some());
    }

    #[test]
    fn any_bytes_in_a_folder_are_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..600), is_framed: bool) {
        let scratch = Scratch::new("any");
        let folder = scratch.path().join("run");
        record(&folder, &[]);
        let bytes = if is_framed { zstd::encode_all(&bytes[..], 1).unwrap() } else { bytes };
        fs::write(folder.join("latency.ndjson.zst"), bytes).unwrap();
        read(&folder);
    }
}

/// What an earlier version recorded, on whichever kernel, is read by each later one.
#[test]
fn recordings_of_every_release_stay_readable() {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let mut read = 0;
    for entry in fs::read_dir(all).unwrap().flatten() {
        let path = entry.path();
        for view in ["latency", "interrupts", "locks", "threads", "errors", "top", "flame"] {
            let words: &[&str] = match view {
                "top" => &["top", "--plain", "-i", text(&path)],
                "flame" => &["flame", "-i", text(&path), "--folded", "-o", "-"],
                _ => &[view, "-i", text(&path)],
            };
            let output = run(words);
            if output.status.success() {
                assert!(output.stdout.len() > 100, "{view} of {}", path.display());
                read += 1;
            } else {
                // Not every kernel has every view.
                refused(&output, 1, &[&format!("it has no {view}, but ")]);
            }
        }
    }
    assert!(read >= 10, "{read}");
}
