//! What is said when nothing can be said.

use std::collections::BTreeMap;

use super::cpu;
use super::facts::{self, Picture};
use super::{Rule, Summaries, device_bound, submit_cpu_bound};
use crate::analyze::stage::Stage;
use crate::findings::{Finding, Severity};
use crate::units::{counted, figure, in_percent};

pub const RULE: Rule = Rule { id: "inconclusive", page: PAGE, find };

const PAGE: &str = "\
No cause can be named: the measurement is in doubt, or nothing stands out.

How it is computed
  - In doubt: more than 1 % of a device's I/Os are lost (lost.ios / (ios + lost.ios)), a stage ends
    before it begins, the device was gone before the end, the trace and the kernel's own counter differ
    by more than 1 %, or more than 0.1 % of the operations failed. Findings from that device's stages are
    withheld, and this says why.
    From 0.1 % lost on, findings say so, and their confidence is multiplied by 0.8.
  - Nothing stands out: no other finding of at least severity warning was made. The reasons that could
    be found are listed: too few I/Os, no block device, a stage that cannot be seen here, CPU time in
    interrupts, time in the queue stage or outside the block layer without a cause, idle devices.

From which numbers
  lost, negative stages, kernel counters, load.errors, stage sums, CPU time.

When it is wrong
  It makes no claim that could be wrong, but it may be avoidable: see what to try.

What to try
  A longer run; only one device (-d); more rights (biopsy check says what is missing); a load of biopsy's
  own instead of --no-load; fewer other things running at the same time.
";

/// One finding per device (or load) whose measurement is in doubt.
pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    let mut reasons: Vec<(String, String)> = facts::pictures(s)
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

/// The verdict where nothing else stands.
pub fn fallback(s: &Summaries<'_>) -> Finding {
    let pictures = facts::pictures(s);
    let active: Vec<&Picture<'_>> = pictures.iter().filter(|p| p.ios > 0).collect();
    let only = match active.as_slice() {
        [one] => Some(one.device.name.clone()),
        _ => None,
    };
    let subject = s.load.and_then(|l| l.device.clone()).or(only).unwrap_or_else(|| "this run".to_string());
    let mut why = reasons(s);
    if why.is_empty() {
        why.push("no stage and no CPU stands out".to_string());
        why.extend(active.iter().filter_map(|p| shares(p)));
    }
    finding(s, subject, Severity::Warning, why)
}

/// `of an I/O of vda 78 % is in the device and 22 % in the queue stage; 0.66 are in the device at a time`
fn shares(p: &Picture<'_>) -> Option<String> {
    let (device, queue) = (p.share(Stage::Device)?, p.share(Stage::Queue)?);
    Some(format!(
        "of the time of an I/O of {} {} is in the device and {} in the queue stage; {} I/Os are in the device at a time",
        p.device.name,
        in_percent(device),
        in_percent(queue),
        figure(p.in_device()?)
    ))
}

fn finding(s: &Summaries<'_>, subject: String, severity: Severity, why: Vec<String>) -> Finding {
    let advice = match s.load {
        Some(_) => "Run longer (--runtime), while little else runs.",
        None => {
            "Run longer, on one device (-d), or with a load of biopsy's own instead of --no-load, while little else runs."
        }
    };
    Finding {
        id: RULE.id,
        sentence: format!("No verdict on {subject}: {}.", why[0]),
        subject,
        severity,
        confidence: 1.0,
        numbers: BTreeMap::new(),
        // The first one is the sentence.
        evidence: why.into_iter().skip(1).collect(),
        advice: advice.to_string(),
        check: "biopsy check".to_string(),
        worth: None,
    }
}

/// With a decimal: beside a threshold a rounded share may read as the threshold itself.
fn exact(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Why nothing stands out, the most telling first.
fn reasons(s: &Summaries<'_>) -> Vec<String> {
    let pictures = facts::pictures(s);
    let mut why = Vec::new();
    if let Some(load) = s.load {
        if load.device.is_none() {
            return vec!["the target has no block device below it, so there are no stages".to_string()];
        }
        if load.operations() < facts::MIN_IOS {
            why.push(format!(
                "only {} finished, fewer than the {} that a finding needs",
                counted(load.operations(), "operation"),
                facts::MIN_IOS
            ));
        }
    }
    if pictures.iter().all(|p| p.ios == 0) {
        why.push("no I/O was seen".to_string());
    }
    if submit_cpu_bound::interrupts_dominate(s) && cpu::saturation(s).is_some() {
        why.push(
            match s.interrupts {
                Some(_) => "a CPU is saturated, and most of the busy time goes to interrupts".to_string(),
                None => "a CPU is saturated, and most of the busy time goes to interrupts: how they are spread was not \
                         counted"
                    .to_string(),
            },
        );
    }
    if let Some(busy) = cpu::nothing_left(s)
        && cpu::saturation(s).is_none()
    {
        why.push(format!(
            "all CPUs are busy for {}, most of it with something else than this I/O",
            in_percent(busy)
        ));
        why.extend(cpu::busiest_line(s));
    }
    pictures.iter().filter(|p| p.ios > 0).for_each(|p| why.extend(device(s, p)));
    why
}

fn device(s: &Summaries<'_>, p: &Picture<'_>) -> Vec<String> {
    let name = &p.device.name;
    if p.ios < facts::MIN_IOS {
        return vec![format!(
            "only {} of {name} seen, fewer than the {} that a finding needs",
            counted(p.ios, "I/O"),
            facts::MIN_IOS
        )];
    }
    let Some(in_device) = p.in_device() else {
        return vec![format!("the device stage of {name} cannot be seen here")];
    };
    let mut why = Vec::new();
    if let Some(reason) = device_bound::late(s, p) {
        why.push(format!("{reason}, so the device stage of {name} may be the host's lateness"));
    }
    if let Some(own) = device_bound::operation_share(s, p)
        && own < device_bound::DEVICE_SHARE
    {
        why.push(format!(
            "the device stage of {name} is only {} of the latency that the generator saw ({} would name the device), \
             and no CPU is saturated",
            exact(own),
            exact(device_bound::DEVICE_SHARE)
        ));
    }
    if let Some(queue) = p.share(Stage::Queue)
        && queue >= 0.5
    {
        let rest = facts::queue_parts_line(p).unwrap_or_else(|| {
            format!(
                "the other parts of that stage (throttle, plug, scheduler) are not examined here: {}",
                facts::why_no_parts(s)
            )
        });
        why.push(format!(
            "I/Os of {name} spend {} of their time in the queue stage, and neither the device nor its tags are full; \
             {rest}",
            in_percent(queue)
        ));
    }
    if s.load.is_none() && in_device < 0.5 {
        why.push(format!(
            "{name} is mostly idle: at most {} of the time an I/O is in it",
            in_percent(in_device)
        ));
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::counting::Bracket;
    use crate::analyze::op::KernelClass;
    use crate::analyze::stacks::CpuClass;
    use crate::rules::literal::{Case, profile};

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
        let reads = |min, max| Some(BTreeMap::from([(KernelClass::Read, Bracket { min, max })]));
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
    fn the_fallback_says_why() {
        let mut case = Case::new(50, 32);
        assert!(fallback(&case.summaries()).sentence.contains("only 50 operations"));
        case.load.as_mut().unwrap().device = None;
        assert!(fallback(&case.summaries()).sentence.contains("no block device"));
        case.load = None;
        case.latency.devices.clear();
        assert!(fallback(&case.summaries()).sentence.contains("no I/O was seen"));
        let mut case = Case::new(50_000, 32);
        case.stage(Stage::Queue, 900_000, 1_000);
        assert!(fallback(&case.summaries()).sentence.contains("queue stage"));
        case.read().request_stages.remove(&Stage::Device);
        assert!(fallback(&case.summaries()).sentence.contains("cannot be seen"));
    }

    #[test]
    fn the_sentence_is_not_repeated_and_the_busiest_are_named() {
        let mut case = Case::new(50_000, 32);
        case.profile = Some(profile(&[(CpuClass::User, 1000)]));
        case.profile.as_mut().unwrap().top = vec![("make".into(), 7, 900_000_000)];
        let found = fallback(&case.summaries());
        assert!(found.sentence.contains("all CPUs are busy for 100 %"), "{}", found.sentence);
        assert_eq!(found.evidence[0], "busiest threads, of one CPU each: make (7) 90 %");
        assert!(!found.evidence.iter().any(|line| found.sentence.contains(line)), "{:?}", found.evidence);
        assert!(!found.advice.contains("--no-load"), "the load is its own: {}", found.advice);
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
