//! One pure function per finding id, listed in [`RULES`].

mod command;
mod complete_cpu_bound;
mod cpu;
mod deallocated_read;
mod device_bound;
mod facts;
mod generator_bound;
mod inconclusive;
#[cfg(test)]
mod literal;
mod not_enough_io;
mod queue_depth_too_low;
mod scheduler_overhead;
mod split_io;
mod submit_cpu_bound;
mod tag_starvation;
mod throttled;
mod unexamined;

use crate::analyze::latency::LatencySummary;
use crate::analyze::stacks::{CpuClass, ProfileSummary};
use crate::envelope::Envelope;
use crate::findings::{self, Diagnosis, Finding, Severity};
use crate::host::Host;
use crate::load::LoadSummary;

/// Everything that a rule may look at.
#[derive(Debug, Clone, Copy)]
pub struct Summaries<'a> {
    pub envelope: &'a Envelope,
    pub host: &'a Host,
    pub latency: &'a LatencySummary,
    /// None: the load was not ours.
    pub load: Option<&'a LoadSummary>,
    /// None: no profile could be taken.
    pub profile: Option<&'a ProfileSummary>,
}

/// A finding's computation and its page in `biopsy explain`.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub id: &'static str,
    /// One line that says what it means, then: how it is computed, from which numbers, when it is
    /// wrong, what to try.
    pub page: &'static str,
    pub find: fn(&Summaries<'_>) -> Vec<Finding>,
}

impl Rule {
    /// The page's first line.
    pub fn summary(&self) -> &'static str {
        self.page.lines().next().unwrap_or("")
    }
}

/// All rules. What makes a run void comes first, then what limits it from the application down to the
/// device; equal findings keep this order.
pub const RULES: &[Rule] = &[
    deallocated_read::RULE,
    split_io::RULE,
    generator_bound::RULE,
    not_enough_io::RULE,
    throttled::RULE,
    scheduler_overhead::RULE,
    submit_cpu_bound::RULE,
    queue_depth_too_low::RULE,
    tag_starvation::RULE,
    device_bound::RULE,
    complete_cpu_bound::RULE,
    inconclusive::RULE,
];

/// The rule of that id.
pub fn explain(id: &str) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.id == id)
}

/// Runs all rules. The first finding is the verdict: a note alone is none, so `inconclusive` stands
/// before it then.
pub fn diagnose(s: &Summaries<'_>) -> Diagnosis {
    let mut found: Vec<Finding> = RULES.iter().flat_map(|rule| (rule.find)(s)).collect();
    for finding in found.iter_mut().filter(|finding| finding.id != inconclusive::RULE.id) {
        if let Some(line) = facts::noted_loss(s, &finding.subject) {
            finding.evidence.push(line);
            finding.confidence *= facts::NOTED_CONFIDENCE;
        }
    }
    if found.iter().all(|finding| finding.severity < Severity::Warning) {
        let mut doubts = found.iter_mut().filter(|finding| finding.id == inconclusive::RULE.id).peekable();
        if doubts.peek().is_some() {
            doubts.for_each(|finding| finding.severity = Severity::Warning);
        } else {
            found.push(inconclusive::fallback(s));
        }
    }
    findings::order(&mut found);
    Diagnosis { findings: found, not_examined: unexamined::list(s) }
}

/// I/Os that costs are divided by: those of the devices that the run is about.
pub fn ios(s: &Summaries<'_>) -> u64 {
    facts::pictures(s).iter().map(|p| p.ios).sum()
}

/// CPU time of one class per I/O; None where no I/O was seen. Everything that ran on the machine is
/// in it, not only what the I/O caused.
pub fn ns_per_io(s: &Summaries<'_>, profile: &ProfileSummary, class: CpuClass) -> Option<f64> {
    let ios = ios(s);
    profile.class_ns(class).filter(|_| ios > 0).map(|ns| ns as f64 / ios as f64)
}

#[cfg(test)]
mod tests {
    use super::literal::{Case, profile};
    use super::*;
    use crate::analyze::latency::Stage;

    fn verdict(case: &Case) -> &'static str {
        diagnose(&case.summaries()).findings[0].id
    }

    #[test]
    fn the_verdicts_that_an_engineer_would_give() {
        assert_eq!(verdict(&Case::new(15_000, 32)), "device-bound");
        assert_eq!(verdict(&Case::new(12_500, 1)), "queue-depth-too-low");

        let mut tmpfs_loop = Case::new(400_000, 32);
        tmpfs_loop.disk().driver = Some("loop".into());
        tmpfs_loop.worker(15, 80);
        assert_eq!(verdict(&tmpfs_loop), "submit-cpu-bound");
        tmpfs_loop.worker(70, 25);
        assert_eq!(verdict(&tmpfs_loop), "generator-bound");

        let mut split = Case::new(8_000, 32);
        let load = split.load.as_mut().unwrap();
        load.bs = 1 << 20;
        load.jobs[0].operations = 1_000;
        load.jobs[0].bytes = 1_000 << 20;
        split.read().bytes = 1_000 << 20;
        split.disk().max_request_bytes = 128 << 10;
        assert_eq!(verdict(&split), "split-io");

        let mut unwritten = Case::new(1_040_000, 32);
        unwritten.worker(30, 69);
        unwritten.latency.devices.clear();
        assert_eq!(verdict(&unwritten), "deallocated-read");
    }

    #[test]
    fn the_scheduler_is_named_before_the_cpu_that_it_uses_up() {
        let mut case = Case::new(525_000, 32);
        case.disk().scheduler = Some("mq-deadline".into());
        case.worker(15, 83);
        case.stage(Stage::Queue, 24_000, 1_000);
        case.stage(Stage::Device, 36_000, 9_000);
        let mut seen = profile(&[(CpuClass::System, 500)]);
        seen.folded.insert("biopsy;dd_insert_requests_[k]".into(), 500);
        case.profile = Some(seen);
        let found = diagnose(&case.summaries()).findings;
        assert_eq!(
            found.iter().map(|f| f.id).collect::<Vec<_>>(),
            ["scheduler-overhead", "submit-cpu-bound"]
        );
    }

    #[test]
    fn something_is_always_said() {
        let mut case = Case::new(100_000, 32);
        case.latency.devices.clear();
        case.load = None;
        case.profile = None;
        let diagnosis = diagnose(&case.summaries());
        assert_eq!(diagnosis.findings.len(), 1);
        assert_eq!(
            (diagnosis.findings[0].id, diagnosis.findings[0].severity),
            ("inconclusive", Severity::Warning)
        );
        assert!(!diagnosis.not_examined.is_empty());
    }

    #[test]
    fn doubt_is_the_verdict_only_where_nothing_else_stands() {
        let mut case = Case::new(100_000, 32);
        case.latency.devices[0].negative = 1;
        let found = diagnose(&case.summaries()).findings;
        assert_eq!((found.len(), found[0].id, found[0].severity), (1, "inconclusive", Severity::Warning));
        case.worker(20, 79);
        let found = diagnose(&case.summaries()).findings;
        assert_eq!((found[0].id, found[1].id), ("submit-cpu-bound", "inconclusive"));
    }

    #[test]
    fn a_little_loss_is_said_and_lowers_the_confidence() {
        let mut case = Case::new(100_000, 32);
        let sure = diagnose(&case.summaries()).findings[0].confidence;
        case.latency.devices[0].lost_ios = 100;
        assert_eq!(diagnose(&case.summaries()).findings[0].confidence, sure, "0.0999 %");
        case.latency.devices[0].lost_ios = 101;
        let found = diagnose(&case.summaries()).findings;
        assert_eq!((found[0].id, found[0].confidence), ("device-bound", sure * facts::NOTED_CONFIDENCE));
        assert!(found[0].evidence.iter().any(|line| line.contains("101 of 100,101")));
    }

    #[test]
    fn every_page_has_its_parts_and_every_id_its_rule() {
        for rule in RULES {
            for part in ["How it is computed", "From which numbers", "When it is wrong", "What to try"] {
                assert!(rule.page.contains(&format!("\n\n{part}\n")), "{} lacks '{part}'", rule.id);
            }
            assert!(rule.page.lines().all(|line| line.chars().count() <= 110), "{}: a long line", rule.id);
            assert!(explain(rule.id).is_some() && !rule.summary().is_empty());
        }
        assert!(explain("no-such-finding").is_none());
    }

    #[test]
    fn the_pages_state_the_thresholds_of_the_code() {
        let states = |id: &str, values: &[f64]| {
            let page = explain(id).unwrap().page;
            for value in values {
                let (percent, plain) = (format!("{:.0} %", value * 100.0), format!("{value}"));
                assert!(page.contains(&percent) || page.contains(&plain), "{id} does not state {value}");
            }
        };
        states("deallocated-read", &[deallocated_read::READ_SHARE]);
        states("split-io", &[split_io::FACTOR, split_io::FOREIGN_SHARE]);
        states("generator-bound", &[generator_bound::USER_SHARE, cpu::WORKER_SATURATED]);
        states("scheduler-overhead", &[scheduler_overhead::QUEUE_SHARE, scheduler_overhead::CPU_SHARE]);
        let worker = [cpu::WORKER_SATURATED, cpu::WORKER_BUSY, cpu::MACHINE_SATURATED, cpu::IO_SHARE];
        states("submit-cpu-bound", &worker);
        states("submit-cpu-bound", &[submit_cpu_bound::INTERRUPT_SHARE]);
        use queue_depth_too_low as depth;
        states(
            "queue-depth-too-low",
            &[
                depth::SHALLOW,
                depth::MODERATE,
                depth::CROWDED,
                depth::DEVICE_SHARE,
                depth::WORKER_IDLE,
                depth::BUSY,
            ],
        );
        use device_bound as device;
        states(
            "device-bound",
            &[device::DEVICE_SHARE, device::FULL, device::DEPTH_SHARE, device::INTERRUPT_LIMIT],
        );
        use complete_cpu_bound as complete;
        let limits = [complete::COMPLETE_SHARE, device::INTERRUPT_LIMIT, complete::IO_SHARE];
        states("complete-cpu-bound", &limits);
        use tag_starvation as tags;
        states("tag-starvation", &[tags::QUEUE_SHARE, tags::WAIT_SHARE, device::FULL, depth::CROWDED]);
        states("not-enough-io", &[not_enough_io::BUSY]);
        states("throttled", &[throttled::NEAR, throttled::HELD_SHARE, throttled::WRITEBACK_SHARE]);
        assert!(explain("inconclusive").unwrap().page.contains(&format!("{} %", facts::MAX_LOSS * 100.0)));
    }
}
