//! Saved results: the lines that `--json` prints, in a recording's folder or in a file, and the code that reads them
//! back.
//!
//! The input is not trusted: a line costs bounded memory whatever its bytes are. It is used whole or refused with an
//! error.

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

use crate::envelope::reading::ParsedLine;
use crate::envelope::{Envelope, FramedView, View};
use source::Absent;
pub use span::{Moment, Span};

/// For comparison: the line of a device with one class of I/O has 8 KiB.
const MOST_BYTES: u64 = 8 << 20;

/// Limits of the objects and lists in a line. The shortest object takes three bytes in the line, and kilobytes in
/// memory. biopsy itself writes at most one object per 100 bytes.
const MOST_OBJECTS: usize = 30_000;
const MOST_LISTS: usize = 200_000;

/// Size of a short object once all its keys are written.
const OBJECT_BYTES: u64 = 512;

/// Start of a line whose first key is its schema, as biopsy writes it.
const SCHEMA_FIRST: &[u8] = b"{\"schema\":";

/// A result in its envelope.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece<V> {
    pub envelope: Envelope,
    pub view: V,
    /// Exit status of the measured command, if it has exited.
    pub command_status: Option<i32>,
    /// Upper bound of the bytes that this adds to a merged result.
    pub size: u64,
}

/// The keys that every line has in addition to its envelope.
#[derive(Deserialize)]
struct Head {
    schema: String,
    #[serde(default)]
    command_status: Option<i32>,
}

/// Reads the results of one view within a span, one per line. Lines of other views are skipped.
pub struct Pieces<R> {
    lines: NumberedLines<R>,
    span: Span,
    notes: Notes,
}

/// Lines with their numbers, starting at 1.
struct NumberedLines<R> {
    lines: R,
    number: u64,
}

/// What was read so far, for the error at the end.
#[derive(Default)]
struct Notes {
    /// Number of results of the view within the span.
    found: u64,
    /// When the first result of the view began, and the last one outside the span.
    began: Option<String>,
    last: String,
    /// The first schema of another view.
    other: Option<String>,
}

/// A line, classified.
enum ClassifiedLine<V> {
    /// A result of the view within the span.
    Within(Box<Piece<V>>),
    /// A result of the view outside the span, with its start.
    Outside(String),
    /// A result of another view, with its schema.
    Other(String),
}

impl<R: BufRead> NumberedLines<R> {
    /// Reads the next line that is not blank. Returns false at the end.
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
        Self { lines: NumberedLines { lines, number: 0 }, span, notes: Notes::default() }
    }

    /// Reads the next result. None: the end.
    ///
    /// # Errors
    /// If a line is damaged, truncated, too long, or of a newer version, or if the input ends without a result of the
    /// view. All lines before the bad one were valid.
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
    fn take<V>(&mut self, found: ClassifiedLine<V>) -> Option<Piece<V>> {
        match found {
            ClassifiedLine::Within(piece) => {
                self.began.get_or_insert_with(|| piece.envelope.start.clone());
                self.found += 1;
                return Some(*piece);
            }
            ClassifiedLine::Outside(start) => {
                self.began.get_or_insert_with(|| start.clone());
                self.last = start;
            }
            ClassifiedLine::Other(schema) => _ = self.other.get_or_insert(schema),
        }
        None
    }

    /// Checks at the end of the input that a result was found.
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

/// Parses a line. `began` is the start of the first result; None: this line is the first.
fn find<V: View>(line: &[u8], span: Span, began: Option<&str>) -> Result<ClassifiedLine<V>> {
    let bytes = line.len();
    ensure!(bytes as u64 <= MOST_BYTES, "it is longer than {} MiB", MOST_BYTES >> 20);
    // Sums of at most 255 bytes cannot overflow a u8, so the compiler vectorises the count.
    let count = |byte: u8| -> usize {
        let of = |part: &[u8]| part.iter().map(|one| u8::from(*one == byte)).sum::<u8>();
        line.chunks(255).map(|part| usize::from(of(part))).sum()
    };
    let objects = count(b'{');
    ensure!(objects <= MOST_OBJECTS && count(b'[') <= MOST_LISTS, "it has too many objects or lists");
    // When a result is written again, it has all its keys, also those missing in this line.
    let size = bytes as u64 + OBJECT_BYTES * objects as u64;
    // Fast path: biopsy writes the schema first. Other tools may reorder the keys.
    if span == Span::default() && line.starts_with(SCHEMA_FIRST) {
        return match parse(line)? {
            ParsedLine::Of { framed, command_status } => {
                let FramedView { envelope, view } = *framed;
                Ok(ClassifiedLine::Within(Box::new(Piece { envelope, view, command_status, size })))
            }
            ParsedLine::Other(schema) => other::<V>(schema),
        };
    }
    let Head { schema, command_status } = parse(line)?;
    if schema != V::SCHEMA {
        return other::<V>(schema);
    }
    let envelope: Envelope = parse(line)?;
    if !span.holds(began.unwrap_or(&envelope.start), &envelope.start)? {
        return Ok(ClassifiedLine::Outside(envelope.start));
    }
    Ok(ClassifiedLine::Within(Box::new(Piece { envelope, view: parse(line)?, command_status, size })))
}

/// Parses a file that holds one object.
fn whole<V: View>(bytes: &[u8]) -> Result<V> {
    let Head { schema, .. } = parse(bytes)?;
    if schema != V::SCHEMA {
        other::<V>(schema.clone())?;
        bail!("it has no {}, only {schema}", V::SCHEMA);
    }
    parse(bytes)
}

fn other<V: View>(schema: String) -> Result<ClassifiedLine<V>> {
    let (name, version) = split(&schema)?;
    let (known, our_version) = split(V::SCHEMA)?;
    ensure!(
        name != known || version <= our_version,
        "{schema} is newer than {}: read it with the biopsy that wrote it",
        V::SCHEMA
    );
    Ok(ClassifiedLine::Other(schema))
}

/// The name of the view with this schema.
pub fn name_of(schema: &str) -> &str {
    split(schema).map_or(schema, |(name, _)| name)
}

/// Parses `biopsy.NAME/VERSION`.
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
    // Cut off serde_json's "at line ...": it counts lines within this line only.
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    bail!("it cannot be read from byte {column} on: {what}")
}
