//! Compares the load generator with the fastest one (`t/io_uring` of fio's repository) and with fio: I/Os per second
//! and CPU time per I/O, with the same settings: one thread on the last CPU, 4 KiB random reads, 32 in flight, batches
//! of 32, registered file and buffers, no polling.
//!
//! `$T_IO_URING` and `$FIO` name the peers, `$BIOPSY` another build of biopsy; a peer that is not set is left out.
//! `$DEVICES` selects among loop (a file in memory below a loop device, whose worker has CPU 0 to itself), zram (which
//! cannot be read without blocking, so io_uring's own worker threads read it, on the CPU of the generator) and nop
//! (requests without I/O). `$SLICES` sets the number of rounds of one-second slices. `$COMPLETE_MIN` sets the number of
//! completions to wait for at once: the generators differ little if that is equal, and each generator differs more
//! between 1 and 32.
//!
//! For nop, both have the kernel look up the registered file and buffer with each request. The differences:
//! `t/io_uring` draws no offset, sets no request number and takes no latency, even with `-t1`; it has the kernel put
//! the number of bytes into the result, where biopsy has zero. Its ring is the same as for reads, without the flags
//! that biopsy sets (SINGLE_ISSUER, DEFER_TASKRUN, NO_SQARRAY). Before Linux 6.13 the nop of `t/io_uring` does not
//! work.
//!
//! Every arm runs once per round; each round starts with another arm, and every second round goes backwards. Rates come
//! from the kernel's counter within the slice; for nop, from the generators. User time is that of the driving thread,
//! as the tool reports it (`t/io_uring` reports none: there it is that of its process, which does nothing else). System
//! time is that of the process from start to end, with io_uring's workers. Ratios are taken round by round. The targets
//! are those of the project; a target is met if the whole 95 % confidence interval of the median meets it.

mod disk;
mod workers;
mod zram;

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use biopsy::host::counters::Counters;
use biopsy::stats::{median, median_interval};
use disk::Loop;
use serde_json::Value;
use workers::OnFirstCpu;
use zram::Zram;

const SLICES: usize = 30;
const SLICE: Duration = Duration::from_secs(1);
/// Time from the first I/O to the slice.
const SETTLE: Duration = Duration::from_millis(100);
/// `t/io_uring` takes and prints latencies only from its second second on.
const SETTLE_STATS: Duration = Duration::from_millis(1_100);
/// Time limit for a generator to start.
const START: Duration = Duration::from_secs(10);
/// Longer than any measurement: a generator that is not stopped ends after this time.
const RUNTIME_S: &str = "20";
const DEPTH: &str = "32";

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_signal: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// `main` restores all changes when it returns, so signals only request its end.
fn stop_on_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler touches an atomic and nothing else.
        unsafe { libc::signal(signal, on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    }
}

/// Sleeps, but returns early on a signal.
fn pause(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        ensure!(!STOP.load(Ordering::Relaxed), "interrupted");
        thread::sleep(left.min(Duration::from_millis(20)));
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tool {
    Biopsy,
    Raw,
    Fio,
}

/// A configuration, which is measured in turn with the others.
#[derive(Clone, Copy, PartialEq, Eq)]
struct GeneratorSetup {
    tool: Tool,
    /// Whether each latency is measured.
    latencies: bool,
}

const OURS: GeneratorSetup = GeneratorSetup { tool: Tool::Biopsy, latencies: false };
const OURS_TIMED: GeneratorSetup = GeneratorSetup { tool: Tool::Biopsy, latencies: true };
const RAW: GeneratorSetup = GeneratorSetup { tool: Tool::Raw, latencies: false };
const RAW_TIMED: GeneratorSetup = GeneratorSetup { tool: Tool::Raw, latencies: true };
const FIO: GeneratorSetup = GeneratorSetup { tool: Tool::Fio, latencies: false };
const FIO_TIMED: GeneratorSetup = GeneratorSetup { tool: Tool::Fio, latencies: true };
const ARMS: [GeneratorSetup; 6] = [OURS, RAW, FIO_TIMED, OURS_TIMED, RAW_TIMED, FIO];

impl GeneratorSetup {
    fn name(self) -> &'static str {
        match (self.tool, self.latencies) {
            (Tool::Biopsy, false) => "biopsy, no latencies",
            (Tool::Biopsy, true) => "biopsy",
            (Tool::Raw, false) => "t/io_uring",
            (Tool::Raw, true) => "t/io_uring -t1",
            (Tool::Fio, false) => "fio gtod_reduce=1",
            (Tool::Fio, true) => "fio",
        }
    }

    fn settle(self) -> Duration {
        if self.tool == Tool::Raw && self.latencies { SETTLE_STATS } else { SETTLE }
    }
}

/// The device that the generators read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Medium {
    Loop,
    Zram,
    Nop,
}

impl Medium {
    const ALL: [Self; 3] = [Self::Loop, Self::Zram, Self::Nop];

    fn name(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Zram => "zram",
            Self::Nop => "nop",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SliceFigure {
    Rate,
    User,
}

/// The target ratio of biopsy's figure to a peer's.
#[derive(Clone, Copy)]
enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// The ratio is shown without a target.
    None,
}

/// The figure, biopsy's arm, the peer's arm, and the target.
fn comparisons(medium: Medium) -> Vec<(SliceFigure, GeneratorSetup, GeneratorSetup, Goal)> {
    let mut all = vec![
        (SliceFigure::Rate, OURS, RAW, Goal::AtLeast(0.97)),
        (SliceFigure::Rate, OURS_TIMED, RAW, Goal::AtLeast(0.94)),
        (SliceFigure::Rate, OURS_TIMED, RAW_TIMED, Goal::None),
        (SliceFigure::User, OURS, RAW, Goal::None),
        (SliceFigure::User, OURS_TIMED, RAW_TIMED, Goal::None),
    ];
    let faster = match medium {
        Medium::Loop => 1.0,
        Medium::Zram => 1.3,
        Medium::Nop => return all,
    };
    all.extend([
        (SliceFigure::Rate, OURS_TIMED, FIO_TIMED, Goal::AtLeast(faster)),
        (SliceFigure::Rate, OURS, FIO, Goal::None),
        (SliceFigure::User, OURS_TIMED, FIO_TIMED, Goal::AtMost(0.5)),
        (SliceFigure::User, OURS, FIO, Goal::None),
    ]);
    all
}

/// The paths of the generators and their common settings.
struct Bench {
    biopsy: String,
    raw: Option<String>,
    fio: Option<String>,
    /// The CPU on which the generator runs.
    cpu: usize,
    complete_min: u32,
}

impl Bench {
    fn path(&self, tool: Tool) -> Option<&str> {
        match tool {
            Tool::Biopsy => Some(&self.biopsy),
            Tool::Raw => self.raw.as_deref(),
            Tool::Fio => self.fio.as_deref(),
        }
    }

    fn command(&self, arm: GeneratorSetup, name: &str, nop: bool) -> Result<Command> {
        let device = format!("/dev/{name}");
        let path = self.path(arm.tool).context("an arm without a tool")?;
        let complete_min = self.complete_min;
        let mut command = Command::new("taskset");
        command.args(["-c", &self.cpu.to_string(), path]);
        match arm.tool {
            Tool::Biopsy => {
                let length = if nop { "1s".to_string() } else { format!("{RUNTIME_S}s") };
                command.args(["load", &device, "--rw=randread", "--bs=4k", "--json", "--runtime", &length]);
                command.args(["--iodepth", DEPTH, "--iodepth_batch", DEPTH]);
                command.args(["--iodepth_batch_complete_min", &complete_min.to_string()]);
                command.args(["--timestamps", if arm.latencies { "every" } else { "off" }]);
                command.args(nop.then_some("--nop"));
            }
            Tool::Raw => {
                command.args(["-b4096", "-p0", "-B1", "-F1", "-R1", "-X1", "-n1"]);
                command.args([format!("-d{DEPTH}"), format!("-s{DEPTH}"), format!("-c{complete_min}")]);
                command.args([format!("-t{}", u8::from(arm.latencies)), format!("-N{}", u8::from(nop))]);
                command.args([format!("-r{RUNTIME_S}"), device]);
            }
            Tool::Fio => {
                command.args(["--name=load", "--rw=randread", "--bs=4k", "--direct=1", "--norandommap"]);
                command.args(["--ioengine=io_uring", "--registerfiles", "--fixedbufs", "--thread"]);
                command.args([format!("--iodepth={DEPTH}"), format!("--iodepth_batch={DEPTH}")]);
                command.args([format!("--iodepth_batch_complete_min={complete_min}")]);
                command.args([format!("--filename={device}"), format!("--runtime={RUNTIME_S}")]);
                command.args(["--time_based", "--output-format=json"]);
                command.args((!arm.latencies).then_some("--gtod_reduce=1"));
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }
}

/// A running generator; dropping it kills and reaps it.
struct Running(Option<Child>);

/// Output, exit status and CPU time of a generator.
struct GeneratorOutput {
    said: String,
    complained: String,
    succeeded: bool,
    user_ns: f64,
    system_ns: f64,
}

impl Running {
    /// Requests the end if `ask` is set, and waits.
    fn end(mut self, ask: bool) -> Result<GeneratorOutput> {
        let mut child = self.0.take().context("a generator that has ended")?;
        let pid = child.id() as libc::pid_t;
        if ask {
            // SAFETY: the child was not waited for, so the process id is still its own.
            unsafe { libc::kill(pid, libc::SIGINT) };
        }
        // Both are far shorter than the buffer of a pipe, so neither blocks the generator.
        let (mut said, mut complained) = (String::new(), String::new());
        child.stdout.take().context("stdout")?.read_to_string(&mut said)?;
        child.stderr.take().context("stderr")?.read_to_string(&mut complained)?;
        let mut status = 0;
        // SAFETY: zero is a value of each of its integers, and the call only writes to the two places.
        let (waited, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            loop {
                let waited = libc::wait4(pid, &raw mut status, 0, &raw mut usage);
                if waited == pid || std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                    break (waited, usage);
                }
            }
        };
        ensure!(waited == pid, "a generator got lost: {}", std::io::Error::last_os_error());
        let ns = |time: libc::timeval| time.tv_sec as f64 * 1e9 + time.tv_usec as f64 * 1e3;
        Ok(GeneratorOutput {
            said,
            complained,
            succeeded: status == 0,
            user_ns: ns(usage.ru_utime),
            system_ns: ns(usage.ru_stime),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _gone = child.kill();
            let _reaped = child.wait();
        }
    }
}

/// The figures of one slice.
#[derive(Clone, Copy)]
struct SliceFigures {
    iops: f64,
    /// Per I/O.
    user_ns: f64,
    system_ns: f64,
    /// None if the tool does not report it.
    ios_per_call: Option<f64>,
}

/// The figures that a tool reports itself.
struct Own {
    iops: f64,
    ios_per_call: Option<f64>,
    /// Per I/O, of the driving thread; None if the tool does not report it.
    user_ns: Option<f64>,
}

/// Parses `IOPS=1.07M, BW=4.18GiB/s, IOS/call=32/32`, of its last whole second.
fn own_of_raw(said: &str) -> Option<Own> {
    let line = said.lines().rfind(|line| line.starts_with("IOPS="))?;
    let field = |name: &str| line.split(", ").find_map(|field| field.strip_prefix(name));
    let rate = field("IOPS=")?;
    let (digits, factor) = match rate.strip_suffix('M') {
        Some(digits) => (digits, 1e6),
        None => rate.strip_suffix('K').map_or((rate, 1.0), |digits| (digits, 1e3)),
    };
    Some(Own {
        iops: digits.parse::<f64>().ok()? * factor,
        ios_per_call: field("IOS/call=")?.split('/').next()?.parse().ok(),
        user_ns: None,
    })
}

fn own_of_fio(said: &str) -> Option<Own> {
    // Notes may precede the object.
    let result: Value = serde_json::from_str(&said[said.find('{')?..]).ok()?;
    let job = &result["jobs"][0];
    let user_ns = job["usr_cpu"].as_f64()? / 100.0 * job["job_runtime"].as_f64()? * 1e6;
    let ios = job["read"]["total_ios"].as_f64()?;
    Some(Own { iops: job["read"]["iops"].as_f64()?, ios_per_call: None, user_ns: Some(user_ns / ios) })
}

fn own_of_biopsy(said: &str) -> Option<Own> {
    let result: Value = serde_json::from_str(said).ok()?;
    let user_ns: f64 = result["jobs"].as_array()?.iter().filter_map(|job| job["user_ns"].as_f64()).sum();
    Some(Own {
        iops: result["iops"].as_f64()?,
        ios_per_call: result["ios_per_submit"].as_f64(),
        user_ns: Some(user_ns / result["ios"].as_f64()?),
    })
}

impl GeneratorSetup {
    fn own(self, ended: &GeneratorOutput) -> Result<Own> {
        let own = match self.tool {
            Tool::Biopsy => own_of_biopsy(&ended.said),
            Tool::Raw => own_of_raw(&ended.said),
            Tool::Fio => own_of_fio(&ended.said),
        };
        let own = own.filter(|own| own.iops > 0.0);
        own.with_context(|| format!("{} gave no result: {}", self.name(), first_line(&ended.complained)))
    }
}

fn first_line(text: &str) -> &str {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing")
}

/// I/Os of the device so far; merged reads count too.
fn ios(name: &str) -> Result<u64> {
    let counters = Counters::read(Path::new("/"), name)?;
    Ok(counters.reads + counters.read_merges)
}

/// Measures requests that reach a device: the kernel's counter gives their number.
fn slice(bench: &Bench, arm: GeneratorSetup, name: &str) -> Result<SliceFigures> {
    let before = ios(name)?;
    let mut running = Running(Some(bench.command(arm, name, false)?.spawn()?));
    let deadline = Instant::now() + START;
    // Other processes may read the first blocks when the device is opened.
    while ios(name)? < before + 1_000 {
        let over = running.0.as_mut().is_none_or(|child| child.try_wait().is_ok_and(|end| end.is_some()));
        if over || Instant::now() > deadline {
            let ended = running.end_early()?;
            bail!("{}", first_line(&ended));
        }
        pause(Duration::from_millis(1))?;
    }
    pause(arm.settle())?;
    let (ios_begin, begin) = (ios(name)?, Instant::now());
    pause(SLICE)?;
    let (ios_end, seconds) = (ios(name)?, begin.elapsed().as_secs_f64());
    let ended = running.end(true)?;
    // fio reports an interrupt as a failure.
    let succeeded = ended.succeeded || arm.tool == Tool::Fio;
    ensure!(succeeded, "{} failed: {}", arm.name(), first_line(&ended.complained));
    let all = (ios(name)? - before) as f64;
    let own = arm.own(&ended)?;
    Ok(SliceFigures {
        iops: (ios_end - ios_begin) as f64 / seconds,
        user_ns: own.user_ns.unwrap_or(ended.user_ns / all),
        system_ns: ended.system_ns / all,
        ios_per_call: own.ios_per_call,
    })
}

/// Measures requests that reach no device: the generators count them, and they keep one CPU busy all the time.
fn slice_of_nothing(bench: &Bench, arm: GeneratorSetup, name: &str) -> Result<SliceFigures> {
    let running = Running(Some(bench.command(arm, name, true)?.spawn()?));
    if arm.tool == Tool::Raw {
        pause(SLICE + arm.settle() + SETTLE)?;
    }
    let ended = running.end(arm.tool == Tool::Raw)?;
    ensure!(ended.succeeded, "{}", first_line(&ended.complained));
    let own = arm.own(&ended)?;
    let busy_ns = ended.user_ns + ended.system_ns;
    let per_io = |ns: f64| ns / busy_ns * 1e9 / own.iops;
    Ok(SliceFigures {
        iops: own.iops,
        user_ns: own.user_ns.unwrap_or_else(|| per_io(ended.user_ns)),
        system_ns: per_io(ended.system_ns),
        ios_per_call: own.ios_per_call,
    })
}

impl Running {
    /// Kills a generator that did not start, and returns its error output.
    fn end_early(mut self) -> Result<String> {
        let mut child = self.0.take().context("a generator that has ended")?;
        let _gone = child.kill();
        let output = child.wait_with_output()?;
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn measure(bench: &Bench, medium: Medium, name: &str, rounds: usize) -> Result<()> {
    let slice = |arm| match medium {
        Medium::Nop => slice_of_nothing(bench, arm, name),
        _ => slice(bench, arm, name),
    };
    println!("\n{}, {rounds} slices of each, {} waited for", medium.name(), bench.complete_min);
    // Run each arm once without counting: it loads files and code into memory, and shows which arms are unavailable.
    let mut arms = Vec::new();
    for arm in ARMS.into_iter().filter(|arm| bench.path(arm.tool).is_some()) {
        if medium == Medium::Nop && arm.tool == Tool::Fio {
            continue;
        }
        match slice(arm) {
            Ok(_) => arms.push(arm),
            Err(e) if STOP.load(Ordering::Relaxed) => return Err(e),
            Err(e) => println!("{}: not available: {e:#}", arm.name()),
        }
    }
    let mut samples: Vec<Vec<SliceFigures>> = arms.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..rounds {
        for turn in 0..arms.len() {
            let turn = (turn + round) % arms.len();
            let arm = if round % 2 == 0 { turn } else { arms.len() - 1 - turn };
            samples[arm].push(slice(arms[arm])?);
        }
    }
    let middle = |values: &[SliceFigures], of: fn(&SliceFigures) -> f64| {
        median(&values.iter().map(of).collect::<Vec<f64>>()).unwrap_or(f64::NAN)
    };
    println!(
        "{:<22} {:>12} {:>12} {:>14} {:>9}",
        "medians", "IOPS", "user ns/I/O", "system ns/I/O", "IOS/call"
    );
    for (arm, values) in arms.iter().zip(&samples) {
        let calls: Option<Vec<f64>> = values.iter().map(|v| v.ios_per_call).collect();
        println!(
            "{:<22} {:12.0} {:12.1} {:14.1} {:>9}",
            arm.name(),
            middle(values, |v| v.iops),
            middle(values, |v| v.user_ns),
            middle(values, |v| v.system_ns),
            calls.map_or("-".to_string(), |calls| format!("{:.1}", median(&calls).unwrap_or(f64::NAN)))
        );
    }
    for (figure, ours, peer, goal) in comparisons(medium) {
        let place = |arm| arms.iter().position(|a| *a == arm);
        let (Some(ours), Some(peer)) = (place(ours), place(peer)) else { continue };
        let of =
            |sample: &SliceFigures| if figure == SliceFigure::Rate { sample.iops } else { sample.user_ns };
        let ratios: Vec<f64> = samples[ours].iter().zip(&samples[peer]).map(|(a, b)| of(a) / of(b)).collect();
        let middle = median(&ratios).unwrap_or(f64::NAN);
        let (low, high) = median_interval(&ratios).unwrap_or((f64::NAN, f64::NAN));
        let verdict = match goal {
            Goal::AtLeast(goal) => format!("at least {goal}: {}", if low >= goal { "met" } else { "missed" }),
            Goal::AtMost(goal) => format!("at most {goal}: {}", if high <= goal { "met" } else { "missed" }),
            Goal::None => String::new(),
        };
        println!(
            "{:<9} {:<21} / {:<18} {middle:6.3} ({low:.3} to {high:.3})  {verdict}",
            if figure == SliceFigure::Rate { "IOPS" } else { "user time" },
            arms[ours].name(),
            arms[peer].name()
        );
    }
    Ok(())
}

/// The peer that an environment variable names, if it runs.
fn peer(variable: &str) -> Option<String> {
    let path = std::env::var(variable).ok().filter(|path| !path.is_empty());
    let Some(path) = path else {
        println!("{variable} is not set: that peer is left out");
        return None;
    };
    let runs = Command::new(&path).arg("-h").output().is_ok();
    if !runs {
        println!("{variable}: {path} does not run: that peer is left out");
    }
    runs.then_some(path)
}

fn number(variable: &str, usual: usize) -> Result<usize> {
    let Ok(text) = std::env::var(variable) else { return Ok(usual) };
    text.parse().ok().filter(|n| *n > 0).with_context(|| format!("{variable}={text} is no number above 0"))
}

fn main() -> Result<()> {
    stop_on_signals();
    let cpus = thread::available_parallelism()?.get();
    let bench = Bench {
        biopsy: std::env::var("BIOPSY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_biopsy").to_string()),
        raw: peer("T_IO_URING"),
        fio: peer("FIO"),
        cpu: cpus - 1,
        complete_min: u32::try_from(number("COMPLETE_MIN", 32)?)?,
    };
    let rounds = number("SLICES", SLICES)?;
    let wanted = std::env::var("DEVICES").unwrap_or_default();
    let wanted = |medium: &Medium| wanted.is_empty() || wanted.split(',').any(|w| w == medium.name());
    let _workers = if cpus > 1 { Some(OnFirstCpu::new()?) } else { None };
    let device = Loop::new()?;
    for medium in Medium::ALL.into_iter().filter(wanted) {
        match medium {
            Medium::Zram => match Zram::new() {
                Ok(zram) => measure(&bench, medium, zram.name(), rounds)?,
                Err(e) => println!("\nzram: not available: {e:#}"),
            },
            Medium::Loop | Medium::Nop => measure(&bench, medium, device.name(), rounds)?,
        }
    }
    Ok(())
}
