//! The manifest of a recording: what was recorded, when, and how it ended.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::envelope::{Lost, View};

/// Describes a recording. It is written at the start and again at the end, so that a recorder that was killed leaves
/// neither `ended` nor its losses.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Manifest {
    /// UUIDv7.
    pub run_id: String,
    /// Name of the machine.
    pub host: Option<String>,
    /// `--label`.
    pub labels: BTreeMap<String, String>,
    /// The arguments of biopsy.
    pub arguments: Vec<String>,
    /// Length of an interval.
    pub interval_ns: u64,
    /// By name.
    pub views: BTreeMap<String, RecordedView>,
    pub clocks: Span,
    pub ended: Option<EndReason>,
    /// The condition or finding for which the flight recorder wrote it.
    pub trigger: Option<String>,
    /// CPU time of the recorder process since its start, in percent of one CPU. The CPU time of its BPF programs is in
    /// the `cost` of each line.
    pub recorder_cpu_percent: Option<f64>,
    /// The disk that the recording was written to, if it was traced: its figures include the recorder's writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorder_device: Option<String>,
    /// Bytes that the recorder wrote to its disk since its start, from `/proc/PID/io`: with write-back by kernel
    /// threads, without writes that the file system adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorder_written_bytes: Option<u64>,
}

impl View for Manifest {
    const SCHEMA: &'static str = "biopsy.recording/1";
}

/// A recorded view, complete at the end of the recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RecordedView {
    pub intervals: u64,
    /// On disk.
    pub bytes: u64,
    /// In all intervals together.
    pub lost: Lost,
    /// Why its figures are not reliable; null if they are.
    pub doubt: Option<String>,
    /// Why it ended before the other views; null if it did not.
    pub error: Option<String>,
}

impl RecordedView {
    /// Adds an interval of this size.
    pub fn add(&mut self, bytes: usize, lost: &Lost) {
        self.intervals += 1;
        self.bytes += bytes as u64;
        self.lost.add(lost);
    }
}

/// The clocks at the start and the end: they align recordings of several machines and the kernel's log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Span {
    pub start: Clocks,
    pub end: Option<Clocks>,
}

/// Three clocks, read together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Clocks {
    /// Since 1970, UTC.
    pub realtime_ns: u64,
    /// CLOCK_MONOTONIC: stands still while the machine is suspended.
    pub monotonic_ns: u64,
    /// CLOCK_BOOTTIME.
    pub boottime_ns: u64,
}

impl Clocks {
    /// The clocks `ns` earlier, assuming that the machine was not suspended in between.
    pub fn earlier(self, ns: u64) -> Self {
        Self {
            realtime_ns: self.realtime_ns.saturating_sub(ns),
            monotonic_ns: self.monotonic_ns.saturating_sub(ns),
            boottime_ns: self.boottime_ns.saturating_sub(ns),
        }
    }
}

/// Why a recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    /// The time of `--for` passed.
    Time,
    /// The measured command has ended.
    Command,
    /// Ctrl-C, or another signal.
    Signal,
    /// `--max-size` is reached.
    Size,
    /// The devices that were traced vanished.
    Gone,
    /// A view failed.
    Error,
    /// The flight recorder wrote the intervals in memory, and continued.
    Dump,
}

/// A UUIDv7 (RFC 9562): sorts by time.
pub fn run_id(unix_ms: u64, random: [u8; 10]) -> String {
    let [a, b, c, d, rest @ ..] = random;
    let [e, f, g, h, i, j] = rest;
    let [.., m0, m1, m2, m3, m4, m5] = unix_ms.to_be_bytes();
    format!(
        "{m0:02x}{m1:02x}{m2:02x}{m3:02x}-{m4:02x}{m5:02x}-7{:01x}{b:02x}-{:02x}{d:02x}-{e:02x}{f:02x}{g:02x}{h:02x}{i:02x}{j:02x}",
        a & 0xf,
        c & 0x3f | 0x80
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in RFC 9562, A.6.
    #[test]
    fn a_run_id_is_a_uuid_of_version_7() {
        let random = [0xfc, 0xc3, 0x18, 0xc4, 0xdc, 0x0c, 0x0c, 0x07, 0x39, 0x8f];
        assert_eq!(run_id(0x017F_22E2_79B0, random), "017f22e2-79b0-7cc3-98c4-dc0c0c07398f");
    }
}
