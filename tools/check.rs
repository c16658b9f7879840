//! `biopsy check`: what can be measured here, and a self-test.

use std::path::Path;

use anyhow::{Context, Result};
use biopsy::analyze::check::CheckSummary;
use biopsy::analyze::devices::HostSummary;
use biopsy::host::Host;
use biopsy::host::abilities::Abilities;
use biopsy::host::rights::Rights;
use biopsy::session::wall_clock;
use biopsy::{probe, render};

use crate::cli::{Check, Color};
use crate::output::Sink;
use crate::{output, replay, self_test};

pub fn run(args: &Check, color: Color) -> Result<()> {
    if let Some(directory) = &args.objects {
        for (name, bytes) in probe::verifier::objects() {
            let path = directory.join(format!("{name}.bpf.o"));
            std::fs::write(&path, bytes).with_context(|| format!("{} cannot be written", path.display()))?;
        }
        return Ok(());
    }
    if let Some(recording) = &args.input {
        return recorded(args, recording, color);
    }
    let root = Path::new("/");
    let mut sink = Sink::open(args.output.output.as_deref())?;
    if args.programs {
        return sink.write(&render::json::lines(&probe::verifier::programs()?));
    }
    if let Some(device) = args.device.as_deref().filter(|_| args.self_test) {
        return self_test::run(args, device, &mut sink, color);
    }
    let host = Host::read(root)?;
    let rights = Rights::read(root);
    let abilities = probe::preflight::abilities(&host, &rights);
    let bytes = if args.output.json {
        line_of(rights, abilities)
    } else {
        output::fitted(
            &args.output,
            &render::text::check::render(&host, &rights, &abilities, output::colored(color)),
        )
    };
    sink.write(&bytes)
}

/// Shows the machine of a recording.
fn recorded(args: &Check, recording: &Path, color: Color) -> Result<()> {
    let kept = replay::machine::<CheckSummary>(recording)?;
    let host = replay::machine::<HostSummary>(recording)?.view.machine;
    let CheckSummary { abilities, rights, .. } = &kept.view;
    let mut sink = Sink::open(args.output.output.as_deref())?;
    let bytes = if args.output.json {
        render::json::view(&kept.envelope, &kept.view, None)
    } else {
        output::fitted(
            &args.output,
            &render::text::check::render(&host, rights, abilities, output::colored(color)),
        )
    };
    sink.write(&bytes)
}

/// What can be measured here, as a line of JSON.
pub fn line(root: &Path) -> Result<Vec<u8>> {
    let (host, rights) = (Host::read(root)?, Rights::read(root));
    let abilities = probe::preflight::abilities(&host, &rights);
    Ok(line_of(rights, abilities))
}

fn line_of(rights: Rights, abilities: Abilities) -> Vec<u8> {
    let summary = CheckSummary { abilities, rights, self_test: None, overhead: None };
    render::json::view(&wall_clock::envelope(), &summary, None)
}
