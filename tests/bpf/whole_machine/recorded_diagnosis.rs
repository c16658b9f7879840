//! Tests that the diagnosis of a recording is that of the live machine, and that the flight recorder writes a
//! diagnosis. Needs root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::live::disk::Disk;
use crate::support::patience::wait_for;
use crate::support::scratch::Scratch;
use crate::support::tool::{biopsy, finish, quiet, run, signal, stderr};

const PATIENCE: Duration = Duration::from_secs(40);

/// Reads a disk block by block while other processes use all CPUs, for a minute at most.
struct Contention(Vec<Child>);

impl Contention {
    fn new(disk: &Disk) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let dd = format!("while :; do dd if={} of=/dev/null bs=4k iflag=direct status=none; done", disk.path);
        let loops = std::iter::repeat_n("while :; do :; done".to_string(), 2 * cpus).chain([dd]);
        let spawn = |code: String| {
            let mut command = Command::new("timeout");
            command.args(["60", "sh", "-c", &code]).stdin(Stdio::null()).spawn().unwrap()
        };
        Self(loops.map(spawn).collect())
    }
}

impl Drop for Contention {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // `timeout` ends its child.
            signal(child, libc::SIGTERM);
            let _ended = child.wait();
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn object(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

fn diagnosed(recording: &Path) -> Value {
    let output = run(&["diagnose", "-i", text(recording), "--json"]);
    quiet(&output);
    object(&output.stdout)
}

#[test]
fn a_recording_has_the_verdict_of_a_live_diagnosis() {
    let Some(disk) = Disk::new(16) else { return };
    let scratch = Scratch::new("recorded-diagnosis");
    let folder = scratch.path().join("run");
    let _contention = Contention::new(&disk);
    let words = ["record", "-d", &disk.name, "-o", text(&folder), "--for", "5s"];
    let recorder = biopsy(&words).spawn().unwrap();
    let live = run(&["diagnose", "-d", &disk.name, "--for", "5s", "--json"]);
    // Threads that were not found in time, because no CPU was free, do not matter here.
    assert!(matches!(live.status.code(), Some(0 | 4)), "{}", stderr(&live));
    let recorder = finish(recorder);
    assert!(matches!(recorder.status.code(), Some(0 | 4)), "{}", stderr(&recorder));
    let (live, recorded) = (object(&live.stdout), diagnosed(&folder));
    assert_eq!(live["verdict"]["id"], "cpu-contention", "{}", live["verdict"]);
    assert_eq!(recorded["verdict"]["id"], live["verdict"]["id"], "{}", recorded["verdict"]);
    assert_eq!(recorded["cpu"]["sampler"], live["cpu"]["sampler"]);
    let user = |of: &Value| {
        let all = &of["cpu"]["time"]["all"];
        all["user_ns"].as_f64().unwrap() / all["wall_ns"].as_f64().unwrap()
    };
    assert!(
        (user(&live) - user(&recorded)).abs() < 0.2,
        "{} live, {} recorded",
        user(&live),
        user(&recorded)
    );
    // The recording examined everything that the live diagnosis examined.
    let parts = |of: &Value| {
        let all = of["not_examined"].as_array().unwrap();
        let mut all: Vec<String> = all.iter().map(|one| one["what"].as_str().unwrap().to_string()).collect();
        all.sort();
        all
    };
    assert_eq!(parts(&recorded), parts(&live));
}

#[test]
fn the_flight_recorder_writes_what_it_holds_on_a_finding() {
    let Some(disk) = Disk::new(16) else { return };
    let scratch = Scratch::new("flight-finding");
    let into = scratch.path().join("dumps");
    let _contention = Contention::new(&disk);
    let words = [
        "record",
        "-d",
        &disk.name,
        "--keep-last",
        "10s",
        "--on-finding",
        "-o",
        text(&into),
        "--for",
        "50s",
        "0.5",
    ];
    let child = biopsy(&words).spawn().unwrap();
    let dumps = || -> Vec<PathBuf> {
        let entries = fs::read_dir(&into).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.join("manifest.json").exists()).collect()
    };
    wait_for("a dump", PATIENCE, || !dumps().is_empty());
    // A finding that persists is not reported again.
    std::thread::sleep(Duration::from_secs(6));
    signal(&child, libc::SIGTERM);
    let ended = finish(child);
    assert!(matches!(ended.status.code(), Some(0 | 4)), "{}", stderr(&ended));
    let first = dumps().into_iter().min().unwrap();
    let manifest = object(&fs::read(first.join("manifest.json")).unwrap());
    let found = object(&fs::read(first.join("findings.json")).unwrap());
    assert_eq!(found["schema"], "biopsy.diagnose/1");
    let severe: Vec<&str> = (found["findings"].as_array().unwrap().iter())
        .filter(|finding| finding["severity"] != "note")
        .map(|finding| finding["id"].as_str().unwrap())
        .collect();
    let trigger = manifest["trigger"].as_str().unwrap();
    assert!(severe.iter().any(|id| trigger.starts_with(&format!("{id} on "))), "{trigger} of {severe:?}");
    assert_eq!((&manifest["ended"], &found["verdict"]["id"]), (&"dump".into(), &"cpu-contention".into()));
    assert!(diagnosed(&first)["verdict"]["id"].is_string());
    let all = dumps();
    let same = all.iter().filter(|path| {
        let manifest = object(&fs::read(path.join("manifest.json")).unwrap());
        manifest["trigger"].as_str().is_some_and(|why| why.starts_with("cpu-contention"))
    });
    assert_eq!(same.count(), 1, "once, while it lasts");
}
