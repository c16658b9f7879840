//! Runs the binary under test, sends it signals, and checks its output.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use biopsy::symbols::{Helper, Symbolizer};
use serde_json::Value;

use super::patience::Patience;

/// Longer than any command here takes on an idle machine.
const PATIENCE: Duration = Duration::from_secs(30);

pub fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_biopsy")
}

/// The helper that reads symbols for the tests: the binary under test, whose path is different in a guest of vmtest/.
pub fn helper() -> Helper {
    Helper::at(std::env::var("BIOPSY_TEST_HELPER").unwrap_or(binary().to_string()))
}

pub fn symbolizer() -> Symbolizer {
    Symbolizer::new(helper())
}

pub fn is_root() -> bool {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

pub fn biopsy(arguments: &[&str]) -> Command {
    piped(Command::new(binary()), arguments)
}

fn piped(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A command of the tool without root's rights, from a copy that every user can read.
pub fn without_rights(arguments: &[&str]) -> Command {
    with_rights(&[], arguments)
}

/// Same as [`without_rights`], with these capabilities (`bpf`, `perfmon`) if root runs the tests.
pub fn with_rights(capabilities: &[&str], arguments: &[&str]) -> Command {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    let copy = COPY.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("biopsy-test-binary-{}", std::process::id()));
        fs::copy(binary(), &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    });
    if !is_root() {
        return piped(Command::new(copy), arguments);
    }
    let mut command = Command::new("setpriv");
    as_nobody(&mut command, capabilities).arg(copy);
    piped(command, arguments)
}

/// Adds the arguments of setpriv that switch to the user nobody with these capabilities only.
pub fn as_nobody<'a>(setpriv: &'a mut Command, capabilities: &[&str]) -> &'a mut Command {
    let only: String = capabilities.iter().map(|name| format!(",+{name}")).collect();
    setpriv.args(["--reuid", NOBODY, "--clear-groups"]);
    // An ambient capability must be inheritable.
    setpriv.args(["--inh-caps", "--ambient-caps", "--bounding-set"].map(|set| format!("{set}=-all{only}")))
}

/// The user id of [`without_rights`] if root runs the tests.
pub const NOBODY: &str = "65534";

/// Removes the copy that [`without_rights`] uses; called at the end of the only test that makes it.
pub fn forget_copy() {
    let _gone =
        fs::remove_file(std::env::temp_dir().join(format!("biopsy-test-binary-{}", std::process::id())));
}

pub fn run(arguments: &[&str]) -> Output {
    finish(biopsy(arguments).spawn().unwrap())
}

/// Waits until the command ends. A command that hangs is killed and fails the test.
#[track_caller]
pub fn finish(mut child: Child) -> Output {
    let read = |stream: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            stream.map(|mut stream| stream.read_to_end(&mut bytes));
            bytes
        })
    };
    let stdout = read(child.stdout.take().map(|s| Box::new(s) as _));
    let stderr = read(child.stderr.take().map(|s| Box::new(s) as _));
    let patience = Patience::new(PATIENCE);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if patience.is_over() {
            child.kill().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

pub fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: the child was started here and has not been waited for, so that its id is still its own.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("stderr is text")
}

/// Checks that a command was refused: nothing on stdout, one sentence on stderr that contains `words`, this exit code.
#[track_caller]
pub fn refused(output: &Output, code: i32, words: &[&str]) {
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    one_error(output, code, words);
}

/// Same as [`refused`], with a result on stdout.
#[track_caller]
pub fn one_error(output: &Output, code: i32, words: &[&str]) {
    let error = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{error}");
    assert!(error.starts_with("biopsy: error: ") && error.ends_with('\n'), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    for noise in ["os error", "panicked", "backtrace", "\x1b"] {
        assert!(!error.contains(noise), "{error}");
    }
    for word in words {
        assert!(error.contains(word), "'{word}' is not in {error}");
    }
}

/// Checks that a command succeeded with nothing on stderr.
#[track_caller]
pub fn quiet(output: &Output) {
    assert_eq!((output.status.code(), stderr(output)), (Some(0), String::new()));
}

/// Returns the only JSON object on stdout, which must be one line in the envelope of the contract.
#[track_caller]
pub fn object(output: &Output, schema: &str) -> Value {
    let mut all = objects(output, schema);
    assert_eq!(all.len(), 1, "one object");
    all.remove(0)
}

/// Returns the JSON objects on stdout, one per line.
#[track_caller]
pub fn objects(output: &Output, schema: &str) -> Vec<Value> {
    let text = std::str::from_utf8(&output.stdout).expect("JSON is text");
    assert!(text.ends_with('\n'), "no JSON but '{text}', and on stderr '{}'", stderr(output));
    text.lines().map(|line| enveloped(line, schema)).collect()
}

#[track_caller]
fn enveloped(line: &str, schema: &str) -> Value {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    assert_eq!(value["schema"], schema);
    for (key, good) in [
        ("version", value["version"].is_string()),
        ("kernel", value["kernel"].is_string()),
        ("start", value["start"].as_str().is_some_and(|s| s.len() == 24 && s.ends_with('Z'))),
        ("duration_ns", value["duration_ns"].is_u64()),
        ("lost", ["ios", "events", "samples"].iter().all(|k| value["lost"][k].is_u64())),
        ("lost.probes", value["lost"]["probes"].is_object()),
        ("cost", value["cost"]["map_bytes"].is_u64() && value["cost"]["programs"].is_array()),
        ("missing", value["missing"].is_array()),
    ] {
        assert!(good, "{key} of {schema}: {}", value[key]);
    }
    value
}

/// The reason why this machine cannot trace, for a skipped test. None: it can.
pub fn no_tracing() -> Option<&'static str> {
    static WHY: OnceLock<Option<String>> = OnceLock::new();
    WHY.get_or_init(|| {
        let check = object(&run(&["check", "--json"]), "biopsy.check/1");
        let views = check["views"].as_array().unwrap();
        let latency = views.iter().find(|view| view["name"] == "latency").unwrap();
        (latency["state"] == "missing").then(|| latency["reason"].as_str().unwrap_or("refused").to_string())
    })
    .as_deref()
}

/// Starts a shell that waits for a line and then becomes `command`, so that the pid is known beforehand.
pub fn prepared(command: &str) -> Child {
    let script = format!("read line; exec {command}");
    Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap()
}

/// Sends the line to such a shell.
pub fn go(child: &mut Child) {
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
}
