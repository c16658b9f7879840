//! Parses the results of a view on several CPUs and returns them in their order. Parsing a line takes several times as
//! long as decompressing or printing it.

use std::io::BufRead;
use std::num::NonZero;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};

use super::{ClassifiedLine, NumberedLines, Piece, Pieces, Span, find};
use crate::envelope::View;

/// Parser threads.
const MOST: usize = 4;

/// Queued lines per thread.
const WAITING: usize = 4;

/// Queued results per thread: without a queue, each line costs two context switches.
const PARSED: usize = 2;

/// Size in bytes above which a line is parsed alone: a hostile line can take many times its size in memory.
const LARGE: usize = 1 << 18;

/// A line, its number, and the number of the line before it.
struct Task {
    number: u64,
    before: u64,
    line: Vec<u8>,
}

/// A task, or the error of reading the line.
type ReadResult = Result<Task>;

/// A parsed line and its number.
type ParsedLineResult<V> = Result<(u64, ClassifiedLine<V>)>;

/// The number of the last line whose result was consumed. A large line is parsed only after all lines before it were
/// consumed. Otherwise the faster thread would decide which of two large lines is parsed first, while results are
/// consumed in order.
#[derive(Default)]
struct LineProgress {
    lines: Mutex<u64>,
    another: Condvar,
}

impl LineProgress {
    /// Records that the results up to this line were consumed.
    fn set(&self, line: u64) {
        *self.lines.lock().unwrap_or_else(PoisonError::into_inner) = line;
        self.another.notify_all();
    }

    fn wait_for(&self, line: u64) {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let _taken = self.another.wait_while(lines, |taken| *taken < line);
    }
}

/// On drop, wakes the waiting threads: no more results are consumed, at the end or after an error.
struct ConsumerGuard<'a>(&'a LineProgress);

impl Drop for ConsumerGuard<'_> {
    fn drop(&mut self) {
        self.0.set(u64::MAX);
    }
}

impl<R: BufRead + Send> Pieces<R> {
    /// Calls `with` with each result.
    ///
    /// # Errors
    /// As [`Pieces::read`], and those of `with`.
    pub fn each<V: View>(mut self, mut with: impl FnMut(Piece<V>) -> Result<()>) -> Result<()> {
        // The first result is parsed here: the span is relative to its start.
        let mut line = Vec::new();
        while self.notes.began.is_none() {
            if !self.lines.next(&mut line)? {
                return self.notes.end(V::SCHEMA);
            }
            let found =
                find(&line, self.span, None).with_context(|| format!("line {}", self.lines.number))?;
            self.notes.take(found).map_or(Ok(()), &mut with)?;
        }
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MOST);
        let Self { mut lines, span, mut notes } = self;
        let began = notes.began.clone();
        let taken = LineProgress::default();
        thread::scope(|scope| {
            let _end = ConsumerGuard(&taken);
            let mut number = lines.number;
            taken.set(number);
            // Round-robin: each thread gets every Nth line, so reading the channels in turn gives the results in order.
            let mut tasks = Vec::new();
            let mut results: Vec<Receiver<ParsedLineResult<V>>> = Vec::new();
            for _ in 0..threads {
                let (task, waiting) = sync_channel(WAITING);
                let (parsed, result) = sync_channel(PARSED);
                tasks.push(task);
                results.push(result);
                let (taken, began) = (&taken, began.as_deref());
                scope.spawn(move || parse(&waiting, &parsed, span, began, taken));
            }
            scope.spawn(move || read(&mut lines, &tasks));
            // The parsers exit after the reader, or when their results are no longer received.
            for result in results.iter().cycle() {
                let Ok(found) = result.recv() else { break };
                let (line, found) = found?;
                number = number.max(line);
                notes.take(found).map_or(Ok(()), &mut with)?;
                taken.set(number);
            }
            notes.end(V::SCHEMA)
        })
    }
}

/// Passes the lines to the parser threads, until the end or an error.
fn read(lines: &mut NumberedLines<impl BufRead>, tasks: &[SyncSender<ReadResult>]) {
    for task in tasks.iter().cycle() {
        let (mut line, before) = (Vec::new(), lines.number);
        let (read, is_last) = match lines.next(&mut line) {
            Ok(true) => (Ok(Task { number: lines.number, before, line }), false),
            Ok(false) => return,
            Err(error) => (Err(error), true),
        };
        if task.send(read).is_err() || is_last {
            return;
        }
    }
}

fn parse<V: View>(
    waiting: &Receiver<ReadResult>,
    parsed: &SyncSender<ParsedLineResult<V>>,
    span: Span,
    began: Option<&str>,
    taken: &LineProgress,
) {
    for read in waiting {
        let found = read.and_then(|Task { number, before, line }| {
            if line.len() > LARGE {
                taken.wait_for(before);
            }
            Ok((number, find(&line, span, began).with_context(|| format!("line {number}"))?))
        });
        if parsed.send(found).is_err() {
            return;
        }
    }
}
