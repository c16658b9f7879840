//! The parts of an I/O's life.

use serde::Serialize;

/// A part of an I/O's life, in the order in which it passes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    Submit,
    Queue,
    Device,
    Complete,
    Reap,
}

impl Stage {
    pub const ALL: [Self; 5] = [Self::Submit, Self::Queue, Self::Device, Self::Complete, Self::Reap];

    /// The word of the contract, the same in help, tables, JSON and HTML.
    pub fn name(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Queue => "queue",
            Self::Device => "device",
            Self::Complete => "complete",
            Self::Reap => "reap",
        }
    }
}
