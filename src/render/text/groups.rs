//! Groups of I/Os as tables.

use super::{bytes, clean, count, counted, figure, table, time_unit};
use crate::analyze::groups::{Dimension, Group, Groups, Pair, Value};
use crate::analyze::latency::{LatencySummary, Unit};
use crate::analyze::stage::Stage;
use crate::hist::Histogram;

/// Groups that a text shows unless all are asked for.
const MOST_ROWS: usize = 20;
/// CPUs whose matrix fits a terminal.
const MOST_COLUMNS: usize = 16;
/// Pairs of CPUs that stand for a larger matrix.
const MOST_PAIRS: usize = 10;

/// The tables, each with an empty line behind it.
pub fn render(groups: &Groups, all: bool) -> String {
    let by: Vec<&str> = groups.by.iter().map(|dimension| dimension.name()).collect();
    let mut out = format!("\nby {}: {}", by.join(", "), counted(groups.groups.len() as u64, "group"));
    out.push_str(&format!(" of at most {}, by the time in queue and device\n\n", count(groups.most.into())));
    let rows: Vec<Vec<String>> = match groups.by.contains(&Dimension::Stage) {
        true => groups.groups.iter().flat_map(|group| by_stage(groups, group, scale(groups))).collect(),
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

/// Why a view with a filter is empty; None where it is not, or where the kernel does not count.
pub fn nothing_passed(summary: &LatencySummary) -> Option<String> {
    if !summary.filtered || summary.devices.iter().any(|device| device.ios + device.lost_ios > 0) {
        return None;
    }
    let all: Option<u64> = summary.devices.iter().map(|device| Some(device.all_ios?.max)).sum();
    Some(match all {
        None => {
            "None of the I/Os on the traced devices was handed in by those who were asked for.".to_string()
        }
        Some(0) => "No I/O completed on the traced devices, whoever handed it in.".to_string(),
        Some(n) => format!(
            "None of the {} on the traced devices was handed in by those who were asked for.",
            counted(n, "I/O")
        ),
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

/// A group on one line: how much, its share of the time, and the mean of each stage.
fn in_columns(groups: &Groups, group: &Group, (scale, _): (f64, &str)) -> Vec<String> {
    let (unit, stages) = group.latency.stages();
    let cell = |ns: Option<f64>| ns.map_or("-".to_string(), |ns| figure(ns / scale));
    let whole: u64 = groups.groups.iter().map(Group::time_ns).sum();
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

/// A line per stage of a group, or one where it has none.
fn by_stage(groups: &Groups, group: &Group, (scale, _): (f64, &str)) -> Vec<Vec<String>> {
    let (unit, stages) = group.latency.stages();
    let cell = |ns: Option<u64>| ns.map_or("-".to_string(), |ns| figure(ns as f64 / scale));
    let line = |of: Option<(&Stage, &Histogram)>| {
        let name = |dimension: &Dimension| match dimension {
            Dimension::Stage => of.map_or("-", |(stage, _)| stage.name()).to_string(),
            _ => name(group, *dimension),
        };
        let hist = of.map(|(_, hist)| hist);
        let mut row: Vec<String> = groups.by.iter().map(name).collect();
        row.push(unit.name().to_string());
        row.push(hist.and_then(Histogram::mean).map_or("-".to_string(), |ns| figure(ns / scale)));
        row.extend([0.5, 0.9, 0.99, 0.999].map(|share| cell(hist.and_then(|hist| hist.quantile(share)))));
        row.push(cell(hist.and_then(Histogram::max)));
        row.push(count(hist.map_or(group.latency.ios, Histogram::count)));
        row
    };
    if stages.is_empty() { vec![line(None)] } else { stages.iter().map(|one| line(Some(one))).collect() }
}

fn name(group: &Group, dimension: Dimension) -> String {
    if group.other {
        return "(others)".to_string();
    }
    match group.value(dimension) {
        None => "-".to_string(),
        Some(Value::Device(name)) => clean(name),
        Some(Value::Op(op)) => op.name().to_string(),
        Some(Value::Queue(number) | Value::Cpu(number)) => number.to_string(),
        Some(Value::Size(0, _)) => "0 B".to_string(),
        Some(Value::Size(lower, upper)) => format!("[{}, {})", bytes(*lower as f64), bytes(*upper as f64)),
        Some(Value::Process { pid, comm }) => format!("{} {pid}", clean(comm)),
        Some(Value::Cgroup { path: Some(path), .. }) => clean(path),
        Some(Value::Cgroup { id, path: None }) => format!("(gone) {id}"),
        Some(Value::File(file)) => clean(&file.label()),
    }
}

/// What the table leaves open.
fn remarks(groups: &Groups) -> String {
    let (_, unit) = scale(groups);
    let mut out = match groups.by.contains(&Dimension::Stage) {
        true => format!("times in {unit}\n"),
        false => format!("stages and total are means in {unit}, p99 is that of the total\n"),
    };
    let unknown = |dimension: &Dimension| {
        let submitters = [Dimension::Cpu, Dimension::Process, Dimension::Cgroup].contains(dimension);
        submitters && groups.groups.iter().any(|group| !group.other && group.value(*dimension).is_none())
    };
    if groups.by.iter().any(unknown) {
        out.push_str(
            "-: not known, as of flushes of the device, of what began before, and of commands of the driver's own \
             without data or that another task issues\n",
        );
    }
    let nameless = |group: &Group| !group.other && group.value(Dimension::File).is_none();
    if groups.by.contains(&Dimension::File) && groups.groups.iter().any(nameless) {
        out.push_str("file -: not known, as of discards, flushes, encrypted and compressed pages\n");
    }
    if groups.groups.iter().any(|group| group.other) {
        out.push_str("(others): I/Os for whose group there was no room: name fewer words with --by, or devices with -d\n");
    }
    out
}

/// Where I/Os were handed in, and where they completed.
fn matrices(groups: &Groups) -> String {
    let mut out = String::new();
    if groups.cpus.is_empty() {
        return out;
    }
    let several_nodes = groups.nodes.iter().any(|pair| (pair.submit, pair.completion) != (0, 0));
    if several_nodes {
        out.push_str(&matrix("node", &groups.nodes));
    }
    let used = |pair: &Pair| [pair.submit, pair.completion];
    let cpus: std::collections::BTreeSet<u32> = groups.cpus.iter().flat_map(used).collect();
    if cpus.len() <= MOST_COLUMNS {
        out.push_str(&matrix("CPU", &groups.cpus));
        return out;
    }
    let mut most = groups.cpus.clone();
    most.sort_by_key(|pair| std::cmp::Reverse(pair.ios));
    let row = |pair: &Pair| vec![pair.submit.to_string(), pair.completion.to_string(), count(pair.ios)];
    let rows: Vec<Vec<String>> = most.iter().take(MOST_PAIRS).map(row).collect();
    out.push_str(&table(&["submit CPU", "completion CPU", "I/Os"], &rows));
    let left = most.len().saturating_sub(MOST_PAIRS);
    if left > 0 {
        out.push_str(&format!("{} more pairs: --json has them\n", count(left as u64)));
    }
    out.push('\n');
    out
}

/// A row for each place that I/Os were handed in on, a column for each that they completed on.
fn matrix(what: &str, pairs: &[Pair]) -> String {
    let rows: std::collections::BTreeSet<u32> = pairs.iter().map(|pair| pair.submit).collect();
    let columns: std::collections::BTreeSet<u32> = pairs.iter().map(|pair| pair.completion).collect();
    let ios = |submit, completion| {
        let found = pairs.iter().find(|pair| (pair.submit, pair.completion) == (submit, completion));
        count(found.map_or(0, |pair| pair.ios))
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
    use crate::analyze::files::{File, FileKind};
    use std::collections::BTreeMap;

    use super::*;
    use crate::analyze::counting::Bracket;
    use crate::analyze::latency::{DeviceLatency, OpLatency};

    fn group(pid: u32, ns: u64) -> Group {
        let hist = Histogram::from_iter([ns; 200]);
        let latency = OpLatency {
            ios: 200,
            request_stages: BTreeMap::from([(Stage::Queue, hist.clone()), (Stage::Device, hist)]),
            ..OpLatency::default()
        };
        let process = Value::Process { pid, comm: "a\x1bb".to_string() };
        Group { by: vec![(Dimension::Process, process)], other: false, latency }
    }

    fn groups(by: &[Dimension], groups: Vec<Group>) -> Groups {
        Groups { by: by.to_vec(), most: 512, groups, ..Groups::default() }
    }

    #[test]
    fn each_group_has_a_line_with_its_share_of_the_time() {
        let mut unknown = group(0, 1_000);
        unknown.by.clear();
        let mut others = group(0, 1_000);
        others.other = true;
        let text = render(&groups(&[Dimension::Process], vec![group(7, 8_000), unknown, others]), false);
        assert!(text.contains("by process: 3 groups of at most 512"), "{text}");
        assert!(text.contains("a\\u{1b}b 7") && !text.contains('\x1b'), "{text}");
        assert!(text.contains("80 %") && text.contains("10 %"), "{text}");
        assert!(text.lines().any(|line| line.starts_with("-  ")), "{text}");
        assert!(text.contains("(others)  ") && text.contains("no room"), "{text}");
        assert!(text.contains("not known"), "{text}");
    }

    #[test]
    fn a_file_is_shown_by_its_name_else_by_what_it_is() {
        let of = |of: Option<FileKind>| {
            let value = |kind| (Dimension::File, Value::File(File { device: (8, 1), kind }));
            Group { by: of.map(value).into_iter().collect(), ..group(7, 8_000) }
        };
        let regular = |path: Option<&str>| FileKind::Regular { inode: 12, path: path.map(str::to_string) };
        let all = [
            Some(regular(Some("/a\x1b[31m"))),
            Some(regular(None)),
            Some(FileKind::RawDevice),
            Some(FileKind::Swap),
            None,
        ];
        let text = render(&groups(&[Dimension::File], all.map(of).to_vec()), false);
        for expected in ["/a\\u{1b}[31m", "[inode 12] 8:1", "[raw device] 8:1", "[swap] 8:1", "\n-  "] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(text.contains("file -: not known") && !text.contains('\x1b'), "{text}");
    }

    #[test]
    fn stages_are_lines_where_they_are_asked_for() {
        let text = render(&groups(&[Dimension::Stage, Dimension::Process], vec![group(7, 8_000)]), false);
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
        let pair = |submit, completion, ios| Pair { submit, completion, ios };
        let mut few = groups(&[Dimension::Cpu], vec![]);
        few.cpus = vec![pair(0, 0, 5), pair(1, 0, 1_234)];
        few.nodes = vec![pair(0, 0, 1_239)];
        let text = render(&few, false);
        assert!(text.contains("submit CPU   to 0\n0               5\n1           1,234\n"), "{text}");
        assert!(!text.contains("node"), "{text}");
        few.cpus = (0..30).map(|cpu| pair(cpu, cpu + 1, u64::from(cpu) + 1)).collect();
        few.nodes = vec![pair(0, 1, 465)];
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
