//! `biopsy latency` as text.
