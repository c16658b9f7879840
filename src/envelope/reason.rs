//! Reasons why something is missing from a result.

use serde::{Deserialize, Deserializer};

use crate::names::names;

names! {
    /// The word that scripts test; [`super::Missing::why`] is its sentence.
    #[derive(Default, Hash)]
    pub enum Reason {
        /// The address has names of two programs.
        Ambiguous = "ambiguous",
        /// The device has no requests, so none of their stages.
        BioBased = "bio-based",
        /// The kernel's types come from a file that lacks what this needs.
        BtfFile = "btf-file",
        /// A file could not be read to its end.
        Damaged = "damaged",
        /// The process ended before it could be read.
        Ended = "ended",
        /// The load ran without it.
        Fallback = "fallback",
        /// A filter excludes it.
        Filtered = "filtered",
        /// The kernel flushed the drive's cache after a write.
        Flushed = "flushed",
        /// More than are shown.
        LeftOut = "left-out",
        /// A cgroup's limit was set during the measurement.
        LimitSetLater = "limit-set-later",
        /// Kernel records were lost.
        Lost = "lost",
        /// Mapped pages are not observed.
        Mapped = "mapped",
        /// The kernel does not account for it.
        NoAccount = "no-account",
        NoBtf = "no-btf",
        NoCgroups = "no-cgroups",
        /// This kernel has no event for it.
        NoEvent = "no-event",
        NoProbe = "no-probe",
        /// A map was full.
        NoRoom = "no-room",
        NoSymbols = "no-symbols",
        /// The driver has no interrupt vector of its own.
        NoVector = "no-vector",
        NotAskedFor = "not-asked-for",
        NotAvailable = "not-available",
        NotCounted = "not-counted",
        /// Its events could not be joined.
        NotJoined = "not-joined",
        /// An I/O above does not match exactly one I/O below.
        NotOneToOne = "not-one-to-one",
        NotReadable = "not-readable",
        NotTimed = "not-timed",
        /// The kernel or the drive does not report it.
        NotTold = "not-told",
        NotTraced = "not-traced",
        /// Only cgroups of a single hierarchy.
        OneHierarchy = "one-hierarchy",
        /// It is known only for the whole disk, not for a partition.
        Partition = "partition",
        /// It would exceed the budget.
        OverBudget = "over-budget",
        /// The application polls for completions without a system call.
        Polled = "polled",
        /// The kernel refused it.
        Refused = "refused",
        /// The machine was suspended.
        Suspended = "suspended",
        Throttled = "throttled",
        TooFewIos = "too-few-ios",
        TooShort = "too-short",
        /// A reason of another version.
        #[default]
        Unknown = "unknown",
    }
}

/// Reads a reason; one of a later version becomes [`Reason::Unknown`], since the sentence with it is complete.
pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Reason, D::Error> {
    let word = String::deserialize(deserializer)?;
    Ok(Reason::ALL.into_iter().find(|reason| reason.name() == word).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::super::Missing;
    use super::*;

    #[test]
    fn a_word_of_a_later_version_is_unknown_and_keeps_its_sentence() {
        let read =
            |word| serde_json::from_str::<Missing>(&format!(r#"{{"reason":"{word}","why":"so"}}"#)).unwrap();
        let of = |reason| Missing { reason, why: "so".to_string(), ..Missing::default() };
        assert_eq!(read("no-event"), of(Reason::NoEvent));
        assert_eq!(read("of-tomorrow"), of(Reason::Unknown));
    }
}
