//! Renders a profile for speedscope (github.com/jlfwong/speedscope, `file-format-schema.json`).

use serde::Serialize;

use crate::analyze::profile::{Profile, Unit};

#[derive(Serialize)]
struct SpeedscopeFile<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: &'a str,
    #[serde(rename = "activeProfileIndex")]
    active: u32,
    shared: SharedFrames<'a>,
    profiles: [SampledProfile<'a>; 1],
}

#[derive(Serialize)]
struct SharedFrames<'a> {
    frames: Vec<Frame<'a>>,
}

/// speedscope colours by the file, and uses it to distinguish frames with equal names.
#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
    file: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SampledProfile<'a> {
    r#type: &'static str,
    name: &'a str,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<&'a [u32]>,
    weights: Vec<u64>,
}

/// The file. It has no time order: the stacks are sorted by name.
pub fn render(profile: &Profile, name: &str) -> String {
    let stacks = profile.sorted();
    let file = SpeedscopeFile {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: concat!("biopsy@", env!("CARGO_PKG_VERSION")),
        name,
        active: 0,
        shared: SharedFrames {
            frames: profile.frames().iter().map(|f| Frame { name: &f.name, file: f.area.name() }).collect(),
        },
        profiles: [SampledProfile {
            r#type: "sampled",
            name,
            unit: match profile.unit {
                Unit::Nanoseconds => "nanoseconds",
                Unit::Samples | Unit::Ios | Unit::Events => "none",
            },
            start_value: 0,
            end_value: profile.total(),
            samples: stacks.iter().map(|stack| &*stack.frames).collect(),
            weights: stacks.iter().map(|stack| stack.value).collect(),
        }],
    };
    // Text and numbers always serialize.
    serde_json::to_string(&file).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::profile::Area;

    #[test]
    fn stacks_and_weights_stand_side_by_side() {
        let mut profile = Profile::new(Unit::Nanoseconds);
        let name = "</script>\"\n";
        let (a, b) = (profile.frame(name, Area::Label), profile.frame("nvme_queue_rq", Area::Driver));
        profile.add(&[a, b], 7);
        profile.add(&[a], 5);
        let file: serde_json::Value = serde_json::from_str(&render(&profile, "off-CPU")).unwrap();
        assert_eq!(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
        assert_eq!(file["shared"]["frames"][0]["name"], name);
        assert_eq!(file["shared"]["frames"][1]["file"], "driver");
        let shown = &file["profiles"][0];
        assert_eq!((&shown["type"], &shown["unit"]), (&"sampled".into(), &"nanoseconds".into()));
        assert_eq!(shown["samples"], serde_json::json!([[0], [0, 1]]));
        assert_eq!(shown["weights"], serde_json::json!([5, 7]));
        assert_eq!((&shown["startValue"], &shown["endValue"]), (&0.into(), &12.into()));
        assert_eq!(file["profiles"].as_array().unwrap().len(), 1);
        for unit in [Unit::Samples, Unit::Ios, Unit::Events] {
            let empty: serde_json::Value = serde_json::from_str(&render(&Profile::new(unit), "")).unwrap();
            assert_eq!(empty["profiles"][0]["unit"], "none");
        }
    }
}
