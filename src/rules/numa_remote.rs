//! Finding: I/Os are submitted on another NUMA node than the device's.

use std::collections::BTreeMap;

use super::command;
use super::facts::{self, percent};
use super::{Rule, Summaries};
use crate::analyze::latency::DeviceLatency;
use crate::findings::{Finding, NotExamined, Number, Severity};
use crate::host::BlockDevice;
use crate::load::Placement;
use crate::merge::SaturatingSum as _;
use crate::units::{count, in_percent};

/// Share of I/Os from other nodes from which on it is reported: below it a mean changes by less than a tenth of what
/// one I/O loses.
pub const SOME: f64 = 0.10;

/// From here on most I/Os are remote.
pub const MOST: f64 = 0.50;

const DEVICE_NODE: Number = Number::new("device_node", "NUMA node of the device");
const NODES: Number = Number::new("nodes", "NUMA nodes");
const REMOTE_IOS: Number = Number::new("remote_ios", "I/Os from other NUMA nodes");
const REMOTE_PERCENT: Number = Number::new("remote_percent", "share from other NUMA nodes");

pub const RULE: Rule = Rule { id: "numa-remote", page: PAGE, find };

const PAGE: &str = "\
I/Os are submitted from a remote NUMA node.

The device is attached to another node. Commands, data and interrupts cross the link between the
sockets. One I/O becomes a little slower; many or large I/Os share that link and the memory behind
it with all other traffic.

How it is computed
  Only on machines with two or more nodes, if the firmware reports the node of the device.
  - With biopsy's own load, if each thread runs on its own CPU: remote_percent = operations of
    threads on CPUs of other nodes / all operations.
  - Else by hardware queue: an I/O goes to the queue of the CPU that submits it. I/Os of queues
    whose CPUs are all on other nodes are remote. A queue with CPUs of the device's node too counts
    as local, so this is a lower bound.
  A note from 10 % on, a warning from 50 % on; with --numa remote always a note. Confidence 0.7: the
  origin of the I/Os is counted, the cost is not measured.
  From: devices[].numa_node, .queues[].cpus; host.nodes; load.jobs[].cpu, .node (of the buffers);
  latency.devices[].queues[].ios.

When it is wrong
  - The node comes from the firmware; some report 0 for all devices.
  - One slow drive is not affected: it matters at hundreds of thousands of I/Os or gigabytes a
    second.
  - With few hardware queues each has CPUs of all nodes: without biopsy's own load nothing is known.
  - Only CPUs are examined. Buffers on a remote node also cross the link; those of other programs
    are not measured.

What to do
  Compare biopsy load DEV --numa local with --numa remote: the difference is the cost. Bind other
  programs: numactl --cpunodebind=N --membind=N; fio: numa_cpu_nodes=N and numa_mem_policy=bind:N.
";

pub fn find(s: &Summaries<'_>) -> Vec<Finding> {
    s.latency.devices.iter().filter_map(|device| judge(s, device)).collect()
}

/// Devices for which it is unknown.
pub fn unknown(s: &Summaries<'_>) -> Vec<NotExamined> {
    let gap = |device: &DeviceLatency| {
        let disk = facts::disk(s, &device.name).filter(|disk| disk.pci_address.is_some())?;
        let why = match disk.numa_node {
            None => "the firmware does not report the node that it is attached to",
            Some(node) if far(s, device, disk, node).is_none() => {
                "its hardware queues have CPUs of several nodes, so they do not show where I/Os come from"
            }
            Some(_) => return None,
        };
        Some(NotExamined { what: format!("NUMA placement of {}", device.name), why: why.to_string() })
    };
    let used = s.latency.devices.iter().filter(|device| device.ios > 0 && s.host.nodes.len() > 1);
    used.filter_map(gap).collect()
}

/// How many of how many I/Os come from other nodes, and what they are.
struct Far {
    remote: u64,
    all: u64,
    noun: &'static str,
    nodes: Vec<u32>,
}

/// None where it is unknown.
fn far(s: &Summaries<'_>, device: &DeviceLatency, disk: &BlockDevice, node: u32) -> Option<Far> {
    let nodes = &s.host.nodes;
    let node_of = |cpu: u32| nodes.iter().find(|node| node.cpus.contains(&cpu)).map(|node| node.node);
    let mut from: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut all, mut told) = (0u64, false);
    let add = |from: &mut BTreeMap<u32, u64>, node: u32, n: u64| {
        let of = from.entry(node).or_default();
        *of = of.saturating_add(n);
    };
    let of_threads: Option<Vec<(u32, u64)>> = facts::driven(s, &device.name)
        .and_then(|load| load.jobs.iter().map(|job| Some((node_of(job.cpu?)?, job.operations()))).collect());
    let noun = if of_threads.is_some() { "operation" } else { "I/O" };
    match of_threads {
        Some(threads) => {
            for (at, operations) in threads {
                add(&mut from, at, operations);
                (all, told) = (all.saturating_add(operations), true);
            }
        }
        None => {
            for queue in device.queues.iter().filter(|queue| queue.ios > 0) {
                all = all.saturating_add(queue.ios);
                let cpus = disk.queues.iter().find(|known| known.queue == queue.queue).map(|q| &q.cpus);
                let mut of: Vec<Option<u32>> = cpus.into_iter().flatten().map(|cpu| node_of(*cpu)).collect();
                of.sort();
                of.dedup();
                match of.as_slice() {
                    [Some(at)] => {
                        add(&mut from, *at, queue.ios);
                        told = true;
                    }
                    // CPUs of several nodes, but none of the device's.
                    [Some(first), ..] if !of.contains(&Some(node)) => {
                        add(&mut from, *first, queue.ios);
                        told = true;
                    }
                    _ => {}
                }
            }
        }
    }
    from.remove(&node);
    told.then(|| Far { remote: from.values().saturating_sum(), all, noun, nodes: from.into_keys().collect() })
}

fn judge(s: &Summaries<'_>, device: &DeviceLatency) -> Option<Finding> {
    let disk = facts::disk(s, &device.name).filter(|_| s.host.nodes.len() > 1)?;
    let node = disk.numa_node?;
    if !facts::device_view(s, device).sound(s) {
        return None;
    }
    let far = far(s, device, disk, node).filter(|far| far.all > 0)?;
    let share = far.remote as f64 / far.all as f64;
    if share < SOME {
        return None;
    }
    let name = &device.name;
    let others: Vec<String> = far.nodes.iter().map(u32::to_string).collect();
    let mut evidence = vec![format!(
        "{} of {} {}s come from CPUs of node {}, and {name} is attached to node {node}",
        count(far.remote),
        count(far.all),
        far.noun,
        others.join(" and ")
    )];
    let load = facts::driven(s, name);
    if let Some(load) = load {
        let buffers = load.jobs.iter().filter(|job| job.node.is_some_and(|of| of != node)).count();
        evidence.push(format!("the buffers of {buffers} of {} threads are on other nodes", load.jobs.len()));
    }
    let asked = load.is_some_and(|load| load.job.placement == Placement::Remote);
    if asked {
        evidence.push("it was requested (--numa remote)".to_string());
    }
    Some(Finding {
        id: RULE.id,
        subject: name.clone(),
        severity: if share >= MOST && !asked { Severity::Warning } else { Severity::Note },
        confidence: 0.7,
        sentence: format!(
            "{} of the {}s of {name} are submitted on other NUMA nodes than its own, {node}.",
            in_percent(share),
            far.noun
        ),
        numbers: BTreeMap::from([
            (REMOTE_PERCENT, percent(share)),
            (REMOTE_IOS, far.remote as f64),
            (DEVICE_NODE, f64::from(node)),
            (NODES, s.host.nodes.len() as f64),
        ]),
        evidence,
        advice: format!(
            "Run it on the CPUs of node {node}: biopsy load --numa local, numactl --cpunodebind={node} \
             --membind={node}, fio's numa_cpu_nodes={node}."
        ),
        check: match load {
            Some(load) => {
                format!("{} --numa local", command::load(load, load.job.iodepth, load.job.numjobs))
            }
            None => format!("biopsy latency -d {name} --by cpu --for 5s"),
        },
        worth: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::queues::QueueLatency;
    use crate::host::{HardwareQueue, NumaNode};
    use crate::load::JobResult;
    use crate::rules::fixtures::Case;

    /// Two nodes of two CPUs, a disk at node 0 with a queue for each CPU, and the I/Os of each queue.
    fn case(ios: [u64; 4]) -> Case {
        let mut case = Case::new(ios.iter().sum(), 32);
        case.load = None;
        case.host.nodes =
            vec![NumaNode { node: 0, cpus: vec![0, 1] }, NumaNode { node: 1, cpus: vec![2, 3] }];
        case.disk().numa_node = Some(0);
        case.disk().pci_address = Some("0000:41:00.0".into());
        case.disk().queues = (0..4)
            .map(|queue| HardwareQueue { queue, cpus: vec![queue], ..HardwareQueue::default() })
            .collect();
        case.latency.devices[0].queues = (0..4)
            .map(|queue| QueueLatency { queue, ios: ios[queue as usize], ..QueueLatency::default() })
            .collect();
        case
    }

    fn found(case: &Case) -> Vec<Finding> {
        find(&case.summaries())
    }

    #[test]
    fn the_shares_have_two_sides() {
        assert!(found(&case([9_001, 0, 999, 0])).is_empty());
        assert_eq!(found(&case([9_000, 0, 500, 500]))[0].severity, Severity::Note);
        assert_eq!(found(&case([5_001, 0, 4_999, 0]))[0].severity, Severity::Note);
        let most = found(&case([2_000, 3_000, 5_000, 0])).remove(0);
        assert_eq!((most.severity, most.numbers["remote_percent"]), (Severity::Warning, 50.0));
        assert!(most.advice.contains("--cpunodebind=0"), "{}", most.advice);
        assert!(most.evidence[0].contains("5,000 of 10,000 I/Os come from CPUs of node 1"));
    }

    #[test]
    fn queues_of_several_nodes_tell_nothing() {
        let mut case = case([5_000, 0, 5_000, 0]);
        case.disk().queues[2].cpus = vec![1, 2];
        assert!(found(&case).is_empty(), "a lower bound");
        assert!(unknown(&case.summaries()).is_empty(), "the other queue tells");
        case.disk().queues[0].cpus = vec![0, 3];
        assert!(unknown(&case.summaries())[0].why.contains("several nodes"));
        case.disk().numa_node = None;
        assert!(found(&case).is_empty());
        assert!(unknown(&case.summaries())[0].why.contains("firmware"));
        case.host.nodes.truncate(1);
        assert!(unknown(&case.summaries()).is_empty() && found(&case).is_empty());
    }

    #[test]
    fn threads_of_the_load_are_known_better_than_queues() {
        let mut case = case([0, 0, 10_000, 0]);
        case.load = Case::new(10_000, 32).load;
        let thread = |cpu, operations| {
            let mut job = JobResult { cpu: Some(cpu), node: Some(cpu / 2), ..JobResult::default() };
            job.transfers[0].operations = operations;
            job
        };
        case.load.as_mut().unwrap().jobs = vec![thread(0, 6_000), thread(3, 4_000)];
        let some = found(&case).remove(0);
        assert_eq!((some.severity, some.numbers["remote_percent"]), (Severity::Note, 40.0));
        assert!(some.evidence[1].contains("1 of 2 threads"));
        assert!(some.check.ends_with("--numa local"), "{}", some.check);
        case.load.as_mut().unwrap().jobs[0].cpu = None;
        assert_eq!(found(&case)[0].numbers["remote_percent"], 100.0, "one may run anywhere: by queue");
        case.load.as_mut().unwrap().job.placement = Placement::Remote;
        assert_eq!(found(&case)[0].severity, Severity::Note, "as it was asked for");
    }

    #[test]
    fn what_is_lost_may_have_been_local() {
        let mut case = case([0, 0, 10_000, 0]);
        case.latency.devices[0].lost_ios = 1_000;
        assert!(found(&case).is_empty());
    }
}
