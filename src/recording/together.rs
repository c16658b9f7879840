//! Merges several recordings of a view into one result.

use std::fmt;
use std::io::{self, Write};

use jiff::Timestamp;

use super::Piece;
use crate::envelope::{OutputLine, View};
use crate::merge::{Merge, Summary};

/// The intervals of one recording, merged.
#[derive(Debug, Clone)]
pub struct MergedRecording<V> {
    /// Where it was read from.
    name: String,
    /// Its machine, if the recording names it.
    pub host: Option<String>,
    piece: Piece<V>,
    /// The earliest start of an interval after its last one, and when the last one ended, in ns since 1970. None: a
    /// start could not be parsed.
    next_ns: Option<i128>,
    end_ns: Option<i128>,
}

/// Maximum size in bytes of the merged result as JSON. In memory it takes up to twice as much. That of `system` with 40
/// busy devices has 25 MB.
const MOST_BYTES: u64 = 32 << 20;

/// Starts are rounded to milliseconds, and the next interval may begin exactly when the previous one ends.
const SLACK_NS: i128 = 2_000_000;

/// Tolerated difference in length of recordings of several machines, as a fraction of the longer one or of one second,
/// whichever is longer.
const ALIKE: f64 = 0.01;

impl<V: Merge + View> MergedRecording<V> {
    /// Starts with one interval.
    pub fn new(name: String, piece: Piece<V>) -> Self {
        let end_ns = start_ns(&piece).map(|start| start + i128::from(piece.envelope.duration_ns));
        Self { name, host: None, next_ns: least_next_ns(&piece), piece, end_ns }
    }

    /// Checks that the next interval may be added.
    ///
    /// # Errors
    /// If it does not begin later than the one before it: it would be counted twice.
    pub fn precedes(&self, piece: &Piece<V>) -> Result<(), Apart> {
        match (self.next_ns, start_ns(piece)) {
            (Some(least), Some(start)) if start < least => Err(Apart::Order(piece.envelope.start.clone())),
            _ => Ok(()),
        }
    }

    /// Adds the next interval.
    ///
    /// # Errors
    /// If the sum becomes too large, because the intervals have too few rows in common.
    pub fn add(&mut self, piece: Piece<V>) -> Result<(), Apart> {
        self.next_ns = least_next_ns(&piece).or(self.next_ns);
        let end_ns = start_ns(&piece).map(|start| start + i128::from(piece.envelope.duration_ns));
        self.end_ns = self.end_ns.max(end_ns);
        self.piece.envelope.follow(&piece.envelope);
        self.merge_view(&piece);
        self.piece.size = self.piece.size.saturating_add(piece.size);
        // Serialising takes time: measure the size only when the upper bound exceeds the limit.
        if self.piece.size <= 2 * MOST_BYTES {
            return Ok(());
        }
        match self.measure() {
            ..=MOST_BYTES => Ok(()),
            _ => Err(Apart::Large(piece.envelope.start)),
        }
    }

    fn merge_view(&mut self, piece: &Piece<V>) {
        self.piece.view.merge_with(&piece.view);
        self.piece.command_status = piece.command_status.or(self.piece.command_status);
    }

    /// Its size as JSON.
    fn measure(&mut self) -> u64 {
        let mut written = ByteCounter(0);
        // Cannot fail: the counter returns no error, and JSON can represent every value.
        let _counted = serde_json::to_writer(
            &mut written,
            &OutputLine::new(&self.piece.envelope, &self.piece.view, None),
        );
        self.piece.size = written.0;
        written.0
    }
}

/// Counts the bytes written.
struct ByteCounter(u64);

impl Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<V: Summary> MergedRecording<V> {
    /// The result of all its intervals.
    pub fn whole(mut self) -> Piece<V> {
        self.piece.view.settle();
        self.piece
    }
}

fn start_ns<V>(piece: &Piece<V>) -> Option<i128> {
    piece.envelope.start.parse::<Timestamp>().ok().map(Timestamp::as_nanosecond)
}

/// The earliest start of the next interval. Starts have milliseconds, so it is later than this one's, unless this one
/// is shorter than 1 ms.
fn least_next_ns<V>(piece: &Piece<V>) -> Option<i128> {
    const MILLISECOND: u64 = 1_000_000;
    let is_brief = piece.envelope.duration_ns < MILLISECOND;
    Some(start_ns(piece)? + if is_brief { 0 } else { 1 })
}

/// Why recordings cannot be merged.
#[derive(Debug, Clone, PartialEq)]
pub enum Apart {
    /// An interval of the same recording with this start does not follow the one before it.
    Order(String),
    /// These two overlap: their common time would be counted twice.
    SameTime(String, String),
    /// The view has figures of a whole machine, and these two are of different machines.
    Machines(String, String),
    /// Different lengths: no common length exists for their rates.
    Lengths(String, String),
    /// With this one the result exceeds the size limit.
    Large(String),
    Nothing,
}

impl fmt::Display for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order(start) => {
                write!(
                    f,
                    "the interval that begins at {start} does not follow the one before it: its I/Os would be \
                     counted twice"
                )
            }
            Self::SameTime(a, b) => {
                write!(
                    f,
                    "{a} and {b} are of the same machine and time, or do not name their machine: give one \
                     of them"
                )
            }
            Self::Machines(a, b) => write!(
                f,
                "{a} and {b} are of different machines, and this view has figures of a whole machine: give \
                 results of one"
            ),
            Self::Lengths(a, b) => write!(
                f,
                "{a} and {b} are of different machines and lengths: choose the same length with --from and \
                 --to"
            ),
            Self::Large(what) => write!(
                f,
                "with {what} the sum has more different threads, locks, files, ... than fit in {} MiB: \
                 choose fewer intervals with --from and --to",
                MOST_BYTES >> 20
            ),
            Self::Nothing => f.write_str("there is nothing to merge: name a recording with -i"),
        }
    }
}

/// Recordings to be merged.
#[derive(Debug)]
pub struct Together<V> {
    runs: Vec<MergedRecording<V>>,
    bytes: u64,
}

impl<V> Default for Together<V> {
    fn default() -> Self {
        Self { runs: Vec::new(), bytes: 0 }
    }
}

impl<V: Summary + View> Together<V> {
    /// # Errors
    /// If they are too large together.
    pub fn add(&mut self, mut run: MergedRecording<V>) -> Result<(), Apart> {
        self.bytes = self.bytes.saturating_add(run.measure());
        if self.bytes > MOST_BYTES {
            return Err(Apart::Large(run.name));
        }
        self.runs.push(run);
        Ok(())
    }

    /// Joins recordings of one machine in time, then adds up the machines. Each device gets the name of its machine.
    ///
    /// # Errors
    /// If the recordings cannot be merged; see [`Apart`].
    pub fn merge(mut self) -> Result<Piece<V>, Apart> {
        self.refuse_own_lines()?;
        self.runs.sort_by_key(|run| (run.host.clone(), start_ns(&run.piece)));
        let mut machines: Vec<MergedRecording<V>> = Vec::new();
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

    /// Refuses lines without a machine name if they may be of the same time as a recording: on the same kernel they
    /// cannot be told from lines of that machine.
    fn refuse_own_lines(&self) -> Result<(), Apart> {
        let (named, lines): (Vec<_>, Vec<_>) = self.runs.iter().partition(|run| run.host.is_some());
        let mut pairs = named.iter().flat_map(|run| lines.iter().map(move |lines| (run, lines)));
        match pairs.find(|(run, lines)| run.may_share(lines)) {
            Some((run, lines)) => Err(Apart::SameTime(run.name.clone(), lines.name.clone())),
            None => Ok(()),
        }
    }
}

impl<V> MergedRecording<V> {
    fn is_over_before(&self, next: &Self) -> bool {
        self.end_ns.zip(start_ns(&next.piece)).is_some_and(|(end, start)| start + SLACK_NS >= end)
    }

    /// Whether both may contain the same interval.
    fn may_share(&self, other: &Self) -> bool {
        self.piece.envelope.kernel == other.piece.envelope.kernel
            && !self.is_over_before(other)
            && !other.is_over_before(self)
    }
}

impl<V: Summary + View> MergedRecording<V> {
    fn follow(&mut self, next: Self) -> Result<(), Apart> {
        if !self.is_over_before(&next) {
            let (a, b) = (self.name.clone(), next.name.clone());
            return Err(Apart::SameTime(a, b));
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
        let parts = [&mut self.piece.view, &mut other.piece.view].map(|view| view.part_of_window().copied());
        let part = parts.into_iter().flatten().min();
        let envelope = self.piece.envelope.duration_ns.max(other.piece.envelope.duration_ns);
        self.piece.envelope.join(&other.piece.envelope);
        self.piece.envelope.duration_ns = envelope;
        self.merge_view(&other.piece);
        if let Some(window) = self.piece.view.window() {
            *window = longest;
        }
        if let (Some(all), Some(least)) = (self.piece.view.part_of_window(), part) {
            *all = least;
        }
        Ok(())
    }
}
