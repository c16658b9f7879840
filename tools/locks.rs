//! `biopsy locks`: what it knows of the page cache.

use std::path::Path;

use anyhow::Result;
use biopsy::analyze::pagecache::{PagecacheSummary, paths, summarize};
use biopsy::analyze::stacks;
use biopsy::envelope::{Envelope, Lost};
use biopsy::host::Host;
use biopsy::host::memory_surroundings::Surroundings;
use biopsy::probe::pagecache::{Options, PagecacheProbe};
use biopsy::probe::stacks::StacksProbe;
use biopsy::render;
use biopsy::symbols::Symbolizer;
use biopsy::wire::pagecache::Reading;

use crate::cli::Locks;
use crate::output::Sink;
use crate::watch::{self, Piece, Watch};
use crate::{clock, stop, window};

/// Samples of each CPU a second, where functions cannot be followed.
const FREQUENCY: u64 = 99;

pub fn run(args: &Locks) -> Result<()> {
    let host = Host::read(Path::new("/"))?;
    let devices = window::resolve(&host, &args.window)?;
    let mut sink = Sink::open(args.output.output.as_deref())?;
    stop::install();
    let options = Options { devices: devices.clone(), functions: true, cost: !args.window.no_cost };
    let mut probe = PagecacheProbe::attach(&host, Path::new("/"), &options)?;
    // What the functions' shares come from where nobody may attach to them.
    let mut samples = match probe.follows_functions() {
        true => None,
        false => StacksProbe::attach(FREQUENCY).ok(),
    };
    let watch = Watch {
        named: &devices,
        window: &args.window,
        interval: &args.interval,
        command: &args.command,
        json: args.output.json,
        are_gone: &|| false,
    };
    let view = |probe: &PagecacheProbe, piece: &Piece<'_, Reading>| {
        let around = Surroundings::read(Path::new("/"), &host);
        let mut summary = summarize(&around, piece.from, piece.to);
        if let Some(raw) = samples.take_if(|_| piece.last).and_then(|samples| samples.finish().ok()) {
            let names = Symbolizer::new().names(&stacks::addresses(&raw));
            summary.paths = paths::sampled(&raw, &names);
        }
        render(probe, &summary, piece, args.output.json)
    };
    watch::run(&mut probe, &watch, &mut sink, view)?;
    Ok(())
}

fn render(
    probe: &PagecacheProbe,
    summary: &PagecacheSummary,
    piece: &Piece<'_, Reading>,
    json: bool,
) -> Vec<u8> {
    let mut lost = Lost::default();
    lost.probes.insert("pagecache".to_string(), summary.lost.clone());
    let ios: u64 = summary.series.iter().filter_map(|moment| moment.ios).sum();
    let envelope = Envelope {
        start: piece.start.to_string(),
        duration_ns: summary.duration_ns,
        lost,
        cost: probe.cost(ios as f64 / summary.seconds().max(1e-9)),
        missing: probe.missing().to_vec(),
        ..clock::envelope()
    };
    if !json {
        let mut out = render::text::pagecache::render(summary);
        out.push_str(&render::text::footer::cost(&envelope));
        if !piece.further {
            out.push_str(&render::text::footer::missing(&envelope.missing, &[]));
        }
        return out.into_bytes();
    }
    let mut all = render::json::object("biopsy.locks/1", &envelope);
    let body = render::json::pagecache::body(summary);
    all.insert("pagecache".to_string(), serde_json::Value::Object(body));
    if let Some(status) = piece.status {
        all.insert("command_status".to_string(), status.into());
    }
    render::json::line(all)
}
