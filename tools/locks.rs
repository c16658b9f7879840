//! `biopsy locks`: who waits for which lock, and who reclaims the page cache.

use std::path::Path;

use anyhow::Result;
use biopsy::envelope::Envelope;
use biopsy::host::Host;
use biopsy::probe::locks::{Options, ROOM};
use biopsy::session::pressure::{Naming, PressureView, Probes, Summary};
use biopsy::session::stop;
use biopsy::{probe, render};
use serde_json::{Map, Value};

use crate::cli::{Color, Locks};
use crate::live::{self, Asked};
use crate::output::{self, Sink};
use crate::window;

pub fn run(args: &Locks, color: Color) -> Result<()> {
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
    let naming = Naming::new(&host, &devices, !probes.follows_functions() && !args.no_spin);
    probes.begin()?;
    let asked = Asked {
        named: &devices,
        window: &args.window,
        interval: &args.interval,
        command: &args.command,
        followed: Some(&chosen),
        quiet_stdout: args.output.json,
    };
    live::run(PressureView { naming, has_cost: cost }, &mut probes, &asked, sink, |_, shown| {
        let (envelope, summary, status) = (shown.envelope, shown.summary, shown.status);
        if args.output.json {
            return Ok(json(envelope, summary, status));
        }
        let style = render::text::locks::Style {
            all: args.all,
            color: output::colored(color),
            brief: shown.is_further,
        };
        Ok(text(envelope, summary, status, style).into_bytes())
    })
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
