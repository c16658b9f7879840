//! A progress line on stderr during long work. It is shown only on a terminal.

use std::cell::RefCell;

use biopsy::load::{Phase, Progress};
use biopsy::render::text;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// The progress of a load: files that are filled first, then the run.
#[derive(Debug, Default)]
pub struct ProgressLine {
    /// Printed before the current phase.
    part: RefCell<String>,
    bar: RefCell<Option<(Phase, ProgressBar)>>,
}

impl ProgressLine {
    /// Names the part that begins, e.g. `point 2 of 9`; empty if there is only one.
    pub fn begin(&self, part: &str) {
        self.clear();
        *self.part.borrow_mut() = if part.is_empty() { String::new() } else { format!("{part}: ") };
    }

    /// Shows the progress of the load.
    pub fn show(&self, progress: Progress) {
        if !output::progress() {
            return;
        }
        let mut slot = self.bar.borrow_mut();
        if slot.as_ref().is_none_or(|(phase, _)| *phase != progress.phase) {
            if let Some((_, done)) = slot.take() {
                done.finish_and_clear();
            }
            // The template is constant and valid; otherwise a plain bar would do.
            let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent:>3} % {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            let what = match progress.phase {
                Phase::Fill => "filling the file",
                // It may read, write, trim, or verify.
                Phase::Run => "load",
            };
            let prefix = format!("{}{what}", self.part.borrow());
            let bar = ProgressBar::new(progress.total).with_style(style).with_prefix(prefix);
            *slot = Some((progress.phase, bar));
        }
        if let Some((_, bar)) = slot.as_ref() {
            bar.set_position(progress.done);
            if let Some(rates) = progress.rates {
                let per_call = rates.ios_per_submit.map_or("-".to_string(), |ios| format!("{ios:.1}"));
                let left = match progress.total {
                    // A load limited by bytes has no known end time.
                    u64::MAX => String::new(),
                    total => format!("eta {} s", (total - progress.done).div_ceil(1_000_000_000)),
                };
                let parts = [
                    format!("{:>6} IOPS", text::short(rates.iops)),
                    format!("{}/s", text::bytes(rates.bytes_per_second)),
                    format!("{per_call} IOS/call"),
                    format!("CPU {:.0} %", rates.cpu_percent),
                    left,
                ];
                bar.set_message(message(&parts, output::stderr_width()));
            }
        }
    }

    /// Removes the line.
    pub fn clear(&self) {
        if let Some((_, bar)) = self.bar.borrow_mut().take() {
            bar.finish_and_clear();
        }
    }
}

/// Minimum columns of the bar and the text before it.
const BAR: usize = 34;

/// As many parts as leave room for the bar: a longer line would wrap and be drawn again and again.
fn message(parts: &[String], width: Option<usize>) -> String {
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(BAR));
    let mut out = String::new();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        let gap = if out.is_empty() { "" } else { "  " };
        if out.chars().count() + gap.len() + part.chars().count() > room {
            break;
        }
        out.push_str(gap);
        out.push_str(part);
    }
    out
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::message;

    #[test]
    fn the_message_leaves_room_for_the_bar() {
        let parts = ["1.15M IOPS", "4.38 GiB/s", "31.0 IOS/call", ""].map(String::from);
        assert_eq!(message(&parts, None), "1.15M IOPS  4.38 GiB/s  31.0 IOS/call");
        assert_eq!(message(&parts, Some(60)), "1.15M IOPS  4.38 GiB/s");
        assert_eq!(message(&parts, Some(20)), "");
    }
}
