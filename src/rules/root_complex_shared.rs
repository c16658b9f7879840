//! Drives below one root complex are slower together than alone. Pure, and not among the rules yet: a diagnosis drives one
//! target, so that nobody knows the rate of each drive alone. `biopsy devices` hints at it from topology.

use std::collections::BTreeMap;

use super::facts::percent;
use super::link_bound::FULL;
use super::links::in_gigabytes;
use crate::findings::{Finding, Severity, Worth};
use crate::units::in_percent;

/// Share of the sum of the drives alone from which on they lose nothing that matters: runs of one drive differ by a few
/// percent.
pub const TOGETHER: f64 = 0.90;

/// A drive below a root complex, in two runs of the same load.
#[derive(Debug, Clone, PartialEq)]
pub struct Driven<'a> {
    pub name: &'a str,
    /// Bytes per second when only it was driven; None: it was not.
    pub alone: Option<f64>,
    /// When all were.
    pub together: f64,
    /// Of the links on its way up the one nearest to its ceiling, when all were driven; None: not known.
    pub link_share: Option<f64>,
}

/// The loss, where every drive was measured alone and no link explains it.
pub fn find(complex: &str, drives: &[Driven<'_>]) -> Option<Finding> {
    let alone: f64 = drives.iter().map(|drive| drive.alone).sum::<Option<f64>>()?;
    let nearest =
        drives.iter().map(|drive| drive.link_share).try_fold(0.0, |most: f64, of| Some(most.max(of?)))?;
    let together: f64 = drives.iter().map(|drive| drive.together).sum();
    if drives.len() < 2 || together >= alone * TOGETHER || nearest >= FULL {
        return None;
    }
    let share = together / alone;
    let names: Vec<&str> = drives.iter().map(|drive| drive.name).collect();
    Some(Finding {
        id: "root-complex-shared",
        subject: complex.to_string(),
        severity: Severity::Warning,
        confidence: 0.8,
        sentence: format!(
            "{} drives below {complex} move {} together, {} of the {} that they move alone, and no link is full.",
            drives.len(),
            in_gigabytes(together),
            in_percent(share),
            in_gigabytes(alone)
        ),
        numbers: BTreeMap::from([
            ("drives", drives.len() as f64),
            ("together_bytes_per_second", together),
            ("alone_bytes_per_second", alone),
            ("together_percent", percent(share)),
            ("nearest_link_percent", percent(nearest)),
        ]),
        evidence: vec![
            names.join(" "),
            format!("the link that is nearest to its ceiling is at {}", in_percent(nearest)),
        ],
        advice: "Part the drives over the machine's root complexes (biopsy devices names them).".to_string(),
        check: "biopsy devices".to_string(),
        worth: Some(Worth {
            metric: "bytes_per_second_ratio".to_string(),
            low: 1.0,
            high: (alone / together.max(1.0)).max(1.0),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published (source T): eight drives below 0000:40 that read 7.13 GB/s each alone, and 39.4 together; each has
    /// 7.52 GB/s of its link.
    fn drives(together: f64) -> Vec<Driven<'static>> {
        let names = ["nvme0n1", "nvme1n1", "nvme2n1", "nvme3n1", "nvme4n1", "nvme5n1", "nvme6n1", "nvme7n1"];
        let each = together / 8.0;
        let drive =
            |name| Driven { name, alone: Some(7.13e9), together: each, link_share: Some(each / 7.524e9) };
        names.map(drive).to_vec()
    }

    #[test]
    fn eight_drives_below_one_root_complex() {
        let found = find("pci0000:40", &drives(39.4e9)).unwrap();
        assert_eq!(
            found.sentence,
            "8 drives below pci0000:40 move 39.40 GB/s together, 69 % of the 57.04 GB/s that they move alone, and no \
             link is full."
        );
        assert_eq!(found.worth.unwrap().high, 57.04 / 39.4);
    }

    #[test]
    fn the_loss_has_two_sides() {
        assert!(find("pci0000:40", &drives(51.33e9)).is_some());
        assert!(find("pci0000:40", &drives(51.34e9)).is_none(), "90 % of 57.04");
    }

    #[test]
    fn a_drive_that_was_not_measured_alone_proves_nothing() {
        let mut some = drives(39.4e9);
        some[3].alone = None;
        assert!(find("pci0000:40", &some).is_none());
        assert!(find("pci0000:40", &[]).is_none());
    }

    #[test]
    fn a_full_link_explains_it() {
        let mut full = drives(39.4e9);
        full[0].link_share = Some(0.949);
        assert!(find("pci0000:40", &full).is_some());
        full[0].link_share = Some(0.95);
        assert!(find("pci0000:40", &full).is_none());
        full[0].link_share = None;
        assert!(find("pci0000:40", &full).is_none(), "nobody knows");
    }
}
