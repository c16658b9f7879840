//! Tests with literal readings and published figures.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::analyze::fixtures::{json, not_doubled};
use crate::host::interrupts::InterruptLine;
use crate::wire::interrupts::{QUEUE_UNKNOWN, WireQueue};

/// A drive with vectors 40 (admin), 41 and 42, its host and two readings: an empty one, and one that the test fills.
struct Window {
    host: Host,
    start: Reading,
    end: Reading,
}

fn carried(each: &[u64]) -> VectorSample {
    let mut sample = VectorSample { interrupts: each.len() as u64, ..VectorSample::default() };
    for n in each {
        sample.carried.record(*n);
        sample.completions += n;
    }
    sample.queue = Some(0);
    sample
}

fn table(counts: &[(u32, u32)], notifications: u32) -> Interrupts {
    let line = |n: u32| InterruptLine { counts: BTreeMap::from([(0, n)]), msi: true };
    Interrupts {
        lines: counts.iter().map(|(irq, n)| (*irq, line(*n))).collect(),
        named: BTreeMap::from([("PMN".to_string(), BTreeMap::from([(0, notifications)]))]),
    }
}

impl Window {
    fn new() -> Self {
        let vector =
            |irq, queue: Option<u32>| Vector { irq, queue, cpus: vec![irq - 40], ..Vector::default() };
        let device = BlockDevice {
            name: "nvme0n1".into(),
            driver: Some("nvme".into()),
            pci_address: Some("0000:01:00.0".into()),
            vectors: vec![vector(40, None), vector(41, Some(0)), vector(42, Some(1))],
            ..BlockDevice::default()
        };
        let by_reap = WireQueue { kind: QUEUE_BY_REAP, ..WireQueue::default() };
        let sample = DeviceSample {
            name: "nvme0n1".into(),
            queues: vec![by_reap; 2],
            by_cpu: vec![WireCompletions::default(); 4],
            kernel_before: Some(Counters::default()),
            kernel_after: Some(Counters::default()),
            ..DeviceSample::default()
        };
        let at = |irq| {
            (InterruptSource::Vector(irq), VectorSample { by_cpu: vec![0; 4], ..VectorSample::default() })
        };
        let zero = table(&[(40, 0), (41, 0), (42, 0)], 0);
        let start = Reading {
            places: vec![at(40), at(41), at(42)],
            devices: vec![sample],
            softirqs: vec![SoftirqSample::default(); 4],
            kernel_before: Some(zero.clone()),
            kernel_after: Some(zero),
            ..Reading::default()
        };
        let end = Reading { at_ns: 1_000_000_000, ..start.clone() };
        Self { host: Host { devices: vec![device], ..Host::default() }, start, end }
    }

    fn kernel(&mut self, counts: &[(u32, u32)]) {
        self.end.kernel_before = Some(table(counts, 0));
        self.end.kernel_after = self.end.kernel_before.clone();
    }

    fn ios(&mut self, n: u64) {
        self.end.devices[0].by_cpu[1].ios[0] = n;
        self.end.devices[0].by_cpu[1].contexts[0] = n;
        let counted = Counters { reads: n, ..Counters::default() };
        self.end.devices[0].kernel_before = Some(counted);
        self.end.devices[0].kernel_after = Some(counted);
    }

    fn summary(&self) -> InterruptSummary {
        summarize(&self.host, &self.start, &self.end)
    }
}

#[test]
fn ios_per_interrupt_are_those_of_the_queues_vectors() {
    let mut window = Window::new();
    window.end.places[0].1 = VectorSample { interrupts: 7, queue: None, ..VectorSample::default() };
    window.end.places[1].1 = VectorSample { by_cpu: vec![0, 2], ..carried(&[3, 0]) };
    window.end.places[2].1 = VectorSample { queue: Some(1), by_cpu: vec![0, 0, 1], ..carried(&[5]) };
    window.kernel(&[(40, 7), (41, 2), (42, 1)]);
    window.ios(8);
    let summary = window.summary();
    let device = &summary.devices[0];
    assert_eq!((device.ios, device.interrupts), (8, Some(3)), "the admin queue's are none of I/Os");
    assert_eq!(device.ios_per_interrupt, Some(8.0 / 3.0));
    assert_eq!(device.busiest, Some(Busiest { cpu: 1, share: 2.0 / 3.0, cpus: 2 }));
    let first = &summary.vectors[1];
    assert_eq!((first.irq, first.queue, first.queue_known_by), (41, Some(0), Some(KnownBy::Pointer)));
    let carried = first.carried.as_ref().unwrap();
    assert_eq!((carried.completions, carried.empty, carried.per_interrupt.max()), (3, 1, Some(3)));
    assert_eq!(first.by_cpu, [CpuInterrupts { cpu: 1, interrupts: 2 }]);
    assert!(summary.vectors.iter().all(|vector| vector.kernel_check() == Some(true)));
    let lost = trust::lost(&summary, &window.start, &window.end);
    assert_eq!((lost.ios, lost.events), (0, 0));
    assert_eq!(trust::distrust(&summary, &lost, 0.1), None);
}

#[test]
fn what_the_kernel_counted_and_nobody_saw_is_lost() {
    let mut window = Window::new();
    window.end.places[1].1 = carried(&[1; 99]);
    window.kernel(&[(40, 0), (41, 100), (42, 0)]);
    window.ios(99);
    window.end.devices[0].kernel_before = Some(Counters { reads: 102, ..Counters::default() });
    window.end.devices[0].kernel_after = window.end.devices[0].kernel_before;
    let summary = window.summary();
    let lost = trust::lost(&summary, &window.start, &window.end);
    assert_eq!((lost.ios, lost.events), (3, 1));
    let why = trust::distrust(&summary, &lost, 0.1).unwrap();
    assert!(why.starts_with("3 of 102 I/Os (2.94 %) were missed, more than --max-loss 0.1 %"), "{why}");
    assert_eq!(trust::distrust(&summary, &lost, 3.0), None);
}

#[test]
fn more_than_the_kernel_has_is_not_to_be_trusted() {
    let mut window = Window::new();
    window.end.places[1].1 = carried(&[1; 10]);
    window.kernel(&[(40, 0), (41, 9), (42, 0)]);
    window.ios(10);
    let summary = window.summary();
    let lost = trust::lost(&summary, &window.start, &window.end);
    let why = trust::distrust(&summary, &lost, 0.1).unwrap();
    assert!(why.starts_with("interrupt 41: 1 more were measured than /proc/interrupts counted"), "{why}");
}

/// Without the driver's event and without names, the I/Os per interrupt are unknown, which is not zero.
#[test]
fn what_is_not_joined_is_absent() {
    let mut window = Window::new();
    for reading in [&mut window.start, &mut window.end] {
        for queue in &mut reading.devices[0].queues {
            queue.kind = QUEUE_UNKNOWN;
        }
    }
    window.end.places[1].1 = VectorSample { interrupts: 4, ..VectorSample::default() };
    window.ios(8);
    let summary = window.summary();
    assert!(summary.vectors.iter().all(|vector| vector.carried.is_none()));
    assert_eq!(summary.devices[0].ios_per_interrupt, Some(2.0), "the device as a whole is known");
}

/// Two namespaces of one controller: each interrupt completes entries of both.
#[test]
fn namespaces_share_their_interrupts() {
    let mut window = Window::new();
    let mut second = window.host.devices[0].clone();
    second.name = "nvme0n2".into();
    window.host.devices.push(second);
    for reading in [&mut window.start, &mut window.end] {
        let second = DeviceSample { name: "nvme0n2".into(), ..reading.devices[0].clone() };
        reading.devices.push(second);
    }
    window.end.places[1].1 = carried(&[2; 10]);
    window.ios(15);
    window.end.devices[1].by_cpu[0].ios[0] = 5;
    let summary = window.summary();
    for device in &summary.devices {
        assert_eq!((device.interrupts, device.ios_per_interrupt), (Some(10), Some(2.0)), "{}", device.name);
    }
    assert_eq!(summary.devices[0].shares_vectors_with, ["nvme0n2"]);
}

/// A handler of 2 us, 1,000 times per second, takes 0.2 % of a CPU, at any sampling rate.
#[test]
fn cpu_time_is_that_of_the_sample_times_the_count() {
    let mut window = Window::new();
    let mut sample = carried(&[1; 1000]);
    sample.handler.record_many(2_000, 125);
    window.end.places[1].1 = sample;
    window.end.softirqs[0] = SoftirqSample { runs: 100, deferred: 1, timed: 10, timed_ns: 50_000, others: 0 };
    window.ios(1000);
    window.end.devices[0].by_cpu[1].contexts = [0, 1000, 0];
    let summary = window.summary();
    let percent = summary.devices[0].hard_percent.unwrap();
    assert!((percent - 0.2).abs() < 1e-9, "{percent}");
    assert_eq!(summary.devices[0].soft_percent, summary.softirq.cpu_percent);
    assert!((summary.softirq.cpu_percent.unwrap() - 0.05).abs() < 1e-9);
    assert_eq!((summary.softirq.runs, summary.softirq.deferred), (100, 1));
}

/// Figures of two posts: four and five drives, with and without posted MSI. Millions of I/Os and of interrupts.
#[test]
fn the_published_ios_per_interrupt() {
    let cases = [
        (14.37, 2.82, 2, "5.10"),
        (14.90, 2.34, 2, "6.37"),
        (21.44, 3.70, 1, "5.8"),
        (21.89, 3.70, 1, "5.9"),
    ];
    for (ios, interrupts, digits, shown) in cases {
        let mut window = Window::new();
        let millions = |n: f64| (n * 1e6).round() as u64;
        window.end.places[1].1 =
            VectorSample { interrupts: millions(interrupts), completions: millions(ios), ..carried(&[]) };
        window.ios(millions(ios));
        let each = window.summary().devices[0].ios_per_interrupt.unwrap();
        assert_eq!(format!("{each:.digits$}"), shown);
    }
}

/// Polled completions belong to no interrupt.
#[test]
fn what_was_polled_is_no_interrupts() {
    let mut window = Window::new();
    window.end.places[1].1 = carried(&[1]);
    window.ios(1000);
    window.end.devices[0].by_cpu[1].contexts = [1, 0, 0];
    let device = &window.summary().devices[0];
    assert_eq!((device.completed.task, device.ios_per_interrupt), (999, Some(1.0)));
}

/// Half of the completions in softirqs belong to disks that were not selected.
#[test]
fn softirqs_are_shared_with_disks_that_are_not_traced() {
    let mut window = Window::new();
    window.end.softirqs[0] =
        SoftirqSample { runs: 100, timed: 10, timed_ns: 50_000, others: 1000, deferred: 0 };
    window.ios(1000);
    window.end.devices[0].by_cpu[1].contexts = [0, 1000, 0];
    let summary = window.summary();
    let soft = summary.devices[0].soft_percent.unwrap();
    assert!((soft - summary.softirq.cpu_percent.unwrap() / 2.0).abs() < 1e-9, "{soft}");
}

/// A namespace that is not traced completes entries in the same interrupts.
#[test]
fn a_neighbour_on_the_same_vectors_is_named() {
    let mut window = Window::new();
    let mut second = window.host.devices[0].clone();
    second.name = "nvme0n2".into();
    window.host.devices.push(second);
    window.end.places[1].1 = carried(&[4; 10]);
    window.ios(10);
    let device = &window.summary().devices[0];
    assert_eq!(
        (device.shares_vectors_with.as_slice(), device.ios_per_interrupt),
        (&["nvme0n2".to_string()][..], Some(4.0))
    );
}

#[test]
fn its_json_is_read_back_and_has_the_keys_of_the_contract() {
    let hist = |n: u64| Histogram::from_iter([n; 3]);
    let carried = CompletionCounts { completions: 9, empty: 1, per_interrupt: hist(3) };
    let vector = VectorSummary {
        irq: 41,
        name: Some("nvme0q1".to_string()),
        devices: vec!["nvme0n1".to_string(), "nvme0n2".to_string()],
        queue: Some(0),
        qid: Some(1),
        queue_known_by: Some(KnownBy::Pointer),
        cpus: vec![1],
        allowed: vec![0, 1],
        interrupts: 4,
        kernel: Some(Bracket { min: 4, max: 6 }),
        by_cpu: vec![CpuInterrupts { cpu: 1, interrupts: 4 }],
        carried: Some(carried),
        handler: hist(1_000),
        interrupted: InterruptedContexts { idle: 2, kernel: 1, user: 0 },
        ..VectorSummary::default()
    };
    let admin = VectorSummary { irq: 40, ..VectorSummary::default() };
    let device = DeviceInterrupts {
        name: "nvme0n1".to_string(),
        ios: 9,
        kernel_ios: Some(Bracket { min: 8, max: 10 }),
        interrupts: Some(4),
        ios_per_interrupt: Some(2.25),
        completed: CompletionContexts { interrupt: 5, softirq: 1, remote_softirq: 2, task: 1 },
        elsewhere: 7,
        hard_percent: Some(0.5),
        busiest: Some(Busiest { cpu: 1, share: 1.0, cpus: 1 }),
        coalescing: Some(Coalescing { completions: 8, time_us: 100 }),
        ..DeviceInterrupts::default()
    };
    let summary = InterruptSummary {
        duration_ns: 2_000_000,
        vectors: vec![vector.derived(2_000_000), admin.derived(2_000_000)],
        polled: vec![PollSummary { queue: 3, polls: 2, per_poll: hist(4), ..PollSummary::default() }],
        softirq: Softirq { runs: 3, completions: 1, mean_ns: Some(70.0), ..Softirq::default() },
        ipi: Ipi { completions: 2 },
        posted: PostedMsi::new(78, 100, 200, 1.0),
        devices: vec![device, DeviceInterrupts { name: "sda".to_string(), ..DeviceInterrupts::default() }],
        tasks: vec![Task { comm: "fio".to_string(), samples: 5 }],
        ..InterruptSummary::default()
    };
    let mut all = json(&summary.timed_one_of(8));
    assert_eq!((&all["timed_one_of"], &all["interrupted_tasks_one_of"]), (&json!(8), &json!(NAME_EVERY)));
    assert_eq!(all["softirq"]["completions"], 1);
    assert_eq!(all["ipi"], json!({"completions": 2}));
    assert_eq!(all["posted_msi"]["msis"], 100);
    assert_eq!(all["interrupted_tasks"], json!([{"comm": "fio", "samples": 5}]));
    let polled = &all["polled"][0];
    assert_eq!((&polled["device"], &polled["completions_per_poll"]["sum"]), (&Value::Null, &json!(12)));
    let (mut one, admin) = (all["vectors"][0].take(), &all["vectors"][1]);
    assert_eq!(one["completions_per_interrupt"]["sum"].take(), 9);
    assert_eq!(one["handler"]["sum_ns"].take(), 3_000);
    assert!(one["apart"].take().is_object());
    let expected = json!({
        "irq": 41, "name": "nvme0q1", "device": "nvme0n1", "devices": ["nvme0n1", "nvme0n2"], "queue": 0, "qid": 1,
        "queue_known_by": "pointer", "cpus": [1], "allowed_cpus": [0, 1], "interrupts": 4,
        "by_cpu": [{"cpu": 1, "interrupts": 4}], "kernel_interrupts_min": 4, "kernel_interrupts_max": 6,
        "per_second": 2_000.0, "unhandled": 0, "threaded": 0, "completions": 9, "empty": 1, "cpu_percent": 0.2,
        "interrupted": {"idle": 2, "kernel": 1, "user": 0},
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&one[key], value, "{key}");
    }
    assert!(admin.get("completions").is_none() && admin.get("kernel_interrupts_min").is_none());
    assert!(admin["queue_known_by"].is_null() && admin["cpu_percent"].is_null() && admin["device"].is_null());
    let (one, other) = (&all["devices"][0], &all["devices"][1]);
    let expected = json!({
        "name": "nvme0n1", "ios": 9, "passthrough": 0, "kernel_ios_min": 8, "kernel_ios_max": 10, "interrupts": 4,
        "ios_per_interrupt": 2.25, "coalescing": {"completions": 8, "time_us": 100}, "shares_vectors_with": [],
        "completed": {"interrupt": 5, "softirq": 1, "remote_softirq": 2, "task": 1}, "reaped_elsewhere": 7,
        "hard_cpu_percent": 0.5, "soft_cpu_percent": null, "busiest": {"cpu": 1, "share": 1.0, "cpus": 1},
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&one[key], value, "{key}");
    }
    for key in ["kernel_ios_max", "interrupts", "coalescing"] {
        assert!(other.get(key).is_none(), "{key}");
    }
}

/// Two equal intervals have doubled counts over doubled time.
#[test]
fn intervals_are_merged() {
    let mut window = Window::new();
    window.end.places[1].1 = VectorSample { by_cpu: vec![0, 2], ..carried(&[3, 0]) };
    window.end.places[1].1.handler.record(900);
    window.end.places[2].1 = VectorSample { queue: Some(1), by_cpu: vec![0, 0, 1], ..carried(&[5]) };
    window.end.softirqs[1] =
        SoftirqSample { runs: 4, deferred: 1, timed: 2, timed_ns: 500, ..SoftirqSample::default() };
    window.kernel(&[(40, 0), (41, 2), (42, 1)]);
    window.ios(8);
    let same = [
        "irq",
        "queue",
        "qid",
        "cpus",
        "allowed_cpus",
        "cpu",
        "per_second",
        "cpu_percent",
        "mean_ns",
        "share",
        "ios_per_interrupt",
        "hard_cpu_percent",
        "soft_cpu_percent",
        "timed_one_of",
        "interrupted_tasks_one_of",
        "min",
        "max",
        "p90",
        "p99",
        "p999",
        "p9999",
    ];
    assert_eq!(not_doubled(&window.summary(), &same), Vec::<String>::new());
}

/// If the driver's pointer is known only in the second interval, the queue is still valid for both.
#[test]
fn intervals_are_merged_to_their_window() {
    for (by_name, first) in [(true, [3, 2]), (true, [3, 0]), (false, [3, 0])] {
        let mut window = Window::new();
        if !by_name {
            window.host.devices[0].vectors.iter_mut().for_each(|vector| vector.queue = None);
        }
        let mut reading = |at_ns, [one, two]: [u32; 2]| {
            for (place, n) in [(1, one), (2, two)] {
                let mut sample = carried(&vec![1; n as usize]);
                sample.queue = (n > 0).then_some(place as u32 - 1);
                sample.by_cpu = vec![u64::from(n), 0, 0, 0];
                (0..n).for_each(|_| sample.handler.record(1_000));
                window.end.places[place].1 = sample;
            }
            window.kernel(&[(40, 0), (41, one), (42, two)]);
            window.ios(u64::from(one + two));
            window.end.at_ns = at_ns;
            window.end.clone()
        };
        let [mid, end] = [reading(1_000_000_000, first), reading(4_000_000_000, [8, 6])];
        let mut merged = summarize(&window.host, &window.start, &mid);
        merged.merge_with(&summarize(&window.host, &mid, &end));
        merged.settle();
        assert_eq!(json(&merged), json(&summarize(&window.host, &window.start, &end)), "{by_name} {first:?}");
    }
}
