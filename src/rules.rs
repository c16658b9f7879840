//! One pure function per finding id, listed in `RULES`.

use crate::analyze::latency::LatencySummary;
use crate::analyze::stacks::ProfileSummary;
use crate::envelope::Envelope;
use crate::findings::Finding;
use crate::host::Host;
use crate::load::LoadSummary;

/// Everything that a rule may look at.
#[derive(Debug, Clone, Copy)]
pub struct Summaries<'a> {
    pub envelope: &'a Envelope,
    pub host: &'a Host,
    pub latency: &'a LatencySummary,
    /// None: the load was not ours.
    pub load: Option<&'a LoadSummary>,
    /// None: no profile could be taken.
    pub profile: Option<&'a ProfileSummary>,
}

/// A finding's computation and its page in `biopsy explain`.
pub struct Rule {
    pub id: &'static str,
    /// How it is computed, from which numbers, when it is wrong, what to try.
    pub page: &'static str,
    pub find: fn(&Summaries<'_>) -> Vec<Finding>,
}
