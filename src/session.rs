//! Runs a measurement from start to end: its interval and sub-intervals, what ends it, which submitters it follows, and
//! the probes that run in parallel. Results go to the caller: nothing is printed here.

pub mod background;
pub mod beside;
pub mod command;
pub mod diagnosis;
pub mod errors;
pub mod flame;
pub mod heap;
pub mod interrupts;
pub mod io_events;
pub mod io_stream;
pub mod latency;
pub mod overhead;
pub mod pressure;
pub mod rates;
pub mod record;
pub mod service;
pub mod slowest;
pub mod stop;
pub mod submitters;
pub mod system;
pub mod threads;
pub mod timeline;
pub mod top;
pub mod trace;
pub mod wall_clock;
pub mod watch;
pub mod window;
