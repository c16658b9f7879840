//! The stacks of a window by what they weigh: CPU time, time blocked, time waited for locks, time in reclaim.

mod note;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::note::Note;
use super::locks::is_locking;
use super::profile::{Area, Frame, Place, Profile, Unit};
use super::stacks::ProfileSummary;
use super::submits::Part;
use crate::wire;
use crate::wire::stacks::Sampler;

/// What the widths of a flame graph are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    OnCpu,
    OffCpu,
    IoWait,
    LockWait,
    Io,
    Reclaim,
}

impl What {
    /// As a title.
    pub fn title(self) -> &'static str {
        match self {
            Self::OnCpu => "on-CPU time",
            Self::OffCpu => "off-CPU time",
            Self::IoWait => "time blocked for I/O",
            Self::LockWait => "lock wait time",
            Self::Io => "I/O time by submitter",
            Self::Reclaim => "time in memory reclaim",
        }
    }

    /// Whether all that is waited for ends in such a frame.
    fn is_common(self, frame: &Frame) -> bool {
        const SCHEDULER: [&str; 5] =
            ["__schedule", "schedule", "io_schedule", "schedule_timeout", "preempt_schedule"];
        let name = frame.name.split('.').next().unwrap_or(&frame.name);
        match self {
            Self::OnCpu | Self::Reclaim => false,
            Self::OffCpu | Self::IoWait => {
                frame.area.in_kernel()
                    && (SCHEDULER.contains(&name)
                        || name.starts_with("io_schedule_")
                        || name.starts_with("schedule_"))
            }
            Self::LockWait => frame.area == Area::Lock || is_locking(name),
            Self::Io => {
                frame.area == Area::Stage
                    || frame.area.in_kernel() && name.trim_start_matches('_').starts_with("submit_bio")
            }
        }
    }

    /// The frame that the value of a stack is counted to, by its number in the profile: of a wait the function that waits,
    /// and not the scheduler's or the lock's, which all waits end in; of an I/O the one that submits it. `what` may not be
    /// known: what is counted in nanoseconds and ends in the scheduler has waited.
    pub fn own_frame(what: Option<Self>, profile: &Profile, frames: &[u32]) -> Option<u32> {
        let what = what.or((profile.unit == Unit::Nanoseconds).then_some(Self::OffCpu));
        let all = profile.frames();
        let is_own = |id: &&u32| !what.is_some_and(|what| what.is_common(&all[**id as usize]));
        frames.iter().rfind(is_own).or(frames.last()).copied()
    }

    /// The word of the contract.
    pub fn word(self) -> &'static str {
        match self {
            Self::OnCpu => "on-cpu",
            Self::OffCpu => "off-cpu",
            Self::IoWait => "io-wait",
            Self::LockWait => "lock-wait",
            Self::Io => "io",
            Self::Reclaim => "reclaim",
        }
    }
}

/// Where the values come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Samples, so many per second and CPU.
    Sampler {
        sampler: Sampler,
        hz: u64,
        cpus: u32,
    },
    /// Every switch of the scheduler.
    Switches,
    /// Begin and end of reclaim.
    Reclaim,
    Locks {
        waits: u64,
        by: wire::locks::Source,
    },
    /// So many I/Os have a stack.
    Ios {
        sampled: u64,
        of: u64,
    },
    /// As a file has it.
    Recorded(String),
}

/// A window's stacks, and what a reader must know of them.
#[derive(Debug, Clone)]
pub struct FlameSummary {
    /// None: of a file that does not say it.
    pub what: Option<What>,
    /// Whose I/Os these are; empty where it is not about devices.
    pub devices: Vec<String>,
    pub profile: Profile,
    /// How many waits are behind the time, by the same stacks; None where only the time is known.
    pub counts: Option<Profile>,
    pub duration_ns: u64,
    pub source: Source,
    /// Measurements behind the values (samples, waits), and those that are in none.
    pub measured: u64,
    pub lost: u64,
    /// What a sample stands for, ns; None: values are no samples.
    pub period_ns: Option<u64>,
    /// Of samples of the CPUs: their classes and threads, without the stacks.
    pub samples: Option<ProfileSummary>,
    /// What qualifies the values.
    pub notes: Vec<Note>,
    /// Frames of user mode that have no name, by what stands in its stead: who has the file can name them.
    pub unnamed: BTreeMap<String, Place>,
    /// None: measured now.
    pub recorded: Option<Recorded>,
}

/// The file that stacks were read from, in place of live probes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Its name as it is, without the folders.
    pub file: String,
    /// What it calls its values (`cpu`), and those of [`FlameSummary::counts`].
    pub values: String,
    pub counts: String,
    /// How many frames have a name only now, and how many have none still, in a sentence. It is about this machine, and no
    /// part of what was recorded.
    pub naming: Option<String>,
}

/// I/Os that the same function of the same task submits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitter {
    /// The task, or what a kernel thread works for; not escaped, as the function.
    pub who: String,
    /// None: no stack was taken.
    pub function: Option<String>,
    pub parts: BTreeMap<Part, u64>,
    /// Of all parts.
    pub total: u64,
}

/// A frame, wherever it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heavy {
    /// As it is, not escaped.
    pub name: String,
    pub area: Area,
    /// What ended in it.
    pub own: u64,
    /// What it was in, once per stack.
    pub total: u64,
}

impl FlameSummary {
    /// Of stacks alone.
    pub fn new(what: Option<What>, profile: Profile) -> Self {
        Self {
            what,
            devices: Vec::new(),
            profile,
            counts: None,
            duration_ns: 0,
            source: Source::Recorded(String::new()),
            measured: 0,
            lost: 0,
            period_ns: None,
            samples: None,
            notes: Vec::new(),
            unnamed: BTreeMap::new(),
            recorded: None,
        }
    }

    /// As a title. The file's name in it is not escaped.
    pub fn title(&self) -> String {
        let what = self.what.map_or("stacks", What::title);
        match (&self.recorded, self.what) {
            (Some(recorded), None) => format!("{} of {}", recorded.values, recorded.file),
            (Some(recorded), Some(_)) => format!("{what} of {}", recorded.file),
            (None, _) => what.to_string(),
        }
    }

    fn is_common(&self, frame: &Frame) -> bool {
        self.what.is_some_and(|what| what.is_common(frame))
    }

    /// The frames with the largest own values ([`What::own_frame`]); labels, which are no functions, are left out.
    pub fn heaviest(&self, most: usize) -> Vec<Heavy> {
        let frames = self.profile.frames();
        let mut sums = vec![(0u64, 0u64, usize::MAX); frames.len()];
        for (number, stack) in self.profile.stacks().iter().enumerate() {
            for id in &stack.frames {
                let (_, total, last) = &mut sums[*id as usize];
                if *last != number {
                    *last = number;
                    *total += stack.value;
                }
            }
            if let Some(own) = What::own_frame(self.what, &self.profile, &stack.frames) {
                sums[own as usize].0 += stack.value;
            }
        }
        let mut all: Vec<Heavy> = frames
            .iter()
            .zip(sums)
            .filter(|(frame, (own, ..))| frame.area != Area::Label && *own > 0)
            .map(|(frame, (own, total, _))| Heavy { name: frame.name.clone(), area: frame.area, own, total })
            .collect();
        all.sort_by(|a, b| (b.own, &a.name, a.area).cmp(&(a.own, &b.name, b.area)));
        all.truncate(most);
        all
    }

    /// Time of I/Os by submitter, the longest first.
    pub fn submitters(&self) -> Vec<Submitter> {
        let frames = self.profile.frames();
        let mut all: BTreeMap<(u32, Option<u32>), Submitter> = BTreeMap::new();
        for stack in self.profile.stacks() {
            let (Some(who), Some(leaf)) = (stack.frames.first(), stack.frames.last()) else { continue };
            let Some(part) = Part::of_frame(&frames[*leaf as usize].name) else { continue };
            let is_own = |id: &&u32| {
                let frame = &frames[**id as usize];
                frame.area != Area::Label && !self.is_common(frame)
            };
            let function = stack.frames.iter().rfind(is_own).copied();
            let name = |id: u32| frames[id as usize].name.clone();
            let row = all.entry((*who, function)).or_insert_with(|| Submitter {
                who: name(*who),
                function: function.map(name),
                parts: BTreeMap::new(),
                total: 0,
            });
            *row.parts.entry(part).or_default() += stack.value;
            row.total += stack.value;
        }
        let mut all: Vec<Submitter> = all.into_values().collect();
        all.sort_by(|a, b| (b.total, &a.who, &a.function).cmp(&(a.total, &b.who, &b.function)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_that_of_the_function_that_waits() {
        let mut profile = Profile::new(Unit::Nanoseconds);
        let ids = ["read", "folio_wait_bit_common", "io_schedule", "__schedule"]
            .map(|name| profile.frame(name, Area::of_kernel(name)));
        profile.add(&ids, 5);
        let alone = profile.frame("schedule", Area::Kernel);
        profile.add(&[alone], 1);
        let summary = |what| FlameSummary::new(Some(what), profile.clone());
        let own = |what| summary(what).heaviest(9).into_iter().map(|h| (h.name, h.own)).collect::<Vec<_>>();
        let waits = [("folio_wait_bit_common".to_string(), 5), ("schedule".to_string(), 1)];
        assert_eq!(own(What::IoWait), waits);
        assert_eq!(own(What::OnCpu)[0], ("__schedule".to_string(), 5));
    }

    #[test]
    fn a_frame_counts_once_per_stack_and_labels_are_no_functions() {
        let mut profile = Profile::new(Unit::Samples);
        let comm = profile.frame("fio", Area::Label);
        let main = profile.frame("main", Area::User);
        let again = profile.frame("again", Area::User);
        profile.add(&[comm], 4);
        profile.add(&[comm, main, again, again], 6);
        profile.add(&[comm, main], 2);
        let summary = FlameSummary::new(Some(What::OnCpu), profile);
        let all: Vec<_> = summary.heaviest(9).into_iter().map(|h| (h.name, h.own, h.total)).collect();
        assert_eq!(all, [("again".to_string(), 6, 6), ("main".to_string(), 2, 8)]);
        assert_eq!(summary.heaviest(1).len(), 1);
    }

    #[test]
    fn ios_stand_with_their_submitter_and_its_function() {
        let mut profile = Profile::new(Unit::Nanoseconds);
        let mut add = |names: &[(&str, Area)], ns| {
            let ids: Vec<u32> = names.iter().map(|(name, area)| profile.frame(*name, *area)).collect();
            profile.add(&ids, ns);
        };
        let fio = ("fio", Area::Label);
        let (read, write) = (("read_pages", Area::Kernel), ("write_pages", Area::Kernel));
        let submit = ("submit_bio_noacct", Area::Block);
        let (queue, device) = (("[queue]", Area::Stage), ("[device]", Area::Stage));
        add(&[fio, read, submit, queue], 1);
        add(&[fio, read, device], 20);
        add(&[fio, write, submit, device], 5);
        add(&[("[flush: stack not taken]", Area::Label), device], 3);
        let summary = FlameSummary::new(Some(What::Io), profile);
        let all = summary.submitters();
        let row = |row: &Submitter| {
            let parts: Vec<_> = row.parts.iter().map(|(part, ns)| (part.name(), *ns)).collect();
            (row.who.clone(), row.function.clone(), parts, row.total)
        };
        let is = |who: &str, function: Option<&str>, parts: &[(&'static str, u64)], total| {
            (who.to_string(), function.map(str::to_string), parts.to_vec(), total)
        };
        assert_eq!(
            all.iter().map(row).collect::<Vec<_>>(),
            [
                is("fio", Some("read_pages"), &[("queue", 1), ("device", 20)], 21),
                is("fio", Some("write_pages"), &[("device", 5)], 5),
                is("[flush: stack not taken]", None, &[("device", 3)], 3),
            ]
        );
    }
}
