//! Finding: read-ahead reads pages that are never used.

use std::collections::BTreeMap;

use super::facts::{self, percent};
use super::pagecache::PAGE_BYTES;
use super::{Rule, Summaries};
use crate::findings::{Finding, Number, Severity, Worth};
use crate::merge::sum_if_known;
use crate::units::{bytes, count, in_percent};

/// Share of the pages requested by read-ahead that were unused by the end.
pub const SOME: f64 = 0.25;
pub const MOST: f64 = 0.50;

/// Fewer pages are not enough for a finding: 40 MB, compared with which the pages in flight of several streams at the
/// end are few.
pub const LEAST: u64 = 10_000;

/// Share of read-ahead in all reads, and of reads in all transfers: below it read-ahead does not matter.
pub const OF_READS: f64 = 0.10;

/// Share of unused pages in all reads below which they are not a limit.
pub const WASTED: f64 = 0.5;

/// One run never predicts more than a doubling.
const MAX_WORTH: f64 = 2.0;

const ASKED_PAGES: Number = Number::new("asked_pages", "pages that read-ahead requested");
const UNUSED_PAGES: Number = Number::new("unused_pages", "pages read ahead and never used, about");
const UNUSED_PERCENT: Number =
    Number::new("unused_percent", "share of read-ahead that was never used, about");

pub const RULE: Rule = Rule { id: "readahead", page: PAGE, find };

const PAGE: &str = "\
Read-ahead reads pages that are never used.

How it is computed
  unused_percent = unused_pages / asked_pages: a note from 25 % on, a warning from 50 % on, if the
  unused pages are 50 % or more of the bytes read, too.
  unused_pages = pages that read-ahead requested, but no more than the disks read, minus the pages
  that reads and faults used. At least 10,000 pages must have been requested. They must be at least
  10 % of the bytes read, and reads at least 10 % of the bytes transferred. Not found if biopsy's
  own load reads directly.
  From: locks.pagecache.readahead.asked_pages, .wanted_pages, .unused_pages;
  locks.pagecache.series[].read_bytes, .written_bytes.

When it is wrong
  - Pages requested shortly before the end and used after it count as unused: a short run shows too
    many.
  - Pages used twice count twice and hide as many unused ones. Pages requested again while cached
    are not read again: if other processes read past the cache, too many pages count as unused.
  - A fault in a mapped file also maps cached neighbour pages. They count as used and hide as many
    unused ones; if they alone decide, nothing is found.
  - The page cache is shared: read-ahead of other programs counts.
  - Pages may be reclaimed before they are used: then see direct-reclaim or pagecache-storm.

What to do
  - Random reads: posix_fadvise(POSIX_FADV_RANDOM), or a smaller read-ahead (blockdev --setra,
    queue/read_ahead_kb). Compare before and after.
  - Sequential reads that lose pages: a smaller read-ahead, or fewer concurrent streams.
  - O_DIRECT has no read-ahead. Do not switch read-ahead off for sequential reads through the cache:
    each page becomes an I/O.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    judge(s).into_iter().collect()
}

fn judge(s: &Summaries<'_>) -> Option<Finding> {
    let pagecache = s.pagecache?;
    if s.load.is_some_and(|load| load.job.direct) {
        return None;
    }
    let seen = pagecache.readahead.filter(|seen| seen.asked_pages >= LEAST)?;
    let share = seen.unused_pages as f64 / seen.asked_pages as f64;
    let read = sum_if_known(pagecache.moments.iter().map(|moment| moment.read_bytes));
    let read = read.map(|read| read as f64).filter(|read| *read > 0.0);
    let of_reads = read.map(|read| seen.asked_pages as f64 * PAGE_BYTES / read);
    let written = sum_if_known(pagecache.moments.iter().map(|moment| moment.written_bytes));
    let of_moved = read.zip(written).map(|(read, written)| read / (read + written as f64));
    if of_moved.is_some_and(|part| part < OF_READS) {
        return None;
    }
    if share < SOME || of_reads.is_some_and(|part| part < OF_READS) {
        return None;
    }
    let wasted = read.map(|read| (seen.unused_pages as f64 * PAGE_BYTES / read).min(0.9));
    let mut evidence = vec![format!(
        "read-ahead requested {} pages ({}), and about {} of them were never used",
        count(seen.asked_pages),
        bytes(seen.asked_pages as f64 * PAGE_BYTES),
        count(seen.unused_pages)
    )];
    evidence.extend(wasted.map(|part| format!("that is {} of all bytes read", in_percent(part))));
    let disks: Vec<String> = facts::device_views(s)
        .iter()
        .filter_map(|p| p.disk)
        .map(|disk| {
            format!("the read-ahead window of {} is {}", disk.name, bytes(disk.read_ahead_bytes as f64))
        })
        .collect();
    evidence.extend(disks);
    Some(Finding {
        id: RULE.id,
        subject: "page cache".to_string(),
        severity: if share >= MOST && wasted.is_none_or(|part| part >= WASTED) {
            Severity::Warning
        } else {
            Severity::Note
        },
        confidence: 0.7,
        sentence: format!("About {} of the pages read ahead were never used.", in_percent(share.min(1.0))),
        numbers: BTreeMap::from([
            (ASKED_PAGES, seen.asked_pages as f64),
            (UNUSED_PAGES, seen.unused_pages as f64),
            (UNUSED_PERCENT, percent(share.min(1.0))),
        ]),
        evidence,
        advice: "Declare the reads as random (POSIX_FADV_RANDOM), or reduce the read-ahead window \
            (queue/read_ahead_kb), and compare."
            .to_string(),
        check: "biopsy locks --for 10s".to_string(),
        worth: wasted.map(|part| Worth {
            metric: "bytes_per_second_ratio".to_string(),
            low: 1.0,
            high: (1.0 / (1.0 - part)).min(MAX_WORTH),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::memory_sample::MemorySample;
    use crate::rules::fixtures::Case;
    use crate::rules::inputs::{PageCache, Readahead};

    fn case(asked_pages: u64, unused_pages: u64, read_bytes: Option<u64>) -> Case {
        let mut case = Case::new(1_000, 32);
        case.load = None;
        case.pagecache = Some(PageCache {
            readahead: Some(Readahead { asked_pages, unused_pages }),
            moments: vec![MemorySample { read_bytes, ..MemorySample::default() }],
            ..PageCache::default()
        });
        case
    }

    /// A program with direct reads, and read-ahead of its own libraries while it starts.
    #[test]
    fn little_of_what_is_read_is_no_warning() {
        let severity = |read_pages: u64| {
            let case = case(20_000, 15_000, Some(read_pages * 4096));
            find(&case.summaries())[0].severity
        };
        assert_eq!((severity(30_000), severity(30_100)), (Severity::Warning, Severity::Note));
    }

    #[test]
    fn waste_has_two_sides() {
        let found = |asked, unused| find(&case(asked, unused, None).summaries());
        assert!(found(10_000, 2_499).is_empty() && found(9_999, 9_999).is_empty());
        assert_eq!(found(10_000, 2_500)[0].severity, Severity::Note);
        assert_eq!(found(10_000, 4_999)[0].severity, Severity::Note);
        let most = found(10_000, 5_000);
        assert_eq!((most[0].severity, most[0].numbers["unused_percent"]), (Severity::Warning, 50.0));
        assert!(most[0].worth.is_none(), "of how much is not known");
    }

    #[test]
    fn it_must_be_a_part_of_what_is_read() {
        let read = 10_000 * 4096;
        assert!(find(&case(10_000, 5_000, Some(10 * read + 4096)).summaries()).is_empty());
        let found = find(&case(10_000, 5_000, Some(10 * read)).summaries());
        assert!((found[0].worth.as_ref().unwrap().high - 1.0 / 0.95).abs() < 1e-9);
        assert!(found[0].evidence[1].contains("5 % of all"), "{:?}", found[0].evidence);
    }

    #[test]
    fn it_is_no_matter_of_writers_and_of_direct_loads() {
        let mut writer = case(10_000, 5_000, Some(10_000 * 4096));
        let moved = &mut writer.pagecache.as_mut().unwrap().moments[0];
        moved.written_bytes = Some(9 * 10_000 * 4096);
        assert_eq!(find(&writer.summaries()).len(), 1);
        writer.pagecache.as_mut().unwrap().moments[0].written_bytes = Some(9 * 10_000 * 4096 + 40_960);
        assert!(find(&writer.summaries()).is_empty());
        let mut direct = case(10_000, 5_000, None);
        direct.load = Case::new(1_000, 32).load;
        assert!(find(&direct.summaries()).is_empty());
    }

    #[test]
    fn what_was_not_counted_is_no_finding() {
        let mut case = Case::new(1_000, 32);
        assert!(find(&case.summaries()).is_empty());
        case.pagecache = Some(PageCache::default());
        assert!(find(&case.summaries()).is_empty());
    }
}
