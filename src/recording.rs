//! Results that are kept: the lines that `--json` prints, in a folder or as they are, and how they are read back.
//!
//! Who wrote them is not known: a line of any bytes costs bounded memory, and is shown or named, never half of it.

pub mod folder;
mod frame;
pub mod io;
pub mod manifest;
pub mod pack;
pub mod redact;
pub mod ring;
pub mod source;
mod span;
pub mod stacks;
pub mod tape;
pub mod together;

use std::io::{BufRead, Read};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::envelope::{Envelope, View};
pub use span::{Moment, Span};

/// A line of a device with one class of I/O takes 8 KiB.
const MOST_BYTES: u64 = 8 << 20;

/// Objects and lists of a line: the shortest take three bytes there, and some take kilobytes here. What we write has an
/// object in 100 bytes or more.
const MOST_OBJECTS: usize = 30_000;
const MOST_LISTS: usize = 200_000;

/// A result in its envelope.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece<V> {
    pub envelope: Envelope,
    pub view: V,
    /// Of the measured command, where it has ended.
    pub command_status: Option<i32>,
}

/// What every line has beside the envelope.
#[derive(Deserialize)]
struct Head {
    schema: String,
    #[serde(default)]
    command_status: Option<i32>,
}

/// The results of one view within a span, a line each; lines of other views are left out.
pub struct Pieces<R> {
    lines: R,
    span: Span,
    number: u64,
    /// Of the view, within the span.
    found: u64,
    /// When the first result of the view began, and the last one, also outside the span.
    began: Option<String>,
    last: String,
    /// The first schema of another view.
    other: Option<String>,
}

impl<R: BufRead> Pieces<R> {
    pub fn new(lines: R, span: Span) -> Self {
        Self { lines, span, number: 0, found: 0, began: None, last: String::new(), other: None }
    }

    /// The next one; None at the end.
    ///
    /// # Errors
    /// The line that is damaged, cut off, too long, or of a later version, and an end without any result of the view.
    /// Every line before it was whole.
    pub fn read<V: View>(&mut self) -> Result<Option<Piece<V>>> {
        let mut line = Vec::new();
        loop {
            self.number += 1;
            line.clear();
            let at = self.number;
            let read = self.lines.by_ref().take(MOST_BYTES + 1).read_until(b'\n', &mut line);
            if read.with_context(|| format!("line {at}"))? == 0 {
                ensure!(self.found > 0, self.nothing(V::SCHEMA));
                return Ok(None);
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if let Some(piece) = self.piece(&line).with_context(|| format!("line {at}"))? {
                self.found += 1;
                return Ok(Some(piece));
            }
        }
    }

    /// None: of another view, or outside the span.
    fn piece<V: View>(&mut self, line: &[u8]) -> Result<Option<Piece<V>>> {
        let bytes = line.len();
        ensure!(bytes as u64 <= MOST_BYTES, "it is longer than {} MiB", MOST_BYTES >> 20);
        let count = |byte: u8| line.iter().filter(|one| **one == byte).count();
        ensure!(count(b'{') <= MOST_OBJECTS && count(b'[') <= MOST_LISTS, "it has too many objects or lists");
        let Head { schema, command_status } = parse(line)?;
        if schema != V::SCHEMA {
            let (name, version) = split(&schema)?;
            let (known, our_version) = split(V::SCHEMA)?;
            ensure!(
                name != known || version <= our_version,
                "{schema} is of a later version than {}: read it with the biopsy that wrote it",
                V::SCHEMA
            );
            self.other.get_or_insert(schema);
            return Ok(None);
        }
        let envelope: Envelope = parse(line)?;
        let began = self.began.get_or_insert_with(|| envelope.start.clone());
        if !self.span.holds(began, &envelope.start)? {
            self.last.clone_from(&envelope.start);
            return Ok(None);
        }
        Ok(Some(Piece { envelope, view: parse(line)?, command_status }))
    }

    fn nothing(&self, wanted: &str) -> String {
        match (&self.began, &self.other) {
            (Some(began), _) => {
                format!("it has no {wanted} within --from and --to, but from {began} to {}", self.last)
            }
            (None, Some(other)) => format!("it has no {wanted}, but {other}"),
            (None, None) => format!("it has no {wanted}: it is empty"),
        }
    }
}

/// The name of a view, by its schema.
pub fn name_of(schema: &str) -> &str {
    split(schema).map_or(schema, |(name, _)| name)
}

/// `biopsy.NAME/VERSION`.
fn split(schema: &str) -> Result<(&str, u32)> {
    let parts = schema.strip_prefix("biopsy.").and_then(|rest| rest.split_once('/'));
    let parts = parts.and_then(|(name, version)| Some((name, version.parse().ok()?)));
    parts.context("it is no result of biopsy")
}

fn parse<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T> {
    let error = match serde_json::from_slice(line) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    if error.is_eof() {
        bail!("it is cut off after {} bytes", line.len());
    }
    let column = error.column();
    // Without the place that serde_json appends: it is of this line alone.
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    bail!("it cannot be read from byte {column} on: {what}")
}
