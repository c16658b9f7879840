use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::super::message::{self, Line};
use super::super::{About, ProfileColumn, on_cpu, render};
use super::*;
use crate::render::folded;

/// Builds a file of another tool. Strings are given as text, ids as numbers.
#[derive(Default)]
struct Other {
    message: message::Profile,
}

impl Other {
    fn new(types: &[(&str, &str)]) -> Self {
        let mut other = Self::default();
        other.id("");
        for (kind, unit) in types {
            let kind = other.id(kind);
            let unit = other.id(unit);
            other.message.sample_type.push(ValueType { kind, unit });
        }
        other
    }

    fn id(&mut self, text: &str) -> i64 {
        let strings = &mut self.message.string_table;
        let place = strings.iter().position(|known| known == text).unwrap_or_else(|| {
            strings.push(text.to_string());
            strings.len() - 1
        });
        place as i64
    }

    fn mapping(&mut self, id: u64, start: u64, limit: u64, offset: u64, file: &str, build_id: &str) {
        let (filename, build_id) = (self.id(file), self.id(build_id));
        self.message.mapping.push(Mapping {
            id,
            memory_start: start,
            memory_limit: limit,
            file_offset: offset,
            filename,
            build_id,
            has_functions: false,
        });
    }

    /// `functions`: innermost first.
    fn location(&mut self, id: u64, mapping_id: u64, address: u64, functions: &[u64]) {
        let line = functions.iter().map(|function_id| Line { function_id: *function_id }).collect();
        self.message.location.push(Location { id, mapping_id, address, line });
    }

    fn function(&mut self, id: u64, name: &str) {
        let name = self.id(name);
        self.message.function.push(Function { id, name, system_name: 0, filename: 0 });
    }

    /// `locations`: leaf first.
    fn sample(&mut self, locations: &[u64], values: &[i64]) {
        self.message.sample.push(Sample { location_id: locations.into(), value: values.into() });
    }

    fn bytes(&self) -> Vec<u8> {
        self.message.encode_to_vec()
    }

    /// As folded text, with the default values.
    fn folded(&self) -> String {
        let bytes = self.bytes();
        let reading = PprofFile::new(&bytes).unwrap();
        folded::render(&reading.profile(&reading.values(None).unwrap(), &[]).unwrap())
    }
}

/// The error, whichever step finds it.
fn refusal(bytes: &[u8]) -> String {
    let all = || {
        let reading = PprofFile::new(bytes)?;
        reading.profile(&reading.values(None)?, &[])
    };
    format!("{:#}", all().unwrap_err())
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn small() -> Other {
    let mut other = Other::new(&[("samples", "count"), ("cpu", "nanoseconds")]);
    other.function(7, "main");
    other.function(9, "inlined");
    other.function(4, "do_syscall_64");
    other.mapping(3, 0x5000, 0x9000, 0x1000, "/usr/bin/x", &"ab".repeat(20));
    other.mapping(2, 0, 0, 0, "[kernel.kallsyms]", "");
    other.location(70, 3, 0x5010, &[9, 7]);
    other.location(80, 2, 0xffff_ffff_8100_0000, &[4]);
    other.location(90, 3, 0x5020, &[]);
    other.sample(&[80, 70], &[2, 20]);
    other.sample(&[90, 70], &[3, 30]);
    other.message.time_nanos = 1_700_000_000_000_000_000;
    other.message.duration_nanos = 5;
    other
}

#[test]
fn a_profile_of_another_tool_is_what_pprof_shows() {
    let mut other = small();
    assert_eq!(other.folded(), "main;inlined;[x]+0x1020 30\nmain;inlined;do_syscall_64_[k] 20\n");
    let bytes = other.bytes();
    let reading = PprofFile::new(&bytes).unwrap();
    assert_eq!((reading.start_ns, reading.duration_ns), (Some(1_700_000_000_000_000_000), Some(5)));
    assert_eq!((reading.period_ns, &reading.origin), (None, &None));
    let place = Place {
        build_id: BuildId::new(&[0xab; 20]),
        file: "/usr/bin/x".into(),
        offset: 0x1020,
        address: None,
    };
    assert_eq!(reading.nameless(), std::slice::from_ref(&place));
    let values = reading.values(None).unwrap();
    assert_eq!((values.name.as_str(), values.unit), ("cpu", Unit::Nanoseconds));
    assert_eq!(values.counts.as_ref().unwrap().name, "samples");

    // An inlined frame is above its caller; the rest is unchanged.
    let names: Vec<Option<Arc<[String]>>> = vec![Some(["outer".into(), "inner".into()].into())];
    let named = reading.profile(&values, &names).unwrap();
    assert_eq!(folded::render(&named), "main;inlined;do_syscall_64_[k] 20\nmain;inlined;outer;inner 30\n");
    assert!(reading.unnamed(&names).is_empty());
    assert_eq!(reading.unnamed(&[None]), BTreeMap::from([("[x]+0x1020".to_string(), place)]));

    let samples = reading.values(Some(Unit::Samples)).unwrap();
    assert_eq!((samples.unit, samples.counts.is_none()), (Unit::Samples, true));
    assert_eq!(reading.profile(&samples, &[]).unwrap().total(), 5);
    // The file's own default, if it states one.
    other.message.default_sample_type = other.id("samples");
    assert_eq!(other.folded(), "main;inlined;[x]+0x1020 3\nmain;inlined;do_syscall_64_[k] 2\n");
}

/// Addresses of mapped processes, of the files' own tables, and unmapped ones.
#[test]
fn a_frame_without_a_name_lies_where_its_file_was_mapped() {
    let id = "0123456789abcdef";
    let mut other = Other::new(&[("wall", "milliseconds")]);
    other.mapping(1, 0x5000, 0x9000, 0x1000, "/x/mapped", id);
    other.mapping(2, 0, 0, 0, "tables", id);
    other.mapping(3, 0x5000, 0, 0, "/boot/vmlinux-6.1", id);
    other.mapping(4, 0x5000, 0x9000, 0, "", "no hexadecimal digits");
    for (number, (mapping, address)) in
        (1..).zip([(1, 0x8fff), (1, 0x9000), (1, 0x4fff), (2, 0x77), (3, 0x6000), (4, 0x6000), (0, 0x42)])
    {
        other.location(number, mapping, address, &[]);
        other.sample(&[number], &[1]);
    }
    other.sample(&[], &[4]);
    assert_eq!(
        other.folded().lines().collect::<Vec<_>>(),
        [
            "[anon]+0x1000 1000000",
            "[anon]+0x42 1000000",
            "[mapped]+0x4fff 2000000",
            "[mapped]+0x9000 1000000",
            "[no stack] 4000000",
            "[tables]+0x77 1000000",
            "[vmlinux-6.1]+0x6000_[k] 1000000"
        ]
    );
    let bytes = other.bytes();
    let reading = PprofFile::new(&bytes).unwrap();
    let known: Vec<(u64, bool, Option<u64>)> =
        reading.nameless().iter().map(|p| (p.offset, p.build_id.is_some(), p.address)).collect();
    assert_eq!(
        known,
        [
            (0x4fff, true, None),
            // Outside of a mapping the file is unknown.
            (0x9000, false, None),
            (0x4fff, false, None),
            (0x77, true, Some(0x77)),
            (0x6000, false, None),
            (0x1000, false, None),
            (0x42, false, None),
        ]
    );
    // Two places with the same label are ambiguous.
    let names = vec![None; 7];
    assert!(!reading.unnamed(&names).contains_key("[mapped]+0x4fff"));
    assert!(reading.unnamed(&names).contains_key("[tables]+0x77"));
}

#[test]
fn a_unit_is_what_the_file_says_and_bytes_are_none() {
    type Taken = Result<(String, Unit, u64), String>;
    let take = |types: &[(&str, &str)], wanted| -> Taken {
        let mut other = Other::new(types);
        other.function(1, "main");
        other.location(1, 0, 0, &[1]);
        other.sample(&[1], &vec![3; types.len()]);
        let bytes = other.bytes();
        let reading = PprofFile::new(&bytes).unwrap();
        let values = reading.values(wanted).map_err(|error| format!("{error:#}"))?;
        Ok((values.name.clone(), values.unit, reading.profile(&values, &[]).unwrap().total()))
    };
    let is = |name: &str, unit, total| -> Taken { Ok((name.to_string(), unit, total)) };
    let heap = [("alloc_objects", "count"), ("alloc_space", "bytes")];
    let perf = [("cycles_sample", "count"), ("cycles_event", "count")];
    let samples = Some(Unit::Samples);
    let time = Some(Unit::Nanoseconds);
    assert_eq!(take(&[("wall", "microseconds")], None), is("wall", Unit::Nanoseconds, 3_000));
    assert_eq!(take(&[("wall", "Seconds")], None), is("wall", Unit::Nanoseconds, 3_000_000_000));
    // Cycles are not samples.
    assert_eq!(take(&perf, None), is("cycles_event", Unit::Events, 3));
    assert_eq!(take(&perf, samples), is("cycles_sample", Unit::Samples, 3));
    assert_eq!(take(&heap, samples), is("alloc_objects", Unit::Events, 3));
    let error = take(&heap, None).unwrap_err();
    assert_eq!(error, "its values are alloc_space in bytes, neither times nor counts");
    let error = take(&heap, time).unwrap_err();
    assert_eq!(error, "it has no times, only alloc_objects in count, alloc_space in bytes");
    assert!(take(&[("cpu", "ns")], samples).unwrap_err().starts_with("it has no counts, only "));
}

#[test]
fn units_are_those_that_pprof_knows() {
    for (words, ns) in [
        (&["ns", "nanosecond", "Nanoseconds"][..], 1),
        (&["us", "µs", "μs", "microseconds"], 1_000),
        (&["ms", "millisecond", "milliseconds"], 1_000_000),
        (&["s", "sec", "secs", "second", "SECONDS"], 1_000_000_000),
        (&["min", "mins", "minute", "minutes"], 60_000_000_000),
        (&["h", "hr", "hrs", "hour", "hours"], 3_600_000_000_000),
        (&["day", "days"], 86_400_000_000_000),
        (&["wk", "wks", "week", "weeks"], 604_800_000_000_000),
        (&["yr", "yrs", "year", "years"], 31_536_000_000_000_000),
    ] {
        for word in words {
            assert_eq!(unit("cpu", word), Some((Unit::Nanoseconds, ns)), "{word}");
        }
    }
    for prefix in ["", "k", "m", "g", "t", "p", "e"] {
        for word in ["b", "B", "byte", "bytes"].map(|word| format!("{prefix}{word}")) {
            assert_eq!(unit("space", &word), None, "{word}");
        }
    }
    for word in ["KiB", "MiB", "GiB", "TiB", "PiB", "kilobyte", "megabytes", "petabyte", "kibibytes"] {
        assert_eq!(unit("space", word), None, "{word}");
    }
    for word in ["count", "", "objects", "gcu", "cycles"] {
        assert_eq!(unit("cpu", word), Some((Unit::Events, 1)), "{word}");
    }
}

#[test]
fn a_stack_may_have_so_many_frames_and_no_more() {
    let stack = |inlined: usize, locations: usize, names: &[Option<Arc<[String]>>]| {
        let mut other = small();
        other.message.sample.clear();
        other.location(1, 0, 0, &vec![7; inlined]);
        other.sample(&vec![1; locations], &[1, 1]);
        let bytes = other.bytes();
        let reading = PprofFile::new(&bytes).unwrap();
        let profile = reading.profile(&reading.values(None).unwrap(), names);
        profile.map(|profile| profile.stacks()[0].frames.len()).map_err(|error| format!("{error:#}"))
    };
    assert_eq!(stack(2, MOST_DEPTH / 2, &[]), Ok(MOST_DEPTH));
    assert!(stack(2, MOST_DEPTH / 2 + 1, &[]).unwrap_err().ends_with("a stack has more than 4096 frames"));
    assert!(stack(MOST_DEPTH + 1, 1, &[]).is_err());
    assert_eq!(stack(0, MOST_DEPTH, &[]), Ok(MOST_DEPTH));
    // Names found on this machine may also be several per frame.
    let names: Vec<Option<Arc<[String]>>> = vec![Some(["a".into(), "b".into()].into()); 2];
    assert_eq!(stack(0, MOST_DEPTH / 2, &names), Ok(MOST_DEPTH));
    assert!(stack(0, MOST_DEPTH, &names).is_err());
}

#[test]
fn names_of_values_are_not_printed_whole() {
    let long = format!("\u{1b}{}", "x".repeat(1 << 19));
    let bytes = Other::new(&vec![(long.as_str(), "bytes"); MOST_VALUES]).bytes();
    let reading = PprofFile::new(&bytes).unwrap();
    for wanted in [None, Some(Unit::Samples), Some(Unit::Nanoseconds)] {
        let error = reading.values(wanted).unwrap_err().to_string();
        assert!(error.contains("\\u{1b}xxx") && error.len() < 1_000, "{error}");
        assert_eq!(
            error.contains("..., 56 more") || error.contains("bytes, 56 more"),
            wanted.is_some(),
            "{error}"
        );
    }
}

/// Comments may all be one long string; comments of other tools are not parsed.
#[test]
fn many_comments_of_others_cost_little() {
    let mut other = small();
    let long = other.id(&"x".repeat(1 << 20));
    let mark = other.id(&format!("biopsy.flame/1 {}", "[".repeat(1 << 19)));
    other.message.comment = [vec![long; 100_000], vec![mark; 100_000]].concat();
    let bytes = other.bytes();
    assert_eq!(PprofFile::new(&bytes).unwrap().origin, None);
    other.message.comment = vec![long, 99];
    assert!(refusal(&other.bytes()).contains("it has no string 99"));
}

#[test]
fn what_is_not_there_is_refused() {
    let damage = |change: &dyn Fn(&mut Other)| {
        let mut other = small();
        change(&mut other);
        refusal(&other.bytes())
    };
    type Damage<'a> = (&'a dyn Fn(&mut Other), &'a str);
    let says: [Damage<'_>; 14] = [
        (&|o| o.sample(&[71], &[1, 1]), "there is no location 71"),
        (&|o| o.sample(&[70], &[1]), "a stack has 1 values, but 2 are declared"),
        (&|o| o.sample(&[70], &[1, -1]), "a value is negative, as in a difference of two profiles"),
        (&|o| o.location(5, 8, 0, &[]), "location 5: there is no mapping 8"),
        (&|o| o.location(5, 3, 0, &[8]), "location 5: there is no function 8"),
        (&|o| o.location(70, 3, 0, &[]), "two locations have the id 70"),
        (&|o| o.function(7, "again"), "two functions have the id 7"),
        (&|o| o.mapping(3, 0, 0, 0, "", ""), "two mappings have the id 3"),
        (&|o| o.message.function[0].name = 99, "it has no string 99, only "),
        (&|o| o.message.function[0].filename = -1, "it has no string -1, only "),
        (&|o| o.message.mapping[0].build_id = i64::MAX, "it has no string 9223372036854775807"),
        (&|o| o.message.default_sample_type = 99, "it has no string 99, only "),
        (&|o| o.message.sample_type.clear(), "it does not say what its values are"),
        (&|o| (0..3).for_each(|_| o.sample(&[70], &[1, i64::MAX])), "add up to more than 2^64"),
    ];
    for (change, words) in says {
        let error = damage(change);
        assert!(error.contains(words), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert!(refusal(b"\0").contains("at byte 0"), "{}", refusal(b"\0"));
    assert!(refusal(&[0x0a, 0x7f, 0]).contains("it is truncated"));
    assert!(
        refusal(&[0x10, 0x01, 0x0a, 0x00]).contains("at byte 0 of the profile: field 2 is not a message")
    );
    assert!(refusal(&[0x0b]).contains("no profile has groups"));
}

/// A small file can expand beyond any memory.
#[test]
fn what_unfolds_without_end_is_refused() {
    let bomb = packed(&vec![0; (4 << 20) + 1]);
    assert!(bomb.len() < 64 << 10);
    assert!(unpacked_within(bomb.clone(), 4 << 20).unwrap_err().to_string().contains("more than 4 MiB"));
    assert_eq!(unpacked_within(bomb, (4 << 20) + 1).unwrap().len(), (4 << 20) + 1);

    // A stack of locations that each expand to many functions.
    let mut deep = small();
    deep.location(1, 0, 0, &vec![7; 60_000]);
    deep.sample(&[1; 1_000], &[1, 1]);
    assert!(refusal(&deep.bytes()).contains("a stack has more than 4096 frames"));
    // Many such stacks.
    let mut many = small();
    many.location(1, 0, 0, &[7; MOST_DEPTH]);
    (0..=MOST_FRAMES / MOST_DEPTH).for_each(|_| many.sample(&[1], &[1, 1]));
    assert!(refusal(&many.bytes()).contains("its stacks have more than 67108864 frames"));
    // A long name in many stacks.
    let mut long = small();
    long.function(1, &"x".repeat(1 << 20));
    long.location(1, 0, 0, &[1]);
    long.sample(&[1; 1_000], &[1, 1]);
    assert!(refusal(&long.bytes()).contains("the names in its stacks have more than 512 MiB"));
    long.function(2, &"x".repeat((1 << 20) + 1));
    assert!(refusal(&long.bytes()).contains("a part of it has more than 1024 KiB"));
    // Only a plausible file name is used in labels.
    let mut path = small();
    path.mapping(9, 0, 0, 0, &"/x".repeat(4_000), "");
    path.location(1, 9, 5, &[]);
    path.sample(&[1], &[0, 1]);
    assert!(path.folded().contains("[anon]+0x5 1\n"));
    // Many empty parts.
    let strings = [0x32, 0].repeat(MOST_ENTRIES + 1);
    assert!(refusal(&strings).contains(&format!("more than {MOST_ENTRIES} strings")));
    let samples = [0x12, 0].repeat(MOST_SAMPLES + 1);
    assert!(refusal(&samples).contains(&format!("more than {MOST_SAMPLES} stacks")));
    let comments = [&[0x6a, 0x80, 0x80, 0x40], vec![0; 1 << 20].as_slice()].concat().repeat(5);
    assert!(refusal(&comments).contains(&format!("more than {MOST_ENTRIES} comments")));
}

#[test]
fn a_file_that_was_packed_is_unpacked() {
    let bytes = small().bytes();
    assert!(is_profile(&bytes) && !is_profile(b"main;read 3\n"));
    let whole = packed(&bytes);
    assert_eq!(unpacked(whole.clone()).unwrap(), bytes);
    assert_eq!(unpacked(bytes.clone()).unwrap(), bytes);
    assert_eq!(unpacked(packed(b"main 3\n")).unwrap(), b"main 3\n");
    for cut in 2..whole.len() {
        assert!(unpacked(whole[..cut].to_vec()).is_err(), "{cut}");
    }
    let mut damaged = whole;
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x55;
    assert!(unpacked(damaged).is_err());
}

/// Any character, with more of those that are special elsewhere.
fn names() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[ ;#0-9.a\\\\xu{}\\[\\]_kijw\n\r\t\u{0}\u{1b}\u{a0}\u{2028}]{0,12}",
        Just("[file]+0x10".to_string()),
        Just("[process]".to_string()),
    ]
}

fn profiles() -> impl Strategy<Value = Profile> {
    let frame = (names(), prop::sample::select(&Area::ALL[..]));
    let stack = (prop::collection::vec(frame, 1..6), 1..1_000_000u64);
    prop::collection::vec(stack, 0..8).prop_map(|stacks| {
        let mut profile = Profile::new(Unit::Samples);
        for (frames, value) in stacks {
            let ids: Vec<u32> = frames.into_iter().map(|(name, area)| profile.frame(name, area)).collect();
            profile.add(&ids, value);
        }
        profile
    })
}

/// The metadata of an on-CPU profile of biopsy.
fn origin() -> Vec<String> {
    Origin { what: Some(What::OnCpu), ..Origin::default() }.comments()
}

proptest! {
    /// Names, areas and values round-trip, whatever the names are.
    #[test]
    fn ours_come_back_as_they_were(profile in profiles(), period in 1..1_000_000u64) {
        let place = |n: u8, address| Place { build_id: BuildId::new(&[n; 20]), file: "/x/file".into(), offset: 0x10, address };
        for (place, sees) in [
            (place(1, Some(0x10)), true),
            (place(2, Some(0x40_0010)), true),
            // Below its own offset, and with an unknown address.
            (place(3, Some(0x8)), true),
            (place(4, None), true),
            (Place { build_id: None, ..place(5, Some(0x40_0010)) }, true),
            (Place { offset: 0x11, ..place(6, Some(0x11)) }, false),
        ] {
            let unnamed = BTreeMap::from([("[file]+0x10".to_string(), place.clone())]);
            let about = About { comments: origin(), unnamed: Some(&unnamed), ..About::default() };
            let file = unpacked(render(&on_cpu(&profile, period), &about)).unwrap();
            prop_assert!(is_profile(&file));
            let reading = PprofFile::new(&file).unwrap();
            let values = reading.values(None).unwrap();
            let names = vec![None; reading.nameless().len()];
            let read = reading.profile(&values, &names).unwrap();
            prop_assert_eq!(&read, &profile);
            prop_assert_eq!(folded::render(&read), folded::render(&profile));
            let user = profile.frames().iter().any(|f| f.name == "[file]+0x10" && f.area == Area::User);
            if user && sees {
                prop_assert_eq!(reading.unnamed(&names), unnamed);
            } else {
                prop_assert!(reading.nameless().is_empty());
            }
            let time = reading.values(Some(Unit::Nanoseconds)).unwrap();
            prop_assert_eq!(reading.profile(&time, &names).unwrap().total(), profile.total() * period);
        }
    }

    /// Two columns, each with its own stacks.
    #[test]
    fn two_values_of_a_stack_come_back(first in profiles(), second in profiles()) {
        let columns = [
            ProfileColumn { kind: "contentions", unit: "count", profile: &first, factor: 1 },
            ProfileColumn { kind: "delay", unit: "nanoseconds", profile: &second, factor: 1 },
        ];
        let file = unpacked(render(&columns, &About::default())).unwrap();
        let reading = PprofFile::new(&file).unwrap();
        let values = reading.values(None).unwrap();
        let read = [&values, values.counts.as_ref().unwrap()].map(|v| folded::render(&reading.profile(v, &[]).unwrap()));
        prop_assert_eq!(read, [folded::render(&second), folded::render(&first)]);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        _ = all_of(bytes);
    }

    /// A file of biopsy or another tool with changed bytes, or truncated.
    #[test]
    fn any_damage_is_read_or_refused(
        profile in profiles(),
        ours in any::<bool>(),
        cut in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let unnamed = BTreeMap::from([(
            "[file]+0x10".to_string(),
            Place { build_id: BuildId::new(&[7; 20]), file: "/x/file".into(), offset: 0x10, address: Some(0x20) },
        )]);
        let about = About { comments: origin(), unnamed: Some(&unnamed), ..About::default() };
        let mut bytes = match ours {
            true => unpacked(render(&on_cpu(&profile, 1_000), &about)).unwrap(),
            false => small().bytes(),
        };
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        _ = all_of(bytes.clone());
        bytes.truncate(cut.index(bytes.len()));
        _ = all_of(bytes);
    }
}

/// Everything that is done with a file.
fn all_of(bytes: Vec<u8>) -> Result<()> {
    let bytes = unpacked(bytes)?;
    let reading = PprofFile::new(&bytes)?;
    let names: Vec<Option<Arc<[String]>>> =
        (0..reading.nameless().len()).map(|n| (n % 2 == 0).then(|| ["a".to_string()].into())).collect();
    reading.unnamed(&names);
    for wanted in [None, Some(Unit::Samples), Some(Unit::Nanoseconds)] {
        let values = reading.values(wanted)?;
        folded::render(&reading.profile(&values, &names)?);
        if let Some(counts) = values.counts {
            reading.profile(&counts, &names)?;
        }
    }
    Ok(())
}
