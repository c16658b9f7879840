//! Shows saved results instead of measuring.

use std::io;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use biopsy::envelope::View;
use biopsy::merge::{Merge, Summary};
use biopsy::recording::source::{self, LineReader};
use biopsy::recording::together::{MergedRecording, Together};
use biopsy::recording::{Piece, Pieces, Span, folder, name_of};
use biopsy::refusal::{Refusal, reason};
use biopsy::session::watch::IntervalView;

use crate::cli::{Input, Output};
use crate::output::Sink;

/// Writes the output of `show` for each saved result of the view. None: no input was given, so the view is measured.
pub fn run<V: View + Summary>(
    input: &Input,
    output: &Output,
    show: impl FnMut(&IntervalView<'_, V>) -> Result<Vec<u8>>,
) -> Option<Result<()>> {
    if input.input.is_empty() {
        return None;
    }
    Some(Sink::open(output.output.as_deref()).and_then(|sink| match &input.input[..] {
        [path] if !input.merge => write(path, input.within.span(), sink, show),
        _ => write_merged(input, sink, show),
    }))
}

/// Writes the results in `path`; `-` is stdin.
///
/// # Errors
/// Names the file and the line from which on nothing could be read.
fn write<V: View>(
    path: &Path,
    span: Span,
    mut sink: Sink,
    mut show: impl FnMut(&IntervalView<'_, V>) -> Result<Vec<u8>>,
) -> Result<()> {
    let mut place = ResultPosition::default();
    // Hold the first result back: only a second one shows that they are intervals.
    let mut first: Option<Piece<V>> = None;
    let mut write = |piece: &Piece<V>, place: ResultPosition| sink.write(&show(&shown(piece, place))?);
    let read = each(path, span, |piece| {
        if let Some(before) = first.take() {
            place.is_interval = true;
            write(&before, place)?;
            place.is_further = true;
        }
        if place.is_further {
            return write(&piece, place);
        }
        first = Some(piece);
        Ok(())
    });
    // If the file is damaged, all results before the damage are shown.
    first.map_or(Ok(()), |only| write(&only, place)).and(read)
}

/// The position of a result in its recording.
#[derive(Debug, Clone, Copy, Default)]
struct ResultPosition {
    is_further: bool,
    is_interval: bool,
}

/// Calls `with` with each result of a recording.
fn each<V: View>(path: &Path, span: Span, mut with: impl FnMut(Piece<V>) -> Result<()>) -> Result<()> {
    // Distinguishes read errors from errors of `with`: only read errors get the file's name.
    let mut shown = Ok(());
    let read = Pieces::new(open::<V>(path)?, span).each(|piece| {
        with(piece).map_err(|error| {
            shown = Err(error);
            anyhow!("it cannot be shown")
        })
    });
    shown?;
    read.with_context(|| name(path))
}

/// The name for messages; `-` is stdin.
pub fn name(path: &Path) -> String {
    if path == Path::new("-") { "stdin".to_string() } else { path.display().to_string() }
}

/// Opens the lines of a view.
pub fn open<V: View>(path: &Path) -> Result<LineReader> {
    source::open(path, name_of(V::SCHEMA)).map_err(|error| unreadable(error, &name(path)))
}

fn shown<V>(piece: &Piece<V>, place: ResultPosition) -> IntervalView<'_, V> {
    let Piece { envelope, view, command_status, .. } = piece;
    let ResultPosition { is_further, is_interval } = place;
    IntervalView { envelope, summary: view, status: *command_status, is_further, is_interval, end_ns: 0 }
}

/// Writes all results merged into one.
///
/// # Errors
/// If one of several recordings is damaged, nothing is shown: a partial sum would be wrong.
fn write_merged<V: View + Summary>(
    input: &Input,
    mut sink: Sink,
    mut show: impl FnMut(&IntervalView<'_, V>) -> Result<Vec<u8>>,
) -> Result<()> {
    let mut all = Together::default();
    for path in &input.input {
        all.add(read(path, input.within.span())?).map_err(|why| Refusal::Usage(why.to_string()))?;
    }
    let merged = all.merge().map_err(|why| Refusal::Usage(why.to_string()))?;
    sink.write(&show(&shown(&merged, ResultPosition::default()))?)
}

/// Reads and merges all intervals of a recording.
fn read<V: View + Merge>(path: &Path, span: Span) -> Result<MergedRecording<V>> {
    let mut run = intervals(open::<V>(path)?, &name(path), span, |_| {})?;
    run.host = source::manifest(path).with_context(|| path.display().to_string())?.and_then(|of| of.host);
    Ok(run)
}

/// Merges all intervals of `lines`, read from `name`. Calls a function with each.
pub fn intervals<V: View + Merge>(
    lines: LineReader,
    name: &str,
    span: Span,
    mut look: impl FnMut(&V),
) -> Result<MergedRecording<V>> {
    let mut run: Option<MergedRecording<V>> = None;
    let add = |piece: Piece<V>| {
        look(&piece.view);
        match &mut run {
            Some(run) => {
                run.precedes(&piece).map_err(|why| anyhow!("{why}"))?;
                run.add(piece).map_err(|why| anyhow!("{why}"))?;
            }
            None => run = Some(MergedRecording::new(name.to_string(), piece)),
        }
        Ok(())
    };
    Pieces::new(lines, span).each(add).with_context(|| name.to_string())?;
    run.context("it has no result")
}

/// Reads the description of the machine: one of the lines of [`folder::HOST`].
///
/// # Errors
/// If there is none, or it is damaged.
pub fn machine<V: View>(path: &Path) -> Result<Piece<V>> {
    let refused = || {
        let why = format!(
            "{} is not a recording of biopsy record, and only those describe the machine: name one with -i",
            path.display()
        );
        Refusal::Usage(why)
    };
    let lines = source::plain(path, folder::HOST).map_err(|error| unreadable(error, &name(path)))?;
    let piece = Pieces::new(lines.ok_or_else(refused)?, Span::default()).read::<V>();
    let piece = piece.with_context(|| path.join(folder::HOST).display().to_string())?;
    piece.with_context(|| format!("{} has no machine", path.display()))
}

/// If the file cannot be opened, the user may have meant another one.
pub fn unreadable(error: anyhow::Error, name: &str) -> anyhow::Error {
    match error.downcast_ref::<io::Error>() {
        Some(cause) => {
            let why = format!(
                "cannot read {name}: {}; name a recording or saved --json output with -i",
                reason(cause)
            );
            Refusal::Usage(why).into()
        }
        None => error.context(name.to_string()),
    }
}
