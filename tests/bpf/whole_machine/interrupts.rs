//! Tests `biopsy interrupts`: counts against the kernel's own, signals, and wrong arguments. Needs root.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command};

use crate::live::disk::Disk;
use crate::live::view::{begun, number};
use crate::support::scratch::Scratch;
use crate::support::skip::skipped;
use crate::support::tool::{biopsy, finish, object, objects, quiet, refused, run, signal, stderr};
use serde_json::Value;

const INTERRUPTS: &str = "biopsy.interrupts/1";

/// The disk below a folder, if its vectors are known by name: a disk of the machine, so that no test has to be given
/// one.
fn disk_below(folder: &Path) -> Option<String> {
    let device = File::open(folder).ok()?.metadata().ok()?.dev();
    let number = format!("{}:{}", libc::major(device), libc::minor(device));
    let link = std::fs::read_link(format!("/sys/dev/block/{number}")).ok()?;
    let part = Path::new("/sys/dev/block").join(link);
    let whole = if part.join("partition").exists() { part.parent()?.to_path_buf() } else { part };
    let name = whole.file_name()?.to_str()?.to_string();
    (name.starts_with("vd") || name.starts_with("nvme")).then_some(name)
}

fn sum(view: &Value, list: &str, key: &str) -> u64 {
    view[list].as_array().unwrap().iter().map(|one| one[key].as_u64().unwrap_or(0)).sum()
}

/// Keeps all CPUs busy at the lowest priority. On some virtual machines no program sees the interrupts that arrive at
/// an idle CPU, although the kernel counts them: those are lost, and counted as lost.
struct Busy(Vec<Child>);

impl Busy {
    fn new() -> Self {
        let spin = || {
            Command::new("nice")
                .args(["-n", "19", "timeout", "60", "sh", "-c", "while :; do :; done"])
                .spawn()
        };
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self((0..cpus).map(|_| spin().unwrap()).collect())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // `timeout` passes the signal on.
            signal(child, libc::SIGTERM);
            let _ended = child.wait();
        }
    }
}

/// The window lies around the load: each vector has as many interrupts as the kernel counted, each interrupt that
/// carried completions is in its histogram, and all I/Os are seen.
#[test]
fn interrupts_are_the_kernels_own_count() {
    let scratch = Scratch::new("interrupts");
    let Some(disk) = disk_below(scratch.path()) else {
        skipped("the folder for scratch files lies on no virtio or NVMe disk");
        return;
    };
    let _busy = Busy::new();
    let folder = scratch.path().to_str().unwrap();
    let load = ["load", folder, "--scratch", "--size", "64m", "--iodepth", "16", "--runtime", "1s"];
    for attempt in 0.. {
        let words =
            ["interrupts", "-d", &disk, "--max-loss", "100", "--json", "--", env!("CARGO_BIN_EXE_biopsy")];
        let view = object(&run(&[&words[..], &load].concat()), INTERRUPTS);
        assert_eq!(view["command_status"], 0);
        let device = &view["devices"][0];
        assert_eq!(device["name"], disk.as_str());
        let (ios, lost) = (number(&device["ios"]), number(&view["lost"]["ios"]));
        assert!(ios > 100, "{view}");
        // The kernel does not count the driver's own commands; virtio_blk reads the serial number by one.
        let counted = ios - number(&device["passthrough"]);
        let min = number(&device["kernel_ios_min"]);
        assert!(
            counted <= number(&device["kernel_ios_max"]) && lost == min.saturating_sub(counted),
            "{view}"
        );
        for vector in view["vectors"].as_array().unwrap() {
            let interrupts = number(&vector["interrupts"]);
            assert!(interrupts <= number(&vector["kernel_interrupts_max"]), "{vector}");
            let timed = number(&vector["handler"]["count"]);
            assert!(timed <= interrupts && (timed > 0 || interrupts < 64), "{vector}");
            let each = &vector["completions_per_interrupt"];
            if !each.is_null() {
                assert_eq!((&each["count"], &each["sum"]), (&vector["interrupts"], &vector["completions"]));
            }
        }
        let parts: u64 = device["completed"].as_object().unwrap().values().map(number).sum();
        assert_eq!(parts, ios);
        assert_eq!(sum(&view, "vectors", "completions") + number(&device["reaped_elsewhere"]), ios, "{view}");
        if lost == 0 && view["lost"]["events"] == 0 {
            return;
        }
        // If such a machine hides some interrupts in every run, only the counts of lost events can be checked, as
        // above.
        assert!(lost * 20 < ios, "{lost} of {ios} I/Os were not seen");
        if attempt == 8 {
            println!("each of {attempt} runs lost something, and said so: {}", view["lost"]);
            return;
        }
    }
}

/// A loop device has no vector: the view says so, and still counts its I/Os.
#[test]
fn a_device_without_vectors_has_none() {
    let Some(disk) = Disk::new(16) else { return };
    let path = format!("/dev/{}", disk.name);
    let load = ["load", &path, "--no-drive-check", "--runtime", "500ms"];
    let words =
        ["interrupts", "-d", &disk.name, "--max-loss", "100", "--json", "--", env!("CARGO_BIN_EXE_biopsy")];
    let view = object(&run(&[&words[..], &load].concat()), INTERRUPTS);
    let device = &view["devices"][0];
    assert!(device["ios"].as_u64().unwrap() > 100 && device.get("interrupts").is_none(), "{view}");
    assert_eq!((&view["vectors"], &view["posted_msi"]), (&serde_json::json!([]), &Value::Null));
    let gap = view["missing"].as_array().unwrap().iter().find(|gap| gap["reason"] == "no-vector");
    assert_eq!(gap.unwrap()["device"], disk.name.as_str());
}

#[test]
fn intervals_and_signals_end_as_in_every_view() {
    let Some(disk) = Disk::new(16) else { return };
    let pieces = objects(&run(&["interrupts", "-d", &disk.name, "--json", "0.2", "3"]), INTERRUPTS);
    assert_eq!(pieces.len(), 3);
    let child = begun(&mut biopsy(&["interrupts", "-d", &disk.name, "--all"]));
    signal(&child, libc::SIGINT);
    let output = finish(child);
    quiet(&output);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&disk.name) && text.contains("has no interrupt vector"), "{text}");
}

#[test]
fn what_cannot_be_is_refused_with_a_sentence() {
    refused(&run(&["interrupts", "-d", "nosuch", "--for", "1s"]), 3, &["nosuch"]);
    for words in [&["--time-every", "0"][..], &["--for", "x"], &["-1"]] {
        let output = run(&[&["interrupts"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
    }
}
