//! biopsy measures live block I/O and says what is wrong with it.
//!
//! The rooms, and which may use which (a test, `tests/suite/layers.rs`, holds the arrows):
//!
//! ```text
//!  tools ----> everything below
//!  session --> probe, analyze, wire, host, load (its results), symbols, envelope, clock, refusal
//!  probe ----> wire, host, envelope, clock, refusal   the only room that knows libbpf
//!  load -----> wire, hist, host, clock, names, refusal  the only room that knows io_uring
//!  experiment -> load, settings, host, envelope, refusal, units, names, stats  a load or a command in several arms
//!  analyze --> wire, hist, host, envelope, load (its results), symbols (the names), merge, names, stats
//!  symbols --> host, envelope, refusal                the only room that knows blazesym
//!  rules ----> findings, analyze, hist, host, load (its results), experiment (likewise), envelope, merge, stats, units
//!  render ---> analyze, findings, rules, hist, host, load (its results), experiment (likewise), recording, merge, envelope, stats, units
//!  wire -----> hist, host (the kernel's counters), names
//!  host -----> refusal
//!  settings -> refusal                               values of sysfs and /proc/sys, and how they come back
//!  recording -> envelope, merge, clock (the local time)
//!  envelope -> merge, names
//!  merge ----> hist
//!  findings, hist, clock, names, refusal, stats, units: leaves
//! ```
//!
//! `analyze`, `findings`, `rules`, `render` and `units` use no clock, no file system and no threads:
//! the same summary gives the same bytes, live or from a literal in a test.

// An error goes to the caller, and tools/output.rs prints: `println!` and `eprintln!` panic where the other end is closed.
#![warn(clippy::expect_used, clippy::unwrap_used, clippy::print_stderr, clippy::print_stdout)]

pub mod analyze;
pub mod clock;
pub mod envelope;
pub mod experiment;
pub mod findings;
pub mod hist;
pub mod host;
pub mod load;
pub mod merge;
pub mod names;
pub mod probe;
pub mod recording;
pub mod refusal;
pub mod render;
pub mod rules;
pub mod session;
pub mod settings;
pub mod stats;
pub mod symbols;
pub mod units;
pub mod wire;
