//! Tests reclaim on the running kernel against the kernel's own counts. Needs root, loop devices, and a cgroup of the
//! memory controller.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::live::cgroup::Group;
use crate::live::disk::Disk;
use crate::live::events::Counted;
use crate::live::view::number;
use crate::support::tool::{object, objects, quiet, refused, run, symbolizer};
use biopsy::analyze::pagecache::{PagecacheSummary, paths, summarize};
use biopsy::analyze::stacks::addresses;
use biopsy::envelope::Reason;
use biopsy::host::Host;
use biopsy::host::memory_surroundings::Surroundings;
use biopsy::probe::Probe;
use biopsy::probe::pagecache::{Options, PagecacheProbe};
use biopsy::probe::stacks::StacksProbe;
use biopsy::wire::pagecache::ReclaimKind;

const THREADS: u64 = 16;

/// Reads the whole disk in sixteen threads through the page cache, in pieces of 128 KiB.
fn read_all(disk: &Disk, length: Duration) {
    let until = Instant::now() + length;
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || {
                let file = File::open(&disk.path).unwrap();
                let mut buffer = vec![0; 128 << 10];
                let mut at = disk.bytes / THREADS * number;
                while Instant::now() < until {
                    at = (at + file.read_at(&mut buffer, at).unwrap() as u64) % disk.bytes;
                }
            });
        }
    });
}

/// Sixteen readers of a disk that is larger than their memory limit.
#[test]
fn reclaim_within_a_groups_limit_is_the_kernels_own_count() {
    let Some(disk) = Disk::new(1024) else { return };
    let Some(group) = Group::with_memory("biopsy-memory", 256 << 20) else { return };
    let begins = "vmscan/mm_vmscan_memcg_reclaim_begin";
    let Some(counted) = Counted::new(begins) else { return };
    let host = Host::read(Path::new("/")).unwrap();
    let options = Options { devices: vec![disk.name.clone()], functions: true, cost: true };
    // The counts of the event itself, a to d: before and after attaching, before and after detaching.
    let a = counted.hits();
    let mut probe = PagecacheProbe::attach(&host, Path::new("/"), &options, None).unwrap();
    let samples = StacksProbe::attach(499).unwrap();
    let b = counted.hits();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| group.process_within(|| read_all(&disk, Duration::from_secs(4))));
        assert!(!probe.wait(None, Duration::MAX, &|| load.is_finished()));
    });
    let c = counted.hits();
    let end = probe.detach().unwrap();
    let d = counted.hits();
    let raw = samples.finish().unwrap();
    let around = Surroundings::read(Path::new("/"), &host);
    let summary = summarize(&around, probe.start(), &end);
    let lost = summary.lost["no_room"] + summary.lost["missed"];

    let memcg = summary.reclaim(ReclaimKind::Memcg);
    println!("memcg reclaims {} of {} to {}, lost {:?}", memcg.count, c - b, d - a, summary.lost);
    assert!(c > b, "nobody reclaimed");
    assert!(c - b <= memcg.count + lost && memcg.count <= d - a, "{} of {} to {}", memcg.count, c - b, d - a);
    // All reclaims have ended, so that their times are known.
    assert!(memcg.time.count() <= memcg.count && memcg.time.count() + lost >= memcg.count, "{memcg:?}");
    assert!(memcg.time.sum() > 0 && memcg.time.min() > Some(0));

    pages(&summary, lost);
    owners(&summary, &group);
    series(&summary);
    assert_eq!(summary.reclaim(ReclaimKind::Other).count, 0);
    let cost = probe.cost(1000.0);
    println!(
        "cost {:?} ns per I/O, {:?} % of a CPU for the series",
        cost.ns_per_io, summary.series_cpu_percent
    );
    let each = cost.net_per_run(&["memcg_reclaim_begin", "memcg_reclaim_end"]);
    println!(
        "ns per reclaim {each:?}, per batch {:?}",
        cost.net_per_run(&["lru_shrink_inactive", "lru_isolate"])
    );
    for program in &cost.programs {
        println!("{}: {} runs, {} ns each", program.name, program.runs, program.ns / program.runs.max(1));
    }

    // If no probe can be attached to functions of this kernel, the samples say where the time went.
    let sampled = paths::sampled(&raw, &symbolizer().names(&addresses(&raw)));
    for path in &sampled {
        println!("{} {} ns, spinning {:?} ns, {:?}", path.function, path.ns, path.spin_ns, path.spin_ratio);
    }
    if probe.follows_functions() {
        assert!(summary.paths.len() >= 4, "{:?}", summary.paths);
        let is_path = |name: &str| summary.paths.iter().any(|path| path.function == name);
        assert!(cost.programs.iter().any(|program| is_path(&program.name)), "their cost is counted");
    } else {
        let gap = probe.missing().iter().find(|gap| gap.part.as_deref() == Some("paths")).unwrap();
        assert_eq!((gap.reason, summary.paths.len()), (Reason::Refused, 0));
        assert!(sampled.iter().any(|path| path.function == "shrink_lruvec" && path.ns > 0), "{sampled:?}");
    }
    assert!(sampled.iter().all(|path| path.spin_ns.0 <= path.spin_ns.1 && path.spin_ns.1 <= path.ns));
}

/// Compares the pages by the kernel's counter, by the events of the batches, and by the events of taking pages from the
/// lists.
fn pages(summary: &PagecacheSummary, lost: u64) {
    let kernel = summary.counters["scanned_file"].unwrap();
    let seen = summary.scanned;
    println!("pages scanned: kernel {kernel:?}, seen {seen:?}");
    assert!(kernel.min > 0);
    assert_eq!(summary.scanned_pages, Some(kernel.min));
    if lost == 0 {
        assert!(summary.checks.iter().all(|check| check.holds), "{:?}", summary.checks);
        // If no page could be taken there is no batch event, but the kernel still counts the pages that it scanned.
        assert!(
            seen.in_batches <= seen.looked_at && seen.in_batches * 100 >= seen.looked_at * 99,
            "{seen:?}"
        );
    }
    let by_node: u64 = summary.nodes.iter().map(|node| node.scanned_pages).sum();
    let by_kind: u64 = summary.reclaims.values().map(|one| one.scanned_pages).sum();
    assert_eq!(by_node, by_kind);
    let memcg = summary.reclaim(ReclaimKind::Memcg);
    assert!(memcg.scanned_file_pages * 10 >= seen.in_batches * 9, "{memcg:?}");
    assert!(memcg.stolen_file_pages > 0 && memcg.stolen_file_pages <= memcg.scanned_file_pages);
    let ahead = summary.readahead.unwrap();
    println!("read-ahead {ahead:?}");
    // Nothing else reads into the cache here; some of the pages that read-ahead asked for may already be there.
    let read: u64 = summary.series.iter().filter_map(|moment| moment.read_bytes).sum();
    assert!(ahead.asked_pages * 4096 * 10 >= read * 9, "{ahead:?}, {read} bytes read");
}

/// Checks that this process is the owner, in its cgroup.
fn owners(summary: &PagecacheSummary, group: &Group) {
    let name = format!("/{}", group.path().file_name().unwrap().to_str().unwrap());
    let ours = summary.reclaimers.iter().filter(|one| one.pid == std::process::id());
    let ours: Vec<_> = ours.filter(|one| one.kind == Some(ReclaimKind::Memcg)).collect();
    assert!(!ours.is_empty(), "{:?}", summary.reclaimers);
    assert!(ours.iter().all(|one| one.cgroup.as_deref() == Some(name.as_str())), "{ours:?}");
    let all: u64 = summary.reclaimers.iter().map(|one| one.count).sum();
    let ended: u64 = summary.reclaims.values().map(|one| one.time.count()).sum();
    assert_eq!(all, ended, "{:?}", summary.reclaimers);
}

/// Checks that there are ten steps per second, which sum up to the whole.
fn series(summary: &PagecacheSummary) {
    let steps = &summary.series;
    assert!(steps.len() >= 20, "{} steps in {} ns", steps.len(), summary.duration_ns);
    let sum = |of: fn(&biopsy::analyze::memory_sample::MemorySample) -> Option<u64>| -> u64 {
        steps.iter().map(|step| of(step).unwrap()).sum()
    };
    let max = summary.counters["scanned_file"].unwrap().max + summary.counters["scanned_anon"].unwrap().max;
    let scanned = sum(|step| step.scanned_pages);
    assert!(scanned > 0 && scanned <= max, "{scanned} of {max}");
    // All scanned pages are from direct reclaim by tasks.
    assert_eq!(sum(|step| step.direct_scanned_pages), scanned);
    let memcg = summary.reclaim(ReclaimKind::Memcg).count;
    let reclaims = sum(|step| step.direct_reclaims);
    assert!(reclaims > 0 && reclaims <= memcg, "{reclaims} of {memcg}");
    assert!(sum(|step| step.read_bytes) > 64 << 20);
    for step in steps {
        let shares = [step.system_percent, step.iowait_percent, step.idle_percent].map(Option::unwrap);
        assert!(shares.iter().all(|share| (0.0..=100.0).contains(share)), "{step:?}");
        assert!(shares.iter().sum::<f64>() <= 100.1 && step.free_bytes.unwrap() > 0, "{step:?}");
    }
}

/// The series of steps goes on across intervals, and each step is in one of them.
#[test]
fn each_interval_has_its_own_steps() {
    let Some(disk) = Disk::new(64) else { return };
    let output = run(&["locks", "-d", &disk.name, "2", "3", "--max-loss", "100", "--json"]);
    let pieces = objects(&output, "biopsy.locks/1");
    assert_eq!(pieces.len(), 3);
    for piece in &pieces {
        let steps = piece["pagecache"]["series"].as_array().unwrap();
        let ns: u64 = steps.iter().map(|step| number(&step["duration_ns"])).sum();
        let all = number(&piece["duration_ns"]);
        assert!(ns * 10 >= all * 7 && ns * 10 <= all * 13, "{ns} of {all}");
    }
}

/// The command prints the same values, and what it cannot see.
#[test]
fn the_view_has_the_contracts_keys() {
    let Some(disk) = Disk::new(64) else { return };
    let output = run(&["locks", "-d", &disk.name, "--for", "500ms", "--json"]);
    quiet(&output);
    let view = object(&output, "biopsy.locks/1");
    let cache = view["pagecache"].as_object().unwrap();
    for key in
        ["free_bytes", "file_bytes", "buffers_bytes", "dirty_bytes", "writeback_bytes", "scanned_pages"]
    {
        assert!(cache[key].is_u64(), "{key}: {}", cache[key]);
    }
    for kind in ["kswapd", "direct", "memcg"] {
        let one = &cache["reclaims"][kind];
        assert!(one["count"].is_u64() && one["ns"].is_u64() && one["histogram"]["count"].is_u64(), "{one}");
    }
    assert!(cache["onset"].is_null() && !cache["series"].as_array().unwrap().is_empty());
    assert!(!cache["nodes"].as_array().unwrap().is_empty());
    refused(&run(&["locks", "-d", "nosuch", "--for", "1s"]), 3, &["nosuch"]);
}
