use proptest::prelude::*;

use super::*;

/// Parses lines `fio;main;read_[k] 3`; the first frame is a label.
fn of(unit: Unit, lines: &[(&str, u64)]) -> Profile {
    let mut profile = Profile::new(unit);
    for (stack, value) in lines {
        let frame = |(place, name): (usize, &str)| match name.strip_suffix("_[k]") {
            Some(function) => profile.frame(function, Area::of_kernel(function)),
            None => profile.frame(name, if place == 0 { Area::Label } else { Area::User }),
        };
        let ids: Vec<u32> = stack.split(';').enumerate().map(frame).collect();
        profile.add(&ids, *value);
    }
    profile
}

fn side(profile: &Profile) -> DiffSide<'_> {
    DiffSide { profile, events: None, what: None }
}

fn change<'a>(comparison: &'a Comparison, name: &str) -> &'a Change {
    comparison.changes.iter().find(|change| change.name == name).unwrap_or_else(|| panic!("no {name}"))
}

fn names(changes: &[&Change]) -> Vec<String> {
    changes.iter().map(|change| change.name.clone()).collect()
}

/// From source T: 4 KiB random reads of one drive with three saturated workers: 1,150k IOPS with `none`, 525k with
/// `mq-deadline`. Ten seconds at 99 Hz on 3 CPUs are 2970 samples on each side. The source does not say where in the
/// kernel they fall, but says what appeared: the scheduler's dispatch.
pub(crate) fn schedulers() -> ((Profile, u64), (Profile, u64)) {
    let submit = "fio;io_uring_enter;entry_SYSCALL_64_[k];io_submit_sqes_[k];blkdev_read_iter_[k];submit_bio_noacct_[k]";
    let reap = "fio;io_uring_enter;asm_common_interrupt_[k];nvme_irq_[k];blk_mq_end_request_batch_[k]";
    let mq = format!("{submit};blk_mq_submit_bio_[k]");
    let dispatch = format!("{mq};blk_mq_run_hw_queue_[k];blk_mq_do_dispatch_sched_[k]");
    let none = of(
        Unit::Samples,
        &[
            ("fio;get_io_u", 890),
            (submit, 420),
            (&mq, 610),
            (&format!("{mq};nvme_queue_rq_[k]"), 480),
            (reap, 570),
        ],
    );
    let deadline = of(
        Unit::Samples,
        &[
            ("fio;get_io_u", 410),
            (submit, 190),
            (&mq, 280),
            (&format!("{mq};dd_insert_requests_[k];native_queued_spin_lock_slowpath_[k]"), 520),
            (&dispatch, 230),
            (&format!("{dispatch};dd_dispatch_request_[k]"), 290),
            (&format!("{dispatch};dd_dispatch_request_[k];native_queued_spin_lock_slowpath_[k]"), 540),
            (&format!("{dispatch};nvme_queue_rq_[k]"), 240),
            (reap, 268),
            (&format!("{reap};ktime_get_[k]"), 2),
        ],
    );
    ((none, 11_500_000), (deadline, 5_250_000))
}

/// From source T: the same reads, buffered and direct. When buffered, the io_uring workers reclaim and wait for the LRU
/// lock.
pub(crate) fn buffered() -> ((Profile, u64), (Profile, u64)) {
    let read =
        "iou-wrk-fio;io_wq_worker_[k];blkdev_read_iter_[k];filemap_read_[k];page_cache_sync_readahead_[k]";
    let reclaim = format!("{read};try_to_free_pages_[k];shrink_lruvec_[k]");
    let buffered = of(
        Unit::Samples,
        &[
            (read, 300),
            (&format!("{read};blk_mq_submit_bio_[k];nvme_queue_rq_[k]"), 180),
            (&reclaim, 350),
            (&format!("{reclaim};__remove_mapping_[k];native_queued_spin_lock_slowpath_[k]"), 610),
            (&format!("{reclaim};isolate_lru_folios_[k];_raw_spin_lock_irq_[k]"), 1_400),
            ("kswapd0;kswapd_[k];balance_pgdat_[k];shrink_lruvec_[k];_raw_spin_lock_irq_[k]", 290),
        ],
    );
    let direct = of(
        Unit::Samples,
        &[
            ("fio;io_uring_enter;blkdev_read_iter_[k];blkdev_direct_IO_[k]", 900),
            (
                "fio;io_uring_enter;blkdev_read_iter_[k];blkdev_direct_IO_[k];blk_mq_submit_bio_[k];nvme_queue_rq_[k]",
                700,
            ),
            ("fio;get_io_u", 1_370),
        ],
    );
    ((buffered, 70_000), (direct, 11_000_000))
}

#[test]
fn a_scheduler_appears_with_its_cost_per_io() {
    let ((none, before), (deadline, after)) = schedulers();
    let per_io = compare(side(&none), side(&deadline), Basis::Ios { before, after }).unwrap();
    // Both ran on 3 CPUs all the time: 2.19 times the CPU time per I/O.
    assert!((per_io.all.after / per_io.all.before - 2.19).abs() < 0.005, "{:?}", per_io.all);
    assert!(per_io.all.is_certain());
    let appeared = names(&per_io.appeared());
    for name in ["blk_mq_do_dispatch_sched", "dd_dispatch_request", "native_queued_spin_lock_slowpath"] {
        assert!(appeared.iter().any(|n| n == name), "{name} is not in {appeared:?}");
    }
    assert_eq!(appeared[..2], ["blk_mq_do_dispatch_sched", "blk_mq_run_hw_queue"]);
    // Two samples of 2970 are not significant.
    assert!(!appeared.iter().any(|name| name == "ktime_get"));
    assert_eq!((per_io.vanished().len(), per_io.unsure()), (0, 1));
    // The largest change is the lock, and it is significant.
    let most = &per_io.changes[0];
    assert_eq!((most.name.as_str(), most.area), ("native_queued_spin_lock_slowpath", Area::Lock));
    assert!(most.own.is_certain() && most.own.before == 0.0);
    let (low, high) = most.own.interval.unwrap();
    assert!(low < most.own.change() && most.own.change() < high);
    // The load's own cost per I/O did not change: its share fell only because the rest grew.
    let same = change(&per_io, "get_io_u");
    assert!(!same.own.is_certain() && same.own.after / same.own.before < 1.1, "{same:?}");
    let shares = compare(side(&none), side(&deadline), Basis::Share).unwrap();
    let less = change(&shares, "get_io_u");
    assert!(less.own.is_certain() && less.own.change() < -0.1, "{less:?}");
}

#[test]
fn lru_and_spinlock_frames_vanish_with_the_page_cache() {
    let ((buffered, before), (direct, after)) = buffered();
    for basis in [Basis::Ios { before, after }, Basis::Share] {
        let comparison = compare(side(&buffered), side(&direct), basis).unwrap();
        let vanished = comparison.vanished();
        for name in
            ["native_queued_spin_lock_slowpath", "_raw_spin_lock_irq", "shrink_lruvec", "isolate_lru_folios"]
        {
            assert!(vanished.iter().any(|change| change.name == name), "{name}: {:?}", names(&vanished));
        }
        let areas = |area| vanished.iter().filter(|change| change.area == area).count();
        assert_eq!((areas(Area::Lock), areas(Area::Block), areas(Area::Driver)), (2, 0, 0));
        assert_eq!(comparison.changes[0].name, "_raw_spin_lock_irq", "{basis:?}");
        assert!(names(&comparison.appeared()).contains(&"blkdev_direct_IO".to_string()));
    }
    // By time, every CPU was equally busy, whatever it did per I/O.
    let time = Basis::Time { before: 10_000_000_000, after: 10_000_000_000 };
    let time = compare(side(&buffered), side(&direct), time).unwrap();
    assert!((time.all.after / time.all.before - 2970.0 / 3130.0).abs() < 1e-9);
    let per_io = compare(side(&buffered), side(&direct), Basis::Ios { before, after }).unwrap();
    assert!(per_io.all.before / per_io.all.after > 100.0);
}

#[test]
fn own_and_total_are_told_apart_and_recursion_counts_once() {
    let before = of(Unit::Samples, &[("a;f;f;g", 6), ("a;f", 4)]);
    let after = of(Unit::Samples, &[("a;f;f;g", 3), ("a;f", 7)]);
    let comparison = compare(side(&before), side(&after), Basis::Share).unwrap();
    let f = change(&comparison, "f");
    assert_eq!((f.own.before, f.own.after, f.total.before, f.total.after), (0.4, 0.7, 1.0, 1.0));
    assert!((change(&comparison, "g").total.change() + 0.3).abs() < 1e-12);
    assert!(!f.total.is_certain());
    assert!(comparison.appeared().is_empty() && comparison.vanished().is_empty());
}

#[test]
fn the_tree_has_both_sides_in_each_node() {
    let before = of(Unit::Samples, &[("a;b", 60), ("a;c", 40)]);
    let after = of(Unit::Samples, &[("a;b", 10), ("a;d", 30)]);
    let comparison = compare(side(&before), side(&after), Basis::Share).unwrap();
    let tree = comparison.tree(0.0);
    let shown: Vec<(String, f64, f64)> = (tree.nodes().iter().filter(|node| node.frame.is_some()))
        .map(|node| {
            let name = comparison.stacks().frames()[node.frame.unwrap() as usize].name.clone();
            (name, comparison.rate(node.before), comparison.rate(node.total - node.before))
        })
        .collect();
    let expected = [("a", 1.0, 1.0), ("b", 0.6, 0.25), ("c", 0.4, 0.0), ("d", 0.0, 0.75)];
    assert_eq!(shown.len(), expected.len());
    for ((name, before, after), expected) in shown.iter().zip(expected) {
        assert_eq!(name, expected.0);
        assert!((before - expected.1).abs() < 1e-9 && (after - expected.2).abs() < 1e-9, "{shown:?}");
    }
}

#[test]
fn times_are_as_sure_as_their_number_allows() {
    let before = of(Unit::Nanoseconds, &[("a;b", 1_000_000), ("a;c", 9_000_000)]);
    let after = of(Unit::Nanoseconds, &[("a;b", 3_000_000), ("a;c", 7_000_000)]);
    let basis = Basis::Time { before: 1_000_000_000, after: 1_000_000_000 };
    let known = |events| {
        let side = |profile| DiffSide { profile, events, what: None };
        compare(side(&before), side(&after), basis).unwrap()
    };
    assert_eq!(change(&known(None), "b").own.interval, None);
    // Ten waits are not significant, ten thousand are.
    assert!(!change(&known(Some(10)), "b").own.is_certain());
    assert!(change(&known(Some(10_000)), "b").own.is_certain());
    // Without event counts, frames of one side are listed without a test.
    let other = of(Unit::Nanoseconds, &[("a;d", 10_000_000)]);
    let found = compare(side(&before), side(&other), basis).unwrap();
    assert_eq!((names(&found.appeared()), found.unsure()), (vec!["d".to_string()], 0));
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let (samples, empty) = (of(Unit::Samples, &[("a", 1)]), Profile::new(Unit::Samples));
    let times = of(Unit::Nanoseconds, &[("a", 1)]);
    let refused = |a, b, basis, says: &str| {
        let error = compare(side(a), side(b), basis).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(&samples, &times, Basis::Share, "cannot be compared");
    refused(&empty, &samples, Basis::Share, "first profile is empty");
    refused(&samples, &empty, Basis::Share, "second profile is empty");
    refused(&samples, &samples, Basis::Ios { before: 0, after: 5 }, "compare the shares");
    refused(&samples, &samples, Basis::Time { before: 5, after: 0 }, "compare the shares");
}

/// Against tables: Garwood's exact limits are slightly wider than the score limits; Wilson's limits for 10 of 100 are
/// known.
#[test]
fn the_intervals_are_those_of_the_books() {
    for (probability, z) in [(0.975, 1.95996), (0.995, 2.57583), (0.9999, 3.71902), (0.999_999, 4.75342)] {
        assert!((quantile(probability) - z).abs() < 5e-4, "{probability}");
    }
    let (low, high) = wilson(10.0, 100.0, 1.95996);
    assert!((low - 0.05523).abs() < 1e-4 && (high - 0.17437).abs() < 1e-4, "{low} {high}");
    assert_eq!(wilson(0.0, 50.0, 1.96).0, 0.0);
    let (low, high) = score(10.0, 1.95996);
    assert!((low - 5.432).abs() < 1e-2 && (high - 18.409).abs() < 1e-2, "{low} {high}");
    assert_eq!(score(0.0, 2.0), (0.0, 4.0));
}

/// Two profiles of the same distribution, from a seeded generator: all intervals hold nearly always.
#[test]
fn what_did_not_move_is_hardly_ever_called_certain() {
    let mut state = 7u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let mut draw = || {
        let mut profile = Profile::new(Unit::Samples);
        for _ in 0..3000 {
            // A few wide frames and many narrow ones.
            let wide = next() % 3;
            let name = if wide > 0 { format!("w{}", next() % 4) } else { format!("n{}", next() % 200) };
            let id = profile.frame(name, Area::User);
            profile.add(&[id], 1);
        }
        profile
    };
    let mut wrong = 0;
    let rounds = 200;
    for _ in 0..rounds {
        let (a, b) = (draw(), draw());
        for basis in [Basis::Share, Basis::Time { before: 1_000, after: 1_000 }] {
            let comparison = compare(side(&a), side(&b), basis).unwrap();
            wrong += usize::from(comparison.changes.iter().any(|change| change.own.is_certain()));
        }
    }
    // 5 % of 400 comparisons are 20.
    assert!(wrong <= 20, "{wrong} of {} comparisons", 2 * rounds);
}

proptest! {
    #[test]
    fn changes_add_up(values in prop::collection::vec((0..3u8, 0..3u8, 1..1000u64, 1..1000u64), 1..10)) {
        let side_of = |pick: fn(&(u8, u8, u64, u64)) -> u64| {
            let mut profile = Profile::new(Unit::Samples);
            for value in &values {
                let ids = [value.0, value.1 + 10].map(|n| profile.frame(n.to_string(), Area::User));
                profile.add(&ids, pick(value));
            }
            profile
        };
        let (before, after) = (side_of(|v| v.2), side_of(|v| v.3));
        let comparison = compare(side(&before), side(&after), Basis::Share).unwrap();
        let sum: f64 = comparison.changes.iter().map(|change| change.own.change()).sum();
        prop_assert!(sum.abs() < 1e-9);
        for change in &comparison.changes {
            let (low, high) = change.own.interval.unwrap();
            prop_assert!(low <= change.own.change() + 1e-12 && change.own.change() <= high + 1e-12);
        }
        let tree = comparison.tree(0.0);
        let root = tree.nodes()[0];
        prop_assert!((comparison.rate(root.before) - 1.0).abs() < 1e-9);
        prop_assert!((comparison.rate(root.total) - 2.0).abs() < 1e-9);
    }
}

/// All waits end in the scheduler: the change is in the function that waits.
#[test]
fn waits_move_in_the_function_that_waits() {
    let profile = |nap, poll| {
        let lines = [("a;do_nanosleep_[k];__schedule_[k]", nap), ("a;do_poll_[k];__schedule_[k]", poll)];
        of(Unit::Nanoseconds, &lines)
    };
    let (before, after) = (profile(75, 25), profile(25, 75));
    for what in [None, Some(What::OffCpu)] {
        let side = |profile| DiffSide { profile, events: Some(100_000), what };
        let comparison = compare(side(&before), side(&after), Basis::Share).unwrap();
        let moved = |at: usize| (comparison.changes[at].name.as_str(), comparison.changes[at].own.change());
        assert_eq!([moved(0), moved(1)], [("do_nanosleep", -0.5), ("do_poll", 0.5)]);
    }
}
