//! Where bytes go: the product to stdout or a file, everything else to stderr.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use biopsy::refusal::Refusal;

use crate::cli::Color;

/// The place of a verb's product, opened before anything is measured, so that a typo fails early.
#[derive(Debug)]
pub enum Sink {
    Stdout,
    /// Written beside its final name and moved there when it is whole: a run that fails leaves the
    /// old file (or none) behind.
    File {
        file: File,
        temporary: PathBuf,
        path: PathBuf,
        kept: bool,
    },
}

impl Sink {
    /// `None` and `-` are stdout.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path.filter(|p| *p != Path::new("-")) else {
            return Ok(Self::Stdout);
        };
        let refuse = |why: String| {
            Refusal::Usage(format!(
                "cannot write {}: {why}; name a file in a directory that you can write to with -o",
                path.display()
            ))
        };
        if path.is_dir() {
            return Err(refuse("it is a directory".to_string()).into());
        }
        // A pipe or a terminal given by path cannot be replaced by a rename.
        if path.exists() && !path.is_file() {
            let file = File::options().write(true).open(path).map_err(|e| refuse(reason(&e)))?;
            return Ok(Self::File {
                file,
                temporary: path.to_path_buf(),
                path: path.to_path_buf(),
                kept: true,
            });
        }
        if path.exists() {
            File::options().write(true).open(path).map_err(|e| refuse(reason(&e)))?;
        }
        let mut name =
            path.file_name().ok_or_else(|| refuse("it has no file name".to_string()))?.to_os_string();
        name.push(format!(".{}.part", std::process::id()));
        let temporary = path.with_file_name(name);
        let file =
            File::options().write(true).create_new(true).open(&temporary).map_err(|e| refuse(reason(&e)))?;
        Ok(Self::File { file, temporary, path: path.to_path_buf(), kept: false })
    }

    /// Writes all of it; for a file, also moves it to its name.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(bytes).and_then(|()| out.flush()).context("cannot write to stdout")
            }
            Self::File { file, temporary, path, kept } => {
                let name = path.display().to_string();
                file.write_all(bytes).and_then(|()| file.flush()).with_context(|| {
                    format!("cannot write {name}: free some space or name another file with -o")
                })?;
                if !*kept {
                    std::fs::rename(&temporary, &path).with_context(|| format!("cannot write {name}"))?;
                    *kept = true;
                }
                Ok(())
            }
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Self::File { temporary, kept: false, .. } = self {
            // Nothing is left behind; if it is gone already there is nothing to do.
            let _gone = std::fs::remove_file(temporary);
        }
    }
}

/// An I/O error's text without the number that Rust appends.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// A line on stderr; a closed stderr is not an error.
pub fn warn(text: &str) {
    let _closed = writeln!(io::stderr().lock(), "biopsy: {text}");
}

/// A closed pipe on stdout ends quietly (`| head`).
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

/// Whether stdout gets colour.
pub fn colored(choice: Color) -> bool {
    match choice {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
        }
    }
}

/// Whether stderr can show a progress line.
pub fn progress() -> bool {
    io::stderr().is_terminal()
}
