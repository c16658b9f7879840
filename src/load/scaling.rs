//! Measures drives one by one and all together: the difference shows what they share.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::prepare::{Progress, prepare};
use super::{Job, LoadSummary, Permission};
use crate::clock;
use crate::host::cpu_time::CpuReading;

/// A drive in two runs of the same load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DriveScaling {
    /// As it was named.
    pub target: String,
    /// The block device below it; None: it lies on none.
    pub device: Option<String>,
    /// Bytes per second while no other one was driven, and while all were. None: the run was cut short, or had errors.
    #[serde(rename = "alone_bytes_per_second")]
    pub alone: Option<f64>,
    #[serde(rename = "together_bytes_per_second")]
    pub together: Option<f64>,
}

/// All of them, and what the host did meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Scaling {
    pub drives: Vec<DriveScaling>,
    /// Planned length of each run.
    pub each_ns: u64,
    /// While all were driven: what the busiest thread of the load used of a CPU, ...
    pub worker_percent: f64,
    /// ... and of all CPUs what was not idle. None: not known.
    pub machine_percent: Option<f64>,
}

/// Runs each job by itself, then all of them together, each time for the same duration. The jobs only read.
pub fn measure(
    jobs: &[Job],
    each: Duration,
    stop: &AtomicBool,
    progress: &dyn Fn(Progress),
) -> Result<Scaling> {
    let jobs_of = |stonewall: bool| -> Vec<Job> {
        jobs.iter().map(|job| Job { runtime: Some(each), stonewall, ..job.clone() }).collect()
    };
    let run = |stonewall: bool| -> Result<Vec<LoadSummary>> {
        prepare(&jobs_of(stonewall), &Permission::default(), stop, progress)?.run(stop, progress, &[])
    };
    let alone = run(true)?;
    let accounts = || CpuReading::read(Path::new("/"), clock::now_ns);
    let before = accounts();
    let together = run(false)?;
    let machine_busy = busy(&before, &accounts());
    let cut = stop.load(Ordering::Relaxed);
    let rate = |run: &LoadSummary| {
        let whole = !cut && run.errors() == 0 && run.duration_ns > 0;
        whole.then(|| run.bytes() as f64 * 1e9 / run.duration_ns as f64)
    };
    let worker_busy = |run: &LoadSummary| {
        let of = run.jobs.iter().map(|job| job.user_ns + job.system_ns).max().unwrap_or(0);
        of as f64 / run.duration_ns.max(1) as f64
    };
    Ok(Scaling {
        worker_percent: 100.0 * together.iter().map(worker_busy).fold(0.0, f64::max),
        machine_percent: machine_busy.map(|busy| 100.0 * busy),
        each_ns: u64::try_from(each.as_nanos()).unwrap_or(u64::MAX),
        drives: alone
            .iter()
            .zip(&together)
            .map(|(alone, together)| DriveScaling {
                target: alone.target.clone(),
                device: alone.device.clone(),
                alone: rate(alone),
                together: rate(together),
            })
            .collect(),
    })
}

/// The share of time between two readings in which the CPUs were not idle.
fn busy(before: &CpuReading, after: &CpuReading) -> Option<f64> {
    let (mut all, mut idle) = (0, 0);
    for (cpu, now) in &after.cpus {
        let Some(then) = before.cpus.get(cpu) else { continue };
        let spent: Vec<u64> =
            now.columns.iter().zip(then.columns).map(|(now, then)| now.saturating_sub(then)).collect();
        all += spent.iter().sum::<u64>();
        // The fourth and fifth columns of /proc/stat: idle and iowait.
        idle += spent[3] + spent[4];
    }
    (all > 0).then(|| 1.0 - idle as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::cpu_time::parse_stat;
    use crate::load::Target;

    #[test]
    fn waiting_for_io_is_idle() {
        let before = parse_stat("cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n");
        let after = parse_stat("cpu0 10 0 20 30 40 0 0 0\ncpu1 0 0 0 100 0 0 0 0\n");
        assert_eq!(busy(&before, &after), Some(1.0 - 170.0 / 200.0));
        assert_eq!(busy(&before, &before), None);
    }

    #[test]
    fn each_file_is_read_alone_and_then_with_the_others() {
        let directory = std::env::temp_dir().join(format!("biopsy-scaling-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let jobs = ["a", "b"].map(|name| {
            let path = directory.join(name);
            std::fs::write(&path, vec![7; 1 << 20]).unwrap();
            Job { direct: false, ..Job::new(Target::Existing(path)) }
        });
        let stop = AtomicBool::new(false);
        let scaling = measure(&jobs, Duration::from_millis(50), &stop, &|_| {}).unwrap();
        assert_eq!(scaling.drives.len(), 2);
        assert!(scaling.drives.iter().all(|drive| drive.alone > Some(0.0) && drive.together > Some(0.0)));
        assert!(scaling.worker_percent > 0.0);
        stop.store(true, Ordering::Relaxed);
        let cut = measure(&jobs, Duration::from_millis(50), &stop, &|_| {}).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(cut.drives.iter().all(|drive| drive.alone.is_none() && drive.together.is_none()));
    }
}
