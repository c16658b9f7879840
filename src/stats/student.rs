//! Student's t distribution with both tails, as used by intervals and tests.

use super::beta::incomplete;

/// The probability of both tails beyond `t`.
pub fn tails(t: f64, degrees: f64) -> f64 {
    incomplete(degrees / 2.0, 0.5, degrees / (degrees + t * t))
}

/// The value exceeded in either direction with total probability `p`: 2.571 for 0.05 and 5 degrees of freedom. Infinite
/// where `p` is 0.
pub fn critical(p: f64, degrees: f64) -> f64 {
    if p <= 0.0 || degrees <= 0.0 {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while tails(high, degrees) > p && high < 1e150 {
        low = high;
        high *= 2.0;
    }
    while high - low > 1e-13 * high {
        let half = f64::midpoint(low, high);
        // No value lies between them any more.
        if half <= low || half >= high {
            break;
        }
        if tails(half, degrees) > p { low = half } else { high = half }
    }
    high
}
