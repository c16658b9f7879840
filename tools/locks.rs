//! `biopsy locks`: who waits for which lock, and who reclaims the page cache.

use std::path::Path;

use anyhow::Result;
use biopsy::analyze::locks;
use biopsy::envelope::Envelope;
use biopsy::host::Host;
use biopsy::probe::locks::{Options, ROOM};
use biopsy::refusal::Refusal;
use biopsy::{probe, render};
use serde_json::{Map, Value};

use crate::cli::{Color, Locks};
use crate::output::Sink;
use crate::pressure::{Naming, Probes, Reading, Summary};
use crate::submitters::Chosen;
use crate::watch::{self, Piece, Watch};
use crate::{clock, output, stop, window};

pub fn run(args: &Locks, color: Color) -> Result<()> {
    let host = Host::read(Path::new("/"))?;
    let devices = window::resolve(&host, &args.window.devices, "locks and page cache")?;
    let chosen = Chosen::new(&args.submitters)?;
    let mut sink = Sink::open(args.output.output.as_deref())?;
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
    let naming = Naming::new(&host, &devices, !probes.follows_functions() && !args.no_spin);
    probes.begin()?;
    let watch = Watch {
        named: &devices,
        window: &args.window,
        interval: &args.interval,
        command: &args.command,
        json: args.output.json,
        are_gone: &|| chosen.are_gone(),
    };
    let style = |further: bool| render::text::locks::Style {
        all: args.all,
        color: output::colored(color),
        brief: further,
    };
    let view = |probes: &Probes, piece: &Piece<'_, Reading>| {
        let seen = naming.summary(piece);
        let mut missing = probes.missing(&seen);
        if cost {
            missing.extend(naming.not_counted());
        }
        let envelope = Envelope {
            start: piece.start.to_string(),
            duration_ns: seen.duration_ns(),
            lost: seen.lost(),
            cost: probes.cost(&seen),
            missing,
            ..clock::envelope()
        };
        match args.output.json {
            true => json(&envelope, &seen, piece.status),
            false => text(&envelope, &seen, piece.status, style(piece.further)).into_bytes(),
        }
    };
    let (first, end) = watch::run(&mut probes, &watch, &mut sink, view)?;
    let whole = naming.locks(&first, &end);
    match whole.and_then(|whole| locks::trust::distrust(&whole, args.window.max_loss)) {
        Some(why) => Err(Refusal::Untrusted(why).into()),
        None => Ok(()),
    }
}

fn json(envelope: &Envelope, seen: &Summary, status: Option<i32>) -> Vec<u8> {
    let mut all = render::json::object("biopsy.locks/1", envelope);
    all.extend(body(seen));
    all.extend(status.map(|status| ("command_status".to_string(), status.into())));
    render::json::line(all)
}

/// What the view adds to the envelope, for results that contain it.
pub fn body(seen: &Summary) -> Map<String, Value> {
    let mut all = Map::new();
    all.extend(seen.locks.as_ref().map(render::json::locks::body).into_iter().flatten());
    let pagecache = seen.pagecache.as_ref().map(render::json::pagecache::body);
    all.extend(pagecache.map(|body| ("pagecache".to_string(), Value::Object(body))));
    all
}

fn text(
    envelope: &Envelope,
    seen: &Summary,
    status: Option<i32>,
    style: render::text::locks::Style,
) -> String {
    let memory = seen.pagecache.as_ref().map(render::text::pagecache::render).unwrap_or_default();
    match &seen.locks {
        Some(locks) => render::text::locks::render(envelope, locks, &memory, status, style),
        None => render::text::locks::unseen(envelope, &memory, status, style),
    }
}
