//! `biopsy latency`: I/O latency by stage.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use biopsy::analyze::groups::{self, Dimension};
use biopsy::analyze::latency::LatencySummary;
use biopsy::envelope::Reason;
use biopsy::host::{Host, activity};
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::{Options, Stages};
use biopsy::refusal::Refusal;
use biopsy::render;
use biopsy::session::latency::LatencyView;
use biopsy::session::submitters::SubmitterFilter;
use biopsy::session::watch::IntervalView;
use biopsy::session::window::{Until, Window};
use biopsy::session::{overhead, stop, wall_clock};

use crate::cli::{Color, Latency};
use crate::live::{self, LiveOptions};
use crate::output::{self, Sink};
use crate::screen::Screen;
use crate::{replay, window};

pub fn run(args: &Latency, color: Color) -> Result<()> {
    let mut screen = Screen::of(&args.output, &args.lines, args.all, &args.interval, &args.input)?;
    let text = |shown: &IntervalView<'_, LatencySummary>| {
        let style = render::text::Style {
            all: args.all,
            color: output::colored(color),
            brief: shown.is_further,
            width: output::width(&args.output),
        };
        render::text::latency::render(shown.envelope, shown.summary, shown.status, style)
    };
    if let Some(shown) = replay::run(&args.input, &args.output, |shown| Ok(screen.show(shown, text))) {
        screen.finish(&shown);
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
    // Detaching from functions takes seconds, too long for slices.
    let is_sliced =
        args.max_cost > 0.0 && !args.detail && by.is_empty() && !args.measure_cost && !args.functions;
    let options = Options {
        group_by: (!by.is_empty()).then(|| groups::mask(&by)),
        filter: chosen.filter.clone(),
        layers: true,
        stages: args.stages,
        budget: is_sliced.then_some(args.max_cost),
        parts: args.detail,
        functions: args.functions,
        ..window::options(named.clone(), &args.window)
    };
    if args.measure_cost {
        return measure_cost(args, &host, &named, &chosen, Options { cost: false, ..options }, sink);
    }
    let mut probe = LatencyProbe::attach(&host, Path::new("/"), &options)?;
    let asked = LiveOptions {
        named: &named,
        window: &args.window,
        interval: &args.interval,
        command: &args.command,
        followed: Some(&chosen),
        quiet_stdout: args.output.json,
    };
    let result = live::run(view, &mut probe, &asked, sink, |_, shown| Ok(screen.show(shown, text)));
    screen.finish(&result);
    result
}

/// Measures what the probes cost the load.
fn measure_cost(
    args: &Latency,
    host: &Host,
    named: &[String],
    chosen: &SubmitterFilter,
    options: Options,
    mut sink: Sink,
) -> Result<()> {
    let least = overhead::length(overhead::LEAST_PAIRS);
    if args.window.length.is_some_and(|length| length < least) {
        let why = format!(
            "--measure-cost takes at least {least:?}: use --for {least:?} or more, or leave out \
                --for"
        );
        return Err(Refusal::Usage(why).into());
    }
    let mut probe = LatencyProbe::attach(host, Path::new("/"), &options)?;
    window::announce(named, &args.window, &args.command);
    let until = live::until(named, &args.window, &args.command, Some(chosen));
    let mut envelope = wall_clock::envelope();
    let began = Instant::now();
    let mut window = Window::open(Until { quiet_stdout: args.output.json, ..until })?;
    // An I/O of an upper device is also one of the devices below it: count only the lowest.
    let disks = match named {
        [] => activity::without_upper(host, &probe.devices().map(String::from).collect::<Vec<_>>()),
        named => named.to_vec(),
    };
    let summary = overhead::measure(&mut probe, &mut window, &disks)?;
    envelope.duration_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    envelope.missing = probe.missing().iter().filter(|gap| gap.reason == Reason::Refused).cloned().collect();
    drop(probe);
    let status = window.status();
    sink.write(&match args.output.json {
        true => render::json::view(&envelope, &summary, status),
        false => output::fitted(&args.output, &render::text::overhead::render(&envelope, &summary)),
    })?;
    // The result of an interrupted run was shown.
    match summary.distrust().filter(|_| !stop::requested()) {
        Some(why) => Err(Refusal::Untrusted(why.to_string()).into()),
        None => Ok(()),
    }
}

/// Refuses options that need events which `--stages` excludes.
fn refuse_stages(args: &Latency) -> Result<()> {
    let is_device = args.stages == Stages::Device;
    let needs = [
        ("--detail", args.detail && args.stages != Stages::All, "all"),
        ("--functions", args.functions && args.stages != Stages::All, "all"),
        ("--by", is_device && !args.by.is_empty(), "queue,device"),
        ("-p, --comm and --cgroup", is_device && !args.submitters.is_empty(), "queue,device"),
    ];
    match needs.iter().find(|(_, is_refused, _)| *is_refused) {
        Some((what, _, least)) => {
            let why = format!("{what} needs more stages: use --stages {least}, or leave it out");
            Err(Refusal::Usage(why).into())
        }
        None => Ok(()),
    }
}
