//! The section on drives measured alone and all together.

use super::tables::{Cell, table, text};
use crate::load::DriveScaling;
use crate::rules::Summaries;
use crate::units::{bytes, in_percent, time};

/// Empty if no other drives were driven in parallel with the target.
pub fn drives(s: &Summaries<'_>) -> String {
    let Some(scaling) = s.scaling else { return String::new() };
    let rate = |rate: Option<f64>| {
        Cell::Number(rate.map_or("unknown".to_string(), |rate| format!("{}/s", bytes(rate))))
    };
    let share = |drive: &DriveScaling| drive.alone.zip(drive.together).filter(|(alone, _)| *alone > 0.0);
    let row = |drive: &DriveScaling| {
        vec![
            text(drive.device.as_deref().unwrap_or(&drive.target)),
            rate(drive.alone),
            rate(drive.together),
            Cell::Number(share(drive).map_or("-".to_string(), |(alone, all)| in_percent(all / alone))),
        ]
    };
    let header = ["<drive", "alone", "with the others", "of it"];
    format!(
        "<p>Each alone for {}, then all at once, before the traced run.</p>\n{}",
        time(scaling.each_ns),
        table(&header, scaling.drives.iter().map(row).collect())
    )
}
