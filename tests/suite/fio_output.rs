//! Tests the output in fio's formats with programs that read fio's output: fio's own script, Python, and a comparison
//! of every key.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use biopsy::hist::Histogram;
use biopsy::load::{
    Advice, Arrivals, BlockShare, BlockSizes, Direction, Distribution, Engine, Extent, Failures, Job,
    JobResult, LoadSummary, OnError, Pattern, Placement, Rate, Target, Timestamps, Transfer, TransferSample,
};
use biopsy::render::json::fio::{self, Time};
use biopsy::render::text::{load as text, terse};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::support::scratch::Scratch;
use crate::support::skip::skipped;

/// Every key of fio's json+, in fio's order, as fio 3.33 prints them with `--ioengine=psync --rw=randrw --fsync=8`.
const KEYS: &str = include_str!("fio_output/keys-3.33");
const VERSION: &str = "fio-3.33";

/// Random reads and writes by so many threads, 1000 of each per thread, with some fsyncs.
fn mixed(threads: u32, group_reporting: bool) -> LoadSummary {
    let thread = |number: u32| {
        let mut job = JobResult {
            number,
            syncs: Histogram::from_iter((1..=20).map(|i| i * 100_000)),
            duration_ns: 2_000_000_000,
            user_ns: 100_000_000,
            system_ns: 500_000_000,
            context_switches: 77,
            minor_faults: 30,
            submitted: Histogram::from_iter([4; 500]),
            reaped: Histogram::from_iter([1; 2000]),
            depths: Histogram::from_iter([4; 2000]),
            samples: vec![
                TransferSample {
                    duration_ns: 500_000_000,
                    operations: [250, 200, 0],
                    bytes: [250 << 12, 200 << 12, 0],
                    ..TransferSample::default()
                };
                3
            ],
            ..JobResult::default()
        };
        for direction in [Direction::Read, Direction::Write] {
            let slower = 1 + direction as u64 + u64::from(number);
            let times = |ns: u64| (1..=1000).map(move |i| i * ns * slower).collect::<Histogram>();
            job.transfers[direction.index()] = Transfer {
                operations: 1000,
                bytes: 1000 << 12,
                short: 0,
                slat: times(3),
                clat: times(997),
                lat: times(1000),
            };
        }
        job
    };
    LoadSummary {
        job: Job {
            name: "mix".to_string(),
            rw: Pattern::RandReadWrite,
            numjobs: threads,
            iodepth: 4,
            fsync: 50,
            on_error: OnError::Stop,
            group_reporting,
            ..Job::new(Target::Existing("/dev/sda".into()))
        },
        target: "/dev/sda".to_string(),
        device: Some("sda".to_string()),
        size: 1 << 30,
        fill: None,
        duration_ns: 2_000_000_000,
        jobs: (0..threads).map(thread).collect(),
        ring_workers: None,
        drive: Default::default(),
        clock: None,
        missing: Vec::new(),
    }
}

fn time() -> Time {
    Time {
        unix_ms: 1_795_332_518_999,
        text: "Sun Nov 22 07:28:38 2026".to_string(),
        elapsed: Duration::from_millis(2_001),
    }
}

fn plus(load: &LoadSummary) -> Vec<u8> {
    fio::render(std::slice::from_ref(load), &[], &[], &time(), true)
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(bytes)))
}

/// The keys of an object and of all objects in it, in their order: `jobs[].read.iops`. Keys that are data are left out.
struct Keys(Vec<String>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Walk)
    }
}

struct Walk;

impl<'de> Visitor<'de> for Walk {
    type Value = Keys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
        let mut keys: Vec<String> = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            assert!(!keys.contains(&name), "{name} is there twice");
            keys.push(name.clone());
            if ["bins", "job options", "global options"].contains(&name.as_str()) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let below = map.next_value::<Keys>()?;
            let dot = |key: String| {
                if key.starts_with('[') { format!("{name}{key}") } else { format!("{name}.{key}") }
            };
            keys.extend(below.0.into_iter().map(dot));
        }
        Ok(Keys(keys))
    }

    /// All items have the same keys.
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Keys, A::Error> {
        let mut first: Option<Vec<String>> = None;
        while let Some(Keys(keys)) = items.next_element()? {
            assert_eq!(*first.get_or_insert_with(|| keys.clone()), keys);
        }
        Ok(Keys(first.unwrap_or_default().into_iter().map(|key| format!("[].{key}")).collect()))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Keys, E> {
        Ok(Keys(Vec::new()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Keys, E> {
        Ok(Keys(Vec::new()))
    }

    fn visit_str<E>(self, _: &str) -> Result<Keys, E> {
        Ok(Keys(Vec::new()))
    }
}

/// Without the keys of disks: fio has them if it finds the disk, and biopsy never has them.
fn keys(json: &[u8]) -> Vec<String> {
    let keys: Keys = serde_json::from_slice(json).unwrap();
    keys.0.into_iter().filter(|key| !key.starts_with("disk_util")).collect()
}

/// fio's output for these arguments on a file of its own. None: fio is not installed, and the test is skipped.
fn run_fio(scratch: &Scratch, arguments: &[&str]) -> Option<Vec<u8>> {
    if Command::new("fio").arg("--version").output().is_err() {
        skipped("fio is not installed");
        return None;
    }
    let file = format!("--filename={}", scratch.path().join("data").display());
    let fixed = ["--name=mix", &file, "--size=4m", "--rw=randrw", "--bs=4k", "--ioengine=psync", "--fsync=8"];
    let output = Command::new("fio").args(fixed).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output.stdout)
}

/// Whether the output is of the fio version whose keys are known.
fn is_known(json: &[u8]) -> bool {
    let version = parsed(json)["fio version"].as_str().unwrap().to_string();
    if version != VERSION {
        eprintln!("{version} is not compared with the keys of {VERSION}");
    }
    version == VERSION
}

#[test]
fn keys_are_fio_s_in_fio_s_order() {
    let known: Vec<&str> = KEYS.lines().collect();
    assert!(known.len() > 200);
    for (threads, group) in [(1, false), (3, true), (3, false)] {
        assert_eq!(keys(&plus(&mixed(threads, group))), known);
    }
    let scratch = Scratch::new("fio-keys");
    for arguments in [&["--numjobs=2", "--thread"][..], &["--numjobs=2", "--group_reporting"]] {
        let arguments = [arguments, &["--output-format=json+"]].concat();
        let Some(theirs) = run_fio(&scratch, &arguments) else { return };
        if is_known(&theirs) {
            assert_eq!(keys(&theirs), known);
        }
    }
}

#[test]
fn plain_json_has_no_bins() {
    let ours = fio::render(&[mixed(2, true)], &[], &[], &time(), false);
    let known: Vec<&str> = KEYS.lines().filter(|key| !key.ends_with(".bins")).collect();
    assert_eq!(keys(&ours), known);
    let Some(theirs) = run_fio(&Scratch::new("fio-plain"), &["--output-format=json"]) else { return };
    if is_known(&theirs) {
        assert_eq!(keys(&theirs), known);
    }
}

/// If nothing was transferred, fio keeps all keys, with zeros and without percentiles.
#[test]
fn what_did_not_happen_is_as_in_fio() {
    let mut idle = mixed(1, true);
    idle.jobs = vec![JobResult::default()];
    idle.duration_ns = 0;
    let json = parsed(&plus(&idle));
    let job = &json["jobs"][0];
    for direction in ["read", "write", "trim"] {
        let way = &job[direction];
        for key in ["io_bytes", "bw", "bw_bytes", "runtime", "total_ios", "bw_samples", "iops_min"] {
            assert_eq!(way[key], 0, "{direction} {key}");
        }
        assert_eq!(way["clat_ns"]["N"], 0);
        assert_eq!(way["clat_ns"].get("bins"), None);
        assert_eq!(way["clat_ns"].get("percentile"), None);
    }
    let none = parsed(&fio::render(&[], &[], &[], &time(), true));
    assert_eq!(none["jobs"], Value::Array(Vec::new()));
}

#[test]
fn figures_have_fio_s_units() {
    let mut load = mixed(2, true);
    load.jobs[0].started_ms = Some(1_795_332_516_998);
    let json = parsed(&fio::render(&[load], &[("direct".into(), "1".into())], &[], &time(), true));
    let job = &json["jobs"][0];
    let read = &job["read"];
    assert_eq!(json["timestamp"], 1_795_332_518);
    assert_eq!(json["global options"]["direct"], "1");
    assert_eq!((&job["elapsed"], &job["job_start"]), (&3.into(), &1_795_332_516_998_u64.into()));
    assert_eq!(job["job options"]["rw"], "randrw");
    assert_eq!(job["job options"]["fsync"], "50");
    assert_eq!(read["io_kbytes"], 2 * 4000);
    assert_eq!((&read["bw"], &read["bw_bytes"]), (&4000.into(), &4_096_000.into()));
    assert_eq!((&read["iops"], &read["runtime"]), (&1000.0.into(), &2000.into()));
    // Half a second with 250 reads in each of two threads.
    assert_eq!((&read["iops_min"], &read["iops_mean"]), (&1000.into(), &1000.0.into()));
    assert_eq!((&read["bw_mean"], &read["bw_samples"]), (&4000.0.into(), &6.into()));
    assert_eq!(read["bw_agg"], 100.0);
    assert_eq!(job["write"]["bw_mean"], 3200.0);
    assert_eq!(job["write"]["bw_agg"], 80.0);
    let percentile = read["clat_ns"]["percentile"]["50.000000"].as_f64().unwrap();
    let truth = 667.0 * 997.0;
    assert!((percentile / truth - 1.0).abs() < 0.045, "{percentile} for {truth}");
    assert_eq!(
        (&job["job_runtime"], &job["usr_cpu"], &job["sys_cpu"]),
        (&4000.into(), &5.0.into(), &25.0.into())
    );
    assert_eq!(job["iodepth_level"]["4"], 100.0);
    assert_eq!((&job["iodepth_submit"]["4"], &job["ctx"]), (&100.0.into(), &154.into()));
    assert_eq!(job["sync"]["total_ios"], 40);
    let classes = ["latency_ns", "latency_us", "latency_ms"].map(|unit| job[unit].as_object().unwrap());
    let all: f64 = classes.iter().flat_map(|class| class.values()).map(|share| share.as_f64().unwrap()).sum();
    assert!((all - 100.0).abs() < 0.1, "{all}");
}

/// Latencies that are known only as a whole, as with a time stamp at each end: fio's `lat_percentiles`.
#[test]
fn percentiles_move_to_lat_where_clat_is_unknown() {
    let mut load = mixed(1, true);
    for moved in &mut load.jobs[0].transfers {
        (moved.slat, moved.clat) = Default::default();
    }
    let json = parsed(&plus(&load));
    let read = &json["jobs"][0]["read"];
    assert_eq!((&read["clat_ns"]["N"], read["clat_ns"].get("bins")), (&0.into(), None));
    assert!(read["lat_ns"]["percentile"]["99.000000"].as_u64().unwrap() > 900_000);
    assert!(json["jobs"][0]["latency_us"]["1000"].as_f64().unwrap() > 18.0);
}

#[test]
fn errors_are_told_as_with_continue_on_error() {
    let mut load = mixed(2, true);
    load.jobs[1].first_errno = Some(5);
    load.jobs[1].failures = vec![Failures { direction: Direction::Write, errno: 5, count: 3 }];
    let json = parsed(&plus(&load));
    let job = &json["jobs"][0];
    assert_eq!(
        [&job["error"], &job["total_err"], &job["first_error"]],
        [5, 3, 5].map(Value::from).each_ref()
    );
    assert!(terse::render(&[load]).trim_end().ends_with(";3;5"));
}

/// Runs the script of the fio package on a file with json+, and returns its files. None: it cannot run.
fn csv(scratch: &Scratch, name: &str, json: &[u8], jobs: usize) -> Option<Vec<String>> {
    let script = "/usr/bin/fio_jsonplus_clat2csv";
    let runs = Command::new("/usr/bin/python3").args(["-c", "import six"]).output();
    if !Path::new(script).exists() || !runs.is_ok_and(|output| output.status.success()) {
        skipped(format_args!("{script} of the fio package, python3 and python3-six are needed"));
        return None;
    }
    scratch.write(&format!("{name}.json"), json);
    let path = |name: String| -> PathBuf { scratch.path().join(name) };
    for validate in [&[][..], &["--validate"]] {
        let output = Command::new("/usr/bin/python3")
            .arg(script)
            .args([path(format!("{name}.json")), path(format!("{name}.csv"))])
            .args(validate)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(!said.contains("mismatch"), "{said}");
    }
    Some((0..jobs).map(|i| fs::read_to_string(path(format!("{name}_job{i}.csv"))).unwrap()).collect())
}

/// The sum of the counts in a column.
fn column(csv: &str, name: &str) -> u64 {
    let mut lines = csv.lines().map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
    let at = lines.next().unwrap().iter().position(|heading| *heading == name).unwrap();
    lines.filter_map(|cells| cells[at].parse::<u64>().ok()).sum()
}

#[test]
fn fio_s_own_script_reads_the_bins() {
    let scratch = Scratch::new("fio-csv");
    let Some(ours) = csv(&scratch, "ours", &plus(&mixed(2, false)), 2) else { return };
    for csv in &ours {
        assert_eq!(column(csv, "read_clat_ns_count"), 1000);
        assert_eq!(column(csv, "write_clat_ns_count"), 1000);
        assert_eq!(column(csv, "trim_clat_ns_count"), 0);
        let times: Vec<u64> =
            csv.lines().skip(1).map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
        assert!(times.is_sorted_by(|a, b| a < b));
        assert!((900..2_100).contains(&times[0]) && *times.last().unwrap() < 4_000_000, "{times:?}");
    }
    // Times that fio's scheme has no bucket for, for which the script would never end.
    let mut slow = mixed(1, true);
    slow.jobs[0].transfers[0].clat = Histogram::from_iter([0, 1, 17_000_000_000, 1 << 40, 1 << 50]);
    assert_eq!(column(&csv(&scratch, "slow", &plus(&slow), 1).unwrap()[0], "read_clat_ns_count"), 5);

    let Some(theirs) = run_fio(&scratch, &["--numjobs=2", "--output-format=json+"]) else { return };
    let counted = csv(&scratch, "theirs", &theirs, 2).unwrap();
    let jobs = parsed(&theirs)["jobs"].clone();
    for (i, csv) in counted.iter().enumerate() {
        assert_eq!(Value::from(column(csv, "read_clat_ns_count")), jobs[i]["read"]["total_ios"]);
        assert_eq!(csv.lines().next(), ours[0].lines().next(), "the same headings");
    }
}

/// Reads the keys that scripts for fio use, in their way.
const READER: &str = r#"
import json, sys

with open(sys.argv[1]) as source:
    run = json.load(source)
assert run["fio version"].split("-")[0] in ("fio", "biopsy")
total = 0
for job in run["jobs"]:
    assert isinstance(job["jobname"], str) and job["error"] == 0
    for way in ("read", "write"):
        data = job[way]
        total += data["total_ios"]
        assert data["io_bytes"] == data["total_ios"] * 4096
        assert abs(data["bw"] - data["bw_bytes"] / 1024) <= 1
        assert abs(data["iops"] * data["runtime"] / 1000 - data["total_ios"]) <= data["iops"] / 500 + 1
        at = data["clat_ns"]["percentile"]
        assert at["50.000000"] <= at["99.000000"] <= at["99.990000"] <= data["clat_ns"]["max"] * 1.05
        assert data["clat_ns"]["min"] <= data["clat_ns"]["mean"] <= data["lat_ns"]["mean"] <= data["lat_ns"]["max"]
        assert data["clat_ns"]["stddev"] > 0 and data["clat_ns"]["N"] == data["total_ios"]
        assert isinstance(data["iops"], float) and isinstance(data["bw"], int)
    assert job["trim"]["total_ios"] == 0
    assert 0 <= job["usr_cpu"] and 0 <= job["sys_cpu"] and job["ctx"] >= 0
    assert abs(sum(job["iodepth_level"].values()) - 100) < 15
    float(job["job options"]["numjobs"])
print(total)
"#;

#[test]
fn a_reader_of_the_usual_keys_is_content() {
    let scratch = Scratch::new("fio-reader");
    let read = |name: &str, json: &[u8]| {
        scratch.write(name, json);
        let output =
            Command::new("/usr/bin/python3").args(["-c", READER]).arg(scratch.path().join(name)).output();
        let Ok(output) = output else {
            skipped("python3 is not installed");
            return None;
        };
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8(output.stdout).unwrap().trim().to_string())
    };
    for group in [true, false] {
        let Some(total) = read("ours", &plus(&mixed(2, group))) else { return };
        assert_eq!(total, "4000");
    }
    for group in ["--group_reporting", "--group_reporting=0"] {
        let Some(theirs) = run_fio(&scratch, &["--numjobs=2", group, "--output-format=json"]) else { return };
        assert_eq!(read("theirs", &theirs).as_deref(), Some("2048"));
    }
}

/// fio accepts the printed options of a job as a job.
#[test]
fn fio_understands_the_options_that_are_told() {
    let plain = Job::new(Target::Existing("/dev/shm/a:b".into()));
    let share = |bytes, percent| BlockShare { low: bytes, high: bytes, percent };
    let jobs = [
        plain.clone(),
        Job {
            iodepth_batch: 4,
            iodepth_batch_complete: 2,
            hipri: true,
            sqthread_poll: true,
            ..plain.clone()
        },
        Job {
            rw: Pattern::RandReadWrite,
            rwmixread: 70,
            bs: std::array::from_fn(|_| BlockSizes(vec![share(4096, 60.0), share(65536, 40.0)])),
            rate: Some(Rate {
                iops: [Some(500), None, None],
                bytes: [None; 3],
                arrivals: Arrivals::Exponential,
            }),
            distribution: Distribution::Zipf(1.2),
            runtime: Some(Duration::from_millis(1500)),
            ramp_time: Duration::from_secs(1),
            thinktime: Duration::from_micros(20),
            thinktime_blocks: 8,
            fsync: 32,
            norandommap: false,
            ..plain.clone()
        },
        Job {
            rw: Pattern::Write,
            bs: std::array::from_fn(|_| {
                BlockSizes(vec![BlockShare { low: 4096, high: 65536, percent: 100.0 }])
            }),
            size: Some(Extent::Percent(20.0)),
            offset: Extent::Bytes(1 << 20),
            offset_increment: Extent::Percent(5.0),
            io_size: Some(1 << 30),
            filesize: Some(1 << 24),
            fdatasync: 8,
            advice: Advice::Nothing,
            placement: Placement::Cpus { cpus: vec![0], split: true },
            engine: Engine::Libaio,
            timestamps: Timestamps::Off,
            stonewall: true,
            exitall: true,
            refill_buffers: true,
            ..plain.clone()
        },
        Job {
            distribution: Distribution::Zoned(vec![(60.0, 10.0), (40.0, 90.0)]),
            engine: Engine::Psync,
            advice: Advice::Sequential,
            rate: Some(Rate { iops: [Some(9); 3], bytes: [None; 3], arrivals: Arrivals::Even }),
            ..plain
        },
        Job::new(Target::Scratch { directory: "/dev/shm".into(), bytes: 1 << 20 }),
    ];
    let scratch = Scratch::new("fio-options");
    for (i, job) in jobs.iter().enumerate() {
        let lines =
            fio::options::given(job).into_iter().skip(1).map(|(name, value)| format!("{name}={value}\n"));
        let file = format!("[{}]\n{}", job.name, lines.collect::<String>());
        scratch.write("job", file.as_bytes());
        let Ok(output) = Command::new("fio")
            .arg("--parse-only")
            .arg(scratch.path().join("job"))
            .stdin(Stdio::null())
            .output()
        else {
            skipped("fio is not installed");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{i}: {said}{file}");
    }
}

/// A field with each number as a 9: `9.9%=9`.
fn shape(field: &str) -> String {
    let mut shape = String::new();
    for c in field.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }) {
        if c != '9' || !shape.ends_with('9') {
            shape.push(c);
        }
    }
    shape
}

#[test]
fn terse_lines_have_fio_s_fields() {
    let ours = terse::render(&[mixed(2, false)]);
    assert_eq!(ours.lines().count(), 2);
    let fields: Vec<&str> = ours.lines().next().unwrap().split(';').collect();
    assert_eq!(fields.len(), 121);
    assert_eq!(fields[..5], ["3", &fio::version(), "mix", "0", "0"]);
    // KiB, KiB/s, I/Os per second and ms; then slat and clat in µs.
    assert_eq!(fields[5..13], ["4000", "2000", "500", "2000", "0", "3", "1.501500", fields[12]]);
    assert_eq!(fields[13..15], ["0", "997"]);
    assert_eq!(fields[29].split('=').next(), Some("99.000000%"));
    assert_eq!(fields[87..92], ["5.000000%", "25.000000%", "77", "0", "30"]);
    assert_eq!(fields[92..99], ["0.0%", "0.0%", "100.0%", "0.0%", "0.0%", "0.0%", "0.0%"]);
    // Without a disk below it, fio prints no fields for disks.
    let fio = ["--name=n", "--ioengine=null", "--size=4m", "--rw=randrw", "--minimal"];
    let Ok(theirs) = Command::new("fio").args(fio).output() else {
        skipped("fio is not installed");
        return;
    };
    let theirs = String::from_utf8(theirs.stdout).unwrap();
    let theirs: Vec<String> = theirs.trim_end().split(';').map(shape).collect();
    assert_eq!(fields.iter().map(|field| shape(field)).skip(3).collect::<Vec<_>>(), theirs[3..]);
}

#[test]
fn hostile_names_stay_in_their_place() {
    let mut load = mixed(1, true);
    load.job.name = "a\";\n\x1b[2J\u{202e}{}".to_string();
    let path = Path::new(OsStr::from_bytes(b"/tmp/\xff\n\x1b]0;x:\"b")).to_path_buf();
    load.target = path.to_string_lossy().into_owned();
    load.job.targets = vec![Target::Existing(path), Target::Existing("/b".into())];
    let json = plus(&load);
    assert!(json.iter().all(|byte| *byte == b'\n' || *byte >= b' '), "nothing that moves a cursor");
    let value = parsed(&json);
    assert_eq!(value["jobs"][0]["jobname"], load.job.name);
    assert_eq!(value["jobs"][0]["job options"]["filename"], "/tmp/\u{fffd}\n\x1b]0;x\\:\"b:/b");
    let line = terse::render(std::slice::from_ref(&load));
    assert_eq!((line.lines().count(), line.split(';').count()), (1, 121), "{line}");
    for text in [line, text::render_all(&[load.clone(), load], None)] {
        assert!(text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'), "{text}");
    }
}
