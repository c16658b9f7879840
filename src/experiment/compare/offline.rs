//! Compares stored results: JSON of biopsy and of fio.

use std::collections::BTreeMap;

use serde::Deserialize as _;
use serde_json::Value;

use super::comparison::{Arm, Comparison, Difference, Round, StopReason};
use super::metric::MetricKind;
use crate::experiment::EvaluationPlan;
use crate::experiment::ratio::ERROR;
use crate::settings::Key;

/// Intervals of one run are correlated: if there are more than this, consecutive ones are averaged.
const MOST_SAMPLES: usize = 10;

/// The content of a file or recording.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SampleSource {
    pub name: String,
    /// The set-up of the measurement, by name.
    pub setup: BTreeMap<String, String>,
    /// The values of each run or interval.
    pub samples: Vec<BTreeMap<String, f64>>,
    /// Quantiles are interpolated within their buckets, as in `biopsy compare`.
    pub are_interpolated: bool,
}

/// Names that count as a difference only if both results have them, because not all do.
const SAID_BY_SOME: [&str; 1] = ["host"];

impl SampleSource {
    /// Reads the JSON values of a file: of `biopsy load`, `biopsy compare` (its first arm), `biopsy latency`, or fio.
    /// None if a value is none of these.
    pub fn of(name: &str, values: &[Value]) -> Option<Self> {
        let mut source = Self { name: name.to_string(), ..Self::default() };
        let mut are_intervals = false;
        for value in values {
            let schema = value["schema"].as_str().unwrap_or_default();
            let (setup, samples) = match schema.split('/').next() {
                Some("biopsy.load") if value["iops"].is_number() => one(of_load(value)),
                Some("biopsy.compare") => {
                    source.are_interpolated = true;
                    of_compare(value)?
                }
                Some("biopsy.latency") => {
                    are_intervals = true;
                    one(of_latency(value))
                }
                _ if value["fio version"].is_string() => one(of_fio(value)),
                _ => return None,
            };
            for (what, value) in setup {
                let known = source.setup.entry(what).or_default();
                // If the runs of one file differ, the combined value differs from any other file's.
                if !known.split("; ").any(|one| one == value) {
                    *known = if known.is_empty() { value } else { format!("{known}; {value}") };
                }
            }
            source.samples.extend(samples.into_iter().filter(|sample| !sample.is_empty()));
        }
        if are_intervals {
            source.samples = averaged(&source.samples);
        }
        (!source.samples.is_empty()).then_some(source)
    }
}

type Setup = Vec<(&'static str, String)>;
type MetricValues = BTreeMap<String, f64>;

/// The set-up by name, with the samples of a value.
type SetupSamples = (BTreeMap<String, String>, Vec<MetricValues>);

fn one((setup, sample): (Setup, MetricValues)) -> SetupSamples {
    (setup.into_iter().map(|(what, value)| (what.to_string(), value)).collect(), vec![sample])
}

/// Whether the name is a setting of `--vary`: a file of sysfs, of /proc/sys or of a cgroup.
fn is_setting(key: &str) -> bool {
    matches!(Key::parse(key), Ok(Some(_)))
}

/// The first arm of `biopsy.compare/1`, to which its other arms were compared.
fn of_compare(value: &Value) -> Option<SetupSamples> {
    let found = Comparison::deserialize(value).ok()?;
    let counts = |round: &&Round| round.arm == 0 && round.left_out.is_none();
    let samples = found.rounds.iter().filter(counts).map(|round| round.values.clone()).collect();
    let first = found.arms.into_iter().next()?;
    let setup = match found.is_paired {
        // With the settings of that arm; options of the load are in the set-up already.
        true => found
            .setup
            .into_iter()
            .chain(first.settings.into_iter().filter(|(key, _)| is_setting(key)))
            .collect(),
        false => first.settings,
    };
    Some((setup, samples))
}

fn sample(values: &[(MetricKind, Option<f64>)]) -> MetricValues {
    let known = |(kind, value): &(MetricKind, Option<f64>)| {
        Some((kind.name().to_string(), value.filter(|value| value.is_finite())?))
    };
    values.iter().filter_map(known).collect()
}

/// A value as text, whatever its type.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// `biopsy.load/1` of one job.
fn of_load(load: &Value) -> (Setup, MetricValues) {
    let words = ["rw", "iodepth", "numjobs", "engine", "direct", "rwmixread", "hipri", "size"];
    let said = words.iter().filter_map(|word| Some(format!("{word}={}", text(&load[*word])?)));
    let setup = [
        ("block size", text(&load["bs"])),
        ("load", Some(said.collect::<Vec<_>>().join(" "))),
        ("kernel", text(&load["kernel"])),
        ("host", text(&load["hostname"])),
        ("device", text(&load["device"])),
    ];
    let number = |key: &str| load[key].as_f64();
    let latency = |key: &str| load["latency"][key].as_f64();
    let mean = latency("sum_ns").zip(latency("count")).map(|(sum, count)| sum / count);
    // Includes the CPU time of io_uring's workers.
    let workers = load["ring_workers"]["system_ns"].as_f64().unwrap_or(0.0);
    let system = number("system_ns").map(|own| own + workers);
    let cpu = number("user_ns").zip(system).zip(number("ios"));
    let sample = sample(&[
        (MetricKind::Iops, number("iops")),
        (MetricKind::Bandwidth, number("bytes_per_second")),
        (MetricKind::Mean, mean),
        (MetricKind::Median, latency("p50_ns")),
        (MetricKind::P99, latency("p99_ns")),
        (MetricKind::CpuPerIo, cpu.map(|((user, system), ios)| (user + system) / ios)),
    ]);
    (known(setup), sample)
}

fn known<const N: usize>(setup: [(&'static str, Option<String>); N]) -> Setup {
    setup.into_iter().filter_map(|(what, value)| Some((what, value?))).collect()
}

/// An interval of `biopsy.latency/1`: all its devices together.
fn of_latency(line: &Value) -> (Setup, MetricValues) {
    let devices = || line["devices"].as_array().into_iter().flatten();
    let names: Vec<&str> = devices().filter_map(|device| device["name"].as_str()).collect();
    let setup = [("kernel", text(&line["kernel"])), ("device", Some(names.join(", ")))];
    let sum = |key: &str| devices().filter_map(|device| device[key].as_f64()).sum::<f64>();
    let Some(seconds) = line["duration_ns"].as_f64().filter(|ns| *ns > 0.0).map(|ns| ns / 1e9) else {
        return (known(setup), MetricValues::new());
    };
    let ops = devices().filter_map(|device| device["ops"].as_object()).flat_map(|ops| ops.values());
    // The sum of the request stages is the time in the block layer.
    let stages = ops.filter_map(|op| op["request_stages"].as_object()).flat_map(|stages| stages.values());
    let time: f64 = stages.filter_map(|stage| stage["sum_ns"].as_f64()).sum();
    let ios = sum("ios");
    let sample = sample(&[
        (MetricKind::Iops, Some(ios / seconds)),
        (MetricKind::Bandwidth, Some(sum("bytes") / seconds)),
        (MetricKind::Mean, (ios > 0.0 && time > 0.0).then(|| time / ios)),
    ]);
    (known(setup), sample)
}

/// fio's JSON: all its jobs together. Quantiles only for a single job with one direction, since they cannot be added.
fn of_fio(result: &Value) -> (Setup, MetricValues) {
    const DIRECTIONS: [&str; 3] = ["read", "write", "trim"];
    let jobs = || result["jobs"].as_array().into_iter().flatten();
    let word = |job: &Value, word: &str| {
        text(&job["job options"][word]).or_else(|| text(&result["global options"][word]))
    };
    let words = ["rw", "iodepth", "numjobs", "ioengine", "direct", "rwmixread"];
    let first = jobs().next().cloned().unwrap_or_default();
    let said = words.iter().filter_map(|name| Some(format!("{name}={}", word(&first, name)?)));
    let setup = [
        ("block size", word(&first, "bs").map(|bs| bytes(&bs).map_or(bs, |bytes| bytes.to_string()))),
        ("load", Some(said.collect::<Vec<_>>().join(" "))),
        ("fio", text(&result["fio version"])),
        ("device", word(&first, "filename")),
    ];
    let parts: Vec<&Value> = jobs()
        .flat_map(|job| DIRECTIONS.iter().map(move |direction| &job[*direction]))
        .filter(|part| part["total_ios"].as_f64().is_some_and(|ios| ios > 0.0))
        .collect();
    let sum = |key: &str| parts.iter().filter_map(|part| part[key].as_f64()).sum::<f64>();
    let ios = sum("total_ios");
    let time: f64 = parts
        .iter()
        .filter_map(|part| Some(part["lat_ns"]["mean"].as_f64()? * part["total_ios"].as_f64()?))
        .sum();
    let quantile = |name: &str| match parts.as_slice() {
        [part] => part["clat_ns"]["percentile"][name].as_f64(),
        _ => None,
    };
    let sample = sample(&[
        (MetricKind::Iops, Some(sum("iops"))),
        (MetricKind::Bandwidth, Some(sum("bw_bytes"))),
        (MetricKind::Mean, (ios > 0.0 && time > 0.0).then(|| time / ios)),
        (MetricKind::Median, quantile("50.000000")),
        (MetricKind::P99, quantile("99.000000")),
    ]);
    (known(setup), sample)
}

/// fio's notation of one size in bytes; None for several, or another form.
fn bytes(word: &str) -> Option<u64> {
    let word = word.to_ascii_lowercase();
    let word = word.trim_end_matches("ib").trim_end_matches('b');
    let (digits, shift) = match word.char_indices().next_back()? {
        (at, 'k') => (&word[..at], 10),
        (at, 'm') => (&word[..at], 20),
        (at, 'g') => (&word[..at], 30),
        _ => (word, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Averages consecutive samples, so that few remain.
fn averaged(samples: &[MetricValues]) -> Vec<MetricValues> {
    if samples.len() <= MOST_SAMPLES {
        return samples.to_vec();
    }
    let part = |index: usize| {
        let bound = |index: usize| index * samples.len() / MOST_SAMPLES;
        let part = &samples[bound(index)..bound(index + 1)];
        let mut mean = MetricValues::new();
        for name in part.iter().flat_map(BTreeMap::keys) {
            let values: Vec<f64> = part.iter().filter_map(|sample| sample.get(name).copied()).collect();
            mean.insert(name.clone(), values.iter().sum::<f64>() / values.len() as f64);
        }
        mean
    };
    (0..MOST_SAMPLES).map(part).collect()
}

/// The differences between two set-ups.
pub fn differences(a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> Vec<Difference> {
    let whats = a.keys().chain(b.keys().filter(|what| !a.contains_key(*what)));
    let difference =
        |what: &String| Difference { what: what.clone(), a: a.get(what).cloned(), b: b.get(what).cloned() };
    let is_said = |one: &Difference| {
        let is_of_some = SAID_BY_SOME.contains(&one.what.as_str()) || is_setting(&one.what);
        !is_of_some || one.a.is_some() && one.b.is_some()
    };
    whats.map(difference).filter(|one| one.a != one.b && is_said(one)).collect()
}

/// Compares two stored results, including the differences of their set-ups; the caller decides whether they may be
/// compared.
pub fn offline(a: &SampleSource, b: &SampleSource, primary: MetricKind, margin: f64) -> Comparison {
    let arm = |source: &SampleSource| Arm { name: source.name.clone(), settings: source.setup.clone() };
    // Quantiles of whole buckets are up to 6 % wide.
    let is_alike = a.are_interpolated == b.are_interpolated;
    let is_quantile =
        |name: &str| [MetricKind::Median, MetricKind::P99].iter().any(|kind| kind.name() == name);
    let has_quantile =
        |source: &SampleSource| source.samples.iter().flat_map(BTreeMap::keys).any(|name| is_quantile(name));
    let notes = (!is_alike && has_quantile(a) && has_quantile(b)).then(|| {
        "percentiles are left out: in one of the results they are those of whole buckets, up to 6 % wide"
            .to_string()
    });
    let rounds = [a, b].into_iter().enumerate().flat_map(|(arm, source)| {
        let round = move |(block, values): (usize, &MetricValues)| Round {
            arm,
            block,
            values: values
                .iter()
                .filter(|(name, _)| is_alike || !is_quantile(name))
                .map(|(name, value)| (name.clone(), *value))
                .collect(),
            ..Round::default()
        };
        source.samples.iter().enumerate().map(round)
    });
    let mut comparison = Comparison {
        target: format!("{} and {}", a.name, b.name),
        arms: vec![arm(a), arm(b)],
        rounds: rounds.collect(),
        primary: Some(primary),
        is_paired: false,
        differences: differences(&a.setup, &b.setup),
        notes: notes.into_iter().collect(),
        end: Some(StopReason::Planned),
        ..Comparison::default()
    };
    let samples = a.samples.len().min(b.samples.len());
    let mut plan = EvaluationPlan::fixed(samples.max(1), margin, ERROR);
    let p = plan.look(samples);
    comparison.derive(&plan, p, margin);
    comparison
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::experiment::Verdict;

    fn load(iops: f64, kernel: &str) -> Value {
        json!({
            "schema": "biopsy.load/1", "kernel": kernel, "device": "vda", "rw": "randread", "bs": 4096, "iops": iops,
            "bytes_per_second": iops * 4096.0, "ios": 1000, "user_ns": 1000, "system_ns": 9000,
            "latency": {"count": 1000, "sum_ns": 5_000_000, "p50_ns": 4000, "p99_ns": null},
        })
    }

    fn loads(kernel: &str, iops: &[f64]) -> SampleSource {
        SampleSource::of(kernel, &iops.iter().map(|iops| load(*iops, kernel)).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn runs_of_a_load_are_compared_with_what_differs() {
        let (a, b) = (loads("6.1", &[100.0, 101.0, 99.0]), loads("6.12", &[120.0, 121.0, 119.0, 120.0]));
        let found = offline(&a, &b, MetricKind::Iops, 0.05);
        assert_eq!(found.answer().unwrap().verdict, Verdict::Better);
        let differences: Vec<&str> = found.differences.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(differences, ["kernel"]);
        assert_eq!(a.samples[0]["cpu_ns_per_io"], 10.0);
        assert_eq!((a.samples[0]["mean_ns"], a.samples[0].get("p99_ns")), (5000.0, None));
        let one = offline(&loads("6.1", &[100.0]), &loads("6.1", &[50.0]), MetricKind::Iops, 0.05);
        let answer = one.answer().unwrap();
        assert!(
            (answer.ratio.unwrap() - 0.5).abs() < 1e-9 && answer.verdict == Verdict::Unclear,
            "{answer:?}"
        );
        assert!(one.differences.is_empty());
    }

    /// A run that stalled counts: without it the remaining runs would be equal.
    #[test]
    fn a_run_without_any_io_is_no_answer() {
        let (a, b) = (loads("6.1", &[100.0, 101.0, 99.0]), loads("6.1", &[0.0, 0.0, 100.0, 101.0, 99.0]));
        let found = offline(&a, &b, MetricKind::Iops, 0.05);
        let answer = found.answer().unwrap();
        assert_eq!((answer.verdict, answer.ratio, answer.ratio_low), (Verdict::Unclear, None, None));
    }

    #[test]
    fn runs_of_one_file_that_differ_are_like_no_other() {
        let mixed: Vec<Value> = ["6.1", "6.12"].iter().map(|kernel| load(100.0, kernel)).collect();
        let found = offline(
            &SampleSource::of("a", &mixed).unwrap(),
            &loads("6.12", &[100.0]),
            MetricKind::Iops,
            0.05,
        );
        assert_eq!(found.differences[0].a.as_deref(), Some("6.1; 6.12"));
    }

    #[test]
    fn fios_jobs_are_added_up() {
        let part = |ios: f64, iops: f64, mean: f64| {
            json!({"total_ios": ios, "iops": iops, "bw_bytes": iops * 4096.0, "lat_ns": {"mean": mean},
                "clat_ns": {"percentile": {"50.000000": 7, "99.000000": 9}}})
        };
        let none = json!({"total_ios": 0, "iops": 0.0});
        let fio = |jobs: Value| json!({"fio version": "fio-3.39", "global options": {"rw": "randrw"}, "jobs": jobs});
        let two = fio(json!([
            {"job options": {"bs": "4k"}, "read": part(300.0, 30.0, 1000.0), "write": part(100.0, 10.0, 5000.0), "trim": none}
        ]));
        let source = SampleSource::of("x", &[two]).unwrap();
        let sample = &source.samples[0];
        assert_eq!((sample["iops"], sample["mean_ns"], sample.get("p50_ns")), (40.0, 2000.0, None));
        assert_eq!(
            (source.setup["load"].as_str(), source.setup["block size"].as_str()),
            ("rw=randrw", "4096")
        );
        let one =
            SampleSource::of("x", &[fio(json!([{"read": part(3.0, 1.0, 1.0), "write": none}]))]).unwrap();
        assert_eq!((one.samples[0]["p50_ns"], one.samples[0]["p99_ns"]), (7.0, 9.0));
    }

    #[test]
    fn sizes_of_fio_are_bytes() {
        for (word, size) in
            [("4k", Some(4096)), ("512", Some(512)), ("1MiB", Some(1 << 20)), ("2kb", Some(2048))]
        {
            assert_eq!(bytes(word), size, "{word}");
        }
        for word in ["4k,8k", "", "k", "b", "99999999999g"] {
            assert_eq!(bytes(word), None, "{word}");
        }
    }

    /// Of a comparison the first arm is used, with the rounds that count.
    #[test]
    fn a_kept_comparison_is_its_first_arm() {
        let mut found = super::super::tests::of(&[100.0, 101.0, 99.0, 7.0], &[50.0, 50.5, 49.5, 50.0]);
        found.rounds[6].left_out = Some("others".to_string());
        found.setup = BTreeMap::from([("kernel".to_string(), "6.1".to_string())]);
        let mut value = serde_json::to_value(&found).unwrap();
        value["schema"] = json!("biopsy.compare/1");
        let source = SampleSource::of("x", &[value]).unwrap();
        let iops: Vec<f64> = source.samples.iter().map(|sample| sample["iops"]).collect();
        assert_eq!((iops, source.setup["kernel"].as_str()), (vec![100.0, 101.0, 99.0], "6.1"));
        assert_eq!(SampleSource::of("x", &[json!({"schema": "biopsy.compare/1", "arms": 7})]), None);
        // A setting of its arm is a difference to a result with another value, not to one without any.
        let mut with = |scheduler: &str| {
            found.arms[0].settings = BTreeMap::from([("scheduler".to_string(), scheduler.to_string())]);
            let mut value = serde_json::to_value(&found).unwrap();
            value["schema"] = json!("biopsy.compare/1");
            SampleSource::of("x", &[value]).unwrap().setup
        };
        let (none, bfq) = (with("none"), with("bfq"));
        assert_eq!(differences(&none, &bfq)[0].what, "scheduler");
        assert_eq!(differences(&none, &none), []);
        assert_eq!(differences(&none, &source.setup), []);
    }

    #[test]
    fn quantiles_of_two_kinds_are_not_compared() {
        let (a, b) = (loads("6.1", &[100.0, 101.0, 99.0]), loads("6.1", &[120.0, 121.0, 119.0]));
        let has_median = |a: &SampleSource, b: &SampleSource| {
            let found = offline(a, b, MetricKind::Iops, 0.05);
            (found.metrics.iter().any(|metric| metric.name == MetricKind::Median), found.notes.len())
        };
        assert_eq!(has_median(&a, &b), (true, 0));
        assert_eq!(has_median(&a, &SampleSource { are_interpolated: true, ..b }), (false, 1));
    }

    /// A host name in only one of them is not a difference; a kernel is.
    #[test]
    fn another_host_is_a_difference_where_both_name_it() {
        let setup = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(what, value)| (what.to_string(), value.to_string()))
                .collect::<BTreeMap<_, _>>()
        };
        let whats = |a: &[(&str, &str)], b: &[(&str, &str)]| {
            differences(&setup(a), &setup(b)).into_iter().map(|one| one.what).collect::<Vec<_>>()
        };
        assert_eq!(whats(&[("host", "a")], &[("host", "b")]), ["host"]);
        assert_eq!(whats(&[("host", "a"), ("kernel", "6.1")], &[]), ["kernel"]);
    }

    #[test]
    fn intervals_are_averaged_to_few() {
        let line = |n: u64| {
            json!({"schema": "biopsy.latency/1", "duration_ns": 1_000_000_000, "kernel": "6.1", "devices": [
                {"name": "vda", "ios": n, "bytes": n * 4096,
                    "ops": {"read": {"request_stages": {"queue": {"sum_ns": n * 10}, "device": {"sum_ns": n * 90}}}}}
            ]})
        };
        let source = SampleSource::of("x", &(0..25).map(|n| line(100 + n)).collect::<Vec<_>>()).unwrap();
        assert_eq!(source.samples.len(), MOST_SAMPLES);
        assert_eq!((source.samples[0]["iops"], source.samples[9]["mean_ns"]), (100.5, 100.0));
    }

    #[test]
    fn what_is_no_result_is_none() {
        for values in [
            vec![],
            vec![json!({})],
            vec![json!(7)],
            vec![json!({"schema": "biopsy.top/1"})],
            vec![json!([])],
        ] {
            assert_eq!(SampleSource::of("x", &values), None, "{values:?}");
        }
        let idle = json!({"schema": "biopsy.latency/1", "duration_ns": 0, "devices": []});
        assert_eq!(SampleSource::of("x", &[idle]), None);
    }
}
