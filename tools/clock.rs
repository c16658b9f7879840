//! The wall clock, for the start of a result.

/// Now, RFC 3339, UTC, milliseconds.
pub fn now_rfc3339() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}
