//! Parses the command line, runs the verb, and returns the exit code.

// Same lints as in src/lib.rs.
#![warn(clippy::expect_used, clippy::unwrap_used, clippy::print_stderr, clippy::print_stdout)]

mod check;
mod cli;
mod compare;
mod devices;
mod diagnose;
mod errors;
mod explain;
mod flame;
mod interrupts;
mod latency;
mod live;
mod load;
mod locks;
mod output;
mod pack;
mod progress;
mod record;
mod replay;
mod schema;
mod screen;
mod self_test;
mod threads;
mod top;
mod trace;
mod version;
mod window;
mod words;

use std::process::ExitCode;

use anyhow::Result;
use biopsy::probe::btf_file;
use biopsy::refusal::{Refusal, plain};
use biopsy::symbols::Helper;

fn main() -> ExitCode {
    let cli = match cli::parse(words::joined(std::env::args_os())) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    output::set_style(cli.quiet, cli.verbose, cli.wide);
    let result = cli.btf.as_deref().map_or(Ok(()), btf_file::set).and_then(|()| run(&cli));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&plain(&format!("{error:#}")));
            ExitCode::from(error.downcast_ref::<Refusal>().map_or(1, Refusal::exit_code))
        }
    }
}

fn run(cli: &cli::Cli) -> Result<()> {
    match &cli.verb {
        cli::Verb::Diagnose(args) => diagnose::run(args, cli.color),
        cli::Verb::Latency(args) => latency::run(args, cli.color),
        cli::Verb::Interrupts(args) => interrupts::run(args, cli.color),
        cli::Verb::Locks(args) => locks::run(args, cli.color),
        cli::Verb::Threads(args) => threads::run(args, cli.color),
        cli::Verb::Flame(args) => flame::run(args),
        cli::Verb::Trace(args) => trace::run(args),
        cli::Verb::Errors(args) => errors::run(args),
        cli::Verb::Top(args) => top::run(args),
        cli::Verb::Report(args) => {
            diagnose::recorded::run(&diagnose::recorded::DiagnosisRequest::of_report(args), cli.color)
        }
        cli::Verb::Record(args) => record::run(args),
        cli::Verb::Pack(args) => pack::run(args),
        cli::Verb::Load(args) => load::run(args),
        cli::Verb::Compare(args) => compare::run(args),
        cli::Verb::Devices(args) => devices::run(args),
        cli::Verb::Check(args) => check::run(args, cli.color),
        cli::Verb::Explain(args) => explain::run(args),
        cli::Verb::Schema(args) => schema::run(args),
        cli::Verb::Version => version::run(),
        cli::Verb::SymbolReader => Ok(Helper::serve()?),
        cli::Verb::SettingWatcher { values } => compare::watch(values),
    }
}

/// Prints help and the version on stdout as clap formats them, and a usage error in one sentence like any other error.
fn usage(error: &clap::Error) -> ExitCode {
    match cli::sentence(error) {
        Some(sentence) => output::error(&sentence),
        None => {
            let _closed = error.print();
        }
    }
    ExitCode::from(if error.use_stderr() { 2 } else { 0 })
}
