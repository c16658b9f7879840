//! `biopsy top`: a system overview, one line per interval, from the kernel's counters.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use biopsy::analyze::top;
use biopsy::probe::Probe;
use biopsy::refusal::Refusal;
use biopsy::render::{json, text};
use biopsy::session::stop;
use biopsy::session::top::{Disks, TopView};
use biopsy::session::watch::{self, IntervalView, Often};
use biopsy::session::window::Until;

use crate::cli::Top;
use crate::output;
use crate::output::Sink;
use crate::replay;

/// As in dstat and vmstat.
const EVERY: Duration = Duration::from_secs(1);

/// Text omits a last interval shorter than this, as its rates are noisy. JSON keeps it, so that its lines add up to the
/// total.
const SHORTEST: Duration = Duration::from_millis(100);

pub fn run(args: &Top) -> Result<()> {
    if !args.plain && !args.output.json {
        let why = "there is no full-screen view yet: biopsy top --plain prints a line per second";
        return Err(Refusal::Usage(why.to_string()).into());
    }
    let width = output::width(&args.output);
    let (mut lines, mut said) = (0, Vec::new());
    let kept = replay::run(&args.input, &args.output, |shown: &IntervalView<'_, top::TopInterval>| {
        lines += 1;
        Ok(match args.output.json {
            true => json::view(shown.envelope, shown.summary, shown.status),
            false => text_of(shown, lines - 1, &mut said, width).into_bytes(),
        })
    });
    if let Some(shown) = kept {
        return shown;
    }
    let mut disks = Disks::new(Path::new("/"), &args.devices)?;
    let mut sink = Sink::open(args.output.output.as_deref())?;
    stop::install();
    let every = args.interval.interval.unwrap_or(EVERY);
    let named = disks.named().to_vec();
    let until = Until {
        length: args.length,
        command: &[],
        quiet_stdout: true,
        named: &named,
        followed: None,
        say: output::warn,
    };
    let often = Often { interval: Some(every), count: args.interval.count };
    let mut view = TopView { named: named.clone() };
    let (mut lines, mut said) = (0, Vec::new());
    disks.begin()?;
    let doubt = watch::run(&mut view, &mut disks, until, often, 0.0, |_, shown| {
        let length = Duration::from_nanos(shown.summary.duration_ns);
        let bytes = match args.output.json {
            true => json::view(shown.envelope, shown.summary, None),
            false if shown.is_further && length < SHORTEST.min(every / 2) => return Ok(()),
            false => text_of(shown, lines, &mut said, width).into_bytes(),
        };
        lines += 1;
        sink.write(&bytes)
    })?;
    match doubt {
        Some(why) => Err(Refusal::Untrusted(why).into()),
        None => Ok(()),
    }
}

/// A line, with the header above the first one, and again on a terminal when it has scrolled away. `said` holds the
/// warnings of the previous line: they are not repeated.
fn text_of(
    line: &IntervalView<'_, top::TopInterval>,
    shown: u64,
    said: &mut Vec<String>,
    width: Option<usize>,
) -> String {
    let why: Vec<String> = line.envelope.missing.iter().map(|missing| missing.why.clone()).collect();
    why.iter().filter(|why| !said.contains(why)).for_each(|why| output::warn(why));
    *said = why;
    let rows = output::rows().filter(|_| io::stdout().is_terminal());
    let again = rows.is_some_and(|rows| shown.is_multiple_of(rows.saturating_sub(3).max(1)));
    let header = if shown == 0 || again { text::top::header() } else { String::new() };
    text::top::fit(&(header + &text::top::line(line.summary)), width)
}
