//! Tests the files that `biopsy load` makes for its jobs: the real binary on real files.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::command::job::{adds_up, biopsy, number};
use crate::command::json;
use crate::disk::{Dir, MIB};

/// The sections of the result of a job file, or the error.
fn sections(dir: &Dir, jobs: &str) -> Result<Vec<Value>, String> {
    let path = dir.join("jobs.fio");
    fs::write(&path, format!("[global]\nbs=4k\ndirectory={}\n{jobs}", dir.path())).unwrap();
    let output = biopsy(&[&path, "--write"]).output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8(output.stderr).unwrap());
    }
    let load = json(&output);
    let sections = load["sections"].as_array().cloned().unwrap_or_else(|| vec![load]);
    sections.iter().for_each(adds_up);
    Ok(sections)
}

fn length(path: &str) -> u64 {
    fs::metadata(path).unwrap().len()
}

/// The lengths that fio 3.33 made.
#[test]
fn a_file_is_as_long_as_all_jobs_need_it() {
    let dir = Dir::new("length");
    for (name, jobs, mib) in [
        ("threads", "[a]\nfilename=threads\nrw=write\nsize=1m\noffset_increment=1m\nnumjobs=4\n", 4),
        ("apart", "[global]\nfilename=apart\nrw=write\nsize=1m\n[a]\n[b]\noffset=1m\n", 2),
        ("larger", "[global]\nfilename=larger\nrw=randwrite\n[a]\nsize=1m\n[b]\nsize=2m\n", 2),
        ("reader", "[global]\nfilename=reader\n[a]\nrw=write\nsize=1m\n[b]\nrw=read\nsize=3m\n", 3),
        ("paths", "[a]\nfilename=paths\nrw=write\nsize=1m\n[b]\nfilename=./paths\nrw=write\nsize=2m\n", 2),
    ] {
        let sections = sections(&dir, jobs).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert_eq!(length(&dir.join(name)), mib * MIB, "{name}");
        assert!(sections.iter().all(|section| number(section, "bytes") > 0), "{name}: {sections:?}");
    }
}

#[test]
fn a_file_that_any_job_reads_is_filled() {
    let dir = Dir::new("filled");
    let one = "rw=write\nnumber_ios=1\nsize=1m\n";
    let reads = "rw=randread\nsize=1m\n";
    for (name, jobs) in [
        ("beside", format!("[w]\n{one}[r]\n{reads}")),
        ("before", format!("[r]\n{reads}[w]\nstonewall\n{one}")),
        ("after", format!("[w]\n{one}[r]\nstonewall\n{reads}")),
        ("direct", format!("[w]\ndirect=1\n{one}[r]\n{reads}")),
    ] {
        sections(&dir, &format!("[global]\nfilename={name}\n{jobs}")).unwrap();
        let content = fs::read(dir.join(name)).unwrap();
        assert_eq!(content.len() as u64, MIB);
        assert!(content.chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)), "{name}");
    }
    // A read-only job makes a file of an odd length too.
    sections(&dir, "[r]\nfilename=odd\nrw=read\nfilesize=10000\n").unwrap();
    assert_eq!(length(&dir.join("odd")), 10_000);
}

#[test]
fn what_was_made_goes_where_the_start_fails() {
    let dir = Dir::new("undone");
    let (made, other) = (dir.join("made"), dir.join("other"));
    let jobs = |bs| {
        format!(
            "[a]\nfilename=made\nrw=randrw\nsize=1m\n[b]\nfilename=other\nrw=write\ndirect=1\nbs={bs}\nsize=1m\n"
        )
    };
    let why = sections(&dir, &jobs(1000)).unwrap_err();
    assert!(why.contains("block size 1000"), "{why}");
    assert!(!Path::new(&made).exists() && !Path::new(&other).exists());
    // The refused run left nothing that would prevent the next one.
    sections(&dir, &jobs(4096)).unwrap();
    assert_eq!([length(&made), length(&other)], [MIB, MIB]);
}
