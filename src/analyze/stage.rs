//! The parts of an I/O's life.

use crate::names::names;

names! {
    /// A part of an I/O's life, in the order in which it passes them.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Stage {
        Submit = "submit",
        Queue = "queue",
        Device = "device",
        Complete = "complete",
        Reap = "reap",
    }
}
