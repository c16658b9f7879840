//! Output: the result goes to stdout or a file, everything else to stderr.

use std::borrow::Cow;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use biopsy::envelope::Envelope;
use biopsy::refusal::{Refusal, reason};
use biopsy::render::text::footer;

use crate::cli::{Color, Output};

/// The destination of a result. It is opened before the measurement, so a wrong path fails early.
///
/// A file is created or truncated only at the first write: a failed or killed run leaves everything unchanged.
#[derive(Debug)]
pub enum Sink {
    Stdout,
    File { file: File, path: PathBuf, place: OutputState },
}

/// The state of the output file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputState {
    /// It existed. The first write truncates it.
    Existing,
    /// It has no name yet (O_TMPFILE).
    Unnamed,
    /// Created by biopsy on a file system without O_TMPFILE. Removed if nothing is written.
    Created,
    /// Written to.
    Begun,
}

impl Sink {
    /// `None` and `-` are stdout.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path.filter(|p| *p != Path::new("-")) else {
            return Ok(Self::Stdout);
        };
        let refuse = |error: &io::Error| {
            Refusal::Usage(format!(
                "cannot write {}: {}; choose another file with -o",
                path.display(),
                reason(error)
            ))
        };
        let sink = |file, place| Self::File { file, path: path.to_path_buf(), place };
        // The output is text, which must not overwrite a disk.
        if std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device()) {
            let why = format!("{} is a block device: name a file with -o", path.display());
            return Err(Refusal::Usage(why).into());
        }
        match File::options().write(true).open(path) {
            Ok(file) => return Ok(sink(file, OutputState::Existing)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(refuse(&error).into()),
            Err(_) => {}
        }
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        if let Ok(file) =
            File::options().write(true).custom_flags(libc::O_TMPFILE).mode(0o644).open(directory)
        {
            return Ok(sink(file, OutputState::Unnamed));
        }
        let file = File::options().write(true).create_new(true).open(path).map_err(|e| refuse(&e))?;
        Ok(sink(file, OutputState::Created))
    }

    /// Writes and flushes; can be called again. If the file cannot be written, the bytes go to stdout.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.put(bytes, true)
    }

    /// Like [`write`](Self::write), but without the fallback: stdout carries something else.
    pub fn write_apart(&mut self, bytes: &[u8]) -> Result<()> {
        self.put(bytes, false)
    }

    fn put(&mut self, bytes: &[u8], save: bool) -> Result<()> {
        match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(&for_terminal(bytes, &out))
                    .and_then(|()| out.flush())
                    .context("cannot write to stdout: use -o to name a file")
            }
            Self::File { file, path, place } => {
                let ready = match place {
                    OutputState::Existing if file.metadata().is_ok_and(|m| m.is_file()) => file.set_len(0),
                    OutputState::Unnamed => name_file(file, path),
                    _ => Ok(()),
                };
                *place = OutputState::Begun;
                let Err(error) = ready.and_then(|()| file.write_all(bytes)).and_then(|()| file.flush())
                else {
                    return Ok(());
                };
                // Do not lose the measurement.
                let saved = match save && Self::Stdout.write(bytes).is_ok() {
                    true => "; its content is on stdout",
                    false => "",
                };
                let remedy = match error.kind() {
                    io::ErrorKind::AlreadyExists => {
                        "another process has created it meanwhile; name another file with -o"
                    }
                    _ => "free some space or name another file with -o",
                };
                Err(error).with_context(|| format!("cannot write {}: {remedy}{saved}", path.display()))
            }
        }
    }
}

/// Gives an O_TMPFILE file its name.
fn name_file(file: &File, path: &Path) -> io::Result<()> {
    let from = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let to = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both are NUL-terminated strings that live across the call.
    let failed = unsafe {
        libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Self::File { path, place: OutputState::Created, .. } = self {
            // The file was not written. An error means that it is already gone.
            let _gone = std::fs::remove_file(path);
        }
    }
}

/// A sink with its own writer thread: a slow or closed reader does not block the measurement.
#[derive(Debug)]
pub struct Stream {
    to: SyncSender<Vec<u8>>,
    thread: JoinHandle<Result<()>>,
}

impl Stream {
    pub fn start(mut sink: Sink) -> Result<Self> {
        let (to, from) = mpsc::sync_channel::<Vec<u8>>(1);
        let thread = std::thread::Builder::new()
            .name("biopsy-output".to_string())
            .spawn(move || from.into_iter().try_for_each(|bytes| sink.write(&bytes)))
            .context("the thread that writes the output cannot be started")?;
        Ok(Self { to, thread })
    }

    /// Queues the bytes, or returns them if earlier ones are still being written.
    pub fn offer(&self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        match self.to.try_send(bytes) {
            Ok(()) => None,
            Err(TrySendError::Full(bytes) | TrySendError::Disconnected(bytes)) => Some(bytes),
        }
    }

    /// Queues the bytes. Blocks until earlier ones are written.
    pub fn give(&self, bytes: Vec<u8>) {
        // An error means that the thread has ended; `finish` returns its error.
        let _ended = self.to.send(bytes);
    }

    /// Whether the writer has stopped: the sink failed.
    pub fn failed(&self) -> bool {
        self.thread.is_finished()
    }

    /// Writes the last bytes and waits until they are written.
    pub fn finish(self, bytes: Vec<u8>) -> Result<()> {
        self.give(bytes);
        drop(self.to);
        self.thread.join().map_err(|_| anyhow!("the thread that writes the output panicked"))?
    }
}

/// -q: results and errors alone.
static IS_QUIET: AtomicBool = AtomicBool::new(false);
/// -v.
static IS_VERBOSE: AtomicBool = AtomicBool::new(false);

/// --wide.
static IS_WIDE: AtomicBool = AtomicBool::new(false);

/// Sets the options for the whole run.
pub fn set_style(quiet: bool, verbose: bool, wide: bool) {
    IS_QUIET.store(quiet, Ordering::Relaxed);
    IS_VERBOSE.store(verbose, Ordering::Relaxed);
    IS_WIDE.store(wide, Ordering::Relaxed);
}

pub fn is_verbose() -> bool {
    IS_VERBOSE.load(Ordering::Relaxed)
}

/// Prints a line on stderr. A closed stderr is not an error.
fn line(text: &str) {
    let text = format!("biopsy: {}", biopsy::render::text::clean(text));
    let text = biopsy::render::text::fit(&text, width_of(&io::stderr()));
    let _closed = io::stderr().lock().write_all(&for_terminal(text.as_bytes(), &io::stderr()));
}

/// Prints the error that ends the run.
pub fn error(text: &str) {
    line(&format!("error: {text}"));
}

/// Prints a line on stderr, unless -q is given.
pub fn warn(text: &str) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        line(text);
    }
}

/// Prints rendered lines on stderr, unless -q is given.
pub fn note(text: &str) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        let text = biopsy::render::text::fit(text, width_of(&io::stderr()));
        let _closed = io::stderr().lock().write_all(&for_terminal(text.as_bytes(), &io::stderr()));
    }
}

/// Prints the cost of each BPF program, with -v.
pub fn note_programs(envelope: &Envelope) {
    if is_verbose() {
        note(&footer::programs(envelope));
    }
}

/// Whether stdout is a closed pipe (`| head`): the run ends quietly.
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
            let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            io::stdout().is_terminal() && !is_unwanted && !is_dumb()
        }
    }
}

/// Whether the terminal cannot move its cursor: TERM is `dumb` or not set.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// Whether the locale uses UTF-8.
fn takes_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(std::env::var_os);
    let first = locale.into_iter().find(|value| !value.is_empty());
    first.is_some_and(|value| {
        let value = value.to_string_lossy().to_ascii_lowercase();
        value.contains("utf-8") || value.contains("utf8")
    })
}

/// Text for a terminal, transliterated to ASCII if it does not support UTF-8.
fn for_terminal<'a>(bytes: &'a [u8], stream: &impl IsTerminal) -> Cow<'a, [u8]> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.is_ascii() && stream.is_terminal() && !takes_utf8() => {
            let ascii = |c: char| match c {
                'µ' => 'u',
                '±' => '~',
                '×' => 'x',
                '·' => '-',
                c if c.is_ascii() => c,
                _ => '?',
            };
            Cow::Owned(text.chars().map(ascii).collect::<String>().into_bytes())
        }
        _ => Cow::Borrowed(bytes),
    }
}

/// Rows of the terminal on stdout; None: not a terminal.
pub fn rows() -> Option<u64> {
    size(libc::STDOUT_FILENO).map(|size| u64::from(size.ws_row)).filter(|rows| *rows > 0)
}

/// Columns of a terminal of unknown size.
const USUAL_WIDTH: usize = 80;

/// Columns of the result; None: it goes to a file or pipe and has no limit.
pub fn width(output: &Output) -> Option<usize> {
    let is_file = output.output.as_deref().is_some_and(|path| path != Path::new("-"));
    if is_file { None } else { stdout_width() }
}

/// Columns of stdout, likewise.
pub fn stdout_width() -> Option<usize> {
    width_of(&io::stdout())
}

/// Columns of stderr, if it is a terminal.
pub fn stderr_width() -> Option<usize> {
    width_of(&io::stderr())
}

fn width_of(stream: &(impl IsTerminal + AsRawFd)) -> Option<usize> {
    if IS_WIDE.load(Ordering::Relaxed) || !stream.is_terminal() {
        return None;
    }
    let columns = size(stream.as_raw_fd()).map(|size| usize::from(size.ws_col));
    Some(columns.filter(|columns| *columns > 0).unwrap_or(USUAL_WIDTH))
}

/// Wraps text that was rendered without a width.
pub fn fitted(output: &Output, text: &str) -> Vec<u8> {
    biopsy::render::text::fit(text, width(output)).into_bytes()
}

/// The size of a terminal; None: not a terminal.
fn size(descriptor: libc::c_int) -> Option<libc::winsize> {
    // SAFETY: zeroed is a valid winsize, and the call only writes to it.
    unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (libc::ioctl(descriptor, libc::TIOCGWINSZ, &mut size) == 0).then_some(size)
    }
}

/// Whether stderr can show a progress line.
pub fn progress() -> bool {
    !IS_QUIET.load(Ordering::Relaxed) && io::stderr().is_terminal() && !is_dumb()
}
