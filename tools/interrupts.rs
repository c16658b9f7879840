//! `biopsy interrupts`.

use std::path::Path;

use anyhow::Result;
use biopsy::analyze::interrupts::{summarize, trust};
use biopsy::envelope::Envelope;
use biopsy::host::Host;
use biopsy::host::nvme::identity;
use biopsy::probe::interrupts::{InterruptProbe, Options};
use biopsy::refusal::Refusal;
use biopsy::render;
use biopsy::wire::interrupts::Reading;

use crate::cli::{Color, Interrupts};
use crate::output::Sink;
use crate::watch::{self, Piece, Watch};
use crate::{clock, output, stop, window};

pub fn run(args: &Interrupts, color: Color) -> Result<()> {
    let mut host = Host::read(Path::new("/"))?;
    let devices = window::resolve(&host, &args.window.devices, "interrupts")?;
    // Whether the drives hold interrupts back; who may not ask them has no answer, and devices says why.
    let names: Vec<String> = match devices.is_empty() {
        true => host.devices.iter().map(|device| device.name.clone()).collect(),
        false => devices.clone(),
    };
    let _untold = identity::identify(Path::new("/"), &mut host, &names);
    let mut sink = Sink::open(args.output.output.as_deref())?;
    stop::install();
    let options =
        Options { devices: devices.clone(), time_every: args.time_every, cost: !args.window.no_cost };
    let mut probe = InterruptProbe::attach(&host, Path::new("/"), &options)?;
    let watch = Watch {
        named: &devices,
        window: &args.window,
        interval: &args.interval,
        command: &args.command,
        json: args.output.json,
        are_gone: &|| false,
    };
    let view = |probe: &InterruptProbe, piece: &Piece<'_, Reading>| {
        let summary = summarize(&host, piece.from, piece.to).timed_one_of(args.time_every);
        let envelope = Envelope {
            start: piece.start.to_string(),
            duration_ns: summary.duration_ns,
            lost: trust::lost(&summary, piece.from, piece.to),
            cost: probe.cost(summary.ios_per_second()),
            missing: probe.missing().to_vec(),
            ..clock::envelope()
        };
        if args.output.json {
            return render::json::view(&envelope, &summary, piece.status);
        }
        let style = render::text::interrupts::Style {
            all: args.all,
            color: output::colored(color),
            brief: piece.further,
        };
        render::text::interrupts::render(&envelope, &summary, piece.status, style).into_bytes()
    };
    let (first, end) = watch::run(&mut probe, &watch, &mut sink, view)?;
    let whole = summarize(&host, &first, &end);
    match trust::distrust(&whole, &trust::lost(&whole, &first, &end), args.window.max_loss) {
        Some(why) => Err(Refusal::Untrusted(why).into()),
        None => Ok(()),
    }
}
