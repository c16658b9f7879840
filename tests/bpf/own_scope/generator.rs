//! Tests the load generator inside the process that measures: its operations begin and end with its own stamps. Needs
//! root and loop devices.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use biopsy::analyze::latency::{DeviceLatency, summarize};
use biopsy::analyze::loss;
use biopsy::analyze::op::Op;
use biopsy::analyze::stage::Stage;
use biopsy::host::Host;
use biopsy::load::{self, Engine, Job, LoadSummary, Pattern, Permission, Target};
use biopsy::probe::Probe;
use biopsy::probe::latency::LatencyProbe;
use biopsy::probe::latency::options::Options;

use crate::live::disk::Disk;

/// What the generator and the probe report of a load on a disk. The load is run again if the kernel did not deliver a
/// completion event (see live::view).
#[track_caller]
fn both(disk: &Disk, generator: bool, job: &Job) -> (LoadSummary, DeviceLatency) {
    for _ in 0..crate::live::ATTEMPTS {
        let (load, device, lost) = once(disk, generator, job.clone());
        if lost == 0 {
            return (load, device);
        }
        println!("{lost} I/Os lost: again");
    }
    panic!("the kernel keeps its completions to itself");
}

fn once(disk: &Disk, generator: bool, job: Job) -> (LoadSummary, DeviceLatency, u64) {
    let root = Path::new("/");
    let host = Host::read(root).unwrap();
    let stop = AtomicBool::new(false);
    let mut prepared = load::prepare(&[job], &Permission::default(), &stop, &|_| ()).unwrap();
    let options = Options { devices: vec![disk.name.clone()], generator, cost: false, ..Options::default() };
    let mut probe = LatencyProbe::attach(&host, root, &options).unwrap();
    let places = probe.generators().unwrap();
    assert_eq!(places.is_some(), generator);
    let load = prepared.run_one(&stop, &|_| (), places.as_deref().unwrap_or_default()).unwrap();
    let start = probe.start().clone();
    let end = probe.detach().unwrap();
    let summary = summarize(&host, &start, &end);
    let lost = loss::lost(&summary, &start, &end).ios;
    (load, summary.devices.into_iter().find(|device| device.name == disk.name).unwrap(), lost)
}

fn job(disk: &Disk, engine: Engine, depth: u32, threads: u32) -> Job {
    let mut job = Job {
        engine,
        iodepth: depth,
        numjobs: threads,
        runtime: Some(Duration::from_millis(400)),
        ..Job::new(Target::Existing(PathBuf::from(&disk.path)))
    };
    job.set_bs(4096);
    job
}

#[test]
fn operations_begin_and_end_with_the_generator_s_own_stamps() {
    let Some(disk) = Disk::new(64) else {
        return;
    };
    let splits = || {
        let mut job = Job { rw: Pattern::Read, ..job(&disk, Engine::IoUring, 8, 1) };
        job.set_bs(4 << 20);
        job
    };
    for (name, job) in [
        ("io_uring 1", job(&disk, Engine::IoUring, 1, 1)),
        ("io_uring 2", job(&disk, Engine::IoUring, 2, 1)),
        ("io_uring 32", job(&disk, Engine::IoUring, 32, 1)),
        ("io_uring 512", job(&disk, Engine::IoUring, 512, 1)),
        ("io_uring, three threads", job(&disk, Engine::IoUring, 16, 3)),
        ("io_uring, split", splits()),
        ("io_uring, each submission seen", Job { submissions: true, ..job(&disk, Engine::IoUring, 8, 1) }),
        ("psync", job(&disk, Engine::Psync, 1, 2)),
        ("pvsync2", job(&disk, Engine::Pvsync2, 1, 1)),
    ] {
        let (load, device) = both(&disk, true, &job);
        let reads = device.ops[&Op::Read].operations.as_ref().unwrap();
        println!(
            "{name}: {} of {} operations, {} of {} ns",
            reads.operations,
            load.operations(),
            reads.total.sum(),
            load.latency().sum()
        );
        assert!(load.operations() > 10, "{name}");
        assert_eq!((reads.operations, reads.not_covered.len()), (load.operations(), 0), "{name}");
        // Both sides use the same stamps, so that the sums are equal to the nanosecond.
        assert_eq!(reads.total.sum(), load.latency().sum(), "{name}");
        assert!(
            reads.stages.contains_key(&Stage::Submit) && reads.stages.contains_key(&Stage::Reap),
            "{name}"
        );
        assert_eq!(reads.stages.values().map(|stage| stage.sum()).sum::<u64>(), reads.total.sum(), "{name}");
    }
}

/// Without the generator's stamps, an operation lasts from its system call to the return of the call that brings its
/// result.
#[test]
fn without_them_the_system_calls_count() {
    let Some(disk) = Disk::new(64) else { return };
    let (load, device) = both(&disk, false, &job(&disk, Engine::IoUring, 4, 1));
    let reads = device.ops[&Op::Read].operations.as_ref().unwrap();
    // One more: before it begins, the generator tests whether the device can be read, which may fall into the window.
    assert!(reads.operations >= load.operations());
    assert!(reads.total.sum() < load.latency().sum(), "{} of {}", reads.total.sum(), load.latency().sum());
}
