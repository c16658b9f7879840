//! `biopsy devices` as text.
