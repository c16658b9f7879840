//! fio's words, once for both who say them: job files and the command line of `biopsy load`.
//!
//! [`table::words`] holds what each takes and does. A [`Draft`] collects them for one job and makes the job of
//! them, which is also where words that do not go together are found.

mod command;
mod draft;
mod priority;
mod table;
mod values;

pub use command::{Request, Sweep, read, scratch_bytes, values_of};
pub use draft::{Conflict, Draft};
pub use table::{Place, Section, Takes, Word, word, words};
pub(super) use values::quoted;
