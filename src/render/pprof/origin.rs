//! Metadata that biopsy stores in a profile besides the stacks, in the comments of `profile.proto`, which other tools
//! preserve.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::analyze::flame::{FlameSummary, Note, What};
use crate::analyze::stack_quality::Ending;
use crate::analyze::stacks::ProfileSummary;
use crate::envelope::{Cost, Envelope, Lost, Missing};
use crate::merge::how;
use crate::render::text;

/// Prefix of the comment; the rest is JSON.
const MARK: &str = "biopsy.flame/1 ";

/// Maximum number of merged profiles: pprof can add several up.
const MOST: usize = 64;

/// Limits on the metadata, which is untrusted.
const MOST_NOTES: usize = 64;
const MOST_MISSING: usize = 64;
/// Limit on devices, programs, probes, and kinds of loss of each.
const MOST_LISTED: usize = 1024;
/// Limit on the characters of a text.
const MOST_TEXT: usize = 1_000;
/// Limits on CPU percentages and on nanoseconds per I/O: larger values are impossible.
const MOST_PERCENT: f64 = 1e6;
const MOST_NS: f64 = 1e12;
/// Limit on samples of a kind: a thousand of them add up in 64 bits.
const MOST_SAMPLES: u64 = 1 << 53;

/// How the stacks were measured. Fields that are added later must have a default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// None: several kinds.
    pub what: Option<What>,
    /// The machine, and which part of it.
    pub place: String,
    pub devices: Vec<String>,
    pub source: String,
    pub measured: u64,
    pub lost: u64,
    pub notes: Vec<String>,
    /// Endings of user stacks, in samples; also shown as a note. For several profiles it is their sum.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub user_stacks: BTreeMap<Ending, u64>,
    /// Why it must not be trusted, other than by the amount of loss.
    pub doubt: Option<String>,
    /// For CPU samples: their classes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<ProfileSummary>,
    pub envelope: Envelope,
}

impl Origin {
    pub fn new(summary: &FlameSummary, envelope: &Envelope, place: &str, doubt: Option<&str>) -> Self {
        Self {
            what: summary.what,
            place: place.to_string(),
            devices: summary.devices.clone(),
            source: text::flame::source(&summary.source),
            measured: summary.measured,
            lost: summary.lost,
            notes: text::notes::of(summary),
            user_stacks: (summary.notes.iter())
                .find_map(|note| match note {
                    Note::UserStacks(found) => Some(found.endings.clone()),
                    _ => None,
                })
                .unwrap_or_default(),
            doubt: doubt.map(str::to_string),
            samples: summary.samples.clone(),
            envelope: envelope.clone(),
        }
    }

    /// The comments in the file: a line for people, and one for [`Self::of`].
    pub fn comments(&self) -> Vec<String> {
        // Cannot fail: map keys are text and no number is infinite.
        let json = serde_json::to_string(self).unwrap_or_default();
        vec![self.source.clone(), format!("{MARK}{json}")]
    }

    /// Reads a file's comments; None if biopsy did not write the file. For merged profiles it contains what holds for
    /// all of them. Overlong lists and texts are truncated.
    pub fn of<'a>(comments: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let ours = comments.into_iter().filter_map(|comment| comment.strip_prefix(MARK.as_bytes()));
        let read = |json: &[u8]| serde_json::from_slice::<Self>(json).ok();
        let all = ours.take(MOST).filter_map(read).map(Self::bounded);
        all.reduce(Self::and)
    }

    fn bounded(mut self) -> Self {
        self.notes.truncate(MOST_NOTES);
        self.user_stacks.values_mut().for_each(|samples| *samples = (*samples).min(MOST_SAMPLES));
        self.devices.truncate(MOST_LISTED);
        if let Some(samples) = &mut self.samples {
            let counts =
                [&mut samples.samples, &mut samples.lost, &mut samples.idle_seen, &mut samples.duration_ns];
            let times = samples.top.iter_mut().map(|(_, _, ns)| ns);
            for count in counts.into_iter().chain(samples.classes.values_mut()).chain(times) {
                *count = (*count).min(MOST_SAMPLES);
            }
            samples.top.truncate(MOST_LISTED);
            samples.top.iter_mut().for_each(|(comm, ..)| cut(comm));
            samples.sampler_note.iter_mut().chain([&mut samples.sampler]).for_each(cut);
        }
        let envelope = &mut self.envelope;
        envelope.missing.truncate(MOST_MISSING);
        envelope.cost.programs.truncate(MOST_LISTED);
        let texts = [&mut self.place, &mut self.source];
        let of_envelope = [&mut envelope.version, &mut envelope.kernel, &mut envelope.start];
        let programs = envelope.cost.programs.iter_mut().map(|program| &mut program.name);
        (texts.into_iter().chain(of_envelope).chain(programs))
            .chain(self.notes.iter_mut().chain(&mut self.devices).chain(&mut self.doubt))
            .chain(envelope.missing.iter_mut().flat_map(texts_of))
            .for_each(cut);
        believable(&mut envelope.cost);
        let probes = std::mem::take(&mut envelope.lost.probes);
        envelope.lost.probes = few(probes).map(|(probe, kinds)| (probe, few(kinds).collect())).collect();
        self
    }

    /// Combines this with another one, of a different time.
    pub fn and(mut self, mut other: Self) -> Self {
        for one in [&mut self, &mut other].into_iter().filter(|one| !one.user_stacks.is_empty()) {
            let note = text::notes::user_stacks(&one.user_stacks);
            one.notes.retain(|known| *known != note);
        }
        let add = |all: &mut Vec<String>, more: Vec<String>| {
            more.into_iter().for_each(|one| {
                if !all.contains(&one) {
                    all.push(one)
                }
            });
        };
        let either = |one: &mut String, two: String| {
            if one.split(" and ").all(|known| known != two) {
                one.push_str(if one.is_empty() || two.is_empty() { "" } else { " and " });
                one.push_str(&two);
            }
        };
        self.what = self.what.filter(|_| self.what == other.what);
        either(&mut self.place, other.place);
        either(&mut self.source, other.source);
        add(&mut self.devices, other.devices);
        add(&mut self.notes, other.notes);
        for (ending, samples) in other.user_stacks {
            let all = self.user_stacks.entry(ending).or_default();
            *all = all.saturating_add(samples).min(MOST_SAMPLES);
        }
        if !self.user_stacks.is_empty() {
            self.notes.push(text::notes::user_stacks(&self.user_stacks));
        }
        self.measured = self.measured.saturating_add(other.measured);
        self.lost = self.lost.saturating_add(other.lost);
        self.doubt = self.doubt.or(other.doubt);
        how::both(&mut self.samples, &other.samples);
        either(&mut self.envelope.kernel, other.envelope.kernel);
        self.envelope.lost = plus(self.envelope.lost, other.envelope.lost);
        // The cost applies to each interval separately.
        self.envelope.cost = crate::envelope::Cost::default();
        for missing in other.envelope.missing {
            if !self.envelope.missing.contains(&missing) {
                self.envelope.missing.push(missing);
            }
        }
        self.bounded()
    }
}

fn texts_of(missing: &mut Missing) -> impl Iterator<Item = &mut String> {
    let Missing { device, stage, part, reason: _, included_in, why, remedy } = missing;
    let some = [device, stage, part, included_in, remedy].into_iter().flatten();
    some.chain([why])
}

fn cut(text: &mut String) {
    if text.chars().nth(MOST_TEXT).is_some() {
        let end = text.char_indices().nth(MOST_TEXT - 3).map_or(0, |(at, _)| at);
        text.truncate(end);
        text.push_str("...");
    }
}

fn few<T>(all: BTreeMap<String, T>) -> impl Iterator<Item = (String, T)> {
    all.into_iter().take(MOST_LISTED).map(|(mut key, value)| {
        cut(&mut key);
        (key, value)
    })
}

/// Drops impossible figures.
fn believable(cost: &mut Cost) {
    let within = |figure: &mut Option<f64>, most: f64| {
        // This also drops infinity and NaN.
        *figure = figure.filter(|figure| figure.abs() <= most);
    };
    within(&mut cost.cpu_percent, MOST_PERCENT);
    for ns in [
        &mut cost.ns_per_io,
        &mut cost.ns_per_interrupt,
        &mut cost.ns_per_contention,
        &mut cost.attach_ns_per_contention,
        &mut cost.attach_ns_per_io,
        &mut cost.baseline_ns_per_run,
    ] {
        within(ns, MOST_NS);
    }
}

fn plus(mut one: Lost, two: Lost) -> Lost {
    one.ios = one.ios.saturating_add(two.ios);
    one.events = one.events.saturating_add(two.events);
    one.samples = one.samples.saturating_add(two.samples);
    for (probe, kinds) in two.probes {
        let probe = one.probes.entry(probe).or_default();
        for (kind, n) in kinds {
            let all = probe.entry(kind).or_default();
            *all = all.saturating_add(n);
        }
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::stacks::CpuClass;

    fn origin(what: What, place: &str) -> Origin {
        Origin {
            what: Some(what),
            place: place.to_string(),
            source: "cpu-clock at 99 Hz".to_string(),
            measured: u64::MAX - 1,
            lost: 2,
            notes: vec!["a \"note\"\n\u{1b}[2J".to_string()],
            envelope: Envelope { kernel: "6.18".to_string(), ..Envelope::default() },
            ..Origin::default()
        }
    }

    fn read(comments: &[Vec<String>]) -> Option<Origin> {
        Origin::of(comments.concat().iter().map(String::as_bytes))
    }

    #[test]
    fn comments_come_back_among_those_of_others() {
        let one = origin(What::OffCpu, "db1");
        let comments = one.comments();
        assert_eq!(comments[0], "cpu-clock at 99 Hz");
        assert_eq!(read(&[vec!["of another".to_string()], comments]), Some(one));
        assert_eq!(read(&[vec!["biopsy.flame/1 {".to_string(), "biopsy.flame/1 [3]".to_string()]]), None);
        // Fields that a later version adds or leaves out.
        let some = read(&[vec!["biopsy.flame/1 {\"what\":\"io\",\"new\":[1]}".to_string()]]).unwrap();
        assert_eq!(some, Origin { what: Some(What::Io), ..Origin::default() });
    }

    #[test]
    fn what_a_stranger_wrote_has_an_end() {
        let long = "é".repeat(1_100);
        let missing = Missing {
            device: Some(long.clone()),
            why: long.clone(),
            remedy: Some(long.clone()),
            ..Missing::default()
        };
        let mut one = origin(What::OnCpu, &long);
        one.notes = (0..100).map(|n| format!("{n} {long}")).collect();
        one.doubt = Some(long.clone());
        one.envelope.missing = vec![missing; 100];
        one.envelope.cost = Cost {
            cpu_percent: Some(1e7),
            ns_per_io: Some(-1e300),
            attach_ns_per_io: Some(17.0),
            ..Cost::default()
        };
        one.envelope.lost.probes = (0..1_100).map(|n| (format!("{n} {long}"), BTreeMap::new())).collect();
        one.samples = Some(ProfileSummary {
            samples: u64::MAX,
            classes: [(CpuClass::System, u64::MAX), (CpuClass::Idle, 1 << 63)].into(),
            top: vec![(long, 7, u64::MAX); 1_100],
            ..ProfileSummary::default()
        });
        let mut other = one.clone();
        other.notes = (0..100).map(|n| format!("other {n}")).collect();
        other.place = "other".to_string();
        for all in [vec![one.comments()], vec![one.comments(), other.comments()]] {
            let read = read(&all).unwrap();
            assert_eq!((read.notes.len(), read.envelope.missing.len()), (64, 64));
            let missing = &read.envelope.missing[0];
            let texts = [&read.place, &read.notes[1], &missing.why, read.doubt.as_ref().unwrap()];
            for text in texts.into_iter().chain(&missing.device).chain(&missing.remedy) {
                assert_eq!(text.chars().count(), 1_000);
                assert!(text.ends_with("..."), "{text}");
            }
            let samples = read.samples.as_ref().unwrap();
            assert!(samples.classes.values().chain([&samples.samples]).all(|n| *n == MOST_SAMPLES));
            assert!(samples.top.len() <= 1_024 && samples.top[0].0.chars().count() == 1_000);
            assert!(samples.top.iter().all(|(.., ns)| *ns <= MOST_SAMPLES));
            assert_eq!(read.envelope.lost.probes.len(), 1_024);
            assert!(read.envelope.lost.probes.keys().all(|probe| probe.chars().count() == 1_000));
        }
        let cost = read(&[one.comments()]).unwrap().envelope.cost;
        assert_eq!((cost.cpu_percent, cost.ns_per_io, cost.attach_ns_per_io), (None, None, Some(17.0)));
        let figure = |figure| {
            let mut cost = Cost { cpu_percent: Some(figure), ..Cost::default() };
            believable(&mut cost);
            cost.cpu_percent
        };
        assert_eq!([f64::NAN, f64::INFINITY, 1e6, 3.5].map(figure), [None, None, Some(1e6), Some(3.5)]);
        // Metadata within the limits is unchanged.
        let short = Origin { notes: vec!["é".repeat(1_000)], ..origin(What::Io, "db1") };
        assert_eq!(read(&[short.comments()]), Some(short));
    }

    /// As written by `go tool pprof -proto a b`.
    #[test]
    fn what_was_added_up_says_what_holds_for_all() {
        let all = [origin(What::OnCpu, "db1"), origin(What::OnCpu, "db2")].map(|one| one.comments());
        let both = read(&all).unwrap();
        assert_eq!((both.what, both.place.as_str()), (Some(What::OnCpu), "db1 and db2"));
        assert_eq!((both.measured, both.lost, both.notes.len()), (u64::MAX, 4, 1));
        assert_eq!((both.source.as_str(), both.envelope.kernel.as_str()), ("cpu-clock at 99 Hz", "6.18"));
        let mixed = [origin(What::OnCpu, "db1"), origin(What::Io, "db1")].map(|one| one.comments());
        assert_eq!(read(&mixed).unwrap().what, None);
    }
}
