//! Runs rounds of a command: measures its duration, and the number that it prints.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::comparison::{Arm, Round};
use super::load::apply;
use super::metric::MetricKind;
use super::printed::PrintedMetric;
use super::rounds::{Driver, Observer, observed};
use crate::refusal::{Refusal, reason};
use crate::settings::Keeper;

/// Runs a command in its arms.
pub struct CommandDriver<'a> {
    pub command: &'a [String],
    /// Run by `sh -c` before each round, and not counted.
    pub prepare: Option<&'a str>,
    /// A number in its output is a metric.
    pub printed: Option<&'a PrintedMetric>,
    pub arms: Vec<Arm>,
    pub keeper: Option<&'a mut Keeper>,
    pub observers: Vec<&'a mut dyn Observer>,
    pub stop: &'a AtomicBool,
}

/// Polling interval for the command's end: the maximum error of its duration.
const POLL: Duration = Duration::from_micros(200);

/// More output than this is not kept, and so not parsed as JSON.
const MOST_BYTES: u64 = 64 << 20;

/// How long its output may stay open after its end, held by a process that it started.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs the command to its end; sends it SIGTERM when a stop is requested. Returns its output if `is_read`.
fn run(mut command: Command, name: &str, is_read: bool, stop: &AtomicBool) -> Result<String> {
    // Its output would mix with the lines of the comparison.
    let stdout = if is_read { Stdio::piped() } else { Stdio::null() };
    let command = command.stdin(Stdio::null()).stdout(stdout);
    let mut child = command.spawn().map_err(|error| {
        Refusal::Refused(format!("cannot run '{}': {}; check the name", name.escape_debug(), reason(&error)))
    })?;
    let reader = child.stdout.take().map(|mut pipe| {
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            let read = pipe.by_ref().take(MOST_BYTES).read_to_end(&mut kept);
            // Drains the rest, so that the command does not block on the pipe.
            read.and_then(|_| io::copy(&mut pipe, &mut io::sink())).map(|_| kept)
        })
    });
    let mut is_told = false;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if stop.load(Ordering::Relaxed) && !std::mem::replace(&mut is_told, true) {
            // SAFETY: the child was started here and not waited for, so its pid is its own.
            unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
        }
        std::thread::sleep(POLL);
    };
    let end = Instant::now() + PATIENCE;
    while reader.as_ref().is_some_and(|reader| !reader.is_finished()) {
        if Instant::now() > end {
            return Err(Refusal::Refused(format!(
                "'{}' exited, but a process that it started keeps its output open: redirect that, as in \
                 `>/dev/null &`",
                name.escape_debug()
            ))
            .into());
        }
        std::thread::sleep(POLL);
    }
    let printed = reader.and_then(|reader| reader.join().ok()).transpose()?.unwrap_or_default();
    match status.success() {
        true => Ok(String::from_utf8_lossy(&printed).into_owned()),
        false => Err(Refusal::Untrusted(format!(
            "'{}' failed ({status}): the time of a failed round means nothing; fix the command",
            name.escape_debug()
        ))
        .into()),
    }
}

impl Driver for CommandDriver<'_> {
    fn apply(&mut self, arm: usize) -> Result<()> {
        apply(self.keeper.as_deref_mut(), &self.arms[arm])
    }

    fn warm_up(&mut self, _arm: usize, number: u32) -> Result<Option<f64>> {
        if number == 0 {
            // The first run loads the program and its files.
            self.prepare()?;
            self.counted()?;
        }
        Ok(None)
    }

    fn round(&mut self, arm: usize, _number: u32) -> Result<Round> {
        self.prepare()?;
        let mut observers = std::mem::take(&mut self.observers);
        let round = observed(&mut observers, arm, || self.counted());
        self.observers = observers;
        round
    }
}

impl CommandDriver<'_> {
    fn prepare(&self) -> Result<()> {
        let Some(prepare) = self.prepare else { return Ok(()) };
        let mut shell = Command::new("sh");
        shell.args(["-c", prepare]);
        run(shell, prepare, false, self.stop).map(|_| ())
    }

    fn counted(&self) -> Result<Round> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Refusal::Usage("no command is given: write it after --".to_string()).into());
        };
        let mut command = Command::new(program);
        command.args(arguments);
        let begin = Instant::now();
        let text = run(command, program, self.printed.is_some(), self.stop)?;
        let mut values =
            BTreeMap::from([(MetricKind::Elapsed.name().to_string(), begin.elapsed().as_nanos() as f64)]);
        if let Some(printed) = self.printed.filter(|_| !self.stop.load(Ordering::Relaxed)) {
            let kind = if printed.less_is_better { MetricKind::LessValue } else { MetricKind::Value };
            let number = printed.number(&text).map_err(|why| {
                Refusal::Refused(format!("'{}' has no value: {why}", program.escape_debug()))
            })?;
            values.insert(kind.name().to_string(), number);
        }
        Ok(Round { values, ..Round::default() })
    }
}
