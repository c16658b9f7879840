use proptest::prelude::*;

use super::*;
use crate::analyze::profile::folded;

/// Parses folded text; the first frame is a label.
fn of(text: &str) -> Profile {
    folded::parse(text, Unit::Samples).unwrap()
}

fn profile() -> Profile {
    of("fio;main;read_[k] 30\nfio;main;nvme_queue_rq_[k] 10\nkworker/0:1;kthread_[k] 5\n")
}

fn caption() -> Caption {
    Caption {
        what: "on-CPU time".into(),
        place: "db1 · /dev/nvme0n1".into(),
        when: "2026-11-23 16:00:00 UTC".into(),
        kernel: "Linux 6.12.5".into(),
        unit: "cpu-clock at 99 Hz".into(),
        samples: "45 samples".into(),
        loss: "none lost".into(),
        cost: "cost 0.2 % of one CPU".into(),
        notes: vec!["cpu-clock cannot fire with interrupts off.".into()],
    }
}

fn svg(profile: &Profile) -> String {
    String::from_utf8(file(profile, &caption(), &Options::default()).unwrap()).unwrap()
}

fn page(profile: &Profile) -> String {
    inline(profile, &caption(), &Options::default()).unwrap()
}

/// Title, left edge, width and colour of each frame.
fn frames(svg: &str) -> Vec<(String, u64, u64, String)> {
    svg.split("<g><title>")
        .skip(1)
        .map(|frame| {
            let attribute =
                |name: &str| frame.split_once(&format!(" {name}=\"")).unwrap().1.split('"').next().unwrap();
            let title = frame.split("</title>").next().unwrap();
            let number = |name| attribute(name).parse().unwrap();
            (title.to_string(), number("data-x"), number("data-w"), attribute("fill").to_string())
        })
        .collect()
}

#[test]
fn no_samples_no_picture() {
    for (unit, says) in [(Unit::Samples, "no sample"), (Unit::Nanoseconds, "no time"), (Unit::Ios, "no I/O")]
    {
        let error = file(&Profile::new(unit), &caption(), &Options::default()).unwrap_err();
        assert!(error.to_string().starts_with(says), "{error}");
        assert!(inline(&Profile::new(unit), &caption(), &Options::default()).is_err());
    }
}

#[test]
fn one_sample_is_a_picture() {
    let shown = frames(&svg(&of("init 1")));
    let titles: Vec<&str> = shown.iter().map(|(title, ..)| title.as_str()).collect();
    assert_eq!(titles, ["all (1 sample, 100 %)", "init (1 sample, 100 %)"]);
}

#[test]
fn a_picture_shows_names_shares_colours_and_captions_and_is_the_same_each_time() {
    let text = svg(&profile());
    for part in [
        "<?xml",
        "on-CPU time",
        "db1 · /dev/nvme0n1 · 2026-11-23 16:00:00 UTC · Linux 6.12.5",
        "cpu-clock at 99 Hz · 45 samples · none lost",
        "cpu-clock cannot fire with interrupts off.",
    ] {
        assert!(text.contains(part), "{part}");
    }
    let color = |area| colours::of(area).to_string();
    let mut shown = frames(&text);
    shown.sort_by_key(|(title, start, ..)| (*start, title.clone()));
    assert_eq!(
        shown,
        [
            ("all (45 samples, 100 %)".into(), 0, 45, color(Area::Label)),
            ("fio (40 samples, 88.89 %)".into(), 0, 40, color(Area::Label)),
            ("main (40 samples, 88.89 %)".into(), 0, 40, color(Area::User)),
            ("nvme_queue_rq (10 samples, 22.22 %)".into(), 0, 10, color(Area::Driver)),
            ("read (30 samples, 66.67 %)".into(), 10, 30, color(Area::Kernel)),
            ("kthread (5 samples, 11.11 %)".into(), 40, 5, color(Area::Kernel)),
            ("kworker/0:1 (5 samples, 11.11 %)".into(), 40, 5, color(Area::Label)),
        ]
    );
    assert_eq!(svg(&profile()), text);
}

#[test]
fn the_legend_has_the_areas_of_the_picture_and_no_others() {
    let text = svg(&profile());
    let legend = text.split("class=\"legend\"").nth(1).unwrap().split("</g>").next().unwrap();
    let words: Vec<&str> =
        legend.split("</text>").filter_map(|part| part.rsplit_once('>')).map(|(_, w)| w).collect();
    assert_eq!(words, ["thread, lock or group", "user", "kernel", "driver"]);
    assert!(svg(&of("a;b 1\na;c 9999")).contains("too narrow, folded"));
}

#[test]
fn units_are_written_out() {
    let mut time = Profile::new(Unit::Nanoseconds);
    let (a, b) = (time.frame("fio", Area::Label), time.frame("device", Area::Stage));
    time.add(&[a, b], 12_300_000);
    time.add(&[a], 999);
    let titles: Vec<String> =
        frames(&inline(&time, &caption(), &Options { min_share: 0.0, ..Options::default() }).unwrap())
            .into_iter()
            .map(|(title, ..)| title)
            .collect();
    assert_eq!(titles[2], "device (12.3 ms, 99.99 %)");
    let mut ios = Profile::new(Unit::Ios);
    let a = ios.frame("fio", Area::Label);
    ios.add(&[a], 1);
    assert!(page(&ios).contains("fio (1 I/O, 100 %)"));
}

/// The widths of the frames are the values of the stacks, whatever is folded.
#[test]
fn the_widths_add_up() {
    let text = "a;b 940\na;c;x 6\na;c;y 3\na;d 5\ng 46\n";
    let options = Options { min_share: 0.01, ..Options::default() };
    let drawn = inline(&of(text), &caption(), &options).unwrap();
    assert!(drawn.contains("1.4 % of it is in frames narrower than 1 %"), "{drawn}");
    let says_so = |svg: &str| svg.contains(" data-folded=\"\">");
    assert!(says_so(&drawn) && !says_so(&page(&profile())), "what is sought there has at least so much");
    let shown = frames(&drawn);
    let width = |begins: &str| shown.iter().find(|(title, ..)| title.starts_with(begins)).unwrap().2;
    let narrow = ["(narrower than 1 %) (14 samples", "b (940", "g (46", "a (954", "all (1,000"];
    assert_eq!(narrow.map(width), [14, 940, 46, 954, 1000]);
    assert_eq!(shown.len(), 5);
}

/// Sums beyond JavaScript's exact integers: the graph has them in coarser steps, the tooltips exactly.
#[test]
fn huge_values_are_drawn() {
    let mut profile = Profile::new(Unit::Samples);
    let (a, b) = (profile.frame("a", Area::Label), profile.frame("b", Area::Label));
    profile.add(&[a], u64::MAX / 4);
    profile.add(&[b], u64::MAX / 4 * 3);
    let shown = frames(&page(&profile));
    assert_eq!(shown[1].0, "a (4,611,686,018,427,387,903 samples, 25.00 %)");
    assert!(shown.iter().all(|(_, start, held, _)| start + held < 1 << 53));
}

#[test]
fn options_out_of_range_are_refused() {
    for (width, min_share) in [(100, 0.001), (30_000, 0.001), (1200, -0.1), (1200, 0.6), (1200, f64::NAN)] {
        assert!(file(&profile(), &caption(), &Options { width, min_share }).is_err());
    }
    let narrow = inline(&profile(), &caption(), &Options { width: 400, min_share: 0.0 }).unwrap();
    assert!(narrow.contains("viewBox=\"0 0 400 ") && narrow.contains("width=\"400\""));
    // The caption's long line is broken into two.
    assert!(!narrow.contains("16:00:00 UTC · Linux 6.12.5</text>"));
}

/// It must not refer to anything outside itself, because the page has other graphs.
#[test]
fn an_inline_picture_names_nothing_in_the_document() {
    let text = page(&profile());
    assert!(text.starts_with("<svg class=\"flame\"") && text.ends_with("</svg>"), "{text}");
    for part in [
        " id=",
        "<script",
        "<style",
        "onload",
        "<?xml",
        "<!DOCTYPE",
        "url(#",
        "href",
        "http://www.w3.org/1999",
    ] {
        assert!(!text.contains(part), "{part}");
    }
    assert_eq!(text.matches("<svg").count(), 2);
    assert!(!INLINE_SCRIPT.contains("</script") && !INLINE_STYLE.contains("</style"));
    // The file embeds them unescaped, in XML.
    assert!(!INLINE_SCRIPT.contains("]]>") && !INLINE_STYLE.contains(['<', '&']));
}

/// A process chooses its name.
#[test]
fn hostile_names_stay_text() {
    let hostile = "</text><script>alert(1)</script>]]>\"'&\u{1b}[2J\u{0}\u{202e}\n\u{ffff}";
    let mut profile = Profile::new(Unit::Samples);
    let (a, b) = (profile.frame(hostile, Area::Label), profile.frame(hostile, Area::Kernel));
    profile.add(&[a, b], 2);
    let hostile = || hostile.to_string();
    let caption = Caption {
        what: hostile(),
        place: hostile(),
        when: hostile(),
        kernel: hostile(),
        unit: hostile(),
        samples: hostile(),
        loss: hostile(),
        cost: hostile(),
        notes: vec![hostile()],
    };
    let file = String::from_utf8(file(&profile, &caption, &Options::default()).unwrap()).unwrap();
    let page = inline(&profile, &caption, &Options::default()).unwrap();
    let tabs = tabs(&[(&hostile(), page.clone())]);
    for text in [&file, &page, &tabs] {
        assert!(!text.contains("<script>alert") && text.contains("&lt;script&gt;alert(1)"));
        assert!(!text.contains("]]>\"") && !text.contains("]]>&quot;"));
        assert!(!text.contains(['\u{1b}', '\u{0}', '\u{202e}', '\u{ffff}']));
    }
    // Only the script's own section.
    assert_eq!(file.matches("]]>").count(), 1);
    assert_eq!((file.matches("<script>").count(), page.matches("<script").count()), (1, 0));
}

/// Names that look like a count or a comment.
#[test]
fn names_that_look_like_syntax_keep_their_samples() {
    let mut profile = Profile::new(Unit::Samples);
    for name in ["worker 7", "# note", "v 1.5", "#", ";;", "", "all", "00000001", "<g>", "read_[k]"] {
        let id = profile.frame(name, Area::Label);
        profile.add(&[id], 7);
    }
    let text = page(&profile);
    assert!(text.contains("all (70 samples, 100 %)"));
    for title in [
        "worker 7 (7 samples",
        " (7 samples",
        "all (7 samples",
        "&lt;g&gt; (7 samples",
        "read_[k] (7 samples",
    ] {
        assert!(text.contains(&format!("<title>{title}")), "{title}");
    }
    assert_eq!(frames(&text).len(), 11);
}

#[test]
fn a_name_is_cut_where_its_frame_ends() {
    let long = "a_function_with_a_name_that_is_rather_long".repeat(2);
    let text = page(&of(&format!("{long} 1\nb 9")));
    let shown = format!(">{}..</text>", &long[..13]);
    assert!(text.contains(&shown), "{text}");
    // Two cells per character.
    assert!(page(&of(&format!("{} 1\nb 9", "漢".repeat(40)))).contains(">漢漢漢漢漢漢..</text>"));
    // There is no room for a text, so none is written; the script adds it.
    let narrow = page(&of("narrow 1\nb 999"));
    assert!(narrow.contains("narrow (1 sample") && !narrow.contains(">na..<"));
}

/// A byte that is not UTF-8 is one character of a name but eight in the graph.
#[test]
fn a_name_that_is_no_text_stays_in_its_frame() {
    let comm = String::from_utf8_lossy(b"\xff\xff\xff\xff").into_owned();
    let mut profile = Profile::new(Unit::Samples);
    for (name, samples) in [(comm.as_str(), 1), ("b", 9)] {
        let id = profile.frame(name, Area::Label);
        profile.add(&[id], samples);
    }
    let text = page(&profile);
    // The frame is 118 pixels wide, which is room for 15 characters.
    assert!(text.contains(">\\u{fffd}\\u{ff..</text>"), "{text}");
    assert!(text.contains(&format!("<title>{} (1 sample", "\\u{fffd}".repeat(4))), "{text}");
    // Lines of the caption are measured the same way.
    let caption = Caption::new("x", "\u{fffd}".repeat(30));
    let drawn = inline(&profile, &caption, &Options { width: 400, ..Options::default() }).unwrap();
    let lines = drawn.split("<text x=\"10\"").filter_map(|part| part.split_once('>'));
    for line in lines.map(|(_, rest)| rest.split('<').next().unwrap()) {
        assert!(line.len() <= 52, "{line}");
    }
}

#[test]
fn tabs_have_a_name_and_a_picture_each() {
    let text = tabs(&[("on-CPU", page(&profile())), ("off & on", page(&profile()))]);
    assert_eq!(text.matches("<section class=\"pane\">").count(), 2);
    assert!(text.contains("<h3>on-CPU</h3>") && text.contains("<h3>off &amp; on</h3>"));
    assert_eq!(text.matches("<div").count(), text.matches("</div>").count());
    // Nothing is hidden before the script runs.
    assert!(!text.contains("hidden") && !text.contains("class=\"pane off\""));
}

/// A deep and wide profile: invisible frames are folded until the file is small.
#[test]
fn a_large_profile_is_a_small_file() {
    let mut profile = Profile::new(Unit::Samples);
    let names: Vec<u32> =
        (0..3000).map(|i| profile.frame(format!("a_function_of_some_length_{i}"), Area::User)).collect();
    for i in 0..300usize {
        let stack: Vec<u32> = (0..40).map(|depth| names[(i * 7 + depth * 131) % 3000]).collect();
        profile.add(&stack, 1 + (i as u64 % 3));
    }
    let text = svg(&profile);
    assert!(text.len() < 2_000_000, "{}", text.len());
    assert!(text.len() > 500_000 && text.contains("too narrow, folded"), "{}", text.len());
    let all = format!("all ({} samples, 100 %)", count(profile.total()));
    assert!(text.contains(&all));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_name_gives_a_picture_with_all_samples(names in prop::collection::vec(any::<String>(), 1..4)) {
        let mut profile = Profile::new(Unit::Samples);
        let ids: Vec<u32> = names.iter().map(|name| profile.frame(name.clone(), Area::User)).collect();
        profile.add(&ids, 7);
        let text = page(&profile);
        prop_assert!(text.contains("all (7 samples, 100 %)"));
        prop_assert_eq!(frames(&text).len(), names.len() + 1);
        // `<` only begins elements.
        let elements = ["<svg", "</svg", "<text", "</text", "<g", "</g", "<title", "</title", "<rect"];
        let known: usize = elements.iter().map(|e| text.matches(e).count()).sum();
        prop_assert_eq!(text.matches('<').count(), known);
    }
}
