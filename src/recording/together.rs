//! Several recordings of a view as one result.

use std::fmt;

use jiff::Timestamp;

use super::Piece;
use crate::merge::{Merge, Summary};

/// The intervals of one recording, merged.
#[derive(Debug, Clone)]
pub struct Run<V> {
    /// Where it was read from.
    name: String,
    /// Its machine, where the recording says it.
    pub host: Option<String>,
    piece: Piece<V>,
    /// When its last interval began and ended, ns since 1970; None: a start is no time.
    last_ns: Option<i128>,
    end_ns: Option<i128>,
}

/// Starts have milliseconds, and an interval that follows may begin as early as the one before it ends.
const SLACK_NS: i128 = 2_000_000;

/// Machines that were measured at once differ by this much of their lengths, or of a second.
const ALIKE: f64 = 0.01;

impl<V: Merge> Run<V> {
    /// One interval.
    pub fn new(name: String, piece: Piece<V>) -> Self {
        let end_ns = start_ns(&piece).map(|start| start + i128::from(piece.envelope.duration_ns));
        Self { name, host: None, last_ns: start_ns(&piece), piece, end_ns }
    }

    /// Whether the next interval may be added.
    ///
    /// # Errors
    /// Where it does not begin later than the one before it: what was counted would be counted twice.
    pub fn precedes(&self, piece: &Piece<V>) -> Result<(), Apart> {
        match (self.last_ns, start_ns(piece)) {
            (Some(last), Some(start)) if start <= last => Err(Apart::Order(piece.envelope.start.clone())),
            _ => Ok(()),
        }
    }

    /// The next interval.
    pub fn add(&mut self, piece: Piece<V>) {
        self.last_ns = start_ns(&piece).or(self.last_ns);
        let end_ns = start_ns(&piece).map(|start| start + i128::from(piece.envelope.duration_ns));
        self.end_ns = self.end_ns.max(end_ns);
        self.piece.envelope.follow(&piece.envelope);
        self.merge_view(&piece);
    }

    fn merge_view(&mut self, piece: &Piece<V>) {
        self.piece.view.merge_with(&piece.view);
        self.piece.command_status = piece.command_status.or(self.piece.command_status);
    }
}

impl<V: Summary> Run<V> {
    /// The window of all its intervals.
    pub fn whole(mut self) -> Piece<V> {
        self.piece.view.settle();
        self.piece
    }
}

fn start_ns<V>(piece: &Piece<V>) -> Option<i128> {
    piece.envelope.start.parse::<Timestamp>().ok().map(Timestamp::as_nanosecond)
}

/// Why recordings are no one result.
#[derive(Debug, Clone, PartialEq)]
pub enum Apart {
    /// An interval of the same recording that begins then does not follow the one before it.
    Order(String),
    /// Of these two, what was counted in both would be counted twice.
    SameTime(String, String),
    /// It has figures of a whole machine.
    Machines(String, String),
    /// Rates would be those of neither.
    Lengths(String, String),
    Nothing,
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order(start) => {
                write!(
                    f,
                    "the interval of {start} is no later than the one before it: it would be counted twice"
                )
            }
            Self::SameTime(a, b) => {
                write!(
                    f,
                    "{a} and {b} are of the same machine and time, or do not say which machine they are of: name one of them"
                )
            }
            Self::Machines(a, b) => write!(
                f,
                "{a} and {b} are of different machines, and this view has figures of a whole machine: name those of one"
            ),
            Self::Lengths(a, b) => write!(
                f,
                "{a} and {b} are of different machines, and one is longer: choose the same length with --from and --to"
            ),
            Self::Nothing => f.write_str("there is nothing to merge: name a recording with -i"),
        }
    }
}

/// Recordings that are to be one result.
#[derive(Debug)]
pub struct Together<V> {
    runs: Vec<Run<V>>,
}

impl<V> Default for Together<V> {
    fn default() -> Self {
        Self { runs: Vec::new() }
    }
}

impl<V: Summary> Together<V> {
    pub fn add(&mut self, run: Run<V>) {
        self.runs.push(run);
    }

    /// Those of one machine one after the other; machines side by side, each device with the name of its own.
    ///
    /// # Errors
    /// Where the sum would be no window of anything.
    pub fn merge(mut self) -> Result<Piece<V>, Apart> {
        self.runs.sort_by_key(|run| (run.host.clone(), start_ns(&run.piece)));
        let mut machines: Vec<Run<V>> = Vec::new();
        for run in self.runs {
            match machines.last_mut().filter(|last| last.host == run.host) {
                Some(last) => last.follow(run)?,
                None => machines.push(run),
            }
        }
        let many = machines.len() > 1;
        let mut machines = machines.into_iter().map(|mut run| {
            if let Some(host) = run.host.as_ref().filter(|_| many) {
                run.piece.view.name_host(host);
            }
            run
        });
        let mut all = machines.next().ok_or(Apart::Nothing)?;
        machines.try_for_each(|run| all.stand_beside(run))?;
        all.piece.view.settle();
        Ok(all.piece)
    }
}

impl<V: Summary> Run<V> {
    fn follow(&mut self, next: Self) -> Result<(), Apart> {
        let names = || (self.name.clone(), next.name.clone());
        match (self.end_ns, start_ns(&next.piece)) {
            (Some(end), Some(start)) if start + SLACK_NS >= end => {}
            _ => {
                let (a, b) = names();
                return Err(Apart::SameTime(a, b));
            }
        }
        self.end_ns = next.end_ns;
        self.piece.envelope.join(&next.piece.envelope);
        self.merge_view(&next.piece);
        Ok(())
    }

    fn stand_beside(&mut self, mut other: Self) -> Result<(), Apart> {
        let (a, b) = (self.name.clone(), other.name.clone());
        let (Some(mine), Some(theirs)) =
            (self.piece.view.window().copied(), other.piece.view.window().copied())
        else {
            return Err(Apart::Machines(a, b));
        };
        if mine.abs_diff(theirs) as f64 > ALIKE * (mine.max(theirs) as f64).max(1e9) {
            return Err(Apart::Lengths(a, b));
        }
        let longest = mine.max(theirs);
        let envelope = self.piece.envelope.duration_ns.max(other.piece.envelope.duration_ns);
        self.piece.envelope.join(&other.piece.envelope);
        self.piece.envelope.duration_ns = envelope;
        self.merge_view(&other.piece);
        if let Some(window) = self.piece.view.window() {
            *window = longest;
        }
        Ok(())
    }
}
