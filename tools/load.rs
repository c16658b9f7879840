//! `biopsy load`.

use std::path::Path;

use anyhow::Result;
use biopsy::load::{self, Job, Pattern, Target};
use biopsy::render::{json, text};

use crate::cli::{Load, Rw, Workload};
use crate::output::Sink;
use crate::progress::Line;
use crate::{clock, stop};

pub fn run(args: &Load) -> Result<()> {
    let mut sink = Sink::open(args.output.output.as_deref())?;
    stop::install();
    let target = if args.scratch {
        scratch(&args.target, &args.workload)?
    } else {
        Target::Existing(args.target.clone())
    };
    let line = Line::default();
    let report = |progress| line.show(progress);
    let job = Job { hipri: args.hipri, ..job(target, &args.workload) };
    let prepared = load::prepare(&job, stop::flag(), &report)?;
    let mut envelope = clock::envelope();
    let summary = prepared.run(stop::flag(), &report)?;
    line.clear();
    envelope.duration_ns = summary.duration_ns;
    let bytes = if args.output.json {
        json::line(json::load::object(&envelope, &summary))
    } else {
        text::load::render(&summary).into_bytes()
    };
    sink.write(&bytes)?;
    summary.untrusted().map_or(Ok(()), |refusal| Err(refusal.into()))
}

/// A scratch file in `directory`, as large as asked for or as fits well.
pub fn scratch(directory: &Path, workload: &Workload) -> Result<Target> {
    let bytes = workload.size.map_or_else(|| load::default_scratch_bytes(directory), Ok)?;
    Ok(Target::Scratch { directory: directory.to_path_buf(), bytes })
}

/// The job that the options describe.
pub fn job(target: Target, workload: &Workload) -> Job {
    Job {
        target,
        rw: match workload.rw {
            Rw::Read => Pattern::Read,
            Rw::Randread => Pattern::RandRead,
        },
        hipri: false,
        bs: workload.bs,
        iodepth: workload.iodepth,
        numjobs: workload.numjobs,
        runtime: workload.runtime,
        size: workload.size,
        seed: workload.seed,
    }
}
