//! fio's options, defined once for job files and for the command line of `biopsy load`.
//!
//! [`table::words`] lists what each option takes and does. A [`Draft`] collects the options of one job, rejects
//! combinations that conflict, and builds the job.

mod command;
mod draft;
mod priority;
mod table;
mod values;

pub use command::{Request, Sweep, read, scratch_bytes, values_of};
pub use draft::{Conflict, Draft};
pub use table::{OptionScope, Section, Takes, Word, word, words};
pub(super) use values::quoted;
