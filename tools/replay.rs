//! Shows what was kept, in place of a measurement.

use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use biopsy::envelope::View;
use biopsy::recording::{Pieces, Span, name_of, source};
use biopsy::refusal::{Refusal, reason};
use biopsy::session::watch::Shown;

use crate::cli::{Input, Output};
use crate::output::Sink;

/// Writes what `show` makes of each kept result of the view; None: the view is to be measured.
pub fn run<V: View>(
    input: &Input,
    output: &Output,
    show: impl FnMut(&Shown<'_, V>) -> Result<Vec<u8>>,
) -> Option<Result<()>> {
    let path = input.input.as_deref()?;
    Some(Sink::open(output.output.as_deref()).and_then(|sink| write(path, input.span(), sink, show)))
}

/// `-` is stdin.
///
/// # Errors
/// The file and the line from which on nothing could be shown.
fn write<V: View>(
    path: &Path,
    span: Span,
    mut sink: Sink,
    mut show: impl FnMut(&Shown<'_, V>) -> Result<Vec<u8>>,
) -> Result<()> {
    let name = if path == Path::new("-") { "stdin".into() } else { path.to_string_lossy() };
    let lines = source::open(path, name_of(V::SCHEMA)).map_err(|error| unreadable(error, &name))?;
    let mut pieces = Pieces::new(lines, span);
    let mut is_further = false;
    while let Some(piece) = pieces.read::<V>().with_context(|| name.clone().into_owned())? {
        let shown = Shown {
            envelope: &piece.envelope,
            summary: &piece.view,
            status: piece.command_status,
            is_further: std::mem::replace(&mut is_further, true),
            end_ns: 0,
        };
        sink.write(&show(&shown)?)?;
    }
    Ok(())
}

/// Of what cannot be opened the user may have meant another.
fn unreadable(error: anyhow::Error, name: &str) -> anyhow::Error {
    match error.downcast_ref::<io::Error>() {
        Some(cause) => {
            let why = format!(
                "cannot read {name}: {}; name a recording, or what --json printed, with -i",
                reason(cause)
            );
            Refusal::Usage(why).into()
        }
        None => error.context(name.to_string()),
    }
}
