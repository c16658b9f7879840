use proptest::prelude::*;

use super::*;
use crate::analyze::profile::Unit;
use crate::analyze::profile::folded::parse;
use crate::analyze::profile::folded::tests::of;

#[test]
fn a_profile_is_text_as_other_tools_read_it() {
    let profile = of(&[
        (&[("fio", Area::Label), ("main", Area::User), ("blk_mq_submit_bio", Area::Block)], 30),
        (&[("fio", Area::Label), ("main", Area::User)], 5),
        (&[("kworker/0:1", Area::Label), ("osq_lock", Area::Lock)], 2),
    ]);
    assert_eq!(
        render(&profile),
        "fio;main 5\nfio;main;blk_mq_submit_bio_[k] 30\nkworker/0:1;osq_lock_[k] 2\n"
    );
    assert_eq!(parse(&render(&profile), Unit::Samples).unwrap(), profile);
    assert_eq!(render(&Profile::new(Unit::Samples)), "");
}

#[test]
fn names_that_look_like_syntax_come_back() {
    for (name, text) in [
        ("a;b", "a\\x3bb"),
        ("a\nb\r", "a\\x0ab\\x0d"),
        (" padded ", "\\x20padded\\x20"),
        ("\u{a0}wide\u{3000}", "\\u{a0}wide\\u{3000}"),
        (" ", "\\x20"),
        ("", "\\u{}"),
        ("# no comment", "\\x23 no comment"),
        ("fake_[k]", "fake_[k\\x5d"),
        ("C:\\x41", "C:\\x5cx41"),
        ("operator new [] (std::size_t)", "operator new [] (std::size_t)"),
        ("\u{202e}evil\u{1b}[2J", "\\u{202e}evil\\x1b[2J"),
    ] {
        let profile = of(&[(&[(name, Area::Label), (name, Area::User)], 9)]);
        assert_eq!(render(&profile), format!("{text};{text} 9\n"));
        assert_eq!(parse(&render(&profile), Unit::Samples).unwrap(), profile, "{name:?}");
    }
    // A module's name is not a suffix, and a suffix is removed only once.
    let profile = of(&[(&[("fake_[k]", Area::Kernel), ("f [nvme]", Area::Kernel)], 1)]);
    assert_eq!(render(&profile), "fake_[k\\x5d_[k];f [nvme]_[k] 1\n");
    assert_eq!(parse(&render(&profile), Unit::Samples).unwrap(), profile);
}

/// Only frames directly before a count.
#[test]
fn a_number_behind_a_blank_is_escaped_where_a_stack_ends_in_it() {
    for (name, leaf) in [("worker 7", "worker\\x207"), ("v 1.5", "v\\x201.5"), ("a 1 2", "a 1\\x202")] {
        let profile = of(&[
            (&[(name, Area::Label), ("f", Area::User)], 3),
            (&[("a", Area::Label), (name, Area::User)], 9),
        ]);
        assert_eq!(render(&profile), format!("a;{leaf} 9\n{name};f 3\n"));
        assert_eq!(parse(&render(&profile), Unit::Samples).unwrap(), profile);
        // All tools must see a single frame.
        let both = of(&[(&[(name, Area::Label)], 3), (&[(name, Area::Label), ("f", Area::User)], 9)]);
        assert_eq!(render(&both), format!("{leaf} 3\n{leaf};f 9\n"));
        // Both are parsed in any position.
        assert_eq!(parse(&format!("a;{leaf} 9\n{leaf};f 3\n"), Unit::Samples).unwrap(), profile);
    }
    // A suffix separates the number from the count.
    let profile = of(&[(&[("run queue of CPU 0", Area::Label), ("f 1", Area::Kernel)], 9)]);
    assert_eq!(render(&profile), "run queue of CPU 0;f 1_[k] 9\n");
    assert_eq!(parse(&render(&profile), Unit::Samples).unwrap(), profile);
}

/// Any character, with more of those that are special in a line.
fn names() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[ ;#0-9.a\\\\xu{}\\[\\]_kijw\n\r\t\u{a0}\u{2028}]{0,12}"]
}

proptest! {
    #[test]
    fn any_names_come_back(stacks in prop::collection::vec(
        (prop::collection::vec((names(), any::<bool>()), 1..6), 1..1_000_000u64), 0..8)
    ) {
        let mut profile = Profile::new(Unit::Nanoseconds);
        for (frames, value) in &stacks {
            let ids: Vec<u32> = frames.iter().enumerate().map(|(i, (name, kernel))| {
                let user = if i == 0 { Area::Label } else { Area::User };
                profile.frame(name.clone(), if *kernel { Area::of_kernel(name) } else { user })
            }).collect();
            profile.add(&ids, *value);
        }
        let text = render(&profile);
        prop_assert_eq!(text.lines().count(), profile.stacks().len());
        prop_assert_eq!(parse(&text, Unit::Nanoseconds).unwrap(), profile);
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>(), lines in "([ -~]{0,20} ?[0-9]{0,21}\n){0,4}") {
        for text in [text, lines] {
            match parse(&text, Unit::Samples) {
                Ok(profile) => prop_assert_eq!(parse(&render(&profile), Unit::Samples).unwrap().total(), profile.total()),
                Err(error) => prop_assert!(error.to_string().starts_with("line ")),
            }
        }
    }
}

/// inferno reads the same stacks, whatever the names are: no line is dropped, and no part of a name becomes a count or
/// a frame.
#[test]
fn inferno_reads_the_same_stacks() {
    let names = [
        "a;b",
        "a\nb",
        "worker 7",
        "v 1.5",
        " padded ",
        "\u{a0}wide\u{3000}",
        " ",
        "",
        "# no comment",
        "fake_[k]",
        "C:\\x41",
        "7",
        "\u{202e}evil\u{1b}[2J",
        "--",
        "operator new [] (unsigned long)",
    ];
    let mut profile = Profile::new(Unit::Samples);
    for (value, name) in (1..).zip(names) {
        for area in [Area::Label, Area::Kernel] {
            let ids = [profile.frame(name, area), profile.frame(name, Area::User), profile.frame(name, area)];
            profile.add(&ids, value);
            profile.add(&ids[..1], 1);
        }
    }
    let text = render(&profile);
    let mut out = Vec::new();
    let mut options = inferno::flamegraph::Options::default();
    options.min_width = 0.0;
    inferno::flamegraph::from_lines(&mut options, text.lines(), &mut out).unwrap();
    let picture = String::from_utf8(out).unwrap();
    assert!(picture.contains(&format!("all ({} samples, 100%)", profile.total())));
    // Without a percentage, which two counts in a line would cause.
    assert!(!picture.contains("%; "));
    let frames = picture.matches("<g><title>").count();
    assert_eq!(frames, 1 + names.len() * 2 * 3);
}
