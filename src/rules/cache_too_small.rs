//! Finding: the data that is read was in the page cache before, but was evicted.

use super::facts::{self, percent};
use super::numbers;
use super::pagecache::PAGE_BYTES;
use super::{Rule, Summaries};
use crate::findings::{Finding, Number, Numbers, Severity};
use crate::merge::sum_if_known;
use crate::units::{bytes, in_percent};

/// Share of the reads that was in the cache before.
pub const SOME: f64 = 0.25;
pub const MOST: f64 = 0.5;

/// This share of the refaulted pages must have been evicted in the same interval: otherwise the cache was too small
/// earlier, but is not now.
pub const EVICTED: f64 = 0.5;

/// With more refaults than reads the data came from elsewhere. The two counters are not read at exactly the same time.
const TOO_MUCH: f64 = 1.05;

/// Below this rate the device has almost nothing to do: 256 pages a second.
const LEAST_BYTES_PER_SECOND: f64 = 1024.0 * 1024.0;

const REFAULT_PERCENT: Number =
    Number::new("refault_percent", "share of the reads that were in the cache before");
const REFAULTS_PER_SECOND: Number =
    Number::new("refaults_per_second", "pages per second that were in the cache before");

pub const RULE: Rule = Rule { id: "cache-too-small", page: PAGE, find };

const PAGE: &str = "\
The page cache is too small for what is read.

The kernel remembers which pages it evicted. A page that is read back is a refault. With enough
memory these reads would not reach the device.

How it is computed
  refault_percent = refaults of file pages x 4 KiB / bytes read by the traced devices. A note from
  25 % on, a warning from 50 % on, if there are 1 MiB of refaults a second and 100 I/Os, and if
  file pages are evicted at 50 % of that rate or more: else the cache was too small once, and is
  not now. Confidence 0.6. Not found with biopsy's own load, or if refaults are more than what the
  traced devices read. A note if pagecache-storm, direct-reclaim, readahead, swapping or
  not-enough-io is a warning.
  From: locks.pagecache.refault_pages (workingset_refault_file), .stolen_pages (pgsteal_file),
  .series[].read_bytes.

When it is wrong
  - The counter is the machine's, and the reads are those of all processes on the traced devices.
  - A page that was evicted hours ago is a refault as well: with a full cache, a single pass over a
    large file that was read before looks the same, and more memory would not help it.
  - A page that is written as a whole after it was evicted is a refault, and is not read.

What to do
  - More memory, or a higher memory.max of the memory cgroup that reads.
  - Read less of what is used once: O_DIRECT, RWF_DONTCACHE (Linux 6.14), POSIX_FADV_DONTNEED.
  - Mapped files with random access: MADV_RANDOM, so that no neighbours are read.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    judge(s).into_iter().collect()
}

fn judge(s: &Summaries<'_>) -> Option<Finding> {
    let pagecache = s.pagecache.filter(|of| of.duration_ns > 0 && s.load.is_none())?;
    let (refaults, evicted) = (pagecache.refault_pages?, pagecache.stolen_pages?);
    let read = sum_if_known(pagecache.moments.iter().map(|moment| moment.read_bytes))?;
    let again = refaults as f64 * PAGE_BYTES;
    let seconds = pagecache.duration_ns as f64 / 1e9;
    let share = again / read.max(1) as f64;
    let pictures = facts::device_views(s);
    if !pictures.iter().any(|p| p.sound(s)) || (evicted as f64) < EVICTED * refaults as f64 {
        return None;
    }
    if !(SOME..=TOO_MUCH).contains(&share) || again < LEAST_BYTES_PER_SECOND * seconds {
        return None;
    }
    let share = share.min(1.0);
    let readers: Vec<&str> = pictures.iter().map(|p| p.device.name.as_str()).collect();
    Some(Finding {
        id: RULE.id,
        subject: "page cache".to_string(),
        severity: if share >= MOST { Severity::Warning } else { Severity::Note },
        confidence: 0.6,
        sentence: format!(
            "The page cache is too small: {} of the data read, {}/s, was in it before.",
            in_percent(share),
            bytes(again / seconds)
        ),
        numbers: Numbers::from([
            (REFAULT_PERCENT, percent(share)),
            (REFAULTS_PER_SECOND, refaults as f64 / seconds),
            (numbers::READ_BYTES_PER_SECOND, read as f64 / seconds),
        ]),
        evidence: vec![
            format!("{}/s are read from {}", bytes(read as f64 / seconds), readers.join(", ")),
            format!(
                "{}/s of file pages are evicted at the same time",
                bytes(evicted as f64 * PAGE_BYTES / seconds)
            ),
        ],
        advice: "Give the readers more memory, or keep data that is read only once out of the cache \
            (O_DIRECT, RWF_DONTCACHE)."
            .to_string(),
        check: "biopsy locks --for 10s".to_string(),
        worth: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::memory_sample::MemorySample;
    use crate::rules::diagnose;
    use crate::rules::fixtures::{Case, SECOND};
    use crate::rules::inputs::PageCache;

    /// One second with this many refaults among 10,000 pages read.
    fn case(refaults: Option<u64>) -> Case {
        let mut case = Case::new(10_000, 4);
        case.load = None;
        // The samples' refaults include swap.
        let moment = MemorySample {
            duration_ns: SECOND / 2,
            refault_pages: Some(9_999),
            read_bytes: Some(5_000 * 4096),
            ..MemorySample::default()
        };
        case.pagecache = Some(PageCache {
            duration_ns: SECOND,
            moments: vec![moment; 2],
            refault_pages: refaults,
            stolen_pages: refaults.map(|pages| pages.div_ceil(2)),
            ..PageCache::default()
        });
        case
    }

    #[test]
    fn pages_that_come_back_are_named_by_their_share() {
        let found = diagnose(&case(Some(5_000)).summaries()).findings;
        assert_eq!((found[0].id, found[0].severity), (RULE.id, Severity::Warning), "{found:?}");
        assert_eq!(found[0].numbers["refault_percent"], 50.0);
        assert_eq!(find(&case(Some(4_999)).summaries())[0].severity, Severity::Note);
        assert_eq!(find(&case(Some(2_500)).summaries()).len(), 1);
        assert!(find(&case(Some(2_499)).summaries()).is_empty());
        assert_eq!(find(&case(Some(10_500)).summaries())[0].numbers["refault_percent"], 100.0);
        assert!(find(&case(Some(10_501)).summaries()).is_empty(), "not what these devices read");
    }

    #[test]
    fn unknown_is_no_zero_and_little_is_nothing() {
        assert!(find(&case(None).summaries()).is_empty());
        let mut roomy = case(Some(5_000));
        roomy.pagecache.as_mut().unwrap().stolen_pages = Some(2_499);
        assert!(find(&roomy.summaries()).is_empty(), "the cache is not full now");
        let mut few = case(Some(5_000));
        few.read().ios = 99;
        assert!(find(&few.summaries()).is_empty());
        let mut slow = case(Some(5_000));
        slow.pagecache.as_mut().unwrap().duration_ns = 20 * SECOND;
        assert!(find(&slow.summaries()).is_empty(), "less than 1 MiB a second");
        let mut of_ours = case(Some(5_000));
        of_ours.load = Case::new(1_000, 1).load;
        assert!(find(&of_ours.summaries()).is_empty());
    }
}
