//! A load at other depths.

use super::tables::{Cell, table, text};
use crate::render::experiment;
use crate::rules::Summaries;

/// Empty where none was tried.
pub fn depths(s: &Summaries<'_>) -> String {
    let Some(curve) = s.experiment else { return String::new() };
    let [load, rest @ ..] = experiment::HEADER;
    let first = format!("<{load}");
    let header: Vec<&str> = std::iter::once(first.as_str()).chain(rest).collect();
    let row = |[load, numbers @ ..]: [String; 4]| {
        std::iter::once(text(&load)).chain(numbers.map(Cell::Number)).collect::<Vec<_>>()
    };
    format!(
        "<p>{}, after the run that was traced. An interval holds the ratio in 95 of 100 experiments.</p>\n{}",
        super::escape(&experiment::extent(curve)),
        table(&header, experiment::rows(curve).into_iter().map(row).collect())
    )
}
