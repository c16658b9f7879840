//! Parses the results of a view on several CPUs and returns them in their order. Parsing a line takes several times as
//! long as decompressing or printing it.

use std::io::BufRead;
use std::num::NonZero;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};

use super::{ClassifiedLine, NumberedLines, Piece, Pieces, Span, find};
use crate::envelope::View;

/// Parser threads.
const MOST: usize = 4;

/// Queued batches of lines per thread.
const WAITING: usize = 4;

/// Queued batches of results per thread: without a queue, each batch costs two context switches.
const PARSED: usize = 2;

/// Lines per batch: with one, the switches between threads take an eighth of the CPU time.
const BATCH_LINES: usize = 16;

/// Size in bytes above which a line is parsed alone, and of a batch: a hostile line can take many times its size in
/// memory.
const LARGE: usize = 1 << 18;

/// Consecutive lines with their numbers; a large line is alone.
struct Batch {
    /// The number of the line before the first one.
    before: u64,
    lines: Vec<(u64, Vec<u8>)>,
}

/// A batch, or the error of reading the line after the previous one.
type ReadResult = Result<Batch>;

/// Parsed lines and their numbers, up to the first error.
type ParsedBatch<V> = Vec<Result<(u64, ClassifiedLine<V>)>>;

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
            // Round-robin: each thread gets every Nth batch, so reading the channels in turn gives the results in order.
            let mut tasks = Vec::new();
            let mut results: Vec<Receiver<ParsedBatch<V>>> = Vec::new();
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
                let Ok(parsed) = result.recv() else { break };
                for found in parsed {
                    let (line, found) = found?;
                    number = number.max(line);
                    notes.take(found).map_or(Ok(()), &mut with)?;
                }
                taken.set(number);
            }
            notes.end(V::SCHEMA)
        })
    }
}

/// Passes the lines to the parser threads, until the end or an error. A batch has only lines that no thread could take
/// yet, so that a line of a live run is parsed at once.
fn read(lines: &mut NumberedLines<impl BufRead>, tasks: &[SyncSender<ReadResult>]) {
    let mut tasks = tasks.iter().cycle();
    let Some(mut task) = tasks.next() else { return };
    let (mut batch, mut bytes) = (Batch { before: lines.number, lines: Vec::new() }, 0);
    loop {
        let (mut line, before) = (Vec::new(), lines.number);
        let next = lines.next(&mut line);
        let fits = matches!(next, Ok(true)) && bytes + line.len() <= LARGE;
        if !batch.lines.is_empty() && !fits {
            let full = std::mem::replace(&mut batch, Batch { before, lines: Vec::new() });
            if task.send(Ok(full)).is_err() {
                return;
            }
            (task, bytes) = (tasks.next().unwrap_or(task), 0);
        }
        match next {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                // If the receiver is gone, an earlier error has ended the reading.
                let _sent = task.send(Err(error));
                return;
            }
        }
        bytes += line.len();
        batch.lines.push((lines.number, line));
        let ready = std::mem::replace(&mut batch, Batch { before: lines.number, lines: Vec::new() });
        let sent = match task.try_send(Ok(ready)) {
            Err(TrySendError::Full(Ok(waiting))) if waiting.lines.len() < BATCH_LINES => {
                batch = waiting;
                continue;
            }
            Err(TrySendError::Full(waiting)) => task.send(waiting).is_ok(),
            other => other.is_ok(),
        };
        if !sent {
            return;
        }
        (task, bytes) = (tasks.next().unwrap_or(task), 0);
    }
}

fn parse<V: View>(
    waiting: &Receiver<ReadResult>,
    parsed: &SyncSender<ParsedBatch<V>>,
    span: Span,
    began: Option<&str>,
    taken: &LineProgress,
) {
    for read in waiting {
        let found = match read {
            Ok(batch) => parse_batch(batch, span, began, taken),
            Err(error) => vec![Err(error)],
        };
        if parsed.send(found).is_err() {
            return;
        }
    }
}

fn parse_batch<V: View>(
    batch: Batch,
    span: Span,
    began: Option<&str>,
    taken: &LineProgress,
) -> ParsedBatch<V> {
    if batch.lines.iter().any(|(_, line)| line.len() > LARGE) {
        taken.wait_for(batch.before);
    }
    let mut parsed = Vec::with_capacity(batch.lines.len());
    for (number, line) in batch.lines {
        let found = find(&line, span, began).with_context(|| format!("line {number}"));
        let is_wrong = found.is_err();
        parsed.push(found.map(|found| (number, found)));
        if is_wrong {
            break;
        }
    }
    parsed
}
