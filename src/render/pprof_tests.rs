use std::io::Read as _;

use flate2::read::GzDecoder;

use super::*;
use crate::analyze::profile::Unit;

fn profile() -> Profile {
    let mut profile = Profile::new(Unit::Samples);
    let frames = [("fio", Area::Label), ("main", Area::User), ("nvme_queue_rq", Area::Driver)];
    let ids: Vec<u32> = frames.iter().map(|(name, area)| profile.frame(*name, *area)).collect();
    profile.add(&ids, 300);
    profile.add(&ids[..2], 5);
    profile
}

fn unpacked(file: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    GzDecoder::new(file).read_to_end(&mut out).unwrap();
    out
}

/// A field's value.
#[derive(Debug, PartialEq)]
enum FieldValue {
    Number(u64),
    Bytes(Vec<u8>),
}

/// Decodes the fields of a message, independently of the writer's code.
fn fields(mut bytes: &[u8]) -> Vec<(u64, FieldValue)> {
    fn number(bytes: &mut &[u8]) -> u64 {
        let end = bytes.iter().position(|b| b & 0x80 == 0).unwrap();
        let (number, rest) = bytes.split_at(end + 1);
        *bytes = rest;
        number.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
    }
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let key = number(&mut bytes);
        let held = match key & 7 {
            0 => FieldValue::Number(number(&mut bytes)),
            2 => {
                let length = number(&mut bytes) as usize;
                let (content, rest) = bytes.split_at(length);
                bytes = rest;
                FieldValue::Bytes(content.to_vec())
            }
            other => panic!("wire type {other}"),
        };
        out.push((key >> 3, held));
    }
    out
}

fn all(fields: &[(u64, FieldValue)], field: u64) -> Vec<&[u8]> {
    let bytes =
        |(number, held): &'_ (u64, FieldValue)| *number == field && matches!(held, FieldValue::Bytes(_));
    fields
        .iter()
        .filter(|f| bytes(f))
        .map(|(_, held)| match held {
            FieldValue::Bytes(bytes) => bytes.as_slice(),
            FieldValue::Number(_) => unreachable!(),
        })
        .collect()
}

fn one(fields: &[(u64, FieldValue)], field: u64) -> u64 {
    match fields.iter().find(|(number, _)| *number == field) {
        Some((_, FieldValue::Number(value))) => *value,
        other => panic!("{field}: {other:?}"),
    }
}

#[test]
fn samples_locations_and_functions_hold_together() {
    let profile = profile();
    let about = About {
        start_ns: 7,
        duration_ns: 1_000,
        period: Some(10_000_000),
        comments: vec!["db1".to_string()],
        unnamed: None,
    };
    let file = render(&on_cpu(&profile, 10_000_000), &about);
    assert_eq!(render(&on_cpu(&profile, 10_000_000), &about), file);
    let fields = fields(&unpacked(&file));
    let strings: Vec<String> =
        all(&fields, 6).iter().map(|s| String::from_utf8(s.to_vec()).unwrap()).collect();
    assert_eq!(strings[0], "");
    let mut once = strings.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), strings.len(), "a string stands in the table once");
    let string = |id: u64| strings[id as usize].as_str();

    let types: Vec<(&str, &str)> = (all(&fields, 1).iter())
        .map(|t| (string(one(&self::fields(t), 1)), string(one(&self::fields(t), 2))))
        .collect();
    assert_eq!(types, [("samples", "count"), ("cpu", "nanoseconds")]);
    let functions: Vec<(u64, &str)> = (all(&fields, 5).iter())
        .map(|f| (one(&self::fields(f), 1), string(one(&self::fields(f), 2))))
        .collect();
    assert_eq!(functions, [(1, "fio"), (2, "main"), (3, "nvme_queue_rq")]);
    let locations = all(&fields, 4);
    assert_eq!(locations.len(), 3);
    for (id, location) in (1..).zip(locations) {
        let location = self::fields(location);
        let line = self::fields(all(&location, 4)[0]);
        assert_eq!((one(&location, 1), one(&line, 1)), (id, id));
        assert_eq!(one(&location, 2), if id == 3 { 1 } else { 2 }, "the kernel's is another mapping");
    }
    // Leaf first; 300 takes two bytes, and the times more.
    let samples: Vec<Vec<(u64, FieldValue)>> = all(&fields, 2).iter().map(|s| self::fields(s)).collect();
    assert_eq!(all(&samples[0], 1), [[2, 1]]);
    assert_eq!(all(&samples[1], 1), [[3, 2, 1]]);
    assert_eq!(all(&samples[1], 2), [[0xac, 0x02, 0x80, 0xbc, 0xc1, 0x96, 0x0b]]);
    assert_eq!((one(&fields, 9), one(&fields, 10), one(&fields, 12)), (7, 1_000, 10_000_000));
    let comment: Vec<&str> = all(&fields, 13)[0].iter().map(|id| string(u64::from(*id))).collect();
    assert_eq!((comment, string(one(&fields, 14))), (vec!["db1"], "cpu"));
}

#[test]
fn two_profiles_are_joined_by_name() {
    let mut delay = Profile::new(Unit::Nanoseconds);
    // Numbered differently, and with a stack that the other column lacks.
    for name in ["other", "main", "fio"] {
        delay.frame(name, if name == "fio" { Area::Label } else { Area::User });
    }
    delay.add(&[2, 1], 70);
    delay.add(&[0], 9);
    let file = render(&contentions(&profile(), &delay), &About::default());
    let fields = fields(&unpacked(&file));
    let values: Vec<Vec<u8>> = all(&fields, 2).iter().map(|s| all(&self::fields(s), 2)[0].to_vec()).collect();
    assert_eq!(values[0], [5, 70]);
    assert_eq!(values[2], [0, 9]);
    assert_eq!(values.len(), 3);
}

/// By file and build-id, at the addresses of the file's own tables, which pprof would look up.
#[test]
fn frames_without_a_name_have_their_place() {
    let mut profile = Profile::new(Unit::Samples);
    let ids = ["fio", "[a]+0x10", "[a]+0x2010", "[b]+0x7"]
        .map(|name| profile.frame(name, if name == "fio" { Area::Label } else { Area::User }));
    profile.add(&ids, 1);
    let at = |file: &str, id: &[u8], offset, address| Place {
        build_id: BuildId::new(id),
        file: file.into(),
        offset,
        address,
    };
    let unnamed = BTreeMap::from([
        ("[a]+0x10".to_string(), at("/x/a", &[1; 20], 0x10, Some(0x400010))),
        ("[a]+0x2010".to_string(), at("/x/a", &[1; 20], 0x2010, Some(0x402010))),
        ("[b]+0x7".to_string(), at("/b", &[], 7, None)),
        ("[c]+0x7".to_string(), at("/c", &[], 7, None)),
    ]);
    let about = About { unnamed: Some(&unnamed), ..About::default() };
    let fields = fields(&unpacked(&render(&on_cpu(&profile, 1), &about)));
    let strings: Vec<String> =
        all(&fields, 6).iter().map(|s| String::from_utf8(s.to_vec()).unwrap()).collect();
    let mappings: Vec<_> = all(&fields, 3).iter().map(|m| self::fields(m)).collect();
    assert_eq!(mappings.len(), 4, "the kernel's, the process's, and those of two files");
    let place = |id: usize| {
        let location = self::fields(all(&fields, 4)[id]);
        let mapping = mappings.iter().find(|m| one(m, 1) == one(&location, 2)).unwrap();
        let number = |field| if mapping.iter().any(|(f, _)| *f == field) { one(mapping, field) } else { 0 };
        let build_id = strings[number(6) as usize].clone();
        (strings[one(mapping, 5) as usize].as_str(), build_id, number(2), number(3), one(&location, 3))
    };
    let id = "01".repeat(20);
    assert_eq!(place(1), ("/x/a", id.clone(), 0x400000, 0x403000, 0x400010));
    assert_eq!(place(2), ("/x/a", id, 0x400000, 0x403000, 0x402010));
    // Its position in the file's own tables is unknown.
    assert_eq!(place(3), ("/b", String::new(), 1 << 40, (1 << 40) + 0x1000, (1 << 40) + 7));
}

#[test]
fn a_profile_of_nothing_is_a_file() {
    let empty = Profile::new(Unit::Nanoseconds);
    let fields = fields(&unpacked(&render(&off_cpu(&empty), &About::default())));
    assert!(all(&fields, 2).is_empty() && all(&fields, 1).len() == 1);
}

#[test]
fn no_value_is_negative() {
    let mut huge = Profile::new(Unit::Samples);
    let id = huge.frame("a", Area::User);
    huge.add(&[id], u64::MAX);
    let fields = fields(&unpacked(&render(&on_cpu(&huge, 1_000), &About::default())));
    let most = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    assert_eq!(all(&self::fields(all(&fields, 2)[0]), 2), [[most, most].concat()]);
}
