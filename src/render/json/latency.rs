//! `biopsy.latency/1`.
