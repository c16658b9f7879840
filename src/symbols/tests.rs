//! Names of this very process.

use super::*;
use std::fs;

#[inline(never)]
fn findable() -> u64 {
    std::hint::black_box(1)
}

fn here() -> u64 {
    findable as fn() -> u64 as usize as u64 + u64::from(findable() == 2)
}

/// A process that cannot live: above the highest pid that Linux gives.
const ENDED: u32 = 1 << 30;

#[test]
fn own_functions_have_names_and_nothing_is_dropped() {
    let (here, pid) = (here(), std::process::id());
    let user = BTreeMap::from([(pid, BTreeSet::from([here, 1])), (ENDED, BTreeSet::from([here]))]);
    let addresses = Addresses { user, ..Addresses::default() };
    let names = Symbolizer::new().names(&addresses);
    assert!(names.user(pid, here)[0].ends_with("tests::findable"), "{:?}", names.user(pid, here));
    assert_eq!(names.user(pid, 1), [UNKNOWN]);
    assert_eq!(names.user(ENDED, here), [UNKNOWN]);
    assert!(names.user(pid, 2).is_empty(), "was not asked for");
    assert!(names.place(pid, here).unwrap().address.is_some() && names.place(pid, 1).is_none());
    // The one that cannot live; what has no code in ours says nothing of us.
    let [missing] = names.missing.as_slice() else { panic!("{:?}", names.missing) };
    assert_eq!((missing.part.as_deref(), missing.reason.as_str()), (Some("user-symbols"), "ended"));
    assert!(missing.why.starts_with("1 process ended before its memory maps could be read: "), "{}", missing.why);
    assert_eq!(missing.remedy, None);
}

/// Without the kernel's records processes that end have no names: the report says why, and the remedy.
#[test]
fn records_that_were_refused_have_a_reason_and_a_remedy() {
    for (why, reason, remedy) in [
        (NoRecords::LockedMemory, "locked memory", "CAP_IPC_LOCK"),
        (NoRecords::Refused, "perf events", "CAP_PERFMON"),
        (NoRecords::PidNamespace, "pid namespace", "pid namespace of the host"),
    ] {
        let user = BTreeMap::from([(ENDED, BTreeSet::from([here()]))]);
        let mut addresses = Addresses { user, ..Addresses::default() };
        addresses.maps.set_no_records(Some(why));
        let names = Symbolizer::new().names(&addresses);
        let [missing] = names.missing.as_slice() else { panic!("{:?}", names.missing) };
        assert!(missing.why.contains(reason), "{}", missing.why);
        assert!(missing.remedy.as_ref().is_some_and(|text| text.contains(remedy)), "{missing:?}");
    }
}

/// What was kept names the frames of a process that has ended.
#[test]
fn a_process_that_has_ended_is_named_by_its_files() {
    let here = here();
    let user = BTreeMap::from([(ENDED, BTreeSet::from([here, 1]))]);
    let mut addresses = Addresses { user, ..Addresses::default() };
    addresses.maps.insert(ENDED, &fs::read("/proc/self/maps").unwrap());
    let names = Symbolizer::new().names(&addresses);
    assert!(names.user(ENDED, here)[0].contains("findable"), "{names:?}");
    assert_eq!(names.user(ENDED, 1), [UNKNOWN]);
    assert_eq!(names.missing, [], "its maps are known, and nothing is there");
    addresses.maps.lose(3);
    let missing = Symbolizer::new().names(&addresses).missing;
    assert!(
        matches!(&missing[..], [one] if one.reason == "lost" && one.why.starts_with("3 of")),
        "{missing:?}"
    );

    // Another file under the same path: its symbols would be lies.
    let line = format!("{here:x}-{:x} r-xp 00002000 fe:01 1  /proc/self/exe\n", here + 16);
    addresses.maps = Mapped::default();
    addresses.maps.insert(ENDED, line.as_bytes());
    assert_eq!(Symbolizer::new().names(&addresses).user(ENDED, here), ["[exe]+0x2000"]);

    // And two programs one after the other, both with code there.
    addresses.maps.insert(ENDED, line.replace("exe", "other").as_bytes());
    let names = Symbolizer::new().names(&addresses);
    assert_eq!(names.user(ENDED, here), [UNKNOWN]);
    assert_eq!(names.missing[0].reason, "ambiguous");
}

#[test]
fn a_place_is_named_again_by_its_build_id() {
    let (here, pid) = (here(), std::process::id());
    let user = BTreeMap::from([(pid, BTreeSet::from([here]))]);
    let symbolizer = Symbolizer::new();
    let names = symbolizer.names(&Addresses { user, ..Addresses::default() });
    let place = names.place(pid, here).unwrap().clone();
    let strange = Place { build_id: BuildId::new(&[7; 20]), ..place.clone() };
    let nameless = Place { build_id: None, ..place.clone() };
    let absent = Place { file: "/nowhere/at/all".into(), ..place.clone() };
    // Behind all that any file has.
    let empty = Place { offset: 1 << 50, address: Some(1 << 50), ..place.clone() };
    let (again, missing) = Symbolizer::new().name_places(&[strange, place.clone(), nameless, absent, empty]);
    assert_eq!([&again[0], &again[2], &again[3]], [&Named::Absent; 3]);
    assert_eq!(missing, []);
    if place.build_id.is_some() {
        assert_eq!(again[1], Named::As(Arc::clone(&names.user[&(pid, here)])));
        assert_eq!(again[4], Named::Nameless);
        // By its offset alone as well.
        let (by_offset, _) = Symbolizer::new().name_places(&[Place { address: None, ..place }]);
        assert_eq!(by_offset[0], again[1]);
    }
}

/// The vdso has names, in a process of which only its mappings were kept, too.
#[test]
fn the_vdso_has_names() {
    let maps = fs::read("/proc/self/maps").unwrap();
    let mappings = crate::host::mapped::mappings(&maps);
    let Some(vdso) = mappings.iter().find(|m| &*m.path == b"[vdso]") else {
        println!("skipped: this machine has none");
        return;
    };
    let user = BTreeMap::from([(ENDED, (vdso.start..vdso.end).step_by(16).collect())]);
    let mut addresses = Addresses { user, ..Addresses::default() };
    addresses.maps.insert(ENDED, &maps);
    let names = Symbolizer::new().names(&addresses);
    assert!(names.user.values().any(|n| n[0].contains("clock_gettime")));
    assert!(names.user.values().all(|n| n[0] != UNKNOWN));
}
