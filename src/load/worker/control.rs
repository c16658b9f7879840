//! Starts and ends the jobs of a round depending on each other: fio's `wait_for`, `exitall` and `exit_what`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, Once, PoisonError};
use std::time::Duration;

use super::super::job::{ExitWhat, Job};
use super::gate::Meeting;

/// How often a waiting thread checks whether to stop.
const LOOK: Duration = Duration::from_millis(50);

/// The jobs of a round, in order.
#[derive(Debug)]
pub struct Control {
    jobs: Vec<JobControl>,
    /// Running threads of each job.
    left: Mutex<Vec<u32>>,
    ended: Condvar,
    /// As in fio, one job with `exitall` enables it for all jobs.
    exitall: bool,
    /// No later round may begin: a job with `exit_what=all` has ended.
    all: AtomicBool,
}

#[derive(Debug)]
struct JobControl {
    exit: AtomicBool,
    /// The job does not wait for another job any more.
    begun: AtomicBool,
    joined: Once,
    what: ExitWhat,
    /// Reporting group, for `exit_what=group`.
    group: usize,
    /// The jobs that it waits for.
    waits_for: Vec<usize>,
}

impl Control {
    /// For a round of jobs; `exitall`: any job of the run has it set.
    pub fn new(jobs: &[&Job], exitall: bool) -> Self {
        let mut group = 0;
        let one = |(at, job): (usize, &&Job)| {
            group += usize::from(at > 0 && job.new_group);
            // A job of an earlier round is already over.
            let names = |before: &usize| job.wait_for.as_ref() == Some(&jobs[*before].name);
            JobControl {
                exit: AtomicBool::new(false),
                begun: AtomicBool::new(job.wait_for.is_none()),
                joined: Once::new(),
                what: job.exit_what,
                group,
                waits_for: (0..at).filter(names).collect(),
            }
        };
        Self {
            jobs: jobs.iter().enumerate().map(one).collect(),
            left: Mutex::new(jobs.iter().map(|job| job.numjobs).collect()),
            ended: Condvar::new(),
            exitall,
            all: AtomicBool::new(false),
        }
    }

    /// Set when the job's threads must end.
    pub fn exit(&self, job: usize) -> &AtomicBool {
        &self.jobs[job].exit
    }

    /// Whether the end of a job ends others.
    pub fn has_exitall(&self) -> bool {
        self.exitall
    }

    /// Whether no later round may begin.
    pub fn is_all_over(&self) -> bool {
        self.all.load(Ordering::Relaxed)
    }

    /// Whether a job waits for another one of this round.
    pub fn waits(&self, job: usize) -> bool {
        !self.jobs[job].waits_for.is_empty()
    }

    /// Waits until the jobs that it waits for are over, or `is_over` returns true. Then registers the job's `threads`
    /// threads as writers of the meeting.
    pub fn wait(&self, job: usize, threads: u32, meeting: &Meeting, is_over: impl Fn() -> bool) {
        let its = &self.jobs[job];
        if its.waits_for.is_empty() {
            return;
        }
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        while its.waits_for.iter().any(|of| left[*of] > 0) && !is_over() {
            left = self.ended.wait_timeout(left, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(left);
        its.joined.call_once(|| meeting.join(threads));
        its.begun.store(true, Ordering::Relaxed);
    }

    /// A thread of the job has ended, perhaps with an error.
    pub fn end(&self, job: usize) {
        let its = &self.jobs[job];
        if self.exitall {
            for other in &self.jobs {
                let ends = match its.what {
                    ExitWhat::Group => other.group == its.group,
                    // A job that still waits begins all the same.
                    ExitWhat::Stonewall => other.begun.load(Ordering::Relaxed),
                    ExitWhat::All => true,
                };
                if ends {
                    other.exit.store(true, Ordering::Relaxed);
                }
            }
            if its.what == ExitWhat::All {
                self.all.store(true, Ordering::Relaxed);
            }
        }
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left[job] = left[job].saturating_sub(1);
        self.ended.notify_all();
    }
}

/// A running thread of a job. Drop reports its end, also after an error or a panic.
#[derive(Debug)]
pub struct Turn<'a>(pub &'a Control, pub usize);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.end(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::job::Target;
    use super::*;

    /// Jobs by name: which begin a group, and which job they wait for.
    fn jobs(of: &[(&str, bool, Option<&str>)], what: ExitWhat) -> Vec<Job> {
        let one = |(name, new_group, wait_for): &(&str, bool, Option<&str>)| Job {
            name: (*name).to_string(),
            new_group: *new_group,
            wait_for: wait_for.map(str::to_string),
            exit_what: what,
            ..Job::fio_defaults(Target::Existing("/f".into()))
        };
        of.iter().map(one).collect()
    }

    const FOUR: [(&str, bool, Option<&str>); 4] =
        [("a", false, None), ("b", false, None), ("c", true, None), ("d", false, Some("c"))];

    fn exits(what: ExitWhat, exitall: bool) -> (Vec<bool>, bool) {
        let jobs = jobs(&FOUR, what);
        let control = Control::new(&jobs.iter().collect::<Vec<_>>(), exitall);
        control.end(0);
        ((0..4).map(|job| control.exit(job).load(Ordering::Relaxed)).collect(), control.is_all_over())
    }

    #[test]
    fn the_end_of_a_job_ends_its_group_or_what_runs_or_all() {
        assert_eq!(
            exits(ExitWhat::All, false),
            (vec![false; 4], false),
            "without exitall no job ends another"
        );
        assert_eq!(exits(ExitWhat::Group, true), (vec![true, true, false, false], false));
        assert_eq!(exits(ExitWhat::Stonewall, true), (vec![true, true, true, false], false));
        assert_eq!(exits(ExitWhat::All, true), (vec![true; 4], true));
    }

    #[test]
    fn a_job_that_waits_begins_at_the_end_of_all_threads_of_the_other() {
        let mut jobs = jobs(&FOUR, ExitWhat::Group);
        jobs[2].numjobs = 2;
        let control = Control::new(&jobs.iter().collect::<Vec<_>>(), false);
        let meeting = Meeting::new(0);
        assert_eq!((0..4).map(|job| control.waits(job)).collect::<Vec<_>>(), [false, false, false, true]);
        let begun = || control.jobs[3].begun.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| control.wait(3, 1, &meeting, || false));
            control.end(0);
            control.end(2);
            std::thread::sleep(Duration::from_millis(20));
            assert!(!begun() && !waiter.is_finished());
            control.end(2);
            waiter.join().unwrap();
        });
        assert!(begun());
        assert!(meeting.wait(|| true).is_none(), "its thread is to write");
    }
}
