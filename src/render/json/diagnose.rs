//! `biopsy.diagnose/1`.

use serde_json::{Map, Value, json};

use crate::analyze::stacks::CpuClass;
use crate::findings::Diagnosis;
use crate::rules::{self, Summaries};

/// Classes of CPU time that cost something.
const CLASSES: [(&str, CpuClass); 5] = [
    ("user", CpuClass::User),
    ("system", CpuClass::System),
    ("irq", CpuClass::Irq),
    ("softirq", CpuClass::Softirq),
    ("kthread", CpuClass::Kthread),
];

/// The object of `diagnose --json`, which the report carries as well. `bodies` are those of the views that it is
/// made of, under their nouns.
pub fn object(
    s: &Summaries<'_>,
    diagnosis: &Diagnosis,
    bodies: impl IntoIterator<Item = (&'static str, Value)>,
    command_status: Option<i32>,
) -> Map<String, Value> {
    let mut object = super::object("biopsy.diagnose/1", s.envelope);
    object.insert("verdict".into(), verdict(diagnosis));
    object.insert("findings".into(), json!(diagnosis.findings));
    object.insert("not_examined".into(), json!(diagnosis.not_examined));
    object.insert("cpu".into(), cpu(s));
    object.insert("host".into(), json!(s.host));
    object.extend(command_status.map(|status| ("command_status".to_string(), json!(status))));
    object.extend(bodies.into_iter().map(|(noun, body)| (noun.to_string(), body)));
    object
}

fn verdict(diagnosis: &Diagnosis) -> Value {
    diagnosis.findings.first().map_or(Value::Null, |first| {
        json!({
            "id": first.id,
            "subject": first.subject,
            "sentence": first.sentence,
            "confidence": first.confidence,
        })
    })
}

/// Null without a profile, and per class where no I/O was seen.
fn cpu(s: &Summaries<'_>) -> Value {
    let Some(profile) = s.profile else {
        return Value::Null;
    };
    let mut classes = Map::new();
    for (name, class) in CLASSES {
        classes.insert(
            name.to_string(),
            json!({ "ns_per_io": rules::ns_per_io(s, profile, class), "cycles_per_io": null }),
        );
    }
    classes.insert("sampler".into(), json!(profile.sampler));
    classes.insert("samples".into(), json!(profile.samples));
    classes.insert("lost".into(), json!(profile.lost));
    Value::Object(classes)
}
