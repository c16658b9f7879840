//! Probes that a machine may refuse.

use anyhow::Result;
use biopsy::refusal::Refusal;

/// The probe, or nothing where this machine cannot have it; it says why.
pub fn attached<T>(test: &str, probe: Result<T>) -> Option<T> {
    match probe {
        Ok(probe) => Some(probe),
        Err(error) if error.is::<Refusal>() => {
            println!("skipped: {test}: {error:#}");
            None
        }
        Err(error) => panic!("{error:#}"),
    }
}
