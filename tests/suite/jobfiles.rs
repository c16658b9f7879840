//! Tests job files of published measurements word by word, and compares with fio if it is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use crate::support::skip::skipped;
use biopsy::load::jobfile::{self, JobFile};
use biopsy::load::options::{OptionScope, Section, Takes, words};
use biopsy::load::{BlockSizes, Engine, Extent, Job, Pattern, Placement, Target};
use biopsy::refusal::Refusal;

const GIB: u64 = 1 << 30;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/jobfiles")
}

fn text(name: &str) -> String {
    fs::read_to_string(directory().join(name)).unwrap()
}

fn parsed(name: &str) -> JobFile {
    jobfile::read(&text(name), name).unwrap_or_else(|why| panic!("{why}"))
}

fn blocks(bytes: u64) -> [BlockSizes; 3] {
    std::array::from_fn(|_| BlockSizes::fixed(bytes))
}

/// A section with fio's defaults and the words that every published file has.
fn section(name: &str, path: &str) -> Job {
    Job {
        name: name.to_string(),
        direct: true,
        engine: Engine::Libaio,
        ..Job::fio_defaults(Target::Existing(path.into()))
    }
}

#[test]
fn four_disks_with_eight_threads_each_on_a_cpu_of_its_own() {
    let mut file = parsed("posted_msi.fio");
    let job = |name: &str, path: &str, cpus: std::ops::RangeInclusive<u32>, seed: u64| Job {
        rw: Pattern::RandRead,
        norandommap: true,
        group_reporting: true,
        time_based: true,
        runtime: Some(Duration::from_secs(30)),
        ramp_time: Duration::from_secs(3),
        iodepth: 64,
        numjobs: 8,
        exitall: true,
        placement: Placement::Cpus { cpus: cpus.collect(), split: true },
        seed,
        ..section(name, path)
    };
    // randrepeat=0: the seed is different each time.
    let seeds: Vec<u64> = file.jobs.iter().map(|job| job.seed).collect();
    let again: Vec<u64> = parsed("posted_msi.fio").jobs.iter().map(|job| job.seed).collect();
    assert_ne!(seeds, again);
    let wanted = [
        job("disk_nvme6n1_thread_1", "/dev/nvme6n1", 0..=7, seeds[0]),
        job("disk_nvme6n1_thread_1", "/dev/nvme5n1", 8..=15, seeds[1]),
        job("disk_nvme5n1_thread_2", "/dev/nvme4n1", 16..=23, seeds[2]),
        job("disk_nvme5n1_thread_3", "/dev/nvme3n1", 24..=31, seeds[3]),
    ];
    assert_eq!(file.jobs, wanted);
    let warning = file.warnings.remove(0);
    assert!(file.warnings.is_empty(), "{:?}", file.warnings);
    assert_eq!(
        warning,
        "posted_msi.fio:23: the section 'disk_nvme6n1_thread_1' has the same name as that in line 20: both are jobs"
    );
}

#[test]
fn a_whole_drive_is_written() {
    let job = Job {
        rw: Pattern::RandWrite,
        bs: blocks(64 << 10),
        refill_buffers: true,
        iodepth: 128,
        ..section("write-random", "/dev/nvme0n1")
    };
    let wanted = JobFile { jobs: vec![job], warnings: Vec::new(), readonly: false, minimal: false };
    assert_eq!(parsed("write_random.fio"), wanted);
}

#[test]
fn four_threads_read_the_first_100_gib() {
    let job = Job {
        bs: blocks(1 << 20),
        iodepth: 32,
        numjobs: 4,
        group_reporting: true,
        size: Some(Extent::Bytes(100 * GIB)),
        ..section("read", "/dev/nvme0n1")
    };
    assert_eq!(parsed("read_first.fio").jobs, std::slice::from_ref(&job));
    // What the author meant by two options on one line.
    let meant = text("read_second.fio").replace("100g offset", "100g\noffset");
    let read = jobfile::read(&meant, "x").unwrap();
    assert_eq!(read.jobs, [Job { offset: Extent::Bytes(100 * GIB), ..job }]);
}

#[test]
fn of_two_options_on_one_line_none_is_dropped() {
    let Err(Refusal::Usage(why)) = jobfile::read(&text("read_second.fio"), "read_second.fio") else {
        panic!("fio reads the first 100g of it again");
    };
    assert_eq!(
        why,
        "read_second.fio:11: two options are on one line, 'size' and 'offset=100g', and fio ignores the second: \
         put it on its own line"
    );
}

#[test]
fn the_first_100_gib_are_trimmed() {
    let job = Job {
        rw: Pattern::Trim,
        bs: blocks(1 << 20),
        iodepth: 32,
        size: Some(Extent::Bytes(100 * GIB)),
        ..section("nvme", "/dev/nvme0n1")
    };
    assert_eq!(parsed("trim.fio").jobs, [job]);
}

#[test]
fn a_section_may_have_blanks_and_a_path_as_its_name() {
    let job = Job {
        rw: Pattern::RandRead,
        iodepth: 16,
        group_reporting: true,
        stonewall: true,
        ..section("/dev/nvme1n1 P60713012839 MTFDHAL2T4MCF-1AN1ZABYY", "/dev/nvme1n1")
    };
    assert_eq!(parsed("power8.fio").jobs, [job]);
}

/// Runs fio. None: it is not installed, and the test is skipped.
fn fio(words: &[&str]) -> Option<Output> {
    let output = Command::new("fio").args(words).current_dir(env!("CARGO_TARGET_TMPDIR")).output();
    if output.is_err() {
        skipped("fio is not installed");
    }
    output.ok()
}

#[test]
fn fio_takes_every_word_that_a_job_file_takes_here() {
    // fio takes these two on its command line only.
    let only_here = ["readonly", "minimal"];
    let mut text = String::new();
    for word in
        words().filter(|word| word.place == OptionScope::Everywhere && !only_here.contains(&word.name))
    {
        let values: &[&str] = match word.takes {
            Takes::Words(["random", ..]) => {
                &["random", "zipf:1.2", "pareto:0.5", "normal:20", "zoned:60/10:40/90"]
            }
            Takes::Words(words) => words,
            Takes::Flag | Takes::Switch => &["0", "1"],
            Takes::Size | Takes::Sizes => &["4k", "0x1000", "4kb", "4ki"],
            Takes::Shares if word.name == "bssplit" => &["4k/60:64k/40", "4k/60:64k/"],
            Takes::Shares => &["4k-64k"],
            Takes::Extent => &["1m", "20%"],
            Takes::Counts if word.name == "cmdprio_percentage" => &["20", "20,30", ",30"],
            Takes::Counts if word.name == "cmdprio_class" => &["1", "2,3"],
            Takes::Counts if word.name == "cmdprio" => &["0", "2,3"],
            Takes::Counts => &["100", "1k,500", ",500", "500,"],
            Takes::Time => &["3", "3s", "10ms", "2m"],
            Takes::List => &["0"],
            Takes::Count => &["1"],
            Takes::Text(_) if word.name == "cmdprio_bssplit" => &["4k/20", "4k/20:64k/30"],
            Takes::Text(_) if word.name == "numa_mem_policy" => &["default", "local", "prefer:0", "bind:0"],
            Takes::Text(_) => &["7"],
        };
        for name in [&[word.name], word.aliases].concat() {
            for value in values {
                assert_eq!(word.check(value), Ok(()), "{name}={value}");
                // The words that others need come first, so that the tested word has priority.
                let engine = if *name == *"cmd_type" { "io_uring_cmd" } else { "io_uring" };
                text += &format!(
                    "[{name} {value}]\nioengine={engine}\nfilename=x\nsize=1m\nruntime=3\n{name}={value}\n"
                );
            }
        }
    }
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("words-{}.fio", std::process::id()));
    fs::write(&path, &text).unwrap();
    let output = fio(&["--parse-only", path.to_str().unwrap()]);
    fs::remove_file(&path).unwrap();
    let Some(output) = output else { return };
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn defaults_of_a_job_file_are_those_that_fio_tells() {
    let job = Job::fio_defaults(Target::Existing("x".into()));
    let flag = |is_on: bool| u8::from(is_on).to_string();
    let defaults = [
        ("rw", job.rw.name().to_string()),
        ("rwmixread", job.rwmixread.to_string()),
        ("bs", "4096".to_string()),
        ("ioengine", job.engine.name().to_string()),
        ("iodepth", job.iodepth.to_string()),
        ("iodepth_batch", job.iodepth_batch.to_string()),
        ("iodepth_batch_complete_min", job.iodepth_batch_complete.to_string()),
        ("numjobs", job.numjobs.to_string()),
        ("runtime", job.runtime.map_or(0, |time| time.as_secs()).to_string()),
        ("offset", "0".to_string()),
        ("offset_increment", "0".to_string()),
        ("randseed", format!("{:#x}", job.seed)),
        ("randrepeat", "1".to_string()),
        ("allrandrepeat", "0".to_string()),
        ("random_distribution", "random".to_string()),
        ("norandommap", flag(job.norandommap)),
        ("direct", flag(job.direct)),
        ("buffered", flag(!job.direct)),
        ("overwrite", flag(job.overwrite)),
        ("invalidate", flag(job.invalidate)),
        ("fadvise_hint", "1".to_string()),
        ("fsync", job.fsync.to_string()),
        ("fdatasync", job.fdatasync.to_string()),
        ("verify", "0".to_string()),
        ("do_verify", flag(job.do_verify)),
        ("rate_process", "linear".to_string()),
        ("thinktime", job.thinktime.as_micros().to_string()),
        ("thinktime_blocks", job.thinktime_blocks.to_string()),
        ("gtod_reduce", "0".to_string()),
        ("continue_on_error", "none".to_string()),
        ("kb_base", "1024".to_string()),
    ];
    assert_eq!(job.bs, blocks(4096));
    for (word, ours) in defaults {
        let Some(output) = fio(&[&format!("--cmdhelp={word}")]) else { return };
        let help = String::from_utf8_lossy(&output.stdout).into_owned();
        let theirs = help.lines().find_map(|line| line.trim().strip_prefix("default:")).map(str::trim);
        // A flag has no default, which means off.
        let theirs = theirs.unwrap_or_else(|| panic!("{word}: {help}")).replace("no default", "0");
        assert_eq!(theirs, ours, "{word}");
    }
}

/// Runs `biopsy load` in the directory of the test.
fn load(directory: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_biopsy"))
        .arg("load")
        .args(words)
        .current_dir(directory)
        .output()
        .unwrap()
}

/// Makes a directory for a test on the disk of the build, with a file of 1 MiB to read.
fn place(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("jobfiles-{test}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("data"), vec![0xa5; 1 << 20]).unwrap();
    path
}

#[test]
fn a_job_file_that_the_generator_can_do_is_run() {
    let dir = place("run");
    let text = "[global]\nioengine=io_uring\ndirect=1\nrw=randread\nregisterfiles\nfixedbufs\niodepth_batch=0\niodepth=8\n\
                norandommap\ntime_based\nruntime=200ms\ncontinue_on_error=1\ngroup_reporting\n[a]\nfilename=data\n";
    fs::write(dir.join("a.fio"), text).unwrap();
    let output = load(&dir, &["a.fio", "--json"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    // fio's threads run on any CPU: as long as the generator does not do that, the job file is refused for this reason
    // only.
    if output.status.code() == Some(2) {
        assert!(error.contains("leave out a placement"), "{error}");
    } else {
        assert!(output.status.success(), "{error}");
        let load: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(load["ios"].as_u64().unwrap() > 0);
    }
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn what_cannot_be_read_or_done_is_one_sentence() {
    let dir = place("refused");
    fs::write(dir.join("a.fio"), "[a]\nbogus=1\n").unwrap();
    fs::write(dir.join("w.fio"), "[a]\nfilename=data\nrw=write\n").unwrap();
    fs::write(dir.join("bytes.fio"), b"[a]\nrw=read\n\xff\xfe\n").unwrap();
    fs::write(dir.join("huge.fio"), vec![b'#'; jobfile::MOST_BYTES + 1]).unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&["a.fio"], "a.fio:2: 'bogus' is not an option of biopsy load"),
        (&["--jobfile", "a.fio"], "a.fio:2: 'bogus'"),
        (&["--jobfile", "none"], "cannot read the job file none"),
        (&["bytes.fio"], "bytes.fio:3: this is not text"),
        (&["huge.fio"], "more than 1048576 bytes"),
        (&["a.fio", "data"], "a.fio is a job file among other targets"),
        (
            &["w.fio", "--timestamps=off"],
            "--timestamps with the job file w.fio is an option of the command line",
        ),
        (&["w.fio", "--iodepth=1..4"], "--iodepth with the job file w.fio '1..4'"),
        (&["a.fio", "--scratch"], "--scratch does not go with the job file"),
        (&["w.fio", "--readonly"], "job a of w.fio writes, and --readonly forbids it"),
        (&["w.fio"], "add --write"),
        (&["data", "--iodepth", "1..4", "--minimal"], "--iodepth has several values (1, 2, 4), but fio's"),
        (&["data", "--json", "--minimal"], "--output-format and --minimal"),
        (&["data", "--json", "--output-format", "json+"], "--output-format and --minimal"),
        (&["data", "--verify=crc32c"], "leave out verify without writes"),
        (&["data", "--hipri", "--sqthread_poll"], "leave out one of hipri and sqthread_poll"),
        (&["data", "--filename=data"], "--filename and TARGET both name the target"),
        (&["data", "--bs=4KiB"], "means powers of 1000 to fio and powers of 1024 elsewhere"),
        (&["data", "--kb_base=1000"], "'1000' is not supported"),
        (&[".", "--scratch", "--size=50%"], "--size of a scratch file"),
        (&["--name=a", "--name=b", "data"], "--filename after it"),
        (&["--rw=read"], "<TARGET>"),
    ];
    for (words, said) in cases {
        let output = load(&dir, words);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(error.contains(said) && error.lines().count() == 1, "{words:?}: {error}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(fs::read(dir.join("data")).unwrap(), vec![0xa5; 1 << 20]);
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn the_help_names_every_word() {
    let output = load(Path::new("."), &["--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    for word in words() {
        let is_shown = help.contains(&format!("--{}", word.name));
        assert!(is_shown || word.section == Section::Unchanged, "{}", word.name);
    }
}

/// A job file of fio that writes its defaults explicitly runs unchanged.
#[test]
fn words_that_change_nothing_are_taken_at_that_value_alone() {
    for word in words().filter(|word| word.section == Section::Unchanged) {
        let Takes::Words(values) = word.takes else { panic!("{}", word.name) };
        values.iter().for_each(|value| assert_eq!(word.check(value), Ok(()), "{}={value}", word.name));
        let why = word.check("7").unwrap_err();
        assert!(why.starts_with("'7' is not supported: write ") && why.contains("remove it"), "{why}");
    }
}
