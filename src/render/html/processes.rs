//! I/O by process.

use super::escape;
use super::tables::{Cell, table, text};
use crate::render::processes;
use crate::rules::Summaries;

/// Processes that are shown of each device; the JSON has all.
const MOST: usize = 16;

/// Empty where bios were not counted by process.
pub fn processes(s: &Summaries<'_>) -> String {
    let mut out = String::new();
    for device in &s.latency.devices {
        let (rows, left) = processes::rows(device, MOST);
        if rows.is_empty() {
            continue;
        }
        let header = processes::HEADER.iter().zip(processes::IS_TEXT);
        let header: Vec<String> =
            header.map(|(name, is_text)| format!("{}{name}", if is_text { "<" } else { "" })).collect();
        let cells = |row: [String; 6]| {
            let cells = row.into_iter().zip(processes::IS_TEXT);
            cells.map(|(cell, is_text)| if is_text { text(&cell) } else { Cell::Number(cell) }).collect()
        };
        out.push_str(&format!("<h3>{}</h3>\n", escape(&device.name)));
        out.push_str(&table(&header, rows.into_iter().map(cells).collect()));
        if left > 0 {
            out.push_str(&format!("<p class=\"soft small\">{left} more processes.</p>\n"));
        }
    }
    if !out.is_empty() {
        out.push_str(
            "<p class=\"soft small\">Bios as processes submit them, before they are split and merged. A kernel thread \
             writes back what processes wrote, or serves a layer. The share is of the bytes.</p>\n",
        );
    }
    out
}
