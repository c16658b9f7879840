//! The stages of an I/O.

use crate::names::names;

names! {
    /// A stage of an I/O, in time order.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum Stage {
        Submit = "submit",
        Queue = "queue",
        Device = "device",
        Complete = "complete",
        Reap = "reap",
    }
}
