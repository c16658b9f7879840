//! The command lines of `biopsy devices` and `biopsy check`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::common::Output;
use super::values::duration;

#[derive(Debug, Args)]
pub struct Devices {
    #[command(flatten)]
    pub output: Output,
    /// Only this device. Can be repeated.
    #[arg(short, long = "device", value_name = "DEV")]
    pub devices: Vec<String>,
    /// Disks (name, path or MAJ:MIN). Default: all.
    #[arg(value_name = "DEVICE", conflicts_with = "input")]
    pub named: Vec<String>,
    /// Also show empty loop, ram and zram devices.
    #[arg(long)]
    pub all: bool,
    /// Show the machine of a recording instead.
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["devices", "all"])]
    pub input: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Check {
    /// Show what could be measured on the machine of a recording.
    #[arg(short, long, value_name = "FILE", conflicts_with = "self_test")]
    pub input: Option<PathBuf>,
    /// Measure a device briefly, and test the result against what must hold for every measurement.
    #[arg(long, requires = "device")]
    pub self_test: bool,
    /// Device of the self-test. It is only read; if it cannot be opened, only I/O of other processes is
    /// measured.
    #[arg(short, long, value_name = "DEV", requires = "self_test")]
    pub device: Option<String>,
    /// Length of the self-test.
    #[arg(long = "for", value_name = "TIME", default_value = "3s", value_parser = duration, requires = "self_test")]
    pub length: Duration,
    /// Then attach and detach the probes in turn under the same load for 40 s, and print what they cost in IOPS.
    #[arg(long, requires = "self_test")]
    pub measure_cost: bool,
    /// For tests: drop every Nth issue event, so that the self-test fails.
    #[arg(long, value_name = "N", hide = true, default_value_t = 0, requires = "self_test")]
    pub fault_drop_issue: u32,
    /// For tests: load every BPF program, and print the verifier's work for each as a JSON line.
    #[arg(long, hide = true)]
    pub programs: bool,
    /// For tests: write every BPF object to this directory.
    #[arg(long, hide = true, value_name = "DIRECTORY", conflicts_with = "programs")]
    pub objects: Option<PathBuf>,
    #[command(flatten)]
    pub output: Output,
}
