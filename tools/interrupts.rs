//! `biopsy interrupts`.

use std::path::Path;

use anyhow::Result;
use biopsy::analyze::interrupts::InterruptSummary;
use biopsy::host::Host;
use biopsy::host::nvme::identity;
use biopsy::probe::interrupts::{InterruptProbe, Options};
use biopsy::render;
use biopsy::session::interrupts::InterruptView;
use biopsy::session::stop;
use biopsy::session::watch::Shown;

use crate::cli::{Color, Interrupts};
use crate::live::{self, Asked};
use crate::output::{self, Sink};
use crate::{replay, window};

pub fn run(args: &Interrupts, color: Color) -> Result<()> {
    let show = |shown: &Shown<'_, InterruptSummary>| {
        let (envelope, summary, status) = (shown.envelope, shown.summary, shown.status);
        if args.output.json {
            return Ok(render::json::view(envelope, summary, status));
        }
        let style = render::text::interrupts::Style {
            all: args.all,
            color: output::colored(color),
            brief: shown.is_further,
        };
        Ok(render::text::interrupts::render(envelope, summary, status, style).into_bytes())
    };
    if let Some(shown) = replay::run(&args.input, &args.output, show) {
        return shown;
    }
    let mut host = Host::read(Path::new("/"))?;
    let devices = window::resolve(&host, &args.window.devices, "interrupts")?;
    // Whether the drives hold interrupts back; who may not ask them has no answer, and devices says why.
    let names: Vec<String> = match devices.is_empty() {
        true => host.devices.iter().map(|device| device.name.clone()).collect(),
        false => devices.clone(),
    };
    let _untold = identity::identify(Path::new("/"), &mut host, &names);
    let sink = Sink::open(args.output.output.as_deref())?;
    stop::install();
    let options =
        Options { devices: devices.clone(), time_every: args.time_every, cost: !args.window.no_cost };
    let mut probe = InterruptProbe::attach(&host, Path::new("/"), &options)?;
    let asked = Asked {
        named: &devices,
        window: &args.window,
        interval: &args.interval,
        command: &args.command,
        followed: None,
        quiet_stdout: args.output.json,
    };
    let view = InterruptView { host: &host, time_every: args.time_every };
    live::run(view, &mut probe, &asked, sink, |_, shown| show(shown))
}
