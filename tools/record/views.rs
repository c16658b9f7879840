//! The views of a recording, with the default options of their verbs.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use biopsy::analyze::flame::FlameSummary;
use biopsy::analyze::latency::LatencySummary;
use biopsy::analyze::threads::GroupColumn;
use biopsy::envelope::{Missing, Reason, View};
use biopsy::host::{Host, kernel};
use biopsy::probe;
use biopsy::probe::errors::ErrorProbe;
use biopsy::probe::events::EventOptions;
use biopsy::probe::interrupts::{InterruptProbe, TIME_EVERY};
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::Options;
use biopsy::probe::locks::ROOM;
use biopsy::probe::stacks::StacksProbe;
use biopsy::probe::threads::ThreadProbe;
use biopsy::recording::folder;
use biopsy::recording::tape::Tape;
use biopsy::refusal::{Refusal, plain};
use biopsy::render::json;
use biopsy::session::errors::ErrorView;
use biopsy::session::flame::OnCpuView;
use biopsy::session::interrupts::InterruptView;
use biopsy::session::io_events::{EventProbe, EventView, IoSink};
use biopsy::session::io_stream::StreamSink;
use biopsy::session::latency::LatencyView;
use biopsy::session::pressure::{self, PressureView, Probes};
use biopsy::session::record::Views;
use biopsy::session::slowest::{HeldIos, SlowestSink};
use biopsy::session::system::{SystemProbe, SystemView};
use biopsy::session::threads::{self, ThreadView};
use biopsy::session::top::{Disks, TopView};
use biopsy::session::watch::IntervalView;
use clap::ValueEnum;

use super::flight::Trigger;
use super::trace::{self, Link};
use crate::cli::{Record, Recordable};
use crate::{flame, window};

/// CPU budget for stacks of lock waits in percent. The recorded lines do not contain these stacks.
const MAX_COST: f64 = 1.0;

/// Samples of stacks per second and CPU, as in `flame`.
const FREQUENCY: u64 = 99;

/// Bytes of each CPU's event ring if only the slowest I/Os are recorded. Until the first tick, which comes after 50 ms,
/// every I/O sends an event.
const SLOWEST_RING: u32 = 1 << 20;

/// The devices of `-d`, with layers for some views and as disks for others.
pub struct SelectedDevices {
    pub layers: Vec<String>,
    /// An error if one of them has no requests.
    disks: Result<Vec<String>, Refusal>,
}

impl SelectedDevices {
    pub fn new(host: &Host, devices: &[String]) -> Result<Self> {
        Ok(Self {
            layers: window::resolve_layers(host, devices)?,
            disks: match window::resolve(host, devices, "interrupts, locks and errors") {
                Ok(disks) => Ok(disks),
                Err(error) => Err(error.downcast::<Refusal>()?),
            },
        })
    }

    fn disks(&self) -> Result<&[String]> {
        Ok(self.disks.as_ref().map_err(Clone::clone)?)
    }
}

impl Recordable {
    /// The name in the schema.
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Interrupts => "interrupts",
            Self::Locks => "locks",
            Self::Threads => "threads",
            Self::Stacks => folder::STACKS,
            Self::Errors => "errors",
            Self::Top => "top",
            Self::System => "system",
            Self::Trace => "trace",
        }
    }
}

/// Adds the views. A view that this machine refuses is left out, unless it was selected explicitly. For latency this is
/// always an error: without permission nothing is recorded.
pub fn add_all<'scope>(
    views: &mut Views<'scope, '_, Tape>,
    asked: &RecordOptions<'scope>,
    tape: impl Fn(Recordable) -> Result<Tape>,
    drop: impl Fn(Recordable),
) -> Result<Vec<Missing>> {
    let with = &asked.args.with;
    let mut missing = Vec::new();
    let both = [Recordable::Latency, Recordable::Trace].iter().all(|view| with.contains(view));
    let mut link = if both && asked.ios.is_none() { Link::new() } else { Link::default() };
    for view in Recordable::value_variants().iter().copied() {
        let is_wanted = if with.is_empty() { view != Recordable::Trace } else { with.contains(&view) };
        if !is_wanted {
            continue;
        }
        if asked.args.redact && matches!(view, Recordable::Stacks | Recordable::Trace) {
            let why =
                format!("--redact replaces names in lines, but the view {} has them elsewhere", view.name());
            if !with.is_empty() {
                let why = format!("{why}: leave {} out of --with, or leave out --redact", view.name());
                return Err(Refusal::Usage(why).into());
            }
            missing.push(Missing {
                part: Some(view.name().to_string()),
                reason: Reason::NotAskedFor,
                why: format!("{} are not recorded: {why}", view.name()),
                ..Missing::default()
            });
            continue;
        }
        // The latency view records the slowest I/Os.
        if view == Recordable::Trace && asked.ios.is_some() {
            continue;
        }
        let mut added = add(views, view, tape(view)?, asked, &mut link);
        if let (Recordable::Latency, Err(error), true) =
            (view, &added, asked.ios.is_some() && with.is_empty())
        {
            missing.push(refused(Recordable::Trace, error));
            drop(view);
            added = add(views, view, tape(view)?, &RecordOptions { ios: None, ..*asked }, &mut link);
        }
        if let Err(error) = added {
            if !with.is_empty() || view == Recordable::Latency {
                return Err(error);
            }
            missing.push(refused(view, &error));
            drop(view);
        }
    }
    Ok(missing)
}

fn refused(view: Recordable, error: &anyhow::Error) -> Missing {
    Missing {
        part: Some(view.name().to_string()),
        reason: Reason::Refused,
        why: format!("{} is not recorded: {}", view.name(), plain(&format!("{error:#}"))),
        ..Missing::default()
    }
}

/// The options of the recording.
#[derive(Clone, Copy)]
pub struct RecordOptions<'a> {
    pub args: &'a Record,
    pub host: &'a Host,
    pub named: &'a SelectedDevices,
    pub trigger: Option<&'a Trigger>,
    /// Collects the slowest I/Os of each interval, if requested.
    pub ios: Option<&'a Arc<Mutex<HeldIos>>>,
    /// The recording's folder, and the bytes of all views; None: kept in memory.
    pub folder: Option<(&'a Path, &'a Arc<AtomicU64>)>,
}

/// Adds a view.
fn add<'scope>(
    views: &mut Views<'scope, '_, Tape>,
    view: Recordable,
    tape: Tape,
    asked: &RecordOptions<'scope>,
    link: &mut Link,
) -> Result<()> {
    let RecordOptions { args, host, named, trigger, ios, .. } = *asked;
    let root = Path::new("/");
    let cost = !args.window.no_cost;
    match view {
        Recordable::Latency => {
            let options = Options { layers: true, ..window::options(named.layers.clone(), &args.window) };
            let keep = move |tape: &mut Tape, shown: &IntervalView<'_, LatencySummary>| {
                if let Some(trigger) = trigger {
                    trigger.look(shown.summary, shown.end_ns);
                }
                keep(tape, shown)
            };
            let (events, sink): (_, Box<dyn IoSink + 'scope>) = match (ios, link.to.take()) {
                (Some(ios), _) => {
                    let events = EventOptions { ring_bytes: Some(SLOWEST_RING), ..EventOptions::default() };
                    (events, Box::new(SlowestSink::new(Arc::clone(ios))))
                }
                (None, Some(to)) => (trace::each(), Box::new(StreamSink::new(host, &named.layers, to))),
                (None, None) => {
                    let prepare = move || {
                        Ok((LatencyView::new(host, &[])?, LatencyProbe::prepare(host, root, &options)?))
                    };
                    return views.add(view.name(), tape, prepare, keep);
                }
            };
            let options = Options { events: Some(events), ..options };
            let prepare = move || {
                let probe = LatencyProbe::prepare(host, root, &options)?;
                Ok((EventView::new(LatencyView::new(host, &[])?), EventProbe::new(host, probe, sink)))
            };
            views.add(view.name(), tape, prepare, keep)
        }
        Recordable::Interrupts => {
            let options =
                probe::interrupts::Options { devices: named.disks()?.to_vec(), time_every: TIME_EVERY, cost };
            let prepare = move || {
                Ok((
                    InterruptView { host, time_every: TIME_EVERY },
                    InterruptProbe::prepare(host, root, &options)?,
                ))
            };
            views.add(view.name(), tape, prepare, keep)
        }
        Recordable::Locks => {
            let locks = probe::locks::Options {
                filter: probe::filter::Filter::default(),
                max_cost: MAX_COST,
                room: ROOM,
                waiters: false,
                spin: true,
                cost,
                no_events: false,
            };
            let disks = named.disks()?;
            let memory = probe::pagecache::Options { devices: disks.to_vec(), functions: true, cost };
            let prepare = move || {
                let probes = Probes::prepare(host, &locks, &memory)?;
                let naming = pressure::PressureSymbolizer::new(host, disks, !probes.follows_functions());
                Ok((PressureView { naming, has_cost: cost }, probes))
            };
            views.add(view.name(), tape, prepare, keep)
        }
        Recordable::Threads => {
            let disks = named.disks()?;
            let number = |name: &String| host.device(name).map(|disk| disk.major << 20 | disk.minor);
            let options = probe::threads::Options {
                devices: disks.iter().filter_map(number).collect(),
                by_device: !disks.is_empty(),
                cost,
                ..Default::default()
            };
            let prepare = move || {
                let naming = threads::ThreadSymbolizer::new(host, root);
                Ok((
                    ThreadView { naming, columns: &GroupColumn::USUAL, shares_process: true },
                    ThreadProbe::prepare(root, options)?,
                ))
            };
            views.add(view.name(), tape, prepare, keep)
        }
        Recordable::Stacks => {
            let prepare = || Ok((OnCpuView::new(), StacksProbe::prepare(FREQUENCY, &[])?));
            let place = kernel::hostname(root).unwrap_or_default();
            let keep = move |tape: &mut Tape, shown: &IntervalView<'_, FlameSummary>| {
                let profile = flame::profile(shown.summary, shown.envelope, &place, None);
                tape.add(&profile, shown.envelope, shown.end_ns)
            };
            views.add(view.name(), tape, prepare, keep)
        }
        Recordable::Errors => {
            let disks = named.disks()?;
            let prepare =
                move || Ok((ErrorView { host, named: disks }, ErrorProbe::prepare(host, root, cost)?));
            views.add(view.name(), tape, prepare, keep)
        }
        Recordable::Trace => trace::add(views, tape, asked, link.from.take()),
        Recordable::System => {
            let prepare = move || Ok((SystemView, SystemProbe::prepare(root, host, &named.layers)));
            views.add(view.name(), tape, prepare, keep)
        }
        Recordable::Top => {
            let prepare = move || {
                let disks = Disks::new(root, &args.window.devices)?;
                Ok((TopView { named: disks.named().to_vec() }, disks))
            };
            views.add(view.name(), tape, prepare, keep)
        }
    }
}

fn keep<V: View>(tape: &mut Tape, shown: &IntervalView<'_, V>) -> Result<()> {
    tape.add(&json::view(shown.envelope, shown.summary, shown.status), shown.envelope, shown.end_ns)
}
