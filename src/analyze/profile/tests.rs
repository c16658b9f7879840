use proptest::prelude::*;

use super::*;

/// Parses lines `a;b;c 3`.
pub(in crate::analyze) fn of(lines: &str) -> Profile {
    let mut profile = Profile::new(Unit::Samples);
    for line in lines.split(',') {
        let (stack, value) = line.trim().rsplit_once(' ').unwrap();
        let ids: Vec<u32> = stack.split(';').map(|name| profile.frame(name, Area::User)).collect();
        profile.add(&ids, value.parse().unwrap());
    }
    profile
}

fn lines(profile: &Profile) -> Vec<String> {
    let names = |stack: &Stack| profile.named(stack).map(|f| f.name.clone()).collect::<Vec<_>>().join(";");
    profile.sorted().iter().map(|stack| format!("{} {}", names(stack), stack.value)).collect()
}

#[test]
fn a_kernel_function_has_its_area() {
    for (area, functions) in [
        (Area::Lock, "native_queued_spin_lock_slowpath _raw_spin_lock_irq rwsem_down_read_slowpath osq_lock"),
        (Area::Lock, "__mutex_lock.constprop.0 __pv_queued_spin_lock_slowpath"),
        (Area::Interrupt, "asm_common_interrupt __do_softirq handle_softirqs sysvec_apic_timer_interrupt"),
        (
            Area::Driver,
            "nvme_queue_rqs virtio_queue_rq scsi_queue_rq loop_queue_work md_submit_bio __dm_pr_register",
        ),
        (Area::Driver, "dm_submit_bio null_queue_rq virtblk_done"),
        (
            Area::Block,
            "blk_mq_do_dispatch_sched submit_bio_noacct __submit_bio dd_dispatch_request bio_endio",
        ),
        (Area::Block, "sbitmap_get wbt_wait blkdev_read_iter"),
        (
            Area::Reclaim,
            "shrink_lruvec __remove_mapping page_cache_sync_readahead try_to_free_pages filemap_read",
        ),
        (Area::Reclaim, "isolate_lru_folios kswapd balance_dirty_pages_ratelimited"),
        (
            Area::Kernel,
            "do_syscall_64 io_uring_enter ext4_file_read_iter _raw_spin_unlock_irqrestore up_read",
        ),
        (Area::Kernel, "mutex_unlock exc_page_fault schedule_idle"),
    ] {
        for function in functions.split(' ') {
            assert_eq!(Area::of_kernel(function), area, "{function}");
        }
    }
    assert!(Area::ALL.iter().filter(|area| area.in_kernel()).count() == 6);
}

#[test]
fn a_beginning_stands_in_the_table_once() {
    let mut seen: Vec<&str> = Vec::new();
    for beginning in KERNEL.iter().flat_map(|(_, beginnings)| *beginnings) {
        assert!(!beginning.starts_with('_'), "{beginning} is compared without");
        let covered = seen.iter().find(|before| beginning.starts_with(**before));
        assert_eq!(covered, None, "{beginning} is never reached");
        seen.push(beginning);
    }
}

#[test]
fn equal_stacks_are_one() {
    let mut profile = of("a;b 3, a 1, a;b 4");
    assert_eq!(lines(&profile), ["a 1", "a;b 7"]);
    assert_eq!((profile.total(), profile.stacks().len(), profile.frames().len()), (8, 2, 2));
    // Without frames or value nothing is added.
    profile.add(&[], 5);
    profile.add(&[0], 0);
    assert_eq!(profile.total(), 8);
    assert_eq!(of("a;b 7, a 1"), profile);
    assert_ne!(of("a;b 7, a 2"), profile);
    // A kernel function and a user function of the same name are distinct.
    let kernel = profile.frame("a", Area::Kernel);
    assert_eq!((kernel, profile.frame("a", Area::Kernel), profile.frame("a", Area::User)), (2, 2, 0));
}

#[test]
fn the_sum_never_overflows() {
    let mut profile = of("a 5");
    profile.add(&[0], u64::MAX);
    assert_eq!((profile.total(), profile.stacks()[0].value), (u64::MAX, u64::MAX));
    assert_eq!(profile.tree(0.0).nodes()[0].total, u64::MAX);
}

#[test]
fn a_tree_holds_what_its_stacks_hold() {
    let tree = of("a;b;c 2, a;b 3, a;d 1, e 4").tree(0.0);
    let shown: Vec<_> = tree.nodes().iter().map(|n| (n.frame, n.depth, n.own, n.total)).collect();
    assert_eq!(
        shown,
        [
            (None, 0, 0, 10),
            (Some(0), 1, 0, 6),
            (Some(1), 2, 3, 5),
            (Some(2), 3, 2, 2),
            (Some(3), 2, 1, 1),
            (Some(4), 1, 4, 4)
        ]
    );
}

#[test]
fn what_is_narrow_becomes_one_frame_per_place() {
    let folded = of("a;b 940, a;c;x 6, a;c;y 3, a;d 5, a;e;f 40, g 6").fold_narrow(0.01);
    assert_eq!(
        lines(&folded.profile),
        ["(narrower than 1 %) 6", "a;(narrower than 1 %) 14", "a;b 940", "a;e;f 40"]
    );
    assert!((folded.share - 0.020).abs() < 1e-9);
    assert_eq!(folded.profile.total(), 1000);
    // A part exactly as wide as the limit is kept, and with a limit of 0 nothing is folded.
    assert_eq!(lines(&of("a 1, b 99").fold_narrow(0.01).profile), ["a 1", "b 99"]);
    let all = of("a;b 1, c 1000000");
    let folded = all.fold_narrow(0.0);
    assert_eq!((folded.profile == all, folded.share), (true, 0.0));
}

#[test]
fn an_empty_profile_folds_to_an_empty_one() {
    let folded = Profile::new(Unit::Ios).fold_narrow(0.1);
    assert!(folded.profile.is_empty() && folded.share == 0.0 && folded.profile.unit == Unit::Ios);
    assert_eq!(Profile::new(Unit::Ios).tree(0.1).nodes().len(), 1);
}

#[test]
fn a_share_is_written_short() {
    for (share, text) in
        [(0.001, "0.1"), (0.00125, "0.125"), (0.01, "1"), (0.5, "50"), (0.1234, "12.3"), (0.0, "0")]
    {
        assert_eq!(tree::percent(share), text);
    }
}

fn any_profile() -> impl Strategy<Value = Profile> {
    let stack = (prop::collection::vec(0..4u8, 1..7), 1..1000u64);
    prop::collection::vec(stack, 0..40).prop_map(|stacks| {
        let mut profile = Profile::new(Unit::Samples);
        for (names, value) in stacks {
            let ids: Vec<u32> = names.iter().map(|n| profile.frame(format!("f{n}"), Area::User)).collect();
            profile.add(&ids, value);
        }
        profile
    })
}

proptest! {
    #[test]
    fn folding_keeps_the_sum_and_folds_what_is_narrow(profile in any_profile(), min in 0.0..0.4f64) {
        let total = profile.total();
        let tree = profile.tree(min);
        prop_assert_eq!(tree.nodes()[0].total, total);
        for node in &tree.nodes()[1..] {
            prop_assert!(node.frame.is_none() || node.total as f64 >= min * total as f64);
        }
        let folded = profile.fold_narrow(min);
        prop_assert_eq!(folded.profile.total(), total);
        let narrow = |p: &Profile, s: &Stack| p.named(s).any(|f| f.name.starts_with("(narrower"));
        let sum: u64 =
            folded.profile.stacks().iter().filter(|s| narrow(&folded.profile, s)).map(|s| s.value).sum();
        prop_assert!((folded.share * total as f64 - sum as f64).abs() < 1e-6);
        // Folding in two steps gives the same as in one.
        prop_assert_eq!(profile.tree(min / 2.0).narrower(min), tree);
    }

    #[test]
    fn the_order_in_which_stacks_come_changes_nothing(profile in any_profile()) {
        let mut other = Profile::new(Unit::Samples);
        for stack in profile.stacks().iter().rev() {
            let ids: Vec<u32> =
                profile.named(stack).map(|f| (f.name.clone(), f.area)).map(|(n, a)| other.frame(n, a)).collect();
            other.add(&ids, stack.value);
        }
        prop_assert_eq!(lines(&other), lines(&profile));
        prop_assert_eq!(other, profile);
    }
}
