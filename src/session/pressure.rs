//! Runs the lock and page cache probes as one, because their results explain each other.

use std::path::Path;

use crate::analyze::locks::{self, LockSummary, trust};
use crate::analyze::pagecache::{self, PagecacheSummary, Readahead, paths};
use crate::analyze::pressure::PressureSummary;
use crate::analyze::stacks;
use crate::envelope::{Cost, Envelope, Missing, Reason};
use crate::host::Host;
use crate::host::memory_surroundings::Surroundings;
use crate::probe::locks::{LockProbe, Options};
use crate::probe::pagecache::PagecacheProbe;
use crate::probe::stacks::StacksProbe;
use crate::refusal::plain;
use crate::symbols::{Helper, Names, Symbolizer};
use crate::{probe, wire};
use anyhow::Result;

use super::watch::{Live, WatchInterval};
use crate::probe::Probe;

/// Samples per second and CPU, where the LRU functions cannot be traced.
const FREQUENCY: u64 = 99;

/// Readings of both probes at one time; None for a probe that is not attached.
#[derive(Clone)]
pub struct Reading {
    locks: Option<wire::locks::Reading>,
    pagecache: Option<wire::pagecache::Reading>,
}

/// The two probes. If the machine refuses one, the other still runs.
pub struct Probes {
    locks: Option<LockProbe>,
    pagecache: Option<PagecacheProbe>,
    /// Why one is missing.
    missing: Vec<Missing>,
    start: Reading,
}

impl Probes {
    /// Attaches both; nothing is counted before [`Self::begin`]. Fails if both are refused.
    pub fn prepare(host: &Host, locks: &Options, pagecache: &probe::pagecache::Options) -> Result<Self> {
        let root = Path::new("/");
        let locks = LockProbe::prepare(host, root, locks);
        let spins = locks.as_ref().ok().and_then(LockProbe::spin_clock);
        let pagecache = PagecacheProbe::prepare(host, root, pagecache, spins);
        let mut missing = Vec::new();
        let mut refused = |part: &str, error: &anyhow::Error| {
            missing.push(Missing {
                part: Some(part.to_string()),
                reason: Reason::Refused,
                why: plain(&format!("{error:#}")),
                ..Missing::default()
            });
        };
        let (locks, pagecache) = match (locks, pagecache) {
            (Err(error), Err(_)) => return Err(error),
            (Ok(locks), Err(error)) => {
                refused("pagecache", &error);
                (Some(locks), None)
            }
            (Err(error), Ok(pagecache)) => {
                refused("locks", &error);
                (None, Some(pagecache))
            }
            (Ok(locks), Ok(pagecache)) => (Some(locks), Some(pagecache)),
        };
        Ok(Self { locks, pagecache, missing, start: Reading { locks: None, pagecache: None } })
    }

    /// Whether the LRU functions are traced, or no page cache probe exists to trace them.
    pub fn follows_functions(&self) -> bool {
        self.pagecache.as_ref().is_none_or(PagecacheProbe::follows_functions)
    }

    /// The cost of each probe's programs, for locks per wait; `seen` is their result.
    pub fn costs(&self, seen: &PressureSummary) -> (Option<Cost>, Option<Cost>) {
        let locks = self.locks.as_ref().zip(seen.locks.as_ref());
        let pagecache = self.pagecache.as_ref().zip(seen.pagecache.as_ref());
        (
            locks.map(|(probe, summary)| probe.cost(summary.contentions_per_second())),
            pagecache.map(|(probe, summary)| probe.cost(summary.ios_per_second())),
        )
    }

    /// The cost of both together.
    pub fn cost(&self, seen: &PressureSummary) -> Cost {
        match self.costs(seen) {
            (Some(locks), Some(pagecache)) => locks.beside(pagecache).0,
            (one, other) => one.or(other).unwrap_or_default(),
        }
    }

    /// The gaps of both.
    pub fn missing(&self, seen: &PressureSummary) -> Vec<Missing> {
        let mut all = self.missing.clone();
        all.extend(self.pagecache.iter().flat_map(PagecacheProbe::missing).cloned());
        if let (Some(locks), Some(pagecache)) = self.costs(seen)
            && !locks.beside(pagecache).1
        {
            all.push(unmeasured());
        }
        let ahead = seen.pagecache.as_ref().and_then(|pagecache| pagecache.readahead);
        all.extend(ahead.filter(Readahead::is_hidden_by_mapping).map(|_| hidden_by_mapping()));
        let locks = self.locks.as_ref().zip(seen.locks.as_ref());
        all.extend(locks.into_iter().flat_map(|(probe, summary)| locks::missing(probe.missing(), summary)));
        all
    }
}

/// Unused read-ahead is unknown because of mapped pages.
fn hidden_by_mapping() -> Missing {
    Missing {
        part: Some("readahead.unused_pages".to_string()),
        reason: Reason::Mapped,
        why: "programs read mapped files: a page fault also maps neighbouring cached pages, and no event \
            shows whether these were used"
            .to_string(),
        ..Missing::default()
    }
}

/// The cost of tracing the page cache was not measured; all other costs were.
pub fn unmeasured() -> Missing {
    Missing {
        part: Some("cost.pagecache".to_string()),
        reason: Reason::TooFewIos,
        why: "the cost excludes the page cache probes: too few I/Os while the kernel's program statistics \
            were on"
            .to_string(),
        ..Missing::default()
    }
}

impl Probe for Probes {
    type Reading = Reading;

    fn begin(&mut self) -> Result<()> {
        // The one without samples first: starting the sampler takes longer.
        self.pagecache.iter_mut().try_for_each(PagecacheProbe::begin)?;
        self.locks.iter_mut().try_for_each(LockProbe::begin)?;
        self.start = Reading {
            locks: self.locks.as_ref().map(|locks| locks.start().clone()),
            pagecache: self.pagecache.as_ref().map(|pagecache| pagecache.start().clone()),
        };
        Ok(())
    }

    fn start(&self) -> &Reading {
        &self.start
    }

    fn tick(&mut self) {
        self.locks.iter_mut().for_each(LockProbe::tick);
        self.pagecache.iter_mut().for_each(PagecacheProbe::tick);
    }

    fn read(&self) -> Result<Reading> {
        Ok(Reading {
            locks: self.locks.as_ref().map(LockProbe::read).transpose()?,
            pagecache: self.pagecache.as_ref().map(PagecacheProbe::read).transpose()?,
        })
    }

    fn detach(&mut self) -> Result<Reading> {
        Ok(Reading {
            locks: self.locks.as_mut().map(LockProbe::detach).transpose()?,
            pagecache: self.pagecache.as_mut().map(PagecacheProbe::detach).transpose()?,
        })
    }
}

/// Symbolizes the readings; resolved names are kept.
pub struct PressureSymbolizer<'a> {
    host: &'a Host,
    /// Locks of other devices are left out; empty: none are left out.
    devices: &'a [String],
    symbolizer: Symbolizer,
    names: Names,
    samples: Option<StacksProbe>,
    /// Whether samples were taken.
    sampled: bool,
}

impl<'a> PressureSymbolizer<'a> {
    /// `samples`: sample the CPUs, for the functions' shares where they cannot be traced.
    pub fn new(host: &'a Host, devices: &'a [String], samples: bool) -> Self {
        let samples = if samples { StacksProbe::of_kernel(FREQUENCY).ok() } else { None };
        Self {
            host,
            devices,
            symbolizer: Symbolizer::new(Helper::own()),
            names: Names::default(),
            sampled: samples.is_some(),
            samples,
        }
    }

    /// What a measured cost does not include.
    pub fn not_counted(&self) -> Option<Missing> {
        self.sampled.then(|| Missing {
            part: Some("cost.paths".to_string()),
            reason: Reason::NotCounted,
            why: "the cost excludes sampling the functions of the LRU lists: its program is not one of the \
                probes"
                .to_string(),
            ..Missing::default()
        })
    }

    /// The lock waits between two readings.
    pub fn locks(&mut self, from: &Reading, to: &Reading) -> Option<LockSummary> {
        let (from, to) = (from.locks.as_ref()?, to.locks.as_ref()?);
        let mut wanted = locks::addresses(to);
        wanted.kernel.retain(|address| self.names.kernel(*address).is_empty());
        self.names.kernel.extend(self.symbolizer.names(&wanted).kernel);
        Some(locks::summarize(self.host, from, to, &self.names, self.devices))
    }

    /// Everything between two readings.
    pub fn whole(&mut self, from: &Reading, to: &Reading) -> PressureSummary {
        PressureSummary { locks: self.locks(from, to), pagecache: self.pagecache(from, to) }
    }

    /// Stops the CPU sampler and adds its samples.
    fn add_samples(&mut self, summary: &mut PressureSummary) {
        let raw = self.samples.take().and_then(|samples| samples.finish().ok());
        if let Some((raw, pagecache)) = raw.zip(summary.pagecache.as_mut()) {
            pagecache.paths = paths::sampled(&raw, &self.symbolizer.names(&stacks::addresses(&raw)));
        }
    }

    fn pagecache(&self, from: &Reading, to: &Reading) -> Option<PagecacheSummary> {
        let (from, to) = (from.pagecache.as_ref()?, to.pagecache.as_ref()?);
        Some(pagecache::summarize(&Surroundings::read(Path::new("/"), self.host), from, to))
    }
}

/// Shows lock waits and the page cache.
pub struct PressureView<'a> {
    pub naming: PressureSymbolizer<'a>,
    /// Whether the cost is measured.
    pub has_cost: bool,
}

impl Live for PressureView<'_> {
    type Probe = Probes;
    type Summary = PressureSummary;

    /// CPU samples cover the whole interval, and are included in its last piece.
    fn summary(
        &mut self,
        probes: &Probes,
        piece: &WatchInterval<'_, Reading>,
        envelope: Envelope,
    ) -> (Envelope, PressureSummary) {
        let mut seen = self.naming.whole(piece.from, piece.to);
        if piece.is_last {
            self.naming.add_samples(&mut seen);
        }
        let mut missing = probes.missing(&seen);
        missing.extend(self.naming.not_counted().filter(|_| self.has_cost));
        let envelope = Envelope {
            duration_ns: seen.duration_ns(),
            lost: seen.lost(),
            cost: probes.cost(&seen),
            missing,
            ..envelope
        };
        (envelope, seen)
    }

    fn distrust(&mut self, first: &Reading, last: &Reading, max_loss: f64) -> Option<String> {
        trust::distrust(&self.naming.locks(first, last)?, max_loss)
    }
}
