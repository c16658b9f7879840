//! What `biopsy load` notices of the drive and says beside its figures: pages for these, and no rules, as a diagnosis
//! does not write.

/// An id of the contract, and its page.
#[derive(Debug, Clone, Copy)]
pub struct Notice {
    pub id: &'static str,
    pub page: &'static str,
}

impl Notice {
    /// The page's first line.
    pub fn summary(&self) -> &'static str {
        self.page.lines().next().unwrap_or("")
    }
}

pub const NOTICED: &[Notice] = &[Notice { id: "write-cliff", page: WRITE_CLIFF }];

const WRITE_CLIFF: &str = "\
Writes become slower for good when the drive's fast cache is full (said by biopsy load).

A drive takes the first gigabytes into a cache of its own (SLC, TurboWrite), and all that follows at the
speed of its media. A run that ends before shows the cache, one across it a mean of both.

How it is computed
  Only by biopsy load, of a job that only writes, past the page cache; biopsy diagnose never writes. The
  throughput of its intervals is cut in two where the two means fit best. It is a cliff where the level
  behind is lower by 20 % or more, and so is the last tenth of the run; two levels fit better than a straight
  line; they differ by 4 standard errors or more; and at least 3 intervals lie before and 10 behind it.

From which numbers
  load.written: bytes and time of up to 512 intervals. The result is load.write_cliff (in the text: cliff):
  bytes and time before it, bytes per second before and behind.

When it is wrong
  - The run ended before the cache was full: nothing is said, and the figures are the cache's.
  - A drive that throttles for heat becomes slower as well: see thermal-throttle. So does a limit of the cloud
    that lets bursts pass.
  - With several jobs each is looked at by itself; one that ends makes the others faster.
  - A drive that becomes slower step by step shows the largest step only.

What to try
  To measure the media: write more than after_bytes first, or let --precondition do it. To measure the cache:
  stay below it, and leave the drive idle before, so that it can empty it.
";
