//! Writes man pages and shell completions into a folder, generated from the command line's definition.
//!
//! It is a cargo example, so the executable does not include its dependencies.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use jiff::Timestamp;

#[allow(dead_code, unused_imports, reason = "the executable uses the rest")]
mod cli;
#[allow(dead_code, reason = "the executable uses the rest")]
mod words;

fn main() -> ExitCode {
    let Some(folder) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("manual: name the folder that the pages go into");
        return ExitCode::from(2);
    };
    match write(&folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("manual: {}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

/// Writes each file below the prefix's `share` folder.
fn write(share: &Path) -> io::Result<()> {
    let place = |below: &str| {
        let folder = share.join(below);
        fs::create_dir_all(&folder).map(|()| folder)
    };
    let mut command = cli::command().disable_help_subcommand(true);
    // Sets the full name of each verb.
    command.build();
    pages(&command, &place("man/man1")?)?;
    for (shell, folder, name) in [
        (Shell::Bash, "bash-completion/completions", "biopsy"),
        (Shell::Zsh, "zsh/site-functions", "_biopsy"),
        (Shell::Fish, "fish/vendor_completions.d", "biopsy.fish"),
    ] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut cli::command(), "biopsy", &mut text);
        fs::write(place(folder)?.join(name), text)?;
    }
    Ok(())
}

/// One page for the command and one for each verb.
fn pages(command: &Command, folder: &Path) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        pages(verb, folder)?;
    }
    let version = concat!("biopsy ", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command.clone()).date(date()).source(version).manual("User Commands");
    page.generate_to(folder).map(drop)
}

/// The date of the commit (SOURCE_DATE_EPOCH): a rebuild gives the same pages. Without a date, man would use the next
/// field as date.
fn date() -> String {
    let seconds = env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| seconds.parse().ok());
    let at = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or_else(Timestamp::now);
    at.strftime("%Y-%m-%d").to_string()
}
