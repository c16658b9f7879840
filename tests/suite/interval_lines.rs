//! Tests the lines of an interval view, from JSON that `--json` printed.

use biopsy::analyze::interrupts::InterruptSummary;
use biopsy::analyze::latency::LatencySummary;
use biopsy::analyze::locks::LockSummary;
use biopsy::analyze::pressure::PressureSummary;
use biopsy::analyze::threads::{GroupColumn, ThreadGroup, ThreadShare, ThreadSummary};
use biopsy::envelope::{Envelope, View};
use biopsy::render::json;

use crate::replay::{fed, second};
use crate::support::tool::{biopsy, finish, refused, run, stderr};

fn lines_of(words: &[&str], bytes: &[u8]) -> Vec<String> {
    let output = fed(words, bytes);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// JSON of seconds with so many reads each.
fn seconds(all: &[u64]) -> Vec<u8> {
    let line = |(at, ios): (usize, &u64)| {
        let (envelope, summary) = second(*ios);
        let start = format!("2026-11-28T20:{:02}:{:02}.000Z", at / 60, at % 60);
        json::view(&Envelope { start, ..envelope }, &summary, None)
    };
    all.iter().enumerate().flat_map(line).collect()
}

#[test]
fn intervals_are_lines() {
    let shown = lines_of(&["latency", "-i", "-", "--utc"], &seconds(&[3, 0, 500]));
    let header = "time device op IO/s MiB/s mean p50 p99 max submit queue device complete reap";
    assert_eq!(shown[1], header);
    assert_eq!(shown[2], "20:00:01 sda\\u{1b}[31m<b> read 3 0.01 2.00 2.02 - 3.00 - - - - -");
    assert_eq!(shown[3], "20:00:02 no I/O");
    assert!(shown[4].starts_with("20:00:03 sda\\u{1b}[31m<b> read 500 1.95 250 "), "{shown:?}");
    // The lines have neither the losses nor the cost.
    let output = fed(&["latency", "-i", "-"], &seconds(&[3, 4]));
    assert!(
        stderr(&output).contains("missed 0 I/Os") && stderr(&output).contains("cost "),
        "{}",
        stderr(&output)
    );
    assert_eq!(
        lines_of(&["latency", "-i", "-"], &seconds(&[3; 50])).iter().filter(|l| **l == header).count(),
        3
    );
}

#[test]
fn one_result_is_no_interval() {
    let one = lines_of(&["latency", "-i", "-"], &seconds(&[3]));
    assert!(one[0].starts_with("sda") && one.iter().any(|line| line.starts_with("bio 2.00")), "{one:?}");
    let long = lines_of(&["latency", "-i", "-", "--long"], &seconds(&[3, 3]));
    assert_eq!(long.iter().filter(|line| line.starts_with("bio 2.00")).count(), 2, "{long:?}");
    let merged = lines_of(&["latency", "-i", "-", "--merge"], &seconds(&[3, 3]));
    assert_eq!(merged.iter().filter(|line| line.starts_with("bio 2.00")).count(), 1, "{merged:?}");
}

#[test]
fn times_are_those_of_this_place_or_of_utc() {
    let hour = |zone: &str, words: &[&str]| {
        let scratch = crate::support::scratch::Scratch::new("zone");
        scratch.write("run.ndjson", &seconds(&[3, 3]));
        let path = scratch.path().join("run.ndjson");
        let path = path.to_string_lossy();
        let words = [&["latency", "-i", &path], words].concat();
        let output = finish(biopsy(&words).env("TZ", zone).spawn().unwrap());
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().nth(2).unwrap().split(':').next().unwrap().to_string()
    };
    assert_eq!((hour("XYZ-3", &[]), hour("XYZ+5", &[])), ("23".to_string(), "15".to_string()));
    assert_eq!(hour("XYZ-3", &["--utc"]), "20");
}

#[test]
fn from_and_to_are_times_as_the_lines_show_them() {
    let scratch = crate::support::scratch::Scratch::new("from");
    scratch.write("run.ndjson", &seconds(&[3; 9]));
    let path = scratch.path().join("run.ndjson");
    let times = |words: &[&str]| -> Vec<String> {
        let path = path.to_string_lossy();
        let words = [&["latency", "-i", &path], words].concat();
        let output = finish(biopsy(&words).env("TZ", "XYZ-3").spawn().unwrap());
        let text = String::from_utf8(output.stdout).unwrap();
        let times = text.lines().filter_map(|line| line.split_whitespace().next());
        times.filter(|word| word.contains(":0")).map(str::to_string).collect()
    };
    // The intervals that began between the two; each line has its end.
    let both = ["23:00:04", "23:00:05"].map(String::from).to_vec();
    for [from, to] in [
        ["23:00:03", "23:00:05"],
        ["20:00:03Z", "23:00:05+03:00"],
        ["2026-11-28T23:00:03", "2026-11-28 23:00:05"],
        ["2026-11-28T20:00:03Z", "5s"],
    ] {
        assert_eq!(times(&["--from", from, "--to", to]), both, "{from} {to}");
    }
    let utc = times(&["--from", "20:00:03", "--to", "20:00:05", "--utc"]);
    assert_eq!(utc, ["20:00:04", "20:00:05"], "--utc is of all times");
    let merged = times(&["--from", "20:00:03", "--utc", "--merge"]);
    assert!(merged.is_empty(), "one result has no lines, and --utc is still the zone of --from: {merged:?}");
}

/// The hour that exists twice where summer time ends: a time in it is the first one after the recording's start.
#[test]
fn a_time_that_exists_twice_is_the_first_one_of_the_recording() {
    let scratch = crate::support::scratch::Scratch::new("twice");
    scratch.write("run.ndjson", &seconds(&[3; 9]));
    let path = scratch.path().join("run.ndjson");
    let path = path.to_string_lossy();
    // The clock is set back by an hour as the recording begins, at 20:00 UTC; or an hour later.
    for (zone, hour) in [("XYZ0ABC,M3.2.0,M11.4.6/21", 20), ("XYZ0ABC,M3.2.0,M11.4.6/22", 21)] {
        let (from, to) = (format!("{hour}:00:03"), format!("{hour}:00:05"));
        let words = ["latency", "-i", &path, "--from", &from, "--to", &to];
        let output = finish(biopsy(&words).env("TZ", zone).spawn().unwrap());
        let text = String::from_utf8(output.stdout).unwrap();
        let times = text.lines().filter_map(|line| line.split_whitespace().next());
        let times: Vec<&str> = times.filter(|word| word.contains(":0")).collect();
        assert_eq!(times, [format!("{hour}:00:04"), format!("{hour}:00:05")], "{text}");
    }
}

#[test]
fn rows_are_sorted_by_a_column() {
    let row = |comm: &str, average_threads: f64, samples: u64| ThreadGroup {
        comm: Some(comm.to_string()),
        share: ThreadShare { samples, average_threads, error: None },
        ..ThreadGroup::default()
    };
    let summary = ThreadSummary {
        columns: vec![GroupColumn::Comm],
        rows: vec![row("a", 1.0, 9), row("b", 2.0, 1)],
        ..ThreadSummary::default()
    };
    let bytes = json::view(&Envelope::default(), &summary, None).repeat(2);
    let first = |sort: &str| lines_of(&["threads", "-i", "-", "--sort", sort], &bytes)[1].clone();
    // A row without times has dashes.
    assert_eq!((first("threads").as_str(), first("samples").as_str()), ("- 2.00 - 1 b", "- 1.00 - 9 a"));
    refused(
        &fed(&["threads", "-i", "-", "--sort", "p99"], &bytes),
        2,
        &["possible values: threads, samples"],
    );
}

#[test]
fn options_of_lines_need_lines() {
    refused(
        &run(&["latency", "--sort", "p99", "--for", "1s"]),
        2,
        &["--sort applies to interval lines", "give an INTERVAL"],
    );
    refused(&run(&["locks", "--utc"]), 2, &["--utc applies to interval lines"]);
    refused(&run(&["interrupts", "1", "--utc", "--json"]), 2, &["without --long and --json"]);
    refused(&run(&["threads", "1", "--utc", "--long"]), 2, &["cannot be used with"]);
}

#[test]
fn every_view_has_lines() {
    fn twice<V: View>(view: &V) -> Vec<u8> {
        json::view(&Envelope { start: "2026-11-28T20:00:00.000Z".into(), ..Default::default() }, view, None)
            .repeat(2)
    }
    let locks = PressureSummary { locks: Some(LockSummary::default()), pagecache: None };
    for (verb, nothing, bytes) in [
        ("latency", "no I/O", twice(&LatencySummary::default())),
        ("interrupts", "no interrupts", twice(&InterruptSummary::default())),
        ("locks", "no lock waits", twice(&locks)),
        ("threads", "no thread runs, or waits uninterruptibly", twice(&ThreadSummary::default())),
    ] {
        let shown = lines_of(&[verb, "-i", "-", "--utc"], &bytes);
        let expected = format!("20:00:00.000 {nothing}");
        assert_eq!(shown.iter().filter(|line| **line == expected).count(), 2, "{shown:?}");
    }
}
