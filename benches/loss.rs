//! Measures how many IOPS the probes cost: they are attached and detached while one fio load runs without a pause, and
//! the kernel's own counter gives the I/Os of each time slice. Once with the load paced at 70 % of its rate without
//! probes, once at full rate.
//!
//! The loss of a pair is 1 − (IOPS with) / (IOPS of the slices before and after, without). Prints the median of the
//! pairs with its 95 % confidence interval, and the loss that the CPU time of the probes predicts if all CPUs are busy.
//! `$PAIRS` sets the number of pairs.

mod disk;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use biopsy::host::Host;
use biopsy::host::counters::Counters;
use biopsy::probe::Probe;
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::Options;
use biopsy::stats::{median, median_interval};
use disk::Loop;

const PAIRS: usize = 200;
const SLICE: Duration = Duration::from_millis(250);
const PACE: f64 = 0.7;

/// A load that runs until it is dropped.
struct Fio(Child);

impl Fio {
    fn start(device: &Loop, rate: Option<u64>) -> Result<Self> {
        let mut fio = Command::new("fio");
        fio.args(["--name=load", "--rw=randread", "--bs=4k", "--iodepth=32", "--direct=1"]);
        // As a thread: a separate process would outlive the one that is killed.
        fio.args(["--ioengine=io_uring", "--time_based", "--runtime=3600", "--output=/dev/null", "--thread"]);
        fio.arg(format!("--filename={}", device.0)).args(rate.map(|rate| format!("--rate_iops={rate}")));
        let child = fio.stdout(Stdio::null()).spawn().context("fio is in the package fio")?;
        thread::sleep(Duration::from_secs(2));
        Ok(Self(child))
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// I/Os per second that the kernel counts in one slice.
fn slice(device: &Loop) -> Result<f64> {
    let ios = || Ok::<u64, anyhow::Error>(Counters::read(Path::new("/"), device.name())?.ios());
    let (before, begin) = (ios()?, Instant::now());
    thread::sleep(SLICE);
    Ok((ios()? - before) as f64 / begin.elapsed().as_secs_f64())
}

fn attach(host: &Host, device: &Loop, cost: bool) -> Result<LatencyProbe> {
    let options = Options { devices: vec![device.name().to_string()], cost, ..Options::default() };
    LatencyProbe::attach(host, Path::new("/"), &options)
}

/// CPU time of the probes per I/O in ns, including the cost of the calls.
fn cost(host: &Host, device: &Loop) -> Result<f64> {
    let mut probe = attach(host, device, true)?;
    probe.wait(Some(Instant::now() + 8 * SLICE), SLICE, &|| false);
    probe.detach()?;
    let cost = probe.cost(slice(device)?);
    let net = cost.ns_per_io.context("the probes' cost could not be measured")?;
    Ok(net + cost.attach_ns_per_io.unwrap_or(0.0))
}

fn measure(host: &Host, device: &Loop, rate: Option<u64>, pairs: usize) -> Result<()> {
    let _load = Fio::start(device, rate)?;
    let (mut losses, mut without) = (Vec::new(), vec![slice(device)?]);
    for _ in 0..pairs {
        let probe = attach(host, device, false)?;
        let with = slice(device)?;
        drop(probe);
        without.push(slice(device)?);
        let [.., before, after] = without[..] else { continue };
        losses.push(1.0 - with / ((before + after) / 2.0));
    }
    let (loss, iops) = (median(&losses).unwrap_or(f64::NAN), median(&without).unwrap_or(f64::NAN));
    let (low, high) = median_interval(&losses).unwrap_or((f64::NAN, f64::NAN));
    let cpus = thread::available_parallelism()?.get() as f64;
    let predicted = cost(host, device)? * iops / 1e9 / cpus;
    let what = if rate.is_some() { "paced" } else { "saturated" };
    println!(
        "{what:<10} {iops:9.0} IOPS  lost {:6.2} % ({:.2} to {:.2})  predicted by CPU time {:5.2} %  {pairs} pairs",
        loss * 100.0,
        low * 100.0,
        high * 100.0,
        predicted * 100.0,
    );
    Ok(())
}

fn main() -> Result<()> {
    let pairs = std::env::var("PAIRS").ok().and_then(|n| n.parse().ok()).unwrap_or(PAIRS);
    let device = Loop::new()?;
    let host = Host::read(Path::new("/"))?;
    let alone: Vec<f64> = {
        let _load = Fio::start(&device, None)?;
        (0..12).map(|_| slice(&device)).collect::<Result<_>>()?
    };
    let most = median(&alone).unwrap_or(f64::NAN);
    ensure!(most > 1000.0, "the load does not run: {most} IOPS");
    measure(&host, &device, Some((most * PACE) as u64), pairs)?;
    measure(&host, &device, None, pairs)
}
