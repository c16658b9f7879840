//! Runs the depth experiment on biopsy's own load: the prepared target is driven again at other depths.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::depth::{Arm, ArmResult, BlockResult, Curve};
use super::order::blocks;
use crate::load::random::seeded;
use crate::load::{Job, LoadSummary, Permission, Phase, PreparedJobs, Progress, ScratchFiles, prepare_again};
use crate::refusal::Refusal;
use crate::units::time;

/// Excluded at the start of each run, while the queue fills.
const RAMP: Duration = Duration::from_millis(50);

/// Maximum counted time per run; less with four arms, so that everything fits.
const COUNTED: Duration = Duration::from_millis(150);
const PLANNED: Duration = Duration::from_millis(4_400);

/// Three pairs, each balanced.
const BLOCKS: usize = 6;

/// Time limit, including thread start and drain: on a slow device fewer blocks fit.
const LONGEST: Duration = Duration::from_secs(5);

/// The arms of a job; the arm with one more job only with `more_jobs`, because each arm takes time from all others.
fn arms(job: &Job, more_jobs: bool) -> Vec<(Arm, u32, u32)> {
    let (depth, jobs) = (job.iodepth, job.numjobs);
    let half = (depth > 1).then_some((Arm::HalfTheDepth, depth / 2, jobs));
    let more = more_jobs.then_some((Arm::OneMoreJob, depth, jobs.saturating_add(1)));
    let all = [
        half,
        Some((Arm::TheSame, depth, jobs)),
        Some((Arm::TwiceTheDepth, depth.saturating_mul(2), jobs)),
        more,
    ];
    all.into_iter().flatten().collect()
}

/// Runs the job of a load again in its arms. Complete blocks measured before `stop`, or before an arm failed, are in
/// the curve. Refused where an operation takes too long for a block.
pub fn of_depth(
    load: &LoadSummary,
    more_jobs: bool,
    scratch: &mut ScratchFiles,
    stop: &AtomicBool,
    progress: &dyn Fn(Progress),
) -> Result<Curve> {
    let job = &load.job;
    if let Some(mean) = load.latency().mean().filter(|mean| *mean > RAMP.as_nanos() as f64) {
        let (mean, block) = (time(mean as u64), time(COUNTED.as_nanos() as u64));
        let why = format!(
            "an operation takes {mean}, too long for blocks of {block}: try other depths with biopsy load"
        );
        return Err(Refusal::Refused(why).into());
    }
    let begin = Instant::now();
    let arms = arms(job, more_jobs);
    let all = (BLOCKS * arms.len()) as u32;
    let counted = (PLANNED / all).saturating_sub(RAMP).min(COUNTED);
    let mut prepared = Vec::with_capacity(arms.len());
    for (_, iodepth, numjobs) in &arms {
        let job = Job {
            iodepth: *iodepth,
            numjobs: *numjobs,
            ramp_time: RAMP,
            runtime: Some(counted),
            time_based: true,
            ..job.clone()
        };
        prepared.push(prepare_again(&[job], &Permission::default(), scratch, stop, progress)?);
    }
    let tried = |(arm, iodepth, numjobs): (Arm, u32, u32)| ArmResult {
        arm,
        iodepth,
        numjobs,
        blocks: Vec::new(),
        ratio: None,
    };
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let arms = arms.into_iter().map(tried).collect();
    let mut curve = Curve { arms, block_ns: ns(counted), ..Curve::default() };
    let each = ns(RAMP + counted);
    let mut done = 0;
    for order in blocks(prepared.len(), BLOCKS, job.seed) {
        let mut block = vec![None; prepared.len()];
        for arm in order {
            if begin.elapsed() > LONGEST {
                curve.cut = Some(format!("time limit of {LONGEST:?}"));
                return Ok(curve.derived());
            }
            progress(Progress {
                phase: Phase::Run,
                done: u64::from(done) * each,
                total: u64::from(all) * each,
                rates: None,
            });
            done += 1;
            // Otherwise each run would read what the previous one has brought into the drive's cache.
            prepared[arm].reseed(seeded(job.seed, done));
            match run(&mut prepared[arm], stop) {
                Ok(point) => block[arm] = Some(point),
                Err(why) => {
                    curve.cut = Some(why);
                    return Ok(curve.derived());
                }
            }
        }
        let points: Vec<BlockResult> = block.into_iter().flatten().collect();
        for (tried, point) in curve.arms.iter_mut().zip(points) {
            tried.blocks.push(point);
        }
    }
    Ok(curve.derived())
}

/// One run of an arm, or why it does not count.
fn run(prepared: &mut PreparedJobs, stop: &AtomicBool) -> Result<BlockResult, String> {
    let summary = prepared.run_one(stop, &|_| (), &[]).map_err(|error| format!("{error:#}"))?;
    if stop.load(Ordering::Relaxed) {
        return Err("it was stopped".to_string());
    }
    if let Some(refusal) = summary.untrusted() {
        return Err(refusal.to_string());
    }
    Ok(point(&summary))
}

fn point(summary: &LoadSummary) -> BlockResult {
    let seconds = summary.duration_ns as f64 / 1e9;
    let operations = summary.operations() as f64;
    BlockResult {
        operations_per_second: if seconds > 0.0 { operations / seconds } else { 0.0 },
        mean_ns: summary.latency().mean(),
    }
}
