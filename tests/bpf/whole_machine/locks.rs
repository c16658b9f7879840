//! Tests lock waits on the running kernel: their number against the kernel's own events, and the place of a known
//! contention. Needs root.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::live::disk::Disk;
use crate::live::events::{Counted, hits_in};
use crate::live::view::number;
use crate::support::scratch::Scratch;
use crate::support::skip::skipped;
use crate::support::tool::{no_tracing, object, objects, run};
use biopsy::host::cgroups::Hierarchy;
use serde_json::Value;

const LOCKS: &str = "biopsy.locks/1";

/// Threads that repeat the same action until this is dropped.
struct Fight {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Fight {
    /// `turn` gets the number of the thread, and how often it has run before.
    fn new(threads: usize, turn: impl Fn(usize, u64) + Send + Sync + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let turn = Arc::new(turn);
        let thread = |at| {
            let (stop, turn) = (stop.clone(), turn.clone());
            thread::spawn(move || {
                (0..).take_while(|_| !stop.load(Ordering::Relaxed)).for_each(|count| turn(at, count));
            })
        };
        Self { threads: (0..threads).map(thread).collect(), stop }
    }

    /// Threads that contend for the mutex of a pipe.
    fn for_a_pipe() -> Self {
        let (reader, writer) = std::io::pipe().unwrap();
        for end in [reader.as_raw_fd(), writer.as_raw_fd()] {
            // SAFETY: both descriptors are open; without O_NONBLOCK a full or empty pipe would block the threads.
            unsafe { libc::fcntl(end, libc::F_SETFL, libc::O_NONBLOCK) };
        }
        Self::new(8, move |at, _| {
            let mut bytes = [0; 512];
            let _full_or_empty =
                if at % 2 == 0 { (&writer).write(&bytes) } else { (&reader).read(&mut bytes) };
        })
    }
}

impl Drop for Fight {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// Whether lock waits can be seen on this machine; if not, the test is skipped.
fn can_see() -> bool {
    let why = if crate::support::tool::is_root() { no_tracing() } else { Some("it needs root") };
    if let Some(why) = why {
        skipped(why);
    }
    why.is_none()
}

/// The lock whose name begins with `name`, within a few seconds of contention for it.
#[track_caller]
fn fought_for(name: &str, containing: &str) -> Value {
    let mut view = Value::Null;
    for _ in 0..5 {
        view = object(&run(&["locks", "--for", "1500ms", "--max-loss", "100", "--json"]), LOCKS);
        books_are_kept(&view);
        let found = rows(&view, "locks").iter().find(|lock| {
            let text = lock["name"].as_str().unwrap();
            text.starts_with(name) && text.contains(containing)
        });
        if let Some(lock) = found {
            assert_eq!(lock["recognised_by"], "structure", "{lock}");
            return lock.clone();
        }
    }
    let names: Vec<&Value> = rows(&view, "locks").iter().map(|lock| &lock["name"]).collect();
    panic!("no {name}...{containing} in {names:?}");
}

fn rows<'a>(view: &'a Value, list: &str) -> &'a Vec<Value> {
    view[list].as_array().unwrap()
}

fn sum(view: &Value, list: &str, key: &str) -> u64 {
    rows(view, list).iter().map(|one| number(&one[key])).sum()
}

/// Checks what must hold for every view: all its parts are of the same waits.
#[track_caller]
fn books_are_kept(view: &Value) {
    // The window is closed between the rows: a wait that ends just then is in one of them only.
    books_are_kept_but_for(view, 8, 0);
}

/// Same as [`books_are_kept`], if waits went on while the rows were read, or with so much waiting left out by an
/// option.
#[track_caller]
fn books_are_kept_but_for(view: &Value, off: u64, left_out_ns: u64) {
    let (contentions, wait) = (number(&view["contentions"]), number(&view["wait_ns"]));
    for list in ["locks", "by_cpu"] {
        let (all, ns) = (sum(view, list, "contentions"), sum(view, list, "wait_ns"));
        let ns = ns + if list == "locks" { left_out_ns } else { 0 };
        assert!(all.abs_diff(contentions) <= off || left_out_ns > 0, "{list}: {all} of {contentions}");
        assert!(ns.abs_diff(wait) <= wait / 100 + 100_000_000, "{list}: {ns} of {wait}");
    }
    for lock in rows(view, "locks") {
        assert_eq!(lock["wait"]["count"], lock["contentions"]);
        assert_eq!(lock["wait"]["sum_ns"], lock["wait_ns"]);
        assert!(number(&lock["max_wait_ns"]) <= number(&lock["wait_ns"]), "{lock}");
    }
    let begins = &view["begins"];
    let by_kind: u64 = begins["by_kind"].as_object().unwrap().values().map(number).sum();
    assert_eq!(by_kind, number(&begins["total"]));
    assert!(number(&begins["repeats"]) + contentions <= by_kind + off, "{begins} {contentions}");
}

/// The window lies around one count of the kernel's and within another.
#[test]
fn begins_are_the_kernels_own_events() {
    if !can_see() {
        return;
    }
    let Some(kernel) = Counted::new("lock/contention_begin") else { return };
    let _fight = Fight::for_a_pipe();
    let scratch = Scratch::new("locks");
    let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
    let files = kernel.files();
    let script = format!("cat {files} >{}; sleep 2; cat {files} >{}", from.display(), to.display());
    let before = kernel.hits();
    let view = object(&run(&["locks", "--max-loss", "100", "--json", "--", "sh", "-c", &script]), LOCKS);
    let after = kernel.hits();
    books_are_kept(&view);
    assert_eq!(view["command_status"], 0);
    let inside = hits_in(&fs::read_to_string(to).unwrap()) - hits_in(&fs::read_to_string(from).unwrap());
    let (seen, lost) = (number(&view["begins"]["total"]), number(&view["lost"]["events"]));
    println!("{inside} <= {seen} + {lost} <= {}", after - before);
    assert!(inside > 100 && inside <= seen + lost && seen <= after - before, "{}", view["begins"]);
    let place = rows(&view, "locks").iter().find(|lock| lock["name"] == "mutex of a pipe");
    let place = place.unwrap_or_else(|| panic!("no pipe: {view}"));
    assert_eq!((&place["kind"], &place["recognised_by"]), (&"mutex".into(), &"structure".into()));
    let frames = place["stacks"].as_array().unwrap();
    let names_pipe = |stack: &Value| stack["frames"].to_string().contains("pipe_");
    assert!(!frames.is_empty() && frames.iter().all(names_pipe), "{frames:?}");
    let own = rows(&view, "by_process").iter().find(|one| one["pid"] == std::process::id());
    assert!(own.is_some_and(|own| number(&own["contentions"]) > 100), "{}", view["by_process"]);
    let sampler = &view["spin"]["sampler"];
    assert!(sampler == "cpu-clock" || sampler == "cycles", "{}", view["spin"]);
    assert!(view["spin"]["low"].as_f64() <= view["spin"]["high"].as_f64(), "{}", view["spin"]);
}

#[test]
fn a_file_that_is_fought_for_is_named_by_its_path() {
    if !can_see() {
        return;
    }
    let scratch = Scratch::new("locks");
    let path = scratch.path().join("shared");
    let file = File::create_new(&path).unwrap();
    let inode = file.metadata().unwrap().ino();
    let _fight = Fight::new(8, move |at, _| {
        if at % 4 == 0 {
            file.set_len(0).unwrap();
        } else {
            file.write_at(&[1; 16 << 10], (at as u64) << 16).unwrap();
        }
    });
    let lock = fought_for("i_rwsem of ", "/shared)");
    assert_eq!(lock["kind"], "rwsem");
    let name = lock["name"].as_str().unwrap();
    assert!(name.contains(&format!(":{inode} (")), "{name} is not {inode}");
    assert!(name.contains(path.file_name().unwrap().to_str().unwrap()), "{name}");
}

/// Each thread holds the lock while it copies 16 MiB, so that the others wait at any time.
#[test]
fn who_still_waits_at_the_end_is_named_with_its_lock() {
    if !can_see() {
        return;
    }
    let scratch = Scratch::new("waiting");
    let path = scratch.path().join("shared");
    let file = File::create_new(&path).unwrap();
    let bytes = vec![1; 16 << 20];
    let _fight = Fight::new(4, move |_, _| {
        file.write_at(&bytes, 0).unwrap();
    });
    for _ in 0..5 {
        let view = object(&run(&["locks", "--for", "1500ms", "--max-loss", "100", "--json"]), LOCKS);
        let own = |row: &&Value| row["pid"] == std::process::id();
        let Some(row) = rows(&view, "waiting").iter().find(own) else { continue };
        assert_eq!(row["kind"], "rwsem", "{row}");
        let name = row["lock"].as_str().unwrap();
        assert!(name.starts_with("i_rwsem of ") && name.ends_with("/shared)"), "{row}");
        assert!(number(&row["wait_ns"]) < 2_000_000_000, "{row}");
        assert!(number(&view["begins"]["unended"]) > 0, "{}", view["begins"]);
        return;
    }
    panic!("nobody waited at the end of five windows");
}

#[test]
fn an_epoll_set_and_a_ring_are_named() {
    if !can_see() {
        return;
    }
    // SAFETY: the calls make descriptors that stay open until this process ends.
    let (set, event) = unsafe { (libc::epoll_create1(0), libc::eventfd(0, 0)) };
    let mut parameters = [0u64; 15];
    // SAFETY: the kernel writes the 120 bytes that io_uring_setup defines.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 8, parameters.as_mut_ptr()) };
    assert!(set >= 0 && event >= 0);
    let mut watch = libc::epoll_event { events: 1, u64: 0 };
    // SAFETY: `watch` lives across the call.
    assert_eq!(unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, event, &raw mut watch) }, 0);
    let fight = Fight::new(8, move |_, _| {
        let mut watch = libc::epoll_event { events: 1, u64: 0 };
        // SAFETY: as above.
        unsafe { libc::epoll_ctl(set, libc::EPOLL_CTL_MOD, event, &raw mut watch) };
    });
    assert_eq!(fought_for("mtx of an epoll set", "")["kind"], "mutex");
    drop(fight);
    if ring < 0 {
        skipped("io_uring is not permitted here");
        return;
    }
    let _fight = Fight::new(8, move |_, _| {
        // SAFETY: the ring holds nothing that could be submitted, and no argument is a pointer.
        unsafe { libc::syscall(libc::SYS_io_uring_enter, ring, 1, 0, 0, 0, 0) };
    });
    let lock = fought_for("uring_lock of io_uring fd ", &format!("({})", std::process::id()));
    assert_eq!(lock["pid"], std::process::id());
    assert!(lock["name"].as_str().unwrap().contains(&format!("fd {ring} ")), "{lock}");
}

/// A memory cgroup, which is removed at the end.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// None: no memory cgroup can be made.
    fn new(bytes: u64) -> Option<Self> {
        let hierarchy = Hierarchy::of_controller(Path::new("/"), "memory")?;
        let group = Self(Path::new(&hierarchy.point).join(format!("biopsy-locks-{}", std::process::id())));
        fs::create_dir(&group.0).ok()?;
        let limit = if hierarchy.unified { "memory.max" } else { "memory.limit_in_bytes" };
        fs::write(group.0.join(limit), bytes.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The last process leaves the cgroup a little later.
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A storm of buffered reads in a small memory cgroup: 16 threads, each through a part of the device.
#[test]
fn the_lru_lock_of_a_memory_group_is_named() {
    let Some(disk) = Disk::new(1024) else { return };
    let Some(group) = MemoryGroup::new(256 << 20) else {
        skipped("no memory cgroup can be made");
        return;
    };
    let script = format!(
        "echo $$ >{}/cgroup.procs; for part in $(seq 0 15); do timeout 6 sh -c \"while dd if={} of=/dev/null bs=64k \
         count=1024 skip=$((part * 1024)) 2>/dev/null; do :; done\" & done; wait; true",
        group.0.display(),
        disk.path
    );
    let path = format!("/{}", group.0.file_name().unwrap().to_str().unwrap());
    for _ in 0..4 {
        let words = ["locks", "-d", &disk.name, "--max-loss", "100", "--json", "--", "sh", "-c", &script];
        let view = object(&run(&words), LOCKS);
        books_are_kept_but_for(&view, 8, number(&view["left_out"]["wait_ns"]));
        let locks = rows(&view, "locks");
        let other = |lock: &&Value| lock["device"].is_string() && lock["device"] != disk.name.as_str();
        assert_eq!(locks.iter().find(other), None, "a lock of another device is shown");
        let of_group = |lock: &&Value| {
            lock["cgroup"] == path.as_str() && lock["name"].as_str().unwrap().starts_with("lru_lock of node ")
        };
        if let Some(lock) = locks.iter().find(of_group) {
            assert_eq!((&lock["kind"], &lock["recognised_by"]), (&"spin".into(), &"structure".into()));
            return;
        }
    }
    panic!("in four storms nobody waited for the lru_lock of {path}");
}

/// Without room for more rows, the remaining waits are counted together, and none is missing.
#[test]
fn a_full_table_loses_no_wait() {
    if !can_see() {
        return;
    }
    let _fights = [Fight::for_a_pipe(), Fight::for_a_pipe()];
    let words = ["locks", "--for", "2s", "--fault-locks", "1", "--max-loss", "100", "--json"];
    let view = object(&run(&words), LOCKS);
    books_are_kept(&view);
    let others = rows(&view, "locks").iter().filter(|lock| lock["address"].is_null());
    let all: u64 = others.map(|lock| number(&lock["contentions"])).sum();
    assert!(all > 0 && rows(&view, "locks").len() <= 8, "{view}");
}

/// Stacks stay within their budget on each CPU.
#[test]
fn stacks_keep_to_their_budget() {
    if !can_see() {
        return;
    }
    let _fights = [Fight::for_a_pipe(), Fight::for_a_pipe()];
    let words = ["locks", "--for", "3s", "--max-cost", "0.1%", "--max-loss", "100", "--json"];
    let view = object(&run(&words), LOCKS);
    books_are_kept(&view);
    let (stacks, cpus) = (&view["stacks"], thread::available_parallelism().unwrap().get() as u64);
    // The first periods may use four times their budget, each later one its budget and one stack.
    let allowed = number(&view["duration_ns"]) * cpus / 1000 * 4;
    assert!(number(&stacks["taken"]) > 0 && number(&stacks["ns"]) <= allowed, "{stacks} of {allowed}");
    assert_eq!(stacks["of"], view["contentions"]);
    assert_eq!(stacks["estimated"], number(&stacks["taken"]) < number(&stacks["of"]));
    let none = object(&run(&["locks", "--for", "500ms", "--max-cost", "0", "--json"]), LOCKS);
    assert_eq!(none["stacks"]["taken"], 0);
}

/// All contention lies in the window: the kernel's counts inside it and around the whole run are close to each other.
#[test]
fn a_fight_inside_the_window_is_counted() {
    if !can_see() {
        return;
    }
    let Some(kernel) = Counted::new("lock/contention_begin") else { return };
    let scratch = Scratch::new("locks");
    let place = |what: &str| scratch.path().join(what).display().to_string();
    let (from, to, file) = (place("from"), place("to"), place("file"));
    let files = kernel.files();
    let writers = format!("dd if=/dev/zero of={file} bs=512 count=200000 conv=notrunc status=none &");
    // Repeat until there were 1,000: on a busy machine fewer writers contend.
    let hits = format!("$(cat {files} | awk '/^(entries|overrun):/ {{ n += $2 }} END {{ print n + 0 }}')");
    let script = format!(
        "cat {files} >{from}; enough=$(({hits} + 1000)); until [ {hits} -gt $enough ]; do {} wait; done; \
         cat {files} >{to}",
        writers.repeat(6)
    );
    let before = kernel.hits();
    let view = object(&run(&["locks", "--max-loss", "100", "--json", "--", "sh", "-c", &script]), LOCKS);
    let around = kernel.hits() - before;
    books_are_kept(&view);
    let inside = hits_in(&fs::read_to_string(to).unwrap()) - hits_in(&fs::read_to_string(from).unwrap());
    let (seen, lost) = (number(&view["begins"]["total"]), number(&view["lost"]["events"]));
    println!("{inside} <= {seen} + {lost} and {seen} <= {around}");
    assert!(inside > 1000 && inside <= seen + lost && seen <= around, "{}", view["begins"]);
}

/// With a filter by pid only that process is counted, in each interval as in the whole.
#[test]
fn a_process_is_counted_alone() {
    if !can_see() {
        return;
    }
    let _fight = Fight::for_a_pipe();
    let pid = std::process::id().to_string();
    let output = run(&["locks", "-p", &pid, "1", "2", "--max-loss", "100", "--json"]);
    let pieces = objects(&output, LOCKS);
    assert_eq!(pieces.len(), 2);
    for view in &pieces {
        // Waits go on at the edges between the intervals: 20 ms of a second.
        books_are_kept_but_for(view, number(&view["contentions"]) / 50, 0);
        let others = rows(view, "by_process").iter().find(|row| row["pid"] != std::process::id());
        assert_eq!(others, None);
        assert!(number(&view["contentions"]) > 0, "{view}");
    }
}

/// Without events and kprobes no wait can be seen. The view says so, and still has the page cache.
#[test]
fn a_kernel_that_shows_no_wait_says_so() {
    if !can_see() {
        return;
    }
    let view = object(&run(&["locks", "--for", "200ms", "--fault-no-events", "--json"]), LOCKS);
    if Path::new("/sys/bus/event_source/devices/kprobe").exists() {
        assert_eq!(view["seen_by"], "slow-path");
        return;
    }
    let gap = view["missing"].as_array().unwrap().iter().find(|gap| gap["part"] == "locks").expect("a gap");
    assert_eq!(gap["reason"], "refused");
    let why = gap["why"].as_str().unwrap();
    assert!(why.contains("neither lock contention events") && why.contains("use a newer kernel"), "{why}");
    // The key is absent, and not zero.
    assert_eq!(view.get("contentions"), None, "{view}");
    assert!(!view["pagecache"]["series"].as_array().unwrap().is_empty());
    let text = run(&["locks", "--for", "200ms", "--fault-no-events"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with("locks  not measured: "), "{text}");
}

#[test]
fn text_says_what_was_counted() {
    if !can_see() {
        return;
    }
    let _fight = Fight::for_a_pipe();
    let output = run(&["locks", "--for", "1s", "--max-loss", "100"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let all = [
        "waits/s",
        "mutex of a pipe",
        "starts of waits (",
        "ns per wait in",
        "missed 0 I/Os",
        "not measured: ",
    ];
    for words in all {
        assert!(text.contains(words), "'{words}' is not in {text}");
    }
}
