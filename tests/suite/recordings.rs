//! Tests recordings: folders of compressed lines, packed ones, and what can be read of damaged ones.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicU64;

use crate::replay::{fed, lines};
use crate::support::scratch::Scratch;
use crate::support::tool::{one_error, quiet, refused, run, stderr};
use biopsy::analyze::flame::What;
use biopsy::analyze::latency::LatencySummary;
use biopsy::analyze::profile::{Area, Profile, Unit};
use biopsy::analyze::stack_quality::Ending;
use biopsy::envelope::{Envelope, Lost};
use biopsy::recording::folder::{Folder, MANIFEST};
use biopsy::recording::manifest::Manifest;
use biopsy::recording::pack::pack;
use biopsy::recording::stacks::Profiles;
use biopsy::recording::tape::Tape;
use biopsy::recording::{Pieces, Span, source};
use biopsy::render::json;
use biopsy::render::pprof::{self, About, origin::Origin};
use proptest::prelude::*;

/// Makes a recording of seconds of latency with so many reads, as it is while the recorder runs.
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

/// The I/Os of each second that can be read, and the reason why no more can.
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
    // Files that biopsy did not write are not packed.
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
    let cut = scratch.path().join("cut.tar");
    fs::write(&cut, &piped.stdout[..700]).unwrap();
    refused(&run(&["latency", "-i", text(&cut)]), 1, &["cut.tar: it is damaged or truncated at byte "]);
    // An archive that tar itself makes is read as well.
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
    refused(&run(&["locks", "-i", text(&folder)]), 1, &["run: it has no locks, only latency"]);
    quiet(&run(&["pack", text(&folder)]));
    let packed = scratch.path().join("run.tar");
    refused(&run(&["locks", "-i", text(&packed)]), 1, &["run.tar: it has no locks, only latency"]);
    refused(&run(&["pack", text(&folder)]), 2, &["cannot make", "run.tar", "exists"]);
    refused(&run(&["pack", text(scratch.path())]), 1, &["is not a recording: it has no manifest.json"]);
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
    for words in [&["--when", "p99>2ms", "--with", "top"][..], &["--when", "p99>2"], &["--when", "p98>2ms"]] {
        refused(&run(&[&["record", "--keep-last", "10s"], words].concat()), 2, &["--when"]);
    }
    for (words, told) in [
        (&["--on-finding", "--with", "top"][..], "--on-finding needs latency"),
        (&["--with", "top,trace"], "trace has the slowest I/Os of latency"),
    ] {
        refused(
            &run(&[&["record", "--keep-last", "10s"], words].concat()),
            2,
            &[told, "add latency to --with"],
        );
    }
    // A link that leads out of the folder is not followed.
    let secret = scratch.path().join("secret");
    fs::write(&secret, "of somebody else").unwrap();
    symlink(&secret, folder.join("locks.ndjson.zst")).unwrap();
    let output = scratch.path().join("other.tar");
    refused(&run(&["pack", text(&folder), "-o", text(&output)]), 1, &["cannot pack", "locks.ndjson.zst"]);
    assert!(!output.exists(), "half of a recording stays nowhere");
    refused(&run(&["locks", "-i", text(&folder)]), 2, &["cannot read", "run"]);
}

/// A recording with a damaged manifest is refused in every form.
#[test]
fn a_damaged_manifest_is_named_in_every_form() {
    let scratch = Scratch::new("bad-manifest");
    let folder = scratch.path().join("run");
    record_stacks(&folder);
    let bad: [(&[u8], &str); 5] = [
        (b"", "it is truncated after 0 bytes"),
        (br#"{"schema":"biopsy.recording/1","host":"#, "it is truncated after"),
        (br#"{"schema":"biopsy.recording/1","host":7}"#, "it cannot be read from byte 39 on"),
        (br#"{"schema":"biopsy.recording/2"}"#, "biopsy.recording/2 is newer than"),
        (br#"{"schema":"biopsy.latency/1"}"#, "it has no biopsy.recording/1, only biopsy.latency/1"),
    ];
    for (bytes, why) in bad {
        fs::write(folder.join(MANIFEST), bytes).unwrap();
        let mut packed = Vec::new();
        pack(&folder, "run", &mut packed).unwrap();
        fs::write(scratch.path().join("run.tar"), &packed).unwrap();
        for words in
            [&["latency", "-i"][..], &["latency", "--merge", "-i"], &["flame", "--folded", "-o", "-", "-i"]]
        {
            for name in ["run", "run.tar"] {
                let output = run(&[words, &[text(&scratch.path().join(name))]].concat());
                refused(&output, 1, &[&format!("{name}: manifest.json: "), why]);
            }
            refused(&fed(&[words, &["-"]].concat(), &packed), 1, &["stdin: manifest.json: ", why]);
        }
    }
    // A file of lines in it can be read without the manifest.
    quiet(&run(&["latency", "-i", text(&folder.join("latency.ndjson.zst"))]));
}

/// Frames may come in any order; files in other formats must be decompressed first.
#[test]
fn what_is_compressed_is_read_or_named() {
    let scratch = Scratch::new("compressed");
    let path = scratch.path().join("x");
    let skippable = |bytes: &[u8]| [&[0x5a, 0x2a, 0x4d, 0x18, bytes.len() as u8, 0, 0, 0], bytes].concat();
    let frame = |ios| zstd::encode_all(&lines(&[ios])[..], 3).unwrap();
    let frames = [skippable(b"of a tool"), frame(3), skippable(b""), frame(4)].concat();
    fs::write(&path, &frames).unwrap();
    assert_eq!(read(&path), (vec![3, 4], None));
    let piped = fed(&["latency", "--json", "-i", "-"], &frames);
    quiet(&piped);
    assert_eq!(piped.stdout, lines(&[3, 4]));
    fs::write(&path, skippable(b"alone")).unwrap();
    assert_eq!(read(&path).1.unwrap(), "it has no biopsy.latency/1: it is empty");

    let folder = scratch.path().join("run");
    record_stacks(&folder);
    let mut packed = Vec::new();
    pack(&folder, "run", &mut packed).unwrap();
    let said = |bytes: &[u8], why: &str| {
        fs::write(&path, bytes).unwrap();
        refused(&run(&["latency", "-i", text(&path)]), 1, &[&format!("x: {why}: decompress it first (`")]);
        refused(&fed(&["locks", "-i", "-"], bytes), 1, &[&format!("stdin: {why}: decompress it first (`")]);
    };
    said(&zstd::encode_all(&packed[..], 3).unwrap(), "it is a packed recording that is compressed by zstd");
    for (tool, by) in [("gzip", "gzip"), ("xz", "xz"), ("bzip2", "bzip2")] {
        fs::write(&path, lines(&[3])).unwrap();
        let output = Command::new(tool).arg("-c").arg(&path).output().unwrap();
        assert!(output.status.success(), "{tool}");
        said(&output.stdout, &format!("it is compressed by {by}"));
        if tool != "gzip" {
            let words = &["flame", "-i", text(&path), "-o", "-"];
            refused(&run(words), 2, &[&format!("x: it is compressed by {by}: decompress it first")]);
        }
    }
    said(b"\x04\x22\x4d\x18\x64\x40", "it is compressed by lz4");
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
        // The last four bytes are only the checksum.
        let frames = ends.iter().filter(|last| **last <= end + 4).count();
        assert_eq!(all, [3, 4][..frames], "cut at {end}");
        let said = error.unwrap_or_default();
        match (end, ends.contains(&end)) {
            (0, _) => assert!(said.ends_with("it is empty"), "{said}"),
            (_, true) => assert_eq!(said, ""),
            // Without its whole magic number it may be in any format.
            (1..4, _) => assert!(said.starts_with("line 1: it is not JSON: -i takes"), "{said}"),
            _ => assert!(
                said.starts_with("line ") && said.contains("damaged or truncated"),
                "cut at {end}: {said}"
            ),
        }
    }
    // The verb prints the same reason with the name of the file.
    fs::write(&file, &whole[..whole.len() - 9]).unwrap();
    let cut = run(&["latency", "-i", text(&folder), "--json"]);
    one_error(&cut, 1, &["run: line 2: the frame at byte ", "is damaged or truncated"]);
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

/// A tar header with this name and size.
fn header(name: &str, size: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    // As in a hostile archive: set_path would refuse `..`.
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
    // Nothing is written to disk, so that a path is only a name.
    let climbing = of("../../../etc/latency.ndjson.zst", line.len() as u64, &line);
    assert_eq!(said(&climbing), (vec![3], None));
    let long = said(&of("run/latency.ndjson.zst", 1 << 33, &line));
    assert_eq!(long.0, [3], "what is there is read");
    let skipped = said(&of("run/other", 1 << 33, &line)).1.unwrap();
    assert!(
        skipped.contains("it is damaged or truncated at byte 0") && skipped.contains("bytes are missing"),
        "{skipped}"
    );
    let mut broken = of("run/latency.ndjson.zst", line.len() as u64, &line);
    broken[0] ^= 1;
    assert_eq!(said(&broken).1.unwrap(), "it is damaged or truncated at byte 0");
    let none = [of("\u{1b}[31m.ndjson.zst", 0, b""), vec![0; 1024]].concat();
    assert_eq!(said(&none).1.unwrap(), "it has no latency, only \\u{1b}[31m");
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
    assert!(
        wide.starts_with("line 1: the frame at byte 0 or the next one is damaged or truncated"),
        "{wide}"
    );
}

proptest! {
    /// Each frame has a checksum: a flipped bit never gives another number.
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

/// Recordings of earlier versions, on any kernel, are readable by each later version.
#[test]
fn recordings_of_every_release_stay_readable() {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let mut read = 0;
    for entry in fs::read_dir(all).unwrap().flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|kind| kind != "tar") {
            continue;
        }
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
                let part = if view == "flame" { "stacks" } else { view };
                refused(&output, 1, &[&format!("it has no {part}, only ")]);
            }
        }
    }
    assert!(read >= 10, "{read}");
}

/// The profile of a second, made of samples of stacks, as `record` writes it.
fn profile(second: i64, samples: &[(&[&str], u64)]) -> Vec<u8> {
    let mut profile = Profile::new(Unit::Samples);
    for (names, value) in samples {
        let area = |at| if at == 0 { Area::Label } else { Area::User };
        let ids: Vec<u32> = (0..).zip(*names).map(|(at, name)| profile.frame(*name, area(at))).collect();
        profile.add(&ids, *value);
    }
    let origin = Origin {
        what: Some(What::OnCpu),
        place: "db1".into(),
        source: "cpu-clock at 99 Hz on 2 CPUs".into(),
        measured: profile.total(),
        user_stacks: [(Ending::Root, profile.total()), (Ending::Short, 1)].into(),
        ..Origin::default()
    };
    let about = About {
        start_ns: (1_800_000_000 + second) * 1_000_000_000,
        duration_ns: 1_000_000_000,
        period: Some(10_101_010),
        comments: origin.comments(),
        unnamed: None,
    };
    pprof::render(&pprof::on_cpu(&profile, 10_101_010), &about)
}

const SECONDS: [&[(&[&str], u64)]; 4] = [
    &[(&["fio", "main", "read"], 5), (&["sh", "main"], 1)],
    &[(&["fio", "main", "read"], 7), (&["fio", "main", "write"], 2)],
    &[],
    &[(&["sh", "main"], 3)],
];

fn record_stacks(at: &Path) {
    record(at, &[3]);
    let mut tape = Tape::create(at, "stacks", &AtomicU64::new(0).into()).unwrap();
    for (second, samples) in (0..).zip(SECONDS) {
        tape.add(&profile(second, samples), &Envelope::default(), 0).unwrap();
    }
    assert_eq!(tape.recorded.intervals, 4);
}

/// The output of `flame` for a recording.
fn drawn(path: &Path, words: &[&str]) -> Vec<u8> {
    let output = run(&[&["flame", "-i", text(path), "-o", "-"], words].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn stacks_of_a_recording_are_drawn_together_in_every_form() {
    let scratch = Scratch::new("stacks");
    let folder = scratch.path().join("run.biopsy");
    record_stacks(&folder);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let stacks = folder.join("stacks");
    assert_eq!((mode(&stacks), mode(&stacks.join("000003.pb.gz"))), (0o700, 0o600));
    // Files that biopsy did not write are neither packed nor read, and neither are incomplete ones.
    for name in ["notes.txt", "000009.pb.gz.new", "0.pb.gz", "+00009.pb.gz"] {
        fs::write(stacks.join(name), "x").unwrap();
    }
    quiet(&run(&["pack", text(&folder)]));
    let packed = scratch.path().join("run.biopsy.tar");
    let by_tar = scratch.path().join("by.tar");
    let mut tar = Command::new("tar");
    let made = tar.arg("-C").arg(scratch.path()).arg("-cf").arg(&by_tar).arg("run.biopsy").status().unwrap();
    assert!(made.success());
    let names = String::from_utf8_lossy(&fs::read(&packed).unwrap()).into_owned();
    assert!(names.contains("run.biopsy/stacks/000003.pb.gz") && !names.contains("000009"));

    const WHOLE: &str = "fio;main;read 12\nfio;main;write 2\nsh;main 4\n";
    for path in [&folder, &packed, &by_tar] {
        let folded =
            |words: &[&str]| String::from_utf8(drawn(path, &[&["--folded"], words].concat())).unwrap();
        assert_eq!(folded(&[]), WHOLE, "{}", path.display());
        assert_eq!(folded(&["--to", "1s"]), "fio;main;read 5\nsh;main 1\n");
        assert_eq!(folded(&["--from", "1s", "--to", "2s"]), "fio;main;read 7\nfio;main;write 2\n");
        assert_eq!(folded(&["--from", "2027-01-15T08:00:03Z"]), "sh;main 3\n");
        let again = scratch.path().join("again.pb.gz");
        fs::write(&again, drawn(path, &["--pprof"])).unwrap();
        assert_eq!(String::from_utf8(drawn(&again, &["--folded"])).unwrap(), WHOLE);
        let picture = String::from_utf8(drawn(path, &[])).unwrap();
        assert!(picture.contains("18 samples in 4.00 s") && picture.contains("db1"), "{picture:.3000}");
        assert!(picture.contains("4 of 22 user stacks (18 %) are cut"), "of all intervals: {picture:.3000}");
        assert!(drawn(path, &["--speedscope"]).starts_with(b"{"));
        let file = scratch.path().join("x.svg");
        let shown = run(&["flame", "-i", text(path), "--json", "-o", text(&file)]);
        let view: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!((&view["what"], &view["total"]), (&"on-cpu".into(), &18.into()), "{view}");
        assert_eq!(view["duration_ns"], 4_000_000_000u64);
    }
    let file = scratch.path().join("diff.svg");
    let same = run(&["flame", "--diff", text(&folder), text(&packed), "-o", text(&file)]);
    assert!(String::from_utf8_lossy(&same.stdout).contains("no frame changed"));
    let words = ["flame", "--diff", text(&folder), text(&packed), "--to", "1s", "-o", text(&file), "--json"];
    let view: serde_json::Value = serde_json::from_slice(&run(&words).stdout).unwrap();
    assert_eq!(view["unit"], "samples");
    refused(&run(&["locks", "-i", text(&folder)]), 1, &["it has no locks, only latency, stacks"]);
    refused(&run(&["locks", "-i", text(&packed)]), 1, &["it has no locks, only latency, stacks"]);
}

#[test]
fn stacks_of_a_packed_recording_are_drawn_from_stdin() {
    let scratch = Scratch::new("stacks-piped");
    let folder = scratch.path().join("run");
    record_stacks(&folder);
    let mut packed = Vec::new();
    pack(&folder, "run", &mut packed).unwrap();
    let words = ["flame", "-i", "-", "-o", "-"];
    let piped = fed(&[&words[..], &["--folded", "--from", "1s"]].concat(), &packed);
    assert_eq!(piped.stdout, drawn(&folder, &["--folded", "--from", "1s"]));
    assert!(piped.status.success());
    let picture = String::from_utf8(fed(&words, &packed).stdout).unwrap();
    assert!(picture.contains("18 samples in 4.00 s") && picture.contains("stdin"), "{picture:.3000}");

    let what = "stdin: it is not a packed recording: give the output of `biopsy pack DIR -o -`, or name a file with -i";
    for bytes in [&lines(&[3])[..], b"", b"fio;main 3\n", &profile(0, SECONDS[0])[..0]] {
        refused(&fed(&words, bytes), 1, &[what]);
    }
    refused(&fed(&words, &profile(0, SECONDS[0])), 1, &["stdin: it is compressed by gzip"]);
    for end in (512..packed.len() - 1024).step_by(256) {
        let cut = fed(&words, &packed[..end]);
        one_error(&cut, 1, &["stdin: "]);
        assert!(cut.stdout.is_empty(), "cut at {end}");
    }
    // Data of a pipe cannot be read twice: an archive in another order can be read from a file only.
    let of = |number: u64| {
        let one = profile(0, SECONDS[0]);
        let mut bytes =
            header(&format!("run/stacks/{number:06}.pb.gz"), one.len() as u64).as_bytes().to_vec();
        bytes.extend(one);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    };
    let turned = [of(1), of(0), vec![0; 1024]].concat();
    refused(
        &fed(&words, &turned),
        1,
        &["stdin: stacks/000000.pb.gz is out of order: write the recording to a file"],
    );
    let none = [header("run/x.ndjson.zst", 0).as_bytes().to_vec(), vec![0; 1024]].concat();
    refused(&fed(&words, &none), 1, &["stdin: it has no stacks, only x"]);
}

#[test]
fn stacks_that_are_damaged_or_not_there_are_named() {
    let scratch = Scratch::new("bad-stacks");
    let folder = scratch.path().join("run");
    record(&folder, &[3]);
    let picture = scratch.path().join("x.svg");
    let said = |path: &Path, words: &[&str], code: i32, with: &[&str]| {
        let output = run(&[&["flame", "-i", text(path), "-o", text(&picture)], words].concat());
        refused(&output, code, with);
    };
    said(&folder, &[], 1, &["run: it has no stacks, only latency"]);
    said(scratch.path(), &[], 2, &["neither a file nor a recording"]);
    fs::remove_dir_all(&folder).unwrap();
    record_stacks(&folder);
    said(&folder, &["--from", "9s"], 1, &["no stacks between --from and --to", "2027-01-15T08:00:00.000Z"]);
    let idle = run(&["flame", "-i", text(&folder), "-o", text(&picture), "--from", "2s", "--to", "3s"]);
    assert!(idle.status.success() && !picture.exists(), "{}", stderr(&idle));
    assert!(stderr(&idle).contains("nothing to draw: the CPUs were idle in 1.00 s"), "{}", stderr(&idle));
    said(&folder.join("stacks/000000.pb.gz"), &["--from", "1s"], 2, &["it is a single profile"]);

    let part = folder.join("stacks/000001.pb.gz");
    let whole = fs::read(&part).unwrap();
    let packed = scratch.path().join("run.tar");
    let pack_again = || {
        let mut bytes = Vec::new();
        pack(&folder, "run", &mut bytes).unwrap();
        fs::write(&packed, &bytes).unwrap();
        bytes
    };
    let bad: [(&[u8], &str); 5] = [
        (&[], "it does not say what its values are"),
        (&whole[..whole.len() / 2], "damaged or truncated"),
        (&whole[..whole.len() - 1], "damaged or truncated"),
        (b"\x00\xff\xff\xff", "at byte 0"),
        (b"fio;main 3\n", "at byte 0 of the profile"),
    ];
    for (bytes, why) in bad {
        fs::write(&part, bytes).unwrap();
        pack_again();
        for path in [&folder, &packed] {
            let name = path.file_name().unwrap().to_str().unwrap();
            said(path, &[], 1, &[&format!("{name}: stacks/000001.pb.gz cannot be read"), "without it", why]);
        }
    }
    fs::remove_file(&part).unwrap();
    symlink(folder.join("stacks/000000.pb.gz"), &part).unwrap();
    said(&folder, &[], 1, &["stacks/000001.pb.gz cannot be read"]);
    fs::remove_file(&part).unwrap();
    assert_eq!(drawn(&folder, &["--folded"]), b"fio;main;read 5\nsh;main 4\n", "without it");
    fs::write(&part, &whole).unwrap();

    // An archive that is cut anywhere: the missing part is named, and nothing is drawn as if it were complete.
    let bytes = pack_again();
    for end in (512..bytes.len() - 1024).step_by(256) {
        fs::write(&packed, &bytes[..end]).unwrap();
        let read = || -> anyhow::Result<usize> {
            let mut profiles = Profiles::open(&packed)?.ok_or_else(|| anyhow::anyhow!("no recording"))?;
            let mut read = 0;
            while let Some((_, bytes)) = profiles.next(1 << 20)? {
                bytes?;
                read += 1;
            }
            Ok(read)
        };
        assert!(read().is_err(), "cut at {end} of {}", bytes.len());
    }
}

#[test]
fn hostile_archives_of_stacks_are_an_answer() {
    let scratch = Scratch::new("hostile-stacks");
    let path = scratch.path().join("x.tar");
    let of = |name: &str, size: u64, body: &[u8]| {
        let mut bytes = header(name, size).as_bytes().to_vec();
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    };
    let one = profile(0, SECONDS[0]);
    let length = one.len() as u64;
    let said = |members: &[Vec<u8>]| {
        fs::write(&path, [&members.concat()[..], &[0; 1024]].concat()).unwrap();
        let output = run(&["flame", "-i", text(&path), "--folded", "-o", "-"]);
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    // Nothing is written to disk, so that a path is only a name.
    let climbing = said(&[of("../../../etc/stacks/000000.pb.gz", length, &one)]);
    assert!(climbing.0 == Some(0) && climbing.1.starts_with("fio;main;read 5\nsh;main 1\n"), "{climbing:?}");
    let twice = said(&[of("a/stacks/000007.pb.gz", length, &one), of("b/stacks/000007.pb.gz", length, &one)]);
    assert!(twice.0 == Some(1) && twice.1.contains("two of its files are stacks/000007.pb.gz"), "{twice:?}");
    let long = said(&[of("a/stacks/000000.pb.gz", 1 << 40, &one)]);
    assert!(long.0 == Some(1) && long.1.contains("stacks/000000.pb.gz cannot be read"), "{long:?}");
    let endless = said(&[of("a/other", u64::MAX / 4, b""), of("a/stacks/000000.pb.gz", length, &one)]);
    assert!(endless.0 == Some(1) && endless.1.contains("damaged or truncated at byte 0"), "{endless:?}");
    let elsewhere = said(&[of("a/000000.pb.gz", length, &one), of("a/x.ndjson.zst", 0, b"")]);
    assert!(elsewhere.0 == Some(1) && elsewhere.1.contains("it has no stacks"), "{elsewhere:?}");
    // Values whose sum overflows.
    let much = profile(0, &[(&["fio"], u64::MAX / 2 + 1)]);
    let more = |second| of(&format!("a/stacks/00000{second}.pb.gz"), much.len() as u64, &much);
    let sum = said(&[more(0), more(1), more(2)]);
    assert!(sum.0 == Some(1) && sum.1.contains("stacks/000002.pb.gz cannot be read"), "{sum:?}");
}
