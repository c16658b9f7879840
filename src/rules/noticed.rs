//! What `biopsy load` notices of the drive and says beside its figures: pages for these, and no rules, as a diagnosis
//! neither writes nor asks a drive for its health.

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

pub const NOTICED: &[Notice] = &[
    Notice { id: "write-cliff", page: WRITE_CLIFF },
    Notice { id: "thermal-throttle", page: THERMAL_THROTTLE },
];

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

const THERMAL_THROTTLE: &str = "\
The drive slowed itself down because it was hot (said by biopsy load).

How it is computed
  Only by biopsy load, of NVMe drives: the health log (SMART, log page 02h) is read before each section of
  the load and behind it. suffered is true where a counter grew: entries into the drive's thermal levels T1
  (light throttling) and T2 (heavy), seconds in them, minutes above its warning or critical temperature. It
  is null where none grew and the drive does not count throttling. biopsy diagnose does not ask for it and
  names the temperature among what it did not examine.

From which numbers
  load.thermal: t1 and t2 (entered, seconds), warning_minutes, critical_minutes, celsius_before and
  celsius_after, critical_warning.

When it is wrong
  - The counters are the drive's: many keep none of T1 and T2 (null, unless they ever were above 0) and
    throttle all the same. The two temperatures and a rate that falls during the run are the hint then.
  - They hold for the whole time between the two looks, and for the whole drive, whoever used it.
  - Minutes grow in steps: a short time above the warning temperature may not show.
  - Other drives than NVMe have no such log: load.thermal is null.

What to try
  Air or a heat sink; a slot further away from what is hot; a pause before the run. A short run on a cool
  drive (biopsy load DEV --runtime 30s) shows the rate before it throttles.
";
