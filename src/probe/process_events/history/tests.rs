//! Tests process histories with literal records.

use super::*;
use crate::host::mapped::mappings;
use crate::wire::process_events::comm;
use proptest::prelude::*;

fn line(text: &str) -> Mapping {
    mappings(text.as_bytes()).remove(0)
}

const A: &str = "1000-3000 r-xp 00000000 fe:01 10 /bin/a";
const B: &str = "1000-2000 r-xp 00000000 fe:01 11 /bin/b";
const LIBRARY: &str = "8000-9000 r-xp 00001000 fe:01 20 /lib/c";

fn fork(pid: u32, parent: u32) -> ProcessChange {
    ProcessChange::Fork { pid, parent }
}

fn exec(pid: u32, name: &[u8]) -> ProcessChange {
    ProcessChange::Name { pid, comm: comm(name), exec: true }
}

fn map(pid: u32, text: &str) -> ProcessChange {
    ProcessChange::Mapped { pid, mapping: line(text) }
}

fn end(pid: u32) -> ProcessChange {
    ProcessChange::Exit { pid, tid: pid }
}

fn lives(what: impl IntoIterator<Item = ProcessChange>) -> ProcessHistory {
    let mut lives = ProcessHistory::default();
    what.into_iter().for_each(|what| lives.apply(0, what));
    lives
}

fn paths(programs: &[Ran]) -> Vec<(Vec<&str>, bool)> {
    let text = |mapping: &Mapping| match &*mapping.path {
        b"/bin/a" => "a",
        b"/bin/b" => "b",
        b"/lib/c" => "c",
        other => panic!("{other:?}"),
    };
    programs.iter().map(|ran| (ran.mappings.iter().map(text).collect(), ran.ended)).collect()
}

#[test]
fn a_program_that_has_ended_is_what_it_mapped() {
    let mut lives = lives([fork(7, 6), exec(7, b"a"), map(7, A), map(7, LIBRARY), end(7)]);
    assert_eq!(lives.due(7, false), [], "there is no sample of it");
    lives.sampled(7, comm(b"a"));
    assert!(lives.is_over(7));
    assert_eq!(paths(&lives.due(7, false)), [(vec!["a", "c"], true)]);
    assert_eq!(lives.due(7, false), [], "once");
    lives.end_look();
    assert!(lives.is_over(7), "its samples may come after the next look");
    lives.end_look();
    assert_eq!((lives.is_over(7), lives.mappings, lives.sampled.len()), (false, 0, 0));
}

/// A child has the mappings that its parent had at that time: from records, or as read if the parent started before
/// recording.
#[test]
fn a_child_without_exec_has_what_its_parent_had() {
    let mut lives = lives([fork(7, 6), exec(7, b"a"), map(7, A), fork(8, 7), map(7, LIBRARY), end(8)]);
    lives.sampled(8, comm(b"a"));
    assert_eq!(lives.take_changed(), BTreeSet::new(), "it had no sample then");
    assert_eq!(paths(&lives.due(8, false)), [(vec!["a"], true)]);
    assert_eq!(lives.parent(8), Some(7));

    let forks = [fork(31, 30), fork(32, 31), fork(9, 7)].map(|what| ProcessRecord { at: 1, what });
    assert_eq!(lives.parents_to_read(&forks), BTreeSet::from([30]));
    forks.into_iter().for_each(|record| lives.apply(record.at, record.what));
    lives.had(30, Before { mappings: vec![line(A)], names: Vec::new() });
    lives.had(7, Before { mappings: vec![line(LIBRARY)], names: Vec::new() });
    for what in [map(31, LIBRARY), end(31), end(32), end(9)] {
        lives.apply(0, what);
    }
    for pid in [31, 32, 9] {
        lives.sampled(pid, comm(b"a"));
    }
    assert_eq!(paths(&lives.due(31, false)), [(vec!["a", "c"], true)]);
    assert_eq!(paths(&lives.due(32, false)), [(vec!["a"], true)], "and its children, too");
    assert_eq!(paths(&lives.due(9, false)), [(vec!["a", "c"], true)], "a reading changes no record");
    assert_eq!(
        lives.parents_to_read(&[ProcessRecord { at: 1, what: fork(33, 30) }]),
        BTreeSet::new(),
        "read once"
    );
}

/// The mappings were read after the exec, and the records have those of the new program.
#[test]
fn what_was_read_after_an_exec_is_not_what_was_before() {
    let mut lives = lives([fork(31, 30), exec(30, b"b"), map(30, B)]);
    lives.had(30, Before { mappings: vec![line(B)], names: Vec::new() });
    lives.apply(0, end(31));
    lives.sampled(31, comm(b"a"));
    assert_eq!(lives.due(31, false), [], "nobody knows");
}

#[test]
fn an_exec_begins_another_program() {
    let mut lives = lives([fork(7, 6), exec(7, b"a"), map(7, A)]);
    lives.sampled(7, comm(b"a"));
    assert_eq!(lives.due(7, false), [], "it is there to be read");
    for what in [exec(7, b"b"), map(7, B)] {
        lives.apply(0, what);
    }
    assert_eq!(lives.take_changed(), BTreeSet::from([7]));
    assert_eq!(paths(&lives.due(7, false)), [(vec!["a"], false)]);
    lives.sampled(7, comm(b"b"));
    assert_eq!(paths(&lives.due(7, true)), [(vec!["b"], true)], "it ended after the records were taken");
}

/// Both use the same addresses: with both in the result, neither would get a name.
#[test]
fn a_program_of_which_there_is_no_sample_is_left_out() {
    let records = || [fork(7, 6), exec(7, b"a"), map(7, A), fork(8, 7), exec(8, b"b"), map(8, B), end(8)];
    let mut one = lives(records());
    one.sampled(8, comm(b"b"));
    assert_eq!(paths(&one.due(8, false)), [(vec!["b"], true)]);
    let mut both = lives(records());
    both.sampled(8, comm(b"b"));
    both.sampled(8, comm(b"a"));
    let due = both.due(8, false);
    assert_eq!(paths(&due), [(vec!["a"], false), (vec!["b"], true)]);
    let (number, names) = due[0].earlier.as_ref().unwrap();
    assert_eq!((number >> 31, names, &due[1].earlier), (1, &vec![comm(b"a")], &None));
}

/// A name cannot distinguish two programs that share it: both are attributed to the process.
#[test]
fn programs_of_one_name_have_no_numbers_of_their_own() {
    let mut lives = lives([exec(7, b"a"), map(7, A), exec(7, b"a"), map(7, B), end(7)]);
    lives.sampled(7, comm(b"a"));
    let due = lives.due(7, false);
    assert_eq!(paths(&due), [(vec!["a"], false), (vec!["b"], true)]);
    assert!(due.iter().all(|ran| ran.earlier.is_none()), "{due:?}");
}

/// One library is unmapped, and another one is mapped in its place: without an exec no name distinguishes the two.
#[test]
fn what_is_mapped_over_something_else_leaves_both() {
    let other = "8000-9000 r-xp 00000000 fe:01 10 /bin/a";
    let mut lives = lives([exec(7, b"b"), map(7, B), map(7, LIBRARY), map(7, other), end(7)]);
    lives.sampled(7, comm(b"b"));
    assert_eq!(paths(&lives.due(7, false)), [(vec!["b", "c"], false), (vec!["b", "a"], true)]);
}

#[test]
fn a_process_ends_with_its_last_thread() {
    let mut lives = lives([fork(7, 6), fork(7, 7), fork(7, 7), end(7)]);
    assert!(!lives.is_over(7), "the first one may end before the others");
    lives.apply(0, ProcessChange::Exit { pid: 7, tid: 8 });
    assert!(!lives.is_over(7));
    lives.apply(0, ProcessChange::Exit { pid: 7, tid: 9 });
    assert!(lives.is_over(7));
    lives.apply(0, fork(7, 6));
    assert!(!lives.is_over(7), "the number is used again");
}

#[test]
fn what_is_lost_is_counted_and_the_dead_are_found() {
    let mut lives = lives([fork(7, 6), exec(7, b"a"), map(7, A)]);
    lives.sampled(7, comm(b"a"));
    lives.sweep(|_| panic!("nothing was lost"));
    lives.apply(0, ProcessChange::Lost(3));
    lives.sweep(|pid| pid != 7);
    assert_eq!((lives.take_lost(), lives.take_lost()), (3, 0));
    assert_eq!(lives.take_changed(), BTreeSet::from([7]));
    assert_eq!(paths(&lives.due(7, false)), [(vec!["a"], true)]);
}

#[test]
fn a_storm_of_processes_stays_within_its_bounds() {
    let mut lives = ProcessHistory::default();
    for pid in 1..40_000 {
        for what in [fork(pid, pid + 100_000), exec(pid, b"a"), map(pid, A)] {
            lives.apply(0, what);
        }
        lives.sampled(pid, comm(b"a"));
    }
    assert!(lives.lives.len() <= ProcessHistory::MOST && lives.sampled.len() <= MappedFiles::MOST_PROCESSES);
    assert!(lives.take_lost() > 0);
    let many = |i: u64| map(1, &format!("{:x}000-{:x}100 r-xp 0 fe:01 {i} /x{i}", 2 * i, 2 * i));
    (1..10_000).for_each(|i| lives.apply(0, many(i)));
    let own = &lives.lives[&1];
    assert!(own.programs.iter().all(|program| program.code.len() <= ExecImage::MOST_CODE));
    for i in 0..100 {
        lives.apply(0, exec(1, format!("{i}").as_bytes()));
    }
    assert_eq!(lives.lives[&1].programs.len(), Life::MOST_PROGRAMS);
}

fn anything() -> impl Strategy<Value = ProcessChange> {
    let (pid, other, page) = (0u32..6, 0u32..6, 1u64..9);
    (0..6, pid, other, page, 1u64..4).prop_map(|(kind, pid, other, page, inode)| match kind {
        0 => fork(pid, other),
        1 => ProcessChange::Exit { pid, tid: other },
        2 => exec(pid, &[b'a' + other as u8]),
        3 => ProcessChange::Name { pid, comm: comm(&[b'a' + other as u8]), exec: false },
        4 => map(pid, &format!("{page}000-{}000 r-xp {page}000 fe:01 {inode} /x", page + inode)),
        _ => ProcessChange::Lost(1),
    })
}

proptest! {
    #[test]
    fn records_in_any_order_are_counted_rightly(all in proptest::collection::vec(anything(), 0..80)) {
        let mut lives = ProcessHistory::default();
        for (at, what) in all.into_iter().enumerate() {
            lives.apply(0, what);
            if at % 7 == 0 {
                lives.sampled(at as u32 % 6, comm(b"a"));
            }
            if at % 11 == 0 {
                lives.take_changed().into_iter().for_each(|pid| _ = lives.due(pid, false));
                lives.sweep(|pid| pid != 3);
                lives.end_look();
            }
            prop_assert_eq!(lives.mappings, lives.lives.values().map(Life::mappings).sum::<usize>());
        }
    }
}

/// It ran as a copy of its parent before it called exec, and both programs have the same name.
#[test]
fn what_a_child_did_before_its_exec_is_not_named_as_the_next_program() {
    let own = |all: &[Ran]| all.iter().map(|ran| ran.earlier.is_some()).collect::<Vec<_>>();
    let child = [exec(7, b"a"), map(7, A), fork(8, 7), exec(8, b"a"), map(8, B), end(8)];
    let mut same = lives(child);
    same.sampled(8, comm(b"a"));
    let due = same.due(8, false);
    assert_eq!((paths(&due), own(&due)), (vec![(vec!["a"], false), (vec!["b"], true)], vec![false, false]));
    // The thread names of a parent that started before recording are unknown until they are read.
    let child = || [fork(8, 6), exec(8, b"a"), map(8, B), exec(8, b"b"), map(8, A), end(8)];
    let mut unknown = lives(child());
    unknown.sampled(8, comm(b"a"));
    assert_eq!(own(&unknown.due(8, false)), [false]);
    let mut known = lives(child());
    known.had(6, Before { mappings: vec![line(LIBRARY)], names: vec![comm(b"sh")] });
    known.sampled(8, comm(b"a"));
    let due = known.due(8, false);
    assert_eq!((paths(&due), own(&due)), (vec![(vec!["b"], false)], vec![true]));
    // The time of its mappings is kept.
    let mut timed = ProcessHistory::default();
    for (at, what) in [(5, fork(8, 6)), (6, exec(8, b"a")), (7, map(8, A)), (9, end(8))] {
        timed.apply(at, what);
    }
    timed.sampled(8, comm(b"a"));
    assert_eq!(timed.due(8, false)[0].at, 7);
}
