//! Tests the counts of I/O errors and retries with reads past the end of a loop device's file. Needs root.

use std::fs::{self, File};
use std::process::Command;

use crate::support::skip::skipped;
use crate::support::tool::{self, biopsy, finish, object};
use serde_json::json;

/// A loop device whose file is cut after one and a half blocks. The driver ends reads beyond with an error, and retries
/// a request that was partly done.
struct Cut {
    path: String,
    file: String,
}

impl Cut {
    fn new() -> Option<Self> {
        let file = format!("/dev/shm/biopsy-test-cut-{}", std::process::id());
        File::create(&file).and_then(|file| file.set_len(1 << 20)).ok()?;
        let made = Command::new("losetup").args(["-f", "--show", "--direct-io=on", &file]).output().ok()?;
        let path = String::from_utf8_lossy(&made.stdout).trim().to_string();
        let cut = Self { path, file };
        let name = cut.name();
        let is_direct =
            || fs::read_to_string(format!("/sys/block/{name}/loop/dio")).is_ok_and(|on| on == "1\n");
        if !made.status.success() || !is_direct() {
            return None;
        }
        File::options().write(true).open(&cut.file).and_then(|file| file.set_len(6144)).ok()?;
        Some(cut)
    }

    fn name(&self) -> String {
        self.path.trim_start_matches("/dev/").to_string()
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        if !self.path.is_empty() {
            let _gone = Command::new("losetup").args(["-d", &self.path]).status();
        }
        let _gone = fs::remove_file(&self.file);
    }
}

#[test]
fn each_error_and_retry_is_counted_with_its_cause() {
    if !tool::is_root() {
        return skipped("a loop device needs root");
    }
    if let Some(why) = tool::no_tracing() {
        return skipped(why);
    }
    let Some(cut) = Cut::new() else {
        return skipped("no loop device with direct I/O over memory can be made here");
    };
    let input = format!("if={}", cut.path);
    // Of 256 blocks the second gets half of its bytes, and none when it is retried; the 254 after it get nothing.
    let dd = ["dd", &input, "of=/dev/null", "bs=4k", "skip=1", "iflag=direct", "conv=noerror"];
    let name = cut.name();
    let words = [&["errors", "--json", "-d", &name, "--"][..], &dd].concat();
    let output = finish(biopsy(&words).spawn().unwrap());
    let seen = object(&output, "biopsy.errors/1");
    let rows = seen["rows"].as_array().unwrap();
    let row = |event: &str| rows.iter().find(|row| row["event"] == event).cloned().unwrap_or_default();
    let (error, retry) = (row("error"), row("retry"));
    assert_eq!(error["events"], json!(255), "{seen:#}");
    assert_eq!((&error["cause"], &error["op"]), (&json!("I/O"), &json!("read")), "{error}");
    assert_eq!(error["bytes"], json!(254 * 4096 + 2048), "{error}");
    assert_eq!((&retry["events"], &retry["cause"]), (&json!(1), &json!(null)), "{seen:#}");
    let text = finish(biopsy(&[&["errors", "-d", &name, "--"][..], &dd].concat()).spawn().unwrap());
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.lines().any(|line| line.contains(&cut.name()) && line.contains("I/O")), "{text}");
}
