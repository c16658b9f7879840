//! Tests the library and the command line on any machine, without root and without tracing.

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "another test program uses the rest")]
mod support;

mod cases;
mod cli;
mod command;
mod compare;
mod cpu;
mod devices;
mod disk;
mod docs;
mod fio_output;
mod flame;
mod flame_browser;
mod gaps;
mod guard;
mod host;
mod interval_lines;
mod jobfiles;
mod layers;
mod load;
mod load_files;
mod load_jobs;
mod load_rates;
mod load_verify;
mod load_words;
mod merged;
mod pairs;
mod precondition;
mod recordings;
mod records;
mod replay;
mod report;
mod sweep;
mod symbols;
mod tables;
mod terminal;
mod top;
mod topology;
mod witness;
