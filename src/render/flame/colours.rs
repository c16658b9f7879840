//! The colours of flame graphs. Their hues are those of Okabe and Ito, lightened where black text would be unreadable,
//! and spaced in lightness so that they also differ in greyscale print.

use crate::analyze::profile::Area;

pub const FOLDED: &str = "#b6b6b6";

pub fn of(area: Area) -> &'static str {
    match area {
        Area::Label => "#ededed",
        Area::User => "#efe442",
        Area::Kernel => "#e69f00",
        Area::Block => "#94e1f1",
        Area::Driver => "#4aa6d1",
        Area::Interrupt => "#c77ea8",
        Area::Reclaim => "#2bbd5b",
        Area::Lock => "#e25739",
        Area::Stage => "#d6aefb",
    }
}

/// The colour of a change from -1 (gone) over 0 (the same) to 1 (new): blue and orange, which colour-blind readers can
/// distinguish.
pub fn of_change(change: f64) -> &'static str {
    let step = (change.clamp(-1.0, 1.0) * 4.0).round() as isize;
    CHANGES[(step + 4) as usize]
}

/// From completely gone to completely new.
pub const CHANGES: [&str; 9] =
    ["#4a90c9", "#77acd8", "#a3c9e6", "#cfe3f2", "#f4f4f4", "#fbdcc0", "#f7bd8b", "#ef9d58", "#e27c26"];

#[cfg(test)]
mod tests {
    use super::*;

    type Rgb = [f64; 3];

    fn linear(colour: &str) -> Rgb {
        let channel = |i: usize| {
            let c = f64::from(u8::from_str_radix(&colour[i..i + 2], 16).unwrap()) / 255.0;
            if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        };
        [channel(1), channel(3), channel(5)]
    }

    fn lab(rgb: Rgb) -> [f64; 3] {
        let [r, g, b] = rgb;
        let f = |t: f64| if t > 0.008856 { t.cbrt() } else { 7.787 * t + 16.0 / 116.0 };
        let x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047);
        let y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
        let z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883);
        [116.0 * y - 16.0, 500.0 * (x - y), 200.0 * (y - z)]
    }

    /// Rec. 601, of 255.
    fn luma(colour: &str) -> f64 {
        let channel = |i: usize| f64::from(u8::from_str_radix(&colour[i..i + 2], 16).unwrap());
        0.299 * channel(1) + 0.587 * channel(3) + 0.114 * channel(5)
    }

    /// Colour perception with a missing cone type (Machado, Oliveira, Fernandes 2009, severity 1), and normal vision.
    const EYES: [[[f64; 3]; 3]; 4] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
    ];

    fn seen(rgb: Rgb, eye: &[[f64; 3]; 3]) -> Rgb {
        eye.map(|row| row.iter().zip(rgb).map(|(m, c)| m * c).sum::<f64>().clamp(0.0, 1.0))
    }

    fn distance(a: [f64; 3], b: [f64; 3]) -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
    }

    fn areas() -> Vec<&'static str> {
        Area::ALL.iter().map(|area| of(*area)).chain([FOLDED]).collect()
    }

    #[test]
    fn black_text_is_read_on_every_colour() {
        for colour in areas().into_iter().chain(CHANGES) {
            let [r, g, b] = linear(colour);
            let contrast = (0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05) / 0.05;
            // WCAG requires 4.5 for readable text.
            assert!(contrast > 5.5, "{colour}: {contrast}");
        }
    }

    /// A colour distance of 2.3 is just noticeable, side by side.
    #[test]
    fn colour_blind_eyes_and_a_grey_print_tell_the_areas_apart() {
        let colours = areas();
        for (i, a) in colours.iter().enumerate() {
            for b in &colours[i + 1..] {
                let grey = (lab(linear(a))[0] - lab(linear(b))[0]).abs();
                assert!(grey > 2.5, "{a} and {b} in grey: {grey}");
                // Printers and converters also compute grey this way.
                let grey = (luma(a) - luma(b)).abs();
                assert!(grey > 8.5, "{a} and {b} in grey: {grey}");
                for eye in &EYES {
                    let distance = distance(lab(seen(linear(a), eye)), lab(seen(linear(b), eye)));
                    assert!(distance > 12.0, "{a} and {b}: {distance}");
                }
            }
        }
    }

    #[test]
    fn less_is_never_taken_for_more() {
        for less in &CHANGES[..4] {
            for more in &CHANGES[5..] {
                for eye in &EYES {
                    let distance = distance(lab(seen(linear(less), eye)), lab(seen(linear(more), eye)));
                    assert!(distance > 15.0, "{less} and {more}: {distance}");
                }
            }
        }
        assert_eq!(
            [-9.0, -1.0, -0.1, 0.0, 0.1, 1.0].map(of_change),
            [CHANGES[0], CHANGES[0], CHANGES[4], CHANGES[4], CHANGES[4], CHANGES[8]]
        );
        assert_eq!(of_change(f64::NAN), CHANGES[4]);
    }
}
