//! Reads the results of a view on several CPUs, and gives them in their order. To parse a line takes several times as long
//! as to unpack it, or to show what it says.

use std::io::BufRead;
use std::num::NonZero;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result};

use super::{Found, Lines, Piece, Pieces, Span, find};
use crate::envelope::View;

/// Threads that parse.
const MOST: usize = 4;

/// Lines that wait for each of them.
const WAITING: usize = 4;

/// Bytes of a line above which it is parsed alone: what becomes of a hostile one takes many times as many.
const LARGE: usize = 1 << 20;

/// A line with its number, or why it could not be read.
type Read = Result<(u64, Vec<u8>)>;

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
        let alone = Mutex::new(());
        thread::scope(|scope| {
            // Each gets every Nth line, so that the results of all are in order as they are taken in turn.
            let mut tasks = Vec::new();
            let mut results: Vec<Receiver<Result<Found<V>>>> = Vec::new();
            for _ in 0..threads {
                let (task, waiting) = sync_channel(WAITING);
                let (parsed, result) = sync_channel(0);
                tasks.push(task);
                results.push(result);
                let (alone, began) = (&alone, began.as_deref());
                scope.spawn(move || parse(&waiting, &parsed, span, began, alone));
            }
            scope.spawn(move || read(&mut lines, &tasks));
            // Those who parse end with the reader, and all of them where nobody takes their results any more.
            for result in results.iter().cycle() {
                let Ok(found) = result.recv() else { break };
                notes.take(found?).map_or(Ok(()), &mut with)?;
            }
            notes.end(V::SCHEMA)
        })
    }
}

/// Gives the lines to those who parse, until the end or an error.
fn read(lines: &mut Lines<impl BufRead>, tasks: &[SyncSender<Read>]) {
    for task in tasks.iter().cycle() {
        let mut line = Vec::new();
        let (read, is_last) = match lines.next(&mut line) {
            Ok(true) => (Ok((lines.number, line)), false),
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
    parsed: &SyncSender<Result<Found<V>>>,
    span: Span,
    began: Option<&str>,
    alone: &Mutex<()>,
) {
    for read in waiting {
        let is_large = read.as_ref().is_ok_and(|(_, line)| line.len() > LARGE);
        // Until it is taken.
        let _alone = is_large.then(|| alone.lock().unwrap_or_else(PoisonError::into_inner));
        let found = read
            .and_then(|(number, line)| find(&line, span, began).with_context(|| format!("line {number}")));
        if parsed.send(found).is_err() {
            return;
        }
    }
}
