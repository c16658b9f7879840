//! Prints a live view or a recording: as JSON, as whole results, or with one line per interval and row.

use std::collections::BTreeSet;

use anyhow::Result;
use biopsy::envelope::{Envelope, View};
use biopsy::refusal::Refusal;
use biopsy::render::json;
use biopsy::render::text::footer;
use biopsy::render::text::interval_lines::{IntervalLines, IntervalStyle, Intervals};
use biopsy::session::wall_clock;
use biopsy::session::watch::IntervalView;

use crate::cli::{Input, IntervalArgs, LineArgs, Output};
use crate::output;

/// Times of intervals shorter than this have milliseconds.
const SECOND_NS: u64 = 950_000_000;

/// Prints the results of a view.
pub struct Screen {
    is_json: bool,
    is_long: bool,
    is_utc: bool,
    has_milliseconds: bool,
    lines: IntervalLines,
    /// The sum of all intervals shown as lines.
    whole: Option<Envelope>,
    /// The devices with rows.
    devices: BTreeSet<String>,
    status: Option<i32>,
    note: Option<String>,
}

impl Screen {
    /// # Errors
    /// If an option for lines is given, but the output has no lines.
    pub fn of(
        output: &Output,
        lines: &LineArgs,
        all: bool,
        interval: &IntervalArgs,
        input: &Input,
    ) -> Result<Self> {
        // A saved result may contain intervals.
        let has_intervals = interval.interval.is_some() || input.input.len() == 1 && !input.merge;
        // --utc is also the zone of --from and --to.
        let options = [("--sort", lines.sort.is_some()), ("--utc", lines.utc && !input.within.is_part())];
        let given = options.iter().find(|(_, is_given)| *is_given);
        if let Some((option, _)) = given.filter(|_| output.json || lines.long || !has_intervals) {
            let why = format!(
                "{option} applies to interval lines: give an INTERVAL (1: every second), without --long \
                 and --json"
            );
            return Err(Refusal::Usage(why).into());
        }
        let style = IntervalStyle { width: output::width(output), sort: lines.sort.clone(), all };
        Ok(Self {
            is_json: output.json,
            is_long: lines.long,
            is_utc: lines.utc,
            has_milliseconds: false,
            lines: IntervalLines::new(style),
            whole: None,
            devices: BTreeSet::new(),
            status: None,
            note: None,
        })
    }

    /// Formats a result. `text` formats the whole result.
    pub fn show<V: View + Intervals>(
        &mut self,
        shown: &IntervalView<'_, V>,
        text: impl FnOnce(&IntervalView<'_, V>) -> String,
    ) -> Vec<u8> {
        if self.is_json {
            return json::view(shown.envelope, shown.summary, shown.status);
        }
        if self.is_long || !shown.is_interval {
            output::note_programs(shown.envelope);
            return text(shown).into_bytes();
        }
        self.line(shown).into_bytes()
    }

    fn line<V: View + Intervals>(&mut self, shown: &IntervalView<'_, V>) -> String {
        let envelope = shown.envelope;
        match &mut self.whole {
            Some(whole) => whole.follow(envelope),
            None => {
                self.has_milliseconds = envelope.duration_ns < SECOND_NS;
                self.whole = Some(envelope.clone());
            }
        }
        self.status = shown.status.or(self.status);
        self.note = shown.summary.note().or(self.note.take());
        self.devices.extend(shown.summary.devices().into_iter().map(String::from));
        let utc = self.is_utc;
        let time = wall_clock::time_of_day(&envelope.start, envelope.duration_ns, utc, self.has_milliseconds);
        let time = time.unwrap_or_else(|| "-".to_string());
        for doubt in shown.summary.doubts() {
            output::warn(&format!("{time}: {doubt}"));
        }
        self.lines.add(&time, shown.summary)
    }

    /// After the last line, prints on stderr what was lost, the cost, and what the lines do not show.
    pub fn finish(&self, result: &Result<()>) {
        let Some(whole) = &self.whole else { return };
        // The reader of stdout has closed the pipe.
        if result.as_ref().is_err_and(output::is_closed_pipe) {
            return;
        }
        let devices: Vec<&str> = self.devices.iter().map(String::as_str).collect();
        output::note(self.note.as_deref().unwrap_or_default());
        output::note(&footer::lost(whole));
        output::note(&footer::cost(whole));
        output::note_programs(whole);
        if output::is_verbose() {
            output::note(&footer::missing(&whole.missing, &devices));
        } else {
            output::note(&footer::missing_briefly(&whole.missing, &devices));
        }
        if let Some(status) = self.status {
            output::note(&format!("command ended with status {status}\n"));
        }
    }
}
