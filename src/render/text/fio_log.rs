//! Renders fio's logs of a load: a line per interval and direction, for each thread.

use std::path::{Path, PathBuf};

use crate::load::{Direction, Job, JobResult, LoadSummary, TransferSample};

/// The value of a line; None: the direction transferred nothing in the interval.
type Value = fn(&TransferSample, usize) -> Option<u64>;

/// The file name prefix of a job's logs of one kind; None: no log.
type Prefix = fn(&Job) -> Option<&Path>;

/// Suffix of the file name, prefix, and value.
const KINDS: [(&str, Prefix, Value); 3] = [
    (
        "bw",
        |job| job.logs.bandwidth.as_deref(),
        |sample, at| Some(per_second(sample.bytes[at], sample) >> 10),
    ),
    ("iops", |job| job.logs.iops.as_deref(), |sample, at| Some(per_second(sample.operations[at], sample))),
    (
        "lat",
        |job| job.logs.latency.as_deref(),
        |sample, at| sample.latency_ns[at].checked_div(sample.timed[at]),
    ),
];

/// The paths of a run's logs, in the order of [`render`]; fio counts threads from 1.
pub fn paths<'a>(jobs: impl IntoIterator<Item = &'a Job>) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    let mut thread = 0;
    for job in jobs {
        for _ in 0..job.numjobs {
            thread += 1;
            let kinds = KINDS.iter().filter_map(|(end, prefix, _)| Some((end, prefix(job)?)));
            paths.extend(kinds.map(|(end, prefix)| {
                let mut name = prefix.as_os_str().to_os_string();
                name.push(format!("_{end}.{thread}.log"));
                PathBuf::from(name)
            }));
        }
    }
    paths
}

/// Their contents.
pub fn render(loads: &[LoadSummary]) -> Vec<String> {
    let threads = loads.iter().flat_map(|load| load.jobs.iter().map(move |thread| (&load.job, thread)));
    threads
        .flat_map(|(job, thread)| {
            let kinds = KINDS.iter().filter(|(_, prefix, _)| prefix(job).is_some());
            kinds.map(move |(.., value)| lines(job, thread, *value))
        })
        .collect()
}

/// As in fio 3.33: time in ms, value, direction, and two numbers that are 0 for an average.
fn lines(job: &Job, thread: &JobResult, value: Value) -> String {
    let (mut text, mut at_ns) = (String::new(), 0);
    for sample in &thread.samples {
        at_ns += sample.duration_ns;
        for direction in job.directions() {
            let at = Direction::index(direction);
            if let Some(value) = value(sample, at).filter(|_| sample.operations[at] > 0) {
                text.push_str(&format!("{}, {value}, {at}, 0, 0\n", at_ns / 1_000_000));
            }
        }
    }
    text
}

fn per_second(count: u64, sample: &TransferSample) -> u64 {
    (u128::from(count) * 1_000_000_000 / u128::from(sample.duration_ns.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Logs, Pattern, Target};

    #[test]
    fn each_interval_is_a_line_of_each_direction() {
        let logs = Logs { bandwidth: Some("/l/p".into()), latency: Some("q".into()), ..Logs::default() };
        let job = Job { rw: Pattern::RandReadWrite, logs, ..Job::new(Target::Existing("x".into())) };
        let sample = |operations, latency_ns| TransferSample {
            duration_ns: 500_000_000,
            operations: [operations, 1, 0],
            bytes: [4096 * operations, 4096, 0],
            timed: [operations, 0, 0],
            latency_ns: [latency_ns, 0, 0],
        };
        let thread = JobResult { samples: vec![sample(2, 3_000), sample(0, 0)], ..JobResult::default() };
        let value = |at: usize| lines(&job, &thread, KINDS[at].2);
        assert_eq!(value(0), "500, 16, 0, 0, 0\n500, 8, 1, 0, 0\n1000, 8, 1, 0, 0\n");
        assert_eq!(value(1), "500, 4, 0, 0, 0\n500, 2, 1, 0, 0\n1000, 2, 1, 0, 0\n");
        assert_eq!(value(2), "500, 1500, 0, 0, 0\n");
        let two = Job { numjobs: 2, ..job.clone() };
        let names: Vec<_> = paths([&job, &two]).iter().map(|path| path.display().to_string()).collect();
        let all =
            ["/l/p_bw.1.log", "q_lat.1.log", "/l/p_bw.2.log", "q_lat.2.log", "/l/p_bw.3.log", "q_lat.3.log"];
        assert_eq!(names, all);
    }
}
