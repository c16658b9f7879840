//! What `perf` says of the same load at the same time. Root, and perf.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::live::disk::Disk;
use crate::support::skip::skipped;
use crate::support::tool::{binary, object, run};

/// Removed with the test.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

/// Samples of the load's threads by the function that they fell into; user mode is one, of which the two have different
/// names where functions are inlined.
type Leaves = BTreeMap<String, f64>;

const USER: &str = "(user)";

/// What interrupts do stands by itself here, and with whom they came into there.
fn is_interrupt(function: &str) -> bool {
    let entry = function.trim_start_matches("asm_").trim_start_matches('_');
    entry.starts_with("common_interrupt")
        || entry.starts_with("sysvec_")
        || function.contains("handle_softirqs")
        || function.contains("do_softirq")
}

/// Blocks of `perf script`: the thread's name, then a frame a line, leaf first.
fn of_perf(text: &str) -> Leaves {
    let mut leaves = Leaves::new();
    for block in text.split("\n\n") {
        let mut lines = block.lines().filter(|line| !line.trim().is_empty());
        if !lines.next().is_some_and(|comm| comm.trim().starts_with("load-")) {
            continue;
        }
        let frames: Vec<(&str, &str)> = lines.filter_map(|line| line.trim().split_once(' ')).collect();
        let Some((address, leaf)) = frames.first() else { continue };
        if frames.iter().any(|(_, function)| is_interrupt(function)) {
            continue;
        }
        // Of 64 bits, the first set: the kernel's half.
        let in_kernel = address.len() == 16 && address.starts_with('f');
        *leaves.entry(if in_kernel { leaf.to_string() } else { USER.to_string() }).or_default() += 1.0;
    }
    leaves
}

fn of_folded(text: &str) -> Leaves {
    let mut leaves = Leaves::new();
    for line in text.lines().filter(|line| line.starts_with("load-")) {
        let (stack, samples) = line.rsplit_once(' ').unwrap();
        let leaf = stack.rsplit(';').next().unwrap();
        let name = leaf.strip_suffix("_[k]").unwrap_or(USER);
        *leaves.entry(name.to_string()).or_default() += samples.parse::<f64>().unwrap();
    }
    leaves
}

/// Both sample the same threads by clocks of their own. Of the twenty functions in which perf has most samples each has
/// the same share here, as far as chance allows.
#[test]
fn functions_have_the_shares_that_perf_gives_them() {
    let Some(disk) = Disk::new(64) else { return };
    if !Command::new("perf").arg("--version").output().is_ok_and(|output| output.status.success()) {
        skipped("perf is not installed");
        return;
    }
    let scratch =
        Scratch(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("perf-{}", std::process::id())));
    fs::create_dir_all(&scratch.0).unwrap();
    let (data, out) = (scratch.0.join("perf.data"), scratch.0.join("out.folded"));
    // The sampler takes cycles where the processor counts them, and both must see the same.
    let event = if fs::exists("/sys/bus/event_source/devices/cpu").unwrap() { "cycles" } else { "cpu-clock" };
    let record = ["record", "-q", "-a", "-g", "-e", event, "-F", "997", "-o", data.to_str().unwrap(), "--"];
    let load = [
        "load",
        disk.path.as_str(),
        "--ioengine",
        "psync",
        "--numjobs",
        "2",
        "--runtime",
        "5s",
        "--no-drive-check",
    ];
    let flame = [
        "flame",
        "--folded",
        "--json",
        // Two clocks of one rate keep their distance for the whole run, and meet the load in another phase each: two perfs
        // side by side differed by 4 points of 40.
        "-F",
        "1009",
        "--max-loss",
        "5",
        "-o",
        out.to_str().unwrap(),
        "--",
        "perf",
    ];
    let view = object(&run(&[&flame[..], &record, &[binary()], &load].concat()), "biopsy.flame/1");
    assert_eq!(view["command_status"], 0, "{view}");
    let script = ["script", "--no-inline", "-F", "comm,ip,sym", "-i", data.to_str().unwrap()];
    let script = Command::new("perf").args(script).output().unwrap();
    assert!(script.status.success(), "{}", String::from_utf8_lossy(&script.stderr));

    let theirs = of_perf(&String::from_utf8_lossy(&script.stdout));
    let ours = of_folded(&fs::read_to_string(&out).unwrap());
    let [all_of_theirs, all_of_ours] = [&theirs, &ours].map(|leaves| leaves.values().sum::<f64>());
    assert!(all_of_theirs > 300.0 && all_of_ours > 300.0, "{all_of_theirs} and {all_of_ours} samples");
    let mut most: Vec<(&String, f64)> = theirs.iter().map(|(name, n)| (name, *n)).collect();
    most.sort_by(|a, b| b.1.total_cmp(&a.1));
    assert!(most.len() >= 20, "{} functions", most.len());
    for (name, samples) in most.into_iter().take(20) {
        let own = ours.get(name).copied().unwrap_or(0.0);
        let pooled = (samples + own) / (all_of_theirs + all_of_ours);
        let error = (pooled * (1.0 - pooled) * (1.0 / all_of_theirs + 1.0 / all_of_ours)).sqrt();
        let [there, here] = [samples / all_of_theirs, own / all_of_ours];
        println!(
            "{name}: {:.2} % there, {:.2} % here, {:.1} errors",
            100.0 * there,
            100.0 * here,
            (here - there) / error
        );
        // Twenty comparisons, of samples that are not independent; and each sampler sees a little of the other.
        assert!((here - there).abs() < 5.0 * error + 0.01, "{name}: {there} there, {here} here");
    }
}
