//! Writes the man pages and the shells' completions into a folder, from the command line's own grammar.
//!
//! An example of the package, so that what it is built with is not in the executable.

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

/// Where each file lies below the `share` of a prefix.
fn write(share: &Path) -> io::Result<()> {
    let place = |below: &str| {
        let folder = share.join(below);
        fs::create_dir_all(&folder).map(|()| folder)
    };
    let mut command = cli::command().disable_help_subcommand(true);
    // A verb has its own name and page from here on.
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

/// A page for the command, and one for each verb.
fn pages(command: &Command, folder: &Path) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        pages(verb, folder)?;
    }
    let version = concat!("biopsy ", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command.clone()).date(date()).source(version).manual("User Commands");
    page.generate_to(folder).map(drop)
}

/// That of the commit, by SOURCE_DATE_EPOCH, so that pages made again are the same. Without one man takes what follows for
/// it.
fn date() -> String {
    let seconds = env::var("SOURCE_DATE_EPOCH").ok().and_then(|seconds| seconds.parse().ok());
    let at = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or_else(Timestamp::now);
    at.strftime("%Y-%m-%d").to_string()
}
