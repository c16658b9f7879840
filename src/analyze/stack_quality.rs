//! Judges how many user stacks are complete.
//!
//! The kernel follows frame pointers. Code without them (the libraries of most distributions) uses that register for
//! other values, so the chain ends early, skips callers, or continues into numbers that are not code.
//!
//! What is proof, and what is a guess:
//!
//! - A frame outside of every executable mapping is invalid: the chain was lost before it ([`Ending::Lost`]). That is
//!   proof if the process's mappings were read while it lived. Code that a process created and unmapped since looks the
//!   same. Without mappings a stack is not judged at all ([`Ending::Unjudged`]).
//! - A stack with as many frames as the sampler takes was cut by the sampler, not by the code ([`Ending::Full`]).
//! - A stack whose outermost frame is the start of a thread is complete at its end ([`Ending::Root`]). A caller may
//!   still be missing in between: a function without frame pointers that does not touch the register hides its caller,
//!   and the addresses do not show it. So the share of uncut stacks is an upper bound for correct ones.
//! - Any other stack is cut within a program ([`Ending::Short`]). With symbol names that is as good as proof.
//!   If the outermost frame has no name (a stripped program, JIT code) it may be an unrecognised start of a thread, so
//!   the stack is not judged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::merge::SaturatingSum as _;
use crate::symbols::{Names, UNKNOWN};
pub use crate::wire::stacks::MAX_FRAMES;
use crate::wire::stacks::{KTHREAD, RawProfile, Sample, USER_FAILED};

/// How a user stack ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// At the start of a thread or program.
    Root,
    /// In the middle of a program.
    Short,
    /// In numbers that are not code.
    Lost,
    /// At the sampler's maximum number of frames.
    Full,
    /// The kernel could not take it: an exiting thread has no memory to read.
    Failed,
    /// Unknown: its outermost frame has no name, or the process's mappings were never read.
    Unjudged,
}

impl Ending {
    /// Frames are certainly missing or wrong (as far as the names are right).
    pub fn is_cut(self) -> bool {
        matches!(self, Self::Short | Self::Lost | Self::Full)
    }

    /// Whether the ending can be judged.
    fn is_judged(self) -> bool {
        !matches!(self, Self::Failed | Self::Unjudged)
    }
}

/// User stacks of an interval, in samples.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StackQuality {
    pub endings: BTreeMap<Ending, u64>,
    /// Cut stacks by the name of the outermost valid frame, most first: the code that needs frame pointers.
    pub at: Vec<(String, u64)>,
}

impl StackQuality {
    /// Samples whose stack ends this way.
    pub fn of(&self, ending: Ending) -> u64 {
        self.endings.get(&ending).copied().unwrap_or(0)
    }

    /// No frame is missing, as far as the addresses show.
    pub fn is_whole(&self) -> bool {
        self.samples() == self.of(Ending::Root)
    }

    /// Samples of user threads.
    pub fn samples(&self) -> u64 {
        self.endings.values().saturating_sum()
    }

    fn sum(&self, which: impl Fn(Ending) -> bool) -> u64 {
        self.endings.iter().filter(|(ending, _)| which(**ending)).map(|(_, n)| n).saturating_sum()
    }

    pub fn cut(&self) -> u64 {
        self.sum(Ending::is_cut)
    }

    /// Samples for which it is known whether they are cut.
    pub fn judged(&self) -> u64 {
        self.sum(Ending::is_judged)
    }

    /// Cut stacks in percent of the judged ones; None without any.
    pub fn cut_percent(&self) -> Option<f64> {
        let judged = self.judged();
        (judged > 0).then(|| 100.0 * self.cut() as f64 / judged as f64)
    }
}

/// Judges the user stacks of a profile.
pub fn unwinding(raw: &RawProfile, names: &Names) -> StackQuality {
    let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
    let mut all = StackQuality::default();
    for (sample, tally) in &raw.samples {
        // The idle task, kernel threads and io_uring threads have no user stack.
        if sample.pid == 0 || sample.flags & KTHREAD != 0 || sample.is_of_ring() {
            continue;
        }
        let (ending, outermost) = ending(sample, names);
        *all.endings.entry(ending).or_default() += tally.samples;
        if let Some(name) = outermost.filter(|_| ending.is_cut()) {
            *by_name.entry(name).or_default() += tally.samples;
        }
    }
    all.at = by_name.into_iter().map(|(name, n)| (name.to_string(), n)).collect();
    all.at.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all
}

/// How one user stack ends, and the name of the outermost valid frame.
pub fn ending<'a>(sample: &Sample, names: &'a Names) -> (Ending, Option<&'a str>) {
    if sample.flags & USER_FAILED != 0 || sample.user().is_empty() {
        return (Ending::Failed, None);
    }
    let mut outermost = None;
    let mut lost = false;
    let mut read = false;
    let program = names.programs.of(sample.pid, sample.comm_bytes());
    for address in sample.user_lookups() {
        let frame = names.user(program, address);
        // If nothing was ever found for this process, the stack is not to blame.
        read |= names.place(program, address).is_some() || frame.first().is_some_and(|n| n != UNKNOWN);
        match frame.first() {
            Some(name) if name != UNKNOWN => outermost = Some(name.as_str()),
            _ => {
                lost = true;
                break;
            }
        }
    }
    let ending = match outermost {
        _ if !read => Ending::Unjudged,
        _ if lost && is_behind_the_end(sample, names) => Ending::Root,
        _ if lost => Ending::Lost,
        Some(name) if is_root(name) => Ending::Root,
        _ if sample.user().len() >= MAX_FRAMES => Ending::Full,
        Some(name) if is_label(name) => Ending::Unjudged,
        _ => Ending::Short,
    };
    (ending, outermost)
}

/// The start of a thread leaves a zero, or an arbitrary number, in place of its own return address, and the stack walk
/// takes it for one more frame. All frames before it are valid.
fn is_behind_the_end(sample: &Sample, names: &Names) -> bool {
    let mut frames = sample.user_lookups().rev();
    let _behind = frames.next();
    let program = names.programs.of(sample.pid, sample.comm_bytes());
    let last = frames.next().and_then(|address| names.user(program, address).first());
    last.is_some_and(|name| is_root(name))
}

/// `[file]+0x1234`.
fn is_label(name: &str) -> bool {
    name.starts_with('[') && name.contains("]+0x")
}

/// Functions at which threads and programs start, in the C libraries and runtimes of Linux.
fn is_root(name: &str) -> bool {
    const WHOLE: &[&str] = &[
        // glibc and musl: programs, and threads under the names of different versions.
        "_start",
        "start_thread",
        "clone",
        "clone3",
        "__clone",
        "__clone3",
        "__clone_internal",
        "thread_start",
        "_dl_start_user",
        "__restore_rt",
        // Go: each goroutine begins at goexit, each runtime thread at one of these.
        "runtime.goexit",
        "runtime.goexit.abi0",
        "runtime.mstart",
        "runtime.mstart.abi0",
        "runtime.rt0_go",
        "runtime.rt0_go.abi0",
    ];
    // Compiler clones (`.cold`, `.isra.0`), and symbol versions (`clone@@GLIBC_2.2.5`).
    let base = name.split('@').next().unwrap_or(name);
    WHOLE.contains(&base)
        || base.starts_with("__libc_start_main")
        || base.starts_with("__libc_start_call_main")
        || base.starts_with("_rt0_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::Place;
    use crate::wire::stacks::{SampleTotal, Sampler};

    /// A stack given by the names of its frames, leaf first.
    fn stack(names: &mut Names, user: &[&str], flags: u32) -> Sample {
        let addresses: Vec<u64> =
            (0..user.len() as u64).map(|i| 0x1000 * (names.user.len() as u64 + i + 1)).collect();
        let sample = Sample::new(7, 7, flags, b"x", &[], &addresses);
        for (address, name) in sample.user_lookups().zip(user) {
            names.user.insert((7, address), [name.to_string()].into());
            if *name != UNKNOWN {
                let place = Place { build_id: None, file: "/x".into(), offset: address, address: None };
                names.places.insert((7, address), place);
            }
        }
        sample
    }

    fn judge(user: &[&str]) -> Ending {
        let mut names = Names::default();
        let sample = stack(&mut names, user, 0);
        ending(&sample, &names).0
    }

    #[test]
    fn a_stack_that_begins_where_threads_begin_is_whole() {
        for root in [
            "_start",
            "__libc_start_main_impl",
            "__libc_start_main@@GLIBC_2.34",
            "clone3",
            "runtime.goexit.abi0",
        ] {
            assert_eq!(judge(&["leaf", "main", root]), Ending::Root, "{root}");
        }
        assert_eq!(
            judge(&["leaf", "main", "_start", UNKNOWN]),
            Ending::Root,
            "what lies behind the last frame"
        );
    }

    #[test]
    fn a_stack_that_is_lost_or_ends_in_the_middle_is_cut() {
        assert_eq!(judge(&["__read", "fgets"]), Ending::Short);
        assert_eq!(judge(&["__read", UNKNOWN, "main", "_start"]), Ending::Lost);
        assert_eq!(judge(&["__read", "_start", UNKNOWN, UNKNOWN]), Ending::Lost, "it goes on after its end");
        assert_eq!(judge(&["my_start", "clone_file"]), Ending::Short, "only whole names");
        let deep = vec!["recurse"; MAX_FRAMES];
        assert_eq!(judge(&deep), Ending::Full);
        assert!([Ending::Short, Ending::Lost, Ending::Full].iter().all(|e| e.is_cut()));
    }

    #[test]
    fn what_nobody_can_tell_is_not_judged() {
        assert_eq!(judge(&["read", "[stripped]+0x1180"]), Ending::Unjudged, "may be its _start");
        assert_eq!(judge(&[UNKNOWN, UNKNOWN]), Ending::Unjudged, "its mappings were never read");
    }

    #[test]
    fn shares_are_of_those_that_can_be_judged() {
        let mut names = Names::default();
        let mut raw = RawProfile {
            sampler: Sampler::CpuClock,
            frequency: 99,
            cpus: 1,
            duration_ns: 1,
            idle_ns: None,
            samples: Default::default(),
            maps: Default::default(),
            leaders: Default::default(),
            lost: 0,
            damaged: 0,
            map_bytes: 0,
            program_runs: 0,
            program_ns: 0,
        };
        let mut add = |user: &[&str], flags, samples| {
            let sample = stack(&mut names, user, flags);
            raw.samples.insert(sample, SampleTotal { samples, period: 0 });
        };
        add(&["main", "_start"], 0, 60);
        add(&["read", "main"], 0, 30);
        add(&[], USER_FAILED, 10);
        add(&["[x]+0x1"], 0, 5);
        add(&[], KTHREAD, 1000);
        let found = unwinding(&raw, &names);
        assert_eq!((found.samples(), found.judged(), found.cut()), (105, 90, 30));
        assert_eq!(found.cut_percent().map(f64::round), Some(33.0));
        assert_eq!(found.at, [("main".to_string(), 30)]);
        assert!(!found.is_whole() && StackQuality::default().is_whole());
        assert_eq!(StackQuality::default().cut_percent(), None);
    }
}
