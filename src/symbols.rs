//! Symbolizes addresses: of the kernel from its own list, of processes from the files that they have mapped.
//!
//! The names come from binaries, from `/tmp/perf-PID.map` and from process names: they are untrusted, and not escaped
//! yet.
//!
//! An address of a process is first converted to a [`Place`], which means the same in every process and on every
//! machine. Each place is symbolized once, from the file that was mapped: through the open descriptor if the process's
//! mappings were read while it was running ([`MappedFiles`]), else from the file that has its path now, if inode and
//! device are the same. Files are read in a helper process, since a damaged file can crash its reader: see [`Helper`].

mod child;
mod demangle;
mod elf;
mod files;
mod helper;
mod kernel;
mod perf_map;
mod place;
mod process;
mod scheduler;
mod table;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use crate::host::elf::BuildId;
pub use crate::host::mapped::{MappedFiles, NoRecords, Programs};
pub use place::Place;
pub use place::by_label;
pub use scheduler::Scheduler;

use crate::envelope::{Missing, Reason};
use crate::host::block;
use crate::host::kallsyms::Kallsyms;
use crate::host::mapped::{MappedFile, open_regular};
use crate::refusal::LockedMemory;
use child::{Bounds, HelperProgram};
use files::{Failures, Files, NameCache};
use process::{Meaning, Processes, Vdso};

/// The name of a frame that cannot be symbolized.
pub const UNKNOWN: &str = "[unknown]";

/// Addresses to be symbolized, each once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Addresses {
    pub kernel: BTreeSet<u64>,
    /// By process, or by the id of a program that it ran earlier ([`Programs`]): the same address is another function
    /// in another process.
    pub user: BTreeMap<u32, BTreeSet<u64>>,
    /// The mappings of the processes while they were running.
    pub maps: MappedFiles,
    /// Disks by their numbers.
    pub disks: BTreeSet<(u32, u32)>,
}

/// Names of addresses. An address has several if functions were inlined: outermost first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Names {
    pub kernel: HashMap<u64, Vec<String>>,
    /// Processes that have mapped the same file share the list.
    pub user: HashMap<(u32, u64), Arc<[String]>>,
    /// Places of user addresses that lie in a mapping, with which a profile can be symbolized later, or elsewhere.
    pub places: HashMap<(u32, u64), Place>,
    /// Set if a whole kind of names is unavailable.
    pub missing: Vec<Missing>,
    /// The ids that replace a process id above if the process ran several programs.
    pub programs: Programs,
    /// Disks by their numbers.
    pub disks: BTreeMap<(u32, u32), String>,
}

impl Names {
    /// Names at a kernel address; empty if it was not requested.
    pub fn kernel(&self, address: u64) -> &[String] {
        self.kernel.get(&address).map_or(&[], Vec::as_slice)
    }

    /// Names at an address of a process.
    pub fn user(&self, pid: u32, address: u64) -> &[String] {
        self.user.get(&(pid, address)).map_or(&[], |names| names)
    }

    /// Places without a name, by the label that is used instead. Excludes labels that several files share.
    pub fn unnamed(&self) -> BTreeMap<String, Place> {
        let is_unnamed = |at: &(u32, u64), place: &Place| {
            self.user.get(at).is_some_and(|names| **names == [place.label().as_str()])
        };
        by_label(self.places.iter().filter(|(at, place)| is_unnamed(at, place)).map(|(_, place)| place))
    }

    /// Place of an address of a process; None outside of every mapping.
    pub fn place(&self, pid: u32, address: u64) -> Option<&Place> {
        self.places.get(&(pid, address))
    }
}

fn disks(wanted: &BTreeSet<(u32, u32)>) -> BTreeMap<(u32, u32), String> {
    if wanted.is_empty() {
        return BTreeMap::new();
    }
    let all = block::by_number(Path::new("/"));
    all.into_iter()
        .filter(|(number, _)| wanted.contains(number))
        .map(|(number, (name, _))| (number, name))
        .collect()
}

/// A file on this machine.
struct Local {
    file: Arc<MappedFile>,
    /// A debug file: without code, and so without file offsets.
    is_debug: bool,
}

/// The name of a place according to the files on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlaceName {
    /// Several if functions were inlined: outermost first.
    As(Arc<[String]>),
    /// The file exists, and has no name there.
    Nameless,
    /// No file with the place's build-id exists, or the place has none.
    Absent,
}

impl PlaceName {
    /// The names, if there are any.
    pub fn names(self) -> Option<Arc<[String]>> {
        match self {
            Self::As(names) => Some(names),
            Self::Nameless | Self::Absent => None,
        }
    }
}

/// The program that reads files for a [`Symbolizer`] in separate processes: biopsy with a hidden verb, implemented by
/// [`Helper::serve`].
#[derive(Debug, Clone)]
pub struct Helper(HelperProgram);

impl Helper {
    /// The hidden verb.
    pub const VERB: &str = "symbol-reader";

    /// The running program itself, even if its file was deleted or replaced. It must have the verb.
    pub fn own() -> Self {
        Self::at("/proc/self/exe")
    }

    /// An executable of biopsy.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(HelperProgram { path: path.into(), args: vec![Self::VERB.into()] })
    }

    /// Implements the verb.
    ///
    /// # Errors
    /// When the parent did not request names, or has exited.
    pub fn serve() -> std::io::Result<()> {
        helper::serve()
    }
}

/// Finds names, and caches them, so that the next call is quick.
#[derive(Debug)]
pub struct Symbolizer {
    helper: Helper,
    kernel: OnceCell<Arc<Kallsyms>>,
    vdso: OnceCell<Vdso>,
    known: RefCell<NameCache>,
    debug_folders: Vec<PathBuf>,
    bounds: Bounds,
}

impl Symbolizer {
    pub fn new(helper: Helper) -> Self {
        Self::with_debug_folders(helper, files::DEBUG_FOLDERS.map(PathBuf::from).to_vec())
    }

    /// Looks for debug files by build-id (`FOLDER/.build-id/ab/cdef.debug`) in other directories. Only trusted users
    /// may be able to write to these, since their contents name everyone's frames.
    pub fn with_debug_folders(helper: Helper, debug_folders: Vec<PathBuf>) -> Self {
        Self {
            helper,
            kernel: OnceCell::new(),
            vdso: OnceCell::new(),
            known: RefCell::default(),
            debug_folders,
            bounds: Bounds::default(),
        }
    }

    /// Symbolizes all of `addresses`. Best called while the processes are running: if one has exited, only its recorded
    /// mappings can be used. No address is dropped: the fallbacks are `[file]+0x1234`, for a place in a file without a
    /// symbol there, and `[unknown]`, if no code was mapped.
    pub fn names(&self, addresses: &Addresses) -> Names {
        let mut names = Names {
            programs: addresses.maps.programs().clone(),
            disks: disks(&addresses.disks),
            ..Names::default()
        };
        self.kernel(&addresses.kernel, &mut names);
        if !addresses.user.is_empty() {
            self.user(addresses, &mut names);
        }
        names
    }

    fn kernel(&self, addresses: &BTreeSet<u64>, names: &mut Names) {
        if addresses.is_empty() {
            return;
        }
        let kernel = self.kernel.get_or_init(kernel::table);
        if kernel.is_empty() {
            names.missing.push(no_kernel_names());
        }
        for &address in addresses {
            let name = kernel.function_at(address).unwrap_or_else(|| UNKNOWN.to_string());
            names.kernel.insert(address, vec![name]);
        }
    }

    fn user(&self, addresses: &Addresses, names: &mut Names) {
        let mut processes = Processes::new(&addresses.maps, self.vdso.get_or_init(Vdso::read));
        let mut known = self.known.borrow_mut();
        let mut files = Files::default();
        let mut waiting = Vec::new();
        let unknown: Arc<[String]> = [UNKNOWN.to_string()].into();
        for (&pid, user) in &addresses.user {
            for (address, meaning) in processes.meanings(pid, user) {
                match meaning {
                    Meaning::Nothing | Meaning::Ambiguous => {
                        names.user.insert((pid, address), Arc::clone(&unknown));
                    }
                    Meaning::Made(name) => _ = names.user.insert((pid, address), [name].into()),
                    Meaning::Place { place, file } => {
                        let wanted = file.and_then(|(key, file)| {
                            files.want(&file, &key, place.address?, &known);
                            Some(key)
                        });
                        waiting.push(((pid, address), wanted));
                        names.places.insert((pid, address), place);
                    }
                }
            }
        }
        let failures = files.name(&mut known, &self.helper.0, &self.debug_folders, self.bounds);
        let mut labels: HashMap<&Place, Arc<[String]>> = HashMap::new();
        for (at, key) in waiting {
            let place = &names.places[&at];
            let found = key.as_ref().zip(place.address).and_then(|(key, address)| known.get(key, address));
            let name = match found {
                Some(found) if !found.is_empty() => found,
                _ => labels.entry(place).or_insert_with(|| [place.label()].into()),
            };
            names.user.insert(at, Arc::clone(name));
        }
        if processes.refused {
            names.missing.push(no_user_names());
        }
        if processes.ambiguous > 0 {
            names.missing.push(two_programs(processes.ambiguous));
        }
        let lost = addresses.maps.lost();
        if processes.ended > 0 {
            names.missing.push(ended(processes.ended, lost, addresses.maps.no_records()));
        } else if processes.unmapped > 0 && lost > 0 {
            names.missing.push(lost_records(lost));
        }
        names.missing.extend(failed(&failures));
    }

    /// Symbolizes places with files of this machine that have the same build-id, for a recording that was made earlier,
    /// or elsewhere. Returns names in the order of `places`, and why existing files could not be read.
    pub fn name_places(&self, places: &[Place]) -> (Vec<PlaceName>, Vec<Missing>) {
        let mut known = self.known.borrow_mut();
        let mut files = Files::default();
        let mut local: HashMap<(&Arc<str>, &BuildId), Option<Local>> = HashMap::new();
        // None: no such file exists here. The inner value is the address in the file's own tables.
        let mut wanted = Vec::with_capacity(places.len());
        for place in places {
            wanted.push(place.build_id.as_ref().and_then(|id| {
                let file = local.entry((&place.file, id));
                let Local { file, is_debug } =
                    file.or_insert_with(|| self.local(&place.file, id)).as_ref()?;
                let address = match is_debug {
                    // A debug file cannot convert file offsets.
                    true => Some(place.address?),
                    false => {
                        let elf = file.elf()?;
                        let address = place.address.or_else(|| elf.address(place.offset));
                        // The address in an untrusted profile may be any number, and a symbol without a size would
                        // match far beyond its end.
                        address.filter(|address| elf.has(*address))
                    }
                };
                Some(address.map(|address| {
                    let key = Files::key(file);
                    files.want(file, &key, address, &known);
                    (key, address)
                }))
            }));
        }
        let failures = files.name(&mut known, &self.helper.0, &self.debug_folders, self.bounds);
        let named = wanted.into_iter().map(|wanted| {
            let Some(wanted) = wanted else { return PlaceName::Absent };
            let found = wanted.and_then(|(key, address)| known.get(&key, address));
            found
                .filter(|names| !names.is_empty())
                .map_or(PlaceName::Nameless, |names| PlaceName::As(Arc::clone(names)))
        });
        (named.collect(), failed(&failures))
    }

    /// A file of this machine with this build-id: at the same path, or the distribution's debug file.
    fn local(&self, path: &str, id: &BuildId) -> Option<Local> {
        if path == "[vdso]" {
            let file = Arc::clone(self.vdso.get_or_init(Vdso::read).file()?);
            return (file.build_id() == Some(id)).then_some(Local { file, is_debug: false });
        }
        let at_path = open_regular(Path::new(path), true).and_then(MappedFile::new);
        let (file, is_debug) = match at_path.filter(|file| file.build_id() == Some(id)) {
            Some(file) => (file, false),
            None => (MappedFile::new(files::debug_file(&self.debug_folders, id)?)?, true),
        };
        Some(Local { file: Arc::new(file), is_debug })
    }
}

fn no_kernel_names() -> Missing {
    Missing {
        part: Some("kernel-symbols".to_string()),
        reason: Reason::Refused,
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
        reason: Reason::Refused,
        why: "the memory maps of other users' processes cannot be read: their functions have no names"
            .to_string(),
        remedy: Some("run as root, or give biopsy CAP_SYS_PTRACE".into()),
        ..Missing::default()
    }
}

fn two_programs(addresses: usize) -> Missing {
    Missing {
        part: Some(USER_SYMBOLS.to_string()),
        reason: Reason::Ambiguous,
        why: format!(
            "{addresses} addresses have no names: their processes started another program meanwhile, and \
             both programs contain them"
        ),
        ..Missing::default()
    }
}

fn ended(processes: usize, lost: u64, no_records: Option<NoRecords>) -> Missing {
    let (es, their) = if processes == 1 { ("", "its") } else { ("es", "their") };
    let (no_records, remedy) = match no_records {
        None => (None, None),
        Some(NoRecords::PidNamespace) => (
            Some("biopsy runs in a pid namespace of its own".to_string()),
            Some("run biopsy in the pid namespace of the host"),
        ),
        Some(NoRecords::Refused) => {
            (Some("perf events were refused".to_string()), Some("run as root, or give biopsy CAP_PERFMON"))
        }
        Some(NoRecords::LockedMemory) => (Some(LockedMemory.to_string()), Some(LockedMemory::REMEDY)),
    };
    let lost = match (no_records, lost) {
        (Some(why), _) => format!(" (the kernel's records of what processes map are missing: {why})"),
        (None, 0) => String::new(),
        (None, lost) => format!(" (and {lost} of the kernel's records of what processes map were lost)"),
    };
    Missing {
        part: Some(USER_SYMBOLS.to_string()),
        reason: Reason::Ended,
        why: format!(
            "{processes} process{es} ended before {their} memory maps could be read{lost}: {their} functions have no names"
        ),
        remedy: remedy.map(str::to_string),
        ..Missing::default()
    }
}

fn lost_records(lost: u64) -> Missing {
    Missing {
        part: Some(USER_SYMBOLS.to_string()),
        reason: Reason::Lost,
        why: format!(
            "{lost} of the kernel's records of what processes map were lost: some functions of processes that have ended \
             have no names"
        ),
        ..Missing::default()
    }
}

fn failed(failures: &Failures) -> Vec<Missing> {
    let missing = |reason: Reason, why: String| Missing {
        part: Some(USER_SYMBOLS.to_string()),
        reason,
        why,
        ..Missing::default()
    };
    let mut all = Vec::new();
    if failures.files > 0 {
        let files = failures.files;
        all.push(missing(
            Reason::Damaged,
            format!(
                "the symbols of {files} file{} could not be read to the end, damaged or too large: some of \
                 their functions have no names",
                if files == 1 { "" } else { "s" }
            ),
        ));
    }
    if let Some(error) = &failures.refused {
        all.push(missing(
            Reason::Refused,
            format!("the process that reads symbols could not be started ({error}): functions have no names"),
        ));
    }
    all
}

#[cfg(test)]
#[path = "symbols/tests.rs"]
mod tests;
