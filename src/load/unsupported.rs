//! Names combinations of job options that are not supported, before the run, so that no option is silently ignored.

use super::job::{Direction, Engine, Job, Timestamps};

/// The unsupported options of the job in one sentence; None where all are supported.
pub fn unsupported(job: &Job) -> Option<String> {
    let lacks: Vec<String> =
        lacks(job).into_iter().filter(|(lacks, _)| *lacks).map(|(_, word)| word).collect();
    (!lacks.is_empty()).then(|| {
        let job = job.name.escape_debug();
        format!("job {job} combines options that do not go together: leave out {}", lacks.join(", "))
    })
}

fn lacks(job: &Job) -> Vec<(bool, String)> {
    let entry = |lacks: bool, word: &str| (lacks, word.to_string());
    let ring = job.engine == Engine::IoUring;
    let flagged = matches!(job.engine, Engine::IoUring | Engine::Libaio | Engine::Pvsync2) && !job.nop;
    let polls = matches!(job.engine, Engine::IoUring | Engine::IoUringCmd | Engine::Pvsync2);
    let rates = job.directions().filter(|way| job.rate.is_some_and(|rate| rate.has(*way))).count();
    vec![
        entry(job.sqthread_poll && !ring, "sqthread_poll (only io_uring has it)"),
        entry(job.nop && !ring, "nop (only io_uring has it)"),
        entry(job.hipri && !polls, "hipri (only io_uring, io_uring_cmd and pvsync2 have it)"),
        entry(job.hipri && job.sqthread_poll, "one of hipri and sqthread_poll"),
        entry(job.engine == Engine::IoUringCmd && !job.direct, "direct=0 (io_uring_cmd has no page cache)"),
        entry(job.engine == Engine::Null && job.verify, "verify (the engine null transfers nothing)"),
        entry(job.uncached && !flagged, "uncached (only io_uring, libaio and pvsync2 have it)"),
        entry(job.uncached && job.direct, "uncached with direct=1, which uses no page cache"),
        entry(job.atomic && !flagged, "atomic (only io_uring, libaio and pvsync2 have it)"),
        entry(job.atomic && !job.direct, "atomic without direct=1"),
        entry(
            job.latency_target.is_some() && job.timestamps != Timestamps::Every,
            "latency_target without the latency of every operation (timestamps=every)",
        ),
        entry(
            job.latency_target.is_some() && job.rate.is_some(),
            "latency_target with a rate (a latency counts from when the operation was due)",
        ),
        entry(
            job.latency_target.is_some() && job.numjobs > 1,
            "latency_target with numjobs above 1 (each thread would find its own depth)",
        ),
        // Only one interval is kept, for one of them; fio does both in turn.
        entry(job.fsync > 0 && job.fdatasync > 0, "one of fsync and fdatasync"),
        // The order could not be reproduced for the read-back.
        entry(job.verify && rates > 1, "verify with a rate for each direction of a mix"),
        entry(
            job.verify && !job.rw.has(Direction::Write),
            "verify without writes (only blocks of this run can be verified)",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::job::{Pattern, Target};

    #[test]
    fn what_does_not_go_together_is_named() {
        let job = || Job::new(Target::Existing("/dev/a".into()));
        assert_eq!(unsupported(&job()), None);
        let pairs = Job { rw: Pattern::TrimWrite, number_ios: Some(5), ..job() };
        assert_eq!(unsupported(&pairs), None, "at any depth");
        assert_eq!(unsupported(&Job::fio_defaults(Target::Existing("/dev/a".into()))), None);
        for (job, word) in [
            (Job { nop: true, engine: Engine::Psync, ..job() }, "nop"),
            (Job { hipri: true, engine: Engine::Libaio, ..job() }, "hipri"),
            (Job { verify: true, ..job() }, "verify"),
            (Job { uncached: true, ..job() }, "direct=1"),
            (Job { uncached: true, direct: false, engine: Engine::Psync, ..job() }, "uncached"),
            (Job { atomic: true, direct: false, ..job() }, "without direct=1"),
            (Job { fsync: 32, fdatasync: 4, ..job() }, "fdatasync"),
        ] {
            let why = unsupported(&job).unwrap();
            assert!(why.contains(word), "{why}");
        }
    }
}
