use super::*;
use crate::analyze::stacks::escape;

pub(crate) fn of(stacks: &[(&[(&str, Area)], u64)]) -> Profile {
    let mut profile = Profile::new(Unit::Samples);
    for (frames, value) in stacks {
        let ids: Vec<u32> = frames.iter().map(|(name, area)| profile.frame(*name, *area)).collect();
        profile.add(&ids, *value);
    }
    profile
}

/// A thread or user function may have a name like that of a kernel frame.
#[test]
fn a_user_frame_is_not_taken_for_the_kernels() {
    for name in ["nvme_poll_[k]", "x_[j]", "_[k]"] {
        let mut text = String::new();
        escape(name.as_bytes(), &mut text);
        let key = BTreeMap::from([(format!("a;{text}"), 1)]);
        let profile = super::profile(&key, Unit::Samples);
        let frame = profile.frames().iter().find(|frame| frame.name != "a").unwrap();
        assert_eq!((frame.name.as_str(), frame.area), (name, Area::User));
    }
    let mut text = String::from("a_");
    escape(b"[k]", &mut text);
    assert_eq!(text, "a_[k]");
}

#[test]
fn text_of_other_tools_is_read() {
    let text = "# captured on: today\r\n\r\nperf;main;[unknown] 3\r\n\
                perf;main;inlined_[i];C:\\path\t4\nperf;read_[k];nvme_queue_rq_[k] 5\nperf;idle 0\n";
    let profile = parse(text, Unit::Samples).unwrap();
    let expected = of(&[
        (&[("perf", Area::Label), ("main", Area::User), ("[unknown]", Area::User)], 3),
        (
            &[("perf", Area::Label), ("main", Area::User), ("inlined", Area::User), ("C:\\path", Area::User)],
            4,
        ),
        (&[("perf", Area::Label), ("read", Area::Kernel), ("nvme_queue_rq", Area::Driver)], 5),
    ]);
    assert_eq!(profile, expected);
}

#[test]
fn a_line_that_is_none_is_named() {
    for (text, says) in [
        ("a;b 1\n\na;b\n", "line 3 is not folded text: a count is missing at its end"),
        ("a;b 1.5", "line 1 is not folded text: '1.5' is not an integer below 2^64"),
        ("a;b -1", "line 1 is not folded text: '-1' is not an integer below 2^64"),
        (" 7", "line 1 is not folded text: there is no stack before the count"),
        ("a 18446744073709551616", "'18446744073709551616' is not an integer below 2^64"),
        (
            "a 18446744073709551615\nb 1",
            "line 2 is not folded text: up to here the counts add up to more than 2^64",
        ),
    ] {
        let error = format!("{:#}", parse(text, Unit::Samples).unwrap_err());
        assert!(error.ends_with(says), "{error}");
    }
}

#[test]
fn what_is_no_code_has_an_area_of_its_own() {
    let profile =
        parse("fio;[io_uring workers];io_read_[k];[device] 3\nfio;[queue];main 1\n", Unit::Samples).unwrap();
    let area = |name: &str| profile.frames().iter().find(|frame| frame.name == name).unwrap().area;
    assert_eq!((area("[io_uring workers]"), area("[device]")), (Area::Label, Area::Stage));
    // A stage must be the leaf.
    assert_eq!(area("[queue]"), Area::User);
}

#[test]
fn what_was_folded_before_is_a_profile() {
    let folded = BTreeMap::from([("a b 7;x\\x3by;do_sys_[k]".to_string(), 3), ("a b 7".to_string(), 4)]);
    let expected = of(&[
        (&[("a b 7", Area::Label), ("x;y", Area::User), ("do_sys", Area::Kernel)], 3),
        (&[("a b 7", Area::Label)], 4),
    ]);
    assert_eq!(profile(&folded, Unit::Samples), expected);
}

#[test]
fn a_stack_without_end_is_refused() {
    let line = |frames: usize| format!("a 1\n{} 1\n", vec!["f"; frames].join(";"));
    assert_eq!(parse(&line(MOST_DEPTH), Unit::Samples).unwrap().stacks()[1].frames.len(), MOST_DEPTH);
    let error = format!("{:#}", parse(&line(MOST_DEPTH + 1), Unit::Samples).unwrap_err());
    assert_eq!(error, "line 2 is not folded text: its stack has more than 4096 frames");
}

#[test]
fn a_long_line_is_not_printed_whole() {
    let error =
        format!("{:#}", parse(&format!("a {}", "\u{1b}".repeat(1 << 20)), Unit::Samples).unwrap_err());
    assert!(error.contains("'\\u{1b}\\u{1b}") && error.len() < 120, "{error}");
}

/// A short line needs little memory, its frames more.
#[test]
fn text_that_is_no_profile_of_a_window_is_refused() {
    let text: String = (0..=MOST_FRAMES).map(|n| format!("{n:x} 1\n")).collect();
    let error = format!("{:#}", parse(&text, Unit::Samples).unwrap_err());
    assert_eq!(error, "line 1048577 is more than a profile has");
}
