use serde_json::{Value, json};

use super::*;
use crate::analyze::cpu::{CounterTotals, CpuLeftOut, CpuRow, CpuSummary, TIMES};
use crate::analyze::timeline::{DeviceTimeline, Figures, LatencyKind};
use crate::envelope::Envelope;
use crate::rules::fixtures::{Case, SECOND};
use crate::rules::{diagnose, properties};

fn summary_of(case: &Case) -> DiagnosisSummary {
    let s = case.summaries();
    DiagnosisSummary::of(&s, &diagnose(&s))
}

/// The JSON object, after a check that it reads back to the same.
fn object(summary: &DiagnosisSummary) -> Value {
    let object = json!(summary);
    let back: DiagnosisSummary = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(json!(back), object);
    object
}

fn cpus() -> CpuSummary {
    let row = CpuRow {
        cpus: vec![0],
        socket: Some(1),
        wall_ns: SECOND,
        times: [1, 2, 3, 4, 5, 6, 7],
        iowait_ns: Some(8),
        guest_ns: Some(9),
        unaccounted_ns: -10,
        error_ns: 11,
        cycles: Some(12),
        instructions: Some(13),
    };
    CpuSummary {
        duration_ns: SECOND,
        interrupts_timed: Some(true),
        cpus: vec![row.clone()],
        cores: vec![row.clone()],
        sockets: vec![row.clone()],
        all: Some(row),
        left_out: vec![CpuLeftOut { cpu: 1, why: "it went offline during the run".into() }],
        context_switches: Some(100),
        processes: Some(2),
        wakeups: Some(50),
        counted: CounterTotals {
            counter: Some("cycles".into()),
            user_cycles: Some(1_000),
            kernel_cycles: Some(2_000),
            user_instructions: Some(500),
            kernel_instructions: Some(900),
            frontend_stalls: Some(30),
            backend_stalls: Some(60),
            core_cycles: Some((30_000, 45_000)),
            clock_ns: Some(7),
            counted_share: Some(0.5),
            ..CounterTotals::default()
        },
        ..CpuSummary::default()
    }
}

#[test]
fn a_diagnosis_is_read_back_with_its_views() {
    let mut case = Case::new(15_000, 32);
    case.cpu = Some(cpus());
    case.at_twice_the_depth(1.8);
    let figures = Figures { ios: 3, latency_log2: vec![(1, 3)], p50_ns: Some(2), ..Figures::default() };
    let device = DeviceTimeline { name: "vda".into(), timed: LatencyKind::Device, intervals: vec![figures] };
    let envelope = Envelope { kernel: "6.18".into(), duration_ns: SECOND, ..Envelope::default() };
    let summary = DiagnosisSummary {
        latency: Some(FramedView { envelope, view: case.latency.clone() }),
        interrupts: Some(InterruptSummary { duration_ns: SECOND, ..InterruptSummary::default() }),
        locks: Some(PressureSummary { locks: Some(Default::default()), pagecache: Some(Default::default()) }),
        threads: Some(ThreadSummary { rounds: 5, ..ThreadSummary::default() }),
        experiment: case.experiment.clone(),
        scaling: Some(Scaling { each_ns: 5, machine_percent: Some(2.0), ..Scaling::default() }),
        load: case.load.as_ref().map(|load| LoadResult::of(std::slice::from_ref(load))),
        timeline: Some(TimelineSummary { devices: vec![device] }),
        ..summary_of(&case)
    };
    let value = object(&summary);
    assert_eq!(value["verdict"]["id"], value["findings"][0]["id"]);
    assert!(value["findings"][0]["numbers"].as_object().is_some_and(|numbers| !numbers.is_empty()));
    let latency = &value["latency"];
    assert_eq!((&latency["schema"], &latency["kernel"]), (&json!("biopsy.latency/1"), &json!("6.18")));
    assert_eq!((&latency["duration_ns"], &latency["devices"][0]["name"]), (&json!(SECOND), &json!("vda")));
    let back: DiagnosisSummary = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(back.latency.map(|framed| framed.view), Some(case.latency));

    let (cpu, row) = (&value["cpu"], &value["cpu"]["time"]["cpus"][0]);
    let times: Vec<u64> = TIMES.iter().map(|name| row[format!("{name}_ns")].as_u64().unwrap()).collect();
    assert_eq!((times, &row["unaccounted_ns"]), (vec![1, 2, 3, 4, 5, 6, 7], &json!(-10)));
    assert_eq!(cpu["time"]["left_out"], json!([{ "cpu": 1, "why": "it went offline during the run" }]));
    assert_eq!(cpu["core_cycles_per_io"], json!([2.0, 3.0]));
    assert_eq!((&cpu["forks"], &cpu["counted_share"]), (&json!(2), &json!(0.5)));
    assert!(cpu["io-wq"]["ns_per_io"].is_number() && cpu["threads_share_cores"] == json!(false), "{cpu}");
}

#[test]
fn what_was_not_measured_has_no_key_or_is_null() {
    let mut case = Case::new(15_000, 32);
    (case.profile, case.cpu) = (None, None);
    let value = object(&summary_of(&case));
    assert!(["latency", "locks", "timeline"].iter().all(|key| value.get(key).is_none()), "{value}");
    assert!(value["cpu"].get("time").is_none() && value["cpu"]["user"]["ns_per_io"].is_null(), "{value}");
}

#[test]
fn diagnoses_of_random_runs_are_read_back() {
    (0..200).for_each(|seed| _ = object(&summary_of(&properties::random_case(seed))));
}
