use std::collections::HashMap;

use serde_json::json;

use super::paths::{self, TimingMethod};
use super::*;
use crate::analyze::fixtures::json;
use crate::analyze::pressure::PressureSummary;
use crate::host::memory_reading::{CpuTotals, DiskTotals, MemoryReading};
use crate::host::vmstat::Vmstat;
use crate::symbols::Names;
use crate::wire::pagecache::{
    Follower, PathSample, Reclaimer, Step, WireIsolated, WirePath, WireReadahead, WireReclaimer,
};
use crate::wire::stacks::{RawProfile, Sample, SampleTotal, Sampler};

/// The kernel's counters, accumulated.
fn kernel(at_ns: u64, scanned: u64, stolen: u64) -> MemoryReading {
    let text = format!(
        "pgscan_file {scanned}\npgscan_anon 0\npgsteal_file {stolen}\npgsteal_anon 0\npgscan_kswapd {}\n\
         pgscan_direct 0\nallocstall_normal 3\npageoutrun 2\nworkingset_refault_file 7\n",
        scanned / 2
    );
    let memory =
        Meminfo::parse("MemFree: 100 kB\nCached: 20 kB\nBuffers: 5 kB\nDirty: 1 kB\nWriteback: 0 kB\n");
    MemoryReading { at_ns, vmstat: Vmstat::parse(&text), memory, ..MemoryReading::default() }
}

fn reading(at_ns: u64, scanned: u64) -> Reading {
    Reading {
        at_ns,
        kernel_before: kernel(at_ns, scanned, scanned / 2),
        kernel_after: kernel(at_ns + 1, scanned, scanned / 2),
        ..Reading::default()
    }
}

fn sample(begun: u64, times: &[u64], scanned: u64) -> ReclaimSample {
    let mut time = Histogram::default();
    times.iter().for_each(|ns| time.record(*ns));
    ReclaimSample {
        begun,
        time,
        batches: 1,
        scanned: [1, scanned],
        reclaimed: [0, scanned / 2],
        ..ReclaimSample::default()
    }
}

/// Two nodes: each kind is the sum over nodes, each node the sum over kinds, and both equal the kernel's counts.
#[test]
fn reclaim_is_summed_by_kind_and_by_node() {
    let start = reading(1_000, 100);
    let mut end = reading(1_001_000, 400);
    end.reclaims.insert((ReclaimKind::Memcg, 0), sample(3, &[10, 20], 200));
    end.reclaims.insert((ReclaimKind::Memcg, 1), sample(1, &[5], 40));
    end.reclaims.insert((ReclaimKind::Kswapd, 1), sample(2, &[50], 60));
    end.isolated.insert(ReclaimKind::Memcg, WireIsolated { looked_at: [2, 240], taken: [2, 230] });
    end.isolated.insert(ReclaimKind::Kswapd, WireIsolated { looked_at: [1, 60], taken: [1, 60] });
    let nodes = [0, 1].map(|node| (node, Meminfo::default()));
    let around = Surroundings { nodes: nodes.into(), ..Surroundings::default() };
    let summary = summarize(&around, &start, &end);
    let memcg = summary.reclaim(ReclaimKind::Memcg);
    assert_eq!(
        (memcg.count, memcg.time.count(), memcg.time.sum(), memcg.scanned_file_pages),
        (4, 3, 35, 240)
    );
    assert_eq!((memcg.scanned_pages, memcg.stolen_pages), (242, 120));
    assert_eq!(summary.scanned, ScannedPages { in_batches: 300, looked_at: 300, taken: 290 });
    assert_eq!(summary.scanned_pages, Some(300));
    assert_eq!(summary.nodes.iter().map(|n| n.scanned_pages).collect::<Vec<_>>(), [201, 102]);
    assert_eq!(
        summary.nodes[1].reclaims,
        BTreeMap::from([(ReclaimKind::Kswapd, 2), (ReclaimKind::Memcg, 1)])
    );
    let scanned = &summary.checks[0];
    assert!(scanned.holds && (scanned.seen, scanned.kernel_min, scanned.kernel_max) == (300, 300, 300));
    assert_eq!(summary.memory.file_bytes, Some(25 << 10));
}

/// A count that differs from the kernel's is reported, where both must be equal.
#[test]
fn a_difference_is_told_where_the_counts_must_be_equal() {
    let (start, mut end) = (reading(0, 0), reading(1_000_000, 100));
    end.isolated.insert(ReclaimKind::Memcg, WireIsolated { looked_at: [0, 99], taken: [0, 99] });
    let check = |lru_gen| {
        summarize(&Surroundings { lru_gen, ..Surroundings::default() }, &start, &end).checks.remove(0)
    };
    assert!(!check(false).holds);
    assert!(check(true).holds && !check(true).exact);
}

#[test]
fn what_the_kernel_does_not_count_is_absent_with_its_reason() {
    let mut end = reading(1_000_000, 100);
    end.kernel_before.vmstat = Vmstat::parse("pgscan_file x\n");
    end.kernel_after = end.kernel_before;
    let summary = summarize(&Surroundings::default(), &reading(0, 0), &end);
    assert_eq!((summary.scanned_pages, summary.stolen_pages), (None, None));
    assert!(summary.absent.iter().any(|a| a.what == "scanned_file" && a.why.contains("pgscan_file")));
    assert_eq!(summary.checks, []);
}

#[test]
fn who_reclaims_is_named_with_the_group() {
    let mut end = reading(1_000_000, 100);
    let who =
        |pid, cgroup| Reclaimer { kind: Some(ReclaimKind::Direct), cgroup, pid, comm: b"a\x1bb".to_vec() };
    end.reclaimers
        .insert(who(7, 40), WireReclaimer { count: 2, ns: 30, max_ns: 20, ..WireReclaimer::default() });
    end.reclaimers
        .insert(who(8, 41), WireReclaimer { count: 1, ns: 90, max_ns: 90, ..WireReclaimer::default() });
    end.reclaimers.insert(who(9, 41), WireReclaimer::default());
    let around = Surroundings { cgroups: [(40, "/a".to_string())].into(), ..Surroundings::default() };
    let summary = summarize(&around, &reading(0, 0), &end);
    let found: Vec<_> =
        summary.reclaimers.iter().map(|r| (r.pid, r.count, r.ns, r.cgroup.as_deref())).collect();
    assert_eq!(found, [(8, 1, 90, None), (7, 2, 30, Some("/a"))]);
    assert_eq!(summary.reclaimers[1].max_ns, Some(20));
    // A maximum that was as long before may not belong to this interval.
    let max_after = |max_ns| {
        let mut start = reading(0, 0);
        let before = WireReclaimer { count: 1, ns: max_ns, max_ns, ..WireReclaimer::default() };
        start.reclaimers.insert(who(7, 40), before);
        let all = summarize(&around, &start, &end).reclaimers;
        all.iter().find(|one| one.pid == 7).unwrap().max_ns
    };
    assert_eq!((max_after(20), max_after(10)), (None, Some(20)));
}

#[test]
fn ios_are_those_that_the_disks_count() {
    let (mut start, mut end) = (reading(0, 0), reading(2_000_000_000, 0));
    let ios = |ios| Some(DiskTotals { ios, ..DiskTotals::default() });
    start.kernel_after.disks = ios(5);
    end.kernel_before.disks = ios(45);
    assert_eq!(summarize(&Surroundings::default(), &start, &end).ios_per_second(), 20.0);
}

/// 100 pages were read ahead and 30 used: 70 were unused, but at most as many as were read. Unknown if the used or the
/// read pages are unknown.
#[test]
fn what_was_read_for_nobody_was_asked_for_read_and_not_wanted() {
    let mut end = reading(1_000_000, 0);
    let disks = |pages: u64| Some((7 + pages) * 4096);
    end.readahead =
        Some(WireReadahead { calls: 4, asked: 100, wanted: 25, faulted: 5, ..WireReadahead::default() });
    (end.readahead_by, end.sees_reads) = (ReadaheadSource::Events, true);
    let mut start = reading(0, 0);
    start.read_bytes = disks(0);
    let of = |end: &Reading| summarize(&Surroundings::default(), &start, end).readahead;
    assert_eq!(of(&end).unwrap().unused_pages, None, "what was read is not known");
    end.read_bytes = disks(500);
    let ahead = of(&end).unwrap();
    assert_eq!((ahead.asked_pages, ahead.wanted_pages, ahead.unused_pages), (100, Some(30), Some(70)));
    // Overlapping read-ahead windows request pages again that are already cached.
    for (read, unused) in [(60, 30), (20, 0)] {
        end.read_bytes = disks(read);
        assert_eq!(of(&end).unwrap().unused_pages, Some(unused));
    }
    // Pages next to a touched one may be used or not: a lower bound, where that is above zero.
    end.read_bytes = disks(500);
    for (mapped, unused) in [(20, Some(50)), (69, Some(1)), (70, None), (900, None)] {
        end.readahead.as_mut().unwrap().mapped = mapped;
        let ahead = of(&end).unwrap();
        assert_eq!((ahead.unused_pages, ahead.mapped_pages), (unused, Some(mapped)));
        assert_eq!(ahead.is_hidden_by_mapping(), unused.is_none());
    }
    end.readahead.as_mut().unwrap().wanted = 100;
    assert_eq!(of(&end).unwrap().unused_pages, Some(0), "none, whatever was mapped");
    end.sees_reads = false;
    assert_eq!(of(&end).unwrap().unused_pages, None);
    end.readahead = None;
    assert_eq!(of(&end), None);
}

fn step(at_ms: u64, scanned: u64, ticks: [u64; 8], read_bytes: u64, reclaims: Option<u64>) -> Step {
    let mut memory = kernel(at_ms * 1_000_000, scanned, scanned / 2);
    memory.cpus = CpuTotals { ticks: Some(ticks), running: Some(3), blocked: Some(16) };
    memory.disks = Some(DiskTotals { read_bytes, written_bytes: 0, ios: read_bytes / 4096 });
    // 10 µs of waiting on each CPU for each page. A millisecond for each tenth of a second.
    Step { memory, reclaims, spin_wait_ns: reclaims.map(|_| scanned * 10_000), cpu_ns: at_ms * 10_000 }
}

#[test]
fn a_step_has_what_changed_in_it() {
    let (start, mut end) = (reading(50_000_000, 0), reading(350_000_000, 0));
    end.series = vec![
        step(0, 0, [0; 8], 0, Some(0)),
        step(100, 10, [0, 0, 0, 100, 0, 0, 0, 0], 4096, Some(1)),
        step(200, 110, [2, 0, 5, 108, 1, 1, 2, 1], 4096 * 11, Some(5)),
        step(300, 110, [2, 0, 5, 108, 1, 1, 2, 1], 4096 * 10, Some(5)),
        step(400, 110, [9; 8], 0, Some(5)),
    ];
    let steps = summarize(&Surroundings::default(), &start, &end).series;
    assert_eq!(steps.len(), 2, "those inside the window");
    let first = steps[0];
    assert_eq!((first.at_ns, first.duration_ns), (150_000_000, 100_000_000));
    assert_eq!((first.read_bytes, first.ios), (Some(40960), Some(10)));
    // Half of it was kswapd's.
    assert_eq!((first.scanned_pages, first.direct_scanned_pages), (Some(100), Some(50)));
    assert_eq!((first.stolen_pages, first.direct_reclaims), (Some(50), Some(4)));
    let shares = (first.system_percent, first.iowait_percent, first.idle_percent);
    assert_eq!(shares, (Some(40.0), Some(5.0), Some(40.0)));
    assert_eq!((first.spin_percent, steps[1].spin_percent), (Some((1.0, 1.0)), Some((0.0, 0.0))));
    assert_eq!((first.running, first.blocked, first.free_bytes), (Some(3), Some(16), Some(100 << 10)));
    // Counters that went back, and CPUs whose time did not advance.
    assert_eq!((steps[1].read_bytes, steps[1].system_percent), (None, None));
}

/// A reading at 250 ms takes the samples up to it, and passes on the start of the one across its edge.
#[test]
fn a_step_over_the_edge_of_two_windows_is_in_the_second() {
    let at = |at_ms| step(at_ms, at_ms, [0; 8], 4096 * at_ms, Some(0));
    let start = reading(50_000_000, 0);
    let mut middle = reading(250_000_000, 0);
    middle.series = vec![at(0), at(100), at(200)];
    let mut end = reading(450_000_000, 0);
    end.series = vec![at(200), at(300), at(400)];
    let of = |start: &Reading, end: &Reading| {
        let steps = summarize(&Surroundings::default(), start, end).series;
        steps.iter().map(|step| (step.at_ns, step.ios)).collect::<Vec<_>>()
    };
    assert_eq!(of(&start, &middle), [(150_000_000, Some(100))]);
    assert_eq!(of(&middle, &end), [(50_000_000, Some(100)), (150_000_000, Some(100))]);
    // The cost of reading them is that of their own intervals, not of the whole run.
    middle.series[1].cpu_ns = 0;
    let cpu =
        |start: &Reading, end: &Reading| summarize(&Surroundings::default(), start, end).series_cpu_percent;
    assert_eq!((cpu(&start, &middle), cpu(&middle, &end)), (Some(2.0), Some(1.0)));
    assert_eq!(cpu(&end, &reading(460_000_000, 0)), None);
}

#[test]
fn a_followed_function_has_its_share_of_spinning() {
    let path = |function, by, calls, ns, spin_ns| PathSample {
        function,
        by,
        counts: WirePath { calls, ns, spins: calls, spin_ns },
    };
    let mut start = reading(0, 0);
    start.paths = vec![path("shrink_lruvec", Follower::Fentry, 1, 100, 50)];
    let mut end = reading(1_000, 0);
    end.paths = vec![
        path("shrink_lruvec", Follower::Fentry, 3, 500, 350),
        path("native_queued_spin_lock_slowpath", Follower::Kprobe, 4, 900, 0),
    ];
    let paths = summarize(&Surroundings::default(), &start, &end).paths;
    let spin = &paths[0];
    assert_eq!((spin.source, spin.spin_ns, spin.spin_ratio), (TimingMethod::Kprobe, (900, 900), None));
    let shrink = &paths[1];
    assert_eq!((shrink.calls, shrink.ns, shrink.spin_ns), (Some(2), 400, (300, 300)));
    assert_eq!((shrink.spin_ratio, shrink.cpu_percent), (Some((3.0, 3.0)), Some(40.0)));
}

fn profile(samples: HashMap<Sample, SampleTotal>) -> RawProfile {
    RawProfile {
        sampler: Sampler::CpuClock,
        frequency: 100,
        cpus: 1,
        duration_ns: 1_000_000_000,
        idle_ns: None,
        samples,
        maps: Default::default(),
        leaders: Default::default(),
        lost: 0,
        damaged: 0,
        map_bytes: 0,
        program_runs: 0,
        program_ns: 0,
    }
}

/// Four samples in shrink_lruvec: one waits for a lock, one is where interrupts are enabled again.
#[test]
fn samples_tell_of_spinning_as_a_range() {
    let functions = [
        (1, "shrink_lruvec"),
        (2, "native_queued_spin_lock_slowpath"),
        (3, "_raw_spin_unlock_irq"),
        (4, "shrink_folio_list.constprop.0"),
        (5, "other"),
    ];
    // Return addresses are looked up one byte before.
    let names = functions.iter().flat_map(|(at, name)| {
        [at * 16, at * 16 - 1].map(|address| (address as u64, vec![(*name).to_string()]))
    });
    let names = Names { kernel: names.collect(), ..Names::default() };
    let sample = |leaf: u64, caller: u64| Sample::new(1, 1, 0, b"dd", &[leaf * 16, caller * 16], &[]);
    let tally = |samples| SampleTotal { samples, ..SampleTotal::default() };
    let samples = [
        (sample(2, 1), tally(1)),
        (sample(3, 1), tally(1)),
        (sample(4, 1), tally(2)),
        (sample(3, 5), tally(9)),
    ];
    let raw = profile(samples.into());
    let paths = paths::sampled(&raw, &names);
    assert_eq!(paths.len(), 2, "{paths:?}");
    let shrink = &paths[0];
    assert_eq!(
        (shrink.function.as_str(), shrink.samples, shrink.source),
        ("shrink_lruvec", Some(4), TimingMethod::Sampled)
    );
    assert_eq!((shrink.ns, shrink.spin_ns), (40_000_000, (10_000_000, 20_000_000)));
    assert_eq!(shrink.spin_ratio, Some((1.0 / 3.0, 1.0)));
    assert_eq!((paths[1].function.as_str(), paths[1].samples), ("shrink_folio_list", Some(2)));
    assert!(paths::sampled(&profile(HashMap::new()), &names).is_empty());
}

#[test]
fn its_json_is_read_back_and_has_the_keys_of_the_contract() {
    let mut end = reading(1_000_000, 100);
    end.reclaims.insert((ReclaimKind::Softlimit, 0), sample(1, &[5], 40));
    let summary = summarize(&Surroundings::default(), &reading(0, 0), &end);
    let path = PathSummary { spin_ns: (1, 2), spin_ratio: Some((0.5, 1.0)), ..PathSummary::default() };
    let moment = MemorySample { at_ns: 1, spin_percent: Some((0.5, 1.5)), ..MemorySample::default() };
    let all = PagecacheSummary {
        nodes: vec![NodeSummary { zones: vec![Zone::default()], ..NodeSummary::default() }],
        paths: vec![path],
        series: vec![moment],
        ..summary
    };
    let all = json(&PressureSummary { pagecache: Some(all), locks: None })["pagecache"].take();
    let (free, file, of) = (&all["free_bytes"], &all["file_bytes"], &all["counters"]["scanned_file"]);
    assert_eq!((free, file, of), (&json!(102_400), &json!(25_600), &json!({"min": 100, "max": 100})));
    assert_eq!((&all["lru"], &all["seen"]["taken_file_pages"]), (&json!("two lists"), &json!(0)));
    let check = json!({
        "what": "file pages scanned", "seen": 0, "kernel_min": 100, "kernel_max": 100, "exact": true, "holds": false,
    });
    assert_eq!(all["checks"][0], check);
    let kinds: Vec<&String> = all["reclaims"].as_object().unwrap().keys().collect();
    assert_eq!(kinds, ["direct", "kswapd", "memcg", "softlimit"]);
    let softlimit = &all["reclaims"]["softlimit"];
    assert_eq!((&softlimit["ns"], &softlimit["histogram"]["sum_ns"]), (&json!(5), &json!(5)));
    assert_eq!((&all["onset"], &all["more_reclaimers"]), (&json!(null), &json!(0)));
    assert!(all["absent"].as_array().unwrap().iter().any(|absent| absent["what"] == "onset"));
    assert_eq!(
        (&all["paths"][0]["spin_ns"], &all["paths"][0]["spin_ratio"]),
        (&json!([1, 2]), &json!([0.5, 1.0]))
    );
    assert_eq!(all["nodes"][0]["zones"][0]["zone"], "");
    assert_eq!(all["series"][0]["spin_percent"], json!([0.5, 1.5]));
}

/// Merging two intervals gives the same as their whole.
#[test]
fn intervals_are_merged() {
    let around = Surroundings::default();
    let [a, b, c] = [(0, 100), (1_000_000, 400), (2_000_000, 900)].map(|(at_ns, scanned)| {
        let mut reading = reading(at_ns, scanned);
        let who = Reclaimer { kind: Some(ReclaimKind::Direct), cgroup: 40, pid: 7, comm: b"dd".to_vec() };
        let (count, ns) = (scanned / 100, scanned);
        reading.reclaimers.insert(who, WireReclaimer { count, ns, max_ns: ns, ..WireReclaimer::default() });
        reading.reclaims.insert((ReclaimKind::Memcg, 0), sample(scanned, &[10], scanned));
        reading
    });
    let mut merged = summarize(&around, &a, &b);
    merged.merge_with(&summarize(&around, &b, &c));
    merged.settle();
    let whole = summarize(&around, &a, &c);
    assert_eq!(merged.reclaimers, whole.reclaimers);
    assert_eq!((merged.checks, merged.counters), (whole.checks, whole.counters));
    assert_eq!((merged.scanned_pages, merged.absent), (Some(800), whole.absent));
    assert_eq!(merged.reclaims[&ReclaimKind::Memcg].count, whole.reclaims[&ReclaimKind::Memcg].count);
    let moment = |at_ns| PagecacheSummary {
        duration_ns: 10,
        series: vec![MemorySample { at_ns, ..MemorySample::default() }],
        ..PagecacheSummary::default()
    };
    let mut both = moment(7);
    both.merge_with(&moment(3));
    assert_eq!(both.series.iter().map(|moment| moment.at_ns).collect::<Vec<_>>(), [7, 13]);
}
