//! Profiles of any bytes, as `flame -i` reads them: those of a recording, files of others, and folded text.

#![no_main]

use std::sync::Arc;

use biopsy::analyze::profile::{Profile, Unit, folded};
use biopsy::render::flame::{self, Caption, Options};
use biopsy::render::pprof::reading::{PprofFile, is_profile, unpacked};
use biopsy::render::pprof::{About, on_cpu, render};
use libfuzzer_sys::fuzz_target;

/// Names for every second frame that has none.
fn names(reading: &PprofFile<'_>) -> Vec<Option<Arc<[String]>>> {
    let name = |at: usize| (at % 2 == 0).then(|| Arc::from(vec![format!("outer{at}"), format!("inner{at}")]));
    (0..reading.nameless().len()).map(name).collect()
}

fn draw(profile: &Profile) {
    let caption = Caption::new("stacks", "samples".to_string());
    let _picture = flame::inline(profile, &caption, &Options::default());
}

fn read(message: &[u8], is_ours: bool) {
    let Ok(reading) = PprofFile::new(message) else { return };
    let names = names(&reading);
    for unit in [None, Some(Unit::Samples), Some(Unit::Nanoseconds)] {
        let Ok(values) = reading.values(unit) else { continue };
        let Ok(profile) = reading.profile(&values, &names) else { continue };
        reading.unnamed(&names);
        if let Some(counts) = &values.counts {
            let _counts = reading.profile(counts, &names);
        }
        let mut both = profile.clone();
        // They are added up only as long as their sum is a number.
        if both.total().checked_mul(2).is_some() {
            both.merge(&profile);
        }
        draw(&both);
        if is_ours && !both.is_empty() {
            let again = unpacked(render(&on_cpu(&both, 1), &About::default())).expect("it was packed here");
            assert!(PprofFile::new(&again).is_ok(), "what was written cannot be read");
        }
    }
}

fuzz_target!(|data: &[u8]| {
    // Most mutations of what gzip packed end at its sum: those are of what is in it.
    read(data, true);
    if let Ok(bytes) = unpacked(data.to_vec())
        && bytes != data
    {
        read(&bytes, true);
    }
    if !is_profile(data)
        && let Ok(text) = std::str::from_utf8(data)
        && let Ok(profile) = folded::parse(text, Unit::Samples)
    {
        draw(&profile);
    }
});
