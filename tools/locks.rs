//! `biopsy locks`.

use std::cell::RefCell;
use std::path::Path;

use anyhow::Result;
use biopsy::analyze::locks::{addresses, missing, summarize, trust};
use biopsy::envelope::Envelope;
use biopsy::host::Host;
use biopsy::probe::locks::{LockProbe, Options, ROOM};
use biopsy::refusal::Refusal;
use biopsy::render;
use biopsy::symbols::{Names, Symbolizer};
use biopsy::wire::locks::Reading;

use crate::cli::{Color, Locks};
use crate::output::Sink;
use crate::submitters::Chosen;
use crate::watch::{self, Piece, Watch};
use crate::{clock, output, stop, window};

pub fn run(args: &Locks, color: Color) -> Result<()> {
    let host = Host::read(Path::new("/"))?;
    let devices = window::resolve(&host, &args.window)?;
    let chosen = Chosen::new(&args.submitters)?;
    let mut sink = Sink::open(args.output.output.as_deref())?;
    stop::install();
    let options = Options {
        filter: chosen.filter.clone(),
        max_cost: args.max_cost,
        room: args.fault_locks.unwrap_or(ROOM),
        spin: !args.no_spin,
        cost: !args.window.no_cost,
        no_events: args.fault_no_events,
    };
    let mut probe = LockProbe::attach(&host, Path::new("/"), &options)?;
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
    let view = |probe: &LockProbe, piece: &Piece<'_, Reading>| {
        let mut wanted = addresses(piece.to);
        let mut names = names.borrow_mut();
        wanted.kernel.retain(|address| names.kernel(*address).is_empty());
        names.kernel.extend(symbolizer.names(&wanted).kernel);
        let summary = summarize(&host, piece.from, piece.to, &names, &devices);
        let envelope = Envelope {
            start: piece.start.to_string(),
            duration_ns: summary.duration_ns,
            lost: trust::lost(&summary),
            cost: probe.cost(summary.contentions_per_second()),
            missing: missing(probe.missing(), &summary),
            ..clock::envelope()
        };
        if args.output.json {
            return render::json::locks::render(&envelope, &summary, serde_json::Map::new(), piece.status);
        }
        let style =
            render::text::locks::Style { all: args.all, color: output::colored(color), brief: piece.further };
        render::text::locks::render(&envelope, &summary, "", piece.status, style).into_bytes()
    };
    let (first, end) = watch::run(&mut probe, &watch, &mut sink, view)?;
    let whole = summarize(&host, &first, &end, &Names::default(), &devices);
    match trust::distrust(&whole, args.window.max_loss) {
        Some(why) => Err(Refusal::Untrusted(why).into()),
        None => Ok(()),
    }
}
