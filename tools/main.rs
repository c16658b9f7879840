//! Parse, run, exit code.

mod check;
mod child;
mod cli;
mod clock;
mod devices;
mod diagnose;
mod explain;
mod latency;
mod load;
mod output;
mod progress;
mod stop;
mod window;

use std::process::ExitCode;

use biopsy::refusal::Refusal;
use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let result = match &cli.verb {
        cli::Verb::Diagnose(args) => diagnose::run(args, cli.color),
        cli::Verb::Latency(args) => latency::run(args, cli.color),
        cli::Verb::Load(args) => load::run(args),
        cli::Verb::Devices(args) => devices::run(args),
        cli::Verb::Check(args) => check::run(args, cli.color),
        cli::Verb::Explain(args) => explain::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::warn(&format!("error: {error:#}"));
            ExitCode::from(error.downcast_ref::<Refusal>().map_or(1, Refusal::exit_code))
        }
    }
}
