//! A child process that reads strangers' ELF files and DWARF.
//!
//! A damaged or hostile file can bring any reader down, and blazesym's is no exception: nested inlined functions
//! recurse as deep as the file nests them (a stack overflow kills the process, no handler helps), a compressed
//! section claims any size, sums overflow, and a mapped file that somebody shortens is a SIGBUS. biopsy runs as root
//! on a machine in trouble, so that none of this may end it. A child has bounds on memory and time, and when it
//! dies, only the names of the file that it was reading are lost.
//!
//! It is a plain `fork`, without a program of its own: the files are open already. It takes no lock that another
//! thread could hold (glibc keeps its allocator usable across fork), and if it waited for one nevertheless, its time
//! would run out.

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::demangle::MOST;
use super::elf::Reader;

/// Addresses of one file to be named.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub file: BorrowedFd<'a>,
    /// Read its DWARF, too.
    pub debug: bool,
    /// In the file's own tables.
    pub addresses: Vec<u64>,
}

/// What a child may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Without a further name. A gigabyte of DWARF takes some seconds until the first.
    pub silence: Duration,
    /// For all files together.
    pub whole: Duration,
    /// Memory beside what the parent has.
    pub bytes: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { silence: Duration::from_secs(20), whole: Duration::from_secs(120), bytes: 1 << 30 }
    }
}

/// Names of all jobs' addresses, in their order, and how many files could not be read to their end.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub names: Vec<Vec<Vec<String>>>,
    /// Jobs whose file brought a child down, or took too long.
    pub failed: Vec<usize>,
    /// No child could be started.
    pub refused: Option<std::io::Error>,
}

/// Where a child is to go on.
#[derive(Clone, Copy)]
struct From {
    job: usize,
    address: usize,
    /// This job's DWARF brought a child down.
    plain: bool,
}

/// Names the addresses of all jobs.
pub(super) fn names(jobs: &[Job<'_>], bounds: Bounds) -> Answers {
    let mut answers = Answers { names: vec![Vec::new(); jobs.len()], ..Answers::default() };
    let end = Instant::now() + bounds.whole;
    let mut from = From { job: 0, address: 0, plain: false };
    while let Some(job) = jobs.get(from.job) {
        if from.address >= job.addresses.len() {
            from = From { job: from.job + 1, address: 0, plain: false };
            continue;
        }
        let out_of_time = Instant::now() >= end;
        if !out_of_time {
            match one_child(jobs, from, bounds, end, &mut answers.names) {
                Ok(true) => return answers,
                Ok(false) => {}
                Err(error) => {
                    answers.refused = Some(error);
                    return answers;
                }
            }
        }
        // It goes on at the first address that has no answer.
        let at = (from.job..jobs.len())
            .find(|&at| answers.names[at].len() < jobs[at].addresses.len())
            .unwrap_or(jobs.len());
        let Some(job) = jobs.get(at) else { return answers };
        let again = job.debug && !(from.job == at && from.plain) && !out_of_time;
        if again {
            from = From { job: at, address: answers.names[at].len(), plain: true };
        } else {
            answers.failed.push(at);
            answers.names[at].resize(job.addresses.len(), Vec::new());
            from = From { job: at + 1, address: 0, plain: false };
        }
    }
    answers
}

/// Runs one child to its end; true when it named all.
fn one_child(
    jobs: &[Job<'_>],
    from: From,
    bounds: Bounds,
    end: Instant,
    names: &mut [Vec<Vec<String>>],
) -> std::io::Result<bool> {
    let (read, write) = pipe()?;
    let data = own_data();
    let parent = std::process::id();
    // SAFETY: the child runs `child` only, which ends with `_exit`, whatever happens in it.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(std::io::Error::last_os_error()),
        0 => {
            // What unwinds out of here would run the parent's code a second time.
            let whole = catch_unwind(AssertUnwindSafe(|| child(jobs, from, bounds, data, parent, write)));
            // SAFETY: ends this process at once; nothing of the parent's is flushed or run.
            unsafe { libc::_exit(i32::from(whole.is_err())) }
        }
        pid => {
            drop(write);
            let done = listen(File::from(read), jobs, from, bounds.silence, end, names);
            // SAFETY: our own child, which nobody has waited for: the number is still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            let mut status = 0;
            // SAFETY: writes one int that lives across the call.
            while unsafe { libc::waitpid(pid, &raw mut status, 0) } == -1
                && std::io::Error::last_os_error().kind() == ErrorKind::Interrupted
            {}
            Ok(done)
        }
    }
}

fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: writes two descriptors into an array of two.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: both are open, and nobody else has them.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Bytes of private memory of this process, which a child begins with.
fn own_data() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Reads a child's answers until it has given all, ends, or has been silent for too long.
fn listen(
    mut pipe: File,
    jobs: &[Job<'_>],
    from: From,
    silence: Duration,
    end: Instant,
    names: &mut [Vec<Vec<String>>],
) -> bool {
    let mut job = from.job;
    let mut unread = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let patience = silence.min(end.saturating_duration_since(Instant::now()));
        let mut poll = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that lives across the call.
        let ready = unsafe { libc::poll(&raw mut poll, 1, patience.as_millis() as libc::c_int) };
        match ready {
            -1 if std::io::Error::last_os_error().kind() == ErrorKind::Interrupted => continue,
            1 => {}
            _ => return false,
        }
        let bytes = match pipe.read(&mut buffer) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return false,
        };
        unread.extend_from_slice(&buffer[..bytes]);
        let mut taken = 0;
        while let Some((answer, length)) = decode(&unread[taken..]) {
            taken += length;
            while jobs.get(job).is_some_and(|j| names[job].len() >= j.addresses.len()) {
                job += 1;
            }
            let Some(names) = names.get_mut(job) else { return false };
            names.push(answer);
        }
        unread.drain(..taken);
        if (job..jobs.len()).all(|job| names[job].len() >= jobs[job].addresses.len()) {
            return true;
        }
        if bytes == 0 {
            return false;
        }
    }
}

/// One address' names, and the bytes that they took; none where some are yet to come.
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

/// What [`decode`] reads.
fn encode(names: &[String], out: &mut Vec<u8>) {
    out.push(names.len().min(255) as u8);
    for name in names.iter().take(255) {
        debug_assert!(name.len() <= MOST);
        out.extend((name.len() as u16).to_ne_bytes());
        out.extend(name.as_bytes());
    }
}

/// All of the child.
fn child(jobs: &[Job<'_>], from: From, bounds: Bounds, data: u64, parent: u32, pipe: OwnedFd) {
    confine(jobs, bounds, data, parent, pipe.as_raw_fd());
    let mut out = BufWriter::with_capacity(32 << 10, File::from(pipe));
    let mut flushed = Instant::now();
    let mut record = Vec::new();
    for (at, job) in jobs.iter().enumerate().skip(from.job) {
        let again = at == from.job;
        let path = PathBuf::from(format!("/proc/self/fd/{}", job.file.as_raw_fd()));
        let reader = Reader::new(&path, job.debug && !(again && from.plain));
        for address in &job.addresses[if again { from.address } else { 0 }..] {
            record.clear();
            encode(&reader.names(*address), &mut record);
            if out.write_all(&record).is_err() {
                return;
            }
            if flushed.elapsed() > Duration::from_millis(100) {
                let _ = out.flush();
                flushed = Instant::now();
            }
        }
    }
    let _ = out.flush();
}

/// Bounds of the child, and nothing in its hands that it does not need.
fn confine(jobs: &[Job<'_>], bounds: Bounds, data: u64, parent: u32, pipe: RawFd) {
    let limit = |which, bytes: u64| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: reads one rlimit that lives across the call. A limit that cannot be set is a bound less.
        unsafe { libc::setrlimit(which, &raw const limit) };
    };
    limit(libc::RLIMIT_DATA, data.saturating_add(bounds.bytes));
    limit(libc::RLIMIT_CORE, 0);
    limit(libc::RLIMIT_CPU, bounds.whole.as_secs().max(1));
    // SAFETY: plain numbers and a path that ends in zero. The parent may have ended before it asked for the signal.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        if libc::getppid() as u32 != parent {
            libc::_exit(1);
        }
        // What it says in dying is not for the user.
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        (0..3).for_each(|standard| _ = libc::dup2(null, standard));
    }
    // Pipes of others would stay open with it; so would the programs that measure.
    let mut kept: Vec<RawFd> = jobs.iter().map(|job| job.file.as_raw_fd()).chain([0, 1, 2, pipe]).collect();
    kept.sort_unstable();
    kept.dedup();
    let ends = kept[1..].iter().map(|fd| *fd - 1).chain([RawFd::MAX]);
    for (last, end) in kept.iter().zip(ends) {
        if *last < end {
            // SAFETY: closes numbers that nothing in this child uses; no owner of them runs again. (Linux 5.9.)
            unsafe {
                libc::syscall(libc::SYS_close_range, *last as libc::c_uint + 1, end as libc::c_uint, 0)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    #[inline(never)]
    fn findable() {
        std::hint::black_box(1);
    }

    /// This binary, by the address that its own tables have for a function.
    #[test]
    fn a_child_names_what_the_parent_asks() {
        let file = File::open("/proc/self/exe").unwrap();
        let maps = crate::host::mapped::mappings(&fs::read("/proc/self/maps").unwrap());
        let here = findable as fn() as usize as u64;
        let offset = maps.iter().find(|m| (m.start..m.end).contains(&here)).unwrap().offset_of(here);
        let address = crate::host::elf::Elf::read(&file).unwrap().address(offset).unwrap();
        let nothing = File::open("/proc/self/status").unwrap();
        let jobs = [
            Job { file: nothing.as_fd(), debug: true, addresses: vec![1, 2] },
            Job { file: file.as_fd(), debug: true, addresses: vec![address, 1, address] },
            Job { file: file.as_fd(), debug: false, addresses: vec![] },
            Job { file: file.as_fd(), debug: false, addresses: vec![address] },
        ];
        let start = Instant::now();
        let answers = names(&jobs, Bounds::default());
        println!("{:?}: {answers:?}", start.elapsed());
        assert!(answers.refused.is_none() && answers.failed.is_empty());
        assert_eq!(answers.names[0], [Vec::<String>::new(), Vec::new()], "no ELF file");
        assert!(answers.names[1][0][0].ends_with("child::tests::findable"), "{answers:?}");
        assert_eq!(answers.names[1][0], answers.names[1][2]);
        assert!(answers.names[1][1].is_empty());
        assert_eq!(answers.names[3], [answers.names[1][0][..1].to_vec()]);
    }

    /// No time, no memory: addresses without names, and an end.
    #[test]
    fn a_child_that_may_do_nothing_costs_names_only() {
        let file = File::open("/proc/self/exe").unwrap();
        let jobs = [Job { file: file.as_fd(), debug: true, addresses: vec![1, 2, 3] }];
        let bounds = Bounds { whole: Duration::ZERO, ..Bounds::default() };
        let answers = names(&jobs, bounds);
        assert_eq!((answers.failed, answers.names), (vec![0], vec![vec![Vec::<String>::new(); 3]]));
        let bounds = Bounds { bytes: 1 << 20, ..Bounds::default() };
        assert_eq!(names(&jobs, bounds).names[0].len(), 3);
    }
}
