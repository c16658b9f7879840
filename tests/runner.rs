//! Runs tests of other test programs, each in a process of its own: `runner NAME=PROGRAM... [-- ARGUMENT...]`.
//!
//! ARGUMENTs are those of libtest: a part of a test's name, `--exact`, `--skip`, `--test-threads`, `--nocapture`. A
//! test of a module `whole_machine` runs alone; all others run in parallel. A test that fails is run once more, and
//! each attempt is printed. If more than one test in twenty was retried, the run fails. `tests/run` reads the last line
//! of the output. Without programs (plain `cargo test`) nothing runs.

#[path = "support/patience.rs"]
#[allow(dead_code, reason = "the test programs use the rest")]
mod patience;

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

use patience::Patience;

/// The module whose tests run alone.
const ALONE: &str = "whole_machine::";

const ATTEMPTS: usize = 2;

/// A test that takes longer is considered hung.
const LIMIT: Duration = Duration::from_secs(180);

const SLOWEST: usize = 10;

/// A test program, and the prefix of its tests' names.
struct Program {
    name: String,
    path: PathBuf,
}

/// What all tests of a run share.
struct Run {
    /// A test that runs alone holds this for writing, all others for reading.
    machine: RwLock<()>,
    /// The folder for files that tests write.
    folder: PathBuf,
    show_output: bool,
    ended: Mutex<Vec<Ended>>,
}

/// A test that has ended.
struct Ended {
    name: String,
    took: Duration,
    attempts: usize,
}

enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// The number of SIGINTs and SIGTERMs so far. After the first one no further test is started, and the running tests end
/// by themselves, since a killed test leaves its loop devices behind. The second one kills them.
static INTERRUPTS: AtomicU32 = AtomicU32::new(0);

extern "C" fn interrupt(_signal: libc::c_int) {
    INTERRUPTS.fetch_add(1, Ordering::Relaxed);
}

fn interrupts() -> u32 {
    INTERRUPTS.load(Ordering::Relaxed)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let split = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let programs: Vec<Program> = words[..split].iter().filter_map(|word| program(word)).collect();
    if programs.is_empty() {
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::from_iter(
        ["runner".to_string()].into_iter().chain(words[split..].iter().skip(1).cloned()),
    );
    let run = Arc::new(Run {
        machine: RwLock::new(()),
        folder: Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("runner-{}", std::process::id())),
        show_output: arguments.nocapture,
        ended: Mutex::default(),
    });
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only adds to an atomic.
        unsafe { libc::signal(signal, interrupt as *const () as libc::sighandler_t) };
    }
    fs::create_dir_all(&run.folder).expect("the target folder can be written");
    let mut trials: Vec<Trial> = programs.into_iter().flat_map(|program| trials(&run, program)).collect();
    // The tests that run alone come last: otherwise the others would wait while one of them waits for its turn.
    trials.sort_by_key(|trial| trial.name().contains(ALONE));
    let conclusion = libtest_mimic::run(&arguments, trials);
    let _kept = fs::remove_dir_all(&run.folder);
    if arguments.list {
        return ExitCode::SUCCESS;
    }
    if interrupts() > 0 {
        return ExitCode::from(130);
    }
    let retried = run.summary();
    println!(
        "runner: {} passed, {} failed, {} skipped, {retried} retried",
        conclusion.num_passed, conclusion.num_failed, conclusion.num_ignored
    );
    if retried * 20 > run.ended.lock().unwrap().len() as u64 {
        println!("runner: more than one test in twenty was retried");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// Parses NAME=PROGRAM.
fn program(word: &str) -> Option<Program> {
    let (name, path) = word.split_once('=')?;
    Some(Program { name: name.to_string(), path: path.into() })
}

fn trials(run: &Arc<Run>, program: Program) -> Vec<Trial> {
    let output = Command::new(&program.path).args(["--list", "--format", "terse"]).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.path.display()));
    assert!(output.status.success(), "{} does not list its tests", program.path.display());
    let list = String::from_utf8(output.stdout).expect("names of tests are text");
    let program = Arc::new(program);
    let tests = list.lines().filter_map(|line| line.strip_suffix(": test"));
    tests
        .map(|test| {
            let name = format!("{}::{test}", program.name);
            let (run, program, test) = (run.clone(), program.clone(), test.to_string());
            Trial::ignorable_test(name.clone(), move || run.attempts(&name, &program, &test))
        })
        .collect()
}

impl Run {
    fn attempts(&self, name: &str, program: &Program, test: &str) -> Result<Completion, Failed> {
        let begin;
        let mut attempt = 1;
        let outcome = {
            let (_alone, _beside);
            if name.contains(ALONE) {
                _alone = self.machine.write();
            } else {
                _beside = self.machine.read();
            }
            begin = Instant::now();
            loop {
                if interrupts() > 0 {
                    return Err("interrupted".into());
                }
                match self.once(name, program, test) {
                    Outcome::Failed(why) if attempt < ATTEMPTS && interrupts() == 0 => {
                        println!("retry: {name}, attempt {attempt} of {ATTEMPTS} failed:\n{why}");
                        attempt += 1;
                    }
                    outcome => break outcome,
                }
            }
        };
        self.ended.lock().unwrap().push(Ended {
            name: name.to_string(),
            took: begin.elapsed(),
            attempts: attempt,
        });
        match outcome {
            Outcome::Passed => Ok(Completion::Completed),
            Outcome::Skipped(why) => Ok(Completion::ignored_with(why)),
            Outcome::Failed(why) => Err(why.into()),
        }
    }

    fn once(&self, name: &str, program: &Program, test: &str) -> Outcome {
        let file = |suffix: &str| self.folder.join(format!("{}.{suffix}", name.replace("::", ".")));
        let (said, skipped) = (file("output"), file("skipped"));
        let _old = fs::remove_file(&skipped);
        let status = run_once(program, test, &said, &skipped);
        let output = String::from_utf8_lossy(&fs::read(&said).unwrap_or_default()).into_owned();
        if self.show_output {
            println!("output of {name}:\n{output}");
        }
        match status {
            Ok(Some(status)) if status.success() => match fs::read_to_string(&skipped) {
                Ok(why) => Outcome::Skipped(why),
                Err(_) => Outcome::Passed,
            },
            Ok(Some(status)) => Outcome::Failed(format!("{output}{status}")),
            Ok(None) => Outcome::Failed(format!("{output}it did not end in {} s", LIMIT.as_secs())),
            Err(error) => Outcome::Failed(format!("{}: {error}", program.path.display())),
        }
    }

    /// Prints which tests took longest and which were retried. Returns the number of retried tests.
    fn summary(&self) -> u64 {
        let mut ended = self.ended.lock().unwrap();
        ended.sort_by_key(|test| std::cmp::Reverse(test.took));
        println!("slowest:");
        for test in ended.iter().take(SLOWEST) {
            println!("{:8.2} s  {}", test.took.as_secs_f64(), test.name);
        }
        let retried = ended.iter().filter(|test| test.attempts > 1);
        retried.inspect(|test| println!("retried: {}", test.name)).count() as u64
    }
}

/// Runs a test once. None: it took too long, and was killed with all its processes.
fn run_once(
    program: &Program,
    test: &str,
    said: &Path,
    skipped: &Path,
) -> std::io::Result<Option<ExitStatus>> {
    let output = File::create(said)?;
    let mut child = Command::new(&program.path)
        .args([test, "--exact", "--nocapture"])
        .env("BIOPSY_TEST_SKIPPED", skipped)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0)
        .spawn()?;
    let patience = Patience::new(LIMIT);
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if patience.is_over() || interrupts() > 1 {
            // SAFETY: the call takes numbers; the process group is the child's, which has not been waited for.
            unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
