//! Holm's correction for several tests.

/// Which tests reject, such that at most the share of experiments for which `level(1)` was computed has any false
/// rejection. `level(n)` is the p that a test must stay below if the error is divided among `n` tests: with a single
/// look, the error divided by `n`.
pub fn holm(p: &[f64], level: impl Fn(usize) -> f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut rejects = vec![false; p.len()];
    for (rank, index) in order.into_iter().enumerate() {
        if p[index] > level(p.len() - rank) {
            break;
        }
        rejects[index] = true;
    }
    rejects
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R: `p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")` is 0.03, 0.06, 0.06, 0.02.
    #[test]
    fn it_rejects_what_r_rejects() {
        let p = [0.01, 0.04, 0.03, 0.005];
        assert_eq!(holm(&p, |n| 0.05 / n as f64), [true, false, false, true]);
        assert_eq!(holm(&p, |n| 0.061 / n as f64), [true; 4]);
        assert_eq!(holm(&p, |n| 0.025 / n as f64), [false, false, false, true]);
        assert!(holm(&[], |_| 1.0).is_empty());
    }

    #[test]
    fn a_test_behind_one_that_does_not_reject_does_not_either() {
        assert_eq!(holm(&[0.02, 0.03, 0.04], |n| 0.05 / n as f64), [false; 3]);
    }
}
