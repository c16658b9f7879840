//! The normal distribution.

use std::f64::consts::{PI, SQRT_2};

/// The probability above `z`.
pub fn above(z: f64) -> f64 {
    match z / SQRT_2 {
        x if x < 0.0 => 1.0 - above(-z),
        x if x < 2.0 => 0.5 - 0.5 * error(x),
        x => 0.5 * complement(x),
    }
}

/// The value exceeded with probability `p`, for 0 < p < 1.
pub fn upper(p: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    while high - low > 1e-14 {
        let half = f64::midpoint(low, high);
        if half <= low || half >= high {
            break;
        }
        if above(half) > p { low = half } else { high = half }
    }
    high
}

/// The error function of a small value, by its series.
fn error(x: f64) -> f64 {
    let mut term = x;
    let mut sum = x;
    let mut n = 0.0;
    while term.abs() > 1e-18 * sum.abs() {
        n += 1.0;
        term *= -x * x / n;
        sum += term / (2.0 * n + 1.0);
    }
    2.0 / PI.sqrt() * sum
}

/// The complementary error function of a larger value, by its continued fraction.
fn complement(x: f64) -> f64 {
    let fraction = (1..120).rev().fold(x, |rest, n| x + f64::from(n) / 2.0 / rest);
    (-x * x).exp() / PI.sqrt() / fraction
}
