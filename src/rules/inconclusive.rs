//! Finding: no conclusion is possible.

use super::facts;
use super::{Rule, Summaries};
use crate::findings::{Finding, Numbers, Severity};
use crate::merge::SaturatingSum as _;
use crate::units::{counted, in_percent, time};

pub const RULE: Rule = Rule { id: "inconclusive", page: PAGE, find };

const PAGE: &str = "\
Too little I/O for an answer, or the data are in doubt.

How it is computed
  - Too little: no I/O, no block device below the target, fewer than 100 operations (or I/Os), or no
    stage of the I/O can be measured here.
  - The data of a device are in doubt: more than 1 % of its I/Os were missed (lost_ios / (ios +
    lost_ios)), a stage ends before it begins, or the trace and the kernel's own counter differ by
    more than 1 %. Findings from its stages are withheld.
  - More than 0.1 % of the load's operations failed.
  If more than 0.1 % of a device's I/Os were missed, or the device vanished, the confidence of its
  findings is multiplied by 0.8, and their evidence says so.
  From: lost; latency.devices[].lost_ios, .negative, .vanished, .kernel_check; load.ios, .errors.

When it is wrong
  It claims nothing that could be wrong, but it may be avoidable.

What to do
  Run longer, on one device only (-d), with more rights (biopsy check lists what is missing), or
  with biopsy's own load.
";

/// One finding per device (or load) whose measurement is in doubt.
pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    let mut reasons: Vec<(String, String)> = facts::device_views(s)
        .iter()
        .filter(|p| p.ios > 0)
        .filter_map(|p| p.doubt(s).map(|why| (p.device.name.clone(), why)))
        .collect();
    if let Some(load) = s.load
        && facts::loss(load.operations(), load.errors()) > facts::NOTED_LOSS
    {
        reasons.push((
            "load".to_string(),
            format!("{} of {} operations failed", load.errors(), load.operations() + load.errors()),
        ));
    }
    reasons.into_iter().map(|(subject, why)| finding(s, subject, Severity::Note, vec![why])).collect()
}

/// Too little I/O for any answer: none at all, none on a block device, or fewer than 100. None: there is enough.
pub fn too_little(s: &Summaries<'_>) -> Option<Finding> {
    let pictures = facts::device_views(s);
    let most = pictures.iter().map(|p| p.ios).max().unwrap_or(0);
    let held: u64 = pictures.iter().map(|p| p.device.held_unknown).saturating_sum();
    let held = if s.latency.filtered { held } else { 0 };
    let why = match s.load {
        Some(load) if load.device.is_none() => {
            "the target has no block device below it, so there are no stages".to_string()
        }
        Some(load) if load.operations() < facts::MIN_IOS => few(&counted(load.operations(), "operation")),
        _ if most < facts::MIN_IOS && held > 0 => format!(
            "{} of the selected processes finished, and blk-throttle throttled {} whose process is \
             unknown: select by --cgroup",
            counted(most, "I/O"),
            counted(held, "I/O")
        ),
        _ if most == 0 => "no I/O was measured".to_string(),
        _ if most < facts::MIN_IOS => {
            let why = few(&format!("{} of one device", counted(most, "I/O")));
            why + &pictures.iter().find_map(slow).unwrap_or_default()
        }
        _ => return None,
    };
    Some(finding(s, subject(s), Severity::Warning, vec![why]))
}

fn few(seen: &str) -> String {
    format!("only {seen} finished, fewer than the {} that a finding needs", facts::MIN_IOS)
}

/// A slow stage of few I/Os: `; each took 221 ms, 98 % of that in the queue stage`.
fn slow(p: &facts::DeviceView<'_>) -> Option<String> {
    let (operations, sum) = p.operations();
    let (stages, of_operations) = p.largest_stages();
    let (stage, share) = stages.first().filter(|_| of_operations && operations > 0)?;
    let is_waiting = sum as f64 >= p.duration_ns as f64 * facts::BUSY;
    is_waiting.then(|| {
        let (each, share) = (time(sum / operations), in_percent(*share));
        format!("; each took {each}, {share} of that in the {} stage", stage.name())
    })
}

/// There is I/O, but none of its stages was measured.
pub fn unseen(s: &Summaries<'_>) -> Finding {
    finding(s, subject(s), Severity::Warning, vec!["no stage of its I/O can be measured here".to_string()])
}

fn subject(s: &Summaries<'_>) -> String {
    let pictures = facts::device_views(s);
    let mut active = pictures.iter().filter(|p| p.ios > 0);
    let only = active.next().filter(|_| active.next().is_none()).map(|p| p.device.name.clone());
    s.load.and_then(|load| load.device.clone()).or(only).unwrap_or_else(|| "this run".to_string())
}

fn finding(s: &Summaries<'_>, subject: String, severity: Severity, why: Vec<String>) -> Finding {
    let advice = match s.load {
        Some(_) => "Run longer (--runtime), while little else runs.",
        None if s.latency.filtered && !s.command && super::ios(s) == 0 => {
            "Select more: -p excludes child processes; --cgroup and -- COMMAND include them."
        }
        None => "Run longer while there is I/O, or drive a load: biopsy diagnose DIRECTORY.",
    };
    Finding {
        id: RULE.id,
        sentence: format!("No verdict on {subject}: {}.", why[0]),
        subject,
        severity,
        confidence: 1.0,
        numbers: Numbers::new(),
        // The first reason is in the sentence.
        evidence: why.into_iter().skip(1).collect(),
        advice: advice.to_string(),
        check: "biopsy check".to_string(),
        worth: None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::analyze::counting::Bracket;
    use crate::analyze::op::KernelClass;
    use crate::analyze::operations::OperationLatency;
    use crate::analyze::stage::Stage;
    use crate::rules::diagnose;
    use crate::rules::fixtures::{Case, hist};

    /// A reader of the idle class next to one of a better class: each of its few reads waits in the scheduler.
    #[test]
    fn what_takes_long_where_there_is_little_is_said() {
        let mut case = Case::new(18, 1);
        case.load = None;
        case.latency.filtered = true;
        let sentence = |case: &Case| too_little(&case.summaries()).unwrap().sentence;
        assert!(sentence(&case).ends_with("fewer than the 100 that a finding needs."), "{}", sentence(&case));
        case.read().unowned = Some(0);
        case.read().operations = Some(OperationLatency {
            operations: 18,
            total: hist(18, 40_000_000, 40_000_000),
            stages: BTreeMap::from([(Stage::Queue, hist(18, 39_000_000, 1_000))]),
            ..OperationLatency::default()
        });
        let text = sentence(&case);
        assert!(text.ends_with("; each took 40.0 ms, 92 % of that in the queue stage."), "{text}");
        assert!(!too_little(&case.summaries()).unwrap().advice.contains("excludes child"));
    }

    #[test]
    fn loss_and_negative_stages_are_named() {
        let mut case = Case::new(100_000, 32);
        assert!(find(&case.summaries()).is_empty());
        case.latency.devices[0].lost_ios = 1_000;
        assert!(find(&case.summaries()).is_empty());
        case.latency.devices[0].lost_ios = 1_020;
        assert!(find(&case.summaries())[0].sentence.contains("1.01 %"));
        case.latency.devices[0].negative = 3;
        assert!(find(&case.summaries())[0].sentence.contains("3 stages of vda end before they begin"));
    }

    #[test]
    fn the_kernels_counter_is_a_witness() {
        let mut case = Case::new(100_000, 32);
        let reads = |min, max| Some(BTreeMap::from([(KernelClass::Read, Bracket { min, max }.into())]));
        case.latency.devices[0].kernel = reads(100_000, 100_000);
        assert!(find(&case.summaries()).is_empty());
        case.latency.devices[0].kernel = reads(101_000, 101_200);
        assert!(find(&case.summaries()).is_empty(), "1 % off is not more than 1 %");
        case.latency.devices[0].kernel = reads(101_100, 101_200);
        assert!(find(&case.summaries())[0].sentence.contains("kernel counted"));
        case.latency.devices[0].kernel = reads(98_000, 98_800);
        assert_eq!(find(&case.summaries()).len(), 1, "counted twice");
    }

    #[test]
    fn too_little_io_is_no_ground_for_an_answer() {
        let mut case = Case::new(50, 32);
        let why = |case: &Case| too_little(&case.summaries()).map_or(String::new(), |found| found.sentence);
        assert!(why(&case).contains("only 50 operations"), "{}", why(&case));
        case.load.as_mut().unwrap().device = None;
        assert!(why(&case).contains("no block device"));
        case.load = None;
        assert!(why(&case).contains("only 50 I/Os"), "{}", why(&case));
        case.latency.devices.clear();
        assert!(why(&case).contains("no I/O was measured"));
        assert_eq!(why(&Case::new(100, 32)), "");
    }

    #[test]
    fn what_the_throttle_held_names_no_process() {
        let mut case = Case::new(7, 1);
        case.load = None;
        case.latency.devices[0].held_unknown = 3_000;
        let why = |case: &Case| too_little(&case.summaries()).unwrap().sentence;
        assert!(!why(&case).contains("--cgroup"), "without a filter they are measured");
        case.latency.filtered = true;
        assert!(
            why(&case)
                .contains("7 I/Os of the selected processes finished, and blk-throttle throttled 3,000")
        );
    }

    #[test]
    fn io_without_a_stage_is_said_to_have_none() {
        let mut case = Case::new(50_000, 32);
        case.read().request_stages.clear();
        let found = diagnose(&case.summaries()).findings;
        assert!(found[0].sentence.contains("no stage of its I/O"), "{}", found[0].sentence);
        assert!(!found[0].advice.contains("--no-load"), "the load is its own: {}", found[0].advice);
    }

    #[test]
    fn failed_operations_are_a_doubt() {
        let mut case = Case::new(100_000, 32);
        case.failed(100);
        assert!(find(&case.summaries()).is_empty());
        case.failed(101);
        assert_eq!(find(&case.summaries())[0].subject, "load");
    }
}
