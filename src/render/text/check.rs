//! `biopsy check` as text.
