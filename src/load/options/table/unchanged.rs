//! fio options accepted only at values that match the default behaviour, so that a job file that spells them out still
//! runs. Any other value is refused.

use super::{Section, Takes, Word};

const fn word(name: &'static str, values: &'static [&'static str]) -> Word {
    // The value is checked against `Takes::Words` before.
    Word::new(name, Takes::Words(values), Section::Unchanged, "No effect at this value", |_, _| Ok(()))
}

pub(super) const WORDS: &[Word] = &[
    word("openfiles", &["1"]),
    word("mem", &["malloc"]).alias(&["iomem"]),
    word("nice", &["0"]),
    word("unlink", &["0"]),
    word("create_on_open", &["0"]),
    word("pre_read", &["0"]),
    word("sync", &["0", "none"]),
    word("zonemode", &["none"]),
    word("zero_buffers", &["0"]),
    word("softrandommap", &["0"]),
    word("percentage_random", &["100"]),
    word("rw_sequencer", &["sequential"]),
    word("unified_rw_reporting", &["0", "none"]),
    word("disable_lat", &["0"]),
    word("disable_clat", &["0"]),
    word("disable_slat", &["0"]),
    word("disable_bw_measurement", &["0"]),
    word("clat_percentiles", &["1"]),
    word("lat_percentiles", &["0"]),
    word("slat_percentiles", &["0"]),
    word("exitall_on_error", &["0"]),
    word("verify_fatal", &["0"]),
    word("verify_dump", &["0"]),
    word("verify_only", &["0"]),
];
