//! Parses `--vary KEY=v1,v2` and builds the arms.

use std::collections::BTreeMap;

use super::comparison::Arm;
use crate::refusal::Refusal;

/// More arms take too long for a comparison.
const MOST_ARMS: usize = 8;

/// A key with its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vary {
    pub key: String,
    pub values: Vec<String>,
}

impl Vary {
    /// Parses `KEY=v1,v2`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let example = "write it as KEY=VALUE,VALUE, as in scheduler=none,mq-deadline";
        let (key, values) =
            text.split_once('=').ok_or_else(|| format!("{text:?} has no values: {example}"))?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_string()).collect();
        if key.is_empty() || values.iter().any(String::is_empty) {
            return Err(format!("{text:?} has an empty part: {example}"));
        }
        Ok(Self { key: key.to_string(), values })
    }
}

/// Combines every value of a key with every value of the others. The first arm is the baseline.
pub fn arms(vary: &[Vary]) -> Result<Vec<Arm>, Refusal> {
    let usage = |why: String| Err(Refusal::Usage(why));
    for (at, one) in vary.iter().enumerate() {
        if vary[..at].iter().any(|before| before.key == one.key) {
            return usage(format!(
                "--vary {} is given twice: name all its values in one",
                one.key.escape_debug()
            ));
        }
    }
    let mut all: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for Vary { key, values } in vary {
        let with = |arm: &Vec<(String, String)>| {
            let one = |value: &String| [arm.as_slice(), &[(key.clone(), value.clone())]].concat();
            values.iter().map(one).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
        if all.len() > MOST_ARMS {
            return usage(format!("--vary gives more than {MOST_ARMS} combinations: give fewer values"));
        }
    }
    if all.len() < 2 {
        return usage(
            "--vary has one value: give the values to compare, as in scheduler=none,mq-deadline".to_string(),
        );
    }
    // Names of schedulers are clear without their key.
    let name = |settings: &[(String, String)]| match settings {
        [(key, value)] if key == "scheduler" => value.clone(),
        _ => settings.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" "),
    };
    let mut arms: Vec<Arm> = Vec::with_capacity(all.len());
    for settings in all {
        let name = name(&settings);
        let settings: BTreeMap<String, String> = settings.into_iter().collect();
        // A repeated value makes an A/A comparison.
        let name = match arms.iter().filter(|arm| arm.settings == settings).count() {
            0 => name,
            times => format!("{name} ({})", times + 1),
        };
        arms.push(Arm { name, settings });
    }
    Ok(arms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(texts: &[&str]) -> Result<Vec<String>, Refusal> {
        let vary: Vec<Vary> = texts.iter().map(|text| Vary::parse(text).unwrap()).collect();
        Ok(arms(&vary)?.into_iter().map(|arm| arm.name).collect())
    }

    #[test]
    fn every_value_is_an_arm_with_every_other() {
        assert_eq!(names(&["scheduler=none,mq-deadline"]).unwrap(), ["none", "mq-deadline"]);
        assert_eq!(
            names(&["bs=4k,8k", "iodepth=1,2"]).unwrap(),
            ["bs=4k iodepth=1", "bs=4k iodepth=2", "bs=8k iodepth=1", "bs=8k iodepth=2"]
        );
        assert_eq!(names(&["scheduler=none,none"]).unwrap(), ["none", "none (2)"], "an A/A comparison");
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        for texts in [&["bs=4k"][..], &["bs=4k,8k", "bs=1k,2k"], &["bs=1,2,3,4,5,6,7,8,9"]] {
            assert!(matches!(names(texts), Err(Refusal::Usage(_))), "{texts:?}");
        }
        for text in ["bs", "=1,2", "bs=", "bs=4k,,8k"] {
            assert!(Vary::parse(text).is_err(), "{text}");
        }
    }
}
