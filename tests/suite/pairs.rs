//! Compares pairs of the published measurements in `tests/cases`, as kept results, by `biopsy compare`.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::disk::Dir;
use crate::support::tool::{biopsy, finish, quiet, refused};

/// Before, after, the differences of their set-ups, and two parts of the answer, such as `0.457 × IOPS`. Single runs
/// have no interval; with three equal runs each, the direction is the published one.
const PAIRS: [(&str, &str, &str, &str, &str); 10] = [
    ("t-three-workers", "t-mq-deadline", "", "0.457 × IOPS", "is worse than"),
    ("t-one-worker", "t-three-workers", "load", "2.55 × IOPS", "is better than"),
    ("v-one-job", "v-two-jobs", "load", "1.41 × IOPS", "is better than"),
    // A drive answers reads of trimmed blocks without its medium.
    ("e-gen2-data", "e-gen2-trimmed", "", "1.50 × IOPS", "is better than"),
    ("e-gen3-data", "e-gen3-trimmed", "", "3.03 × IOPS", "is better than"),
    // With data on it, the drive is not faster on a faster link.
    ("e-gen2-data", "e-gen3-data", "", "1.007 × IOPS", "is the same as"),
    ("e-gen2-trimmed", "e-gen3-trimmed", "", "2.04 × IOPS", "is better than"),
    ("t-half-speed-link", "t-one-root-complex", "", "2.00 × IOPS", "is better than"),
    ("t-two-root-complexes", "t-one-root-complex", "", "1.000 × IOPS", "is the same as"),
    // Half as many operations of twice the size: the bandwidth decides.
    ("t-one-root-complex", "t-1m-split", "block size", "1.002 × bandwidth", "is the same as"),
];

/// The load of a case, as `biopsy load --json` would have written it.
fn kept(case: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(format!("{case}.json"));
    let case: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let load = &case["load"];
    let rate = load["operations_per_second"].as_f64().unwrap();
    let kept = json!({
        "schema": "biopsy.load/1", "kernel": "published", "device": load["target"], "rw": "randread",
        "bs": load["block_bytes"], "iodepth": load["iodepth"], "numjobs": load["numjobs"], "iops": rate,
        "bytes_per_second": rate * load["block_bytes"].as_f64().unwrap(), "ios": rate, "latency": {},
    });
    format!("{kept}\n")
}

#[test]
fn published_pairs_have_the_published_answer() {
    let dir = Dir::new("pairs");
    let run = |words: &[&str]| -> Output {
        // The output has the names of the files without a path.
        finish(biopsy(&[&["compare"], words].concat()).current_dir(dir.join("")).spawn().unwrap())
    };
    let first_line = |output: Output| {
        quiet(&output);
        String::from_utf8(output.stdout).unwrap().lines().next().unwrap().to_string()
    };
    for (before, after, differs, figures, verdict) in PAIRS {
        let write = |runs: usize| {
            for name in [before, after] {
                fs::write(dir.join(name), kept(name).repeat(runs)).unwrap();
            }
        };
        write(1);
        let across = match differs {
            "" => String::new(),
            what => {
                let why = format!("{before} and {after} differ in {what} (");
                refused(&run(&[before, after]), 3, &[&why, "--across"]);
                format!("Across another {what}: ")
            }
        };
        assert_eq!(
            first_line(run(&[before, after, "--across"])),
            format!(
                "{across}Unclear whether {after} differs from {before}: {figures} (1 and 1 run); a confidence interval \
                 needs at least 3 runs of each: append them to one file"
            )
        );
        write(3);
        let line = first_line(run(&[before, after, "--across"]));
        assert!(line.starts_with(&format!("{across}{after} {verdict} {before}")), "{line}");
        assert!(line.contains(&format!(": {figures} (")) && line.ends_with(", 3 and 3 runs)"), "{line}");
    }
}
