//! Samples threads from the files of `/proc` that any user may read.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A line of `stat` or `syscall` is far shorter.
const LONGEST: u64 = 4096;

/// The most threads per sample; each costs a file.
const MOST: usize = 1 << 16;

/// PF_KTHREAD in the flags of `stat`.
const KERNEL: u64 = 0x0020_0000;

/// The fields read from `/proc/PID/task/TID/stat`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadStat {
    /// Any bytes: a thread chooses its name.
    pub comm: Vec<u8>,
    /// R, S, D, ...
    pub state: char,
    pub is_kernel: bool,
}

/// The state read from `/proc/PID/task/TID/syscall`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syscall {
    /// The thread runs: the kernel prints no call.
    Running,
    /// The thread is in the kernel, but in no system call.
    None,
    Number(u32),
}

/// A thread of one sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    pub pid: u32,
    pub tid: u32,
    folder: PathBuf,
}

impl Thread {
    /// None if the thread has ended or is hidden from this process.
    pub fn stat(&self) -> Option<ThreadStat> {
        parse_stat(&bytes(&self.folder.join("stat"))?)
    }

    /// None if this process may not read it (that needs ptrace access).
    pub fn syscall(&self) -> Option<Syscall> {
        parse_syscall(&bytes(&self.folder.join("syscall"))?)
    }

    /// The kernel function in which the thread waits; None if there is none, or it is hidden.
    pub fn wchan(&self) -> Option<String> {
        parse_wchan(&bytes(&self.folder.join("wchan"))?)
    }

    /// The path of its cgroup in the hierarchy of the block controller.
    pub fn cgroup(&self, unified: bool) -> Option<String> {
        parse_cgroup(&bytes(&self.folder.join("cgroup"))?, unified)
    }
}

/// All visible threads, or those of the given processes, and whether there were more.
pub fn all(root: &Path, pids: &[u32]) -> (Vec<Thread>, bool) {
    let top = root.join("proc");
    let pids = if pids.is_empty() { numbers(&top) } else { pids.to_vec() };
    let mut threads = Vec::new();
    for pid in pids {
        let tasks = top.join(pid.to_string()).join("task");
        for tid in numbers(&tasks) {
            if threads.len() == MOST {
                return (threads, true);
            }
            threads.push(Thread { pid, tid, folder: tasks.join(tid.to_string()) });
        }
    }
    (threads, false)
}

fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn bytes(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Parses `12 (a name) S 1 ...`: the name may contain any bytes, including blanks and brackets.
fn parse_stat(line: &[u8]) -> Option<ThreadStat> {
    let open = line.iter().position(|&b| b == b'(')?;
    let close = line.iter().rposition(|&b| b == b')').filter(|close| *close > open)?;
    let mut fields = std::str::from_utf8(&line[close + 1..]).ok()?.split_ascii_whitespace();
    let state = fields.next().filter(|state| state.len() == 1)?.chars().next()?;
    let flags: u64 = fields.nth(5)?.parse().ok()?;
    Some(ThreadStat { comm: line[open + 1..close].to_vec(), state, is_kernel: flags & KERNEL != 0 })
}

fn parse_syscall(line: &[u8]) -> Option<Syscall> {
    let word = std::str::from_utf8(line).ok()?.split_ascii_whitespace().next()?;
    match word {
        "running" => Some(Syscall::Running),
        "-1" => Some(Syscall::None),
        number => number.parse().ok().map(Syscall::Number),
    }
}

/// `0` means none, or hidden.
fn parse_wchan(text: &[u8]) -> Option<String> {
    let name = String::from_utf8_lossy(text).trim().to_string();
    (!name.is_empty() && name != "0").then_some(name)
}

/// Parses `0::/path` of v2, `7:blkio:/path` of v1.
fn parse_cgroup(text: &[u8], unified: bool) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let of_line = |line: &str| {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let wanted = if unified { id == "0" } else { controllers.split(',').any(|word| word == "blkio") };
        wanted.then(|| path.to_string())
    };
    text.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAT: &[u8] = b"12 (a) b) (c) D 1 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 77 1 1 1 0 0\n";

    #[test]
    fn a_name_may_look_like_the_rest_of_the_line() {
        let stat = parse_stat(STAT).unwrap();
        assert_eq!((stat.comm.as_slice(), stat.state, stat.is_kernel), (&b"a) b) (c"[..], 'D', false));
        let kernel = parse_stat(b"2 (kthreadd\x1b[2J) S 0 0 0 0 -1 2129984 0 0").unwrap();
        assert_eq!((kernel.comm.as_slice(), kernel.is_kernel), (&b"kthreadd\x1b[2J"[..], true));
        for bad in [&b""[..], b"1 (a", b")1 (", b"1 (a) DD 1 2 3 4 5 6", b"1 (a) D 1 2"] {
            assert_eq!(parse_stat(bad), None);
        }
    }

    #[test]
    fn a_system_call_is_its_number() {
        assert_eq!(parse_syscall(b"running\n"), Some(Syscall::Running));
        assert_eq!(parse_syscall(b"-1 0x7ffc 0x7f0d\n"), Some(Syscall::None));
        assert_eq!(parse_syscall(b"230 0x0 0x0 0x7ff 0x0 0x0 0x0 0x7ff 0x7f0\n"), Some(Syscall::Number(230)));
        assert_eq!([parse_syscall(b""), parse_syscall(b"what\n"), parse_syscall(b"-2\n")], [None; 3]);
    }

    #[test]
    fn places_are_names_or_nothing() {
        assert_eq!(parse_wchan(b"pipe_read").as_deref(), Some("pipe_read"));
        assert_eq!([parse_wchan(b"0"), parse_wchan(b""), parse_wchan(b"\n")], [None, None, None]);
        let both = b"7:blkio,cpu:/old\n0::/new:a\n";
        assert_eq!(parse_cgroup(both, true).as_deref(), Some("/new:a"));
        assert_eq!(parse_cgroup(both, false).as_deref(), Some("/old"));
        assert_eq!(parse_cgroup(b"0::/new\n", false), None);
    }

    #[test]
    fn threads_are_found_below_their_processes() {
        let root = std::env::temp_dir().join(format!("biopsy-threads-{}", std::process::id()));
        for (pid, tid) in [(12, 12), (12, 13), (14, 14)] {
            let folder = root.join(format!("proc/{pid}/task/{tid}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("stat"), STAT).unwrap();
            fs::write(folder.join("wchan"), "pipe_read").unwrap();
        }
        fs::create_dir_all(root.join("proc/self")).unwrap();
        let (mut threads, more) = all(&root, &[]);
        threads.sort_by_key(|thread| thread.tid);
        assert_eq!(
            threads.iter().map(|t| (t.pid, t.tid)).collect::<Vec<_>>(),
            [(12, 12), (12, 13), (14, 14)]
        );
        assert!(!more);
        assert_eq!(threads[0].stat().unwrap().state, 'D');
        assert_eq!(threads[0].wchan().as_deref(), Some("pipe_read"));
        assert_eq!(threads[0].syscall(), None);
        assert_eq!(all(&root, &[14, 99]).0.len(), 1);
        fs::remove_dir_all(&root).unwrap();
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), unified: bool) {
            parse_stat(&bytes);
            parse_syscall(&bytes);
            parse_wchan(&bytes);
            parse_cgroup(&bytes, unified);
        }

        /// Whatever the thread's name, the letter after it is the state.
        #[test]
        fn no_name_hides_the_state(comm in proptest::collection::vec(any::<u8>(), 0..16)) {
            let line = [b"7 (", comm.as_slice(), b") R 1 2 3 4 5 2097152 0"].concat();
            let stat = parse_stat(&line).unwrap();
            prop_assert_eq!((stat.comm, stat.state, stat.is_kernel), (comm, 'R', true));
        }
    }
}
