//! `biopsy errors`: failed, retried and requeued I/Os.

use std::path::Path;

use anyhow::Result;
use biopsy::analyze::errors::ErrorSummary;
use biopsy::host::Host;
use biopsy::probe::errors::ErrorProbe;
use biopsy::render::{json, text};
use biopsy::session::errors::ErrorView;
use biopsy::session::stop;
use biopsy::session::watch::IntervalView;

use crate::cli::Errors;
use crate::live::{self, LiveOptions};
use crate::output::{self, Sink};
use crate::{replay, window};

pub fn run(args: &Errors) -> Result<()> {
    let show = |shown: &IntervalView<'_, ErrorSummary>| {
        Ok(match args.output.json {
            true => json::view(shown.envelope, shown.summary, shown.status),
            false => {
                output::note_programs(shown.envelope);
                let width = output::width(&args.output);
                text::errors::render(shown.envelope, shown.summary, shown.status, shown.is_further, width)
                    .into_bytes()
            }
        })
    };
    if let Some(shown) = replay::run(&args.input, &args.output, show) {
        return shown;
    }
    let root = Path::new("/");
    let host = Host::read(root)?;
    let named = window::resolve(&host, &args.window.devices, "errors")?;
    let sink = Sink::open(args.output.output.as_deref())?;
    stop::install();
    let mut probe = ErrorProbe::attach(&host, root, !args.window.no_cost)?;
    let asked = LiveOptions {
        named: &named,
        window: &args.window,
        interval: &args.interval,
        command: &args.command,
        followed: None,
        quiet_stdout: args.output.json,
    };
    let view = ErrorView { host: &host, named: &named };
    live::run(view, &mut probe, &asked, sink, |_, shown| show(shown))
}
