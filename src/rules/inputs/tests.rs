use super::*;
use crate::analyze::locks::{self, Begins, Events, LockRow, LockStack, Sampler, SpinShare};
use crate::analyze::pagecache::{self, ReadaheadSource, ReclaimSummary};
use crate::analyze::threads::{ThreadGroup, ThreadShare};

fn row(name: &str, kind: locks::WireLockKind, waits: &[u64]) -> LockRow {
    LockRow {
        name: name.to_string(),
        by: By::Structure,
        kind,
        wait: waits.iter().copied().collect(),
        stacks: vec![LockStack {
            who: None,
            frames: vec!["_raw_spin_lock".to_string(), "shrink_inactive_list".to_string()],
            ..LockStack::default()
        }],
        ..LockRow::default()
    }
}

#[test]
fn waits_keep_their_numbers_and_spinning_is_of_all_cpus() {
    let summary = LockSummary {
        duration_ns: 2,
        events: Events {
            begins: Begins { missed: 3, unkept: 1, abandoned: 2, ..Begins::default() },
            ..Events::default()
        },
        locks: vec![
            row("lru_lock of node 0", locks::WireLockKind::Spin, &[10, 30]),
            row("mutex of a pipe", locks::WireLockKind::Mutex, &[7]),
        ],
        spin: Some(SpinShare {
            cpu_percent: 50.0,
            sampler: Sampler::CpuClock,
            samples: 9,
            lost: 0,
            low: 50.0,
            high: 80.0,
        }),
        ..LockSummary::default()
    };
    let seen = Locks::of(&summary, 4);
    let first = &seen.locks[0];
    assert_eq!((first.contentions, first.wait_ns, first.max_wait_ns), (2, 40, 30));
    assert_eq!((first.kind, first.caller.as_deref()), (LockKind::Spin, Some("shrink_inactive_list")));
    assert_eq!(seen.locks[1].kind, LockKind::Sleep);
    let spin = seen.spin.unwrap();
    assert_eq!((spin.low_percent, spin.high_percent, spin.sampler.as_str()), (12.5, 20.0, "cpu-clock"));
    assert_eq!((seen.duration_ns, seen.lost), (2, 6));
    assert_eq!(
        Locks::of(&LockSummary::default(), 0),
        Locks::default(),
        "nobody sampled: no spinning of zero"
    );
}

/// A lock named after its caller has that name, and no separate caller.
#[test]
fn a_lock_without_a_place_is_its_caller() {
    let nameless = LockRow { by: By::Caller, ..row("lock taken in f", locks::WireLockKind::Rwlock, &[1]) };
    let summary = LockSummary { locks: vec![nameless], ..LockSummary::default() };
    assert_eq!(Locks::of(&summary, 1).locks[0].caller, None);
}

#[test]
fn memory_keeps_what_is_known_and_nothing_else() {
    let time = [5, 7].into_iter().collect();
    let memcg = ReclaimSummary { count: 3, time, ..ReclaimSummary::default() };
    let ahead = |unused_pages: Option<u64>| pagecache::Readahead {
        by: ReadaheadSource::Events,
        calls: 1,
        asked_pages: 100,
        wanted_pages: unused_pages.map(|unused| 100 - unused),
        mapped_pages: None,
        read_pages: None,
        unused_pages,
    };
    let summary = PagecacheSummary {
        duration_ns: 9,
        reclaims: [(ReclaimKind::Memcg, memcg)].into(),
        readahead: Some(ahead(Some(40))),
        series: vec![MemorySample { at_ns: 4, ..MemorySample::default() }],
        ..PagecacheSummary::default()
    };
    let seen = PageCache::from(&summary);
    let reclaims = seen.reclaims.unwrap();
    assert_eq!((reclaims.memcg, reclaims.direct), (Reclaim { count: 3, ns: 12 }, Reclaim::default()));
    assert_eq!(seen.readahead, Some(Readahead { asked_pages: 100, unused_pages: 40 }));
    assert_eq!((seen.scanned_pages, seen.moments.len(), seen.duration_ns), (None, 1, 9));
    let blind = PagecacheSummary { readahead: Some(ahead(None)), ..summary };
    assert_eq!(PageCache::from(&blind).readahead, None, "how many were of no use is not known");
}

#[test]
fn threads_keep_their_averages() {
    let one = ThreadGroup {
        comm: Some("fio".to_string()),
        state: Some('D'),
        wchan: Some("folio_wait_bit_common".to_string()),
        stack: vec!["vfs_read".to_string()],
        share: ThreadShare { samples: 20, average_threads: 2.0, error: None },
        ..ThreadGroup::default()
    };
    let seen = ThreadsInput::from(&ThreadSummary { rounds: 10, rows: vec![one], ..ThreadSummary::default() });
    let row = &seen.rows[0];
    assert_eq!((row.comm.as_str(), row.state, row.samples, row.average_threads), ("fio", 'D', 20, 2.0));
    assert_eq!((row.stack.len(), row.wchan.as_deref(), seen.rounds), (1, Some("folio_wait_bit_common"), 10));
}
