//! `biopsy latency`.

use std::path::Path;

use anyhow::Result;
use biopsy::analyze::groups::{self, Dimension};
use biopsy::analyze::latency::LatencySummary;
use biopsy::host::Host;
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::{Options, Stages};
use biopsy::refusal::Refusal;
use biopsy::render;
use biopsy::session::latency::LatencyView;
use biopsy::session::stop;
use biopsy::session::watch::Shown;

use crate::cli::{Color, Latency};
use crate::live::{self, Asked};
use crate::output::{self, Sink};
use crate::{replay, window};

pub fn run(args: &Latency, color: Color) -> Result<()> {
    let show = |shown: &Shown<'_, LatencySummary>| {
        if args.output.json {
            return Ok(render::json::view(shown.envelope, shown.summary, shown.status));
        }
        let style = render::text::latency::Style {
            all: args.all,
            color: output::colored(color),
            brief: shown.is_further,
        };
        Ok(render::text::latency::render(shown.envelope, shown.summary, shown.status, style).into_bytes())
    };
    if let Some(shown) = replay::run(&args.input, &args.output, show) {
        return shown;
    }
    refuse_stages(args)?;
    let host = Host::read(Path::new("/"))?;
    let named = window::resolve_layers(&host, &args.window.devices)?;
    let chosen = live::chosen(&args.submitters)?;
    let mut by: Vec<Dimension> = Vec::new();
    for dimension in &args.by {
        if !by.contains(dimension) {
            by.push(*dimension);
        }
    }
    let view = LatencyView::new(&host, &by)?;
    let sink = Sink::open(args.output.output.as_deref())?;
    stop::install();
    let options = Options {
        group_by: (!by.is_empty()).then(|| groups::mask(&by)),
        filter: chosen.filter.clone(),
        layers: true,
        stages: args.stages,
        parts: args.detail,
        ..window::options(named.clone(), &args.window)
    };
    let mut probe = LatencyProbe::attach(&host, Path::new("/"), &options)?;
    let asked = Asked {
        named: &named,
        window: &args.window,
        interval: &args.interval,
        command: &args.command,
        followed: Some(&chosen),
        quiet_stdout: args.output.json,
    };
    live::run(view, &mut probe, &asked, sink, |_, shown| show(shown))
}

/// What needs events that the stages leave out.
fn refuse_stages(args: &Latency) -> Result<()> {
    let is_device = args.stages == Stages::Device;
    let needs = [
        ("--detail", args.detail && args.stages != Stages::All, "all"),
        ("--by", is_device && !args.by.is_empty(), "queue,device"),
        ("-p, --comm and --cgroup", is_device && !args.submitters.is_empty(), "queue,device"),
    ];
    match needs.iter().find(|(_, is_refused, _)| *is_refused) {
        Some((what, _, least)) => {
            let why = format!("{what} needs more than these stages: use --stages {least}, or leave it out");
            Err(Refusal::Usage(why).into())
        }
        None => Ok(()),
    }
}
