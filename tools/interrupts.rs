//! `biopsy interrupts`: interrupts per queue and CPU.

use std::path::Path;

use anyhow::Result;
use biopsy::analyze::interrupts::InterruptSummary;
use biopsy::host::Host;
use biopsy::host::nvme::identity;
use biopsy::probe::interrupts::{InterruptProbe, Options};
use biopsy::render;
use biopsy::session::interrupts::InterruptView;
use biopsy::session::stop;
use biopsy::session::watch::IntervalView;

use crate::cli::{Color, Interrupts};
use crate::live::{self, LiveOptions};
use crate::output::{self, Sink};
use crate::screen::Screen;
use crate::{replay, window};

pub fn run(args: &Interrupts, color: Color) -> Result<()> {
    let mut screen = Screen::of(&args.output, &args.lines, args.all, &args.interval, &args.input)?;
    let text = |shown: &IntervalView<'_, InterruptSummary>| {
        let style = render::text::Style {
            all: args.all,
            color: output::colored(color),
            brief: shown.is_further,
            width: output::width(&args.output),
        };
        render::text::interrupts::render(shown.envelope, shown.summary, shown.status, style)
    };
    if let Some(shown) = replay::run(&args.input, &args.output, |shown| Ok(screen.show(shown, text))) {
        screen.finish(&shown);
        return shown;
    }
    let mut host = Host::read(Path::new("/"))?;
    let devices = window::resolve(&host, &args.window.devices, "interrupts")?;
    // Whether the drives coalesce interrupts. Without permission it stays unknown; `devices` says why.
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
    let asked = LiveOptions {
        named: &devices,
        window: &args.window,
        interval: &args.interval,
        command: &args.command,
        followed: None,
        quiet_stdout: args.output.json,
    };
    let view = InterruptView { host: &host, time_every: args.time_every };
    let result = live::run(view, &mut probe, &asked, sink, |_, shown| Ok(screen.show(shown, text)));
    screen.finish(&result);
    result
}
