//! `biopsy.load/1`.

use serde_json::{Map, Value, json};

use super::{of_counts, times};
use crate::envelope::{Envelope, Missing, Reason};
use crate::hist::Histogram;
use crate::load::{Direction, Failures, JobResult, LoadSummary, Pattern, RingWorkers, Timestamps, Transfer};
use crate::render::json::fio::entry::groups;

/// The object with its envelope.
pub fn object(envelope: &Envelope, load: &LoadSummary) -> Map<String, Value> {
    with_envelope(envelope, std::slice::from_ref(load), body(load))
}

/// The same for the sections of a job file. One of them is [`object`]; of several, `sections` has what one has,
/// and beside it stands what they did together. Rates are over the time in which any of them ran: those that
/// ran at the same time count once.
pub fn object_all(envelope: &Envelope, loads: &[LoadSummary]) -> Map<String, Value> {
    with_envelope(envelope, loads, body_all(loads))
}

/// [`object_all`] without the envelope.
pub fn body_all(loads: &[LoadSummary]) -> Map<String, Value> {
    if let [load] = loads {
        return body(load);
    }
    let mut body = Map::new();
    if let Some(all) = together(loads) {
        let any = |direction: &Direction| loads.iter().any(|load| load.job.rw.has(*direction));
        let directions = Direction::ALL.into_iter().filter(any);
        body = totals(&all);
        body.insert("directions".to_string(), by_direction(&all.jobs, directions, all.duration_ns));
    }
    let section = |load: &LoadSummary| {
        let mut section = body_with_length(load);
        section.insert("stonewall".to_string(), json!(load.job.stonewall));
        Value::Object(section)
    };
    body.insert("sections".to_string(), loads.iter().map(section).collect());
    let threads = loads.iter().flat_map(|load| load.jobs.iter().map(|result| thread(load, result)));
    body.insert("jobs".to_string(), threads.collect());
    body
}

fn with_envelope(envelope: &Envelope, loads: &[LoadSummary], body: Map<String, Value>) -> Map<String, Value> {
    let mut envelope = envelope.clone();
    envelope.missing.extend(loads.iter().flat_map(missing));
    let mut object = super::object("biopsy.load/1", &envelope);
    object.extend(body);
    object
}

/// What the generator did without, as the envelope says it.
pub fn missing(load: &LoadSummary) -> Vec<Missing> {
    load.missing
        .iter()
        .map(|why| Missing {
            device: load.device.clone(),
            reason: Reason::Fallback,
            why: why.clone(),
            ..Missing::default()
        })
        .collect()
}

/// All sections as one, for their totals; None without any.
fn together(loads: &[LoadSummary]) -> Option<LoadSummary> {
    let longest = |group: &&[LoadSummary]| group.iter().map(|load| load.duration_ns).max().unwrap_or(0);
    let workers = |loads: &[LoadSummary]| {
        loads.iter().try_fold(RingWorkers::default(), |sum, load| {
            let one = load.ring_workers?;
            Some(RingWorkers { threads: sum.threads + one.threads, system_ns: sum.system_ns + one.system_ns })
        })
    };
    Some(LoadSummary {
        duration_ns: groups(loads).iter().map(longest).sum(),
        jobs: loads.iter().flat_map(|load| load.jobs.clone()).collect(),
        ring_workers: workers(loads),
        ..loads.first()?.clone()
    })
}

/// Everything but the envelope, for objects that contain a load.
pub fn body(load: &LoadSummary) -> Map<String, Value> {
    let job = &load.job;
    let mixed = matches!(job.rw, Pattern::ReadWrite | Pattern::RandReadWrite);
    let mut body = keys(json!({
        "name": job.name,
        "target": load.target,
        "device": load.device,
        "rw": job.rw.name(),
        "rwmixread": mixed.then_some(job.rwmixread),
        "engine": job.engine.name(),
        "direct": job.direct,
        "hipri": job.hipri,
        "bs": job.largest_block(),
        "block_sizes": block_sizes(load),
        "iodepth": job.iodepth,
        "numjobs": job.numjobs,
        "timestamps": timestamps(job.timestamps),
        "size": load.size,
        "fill": load.fill.map(|fill| json!({ "bytes": fill.bytes, "duration_ns": fill.duration_ns })),
        "directions": by_direction(&load.jobs, job.directions(), load.duration_ns),
        "jobs": load.jobs.iter().map(|result| thread(load, result)).collect::<Vec<_>>(),
    }));
    body.extend(totals(load));
    body.extend(super::drive::keys(&load.drive));
    body
}

fn body_with_length(load: &LoadSummary) -> Map<String, Value> {
    let mut body = body(load);
    body.insert("duration_ns".to_string(), json!(load.duration_ns));
    body
}

/// What all threads did together.
fn totals(load: &LoadSummary) -> Map<String, Value> {
    let all = load.operations() + load.errors();
    let (submits, reaps) = (load.submits(), load.reaps());
    let sum = |of: fn(&JobResult) -> u64| load.jobs.iter().map(of).sum::<u64>();
    let merged = |of: fn(&JobResult) -> &Histogram| merged(&load.jobs, of);
    keys(json!({
        "ios": load.operations(),
        "bytes": load.bytes(),
        "iops": load.iops(),
        "bytes_per_second": load.bytes_per_second(),
        "user_cpu_percent": load.cpu_percent(load.user_ns()),
        "system_cpu_percent": load.cpu_percent(load.system_ns()),
        "user_ns": load.user_ns(),
        "system_ns": load.system_ns(),
        "ring_workers": load.ring_workers.map(|w| json!({ "threads": w.threads, "system_ns": w.system_ns })),
        "submits": submits,
        "ios_per_submit": ratio(all, submits),
        "submitted": of_counts(&merged(|job| &job.submitted)),
        "reaps": reaps,
        "ios_per_reap": ratio(all, reaps),
        "reaped": of_counts(&merged(|job| &job.reaped)),
        "in_flight": present(&merged(|job| &job.depths), of_counts),
        "latency": times(&load.latency()),
        "syncs": present(&merged(|job| &job.syncs), times),
        "errors": load.errors(),
        "failures": load.failures().iter().map(|kind| failed(kind, load.ended(kind.direction))).collect::<Vec<_>>(),
        "limit": load.own_limit().map(|limit| json!({
            "id": limit.id(),
            "saturated": limit.saturated,
            "user_share": limit.user_share,
        })),
        "never_began": load.never_began(),
        "verified": load.verified(),
        "read_back": load.read_back().map(|how_far| how_far.name()),
        "not_read_back": load.read_back().map(|_| load.skipped()),
        "mismatch": load.mismatch(),
        "clock": load.clock.map(|clock| json!({
            "counter": clock.counter,
            "error_ns": clock.error_ns,
            "cost_ns": clock.cost_ns,
        })),
        "context_switches": sum(|job| job.context_switches),
        "major_faults": sum(|job| job.major_faults),
        "minor_faults": sum(|job| job.minor_faults),
    }))
}

/// One thread.
fn thread(load: &LoadSummary, job: &JobResult) -> Value {
    let all = job.operations() + job.errors();
    let alone = std::slice::from_ref(job);
    json!({
        "name": load.job.name,
        "number": job.number,
        "cpu": job.cpu,
        "node": job.node,
        "started_ms": job.started_ms,
        "duration_ns": job.duration_ns,
        "ios": job.operations(),
        "bytes": job.bytes(),
        "directions": by_direction(alone, load.job.directions(), job.duration_ns),
        "errors": job.errors(),
        "first_errno": job.first_errno,
        "failures": job.failures.iter().map(|kind| failed(kind, job.ended[kind.direction.index()])).collect::<Vec<_>>(),
        "never_began": job.never_began,
        "verified": job.verified,
        "mismatch": job.mismatch,
        "user_ns": job.user_ns,
        "system_ns": job.system_ns,
        "context_switches": job.context_switches,
        "major_faults": job.major_faults,
        "minor_faults": job.minor_faults,
        "submits": job.submits(),
        "ios_per_submit": ratio(all, job.submits()),
        "submitted": of_counts(&job.submitted),
        "reaps": job.reaps(),
        "ios_per_reap": ratio(all, job.reaps()),
        "reaped": of_counts(&job.reaped),
        "in_flight": present(&job.depths, of_counts),
        "latency": times(&job.latency()),
        "syncs": present(&job.syncs, times),
    })
}

/// Only those that the pattern has; times that nobody took are null.
fn by_direction(jobs: &[JobResult], directions: impl Iterator<Item = Direction>, duration_ns: u64) -> Value {
    let per_second = |amount: u64| (duration_ns > 0).then(|| amount as f64 * 1e9 / duration_ns as f64);
    let one = |direction: Direction| {
        let mut moved = Transfer::default();
        jobs.iter().for_each(|job| moved.merge(&job.transfers[direction.index()]));
        let value = json!({
            "ios": moved.operations,
            "bytes": moved.bytes,
            "iops": per_second(moved.operations),
            "bytes_per_second": per_second(moved.bytes),
            "short": moved.short,
            "slat": present(&moved.slat, times),
            "clat": present(&moved.clat, times),
            "lat": present(&moved.lat, times),
        });
        (direction.name().to_string(), value)
    };
    Value::Object(directions.map(one).collect())
}

fn block_sizes(load: &LoadSummary) -> Value {
    let sizes = |direction: Direction| {
        let shares = load.job.bs[direction.index()].0.iter();
        let share = shares.map(|s| json!({ "low_bytes": s.low, "high_bytes": s.high, "percent": s.percent }));
        (direction.name().to_string(), share.collect())
    };
    Value::Object(load.job.directions().map(sizes).collect())
}

/// As the option has it.
fn timestamps(timestamps: Timestamps) -> String {
    match timestamps {
        Timestamps::Every => "every".to_string(),
        Timestamps::Sampled(n) => format!("sampled:{n}"),
        Timestamps::Off => "off".to_string(),
    }
}

/// So many of them found the end of the target.
fn failed(failures: &Failures, ended: u64) -> Value {
    json!({
        "direction": failures.direction.name(),
        "errno": failures.errno,
        "error": failures.error(ended),
        "count": failures.count,
    })
}

/// Null for what was not measured, or did not come up.
fn present(hist: &Histogram, show: fn(&Histogram) -> Value) -> Option<Value> {
    (!hist.is_empty()).then(|| show(hist))
}

fn merged(jobs: &[JobResult], of: fn(&JobResult) -> &Histogram) -> Histogram {
    let mut all = Histogram::default();
    jobs.iter().for_each(|job| all.merge(of(job)));
    all
}

fn keys(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(keys) => keys,
        _ => Map::new(),
    }
}

/// None where nothing was counted: a ratio of nothing is no number.
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Job, Target};

    fn idle() -> LoadSummary {
        LoadSummary {
            job: Job::new(Target::Existing("/dev/sda".into())),
            target: "/dev/sda".to_string(),
            device: Some("sda".to_string()),
            size: 1 << 30,
            fill: None,
            duration_ns: 0,
            jobs: vec![JobResult::default()],
            ring_workers: None,
            drive: Default::default(),
            clock: None,
            missing: vec!["registered buffers: too little".to_string()],
        }
    }

    #[test]
    fn a_run_without_operations_has_nulls_and_no_zero_rates() {
        let value = Value::Object(object(&Envelope::default(), &idle()));
        assert_eq!(value["schema"], "biopsy.load/1");
        assert_eq!(value["ios"], 0);
        for key in [
            "iops",
            "bytes_per_second",
            "user_cpu_percent",
            "ios_per_submit",
            "ios_per_reap",
            "fill",
            "ring_workers",
            "rwmixread",
            "in_flight",
            "syncs",
            "never_began",
            "read_back",
        ] {
            assert_eq!(value[key], Value::Null, "{key}");
        }
        assert_eq!(value["latency"]["min_ns"], Value::Null);
        assert_eq!(value["missing"][0]["why"], "registered buffers: too little");
        assert_eq!(value["directions"]["read"]["lat"], Value::Null);
        assert_eq!(value["directions"].get("write"), None, "a direction that the pattern has not");
    }

    /// Half reads and half writes of 4 KiB for 2 s by two threads.
    fn mixed(stonewall: bool) -> LoadSummary {
        let mut job = JobResult {
            duration_ns: 2_000_000_000,
            submitted: Histogram::from_iter([4; 5]),
            failures: vec![Failures { direction: Direction::Write, errno: libc::ENOSPC, count: 2 }],
            ..JobResult::default()
        };
        for direction in [Direction::Read, Direction::Write] {
            job.transfers[direction.index()] = Transfer {
                operations: 9,
                bytes: 9 << 12,
                slat: Histogram::from_iter([100; 3]),
                lat: Histogram::from_iter([900; 9]),
                ..Transfer::default()
            };
        }
        let pattern = Job { rw: Pattern::RandReadWrite, stonewall, ..idle().job };
        LoadSummary { job: pattern, duration_ns: 2_000_000_000, jobs: vec![job.clone(), job], ..idle() }
    }

    #[test]
    fn directions_have_their_own_figures() {
        let value = Value::Object(object(&Envelope::default(), &mixed(false)));
        let write = &value["directions"]["write"];
        assert_eq!((&write["ios"], &write["iops"]), (&json!(18), &json!(9.0)));
        assert_eq!((&write["slat"]["count"], &write["lat"]["count"]), (&json!(6), &json!(18)));
        assert_eq!(write["clat"], Value::Null, "nobody took those times");
        assert_eq!(value["jobs"][1]["directions"]["read"]["ios"], 9);
        assert_eq!(
            value["failures"],
            json!([{ "direction": "write", "errno": 28, "error": "no space left on device", "count": 4 }])
        );
        assert_eq!(value["submitted"]["p50"], 4);
        assert_eq!(value["block_sizes"]["read"][0]["low_bytes"], 4096);
    }

    #[test]
    fn sections_stand_beside_their_totals() {
        let envelope = Envelope::default();
        let loads = [mixed(false), mixed(false), mixed(true)];
        assert_eq!(object_all(&envelope, &loads[..1]), object(&envelope, &loads[0]));
        let value = Value::Object(object_all(&envelope, &loads));
        assert_eq!(value["sections"].as_array().unwrap().len(), 3);
        assert_eq!(value["sections"][2]["ios"], 36);
        assert_eq!(value["ios"], 108);
        assert_eq!(value["iops"], 27.0, "the first two ran at the same time");
        assert_eq!(value["directions"]["read"]["iops"], 13.5);
        assert_eq!(value["missing"].as_array().unwrap().len(), 3);
        let none = Value::Object(object_all(&envelope, &[]));
        assert_eq!(none["sections"], json!([]));
    }
}
