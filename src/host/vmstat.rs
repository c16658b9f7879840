//! Reads the page counters of `/proc/vmstat`, whose names differ between kernel versions.

use std::path::Path;

use super::absence::Absence;
use super::attribute::file;

/// A line of the file, or several lines that form one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum VmstatCounter {
    ScanFile,
    ScanAnon,
    ScanKswapd,
    ScanDirect,
    ScanKhugepaged,
    ScanProactive,
    StealFile,
    StealAnon,
    StealKswapd,
    StealDirect,
    StealKhugepaged,
    StealProactive,
    RefaultFile,
    RefaultAnon,
    /// Times that a task entered direct reclaim: the sum over the zones, which count each attempt.
    Stalls,
    ThrottledDirect,
    KswapdRuns,
    LowWatermarkHits,
    Rotated,
    ReclaimWrites,
    MajorFaults,
    /// The counters from here on are levels.
    FreePages,
    FilePages,
    DirtyPages,
    WritebackPages,
}

use VmstatCounter as C;

/// A counter, its key in JSON, the names of its line (a name that ends in `*` is a sum), and the kernels that have it.
#[derive(Debug, Clone, Copy)]
pub struct Name {
    pub counter: VmstatCounter,
    pub key: &'static str,
    pub names: &'static [&'static str],
    /// The kernels that have it, as half a sentence.
    pub since: &'static str,
}

const fn name(
    counter: VmstatCounter,
    key: &'static str,
    names: &'static [&'static str],
    since: &'static str,
) -> Name {
    Name { counter, key, names, since }
}

const ALWAYS: &str = "in all kernels from 5.10 on";
/// 497a6c1b0990 counts them separately from the sums of the zones.
const BY_TYPE: &str = "since Linux 5.8";
/// 170b04b7ae49 split the single counter of refaults.
const REFAULTS: &str = "since Linux 5.9; before, one count for both";
/// 57e9cc50f4dd separated khugepaged from direct reclaim.
const KHUGEPAGED: &str = "since Linux 6.2; before, among the direct ones";
const PROACTIVE: &str = "since Linux 6.15; before, among the direct ones";

/// In the order of [`VmstatCounter`].
pub const NAMES: [Name; 25] = [
    name(C::ScanFile, "scanned_file", &["pgscan_file"], BY_TYPE),
    name(C::ScanAnon, "scanned_anon", &["pgscan_anon"], BY_TYPE),
    name(C::ScanKswapd, "scanned_kswapd", &["pgscan_kswapd"], ALWAYS),
    name(C::ScanDirect, "scanned_direct", &["pgscan_direct"], ALWAYS),
    name(C::ScanKhugepaged, "scanned_khugepaged", &["pgscan_khugepaged"], KHUGEPAGED),
    name(C::ScanProactive, "scanned_proactive", &["pgscan_proactive"], PROACTIVE),
    name(C::StealFile, "stolen_file", &["pgsteal_file"], BY_TYPE),
    name(C::StealAnon, "stolen_anon", &["pgsteal_anon"], BY_TYPE),
    name(C::StealKswapd, "stolen_kswapd", &["pgsteal_kswapd"], ALWAYS),
    name(C::StealDirect, "stolen_direct", &["pgsteal_direct"], ALWAYS),
    name(C::StealKhugepaged, "stolen_khugepaged", &["pgsteal_khugepaged"], KHUGEPAGED),
    name(C::StealProactive, "stolen_proactive", &["pgsteal_proactive"], PROACTIVE),
    name(C::RefaultFile, "refault_file", &["workingset_refault_file", "workingset_refault"], REFAULTS),
    name(C::RefaultAnon, "refault_anon", &["workingset_refault_anon"], REFAULTS),
    name(C::Stalls, "stalls", &["allocstall*"], ALWAYS),
    name(C::ThrottledDirect, "throttled_direct", &["pgscan_direct_throttle"], ALWAYS),
    name(C::KswapdRuns, "kswapd_runs", &["pageoutrun"], ALWAYS),
    name(C::LowWatermarkHits, "low_watermark_hits", &["kswapd_low_wmark_hit_quickly"], ALWAYS),
    name(C::Rotated, "rotated_pages", &["pgrotated"], ALWAYS),
    name(C::ReclaimWrites, "reclaim_writes", &["nr_vmscan_write"], ALWAYS),
    name(C::MajorFaults, "major_faults", &["pgmajfault"], ALWAYS),
    name(C::FreePages, "free_pages", &["nr_free_pages"], ALWAYS),
    name(C::FilePages, "file_pages", &["nr_file_pages"], ALWAYS),
    name(C::DirtyPages, "dirty_pages", &["nr_dirty"], ALWAYS),
    name(C::WritebackPages, "writeback_pages", &["nr_writeback"], ALWAYS),
];

const COUNTERS: usize = NAMES.len();

/// The values at one time. A counter that is absent or not a number is None.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Vmstat([Option<u64>; COUNTERS]);

impl Vmstat {
    /// All None if the file cannot be read.
    pub fn read(root: &Path) -> Self {
        file(&root.join("proc/vmstat")).map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    /// Parses the text of `/proc/vmstat`, or of a node's file, which lacks the counters of the whole machine.
    pub fn parse(text: &str) -> Self {
        let mut all = Self::default();
        // A sum without one of its parts is absent.
        let mut damaged = [false; COUNTERS];
        for line in text.lines() {
            let Some((word, value)) = line.split_once(' ') else { continue };
            let Some(at) = place(word) else { continue };
            match (value.trim().parse::<u64>().ok(), all.0[at]) {
                (None, _) => damaged[at] = true,
                (Some(value), before) => all.0[at] = before.unwrap_or(0).checked_add(value),
            }
        }
        for (value, _) in all.0.iter_mut().zip(damaged).filter(|(_, damaged)| *damaged) {
            *value = None;
        }
        all
    }

    pub fn get(&self, counter: VmstatCounter) -> Option<u64> {
        self.0[counter as usize]
    }

    /// The increase since `earlier`; None if one of the two lacks the counter, or if it restarted.
    pub fn since(&self, earlier: &Self, counter: VmstatCounter) -> Option<u64> {
        grown(self.get(counter)?, earlier.get(counter)?)
    }

    /// The increase of several counters together; a kernel without one of them counts its events in another.
    pub fn sum_since(&self, earlier: &Self, counters: &[VmstatCounter]) -> Option<u64> {
        let mut each = counters.iter().filter_map(|counter| self.since(earlier, *counter)).peekable();
        each.peek()?;
        Some(each.sum())
    }

    /// The absent counters, with reasons.
    pub fn absent(&self) -> Vec<Absence> {
        let lacks = |name: &&Name| self.get(name.counter).is_none();
        let why = |name: &Name| {
            format!("/proc/vmstat has no {} that is a number ({})", name.names.join(" or "), name.since)
        };
        NAMES.iter().filter(lacks).map(|name| Absence { what: name.key.into(), why: why(name) }).collect()
    }
}

/// The increase of a 64-bit counter, which may wrap; None for one that decreased.
pub fn grown(now: u64, then: u64) -> Option<u64> {
    let more = now.wrapping_sub(then);
    (more <= u64::MAX / 2).then_some(more)
}

/// The index of a line's name; called for each line ten times a second.
fn place(word: &str) -> Option<usize> {
    // No counter starts with another letter.
    if !matches!(word.as_bytes().first(), Some(b'p' | b'w' | b'a' | b'k' | b'n')) {
        return None;
    }
    NAMES.iter().position(|name| {
        name.names.iter().any(|known| match known.strip_suffix('*') {
            Some(head) => word.starts_with(head),
            None => word == *known,
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_counters() {
        for (at, name) in NAMES.iter().enumerate() {
            assert_eq!(name.counter as usize, at, "{}", name.key);
        }
    }

    /// The lines as the kernel of each version writes them.
    #[test]
    fn the_names_of_each_kernel_are_known() {
        let old = "pgscan_file 7\nworkingset_refault_file 3\nallocstall_dma 0\nallocstall_normal 2\n\
                   allocstall_movable 5\npgscan_direct 4\npageoutrun 1\n";
        let of_5_10 = Vmstat::parse(old);
        assert_eq!(of_5_10.get(C::ScanFile), Some(7));
        assert_eq!((of_5_10.get(C::Stalls), of_5_10.get(C::KswapdRuns)), (Some(7), Some(1)));
        assert_eq!((of_5_10.get(C::ScanKhugepaged), of_5_10.get(C::ScanProactive)), (None, None));
        let why = of_5_10.absent();
        let proactive = why.iter().find(|absence| absence.what == "scanned_proactive").unwrap();
        assert!(
            proactive.why.contains("pgscan_proactive") && proactive.why.contains("6.15"),
            "{}",
            proactive.why
        );
        let of_6_18 =
            Vmstat::parse(&format!("{old}pgscan_khugepaged 1\npgscan_proactive 9\nallocstall_device 1\n"));
        assert_eq!((of_6_18.get(C::ScanProactive), of_6_18.get(C::Stalls)), (Some(9), Some(8)));
        assert_eq!(Vmstat::parse("workingset_refault 4\n").get(C::RefaultFile), Some(4));
    }

    #[test]
    fn what_is_no_number_is_absent_and_takes_its_sum_along() {
        for value in ["", "-1", "x", "99999999999999999999", "1 2"] {
            let vmstat = Vmstat::parse(&format!("pgscan_file {value}\nallocstall_normal {value}\n"));
            assert_eq!(vmstat.get(C::ScanFile), None, "{value:?}");
        }
        let damaged = Vmstat::parse("allocstall_dma 1\nallocstall_normal x\nallocstall_movable 2\n");
        assert_eq!(damaged.get(C::Stalls), None);
        assert_eq!(Vmstat::parse("").absent().len(), NAMES.len());
    }

    #[test]
    fn a_counter_wraps_and_one_that_went_back_is_not_known() {
        assert_eq!(grown(5, 3), Some(2));
        assert_eq!(grown(1, u64::MAX - 1), Some(3));
        assert_eq!(grown(3, 5), None);
        let (a, b) = (Vmstat::parse("pgscan_file 5\n"), Vmstat::parse("pgscan_file 9\npgscan_anon 3\n"));
        assert_eq!(b.since(&a, C::ScanFile), Some(4));
        assert_eq!((b.since(&a, C::ScanAnon), a.since(&b, C::ScanFile)), (None, None));
        assert_eq!(b.sum_since(&a, &[C::ScanFile, C::ScanAnon]), Some(4));
        assert_eq!(b.sum_since(&a, &[C::ScanAnon]), None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in "[a-z_* 0-9\n\\PC]{0,400}") {
            let vmstat = Vmstat::parse(&text);
            prop_assert!(vmstat.absent().len() <= NAMES.len());
        }

        /// A line is found, whatever lines surround it.
        #[test]
        fn a_line_is_found_among_others(value: u64, before in "[b-m][a-z_]{0,9} [0-9]{1,4}\n", after in "z.{0,20}") {
            let text = format!("{before}pgscan_file {value}\n{after}");
            prop_assert_eq!(Vmstat::parse(&text).get(C::ScanFile), Some(value));
        }

        #[test]
        fn growth_is_what_was_added(then: u64, more in 0..u64::MAX / 2) {
            prop_assert_eq!(grown(then.wrapping_add(more), then), Some(more));
        }
    }
}
