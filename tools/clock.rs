//! The wall clock, for people and log files; measurements use the monotonic one.

/// The time now as RFC 3339, UTC, milliseconds.
pub fn now_rfc3339() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}
