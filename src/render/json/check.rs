//! `biopsy.check/1`.
