//! `biopsy latency`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

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

use crate::child::Running;
use crate::cli::{Color, Latency};
use crate::output::Sink;
use crate::submitters::{self, Chosen};
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
    let devices = window::resolve_layers(&host, &args.window)?;
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
    let began = Instant::now();
    let mut start_text = clock::now_rfc3339();
    window::announce(&named, &args.window, &args.command);
    let mut child = match args.command.is_empty() {
        true => None,
        false => Some(Running::start(&args.command, args.output.json)?),
    };
    let end_at = args.window.length.map(|length| began + length);
    let first = probe.start().clone();
    let mut last = first.clone();
    let mut shown = 0;
    let mut view = |probe: &LatencyProbe, from: &Reading, to: &Reading, start: &str, status: Option<i32>| {
        let mut summary = summarize(&host, from, to);
        summary.groups = groups::summarize(&host, &by, cgroups.now(), from, to);
        let envelope = Envelope {
            start: start.to_string(),
            duration_ns: summary.duration_ns,
            lost: loss::lost(&summary, from, to),
            cost: probe.cost(summary.ios_per_second()),
            missing: [probe.missing().to_vec(), missing::stages(&summary), layers::missing(&summary)]
                .concat(),
            ..clock::envelope()
        };
        let bytes = if args.output.json {
            render::json::latency::render(&envelope, &summary, status)
        } else {
            let style = render::text::latency::Style {
                all: args.all,
                color: output::colored(color),
                brief: from.at_ns != first.at_ns,
            };
            render::text::latency::render(&envelope, &summary, status, style).into_bytes()
        };
        (bytes, summary, envelope)
    };

    if let Some(interval) = args.interval {
        let mut due = began + interval;
        loop {
            let deadline = end_at.map_or(due, |end| end.min(due));
            let reached = probe.wait(Some(deadline), &|| window::over(&named) || chosen.are_gone());
            if !reached
                || child.as_mut().is_some_and(Running::ended)
                || end_at.is_some_and(|end| deadline >= end)
            {
                break;
            }
            if args.count.is_some_and(|count| shown + 1 >= count) {
                break;
            }
            let reading = probe.read()?;
            let (bytes, ..) = view(&probe, &last, &reading, &start_text, None);
            sink.write(&bytes)?;
            shown += 1;
            last = reading;
            start_text = clock::now_rfc3339();
            due += interval;
        }
    } else {
        let ended = std::cell::RefCell::new(child.as_mut());
        probe.wait(end_at, &|| {
            window::over(&named)
                || chosen.are_gone()
                || ended.borrow_mut().as_mut().is_some_and(|running| running.ended())
        });
    }
    // What the command still does after the window is not ours to measure.
    let end = probe.detach()?;
    let status = child.and_then(Running::status);
    let (bytes, ..) = view(&probe, &last, &end, &start_text, status);
    sink.write(&bytes)?;
    let whole = summarize(&host, &first, &end);
    match loss::distrust(&whole, &loss::lost(&whole, &first, &end), args.window.max_loss) {
        Some(why) => Err(Refusal::Untrusted(why).into()),
        None => Ok(()),
    }
}
