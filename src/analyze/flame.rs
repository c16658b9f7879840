//! Weighted stacks of an interval: on-CPU time, off-CPU time, lock wait, reclaim, or I/O time.

mod note;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use self::note::Note;
use super::locks::is_locking;
use super::profile::{Area, Frame, Place, Profile, Unit};
use super::stacks::ProfileSummary;
use super::submits::TimePart;
use crate::wire;
use crate::wire::stacks::Sampler;

/// What the widths of a flame graph measure.
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

    /// Whether it is a common frame that all waits end in.
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

    /// The frame that a stack's value is attributed to, as its index in the profile. For a wait it is the function that
    /// waits, not the scheduler's or lock's function that all waits end in; for an I/O the function that submits it.
    /// With `what` None, nanoseconds that end in the scheduler are taken for a wait.
    pub fn own_frame(what: Option<Self>, profile: &Profile, frames: &[u32]) -> Option<u32> {
        let what = what.or((profile.unit == Unit::Nanoseconds).then_some(Self::OffCpu));
        let all = profile.frames();
        let is_own = |id: &&u32| !what.is_some_and(|what| what.is_common(&all[**id as usize]));
        frames.iter().rfind(is_own).or(frames.last()).copied()
    }

    /// The name in JSON.
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
pub enum StackSource {
    /// Samples, at this frequency per CPU.
    Sampler {
        sampler: Sampler,
        hz: u64,
        cpus: u32,
    },
    /// Every scheduler switch.
    Switches,
    /// Start and end of reclaim.
    Reclaim,
    Locks {
        waits: u64,
        by: wire::locks::LockEventSource,
    },
    /// I/Os with a stack.
    Ios {
        sampled: u64,
        of: u64,
    },
    /// As stated by a file.
    Recorded(String),
}

/// The stacks of an interval, with the notes that qualify them.
#[derive(Debug, Clone)]
pub struct FlameSummary {
    /// None: read from a file that does not state it.
    pub what: Option<What>,
    /// Devices of the I/Os; empty where it is not about devices.
    pub devices: Vec<String>,
    pub profile: Profile,
    /// Number of waits by the same stacks; None where only the time is known.
    pub counts: Option<Profile>,
    pub duration_ns: u64,
    pub source: StackSource,
    /// Measurements behind the values (samples, waits), and lost ones.
    pub measured: u64,
    pub lost: u64,
    /// ns per sample; None: the values are not samples.
    pub period_ns: Option<u64>,
    /// For CPU samples: their classes and threads, without the stacks.
    pub samples: Option<ProfileSummary>,
    /// Notes that qualify the values.
    pub notes: Vec<Note>,
    /// User frames without a name, by their label, with the place needed to name them from the file.
    pub unnamed: BTreeMap<String, Place>,
    /// None: measured now.
    pub recorded: Option<StackFile>,
}

/// The file that the stacks were read from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StackFile {
    /// Its name without the folders, not escaped.
    pub file: String,
    /// The file's name for its values (`cpu`), and for those of [`FlameSummary::counts`].
    pub values: String,
    pub counts: String,
    /// How many frames were named only now and how many still have no name, in a sentence. It concerns this machine,
    /// not the recording.
    pub naming: Option<String>,
}

/// I/Os submitted by the same function of the same task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitter {
    /// The task, or the device that a kernel thread works for; not escaped, like the function.
    pub who: String,
    /// None: no stack was taken.
    pub function: Option<String>,
    pub parts: BTreeMap<TimePart, u64>,
    /// Sum of all parts.
    pub total: u64,
}

/// A frame, over all stacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heavy {
    /// Not escaped.
    pub name: String,
    pub area: Area,
    /// Value of stacks whose own frame it is.
    pub own: u64,
    /// Value of stacks that contain it, once per stack.
    pub total: u64,
}

impl FlameSummary {
    /// From stacks alone.
    pub fn new(what: Option<What>, profile: Profile) -> Self {
        Self {
            what,
            devices: Vec::new(),
            profile,
            counts: None,
            duration_ns: 0,
            source: StackSource::Recorded(String::new()),
            measured: 0,
            lost: 0,
            period_ns: None,
            samples: None,
            notes: Vec::new(),
            unnamed: BTreeMap::new(),
            recorded: None,
        }
    }

    /// As a title. It contains the file's name, not escaped.
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

    /// The frames with the largest own values ([`What::own_frame`]), without labels, which are not functions.
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

    /// Time of I/Os by submitter, longest first.
    pub fn submitters(&self) -> Vec<Submitter> {
        let frames = self.profile.frames();
        let mut all: BTreeMap<(u32, Option<u32>), Submitter> = BTreeMap::new();
        for stack in self.profile.stacks() {
            let (Some(who), Some(leaf)) = (stack.frames.first(), stack.frames.last()) else { continue };
            let Some(part) = TimePart::of_frame(&frames[*leaf as usize].name) else { continue };
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
