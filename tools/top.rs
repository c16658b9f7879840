//! `biopsy top`: what the machine does, a line at a time, by the kernel's own counters.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use biopsy::analyze::top;
use biopsy::envelope::Envelope;
use biopsy::host::activity::{self, Activity};
use biopsy::host::{Host, select};
use biopsy::refusal::Refusal;
use biopsy::render::{json, text};
use biopsy::session::watch::Shown;
use biopsy::session::window::{Until, Window, are_gone};
use biopsy::session::{stop, wall_clock};

use crate::cli::Top;
use crate::output;
use crate::output::Sink;
use crate::replay;

/// As dstat and vmstat.
const EVERY: Duration = Duration::from_secs(1);

/// How soon Ctrl-C is seen.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A last piece that is shorter shows noise: text leaves it out. JSON does not, as its lines sum up to the whole.
const SHORTEST: Duration = Duration::from_millis(100);

pub fn run(args: &Top) -> Result<()> {
    if !args.plain && !args.output.json {
        let why = "the full-screen view is not there yet: biopsy top --plain prints a line per second";
        return Err(Refusal::Usage(why.to_string()).into());
    }
    let (mut lines, mut said) = (0, Vec::new());
    let kept = replay::run(&args.input, &args.output, |shown: &Shown<'_, top::Line>| {
        lines += 1;
        Ok(match args.output.json {
            true => json::view(shown.envelope, shown.summary, shown.status),
            false => text_of(shown.summary, lines - 1, &mut said).into_bytes(),
        })
    });
    if let Some(shown) = kept {
        return shown;
    }
    let root = Path::new("/");
    let mut disks = Disks::new(root, &args.devices)?;
    let mut sink = Sink::open(args.output.output.as_deref())?;
    stop::install();
    let every = args.interval.interval.unwrap_or(EVERY);
    let named = disks.named.clone();
    let mut window = Window::open(Until {
        length: args.length,
        command: &[],
        quiet_stdout: true,
        named: &named,
        followed: None,
        say: output::warn,
    })?;
    let end = window.end_at();
    let mut due = Instant::now() + every;
    let (mut start, mut last) = (wall_clock::now_rfc3339(), disks.read(root));
    let (mut shown, mut said) = (0, Vec::new());
    loop {
        let deadline = end.map_or(due, |end| end.min(due));
        let cut = !wait(deadline, &mut window);
        let next_start = wall_clock::now_rfc3339();
        let now = disks.read(root);
        let line = top::line(&last, &now, &disks.total);
        if args.output.json || shown == 0 || !cut || Duration::from_nanos(line.duration_ns) >= SHORTEST {
            let bytes = match args.output.json {
                true => json::view(&envelope(start, &line), &line, None),
                false => text_of(&line, shown, &mut said).into_bytes(),
            };
            sink.write(&bytes)?;
            shown += 1;
        }
        let over = cut || end.is_some_and(|end| deadline >= end);
        if over || args.interval.count.is_some_and(|count| shown >= count) {
            break;
        }
        (start, last) = (next_start, now);
        // A machine that was stopped has no lines to catch up with.
        due = (due + every).max(Instant::now());
        disks.look_again(root)?;
    }
    if !stop::requested() && disks.are_gone() {
        return Err(Refusal::Untrusted(format!("{} is gone", disks.named.join(", "))).into());
    }
    Ok(())
}

fn envelope(start: String, line: &top::Line) -> Envelope {
    Envelope { start, duration_ns: line.duration_ns, missing: line.missing.clone(), ..wall_clock::envelope() }
}

/// With the header above the first line, and on a terminal again where it has scrolled away. `said` is what was said of
/// the line before: what stays as it is is not said again.
fn text_of(line: &top::Line, shown: u64, said: &mut Vec<String>) -> String {
    let why: Vec<String> = line.missing.iter().map(|missing| missing.why.clone()).collect();
    why.iter().filter(|why| !said.contains(why)).for_each(|why| output::warn(why));
    *said = why;
    let rows = output::rows().filter(|_| io::stdout().is_terminal());
    let again = rows.is_some_and(|rows| shown.is_multiple_of(rows.saturating_sub(3).max(1)));
    let header = if shown == 0 || again { text::top::header() } else { String::new() };
    header + &text::top::line(line)
}

/// Until then: true; false where it is to end before.
fn wait(deadline: Instant, window: &mut Window<'_>) -> bool {
    loop {
        if window.is_stopped() {
            return false;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(LOOK_EVERY));
    }
}

/// The disks of the view.
struct Disks {
    /// With -d; empty: all.
    named: Vec<String>,
    /// Read at each line.
    all: Vec<String>,
    /// Summed up.
    total: Vec<String>,
    /// In `/sys/block` when they were chosen.
    present: Vec<String>,
}

impl Disks {
    fn new(root: &Path, devices: &[String]) -> Result<Self> {
        let present = activity::disk_names(root);
        let host = Host::read(root)?;
        let mut named = Vec::new();
        for text in devices {
            let name = select::find(&host, root, text)?.name().to_string();
            if !named.contains(&name) {
                named.push(name);
            }
        }
        select::disjoint(&host, &named)?;
        let all = if named.is_empty() { activity::whole_disks(&host) } else { named.clone() };
        let total = activity::without_upper(&host, &all);
        Ok(Self { named, all, total, present })
    }

    fn read(&self, root: &Path) -> Activity {
        Activity::read(root, &self.all, wall_clock::both)
    }

    /// Disks that came since are in the view from now on.
    fn look_again(&mut self, root: &Path) -> Result<()> {
        if self.named.is_empty() && activity::disk_names(root) != self.present {
            *self = Self::new(root, &[])?;
        }
        Ok(())
    }

    fn are_gone(&self) -> bool {
        are_gone(&self.named)
    }
}
