use serde_json::json;

use super::super::fixtures::json;
use super::*;
use crate::host::idle::Idle;
use crate::host::iocost::{IoCost, Model, Target};
use crate::host::nvme::identity::{Coalescing, Identity};
use crate::host::nvme::{Choice, Health, Performance, Use};
use crate::host::{Aspm, HardwareQueue, Hop, Link, Partition, Throttle, Vector};

fn link() -> Link {
    Link {
        speed_gts: 16.0,
        width: 4,
        max_speed_gts: Some(32.0),
        max_width: Some(4),
        port_max_speed_gts: Some(16.0),
        port_max_width: Some(8),
        raw_bytes_per_second: 7_876_923_076.923,
        payload_bytes: Some(256),
        usable_bytes_per_second: [7_161_000_000.4, 7_161_000_000.6],
        aspm: Some(Aspm::Both),
    }
}

fn identity() -> Identity {
    Identity {
        transfer_bytes: Some(1 << 20),
        coalescing: Some(Coalescing { completions: 8, time_us: 100 }),
        usage: Some(Use { size: 3 << 30, capacity: 2 << 30, used: 1 << 30 }),
        metadata_bytes: Some(8),
        formats: Some(vec![Choice {
            format: 1,
            block_bytes: 4096,
            metadata_bytes: 8,
            performance: Performance::Better,
            in_use: true,
        }]),
        health: Some(Health {
            critical_warning: 2,
            temperature: Some(-3),
            warning_minutes: Some(5),
            critical_minutes: Some(1),
            transitions: [Some(3), None],
            throttled_seconds: [Some(12), Some(4)],
            percent_used: 4,
            percent_spare: 98,
            media_errors: u64::MAX,
        }),
    }
}

/// A device with every attribute set.
fn device(name: &str, bus: u32) -> BlockDevice {
    let text = |text: &str| Some(text.to_string());
    let address = format!("0000:{bus:02x}:00.0");
    let hop = |function: &str, port: &str| Hop { function: function.into(), port: text(port), link: link() };
    let partition = Partition {
        name: format!("{name}p1"),
        major: 259,
        minor: 1,
        start_bytes: 1 << 20,
        size_bytes: 1 << 30,
        mounted_at: vec!["/srv".into()],
        holders: vec!["dm-0".into()],
        swaps: vec!["/swap".into()],
    };
    BlockDevice {
        name: name.to_string(),
        alias: text("vg0-root"),
        major: 259,
        minor: 0,
        size_bytes: 3 << 30,
        model: text("a model"),
        serial: text("S1"),
        firmware: text("1.0"),
        driver: text("nvme"),
        identity: Some(identity()),
        numa_node: Some(1),
        pci_address: Some(address.clone()),
        root_complex: text("pci0000:00"),
        link: Some(link()),
        hops: vec![hop(&address, "0000:03:00.0"), hop("0000:02:00.0", "0000:00:01.0")],
        msix_vectors: Some(65),
        iommu: text("DMA-FQ"),
        scheduler: text("none"),
        schedulers: vec!["none".into(), "kyber".into()],
        logical_block_bytes: 512,
        physical_block_bytes: 4096,
        rotational: Some(false),
        read_ahead_bytes: 128 << 10,
        max_request_bytes: 1 << 20,
        max_hw_request_bytes: 2 << 20,
        requests: Some(1023),
        rq_affinity: Some(1),
        nomerges: Some(0),
        iostats: Some(true),
        write_cache: text("write back"),
        writeback_throttle_us: Some(2000),
        poll_queues: Some(2),
        request_based: true,
        queues: vec![HardwareQueue { queue: 0, qid: Some(1), cpus: vec![0], tags: 1023, reserved_tags: 1 }],
        vectors: vec![Vector {
            irq: 41,
            name: text("nvme0q1"),
            qid: Some(1),
            cpus: vec![0],
            ..Vector::default()
        }],
        backing_file: text("/var/disk"),
        layers: vec!["sda".into()],
        partitions: vec![partition],
        mounted_at: vec!["/srv".into()],
        ..BlockDevice::default()
    }
}

fn host() -> Host {
    let state =
        IdleState { state: 3, name: Some("C6".into()), exit_us: Some(133), cpus: vec![0], off_cpus: vec![1] };
    let frequency =
        Frequency { governor: Some("powersave".into()), min_khz: Some(800_000), ..Frequency::default() };
    let limit =
        Throttle { cgroup: "/job".into(), device: "nvme0n1".into(), own: true, ..Throttle::default() };
    let target = Target { percentile: Some(95.0), latency_us: Some(10_000) };
    Host {
        hostname: "ward".into(),
        cpu_model: Some("a CPU".into()),
        cpus_online: 2,
        cpus_possible: 4,
        numa_nodes: 2,
        nodes: [0, 1].map(|node| NumaNode { node, cpus: vec![node] }).into(),
        memory_bytes: Some(1 << 34),
        node_memory: [(0, 1 << 33)].into(),
        smt: Smt {
            control: Some("on".into()),
            active: Some(true),
            cores: Some(1),
            siblings: vec![vec![0, 1]],
        },
        idle: Some(Idle { states: vec![state], wakeup: Wakeup::Limit(30), ..Idle::default() }),
        frequencies: vec![frequency],
        virtualization: Some("kvm".into()),
        root_complexes: vec!["pci0000:00".into()],
        devices: vec![
            device("nvme0n1", 4),
            device("nvme1n1", 5),
            BlockDevice { name: "loop0".into(), ..BlockDevice::default() },
        ],
        throttles: vec![Throttle {
            read_bytes_per_second: Some(1 << 20),
            write_ios_per_second: Some(50),
            ..limit
        }],
        costs: vec![IoCost {
            device: "nvme0n1".into(),
            read: target,
            model: Some(Model::default()),
            ..IoCost::default()
        }],
        limits_told: true,
        ..Host::default()
    }
}

fn summary(host: &Host) -> DevicesSummary {
    let placeholder = BlockDevice { name: "loop7".into(), ..BlockDevice::default() };
    let selection = Selection { devices: host.devices.iter().collect(), placeholders: vec![&placeholder] };
    let warning = Warning {
        device: "nvme0n1".into(),
        id: "link-degraded".into(),
        sentence: "it is slow".into(),
        remedy: Some("reseat it".into()),
    };
    summarize(host, &selection, vec![warning])
}

#[test]
fn devices_are_read_back_with_all_that_they_have() {
    let host = host();
    let value = json(&summary(&host));
    let disk = &value["devices"][0];
    assert_eq!(disk["absent"], json!([]), "everything is there");
    let health = &disk["nvme"]["health"];
    assert_eq!((&health["temperature_celsius"], &health["media_errors"]), (&json!(-3), &json!(u64::MAX)));
    assert_eq!(disk["link"]["usable_bytes_per_second"], json!([7_161_000_000u64, 7_161_000_001u64]));
    assert_eq!((&disk["link"]["encoding"], &disk["link"]["aspm"]), (&json!("128b/130b"), &json!("L0s L1")));
    assert_eq!(
        (&disk["limits"][0]["cgroup"], &disk["io_cost"]["read"]["percentile"]),
        (&json!("/job"), &json!(95.0))
    );
    assert_eq!(value["devices"][1]["limits"], json!([]), "no limit");
    let shared = &value["topology"]["shared_links"][0];
    assert_eq!(
        (&shared["devices"], &shared["function"]),
        (&json!(["nvme0n1", "nvme1n1"]), &json!("0000:02:00.0"))
    );
    assert_eq!((&value["nodes"][0]["cpus"], &value["not_shown"]), (&json!([0]), &json!(["loop7"])));
    assert_eq!(value["cpus"]["idle"]["wakeup_limit_us"], json!(30));
    // The host as included in other views.
    json(&host);
}

#[test]
fn what_is_null_says_why() {
    let value = json(&summary(&host()));
    let bare = &value["devices"][2];
    let absent = bare["absent"].as_array().unwrap();
    let nulls = bare.as_object().unwrap().values().filter(|value| value.is_null());
    assert_eq!(absent.len(), nulls.count());
    assert!(
        absent.contains(&json!({ "what": "alias", "why": "only device-mapper devices have one" })),
        "{bare}"
    );
    assert_eq!(value["nodes"][1]["absent"][0]["what"], "memory_bytes");
}
