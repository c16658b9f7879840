//! `biopsy latency`.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use biopsy::analyze::{latency as analysis, layers};
use biopsy::envelope::Envelope;
use biopsy::host::Host;
use biopsy::probe::latency::{LatencyProbe, Options};
use biopsy::refusal::Refusal;
use biopsy::render;
use biopsy::wire::Reading;

use crate::child::Running;
use crate::cli::{Color, Latency};
use crate::output::Sink;
use crate::{clock, output, stop, window};

pub fn run(args: &Latency, color: Color) -> Result<()> {
    let host = Host::read(Path::new("/"))?;
    let devices = window::resolve_layers(&host, &args.window)?;
    let named = devices.clone();
    let mut sink = Sink::open(args.output.output.as_deref())?;
    stop::install();
    let options = Options { layers: true, parts: args.detail, ..window::options(devices, &args.window) };
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
    let view = |probe: &LatencyProbe, from: &Reading, to: &Reading, start: &str, status: Option<i32>| {
        let summary = analysis::summarize(&host, from, to);
        let seconds = (summary.duration_ns as f64 / 1e9).max(1e-9);
        let ios: u64 = summary.devices.iter().map(|d| d.ios).sum();
        let envelope = Envelope {
            start: start.to_string(),
            duration_ns: summary.duration_ns,
            lost: analysis::lost(&summary, from, to),
            cost: probe.cost(ios as f64 / seconds),
            missing: [probe.missing().to_vec(), analysis::missing(&summary), layers::missing(&summary)]
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
            let reached = probe.wait(Some(deadline), &|| window::over(&named));
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
            window::over(&named) || ended.borrow_mut().as_mut().is_some_and(|running| running.ended())
        });
    }
    // What the command still does after the window is not ours to measure.
    let end = probe.detach()?;
    let status = child.and_then(Running::status);
    let (bytes, ..) = view(&probe, &last, &end, &start_text, status);
    sink.write(&bytes)?;
    let whole = analysis::summarize(&host, &first, &end);
    match analysis::distrust(&whole, &analysis::lost(&whole, &first, &end), args.window.max_loss) {
        Some(why) => Err(Refusal::Untrusted(why).into()),
        None => Ok(()),
    }
}
