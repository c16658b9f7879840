//! Builds command lines that check a finding, for pasting into a shell.

use std::path::PathBuf;

use crate::load::{Extent, Job, LoadSummary, Target};

/// The limits of the command line.
const MOST_DEPTH: u32 = 4096;
const MOST_JOBS: u32 = 1024;

/// The stages of one device for a while.
pub fn latency(name: &str) -> String {
    format!("biopsy latency -d {name} --for 5s")
}

/// The stages of one device, every second.
pub fn latency_by_second(name: &str) -> String {
    format!("biopsy latency -d {name} 1")
}

/// The same load again, with another depth or number of jobs.
pub fn load(load: &LoadSummary, iodepth: u32, numjobs: u32) -> String {
    // The limits of the command line.
    let (iodepth, numjobs) = (iodepth.clamp(1, MOST_DEPTH), numjobs.clamp(1, MOST_JOBS));
    format!("biopsy load {} {}", target(load), words(load, iodepth, numjobs))
}

/// Compares the load's current value of an option with the advised one.
pub fn compare(load: &LoadSummary, word: &str, is: &str, advised: &str) -> String {
    format!("biopsy compare --vary {word}={is},{advised} -- load {}{}", target(load), changed(load, word))
}

/// Compares the load's depth with twice that.
pub fn compare_depth(load: &LoadSummary) -> String {
    compare_twice(load, "iodepth", load.job.iodepth, MOST_DEPTH)
}

/// Compares the load's number of jobs with twice that.
pub fn compare_jobs(load: &LoadSummary) -> String {
    compare_twice(load, "numjobs", load.job.numjobs, MOST_JOBS)
}

/// At the limit of the command line, the last doubling is compared.
fn compare_twice(load: &LoadSummary, word: &str, is: u32, most: u32) -> String {
    let is = is.min(most / 2);
    compare(load, word, &is.to_string(), &(is * 2).to_string())
}

/// Compares the current value of a disk's queue setting with the advised one. Settings need root.
pub fn compare_setting(load: &LoadSummary, disk: &str, key: &str, is: &str, advised: &str) -> String {
    let named = match load.device.as_deref() {
        Some(device) if device == disk => String::new(),
        _ => format!(" -d {}", quoted(disk)),
    };
    format!(
        "sudo biopsy compare --vary {key}={is},{advised}{named} -- load {}{}",
        target(load),
        changed(load, key)
    )
}

/// The target of a load, on its command line.
fn target(load: &LoadSummary) -> String {
    match load.target.strip_prefix("scratch file in ") {
        Some(directory) if load.fill.is_some() => format!("{} --scratch", quoted(directory)),
        _ => quoted(&load.target),
    }
}

/// The options of a load that differ from the defaults, except for the varied one: a short line is easier to read.
fn changed(load: &LoadSummary, varied: &str) -> String {
    let (job, default) = (&load.job, Job::new(Target::Existing(PathBuf::new())));
    let size_of = |extent: Extent| match extent {
        Extent::Bytes(bytes) => size(bytes),
        Extent::Percent(percent) => format!("{percent}%"),
    };
    let of = |is_changed: bool, word: &str, value: String| {
        let is_said = is_changed && word != varied;
        if is_said { format!(" --{word}{value}") } else { String::new() }
    };
    [
        of(job.rw != default.rw, "rw", format!(" {}", job.rw.name())),
        of(job.bs != default.bs, "bs", format!(" {}", size(job.largest_block()))),
        of(job.iodepth != default.iodepth, "iodepth", format!(" {}", job.iodepth)),
        of(job.numjobs != default.numjobs, "numjobs", format!(" {}", job.numjobs)),
        of(
            job.size.is_some(),
            "size",
            job.size.map_or_else(String::new, |size| format!(" {}", size_of(size))),
        ),
        of(job.hipri && varied != "polling", "hipri", String::new()),
    ]
    .concat()
}

/// The same diagnosis again, for a target other than a scratch file.
pub fn diagnose(load: &LoadSummary) -> String {
    format!("biopsy diagnose {} {}", quoted(&load.target), words(load, load.job.iodepth, load.job.numjobs))
}

fn words(load: &LoadSummary, iodepth: u32, numjobs: u32) -> String {
    format!(
        "--rw {} --bs {} --iodepth {iodepth} --numjobs {numjobs}",
        load.job.rw.name(),
        size(load.job.largest_block())
    )
}

/// A target, quoted for the shell.
fn quoted(target: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if !target.is_empty() && target.chars().all(plain) {
        return target.to_string();
    }
    format!("'{}'", target.replace('\'', "'\\''"))
}

/// A size in command-line notation.
fn size(bytes: u64) -> String {
    match bytes {
        b if b > 0 && b.is_multiple_of(1 << 20) => format!("{}m", b >> 20),
        b if b > 0 && b.is_multiple_of(1 << 10) => format!("{}k", b >> 10),
        b => b.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Fill;
    use crate::rules::fixtures::Case;

    #[test]
    fn targets_are_quoted_for_a_shell() {
        assert_eq!(quoted("/var/tmp/x"), "/var/tmp/x");
        assert_eq!(quoted("a b;rm 'c'"), "'a b;rm '\\''c'\\'''");
    }

    #[test]
    fn the_load_is_repeated_as_it_was() {
        let mut case = Case::new(1_000, 32);
        let load = case.load.as_mut().unwrap();
        assert_eq!(
            super::load(load, 64, 2),
            "biopsy load /dev/vda --rw randread --bs 4k --iodepth 64 --numjobs 2"
        );
        load.target = "scratch file in /var/tmp".into();
        load.fill = Some(Fill { bytes: 1, duration_ns: 1 });
        load.job.set_bs(1 << 20);
        assert_eq!(
            super::load(load, 5000, 1),
            "biopsy load /var/tmp --scratch --rw randread --bs 1m --iodepth 4096 --numjobs 1"
        );
    }

    /// Defaults are left out, and so is the varied option.
    #[test]
    fn a_comparison_is_short() {
        let mut case = Case::new(1_000, 4);
        let load = case.load.as_mut().unwrap();
        assert_eq!(compare_depth(load), "biopsy compare --vary iodepth=4,8 -- load /dev/vda");
        assert_eq!(compare_jobs(load), "biopsy compare --vary numjobs=1,2 -- load /dev/vda --iodepth 4");
        assert_eq!(
            compare_setting(load, "vda", "scheduler", "bfq", "none"),
            "sudo biopsy compare --vary scheduler=bfq,none -- load /dev/vda --iodepth 4"
        );
        assert_eq!(
            compare_setting(load, "sda", "nr_requests", "2", "4"),
            "sudo biopsy compare --vary nr_requests=2,4 -d sda -- load /dev/vda --iodepth 4"
        );
        load.job.iodepth = 4000;
        load.job.numjobs = 600;
        load.job.hipri = true;
        load.job.size = Some(Extent::Bytes(3 << 20));
        load.job.set_bs(512);
        load.job.rw = crate::load::Pattern::Read;
        assert_eq!(
            compare_depth(load),
            "biopsy compare --vary iodepth=2048,4096 -- load /dev/vda --rw read --bs 512 --numjobs 600 --size 3m --hipri"
        );
        assert!(compare(load, "polling", "0", "1").ends_with(" --size 3m"));
        assert!(compare_jobs(load).starts_with("biopsy compare --vary numjobs=512,1024 -- "));
        load.target = "a b".into();
        assert!(compare_depth(load).contains(" -- load 'a b' --rw read"));
    }
}
