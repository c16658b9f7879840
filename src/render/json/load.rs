//! `biopsy.load/1`.
