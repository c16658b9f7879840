//! The flame graphs of a report. Each includes where and when it was measured, as it may be copied out of the page.

use biopsy::analyze::flame::FlameSummary;
use biopsy::analyze::locks::waits::WaitProfiles;
use biopsy::analyze::locks::{LockSummary, trust};
use biopsy::analyze::profile::{Profile, Unit, folded};
use biopsy::analyze::stacks::ProfileSummary;
use biopsy::analyze::threads::ThreadSummary;
use biopsy::envelope::Envelope;
use biopsy::render::{flame, text};

/// The flame graphs that are not empty.
pub struct Pictures<'a> {
    /// The machine.
    place: &'a str,
    envelope: &'a Envelope,
    pub all: Vec<(&'static str, String)>,
}

impl<'a> Pictures<'a> {
    pub fn new(place: &'a str, envelope: &'a Envelope) -> Self {
        Self { place, envelope, all: Vec::new() }
    }

    fn add(&mut self, name: &'static str, what: &str, unit: String, lost: (u64, u64), profile: &Profile) {
        let caption =
            flame::Caption::new(what, unit).measured(self.place.to_string(), self.envelope, lost.0, lost.1);
        let picture = flame::inline(profile, &caption, &flame::Options::default());
        self.all.extend(picture.ok().map(|svg| (name, svg)));
    }

    pub fn profile(&mut self, profile: &ProfileSummary) {
        let samples = folded::profile(&profile.folded, Unit::Samples);
        let unit = format!(
            "{} of {} not idle; {} at {} Hz on {} for {}",
            samples.total(),
            text::counted(profile.samples, "sample"),
            profile.sampler,
            profile.frequency,
            text::counted(profile.cpus.into(), "CPU"),
            text::time(profile.duration_ns),
        );
        let lost = (profile.lost, profile.samples + profile.lost);
        self.add("on the CPU", "on-CPU time", unit, lost, &samples);
    }

    /// Adds recorded on-CPU stacks.
    pub fn stacks(&mut self, summary: &FlameSummary) {
        let unit = format!(
            "{} for {}",
            text::counted(summary.profile.total(), "sample"),
            text::time(summary.duration_ns)
        );
        let lost = (summary.lost, summary.measured + summary.lost);
        self.add("on the CPU", "on-CPU time", unit, lost, &summary.profile);
    }

    pub fn threads(&mut self, threads: &ThreadSummary) {
        let samples = folded::profile(&threads.folded, Unit::Samples);
        let unit = format!("{} in {} scans", samples.total(), threads.rounds);
        let lost = threads.loss.samples();
        self.add("threads", "threads that ran or waited", unit, (lost, threads.samples + lost), &samples);
    }

    pub fn locks(&mut self, locks: &LockSummary) {
        let WaitProfiles { times, .. } = WaitProfiles::of(locks);
        let unit =
            format!("{} of {}", text::time(times.total()), text::counted(locks.events.contentions, "wait"));
        let lost = trust::lost(locks).events;
        let lost = (lost, locks.events.contentions + lost);
        self.add("lock waits", "lock wait time", unit, lost, &times);
    }
}
