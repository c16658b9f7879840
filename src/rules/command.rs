//! Command lines that check a finding: a user pastes them into a shell.

use crate::load::LoadSummary;

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
    let (target, scratch) = match load.target.strip_prefix("scratch file in ") {
        Some(directory) if load.fill.is_some() => (directory, " --scratch"),
        _ => (load.target.as_str(), ""),
    };
    // The limits of the command line.
    let (iodepth, numjobs) = (iodepth.clamp(1, 4096), numjobs.clamp(1, 1024));
    format!("biopsy load {}{scratch} {}", quoted(target), words(load, iodepth, numjobs))
}

/// The same diagnosis again; of a target that is no scratch file.
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

/// A target as a shell word.
fn quoted(target: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if !target.is_empty() && target.chars().all(plain) {
        return target.to_string();
    }
    format!("'{}'", target.replace('\'', "'\\''"))
}

/// A size as the command line reads it.
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
    use crate::rules::literal::Case;

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
}
