//! `biopsy latency`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use biopsy::analyze::groups::{self, Dimension};
use biopsy::analyze::latency::summarize;
use biopsy::analyze::{layers, loss, missing};
use biopsy::envelope::Envelope;
use biopsy::host::Host;
use biopsy::host::cgroups::Hierarchy;
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::Options;
use biopsy::refusal::Refusal;
use biopsy::render;
use biopsy::wire::reading::Reading;

use crate::cli::{Color, Latency};
use crate::output::Sink;
use crate::submitters::{self, Chosen};
use crate::watch::{self, Piece, Watch};
use crate::{clock, output, stop, window};

/// The paths of cgroups by id, where they are asked for: what ends within the window keeps its name.
struct Cgroups {
    hierarchy: Option<Hierarchy>,
    paths: BTreeMap<u64, String>,
}

impl Cgroups {
    fn new(by: &[Dimension]) -> Result<Self> {
        let hierarchy = if by.contains(&Dimension::Cgroup) { Some(submitters::hierarchy()?) } else { None };
        let paths = hierarchy.as_ref().map(Hierarchy::paths).unwrap_or_default();
        Ok(Self { hierarchy, paths })
    }

    fn now(&mut self) -> &BTreeMap<u64, String> {
        self.paths.extend(self.hierarchy.as_ref().map(Hierarchy::paths).unwrap_or_default());
        &self.paths
    }
}

pub fn run(args: &Latency, color: Color) -> Result<()> {
    let host = Host::read(Path::new("/"))?;
    let devices = window::resolve_layers(&host, &args.window.devices)?;
    let named = devices.clone();
    let chosen = Chosen::new(&args.submitters)?;
    let mut cgroups = Cgroups::new(&args.by)?;
    let mut sink = Sink::open(args.output.output.as_deref())?;
    stop::install();
    let mut by: Vec<Dimension> = Vec::new();
    for dimension in &args.by {
        if !by.contains(dimension) {
            by.push(*dimension);
        }
    }
    let options = Options {
        group_by: (!by.is_empty()).then(|| groups::mask(&by)),
        filter: chosen.filter.clone(),
        layers: true,
        parts: args.detail,
        ..window::options(devices, &args.window)
    };
    let mut probe = LatencyProbe::attach(&host, Path::new("/"), &options)?;
    let watch = Watch {
        named: &named,
        window: &args.window,
        interval: &args.interval,
        command: &args.command,
        json: args.output.json,
        are_gone: &|| chosen.are_gone(),
    };
    let view = |probe: &LatencyProbe, piece: &Piece<'_, Reading>| {
        let (from, to) = (piece.from, piece.to);
        let mut summary = summarize(&host, from, to);
        summary.groups = groups::summarize(&host, &by, cgroups.now(), from, to);
        let envelope = Envelope {
            start: piece.start.to_string(),
            duration_ns: summary.duration_ns,
            lost: loss::lost(&summary, from, to),
            cost: probe.cost(summary.ios_per_second()),
            missing: [probe.missing().to_vec(), missing::stages(&summary), layers::missing(&summary)]
                .concat(),
            ..clock::envelope()
        };
        if args.output.json {
            return render::json::view(&envelope, &summary, piece.status);
        }
        let style = render::text::latency::Style {
            all: args.all,
            color: output::colored(color),
            brief: piece.further,
        };
        render::text::latency::render(&envelope, &summary, piece.status, style).into_bytes()
    };
    let (first, end) = watch::run(&mut probe, &watch, &mut sink, view)?;
    let whole = summarize(&host, &first, &end);
    match loss::distrust(&whole, &loss::lost(&whole, &first, &end), args.window.max_loss) {
        Some(why) => Err(Refusal::Untrusted(why).into()),
        None => Ok(()),
    }
}
