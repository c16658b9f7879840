//! Finds the knee of a throughput curve: how much load is enough, and where more load only increases latency.
//!
//! Both results are measured points; nothing is interpolated.
//!
//! - *Enough* is the smallest load that reaches [`ENOUGH`] of the best throughput of the curve.
//! - *Knee* is the load with the greatest *power*, throughput / mean latency: below it throughput grows by a larger
//!   factor than latency, above it latency does. The measure is that of Giessler, Hänle, König and Pade, "Free Buffer
//!   Allocation: An Investigation by Simulation" (Computer Networks 2, 1978), and of Kleinrock, "Power and
//!   Deterministic Rules of Thumb for Probabilistic Problems in Computer Communications" (ICC 1979), who shows that its
//!   maximum is where the pipe is just kept full.
//!
//! A maximum at the last point is not confirmed by a later point: the result is then that a higher load may give more.

/// Share of the best throughput that is enough.
pub const ENOUGH: f64 = 0.95;
/// A curve whose best point is not this much above its first is flat: short runs vary by as much.
pub const RISE: f64 = 1.10;
/// A curve with fewer points has no shape.
pub const LEAST_POINTS: usize = 4;

/// The measurement at one load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadPoint {
    /// Operations or bytes per second.
    pub throughput: f64,
    /// Mean latency; None where it was not measured.
    pub mean_ns: Option<f64>,
}

impl LoadPoint {
    /// Kleinrock's power; None without a latency.
    fn power(&self) -> Option<f64> {
        self.mean_ns.filter(|mean| *mean > 0.0).map(|mean| self.throughput / mean)
    }
}

/// The shape of a curve. Points are indices into the given order, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knee {
    /// The point of the best throughput.
    pub best: usize,
    /// None: only the last point reaches [`ENOUGH`] of the best, so a higher load may give more.
    pub enough: Option<usize>,
    /// None: power still grows at the last point, or latencies are not known.
    pub knee: Option<usize>,
}

/// Why a curve has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shapeless {
    /// Fewer than [`LEAST_POINTS`].
    FewPoints,
    /// The best is less than [`RISE`] times the first.
    Flat,
}

/// Analyses a curve. Its points go from the smallest load to the largest.
pub fn knee(points: &[LoadPoint]) -> Result<Knee, Shapeless> {
    let [first, .., _] = points else { return Err(Shapeless::FewPoints) };
    if points.len() < LEAST_POINTS {
        return Err(Shapeless::FewPoints);
    }
    let best = greatest(points.iter().map(|point| point.throughput)).ok_or(Shapeless::Flat)?;
    let most = points[best].throughput;
    // NaN is not above anything either.
    if most.partial_cmp(&(first.throughput * RISE)).is_none_or(|order| order.is_lt()) {
        return Err(Shapeless::Flat);
    }
    let before_last = |at: &usize| at + 1 < points.len();
    let enough = points.iter().position(|point| point.throughput >= most * ENOUGH).filter(before_last);
    let powers: Option<Vec<f64>> = points.iter().map(LoadPoint::power).collect();
    let knee = powers.and_then(|powers| greatest(powers.into_iter())).filter(before_last);
    Ok(Knee { best, enough, knee })
}

/// Index of the greatest value, the first of several; None without any.
fn greatest(values: impl Iterator<Item = f64>) -> Option<usize> {
    let mut found: Option<(usize, f64)> = None;
    for (at, value) in values.enumerate() {
        if found.is_none_or(|(_, most)| value > most) {
            found = Some((at, value));
        }
    }
    found.map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points in thousands of operations per second, and microseconds.
    fn curve(points: &[(f64, f64)]) -> Vec<LoadPoint> {
        let one = |(kiops, us): &(f64, f64)| LoadPoint { throughput: kiops * 1e3, mean_ns: Some(us * 1e3) };
        points.iter().map(one).collect()
    }

    #[test]
    fn a_device_of_eight_units_has_its_knee_at_eight() {
        // Depths 1 to 64, 10k/s per unit: latency grows as soon as all units are busy.
        let full = [
            (10.0, 100.0),
            (20.0, 100.0),
            (40.0, 100.0),
            (80.0, 100.0),
            (80.0, 200.0),
            (80.0, 400.0),
            (80.0, 800.0),
        ];
        assert_eq!(knee(&curve(&full)), Ok(Knee { best: 3, enough: Some(3), knee: Some(3) }));
        // Like a real device: the last part of the throughput costs much latency.
        let soft = [
            (10.0, 100.0),
            (19.0, 105.0),
            (35.0, 114.0),
            (55.0, 145.0),
            (68.0, 235.0),
            (74.0, 432.0),
            (76.0, 842.0),
        ];
        assert_eq!(knee(&curve(&soft)), Ok(Knee { best: 6, enough: Some(5), knee: Some(3) }));
    }

    #[test]
    fn a_line_has_no_knee_and_more_beyond_it() {
        let line = [(10.0, 100.0), (20.0, 100.0), (40.0, 100.0), (80.0, 100.0)];
        assert_eq!(knee(&curve(&line)), Ok(Knee { best: 3, enough: None, knee: None }));
        // Power may be past its maximum where throughput still grows.
        let slow = [(10.0, 100.0), (18.0, 111.0), (22.0, 182.0), (26.0, 308.0)];
        assert_eq!(knee(&curve(&slow)), Ok(Knee { best: 3, enough: None, knee: Some(1) }));
    }

    #[test]
    fn a_flat_curve_and_a_falling_one_name_nothing() {
        let flat = [(50.0, 20.0), (52.0, 40.0), (54.9, 80.0), (49.0, 160.0)];
        assert_eq!(knee(&curve(&flat)), Err(Shapeless::Flat));
        let falling = [(50.0, 20.0), (40.0, 50.0), (30.0, 133.0), (20.0, 400.0)];
        assert_eq!(knee(&curve(&falling)), Err(Shapeless::Flat));
        let nothing = [LoadPoint { throughput: f64::NAN, mean_ns: None }; 5];
        assert_eq!(knee(&nothing), Err(Shapeless::Flat));
    }

    #[test]
    fn a_dip_hides_neither_what_is_before_it_nor_what_is_behind() {
        let before = [(10.0, 100.0), (78.0, 110.0), (80.0, 200.0), (60.0, 533.0), (79.0, 810.0)];
        assert_eq!(knee(&curve(&before)), Ok(Knee { best: 2, enough: Some(1), knee: Some(1) }));
        let behind = [(10.0, 100.0), (30.0, 66.0), (20.0, 200.0), (80.0, 100.0), (82.0, 195.0)];
        assert_eq!(knee(&curve(&behind)), Ok(Knee { best: 4, enough: Some(3), knee: Some(3) }));
    }

    #[test]
    fn three_points_are_no_curve() {
        let three = [(10.0, 100.0), (20.0, 100.0), (20.0, 200.0)];
        assert_eq!(knee(&curve(&three)), Err(Shapeless::FewPoints));
        assert_eq!(knee(&[]), Err(Shapeless::FewPoints));
    }

    #[test]
    fn without_latencies_there_is_enough_but_no_knee() {
        let mut points = curve(&[(10.0, 100.0), (20.0, 100.0), (20.1, 200.0), (20.0, 400.0)]);
        points[2].mean_ns = None;
        assert_eq!(knee(&points), Ok(Knee { best: 2, enough: Some(1), knee: None }));
    }
}
