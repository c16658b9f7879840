//! How sure a median is.

/// Of sorted values, the order statistics that hold the median with 95 % confidence.
pub fn interval(sorted: &[f64]) -> (f64, f64) {
    let n = sorted.len() as f64;
    let low = ((n - 1.96 * n.sqrt()) / 2.0).floor().max(0.0) as usize;
    (sorted[low], sorted[sorted.len() - 1 - low])
}
