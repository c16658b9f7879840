//! Renders drives measured alone and all together.

use super::clean;
use crate::load::{DriveScaling, Scaling};
use crate::units::{bytes, in_percent, time};

/// `nvme0n1  7.13 GB/s alone, 4.93 GB/s with the others (69 %)`, one line per drive.
pub fn lines(scaling: &Scaling) -> Vec<String> {
    let name = |drive: &DriveScaling| clean(drive.device.as_deref().unwrap_or(&drive.target));
    let width = scaling.drives.iter().map(|drive| name(drive).chars().count()).max().unwrap_or(0);
    let one = |drive: &DriveScaling| format!("{:width$}  {}", name(drive), rates(drive));
    scaling.drives.iter().map(one).collect()
}

/// The heading with the run length.
pub fn heading(scaling: &Scaling) -> String {
    format!("Alone and all at once (each run {})", time(scaling.each_ns))
}

fn rates(drive: &DriveScaling) -> String {
    let rate = |rate: f64| format!("{}/s", bytes(rate));
    match (drive.alone, drive.together) {
        (Some(alone), Some(together)) if alone > 0.0 => format!(
            "{} alone, {} with the others ({})",
            rate(alone),
            rate(together),
            in_percent(together / alone)
        ),
        (Some(alone), Some(together)) => format!("{} alone, {} with the others", rate(alone), rate(together)),
        _ => "unknown: a run was cut short or had errors".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_is_a_line_and_an_unknown_rate_no_zero() {
        let drive = |name: &str, alone, together| DriveScaling {
            target: format!("/dev/{name}"),
            device: Some(name.to_string()),
            alone,
            together,
        };
        let drives =
            vec![drive("nvme0n1", Some(7.13e9), Some(4.925e9)), drive("nvme10n1", Some(7.13e9), None)];
        let scaling = Scaling { drives, each_ns: 2_000_000_000, worker_percent: 10.0, machine_percent: None };
        assert_eq!(heading(&scaling), "Alone and all at once (each run 2.00 s)");
        let lines = lines(&scaling);
        assert!(
            lines[0].starts_with("nvme0n1   ") && lines[0].ends_with(" with the others (69 %)"),
            "{lines:?}"
        );
        assert_eq!(lines[1], "nvme10n1  unknown: a run was cut short or had errors");
    }
}
