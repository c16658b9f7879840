//! Measures the cost of a flame graph: a million samples of a hundred thousand different stacks, forty frames deep,
//! from the ids of the frames to the bytes of an SVG file. Prints seconds and the peak memory.
//!
//! The stacks are a worst case: they diverge early and share little. `$SAMPLES` and `$STACKS` set other numbers,
//! `$PICTURE` a file for the flame graph. It fails above 2 s of CPU time, 300 MB of memory or a file of 2 MB.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use biopsy::analyze::profile::{Area, Profile, Unit};
use biopsy::render::flame::{self, Caption, Options};

const SAMPLES: u64 = 1_000_000;
const STACKS: u64 = 100_000;
const DEPTH: usize = 40;
/// About as many as the profile of a busy machine has.
const FUNCTIONS: u64 = 20_000;

const SECONDS: f64 = 2.0;
const MEMORY_KIB: u64 = 300 * 1024;
const PICTURE: usize = 2_000_000;

fn asked(name: &str, or: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("${name} is not a number: {text}")),
        Err(_) => Ok(or),
    }
}

fn scrambled(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Generates the frames of a stack: few branches near the root, many above, as in real programs.
fn stack(number: u64, functions: &[u32], into: &mut [u32; DEPTH]) {
    for (depth, frame) in into.iter_mut().enumerate() {
        let ways = match depth {
            0..4 => 1,
            4..8 => 10,
            8..20 => 1_000,
            _ => u64::MAX,
        };
        let way = scrambled(number) % ways;
        *frame = functions[(scrambled(way ^ ((depth as u64) << 56)) % functions.len() as u64) as usize];
    }
}

/// CPU time of this process in seconds. There is one thread, so this equals the elapsed time if a CPU is free.
fn cpu_seconds() -> f64 {
    // SAFETY: the kernel fills a struct of integers, for which zero is a value.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Peak memory of this process, in KiB.
fn most_memory() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}

fn main() -> Result<()> {
    let (samples, stacks) = (asked("SAMPLES", SAMPLES)?, asked("STACKS", STACKS)?);
    let names: Vec<String> = (0..FUNCTIONS).map(|i| format!("function_of_the_program_{i}")).collect();

    let start = Instant::now();
    let mut profile = Profile::new(Unit::Samples);
    let functions: Vec<u32> = names.iter().map(|name| profile.frame(name.as_str(), Area::User)).collect();
    let mut frames = [0; DEPTH];
    for i in 0..samples {
        stack(scrambled(i) % stacks, &functions, &mut frames);
        profile.add(&frames, 1);
    }
    let added = start.elapsed().as_secs_f64();
    let caption = Caption::new("benchmark", format!("{samples} samples of {stacks} stacks"));
    let picture = flame::file(&profile, &caption, &Options::default())?;
    let (all, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds());

    let memory = most_memory()?;
    println!("samples   {samples}, {} different stacks, {DEPTH} deep", profile.stacks().len());
    println!("added in  {added:.2} s");
    println!("drawn in  {:.2} s", all - added);
    println!("together  {all:.2} s, of which {cpu:.2} s on a CPU");
    println!("memory    {:.0} MB at most", memory as f64 * 1024.0 / 1e6);
    println!("picture   {:.2} MB", picture.len() as f64 / 1e6);
    if let Ok(path) = std::env::var("PICTURE") {
        std::fs::write(path, &picture)?;
    }
    ensure!(cpu <= SECONDS, "slower than {SECONDS} s");
    ensure!(memory <= MEMORY_KIB, "more memory than {MEMORY_KIB} KiB");
    ensure!(picture.len() <= PICTURE, "a larger picture than {PICTURE} bytes");
    Ok(())
}
