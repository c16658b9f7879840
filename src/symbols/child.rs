//! Runs the helper process that reads the ELF files and DWARF of other programs: the parent's side.
//!
//! A damaged or hostile file can crash any reader, including blazesym's. Nested inlined functions recurse as deep as
//! the file nests them (a stack overflow kills the process, and no handler helps), a compressed section can claim any
//! size, sums overflow, and truncating a mapped file causes a SIGBUS. biopsy runs as root on machines in trouble, so
//! none of this may end it. The helper has limits on memory and time, and if it dies, only the names of the file that
//! it was reading are lost.
//!
//! One helper reads one file: the file is its stdin, and a socket is its stdout. The request and the answers go through
//! the socket. The helper's side is [`super::helper`].

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::demangle::MOST;

/// The program of the helper process: biopsy itself, with a hidden verb.
#[derive(Debug, Clone)]
pub(super) struct HelperProgram {
    pub path: PathBuf,
    pub args: Vec<OsString>,
}

/// Addresses of one file to be symbolized.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub file: BorrowedFd<'a>,
    /// Read its DWARF as well.
    pub debug: bool,
    /// In the file's own tables.
    pub addresses: Vec<u64>,
}

/// Resource limits of a helper.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Time without a further name. A gigabyte of DWARF takes some seconds until the first.
    pub silence: Duration,
    /// For all files together.
    pub whole: Duration,
    /// Private memory, in addition to that at its start.
    pub bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { silence: Duration::from_secs(20), whole: Duration::from_secs(120), bytes: 1 << 30 }
    }
}

/// Names of all jobs' addresses, in their order, and which files could not be read completely.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub names: Vec<Vec<Vec<String>>>,
    /// Jobs whose file crashed a helper, or took too long.
    pub failed: Vec<usize>,
    /// No helper could be started.
    pub refused: Option<io::Error>,
}

/// Symbolizes the addresses of all jobs.
pub(super) fn names(program: &HelperProgram, jobs: &[Job<'_>], bounds: Bounds) -> Answers {
    let mut answers = Answers { names: vec![Vec::new(); jobs.len()], ..Answers::default() };
    let end = Instant::now() + bounds.whole;
    for (at, job) in jobs.iter().enumerate() {
        let names = &mut answers.names[at];
        // If the DWARF crashes a helper, the next helper continues after the last answer without DWARF.
        for debug in [true, false] {
            if names.len() == job.addresses.len() || (debug && !job.debug) || Instant::now() >= end {
                continue;
            }
            if let Err(error) = run_helper(program, job, debug, bounds, end, names) {
                answers.refused = Some(error);
                return answers;
            }
        }
        if names.len() < job.addresses.len() {
            answers.failed.push(at);
            names.resize(job.addresses.len(), Vec::new());
        }
    }
    answers
}

/// Runs one helper to its end, and appends names for the addresses that have none yet.
fn run_helper(
    program: &HelperProgram,
    job: &Job<'_>,
    debug: bool,
    bounds: Bounds,
    end: Instant,
    names: &mut Vec<Vec<String>>,
) -> io::Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    let request = Request {
        parent: std::process::id(),
        debug,
        bytes: bounds.bytes,
        seconds: bounds.whole.as_secs().max(1),
        addresses: job.addresses[names.len()..].to_vec(),
    };
    let helper = Command::new(&program.path)
        .args(&program.args)
        .env_clear()
        // Ctrl-C is for the parent only.
        .process_group(0)
        .stdin(Stdio::from(job.file.try_clone_to_owned()?))
        .stdout(Stdio::from(OwnedFd::from(theirs)))
        .stderr(Stdio::null())
        .spawn()?;
    let _helper = KillOnDrop(helper);
    ours.set_write_timeout(Some(bounds.silence))?;
    let number = request.addresses.len();
    let started = (&ours).write_all(&request.encode()).and_then(|()| read_greeting(&ours, bounds.silence));
    started.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, "the helper process does not answer"),
        ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
            io::Error::new(error.kind(), "the helper process ended at once")
        }
        _ => error,
    })?;
    listen(&ours, number, bounds.silence, end, names);
    Ok(())
}

/// A process that is killed and reaped when this is dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Fails if it has exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The first output of a helper: output of another program would otherwise be read as names.
pub(super) const GREETING: [u8; 8] = *b"biopsy-1";

fn read_greeting(mut socket: &UnixStream, patience: Duration) -> io::Result<()> {
    socket.set_read_timeout(Some(patience))?;
    let mut bytes = [0; GREETING.len()];
    socket.read_exact(&mut bytes)?;
    match bytes == GREETING {
        true => Ok(()),
        false => Err(io::Error::new(ErrorKind::InvalidData, "the helper process is another program")),
    }
}

/// Reads answers until there are `number` more, the helper ends, or is silent for too long.
fn listen(
    mut socket: &UnixStream,
    number: usize,
    silence: Duration,
    end: Instant,
    names: &mut Vec<Vec<String>>,
) {
    let all = names.len() + number;
    let mut unread = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while names.len() < all {
        let patience = silence.min(end.saturating_duration_since(Instant::now()));
        // Zero would mean no timeout.
        if socket.set_read_timeout(Some(patience.max(Duration::from_millis(1)))).is_err() {
            return;
        }
        let bytes = match socket.read(&mut buffer) {
            Ok(0) => return,
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        unread.extend_from_slice(&buffer[..bytes]);
        let mut taken = 0;
        while names.len() < all
            && let Some((answer, length)) = decode(&unread[taken..])
        {
            taken += length;
            names.push(answer);
        }
        unread.drain(..taken);
    }
}

/// The task of a helper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// The requesting process: when it exits, the helper exits.
    pub parent: u32,
    pub debug: bool,
    /// Limits on private memory and on CPU time.
    pub bytes: u64,
    pub seconds: u64,
    pub addresses: Vec<u64>,
}

impl Request {
    fn encode(&self) -> Vec<u8> {
        let words = [
            u64::from(self.parent),
            u64::from(self.debug),
            self.bytes,
            self.seconds,
            self.addresses.len() as u64,
        ];
        words.iter().chain(&self.addresses).flat_map(|word| word.to_ne_bytes()).collect()
    }

    /// Decodes the output of [`Self::encode`].
    pub fn read(mut from: impl io::Read) -> io::Result<Self> {
        let mut word = || {
            let mut bytes = [0; 8];
            from.read_exact(&mut bytes).map(|()| u64::from_ne_bytes(bytes))
        };
        let [parent, debug, bytes, seconds, number] = [word()?, word()?, word()?, word()?, word()?];
        let addresses = (0..number).map(|_| word()).collect::<io::Result<_>>()?;
        let parent = u32::try_from(parent).map_err(|_| ErrorKind::InvalidData)?;
        Ok(Self { parent, debug: debug != 0, bytes, seconds, addresses })
    }
}

/// Decodes the names of one address; returns them with the bytes consumed, or None if more bytes are to come.
fn decode(bytes: &[u8]) -> Option<(Vec<String>, usize)> {
    let mut at = 1;
    let mut names = Vec::new();
    for _ in 0..*bytes.first()? {
        let length = usize::from(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        names.push(String::from_utf8_lossy(bytes.get(at + 2..at + 2 + length)?).into_owned());
        at += 2 + length;
    }
    Some((names, at))
}

/// Encodes for [`decode`].
pub(super) fn encode(names: &[String], out: &mut Vec<u8>) {
    out.push(names.len().min(255) as u8);
    for name in names.iter().take(255) {
        debug_assert!(name.len() <= MOST);
        out.extend((name.len() as u16).to_ne_bytes());
        out.extend(name.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd as _;

    #[test]
    fn answers_come_back_as_they_were() {
        let names = ["outer", "", "in;ner\n"].map(str::to_string);
        let mut bytes = Vec::new();
        encode(&names, &mut bytes);
        encode(&[], &mut bytes);
        let (first, length) = decode(&bytes).unwrap();
        assert_eq!(first, names);
        assert_eq!(decode(&bytes[length..]), Some((vec![], 1)));
        for cut in 0..length {
            assert_eq!(decode(&bytes[..cut]), None, "the rest is yet to come");
        }
    }

    #[test]
    fn a_request_comes_as_it_was_sent() {
        let request =
            Request { parent: 7, debug: true, bytes: 1 << 30, seconds: 120, addresses: vec![1, u64::MAX] };
        let bytes = request.encode();
        assert_eq!(Request::read(&bytes[..]).unwrap(), request);
        for cut in 0..bytes.len() {
            assert!(Request::read(&bytes[..cut]).is_err(), "{cut} bytes");
        }
    }

    /// A shell as the helper, which first reads the request. `exec`: the process to be killed must be the program
    /// itself.
    fn shell(script: &str) -> HelperProgram {
        let script = format!("PATH=/usr/bin:/bin; dd bs=4k count=1 <&1 >/dev/null 2>&1; {script}");
        HelperProgram { path: "/bin/sh".into(), args: vec!["-c".into(), script.into()] }
    }

    fn ask(program: &HelperProgram, bounds: Bounds) -> Answers {
        let file = File::open("/proc/self/exe").unwrap();
        names(program, &[Job { file: file.as_fd(), debug: true, addresses: vec![1, 2, 3] }], bounds)
    }

    #[test]
    fn a_program_that_is_no_helper_is_refused() {
        let brief = Bounds { silence: Duration::from_millis(200), ..Bounds::default() };
        for (program, why) in [
            (HelperProgram { path: "/nonexistent".into(), args: vec![] }, "No such file"),
            (shell("exit 1"), "ended at once"),
            (shell("exec echo running 0 tests"), "another program"),
            (shell("exec sleep 1000"), "does not answer"),
        ] {
            let start = Instant::now();
            let answers = ask(&program, brief);
            let error = answers.refused.unwrap().to_string();
            assert!(error.contains(why), "{error}");
            assert_eq!((answers.names, answers.failed), (vec![vec![]], vec![]));
            assert!(start.elapsed() < Duration::from_secs(100), "it was waited for");
        }
    }

    /// If a helper dies, the next one continues after the last answer, without DWARF. A helper that hangs is killed.
    #[test]
    fn what_a_helper_has_not_answered_another_one_is_asked() {
        // An empty answer is one byte of 0.
        let dies = shell(r"printf 'biopsy-1\0'");
        let answers = ask(&dies, Bounds::default());
        assert!(answers.refused.is_none());
        assert_eq!((answers.failed, answers.names), (vec![0], vec![vec![Vec::<String>::new(); 3]]));
        let twice = shell(r"printf 'biopsy-1\0\0'");
        assert_eq!(ask(&twice, Bounds::default()).failed, [0usize; 0], "two and one are all three");
        let hangs = shell(r"printf 'biopsy-1\0\0'; exec sleep 1000");
        let start = Instant::now();
        assert_eq!(
            ask(&hangs, Bounds { silence: Duration::from_millis(200), ..Bounds::default() }).failed,
            [0usize; 0]
        );
        assert!(start.elapsed() < Duration::from_secs(100), "it was waited for");
    }

    #[test]
    fn without_time_nothing_is_started() {
        let program = HelperProgram { path: "/nonexistent".into(), args: vec![] };
        let answers = ask(&program, Bounds { whole: Duration::ZERO, ..Bounds::default() });
        assert!(answers.refused.is_none());
        assert_eq!((answers.failed, answers.names), (vec![0], vec![vec![Vec::<String>::new(); 3]]));
    }
}
