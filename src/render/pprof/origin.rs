//! What a profile of ours says of itself beside the stacks. `profile.proto` has comments for that, which other tools
//! carry along.

use serde::{Deserialize, Serialize};

use crate::analyze::flame::{FlameSummary, What};
use crate::envelope::{Envelope, Lost};

/// What begins the comment; the rest of it is JSON.
const MARK: &str = "biopsy.flame/1 ";

/// So many profiles of ours may be in one; pprof adds several up.
const MOST: usize = 64;

/// How the stacks were measured. What is added later must have a default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// None: of several kinds.
    pub what: Option<What>,
    /// The machine, and what of it was looked at.
    pub place: String,
    pub devices: Vec<String>,
    pub source: String,
    pub measured: u64,
    pub lost: u64,
    pub notes: Vec<String>,
    /// Why it must not be trusted, where that is more than a matter of how much was lost.
    pub doubt: Option<String>,
    pub envelope: Envelope,
}

impl Origin {
    pub fn new(summary: &FlameSummary, envelope: &Envelope, place: &str, doubt: Option<&str>) -> Self {
        Self {
            what: summary.what,
            place: place.to_string(),
            devices: summary.devices.clone(),
            source: summary.source.clone(),
            measured: summary.measured,
            lost: summary.lost,
            notes: summary.notes.clone(),
            doubt: doubt.map(str::to_string),
            envelope: envelope.clone(),
        }
    }

    /// What stands in the file: a line for people, and one for [`Self::of`].
    pub fn comments(&self) -> Vec<String> {
        // A map's keys are text and no number in it is infinite: nothing fails.
        let json = serde_json::to_string(self).unwrap_or_default();
        vec![self.source.clone(), format!("{MARK}{json}")]
    }

    /// From a file's comments; None where nobody of us wrote it. Of profiles that were added up it says what holds for
    /// all of them.
    pub fn of<'a>(comments: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let read = |comment: &str| serde_json::from_str::<Self>(comment.strip_prefix(MARK)?).ok();
        comments.into_iter().filter_map(read).take(MOST).reduce(Self::and)
    }

    fn and(mut self, other: Self) -> Self {
        let add = |all: &mut Vec<String>, more: Vec<String>| {
            more.into_iter().for_each(|one| {
                if !all.contains(&one) {
                    all.push(one)
                }
            });
        };
        let either = |one: &mut String, two: String| {
            if *one != two {
                one.push_str(if one.is_empty() || two.is_empty() { "" } else { " and " });
                one.push_str(&two);
            }
        };
        self.what = self.what.filter(|_| self.what == other.what);
        either(&mut self.place, other.place);
        either(&mut self.source, other.source);
        add(&mut self.devices, other.devices);
        add(&mut self.notes, other.notes);
        self.measured = self.measured.saturating_add(other.measured);
        self.lost = self.lost.saturating_add(other.lost);
        self.doubt = self.doubt.or(other.doubt);
        either(&mut self.envelope.kernel, other.envelope.kernel);
        self.envelope.lost = plus(self.envelope.lost, other.envelope.lost);
        // Of each window its own.
        self.envelope.cost = crate::envelope::Cost::default();
        for missing in other.envelope.missing {
            if !self.envelope.missing.contains(&missing) {
                self.envelope.missing.push(missing);
            }
        }
        self
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
        Origin::of(comments.concat().iter().map(String::as_str))
    }

    #[test]
    fn comments_come_back_among_those_of_others() {
        let one = origin(What::OffCpu, "db1");
        let comments = one.comments();
        assert_eq!(comments[0], "cpu-clock at 99 Hz");
        assert_eq!(read(&[vec!["of another".to_string()], comments]), Some(one));
        assert_eq!(read(&[vec!["biopsy.flame/1 {".to_string(), "biopsy.flame/1 [3]".to_string()]]), None);
        // What a later version adds or leaves out.
        let some = read(&[vec!["biopsy.flame/1 {\"what\":\"io\",\"new\":[1]}".to_string()]]).unwrap();
        assert_eq!(some, Origin { what: Some(What::Io), ..Origin::default() });
    }

    /// As `go tool pprof -proto a b` writes it.
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
