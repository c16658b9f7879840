//! Tests that the report is self-contained, safe against hostile names, and complete. The examples that these tests
//! render are left in `CARGO_TARGET_TMPDIR` for inspection.

use std::collections::BTreeMap;

use biopsy::analyze::counting::Bracket;
use biopsy::analyze::cpu::{CounterTotals, CpuRow, CpuSummary};
use biopsy::analyze::interrupts::posted::PostedMsi;
use biopsy::analyze::interrupts::{
    CompletionContexts, CompletionCounts, CpuInterrupts, DeviceInterrupts, InterruptSummary, VectorSummary,
};
use biopsy::analyze::latency::{DeviceLatency, LatencySummary, OpLatency};
use biopsy::analyze::op::{KernelClass, Op};
use biopsy::analyze::parts::Part;
use biopsy::analyze::profile::{Unit, folded};
use biopsy::analyze::queues::QueueLatency;
use biopsy::analyze::stacks::{CpuClass, ProfileSummary};
use biopsy::analyze::stage::Stage;
use biopsy::envelope::{Cost, Envelope, FramedView, Missing, ProgramCost, Reason};
use biopsy::hist::Histogram;
use biopsy::host::{BlockDevice, HardwareQueue, Host};
use biopsy::load::{DriveScaling, Fill, Job, JobResult, LoadSummary, RingWorkers, Scaling, Target, Transfer};
use biopsy::render::{flame, html, json, text};
use biopsy::rules::summary::DiagnosisSummary;
use biopsy::rules::{self, Summaries};

const HOSTILE: &str = "</script><img src=https://evil.example onerror=\"x\" '&\u{202e}";
const SECOND: u64 = 1_000_000_000;

struct Case {
    envelope: Envelope,
    host: Host,
    latency: LatencySummary,
    load: Option<LoadSummary>,
    scaling: Option<Scaling>,
    cpu: Option<CpuSummary>,
    profile: Option<ProfileSummary>,
    interrupts: Option<InterruptSummary>,
    flame: bool,
    command: String,
    command_status: Option<i32>,
}

/// A deterministic distribution around `centre`: a lognormal body, and a tail with every `tail`th value.
fn spread(seed: u64, count: u64, centre: f64, tail: u64) -> Histogram {
    let mut hist = Histogram::default();
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    for i in 0..count {
        // The sum of three uniform numbers is close enough to a normal distribution.
        let bell = next() + next() + next() - 1.5;
        let mut value = centre * (bell * 0.9).exp2();
        if i % tail == tail - 1 {
            value *= 4.0 + 12.0 * next();
        }
        hist.record(value as u64);
    }
    hist
}

/// A virtual disk with 32 random reads of 4 KiB in flight: what the demo shows on a rented machine.
fn virtio() -> Case {
    let ios = 153_274;
    let queue = spread(1, ios, 9_000.0, 400);
    let device = spread(2, ios, 1_930_000.0, 120);
    let mut whole = spread(3, ios, 1_975_000.0, 120);
    whole.record(41_000_000);
    let stages = BTreeMap::from([(Stage::Queue, queue), (Stage::Device, device)]);
    let queues = (0..2)
        .map(|n| QueueLatency {
            queue: n,
            kind: "default".into(),
            cpus: n.to_string(),
            ios: if n == 0 { 153_000 } else { 274 },
            request_stages: stages.clone(),
            ..QueueLatency::default()
        })
        .collect();
    let program = |name: &str, runs, ns| ProgramCost { name: name.into(), runs, ns };
    Case {
        envelope: Envelope {
            version: "0.1.0".into(),
            kernel: "6.12.117".into(),
            start: "2026-11-20T18:00:00.000Z".into(),
            duration_ns: 10 * SECOND,
            cost: Cost {
                ns_per_io: Some(95.2),
                ns_per_interrupt: None,
                ns_per_contention: None,
                attach_ns_per_contention: None,
                attach_ns_per_io: Some(34.0),
                ios: Some(ios),
                cpu_percent: Some(0.15),
                map_bytes: 4 << 20,
                baseline_ns_per_run: Some(27.5),
                programs: vec![program("rq_issue", ios, 12_415_194), program("rq_complete", ios, 10_882_454)],
            },
            missing: [
                ("submit", "this kernel has no event that names the submitted io_uring request"),
                ("complete", "the driver has no event where the host reaps the completion"),
                ("reap", "this kernel has no event that names the submitted io_uring request"),
            ]
                .map(|(stage, why)| Missing {
                    device: Some("vda".into()),
                    stage: Some(stage.into()),
                    reason: Reason::NoEvent,
                    included_in: (stage == "complete").then(|| "device".into()),
                    why: why.into(),
                    ..Missing::default()
                })
                .to_vec(),
            ..Envelope::default()
        },
        host: Host {
            kernel: "6.12.117".into(),
            hostname: "builder-7".into(),
            cpu_model: Some("AMD EPYC 9654 96-Core Processor".into()),
            cpus_online: 2,
            cpus_possible: 2,
            numa_nodes: 1,
            memory_bytes: Some(8 << 30),
            virtualization: Some("kvm".into()),
            devices: vec![BlockDevice {
                name: "vda".into(),
                size_bytes: 252 << 30,
                driver: Some("virtio_blk".into()),
                scheduler: Some("none".into()),
                schedulers: vec!["none".into(), "mq-deadline".into()],
                logical_block_bytes: 512,
                physical_block_bytes: 4096,
                max_request_bytes: 1280 << 10,
                max_hw_request_bytes: 2 << 30,
                read_ahead_bytes: 128 << 10,
                requests: Some(256),
                request_based: true,
                pci_address: Some("0000:00:05.0".into()),
                queues: vec![HardwareQueue { tags: 256, ..HardwareQueue::default() }; 2],
                mounted_at: vec!["/".into()],
                ..BlockDevice::default()
            }],
            ..Host::default()
        },
        latency: LatencySummary {
            duration_ns: 10 * SECOND,
            devices: vec![DeviceLatency {
                name: "vda".into(),
                ios,
                bytes: ios * 4096,
                kernel: Some(BTreeMap::from([(KernelClass::Read, Bracket { min: ios, max: ios }.into())])),
                in_flight_start: Some(0),
                in_flight_end: Some(0),
                ops: BTreeMap::from([(Op::Read, OpLatency { ios, bytes: ios * 4096, request_stages: stages, ..OpLatency::default() })]),
                queues,
                ..DeviceLatency::default()
            }],
            ..LatencySummary::default()
        },
        load: Some(LoadSummary {
            job: Job::new(Target::Scratch { directory: "/var/tmp".into(), bytes: 1 << 30 }),
            target: "scratch file in /var/tmp".into(),
            device: Some("vda".into()),
            size: 1 << 30,
            fill: Some(Fill { bytes: 1 << 30, duration_ns: 2_410_000_000 }),
            duration_ns: 10 * SECOND,
            jobs: vec![JobResult {
                cpu: Some(0),
                transfers: [
                    Transfer { operations: ios, bytes: ios * 4096, lat: whole, ..Transfer::default() },
                    Transfer::default(),
                    Transfer::default(),
                ],
                user_ns: 210_000_000,
                system_ns: 1_180_000_000,
                submitted: Histogram::from_iter(std::iter::repeat_n(8, 98_112)),
                reaped: Histogram::from_iter(std::iter::repeat_n(8, 97_540)),
                ..JobResult::default()
            }],
            ring_workers: Some(RingWorkers::default()),
            drive: Default::default(),
            clock: None,
            missing: vec!["registered buffers: the memory lock limit is too low".into()],
        }),
        profile: Some(ProfileSummary {
            sampler: "cpu-clock".into(),
            sampler_note: Some(
                "cpu-clock cannot fire with interrupts off: hard interrupts are charged to what runs after them".into(),
            ),
            frequency: 499,
            cpus: 2,
            duration_ns: 10 * SECOND,
            samples: 9_980,
            classes: BTreeMap::from([
                (CpuClass::User, 240),
                (CpuClass::System, 910),
                (CpuClass::Irq, 12),
                (CpuClass::Softirq, 205),
                (CpuClass::Kthread, 61),
                (CpuClass::Idle, 8_552),
            ]),
            folded: BTreeMap::from([
                ("biopsy-load/0;entry_SYSCALL_64_[k];io_uring_enter_[k];submit_bio_[k]".into(), 910),
                ("biopsy-load/0;main;run;next_offset".into(), 240),
                ("swapper/1;handle_softirqs_[k];blk_done_softirq_[k]".into(), 217),
                ("kworker/0:1H;process_one_work_[k];blk_mq_run_work_fn_[k]".into(), 61),
            ]),
            top: vec![("biopsy-load/0".into(), 4711, 1_152_000_000), ("kworker/0:1H".into(), 88, 61_000_000)],
            ..ProfileSummary::default()
        }),
        interrupts: None,
        scaling: None,
        cpu: None,
        flame: false,
        command: "biopsy diagnose /var/tmp -o report.html".into(),
        command_status: None,
    }
}

/// An NVMe drive with mq-deadline, two kinds of I/O, and operations of 1 MiB that are split into eight.
fn nvme() -> Case {
    let mut case = virtio();
    let ios = 80_000;
    let stages = |seed| {
        BTreeMap::from([
            (Stage::Queue, spread(seed, ios, 310_000.0, 90)),
            (Stage::Device, spread(seed + 1, ios, 640_000.0, 200)),
            (Stage::Complete, spread(seed + 2, ios, 6_500.0, 50)),
        ])
    };
    let device = &mut case.latency.devices[0];
    device.name = "nvme0n1".into();
    device.splits = 70_000;
    device.ios = ios + 900;
    device.kernel = Some(BTreeMap::from([
        (KernelClass::Read, Bracket { min: ios - 4, max: ios + 12 }.into()),
        (KernelClass::Write, Bracket { min: 900, max: 900 }.into()),
    ]));
    device.queues.iter_mut().for_each(|q| q.qid = Some(q.queue + 1));
    let writes = OpLatency {
        ios: 900,
        bytes: 900 * 4096,
        request_stages: BTreeMap::from([
            (Stage::Queue, spread(9, 900, 4_000.0, 9)),
            (Stage::Device, spread(8, 900, 22_000.0, 9)),
        ]),
        ..OpLatency::default()
    };
    device.ops = BTreeMap::from([
        (
            Op::Read,
            OpLatency { ios, bytes: ios * (128 << 10), request_stages: stages(4), ..OpLatency::default() },
        ),
        (Op::Write, writes),
    ]);
    let disk = &mut case.host.devices[0];
    disk.name = "nvme0n1".into();
    disk.driver = Some("nvme".into());
    disk.model = Some("Example Drive 1TB".into());
    disk.scheduler = Some("mq-deadline".into());
    disk.max_request_bytes = 128 << 10;
    disk.max_hw_request_bytes = 1 << 20;
    let load = case.load.as_mut().unwrap();
    load.device = Some("nvme0n1".into());
    load.job.set_bs(1 << 20);
    load.jobs[0].transfers[0].operations = 10_000;
    load.jobs[0].transfers[0].bytes = 10_000 << 20;
    case
}

impl Case {
    fn summaries(&self) -> Summaries<'_> {
        Summaries {
            envelope: &self.envelope,
            host: &self.host,
            latency: &self.latency,
            command: false,
            rates: &[],
            interrupts: self.interrupts.as_ref(),
            load: self.load.as_ref(),
            scaling: self.scaling.as_ref(),
            experiment: None,
            cpu: self.cpu.as_ref(),
            quotas: &[],
            profile: self.profile.as_ref(),
            locks: None,
            pagecache: None,
            threads: None,
        }
    }

    fn html(&self) -> String {
        let s = self.summaries();
        let diagnosis = rules::diagnose(&s);
        let json = json::view_object(s.envelope, &DiagnosisSummary::of(&s, &diagnosis), None);
        let folded = self.profile.iter().find(|_| self.flame).map(|profile| &profile.folded);
        let caption = flame::Caption::new("On-CPU", "cpu-clock, 499 Hz");
        let picture = |folded| {
            let samples = folded::profile(folded, Unit::Samples);
            ("on the CPU", flame::inline(&samples, &caption, &flame::Options::default()).unwrap())
        };
        let flames: Vec<_> = folded.map(picture).into_iter().collect();
        html::render(&html::Report {
            summaries: s,
            diagnosis: &diagnosis,
            doubt: None,
            command: &self.command,
            command_status: self.command_status,
            flames: &flames,
            locks: None,
            pagecache: None,
            threads: None,
            timeline: None,
            json: &json,
        })
    }

    /// The output of `-v`, which begins with the brief output.
    fn text(&self, color: bool) -> String {
        let s = self.summaries();
        let diagnosis = rules::diagnose(&s);
        let page = text::diagnose::Page {
            summaries: s,
            diagnosis: &diagnosis,
            doubt: None,
            command_status: self.command_status,
            report: Some("report.html"),
            color,
        };
        let (brief, text) = (text::brief::render(&page), text::diagnose::render(&page));
        assert!(text.starts_with(&brief), "{text}");
        text
    }
}

fn leave(name: &str, page: &str) {
    std::fs::write(format!("{}/{name}", env!("CARGO_TARGET_TMPDIR")), page).unwrap();
}

/// The page without its data: the JSON island.
fn markup(page: &str) -> String {
    let start = page.find("<script type=\"application/json\"").unwrap();
    let end = start + page[start..].find("</script>").unwrap();
    format!("{}{}", &page[..start], &page[end..])
}

fn island(page: &str) -> serde_json::Value {
    let tag = "<script type=\"application/json\" id=\"biopsy\">";
    let start = page.find(tag).unwrap() + tag.len();
    let end = start + page[start..].find("</script>").unwrap();
    assert!(!page[start..end].contains(['<', '>', '&']));
    serde_json::from_str(&page[start..end]).unwrap()
}

#[test]
fn nothing_is_loaded_from_elsewhere() {
    let mut case = virtio();
    case.flame = true;
    let page = case.html();
    leave("report-virtio.html", &page);
    leave("report-nvme.html", &nvme().html());
    assert!(page.contains("<svg class=\"flame\"") && page.contains("CDDL-1.0"));
    assert!(!nvme().html().contains("CDDL") && nvme().html().contains("script-src 'none'"));
    for loads in
        [" src=", " href=\"http", "xlink:href=\"http", "url(http", "url(\"", "@import", "<link", "<base"]
    {
        assert!(!markup(&page).contains(loads), "{loads}");
    }
    // Outside the flame graph, whose namespaces and comments contain addresses, there is no address.
    let plain = virtio().html().replace("http-equiv", "");
    assert!(!plain.contains("http") && !plain.contains("//"), "an address");
}

/// Each link of the contents leads to one section, and each section has a link.
#[test]
fn the_contents_lead_to_the_sections() {
    let page = markup(&nvme().html());
    let anchors: Vec<&str> =
        page.split("<a href=\"#").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(anchors.contains(&"where-the-time-goes") && !anchors.contains(&"locks"), "{anchors:?}");
    assert_eq!(anchors.len(), page.matches("<section ").count());
    for anchor in anchors {
        assert_eq!(page.matches(&format!("<section id=\"{anchor}\">")).count(), 1, "{anchor}");
    }
}

/// Long tables and lists of gaps are one line until they are opened.
#[test]
fn long_tables_and_gaps_are_folded() {
    let mut case = virtio();
    let page = case.html();
    assert!(page.contains("<summary>Missing: 3 items</summary>") && page.contains("<summary>Programs of"));
    let queues = |page: &str| {
        let section = &page[page.find("<h2>Hardware queues</h2>").unwrap()..];
        section[..section.find("</section>").unwrap()].contains("<summary>13 rows</summary>")
    };
    assert!(!queues(&page));
    let queue = case.latency.devices[0].queues[0].clone();
    case.latency.devices[0].queues = vec![queue; 13];
    assert!(queues(&case.html()));
}

#[test]
fn hostile_names_stay_text() {
    let mut case = virtio();
    case.command = HOSTILE.into();
    case.host.hostname = HOSTILE.into();
    case.host.cpu_model = Some(HOSTILE.into());
    case.host.devices[0].model = Some(HOSTILE.into());
    case.host.devices[0].mounted_at = vec![HOSTILE.into()];
    case.host.devices[0].scheduler = Some(HOSTILE.into());
    case.host.devices[0].name = HOSTILE.into();
    case.latency.devices[0].name = HOSTILE.into();
    case.latency.devices[0].queues[0].cpus = HOSTILE.into();
    case.latency.devices[0].queues[0].kind = HOSTILE.into();
    case.envelope.missing[0].why = HOSTILE.into();
    case.envelope.cost.programs[0].name = HOSTILE.into();
    case.envelope.lost.probes.insert(HOSTILE.into(), BTreeMap::from([(HOSTILE.to_string(), 1)]));
    let load = case.load.as_mut().unwrap();
    (load.target, load.device, load.missing) = (HOSTILE.into(), Some(HOSTILE.into()), vec![HOSTILE.into()]);
    let profile = case.profile.as_mut().unwrap();
    profile.top[0].0 = HOSTILE.into();
    profile.sampler_note = Some(HOSTILE.into());
    let page = case.html();
    assert!(!page.contains("<img") && !page.contains('\u{202e}') && !page.contains("onerror=\""));
    assert_eq!(page.matches("</script>").count(), 1);
    assert_eq!(island(&page)["verdict"]["subject"], HOSTILE);
    let text = case.text(false);
    assert!(!text.contains('\u{202e}') && !text.contains('\x1b'));
    for (id, saturated) in [("submit-cpu-bound", (10, 89)), ("generator-bound", (70, 29))] {
        let job = &mut case.load.as_mut().unwrap().jobs[0];
        (job.user_ns, job.system_ns) = (saturated.0 * SECOND / 10, saturated.1 * SECOND / 10);
        assert!(case.html().contains(id) && !case.html().contains("<img"));
    }
}

#[test]
fn the_island_is_what_the_json_option_prints() {
    let case = nvme();
    let s = case.summaries();
    let diagnosis = rules::diagnose(&s);
    let latency = FramedView { envelope: case.envelope.clone(), view: case.latency.clone() };
    let view = serde_json::json!(latency);
    let summary = DiagnosisSummary { latency: Some(latency), ..DiagnosisSummary::of(&s, &diagnosis) };
    let object = json::view_object(s.envelope, &summary, None);
    let page = case.html();
    let carried = island(&page);
    assert_eq!(carried["schema"], "biopsy.diagnose/1");
    assert_eq!(carried["verdict"]["id"], "split-io");
    assert_eq!(carried["findings"][0]["numbers"]["ios_per_operation_ratio"], 8.0);
    assert!(carried["findings"][0]["worth"]["metric"].is_string());
    assert!(carried["cpu"]["user"]["cycles_per_io"].is_null());
    assert!(carried["cpu"]["system"]["ns_per_io"].as_f64().unwrap() > 0.0);
    assert_eq!(carried["lost"]["ios"], 0);
    assert!(carried.get("latency").is_none() && object["latency"] == view);
}

/// Two sockets of one core with two threads each, with 8,666 cycles per I/O.
fn with_counters(case: &mut Case) {
    let ios = rules::ios(&case.summaries());
    let row = |cpus: &[u32], socket| CpuRow {
        cpus: cpus.to_vec(),
        socket,
        wall_ns: SECOND * cpus.len() as u64,
        times: [400, 0, 300, 50, 100, 0, 130].map(|ms| ms * 1_000_000 * cpus.len() as u64),
        unaccounted_ns: 20_000_000 * cpus.len() as i64,
        error_ns: 80_000_000 * cpus.len() as u64,
        cycles: Some(8_666 * ios / 4 * cpus.len() as u64),
        ..CpuRow::default()
    };
    let profile = case.profile.as_mut().unwrap();
    profile.classes.insert(CpuClass::IoWq, 61);
    case.cpu = Some(CpuSummary {
        duration_ns: SECOND,
        interrupts_timed: Some(true),
        cpus: vec![row(&[0], Some(0)), row(&[1], Some(1)), row(&[2], Some(0)), row(&[3], Some(1))],
        cores: vec![row(&[0, 2], Some(0)), row(&[1, 3], Some(1))],
        sockets: vec![row(&[0, 2], Some(0)), row(&[1, 3], Some(1))],
        all: Some(row(&[0, 1, 2, 3], None)),
        context_switches: Some(ios * 27 / 100),
        no_wakeups: Some("they are not counted <here>".into()),
        counted: CounterTotals {
            counter: Some("cycles".into()),
            user_cycles: Some(ios * 1_666),
            kernel_cycles: Some(ios * 7_000),
            user_instructions: Some(ios * 1_000),
            kernel_instructions: Some(ios * 5_326),
            backend_stalls: Some(ios * 4_333),
            core_cycles: Some((ios * 5_600, ios * 8_666)),
            counted_share: Some(0.5),
            ..CounterTotals::default()
        },
        ..CpuSummary::default()
    });
}

/// The name of an interrupt is the driver's, which takes it from a device, and is escaped; unknown values have no figure.
#[test]
fn interrupts_are_a_section_where_they_were_counted() {
    let mut case = nvme();
    assert!(!case.html().contains("<h2>Interrupts</h2>"));
    let mut each = Histogram::default();
    [3, 5].into_iter().for_each(|n| each.record(n));
    let vector = |irq, carried| VectorSummary {
        irq,
        name: Some("<b>nvme0q1".into()),
        devices: vec!["nvme0n1".into()],
        interrupts: 2,
        by_cpu: vec![CpuInterrupts { cpu: 3, interrupts: 2 }],
        carried,
        ..VectorSummary::default()
    };
    let known = CompletionCounts { completions: 8, empty: 0, per_interrupt: each };
    case.interrupts = Some(InterruptSummary {
        duration_ns: SECOND,
        vectors: vec![vector(41, Some(known)), vector(42, None)],
        devices: vec![DeviceInterrupts {
            name: "nvme0n1".into(),
            ios: 8,
            interrupts: Some(4),
            ios_per_interrupt: Some(2.0),
            completed: CompletionContexts { interrupt: 8, ..CompletionContexts::default() },
            ..DeviceInterrupts::default()
        }],
        posted: PostedMsi::new(78, 100, 200, 1.0),
        ..InterruptSummary::default()
    });
    let page = markup(&case.html());
    let section = &page[page.find("<h2>Interrupts</h2>").unwrap()..];
    let section = &section[..section.find("</section>").unwrap()];
    assert!(section.contains("&lt;b&gt;nvme0q1") && !section.contains("<b>nvme0q1"), "{section}");
    for shown in
        ["I/Os per interrupt</dt><dd>2.00", "posting</dt><dd>22.0 %", "devices per notification</dt><dd>2.56"]
    {
        assert!(section.contains(shown), "{shown}: {section}");
    }
    let rows: Vec<&str> = section.lines().filter(|line| line.contains("nvme0q1")).collect();
    assert!(rows[0].contains("<td>4.00</td>") && rows[1].contains("<td>-</td>"), "{rows:?}");
}

#[test]
fn drives_alone_and_all_at_once_are_shown_where_they_were_driven() {
    let mut case = virtio();
    assert!(!case.html().contains("Alone and all at once") && !case.text(false).contains("Alone and all"));
    let drive = |name: &str, together| DriveScaling {
        target: format!("/dev/{name}"),
        device: Some(name.to_string()),
        alone: Some(7.13e9),
        together,
    };
    let drives = vec![drive("nvme0n1", Some(4.925e9)), drive(HOSTILE, None)];
    case.scaling =
        Some(Scaling { drives, each_ns: 2 * SECOND, worker_percent: 40.0, machine_percent: Some(50.0) });
    for page in [case.html(), case.text(false)] {
        for words in ["Alone and all at once", "2.00 s", "69 %", "unknown"] {
            assert!(page.contains(words), "{words}: {page}");
        }
        assert!(!page.contains('\u{202e}'), "{page}");
    }
    assert!(!case.html().contains("<img src"));
}

#[test]
fn cycles_are_in_text_report_and_json() {
    let mut case = virtio();
    with_counters(&mut case);
    let text = case.text(false);
    for part in [
        "8,666 cycles at 0.73 instructions each",
        "5,600 to 8,666 of a core with its threads",
        "50 % of them stalled at the back end",
        "0.27 context switches; unknown: wake-ups",
        "4 CPUs: user 40.0 %, system 30.0 %, irq 5.0 %, softirq 10.0 %, idle 13.0 %;",
        "not accounted for 2.0 % (± 8.0 %)",
        "io-wq ",
    ] {
        assert!(
            text.split_whitespace().collect::<Vec<_>>().join(" ").contains(part.trim()),
            "{part}:\n{text}"
        );
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");

    let page = case.html();
    leave("report-counters.html", &page);
    let island = island(&page);
    let cpu = &island["cpu"];
    let cycles = |class: &str| cpu[class]["cycles_per_io"].as_f64().unwrap();
    let all: f64 =
        ["user", "system", "io-wq", "irq", "softirq", "kthread"].iter().map(|class| cycles(class)).sum();
    assert!((all - 8_666.0).abs() < 1e-6 && (cycles("user") - 1_666.0).abs() < 1e-6, "{all}");
    assert_eq!(cpu["cycles_per_io"], 8_666.0);
    assert_eq!(cpu["core_cycles_per_io"], serde_json::json!([5_600.0, 8_666.0]));
    assert_eq!((&cpu["counter"], &cpu["wakeups_per_io"]), (&"cycles".into(), &serde_json::Value::Null));
    let rows = ["all", "sockets", "cores", "cpus"].map(|name| &cpu["time"][name]);
    assert_eq!(rows.map(|rows| rows.as_array().map(Vec::len)), [None, Some(2), Some(2), Some(4)]);
    let row = &rows[3][0];
    let names = ["user", "nice", "system", "irq", "softirq", "steal", "idle", "unaccounted"];
    let sum: i64 = names.iter().map(|name| row[format!("{name}_ns")].as_i64().unwrap()).sum();
    assert_eq!(sum, row["wall_ns"].as_i64().unwrap());

    let page = markup(&page);
    for part in [
        "socket 1",
        "core of CPUs 0,2",
        "CPU 3",
        "cycles per I/O",
        "times interrupts with a clock",
        "not counted &lt;here&gt;",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // Stalls were not counted, and are not shown as zero.
    assert!(cpu["stalled_frontend_share"].is_null() && page.contains("stalled, front end</dt><dd>unknown"));
}

#[test]
fn a_stage_appears_only_where_it_was_seen() {
    let drawn = |page: &str, stage: &str| page.contains(&format!("<rect class=\"s-{stage}\""));
    let page = virtio().html();
    assert!(drawn(&page, "queue") && drawn(&page, "device"));
    for stage in ["submit", "complete", "reap"] {
        assert!(!drawn(&page, stage), "{stage}");
        assert!(page.contains(&format!("<td class=\"text\">{stage}</td>")), "{stage} is among the missing");
    }
    assert!(drawn(&nvme().html(), "complete"));
}

/// What `--detail` measured is in the page and the text, and is not listed as unexamined.
#[test]
fn parts_of_stages_are_shown_where_they_were_measured() {
    let mut case = virtio();
    let unexamined = "parts of stages";
    assert!(case.html().contains(unexamined) && !case.html().contains("queue / alloc"));
    let read = case.latency.devices[0].ops.get_mut(&Op::Read).unwrap();
    let alloc = BTreeMap::from([(Part::Alloc, spread(4, 5_000, 90_000.0, 400))]);
    read.request_parts = BTreeMap::from([(Stage::Queue, alloc)]);
    let page = case.html();
    assert!(page.contains("></i>queue / alloc</td><td>5,000</td>"), "a row of percentiles");
    assert!(page.contains("<p class=\"soft small\">of queue: alloc "), "below the bar");
    assert!(!page.contains(unexamined));
    let text = case.text(false);
    assert!(text.contains("of queue: alloc ") && !text.contains(unexamined), "{text}");
}

#[test]
fn how_a_command_ended_is_said() {
    let mut case = virtio();
    assert!(!case.text(false).contains("command ended"));
    case.command_status = Some(3);
    assert!(case.text(false).ends_with("command ended with status 3\n"));
    assert!(case.html().contains("<dt>command</dt><dd>ended with status 3</dd>"));
}

/// Classes that are not counted by queue are in the device's sum, but in no row of its queues; the page says so.
#[test]
fn queues_say_what_they_leave_out() {
    let mut case = virtio();
    assert!(!case.html().contains("not counted by queue"));
    case.latency.devices[0].ios += 7;
    assert!(
        case.html()
            .contains(">7 I/Os of rare classes (fua, flush, discard and the like) not counted by queue")
    );
}

#[test]
fn kinds_of_loss_that_did_not_occur_are_no_row() {
    let mut case = virtio();
    let kinds = BTreeMap::from([("slot".to_string(), 0), ("missed".to_string(), 4)]);
    case.envelope.lost.probes = BTreeMap::from([("latency".to_string(), kinds)]);
    assert!(case.html().contains("<dt>of these, by kind</dt><dd>latency missed 4</dd>"));
    case.envelope.lost.probes.values_mut().for_each(|kinds| kinds.values_mut().for_each(|n| *n = 0));
    assert!(!case.html().contains("of these, by kind"));
}

/// The page has a map if there is a device on PCI, and no heading for it otherwise.
#[test]
fn the_page_has_a_map_of_the_topology() {
    let mut case = virtio();
    let page = case.html();
    assert!(page.contains("<h2>Topology</h2>") && page.contains("its hypervisor shows"));
    assert!(page.contains("<rect class=\"box drive traced\""), "the disk of the run");
    case.host.virtualization = None;
    assert!(!case.html().contains("its hypervisor shows"));
    case.host.devices[0].pci_address = None;
    assert!(!case.html().contains("Topology") && !case.html().contains("chart map"));
}

/// What the kernel does not report has no row, but a read-ahead of zero has one.
#[test]
fn what_a_disk_does_not_tell_is_not_printed_as_zero() {
    let mut case = virtio();
    let row = |case: &Case, name: &str| {
        let page = case.html();
        let at = page.find(&format!("<dt>{name}</dt><dd>"))? + name.len() + "<dt></dt><dd>".len();
        Some(page[at..].split('<').next().unwrap().to_string())
    };
    assert_eq!(row(&case, "read-ahead").as_deref(), Some("128 KiB"));
    let disk = &mut case.host.devices[0];
    disk.read_ahead_bytes = 0;
    (disk.max_hw_request_bytes, disk.physical_block_bytes) = (0, 0);
    assert_eq!(row(&case, "read-ahead").as_deref(), Some("off"));
    assert_eq!(row(&case, "largest request").as_deref(), Some("1.25 MiB (hardware not reported)"));
    assert_eq!(row(&case, "blocks").as_deref(), Some("512 logical, not reported physical"));
    let disk = &mut case.host.devices[0];
    (disk.size_bytes, disk.untold) = (0, vec!["size".into(), "read_ahead_kb".into()]);
    (disk.max_request_bytes, disk.logical_block_bytes) = (0, 0);
    for name in ["read-ahead", "size", "largest request", "blocks"] {
        assert_eq!(row(&case, name), None, "{name}");
    }
}

#[test]
fn a_run_without_anything_still_makes_a_page() {
    let mut case = virtio();
    (case.load, case.profile) = (None, None);
    case.latency = LatencySummary::default();
    case.host = Host::default();
    case.envelope = Envelope::default();
    let page = case.html();
    assert!(page.contains("inconclusive") && page.contains("no I/O was measured"));
    assert!(!page.contains("NaN") && !page.contains("inf<"));
    assert!(case.text(false).contains("No verdict"));
    let cpu = &island(&page)["cpu"];
    assert!(cpu["user"]["ns_per_io"].is_null() && cpu["sampler"].is_null() && cpu["time"].is_null());
}

/// Without a profile, the kernel's accounting of its CPUs is still shown.
#[test]
fn the_kernels_account_needs_no_profile() {
    let mut case = virtio();
    with_counters(&mut case);
    case.profile = None;
    let (text, page) = (case.text(false), case.html());
    assert!(text.contains("CPU time (whole machine)\n  8,666 cycles"), "{text}");
    assert!(text.contains("4 CPUs: user 40.0 %"), "{text}");
    assert!(page.contains("There is no profile") && page.contains("core of CPUs 0,2"));
    let cpu = &island(&page)["cpu"];
    assert_eq!(
        (&cpu["cycles_per_io"], &cpu["user"]["cycles_per_io"]),
        (&8_666.0.into(), &serde_json::Value::Null)
    );
}

#[test]
fn the_same_run_gives_the_same_bytes() {
    assert_eq!(nvme().html(), nvme().html());
    assert_eq!(virtio().text(false), virtio().text(false));
}

#[test]
fn the_text_begins_with_the_verdict_and_ends_with_loss_and_cost() {
    let case = nvme();
    let text = case.text(false);
    leave("diagnose-nvme.txt", &text);
    leave("diagnose-virtio.txt", &virtio().text(false));
    assert!(
        text.starts_with("nvme0n1  randread 1 MiB, depth 32, 10.0 s, scratch file in /var/tmp\n"),
        "{text}"
    );
    let verdict = "Each operation becomes 8.0 I/Os on nvme0n1";
    assert!(text.contains(&format!("\n\n{verdict}")), "{text}");
    assert_eq!(text.matches(verdict).count(), 1, "{text}");
    assert!(text.contains("no I/Os missed, tracing cost 0.002 CPU · report: report.html\n"), "{text}");
    assert!(
        text.contains("kernel counted") && text.contains("missed 0 I/Os") && text.contains("95 ns per I/O")
    );
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    assert!(!text.contains('\x1b') && case.text(true).contains("\x1b[1m"));
}

/// The numbers of a column are compared: the column has one unit, which is in its heading.
#[test]
fn cells_of_the_percentiles_have_no_units_of_their_own() {
    let page = virtio().html();
    let table = &page[page.find("<h2>Percentiles</h2>").unwrap()..];
    let table = &table[..table.find("</table>").unwrap()];
    assert!(table.contains("<th>mean µs</th>") && table.contains("<th>p99 "), "{table}");
    let body = &table[table.find("<tbody>").unwrap()..];
    for unit in [" ns<", " µs<", " ms<", " s<"] {
        assert!(!body.contains(unit), "{body}");
    }
}
