//! Lines of any bytes as results of each view: read, merged, shown, and read again.

#![no_main]

use std::fmt::Debug;
use std::time::Duration;

use biopsy::envelope::{Envelope, View};
use biopsy::merge::Summary;
use biopsy::recording::{Moment, Span};
use biopsy_fuzz::{mutate, views};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

struct Lines<'a>(&'a [u8]);

impl views::Each for Lines<'_> {
    fn view<V: View + Summary + Clone + PartialEq + Debug>(
        &mut self,
        _: &str,
        show: fn(&Envelope, &V, Option<i32>) -> String,
    ) {
        views::read(self.0, Span::default(), show);
        // Starts are read for it.
        let second = Duration::from_secs(1);
        let span = Span { from: Some(Moment::After(second)), to: Some(Moment::After(10 * second)) };
        views::read(self.0, span, show);
    }
}

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    match seed % 3 {
        0 => fuzzer_mutate(data, size, max_size),
        _ => mutate::lines(&mut data[..max_size], size.min(max_size), seed),
    }
});

fuzz_target!(|data: &[u8]| views::each(&mut Lines(data)));
