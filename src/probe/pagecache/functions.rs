//! Probes the functions that move pages to and from the LRU lists.

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags};

use crate::envelope::{Missing, Reason};
use crate::probe::btf::KernelBtf;
use crate::probe::cost::MeteredProgram;
use crate::probe::libbpf;
use crate::probe::maps::{self, element};
use crate::probe::skel::paths::{PathsSkel, PathsSkelBuilder};
use crate::wire::pagecache::{Follower, PATH_SPIN, PathSample, WirePath};

/// A function, with the names that it has had, newest first.
struct KernelFunction {
    place: usize,
    names: &'static [&'static str],
}

const fn function(place: usize, names: &'static [&'static str]) -> KernelFunction {
    KernelFunction { place, names }
}

/// Variants before 5.16 that took pages are gone by 6.1: `shrink_page_list` and `isolate_lru_pages` existed until 5.19,
/// `pagevec_lru_move_fn` until 5.18. Before 5.11 the lock was the node's and had no function of its own. `evict_folios`
/// (6.1) belongs to the multi-generational LRU, if that is enabled.
const FUNCTIONS: &[KernelFunction] = &[
    function(0, &["folio_lruvec_lock"]),
    function(1, &["folio_lruvec_lock_irq"]),
    function(2, &["folio_lruvec_lock_irqsave"]),
    function(3, &["shrink_lruvec"]),
    function(4, &["shrink_folio_list", "shrink_page_list"]),
    function(5, &["isolate_lru_folios", "isolate_lru_pages"]),
    function(6, &["folio_batch_move_lru", "pagevec_lru_move_fn"]),
    function(7, &["lru_add_drain"]),
    function(8, &["shrink_inactive_list"]),
    function(9, &["evict_folios"]),
    function(10, &["shrink_active_list"]),
    function(11, &["move_folios_to_lru"]),
];

/// The slow path of spinlocks: on bare metal, and in a guest with paravirtual spinlocks.
const SPIN: [&str; 2] = ["native_queued_spin_lock_slowpath", "__pv_queued_spin_lock_slowpath"];

/// A function that is followed.
struct AttachedFunction {
    place: usize,
    name: &'static str,
    by: Follower,
    skel: PathsSkel<'static>,
    links: Vec<Link>,
}

impl AttachedFunction {
    /// Programs at its entry and at its return.
    fn programs(&self) -> [BorrowedFd<'_>; 2] {
        let progs = &self.skel.progs;
        match self.by {
            Follower::Fentry => [progs.path_entry.as_fd(), progs.path_exit.as_fd()],
            Follower::Kprobe => [progs.path_kprobe.as_fd(), progs.path_kretprobe.as_fd()],
        }
    }
}

/// All followed functions; dropping it detaches.
#[derive(Default)]
pub struct Functions {
    all: Vec<AttachedFunction>,
}

impl Functions {
    /// Attaches to the functions that this kernel has and allows. Functions that it has and does not allow are reported
    /// in `missing`.
    pub fn attach(btf: &KernelBtf, missing: &mut Vec<Missing>) -> Self {
        let mut functions = Self::default();
        let mut refused: Vec<(&'static str, String)> = Vec::new();
        for function in FUNCTIONS {
            let Some(name) = function.names.iter().find(|name| btf.has_function(name)) else { continue };
            functions.add(function.place, name, &mut refused);
            // If no function at all can be probed, there is no need to try each.
            if functions.all.is_empty() && refused.len() >= 3 {
                break;
            }
        }
        if !functions.all.is_empty() {
            for name in SPIN.iter().filter(|name| btf.has_function(name)) {
                functions.add(PATH_SPIN, name, &mut refused);
            }
        }
        missing.extend(said(&refused, functions.all.is_empty()));
        functions
    }

    fn add(&mut self, place: usize, name: &'static str, refused: &mut Vec<(&'static str, String)>) {
        // Before ca06f55b9002 (5.12) an fentry program is entered recursively if it calls its own function, which it
        // does when it takes the lock of its map.
        let kinds: &[Follower] = match libbpf::has_swap() {
            true => &[Follower::Fentry, Follower::Kprobe],
            false => &[Follower::Kprobe],
        };
        let mut why = None;
        for by in kinds {
            libbpf::listen();
            match follow(place, name, *by, self.all.first()) {
                Ok(followed) => {
                    self.all.push(followed);
                    return;
                }
                // The first error is the better reason: kprobes may not even be built in on kernels that lock down
                // functions.
                Err(error) => {
                    why.get_or_insert_with(|| format!("{}: {error:#}", by.name()));
                }
            }
        }
        refused.extend(why.map(|why| (name, why)));
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Opens or closes the interval for all of them at once.
    pub fn run(&self, running: bool) -> Result<()> {
        let Some(first) = self.all.first() else { return Ok(()) };
        let map = &first.skel.maps.path_shared;
        let mut value = element(map, 0)?;
        value[..4].copy_from_slice(&u32::from(running).to_ne_bytes());
        Ok(map.update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)?)
    }

    /// What was counted so far. The two spinlock functions count as one.
    pub fn read(&self) -> Result<Vec<PathSample>> {
        let Some(first) = self.all.first() else { return Ok(Vec::new()) };
        let mut out: Vec<PathSample> = Vec::new();
        let mut spins = false;
        for followed in &self.all {
            if followed.place == PATH_SPIN && std::mem::replace(&mut spins, true) {
                continue;
            }
            let counts = maps::per_cpu::<WirePath>(&first.skel.maps.paths, followed.place as u32)?;
            out.push(PathSample { function: followed.name, by: followed.by, counts });
        }
        Ok(out)
    }

    /// The numbers of missed events, by kind.
    pub fn lost(&self) -> Vec<(String, u64)> {
        let Some(first) = self.all.first() else { return Vec::new() };
        let value = element(&first.skel.maps.path_shared, 0).unwrap_or_default();
        let kinds = ["path_no_room", "path_torn", "path_no_begin"];
        let numbers = value.get(8..).unwrap_or_default().chunks_exact(8);
        let mut all: Vec<(String, u64)> = kinds
            .iter()
            .zip(numbers)
            .filter_map(|(kind, bytes)| Some((kind.to_string(), u64::from_ne_bytes(bytes.try_into().ok()?))))
            .collect();
        let missed = self.all.iter().flat_map(|followed| {
            let of =
                |fd: BorrowedFd<'_>| libbpf::program_stats(&fd).map_or(0, |stats| stats.recursion_misses);
            followed.programs().map(of)
        });
        all.push(("path_missed".to_string(), missed.sum()));
        all
    }

    /// Both programs of a function have its name.
    pub fn metered(&self) -> Vec<MeteredProgram<'_>> {
        let all = self.all.iter();
        all.flat_map(|followed| followed.programs().map(|fd| MeteredProgram { name: followed.name, fd }))
            .collect()
    }

    /// Detaches; what was counted can still be read.
    pub fn detach(&mut self) {
        for followed in &mut self.all {
            followed.links.clear();
        }
    }

    pub fn map_bytes(&self) -> u64 {
        self.all.first().map_or(0, |first| libbpf::map_bytes(first.skel.object()))
    }
}

/// Loads a separate object for the function, with the maps of the first object.
fn follow(
    place: usize,
    name: &'static str,
    by: Follower,
    first: Option<&AttachedFunction>,
) -> Result<AttachedFunction> {
    let mut open = PathsSkelBuilder::default().open(libbpf::object_place())?;
    open.maps.rodata_data.as_mut().context("the object has read-only data")?.path = place as u32;
    let progs = &mut open.progs;
    match by {
        Follower::Fentry => {
            progs.path_entry.set_autoload(true);
            progs.path_exit.set_autoload(true);
            progs.path_entry.set_attach_target(0, Some(name.to_string()))?;
            progs.path_exit.set_attach_target(0, Some(name.to_string()))?;
        }
        Follower::Kprobe => {
            progs.path_kprobe.set_autoload(true);
            progs.path_kretprobe.set_autoload(true);
        }
    }
    if let Some(first) = first {
        let maps = &first.skel.maps;
        open.maps.path_shared.reuse_fd(maps.path_shared.as_fd())?;
        open.maps.paths.reuse_fd(maps.paths.as_fd())?;
        open.maps.callings.reuse_fd(maps.callings.as_fd())?;
        open.maps.nothing.reuse_fd(maps.nothing.as_fd())?;
    }
    let skel = open.load().map_err(|error| reason(&error))?;
    let progs = &skel.progs;
    // Ends are attached first: the start of a call in progress is not recorded.
    let links = match by {
        Follower::Fentry => [progs.path_exit.attach(), progs.path_entry.attach()],
        Follower::Kprobe => {
            [progs.path_kretprobe.attach_kprobe(true, name), progs.path_kprobe.attach_kprobe(false, name)]
        }
    };
    let links = links.into_iter().collect::<libbpf_rs::Result<Vec<_>>>().map_err(|error| reason(&error))?;
    Ok(AttachedFunction { place, name, by, skel, links })
}

fn reason(error: &libbpf_rs::Error) -> anyhow::Error {
    match libbpf::last_words() {
        Some(words) => anyhow::anyhow!("{error}: {words}"),
        None => anyhow::anyhow!("{error}"),
    }
}

/// One entry for all if nothing can be followed, else one per function.
fn said(refused: &[(&'static str, String)], all: bool) -> Vec<Missing> {
    let one = |names: String, why: &str, remedy: Option<&str>| Missing {
        part: Some(names),
        reason: Reason::Refused,
        why: format!("the kernel refuses programs at its functions ({why})"),
        remedy: remedy.map(str::to_string),
        ..Missing::default()
    };
    match (refused.first(), all) {
        (Some((_, why)), true) => vec![one(
            "paths".to_string(),
            why,
            Some(
                "their shares come from CPU samples; boot a kernel with CONFIG_KPROBES and without lockdown",
            ),
        )],
        _ => refused.iter().map(|(name, why)| one(format!("paths: {name}"), why, None)).collect(),
    }
}
