//! Counts failed, retried and requeued requests, by device, class and cause.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::op::Op;
use crate::envelope::{Lost, View};
use crate::host::Host;
use crate::merge::{Row, SaturatingSum as _, Summary, merge, on_host};
use crate::names::names;
use crate::wire::Count;
use crate::wire::errors::{FAILED, RETRIED, Reading};
use crate::wire::records::{WireError, WireErrorRow};

names! {
    /// What happened to a request.
    #[derive(PartialOrd, Ord, Hash)]
    pub enum ErrorEvent {
        /// It ended with an error.
        Error = "error",
        /// It is retried, after the device answered or timed out.
        Retry = "retry",
        /// The driver returned it without having started it, for lack of room.
        Requeue = "requeue",
    }
}

names! {
    /// Why a request failed: the kernel's block status, in the words of its log.
    #[derive(PartialOrd, Ord)]
    pub enum Cause {
        NotSupported = "operation not supported",
        Timeout = "timeout",
        NoSpace = "critical space allocation",
        Transport = "recoverable transport",
        Target = "critical target",
        Reservation = "reservation conflict",
        Medium = "critical medium",
        Protection = "protection",
        Resource = "kernel resource",
        Io = "I/O",
        Again = "nonblocking retry",
        DeviceResource = "device resource",
    }
}

impl Cause {
    /// The cause of a `BLK_STS_*` number that is the same on all kernels (1 to 13), or of the errno used before; None
    /// for others.
    pub fn of(status: u32) -> Option<Self> {
        Some(match status.cast_signed() {
            1 | -95 => Self::NotSupported,
            2 | -110 => Self::Timeout,
            3 | -28 => Self::NoSpace,
            4 | -67 => Self::Transport,
            5 | -121 => Self::Target,
            6 | -52 => Self::Reservation,
            7 | -61 => Self::Medium,
            8 | -84 => Self::Protection,
            9 | -12 => Self::Resource,
            10 | -5 => Self::Io,
            12 | -11 => Self::Again,
            13 | -16 => Self::DeviceResource,
            _ => return None,
        })
    }
}

/// The same trouble of a device, in the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorRow {
    /// Its name; as MAJ:MIN where it came or went meanwhile, null where the request was of no disk.
    pub device: Option<String>,
    pub op: Op,
    pub event: ErrorEvent,
    /// Of an error whose status is a known one.
    pub cause: Option<Cause>,
    /// Of an error as the kernel has it: a block status, below zero an errno.
    pub status: Option<i32>,
    pub events: u64,
    pub bytes: u64,
}

/// The view of `biopsy errors`: errors first, then the most events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ErrorSummary {
    pub duration_ns: u64,
    /// I/Os of all disks, as the kernel counts them.
    pub ios: u64,
    pub rows: Vec<ErrorRow>,
    #[serde(skip)]
    pub lost: Lost,
}

merge!(ErrorRow { first: device op event cause status; add: events bytes; });

impl Row for ErrorRow {
    type Key = (Option<String>, Op, ErrorEvent, Option<i32>);

    fn key(&self) -> Self::Key {
        (self.device.clone(), self.op, self.event, self.status)
    }
}

// Loss cannot be recomputed from JSON: the envelope has it.
merge!(ErrorSummary { add: duration_ns ios lost; rows: rows; });

impl Summary for ErrorSummary {
    fn settle(&mut self) {
        sort(&mut self.rows);
    }

    fn name_host(&mut self, host: &str) {
        self.rows.iter_mut().filter_map(|row| row.device.as_mut()).for_each(|name| on_host(host, name));
    }

    fn window(&mut self) -> Option<&mut u64> {
        Some(&mut self.duration_ns)
    }
}

/// Errors first, then by number of events; the same order however they were merged.
fn sort(rows: &mut [ErrorRow]) {
    rows.sort_by_cached_key(|row| (row.event, std::cmp::Reverse(row.events), row.key()));
}

impl View for ErrorSummary {
    const SCHEMA: &'static str = "biopsy.errors/1";
    const HAS_DURATION: bool = true;
}

impl ErrorSummary {
    pub fn ios_per_second(&self) -> f64 {
        self.ios as f64 * 1e9 / self.duration_ns.max(1) as f64
    }

    /// Why the result is not to be trusted: `max_loss` in percent of the events.
    pub fn distrust(&self, max_loss: f64) -> Option<String> {
        let lost = self.lost.events;
        let all = self.rows.iter().map(|row| row.events).chain([lost]).saturating_sum();
        (lost as f64 * 100.0 > max_loss * all as f64).then(|| {
            format!(
                "{lost} of {all} events were missed, more than --max-loss {max_loss} % allows: run shorter"
            )
        })
    }
}

/// Errors of the named devices (all if none is named) between two readings.
pub fn summarize(host: &Host, named: &[String], from: &Reading, to: &Reading) -> ErrorSummary {
    let none = WireErrorRow::default();
    let grown = to.rows.iter().map(|(key, row)| (key, row.since(from.rows.get(key).unwrap_or(&none))));
    let mut rows: Vec<ErrorRow> =
        grown.filter(|(_, row)| row.events > 0).map(|(key, row)| error_row(host, key, &row)).collect();
    rows.retain(|row| named.is_empty() || row.device.as_ref().is_some_and(|device| named.contains(device)));
    sort(&mut rows);
    let (unkept, missed) = (to.unkept.saturating_sub(from.unkept), to.missed.saturating_sub(from.missed));
    let kinds = [("unkept", unkept), ("missed", missed)].map(|(kind, n)| (kind.to_string(), n));
    ErrorSummary {
        duration_ns: to.at_ns.saturating_sub(from.at_ns),
        ios: to.ios.saturating_sub(from.ios),
        rows,
        // A skipped run was almost always that of a request without an error.
        lost: Lost {
            events: unkept,
            probes: [("errors".to_string(), kinds.into())].into(),
            ..Lost::default()
        },
    }
}

fn error_row(host: &Host, key: &WireError, row: &WireErrorRow) -> ErrorRow {
    let (major, minor) = (key.device >> 20, key.device & 0xf_ffff);
    let name = || {
        let disk = host.devices.iter().find(|disk| (disk.major, disk.minor) == (major, minor));
        disk.map_or_else(|| format!("{major}:{minor}"), |disk| disk.name.clone())
    };
    let event = match key.event {
        FAILED => ErrorEvent::Error,
        RETRIED => ErrorEvent::Retry,
        _ => ErrorEvent::Requeue,
    };
    ErrorRow {
        device: (key.device != 0).then(name),
        op: Op::ALL.get(usize::from(key.op)).copied().unwrap_or(Op::Passthrough),
        event,
        cause: Cause::of(key.status).filter(|_| event == ErrorEvent::Error),
        status: (event == ErrorEvent::Error).then(|| key.status.cast_signed()),
        events: row.events,
        bytes: row.bytes,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::host::BlockDevice;
    use crate::merge::Merge;

    fn host() -> Host {
        let disk = BlockDevice { name: "sda".into(), major: 8, minor: 16, ..BlockDevice::default() };
        Host { devices: vec![disk], ..Host::default() }
    }

    fn reading(rows: &[(u32, u16, i32, u64)]) -> Reading {
        let row = |(device, event, status, events): &(u32, u16, i32, u64)| {
            let key = WireError { device: *device, event: *event, op: 1, status: status.cast_unsigned() };
            (key, WireErrorRow { events: *events, bytes: events * 4096 })
        };
        Reading { at_ns: 5, rows: rows.iter().map(row).collect(), ..Reading::default() }
    }

    #[test]
    fn rows_are_what_came_in_the_window_errors_first() {
        let sda = 8 << 20 | 16;
        let from = reading(&[(sda, FAILED, 3, 2), (sda, FAILED, 7, 1)]);
        let to =
            reading(&[(sda, FAILED, 3, 5), (sda, FAILED, 7, 1), (sda, RETRIED, 0, 90), (9 << 20, 2, 0, 4)]);
        let seen = summarize(&host(), &[], &from, &to);
        let short: Vec<_> =
            seen.rows.iter().map(|row| (row.device.as_deref(), row.event, row.events)).collect();
        assert_eq!(
            short,
            [
                (Some("sda"), ErrorEvent::Error, 3),
                (Some("sda"), ErrorEvent::Retry, 90),
                (Some("9:0"), ErrorEvent::Requeue, 4)
            ]
        );
        let first = &seen.rows[0];
        assert_eq!(
            (first.op, first.cause, first.status, first.bytes),
            (Op::Write, Some(Cause::NoSpace), Some(3), 3 * 4096)
        );
        assert_eq!((seen.rows[1].cause, seen.rows[1].status), (None, None));
        assert_eq!(summarize(&host(), &["sda".to_string()], &from, &to).rows.len(), 2);
        let text = serde_json::to_value(&seen).unwrap();
        let back: ErrorSummary = serde_json::from_value(text).unwrap();
        assert_eq!(back, ErrorSummary { lost: Lost::default(), ..seen });
    }

    #[test]
    fn intervals_are_merged_and_machines_named() {
        let sda = 8 << 20 | 16;
        let [a, b, c] = [1, 3, 9].map(|n| reading(&[(sda, FAILED, 3, n), (sda, RETRIED, 0, 2 * n)]));
        let mut merged = summarize(&host(), &[], &a, &b);
        merged.merge_with(&summarize(&host(), &[], &b, &c));
        merged.settle();
        assert_eq!(merged, summarize(&host(), &[], &a, &c));
        merged.name_host("web1");
        assert_eq!(merged.rows[0].device.as_deref(), Some("web1:sda"));
    }

    #[test]
    fn merged_rows_stand_in_the_order_of_their_window() {
        let sda = 8 << 20 | 16;
        let [a, b, c] =
            [[0, 0], [0, 4], [4, 4]].map(|n| reading(&[(sda, FAILED, 3, n[0]), (sda, FAILED, 7, n[1])]));
        let mut merged = summarize(&host(), &[], &a, &b);
        merged.merge_with(&summarize(&host(), &[], &b, &c));
        merged.settle();
        assert_eq!(merged, summarize(&host(), &[], &a, &c));
    }

    #[test]
    fn old_kernels_tell_errnos_and_new_ones_statuses() {
        for (status, errno) in
            [(1, libc::EOPNOTSUPP), (2, libc::ETIMEDOUT), (3, libc::ENOSPC), (7, libc::ENODATA)]
        {
            assert!(Cause::of(status).is_some());
            assert_eq!(Cause::of(status), Cause::of((-errno).cast_unsigned()), "{status}");
        }
        assert_eq!((Cause::of(10), Cause::of(17)), (Some(Cause::Io), None));
        assert_eq!(Cause::of((-libc::EIO).cast_unsigned()), Some(Cause::Io));
    }

    #[test]
    fn events_without_a_row_make_it_untrustworthy() {
        let mut to = reading(&[(8 << 20, FAILED, 10, 99)]);
        to.unkept = 1;
        let seen = summarize(&host(), &[], &Reading { rows: BTreeMap::new(), ..Reading::default() }, &to);
        assert_eq!(seen.distrust(1.0), None);
        assert!(seen.distrust(0.9).unwrap().starts_with("1 of 100 events"));
        assert_eq!(ErrorSummary::default().distrust(0.0), None);
    }
}
