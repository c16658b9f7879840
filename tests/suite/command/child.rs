//! Watches a running command and sends signals to it.

use std::fs;
use std::process::Child;
use std::time::Duration;

use crate::support::patience;

pub fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: the child was started here and has not been waited for, so that its id is its own.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
}

/// Waits until `there` is true, for a minute at most.
#[track_caller]
pub fn wait_for(what: &str, there: impl FnMut() -> bool) {
    patience::wait_for(what, Duration::from_secs(60), there);
}

/// Waits until the child has written its first bytes to a disk: on a busy machine its start may take long.
#[track_caller]
pub fn wait_for_writes(child: &Child) {
    wait_for("the first write", || {
        let told = fs::read_to_string(format!("/proc/{}/io", child.id())).unwrap_or_default();
        let bytes = told.lines().find_map(|line| line.strip_prefix("write_bytes: "));
        bytes.is_some_and(|bytes| bytes != "0")
    });
}

/// The number of the child's threads.
pub fn threads(child: &Child) -> usize {
    fs::read_dir(format!("/proc/{}/task", child.id())).map_or(0, Iterator::count)
}
