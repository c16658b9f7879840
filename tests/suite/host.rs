//! Tests the parsers of the room `host` on recorded machines and on garbage.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::patience::Patience;
use crate::support::scratch::Scratch;
use biopsy::analyze::devices::{DevicesSummary, summarize};
use biopsy::host::counters::Counters;
use biopsy::host::rights::Rights;
use biopsy::host::select::Selection;
use biopsy::host::warnings::Warning;
use biopsy::host::{BlockDevice, Host, select, throttle, warnings};
use biopsy::refusal::Refusal;
use biopsy::render::{self, text};
use proptest::prelude::*;
use serde_json::json;

/// The time limit for reading a large or damaged machine.
const LONGEST: Duration = Duration::from_secs(20);

fn machine(name: &str) -> (Scratch, Host) {
    let scratch = crate::support::scratch::machine(name, |bytes| bytes);
    let host = Host::read(scratch.path()).unwrap();
    (scratch, host)
}

fn device<'a>(host: &'a Host, name: &str) -> &'a BlockDevice {
    host.device(name).unwrap_or_else(|| panic!("no {name}"))
}

/// The output of `biopsy devices --json`, from which the same facts are read back.
fn printed(host: &Host, selection: &Selection<'_>, facts: Vec<Warning>) -> serde_json::Value {
    let summary = summarize(host, selection, facts);
    let object = serde_json::Value::Object(render::json::view_object(&Default::default(), &summary, None));
    assert_eq!(serde_json::from_value::<DevicesSummary>(object.clone()).unwrap(), summary);
    object
}

fn refusal<T>(result: anyhow::Result<T>) -> String {
    let error = result.err().expect("a refusal");
    assert_eq!(error.downcast_ref::<Refusal>().unwrap().exit_code(), 3);
    error.to_string()
}

#[test]
fn the_captured_disk_reads_as_the_kernel_showed_it() {
    let (scratch, host) = machine("virtio");
    assert_eq!((host.kernel.as_str(), host.cpus_online, host.numa_nodes), ("6.18.44", 2, 1));
    assert_eq!(host.virtualization.as_deref(), Some("unnamed hypervisor"));
    let vda = device(&host, "vda");
    assert_eq!((vda.major, vda.minor, vda.size_bytes), (254, 0, 256 << 30));
    assert_eq!(vda.driver.as_deref(), Some("virtio_blk"));
    assert_eq!((vda.model.as_deref(), vda.serial.as_deref()), (None, Some("SERIAL00")));
    assert_eq!(vda.pci_address.as_deref(), Some("0000:00:02.0"));
    assert_eq!((vda.root_complex.as_deref(), vda.numa_node, &vda.link), (Some("pci0000:00"), None, &None));
    assert_eq!(vda.scheduler.as_deref(), Some("mq-deadline"));
    assert_eq!(vda.schedulers, ["none", "mq-deadline", "kyber", "bfq"]);
    assert_eq!((vda.queues.len(), vda.queues[0].tags, vda.queues[0].qid), (1, 128, None));
    assert_eq!(vda.queues[0].cpus, [0, 1]);
    assert_eq!((vda.max_request_bytes, vda.read_ahead_bytes, vda.requests), (4 << 20, 8 << 20, Some(256)));
    assert_eq!((vda.poll_queues, vda.iostats, vda.rotational), (Some(0), Some(true), Some(true)));
    assert_eq!(vda.vectors.iter().map(|v| v.queue).collect::<Vec<_>>(), [None, Some(0)]);
    assert_eq!(vda.mounted_at, ["/"]);
    // Bio-based: no hardware contexts, and so nothing that belongs to requests.
    let zram = device(&host, "zram0");
    assert!(!zram.request_based && zram.scheduler.is_none() && zram.requests.is_none());
    assert_eq!(zram.driver.as_deref(), Some("zram"));
    let counters = Counters::read(scratch.path(), "vda").unwrap();
    assert!(counters.reads > 0 && counters.flushes.is_some() && counters.in_flight_reads.is_some());
    assert_eq!(counters.iostats, Some(true));
}

#[test]
fn multipath_paths_lie_under_their_head_with_number_queues_and_link() {
    let (_, host) = machine("multipath");
    let names: Vec<&str> = host.devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(
        names,
        ["dm-0", "loop0", "loop1", "nvme0c0n1", "nvme0n1", "nvme1c1n1", "nvme1c2n1", "nvme1n1"]
    );
    let (head, path) = (device(&host, "nvme1n1"), device(&host, "nvme1c2n1"));
    assert_eq!(head.layers, ["nvme1c1n1", "nvme1c2n1"]);
    assert_eq!(path.holders, ["nvme1n1"]);
    // Hidden paths have no dev attribute, but trace events carry this number.
    assert!(path.hidden && !head.hidden);
    assert_eq!((path.major, path.minor), (259, 6));
    assert!(path.request_based && !head.request_based);
    assert_eq!((head.driver.as_deref(), head.scheduler.as_deref()), (Some("nvme"), None));
    assert_eq!(head.model.as_deref(), Some("MODEL 7680GB"));
    assert_eq!((path.numa_node, path.root_complex.as_deref()), (Some(1), Some("pci0000:80")));
    assert_eq!(path.queues.iter().map(|q| (q.queue, q.qid)).collect::<Vec<_>>()[3], (3, Some(4)));
    assert_eq!(path.queues[1].cpus, [1, 5]);
    // The context without a vector of its own is polled.
    assert_eq!((path.poll_queues, device(&host, "nvme1c1n1").poll_queues), (Some(1), Some(1)));
    assert_eq!(device(&host, "nvme0c0n1").poll_queues, Some(0));
    let vectors = &device(&host, "nvme0c0n1").vectors;
    assert_eq!((vectors.len(), vectors[0].queue, vectors[0].qid), (5, None, Some(0)));
    assert_eq!((vectors[4].queue, vectors[4].qid), (Some(3), Some(4)));
}

#[test]
fn a_link_at_half_speed_is_told_with_its_line_rate() {
    let (_, host) = machine("multipath");
    let link = device(&host, "nvme0c0n1").link.clone().unwrap();
    assert_eq!(
        (link.speed_gts, link.width, link.max_speed_gts, link.max_width),
        (8.0, 4, Some(16.0), Some(4))
    );
    assert_eq!((link.port_max_speed_gts, link.port_max_width), (Some(16.0), Some(8)));
    assert_eq!(link.raw_bytes_per_second.round(), 3_938_461_538.0);
    let shown: Vec<&BlockDevice> = host.devices.iter().collect();
    let facts = warnings::warnings(&host, &shown);
    let ids: Vec<(&str, &str)> = facts.iter().map(|fact| (fact.device.as_str(), &*fact.id)).collect();
    assert_eq!(
        ids,
        [
            ("loop0", "iostats-off"),
            ("nvme0c0n1", "link-degraded"),
            ("nvme1c1n1", "scheduler-on-nvme"),
            ("cpus 2-7", "idle-deep"),
            ("cpus 4-7", "frequency-held")
        ]
    );
}

#[test]
fn layers_go_through_partitions_files_and_volumes() {
    let (_, host) = machine("multipath");
    let volume = device(&host, "dm-0");
    assert_eq!((volume.alias.as_deref(), volume.driver.as_deref()), (Some("vg0-root"), Some("dm")));
    assert_eq!(
        (&volume.layers[..], &volume.slaves[..]),
        (&["nvme0n1".into()][..], &["nvme0n1p2".into()][..])
    );
    // The loop device's file lies on the volume; its path contains an escaped blank.
    assert_eq!(device(&host, "loop0").layers, ["dm-0"]);
    assert_eq!(device(&host, "loop0").backing_file.as_deref(), Some("/var/lib/images/disk one.img"));
    assert_eq!(volume.holders, ["loop0"]);
    assert_eq!(volume.swaps, ["/var/swap file"]);
    let disk = device(&host, "nvme0n1");
    assert_eq!(disk.holders, ["dm-0"]);
    assert_eq!((disk.partitions[0].start_bytes, disk.partitions[0].size_bytes), (1 << 20, 512 << 20));
    assert_eq!(disk.partitions[1].holders, ["dm-0"]);
    assert_eq!(
        (&disk.mounted_at[..], &disk.swaps[..]),
        (&["/boot/efi".into()][..], &["/dev/nvme0n1p3".into()][..])
    );
    // btrfs is found by its source; the FUSE mount with the same source is not.
    assert_eq!(device(&host, "nvme1n1").mounted_at, ["/srv/my data"]);
}

#[test]
fn rights_and_nodes_are_those_of_the_tree() {
    let (scratch, host) = machine("multipath");
    let rights = Rights::read(scratch.path());
    assert!(rights.bpf && rights.perfmon && !rights.sys_admin && !rights.syslog && rights.can_trace());
    assert_eq!((rights.unprivileged_bpf_disabled, rights.perf_event_paranoid), (Some(2), Some(-1)));
    assert_eq!(
        (rights.lockdown.as_deref(), rights.io_uring_disabled, rights.btf),
        (Some("integrity"), None, false)
    );
    assert_eq!((host.cpus_online, host.cpus_possible, host.numa_nodes), (8, 16, 2));
    assert_eq!(host.nodes[1].cpus, [4, 5, 6, 7]);
    assert_eq!(host.memory_bytes, Some(65_536_000 * 1024));
    // The vendor sells bare metal too, and this CPU has no hypervisor flag.
    assert_eq!(host.virtualization, None);
}

#[test]
fn a_filter_takes_names_numbers_paths_and_partitions() {
    let (scratch, host) = machine("multipath");
    let by_id = "/dev/disk/by-id/nvme-MODEL_3840GB_SERIAL0";
    let cases = [
        ("nvme0n1", "nvme0n1"),
        ("nvme0c0n1", "nvme0c0n1"),
        ("/dev/nvme1n1", "nvme1n1"),
        ("nvme0n1p3", "nvme0n1"),
        ("/dev/nvme0n1p3", "nvme0n1"),
        ("259:4", "nvme0n1"),
        ("259:6", "nvme1c2n1"),
        ("252:0", "dm-0"),
        ("vg0-root", "dm-0"),
        ("/dev/mapper/vg0-root", "dm-0"),
        (by_id, "nvme0n1"),
        ("/dev/disk/by-id/nvme-MODEL_3840GB_SERIAL0-part2", "nvme0n1"),
    ];
    for (text, name) in cases {
        assert_eq!(
            select::resolve(&host, scratch.path(), text).map(|device| device.name.as_str()).unwrap(),
            name,
            "{text}"
        );
    }
    for text in ["", "sda", "0:0", "1:2:3", "/dev/sda", "/", "../nvme0n1", "/dev/mapper/nvme0n1", "nvme0n1 "]
    {
        let why = refusal(select::resolve(&host, scratch.path(), text));
        assert!(why.contains("`biopsy devices` lists them") && why.contains(text), "{why}");
    }
    assert!(refusal(select::resolve(&host, scratch.path(), "/dev/disk")).contains("is a directory"));
    assert!(!refusal(select::resolve(&host, scratch.path(), "a\x1b[2J")).contains('\x1b'));
    assert_eq!(select::disk_of_number(scratch.path(), 259, 3).as_deref(), Some("nvme0n1"));
    assert_eq!(select::disk_of_number(scratch.path(), 252, 0).as_deref(), Some("dm-0"));
    assert_eq!(select::disk_of_number(scratch.path(), 9, 9), None);
}

/// Requests of a multipath head run on its hidden paths; a volume is not the device below it.
#[test]
fn what_is_traced_has_requests() {
    let (scratch, host) = machine("multipath");
    let names = |found: Vec<&BlockDevice>| found.iter().map(|disk| disk.name.clone()).collect::<Vec<_>>();
    let traced = |text: &str| select::traceable(&host, scratch.path(), text).map(names);
    for (text, paths) in [
        ("nvme1n1", &["nvme1c1n1", "nvme1c2n1"][..]),
        ("nvme0n1", &["nvme0c0n1"]),
        ("nvme0n1p2", &["nvme0c0n1"]),
        ("/dev/disk/by-id/nvme-MODEL_3840GB_SERIAL0", &["nvme0c0n1"]),
        ("nvme1c2n1", &["nvme1c2n1"]),
        ("loop0", &["loop0"]),
    ] {
        assert_eq!(traced(text).unwrap(), paths, "{text}");
    }
    let why = refusal(traced("vg0-root"));
    assert!(why.starts_with("dm-0 has no requests of its own (it is bio-based)"), "{why}");
    assert!(why.ends_with("its I/O runs on nvme0n1: name that with -d"), "{why}");
    assert!(refusal(traced("nosuch")).contains("`biopsy devices` lists them"));

    // For biopsy's own load everything below the target is traced as well.
    assert_eq!(select::stack(&host, "loop0", false).map(names).unwrap(), ["loop0", "nvme0c0n1"]);
    assert_eq!(select::stack(&host, "nvme1n1", true).map(names).unwrap(), ["nvme1c1n1", "nvme1c2n1"]);

    // A head without any path left, and a disk in memory.
    let (ground, virtio) = machine("virtio");
    let why = refusal(select::traceable(&virtio, ground.path(), "zram0"));
    assert!(why.contains("no disk below it has any: name another device"), "{why}");
    let mut bare = host.clone();
    bare.devices.iter_mut().find(|disk| disk.name == "nvme1n1").unwrap().layers.clear();
    let why = refusal(select::traceable(&bare, scratch.path(), "nvme1n1").map(names));
    assert!(why.contains("no disk below it has any: name another device"), "{why}");
    assert!(refusal(select::stack(&bare, "nvme1n1", false).map(names)).contains("bio-based"));
}

#[test]
fn a_file_of_this_machine_lies_on_the_disk_of_its_file_system() {
    let root = Path::new("/");
    let host = Host::read(root).unwrap();
    for path in ["/", "/etc/passwd"] {
        if let Some(name) = select::disk_of_path(Path::new(path)) {
            assert!(host.device(&name).is_some(), "{path} lies on {name}");
        }
    }
    assert_eq!(select::disk_of_path(Path::new("/proc/self/stat")), None);
    assert_eq!(select::disk_of_path(Path::new("/no/such/file")), None);
}

/// A null has its reason beside it; an unknown value is not zero.
#[test]
fn cpus_and_nodes_are_told_with_what_is_absent() {
    let object = |name: &str| {
        let (scratch, host) = machine(name);
        let selection = select::selection(&host, scratch.path(), &[], false).unwrap();
        let facts = warnings::warnings(&host, &selection.devices);
        printed(&host, &selection, facts)
    };
    let told = object("multipath");
    let cpus = &told["cpus"];
    assert_eq!((&cpus["smt"]["cores"], &cpus["smt"]["siblings"][3]), (&json!(4), &json!([6, 7])));
    let deep =
        json!({"state": 3, "name": "C3", "exit_us": 350, "cpus": [2, 3, 4, 5, 6, 7], "off_cpus": [0, 1]});
    assert_eq!((&cpus["idle"]["driver"], &cpus["idle"]["states"][3]), (&json!("acpi_idle"), &deep));
    assert_eq!(cpus["frequency"][1]["cpus"], json!([4, 5, 6, 7]));
    assert_eq!(cpus["absent"], json!([{"what": "wakeup_limit_us", "why": "no such file or directory"}]));
    assert_eq!(told["nodes"][0]["memory_bytes"], json!(32_768_000u64 << 10));
    assert_eq!(told["nodes"][1]["memory_bytes"], json!(null));
    assert_eq!(told["nodes"][1]["absent"][0]["what"], "memory_bytes");
    assert_eq!(told["nodes"][0]["absent"], json!([]));

    let cpus = &object("virtio")["cpus"];
    assert_eq!((&cpus["idle"], &cpus["frequency"]), (&json!(null), &json!(null)));
    let absent: Vec<_> = cpus["absent"].as_array().unwrap().iter().map(|one| one["what"].clone()).collect();
    assert_eq!(absent, ["smt", "cores", "idle", "frequency"]);
}

/// For each device a null has its reason, also for its link.
#[test]
fn what_is_absent_of_a_device_has_a_reason() {
    for name in ["multipath", "virtio"] {
        let (scratch, host) = machine(name);
        let selection = select::selection(&host, scratch.path(), &[], false).unwrap();
        let told = printed(&host, &selection, Vec::new());
        for device in told["devices"].as_array().unwrap() {
            let absent = device["absent"].as_array().unwrap();
            let keys: Vec<&str> = absent.iter().map(|one| one["what"].as_str().unwrap()).collect();
            let nulls = |object: &serde_json::Value, path: &str| -> Vec<String> {
                let all = object.as_object().into_iter().flatten().filter(|(_, value)| value.is_null());
                all.map(|(key, _)| format!("{path}{key}")).collect()
            };
            let expected = [nulls(device, ""), nulls(&device["link"], "link.")].concat();
            assert_eq!(keys, expected, "{}", device["name"]);
            let unknown = absent.iter().find(|one| one["why"] == "not reported");
            assert!(unknown.is_none(), "{}: {unknown:?}", device["name"]);
        }
    }
}

/// Every attribute of every tree is replaced by each kind of garbage: readers and renderers survive, and no control
/// character is printed.
#[test]
fn garbage_in_every_attribute_is_survived() {
    let garbage: [&[u8]; 9] = [
        b"",
        b"\n\n\n",
        b"\xff\xfe\x00\x80",
        b"\x1b[2J\x1b]0;owned\x07",
        b"99999999999999999999999999999999",
        b"18446744073709551615",
        b"-1",
        b"0-4294967295,[,[],:,::,.",
        "a\u{202e}b [\u{200b}] -\n1 2 3 4 5 - 7\n".as_bytes(),
    ];
    for name in ["virtio", "multipath"] {
        for bytes in garbage {
            let scratch = crate::support::scratch::machine(name, |_| bytes.to_vec());
            look_at_everything(scratch.path());
        }
    }
}

#[test]
fn a_hostile_model_is_kept_as_data_and_shown_escaped() {
    let (scratch, _) = machine("multipath");
    let model = "sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0/nvme/nvme0/model";
    scratch.write(model, b"EVIL\x1b[31m\xff\xe2\x80\xae DRIVE   \n");
    let host = Host::read(scratch.path()).unwrap();
    assert_eq!(device(&host, "nvme0c0n1").model.as_deref(), Some("EVIL\x1b[31m\u{fffd}\u{202e} DRIVE"));
    let selection = select::selection(&host, scratch.path(), &[], false).unwrap();
    let text = text::devices::devices(&host, &selection, &[], &[]);
    assert!(text.contains("EVIL\\u{1b}[31m\\u{fffd}\\u{202e} DRIVE"), "{text}");
}

#[test]
fn devices_that_lie_on_each_other_in_a_ring_are_each_shown_once() {
    let scratch = Scratch::new("ring");
    for (name, below) in [("dm-0", "dm-1"), ("dm-1", "dm-0"), ("dm-2", "dm-2")] {
        scratch.link(&format!("sys/block/{name}/slaves/{below}"), &format!("../../{below}"));
    }
    let host = Host::read(scratch.path()).unwrap();
    assert_eq!(device(&host, "dm-2").layers, Vec::<String>::new());
    let selection = select::selection(&host, scratch.path(), &[], true).unwrap();
    let text = text::devices::devices(&host, &selection, &[], &[]);
    for name in ["dm-0", "dm-1", "dm-2"] {
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn a_scsi_disk_has_maker_model_and_serial_page() {
    let scratch = Scratch::new("scsi");
    let write = |name: &str, bytes: &[u8]| scratch.write(&format!("sys/block/sda/{name}"), bytes);
    write("device/vendor", b"MAKER   \n");
    write("device/model", b"DISK 2000       \n");
    write("device/rev", b"0A01\n");
    write("device/vpd_pg80", b"\x00\x80\x00\x08  AB1234");
    scratch.link("sys/block/sda/device/driver", "../../../../bus/scsi/drivers/sd");
    let host = Host::read(scratch.path()).unwrap();
    let sda = device(&host, "sda");
    assert_eq!(sda.model.as_deref(), Some("MAKER DISK 2000"));
    assert_eq!((sda.serial.as_deref(), sda.firmware.as_deref()), (Some("AB1234"), Some("0A01")));
    assert_eq!(sda.driver.as_deref(), Some("sd"));
    // libata puts its own name in place of the vendor.
    write("device/vendor", b"ATA     \n");
    let host = Host::read(scratch.path()).unwrap();
    assert_eq!(device(&host, "sda").model.as_deref(), Some("DISK 2000"));
}

#[test]
fn without_sysfs_the_refusal_names_the_remedy() {
    let scratch = Scratch::new("empty");
    let error = Host::read(scratch.path()).unwrap_err();
    assert_eq!(error.downcast_ref::<Refusal>().unwrap().exit_code(), 3);
    assert!(error.to_string().contains("mount -t sysfs"), "{error}");
}

#[test]
fn the_text_view_of_the_multipath_machine_is_the_one_on_file() {
    let (scratch, host) = machine("multipath");
    let selection = select::selection(&host, scratch.path(), &[], false).unwrap();
    let text = text::devices::devices(&host, &selection, &warnings::warnings(&host, &selection.devices), &[]);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sysfs/multipath.txt");
    if std::env::var_os("BIOPSY_BLESS").is_some() {
        fs::write(&file, &text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(file).unwrap(), "BIOPSY_BLESS=1 writes the new view");
}

#[test]
fn a_machine_with_one_disk_fits_in_80_columns() {
    let (scratch, host) = machine("virtio");
    let selection = select::selection(&host, scratch.path(), &[], false).unwrap();
    let text = text::devices::devices(&host, &selection, &[], &[]);
    let wide: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(wide.is_empty() && text.contains("max I/O KiB"), "{wide:?}\n{text}");
    assert!(text.contains("(logical/physical)") && text.contains("write cache: "), "{text}");
}

#[test]
fn a_multipath_drive_that_is_named_comes_with_its_paths() {
    let (scratch, host) = machine("multipath");
    let names = |named: &str| -> Vec<String> {
        let selection = select::selection(&host, scratch.path(), &[named.to_string()], false).unwrap();
        selection.devices.iter().map(|device| device.name.clone()).collect()
    };
    assert_eq!(names("nvme1n1"), ["nvme1c1n1", "nvme1c2n1", "nvme1n1"]);
    assert_eq!(names("nvme1c2n1"), ["nvme1c2n1"]);
    assert_eq!(names("dm-0"), ["dm-0"], "other layers stand for themselves");
    // The warning about its slow link is included.
    let selection = select::selection(&host, scratch.path(), &["nvme0n1".to_string()], false).unwrap();
    let facts = warnings::warnings(&host, &selection.devices);
    assert!(facts.iter().any(|fact| fact.id == "link-degraded" && fact.device == "nvme0c0n1"), "{facts:?}");
    let head = host.device("nvme0n1").unwrap();
    let why = biopsy::host::absence::of_device(head, "link").unwrap();
    assert_eq!(why, "it is a multipath drive: see its paths (layers)");
}

/// The line of a drive names the narrowest link above it, which limits what its own link could carry.
#[test]
fn the_narrowest_link_above_a_drive_stands_in_its_line() {
    let (scratch, mut host) = machine("multipath");
    let line = |host: &Host| {
        let named = ["nvme1c1n1".to_string()];
        let selection = select::selection(host, scratch.path(), &named, false).unwrap();
        text::devices::devices(host, &selection, &[], &[])
    };
    assert!(!line(&host).contains("narrowest"));
    let path = host.devices.iter_mut().find(|device| device.name == "nvme1c1n1").unwrap();
    let mut above = path.hops[0].clone();
    above.function = "0000:40:01.0".to_string();
    above.link.width = 1;
    above.link.raw_bytes_per_second /= 4.0;
    path.hops.push(above);
    let shown = line(&host);
    assert!(
        shown
            .replace("\n    ", " ")
            .contains("narrowest link above it: 0000:40:01.0 at 16 GT/s x1 (could be 16 x4)"),
        "{shown}"
    );
}

fn look_at_everything(root: &Path) {
    let mut host = Host::read(root).unwrap();
    host.read_limits(root);
    let _rights = Rights::read(root);
    for all in [false, true] {
        let selection = select::selection(&host, root, &[], all).unwrap();
        let facts = warnings::warnings(&host, &selection.devices);
        let text = text::devices::devices(&host, &selection, &facts, &[]);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        assert!(!text.contains(['\u{202e}', '\u{200b}', '\u{fffd}']), "{text:?}");
        printed(&host, &selection, facts);
    }
    for device in &host.devices {
        // An error or counters, depending on the bytes, but never a panic.
        let _counters = Counters::read(root, &device.name);
        let _disk = select::disk_of_number(root, device.major, device.minor);
        assert!(select::resolve(&host, root, &device.name).is_ok());
    }
}

/// Limits of both versions of cgroups, for known disks only; a limit of the root applies to all.
#[test]
fn throttles_of_cgroups_are_found_with_who_they_hold() {
    let (scratch, host) = machine("virtio");
    let v2 = "25 20 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    scratch.write("proc/self/mountinfo", v2.as_bytes());
    scratch.write("proc/self/cgroup", b"0::/jobs/db\n");
    scratch.write("sys/fs/cgroup/cgroup.controllers", b"io\n");
    scratch.write("sys/fs/cgroup/jobs/io.max", b"254:0 rbps=max wbps=1048576 riops=max wiops=max\n");
    scratch.write("sys/fs/cgroup/jobs/db/io.max", b"8:0 riops=7\n254:0 rbps=2097152 riops=120\ngarbage\n");
    scratch.write("sys/fs/cgroup/jobs/web/io.max", b"254:0 rbps=max wbps=max riops=max wiops=max\n");
    scratch.write("sys/fs/cgroup/other/io.max", b"254:0 wiops=50\n");
    let mut found = throttle::throttles(scratch.path(), &host.devices);
    found.sort_by(|a, b| a.cgroup.cmp(&b.cgroup));
    let names: Vec<(&str, bool)> = found.iter().map(|t| (t.cgroup.as_str(), t.own)).collect();
    assert_eq!(names, [("/jobs", true), ("/jobs/db", true), ("/other", false)]);
    assert!(found.iter().all(|t| t.device == "vda"));
    assert_eq!((found[0].write_bytes_per_second, found[0].read_bytes_per_second), (Some(1 << 20), None));
    assert_eq!((found[1].read_bytes_per_second, found[1].read_ios_per_second), (Some(2 << 20), Some(120)));
    assert_eq!(found[2].limits().collect::<Vec<_>>(), [50]);

    let v1 = "38 31 0:35 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n\
              34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
    scratch.write("proc/self/mountinfo", v1.as_bytes());
    scratch.write("proc/self/cgroup", b"7:blkio:/slow\n3:cpuset:/fast\n0::/\n");
    let blkio = "sys/fs/cgroup/blkio";
    scratch.write(&format!("{blkio}/blkio.throttle.read_bps_device"), b"");
    scratch.write(&format!("{blkio}/slow/blkio.throttle.read_iops_device"), b"254:0 200\n8:0 1\n");
    scratch.write(&format!("{blkio}/slow/blkio.throttle.write_bps_device"), b"254:0 4096\n");
    scratch.write(&format!("{blkio}/fast/blkio.throttle.read_bps_device"), b"254:0 max\n254:0 9\n254 8\n");
    let mut found = throttle::throttles(scratch.path(), &host.devices);
    found.sort_by(|a, b| a.cgroup.cmp(&b.cgroup));
    let names: Vec<(&str, bool)> = found.iter().map(|t| (t.cgroup.as_str(), t.own)).collect();
    assert_eq!(names, [("/fast", false), ("/slow", true)]);
    assert_eq!(found[0].limits().collect::<Vec<_>>(), [9]);
    assert_eq!((found[1].read_ios_per_second, found[1].write_bytes_per_second), (Some(200), Some(4096)));

    // Without cgroups there are no limits.
    scratch.write("proc/self/mountinfo", b"");
    assert!(throttle::throttles(scratch.path(), &host.devices).is_empty());
}

/// Each device shows its limits; without the right to read them, the output does not say that there are none.
#[test]
fn limits_stand_beside_the_device_that_they_are_of() {
    let (scratch, mut host) = machine("virtio");
    let view = |host: &Host| {
        let selection = select::selection(host, scratch.path(), &[], false).unwrap();
        let facts = warnings::warnings(host, &selection.devices);
        let text = text::devices::devices(host, &selection, &facts, &[]);
        (text, printed(host, &selection, facts))
    };
    assert!(!host.read_limits(scratch.path()), "no cgroups are mounted");
    let (_, object) = view(&host);
    assert_eq!(
        (&object["devices"][0]["limits"], &object["devices"][0]["io_cost"]),
        (&json!(null), &json!(null))
    );

    let v2 = "25 20 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    scratch.write("proc/self/mountinfo", v2.as_bytes());
    scratch.write("proc/self/cgroup", b"0::/jobs\n");
    scratch.write("sys/fs/cgroup/cgroup.controllers", b"cpu memory\n");
    assert!(
        !host.read_limits(scratch.path()),
        "without the controller nobody is limited here, or elsewhere is told"
    );
    scratch.write("sys/fs/cgroup/cgroup.controllers", b"cpu io memory\n");
    assert!(host.read_limits(scratch.path()));
    assert_eq!(view(&host).1["devices"][0]["limits"], json!([]));

    scratch.write("sys/fs/cgroup/jobs/io.max", b"254:0 rbps=2097152 wbps=max riops=120 wiops=max\n");
    scratch.write("sys/fs/cgroup/web\x1b[2J/io.max", b"254:0 wiops=50\n8:0 wiops=1\n");
    let qos = "254:0 enable=1 ctrl=user rpct=95.00 rlat=10000 wpct=0.00 wlat=20000 min=50.00 max=150.00\n8:0 enable=1\n";
    scratch.write("sys/fs/cgroup/io.cost.qos", qos.as_bytes());
    scratch.write(
        "sys/fs/cgroup/io.cost.model",
        b"254:0 ctrl=auto model=linear rbps=488636629 rrandiops=8518\n",
    );
    host.read_limits(scratch.path());
    let (text, object) = view(&host);
    let vda = &object["devices"][0];
    let own = json!({"cgroup": "/jobs", "device": "vda", "own": true, "read_bytes_per_second": 2 << 20, "write_bytes_per_second": null,
        "read_ios_per_second": 120, "write_ios_per_second": null});
    let limits = vda["limits"].as_array().unwrap();
    assert!(limits.len() == 2 && limits.contains(&own), "{limits:?}");
    let cost = &vda["io_cost"];
    assert_eq!((&cost["enabled"], &cost["read"]["latency_us"]), (&json!(true), &json!(10_000)));
    assert_eq!(cost["model"]["read"]["random_ios_per_second"], json!(8_518));
    assert_eq!(cost["model"]["write"]["bytes_per_second"], json!(null));
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "cgroup /jobs (of this process) limited to 2.00 MiB/s of reads and 120 reads a second, cgroup /web\\u{1b}[2J limited",
        "limited to 50 writes a second, io.cost on (reads: p95 below 10.0 ms; 50 to 150 % of its model)",
        "warning: vda: the cgroup /jobs limits it",
    ] {
        assert!(flat.contains(part), "{part} is not in {text}");
    }
}

/// What may replace an attribute or a whole directory.
#[derive(Debug, Clone)]
enum Damage {
    Bytes(Vec<u8>),
    Missing,
    Directory,
    /// A link to itself, to its own directory, or to nowhere.
    Link(&'static str),
}

fn damage() -> impl Strategy<Value = Damage> {
    let words: [&[u8]; 9] = [
        b"",
        b"0",
        b"-1",
        b"18446744073709551615",
        b"99999999999999999999999999999999",
        b"0-8191",
        b"1 2 3 4 5 - 7",
        b"8:0 rbps=18446744073709551615 enable=1 rpct=NaN",
        b"\x1b[2J\xff\n\0",
    ];
    prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..300).prop_map(Damage::Bytes),
        4 => prop::sample::select(words.to_vec()).prop_map(|word| Damage::Bytes(word.to_vec())),
        2 => Just(Damage::Missing),
        1 => Just(Damage::Directory),
        2 => prop::sample::select(vec!["itself", ".", "/nonexistent"]).prop_map(Damage::Link),
    ]
}

/// All entries of a tree, with links and directories, but without the targets of links.
fn everything(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            everything(&entry.path(), found);
        }
        found.push(entry.path());
    }
}

fn put(path: &Path, damage: &Damage) {
    // Its directory may have been removed before.
    let Ok(data) = fs::symlink_metadata(path) else { return };
    if data.is_dir() {
        fs::remove_dir_all(path).unwrap()
    } else {
        fs::remove_file(path).unwrap()
    }
    match damage {
        Damage::Bytes(bytes) => fs::write(path, bytes).unwrap(),
        Damage::Missing => {}
        Damage::Directory => fs::create_dir(path).unwrap(),
        Damage::Link("itself") => symlink(path.file_name().unwrap(), path).unwrap(),
        Damage::Link(target) => symlink(target, path).unwrap(),
    }
}

/// What the trees lack: cgroups, a configuration space, and a drive's vectors.
fn with_the_rest(scratch: &Scratch) {
    let mounts = "25 20 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
                  38 31 0:35 / /sys/fs/blkio rw - cgroup cgroup rw,blkio\n";
    let others = fs::read_to_string(scratch.path().join("proc/self/mountinfo")).unwrap();
    scratch.write("proc/self/mountinfo", format!("{others}{mounts}").as_bytes());
    scratch.write("proc/self/cgroup", b"7:blkio:/a\n0::/a\n");
    scratch.write("sys/fs/cgroup/cgroup.controllers", b"io\n");
    scratch.write("sys/fs/cgroup/a/io.max", b"259:0 rbps=2097152\n254:0 wiops=1\n");
    scratch
        .write("sys/fs/cgroup/io.cost.qos", b"259:0 enable=1 rpct=95.00 rlat=10000 min=50.00 max=150.00\n");
    scratch.write("sys/fs/cgroup/io.cost.model", b"259:0 ctrl=auto model=linear rbps=1 wbps=2\n");
    scratch.write("sys/fs/blkio/blkio.throttle.read_bps_device", b"254:0 4096\n");
    scratch.write("dev/cpu_dma_latency", &100i32.to_ne_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    /// A tree with any content and any missing part is read and shown, or refused in a sentence.
    #[test]
    fn any_tree_is_survived(
        name in prop::sample::select(vec!["virtio", "multipath"]),
        damages in prop::collection::vec((any::<prop::sample::Index>(), damage()), 1..120),
    ) {
        let scratch = crate::support::scratch::machine(name, |bytes| bytes);
        with_the_rest(&scratch);
        let mut all = Vec::new();
        everything(scratch.path(), &mut all);
        all.sort();
        damages.iter().for_each(|(at, damage)| put(at.get::<PathBuf>(&all), damage));
        let patience = Patience::new(LONGEST);
        match Host::read(scratch.path()) {
            Ok(_) => look_at_everything(scratch.path()),
            Err(error) => prop_assert!(error.downcast_ref::<Refusal>().is_some(), "{error}"),
        }
        patience.holds();
    }
}

/// A disk that was removed between two reads has its name, but no other value, and no zeros.
#[test]
fn a_disk_that_is_gone_has_no_zeros() {
    let scratch = Scratch::new("gone");
    scratch.write("sys/block/sda/mq/0/nothing", b"");
    scratch.write("sys/block/sda/sda1/partition", b"1\n");
    let host = Host::read(scratch.path()).unwrap();
    let selection = select::selection(&host, scratch.path(), &[], true).unwrap();
    let object = printed(&host, &selection, Vec::new());
    let zeros = |value: &serde_json::Value| {
        let keys = value.as_object().unwrap().iter();
        keys.filter(|(_, value)| **value == json!(0)).map(|(key, _)| key.clone()).collect::<Vec<_>>()
    };
    let disk = &object["devices"][0];
    assert_eq!(disk["name"], "sda");
    assert_eq!(zeros(disk), Vec::<String>::new());
    assert_eq!(zeros(&disk["partitions"][0]), Vec::<String>::new());
    assert_eq!(zeros(&disk["queues"][0]), ["queue"], "its number");
    assert_eq!(zeros(&object["host"]), Vec::<String>::new());
    let text = text::devices::devices(&host, &selection, &[], &[]);
    assert!(!text.contains("read-ahead"), "{text}");
}

/// The largest supported machine: 256 CPUs with a queue each, and 4,096 vectors of four namespaces.
#[test]
fn many_cpus_and_vectors_are_read_in_seconds() {
    let scratch = Scratch::new("vectors");
    let system = "sys/devices/system/cpu";
    scratch.write(&format!("{system}/online"), b"0-255\n");
    scratch.write(&format!("{system}/possible"), b"0-255\n");
    scratch.write(&format!("{system}/cpuidle/current_driver"), b"intel_idle\n");
    for cpu in 0..256 {
        for (state, latency) in [(0, "0\n"), (1, "2\n"), (2, "190\n")] {
            let state = format!("{system}/cpu{cpu}/cpuidle/state{state}");
            scratch.write(&format!("{state}/latency"), latency.as_bytes());
            scratch.write(&format!("{state}/disable"), b"0\n");
        }
    }
    let function = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
    for irq in 0..4096 {
        scratch.write(&format!("{function}/msi_irqs/{irq}"), b"msix\n");
    }
    // The driver requests one vector per queue; the others have no action.
    for irq in 0..=256 {
        scratch.write(&format!("sys/kernel/irq/{irq}/actions"), format!("nvme0q{irq}\n").as_bytes());
    }
    for number in 1..=4 {
        let disk = format!("nvme/nvme0/nvme0n{number}");
        for queue in 0..256 {
            scratch.write(&format!("{function}/{disk}/mq/{queue}/cpu_list"), format!("{queue}\n").as_bytes());
        }
        scratch.link(
            &format!("sys/block/nvme0n{number}"),
            &format!("../devices/pci0000:00/0000:00:01.0/0000:01:00.0/{disk}"),
        );
    }
    let patience = Patience::new(LONGEST);
    look_at_everything(scratch.path());
    patience.holds();
    let host = Host::read(scratch.path()).unwrap();
    assert_eq!((host.devices.len(), host.devices[3].vectors.len()), (4, 4096));
    assert_eq!(host.idle.unwrap().states[2].cpus.len(), 256);
}

/// The thousands of devices of a storage server (volumes on disks, each with a queue) are read and searched in seconds.
#[test]
fn thousands_of_devices_are_read_and_found() {
    const DISKS: u32 = 2_500;
    let scratch = Scratch::new("thousands");
    for number in 0..DISKS {
        let disk = format!("sys/block/sd{number}");
        scratch.write(&format!("{disk}/dev"), format!("{}:{}\n", 8 + number / 256, number % 256).as_bytes());
        scratch.write(&format!("{disk}/mq/0/nr_tags"), b"32\n");
        let volume = format!("sys/block/dm-{number}");
        scratch.write(&format!("{volume}/dev"), format!("253:{number}\n").as_bytes());
        scratch.write(&format!("{volume}/dm/name"), format!("vg-{number}\n").as_bytes());
        scratch.link(&format!("{volume}/slaves/sd{number}"), "../..");
    }
    let mounts: String =
        (0..DISKS).map(|n| format!("{n} 1 253:{n} / /srv/{n} rw - ext4 /dev/mapper/vg-{n} rw\n")).collect();
    scratch.write("proc/self/mountinfo", mounts.as_bytes());
    let patience = Patience::new(LONGEST);
    let host = Host::read(scratch.path()).unwrap();
    assert_eq!(host.devices.len(), 2 * DISKS as usize);
    let last = device(&host, "dm-2499");
    assert_eq!(
        (&last.layers[..], &last.mounted_at[..]),
        (&["sd2499".to_string()][..], &["/srv/2499".to_string()][..])
    );
    let names: Vec<String> = (0..300).map(|n| format!("vg-{n}")).collect();
    let selection = select::selection(&host, scratch.path(), &names, false).unwrap();
    assert_eq!(selection.devices.len(), 300);
    let all = select::selection(&host, scratch.path(), &[], true).unwrap();
    let shown = text::devices::devices(&host, &all, &warnings::warnings(&host, &all.devices), &[]);
    patience.holds();
    assert!(shown.contains("vg-2499"), "{}", &shown[..300]);
}
