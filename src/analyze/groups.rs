//! Groups I/Os and operations by the selected dimensions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::files::IoFile;
use super::latency::{OpLatency, io_row};
use super::op::Op;
use super::operations;
use super::stage::Stage;
use crate::hist::Histogram;
use crate::host::Host;
use crate::merge::{Row, SaturatingSum as _, merge, row};
use crate::names::names;
use crate::wire::groups::{
    BY_CGROUP, BY_CPU, BY_DEVICE, BY_FILE, BY_OP, BY_PROCESS, BY_QUEUE, BY_SIZE, GROUP_SUBMITTER,
    GroupSample, GroupsSample, NO_QUEUE,
};
use crate::wire::reading::Reading;

names! {
    /// What I/Os are grouped by.
    #[derive(PartialOrd, Ord)]
    pub enum Dimension {
        Device = "device",
        Op = "op",
        Queue = "queue",
        Size = "size",
        Cpu = "cpu",
        Process = "process",
        Cgroup = "cgroup",
        File = "file",
        Stage = "stage",
    }
}

impl Dimension {
    /// The bit of the dimension in the programs' configuration; 0 for the stage, because every I/O has all stages.
    fn wire(self) -> u32 {
        match self {
            Self::Device => BY_DEVICE,
            Self::Op => BY_OP,
            Self::Queue => BY_QUEUE,
            Self::Size => BY_SIZE,
            Self::Cpu => BY_CPU,
            Self::Process => BY_PROCESS,
            Self::Cgroup => BY_CGROUP,
            Self::File => BY_FILE,
            Self::Stage => 0,
        }
    }
}

/// The bit mask for the programs.
pub fn mask(by: &[Dimension]) -> u32 {
    by.iter().fold(0, |mask, dimension| mask | dimension.wire())
}

/// What the I/Os of a group have in common, by dimension. None: not grouped by it, or not known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GroupValues {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<Op>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// Bytes: at least the first and less than the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<(u64, u64)>,
    /// The CPU that it was submitted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<Cgroup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<IoFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Process {
    pub pid: u32,
    pub comm: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Cgroup {
    Path(String),
    /// The folder was removed before its path was read.
    Id(u64),
}

/// I/Os that are alike in all dimensions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Group {
    pub by: GroupValues,
    /// All for whose group there was no room.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub other: bool,
    #[serde(flatten)]
    pub latency: OpLatency,
}

impl Group {
    /// Time of its I/Os before and in the device.
    pub fn time_ns(&self) -> u64 {
        let of = |stage| self.latency.request_stages.get(&stage).map_or(0, |times| times.sum());
        let bio = self.latency.bio.as_ref().map_or(0, Histogram::sum);
        [of(Stage::Queue), of(Stage::Device), bio].iter().saturating_sum()
    }

    /// A row per stage of the group, each with the times of that stage and the total of all; the group itself if it has
    /// no stages.
    fn by_stage(self) -> Vec<Self> {
        let has = |stage: &Stage| {
            let of_operations = self.latency.operations.as_ref().map(|all| &all.stages);
            [of_operations, Some(&self.latency.request_stages)]
                .into_iter()
                .flatten()
                .any(|all| all.contains_key(stage))
        };
        let stages: Vec<Stage> = Stage::ALL.into_iter().filter(has).collect();
        let of_stage = |stage: &Stage| {
            let mut one = self.clone();
            one.by.stage = Some(*stage);
            one.latency.request_stages.retain(|of, _| of == stage);
            if let Some(all) = &mut one.latency.operations {
                all.stages.retain(|of, _| of == stage);
                all.sums_ns.retain(|of, _| of == stage);
                all.by_total.clear();
            }
            one
        };
        if stages.is_empty() { vec![self] } else { stages.iter().map(of_stage).collect() }
    }
}

merge!(Group { first: by other; add: latency; });

impl Row for Group {
    type Key = (GroupValues, bool);

    fn key(&self) -> Self::Key {
        (self.by.clone(), self.other)
    }
}

/// I/Os by the CPU that they were submitted on and the one that they completed on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CpuPair {
    pub submit_cpu: u32,
    pub completion_cpu: u32,
    pub ios: u64,
}

/// The same by NUMA node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NodePair {
    pub submit_node: u32,
    pub completion_node: u32,
    pub ios: u64,
}

merge!(CpuPair { first: submit_cpu completion_cpu; add: ios; });
row!(CpuPair, (u32, u32), |pair| (pair.submit_cpu, pair.completion_cpu));
merge!(NodePair { first: submit_node completion_node; add: ios; });
row!(NodePair, (u32, u32), |pair| (pair.submit_node, pair.completion_node));

/// The answer to `--by`; empty without it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Groups {
    /// In the order that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by: Vec<Dimension>,
    /// How many there can be.
    #[serde(rename = "groups_max", skip_serializing_if = "Option::is_none")]
    pub most: Option<u32>,
    /// Most time first; by stage, those of a group one after the other.
    pub groups: Vec<Group>,
    /// None: CPUs were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Vec<CpuPair>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<NodePair>>,
}

merge!(Groups { first: by most; rows: groups; both_rows: cpus nodes; });

impl Groups {
    /// Sorts merged groups.
    pub fn settle(&mut self) {
        // With stages, the rows of a group stay together, in order of first appearance.
        if !self.by.contains(&Dimension::Stage) {
            self.groups.sort_by_key(|group| std::cmp::Reverse(group.time_ns()));
        }
        self.cpus.iter_mut().for_each(|pairs| pairs.sort_by_key(Row::key));
        self.nodes.iter_mut().for_each(|pairs| pairs.sort_by_key(Row::key));
    }
}

/// The groups between two readings. `cgroups` has the paths by id.
pub fn summarize(
    host: &Host,
    by: &[Dimension],
    cgroups: &BTreeMap<u64, String>,
    start: &Reading,
    end: &Reading,
) -> Groups {
    let Some(last) = end.groups.as_ref() else { return Groups::default() };
    let none = GroupsSample::default();
    let delta = last.since(start.groups.as_ref().unwrap_or(&none));
    let devices: Vec<&str> = end.devices.iter().map(|device| device.name.as_str()).collect();
    let followed = end.devices.iter().any(|device| !device.operations.is_empty());
    let mut groups: Vec<Group> = delta
        .groups
        .iter()
        .filter_map(|sample| {
            let other = sample.number == 0;
            let device = end.devices.get(sample.key.device as usize);
            let bio_based = match device.filter(|_| !other && by.contains(&Dimension::Device)) {
                Some(device) => device.bio_based,
                None => end.devices.iter().all(|device| device.bio_based),
            };
            let latency = latency(sample, followed, bio_based)?;
            let by = if other { GroupValues::default() } else { values(by, sample, &devices, cgroups) };
            Some(Group { by, other, latency })
        })
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.time_ns()));
    if by.contains(&Dimension::Stage) {
        groups = groups.into_iter().flat_map(Group::by_stage).collect();
    }
    let cpus = by.contains(&Dimension::Cpu).then(|| pairs(&delta.matrix));
    let nodes = cpus.as_ref().map(|cpus| by_node(host, cpus));
    Groups { by: by.to_vec(), most: Some(delta.most), groups, cpus, nodes }
}

/// None: no I/O of the group ended in the interval. `bio_based`: its I/Os are bios, which have no stages.
fn latency(sample: &GroupSample, followed: bool, bio_based: bool) -> Option<OpLatency> {
    let (ios, mut request_stages) = io_row(&sample.row);
    let mut operations = operations::summarize(sample.operations.iter().enumerate());
    let mut bio = None;
    if bio_based {
        bio = request_stages.remove(&Stage::Device);
        request_stages.clear();
        if let Some(operations) = &mut operations {
            operations.leave_out_if_nothing(Stage::Queue);
        }
    }
    if ios == 0 && sample.row.bytes == 0 && operations.is_none() {
        return None;
    }
    Some(OpLatency {
        ios,
        bytes: sample.row.bytes,
        unowned: followed.then_some(sample.row.unowned),
        request_stages,
        bio,
        operations,
        ..OpLatency::default()
    })
}

fn values(
    by: &[Dimension],
    sample: &GroupSample,
    devices: &[&str],
    cgroups: &BTreeMap<u64, String>,
) -> GroupValues {
    let key = &sample.key;
    let known = key.known & GROUP_SUBMITTER != 0;
    let size = || match key.size {
        0 => Some((0, 1)),
        size => 1u64.checked_shl(u32::from(size) - 1).and_then(|lower| Some((lower, lower.checked_mul(2)?))),
    };
    let cgroup =
        || cgroups.get(&key.cgroup).map_or(Cgroup::Id(key.cgroup), |path| Cgroup::Path(path.clone()));
    let mut values = GroupValues::default();
    for dimension in by {
        match dimension {
            Dimension::Device => {
                values.device = devices.get(key.device as usize).map(|name| name.to_string())
            }
            Dimension::Op => values.op = Op::ALL.get(usize::from(key.op)).copied(),
            Dimension::Queue => values.queue = (key.queue != NO_QUEUE).then_some(key.queue),
            Dimension::Size => values.size = size(),
            Dimension::Cpu => values.cpu = known.then_some(key.cpu),
            Dimension::Process => {
                values.process = known.then(|| Process { pid: key.pid, comm: sample.comm.clone() });
            }
            Dimension::Cgroup => values.cgroup = (known && key.cgroup != 0).then(cgroup),
            Dimension::File => values.file = IoFile::new(&key.file, sample.path.as_deref()),
            Dimension::Stage => {}
        }
    }
    values
}

/// The non-zero cells of a square matrix.
fn pairs(matrix: &[u64]) -> Vec<CpuPair> {
    let side = matrix.len().isqrt().max(1);
    let pair = |(at, ios): (usize, &u64)| CpuPair {
        submit_cpu: (at / side) as u32,
        completion_cpu: (at % side) as u32,
        ios: *ios,
    };
    matrix.iter().enumerate().filter(|(_, ios)| **ios > 0).map(pair).collect()
}

/// A machine without nodes counts as one node.
fn by_node(host: &Host, cpus: &[CpuPair]) -> Vec<NodePair> {
    let node = |cpu: u32| host.nodes.iter().find(|node| node.cpus.contains(&cpu)).map_or(0, |node| node.node);
    let mut nodes: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for pair in cpus {
        *nodes.entry((node(pair.submit_cpu), node(pair.completion_cpu))).or_insert(0) += pair.ios;
    }
    let pair = |((submit_node, completion_node), ios)| NodePair { submit_node, completion_node, ios };
    nodes.into_iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::NumaNode;
    use crate::wire::groups::WireGroupKey;
    use crate::wire::reading::DeviceSample;
    use crate::wire::rows::IoRow;

    fn sample(number: u32, key: WireGroupKey, times: &[u64]) -> GroupSample {
        let mut row = IoRow { bytes: 4096 * times.len() as u64, ..IoRow::default() };
        times.iter().for_each(|ns| row.stages[1].record(*ns));
        GroupSample { number, key, comm: "dd".into(), row, ..GroupSample::default() }
    }

    fn reading(groups: Vec<GroupSample>, matrix: &[u64]) -> Reading {
        let device = DeviceSample { name: "sda".into(), ..DeviceSample::default() };
        let groups = GroupsSample { most: 512, groups, matrix: matrix.to_vec(), ..GroupsSample::default() };
        Reading { devices: vec![device], groups: Some(groups), ..Reading::default() }
    }

    fn summary(by: &[Dimension], end: &Reading) -> Groups {
        let cgroups = BTreeMap::from([(7, "/a".to_string())]);
        summarize(&Host::default(), by, &cgroups, &Reading::default(), end)
    }

    #[test]
    fn values_stand_in_the_order_that_was_asked_for_and_most_time_comes_first() {
        let key = |op| WireGroupKey {
            op,
            size: 13,
            pid: 5,
            cgroup: 7,
            known: GROUP_SUBMITTER,
            ..WireGroupKey::default()
        };
        let end =
            reading(vec![sample(0, key(0), &[]), sample(1, key(0), &[5]), sample(2, key(1), &[9])], &[]);
        let by = [Dimension::Size, Dimension::Op, Dimension::Cgroup, Dimension::Process, Dimension::Device];
        let all = summary(&by, &end);
        assert_eq!(all.groups.len(), 2, "the others are none");
        let expected = GroupValues {
            size: Some((4096, 8192)),
            op: Some(Op::Write),
            cgroup: Some(Cgroup::Path("/a".to_string())),
            process: Some(Process { pid: 5, comm: "dd".to_string() }),
            device: Some("sda".to_string()),
            ..GroupValues::default()
        };
        assert_eq!(all.groups[0].by, expected);
        assert_eq!((all.groups[0].latency.ios, all.groups[0].latency.bytes), (1, 4096));
    }

    /// Bio-based devices have the same keys in groups as elsewhere.
    #[test]
    fn bios_have_no_stages() {
        let key = |device| WireGroupKey { device, ..WireGroupKey::default() };
        let mut end = reading(vec![sample(1, key(0), &[5]), sample(2, key(1), &[9])], &[]);
        let zram = DeviceSample { name: "zram0".into(), bio_based: true, ..DeviceSample::default() };
        end.devices.push(zram);
        let all = summary(&[Dimension::Device], &end);
        let keys: Vec<(bool, usize)> =
            all.groups.iter().map(|g| (g.latency.bio.is_some(), g.latency.request_stages.len())).collect();
        assert_eq!(keys, [(true, 0), (false, 1)], "most time first");
        end.devices.remove(0);
        end.groups.as_mut().unwrap().groups.truncate(1);
        let all = summary(&[Dimension::Op], &end);
        assert!(all.groups[0].latency.bio.is_some() && all.groups[0].time_ns() == 5);
    }

    /// An unknown submitter must not become process 0 on CPU 0.
    #[test]
    fn an_unknown_submitter_has_no_values() {
        let by = [Dimension::Process, Dimension::Cpu, Dimension::Cgroup, Dimension::Size];
        let all = summary(&by, &reading(vec![sample(1, WireGroupKey::default(), &[5])], &[]));
        let size = Some((0, 1));
        assert_eq!(all.groups[0].by, GroupValues { size, ..GroupValues::default() });
        let idle = WireGroupKey { known: GROUP_SUBMITTER, ..WireGroupKey::default() };
        let all = summary(&by, &reading(vec![sample(1, idle, &[5])], &[]));
        let process = Some(Process { pid: 0, comm: "dd".to_string() });
        assert_eq!(all.groups[0].by, GroupValues { size, process, cpu: Some(0), ..GroupValues::default() });
    }

    #[test]
    fn a_stage_makes_a_row_of_its_own() {
        let mut both = sample(1, WireGroupKey { known: GROUP_SUBMITTER, ..WireGroupKey::default() }, &[5]);
        both.row.stages[0].record(3);
        let timeless =
            GroupSample { row: IoRow { untimed: 1, ..IoRow::default() }, number: 2, ..both.clone() };
        let all = summary(&[Dimension::Process, Dimension::Stage], &reading(vec![both, timeless], &[]));
        let rows: Vec<_> =
            all.groups.iter().map(|group| (group.by.stage, group.latency.request_stages.len())).collect();
        assert_eq!(rows, [(Some(Stage::Queue), 1), (Some(Stage::Device), 1), (None, 0)]);
        assert!(all.cpus.is_none() && all.groups.iter().all(|group| group.latency.ios == 1));
    }

    #[test]
    fn the_others_are_marked_and_nothing_else_is_said_of_them() {
        let all = summary(&[Dimension::Op], &reading(vec![sample(0, WireGroupKey::default(), &[5])], &[]));
        assert!(all.groups[0].other && all.groups[0].by == GroupValues::default());
    }

    #[test]
    fn a_matrix_is_read_by_row_and_added_up_by_node() {
        let node = |node, cpus: &[u32]| NumaNode { node, cpus: cpus.to_vec() };
        let host = Host { nodes: vec![node(0, &[0, 1]), node(1, &[2])], ..Host::default() };
        let end = reading(vec![], &[1, 0, 4, 0, 2, 0, 3, 0, 0]);
        let all = summarize(&host, &[Dimension::Cpu], &BTreeMap::new(), &Reading::default(), &end);
        let cpus = all.cpus.unwrap();
        let of_cpus: Vec<_> =
            cpus.iter().map(|pair| (pair.submit_cpu, pair.completion_cpu, pair.ios)).collect();
        assert_eq!(of_cpus, [(0, 0, 1), (0, 2, 4), (1, 1, 2), (2, 0, 3)]);
        let of_nodes = |nodes: Vec<NodePair>| -> Vec<_> {
            nodes.iter().map(|pair| (pair.submit_node, pair.completion_node, pair.ios)).collect()
        };
        assert_eq!(of_nodes(all.nodes.unwrap()), [(0, 0, 3), (0, 1, 4), (1, 0, 3)]);
        assert_eq!(of_nodes(by_node(&Host::default(), &cpus)), [(0, 0, 10)]);
    }

    #[test]
    fn each_dimension_has_a_bit_of_its_own() {
        assert_eq!(mask(&Dimension::ALL), 255);
        assert_eq!(mask(&[Dimension::Stage]), 0);
    }
}
