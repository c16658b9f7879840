//! Names for addresses (blazesym).
//!
//! What comes out is text from binaries, from `/tmp/perf-PID.map` and from process names: written
//! by strangers, and not yet escaped.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use blazesym::symbolize::source::{Elf, Kernel, Process, Source};
use blazesym::symbolize::{Input, Symbolized};
use blazesym::{MaybeDefault, Pid};

use crate::envelope::Missing;

/// What a frame is called that nobody can name.
pub const UNKNOWN: &str = "[unknown]";

/// Addresses that wait for names: each one once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Addresses {
    pub kernel: BTreeSet<u64>,
    /// By process: the same address is another function in another process.
    pub user: BTreeMap<u32, BTreeSet<u64>>,
    /// `/proc/PID/maps` from when the process lived.
    pub maps: HashMap<u32, Vec<u8>>,
}

/// Names of addresses. An address has several where functions were inlined: outermost first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Names {
    pub kernel: HashMap<u64, Vec<String>>,
    pub user: HashMap<(u32, u64), Vec<String>>,
    /// Set when a whole kind of names could not be had.
    pub missing: Vec<Missing>,
}

impl Names {
    /// Names at a kernel address; none when it was never asked for.
    pub fn kernel(&self, address: u64) -> &[String] {
        self.kernel.get(&address).map_or(&[], Vec::as_slice)
    }

    /// Names at an address of a process.
    pub fn user(&self, pid: u32, address: u64) -> &[String] {
        self.user.get(&(pid, address)).map_or(&[], Vec::as_slice)
    }
}

/// Where the kernel's scheduler is, and what waits in its name: what a thread waits in is the first frame outside, as
/// the kernel's own `wchan` finds it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scheduler {
    /// From the first address to the one behind the last.
    pub ranges: Vec<(u64, u64)>,
}

impl Scheduler {
    /// By the kernel's own marks (`__sched` and `__lockfunc`) in `/proc/kallsyms`; empty where it shows no addresses.
    pub fn read() -> Self {
        fs::read("/proc/kallsyms").map_or_else(|_| Self::default(), |symbols| Self::of(&symbols))
    }

    fn of(symbols: &[u8]) -> Self {
        let mut marks: HashMap<&[u8], u64> = HashMap::new();
        for line in symbols.split(|&b| b == b'\n') {
            // `ffffffff81c00000 T __sched_text_start`
            let Some(name) =
                line.get(19..).filter(|name| name.ends_with(b"_start") || name.ends_with(b"_end"))
            else {
                continue;
            };
            if !name.starts_with(b"__sched_text_") && !name.starts_with(b"__lock_text_") {
                continue;
            }
            let address =
                std::str::from_utf8(&line[..16]).ok().and_then(|hex| u64::from_str_radix(hex, 16).ok());
            marks.extend(address.filter(|address| *address > 0).map(|address| (name, address)));
        }
        let range = |start: &str, end: &str| {
            Some((*marks.get(start.as_bytes())?, *marks.get(end.as_bytes())?))
                .filter(|(start, end)| start < end)
        };
        let all =
            [range("__sched_text_start", "__sched_text_end"), range("__lock_text_start", "__lock_text_end")];
        Self { ranges: all.into_iter().flatten().collect() }
    }
}

/// Finds names. Keeps what it has read of binaries, so that the next call is quick.
#[derive(Debug, Default)]
pub struct Symbolizer {
    inner: blazesym::symbolize::Symbolizer,
}

impl Symbolizer {
    pub fn new() -> Self {
        Self::default()
    }

    /// Names for all of `addresses`. Best called while the processes still live: of one that has
    /// ended, only what the maps that were kept name, and what still is in the same file. No
    /// address is dropped: the last resorts are `[file]+0x1234` and `[unknown]`.
    pub fn names(&self, addresses: &Addresses) -> Names {
        let mut names = Names::default();
        self.kernel(&addresses.kernel, &mut names);
        for (&pid, user) in &addresses.user {
            self.process(pid, user, addresses.maps.get(&pid), &mut names);
        }
        names
    }

    fn kernel(&self, addresses: &BTreeSet<u64>, names: &mut Names) {
        if addresses.is_empty() {
            return;
        }
        // Only the running kernel's own list: a vmlinux file on the disk may be of another build,
        // and its line tables would take longer to read than the measurement took.
        let kernel = Kernel { vmlinux: MaybeDefault::None, debug_syms: false, ..Kernel::default() };
        let addresses: Vec<u64> = addresses.iter().copied().collect();
        let found = self.inner.symbolize(&Source::Kernel(kernel), Input::AbsAddr(&addresses));
        let found = found.unwrap_or_default();
        if !found.iter().any(|s| s.as_sym().is_some()) {
            names.missing.push(no_kernel_names());
        }
        for (i, &address) in addresses.iter().enumerate() {
            let name = found.get(i).and_then(name_of).unwrap_or_else(|| vec![UNKNOWN.to_string()]);
            names.kernel.insert(address, name);
        }
    }

    fn process(&self, pid: u32, addresses: &BTreeSet<u64>, kept: Option<&Vec<u8>>, names: &mut Names) {
        let addresses: Vec<u64> = addresses.iter().copied().collect();
        let process = Process::new(Pid::from(pid));
        let found = self.inner.symbolize(&Source::Process(process), Input::AbsAddr(&addresses));
        let found = found.unwrap_or_default();
        let mut rest = Vec::new();
        for (i, &address) in addresses.iter().enumerate() {
            match found.get(i).and_then(name_of) {
                Some(name) => _ = names.user.insert((pid, address), name),
                None => rest.push(address),
            }
        }
        if rest.is_empty() {
            return;
        }
        // It has ended, or CAP_SYS_ADMIN for /proc/PID/map_files is not there.
        let live = fs::read(format!("/proc/{pid}/maps"));
        let kept = kept.map_or(&[][..], Vec::as_slice);
        let refused = live.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
        if refused
            && kept.is_empty()
            && !names.missing.iter().any(|m| m.part.as_deref() == Some(USER_SYMBOLS))
        {
            names.missing.push(no_user_names());
        }
        let live = live.unwrap_or_default();
        let maps = mappings(if live.is_empty() { kept } else { &live });
        for address in rest {
            let map = maps.iter().find(|m| (m.start..m.end).contains(&address));
            let name = map.and_then(|m| self.in_file(m, address)).or_else(|| map.map(|m| m.place(address)));
            names.user.insert((pid, address), name.unwrap_or_else(|| vec![UNKNOWN.to_string()]));
        }
    }

    /// Names from the file that was mapped, when it still is the same file.
    fn in_file(&self, map: &Mapping, address: u64) -> Option<Vec<String>> {
        // Opening something else could block (a FIFO that took the file's place), and would name
        // the functions of another program.
        let now = fs::metadata(&map.path).ok().filter(|m| m.is_file() && m.ino() == map.inode);
        now?;
        let offset = map.offset.wrapping_add(address - map.start);
        let source = Source::Elf(Elf::new(&map.path));
        name_of(&self.inner.symbolize_single(&source, Input::FileOffset(offset)).ok()?)
    }
}

/// The symbol's name and those of the functions inlined at the address, outermost first.
fn name_of(symbol: &Symbolized<'_>) -> Option<Vec<String>> {
    let symbol = symbol.as_sym()?;
    let mut names = vec![symbol.name.to_string()];
    names.extend(symbol.inlined.iter().map(|f| f.name.to_string()));
    Some(names)
}

fn no_kernel_names() -> Missing {
    Missing {
        part: Some("kernel-symbols".to_string()),
        reason: "refused".to_string(),
        why: "/proc/kallsyms shows no addresses: kernel frames have no names, and the time of \
              interrupts is counted as system time"
            .to_string(),
        remedy: Some("run as root, or give biopsy CAP_SYSLOG and set kernel.kptr_restrict to 1 or 0".into()),
        ..Missing::default()
    }
}

const USER_SYMBOLS: &str = "user-symbols";

fn no_user_names() -> Missing {
    Missing {
        part: Some(USER_SYMBOLS.to_string()),
        reason: "refused".to_string(),
        why: "the memory maps of other users' processes cannot be read: their functions have no names"
            .to_string(),
        remedy: Some("run as root, or give biopsy CAP_SYS_PTRACE".into()),
        ..Missing::default()
    }
}

/// A mapped piece of a file.
#[derive(Debug, Clone, PartialEq)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    inode: u64,
    path: PathBuf,
}

impl Mapping {
    /// `[file]+0x1234`: the place in the file, the same in every run, for a later look with symbols.
    fn place(&self, address: u64) -> Vec<String> {
        let file = self.path.file_name().unwrap_or_default().to_string_lossy();
        vec![format!("[{file}]+{:#x}", self.offset.wrapping_add(address - self.start))]
    }
}

/// The lines of `/proc/PID/maps` that are of files. Not text: a path may hold any bytes.
fn mappings(maps: &[u8]) -> Vec<Mapping> {
    maps.split(|&b| b == b'\n').filter_map(parse_mapping).collect()
}

/// `55d0-55e0 r-xp 00002000 fe:01 1234     /usr/bin/x (deleted)`
fn parse_mapping(line: &[u8]) -> Option<Mapping> {
    let slash = line.iter().position(|&b| b == b'/')?;
    let (fields, path) = (std::str::from_utf8(&line[..slash]).ok()?, &line[slash..]);
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let mut fields = fields.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (offset, inode) = (fields.nth(1)?, fields.nth(1)?);
    let hex = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        offset: hex(offset)?,
        inode: inode.parse().ok()?,
        path: PathBuf::from(OsStr::from_bytes(path)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn findable() -> u64 {
        std::hint::black_box(1)
    }

    #[test]
    fn own_functions_have_names_and_nothing_is_dropped() {
        let here = findable as fn() -> u64 as usize as u64 + u64::from(findable() == 2);
        let pid = std::process::id();
        // Another process that cannot live: above the highest pid that Linux gives.
        let addresses = Addresses {
            kernel: BTreeSet::new(),
            user: BTreeMap::from([(pid, BTreeSet::from([here, 1])), (1 << 30, BTreeSet::from([here]))]),
            maps: HashMap::new(),
        };
        let names = Symbolizer::new().names(&addresses);
        assert!(names.user(pid, here)[0].contains("findable"), "{:?}", names.user(pid, here));
        assert_eq!(names.user(pid, 1), [UNKNOWN]);
        assert_eq!(names.user(1 << 30, here), [UNKNOWN]);
        assert!(names.user(pid, 2).is_empty(), "was not asked for");
    }

    /// The maps that were kept name the frames of a process that has ended.
    #[test]
    fn a_process_that_has_ended_is_named_by_its_files() {
        let here = findable as fn() -> u64 as usize as u64;
        let maps = fs::read("/proc/self/maps").unwrap();
        let user = BTreeMap::from([(1 << 30, BTreeSet::from([here, 1]))]);
        let mut addresses =
            Addresses { user, maps: HashMap::from([(1 << 30, maps)]), ..Addresses::default() };
        let names = Symbolizer::new().names(&addresses);
        assert!(names.user(1 << 30, here)[0].contains("findable"), "{names:?}");
        assert_eq!(names.user(1 << 30, 1), [UNKNOWN]);

        // Another file under the same path: its symbols would be lies.
        let line = format!("{here:x}-{:x} r-xp 00002000 fe:01 1  /proc/self/exe\n", here + 16);
        addresses.maps.insert(1 << 30, line.into_bytes());
        assert_eq!(Symbolizer::new().names(&addresses).user(1 << 30, here), ["[exe]+0x2000"]);
    }

    #[test]
    fn the_scheduler_is_between_its_marks() {
        let symbols = b"ffffffff81000000 T _stext\nffffffff82000000 T __sched_text_start\n\
            ffffffff82001000 T __sched_text_end\nffffffff82001000 T __lock_text_start\n\
            ffffffff82001000 T __lock_text_end\nshort\n";
        assert_eq!(Scheduler::of(symbols).ranges, [(0xffff_ffff_8200_0000, 0xffff_ffff_8200_1000)]);
        let hidden = b"0000000000000000 T __sched_text_start\n0000000000000000 T __sched_text_end\n";
        assert_eq!(Scheduler::of(hidden), Scheduler::default());
    }

    #[test]
    fn lines_of_maps() {
        let map = parse_mapping(b"5583f2a00000-5583f2a10000 r-xp 00002000 fe:01 1234     /usr/a b (deleted)")
            .unwrap();
        assert_eq!(
            (map.start, map.end, map.offset, map.inode),
            (0x5583f2a00000, 0x5583f2a10000, 0x2000, 1234)
        );
        assert_eq!(map.place(0x5583f2a00010), ["[a b]+0x2010"]);
        assert!(parse_mapping(b"1000-2000 r-xp 0 fe:01 1 /x\xff").is_some(), "any bytes");
        for bad in
            ["", "/", "7ffd1000-7ffd2000 rw-p 00000000 00:00 0   [stack]", "zz-yy r-xp 0 0 0 /x", "1-2 /x"]
        {
            assert_eq!(parse_mapping(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn damaged_maps_never_panic(maps in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            mappings(&maps);
        }
    }
}
