//! Tests what may be written, with attempts to write everything else: real devices over files of the tests, real
//! mounts, processes and links. Needs root. `vmtest/cases/guard` runs the same tests in a virtual machine, which also
//! has the layers that this machine may not have.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use biopsy::load::guard::{self, GuardedTarget, Machine, Permission};
use biopsy::refusal::Refusal;

mod files;
mod holder;
pub(crate) mod machine;
use crate::support::patience::Patience;
use crate::support::skip::skipped;
use holder::{Holder, said};
use machine::{Disk, Folder, MIB, View, alone, is_root};

/// Not a test: the helper process of the tests below.
#[test]
fn holder() {
    holder::hold();
}

fn allowed(names: &[&str]) -> Permission {
    Permission {
        write: true,
        destroy_data_on: names.iter().map(|name| name.to_string()).collect(),
        ..Permission::default()
    }
}

fn overwriting(path: &Path) -> Permission {
    Permission { write: true, overwrite: vec![path.to_path_buf()], ..Permission::default() }
}

fn write(path: &Path, permission: &Permission) -> Result<GuardedTarget, Refusal> {
    let view = View::new();
    Machine { root: &view.root, meanwhile: &|| {} }.writable(path, permission, false)
}

/// Checks that the refusal has exit code 3, is one line, and contains all of `parts`.
#[track_caller]
fn refused(outcome: Result<GuardedTarget, Refusal>, parts: &[&str]) -> String {
    let refusal = outcome.expect_err("it was opened");
    assert_eq!(refusal.exit_code(), 3, "{refusal}");
    let why = refusal.to_string();
    for part in parts {
        assert!(why.contains(part), "no '{part}' in: {why}");
    }
    assert!(!why.contains(['\n', '\x1b']), "{why:?}");
    assert!(why.contains(": "), "no remedy: {why}");
    why
}

/// Checks a usage error, which names the missing word of the command line.
#[track_caller]
fn unsaid(outcome: Result<GuardedTarget, Refusal>, word: &str) {
    let refusal = outcome.expect_err("it was opened");
    assert_eq!(refusal.exit_code(), 2, "{refusal}");
    assert!(refusal.to_string().contains(word), "{refusal}");
}

#[test]
fn an_unused_device_is_opened_once_it_is_named_and_claimed_while_it_is_open() {
    let _alone = alone();
    let Some(disk) = Disk::new() else { return };
    let opened = write(&disk.path, &allowed(&[&disk.name])).unwrap();
    assert!(opened.is_device);
    assert_eq!((opened.bytes, opened.device.as_deref()), (32 * MIB, Some(disk.name.as_str())));
    opened.file.write_all_at(&[7; 4096], 4096).unwrap();
    // Meanwhile no other program can mount or claim the disk, and neither can this run.
    let claim = OpenOptions::new().read(true).custom_flags_excl().open(&disk.path);
    assert_eq!(claim.unwrap_err().raw_os_error(), Some(libc::EBUSY));
    refused(write(&disk.path, &allowed(&[&disk.name])), &["this run itself", &disk.name]);
    drop(opened);
    OpenOptions::new().read(true).custom_flags_excl().open(&disk.path).unwrap();
}

trait Exclusive {
    fn custom_flags_excl(&mut self) -> &mut Self;
}

impl Exclusive for OpenOptions {
    fn custom_flags_excl(&mut self) -> &mut Self {
        std::os::unix::fs::OpenOptionsExt::custom_flags(self, libc::O_EXCL)
    }
}

#[test]
fn the_words_are_needed_all_of_them_and_exactly() {
    let _alone = alone();
    let Some(disk) = Disk::partitioned(&[(1, 8), (9, 8)]) else { return };
    let name = disk.name.as_str();
    unsaid(write(&disk.path, &Permission::default()), "--write");
    unsaid(write(&disk.path, &Permission { write: false, ..allowed(&[name]) }), "--write");
    unsaid(write(&disk.path, &Permission { readonly: true, ..allowed(&[name]) }), "--readonly");
    let path = disk.path.to_str().unwrap();
    for other in ["", path, "loop", &format!("{name}p1"), &format!("{name} "), &name.to_uppercase()] {
        unsaid(write(&disk.path, &allowed(&[other])), &format!("--destroy-data-on {name}"));
    }
    unsaid(write(&disk.path, &overwriting(&disk.path)), "--destroy-data-on");
    // The name of the disk does not allow its partition.
    unsaid(write(&disk.part(1), &allowed(&[name])), &format!("--destroy-data-on {name}p1"));
    let part = write(&disk.part(1), &allowed(&[&format!("{name}p1")])).unwrap();
    assert_eq!((part.bytes, part.device.as_deref()), (8 * MIB, Some(name)));
}

#[test]
fn a_link_or_another_node_stands_for_what_it_leads_to() {
    let _alone = alone();
    let (Some(disk), Some(other)) = (Disk::new(), Disk::new()) else { return };
    let folder = Folder::new();
    // A link as in /dev/disk/by-id, but to the wrong disk: only the kernel's name counts.
    let link = folder.join(&other.name);
    symlink(&disk.path, &link).unwrap();
    unsaid(write(&link, &allowed(&[&other.name])), &format!("--destroy-data-on {}", disk.name));
    assert!(write(&link, &allowed(&[&disk.name])).unwrap().name.ends_with(&disk.name));
    let node = PathBuf::from(format!("/dev/biopsy-{}", other.name));
    mknod(&node, disk.number());
    unsaid(write(&node, &allowed(&[&other.name])), &disk.name);
    let _holder = Holder::start("read", &node);
    refused(write(&disk.path, &allowed(&[&disk.name])), &[&format!("has {} open", disk.name)]);
    fs::remove_file(&node).unwrap();
    refused(write(&disk.path, &allowed(&[&disk.name])), &[&format!("has {} open", disk.name)]);
}

fn mknod(path: &Path, number: u64) {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is a C string.
    let done = unsafe { libc::mknod(path.as_ptr(), libc::S_IFBLK | 0o600, number) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_name_that_changes_between_check_and_open_is_not_followed() {
    let _alone = alone();
    let (Some(disk), Some(other)) = (Disk::new(), Disk::new()) else { return };
    let folder = Folder::new();
    let link = folder.join("link");
    symlink(&disk.path, &link).unwrap();
    let changed = || {
        fs::remove_file(&link).unwrap();
        symlink(&other.path, &link).unwrap();
    };
    let view = View::new();
    let machine = Machine { root: &view.root, meanwhile: &changed };
    let both = allowed(&[&disk.name, &other.name]);
    refused(machine.writable(&link, &both, false), &["became something else", "nothing was written"]);

    // The same with a file, by its name and by a link.
    let (one, two) = (folder.file("one", MIB), folder.file("two", MIB));
    let changed = || fs::rename(&two, &one).unwrap();
    let machine = Machine { root: &view.root, meanwhile: &changed };
    refused(machine.writable(&one, &overwriting(&one), false), &["became something else"]);
}

#[test]
fn a_device_that_is_taken_between_check_and_open_is_seen() {
    let _alone = alone();
    let Some(disk) = Disk::new() else { return };
    let view = Mutex::new(Vec::new());
    // The other process only opens the device: the claim succeeds, and the second check sees the process.
    let taken = || view.lock().unwrap().push(Holder::start("read", &disk.path));
    let root = PathBuf::from("/");
    let machine = Machine { root: &root, meanwhile: &taken };
    let outcome = machine.writable(&disk.path, &allowed(&[&disk.name]), false);
    // If the machine has a process that cannot be inspected, the first check refuses.
    if view.lock().unwrap().is_empty() {
        refused(outcome, &["cannot be examined"]);
        // In a view without the holder, a descriptor of this process is seen.
        let held = Mutex::new(None);
        let taken = || *held.lock().unwrap() = Some(File::open(&disk.path).unwrap());
        let view = View::new();
        let machine = Machine { root: &view.root, meanwhile: &taken };
        refused(machine.writable(&disk.path, &allowed(&[&disk.name]), false), &["this run itself"]);
    } else {
        refused(outcome, &[&format!("has {} open", disk.name)]);
    }
}

#[test]
fn a_race_of_links_never_opens_what_was_not_named() {
    let _alone = alone();
    let (Some(disk), Some(other)) = (Disk::new(), Disk::new()) else { return };
    let folder = Folder::new();
    let (link, spare) = (folder.join("link"), folder.join("spare"));
    symlink(&disk.path, &link).unwrap();
    let stop = AtomicBool::new(false);
    let (mut opened, mut refusals) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 0;
            while !stop.load(Ordering::Relaxed) {
                turn += 1;
                let target = if turn % 2 == 0 { &disk.path } else { &other.path };
                symlink(target, &spare).unwrap();
                fs::rename(&spare, &link).unwrap();
            }
        });
        let end = Instant::now() + Duration::from_secs(4);
        while Instant::now() < end {
            match write(&link, &allowed(&[&disk.name])) {
                Ok(found) => {
                    opened += 1;
                    assert_eq!(found.file.metadata().unwrap().rdev(), disk.number());
                }
                Err(_) => refusals += 1,
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(refusals > 0, "{opened} opened");
}

#[test]
fn whoever_has_it_open_keeps_it_whole() {
    let _alone = alone();
    let Some(disk) = Disk::partitioned(&[(1, 8), (9, 8)]) else { return };
    let (name, part) = (disk.name.clone(), format!("{}p1", disk.name));
    for how in ["read", "map", "thread", "ring"] {
        let holder = Holder::start(how, &disk.path);
        let held = if how == "map" { "mapped" } else { "open" };
        refused(write(&disk.path, &allowed(&[&name])), &[&holder.pid(), &name, held]);
        // A partition is a part of the device that is open.
        refused(write(&disk.part(1), &allowed(&[&part])), &[&holder.pid(), &name]);
        drop(holder);
        // The other way round, and for the partition beside it.
        let holder = Holder::start(how, &disk.part(1));
        refused(write(&disk.path, &allowed(&[&name])), &[&holder.pid(), &part]);
        refused(write(&disk.part(2), &allowed(&[&format!("{name}p2")])), &[&holder.pid(), &part]);
    }
    write(&disk.path, &allowed(&[&name])).unwrap();
}

#[test]
fn a_hostile_process_name_reaches_no_terminal() {
    let _alone = alone();
    let Some(disk) = Disk::new() else { return };
    let _holder = Holder::start("hostile", &disk.path);
    let why = refused(write(&disk.path, &allowed(&[&disk.name])), &["\\u{1b}[2J)\\nx"]);
    assert!(!why.contains('\x1b'));
}

#[test]
fn this_process_counts_like_any_other() {
    let _alone = alone();
    let Some(disk) = Disk::new() else { return };
    let file = File::open(&disk.path).unwrap();
    refused(write(&disk.path, &allowed(&[&disk.name])), &["this run itself"]);
    drop(file);
    let reading = guard::existing(&disk.path, false).unwrap();
    refused(write(&disk.path, &allowed(&[&disk.name])), &["this run itself"]);
    drop(reading);
    write(&disk.path, &allowed(&[&disk.name])).unwrap();
}

fn ext4(path: &Path) -> bool {
    let made = Command::new("mke2fs").args(["-q", "-F", "-t", "ext4"]).arg(path).status();
    made.is_ok_and(|status| status.success())
}

#[test]
fn a_mounted_file_system_is_seen_in_every_namespace() {
    let _alone = alone();
    let Some(disk) = Disk::partitioned(&[(1, 12), (13, 12)]) else { return };
    if !ext4(&disk.part(1)) {
        return skipped("no mke2fs");
    }
    let (name, part) = (disk.name.clone(), format!("{}p1", disk.name));
    let holder = Holder::start("mount", &disk.part(1));
    let everywhere = [
        (disk.path.clone(), name.clone()),
        (disk.part(1), part.clone()),
        (disk.part(2), format!("{name}p2")),
    ];
    for (path, named) in &everywhere {
        refused(write(path, &allowed(&[named])), &[&part, "is mounted on", "mount namespace", &holder.pid()]);
    }
    drop(holder);
    // The mount is in no table: the kernel's claim shows it.
    let holder = Holder::start("lazy", &disk.part(1));
    for (path, named) in &everywhere {
        refused(write(path, &allowed(&[named])), &["in use by"]);
    }
    drop(holder);
    patient(|| write(&disk.path, &allowed(&[&name])).map(drop));
}

/// Repeats an attempt, since the kernel needs some time.
#[track_caller]
fn patient(attempt: impl Fn() -> Result<(), Refusal>) {
    let patience = Patience::new(Duration::from_secs(10));
    while let Err(refusal) = attempt() {
        assert!(!patience.is_over(), "{refusal}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn swap_is_seen_by_its_disk_and_by_its_partition() {
    let _alone = alone();
    let Some(disk) = Disk::partitioned(&[(1, 12), (13, 12)]) else { return };
    // What mkswap writes: version, last page, and the signature at the end of the first page.
    let mut page = [0u8; 4096];
    page[1024..1028].copy_from_slice(&1u32.to_le_bytes());
    page[1028..1032].copy_from_slice(&(12 * 256u32 - 1).to_le_bytes());
    page[4086..].copy_from_slice(b"SWAPSPACE2");
    let file = OpenOptions::new().write(true).open(disk.part(1)).unwrap();
    file.write_all_at(&page, 0).and_then(|()| file.sync_all()).unwrap();
    drop(file);
    let path = std::ffi::CString::new(disk.part(1).as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is a C string.
    if unsafe { libc::swapon(path.as_ptr(), 0) } != 0 {
        return skipped(format_args!("no swap here: {}", std::io::Error::last_os_error()));
    }
    let part = format!("{}p1", disk.name);
    let outcomes = [
        write(&disk.path, &allowed(&[&disk.name])),
        write(&disk.part(1), &allowed(&[&part])),
        write(&disk.part(2), &allowed(&[&format!("{}p2", disk.name)])),
    ];
    // SAFETY: as above.
    assert_eq!(unsafe { libc::swapoff(path.as_ptr()) }, 0);
    for outcome in outcomes {
        refused(outcome, &[&part, "is used as swap", "swapoff"]);
    }
}

#[test]
fn a_loop_device_above_or_below_or_on_the_same_file_is_seen() {
    let _alone = alone();
    let Some(lower) = Disk::partitioned(&[(1, 12), (13, 12)]) else { return };
    let part = format!("{}p1", lower.name);
    let upper = Disk::over(&lower.part(1)).unwrap();
    refused(
        write(&lower.path, &allowed(&[&lower.name])),
        &[&upper.name, "is layered on", &part, "losetup -d"],
    );
    refused(write(&lower.part(1), &allowed(&[&part])), &[&upper.name, "is layered on"]);
    // The upper device is free; opening it also claims what is below it.
    let opened = write(&upper.path, &allowed(&[&upper.name])).unwrap();
    let claim = OpenOptions::new().read(true).custom_flags_excl().open(lower.part(1));
    assert_eq!(claim.unwrap_err().raw_os_error(), Some(libc::EBUSY));
    drop(opened);
    for held in [lower.part(1), lower.path.clone()] {
        let holder = Holder::start("read", &held);
        refused(write(&upper.path, &allowed(&[&upper.name])), &[&holder.pid(), "open"]);
    }
    // Two loop devices on one device: a write to one changes the other.
    let twin = Disk::over(&lower.part(1)).unwrap();
    refused(write(&upper.path, &allowed(&[&upper.name])), &[&twin.name, "is layered on"]);
    drop(twin);
    if ext4(&lower.part(1)) {
        let _holder = Holder::start("mount", &lower.part(1));
        refused(write(&upper.path, &allowed(&[&upper.name])), &["is mounted on", &part]);
    }
    drop(upper);

    let folder = Folder::new();
    let file = folder.file("shared", 4 * MIB);
    let one = Disk::over(&file).unwrap();
    let two = Disk::over(&file).unwrap();
    refused(write(&one.path, &allowed(&[&one.name])), &[&two.name, "is layered on", "file"]);
    refused(write(&file, &overwriting(&file)), &["is layered on"]);
    // A renamed file is the same file.
    fs::rename(&file, folder.join("renamed")).unwrap();
    refused(write(&one.path, &allowed(&[&one.name])), &[&two.name, "is layered on", "file"]);
    drop(two);
    let holder = Holder::start("read", &folder.join("renamed"));
    refused(write(&one.path, &allowed(&[&one.name])), &[&holder.pid()]);
}

#[test]
fn a_mapped_device_is_held_by_its_layer_and_the_layer_by_what_is_below() {
    let _alone = alone();
    let Some(disk) = Disk::partitioned(&[(1, 12), (13, 12)]) else { return };
    let mapped = format!("biopsy-guard-{}", std::process::id());
    let table = format!("0 {} linear {} 0", 12 * 2048, disk.part(1).display());
    let made = Command::new("dmsetup").args(["create", "--noudevsync", &mapped, "--table", &table]).output();
    if !made.as_ref().is_ok_and(|made| made.status.success()) {
        return skipped("no device mapper here");
    }
    let dm =
        Command::new("dmsetup").args(["info", "-c", "--noheadings", "-o", "blkdevname", &mapped]).output();
    let dm = String::from_utf8(dm.unwrap().stdout).unwrap().trim().to_string();
    let node = Path::new("/dev").join(&dm);
    let part = format!("{}p1", disk.name);
    let mut outcomes = vec![
        (write(&disk.path, &allowed(&[&disk.name])), vec![dm.clone(), part.clone()]),
        (write(&disk.part(1), &allowed(&[&part])), vec![dm.clone(), "dmsetup remove".into()]),
        (write(&disk.part(2), &allowed(&[&format!("{}p2", disk.name)])), vec![dm.clone(), part.clone()]),
    ];
    let alias = write(&node, &allowed(&[&mapped])).unwrap_err();
    let free = write(&node, &allowed(&[&dm])).map(drop);
    let holder = Holder::start("read", &disk.path);
    outcomes.push((write(&node, &allowed(&[&dm])), vec![holder.pid(), disk.name.clone()]));
    drop(holder);
    if ext4(&node) {
        let holder = Holder::start("mount", &node);
        outcomes.push((write(&node, &allowed(&[&dm])), vec!["is mounted on".into(), dm.clone()]));
        outcomes.push((write(&disk.path, &allowed(&[&disk.name])), vec![dm.clone()]));
        drop(holder);
    }
    patient(|| match Command::new("dmsetup").args(["remove", "--noudevsync", &mapped]).status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Refusal::Refused("dmsetup remove".into())),
    });
    assert!(alias.to_string().contains(&format!("--destroy-data-on {dm}")), "{alias}");
    free.unwrap();
    for (outcome, parts) in outcomes {
        refused(outcome, &parts.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn an_exclusive_opening_elsewhere_is_a_claim() {
    let _alone = alone();
    let Some(disk) = Disk::partitioned(&[(1, 8), (9, 8)]) else { return };
    let held = OpenOptions::new().read(true).custom_flags_excl().open(disk.part(1)).unwrap();
    for (path, name) in [(disk.path.clone(), disk.name.clone()), (disk.part(2), format!("{}p2", disk.name))] {
        refused(write(&path, &allowed(&[&name])), &[&format!("{}p1", disk.name)]);
    }
    drop(held);
    // The claim of a partition prevents mounts of the partitions beside it, which the load of this disk would affect.
    let opened = write(&disk.part(2), &allowed(&[&format!("{}p2", disk.name)])).unwrap();
    for path in [disk.part(1), disk.part(2), disk.path.clone()] {
        assert!(OpenOptions::new().read(true).custom_flags_excl().open(&path).is_err(), "{path:?}");
    }
    drop(opened);
}

#[test]
fn a_read_only_device_stays_as_it_is() {
    const BLKROSET: libc::Ioctl = 0x125d;
    let _alone = alone();
    let Some(disk) = Disk::new() else { return };
    let set = |flag: libc::c_int| {
        let device = File::open(&disk.path).unwrap();
        // SAFETY: the call reads one int from the address.
        assert_eq!(unsafe { libc::ioctl(device.as_raw_fd(), BLKROSET, &flag) }, 0);
    };
    set(1);
    refused(write(&disk.path, &allowed(&[&disk.name])), &["read-only"]);
    set(0);
    write(&disk.path, &allowed(&[&disk.name])).unwrap();
}

#[test]
fn the_disk_of_the_root_file_system_is_never_opened_whatever_is_said() {
    let _alone = alone();
    if !is_root() {
        return skipped("needs root");
    }
    let root = fs::metadata("/").unwrap().dev();
    let node = fs::read_dir("/dev").unwrap().flatten().map(|entry| entry.path()).find(|path| {
        fs::metadata(path).is_ok_and(|data| data.file_type().is_block_device() && data.rdev() == root)
    });
    let Some(node) = node else { return skipped("the root file system is on no disk") };
    let name = node.file_name().unwrap().to_str().unwrap();
    // The check for the root disk comes before anything is opened for writing.
    refused(write(&node, &allowed(&[name])), &["the disk of the root file system", name]);
}

#[test]
fn what_is_no_namespace_is_no_passthrough() {
    let _alone = alone();
    for path in ["/dev/null", "/dev/zero", "/dev/shm", "/proc/self/exe"] {
        unsaid(guard::passthrough(Path::new(path), None), "/dev/ng");
        unsaid(guard::passthrough(Path::new(path), Some(&Permission::default())), "--write");
        unsaid(guard::passthrough(Path::new(path), Some(&allowed(&["null"]))), "/dev/ng");
    }
    unsaid(guard::writable(Path::new("/dev/null"), &allowed(&["null"]), false), "character device");
}

/// Only on a drive of the test's own: it is opened, but not written.
#[test]
fn a_namespace_and_its_generic_device_are_one() {
    let _alone = alone();
    let (block, generic) = (Path::new("/dev/nvme0n1"), Path::new("/dev/ng0n1"));
    if std::env::var_os("BIOPSY_VM").is_none() || !generic.exists() {
        return skipped("no NVMe drive of the test's own");
    }
    let reading = guard::passthrough(generic, None).unwrap();
    assert!(reading.is_device && reading.bytes > 0 && reading.device.as_deref() == Some("nvme0n1"));
    refused(guard::writable(block, &allowed(&["nvme0n1"]), true), &["this run itself", "ng0n1"]);
    drop(reading);
    unsaid(guard::passthrough(generic, Some(&allowed(&["nvme0"]))), "--destroy-data-on ng0n1");
    for name in ["ng0n1", "nvme0n1"] {
        let opened = guard::passthrough(generic, Some(&allowed(&[name]))).unwrap();
        assert!(OpenOptions::new().read(true).custom_flags_excl().open(block).is_err(), "not claimed");
        drop(opened);
    }
    unsaid(guard::writable(block, &allowed(&["ng0n1"]), true), "--destroy-data-on nvme0n1");
    for held in [block, generic] {
        let holder = Holder::start("read", held);
        refused(guard::passthrough(generic, Some(&allowed(&["ng0n1"]))), &[&holder.pid()]);
        refused(guard::writable(block, &allowed(&["nvme0n1"]), true), &[&holder.pid()]);
    }
    guard::writable(block, &allowed(&["nvme0n1"]), true).unwrap();
}

#[test]
fn who_cannot_see_everybody_writes_to_no_device() {
    let _alone = alone();
    let Some(disk) = Disk::new() else { return };
    // A view of this machine in which entries of /proc can be removed.
    let folder = Folder::new();
    let view = View::new();
    let proc = folder.join("proc");
    fs::create_dir(&proc).unwrap();
    for name in ["sys", "dev"] {
        symlink(Path::new("/").join(name), folder.join(name)).unwrap();
    }
    for entry in fs::read_dir(view.root.join("proc")).unwrap().flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.parse::<u32>().is_ok() || name == "self" || name == "swaps")
        {
            symlink(Path::new("/proc").join(&name), proc.join(&name)).unwrap();
        }
    }
    let machine = Machine { root: &folder.0, meanwhile: &|| {} };
    machine.writable(&disk.path, &allowed(&[&disk.name]), false).unwrap();
    fs::remove_file(proc.join("swaps")).unwrap();
    refused(machine.writable(&disk.path, &allowed(&[&disk.name]), false), &["/proc/swaps cannot be read"]);
    symlink("/proc/swaps", proc.join("swaps")).unwrap();
    // Without kernel threads it looks like a separate PID namespace.
    for entry in fs::read_dir(&proc).unwrap().flatten() {
        if fs::read_link(entry.path().join("exe")).is_err() {
            fs::remove_file(entry.path()).ok();
        }
    }
    symlink("/proc/swaps", proc.join("swaps")).ok();
    refused(machine.writable(&disk.path, &allowed(&[&disk.name]), false), &["PID namespace"]);

    // A real case, if this machine has a process that even root cannot read.
    if view.root != Path::new("/") {
        refused(
            guard::writable(&disk.path, &allowed(&[&disk.name]), false),
            &["cannot be examined", "CAP_SYS_PTRACE"],
        );
    }
}

#[test]
fn a_user_who_may_open_the_node_but_not_look_at_processes_writes_nothing() {
    let _alone = alone();
    let Some(disk) = Disk::new() else { return };
    let before = fs::metadata(&disk.path).unwrap().permissions();
    fs::set_permissions(&disk.path, PermissionsExt::from_mode(0o666)).unwrap();
    let said = said(&[], "nobody", &disk.path);
    fs::set_permissions(&disk.path, before).unwrap();
    let said = said.expect("no answer");
    // The user cannot see either what the loop devices of others lie on.
    assert!(said.contains("cannot be examined") || said.contains("cannot see what"), "{said}");
    assert!(said.contains("run as root"), "{said}");
}

#[test]
fn a_pid_namespace_of_its_own_hides_who_uses_it() {
    let _alone = alone();
    let Some(disk) = Disk::new() else { return };
    let _holder = Holder::start("read", &disk.path);
    let Some(said) = said(&["unshare", "--pid", "--fork", "--mount-proc"], "try", &disk.path) else {
        return skipped("no unshare here");
    };
    assert!(said.contains("PID namespace of its own") && said.contains("outside of a container"), "{said}");
}
