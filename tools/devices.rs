//! `biopsy devices`: lists block devices.

use std::io;
use std::path::Path;

use anyhow::Result;
use biopsy::analyze::devices::{DevicesSummary, HostSummary, summarize};
use biopsy::envelope::{Envelope, Missing, Reason};
use biopsy::host::nvme::identity;
use biopsy::host::select::Selection;
use biopsy::host::{Host, select, warnings};
use biopsy::refusal::reason;
use biopsy::render::{json, text};
use biopsy::session::wall_clock;

use crate::cli::Devices;
use crate::output::{self, Sink};
use crate::replay;

pub fn run(args: &Devices) -> Result<()> {
    if let Some(recording) = &args.input {
        return recorded(args, recording);
    }
    let root = Path::new("/");
    let start = wall_clock::now_rfc3339();
    // Read before the output is opened: an unknown device must not leave an empty file.
    let (host, missing) = read(root, &args.devices, args.all)?;
    let selection = select::selection(&host, root, &args.devices, args.all)?;
    let mut sink = Sink::open(args.output.output.as_deref())?;
    if args.output.json {
        return sink.write(&line_of(&host, &selection, start, missing));
    }
    let warnings = warnings::warnings(&host, &selection.devices);
    sink.write(&output::fitted(&args.output, &text::devices::devices(&host, &selection, &warnings, &missing)))
}

/// Shows the machine of a recording.
fn recorded(args: &Devices, recording: &Path) -> Result<()> {
    let kept = replay::machine::<DevicesSummary>(recording)?;
    let mut sink = Sink::open(args.output.output.as_deref())?;
    if args.output.json {
        return sink.write(&json::view(&kept.envelope, &kept.view, None));
    }
    let host = replay::machine::<HostSummary>(recording)?.view.machine;
    // All devices of the recording: no name is resolved on this machine.
    let selection = select::selection(&host, Path::new("/"), &[], false)?;
    let missing = &kept.envelope.missing;
    sink.write(&output::fitted(
        &args.output,
        &text::devices::devices(&host, &selection, &kept.view.warnings, missing),
    ))
}

/// All devices, and all facts about the machine that the rules use, each as a line of JSON.
pub fn lines(root: &Path) -> Result<Vec<u8>> {
    let start = wall_clock::now_rfc3339();
    let (host, missing) = read(root, &[], false)?;
    let devices = line_of(&host, &select::selection(&host, root, &[], false)?, start.clone(), missing);
    let machine = HostSummary { machine: host };
    Ok([devices, json::view(&envelope(&machine.machine, start, Vec::new()), &machine, None)].concat())
}

fn envelope(host: &Host, start: String, missing: Vec<Missing>) -> Envelope {
    Envelope {
        version: env!("CARGO_PKG_VERSION").to_string(),
        kernel: host.kernel.clone(),
        start,
        missing,
        ..Envelope::default()
    }
}

fn line_of(host: &Host, selection: &Selection<'_>, start: String, missing: Vec<Missing>) -> Vec<u8> {
    let envelope = envelope(host, start, missing);
    let warnings = warnings::warnings(host, &selection.devices);
    json::view(&envelope, &summarize(host, selection, warnings), None)
}

/// Reads the machine and queries the selected drives. Also returns what a drive did not answer.
fn read(root: &Path, devices: &[String], all: bool) -> Result<(Host, Vec<Missing>)> {
    let mut host = Host::read(root)?;
    let selection = select::selection(&host, root, devices, all)?;
    // Send commands to the selected drives only.
    let names: Vec<String> = selection.devices.iter().map(|device| device.name.clone()).collect();
    let untold = identity::identify(root, &mut host, &names);
    let mut missing: Vec<Missing> = untold.iter().map(|(name, error)| self::missing(name, error)).collect();
    if !host.read_limits(root) {
        missing.push(no_limits());
    }
    Ok((host, missing))
}

/// Why a drive could not be queried.
fn missing(name: &str, error: &io::Error) -> Missing {
    let denied = error.kind() == io::ErrorKind::PermissionDenied;
    Missing {
        device: Some(name.to_string()),
        reason: Reason::NotTold,
        why: format!("health and limits of the drive {name}: {}", reason(error)),
        remedy: denied.then(|| "run it as root".to_string()),
        ..Missing::default()
    }
}

/// It is unknown whether there are cgroup limits.
fn no_limits() -> Missing {
    Missing {
        reason: Reason::NoCgroups,
        why: "limits of cgroups: no cgroup hierarchy with the block controller is mounted here".to_string(),
        ..Missing::default()
    }
}
