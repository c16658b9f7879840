//! Finding: the stage that takes most of the time, when no resource is known to be saturated.

use super::command;
use super::cpu;
use super::facts::{self, DeviceView, percent};
use super::interrupts;
use super::numbers;
use super::{Rule, Summaries, regime};
use crate::analyze::stage::Stage;
use crate::experiment::Regime;
use crate::findings::{Finding, Number, Numbers, Severity};
use crate::units::{in_percent, time};

/// A host stage with this share of the time, and with more than the device, is where a saturated load waits.
pub const SHARE: f64 = 0.40;

/// If other depths showed saturation; near the limit; and if nothing was tried.
const CONFIDENCE: [f64; 3] = [0.65, 0.5, 0.4];

const LARGEST_STAGE_PERCENT: Number =
    Number::new("largest_stage_percent", "largest stage's share of the time");

pub const RULE: Rule = Rule { id: "largest-stage", page: PAGE, find };

const PAGE: &str = "\
The stage with most of the time, if no limit is found.

How it is computed
  Shares are of the operations' time, or of the I/Os' if operations are not traced.
  - A warning with biopsy's own load, if twice the depth gives at most 25 % more IOPS (see
    queue-depth-too-low), and submit, complete or reap has at least 40 % of the time and more than
    any other stage. The limit is then on the host, and device-bound does not hold. Not given if a
    limit above the device is found.
  - Else a note, made only if no other finding is more than a note: the largest stage of the device
    with the most I/O time. It may or may not be a limit.
  From: latency.devices[].ops.*.stages, or .request_stages; experiment.

When it is wrong
  - A large stage is no full resource: at a low depth the device stage is the device's latency.
  - complete includes the wait for a busy thread, reap the batches in which results are fetched.
  - Parts of the queue stage have different causes: --detail splits it.

What to do
  - submit: look at what happens before the last I/O of an operation (flame --off-cpu, --on-cpu):
    file system, locks, earlier I/Os. With io_uring also registered files and buffers.
  - queue: --detail, then the scheduler, the tags or the limit that it names.
  - device: more in flight; then compare with the data sheet.
  - complete: more queues and CPUs that complete (smp_affinity_list, rq_affinity).
  - reap: more threads, smaller batches.
";

/// The host's own stages, if our own load shows that a higher depth gains nothing.
pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    let confidence = match regime::regime(s) {
        Some(Regime::Saturated) => CONFIDENCE[0],
        Some(Regime::NearTheKnee) => CONFIDENCE[1],
        Some(Regime::LatencyBound) | None => return Vec::new(),
    };
    let of_host = |p: &&DeviceView<'_>| {
        let (stages, of_operations) = p.largest_stages();
        let largest = stages.first();
        of_operations
            && largest.is_some_and(|(stage, share)| {
                matches!(stage, Stage::Submit | Stage::Complete | Stage::Reap) && *share >= SHARE
            })
    };
    let pictures = facts::device_views(s);
    let pictures = pictures.iter().filter(|p| p.sound(s)).filter(of_host);
    let mut found: Vec<Finding> =
        pictures.filter_map(|p| finding(s, p, Severity::Warning, confidence)).collect();
    found.iter_mut().for_each(|finding| regime::support(s, finding));
    found
}

/// The fallback when nothing else was found: the largest stage of the device with the most I/O time. None: no device
/// has enough I/O, or no stage was measured.
pub fn at_least(s: &Summaries<'_>) -> Option<Finding> {
    let pictures = facts::device_views(s);
    let busiest = pictures.iter().filter(|p| p.sound(s)).max_by_key(|p| p.stages_ns())?;
    finding(s, busiest, Severity::Note, CONFIDENCE[2])
}

fn finding(s: &Summaries<'_>, p: &DeviceView<'_>, severity: Severity, confidence: f64) -> Option<Finding> {
    let name = &p.device.name;
    let (stages, of_operations) = p.largest_stages();
    let (stage, share) = *stages.first()?;
    let what = if of_operations { "operation" } else { "I/O" };
    let stage_name = stage.name();
    let each: Vec<String> =
        stages.iter().map(|(stage, share)| format!("{} {}", stage.name(), in_percent(*share))).collect();
    let mut evidence = vec![format!("shares of the time of an {what}: {}", each.join(", "))];
    evidence.extend(p.earlier_ios_line().filter(|_| of_operations && stage == Stage::Submit));
    let tried = regime::line(s).filter(|_| severity > Severity::Note);
    let interrupts_fill_a_cpu = cpu::saturation(s).is_some() && cpu::interrupts_dominate(s);
    let sentence = match &tried {
        Some(line) => format!(
            "The {stage_name} stage of {name} is the bottleneck: {} of each {what}'s time, and {line}.",
            in_percent(share)
        ),
        None if interrupts_fill_a_cpu => format!(
            "A CPU is saturated, mostly by interrupts; the largest part of each {what}'s time on {name} is \
             the {stage_name} stage ({}).",
            in_percent(share)
        ),
        None => format!(
            "No limit was found on {name}: the largest part of each {what}'s time is the {stage_name} stage ({}).",
            in_percent(share)
        ),
    };
    let mut numbers =
        Numbers::from([(LARGEST_STAGE_PERCENT, percent(share)), (numbers::IOS_PER_SECOND, p.rate())]);
    if let Some(in_device) = p.in_device() {
        numbers.insert(numbers::IN_DEVICE_IOS, in_device);
        evidence.push(format!("{in_device:.2} I/Os are in the device on average"));
    }
    if tried.is_none() {
        evidence.push(match s.load {
            Some(_) if regime::line(s).is_some() => regime::line(s).unwrap_or_default(),
            Some(_) => "more I/Os in flight were not tried".to_string(),
            None => regime::UNTRIED.to_string(),
        });
    }
    evidence.extend(regime::observed(s, p).map(|(_, line)| line));
    evidence.extend(interrupts::late(s, p));
    if let Some(busy) = cpu::nothing_left(s) {
        evidence.push(format!("all CPUs together are {} busy", in_percent(busy)));
        evidence.extend(cpu::busiest_line(s));
    }
    evidence.extend(facts::queue_parts_line(p));
    if let Some(mean) = p.stages.get(&stage).and_then(|hist| hist.mean()).filter(|_| !of_operations) {
        evidence.push(format!("mean of the {stage_name} stage: {}", time(mean as u64)));
    }
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity,
        confidence,
        sentence,
        numbers,
        evidence,
        advice: advice(s, stage),
        check: match s.load {
            Some(load) => command::load(load, load.job.iodepth, load.job.numjobs),
            None => command::latency_by_second(name),
        },
        // The utilisation of the next resource is unknown, so there is no bound.
        worth: None,
    })
}

fn advice(s: &Summaries<'_>, stage: Stage) -> String {
    let can_try = s.load.is_some() && s.experiment.is_none();
    match stage {
        Stage::Submit if s.load.is_none() => {
            "Find out what its threads do before the last I/O of an operation: biopsy flame --off-cpu and \
             --on-cpu."
        }
        Stage::Submit => "Make submission cheaper: fewer layers, larger I/Os, registered files and buffers.",
        Stage::Queue => {
            "Run again with --detail, which splits the queue stage, and examine the largest part."
        }
        Stage::Device if can_try => "Run again without --no-experiment: it tries half and twice the depth.",
        Stage::Device => "If the application can keep more I/Os in flight, let it, and compare the IOPS.",
        Stage::Complete => {
            "Complete on more CPUs: spread the interrupts of the queues, or set rq_affinity to 2."
        }
        Stage::Reap => "Fetch results sooner: more threads with fewer I/Os each, or smaller batches.",
    }
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::operations::OperationLatency;
    use crate::rules::diagnose;
    use crate::rules::fixtures::{Case, hist};

    /// Operations of 100 µs, split like this; I/Os have only the queue and the device stage.
    fn split(stages: &[(Stage, u64)]) -> Case {
        let mut case = Case::new(300_000, 32);
        let ios = case.read().ios;
        let operations = OperationLatency {
            total: hist(ios, 100_000, 50_000),
            stages: stages.iter().map(|(stage, percent)| (*stage, hist(ios, percent * 1_000, 500))).collect(),
            ..OperationLatency::default()
        };
        case.read().operations = Some(operations);
        case
    }

    #[test]
    fn what_an_operation_waits_for_its_earlier_ios_is_said() {
        let mut case = split(&[(Stage::Submit, 70), (Stage::Device, 30)]);
        let line = |case: &mut Case, unowned| {
            case.read().unowned = Some(unowned);
            let evidence = at_least(&case.summaries()).unwrap().evidence;
            evidence.into_iter().find(|line| line.contains("earlier ones"))
        };
        assert_eq!(line(&mut case, 0), None);
        let ios = case.read().ios;
        case.read().ios *= 2;
        assert!(line(&mut case, 0).unwrap().starts_with("an operation has 2.00 I/Os on average"));
        assert_eq!(line(&mut case, ios * 7 / 10), None, "those of no operation do not count");
    }

    #[test]
    fn a_saturated_load_waits_where_its_time_goes() {
        let mut case = split(&[(Stage::Device, 30), (Stage::Complete, 59), (Stage::Submit, 11)]);
        assert!(find(&case.summaries()).is_empty(), "not tried");
        case.at_twice_the_depth(1.01);
        let found = diagnose(&case.summaries()).findings;
        assert_eq!(found[0].id, "largest-stage");
        assert!(
            found[0].sentence.starts_with("The complete stage of vda is the bottleneck: 59 %"),
            "{found:?}"
        );
        assert!(!found.iter().any(|one| one.id == "device-bound"), "{found:?}");
        // The depth is the limit, and the stage is part of its evidence.
        case.at_twice_the_depth(1.8);
        assert_eq!(diagnose(&case.summaries()).findings[0].id, "queue-depth-too-low");
        // Most of the time is the device's.
        let mut device = split(&[(Stage::Device, 56), (Stage::Complete, 44)]);
        device.at_twice_the_depth(1.01);
        assert_eq!(diagnose(&device.summaries()).findings[0].id, "device-bound");
    }

    #[test]
    fn where_nothing_is_full_the_largest_stage_is_named() {
        let mut case = split(&[(Stage::Device, 66), (Stage::Queue, 34)]);
        case.load = None;
        case.stage(Stage::Queue, 34_000, 500);
        case.stage(Stage::Device, 66_000, 500);
        let found = diagnose(&case.summaries()).findings;
        let first = &found[0];
        assert_eq!((first.id, first.severity), ("largest-stage", Severity::Note));
        assert!(first.sentence.contains("No limit was found on vda") && first.sentence.contains("66 %"));
        assert!(first.evidence[0].contains("device 66 %, queue 34 %"), "{:?}", first.evidence);
        assert_eq!(first.worth, None);
    }

    #[test]
    fn shares_are_of_ios_where_operations_are_not_followed() {
        let mut case = Case::new(50_000, 32);
        case.stage(Stage::Queue, 900_000, 1_000);
        let found = at_least(&case.summaries()).unwrap();
        assert!(found.sentence.contains("each I/O's time is the queue stage"), "{}", found.sentence);
        assert!(found.advice.contains("--detail"));
        case.latency.devices[0].negative = 1;
        assert_eq!(at_least(&case.summaries()), None);
    }
}
