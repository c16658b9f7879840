//! Why something is not in a result.

use serde::{Deserialize, Deserializer};

use crate::names::names;

names! {
    /// The word that scripts test; [`super::Missing::why`] is its sentence.
    #[derive(Default, Hash)]
    pub enum Reason {
        /// Names of two programs are at the address.
        Ambiguous = "ambiguous",
        /// The device has no requests, so nothing of it has their stages.
        BioBased = "bio-based",
        /// The kernel's types are from a file, which does not have what this needs.
        BtfFile = "btf-file",
        /// A file could not be read to its end.
        Damaged = "damaged",
        /// The process ended before it could be read.
        Ended = "ended",
        /// The load ran without it.
        Fallback = "fallback",
        /// A filter leaves it out.
        Filtered = "filtered",
        /// The kernel flushed the drive's cache behind a write.
        Flushed = "flushed",
        /// More than are shown.
        LeftOut = "left-out",
        /// A cgroup's limit was set while it was measured.
        LimitSetLater = "limit-set-later",
        /// Records of the kernel were lost.
        Lost = "lost",
        /// What is mapped is not seen.
        Mapped = "mapped",
        /// The kernel keeps no account of it.
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
        /// Its events could not be brought together.
        NotJoined = "not-joined",
        /// An I/O above is not one I/O below.
        NotOneToOne = "not-one-to-one",
        NotReadable = "not-readable",
        NotTimed = "not-timed",
        /// The kernel or the drive does not tell.
        NotTold = "not-told",
        NotTraced = "not-traced",
        /// Cgroups of one hierarchy only.
        OneHierarchy = "one-hierarchy",
        /// It is the whole disk's, and a partition has none of its own.
        Partition = "partition",
        /// It costs more than it may.
        OverBudget = "over-budget",
        /// The application looks for results without a system call.
        Polled = "polled",
        /// The kernel refused it.
        Refused = "refused",
        /// The machine was suspended.
        Suspended = "suspended",
        Throttled = "throttled",
        TooFewIos = "too-few-ios",
        TooShort = "too-short",
        /// A word of another version.
        #[default]
        Unknown = "unknown",
    }
}

/// A word of a later version is [`Reason::Unknown`]: the sentence beside it is whole.
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
