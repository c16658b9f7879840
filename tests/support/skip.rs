//! Records that a test is skipped on this machine, and why.

use std::fmt::Display;
use std::fs;

/// The environment variable with the path of the file into which the test runner expects the reason.
const FILE: &str = "BIOPSY_TEST_SKIPPED";

/// Records that the current test is skipped, and why; the test returns after it. `tests/runner` runs each test in a
/// process of its own and counts it as ignored. Under plain `cargo test` the reason is printed.
pub fn skipped(why: impl Display) {
    println!("skipped: {why}");
    if let Some(file) = std::env::var_os(FILE) {
        fs::write(file, why.to_string()).expect("the runner made the folder");
    }
}
