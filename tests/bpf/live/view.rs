//! Runs `biopsy latency` on test disks and compares its output with the kernel's counters.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use biopsy::analyze::invariants::sums;
use biopsy::analyze::latency::DeviceLatency;
use serde::Deserialize;
use serde_json::Value;

use super::ATTEMPTS;
use super::disk::{Disk, Stat};
use crate::support::patience::Patience;
use crate::support::tool;

/// The output of a view, and the kernel's counters of the test disks before and after it.
pub struct View {
    pub json: Value,
    pub output: Output,
    stats: Vec<(String, Stat)>,
}

/// Runs `biopsy latency` on these disks while `command` runs.
///
/// On some virtual machines the kernel now and then completes a softirq's batch of requests without running the program
/// on `block_rq_complete`, and counts no miss. biopsy must report that loss to the last I/O; then the measurement is
/// repeated.
#[track_caller]
pub fn during(disks: &[&Disk], options: &[&str], command: &[&str]) -> View {
    let mut words = [&["latency", "--json"], whole(options)].concat();
    disks.iter().for_each(|disk| words.extend(["-d", disk.name.as_str()]));
    words.extend(options);
    if !command.is_empty() {
        words.push("--");
        words.extend(command);
    }
    for _ in 1..ATTEMPTS {
        let view = once(disks, &words);
        let unseen = number(&view.json["lost"]["probes"]["latency"]["unseen_completion"]);
        if command.is_empty() || unseen == 0 {
            return view;
        }
        println!("again: the kernel kept {unseen} completions to itself");
        // Only the kernel knows an I/O whose issue was not seen either (a test may drop issues).
        let uncounted = number(&view.json["lost"]["probes"]["latency"]["uncounted"]);
        assert!(uncounted <= unseen, "{uncounted} I/Os left no trace");
        for disk in disks.iter().filter(|disk| disk.setting("iostats") == "1") {
            let device = view.device(disk);
            // With a filter, the kernel's counter includes the I/Os of other processes.
            if device["kernel_ios_min"].is_null() {
                continue;
            }
            let seen = number(&device["ios"]) + number(&device["lost_ios"]);
            let ios = view.stat(disk).ios();
            assert!((seen..=seen + uncounted).contains(&ios), "{ios}: {}", brief(device));
        }
    }
    once(disks, &words)
}

/// Runs `biopsy latency` while this process does `work`.
#[track_caller]
pub fn during_work(disk: &Disk, work: impl Fn()) -> View {
    during_work_with(disk, &[], work)
}

/// Same as [`during_work`], with more options.
#[track_caller]
pub fn during_work_with(disk: &Disk, options: &[&str], work: impl Fn()) -> View {
    for attempt in 1.. {
        let before = disk.stat();
        let child = begun(&mut tool::biopsy(
            &[&["latency", "--json", "-d", &disk.name], whole(options), options].concat(),
        ));
        work();
        tool::signal(&child, libc::SIGINT);
        let output = tool::finish(child);
        let stats = vec![(disk.name.clone(), disk.stat().since(before))];
        let view = View { json: tool::object(&output, "biopsy.latency/1"), output, stats };
        let unseen = number(&view.json["lost"]["probes"]["latency"]["unseen_completion"]);
        if unseen == 0 || attempt == ATTEMPTS {
            return view;
        }
        println!("again: the kernel kept {unseen} completions to itself");
    }
    unreachable!("it returns at the last attempt")
}

/// Follows each operation at any cost, unless the test has its own `--max-cost`.
fn whole(options: &[&str]) -> &'static [&'static str] {
    if options.contains(&"--max-cost") { &[] } else { &["--max-cost", "0"] }
}

#[track_caller]
fn once(disks: &[&Disk], words: &[&str]) -> View {
    let before: Vec<Stat> = disks.iter().map(|disk| disk.stat()).collect();
    let output = tool::run(words);
    let stats = disks.iter().zip(before).map(|(d, then)| (d.name.clone(), d.stat().since(then))).collect();
    View { json: tool::object(&output, "biopsy.latency/1"), output, stats }
}

/// Same as [`during`], with a shell's command line.
#[track_caller]
pub fn during_script(disks: &[&Disk], options: &[&str], script: &str) -> View {
    during(disks, options, &["sh", "-ec", script])
}

impl View {
    pub fn device(&self, disk: &Disk) -> &Value {
        device(&self.json, disk)
    }

    /// What the kernel counted on the disk from before the view until after it.
    pub fn stat(&self, disk: &Disk) -> Stat {
        self.stats.iter().find(|(name, _)| *name == disk.name).unwrap().1
    }

    /// Checks that all counts are equal (seen plus lost, and the kernel's, in total and per class), as every I/O lies
    /// in the window. Returns the device's row.
    #[track_caller]
    pub fn exact(&self, disk: &Disk) -> &Value {
        assert_eq!(self.json["lost"]["ios"], 0, "{}", self.json["lost"]);
        assert_eq!(self.output.status.code(), Some(0), "{}", tool::stderr(&self.output));
        assert_eq!(self.json["command_status"].as_u64().unwrap_or(0), 0, "{}", tool::stderr(&self.output));
        let (device, stat) = (self.device(disk), self.stat(disk));
        assert_eq!(device["kernel_check"], "ok", "{}", brief(device));
        assert_eq!(number(&device["ios"]), stat.ios(), "{stat:?} {}", brief(device));
        let classes = [
            ("read", stat.reads),
            ("write", stat.writes),
            ("discard", stat.discards),
            ("flush", stat.flushes),
        ];
        for (class, counted) in classes {
            let of_class = &device["kernel_ios"][class];
            for key in ["min", "max", "seen"] {
                assert_eq!(number(&of_class[key]), counted, "{key} of {class}: {stat:?} {}", brief(device));
            }
        }
        holds(device);
        every_bio_was_seen(&self.json);
        device
    }
}

/// Checks that the I/Os seen and lost lie between the kernel's bounds.
#[track_caller]
pub fn within_bounds(device: &Value) {
    let seen = number(&device["ios"]) + number(&device["lost_ios"]);
    let bounds = number(&device["kernel_ios_min"])..=number(&device["kernel_ios_max"]);
    assert!(bounds.contains(&seen), "{seen} is not in {bounds:?}: {}", brief(device));
}

/// Checks what must hold for the row of a device in every measurement.
#[track_caller]
pub fn holds(row: &Value) {
    let device = DeviceLatency::deserialize(row).unwrap();
    let broken = |why: String| panic!("{why}: {}", brief(row));
    // A flattened field is None, without an error, if one of its keys cannot be read.
    let has_operations = |op: &str| row["ops"][op].get("operations").is_some();
    let unread = device.ops.iter().find(|(op, of)| of.operations.is_some() != has_operations(op.name()));
    assert!(unread.is_none(), "{unread:?}: {}", brief(row));
    sums::counts_agree(&device).unwrap_or_else(broken);
    for (op, all) in device.ops.iter().filter_map(|(op, of)| Some((op, of.operations.as_ref()?))) {
        sums::add_up(all).unwrap_or_else(|why| broken(format!("{}: {why}", op.name())));
    }
    let operations = device.ops.values().filter_map(|of| of.operations.as_ref()).map(|all| all.operations);
    assert_eq!(operations.sum::<u64>(), device.operations.unwrap_or(0), "{}", brief(row));
    for (stage, hist) in device.ops.values().flat_map(|op| &op.request_stages) {
        // No test here runs longer; a stamp of another request would make a longer time.
        assert!(hist.max().is_none_or(|max| max < 20_000_000_000), "{}: {}", stage.name(), brief(row));
    }
}

/// Checks that each I/O with a bio has a queue stage, except those whose stamp was replaced by another one's, which are
/// counted and few.
#[track_caller]
fn every_bio_was_seen(view: &Value) {
    let mut without = 0;
    let mut all = 0;
    for device in view["devices"].as_array().unwrap() {
        for op in ["read", "write", "fua", "discard", "write_zeroes"] {
            let ios = device["ops"][op]["ios"].as_u64().unwrap_or(0);
            let queued = device["ops"][op]["request_stages"]["queue"]["count"].as_u64().unwrap_or(0);
            without += ios - queued;
            all += ios;
        }
    }
    assert_eq!(without, number(&view["lost"]["probes"]["latency"]["no_queue_start"]), "{}", view["lost"]);
    assert!(without * 1000 <= all, "{without} of {all} have no queue stage");
}

/// The row of a disk in a view.
#[track_caller]
pub fn device<'a>(view: &'a Value, disk: &Disk) -> &'a Value {
    let all = view["devices"].as_array().unwrap();
    all.iter().find(|device| device["name"] == disk.name.as_str()).unwrap_or_else(|| panic!("{view:#}"))
}

#[track_caller]
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// The result that the load generator wrote.
#[track_caller]
pub fn load(path: &std::path::Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Starts a command, and waits until it reports that its interval has begun.
#[track_caller]
pub fn begun(command: &mut Command) -> Child {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("biopsy-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut child = command.env("NOTIFY_SOCKET", format!("@{name}")).spawn().unwrap();
    let patience = Patience::new(Duration::from_secs(20));
    let mut said = [0; 64];
    loop {
        if let Ok(length) = socket.recv(&mut said) {
            assert_eq!(&said[..length], b"READY=1");
            return child;
        }
        if let Some(status) = child.try_wait().unwrap() {
            panic!("it ended before it began: {status}");
        }
        if patience.is_over() {
            // Only this test can end the command: probes that a failed test leaves attached slow down all later tests.
            tool::signal(&child, libc::SIGKILL);
            panic!("it does not begin");
        }
    }
}

/// The ids of the BPF programs, links and maps that a process holds.
pub fn ids(child: &Child) -> Vec<(&'static str, String)> {
    let directory = format!("/proc/{}/fdinfo", child.id());
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    files
        .filter_map(|file| {
            let text = std::fs::read_to_string(file.path()).ok()?;
            let id = |key: &str| Some(text.lines().find_map(|l| l.strip_prefix(key))?.trim().to_string());
            // The file of a link contains the id of its program too.
            id("link_id:")
                .map(|id| ("link", id))
                .or_else(|| id("prog_id:").map(|id| ("prog", id)))
                .or_else(|| id("map_id:").map(|id| ("map", id)))
        })
        .collect()
}

/// A device's row for a message, without the buckets, which are long.
pub fn brief(device: &Value) -> String {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.remove("buckets");
                map.values_mut().for_each(strip);
            }
            Value::Array(all) => all.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut device = device.clone();
    strip(&mut device);
    device.to_string()
}
