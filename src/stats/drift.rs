//! Tests for a linear drift over a run.

use super::student;

/// How values change with time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// Per unit of time.
    pub slope: f64,
    /// The share of runs without a drift that have at least this slope.
    pub p: f64,
}

/// The least-squares line through values of several groups, each with its own level: `(time, value)` by group. None
/// where it is undetermined: fewer than three values beyond the number of groups, or all at one time.
pub fn drift(groups: &[Vec<(f64, f64)>]) -> Option<Drift> {
    let (mut all, mut used) = (Vec::new(), 0);
    for group in groups.iter().filter(|group| !group.is_empty()) {
        all.extend(centred(group));
        used += 1;
    }
    let degrees = all.len().checked_sub(used + 1).filter(|degrees| *degrees >= 2)?;
    let (slope, xx) = line(&all)?;
    let (xy, yy) = (slope * xx, all.iter().map(|(_, y)| y * y).sum::<f64>());
    if !yy.is_finite() {
        return None;
    }
    // Rounding may make it negative.
    let rest = (yy - slope * xy).max(0.0) / degrees as f64;
    let p = match rest > 0.0 {
        true => student::tails(slope / (rest / xx).sqrt(), degrees as f64),
        false => f64::from(slope == 0.0),
    };
    Some(Drift { slope, p })
}

/// The slope of the least-squares line through `(time, value)`. None where all are at one time.
pub fn slope(points: &[(f64, f64)]) -> Option<f64> {
    line(&centred(points).collect::<Vec<_>>()).map(|(slope, _)| slope)
}

/// Points relative to their mean.
fn centred(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    let n = points.len() as f64;
    let (time, value) = points.iter().fold((0.0, 0.0), |(x, y), (time, value)| (x + time, y + value));
    points.iter().map(move |(x, y)| (x - time / n, y - value / n))
}

/// The slope through centred points, and the sum of squared times.
fn line(centred: &[(f64, f64)]) -> Option<(f64, f64)> {
    let xx = centred.iter().map(|(x, _)| x * x).sum::<f64>();
    let xy = centred.iter().map(|(x, y)| x * y).sum::<f64>();
    (xx > 0.0 && (xx + xy).is_finite()).then(|| (xy / xx, xx))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_levels_of_their_own() {
        let a = vec![(0.0, 10.0), (3.0, 13.1), (4.0, 13.9)];
        let b = vec![(1.0, 101.0), (2.0, 102.1), (5.0, 104.9)];
        let found = drift(&[a, b, Vec::new()]).unwrap();
        assert!((found.slope - 1.0).abs() < 0.05 && found.p < 0.001, "{found:?}");
    }

    #[test]
    fn what_has_no_slope_has_none() {
        assert_eq!(drift(&[]), None);
        assert_eq!(drift(&[vec![(1.0, 1.0); 9]]), None, "all at one time");
        assert_eq!(drift(&[vec![(1.0, 1.0), (2.0, 1.0), (3.0, 2.0)]]), None, "too few");
        let level = drift(&[vec![(1.0, 5.0), (2.0, 5.0), (3.0, 5.0), (4.0, 5.0)]]).unwrap();
        assert_eq!((level.slope, level.p), (0.0, 1.0));
    }
}
