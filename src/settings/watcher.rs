//! Implements the process that restores settings if the process that changed them ends without doing so.
//!
//! It has its own session, so that no terminal ends it, and only SIGKILL does.

use std::fs;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;

use super::lock::{finish, remove};
use super::saved::{Problem, SavedSettings};

/// The hidden verb that runs it.
pub const VERB: &str = "setting-watcher";

/// Its answer when it has the old values.
pub(super) const READY: &str = "ready\n";

/// The message that nothing is left to restore.
pub(super) const DONE: &str = "done\n";

/// Reads old values from stdin, one line whenever they change, until it closes. Returns what could not be restored;
/// None if there was nothing to do.
///
/// # Errors
/// When stdin is not biopsy's pipe.
pub fn serve(values: &Path) -> io::Result<Option<(String, Vec<Problem>)>> {
    if io::stdin().is_terminal() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this verb is for biopsy itself"));
    }
    // SAFETY: plain system calls without pointers.
    unsafe {
        libc::setsid();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    let root = Path::new("/");
    let mut last: Option<SavedSettings> = None;
    let mut input = io::stdin().lock();
    loop {
        let mut line = String::new();
        match input.read_line(&mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) if line == DONE => return Ok(None),
            // A line that the end of input cut off is ignored.
            Ok(_) => {
                let Ok(saved) = serde_json::from_str::<SavedSettings>(&line) else { continue };
                if saved.is_plausible(root) && last.replace(saved).is_none() {
                    let mut out = io::stdout().lock();
                    // If nothing reads it, the tool has ended: no further line comes, and everything is restored.
                    let _ended = out.write_all(READY.as_bytes()).and_then(|()| out.flush());
                }
            }
        }
    }
    // The tool may have ended before it wrote a line; the file is older than any change.
    let of_file = || serde_json::from_slice::<SavedSettings>(&fs::read(values).ok()?).ok();
    let saved = last.or_else(of_file).filter(|saved| saved.is_plausible(root));
    let Some(saved) = saved else { return Ok(None) };
    let problems = saved.restore(root);
    finish(values, &problems);
    remove(values);
    Ok(Some((saved.name, problems)))
}
