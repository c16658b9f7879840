//! biopsy takes a sample of live block I/O and says what is wrong with it.
//!
//! The rooms, and which may use which (a test, `tests/layers.rs`, holds the arrows):
//!
//! ```text
//!  tools ----> everything below
//!  probe ----> wire, host, envelope, refusal   the only room that knows libbpf
//!  load -----> hist, refusal                   the only room that knows io_uring
//!  analyze --> wire, hist, host, envelope, load (its results), symbols (names, not how they are found)
//!  symbols --> envelope                        the only room that knows blazesym
//!  rules ----> findings, analyze, host, load (its results)
//!  render ---> analyze, findings, rules, hist, host, envelope   never wire, never probe
//!  wire, hist, host, envelope, refusal, units: leaves
//! ```
//!
//! `analyze`, `findings`, `rules`, `stats` and `render` use no clock, no file system and no
//! threads: the same summary gives the same bytes, live or from a literal in a test.

pub mod analyze;
pub mod envelope;
pub mod findings;
pub mod hist;
pub mod host;
pub mod load;
pub mod probe;
pub mod refusal;
pub mod render;
pub mod rules;
pub mod symbols;
pub mod units;
pub mod wire;
