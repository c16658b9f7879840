//! Reads the results of a view on several CPUs, and gives them in their order. To parse a line takes several times as long
//! as to unpack it, or to show what it says.

use std::io::BufRead;
use std::num::NonZero;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};

use super::{Found, Lines, Piece, Pieces, Span, find};
use crate::envelope::View;

/// Threads that parse.
const MOST: usize = 4;

/// Lines that wait for each of them.
const WAITING: usize = 4;

/// Results of each that wait to be taken: without any, each line costs two switches of threads.
const PARSED: usize = 2;

/// Bytes of a line above which it is parsed alone: what becomes of a hostile one takes many times as many.
const LARGE: usize = 1 << 18;

/// A line with its number, and that of the line before it.
struct Task {
    number: u64,
    before: u64,
    line: Vec<u8>,
}

/// A task, or why the line could not be read.
type Read = Result<Task>;

/// With the number of the line.
type Parsed<V> = Result<(u64, Found<V>)>;

/// How many lines were taken. A large line is parsed once all before it were: which of two large ones
/// goes first must not depend on which thread is faster, as the results are taken in their order.
#[derive(Default)]
struct Taken {
    lines: Mutex<u64>,
    another: Condvar,
}

impl Taken {
    /// Up to this line.
    fn set(&self, line: u64) {
        *self.lines.lock().unwrap_or_else(PoisonError::into_inner) = line;
        self.another.notify_all();
    }

    fn wait_for(&self, line: u64) {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let _taken = self.another.wait_while(lines, |taken| *taken < line);
    }
}

/// No result is taken any more, at the end or after an error: threads that wait go on.
struct End<'a>(&'a Taken);

impl Drop for End<'_> {
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
        // What lies within the span depends on when the first one began.
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
        let taken = Taken::default();
        thread::scope(|scope| {
            let _end = End(&taken);
            let mut number = lines.number;
            taken.set(number);
            // Each gets every Nth line, so that the results of all are in order as they are taken in turn.
            let mut tasks = Vec::new();
            let mut results: Vec<Receiver<Parsed<V>>> = Vec::new();
            for _ in 0..threads {
                let (task, waiting) = sync_channel(WAITING);
                let (parsed, result) = sync_channel(PARSED);
                tasks.push(task);
                results.push(result);
                let (taken, began) = (&taken, began.as_deref());
                scope.spawn(move || parse(&waiting, &parsed, span, began, taken));
            }
            scope.spawn(move || read(&mut lines, &tasks));
            // The parsers end with the reader, and all of them once their results are not taken any more.
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

/// Gives the lines to those who parse, until the end or an error.
fn read(lines: &mut Lines<impl BufRead>, tasks: &[SyncSender<Read>]) {
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
    waiting: &Receiver<Read>,
    parsed: &SyncSender<Parsed<V>>,
    span: Span,
    began: Option<&str>,
    taken: &Taken,
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
