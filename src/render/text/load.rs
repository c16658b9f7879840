//! `biopsy load` as text.
