use super::*;
use crate::analyze::flame_diff::{DiffSide, compare};
use crate::analyze::profile::folded;
use crate::analyze::profile::{Area, Profile};

fn text(comparison: &Comparison) -> String {
    super::text(comparison, None)
}

fn compared(before: &str, after: &str, basis: Basis) -> Comparison {
    let [before, after] = [before, after].map(|text| folded::parse(text, Unit::Samples).unwrap());
    let side = |profile| DiffSide { profile, events: None, what: None };
    compare(side(&before), side(&after), basis).unwrap()
}

/// Modelled on source T: none, then mq-deadline with 2.19 times the CPU time per I/O.
fn schedulers() -> Comparison {
    compared(
        "fio;get_io_u 890\nfio;blk_mq_submit_bio_[k] 1030\nfio;blk_mq_submit_bio_[k];nvme_queue_rq_[k] 480\n\
         fio;old_way_[k] 570\n",
        "fio;get_io_u 410\nfio;blk_mq_submit_bio_[k] 470\nfio;ktime_get_[k] 2\n\
         fio;blk_mq_submit_bio_[k];blk_mq_do_dispatch_sched_[k];_raw_spin_lock_[k] 1848\n\
         fio;blk_mq_submit_bio_[k];blk_mq_do_dispatch_sched_[k];nvme_queue_rq_[k] 240\n",
        Basis::Ios { before: 11_500_000, after: 5_250_000 },
    )
}

#[test]
fn the_table_says_what_moved_appeared_and_vanished() {
    let text = text(&schedulers());
    assert!(text.starts_with("samples per million I/Os: 258 before, 566 after (+119.0 %)\n"), "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[3].trim_start().starts_with("frame") && lines[3].contains("95 % interval"), "{text}");
    let row: Vec<&str> = lines[4].split_whitespace().collect();
    assert_eq!(row[..4], ["_raw_spin_lock", "0", "352", "+352"], "{text}");
    assert!(row.contains(&"yes"), "{text}");
    let get = lines.iter().find(|line| line.contains("get_io_u")).unwrap();
    assert!(get.contains(" no "), "{text}");
    assert!(text.contains("2 frames that appeared, in samples per million I/Os with callees\n"), "{text}");
    assert!(text.contains("398  blk_mq_do_dispatch_sched"), "{text}");
    assert!(text.contains("1 frame that vanished") && text.contains("49.6  old_way"), "{text}");
    assert!(text.contains("1 frame more on one side only, too few to be significant"), "{text}");
}

#[test]
fn the_picture_says_what_became_of_each_frame() {
    let drawn =
        inline(&schedulers(), &Caption::new("none against mq-deadline", ""), &Options::default()).unwrap();
    for part in [
        "_raw_spin_lock (before 0, after 352 samples per million I/Os, new)",
        "old_way (before 49.6, after 0 samples per million I/Os, gone)",
        "all (before 258, after 566 samples per million I/Os, +119.0 %)",
        "Width: before and after together, in samples per million I/Os.",
        ">gone</text>",
        ">new</text>",
    ] {
        assert!(drawn.contains(part), "{part}\n{drawn}");
    }
    let colour = |name: &str| {
        let frame = drawn.split("<g><title>").find(|frame| frame.starts_with(name)).unwrap();
        frame.split_once("fill=\"").unwrap().1[..7].to_string()
    };
    assert_eq!(colour("_raw_spin_lock "), colours::CHANGES[8]);
    assert_eq!(colour("old_way "), colours::CHANGES[0]);
    assert_eq!(colour("get_io_u "), colours::CHANGES[4]);
    let file = file(&schedulers(), &Caption::new("x", "y"), &Options::default()).unwrap();
    assert!(file.starts_with(b"<?xml"));
}

/// Each colour must be closest to its own word.
#[test]
fn each_step_of_the_legend_stands_by_its_word() {
    let drawn = inline(&schedulers(), &Caption::new("x", "y"), &Options::default()).unwrap();
    let legend = drawn.split("class=\"legend\">").nth(1).unwrap().split("</g>").next().unwrap();
    let attribute = |part: &str, name: &str| {
        part.split_once(&format!("{name}=\"")).unwrap().1.split('"').next().unwrap().to_string()
    };
    let number = |part: &str, name: &str| attribute(part, name).parse::<f64>().unwrap();
    let mut said: Vec<(Vec<String>, String)> = Vec::new();
    let (mut steps, mut end) = (Vec::new(), f64::NEG_INFINITY);
    for part in legend.split('<').filter(|part| part.starts_with(['r', 't'])) {
        let gap = number(part, "x") - end;
        if part.starts_with("rect") {
            assert!(if steps.is_empty() { gap > 12.0 } else { gap == 0.0 }, "{gap}: {legend}");
            steps.push(attribute(part, "fill"));
            end = number(part, "x") + number(part, "width");
        } else {
            assert!(gap < 8.0, "{gap}: {legend}");
            let word = part.split_once('>').unwrap().1.to_string();
            end = number(part, "x") + 7.0 * word.len() as f64;
            said.push((std::mem::take(&mut steps), word));
        }
    }
    let words: Vec<&str> = said.iter().map(|(_, word)| word.as_str()).collect();
    assert_eq!(words, ["gone", "less", "the same", "more", "new"]);
    assert_eq!(said.iter().map(|(steps, _)| steps.len()).collect::<Vec<_>>(), [1, 3, 1, 3, 1]);
    assert_eq!(said.into_iter().flat_map(|(steps, _)| steps).collect::<Vec<_>>(), colours::CHANGES);
}

#[test]
fn no_table_where_no_frame_moved() {
    let same = "a;b 10\na;c 30\n";
    let twice = "a;b 20\na;c 60\n";
    for (before, after, basis) in [
        (same, same, Basis::Share),
        (same, twice, Basis::Share),
        (same, twice, Basis::Ios { before: 10, after: 20 }),
    ] {
        let text = text(&compared(before, after, basis));
        assert!(text.contains("no frame changed: all values") && !text.contains("certain"), "{text}");
    }
    let text = text(&compared("a;b;c 100\n", "a;d;c 100\n", Basis::Share));
    assert!(
        text.contains("no frame's self value changed") && text.contains("1 frame that appeared"),
        "{text}"
    );
}

#[test]
fn shares_are_percent() {
    let text = text(&compared("a;b 1\na;c 3", "a;b 3\na;c 1", Basis::Share));
    assert!(text.starts_with("% of all: 100 before, 100 after\n"), "{text}");
    let b = text.lines().find(|line| line.trim_start().starts_with("b ")).unwrap();
    assert_eq!(b.split_whitespace().collect::<Vec<_>>()[..4], ["b", "25.0", "75.0", "+50.0"], "{text}");
}

#[test]
fn hostile_names_stay_text() {
    let hostile = "</text><script>alert(1)</script>\u{1b}[2J\u{202e}";
    let mut profiles = [Profile::new(Unit::Samples), Profile::new(Unit::Samples)];
    for profile in &mut profiles {
        let id = profile.frame(hostile, Area::Label);
        profile.add(&[id], 100);
    }
    let other = profiles[1].frame(format!("{hostile}new"), Area::Label);
    profiles[1].add(&[other], 100_000);
    let side = |profile| DiffSide { profile, events: None, what: None };
    let comparison = compare(side(&profiles[0]), side(&profiles[1]), Basis::Share).unwrap();
    let drawn = inline(&comparison, &Caption::new(hostile, hostile), &Options::default()).unwrap();
    assert!(!drawn.contains("<script>") && drawn.contains("&lt;script&gt;"));
    for out in [text(&comparison), drawn] {
        assert!(!out.contains(['\u{1b}', '\u{202e}']));
    }
}

#[test]
fn times_without_numbers_say_that_nothing_is_known() {
    let mut profiles = [Profile::new(Unit::Nanoseconds), Profile::new(Unit::Nanoseconds)];
    for (profile, value) in profiles.iter_mut().zip([1_000_000, 4_000_000]) {
        let id = profile.frame("fio", Area::Label);
        profile.add(&[id], value);
    }
    let side = |profile| DiffSide { profile, events: None, what: None };
    for (basis, unit) in [
        (Basis::Ios { before: 1_000, after: 1_000 }, "ns per I/O: 1000 before, 4000 after (+300.0 %)"),
        (
            Basis::Time { before: 1_000_000, after: 1_000_000 },
            "threads on average: 1.00 before, 4.00 after (+300.0 %)",
        ),
    ] {
        let text = text(&compare(side(&profiles[0]), side(&profiles[1]), basis).unwrap());
        assert!(text.starts_with(unit) && text.contains("unknown"), "{text}");
    }
}
