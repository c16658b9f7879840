use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::analyze::operations::OperationLatency;
use crate::findings::{Diagnosis, Number, Worth};
use crate::rules::fixtures::{Case, hist};
use crate::rules::properties::{CASES, random_case};
use crate::rules::{self, TABLE};

const HOSTILE: &str = "a\x1b[2J\n\u{202e}b";

/// The brief page of a case.
fn brief(case: &Case) -> String {
    let s = case.summaries();
    text_of(case, &rules::diagnose(&s))
}

fn text_of(case: &Case, diagnosis: &Diagnosis) -> String {
    render(&page(case, diagnosis))
}

fn page<'a>(case: &'a Case, diagnosis: &'a Diagnosis) -> Page<'a> {
    Page {
        summaries: case.summaries(),
        diagnosis,
        doubt: None,
        command_status: None,
        report: Some("biopsy-vda-20261125-221207.html"),
        color: false,
    }
}

fn finding(sentence: &str) -> Finding {
    Finding {
        id: "device-bound",
        subject: "vda".into(),
        severity: Severity::Warning,
        confidence: 0.8,
        sentence: sentence.into(),
        numbers: BTreeMap::new(),
        evidence: vec!["21 of 32 I/Os are in the device.".into(), "no CPU above 40 %".into(), "third".into()],
        advice: "Compare with the data sheet (e.g. 4 KiB). Or do less.".into(),
        check: "biopsy load /dev/vda".into(),
        worth: Some(Worth { metric: "iops_ratio".into(), low: 1.0, high: 2.5 }),
    }
}

fn found(findings: Vec<Finding>) -> Diagnosis {
    Diagnosis { findings, not_examined: Vec::new() }
}

/// Adds operations to the case's reads, with these stage means.
fn operations(case: &mut Case, means: [u64; 5]) {
    let ios = case.read().ios;
    let stages = Stage::ALL.into_iter().zip(means).map(|(stage, mean)| (stage, hist(ios, mean, mean)));
    case.read().operations = Some(OperationLatency {
        operations: ios,
        stages: stages.collect(),
        total: hist(ios, means.iter().sum(), means.iter().sum()),
        ..OperationLatency::default()
    });
    case.read().unowned = Some(0);
}

/// A case with everything that a page can show.
fn full() -> Case {
    let mut case = Case::new(60_400, 32);
    operations(&mut case, [47_000, 73_000, 353_000, 51_000, 6_000]);
    case.load.as_mut().unwrap().target = "scratch file in /var/tmp".into();
    case.envelope.lost.ios = 18;
    case.envelope.cost.cpu_percent = Some(7.0);
    case
}

fn content(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.is_empty()).collect()
}

/// Stage and percentage of each row.
fn rows(text: &str) -> Vec<(String, String)> {
    let is_row = |line: &&str| line.starts_with("  ") && line.contains('█');
    let cells = |line: &str| {
        let before = line.split('█').next().unwrap().trim();
        let words: Vec<&str> = before.split_whitespace().collect();
        (words[0].to_string(), words[words.len() - 2..].join(" "))
    };
    text.lines().filter(is_row).map(cells).collect()
}

#[track_caller]
fn fits(text: &str) {
    let lines = content(text);
    assert!((1..=MOST_LINES).contains(&lines.len()), "{} lines:\n{text}", lines.len());
    assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{text}");
    assert!(text.ends_with('\n') && !text.contains("\n\n\n") && !text.starts_with('\n'), "{text:?}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
}

#[test]
fn the_page_is_what_its_readers_know() {
    let case = full();
    let mut others = finding("26 % of vda's bytes were others': fio (4711) 24 %.");
    others.severity = Severity::Note;
    let diagnosis = found(vec![finding("vda is the bottleneck: twice the depth gave +1 % IOPS."), others]);
    let expected = "\
vda   randread 4 KiB, depth 32, 1.00 s, scratch file in /var/tmp
      60.4k IOPS, 236 MiB/s, mean 530 µs, p99 530 µs

vda is the bottleneck: twice the depth gave +1 % IOPS (likely, 0.8).

  device     353 µs  67 %  █████████████████████
  queue     73.0 µs  14 %  ████
  complete  51.0 µs  10 %  ███
  submit    47.0 µs   9 %  ███
  reap      6.00 µs   1 %  █

why     21 of 32 I/Os are in the device; no CPU above 40 %
worth   operations per second × 1.0 to 2.5 (estimate)
next    Compare with the data sheet (e.g. 4 KiB)
also    26 % of vda's bytes were others': fio (4711) 24 %
data    0.03 % of I/Os missed, tracing cost 0.07 CPU
        report: biopsy-vda-20261125-221207.html
";
    let page = Page { report: None, ..page(&case, &diagnosis) };
    let expected_of =
        |report: &str| expected.replace("\n        report: biopsy-vda-20261125-221207.html", report);
    assert_eq!(render(&page), expected_of(""));
    // Both are on one line if there is room.
    let short = Page { report: Some("report.html"), ..page };
    assert_eq!(render(&short), expected_of(" · report: report.html"));
    fits(&render(&short));
}

/// The command is valid shell input, on one line or two.
#[test]
fn the_command_that_tests_the_advice_is_the_one_before_the_last() {
    let case = full();
    let line = |check: &str| {
        let verdict = Finding { check: check.into(), ..finding("It is so.") };
        let text = text_of(&case, &found(vec![verdict]));
        fits(&text);
        text.lines().skip_while(|line| !line.starts_with("next ")).skip(1).collect::<Vec<_>>().join("\n")
    };
    let short = "biopsy compare --vary iodepth=1,2 -- load /var/tmp --scratch";
    assert!(line(short).starts_with(&format!("test    {short}\ndata    ")), "{}", line(short));
    let long = "sudo biopsy compare --vary scheduler=mq-deadline,none -- load '/mnt/a b/some data' --bs 1m";
    assert!(
        line(long).starts_with(
            "test    sudo biopsy compare --vary scheduler=mq-deadline,none -- load \\\n          '/mnt/a b/some data' --bs \
             1m\ndata    "
        ),
        "{}",
        line(long)
    );
    let escaped = format!("biopsy compare --vary iodepth=1,2 -- load 'it'\\''s {}'", "x y".repeat(12));
    assert!(line(&escaped).contains(" -- load \\\n          'it'\\''s x"), "{}", line(&escaped));
    for none in [
        "biopsy load /dev/vda",
        &format!("{short} --name '{}'", "x ".repeat(50)),
        "biopsy compare '\u{202e}'",
    ] {
        assert!(line(none).starts_with("data    "), "{}", line(none));
    }
}

/// The least important part is dropped first, and the shares remain those of all stages.
#[test]
fn what_has_no_place_is_left_out_in_order() {
    let long = "this is a long line of evidence that fills more than half of what two lines can hold";
    let mut first = finding(&["What limits is told in", &"so many words".repeat(10)].join(" "));
    first.evidence = vec![long.into(), "and another one of no more than a few words".into()];
    first.advice =
        "Look at this thing, and at that one, and at yet another, and at all the others that there are."
            .into();
    let diagnosis = found(vec![first, finding("Second."), finding("Third."), finding("Fourth.")]);
    let case = full();
    let why = "691 of 217018 I/Os (0.32 %) were lost (unseen completion 691), more than --max-loss 0.1 % allows: run \
               longer or with less load, or allow more";
    let text = render(&Page { doubt: Some(why), ..page(&case, &diagnosis) });
    fits(&text);
    assert_eq!(rows(&text).iter().map(|row| row.1.as_str()).collect::<Vec<_>>(), ["67 %", "14 %", "10 %"]);
    assert!(text.contains(&format!("why     {}", "this is a long line of evidence")), "{text}");
    assert!(!text.contains("another one") && !text.contains("also"), "{text}");
    assert!(
        text.contains("\nDo not trust this run: 691 of 217018 I/Os") && text.contains("\ndata    "),
        "{text}"
    );
    // With one line less there are four stages, and everything else.
    let text = text_of(&case, &found(vec![finding("First."), finding("Second."), finding("Third.")]));
    assert!(text.contains("also    Second (+1 more: -v)\n") && rows(&text).len() == 5, "{text}");
    fits(&text);
}

#[test]
fn certainty_is_a_word_and_a_number_that_agree() {
    let of = |confidence: f64| {
        let mut verdict = finding("It is so.");
        verdict.confidence = confidence;
        let (sentence, certainty) = verdict_words(&verdict);
        (sentence + &certainty).replace('\u{a0}', " ")
    };
    assert_eq!(of(1.0), "It is so (certain, 1.0).");
    assert_eq!(of(0.897), "It is so (certain, 0.9).");
    assert_eq!(of(0.76), "It is so (likely, 0.76).");
    assert_eq!(of(0.6), "It is so (likely, 0.6).");
    assert_eq!(of(0.594), "It is so (possible, 0.59).");
    assert!(TABLE.iter().any(|(_, rule)| rule.id == NO_VERDICT), "an id of the rules");
    let mut none = Case::new(50, 1);
    none.load = None;
    none.latency.devices.clear();
    assert!(brief(&none).contains("No verdict on this run: no I/O was measured.\n"), "{}", brief(&none));
}

#[test]
fn colour_is_the_severity_of_the_verdict() {
    let case = full();
    for (severity, code) in [(Severity::Note, "1"), (Severity::Warning, "1;33"), (Severity::Critical, "1;31")]
    {
        let mut verdict = finding("It is so.");
        verdict.severity = severity;
        let diagnosis = found(vec![verdict]);
        let page = page(&case, &diagnosis);
        let colored = render(&Page { color: true, doubt: Some("so"), ..page });
        assert!(colored.contains(&format!("\n\x1b[{code}mIt is so (likely, 0.8).\x1b[0m\n")), "{colored:?}");
        assert!(colored.contains("\n\x1b[1mDo not trust this run:\x1b[0m so\n"), "{colored:?}");
        assert!(!render(&page).contains('\x1b'));
    }
}

/// Reads and writes each have a line, and requests have percentiles of their stages only.
#[test]
fn without_a_load_the_classes_are_shown() {
    let mut case = full();
    case.load = None;
    let writes = OpLatency {
        ios: 900,
        bytes: 900 << 12,
        request_stages: BTreeMap::from([(Stage::Device, hist(900, 22_000, 22_000))]),
        ..OpLatency::default()
    };
    case.latency.devices[0].ops.insert(Op::Write, writes);
    let text = brief(&case);
    fits(&text);
    assert!(
        text.starts_with(
            "vda   I/O of all processes, 1.00 s\n      read   60.4k IOPS, 236 MiB/s, operation mean 530 µs"
        ),
        "{text}"
    );
    assert!(
        text.contains("\n      write  900 IOPS, 3.52 MiB/s, mean 22.0 µs, device p99 22.0 µs\n"),
        "{text}"
    );
    let writes = case.latency.devices[0].ops.get_mut(&Op::Write).unwrap();
    (writes.ios, writes.bytes) = (90, 90 << 12);
    assert!(!brief(&case).contains("\n      write "), "a few of 60,400 I/Os have no line");
    case.twin("vdb");
    let page_of = |status| {
        let s = case.summaries();
        let diagnosis = rules::diagnose(&s);
        render(&Page { command_status: status, ..page(&case, &diagnosis) })
    };
    assert!(
        page_of(None).contains(" of all processes, 1.00 s, one of 2 active devices\n"),
        "{}",
        page_of(None)
    );
    assert!(
        page_of(Some(7)).contains("all I/O while the command ran (status 7), 1.00 s, one of"),
        "{}",
        page_of(Some(7))
    );
}

#[test]
fn where_nothing_was_measured_nothing_is_a_dash() {
    let mut case = Case::new(1_000, 1);
    case.load = None;
    case.latency.devices[0] = DeviceLatency { name: "vda".into(), ..DeviceLatency::default() };
    let text = brief(&case);
    fits(&text);
    assert!(text.starts_with("vda   no I/O, 1.00 s\n"), "{text}");
    case.latency.devices.clear();
    assert!(brief(&case).starts_with("no I/O, 1.00 s\n"), "{}", brief(&case));
    assert!(rows(&text).is_empty() && !text.contains(" -\n") && !text.contains("- "), "{text}");
    // A load whose device has no requests of its own.
    let mut case = Case::new(1_000, 1);
    case.latency.devices.clear();
    let text = brief(&case);
    fits(&text);
    assert!(text.starts_with("vda   randread 4 KiB, depth 1, 1.00 s, device\n"), "{text}");
}

#[test]
fn the_load_and_its_target_are_named() {
    let mut case = Case::new(60_000, 32);
    case.failed(3);
    let load = case.load.as_mut().unwrap();
    load.job.numjobs = 4;
    load.job.hipri = true;
    load.target = format!("/mnt/{}/data.bin", "directory/".repeat(9));
    let text = brief(&case);
    fits(&text);
    let first = text.lines().next().unwrap();
    assert!(
        first.starts_with("vda   randread 4 KiB, depth 32, 4 jobs, polled, 1.00 s, file /mnt/d"),
        "{first}"
    );
    assert!(first.contains("...") && first.ends_with("ta.bin"), "{first}");
    assert!(text.lines().nth(1).unwrap().ends_with(", 3 of 60,003 failed"), "{text}");
}

#[test]
fn hostile_names_stay_on_their_line() {
    let mut case = full();
    case.latency.devices[0].name = HOSTILE.repeat(9);
    let load = case.load.as_mut().unwrap();
    load.device = Some(HOSTILE.repeat(9));
    load.target = HOSTILE.repeat(20);
    let mut verdict = finding(&format!("{} is the limit.", HOSTILE.repeat(9)));
    verdict.subject = HOSTILE.repeat(9);
    verdict.evidence = vec![HOSTILE.repeat(40)];
    verdict.advice = HOSTILE.repeat(40);
    let diagnosis = found(vec![verdict.clone(), verdict]);
    let report = HOSTILE.repeat(30);
    let text = render(&Page { doubt: Some(HOSTILE), report: Some(&report), ..page(&case, &diagnosis) });
    fits(&text);
    assert!(!text.contains('\u{202e}') && text.contains("(likely, 0.8)."), "{text}");
    assert!(!rows(&text).is_empty(), "the verdict's device is found by its own name: {text}");
}

/// Device time is 95 % of the block layer's time, and 67 % of an operation: the rows have the one that the verdict
/// states.
#[test]
fn the_rows_have_the_denominator_of_the_verdict() {
    let case = full();
    let text = brief(&case);
    assert!(
        text.contains("is the bottleneck: 67 % of each operation's time is spent in the device"),
        "{text}"
    );
    assert_eq!(rows(&text)[0], ("device".to_string(), "67 %".to_string()), "{text}");
    assert!(!text.contains("block layer only"), "{text}");
    let share = Number::new("device_share_percent", "device stage's share of the I/O");
    let mut of_io = finding("vda is the bottleneck: 95 % of each I/O's time is spent in the device.");
    of_io.numbers.insert(share, 95.0);
    let text = text_of(&case, &found(vec![of_io]));
    assert_eq!(rows(&text)[0], ("device".to_string(), "95 %".to_string()), "{text}");
    assert!(text.contains("█  (block layer only)\n"), "{text}");
}

/// Same for random runs: a stage's share in the sentence equals the one in its row.
#[test]
fn the_denominator_is_the_verdicts_in_any_run() {
    let mut said = 0;
    for seed in 0..CASES {
        let mut case = random_case(seed);
        if seed % 3 == 0 {
            operations(&mut case, [47_000, 73_000, 353_000, 51_000, 9_000].map(|mean| mean * (1 + seed % 7)));
        }
        let diagnosis = rules::diagnose(&case.summaries());
        let (text, verdict) = (text_of(&case, &diagnosis), &diagnosis.findings[0]);
        for (stage, shown) in rows(&text) {
            let named = verdict.numbers.get(format!("{stage}_share_percent").as_str());
            let Some(named) = named.map(|percent| in_percent(percent / 100.0)) else { continue };
            if verdict.sentence.contains(&named) {
                assert_eq!(named, shown, "seed {seed}: {text}");
                said += 1;
            }
        }
    }
    assert!(said > CASES / 100, "{said} sentences with a share");
}

/// Words of any length, some without a space, and some with control characters.
fn words(most: usize) -> impl Strategy<Value = String> {
    let word = prop_oneof![
        8 => "[a-z0-9%,;:.()]{1,12}",
        1 => "[a-z/]{60,120}",
        1 => prop::collection::vec(any::<char>(), 1..6).prop_map(|chars| chars.into_iter().collect::<String>()),
    ];
    prop::collection::vec(word, 0..most).prop_map(|words| words.join(" "))
}

fn any_finding() -> impl Strategy<Value = Finding> {
    let text = (
        words(60),
        prop::collection::vec(words(30), 0..4),
        words(60),
        prop_oneof![Just("vda".to_string()), words(3)],
    );
    (text, 0.0..=1.0f64, prop::option::of(1.0..9.0f64)).prop_map(
        |((sentence, evidence, advice, subject), confidence, high)| {
            let worth = high.map(|high| Worth { metric: "iops_ratio".into(), low: 1.0, high });
            let check = format!("biopsy compare --vary iodepth=1,2 -- load '{subject}'");
            Finding { subject, confidence, evidence, advice, check, worth, ..finding(&sentence) }
        },
    )
}

proptest! {
    #[test]
    fn a_page_has_at_most_14_lines_of_80_columns(
        findings in prop::collection::vec(any_finding(), 0..5),
        (ios, depth, jobs) in (1..3_000_000u64, 1..4096u32, 1..64u32),
        means in prop::option::of(prop::array::uniform5(1..3_000_000_000u64)),
        names in (words(3), words(9), words(9)),
        doubt in prop::option::of(words(40)),
        (has_load, several, status) in (any::<bool>(), any::<bool>(), prop::option::of(any::<i32>())),
        (lost, cost) in (0..9_000u64, prop::option::of(0.0..200.0f64)),
    ) {
        let mut case = Case::new(ios, depth);
        if let Some(means) = means {
            operations(&mut case, means);
        }
        (case.envelope.lost.ios, case.envelope.cost.cpu_percent) = (lost, cost);
        let (device, target, report) = names;
        let load = case.load.as_mut().unwrap();
        (load.job.numjobs, load.target, load.device) = (jobs, target, Some(device.clone()));
        case.latency.devices[0].name = device;
        if several {
            case.twin("nvme0n1");
        }
        if !has_load {
            case.load = None;
        }
        let diagnosis = found(findings);
        let page = Page {
            doubt: doubt.as_deref(),
            command_status: status,
            report: Some(&report).filter(|path| !path.is_empty()).map(String::as_str),
            ..page(&case, &diagnosis)
        };
        let text = render(&page);
        fits(&text);
        if doubt.is_some() {
            prop_assert!(text.contains("\nDo not trust this run:"), "{}", text);
        }
        prop_assert!(text.contains("\ndata    "), "{}", text);
        if !diagnosis.findings.is_empty() {
            let said = ["(certain, ", "(likely, ", "(possible, "];
            prop_assert!(said.iter().any(|word| text.contains(word)), "{}", text);
        }
    }

    /// Determined by the rules themselves, for any stage times.
    #[test]
    fn shares_add_up_and_are_those_of_the_verdict(
        requests in prop::array::uniform2(1_000..3_000_000u64),
        means in prop::option::of(prop::array::uniform5(1_000..3_000_000u64)),
        depth in 1..64u32,
        has_load in any::<bool>(),
    ) {
        let mut case = Case::new(10_000, depth);
        case.stage(Stage::Queue, requests[0], 1_000);
        case.stage(Stage::Device, requests[1], 1_000);
        if let Some(means) = means {
            operations(&mut case, means);
        }
        if !has_load {
            case.load = None;
        }
        let s = case.summaries();
        let diagnosis = rules::diagnose(&s);
        let text = text_of(&case, &diagnosis);
        fits(&text);
        let rows = rows(&text);
        let percent = |row: &(String, String)| row.1.split(' ').next().unwrap().parse::<f64>().unwrap();
        let sum: f64 = rows.iter().map(percent).sum();
        let all = shares::of(&case.latency.devices[0], has_load, diagnosis.findings.first()).unwrap();
        let hidden: f64 = all.rows.iter().skip(rows.len()).map(|row| row.share * 100.0).sum();
        prop_assert!((sum + hidden - 100.0).abs() <= 0.5 * rows.len() as f64, "{} {}\n{}", sum, hidden, text);
        let verdict = &diagnosis.findings[0].sentence;
        if let Some((before, _)) = verdict.split_once(" of their time in the block layer inside the device") {
            let named = before.rsplit("spend ").next().unwrap().to_string();
            prop_assert!(rows.contains(&("device".to_string(), named)), "{}\n{}", verdict, text);
        }
    }
}
