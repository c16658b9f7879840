//! Renders `biopsy.load/1` with its envelope.

use serde_json::{Map, Value};

use super::view_object;
use crate::analyze::load::LoadResult;
use crate::analyze::sweep::Sweep;
use crate::envelope::{Envelope, Missing, Reason};
use crate::load::{LoadSummary, PreconditionResult};

/// For the sections of a job file, after what preconditioning wrote.
pub fn object(
    envelope: &Envelope,
    loads: &[LoadSummary],
    before: Option<&PreconditionResult>,
    hostname: Option<String>,
) -> Map<String, Value> {
    let mut envelope = envelope.clone();
    envelope.missing.extend(loads.iter().flat_map(missing));
    view_object(&envelope, &LoadResult { hostname, ..LoadResult::of(loads).after(before) }, None)
}

/// For a sweep. A gap that several points share is listed once.
pub fn object_of_sweep(
    envelope: &Envelope,
    sweep: &Sweep,
    before: Option<&PreconditionResult>,
    hostname: Option<String>,
) -> Map<String, Value> {
    let mut envelope = envelope.clone();
    for line in sweep.points.iter().flat_map(|point| &point.loads).flat_map(missing) {
        if !envelope.missing.contains(&line) {
            envelope.missing.push(line);
        }
    }
    view_object(&envelope, &LoadResult { hostname, ..LoadResult::of_sweep(sweep).after(before) }, None)
}

/// Features that the generator did not have, in the envelope's form.
fn missing(load: &LoadSummary) -> Vec<Missing> {
    load.missing
        .iter()
        .map(|why| Missing {
            device: load.device.clone(),
            reason: Reason::Fallback,
            why: why.clone(),
            ..Missing::default()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::load::tests::{idle, mixed, swept};

    #[test]
    fn what_was_missing_is_in_the_envelope_once_for_a_sweep() {
        let envelope = Envelope::default();
        let several = object(&envelope, &[idle(), mixed(false), mixed(true)], None, None);
        assert_eq!(
            (&several["schema"], several["missing"].as_array().unwrap().len()),
            (&"biopsy.load/1".into(), 3)
        );
        assert_eq!(several["missing"][0]["why"], "registered buffers: too little");
        let sweep = object_of_sweep(&envelope, &swept(), None, None);
        assert_eq!(sweep["missing"].as_array().unwrap().len(), 1);
        assert!(sweep["sweep"]["points"][0].get("schema").is_none());
    }
}
