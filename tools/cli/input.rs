//! `-i`: reads saved results instead of measuring.

use std::path::PathBuf;

use biopsy::recording::{Moment, Span};
use clap::{Arg, Args};

use super::values::moment;

/// Saved results to read instead of measuring.
#[derive(Debug, Clone, Args)]
pub struct Input {
    /// Show a recording or saved --json output instead of measuring. FILE - is stdin. Needs no rights.
    /// Several files give one result.
    #[arg(short, long, value_name = "FILE")]
    pub input: Vec<PathBuf>,
    /// Merge all intervals into one result.
    #[arg(long, requires = "input")]
    pub merge: bool,
    #[command(flatten)]
    pub within: Within,
}

/// The part of the saved results to use.
#[derive(Debug, Clone, Args)]
pub struct Within {
    /// Use only results that began at this time or later: 14:30 or 14:30:05 (local time), 14:30:05Z,
    /// 2026-11-28T14:30:05Z, or 90s after the first.
    #[arg(long, value_name = "TIME", requires = "input", value_parser = moment)]
    from: Option<Moment>,
    /// Use only results that began before this time.
    #[arg(long, value_name = "TIME", requires = "input", value_parser = moment)]
    to: Option<Moment>,
}

impl Within {
    /// Takes times without a zone as UTC.
    pub fn in_utc(&mut self) {
        [&mut self.from, &mut self.to].into_iter().flatten().for_each(|moment| *moment = moment.in_utc());
    }

    /// Whether a part is selected.
    pub fn is_part(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    pub fn span(&self) -> Span {
        Span { from: self.from, to: self.to }
    }
}

/// The arguments of [`super::MeasurementArgs`] and [`super::IntervalArgs`], and the command. They are listed one by one: for
/// a group, clap's error would name all members, including hidden options.
const MEASURING: [&str; 7] =
    ["devices", "length", "max_loss", "no_cost", "fault_drop_issue", "words", "command"];

/// `-i` conflicts with these arguments and with those in `MEASURING`.
pub fn replaces_live(own: &'static [&'static str]) -> impl FnOnce(Arg) -> Arg {
    move |arg| replaces(own)(arg).conflicts_with_all(MEASURING)
}

/// `-i` conflicts with these arguments.
pub fn replaces(measuring: &'static [&'static str]) -> impl FnOnce(Arg) -> Arg {
    move |arg| arg.conflicts_with_all(measuring)
}
