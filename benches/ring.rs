//! Measures the rate that the event stream of `biopsy trace` carries: events without I/O, as long as real ones, through
//! the same rings (`bpf/emit.h`, one per CPU, without wake-ups) to the same consumer (`probe::events`), which is one
//! thread for all of them. A thread per CPU has the kernel emit the events that are due, a thousand times a second.
//!
//! Every event is accounted for: the requested events equal the received plus the lost ones, or the benchmark fails.
//! `$SECONDS_EACH` sets the duration of each rate, `$RATES` the rates (per second, with commas).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use biopsy::probe::cost::{self, Baseline};
use biopsy::probe::events::{EventOptions, PollResult, Rings};
use biopsy::wire::events::Event;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapHandle, libbpf_sys};

#[allow(warnings, clippy::all, reason = "libbpf-cargo writes it")]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/ring.skel.rs"));
}
use generated::{RingSkel, RingSkelBuilder};

const RATES: [u64; 10] =
    [100_000, 200_000, 350_000, 500_000, 700_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000];
const SECONDS: u64 = 3;
/// Time between two batches of a CPU.
const BEAT: Duration = Duration::from_millis(1);
/// The largest batch, even if the thread is late.
const MOST_AT_ONCE: u64 = 4096;
/// `IO_CPU_BITS` of `bpf/emit.h`.
const IO_CPU_BITS: u32 = 13;

/// Has the kernel emit `count` events on this CPU.
fn emit(program: BorrowedFd<'_>, count: u64) -> Result<()> {
    let context = [count];
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: size_of_val(&context) as _,
        ..Default::default()
    };
    // SAFETY: the options are a plain struct whose only pointer is to `context`, with its size in the next field, and
    // both live across the call.
    let failed = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    ensure!(failed == 0, "the kernel does not run the producer: {}", std::io::Error::last_os_error());
    Ok(())
}

fn pin(cpu: usize) -> Result<()> {
    // SAFETY: a set of CPUs is an array of integers, for which zero is a value; CPU_SET writes within it, and the
    // kernel reads it for the calling thread.
    let failed = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    ensure!(failed == 0, "CPU {cpu} is not to be had: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Emits `count` events on a CPU over `length`, and returns the actual duration.
fn produce(program: BorrowedFd<'_>, cpu: usize, count: u64, length: Duration) -> Result<Duration> {
    pin(cpu)?;
    let begin = Instant::now();
    let mut sent = 0;
    while sent < count {
        let due = (count as f64 * begin.elapsed().as_secs_f64() / length.as_secs_f64()) as u64;
        while sent < due.min(count) {
            let now = (due.min(count) - sent).min(MOST_AT_ONCE);
            emit(program, now)?;
            sent += now;
        }
        thread::sleep(BEAT);
    }
    Ok(begin.elapsed())
}

/// CPU time in ns of this process's threads of a name.
fn cpu_ns(name: &str) -> Result<u64> {
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if std::fs::read_to_string(task.join("comm"))?.trim() == name {
            let times = std::fs::read_to_string(task.join("schedstat"))?;
            sum += times.split(' ').next().context("CPU time")?.parse::<u64>()?;
        }
    }
    Ok(sum)
}

/// Counts the received events, and checks that each number comes once and in order.
struct EventCheck {
    events: u64,
    last: Vec<u64>,
}

impl EventCheck {
    fn add(&mut self, taken: &PollResult) -> Result<()> {
        for event in &taken.events {
            let Event::Io(io) = event else { anyhow::bail!("an event of another kind came") };
            let (number, cpu) = (io.io >> IO_CPU_BITS, io.io & ((1 << IO_CPU_BITS) - 1));
            let last = self.last.get_mut(cpu as usize).context("an event of no CPU came")?;
            ensure!(number > *last, "event {number} of CPU {cpu} came after {last}");
            *last = number;
            self.events += 1;
        }
        Ok(())
    }
}

/// Measures one rate; true: no event was lost.
fn measure(skel: &RingSkel<'_>, cpus: usize, rate: u64, length: Duration) -> Result<(f64, bool)> {
    let emitters = MapHandle::try_from(&skel.maps.emitters)?;
    let rings = Rings::new(&skel.maps.event_rings, emitters, &EventOptions::default(), cpus as u32)?;
    let each = rate * length.as_secs() / cpus as u64;
    let program = skel.progs.emit_events.as_fd();
    let run_ns = || {
        let all = cost::all_programs().into_iter().filter(|(_, name, _)| name == "emit_events");
        all.map(|(.., stats)| stats.run_ns).sum::<u64>()
    };
    let (ran, own) = (run_ns(), cpu_ns("ring")?);
    let mut received = EventCheck { events: 0, last: vec![0; cpus] };
    let (took, drained) = thread::scope(|scope| {
        let producers: Vec<_> = (0..cpus)
            .map(|cpu| {
                let thread = thread::Builder::new().name("producer".to_string());
                thread.spawn_scoped(scope, move || produce(program, cpu, each, length))
            })
            .collect::<std::io::Result<_>>()?;
        while producers.iter().any(|producer| !producer.is_finished()) {
            if let Some(taken) = rings.take(Some(5 * BEAT))? {
                received.add(&taken)?;
                rings.give_back(taken.events);
            }
        }
        let mut took = Duration::ZERO;
        for producer in producers {
            took = took.max(producer.join().map_err(|_| anyhow::anyhow!("a producer panicked"))??);
        }
        let drained = cpu_ns("biopsy-events")?;
        rings.end();
        while let Some(taken) = rings.take(None)? {
            received.add(&taken)?;
            rings.give_back(taken.events);
        }
        Ok::<_, anyhow::Error>((took, drained))
    })?;
    let emitted = rings.emitted()?;
    let asked = each * cpus as u64;
    let lost = emitted.lost_ios;
    ensure!(
        (asked, asked, 0) == (emitted.ios, received.events + lost, emitted.damaged),
        "{asked} were asked for, {} emitted, {} received, {lost} lost, {} damaged",
        emitted.ios,
        received.events,
        emitted.damaged
    );
    let had = asked as f64 / took.as_secs_f64();
    let per = |ns: u64| ns as f64 / asked as f64;
    println!(
        "{rate:>10} {had:>10.0} {asked:>10} {:>10} {lost:>9} {:>9.0} {:>9.0} {:>9.0} {:>8.1}",
        received.events,
        per(run_ns() - ran),
        per(drained),
        per(cpu_ns("ring")? - own),
        drained as f64 / took.as_nanos() as f64 * 100.0,
    );
    Ok((had, lost == 0))
}

fn main() -> Result<()> {
    let seconds = std::env::var("SECONDS_EACH").ok().and_then(|n| n.parse().ok()).unwrap_or(SECONDS);
    let wanted = std::env::var("RATES").unwrap_or_default();
    let mut rates: Vec<u64> = wanted.split(',').filter_map(|rate| rate.parse().ok()).collect();
    if rates.is_empty() {
        rates.extend(RATES);
    }
    let cpus = thread::available_parallelism()?.get();
    let baseline = Baseline::load().context("the kernel's program statistics need root")?;
    let _counting = baseline.count().context("the kernel's program statistics need root")?;
    let mut place = MaybeUninit::uninit();
    let mut open = RingSkelBuilder::default().open(&mut place)?;
    open.maps.event_rings.set_max_entries(cpus as u32)?;
    open.maps.emitters.set_max_entries(cpus as u32)?;
    let skel = open.load()?;
    // This thread is the receiver; its name is not always that of the executable.
    std::fs::write("/proc/thread-self/comm", "ring")?;
    println!("events of 144 bytes, {cpus} producers, {seconds} s each; ns of CPU time per event");
    println!(
        "{:>10} {:>10} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>8}",
        "asked /s", "had /s", "produced", "received", "lost", "producer", "consumer", "receiver", "CPU, %"
    );
    let mut highest: f64 = 0.0;
    for rate in rates {
        let (had, lossless) = measure(&skel, cpus, rate, Duration::from_secs(seconds))?;
        if lossless {
            highest = highest.max(had);
        }
    }
    println!("highest rate without loss: {highest:.0} events/s");
    Ok(())
}
