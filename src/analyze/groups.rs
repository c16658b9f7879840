//! I/Os and operations by what the user tells them apart by.

use std::collections::BTreeMap;

use super::files::File;
use super::latency::{OpLatency, io_row};
use super::op::Op;
use super::operations;
use super::stage::Stage;
use crate::hist::Histogram;
use crate::host::Host;
use crate::wire::groups::{
    BY_CGROUP, BY_CPU, BY_DEVICE, BY_FILE, BY_OP, BY_PROCESS, BY_QUEUE, BY_SIZE, GROUP_SUBMITTER,
    GroupSample, GroupsSample, NO_QUEUE,
};
use crate::wire::reading::Reading;

/// What I/Os are told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dimension {
    Device,
    Op,
    Queue,
    Size,
    Cpu,
    Process,
    Cgroup,
    File,
    Stage,
}

impl Dimension {
    pub const ALL: [Self; 9] = [
        Self::Device,
        Self::Op,
        Self::Queue,
        Self::Size,
        Self::Cpu,
        Self::Process,
        Self::Cgroup,
        Self::File,
        Self::Stage,
    ];

    /// The word of the command line, of tables and of JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Op => "op",
            Self::Queue => "queue",
            Self::Size => "size",
            Self::Cpu => "cpu",
            Self::Process => "process",
            Self::Cgroup => "cgroup",
            Self::File => "file",
            Self::Stage => "stage",
        }
    }

    /// The bit that the programs know it by; every I/O has all stages, so they know none of that.
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

/// What the programs are told.
pub fn mask(by: &[Dimension]) -> u32 {
    by.iter().fold(0, |mask, dimension| mask | dimension.wire())
}

/// What an I/O has in one dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Device(String),
    Op(Op),
    Queue(u32),
    /// Bytes: at least the first and less than the second.
    Size(u64, u64),
    /// The CPU that it was handed in on.
    Cpu(u32),
    Process {
        pid: u32,
        comm: String,
    },
    /// Without a path where the folder came and went unseen.
    Cgroup {
        id: u64,
        path: Option<String>,
    },
    File(File),
}

/// I/Os that are alike in all dimensions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Group {
    /// In the order that was asked for. A dimension that nothing is known of has no entry.
    pub by: Vec<(Dimension, Value)>,
    /// All for whose group there was no room.
    pub other: bool,
    pub latency: OpLatency,
}

impl Group {
    /// What its I/Os waited for the device and in it.
    pub fn time_ns(&self) -> u64 {
        let of = |stage| self.latency.request_stages.get(&stage).map_or(0, |times| times.sum());
        of(Stage::Queue) + of(Stage::Device) + self.latency.bio.as_ref().map_or(0, Histogram::sum)
    }

    pub fn value(&self, dimension: Dimension) -> Option<&Value> {
        self.by.iter().find(|(known, _)| *known == dimension).map(|(_, value)| value)
    }
}

/// I/Os by where they were handed in and where they completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    pub submit: u32,
    pub completion: u32,
    pub ios: u64,
}

/// The answer to `--by`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Groups {
    /// In the order that was asked for.
    pub by: Vec<Dimension>,
    /// How many there can be.
    pub most: u32,
    /// Most time first.
    pub groups: Vec<Group>,
    /// By CPU and by NUMA node; empty unless CPUs are asked for.
    pub cpus: Vec<Pair>,
    pub nodes: Vec<Pair>,
}

/// The groups of the window between two readings; None where there were none to be made. `cgroups` has
/// the paths by id.
pub fn summarize(
    host: &Host,
    by: &[Dimension],
    cgroups: &BTreeMap<u64, String>,
    start: &Reading,
    end: &Reading,
) -> Option<Groups> {
    let last = end.groups.as_ref()?;
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
            let value = |dimension: &Dimension| {
                let value = value(*dimension, sample, &devices, cgroups)?;
                Some((*dimension, value))
            };
            let by = if other { Vec::new() } else { by.iter().filter_map(value).collect() };
            Some(Group { by, other, latency })
        })
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.time_ns()));
    let cpus = pairs(&delta.matrix);
    let nodes = by_node(host, &cpus);
    Some(Groups { by: by.to_vec(), most: delta.most, groups, cpus, nodes })
}

/// None: nothing of the group ended in the window. `bio_based`: its I/Os are bios, which have no stages.
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

fn value(
    dimension: Dimension,
    sample: &GroupSample,
    devices: &[&str],
    cgroups: &BTreeMap<u64, String>,
) -> Option<Value> {
    let key = &sample.key;
    let known = key.known & GROUP_SUBMITTER != 0;
    Some(match dimension {
        Dimension::Device => Value::Device(devices.get(key.device as usize)?.to_string()),
        Dimension::Op => Value::Op(*Op::ALL.get(usize::from(key.op))?),
        Dimension::Queue if key.queue != NO_QUEUE => Value::Queue(key.queue),
        Dimension::Size if key.size == 0 => Value::Size(0, 1),
        Dimension::Size => {
            let lower = 1u64.checked_shl(u32::from(key.size) - 1)?;
            Value::Size(lower, lower.checked_mul(2)?)
        }
        Dimension::Cpu if known => Value::Cpu(key.cpu),
        Dimension::Process if known => Value::Process { pid: key.pid, comm: sample.comm.clone() },
        Dimension::Cgroup if known && key.cgroup != 0 => {
            Value::Cgroup { id: key.cgroup, path: cgroups.get(&key.cgroup).cloned() }
        }
        Dimension::File => Value::File(File::new(&key.file, sample.path.as_deref())?),
        Dimension::Queue | Dimension::Cpu | Dimension::Process | Dimension::Cgroup | Dimension::Stage => {
            return None;
        }
    })
}

/// The cells of a square that are not 0.
fn pairs(matrix: &[u64]) -> Vec<Pair> {
    let side = matrix.len().isqrt().max(1);
    let pair = |(at, ios): (usize, &u64)| Pair {
        submit: (at / side) as u32,
        completion: (at % side) as u32,
        ios: *ios,
    };
    matrix.iter().enumerate().filter(|(_, ios)| **ios > 0).map(pair).collect()
}

/// A machine without nodes is one node.
fn by_node(host: &Host, cpus: &[Pair]) -> Vec<Pair> {
    let node = |cpu: u32| host.nodes.iter().find(|node| node.cpus.contains(&cpu)).map_or(0, |node| node.node);
    let mut nodes: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for pair in cpus {
        *nodes.entry((node(pair.submit), node(pair.completion))).or_insert(0) += pair.ios;
    }
    nodes.into_iter().map(|((submit, completion), ios)| Pair { submit, completion, ios }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::NumaNode;
    use crate::wire::groups::WireGroupKey;
    use crate::wire::reading::DeviceSample;
    use crate::wire::rows::Row;

    fn sample(number: u32, key: WireGroupKey, times: &[u64]) -> GroupSample {
        let mut row = Row { bytes: 4096 * times.len() as u64, ..Row::default() };
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
        summarize(&Host::default(), by, &cgroups, &Reading::default(), end).unwrap()
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
        let expected = vec![
            (Dimension::Size, Value::Size(4096, 8192)),
            (Dimension::Op, Value::Op(Op::Write)),
            (Dimension::Cgroup, Value::Cgroup { id: 7, path: Some("/a".to_string()) }),
            (Dimension::Process, Value::Process { pid: 5, comm: "dd".to_string() }),
            (Dimension::Device, Value::Device("sda".to_string())),
        ];
        assert_eq!(all.groups[0].by, expected);
        assert_eq!((all.groups[0].latency.ios, all.groups[0].latency.bytes), (1, 4096));
    }

    /// Those of a device without requests have the keys that the device has.
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

    /// Not process 0 of CPU 0: nobody.
    #[test]
    fn an_unknown_submitter_has_no_values() {
        let by = [Dimension::Process, Dimension::Cpu, Dimension::Cgroup, Dimension::Size];
        let all = summary(&by, &reading(vec![sample(1, WireGroupKey::default(), &[5])], &[]));
        assert_eq!(all.groups[0].by, [(Dimension::Size, Value::Size(0, 1))]);
        let idle = WireGroupKey { known: GROUP_SUBMITTER, ..WireGroupKey::default() };
        let all = summary(&by, &reading(vec![sample(1, idle, &[5])], &[]));
        assert_eq!(all.groups[0].by.len(), 3);
        assert_eq!(all.groups[0].value(Dimension::Cpu), Some(&Value::Cpu(0)));
    }

    #[test]
    fn the_others_are_marked_and_nothing_else_is_said_of_them() {
        let all = summary(&[Dimension::Op], &reading(vec![sample(0, WireGroupKey::default(), &[5])], &[]));
        assert!(all.groups[0].other && all.groups[0].by.is_empty());
    }

    #[test]
    fn a_matrix_is_read_by_row_and_added_up_by_node() {
        let node = |node, cpus: &[u32]| NumaNode { node, cpus: cpus.to_vec() };
        let host = Host { nodes: vec![node(0, &[0, 1]), node(1, &[2])], ..Host::default() };
        let end = reading(vec![], &[1, 0, 4, 0, 2, 0, 3, 0, 0]);
        let all = summarize(&host, &[Dimension::Cpu], &BTreeMap::new(), &Reading::default(), &end).unwrap();
        let pair = |submit, completion, ios| Pair { submit, completion, ios };
        assert_eq!(all.cpus, [pair(0, 0, 1), pair(0, 2, 4), pair(1, 1, 2), pair(2, 0, 3)]);
        assert_eq!(all.nodes, [pair(0, 0, 3), pair(0, 1, 4), pair(1, 0, 3)]);
        assert_eq!(by_node(&Host::default(), &all.cpus), [pair(0, 0, 10)]);
    }

    #[test]
    fn each_dimension_has_a_bit_of_its_own() {
        assert_eq!(mask(&Dimension::ALL), 255);
        assert_eq!(mask(&[Dimension::Stage]), 0);
    }
}
