//! Renders groups of I/Os as tables.

use super::{bytes, clean, count, counted, figure, table, time_unit};
use crate::analyze::groups::{Cgroup, Dimension, Group, GroupValues, Groups};
use crate::analyze::latency::{LatencySummary, Unit};
use crate::analyze::stage::Stage;
use crate::hist::Histogram;
use crate::merge::{SaturatingSum as _, sum_if_known};

/// Groups shown unless all are requested.
const MOST_ROWS: usize = 20;
/// CPUs whose matrix fits a terminal.
const MOST_COLUMNS: usize = 16;
/// Pairs of CPUs shown instead of a larger matrix.
const MOST_PAIRS: usize = 10;

/// Submission CPU, completion CPU, I/Os.
type Pair = (u32, u32, u64);

/// The tables, each followed by an empty line.
pub fn render(groups: &Groups, all: bool) -> String {
    let by: Vec<&str> = groups.by.iter().map(|dimension| dimension.name()).collect();
    // With stages, a group has several rows.
    let whole = |group: &Group| GroupValues { stage: None, ..group.by.clone() };
    let same = |a: &Group, b: &Group| a.by.stage.is_some() && a.by.stage < b.by.stage && whole(a) == whole(b);
    let number = groups.groups.chunk_by(same).count();
    let mut out = format!("\nby {}: {}", by.join(", "), counted(number as u64, "group"));
    let most = count(groups.most.unwrap_or(0).into());
    out.push_str(&format!(" of at most {most}, by the time in queue and device\n\n"));
    let rows: Vec<Vec<String>> = match groups.by.contains(&Dimension::Stage) {
        true => groups.groups.iter().filter_map(|group| of_stage(groups, group, scale(groups))).collect(),
        false => groups.groups.iter().map(|group| in_columns(groups, group, scale(groups))).collect(),
    };
    let shown = if all { rows.len() } else { rows.len().min(MOST_ROWS) };
    out.push_str(&table(&header(groups), &rows[..shown]));
    if shown < rows.len() {
        out.push_str(&format!(
            "{} more: --all shows them, --json has them\n",
            count((rows.len() - shown) as u64)
        ));
    }
    out.push_str(&remarks(groups));
    out.push('\n');
    out.push_str(&matrices(groups));
    out
}

/// Why a filtered view is empty; None if it is not, or if the kernel does not count.
pub fn nothing_passed(summary: &LatencySummary) -> Option<String> {
    if !summary.filtered || summary.devices.iter().any(|device| device.ios > 0 || device.lost_ios > 0) {
        return None;
    }
    let all = sum_if_known(summary.devices.iter().map(|device| Some(device.all_ios?.max)));
    Some(match all {
        None => "None of the I/Os on the traced devices passes the filter.".to_string(),
        Some(0) => "No I/O completed on the traced devices, from any process.".to_string(),
        Some(n) => format!("None of the {} on the traced devices passes the filter.", counted(n, "I/O")),
    })
}

fn header(groups: &Groups) -> Vec<&str> {
    let by = groups.by.iter().map(|dimension| dimension.name());
    let of_group: &[&str] = match groups.by.contains(&Dimension::Stage) {
        true => &["per", "mean", "p50", "p90", "p99", "p99.9", "max", "n"],
        false => &["I/Os", "operations", "time", "per", "submit", "queue", "device", "complete", "reap"],
    };
    let total: &[&str] = if groups.by.contains(&Dimension::Stage) { &[] } else { &["total", "p99"] };
    by.chain(of_group.iter().chain(total).copied()).collect()
}

/// One unit for all times: that of the longest mean.
fn scale(groups: &Groups) -> (f64, &'static str) {
    let means = groups.groups.iter().flat_map(|group| {
        let (_, stages) = group.latency.stages();
        let total = group.latency.operations.as_ref().map(|all| &all.total);
        stages.values().chain(total).filter_map(Histogram::mean)
    });
    time_unit(means.fold(0.0, f64::max) as u64)
}

/// A group on one line: counts, its share of the time, and the mean of each stage.
fn in_columns(groups: &Groups, group: &Group, (scale, _): (f64, &str)) -> Vec<String> {
    let (unit, stages) = group.latency.stages();
    let cell = |ns: Option<f64>| ns.map_or("-".to_string(), |ns| figure(ns / scale));
    let whole: u64 = groups.groups.iter().map(Group::time_ns).saturating_sum();
    let share = group.time_ns() as f64 / whole.max(1) as f64 * 100.0;
    let operations = group.latency.operations.as_ref();
    let total = operations.map(|all| &all.total).filter(|_| unit == Unit::Operation);
    let mut row: Vec<String> = groups.by.iter().map(|dimension| name(group, *dimension)).collect();
    row.push(count(group.latency.ios));
    row.push(operations.map_or("-".to_string(), |all| count(all.operations)));
    row.push(format!("{share:.0} %"));
    row.push(unit.name().to_string());
    row.extend(Stage::ALL.iter().map(|stage| cell(stages.get(stage).and_then(Histogram::mean))));
    row.push(cell(total.and_then(Histogram::mean)));
    row.push(cell(total.and_then(|hist| hist.quantile(0.99)).map(|ns| ns as f64)));
    row
}

/// One stage of a group, or the group if it has none; None for a stage of its requests if those of its operations are
/// shown.
fn of_stage(groups: &Groups, group: &Group, (scale, _): (f64, &str)) -> Option<Vec<String>> {
    let (unit, stages) = group.latency.stages();
    let hist = stages.values().next();
    if group.by.stage.is_some() && hist.is_none() {
        return None;
    }
    let cell = |ns: Option<u64>| ns.map_or("-".to_string(), |ns| figure(ns as f64 / scale));
    let mut row: Vec<String> = groups.by.iter().map(|dimension| name(group, *dimension)).collect();
    row.push(unit.name().to_string());
    row.push(hist.and_then(Histogram::mean).map_or("-".to_string(), |ns| figure(ns / scale)));
    row.extend([0.5, 0.9, 0.99, 0.999].map(|share| cell(hist.and_then(|hist| hist.quantile(share)))));
    row.push(cell(hist.and_then(Histogram::max)));
    row.push(count(hist.map_or(group.latency.ios, Histogram::count)));
    Some(row)
}

/// The group's name in a dimension, escaped; a dash if unknown.
pub fn name(group: &Group, dimension: Dimension) -> String {
    let by = &group.by;
    let name = match dimension {
        Dimension::Stage => by.stage.map(|stage| stage.name().to_string()),
        _ if group.other => Some("(others)".to_string()),
        Dimension::Device => by.device.as_deref().map(clean),
        Dimension::Op => by.op.map(|op| op.name().to_string()),
        Dimension::Queue => by.queue.map(|queue| queue.to_string()),
        Dimension::Size => by.size.map(|(lower, upper)| match lower {
            0 => "0 B".to_string(),
            _ => format!("[{}, {})", bytes(lower as f64), bytes(upper as f64)),
        }),
        Dimension::Cpu => by.cpu.map(|cpu| cpu.to_string()),
        Dimension::Process => by.process.as_ref().map(|of| format!("{} {}", clean(&of.comm), of.pid)),
        Dimension::Cgroup => by.cgroup.as_ref().map(|of| match of {
            Cgroup::Path(path) => clean(path),
            Cgroup::Id(id) => format!("(gone) {id}"),
        }),
        Dimension::File => by.file.as_ref().map(|file| clean(&file.label())),
    };
    name.unwrap_or_else(|| "-".to_string())
}

/// Remarks below the table.
fn remarks(groups: &Groups) -> String {
    let (_, unit) = scale(groups);
    let mut out = match groups.by.contains(&Dimension::Stage) {
        true => format!("times in {unit}\n"),
        false => format!("stages and total are means in {unit}, p99 is that of the total\n"),
    };
    let named = || groups.groups.iter().filter(|group| !group.other);
    let unknown = |dimension: &Dimension| {
        named().any(|Group { by, .. }| match dimension {
            Dimension::Cpu => by.cpu.is_none(),
            Dimension::Process => by.process.is_none(),
            Dimension::Cgroup => by.cgroup.is_none(),
            _ => false,
        })
    };
    if groups.by.iter().any(unknown) {
        out.push_str(
            "-: unknown, as for device flushes, I/Os that began before, and driver commands without data \
             or issued by another task\n",
        );
    }
    if groups.by.contains(&Dimension::File) && named().any(|group| group.by.file.is_none()) {
        out.push_str("file -: unknown, as for discards, flushes, encrypted and compressed pages\n");
    }
    if groups.groups.iter().any(|group| group.other) {
        out.push_str(
            "(others): no room for the groups of these I/Os: use fewer dimensions in --by, or \
            name devices with -d\n",
        );
    }
    out
}

/// The CPUs and nodes of submission and completion.
fn matrices(groups: &Groups) -> String {
    let mut out = String::new();
    let cpus = groups.cpus.iter().flatten().map(|pair| (pair.submit_cpu, pair.completion_cpu, pair.ios));
    let nodes = groups.nodes.iter().flatten().map(|pair| (pair.submit_node, pair.completion_node, pair.ios));
    let (cpus, nodes): (Vec<Pair>, Vec<Pair>) = (cpus.collect(), nodes.collect());
    if cpus.is_empty() {
        return out;
    }
    if nodes.iter().any(|(submit, completion, _)| (*submit, *completion) != (0, 0)) {
        out.push_str(&matrix("node", &nodes));
    }
    let used: std::collections::BTreeSet<u32> = cpus.iter().flat_map(|pair| [pair.0, pair.1]).collect();
    if used.len() <= MOST_COLUMNS {
        out.push_str(&matrix("CPU", &cpus));
        return out;
    }
    let mut most = cpus;
    most.sort_by_key(|pair| std::cmp::Reverse(pair.2));
    let row = |pair: &Pair| vec![pair.0.to_string(), pair.1.to_string(), count(pair.2)];
    let rows: Vec<Vec<String>> = most.iter().take(MOST_PAIRS).map(row).collect();
    out.push_str(&table(&["submit CPU", "completion CPU", "I/Os"], &rows));
    let left = most.len().saturating_sub(MOST_PAIRS);
    if left > 0 {
        out.push_str(&format!("{} more pairs: --json has them\n", count(left as u64)));
    }
    out.push('\n');
    out
}

/// A row per submission place, a column per completion place.
fn matrix(what: &str, pairs: &[Pair]) -> String {
    let rows: std::collections::BTreeSet<u32> = pairs.iter().map(|pair| pair.0).collect();
    let columns: std::collections::BTreeSet<u32> = pairs.iter().map(|pair| pair.1).collect();
    let ios = |submit, completion| {
        let found = pairs.iter().find(|pair| (pair.0, pair.1) == (submit, completion));
        count(found.map_or(0, |pair| pair.2))
    };
    let row = |submit: &u32| {
        let cells = columns.iter().map(|completion| ios(*submit, *completion));
        std::iter::once(submit.to_string()).chain(cells).collect()
    };
    let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
    let first = format!("submit {what}");
    let numbers: Vec<String> = columns.iter().map(|completion| format!("to {completion}")).collect();
    let header: Vec<&str> =
        std::iter::once(first.as_str()).chain(numbers.iter().map(String::as_str)).collect();
    format!("{}\n", table(&header, &rows))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::analyze::counting::Bracket;
    use crate::analyze::files::{FileKind, IoFile};
    use crate::analyze::groups::{CpuPair, NodePair, Process};
    use crate::analyze::latency::{DeviceLatency, OpLatency};
    use crate::render::text::fit;

    fn render(all: &Groups, every: bool) -> String {
        fit(&super::render(all, every), None)
    }

    fn group(pid: u32, ns: u64) -> Group {
        let hist = Histogram::from_iter([ns; 200]);
        let latency = OpLatency {
            ios: 200,
            request_stages: BTreeMap::from([(Stage::Queue, hist.clone()), (Stage::Device, hist)]),
            ..OpLatency::default()
        };
        let process = Some(Process { pid, comm: "a\x1bb".to_string() });
        Group { by: GroupValues { process, ..GroupValues::default() }, other: false, latency }
    }

    fn groups(by: &[Dimension], groups: Vec<Group>) -> Groups {
        Groups { by: by.to_vec(), most: Some(512), groups, ..Groups::default() }
    }

    #[test]
    fn each_group_has_a_line_with_its_share_of_the_time() {
        let mut unknown = group(0, 1_000);
        unknown.by.process = None;
        let mut others = group(0, 1_000);
        others.other = true;
        let text = render(&groups(&[Dimension::Process], vec![group(7, 8_000), unknown, others]), false);
        assert!(text.contains("by process: 3 groups of at most 512"), "{text}");
        assert!(text.contains("a\\u{1b}b 7") && !text.contains('\x1b'), "{text}");
        assert!(text.contains("80 %") && text.contains("10 %"), "{text}");
        assert!(text.lines().any(|line| line.starts_with("-  ")), "{text}");
        assert!(text.contains("(others)  ") && text.contains("no room"), "{text}");
        assert!(text.contains("-: unknown"), "{text}");
    }

    #[test]
    fn a_file_is_shown_by_its_name_else_by_what_it_is() {
        let of = |kind: Option<FileKind>, inode, path: Option<&str>| {
            let path = path.map(str::to_string);
            let file = kind.map(|kind| IoFile { kind, device: "8:1".to_string(), inode, path });
            Group { by: GroupValues { file, ..GroupValues::default() }, ..group(7, 8_000) }
        };
        let all = vec![
            of(Some(FileKind::Regular), Some(12), Some("/a\x1b[31m")),
            of(Some(FileKind::Regular), Some(12), None),
            of(Some(FileKind::RawDevice), None, None),
            of(Some(FileKind::Swap), None, None),
            of(None, None, None),
        ];
        let text = render(&groups(&[Dimension::File], all), false);
        for expected in ["/a\\u{1b}[31m", "[inode 12] 8:1", "[raw device] 8:1", "[swap] 8:1", "\n-  "] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(text.contains("file -: unknown") && !text.contains('\x1b'), "{text}");
    }

    #[test]
    fn stages_are_lines_where_they_are_asked_for() {
        let of_stage = |stage| {
            let mut one = group(7, 8_000);
            one.by.stage = Some(stage);
            one.latency.request_stages.retain(|of, _| *of == stage);
            one
        };
        let both = vec![of_stage(Stage::Queue), of_stage(Stage::Device)];
        let text = render(&groups(&[Dimension::Stage, Dimension::Process], both), false);
        assert!(text.contains("1 group of"), "{text}");
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("8.00")).collect();
        assert!(lines.len() == 2 && lines[0].starts_with("queue"), "{text}");
        assert!(lines[1].starts_with("device"), "{text}");
    }

    #[test]
    fn a_long_table_says_how_much_is_left() {
        let many = groups(&[Dimension::Process], (1..=50).map(|pid| group(pid, 1_000)).collect());
        assert!(render(&many, false).contains("30 more"));
        assert!(!render(&many, true).contains("more"));
    }

    #[test]
    fn a_matrix_is_a_table_until_it_is_too_wide() {
        let pair = |submit_cpu, completion_cpu, ios| CpuPair { submit_cpu, completion_cpu, ios };
        let nodes =
            |submit_node, completion_node, ios| Some(vec![NodePair { submit_node, completion_node, ios }]);
        let mut few = groups(&[Dimension::Cpu], vec![]);
        few.cpus = Some(vec![pair(0, 0, 5), pair(1, 0, 1_234)]);
        few.nodes = nodes(0, 0, 1_239);
        let text = render(&few, false);
        assert!(text.contains("submit CPU   to 0\n0               5\n1           1,234\n"), "{text}");
        assert!(!text.contains("node"), "{text}");
        few.cpus = Some((0..30).map(|cpu| pair(cpu, cpu + 1, u64::from(cpu) + 1)).collect());
        few.nodes = nodes(0, 1, 465);
        let text = render(&few, false);
        assert!(text.contains("submit node  to 1\n0             465\n"), "{text}");
        assert!(
            text.contains("29                      30    30\n") && text.contains("20 more pairs"),
            "{text}"
        );
    }

    #[test]
    fn an_empty_view_with_a_filter_says_whose_the_ios_were_not() {
        let device = |all_ios| DeviceLatency { all_ios, ..DeviceLatency::default() };
        let of = |all_ios| LatencySummary {
            filtered: true,
            devices: vec![device(all_ios)],
            ..LatencySummary::default()
        };
        let text = |all_ios| nothing_passed(&of(all_ios)).unwrap();
        assert!(text(Some(Bracket { min: 1_000, max: 1_000 })).contains("None of the 1,000 I/Os"));
        assert!(text(Some(Bracket::default())).starts_with("No I/O completed"));
        assert!(text(None).starts_with("None of the I/Os"));
        assert_eq!(nothing_passed(&LatencySummary::default()), None);
    }
}
