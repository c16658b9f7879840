//! Results that are kept: the lines that `--json` prints, in a folder or as they are, and how they are read back.
//!
//! Who wrote them is not known: a line of any bytes costs bounded memory, and is shown or named, never half of it.

mod ahead;
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

use crate::envelope::reading::Line;
use crate::envelope::{Envelope, Framed, View};
use source::Absent;
pub use span::{Moment, Span};

/// A line of a device with one class of I/O takes 8 KiB.
const MOST_BYTES: u64 = 8 << 20;

/// Objects and lists of a line: the shortest take three bytes there, and some take kilobytes here. What we write has an
/// object in 100 bytes or more.
const MOST_OBJECTS: usize = 30_000;
const MOST_LISTS: usize = 200_000;

/// Of a short one once all its keys are written.
const OBJECT_BYTES: u64 = 512;

/// How a line begins whose first key is its schema.
const SCHEMA_FIRST: &[u8] = b"{\"schema\":";

/// A result in its envelope.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece<V> {
    pub envelope: Envelope,
    pub view: V,
    /// Of the measured command, where it has ended.
    pub command_status: Option<i32>,
    /// What a result may grow by that it is added to.
    pub size: u64,
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
    lines: Lines<R>,
    span: Span,
    notes: Notes,
}

/// Lines with their numbers, from 1 on.
struct Lines<R> {
    lines: R,
    number: u64,
}

/// What came so far.
#[derive(Default)]
struct Notes {
    /// Of the view, within the span.
    found: u64,
    /// When the first result of the view began, and the last one that is outside the span.
    began: Option<String>,
    last: String,
    /// The first schema of another view.
    other: Option<String>,
}

/// What a line is.
enum Found<V> {
    /// Of the view, within the span.
    Within(Box<Piece<V>>),
    /// Of the view, outside the span: when it began.
    Outside(String),
    /// Of another view: its schema.
    Other(String),
}

impl<R: BufRead> Lines<R> {
    /// The next one that is not blank; false at the end.
    fn next(&mut self, line: &mut Vec<u8>) -> Result<bool> {
        loop {
            self.number += 1;
            line.clear();
            let read = self.lines.by_ref().take(MOST_BYTES + 1).read_until(b'\n', line);
            if read.with_context(|| format!("line {}", self.number))? == 0 {
                return Ok(false);
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Ok(true);
            }
        }
    }
}

impl<R: BufRead> Pieces<R> {
    pub fn new(lines: R, span: Span) -> Self {
        Self { lines: Lines { lines, number: 0 }, span, notes: Notes::default() }
    }

    /// The next one; None at the end.
    ///
    /// # Errors
    /// The line that is damaged, cut off, too long, or of a later version, and an end without any result of the view.
    /// Every line before it was whole.
    pub fn read<V: View>(&mut self) -> Result<Option<Piece<V>>> {
        let mut line = Vec::new();
        while self.lines.next(&mut line)? {
            let found = find(&line, self.span, self.notes.began.as_deref());
            let found = found.with_context(|| format!("line {}", self.lines.number))?;
            if let Some(piece) = self.notes.take(found) {
                return Ok(Some(piece));
            }
        }
        self.notes.end(V::SCHEMA).map(|()| None)
    }
}

impl Notes {
    fn take<V>(&mut self, found: Found<V>) -> Option<Piece<V>> {
        match found {
            Found::Within(piece) => {
                self.began.get_or_insert_with(|| piece.envelope.start.clone());
                self.found += 1;
                return Some(*piece);
            }
            Found::Outside(start) => {
                self.began.get_or_insert_with(|| start.clone());
                self.last = start;
            }
            Found::Other(schema) => _ = self.other.get_or_insert(schema),
        }
        None
    }

    /// There is no more.
    fn end(&self, wanted: &str) -> Result<()> {
        match (self.found, &self.began, &self.other) {
            (0, Some(began), _) => {
                let last = &self.last;
                bail!(Absent::because(format!(
                    "it has no {wanted} between --from and --to, only from {began} to {last}"
                )))
            }
            (0, None, Some(other)) => bail!("it has no {wanted}, only {other}"),
            (0, None, None) => bail!("it has no {wanted}: it is empty"),
            _ => Ok(()),
        }
    }
}

/// Reads a line; `began` is when the first result began, None: this is it.
fn find<V: View>(line: &[u8], span: Span, began: Option<&str>) -> Result<Found<V>> {
    let bytes = line.len();
    ensure!(bytes as u64 <= MOST_BYTES, "it is longer than {} MiB", MOST_BYTES >> 20);
    // In bytes that cannot overflow, so that the compiler counts many at once.
    let count = |byte: u8| -> usize {
        let of = |part: &[u8]| part.iter().map(|one| u8::from(*one == byte)).sum::<u8>();
        line.chunks(255).map(|part| usize::from(of(part))).sum()
    };
    let objects = count(b'{');
    ensure!(objects <= MOST_OBJECTS && count(b'[') <= MOST_LISTS, "it has too many objects or lists");
    // The keys that an object lacks are written of a result.
    let size = bytes as u64 + OBJECT_BYTES * objects as u64;
    // What we write begins with it; elsewhere the schema may be anywhere.
    if span == Span::default() && line.starts_with(SCHEMA_FIRST) {
        return match parse(line)? {
            Line::Of { framed, command_status } => {
                let Framed { envelope, view } = *framed;
                Ok(Found::Within(Box::new(Piece { envelope, view, command_status, size })))
            }
            Line::Other(schema) => other::<V>(schema),
        };
    }
    let Head { schema, command_status } = parse(line)?;
    if schema != V::SCHEMA {
        return other::<V>(schema);
    }
    let envelope: Envelope = parse(line)?;
    if !span.holds(began.unwrap_or(&envelope.start), &envelope.start)? {
        return Ok(Found::Outside(envelope.start));
    }
    Ok(Found::Within(Box::new(Piece { envelope, view: parse(line)?, command_status, size })))
}

/// Reads what is one object in a file of its own.
fn whole<V: View>(bytes: &[u8]) -> Result<V> {
    let Head { schema, .. } = parse(bytes)?;
    if schema != V::SCHEMA {
        other::<V>(schema.clone())?;
        bail!("it has no {}, only {schema}", V::SCHEMA);
    }
    parse(bytes)
}

fn other<V: View>(schema: String) -> Result<Found<V>> {
    let (name, version) = split(&schema)?;
    let (known, our_version) = split(V::SCHEMA)?;
    ensure!(
        name != known || version <= our_version,
        "{schema} is newer than {}: read it with the biopsy that wrote it",
        V::SCHEMA
    );
    Ok(Found::Other(schema))
}

/// The name of a view, by its schema.
pub fn name_of(schema: &str) -> &str {
    split(schema).map_or(schema, |(name, _)| name)
}

/// `biopsy.NAME/VERSION`.
fn split(schema: &str) -> Result<(&str, u32)> {
    let parts = schema.strip_prefix("biopsy.").and_then(|rest| rest.split_once('/'));
    let parts = parts.and_then(|(name, version)| Some((name, version.parse().ok()?)));
    parts.context("it is not a result of biopsy")
}

fn parse<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<T> {
    let error = match serde_json::from_slice(line) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    if error.is_eof() {
        bail!("it is truncated after {} bytes", line.len());
    }
    if line.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|first| *first != b'{') {
        bail!("it is not JSON: -i takes a recording or saved --json output");
    }
    let column = error.column();
    // Without the place that serde_json appends: it is of this line alone.
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    bail!("it cannot be read from byte {column} on: {what}")
}
