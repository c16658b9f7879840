//! Tests that each view reports in one sentence, without other output, that the kernel refused a kind of BPF call.

use std::os::unix::process::CommandExt as _;
use std::process::Output;

use crate::support::scratch::Scratch;
use crate::support::seccomp::forbid;
use crate::support::skip::skipped;
use crate::support::tool::{biopsy, finish, no_tracing, refused};

/// Numbers of `enum bpf_cmd`.
const LOOKUPS: [u32; 2] = [1, 24];
const BATCH: [u32; 1] = [24];
const LOAD: [u32; 1] = [5];
/// BPF_RAW_TRACEPOINT_OPEN and BPF_LINK_CREATE.
const ATTACH: [u32; 2] = [17, 28];

/// Runs the view while calls of these numbers fail as on a kernel without memory.
fn without(calls: &'static [u32], arguments: &[&str]) -> Output {
    let mut command = biopsy(arguments);
    // SAFETY: between fork and exec the closure makes two system calls and allocates, which glibc allows there.
    unsafe { command.pre_exec(|| forbid(libc::SYS_bpf, calls, libc::ENOMEM)) };
    finish(command.spawn().unwrap())
}

/// Views with programs of their own, with the map whose reading fails if lookups are refused, and if batches are. None:
/// an idle view makes no such call.
const VIEWS: [(&[&str], Option<&str>, Option<&str>); 6] = [
    (&["latency"], Some("rows"), None),
    (&["trace"], Some("rows"), None),
    (&["interrupts"], Some("vector_cpus"), Some("vector_cpus")),
    (&["locks"], Some("reclaims"), Some("reclaimers")),
    (&["errors"], None, Some("error_rows")),
    (&["flame", "--off-cpu"], Some("wait_rows"), Some("wait_stacks")),
];

#[test]
fn what_cannot_be_loaded_attached_or_read_is_named() {
    if let Some(why) = no_tracing() {
        skipped(why);
        return;
    }
    let scratch = Scratch::new("refused-calls");
    let picture = scratch.path().join("picture.svg");
    for (view, lookups, batches) in VIEWS {
        let mut arguments = [view, &["--for", "200ms"]].concat();
        if view[0] == "flame" {
            arguments.extend(["-o", picture.to_str().unwrap()]);
        }
        println!("{view:?}");
        refused(&without(&LOAD, &arguments), 3, &["loading", "failed", "`biopsy check`"]);
        refused(&without(&ATTACH, &arguments), 3, &["attaching", "failed", "`biopsy check`"]);
        let unread = |calls, map: &str| {
            let what = format!("reading the BPF map {map} failed");
            refused(&without(calls, &arguments), 1, &[&what]);
        };
        lookups.inspect(|map| unread(&LOOKUPS, map));
        batches.inspect(|map| unread(&BATCH, map));
        assert!(!picture.exists());
    }
    // The sampler of CPU time reads a ring, and is attached by its perf event.
    let flame = ["flame", "--for", "200ms", "-o", picture.to_str().unwrap()];
    refused(&without(&LOAD, &flame), 3, &["loading the stack sampler failed", "`biopsy check`"]);
    assert!(!picture.exists());
}
