//! Reads the results of a view as `-i` does, merges them as `--merge` does, and shows both.

use std::fmt::Debug;
use std::io::BufRead;

use biopsy::analyze::errors::ErrorSummary;
use biopsy::analyze::interrupts::InterruptSummary;
use biopsy::analyze::latency::LatencySummary;
use biopsy::analyze::pressure::PressureSummary;
use biopsy::analyze::threads::ThreadSummary;
use biopsy::analyze::top::TopInterval;
use biopsy::envelope::{Envelope, View};
use biopsy::merge::Summary;
use biopsy::recording::together::{MergedRecording, Together};
use biopsy::recording::{Piece, Pieces, Span, name_of};
use biopsy::render::{json, text};

/// More intervals than these show nothing new, and take time.
const MOST_INTERVALS: usize = 4;

/// What does something with each of the views that `-i` reads.
pub trait Each {
    fn view<V: View + Summary + Clone + PartialEq + Debug>(
        &mut self,
        name: &str,
        show: fn(&Envelope, &V, Option<i32>) -> String,
    );
}

pub fn each(with: &mut impl Each) {
    with.view(name_of(LatencySummary::SCHEMA), |envelope, view: &LatencySummary, status| {
        let style = text::Style { all: true, color: true, brief: false, width: None };
        text::latency::render(envelope, view, status, style)
    });
    with.view(name_of(InterruptSummary::SCHEMA), |envelope, view: &InterruptSummary, status| {
        let style = text::Style { all: true, color: true, brief: false, width: None };
        text::interrupts::render(envelope, view, status, style)
    });
    with.view(name_of(PressureSummary::SCHEMA), |envelope, view: &PressureSummary, status| {
        let style = text::Style { all: true, color: true, brief: false, width: None };
        let memory = view.pagecache.as_ref().map(text::pagecache::render).unwrap_or_default();
        match &view.locks {
            Some(locks) => text::locks::render(envelope, locks, &memory, status, style),
            None => text::locks::unseen(envelope, &memory, status, style),
        }
    });
    with.view(name_of(ThreadSummary::SCHEMA), |envelope, view: &ThreadSummary, status| {
        let style = text::Style { all: true, color: true, brief: false, width: None };
        text::threads::render(envelope, view, status, style)
    });
    with.view(name_of(ErrorSummary::SCHEMA), |envelope, view: &ErrorSummary, status| {
        text::errors::render(envelope, view, status, false, None)
    });
    with.view(name_of(TopInterval::SCHEMA), |_, view: &TopInterval, _| text::top::line(view));
}

/// Reads all lines of a view, and merges them: with themselves, and with those of another machine.
pub fn read<V: View + Summary + Clone + PartialEq + Debug>(
    lines: impl BufRead,
    span: Span,
    show: fn(&Envelope, &V, Option<i32>) -> String,
) {
    let mut pieces = Pieces::new(lines, span);
    let mut all: Vec<Piece<V>> = Vec::new();
    while let Ok(Some(piece)) = pieces.read::<V>() {
        shown(&piece, show);
        if all.len() < MOST_INTERVALS {
            all.push(piece);
        }
    }
    let Some((first, rest)) = all.split_first() else { return };
    let mut run = MergedRecording::new("a".to_string(), first.clone());
    if rest.iter().chain([first, first]).any(|piece| run.add(piece.clone()).is_err()) {
        return;
    }
    shown(&run.clone().whole(), show);
    for hosts in [[None, None], [Some("web1"), Some("web2")]] {
        let mut together = Together::default();
        for host in hosts {
            let mut run = run.clone();
            run.host = host.map(str::to_string);
            if together.add(run).is_err() {
                return;
            }
        }
        if let Ok(merged) = together.merge() {
            shown(&merged, show);
        }
    }
}

/// Shows a result, and checks that its JSON is read back as the same.
fn shown<V: View + PartialEq + Debug>(piece: &Piece<V>, show: fn(&Envelope, &V, Option<i32>) -> String) {
    let Piece { envelope, view, command_status, .. } = piece;
    show(envelope, view, *command_status);
    let line = json::view(envelope, view, *command_status);
    let again = Pieces::new(line.as_slice(), Span::default()).read::<V>();
    let again = again.expect("what was written cannot be read").expect("it has one line");
    let second = json::view(&again.envelope, &again.view, again.command_status);
    assert_eq!(String::from_utf8_lossy(&line), String::from_utf8_lossy(&second), "it is read as another one");
}
