//! Runs the measured command.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::refusal::{Refusal, reason};
use anyhow::{Context, Result};

use super::service::NOTIFY_SOCKET;
use super::stop;

/// How long a command may take to end by itself after Ctrl-C, which the terminal sends to it as well.
const GRACE: Duration = Duration::from_secs(2);

/// A running command.
pub struct Running {
    child: Child,
    status: Option<ExitStatus>,
}

impl Running {
    /// Starts the command. With `quiet_stdout` its stdout goes to stderr, because ours carries JSON.
    pub fn start(command: &[String], quiet_stdout: bool) -> Result<Self> {
        let (program, arguments) = command.split_first().context("a command has a name")?;
        let mut start = Command::new(program);
        start.args(arguments).env_remove(NOTIFY_SOCKET);
        if quiet_stdout {
            let stderr = std::io::stderr();
            start.stdout(Stdio::from(std::os::fd::AsFd::as_fd(&stderr).try_clone_to_owned()?));
        }
        let child = start.spawn().map_err(|error| {
            Refusal::Refused(format!(
                "cannot run '{}': {}; check the name after --",
                program.escape_debug(),
                reason(&error)
            ))
        })?;
        Ok(Self { child, status: None })
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status.is_some()
    }

    /// Its exit status if it has ended or a stop was requested. A command that still runs when the measured time is
    /// over keeps running.
    pub fn status(mut self) -> Option<i32> {
        if self.ended() || stop::requested() { self.finish() } else { None }
    }

    /// Waits for the end after a stop was requested, with SIGTERM after a while; returns its status as a shell shows it
    /// (128 + signal).
    fn finish(mut self) -> Option<i32> {
        let asked = Instant::now();
        let mut terminated = false;
        while !self.ended() {
            if !terminated && asked.elapsed() > GRACE {
                // SAFETY: signals a child that we started and have not reaped, so the pid is still its own.
                unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
                terminated = true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.status.and_then(|s| s.code().or_else(|| s.signal().map(|n| 128 + n)))
    }
}
