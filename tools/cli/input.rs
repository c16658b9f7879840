//! `-i`: what was kept, in place of a measurement.

use std::path::PathBuf;

use biopsy::recording::{Moment, Span};
use clap::{Arg, Args};

use super::values::moment;

/// What was kept, in place of a measurement.
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

/// Which of the results that were kept.
#[derive(Debug, Clone, Args)]
pub struct Within {
    /// Use only results that began at this time or later: 14:30:05 (UTC), 2026-11-28T14:30:05Z, or 90s after
    /// the first.
    #[arg(long, value_name = "TIME", requires = "input", value_parser = moment)]
    from: Option<Moment>,
    /// Use only results that began before this time.
    #[arg(long, value_name = "TIME", requires = "input", value_parser = moment)]
    to: Option<Moment>,
}

impl Within {
    pub fn span(&self) -> Span {
        Span { from: self.from, to: self.to }
    }
}

/// Arguments of [`super::Window`] and [`super::Interval`], and the measured command. Their groups would be named as a
/// whole in an error, hidden options included.
const MEASURING: [&str; 7] =
    ["devices", "length", "max_loss", "no_cost", "fault_drop_issue", "words", "command"];

/// What is kept takes the place of these arguments, and of those that say what a live view measures.
pub fn replaces_live(own: &'static [&'static str]) -> impl FnOnce(Arg) -> Arg {
    move |arg| replaces(own)(arg).conflicts_with_all(MEASURING)
}

/// What is kept takes the place of these arguments.
pub fn replaces(measuring: &'static [&'static str]) -> impl FnOnce(Arg) -> Arg {
    move |arg| arg.conflicts_with_all(measuring)
}
