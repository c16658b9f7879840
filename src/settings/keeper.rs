//! Keeps old values of settings while an experiment changes them.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use super::lock::{Lock, finish};
use super::saved::{Problem, SavedSettings};
use super::watcher;
use crate::refusal::Refusal;

/// Allows changes of settings while it lives. Dropping it restores them.
#[derive(Debug)]
pub struct Keeper {
    saved: SavedSettings,
    lock: Lock,
    watcher: Child,
    restored: bool,
}

impl Keeper {
    /// Writes the old values to their file, and starts the watcher.
    pub fn begin(saved: SavedSettings, lock: Lock) -> Result<Self> {
        if lock.values.exists() {
            return Err(Refusal::Refused(format!(
                "settings of an earlier comparison are not restored: run biopsy compare --restore, or set \
                 them by hand and remove {}",
                lock.values.display()
            ))
            .into());
        }
        write_values(&saved, &lock)?;
        let watcher = start(&saved, &lock).inspect_err(|_| finish(&lock.values, &[]))?;
        Ok(Self { saved, lock, watcher, restored: false })
    }

    pub fn saved(&self) -> &SavedSettings {
        &self.saved
    }

    /// Ends the trial: each value was set once, and the kernel accepted it. From now on any other value was set by
    /// someone else.
    pub fn end_trial(&mut self) -> Result<()> {
        self.saved.trial = false;
        write_values(&self.saved, &self.lock)?;
        let line = serde_json::to_string(&self.saved)?;
        // A watcher that was killed is restarted at the next change.
        if let Some(pipe) = self.watcher.stdin.as_mut() {
            let _ended = writeln!(pipe, "{line}");
        }
        Ok(())
    }

    /// Sets the setting with this name to a value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        if let Some(disk) = self.saved.gone(Path::new("/")) {
            let why = format!("{disk} is gone, and the comparison with it: compare again when it is back");
            return Err(Refusal::Untrusted(why).into());
        }
        if self.watcher.try_wait().is_ok_and(|ended| ended.is_some()) {
            self.watcher = start(&self.saved, &self.lock)?;
        }
        let setting = self.saved.settings.iter().find(|setting| setting.name == name);
        Ok(setting.context("a setting that is varied was read before")?.set(value)?)
    }

    /// Restores all settings now.
    pub fn restore(mut self) -> Vec<Problem> {
        self.end()
    }

    fn end(&mut self) -> Vec<Problem> {
        if std::mem::replace(&mut self.restored, true) {
            return Vec::new();
        }
        let problems = self.saved.restore(Path::new("/"));
        finish(&self.lock.values, &problems);
        if let Some(mut pipe) = self.watcher.stdin.take() {
            let _ended = pipe.write_all(watcher::DONE.as_bytes());
        }
        let _reaped = self.watcher.wait();
        problems
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}

/// Writes the file completely or not at all.
fn write_values(saved: &SavedSettings, lock: &Lock) -> Result<()> {
    let write = || -> io::Result<()> {
        let new = lock.values.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(saved)?)?;
        fs::rename(&new, &lock.values)
    };
    write().with_context(|| format!("cannot write {}, which holds the old values", lock.values.display()))
}

/// Starts the watcher, and waits until it has the old values.
fn start(saved: &SavedSettings, lock: &Lock) -> Result<Child> {
    let refused = || {
        Refusal::Refused("the process that restores settings did not start: nothing is changed".to_string())
    };
    let lock_fd = lock.file.as_raw_fd();
    let mut command = Command::new("/proc/self/exe");
    command.arg(watcher::VERB).arg(&lock.values).stdin(Stdio::piped()).stdout(Stdio::piped());
    // SAFETY: dup is async-signal-safe. The copy has no close-on-exec flag: the watcher holds the lock as well.
    unsafe {
        command
            .pre_exec(move || if libc::dup(lock_fd) < 0 { Err(io::Error::last_os_error()) } else { Ok(()) })
    };
    let mut child = command.spawn().with_context(refused)?;
    let line = serde_json::to_string(saved)?;
    let mut said = String::new();
    let sent = child.stdin.as_mut().map(|pipe| writeln!(pipe, "{line}"));
    let heard = child.stdout.take().map(|pipe| BufReader::new(pipe).read_line(&mut said));
    match (sent, heard) {
        (Some(Ok(())), Some(Ok(_))) if said == watcher::READY => Ok(child),
        _ => {
            let _ended = child.kill();
            let _reaped = child.wait();
            Err(refused().into())
        }
    }
}
