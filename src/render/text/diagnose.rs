//! `biopsy diagnose` as text.
