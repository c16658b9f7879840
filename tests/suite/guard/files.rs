//! Tests which files may be overwritten, and which are made.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use biopsy::load::guard::{self, Machine, Permission};

use super::holder::Holder;
use super::machine::{Folder, MIB, View, alone};
use super::{allowed, overwriting, refused, unsaid, write};

#[test]
fn files_are_overwritten_where_they_are_named_and_nobody_else_has_them() {
    let _alone = alone();
    let folder = Folder::new();
    let file = folder.file("data", MIB);
    unsaid(write(&file, &allowed(&[])), "--overwrite");
    unsaid(write(&file, &Permission { write: false, ..overwriting(&file) }), "--write");
    unsaid(write(&file, &Permission { readonly: true, ..overwriting(&file) }), "--readonly");
    let other = folder.file("other", MIB);
    unsaid(write(&file, &overwriting(&other)), "--overwrite");
    unsaid(write(&file, &overwriting(&folder.0)), "--overwrite");
    let link = folder.join("link");
    symlink(&file, &link).unwrap();
    unsaid(write(&link, &overwriting(&other)), "--overwrite");
    for path in [&file, &link] {
        let opened = write(path, &overwriting(&file)).unwrap();
        assert_eq!((opened.bytes, opened.is_device), (MIB, false));
        opened.file.write_all_at(b"x", 3).unwrap();
    }
    for how in ["read", "map", "thread"] {
        let holder = Holder::start(how, &file);
        refused(write(&file, &overwriting(&file)), &[&holder.pid()]);
    }
    let hard = folder.join("hard");
    fs::hard_link(&file, &hard).unwrap();
    refused(write(&file, &overwriting(&file)), &["hard links", "copy"]);
    fs::remove_file(&hard).unwrap();
    write(&file, &overwriting(&file)).unwrap();
    unsaid(write(&folder.0, &overwriting(&folder.0)), "directory");
    let program = std::env::current_exe().unwrap();
    let outcome = write(&program, &overwriting(&program)).unwrap_err().to_string();
    assert!(outcome.contains("program that runs") || outcome.contains("hard links"), "{outcome}");
}

#[test]
fn switches_of_the_kernel_are_no_data() {
    let _alone = alone();
    for path in ["/proc/self/comm", "/proc/self/oom_score_adj", "/sys/kernel/uevent_seqnum"] {
        let path = Path::new(path);
        if path.exists() {
            refused(write(path, &overwriting(path)), &["switch of the kernel"]);
        }
    }
}

#[test]
fn a_file_is_made_anew_or_by_this_run_and_never_over_another_one() {
    let _alone = alone();
    let folder = Folder::new();
    let view = View::new();
    let machine = Machine { root: &view.root, meanwhile: &|| {} };
    let words = Permission { write: true, ..Permission::default() };
    let path = folder.join("made");
    unsaid(machine.created(&path, MIB, &Permission::default(), false), "--write");
    unsaid(machine.created(&path, MIB, &Permission { readonly: true, ..words.clone() }, false), "--readonly");
    unsaid(machine.created(&path, 0, &words, false), "--size");
    assert!(!path.exists());
    let first = machine.created(&path, MIB, &words, false).unwrap();
    assert_eq!(first.bytes, MIB);
    first.file.write_all_at(b"first", 0).unwrap();
    // A file that was made in this run may be used by two jobs, and keeps its content.
    let second = machine.created(&path, 2 * MIB, &words, false).unwrap();
    assert_eq!(
        (second.bytes, second.file.metadata().unwrap().permissions().mode() & 0o777),
        (2 * MIB, 0o600)
    );
    let mut bytes = [0; 5];
    second.file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"first");
    write(&path, &words).unwrap();

    // The same name, but another user's file.
    drop((first, second));
    fs::remove_file(&path).unwrap();
    File::create(&path).unwrap().write_all(b"theirs").unwrap();
    unsaid(machine.created(&path, MIB, &words, false), "--overwrite");
    let link = folder.join("link");
    symlink(folder.join("nowhere"), &link).unwrap();
    assert!(machine.created(&link, MIB, &words, false).is_err());
    assert!(!folder.join("nowhere").exists(), "a link to nowhere was followed");
    symlink(&path, folder.join("to")).unwrap();
    unsaid(machine.created(&folder.join("to"), MIB, &words, false), "--overwrite");
    assert_eq!(fs::read(&path).unwrap(), b"theirs");
    assert_eq!(machine.created(&path, MIB, &overwriting(&path), false).unwrap().bytes, MIB);
}

#[test]
fn a_file_that_cannot_be_made_leaves_nothing() {
    let _alone = alone();
    let folder = Folder::new();
    let words = Permission { write: true, ..Permission::default() };
    // Memory has no direct I/O that reaches a device.
    if folder.0.starts_with("/dev/shm") {
        refused(guard::created(&folder.join("direct"), MIB, &words, true), &["O_DIRECT"]);
    }
    refused(guard::created(&folder.join("huge"), 1 << 62, &words, false), &["room"]);
    refused(
        guard::created(&folder.join("no/such/folder"), MIB, &words, false),
        &["directory does not exist"],
    );
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
}
