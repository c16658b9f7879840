//! Notices that `biopsy load` prints with its figures: pages only, no rules, because a diagnosis never writes.

/// A documented id, and its page.
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
Writes slow down for good once the drive's cache is full.

A drive writes the first gigabytes to a fast cache of its own (SLC, TurboWrite) and all that follows
at the speed of its media. A run that ends before that measures the cache; a run across it measures
a mean of both.

How it is computed
  Only by biopsy load, for a job that only writes, past the page cache; biopsy diagnose never
  writes. The run's throughput by interval is cut in two where two means fit best. It is a cliff if
  - the level after the cut is lower by 20 % or more, and so is the last tenth of the run;
  - two levels fit better than a straight line;
  - they differ by at least 4 standard errors;
  - at least 3 intervals lie before the cut and 10 after it.
  From: load.written (time and bytes of up to 512 intervals). The result is load.write_cliff (in the
  text: cliff): bytes and time before the cut, bytes per second before and after it.

When it is wrong
  - If the run ends before the cache is full, nothing is found, and the figures are the cache's.
  - A drive that throttles when hot also slows down (see thermal-throttle). So does a cloud limit
    that allows bursts.
  - Several jobs are judged separately; one that ends makes the others faster.
  - If a drive slows down in steps, only the largest step is shown.

What to do
  To measure the media, write more than after_bytes first, or use --precondition. To measure the
  cache, stay below it, and leave the drive idle before the run so that it can empty the cache.
";
