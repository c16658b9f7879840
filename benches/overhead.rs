//! Measures the cost of the probes per I/O, compared with `biolatency` of libbpf-tools, on a loop device over tmpfs.
//!
//! Every arm is attached in turn while one load runs without a pause. In each interval the kernel's program statistics
//! are on, and the empty program runs along with the arm. Two arms only read the clock on the events that the probes
//! stamp: the floor for any tool. Cost per I/O = Σ over the arm's programs of (run time − empty program's run time ×
//! runs) / I/Os, the same for all arms. The speed of a shared machine changes from minute to minute, so only ratios
//! within a round count.
//!
//! `$ROUNDS` sets the number of rounds, `$ARMS` selects arms (names, with commas). `$BIOLATENCY` names the peer;
//! without it on the machine, only biopsy's own arms are measured.

mod disk;

use std::collections::HashSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use biopsy::analyze::groups::{self, Dimension};
use biopsy::host::Host;
use biopsy::host::counters::Counters;
use biopsy::load::{self, Job, Permission, Target};
use biopsy::probe::cost::{self, Baseline, ClockReads};
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::{Options, Stages};
use biopsy::stats::median;
use disk::Loop;

const ROUNDS: usize = 12;
const WINDOW: Duration = Duration::from_millis(500);
/// Number of starts of each view.
const STARTS: usize = 9;
const SETTLE: Duration = Duration::from_millis(100);

/// The arms, which are measured in turn.
#[derive(Clone, Copy, PartialEq)]
enum ProbeSetup {
    AllStages,
    /// `--detail`.
    Parts,
    /// `--by process`.
    Groups,
    QueueAndDevice,
    DeviceOnly,
    Biolatency,
    /// The three events of biolatency with only a clock read each: the floor of queue + device.
    ThreeClocks,
    /// The floor of device alone.
    TwoClocks,
}

impl ProbeSetup {
    /// In the order of a round.
    const ALL: [Self; 8] = [
        Self::AllStages,
        Self::Parts,
        Self::Groups,
        Self::QueueAndDevice,
        Self::Biolatency,
        Self::ThreeClocks,
        Self::DeviceOnly,
        Self::TwoClocks,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::AllStages => "biopsy all stages",
            Self::Parts => "biopsy --detail",
            Self::Groups => "biopsy --by process",
            Self::QueueAndDevice => "biopsy queue+device",
            Self::DeviceOnly => "biopsy device",
            Self::Biolatency => "biolatency",
            Self::ThreeClocks => "three clock reads",
            Self::TwoClocks => "two clock reads",
        }
    }
}

/// An attached arm; dropping it detaches.
enum AttachedProbe {
    Ours(#[allow(dead_code, reason = "it is kept for its drop")] Box<LatencyProbe>),
    Peer(Child),
    Clocks(#[allow(dead_code, reason = "it is kept for its drop")] Box<ClockReads>),
}

impl Drop for AttachedProbe {
    fn drop(&mut self) {
        if let Self::Peer(child) = self {
            let _gone = child.kill();
            let _reaped = child.wait();
        }
    }
}

fn attach(arm: ProbeSetup, host: &Host, device: &str, peer: &str) -> Result<AttachedProbe> {
    if matches!(arm, ProbeSetup::ThreeClocks | ProbeSetup::TwoClocks) {
        return Ok(AttachedProbe::Clocks(Box::new(ClockReads::attach(arm == ProbeSetup::ThreeClocks)?)));
    }
    if arm == ProbeSetup::Biolatency {
        let child =
            Command::new(peer).args(["1000", "1"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        return Ok(AttachedProbe::Peer(child));
    }
    let options = Options {
        devices: vec![device.to_string()],
        stages: match arm {
            ProbeSetup::DeviceOnly => Stages::Device,
            ProbeSetup::AllStages | ProbeSetup::Parts | ProbeSetup::Groups => Stages::All,
            _ => Stages::QueueDevice,
        },
        parts: arm == ProbeSetup::Parts,
        group_by: (arm == ProbeSetup::Groups).then(|| groups::mask(&[Dimension::Process])),
        cost: false,
        ..Options::default()
    };
    Ok(AttachedProbe::Ours(Box::new(LatencyProbe::attach(host, Path::new("/"), &options)?)))
}

/// The cost in one interval, all in ns per I/O.
struct IntervalCost {
    net: f64,
    raw: f64,
    /// Net cost by program.
    programs: Vec<(String, f64)>,
}

impl IntervalCost {
    fn net_of(&self, program: &str) -> Option<f64> {
        self.programs.iter().find(|(name, _)| name == program).map(|(_, net)| *net)
    }
}

fn measure(
    arm: ProbeSetup,
    host: &Host,
    device: &str,
    peer: &str,
    baseline: &Baseline,
) -> Result<IntervalCost> {
    let before: HashSet<u32> = cost::all_programs().into_iter().map(|(id, ..)| id).collect();
    let attached = attach(arm, host, device, peer)?;
    // The peer takes a while to load; biopsy's probes are attached when the call returns.
    let wanted = match arm {
        ProbeSetup::DeviceOnly | ProbeSetup::TwoClocks => 2,
        _ => 1,
    };
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        thread::sleep(SETTLE);
        if cost::all_programs().iter().filter(|(id, ..)| !before.contains(id)).count() >= wanted {
            break;
        }
        ensure!(Instant::now() < deadline, "{} did not attach", arm.name());
    }
    thread::sleep(3 * SETTLE);
    let ios = || Ok::<u64, anyhow::Error>(Counters::read(Path::new("/"), device)?.ios());
    let counting = baseline.count().context("the kernel's program statistics need CAP_SYS_ADMIN")?;
    let (ios_before, empty_before) = (ios()?, baseline.stats().context("the empty program")?);
    let then = cost::all_programs();
    thread::sleep(WINDOW);
    let now = cost::all_programs();
    let (ios_after, empty_after) = (ios()?, baseline.stats().context("the empty program")?);
    drop(counting);
    drop(attached);

    let empty = (empty_after.run_ns - empty_before.run_ns) as f64
        / (empty_after.runs - empty_before.runs).max(1) as f64;
    let ios = (ios_after - ios_before) as f64;
    ensure!(ios > 1000.0, "only {ios} I/Os in a window: the load does not run");
    let (mut raw, mut programs) = (0.0, Vec::new());
    for (id, name, stats) in now.iter().filter(|(id, ..)| !before.contains(id)) {
        let Some((_, _, earlier)) = then.iter().find(|(i, ..)| i == id) else { continue };
        let (runs, ns) = ((stats.runs - earlier.runs) as f64, (stats.run_ns - earlier.run_ns) as f64);
        raw += ns / ios;
        if runs > 0.0 {
            programs.push((name.clone(), (ns - empty * runs) / ios));
        }
    }
    Ok(IntervalCost { net: programs.iter().map(|(_, net)| net).sum(), raw, programs })
}

/// Time from the start of the executable to the start of the run in ms, and its memory then in MiB: the cost of a view
/// before the first event.
fn weigh(device: &str, options: &[&str]) -> Result<(f64, f64)> {
    let script = "date +%s%N; sed -n 's/^VmRSS:[^0-9]*\\([0-9]*\\).*/\\1/p' /proc/$PPID/status";
    let (mut starts, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let begin = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as f64;
        let mut view = Command::new(env!("CARGO_BIN_EXE_biopsy"));
        view.args(["latency", "-d", device, "-o", "/dev/null"])
            .args(options)
            .args(["--", "sh", "-c", script]);
        let output = view.output()?;
        let said = String::from_utf8(output.stdout)?;
        let mut lines = said.lines();
        let mut number =
            || lines.next().and_then(|line| line.parse::<f64>().ok()).context("the view did not start");
        starts.push((number()? - begin) / 1e6);
        sizes.push(number()? / 1024.0);
    }
    Ok((median(&starts).unwrap_or(f64::NAN), median(&sizes).unwrap_or(f64::NAN)))
}

fn summary(values: &[f64]) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = median(&sorted).unwrap_or(f64::NAN);
    format!("{middle:8.3} ({:.3} to {:.3})", sorted[0], sorted[sorted.len() - 1])
}

fn main() -> Result<()> {
    let rounds = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(ROUNDS);
    let peer = std::env::var("BIOLATENCY").unwrap_or_else(|_| "biolatency".to_string());
    let has_peer = Command::new(&peer).arg("--help").output().is_ok();
    if !has_peer {
        println!("no biolatency here (Debian: apt-get install libbpf-tools): our own figures alone");
    }
    let wanted = std::env::var("ARMS").unwrap_or_default();
    let arms: Vec<ProbeSetup> = ProbeSetup::ALL
        .into_iter()
        .filter(|arm| has_peer || *arm != ProbeSetup::Biolatency)
        .filter(|arm| wanted.is_empty() || wanted.split(',').any(|w| w == arm.name()))
        .collect();
    let device = Loop::new()?;
    let host = Host::read(Path::new("/"))?;
    let Some(baseline) = Baseline::load() else { bail!("the kernel's program statistics need root") };
    // Loaded once before the first measurement: its id must not count as an arm's.
    let job = Job {
        runtime: Some(Duration::from_secs(3600)),
        ..Job::new(Target::Existing(device.0.clone().into()))
    };
    println!("{:<22} {:>12} {:>12}", "before the first I/O", "start, ms", "RSS, MiB");
    for options in [&[][..], &["--detail"], &["--by", "process"]] {
        let (start, size) = weigh(device.name(), options)?;
        println!("{:<22} {start:12.0} {size:12.1}", ["biopsy latency", &options.join(" ")].join(" "));
    }
    let stop = AtomicBool::new(false);
    let mut prepared = load::prepare(&[job], &Permission::default(), &stop, &|_| {})?;
    let results = thread::scope(|scope| {
        let load = scope.spawn(|| prepared.run_one(&stop, &|_| {}, &[]));
        let mut results: Vec<Vec<IntervalCost>> = arms.iter().map(|_| Vec::new()).collect();
        let measured = (0..rounds).try_for_each(|round| -> Result<()> {
            for turn in 0..arms.len() {
                let arm = (turn + round) % arms.len();
                results[arm].push(measure(arms[arm], &host, device.name(), &peer, &baseline)?);
            }
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        let load = load.join().map_err(|_| anyhow::anyhow!("the load panicked"))??;
        println!("{rounds} rounds, {:.0} IOPS on average", load.iops().unwrap_or(0.0));
        measured.map(|()| results)
    })?;
    println!("{:<22} {:>28}  {:>28}", "ns per I/O", "net, median (range)", "raw, median (range)");
    for (arm, values) in arms.iter().zip(&results) {
        let net: Vec<f64> = values.iter().map(|v| v.net).collect();
        let raw: Vec<f64> = values.iter().map(|v| v.raw).collect();
        println!("{:<22} {:>28}  {:>28}", arm.name(), summary(&net), summary(&raw));
        for (program, _) in &values[0].programs {
            let net: Vec<f64> = values.iter().filter_map(|v| v.net_of(program)).collect();
            println!("  {program:<20} {:>28}", summary(&net));
        }
    }
    if let Some(theirs) = arms.iter().position(|arm| *arm == ProbeSetup::Biolatency) {
        for (arm, values) in arms.iter().zip(&results).filter(|(arm, _)| **arm != ProbeSetup::Biolatency) {
            let ratios: Vec<f64> =
                values.iter().zip(&results[theirs]).map(|(v, peer)| v.net / peer.net).collect();
            println!("{:<22} {} of biolatency's net cost, round by round", arm.name(), summary(&ratios));
        }
    }
    Ok(())
}
