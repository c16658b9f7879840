//! Renders a sweep of `biopsy load` as text: the common options, a row per point, and the knee.

use super::load::{WIDTH, blocks, dash, engine, lines};
use super::{bytes, clean, common_bytes, common_time, counted, fit, short, significant, table, time};
use crate::analyze::knee::{ENOUGH, Knee, LEAST_POINTS, RISE, Shapeless};
use crate::analyze::sweep::{Curve, Curves, Metric, Sweep, SweepPoint};
use crate::load::{LoadSummary, Pattern};

/// The whole text.
pub fn render(sweep: &Sweep) -> String {
    let mut out = lines(&head(sweep));
    out.push('\n');
    out.push_str(&rows(sweep));
    let below = [knee(sweep), notes(sweep)];
    for lines in below.iter().filter(|lines| !lines.is_empty()) {
        out.push('\n');
        out.push_str(lines);
    }
    out
}

/// Options that no point changes.
fn head(sweep: &Sweep) -> Vec<(&'static str, String)> {
    let mut head = Vec::new();
    if let Some(point) = sweep.points.iter().find(|point| !point.loads.is_empty()) {
        head = match point.loads.as_slice() {
            [load] => vec![("target", target(load)), ("load", load_of(sweep, load))],
            loads => {
                let names: Vec<String> = loads.iter().map(|load| clean(&load.job.name)).collect();
                vec![("load", format!("{}: {}", counted(loads.len() as u64, "section"), names.join(", ")))]
            }
        };
        if let Some(fill) = point.loads.iter().find_map(|load| load.fill) {
            let (filled, took) = (bytes(fill.bytes as f64), time(fill.duration_ns));
            head.push(("fill", format!("{filled} in {took}, before the first point")));
        }
    }
    let mut points = counted(sweep.asked as u64, "point");
    let runtimes = || sweep.points.iter().flat_map(|point| &point.jobs).map(|job| job.runtime);
    if let Some(runtime) = runtimes().next().flatten()
        && runtimes().all(|other| other == Some(runtime))
    {
        let ns = u64::try_from(runtime.as_nanos()).unwrap_or(u64::MAX);
        points.push_str(&format!(" of {}", time(ns)));
    }
    head.push(("sweep", format!("{points} over {}", sweep.words.join(" × "))));
    head
}

fn target(load: &LoadSummary) -> String {
    let on = load.device.as_deref().map_or(String::new(), |device| format!(" on {}", clean(device)));
    format!("{}{on}, {}", clean(&load.target), bytes(load.size as f64))
}

/// Options with a single value.
fn load_of(sweep: &Sweep, load: &LoadSummary) -> String {
    let job = &load.job;
    let is_same = |words: &[&str]| !sweep.words.iter().any(|word| words.contains(&word.as_str()));
    let mut parts = Vec::new();
    if is_same(&["rw"]) {
        let mixed = matches!(job.rw, Pattern::ReadWrite | Pattern::RandReadWrite) && is_same(&["rwmixread"]);
        let share = if mixed { format!(" ({} % reads)", job.rwmixread) } else { String::new() };
        parts.push(format!("{}{share}", job.rw.name()));
    }
    if is_same(&["bs", "bsrange", "bssplit", "rw"]) {
        parts.push(format!("blocks of {}", blocks(load)));
    }
    if is_same(&["numjobs"]) {
        parts.push(counted(job.numjobs.into(), "job"));
    }
    if is_same(&["iodepth"]) {
        parts.push(format!("depth {}", job.iodepth));
    }
    if is_same(&["ioengine", "direct", "sqthread_poll", "nop", "verify"]) {
        parts.push(engine(load));
    }
    if job.hipri && is_same(&["hipri"]) {
        parts.push("polled".to_string());
    }
    parts.join(", ")
}

/// One row per point, one unit per column.
fn rows(sweep: &Sweep) -> String {
    let whole = table_with(sweep, &sweep.words, |point, _| point.values.iter().map(|v| clean(v)).collect());
    if whole.lines().all(|line| line.chars().count() <= WIDTH) {
        return whole;
    }
    // Too many options for one line: the points get numbers.
    let numbers = table_with(sweep, &["point".to_string()], |_, at| vec![(at + 1).to_string()]);
    let said = |(at, point): (usize, &SweepPoint)| (at + 1, clean(&sweep.said(point)));
    let said: Vec<(String, String)> =
        sweep.points.iter().enumerate().map(said).map(|(at, said)| (format!("point {at}"), said)).collect();
    let said: Vec<(&str, String)> = said.iter().map(|(name, said)| (name.as_str(), said.clone())).collect();
    format!("{numbers}\n{}", lines(&said))
}

fn table_with(
    sweep: &Sweep,
    names: &[String],
    name_cells: impl Fn(&SweepPoint, usize) -> Vec<String>,
) -> String {
    let rates = |metric: Metric| sweep.points.iter().filter_map(move |point| point.rate(metric));
    let (ios_scale, ios_unit) = common_rate(rates(Metric::Iops));
    let (bytes_scale, bytes_unit) = common_bytes(rates(Metric::BytesPerSecond));
    let latencies: Vec<_> = sweep.points.iter().map(SweepPoint::latency).collect();
    let medians = latencies.iter().filter_map(|hist| hist.quantile(0.5).or(hist.max()));
    let (time_scale, time_unit) = common_time(medians.map(|ns| ns as f64));
    let bandwidth = format!("{bytes_unit}/s");
    let figures = [ios_unit, bandwidth.as_str(), "mean", "p50", "p99", "p99.9", "submit", "reap", "CPU %"];
    let header: Vec<&str> = names.iter().map(String::as_str).chain(figures).collect();
    let cell = |value: Option<f64>| value.map_or(dash(), |value| significant(value, 3));
    let rows: Vec<Vec<String>> = sweep
        .points
        .iter()
        .zip(&latencies)
        .enumerate()
        .map(|(at, (point, latency))| {
            let quantile = |q| cell(latency.quantile(q).map(|ns| ns as f64 / time_scale));
            let mut row = name_cells(point, at);
            row.extend([
                cell(point.rate(Metric::Iops).map(|rate| rate / ios_scale)),
                cell(point.rate(Metric::BytesPerSecond).map(|rate| rate / bytes_scale)),
                cell(latency.mean().map(|mean| mean / time_scale)),
                quantile(0.5),
                quantile(0.99),
                quantile(0.999),
                cell(point.per_submit()),
                cell(point.per_reap()),
                point.cpu_percent().map_or(dash(), |percent| format!("{percent:.1}")),
            ]);
            row
        })
        .collect();
    let table = fit(&table(&header, &rows), None);
    // Related columns have a common heading above, starting at the left edge of the first.
    let line = table.lines().next().unwrap_or_default();
    let mut above = String::new();
    for (first, name) in [("  mean", format!("latency {time_unit}")), ("  submit", "I/Os per".to_string())] {
        let from = line.rfind(first).map_or(0, |at| line[..at].chars().count() + 2);
        let gap = from.saturating_sub(above.chars().count());
        above.push_str(&" ".repeat(gap));
        above.push_str(&name);
    }
    format!("{above}\n{table}")
}

/// The common unit for a column of rates, and its operations per second: that of the largest value, or the next smaller
/// one where the smallest would begin with `0.0`.
fn common_rate(rates: impl Iterator<Item = f64>) -> (f64, &'static str) {
    let (least, most) = rates
        .filter(|rate| *rate > 0.0)
        .fold((f64::MAX, 0.0), |(least, most): (f64, f64), rate| (least.min(rate), most.max(rate)));
    match most {
        most if most >= 1e6 && least >= 1e5 => (1e6, "MIOPS"),
        most if most >= 1e4 && least >= 1e2 => (1e3, "kIOPS"),
        _ => (1.0, "IOPS"),
    }
}

/// The result of the curves, or why there is none.
fn knee(sweep: &Sweep) -> String {
    let Some(curves) = sweep.curves() else { return String::new() };
    match curves.curves.as_slice() {
        [] => String::new(),
        [curve] => match curve.knee {
            Ok(knee) => lines(&named(sweep, &curves, curve, knee)),
            Err(why) => lines(&[("knee", unnamed(sweep, &curves, curve, why))]),
        },
        all if all.iter().all(|curve| curve.knee.is_err()) => {
            let word = &sweep.words[curves.word];
            lines(&[(
                "knee",
                format!(
                    "none: every curve over {word} has fewer than {LEAST_POINTS} points or rises by less \
                     than {:.0} %",
                    (RISE - 1.0) * 100.0
                ),
            )])
        }
        all => several(sweep, &curves, all),
    }
}

fn metric_name(metric: Metric) -> &'static str {
    match metric {
        Metric::Iops => "IOPS",
        Metric::BytesPerSecond => "bandwidth",
    }
}

/// The value of the curve's option at one of its points.
fn value(sweep: &Sweep, curves: &Curves, curve: &Curve, at: usize) -> String {
    let point = curve.points.get(at).and_then(|at| sweep.points.get(*at));
    point.and_then(|point| point.values.get(curves.word)).map_or(dash(), |value| clean(value))
}

/// The throughput of a point of a curve.
fn rate(sweep: &Sweep, curves: &Curves, curve: &Curve, at: usize) -> String {
    let point = curve.points.get(at).and_then(|at| sweep.points.get(*at));
    let rate = point.and_then(|point| point.rate(curves.metric));
    rate.map_or(dash(), |rate| match curves.metric {
        Metric::Iops => short(rate),
        Metric::BytesPerSecond => format!("{}/s", bytes(rate)),
    })
}

fn named(sweep: &Sweep, curves: &Curves, curve: &Curve, knee: Knee) -> Vec<(&'static str, String)> {
    let (word, metric) = (&sweep.words[curves.word], metric_name(curves.metric));
    let value = |at| value(sweep, curves, curve, at);
    let last = value(curve.points.len() - 1);
    let (best, best_rate) = (value(knee.best), rate(sweep, curves, curve, knee.best));
    let share = format!("{:.0} %", ENOUGH * 100.0);
    let enough = match knee.enough {
        Some(at) => {
            format!(
                "{word} {}: the smallest with {share} of the best {metric} ({best_rate} at {best})",
                value(at)
            )
        }
        None => format!(
            "not reached: only the last point, {last}, has {share} of the best {metric} ({best_rate}); \
             higher values may give more"
        ),
    };
    let power = format!("power ({metric} / mean latency, Kleinrock)");
    let at_knee = match knee.knee {
        Some(at) => {
            format!("{word} {}: {power} is greatest; above it latency grows more than {metric}", value(at))
        }
        None if has_latencies(sweep, curve) => format!("not reached: {power} still grows at the last point"),
        None => format!("unknown: {power} needs latencies, and --timestamps off measured none"),
    };
    vec![("enough", enough), ("knee", at_knee)]
}

fn has_latencies(sweep: &Sweep, curve: &Curve) -> bool {
    curve.points.iter().all(|at| sweep.points.get(*at).is_some_and(|point| !point.latency().is_empty()))
}

fn unnamed(sweep: &Sweep, curves: &Curves, curve: &Curve, why: Shapeless) -> String {
    let word = &sweep.words[curves.word];
    match why {
        Shapeless::FewPoints => {
            format!(
                "none: a curve over {word} needs {LEAST_POINTS} good points, and has {}",
                curve.points.len()
            )
        }
        Shapeless::Flat => format!(
            "none: the best {} is less than {:.0} % above that of {word} {}, which may be chance",
            metric_name(curves.metric),
            (RISE - 1.0) * 100.0,
            value(sweep, curves, curve, 0)
        ),
    }
}

/// A row per curve, and the meaning of its columns.
fn several(sweep: &Sweep, curves: &Curves, all: &[Curve]) -> String {
    let (word, metric) = (&sweep.words[curves.word], metric_name(curves.metric));
    let others = sweep.words.iter().enumerate().filter(|(at, _)| *at != curves.word);
    let best = format!("best {metric}");
    let at = format!("at {word}");
    let header: Vec<&str> =
        others.map(|(_, word)| word.as_str()).chain([best.as_str(), &at, "enough", "knee"]).collect();
    let row = |curve: &Curve| {
        let value = |at| value(sweep, curves, curve, at);
        let mut row: Vec<String> = curve.others.iter().map(|other| clean(other)).collect();
        row.extend(match curve.knee {
            Ok(knee) => [
                rate(sweep, curves, curve, knee.best),
                value(knee.best),
                knee.enough.map_or_else(|| format!("over {}", value(curve.points.len() - 1)), value),
                knee.knee.map_or_else(dash, value),
            ],
            Err(_) => [dash(), dash(), dash(), dash()],
        });
        row
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let share = ENOUGH * 100.0;
    let mut enough = format!("the smallest {word} with {share:.0} % of the best {metric}");
    if all.iter().any(|curve| curve.knee.is_ok_and(|knee| knee.enough.is_none())) {
        enough.push_str("; over: only the last point has it, and higher values may give more");
    }
    let knee = format!(
        "the {word} with the greatest power ({metric} / mean latency, Kleinrock); above it latency grows \
         more than {metric}"
    );
    let mut meanings = vec![("enough", enough), ("knee", knee)];
    if all.iter().any(|curve| curve.knee.ok().and_then(|knee| knee.knee).is_none()) {
        let rise = (RISE - 1.0) * 100.0;
        meanings.push((
            "-",
            format!(
                "none: power still grows at the last point or is unknown, or the curve has fewer than \
                 {LEAST_POINTS} good points, or rises by less than {rise:.0} %"
            ),
        ));
    }
    format!("{}\n{}", fit(&table(&header, &rows), None), lines(&meanings))
}

/// Failures, and features that the generator did not have.
fn notes(sweep: &Sweep) -> String {
    let mut notes: Vec<(&str, String)> = sweep
        .failed()
        .map(|(point, why)| ("failed", format!("{}: {}", clean(&sweep.said(point)), clean(why))))
        .collect();
    if sweep.is_cut() {
        let done = sweep.points.iter().filter(|point| !point.cut).count();
        let cut = sweep.points.iter().find(|point| point.cut);
        let cut = cut.map_or(String::new(), |point| {
            format!("; {} was cut short, and is only in the table", clean(&sweep.said(point)))
        });
        notes.push(("stopped", format!("after {done} of {}{cut}", counted(sweep.asked as u64, "point"))));
    }
    let mut out = lines(&notes);
    let mut missing: Vec<&str> = Vec::new();
    for line in sweep.points.iter().flat_map(|point| &point.loads).flat_map(|load| &load.missing) {
        if !missing.contains(&line.as_str()) {
            missing.push(line);
        }
    }
    missing.iter().for_each(|line| out.push_str(&format!("missing: {}\n", clean(line))));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::sweep::literal;

    const DEPTHS: [(&str, u64, u64); 5] =
        [("1", 10, 100), ("2", 20, 100), ("4", 40, 100), ("8", 78, 103), ("16", 80, 200)];

    #[test]
    fn a_sweep_is_a_row_per_point_and_its_knee() {
        let mut sweep = literal("iodepth", &DEPTHS);
        sweep.points[4].loads[0].missing = vec!["huge pages: none\x1b[2J".to_string()];
        let expected = "\
target      /dev/sda on sda, 1.00 GiB
load        randread, blocks of 4.00 KiB, 1 job, io_uring, direct
sweep       5 points of 10.0 s over iodepth

                       latency µs             I/Os per
iodepth  kIOPS  MiB/s  mean  p50  p99  p99.9  submit  reap  CPU %
1         10.0   39.1   100  100  100    100    2.00  1.00   50.0
2         20.0   78.1   100  100  100    100    2.00  1.00   50.0
4         40.0    156   100  100  100    100    2.00  1.00   50.0
8         78.0    305   103  103  103    103    2.00  1.00   50.0
16        80.0    312   200  200  200    200    2.00  1.00   50.0

enough      iodepth 8: the smallest with 95 % of the best IOPS (80.0k at 16)
knee        iodepth 8: power (IOPS / mean latency, Kleinrock) is greatest; above it latency grows
            more than IOPS

missing: huge pages: none\\u{1b}[2J
";
        assert_eq!(render(&sweep), expected);
    }

    #[test]
    fn what_is_not_seen_is_said() {
        let line = knee(&literal("iodepth", &DEPTHS[..4]));
        assert!(line.starts_with("enough      not reached: only the last point, 8, has 95 %"), "{line}");
        let flat = knee(&literal("numjobs", &[("1", 50, 20), ("2", 52, 40), ("4", 53, 80), ("8", 54, 150)]));
        let expected = "knee        none: the best IOPS is less than 10 % above that of numjobs 1, which may be chance\n";
        assert_eq!(flat.replace("\n            ", " "), expected);
        let few = knee(&literal("iodepth", &DEPTHS[..3]));
        assert_eq!(few, "knee        none: a curve over iodepth needs 4 good points, and has 3\n");
        assert_eq!(knee(&literal("rwmixread", &DEPTHS)), "", "without an order there is no curve");
        let mut untimed = literal("iodepth", &DEPTHS);
        untimed.points.iter_mut().for_each(|point| {
            point.loads[0].jobs[0].transfers[0].lat = crate::hist::Histogram::default();
        });
        assert!(knee(&untimed).contains("unknown: power"), "{}", knee(&untimed));
    }

    #[test]
    fn points_that_failed_or_were_cut_are_named_and_the_others_stand() {
        let mut sweep = literal("iodepth", &DEPTHS);
        sweep.asked = 9;
        sweep.points[1].loads.clear();
        sweep.points[1].failed = Some("no memory\x1b[2J".to_string());
        sweep.points[4].cut = true;
        let text = render(&sweep);
        assert!(
            text.contains("\n2            -      -     -    -    -      -       -     -      -\n"),
            "{text}"
        );
        assert!(text.contains("failed      iodepth 2: no memory\\u{1b}[2J\n"), "{text}");
        assert!(text.contains("stopped     after 4 of 9 points; iodepth 16 was cut short"), "{text}");
    }

    #[test]
    fn each_value_of_another_word_has_its_own_knee() {
        let mut sweep = literal("iodepth", &DEPTHS);
        sweep.words.insert(0, "rw".to_string());
        let all = sweep.points.clone();
        let with = |rw: &str, points: &[SweepPoint]| -> Vec<SweepPoint> {
            let one = |point: &SweepPoint| SweepPoint {
                values: [vec![rw.to_string()], point.values.clone()].concat(),
                ..point.clone()
            };
            points.iter().map(one).collect()
        };
        sweep.points = [with("read", &all), with("randread", &all[..4]), with("trim", &all[..2])].concat();
        let text = knee(&sweep);
        let expected = "\
rw        best IOPS  at iodepth  enough  knee
read          80.0k          16       8     8
randread      78.0k           8  over 8     -
trim              -           -       -     -
";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        sweep.points = with("read", &all[..2]);
        sweep.points.extend(with("trim", &all[..2]));
        assert!(knee(&sweep).starts_with("knee        none: every curve over iodepth"), "{}", knee(&sweep));
    }

    #[test]
    fn more_words_than_a_line_holds_are_below_the_table() {
        let mut sweep = literal("iodepth", &DEPTHS);
        for word in ["random_distribution", "iodepth_batch_complete_max", "rwmixread"] {
            sweep.words.push(word.to_string());
            sweep.points.iter_mut().for_each(|point| point.values.push("zoned:50/5".to_string()));
        }
        let text = render(&sweep);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("\n5       80.0    312"), "{text}");
        assert!(text.contains("\npoint 5     iodepth 16, random_distribution zoned:50/5,"), "{text}");
    }

    #[test]
    fn rates_have_one_unit() {
        let unit = |rates: &[f64]| common_rate(rates.iter().copied()).1;
        assert_eq!([unit(&[9e3, 80.0]), unit(&[4e4, 9e3]), unit(&[2e6, 3e5])], ["IOPS", "kIOPS", "MIOPS"]);
        assert_eq!([unit(&[2e6, 9e3]), unit(&[2e5, 50.0]), unit(&[])], ["kIOPS", "IOPS", "IOPS"]);
    }
}
