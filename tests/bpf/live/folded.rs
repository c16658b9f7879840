//! Runs `biopsy flame` on a program and reads the folded stacks.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::skip::skipped;
use crate::support::tool::{is_root, no_tracing, run};

/// Whether a profile can be measured on this machine; if not, the test is skipped with the reason.
pub fn can_see() -> bool {
    let why = if is_root() { no_tracing() } else { Some("it needs root") };
    if let Some(why) = why {
        skipped(why);
    }
    why.is_none()
}

/// Runs a program under `biopsy flame`. Returns the folded lines and the program's output.
#[track_caller]
pub fn folded(options: &[&str], folder: &Path, program: &str) -> (BTreeMap<String, u64>, String) {
    let out = folder.join("out.folded");
    let said = folder.join("said");
    let command = format!("exec {} >{}", folder.join(program).display(), said.display());
    let mut words = vec!["flame", "--folded", "--max-loss", "100", "-o", out.to_str().unwrap()];
    words.extend(options);
    words.extend(["--", "sh", "-c", &command]);
    let output = run(&words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let line = |line: &str| {
        let (stack, value) = line.rsplit_once(' ').unwrap();
        (stack.to_string(), value.parse().unwrap())
    };
    (fs::read_to_string(&out).unwrap().lines().map(line).collect(), fs::read_to_string(&said).unwrap())
}

/// The sum of the lines whose stack satisfies `is_in`.
pub fn sum(lines: &BTreeMap<String, u64>, is_in: impl Fn(&str) -> bool) -> f64 {
    lines.iter().filter(|(stack, _)| is_in(stack)).map(|(_, n)| *n as f64).sum()
}
