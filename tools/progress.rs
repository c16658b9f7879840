//! One line on stderr while something long goes on; nothing where stderr is no terminal.

use std::cell::RefCell;

use biopsy::load::{Phase, Progress};
use biopsy::render::text;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// The progress of a load: the fill, then the run.
#[derive(Debug, Default)]
pub struct Line {
    bar: RefCell<Option<(Phase, ProgressBar)>>,
}

impl Line {
    /// Shows how far the load is.
    pub fn show(&self, progress: Progress) {
        if !output::progress() {
            return;
        }
        let mut slot = self.bar.borrow_mut();
        if slot.as_ref().is_none_or(|(phase, _)| *phase != progress.phase) {
            if let Some((_, done)) = slot.take() {
                done.finish_and_clear();
            }
            // The template is a constant that parses; a plain bar is no loss if it should not.
            let style = ProgressStyle::with_template("{prefix} {wide_bar} {percent:>3} % {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::new(progress.total).with_style(style).with_prefix(match progress.phase {
                Phase::Fill => "filling the scratch file",
                Phase::Run => "reading",
            });
            *slot = Some((progress.phase, bar));
        }
        if let Some((_, bar)) = slot.as_ref() {
            bar.set_position(progress.done);
            if let Some(iops) = progress.iops {
                bar.set_message(format!("{:>6} IOPS", text::short(iops)));
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

impl Drop for Line {
    fn drop(&mut self) {
        self.clear();
    }
}
