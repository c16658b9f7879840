//! Provides the wall clock and the kernel's version, for the envelope of a result.

use std::ffi::CStr;

use crate::envelope::Envelope;
use crate::host::activity::Clocks;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp, Zoned};

/// The current time, RFC 3339 in UTC with milliseconds.
pub fn now_rfc3339() -> String {
    format!("{:.3}", Timestamp::now())
}

/// Parses an envelope's time to nanoseconds since 1970.
pub fn unix_ns(text: &str) -> Option<i64> {
    i64::try_from(text.parse::<Timestamp>().ok()?.as_nanosecond()).ok()
}

/// Current nanoseconds since 1970.
pub fn unix_ns_now() -> u64 {
    u64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(0)
}

/// Formats nanoseconds since 1970; None for a time out of range.
pub fn rfc3339(unix_ns: i64) -> Option<String> {
    Timestamp::from_nanosecond(unix_ns.into()).ok().map(|time| format!("{time:.3}"))
}

/// Current milliseconds since 1970, and the local time in the format of ctime.
pub fn local_time() -> (u64, String) {
    let now = local(Timestamp::now());
    let unix_ms = u64::try_from(now.timestamp().as_millisecond()).unwrap_or(0);
    (unix_ms, now.strftime("%a %b %e %H:%M:%S %Y").to_string())
}

/// Current local time for a file name: `20261125-221207`.
pub fn stamp() -> String {
    local(Timestamp::now()).strftime("%Y%m%d-%H%M%S").to_string()
}

/// Time of day at `after_ns` after an envelope's time, in local time or UTC. None if `start` is not a time.
pub fn time_of_day(start: &str, after_ns: u64, utc: bool, milliseconds: bool) -> Option<String> {
    let after = SignedDuration::from_nanos(i64::try_from(after_ns).ok()?);
    let time = start.parse::<Timestamp>().ok()?.checked_add(after).ok()?;
    let time = if utc { time.to_zoned(TimeZone::UTC) } else { local(time) };
    let format = if milliseconds { "%H:%M:%S.%3f" } else { "%H:%M:%S" };
    Some(time.strftime(format).to_string())
}

/// Local time; UTC if the C library does not know it.
fn local(time: Timestamp) -> Zoned {
    let offset = Offset::from_seconds(crate::clock::local_offset(time.as_second()));
    time.to_zoned(TimeZone::fixed(offset.unwrap_or(Offset::UTC)))
}

/// Both clocks of a reading.
pub fn both() -> Clocks {
    Clocks { at_ns: crate::clock::now_ns(), boot_ns: crate::clock::boot_ns() }
}

/// `uname -r`.
pub fn kernel() -> String {
    // SAFETY: zeroed is a valid utsname, the call only writes to it, and its strings end with NUL.
    unsafe {
        let mut name: libc::utsname = std::mem::zeroed();
        libc::uname(&mut name);
        CStr::from_ptr(name.release.as_ptr()).to_string_lossy().into_owned()
    }
}

/// An envelope that starts now; the caller adds the duration and the results of its probes.
pub fn envelope() -> Envelope {
    Envelope {
        version: env!("CARGO_PKG_VERSION").to_string(),
        kernel: kernel(),
        start: now_rfc3339(),
        ..Envelope::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_the_time_at_its_end() {
        let at = |start: &str, milliseconds| time_of_day(start, 1_500_000_000, true, milliseconds);
        assert_eq!(at("2026-11-28T23:59:59.250Z", true).as_deref(), Some("00:00:00.750"));
        assert_eq!(at("2026-11-28T23:59:58.250Z", false).as_deref(), Some("23:59:59"));
        assert_eq!(at("soon", false), None);
        assert_eq!(time_of_day("9999-12-30T22:00:00Z", u64::MAX, true, false), None);
    }

    #[test]
    fn the_start_has_milliseconds_and_is_utc() {
        let now = now_rfc3339();
        assert!(now.len() == 24 && now.ends_with('Z') && now.as_bytes()[19] == b'.', "{now}");
        assert_eq!(rfc3339(unix_ns(&now).unwrap()), Some(now));
    }
}
