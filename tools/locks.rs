//! `biopsy locks`: lock waits and page-cache reclaim, by thread and lock.

use std::path::Path;

use anyhow::Result;
use biopsy::analyze::pressure::PressureSummary;
use biopsy::envelope::Envelope;
use biopsy::host::Host;
use biopsy::probe::Probe;
use biopsy::probe::locks::{Options, ROOM};
use biopsy::session::pressure::{PressureSymbolizer, PressureView, Probes};
use biopsy::session::stop;
use biopsy::session::watch::IntervalView;
use biopsy::{probe, render};

use crate::cli::{Color, Locks};
use crate::live::{self, LiveOptions};
use crate::output::{self, Sink};
use crate::screen::Screen;
use crate::{replay, window};

pub fn run(args: &Locks, color: Color) -> Result<()> {
    let mut screen = Screen::of(&args.output, &args.lines, args.all, &args.interval, &args.input)?;
    let whole = |shown: &IntervalView<'_, PressureSummary>| {
        let style = render::text::Style {
            all: args.all,
            color: output::colored(color),
            brief: shown.is_further,
            width: output::width(&args.output),
        };
        text(shown.envelope, shown.summary, shown.status, style)
    };
    if let Some(shown) = replay::run(&args.input, &args.output, |shown| Ok(screen.show(shown, whole))) {
        screen.finish(&shown);
        return shown;
    }
    let host = Host::read(Path::new("/"))?;
    let devices = window::resolve(&host, &args.window.devices, "locks and page cache")?;
    let chosen = live::chosen(&args.submitters)?;
    let sink = Sink::open(args.output.output.as_deref())?;
    stop::install();
    let cost = !args.window.no_cost;
    let options = Options {
        filter: chosen.filter.clone(),
        max_cost: args.max_cost,
        room: args.fault_locks.unwrap_or(ROOM),
        waiters: false,
        spin: !args.no_spin,
        cost,
        no_events: args.fault_no_events,
    };
    let of_memory = probe::pagecache::Options { devices: devices.clone(), functions: true, cost };
    let mut probes = Probes::prepare(&host, &options, &of_memory)?;
    let naming = PressureSymbolizer::new(&host, &devices, !probes.follows_functions() && !args.no_spin);
    probes.begin()?;
    let asked = LiveOptions {
        named: &devices,
        window: &args.window,
        interval: &args.interval,
        command: &args.command,
        followed: Some(&chosen),
        quiet_stdout: args.output.json,
    };
    let view = PressureView { naming, has_cost: cost };
    let result = live::run(view, &mut probes, &asked, sink, |_, shown| Ok(screen.show(shown, whole)));
    screen.finish(&result);
    result
}

fn text(
    envelope: &Envelope,
    seen: &PressureSummary,
    status: Option<i32>,
    style: render::text::Style,
) -> String {
    let memory = seen.pagecache.as_ref().map(render::text::pagecache::render).unwrap_or_default();
    match &seen.locks {
        Some(locks) => render::text::locks::render(envelope, locks, &memory, status, style),
        None => render::text::locks::unseen(envelope, &memory, status, style),
    }
}
