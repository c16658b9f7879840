//! Decides the answer: the rank of each finding, and which finding suppresses which other.

use super::*;
use crate::rules::Rank::{Aside, Depth, Device, Figures, Host, Link, Setting};

/// All rules with the rank of their claims. Equal findings keep this order.
pub const TABLE: &[(Rank, Rule)] = &[
    (Figures, deallocated_read::RULE),
    (Setting, split_io::RULE),
    (Figures, polling_not_active::RULE),
    (Figures, foreign_io::RULE),
    (Host, generator_bound::RULE),
    (Depth, not_enough_io::RULE),
    (Host, pagecache_storm::RULE),
    (Setting, throttled::RULE),
    (Setting, cpu_quota::RULE),
    (Host, flush_bound::RULE),
    (Host, lock_contention::RULE),
    (Host, direct_reclaim::RULE),
    (Host, swapping::RULE),
    (Host, cache_too_small::RULE),
    (Aside, worker_punt::RULE),
    (Aside, readahead::RULE),
    (Host, scheduler_overhead::RULE),
    (Host, submit_cpu_bound::RULE),
    (Host, cpu_contention::RULE),
    (Host, cpu_steal::RULE),
    (Aside, numa_remote::RULE),
    (Depth, queue_depth_too_low::RULE),
    (Setting, tag_starvation::RULE),
    (Setting, driver_queue_full::RULE),
    (Aside, stacked_device::RULE),
    (Setting, volume_cap::RULE),
    (Device, thermal_throttle::RULE),
    (Device, link_degraded::RULE),
    (Link, link_bound::RULE),
    (Link, root_complex_shared::RULE),
    (Device, device_bound::RULE),
    (Device, device_outlier::RULE),
    (Host, complete_cpu_bound::RULE),
    (Host, interrupt_bound::RULE),
    (Aside, interrupt_imbalance::RULE),
    (Depth, polling_would_help::RULE),
    (Depth, offered_load::RULE),
    (Device, largest_stage::RULE),
    (Figures, inconclusive::RULE),
];

/// What remains of a finding if another one is present.
enum Remainder {
    /// Nothing: the other one covers it.
    Nothing,
    /// A note, with this line of evidence.
    Note(&'static str),
}

/// Whether the subjects must match for one finding to suppress another.
#[derive(PartialEq)]
enum Of {
    /// Both are about one device, or about devices of one stack.
    OneSubject,
    /// Whatever the subjects are.
    Any,
}

use Remainder::{Note, Nothing};

const OF_THE_STORM: &str = "it is a part of pagecache-storm";

/// If the first finding is present, what remains of the second one.
const BEFORE: &[(&str, &str, Of, Remainder)] = &[
    (throttled::RULE.id, queue_depth_too_low::RULE.id, Of::OneSubject, Nothing),
    (throttled::RULE.id, not_enough_io::RULE.id, Of::Any, Nothing),
    (submit_cpu_bound::RULE.id, driver_queue_full::RULE.id, Of::Any, Note("submit-cpu-bound is the limit")),
    (readahead::RULE.id, not_enough_io::RULE.id, Of::Any, Note("read-ahead fetches what is not used")),
    (cpu_quota::RULE.id, not_enough_io::RULE.id, Of::Any, Nothing),
    (queue_depth_too_low::RULE.id, device_bound::RULE.id, Of::OneSubject, Nothing),
    (complete_cpu_bound::RULE.id, interrupt_bound::RULE.id, Of::OneSubject, Nothing),
    (largest_stage::RULE.id, device_bound::RULE.id, Of::OneSubject, Nothing),
    // It says more: what the pace is.
    (offered_load::RULE.id, not_enough_io::RULE.id, Of::Any, Nothing),
    (offered_load::RULE.id, device_bound::RULE.id, Of::OneSubject, Nothing),
    (offered_load::RULE.id, queue_depth_too_low::RULE.id, Of::OneSubject, Nothing),
    // A degraded link saturates too early.
    (link_degraded::RULE.id, link_bound::RULE.id, Of::OneSubject, Note("link-degraded is the reason")),
    // The device's speed does not matter below a configured limit.
    (throttled::RULE.id, deallocated_read::RULE.id, Of::OneSubject, Note("throttled limits the load")),
    (not_enough_io::RULE.id, cpu_contention::RULE.id, Of::Any, Note("there is little I/O to wait")),
    (tag_starvation::RULE.id, worker_punt::RULE.id, Of::Any, Note("it is a part of tag-starvation")),
    (not_enough_io::RULE.id, cache_too_small::RULE.id, Of::Any, Note("there is little I/O to wait for")),
    // These say why pages leave the cache.
    (swapping::RULE.id, cache_too_small::RULE.id, Of::Any, Note("memory is short: see swapping")),
    (
        direct_reclaim::RULE.id,
        cache_too_small::RULE.id,
        Of::Any,
        Note("direct-reclaim names the threads that wait for it"),
    ),
    (
        readahead::RULE.id,
        cache_too_small::RULE.id,
        Of::Any,
        Note("read-ahead fills it with what is not used"),
    ),
    (pagecache_storm::RULE.id, cache_too_small::RULE.id, Of::Any, Note(OF_THE_STORM)),
    (pagecache_storm::RULE.id, direct_reclaim::RULE.id, Of::Any, Note(OF_THE_STORM)),
    (pagecache_storm::RULE.id, worker_punt::RULE.id, Of::Any, Note(OF_THE_STORM)),
    (pagecache_storm::RULE.id, lock_contention::RULE.id, Of::Any, Note(OF_THE_STORM)),
];

/// Up to this confidence a claim is weak.
const WEAK: f64 = 0.5;

/// Findings that would change if the device were faster or slower.
const RESTS_ON_THE_DEVICE: [&str; 13] = [
    generator_bound::RULE.id,
    scheduler_overhead::RULE.id,
    submit_cpu_bound::RULE.id,
    queue_depth_too_low::RULE.id,
    tag_starvation::RULE.id,
    device_bound::RULE.id,
    device_outlier::RULE.id,
    complete_cpu_bound::RULE.id,
    interrupt_bound::RULE.id,
    polling_would_help::RULE.id,
    largest_stage::RULE.id,
    offered_load::RULE.id,
    volume_cap::RULE.id,
];

/// The rank of a finding by its id.
fn rank(id: &str) -> Rank {
    TABLE.iter().find(|(_, rule)| rule.id == id).map_or(Aside, |(rank, _)| *rank)
}

/// All findings, with the answer first.
pub fn decide(s: &Summaries<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = TABLE.iter().flat_map(|(_, rule)| (rule.find)(s)).collect();
    leave_out(s, &mut found);
    // If a substitute is needed, all others are notes, and it stays before them.
    let answer = answer(s, &mut found);
    let first = answer.iter().len();
    found.splice(0..0, answer);
    doubt(s, &mut found);
    // Stable: equal findings keep the order of the table.
    found[first..].sort_by(|a, b| {
        b.severity
            .cmp(&a.severity)
            .then(is_strong(b).cmp(&is_strong(a)))
            .then(rank(a.id).cmp(&rank(b.id)))
            .then(b.confidence.total_cmp(&a.confidence))
    });
    found
}

/// A weak claim comes after all strong ones, whatever its rank.
fn is_strong(finding: &Finding) -> bool {
    finding.confidence > WEAK
}

/// Whether two findings are about one device, or about devices of one stack.
fn are_related(s: &Summaries<'_>, one: &str, other: &str) -> bool {
    let is_below = |upper: &str, lower: &str| facts::below(s, upper).iter().any(|name| name == lower);
    one == other || is_below(one, other) || is_below(other, one)
}

fn leave_out(s: &Summaries<'_>, found: &mut Vec<Finding>) {
    for (cause, effect, of, left) in BEFORE {
        // A note must not reduce a limit to a note, or no answer would remain.
        let is_enough = |one: &Finding| one.severity > Severity::Note || matches!(left, Nothing);
        let causes = found.iter().filter(|one| one.id == *cause && is_enough(one));
        let causes: Vec<String> = causes.map(|one| one.subject.clone()).collect();
        let is_explained = |one: &Finding| {
            one.id == *effect
                && causes.iter().any(|cause| *of == Of::Any || are_related(s, cause, &one.subject))
        };
        match left {
            Nothing => found.retain(|one| !is_explained(one)),
            Note(line) => {
                for one in found.iter_mut().filter(|one| is_explained(one) && is_symptom(one)) {
                    one.severity = Severity::Note;
                    one.evidence.push(line.to_string());
                }
            }
        }
    }
    // With an experiment these claim the remainder: they hold only if nothing above the device is a limit.
    if s.experiment.is_none() {
        return;
    }
    let above: Vec<String> = found
        .iter()
        .filter(|one| {
            one.severity > Severity::Note && is_strong(one) && matches!(rank(one.id), Setting | Host | Link)
        })
        .map(|one| one.subject.clone())
        .collect();
    let is_device = |subject: &str| s.latency.device(subject).is_some();
    found.retain(|one| {
        let is_above = |subject: &String| are_related(s, subject, &one.subject) || !is_device(subject);
        ![device_bound::RULE.id, largest_stage::RULE.id].contains(&one.id) || !above.iter().any(is_above)
    });
}

/// Whether a storm explains it: other locks are not part of it.
fn is_symptom(finding: &Finding) -> bool {
    finding.id != lock_contention::RULE.id
        || lock_contention::is_nameless(finding)
        || pagecache::is_its_lock(&finding.subject)
}

/// Losses, and reads that did not reach the device, lower the confidence of the rest.
fn doubt(s: &Summaries<'_>, found: &mut [Finding]) {
    for finding in found.iter_mut().filter(|finding| finding.id != inconclusive::RULE.id) {
        for line in facts::noted(s, &finding.subject) {
            finding.evidence.push(line);
            finding.confidence *= facts::NOTED_CONFIDENCE;
        }
    }
    if let Some(line) = deallocated_read::doubt(found) {
        for finding in found.iter_mut().filter(|finding| RESTS_ON_THE_DEVICE.contains(&finding.id)) {
            finding.evidence.push(line.clone());
            finding.confidence *= deallocated_read::CONFIDENCE_LEFT;
        }
    }
}

/// If no finding is more than a note: the substitute answer, if not already present.
fn answer(s: &Summaries<'_>, found: &mut Vec<Finding>) -> Option<Finding> {
    if found.iter().any(|finding| finding.severity > Severity::Note) {
        return None;
    }
    // Notes that say what sets the rate.
    for id in [offered_load::RULE.id, queue_depth_too_low::RULE.id] {
        if let Some(at) = found.iter().position(|finding| finding.id == id) {
            return Some(found.remove(at));
        }
    }
    // Doubt about one device does not prevent a statement about another.
    let at_least = || inconclusive::too_little(s).is_none().then(|| largest_stage::at_least(s)).flatten();
    if let Some(answer) = at_least() {
        return Some(answer);
    }
    let mut doubts = found.iter_mut().filter(|finding| finding.id == inconclusive::RULE.id).peekable();
    if doubts.peek().is_some() {
        doubts.for_each(|finding| finding.severity = Severity::Warning);
        return None;
    }
    Some(inconclusive::too_little(s).unwrap_or_else(|| inconclusive::unseen(s)))
}
