//! The sections on I/O by process and by file.

use super::escape;
use super::tables::{Cell, open_table, text};
use crate::analyze::latency::DeviceLatency;
use crate::render::{files, processes};
use crate::rules::Summaries;

/// Rows shown per device; the JSON has all.
const MOST: usize = 16;

/// Empty if bios were not counted by process.
pub fn processes(s: &Summaries<'_>) -> String {
    let rows = |device: &DeviceLatency| processes::rows(device, MOST);
    let remark = "Bios as processes submit them, before they are split and merged. A kernel thread writes back what \
                  processes wrote, or serves a layer. The share is of the bytes.";
    by_device(s, processes::HEADER.iter().zip(processes::IS_TEXT), rows, "processes", remark)
}

/// Empty if bios were not counted by file.
pub fn files(s: &Summaries<'_>) -> String {
    let rows = |device: &DeviceLatency| files::rows(device, MOST);
    let remark = "The measured bios by file. After the first 256 of a process, one in 16 is sampled and \
        counts as 16 (~). The share is of the bytes.";
    by_device(s, files::HEADER.iter().zip(files::IS_TEXT), rows, "files", remark)
}

/// A table for each device with rows.
fn by_device<'a, const N: usize>(
    s: &Summaries<'_>,
    header: impl Iterator<Item = (&'a &'a str, bool)> + Clone,
    rows: impl Fn(&DeviceLatency) -> (Vec<[String; N]>, usize),
    what: &str,
    remark: &str,
) -> String {
    let mut out = String::new();
    for device in &s.latency.devices {
        let (rows, left) = rows(device);
        if rows.is_empty() {
            continue;
        }
        let names: Vec<String> = header
            .clone()
            .map(|(name, is_text)| format!("{}{name}", if is_text { "<" } else { "" }))
            .collect();
        let cells = |row: [String; N]| {
            let cells = row.into_iter().zip(header.clone());
            cells.map(|(cell, (_, is_text))| if is_text { text(&cell) } else { Cell::Number(cell) }).collect()
        };
        out.push_str(&format!("<h3>{}</h3>\n", escape(&device.name)));
        out.push_str(&open_table(&names, rows.into_iter().map(cells).collect()));
        if left > 0 {
            out.push_str(&format!("<p class=\"soft small\">{left} more {what}.</p>\n"));
        }
    }
    if !out.is_empty() {
        out.push_str(&format!("<p class=\"soft small\">{remark}</p>\n"));
    }
    out
}
