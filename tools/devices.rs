//! `biopsy devices`.

use std::io;
use std::path::Path;

use anyhow::Result;
use biopsy::analyze::devices::summarize;
use biopsy::envelope::{Envelope, Missing, Reason};
use biopsy::host::nvme::identity;
use biopsy::host::{Host, select, warnings};
use biopsy::refusal::reason;
use biopsy::render::{json, text};
use biopsy::session::wall_clock;

use crate::cli::Devices;
use crate::output::Sink;

pub fn run(args: &Devices) -> Result<()> {
    let root = Path::new("/");
    let start = wall_clock::now_rfc3339();
    let mut host = Host::read(root)?;
    // Resolved before the output is opened: an unknown device leaves no file behind.
    let selection = select::selection(&host, root, &args.devices, args.all)?;
    let names: Vec<String> = selection.devices.iter().map(|device| device.name.clone()).collect();
    // No drive is asked that nobody asked for.
    let untold = identity::identify(root, &mut host, &names);
    let mut missing: Vec<Missing> = untold.iter().map(|(name, error)| missing(name, error)).collect();
    if !host.read_limits(root) {
        missing.push(no_limits());
    }
    let selection = select::selection(&host, root, &args.devices, args.all)?;
    let warnings = warnings::warnings(&host, &selection.devices);
    let mut sink = Sink::open(args.output.output.as_deref())?;
    if args.output.json {
        let envelope = Envelope {
            version: env!("CARGO_PKG_VERSION").to_string(),
            kernel: host.kernel.clone(),
            start,
            missing,
            ..Envelope::default()
        };
        return sink.write(&json::view(&envelope, &summarize(&host, &selection, warnings), None));
    }
    sink.write(text::devices::devices(&host, &selection, &warnings, &missing).as_bytes())
}

/// What a drive did not tell, and why.
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

/// Nobody said whether there are limits.
fn no_limits() -> Missing {
    Missing {
        reason: Reason::NoCgroups,
        why: "limits of cgroups: no cgroup hierarchy with the block controller is mounted here".to_string(),
        ..Missing::default()
    }
}
