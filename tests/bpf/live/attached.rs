//! Probes that a machine may refuse.

use crate::support::skip::skipped;
use anyhow::Result;
use biopsy::refusal::Refusal;

/// The probe, or nothing where this machine cannot have it; it says why.
pub fn attached<T>(probe: Result<T>) -> Option<T> {
    match probe {
        Ok(probe) => Some(probe),
        Err(error) if error.is::<Refusal>() => {
            skipped(format_args!("{error:#}"));
            None
        }
        Err(error) => panic!("{error:#}"),
    }
}
