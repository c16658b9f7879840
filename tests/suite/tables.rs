//! Runs the SQL of docs/recordings.md by DuckDB on recordings whose answers are known, and reads the table by pyarrow.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::support::scratch::Scratch;
use crate::support::skip::skipped;
use biopsy::analyze::devices::DevicesSummary;
use biopsy::analyze::devices::device::DeviceRecord;
use biopsy::analyze::latency::{DeviceLatency, LatencySummary, OpLatency};
use biopsy::analyze::op::Op;
use biopsy::analyze::stage::Stage;
use biopsy::envelope::Envelope;
use biopsy::hist::{self, Histogram};
use biopsy::recording::folder::{self, Folder};
use biopsy::recording::io::{Io, Parts};
use biopsy::recording::manifest::Manifest;
use biopsy::recording::tape::Tape;
use biopsy::render::json;
use serde_json::{Value, json};

/// Prints the rows of each statement of stdin in their order, and what pyarrow reads of the table.
const SCRIPT: &str = r#"
import duckdb, json, pathlib, sys
connection = duckdb.connect()
# A statement that takes two seconds would draw one on stdout.
connection.execute("SET enable_progress_bar = false")
for statement in sys.stdin.read().split(";"):
    if statement.strip():
        print(json.dumps(connection.execute(statement).fetchall()))
if pathlib.Path("run.biopsy/io").exists():
    import pyarrow.dataset
    table = pyarrow.dataset.dataset("run.biopsy/io").to_table()
    print(json.dumps([table.num_rows, table.column_names, table.column("queue").null_count, str(table.schema.field("ended").type)]))
"#;

/// The number of recordings of a fleet, a third of them with the newer firmware.
const FLEET: usize = 1_000;

/// The folder of the packages of setup/python. None: they are not installed, and the test is skipped.
fn packages() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/python");
    if folder.join("wanted").is_file() {
        return Some(folder);
    }
    skipped("DuckDB and pyarrow are not installed: setup/python does it");
    None
}

fn query(folder: &Path, packages: &Path, sql: &str) -> Vec<Value> {
    let python = std::env::var("PYTHON").unwrap_or("python3".to_string());
    let mut child = Command::new(python)
        .args(["-c", SCRIPT])
        .env("PYTHONPATH", packages)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // If the process did not start, its stderr says why.
    let _unread = child.stdin.take().unwrap().write_all(sql.as_bytes());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The statements of the page, in its order.
fn statements() -> String {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/recordings.md")).unwrap();
    let all: Vec<&str> =
        page.split("```sql\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(all.len(), 4);
    all.concat()
}

/// Makes a recording of seconds in which `device` has reads of these lengths, in us.
fn record(at: &Path, device: &str, firmware: &str, seconds: &[&[u64]]) {
    let mut folder = Folder::create(at).unwrap();
    let envelope = Envelope::default();
    folder.write(folder::MANIFEST, &json::view(&envelope, &Manifest::default(), None)).unwrap();
    let facts =
        DeviceRecord { name: device.into(), firmware: Some(firmware.into()), ..DeviceRecord::default() };
    let devices = DevicesSummary { devices: vec![facts], ..DevicesSummary::default() };
    folder.write(folder::HOST, &json::view(&envelope, &devices, None)).unwrap();
    let mut tape = Tape::create(at, "latency", &Arc::new(AtomicU64::new(0))).unwrap();
    for second in seconds {
        let times: Histogram = second.iter().map(|us| us * 1_000).collect();
        let waits: Histogram = second.iter().map(|_| 2_000).collect();
        let stages = BTreeMap::from([(Stage::Device, times), (Stage::Queue, waits)]);
        let op = OpLatency { ios: second.len() as u64, request_stages: stages, ..OpLatency::default() };
        let ops = BTreeMap::from([(Op::Read, op)]);
        let of =
            DeviceLatency { name: device.into(), ios: second.len() as u64, ops, ..DeviceLatency::default() };
        let summary =
            LatencySummary { duration_ns: 1_000_000_000, devices: vec![of], ..LatencySummary::default() };
        tape.add(&json::view(&envelope, &summary.derived(), None), &envelope, 0).unwrap();
    }
    folder.keep();
}

#[test]
fn the_statements_of_the_page_give_what_was_recorded() {
    let Some(packages) = packages() else { return };
    let scratch = Scratch::new("tables");
    let run = scratch.path().join("run.biopsy");
    // The p99 of the 200 I/Os of two seconds is the 198th: 700 us.
    let second: Vec<u64> = [vec![100; 98], vec![700; 2]].concat();
    record(&run, "sda\"\x1b[31m", "1.0", &[&second, &second]);
    let mut parts = Parts::create(&run, &Arc::default()).unwrap();
    for at in 0..300_000_u64 {
        let is_large = at % 1_000 == 0;
        parts
            .add(&Io {
                ended: 1_795_910_151_000_000_000 + i64::try_from(at).unwrap() * 5_000,
                device: "sda",
                op: Some("read"),
                offset: Some(at * 4096),
                bytes: Some(if is_large { 128 << 10 } else { 4096 }),
                queue: (at % 3 > 0).then_some((at % 3) as u32),
                device_ns: Some(if at % 3 == 2 { 9_000 } else { 1_000 }),
                comm: Some(if is_large { "dd".into() } else { "fio".into() }),
                pid: Some(u32::MAX),
                ..Io::default()
            })
            .unwrap();
    }
    parts.finish().unwrap();
    assert_eq!(parts.ios, 300_000);
    let bytes = fs::metadata(run.join("io/part-000000.parquet")).unwrap().len();
    assert_eq!(parts.bytes, bytes);
    for number in 0..FLEET {
        let at = scratch.path().join(format!("fleet/host{number}"));
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        let (firmware, us) = if number % 3 == 0 { ("2.0", 900) } else { ("1.0", 100) };
        record(&at, "nvme0n1", firmware, &[&[us; 10]]);
    }
    let found = query(scratch.path(), &packages, &statements());
    let until_us = hist::bounds(hist::index(700_000)).1 as f64 / 1_000.0;
    let name = "sda\"\x1b[31m";
    assert_eq!(
        found[0],
        json!([[name, "read", "device", 200, until_us], [name, "read", "queue", 200, 2.048]])
    );
    assert_eq!(
        found[1],
        json!([["sda", 2, 100_000, 9.0], ["sda", 1, 100_000, 1.0], ["sda", null, 100_000, 1.0]])
    );
    assert_eq!(found[2], json!([["dd", 300, 1.0]]));
    assert_eq!(found[3], json!([["2.0", 334, 3_340, 900.0], ["1.0", 666, 6_660, 100.0]]));
    let columns = json!([
        "ended",
        "device",
        "op",
        "flags",
        "offset",
        "bytes",
        "queue",
        "queue_ns",
        "device_ns",
        "complete_ns",
        "submit_ns",
        "reap_ns",
        "pid",
        "tid",
        "comm",
        "submit_cpu",
        "completion_cpu"
    ]);
    assert_eq!(found[4], json!([300_000, columns, 100_000, "timestamp[ns, tz=UTC]"]));
}

/// Every column has the value that was given.
#[test]
fn a_row_of_the_table_is_the_io() {
    let Some(packages) = packages() else { return };
    let scratch = Scratch::new("row");
    let run = scratch.path().join("run.biopsy");
    record(&run, "sda", "1.0", &[]);
    let mut parts = Parts::create(&run, &Arc::default()).unwrap();
    let io = Io {
        ended: 1_795_910_151_000_000_007,
        device: "sda",
        op: Some("write"),
        flags: 0x8001,
        offset: Some(1 << 50),
        bytes: Some(512),
        queue: Some(3),
        queue_ns: Some(11),
        device_ns: Some(22),
        complete_ns: Some(33),
        submit_ns: Some(44),
        reap_ns: Some(55),
        pid: Some(66),
        tid: Some(77),
        comm: Some("\u{1b}[31m".into()),
        submit_cpu: Some(8),
        completion_cpu: 9,
    };
    parts.add(&io).unwrap();
    parts.add(&Io { device: "sdb", ..Io::default() }).unwrap();
    parts.finish().unwrap();
    let sql = "SELECT epoch_ns(ended), * EXCLUDE ended FROM 'run.biopsy/io/*.parquet'";
    let found = query(scratch.path(), &packages, sql);
    assert_eq!(
        found[0][0],
        json!([
            1_795_910_151_000_000_007_u64,
            "sda",
            "write",
            0x8001,
            1_u64 << 50,
            512,
            3,
            11,
            22,
            33,
            44,
            55,
            66,
            77,
            "\u{1b}[31m",
            8,
            9
        ])
    );
    let none = Value::Null;
    let nulls = found[0][1].as_array().unwrap().iter().filter(|value| **value == none).count();
    assert_eq!((&found[0][1][1], nulls), (&json!("sdb"), 13));
}
