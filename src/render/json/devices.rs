//! `biopsy.devices/1`.
