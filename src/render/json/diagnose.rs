//! `biopsy.diagnose/1`.
