//! Replaces the names of users' processes, files and machines in results: a recording can be shared without them.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use serde_json::Value;

/// Keys whose text is such a name, and the prefix of its replacement: `process-1f3a9c`.
const NAMES: [(&str, &str); 11] = [
    ("alias", "volume"),
    ("arguments", "argument"),
    ("backing_file", "file"),
    ("cgroup", "cgroup"),
    ("comm", "process"),
    ("host", "host"),
    ("hostname", "host"),
    ("mounted_at", "file"),
    ("path", "file"),
    ("serial", "serial"),
    ("swaps", "file"),
];

/// Keys of texts that may contain such names: occurrences of the names found so far are replaced.
const TEXTS: [&str; 7] = ["why", "remedy", "sentence", "name", "lock", "doubt", "error"];

/// Prefixes of names of kernel threads, which identify no user and are kept.
const KERNEL: [&str; 14] = [
    "iou-",
    "io_wqe_worker",
    "jbd2/",
    "kblockd",
    "kcompactd",
    "khugepaged",
    "ksoftirqd/",
    "kswapd",
    "kthreadd",
    "kworker/",
    "loop",
    "migration/",
    "rcu_",
    "swapper",
];

/// Replaces each name consistently. The hash key is random and never written, so the original cannot be guessed and
/// checked.
#[derive(Debug, Default)]
pub struct Redactor {
    key: RandomState,
    known: Mutex<BTreeMap<String, String>>,
}

impl Redactor {
    /// Returns the lines of JSON without names.
    ///
    /// # Errors
    /// If a line is not JSON.
    pub fn lines(&self, lines: &[u8]) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(lines.len());
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let mut value: Value = serde_json::from_slice(line).context("a line to redact is not JSON")?;
            self.replace_names("", &mut value);
            self.replace_in_texts("", &mut value);
            serde_json::to_writer(&mut out, &value).context("a redacted line cannot be written")?;
            out.push(b'\n');
        }
        Ok(out)
    }

    fn replace_names(&self, key: &str, value: &mut Value) {
        match value {
            Value::Object(map) => map.iter_mut().for_each(|(key, value)| self.replace_names(key, value)),
            Value::Array(all) => all.iter_mut().for_each(|value| self.replace_names(key, value)),
            Value::String(text) => {
                if let Some((_, kind)) = NAMES.iter().find(|(name, _)| *name == key) {
                    *text = self.name(kind, text);
                }
            }
            _ => {}
        }
    }

    fn name(&self, kind: &str, text: &str) -> String {
        if text.is_empty() || KERNEL.iter().any(|begin| text.starts_with(begin)) {
            return text.to_string();
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let redacted = known.entry(text.to_string());
        redacted.or_insert_with(|| format!("{kind}-{:06x}", self.key.hash_one(text) & 0xff_ffff)).clone()
    }

    fn replace_in_texts(&self, key: &str, value: &mut Value) {
        match value {
            Value::Object(map) => map.iter_mut().for_each(|(key, value)| self.replace_in_texts(key, value)),
            Value::Array(all) => all.iter_mut().for_each(|value| self.replace_in_texts(key, value)),
            Value::String(text) if TEXTS.contains(&key) => {
                let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
                // The longest names first: a path before the folder that contains it.
                let mut names: Vec<(&String, &String)> = known.iter().collect();
                names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
                for (name, redacted) in names {
                    *text = replace_word(text, name, redacted);
                }
            }
            _ => {}
        }
    }
}

/// Replaces `word` where it is a whole word: `dd` does not match in `added`.
fn replace_word(text: &str, word: &str, by: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, found) = rest.split_at(at);
        let after = &found[word.len()..];
        let is_part = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let last = before.chars().next_back().or_else(|| out.chars().next_back());
        out.push_str(before);
        out.push_str(if is_part(last) || is_part(after.chars().next()) { word } else { by });
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(redactor: &Redactor, line: &str) -> Value {
        serde_json::from_slice(&redactor.lines(line.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn names_are_gone_and_the_same_thing_has_one_name() {
        let redactor = Redactor::default();
        let line = r#"{"comm":"oracle","rows":[{"comm":"oracle","mounted_at":["/u01"]},{"comm":"kswapd0"}],
            "host":{"hostname":"db1"},"why":"/u01/x of oracle, added oracles and oracle.","ios":1.5}"#
            .replace('\n', "");
        let value = redacted(&redactor, &line);
        let comm = value["comm"].as_str().unwrap();
        assert!(comm.starts_with("process-") && comm.len() == 14, "{comm}");
        assert_eq!((&value["rows"][0]["comm"], &value["rows"][1]["comm"]), (&comm.into(), &"kswapd0".into()));
        let file = value["rows"][0]["mounted_at"][0].as_str().unwrap();
        assert_eq!(value["why"], format!("{file}/x of {comm}, added oracles and {comm}."));
        assert!(value["host"]["hostname"].as_str().unwrap().starts_with("host-"));
        assert_eq!(value["ios"], 1.5);
        assert_eq!(redacted(&redactor, r#"{"comm":"oracle"}"#)["comm"], comm);
        assert_ne!(redacted(&Redactor::default(), r#"{"comm":"oracle"}"#)["comm"], comm, "random");
        assert!(redactor.lines(b"{").is_err() && redactor.lines(b"\n").unwrap().is_empty());
    }
}
