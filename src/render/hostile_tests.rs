//! Recordings with hostile numbers: whatever can be read must be merged, shown and diagnosed without a panic.

use std::cell::Cell;
use std::fmt::Debug;
use std::io::BufRead as _;
use std::path::Path;

use serde_json::{Value, json};

use super::text::interval_lines::{IntervalLines, Intervals};
use super::{html, json as json_of, text};
use crate::analyze::devices::HostSummary;
use crate::analyze::errors::ErrorSummary;
use crate::analyze::interrupts::InterruptSummary;
use crate::analyze::latency::LatencySummary;
use crate::analyze::loss;
use crate::analyze::pressure::PressureSummary;
use crate::analyze::threads::ThreadSummary;
use crate::analyze::timeline::Timeline;
use crate::analyze::top::TopInterval;
use crate::envelope::{Envelope, View};
use crate::load::random::below;
use crate::merge::Summary;
use crate::recording::together::{MergedRecording, Together};
use crate::recording::{Piece, Pieces, Span, name_of, source};
use crate::rules::fixtures::Case;
use crate::rules::{self, Summaries, inputs};

/// Per view.
const CASES: u64 = 200;

const HOSTILE: [u64; 5] = [0, 1, 1 << 53, 1 << 63, u64::MAX];

/// Histogram counts: a histogram is accepted only if the count is the sum of its buckets.
const COUNTS: [u64; 4] = [1, 1 << 53, 1 << 63, u64::MAX];

/// The recordings in `tests/recordings`.
const RECORDINGS: [&str; 2] = ["0.2.0-linux-5.10.biopsy.tar", "0.2.0-linux-6.18.biopsy.tar"];

/// Some lines of the view in each recording.
fn lines(view: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let of = |name: &&str| {
        let lines = source::open(&folder.join(name), view).unwrap().lines();
        lines.take(6).map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect::<Vec<Value>>()
    };
    RECORDINGS.iter().flat_map(of).collect()
}

/// Every number, and every histogram as a whole.
fn places<'a>(value: &'a mut Value, all: &mut Vec<&'a mut Value>) {
    let is_whole = match &*value {
        Value::Object(keys) => keys.contains_key("buckets"),
        other => other.is_number(),
    };
    match value {
        whole if is_whole => all.push(whole),
        Value::Object(keys) => keys.values_mut().for_each(|value| places(value, all)),
        Value::Array(values) => values.iter_mut().for_each(|value| places(value, all)),
        _ => {}
    }
}

/// Replaces a random part of a line's numbers.
fn hostile(line: &Value, state: &mut u64) -> Value {
    let mut line = line.clone();
    let mut all = Vec::new();
    places(&mut line, &mut all);
    let one_in = [1, 3, 10, 50][below(state, 4) as usize];
    for place in all {
        if below(state, one_in) > 0 {
            continue;
        }
        let number = HOSTILE[below(state, HOSTILE.len() as u64) as usize];
        let count = COUNTS[below(state, COUNTS.len() as u64) as usize];
        *place = match place {
            Value::Object(keys) => {
                let unit = if keys.contains_key("sum_ns") { "_ns" } else { "" };
                let (lower, upper, value) =
                    [(0u64, 1u64, 0), (16, 17, 16), (1_065_151_889_408, 1 << 40, u64::MAX)]
                        [below(state, 3) as usize];
                let mut one = json!({ "buckets": [[lower, upper, count]], "count": count });
                for (key, value) in [("min", value), ("max", value), ("sum", number)] {
                    one[format!("{key}{unit}")] = json!(value);
                }
                one
            }
            Value::Number(old) if old.is_f64() => json!(number as f64),
            _ => json!(number),
        };
    }
    line
}

fn read<V: View>(line: &Value) -> Option<Piece<V>> {
    Pieces::new(line.to_string().as_bytes(), Span::default()).read().ok().flatten()
}

/// Reads, merges and shows lines of the view; returns how many were readable.
fn check<V: View + Summary + Clone + Debug>(
    seed: u64,
    show: impl Fn(&Envelope, &V, Option<i32>) -> String,
) -> usize {
    let lines = lines(name_of(V::SCHEMA));
    let mut known = 0;
    for case in 0..CASES {
        let mut state = seed << 32 | case;
        let some: Vec<_> = (0..3)
            .map(|_| hostile(&lines[below(&mut state, lines.len() as u64) as usize], &mut state))
            .filter_map(|line| read::<V>(&line))
            .collect();
        known += some.len();
        let shown = |piece: &Piece<V>| {
            show(&piece.envelope, &piece.view, piece.command_status);
            json_of::view(&piece.envelope, &piece.view, piece.command_status);
        };
        some.iter().for_each(&shown);
        let Some((first, rest)) = some.split_first() else { continue };
        let mut run = MergedRecording::new("a".to_string(), first.clone());
        rest.iter().chain([first, first]).for_each(|piece| run.add(piece.clone()).unwrap());
        shown(&run.clone().whole());
        let mut together = Together::default();
        for host in ["web1", "web2"] {
            let mut run = run.clone();
            run.host = Some(host.to_string());
            together.add(run).unwrap();
        }
        together.merge().iter().for_each(&shown);
    }
    known
}

/// Terminal widths; None stands for a pipe.
const WIDTHS: [usize; 3] = [80, 60, 20];

/// The text for a pipe; for a terminal, checks that no line is wider than the terminal.
fn at_each_width(show: impl Fn(Option<usize>, bool) -> String) -> String {
    thread_local!(static TURN: Cell<usize> = const { Cell::new(0) });
    // One width per call: all of them would take minutes.
    let turn = TURN.replace(TURN.get().wrapping_add(1));
    if let Some(width) = WIDTHS.get(turn % (2 * WIDTHS.len())).copied() {
        let text = show(Some(width), false);
        let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap_or_default();
        assert!(longest.chars().count() <= width, "{width}: {longest}");
    }
    show(None, true)
}

/// Same as interval lines.
fn lines_of(view: &impl Intervals) {
    at_each_width(|width, _| {
        let mut lines =
            IntervalLines::new(text::interval_lines::IntervalStyle { width, all: true, sort: None });
        lines.add("10:00:01", view) + &lines.add("10:00:02", view)
    });
}

/// The number of readable lines, by seed.
type Check = fn(u64) -> usize;

/// Each view, with its renderer.
const VIEWS: [(&str, Check); 6] = [
    ("latency", |seed| {
        check(seed, |envelope, view: &LatencySummary, status| {
            lines_of(view);
            at_each_width(|width, color| {
                let style = text::Style { all: true, color, brief: false, width };
                text::latency::render(envelope, view, status, style)
            })
        })
    }),
    ("interrupts", |seed| {
        check(seed, |envelope, view: &InterruptSummary, status| {
            lines_of(view);
            at_each_width(|width, color| {
                let style = text::Style { all: true, color, brief: false, width };
                text::interrupts::render(envelope, view, status, style)
            })
        })
    }),
    ("locks", |seed| {
        check(seed, |envelope, view: &PressureSummary, status| {
            lines_of(view);
            let memory = view.pagecache.as_ref().map(text::pagecache::render).unwrap_or_default();
            at_each_width(|width, color| {
                let style = text::Style { all: true, color, brief: false, width };
                match &view.locks {
                    Some(locks) => text::locks::render(envelope, locks, &memory, status, style),
                    None => text::locks::unseen(envelope, &memory, status, style),
                }
            })
        })
    }),
    ("threads", |seed| {
        check(seed, |envelope, view: &ThreadSummary, status| {
            lines_of(view);
            at_each_width(|width, color| {
                let style = text::Style { all: true, color, brief: false, width };
                text::threads::render(envelope, view, status, style)
            })
        })
    }),
    ("errors", |seed| {
        check(seed, |envelope, view: &ErrorSummary, status| {
            at_each_width(|width, _| text::errors::render(envelope, view, status, false, width))
        })
    }),
    ("top", |seed| {
        check(seed, |_, view: &TopInterval, _| {
            at_each_width(|width, _| text::top::fit(&(text::top::header() + &text::top::line(view)), width))
        })
    }),
];

#[test]
fn hostile_numbers_are_merged_and_shown() {
    for (seed, (view, check)) in (1..).zip(VIEWS) {
        let known = check(seed);
        assert!(known > CASES as usize / 4, "{view}: {known}");
    }
}

/// Some merged intervals of a view; None: nothing was readable.
fn merged<V: View + Summary + Clone>(
    lines: &[Value],
    state: &mut u64,
    mut look: impl FnMut(&V),
) -> Option<Piece<V>> {
    let mut run: Option<MergedRecording<V>> = None;
    for _ in 0..3 {
        let line = hostile(&lines[below(state, lines.len() as u64) as usize], state);
        let Some(piece) = read::<V>(&line) else { continue };
        look(&piece.view);
        match &mut run {
            Some(run) => run.add(piece).unwrap(),
            None => run = Some(MergedRecording::new("a".to_string(), piece)),
        }
    }
    run.map(MergedRecording::whole)
}

/// A line of host.json about a machine with this disk.
fn host(disk: &str) -> Value {
    let mut machine = Case::new(60_000, 32).host;
    machine.devices[0].name = disk.to_string();
    Value::Object(json_of::view_object(&Envelope::default(), &HostSummary { machine }, None))
}

/// As in `diagnose -i` and `report -i`.
#[test]
fn hostile_numbers_are_diagnosed() {
    let [latency_lines, interrupt_lines, lock_lines, thread_lines] =
        ["latency", "interrupts", "locks", "threads"].map(lines);
    let mut known = 0;
    for case in 0..2 * CASES {
        let state = &mut (7 << 32 | case);
        let mut timeline = Timeline::default();
        let latency = merged(&latency_lines, state, |interval: &LatencySummary| timeline.add(interval));
        timeline.finish();
        let Some(latency) = latency else { continue };
        let host = host(latency.view.devices.first().map_or("vda", |device| &device.name));
        let host = if below(state, 2) == 0 { hostile(&host, state) } else { host };
        let Some(host) = read::<HostSummary>(&host) else { continue };
        known += 1;
        let (host, envelope) = (host.view.machine, latency.envelope);
        let interrupts = merged::<InterruptSummary>(&interrupt_lines, state, |_| {});
        let interrupts = interrupts.map(|piece| piece.view);
        let pressure = merged::<PressureSummary>(&lock_lines, state, |_| {}).map(|piece| piece.view);
        let threads = merged::<ThreadSummary>(&thread_lines, state, |_| {}).map(|piece| piece.view);
        let pressure = pressure.unwrap_or_default();
        let locks = pressure.locks.as_ref().map(|locks| inputs::Locks::of(locks, host.cpus_online));
        let pagecache = pressure.pagecache.as_ref().map(inputs::PageCache::from);
        let sampled = threads.as_ref().map(inputs::ThreadsInput::from);
        let summaries = Summaries {
            envelope: &envelope,
            host: &host,
            latency: &latency.view,
            command: case % 2 == 0,
            rates: &[],
            interrupts: interrupts.as_ref(),
            load: None,
            scaling: None,
            experiment: None,
            cpu: None,
            quotas: &[],
            profile: None,
            locks: locks.as_ref(),
            pagecache: pagecache.as_ref(),
            threads: sampled.as_ref(),
        };
        let diagnosis = rules::diagnose(&summaries);
        let doubt = loss::distrust(&latency.view, &envelope.lost, 1.0);
        let json = json_of::view_object(&envelope, &latency.view, None);
        timeline.summary(&latency.view);
        let report = html::Report {
            summaries,
            diagnosis: &diagnosis,
            doubt: doubt.as_deref(),
            command: "biopsy report",
            command_status: latency.command_status,
            flames: &[],
            locks: pressure.locks.as_ref(),
            pagecache: pressure.pagecache.as_ref(),
            threads: threads.as_ref(),
            timeline: Some(&timeline),
            json: &json,
        };
        html::render(&report);
        let page = text::diagnose::Page {
            summaries,
            diagnosis: &diagnosis,
            doubt: doubt.as_deref(),
            command_status: latency.command_status,
            report: None,
            color: false,
        };
        text::diagnose::render(&page);
        text::brief::render(&page);
    }
    assert!(known > CASES / 2, "{known}");
}
