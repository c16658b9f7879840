//! Compares the profile of `biopsy flame` with that of `perf` for the same load at the same time. Needs root and perf.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::live::disk::Disk;
use crate::support::skip::skipped;
use crate::support::tool::{binary, object, run};

/// A temporary folder that is removed with the test.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

/// Samples of the load's threads by leaf function. User mode counts as one function, since biopsy and perf name inlined
/// functions differently.
type Leaves = BTreeMap<String, f64>;

const USER: &str = "(user)";

/// biopsy shows interrupts separately; perf shows them in the thread that they interrupted.
fn is_interrupt(function: &str) -> bool {
    let entry = function.trim_start_matches("asm_").trim_start_matches('_');
    entry.starts_with("common_interrupt")
        || entry.starts_with("sysvec_")
        || function.contains("handle_softirqs")
        || function.contains("do_softirq")
}

/// Parses `perf script`: in each block the name of the thread, then one frame per line, leaf first.
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
        // Of the 64 bits the first is set: an address of the kernel's half.
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

/// Samplers of the same threads, each with a clock of its own. In a few seconds such clocks meet a load in different
/// phases: two runs of perf differ by up to 5 points of 40, and more on a busy machine. Two of them run here. Each of
/// the twenty functions with most samples must have the same share in biopsy, within the difference of the two and the
/// statistical error.
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
    let file = |name: &str| scratch.0.join(name).to_str().unwrap().to_string();
    let (first, second, out) = (file("first.data"), file("second.data"), file("out.folded"));
    // biopsy samples cycles if the processor counts them; all must use the same event.
    let event = if fs::exists("/sys/bus/event_source/devices/cpu").unwrap() { "cycles" } else { "cpu-clock" };
    let record = |frequency: &'static str, data: &str| -> Vec<String> {
        let words = ["perf", "record", "-q", "-a", "-g", "-e", event, "-F", frequency, "-o", data, "--"];
        words.map(str::to_string).to_vec()
    };
    let load =
        ["load", &disk.path, "--ioengine", "psync", "--numjobs", "2", "--runtime", "5s", "--no-drive-check"];
    // Clocks of the same rate would stay in the same phase for the whole run.
    let flame = ["flame", "--folded", "--json", "-F", "1009", "--max-loss", "5", "-o", &out, "--"];
    let words = [
        flame.map(str::to_string).to_vec(),
        record("997", &first),
        record("1019", &second),
        vec![binary().to_string()],
        load.map(str::to_string).to_vec(),
    ]
    .concat();
    let view = object(&run(&words.iter().map(String::as_str).collect::<Vec<_>>()), "biopsy.flame/1");
    assert_eq!(view["command_status"], 0, "{view}");
    let script = |data: &str| {
        let script = ["script", "--no-inline", "-F", "comm,ip,sym", "-i", data];
        let script = Command::new("perf").args(script).output().unwrap();
        assert!(script.status.success(), "{}", String::from_utf8_lossy(&script.stderr));
        of_perf(&String::from_utf8_lossy(&script.stdout))
    };

    let ours = of_folded(&fs::read_to_string(&out).unwrap());
    let samplers = [script(&first), script(&second), ours];
    let all = samplers.each_ref().map(|leaves| leaves.values().sum::<f64>());
    assert!(all.iter().all(|samples| *samples > 300.0), "{all:?} samples");
    let samples = |sampler: usize, name: &str| samplers[sampler].get(name).copied().unwrap_or(0.0);
    let mut most: Vec<&String> = samplers[0].keys().collect();
    most.sort_by(|a, b| samples(0, b).total_cmp(&samples(0, a)));
    assert!(most.len() >= 20, "{} functions", most.len());
    most.truncate(20);
    let shares = |name: &str| [0, 1, 2].map(|sampler| samples(sampler, name) / all[sampler]);
    // What one function has too much, others have too little: so the largest difference is used for all.
    let apart =
        most.iter().map(|name| shares(name)).map(|[one, other, _]| (one - other).abs()).fold(0.0, f64::max);
    for name in most {
        let [one, other, here] = shares(name);
        let between = (one + other) / 2.0;
        let pooled = (0..3).map(|sampler| samples(sampler, name)).sum::<f64>() / all.iter().sum::<f64>();
        let error = (pooled * (1.0 - pooled) * (1.0 / (all[0] + all[1]) + 1.0 / all[2])).sqrt();
        println!("{name}: {one:.4} and {other:.4} there, {here:.4} here, error {error:.4}, apart {apart:.4}");
        // Twenty comparisons of samples that are not independent; each sampler also sees a little of the others.
        let most = 5.0 * error + 0.01 + apart;
        assert!((here - between).abs() < most, "{name}: {one} and {other} there, {here} here");
    }
}
