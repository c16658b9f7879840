//! `biopsy locks`: who waits for which lock, and who reclaims the page cache.

use std::cell::RefCell;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use biopsy::analyze::locks::{self, LockSummary};
use biopsy::analyze::pagecache::{self, PagecacheSummary, paths};
use biopsy::analyze::stacks;
use biopsy::envelope::{Envelope, Missing};
use biopsy::host::Host;
use biopsy::host::memory_surroundings::Surroundings;
use biopsy::probe::locks::{LockProbe, Options, ROOM};
use biopsy::probe::pagecache::PagecacheProbe;
use biopsy::probe::stacks::StacksProbe;
use biopsy::refusal::{Refusal, plain};
use biopsy::symbols::{Names, Symbolizer};
use biopsy::{probe, render, wire};
use serde_json::{Map, Value};

use crate::cli::{Color, Locks};
use crate::output::Sink;
use crate::submitters::Chosen;
use crate::watch::{self, Piece, Probe, Watch};
use crate::{clock, output, stop, window};

/// Samples of each CPU a second, where the functions of the LRU lists cannot be followed.
const FREQUENCY: u64 = 99;

/// Both at one moment; of what could not be attached there is none.
#[derive(Clone)]
struct Reading {
    locks: Option<wire::locks::Reading>,
    pagecache: Option<wire::pagecache::Reading>,
}

/// The probes of the view. One that this machine refuses leaves the other.
struct Probes {
    locks: Option<LockProbe>,
    pagecache: Option<PagecacheProbe>,
    /// Why one is not there.
    missing: Vec<Missing>,
    start: Reading,
}

impl Probes {
    fn attach(host: &Host, locks: &Options, pagecache: &probe::pagecache::Options) -> Result<Self> {
        let root = Path::new("/");
        let locks = LockProbe::attach(host, root, locks);
        let pagecache = PagecacheProbe::attach(host, root, pagecache);
        let mut missing = Vec::new();
        let mut refused = |part: &str, error: &anyhow::Error| {
            missing.push(Missing {
                part: Some(part.to_string()),
                reason: "refused".to_string(),
                why: plain(&format!("{error:#}")),
                ..Missing::default()
            });
        };
        let (locks, pagecache) = match (locks, pagecache) {
            (Err(error), Err(_)) => return Err(error),
            (Ok(locks), Err(error)) => {
                refused("pagecache", &error);
                (Some(locks), None)
            }
            (Err(error), Ok(pagecache)) => {
                refused("locks", &error);
                (None, Some(pagecache))
            }
            (Ok(locks), Ok(pagecache)) => (Some(locks), Some(pagecache)),
        };
        let start = Reading {
            locks: locks.as_ref().map(|locks| locks.start().clone()),
            pagecache: pagecache.as_ref().map(|pagecache| pagecache.start().clone()),
        };
        Ok(Self { locks, pagecache, missing, start })
    }
}

impl Probe for Probes {
    type Reading = Reading;

    fn start(&self) -> &Reading {
        &self.start
    }

    fn wait(&mut self, deadline: Option<Instant>, stop: &dyn Fn() -> bool) -> bool {
        let other = RefCell::new(self.pagecache.as_mut());
        let Some(locks) = &mut self.locks else {
            return other.into_inner().is_none_or(|pagecache| pagecache.wait(deadline, stop));
        };
        locks.wait(deadline, &|| {
            if let Some(pagecache) = other.borrow_mut().as_mut() {
                pagecache.tick();
            }
            stop()
        })
    }

    fn read(&self) -> Result<Reading> {
        Ok(Reading {
            locks: self.locks.as_ref().map(LockProbe::read).transpose()?,
            pagecache: self.pagecache.as_ref().map(PagecacheProbe::read).transpose()?,
        })
    }

    fn detach(&mut self) -> Result<Reading> {
        Ok(Reading {
            locks: self.locks.as_mut().map(LockProbe::detach).transpose()?,
            pagecache: self.pagecache.as_mut().map(PagecacheProbe::detach).transpose()?,
        })
    }
}

pub fn run(args: &Locks, color: Color) -> Result<()> {
    let host = Host::read(Path::new("/"))?;
    let devices = window::resolve(&host, &args.window)?;
    let chosen = Chosen::new(&args.submitters)?;
    let mut sink = Sink::open(args.output.output.as_deref())?;
    stop::install();
    let cost = !args.window.no_cost;
    let options = Options {
        filter: chosen.filter.clone(),
        max_cost: args.max_cost,
        room: args.fault_locks.unwrap_or(ROOM),
        spin: !args.no_spin,
        cost,
        no_events: args.fault_no_events,
    };
    let of_memory = probe::pagecache::Options { devices: devices.clone(), functions: true, cost };
    let mut probes = Probes::attach(&host, &options, &of_memory)?;
    // What the functions' shares come from where nobody may attach to them.
    let follows = probes.pagecache.as_ref().is_none_or(PagecacheProbe::follows_functions);
    let mut samples = if follows || args.no_spin { None } else { StacksProbe::attach(FREQUENCY).ok() };
    let watch = Watch {
        named: &devices,
        window: &args.window,
        interval: &args.interval,
        command: &args.command,
        json: args.output.json,
        are_gone: &|| chosen.are_gone(),
    };
    let symbolizer = Symbolizer::new();
    // Names that are known stay known.
    let names = RefCell::new(Names::default());
    let waits = |from: &Reading, to: &Reading| {
        let (from, to) = (from.locks.as_ref()?, to.locks.as_ref()?);
        let mut wanted = locks::addresses(to);
        let mut names = names.borrow_mut();
        wanted.kernel.retain(|address| names.kernel(*address).is_empty());
        names.kernel.extend(symbolizer.names(&wanted).kernel);
        Some(locks::summarize(&host, from, to, &names, &devices))
    };
    let mut memory = |piece: &Piece<'_, Reading>| {
        let (from, to) = (piece.from.pagecache.as_ref()?, piece.to.pagecache.as_ref()?);
        let mut summary = pagecache::summarize(&Surroundings::read(Path::new("/"), &host), from, to);
        if let Some(raw) = samples.take_if(|_| piece.last).and_then(|samples| samples.finish().ok()) {
            summary.paths = paths::sampled(&raw, &symbolizer.names(&stacks::addresses(&raw)));
        }
        Some(summary)
    };
    let style = |further: bool| render::text::locks::Style {
        all: args.all,
        color: output::colored(color),
        brief: further,
    };
    let view = |probes: &Probes, piece: &Piece<'_, Reading>| {
        let (locks, pagecache) = (waits(piece.from, piece.to), memory(piece));
        let envelope = envelope(probes, locks.as_ref(), pagecache.as_ref(), piece.start);
        match args.output.json {
            true => json(&envelope, locks.as_ref(), pagecache.as_ref(), piece.status),
            false => text(&envelope, locks.as_ref(), pagecache.as_ref(), piece.status, style(piece.further))
                .into_bytes(),
        }
    };
    let (first, end) = watch::run(&mut probes, &watch, &mut sink, view)?;
    let whole = waits(&first, &end);
    match whole.and_then(|whole| locks::trust::distrust(&whole, args.window.max_loss)) {
        Some(why) => Err(Refusal::Untrusted(why).into()),
        None => Ok(()),
    }
}

fn envelope(
    probes: &Probes,
    locks: Option<&LockSummary>,
    pagecache: Option<&PagecacheSummary>,
    start: &str,
) -> Envelope {
    let mut envelope =
        Envelope { start: start.to_string(), missing: probes.missing.clone(), ..clock::envelope() };
    if let Some((probe, summary)) = probes.pagecache.as_ref().zip(pagecache) {
        let ios: u64 = summary.series.iter().filter_map(|moment| moment.ios).sum();
        envelope.duration_ns = summary.duration_ns;
        envelope.lost.probes.insert("pagecache".to_string(), summary.lost.clone());
        envelope.cost = probe.cost(ios as f64 / summary.seconds().max(1e-9));
        envelope.missing.extend(probe.missing().iter().cloned());
    }
    if let Some((probe, summary)) = probes.locks.as_ref().zip(locks) {
        let mut lost = locks::trust::lost(summary);
        lost.probes.append(&mut envelope.lost.probes);
        let cost = probe.cost(summary.contentions_per_second());
        envelope.duration_ns = summary.duration_ns;
        envelope.lost = lost;
        envelope.cost = if pagecache.is_some() { cost.plus(envelope.cost) } else { cost };
        envelope.missing.extend(locks::missing(probe.missing(), summary));
    }
    envelope
}

fn json(
    envelope: &Envelope,
    locks: Option<&LockSummary>,
    pagecache: Option<&PagecacheSummary>,
    status: Option<i32>,
) -> Vec<u8> {
    let mut all = render::json::object("biopsy.locks/1", envelope);
    let mut parts = Map::new();
    parts.extend(locks.map(render::json::locks::body).into_iter().flatten());
    parts.extend(
        pagecache
            .map(|summary| ("pagecache".to_string(), Value::Object(render::json::pagecache::body(summary)))),
    );
    parts.extend(status.map(|status| ("command_status".to_string(), status.into())));
    all.extend(parts);
    render::json::line(all)
}

fn text(
    envelope: &Envelope,
    locks: Option<&LockSummary>,
    pagecache: Option<&PagecacheSummary>,
    status: Option<i32>,
    style: render::text::locks::Style,
) -> String {
    let memory = pagecache.map(render::text::pagecache::render).unwrap_or_default();
    let Some(locks) = locks else {
        let mut out = memory;
        out.push_str(&render::text::footer::cost(envelope));
        if !style.brief {
            out.push_str(&render::text::footer::missing(&envelope.missing, &[]));
        }
        return out;
    };
    render::text::locks::render(envelope, locks, &memory, status, style)
}
