//! Latency lines: one for each device and I/O class, or for each group.

use super::{Cell, Column, Intervals};
use crate::analyze::groups::{Dimension, Group};
use crate::analyze::latency::{DeviceLatency, LatencySummary, OpLatency, Unit};
use crate::analyze::stage::Stage;
use crate::hist::Histogram;
use crate::merge::SaturatingSum as _;
use crate::render::text::{clean, footer, groups};

/// Groups per interval, most time first.
const MOST_GROUPS: usize = 20;

const MEBIBYTE: f64 = 1_048_576.0;

const NUMBERS: [Column; 6] = [
    Column::number("iops", "IO/s", 5),
    Column::number("mibps", "MiB/s", 5).rank(6),
    Column::number("mean", "mean", 5).group("latency, µs"),
    Column::number("p50", "p50", 5).group("latency, µs").rank(9),
    Column::number("p99", "p99", 6).group("latency, µs").rank(1),
    Column::number("max", "max", 6).group("latency, µs").rank(5),
];

const SHARES: [(Stage, Column); 5] = [
    (Stage::Submit, share("submit", "sub").rank(8)),
    (Stage::Queue, share("queue", "que").rank(4)),
    (Stage::Device, share("device", "dev").rank(3)),
    (Stage::Complete, share("complete", "cpl").rank(8)),
    (Stage::Reap, share("reap", "rea").rank(8)),
];

const fn share(name: &'static str, short: &'static str) -> Column {
    Column::number(name, name, 3).short(short).group("% of time in")
}

impl Intervals for LatencySummary {
    fn nothing(&self) -> &'static str {
        "no I/O"
    }

    fn columns(&self) -> Vec<Column> {
        let mut columns = match self.groups.by.is_empty() {
            true => vec![Column::text("device", "device", 7), Column::text("op", "op", 5)],
            false => self.groups.by.iter().map(|dimension| of_dimension(*dimension)).collect(),
        };
        columns.extend(NUMBERS);
        if !self.groups.by.contains(&Dimension::Stage) {
            columns.extend(SHARES.iter().map(|(_, column)| *column));
        }
        columns
    }

    fn rows(&self) -> Vec<Vec<Cell>> {
        let (seconds, sliced) = (self.duration_ns as f64 / 1e9, self.sliced().is_some());
        if !self.groups.by.is_empty() {
            // A group by stage may have a stage that only requests have, while those of operations are shown.
            let has = |group: &&Group| {
                group.by.stage.is_none() || group.latency.stages().1.values().any(|hist| !hist.is_empty())
            };
            return self.groups.groups.iter().filter(has).map(|group| of_group(self, group)).collect();
        }
        let of_device = |device: &DeviceLatency| {
            let name = name(device);
            let rows = device.ops.iter().filter(|(_, latency)| latency.ios > 0);
            rows.map(|(op, latency)| {
                let mut row = vec![Cell::text(Some(name.clone())), Cell::text(Some(op.name()))];
                row.extend(numbers(latency, seconds, sliced));
                row.extend(shares(latency));
                row
            })
            .collect::<Vec<_>>()
        };
        self.devices.iter().flat_map(of_device).collect()
    }

    fn idle(&self) -> Vec<Vec<Cell>> {
        let seconds = self.duration_ns as f64 / 1e9;
        let idle = self.devices.iter().filter(|device| self.groups.by.is_empty() && device.ios == 0);
        idle.map(|device| {
            let mut row = vec![Cell::text(Some(name(device))), Cell::Absent];
            row.extend(numbers(&OpLatency::default(), seconds, false));
            row.extend(shares(&OpLatency::default()));
            row
        })
        .collect()
    }

    fn most(&self) -> usize {
        if self.groups.by.is_empty() { usize::MAX } else { MOST_GROUPS }
    }

    fn devices(&self) -> Vec<&str> {
        self.devices.iter().filter(|device| device.ios > 0).map(|device| device.name.as_str()).collect()
    }

    fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        for device in &self.devices {
            let name = clean(&device.name);
            if device.kernel_check() == Some(false) {
                doubts.push(footer::check(device).trim_end().to_string());
            }
            if device.lost_ios > 0 {
                let (lost, all) = (device.lost_ios, device.ios.saturating_add(device.lost_ios));
                doubts.push(format!("{name}: {lost} of {all} I/Os were missed and are not in the figures"));
            }
            if device.vanished {
                doubts.push(format!("{name} is gone"));
            }
        }
        doubts
    }

    fn note(&self) -> Option<String> {
        self.sliced().map(|_| {
            "submit and reap: measured in a part of the time (CPU budget --max-cost); a mean with + lacks them\n"
                .to_string()
        })
    }
}

fn name(device: &DeviceLatency) -> String {
    match device.added_for.is_empty() {
        true => device.name.clone(),
        false => format!("{} below {}", device.name, device.added_for.join(", ")),
    }
}

fn of_dimension(dimension: Dimension) -> Column {
    let name = dimension.name();
    match dimension {
        Dimension::Queue | Dimension::Cpu => Column::number(name, name, 3),
        Dimension::Device | Dimension::Op | Dimension::Stage | Dimension::Size => Column::text(name, name, 6),
        Dimension::Process | Dimension::Cgroup | Dimension::File => Column::text(name, name, 12),
    }
}

fn of_group(summary: &LatencySummary, group: &Group) -> Vec<Cell> {
    let name = |dimension: &Dimension| match groups::name(group, *dimension) {
        name if name == "-" => Cell::Absent,
        name => match (dimension, name.parse::<f64>()) {
            (Dimension::Queue | Dimension::Cpu, Ok(number)) => Cell::Number(name, number),
            _ => Cell::Text(name),
        },
    };
    let mut row: Vec<Cell> = summary.groups.by.iter().map(name).collect();
    let seconds = summary.duration_ns as f64 / 1e9;
    let by_stage = summary.groups.by.contains(&Dimension::Stage);
    row.extend(numbers(&group.latency, seconds, summary.sliced().is_some() && !by_stage));
    if !by_stage {
        row.extend(shares(&group.latency));
    }
    row
}

/// Cells of [`NUMBERS`].
fn numbers(latency: &OpLatency, seconds: f64, sliced: bool) -> Vec<Cell> {
    let per_second = |n: f64| (seconds > 0.0).then_some(n / seconds);
    let whole = TotalTime::of(latency);
    // Of an operation that was not followed, what is outside of the block layer is not known.
    let lacks = sliced && may_have_operations(latency);
    let mut row = vec![
        Cell::rate(per_second(latency.ios as f64)),
        Cell::figure(per_second(latency.bytes as f64 / MEBIBYTE)),
        Cell::micros(whole.mean_ns()).at_least(lacks),
    ];
    row.extend([0.5, 0.99].map(|q| whole.at(|hist| hist.quantile(q), lacks)));
    row.push(whole.at(Histogram::max, lacks));
    row
}

/// Whether I/Os of a row per I/O may belong to operations: not if those seen while operations were followed do not.
fn may_have_operations(latency: &OpLatency) -> bool {
    let is_unowned = latency.unowned > Some(0) && latency.owned() == Some(0);
    latency.stages().0 != Unit::Operation && !is_unowned
}

/// The whole time of an operation or I/O.
enum TotalTime<'a> {
    Measured(&'a Histogram),
    /// Only its stages are known: their means add up, their percentiles do not.
    Stages(Vec<&'a Histogram>),
}

impl<'a> TotalTime<'a> {
    fn of(latency: &'a OpLatency) -> Self {
        let (unit, stages) = latency.stages();
        let by_stage: Vec<&Histogram> = stages.values().filter(|hist| !hist.is_empty()).collect();
        match (&latency.operations, &latency.bio, &by_stage[..]) {
            // A single stage, also of a group by stage.
            (_, _, [one]) => Self::Measured(one),
            (Some(all), _, _) if unit == Unit::Operation => Self::Measured(&all.total),
            (_, Some(bio), []) => Self::Measured(bio),
            _ => Self::Stages(by_stage),
        }
    }

    fn mean_ns(&self) -> Option<f64> {
        match self {
            Self::Measured(hist) => hist.mean(),
            // Not every I/O has each stage: one that was never refused may have no queue.
            Self::Stages(stages) => {
                let most = stages.iter().map(|hist| hist.count()).max().filter(|n| *n > 0)?;
                Some(stages.iter().map(|hist| hist.sum()).saturating_sum() as f64 / most as f64)
            }
        }
    }

    /// A percentile of a sum is at least that of each of its terms. `lacks`: stages are not in it.
    fn at(&self, of: impl Fn(&Histogram) -> Option<u64>, lacks: bool) -> Cell {
        match self {
            Self::Measured(hist) => Cell::micros(of(hist).map(|ns| ns as f64)).at_least(lacks),
            Self::Stages(stages) => {
                let most = stages.iter().map(|hist| hist.count()).max();
                let of_all = stages.iter().filter(|hist| Some(hist.count()) == most);
                Cell::micros(of_all.filter_map(|hist| of(hist)).max().map(|ns| ns as f64)).at_least(true)
            }
        }
    }
}

/// Cells of [`SHARES`], for the measured stages.
fn shares(latency: &OpLatency) -> Vec<Cell> {
    let (_, stages) = latency.stages();
    let whole = stages.values().map(Histogram::sum).saturating_sum();
    let one = |stage: &Stage| {
        let sum = stages.get(stage).filter(|hist| !hist.is_empty() && whole > 0)?.sum();
        Some(sum as f64 / whole as f64 * 100.0)
    };
    SHARES.iter().map(|(stage, _)| Cell::percent(one(stage))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::analyze::counting::Bracket;
    use crate::analyze::groups::{GroupValues, Groups, Process};
    use crate::analyze::op::{KernelClass, Op};
    use crate::analyze::operations::OperationLatency;
    use crate::render::text::interval_lines::{IntervalLines, IntervalStyle};

    fn hist(ns: u64, n: usize) -> Histogram {
        Histogram::from_iter(vec![ns; n])
    }

    /// 2,000 reads of 100 µs, 80 of them in the device; and writes of no operation.
    fn summary() -> LatencySummary {
        let stages =
            BTreeMap::from([(Stage::Submit, hist(20_000, 2000)), (Stage::Device, hist(80_000, 2000))]);
        let operations = OperationLatency {
            operations: 2000,
            stages: stages.clone(),
            total: hist(100_000, 2000),
            ..OperationLatency::default()
        };
        let read = OpLatency {
            ios: 2000,
            bytes: 2000 * 4096,
            unowned: Some(0),
            request_stages: stages,
            operations: Some(operations),
            ..OpLatency::default()
        };
        let write = OpLatency {
            ios: 200,
            bytes: 200 << 20,
            unowned: Some(200),
            request_stages: BTreeMap::from([
                (Stage::Queue, hist(1_000_000, 200)),
                (Stage::Device, hist(3_000_000, 200)),
            ]),
            ..OpLatency::default()
        };
        let flush = OpLatency { ios: 2, ..OpLatency::default() };
        let device = DeviceLatency {
            name: "vda".to_string(),
            ios: 2202,
            ops: BTreeMap::from([(Op::Read, read), (Op::Write, write), (Op::EmptyFlush, flush)]),
            ..DeviceLatency::default()
        };
        LatencySummary { duration_ns: 2_000_000_000, devices: vec![device], ..LatencySummary::default() }
    }

    fn cells(text: &str) -> Vec<Vec<&str>> {
        text.lines().map(|line| line.split_whitespace().collect()).collect()
    }

    #[test]
    fn a_class_of_a_device_is_a_line() {
        let text = IntervalLines::default().add("10:00:01", &summary());
        let lines = cells(&text);
        assert_eq!(
            lines[1].join(" "),
            "time device op IO/s MiB/s mean p50 p99 max submit queue device complete reap",
            "{text}"
        );
        assert_eq!(lines[2].join(" "), "10:00:01 vda read 1000 3.91 100 100 100 100 20 - 80 - -", "{text}");
        // Their percentiles are at least those of the slower stage; stages that were not measured have none.
        let write = "10:00:01 vda write 100 100 4000 3000+ 3000+ 3000+ - 25 75 - -";
        assert_eq!(lines[3].join(" "), write, "{text}");
        assert_eq!(lines[4].join(" "), "10:00:01 vda empty_flush 1 0 - - - - - - - - -", "{text}");
    }

    /// Submit and reap of these operations are not in the mean, which is a lower bound of theirs.
    #[test]
    fn a_mean_without_operations_is_marked_where_they_were_not_followed() {
        let mut summary = summary();
        let reads = summary.devices[0].ops.get_mut(&Op::Read).unwrap();
        reads.operations = None;
        assert!(summary.note().is_none());
        let mean = |summary: &LatencySummary| {
            let text = IntervalLines::default().add("10:00:01", summary);
            cells(&text)[2][5].to_string()
        };
        assert_eq!(mean(&summary), "100");
        summary.operations_duty = Some(0.0);
        assert_eq!(mean(&summary), "100+");
        let text = IntervalLines::default().add("10:00:01", &summary);
        let write = "10:00:01 vda write 100 100 4000 3000+ 3000+ 3000+ - 25 75 - -";
        assert_eq!(cells(&text)[3].join(" "), write, "they have no operation");
        assert!(summary.note().is_some_and(|note| note.contains("--max-cost")));
    }

    #[test]
    fn eighty_columns_have_every_stage() {
        let mut reads = summary();
        reads.devices[0].name = "nvme0n1".to_string();
        reads.devices[0].ops.retain(|op, _| *op == Op::Read);
        let style = IntervalStyle { width: Some(80), ..IntervalStyle::default() };
        let text = IntervalLines::new(style).add("10:00:01", &reads);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let header = "time device op IO/s MiB/s mean p50 p99 max sub que dev cpl rea";
        assert_eq!(cells(&text)[1].join(" "), header, "{text}");
        for (width, kept) in [(60, "IO/s mean p99 max que dev"), (20, "IO/s")] {
            let style = IntervalStyle { width: Some(width), ..IntervalStyle::default() };
            let text = IntervalLines::new(style).add("10:00:01", &reads);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            assert!(
                kept.split(' ').filter(|name| *name != "IO/s" || width > 20).all(|name| text.contains(name)),
                "{text}"
            );
        }
    }

    #[test]
    fn idle_devices_are_lines_if_all_are_requested() {
        let mut summary = summary();
        summary.devices.push(DeviceLatency { name: "vdb".to_string(), ..DeviceLatency::default() });
        let last = |all| {
            let text = IntervalLines::new(IntervalStyle { all, ..IntervalStyle::default() })
                .add("10:00:01", &summary);
            text.lines().last().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(last(true), "10:00:01 vdb - 0 0 - - - - - - - - -");
        assert!(!last(false).contains("vdb"));
    }

    #[test]
    fn groups_have_their_own_columns() {
        let process = Some(Process { pid: 7, comm: "a\x1bb".to_string() });
        let latency = summary().devices[0].ops[&Op::Read].clone();
        let group = Group { by: GroupValues { process, ..GroupValues::default() }, other: false, latency };
        let groups = Groups { by: vec![Dimension::Process], groups: vec![group], ..Groups::default() };
        let text = IntervalLines::default().add("10:00:01", &LatencySummary { groups, ..summary() });
        let lines = cells(&text);
        assert_eq!(lines[1][..3], ["time", "process", "IO/s"], "{text}");
        assert_eq!(lines[2][1..4], ["a\\u{1b}b", "7", "1000"], "{text}");
    }

    #[test]
    fn doubts_are_said() {
        let mut summary = summary();
        assert!(summary.doubts().is_empty());
        let device = &mut summary.devices[0];
        device.lost_ios = 8;
        device.kernel = Some(BTreeMap::from([(KernelClass::Read, Bracket { min: 1, max: 2 }.into())]));
        let doubts = summary.doubts();
        assert!(doubts[0].contains("DIFFERS") && doubts[1].contains("vda: 8 of 2210 I/Os"), "{doubts:?}");
    }
}
