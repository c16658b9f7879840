//! Chooses the CPUs that a job's threads are pinned to. Pure.

use super::job::Placement;
use crate::host::NumaNode;
use crate::host::cpu::ranges;
use crate::refusal::Refusal;

/// Topology of the machine and of the job's device.
#[derive(Debug, Clone, Default)]
pub struct Topology {
    /// The CPUs that the process may use.
    pub allowed: Vec<u32>,
    pub nodes: Vec<NumaNode>,
    /// The hardware threads of each physical core.
    pub cores: Vec<Vec<u32>>,
    /// NUMA node of the device.
    pub device_node: Option<u32>,
    /// The CPUs of each hardware queue of the device.
    pub queues: Vec<Vec<u32>>,
}

/// The CPUs in the order in which threads get them; after the last one it starts over.
///
/// They are near the device or far from it, as requested. Hardware queues take turns, so that few threads share one.
/// One thread of each core comes before the second of any, or with `smt` both of a core before the next core.
pub fn cpus(placement: &Placement, smt: bool, topology: &Topology) -> Result<Vec<u32>, Refusal> {
    let allowed = |cpu: &u32| topology.allowed.contains(cpu);
    let node_of =
        |cpu: &u32| topology.nodes.iter().find(|node| node.cpus.contains(cpu)).map(|node| node.node);
    let mut chosen: Vec<u32> = match placement {
        Placement::Cpus { cpus, .. } => {
            if let Some(cpu) = cpus.iter().find(|cpu| !allowed(cpu)) {
                return Err(Refusal::Usage(format!(
                    "this process may not use CPU {cpu}, only {}: choose one of those",
                    ranges(&topology.allowed)
                )));
            }
            // In the given order.
            return Ok(cpus.clone());
        }
        Placement::Anywhere => topology.allowed.clone(),
        Placement::Nodes(nodes) => {
            for wanted in nodes {
                if !topology.allowed.iter().any(|cpu| node_of(cpu) == Some(*wanted)) {
                    return Err(Refusal::Usage(format!(
                        "this process may use no CPU of NUMA node {wanted}: choose another node"
                    )));
                }
            }
            let is_near = |cpu: &u32| node_of(cpu).is_some_and(|node| nodes.contains(&node));
            topology.allowed.iter().copied().filter(is_near).collect()
        }
        Placement::Local => {
            let near: Vec<u32> = match topology.device_node {
                Some(node) => {
                    topology.allowed.iter().copied().filter(|cpu| node_of(cpu) == Some(node)).collect()
                }
                None => Vec::new(),
            };
            // All CPUs are equally near a device without a node; a device on a node that we may not use is far from
            // all.
            if near.is_empty() { topology.allowed.clone() } else { near }
        }
        Placement::Remote => {
            let Some(node) = topology.device_node else {
                return Err(Refusal::Refused(
                    "the device belongs to no NUMA node, so no node is remote: leave out --numa remote, or \
                     name CPUs with --cpus"
                        .to_string(),
                ));
            };
            let far: Vec<u32> = topology
                .allowed
                .iter()
                .copied()
                .filter(|cpu| node_of(cpu).is_some_and(|other| other != node))
                .collect();
            if far.is_empty() {
                return Err(Refusal::Refused(format!(
                    "this process may use no CPU outside of the device's NUMA node {node}: leave out \
                     --numa remote"
                )));
            }
            far
        }
    };
    let thread = |cpu: &u32| {
        let core = topology.cores.iter().position(|core| core.contains(cpu));
        let at = core.and_then(|core| topology.cores[core].iter().position(|other| other == cpu));
        (core.unwrap_or(usize::MAX), at.unwrap_or(0))
    };
    // How many chosen CPUs of the same queue come before it.
    let turn = |cpu: &u32, chosen: &[u32]| {
        let queue = topology.queues.iter().find(|queue| queue.contains(cpu));
        queue.map_or(0, |queue| chosen.iter().filter(|other| *other < cpu && queue.contains(other)).count())
    };
    let all = chosen.clone();
    chosen.sort_by_key(|cpu| {
        let (core, at) = thread(cpu);
        if smt { (0, 0, core, at, *cpu) } else { (at, turn(cpu, &all), core, 0, *cpu) }
    });
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes of two cores with two threads each, numbered as Linux does: 0-3 are the first threads.
    fn machine() -> Topology {
        let node = |node, cpus: &[u32]| NumaNode { node, cpus: cpus.to_vec() };
        Topology {
            allowed: (0..8).collect(),
            nodes: vec![node(0, &[0, 1, 4, 5]), node(1, &[2, 3, 6, 7])],
            cores: vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]],
            device_node: Some(1),
            queues: vec![vec![0, 1, 4, 5], vec![2, 6], vec![3, 7]],
        }
    }

    #[test]
    fn threads_run_near_the_device_and_on_cores_first() {
        assert_eq!(cpus(&Placement::Local, false, &machine()), Ok(vec![2, 3, 6, 7]));
        assert_eq!(cpus(&Placement::Local, true, &machine()), Ok(vec![2, 6, 3, 7]));
        assert_eq!(cpus(&Placement::Remote, false, &machine()), Ok(vec![0, 1, 4, 5]));
        let anywhere = cpus(&Placement::Anywhere, false, &machine()).unwrap();
        assert_eq!(&anywhere[..4], [0, 2, 3, 1], "each queue once before one of them twice");
    }

    #[test]
    fn what_is_not_known_chooses_nothing() {
        let flat = Topology { device_node: None, cores: Vec::new(), queues: Vec::new(), ..machine() };
        assert_eq!(cpus(&Placement::Local, false, &flat), Ok((0..8).collect::<Vec<_>>()));
        assert!(matches!(cpus(&Placement::Remote, false, &flat), Err(Refusal::Refused(_))));
        let shut = Topology { allowed: vec![0, 1], ..machine() };
        assert_eq!(cpus(&Placement::Local, false, &shut), Ok(vec![0, 1]), "the device's node is not ours");
        let only = Topology { nodes: vec![NumaNode { node: 1, cpus: (0..8).collect() }], ..machine() };
        let why = cpus(&Placement::Remote, false, &only).unwrap_err().to_string();
        assert!(why.contains("NUMA node 1"), "{why}");
    }

    #[test]
    fn nodes_have_all_their_cpus() {
        let nodes = |nodes: &[u32]| cpus(&Placement::Nodes(nodes.to_vec()), false, &machine());
        assert_eq!(nodes(&[0]), Ok(vec![0, 1, 4, 5]));
        assert_eq!(nodes(&[1, 0]).map(|cpus| cpus.len()), Ok(8));
        let why = nodes(&[0, 7]).unwrap_err().to_string();
        assert!(why.contains("NUMA node 7"), "{why}");
    }

    #[test]
    fn named_cpus_come_as_they_are_named() {
        let named = |cpus: &[u32]| Placement::Cpus { cpus: cpus.to_vec(), split: true };
        assert_eq!(cpus(&named(&[5, 0]), false, &machine()), Ok(vec![5, 0]));
        let shut = Topology { allowed: vec![0, 1, 2, 5], ..machine() };
        let why = cpus(&named(&[3]), false, &shut).unwrap_err().to_string();
        assert!(why.contains("CPU 3") && why.contains("0-2,5"), "{why}");
    }
}
