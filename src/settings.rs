//! Changes kernel settings for an experiment, and restores them.
//!
//! A [`Keeper`] writes the old values to a file under `/run/biopsy`, starts a separate process that holds them, and
//! only then allows a change. It restores them when it is dropped. If this process ends otherwise (SIGKILL, abort), the
//! [`watcher`] sees its pipe close and restores them. If both are killed, the file is left, and [`restore_left`] uses
//! it.

mod cgroup;
mod files;
mod keeper;
mod key;
mod lock;
mod saved;
pub mod watcher;

pub use keeper::Keeper;
pub use key::Key;
pub use lock::{Lock, restore_left};
pub use saved::{Problem, SavedSettings, Setting};
