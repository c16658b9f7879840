//! Extracts a number from the JSON output of a command.

use serde_json::Value;

/// A path in JSON, and whether a smaller number there is better.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrintedMetric {
    /// Keys and indices separated by dots: `jobs.0.read.iops`.
    pub path: String,
    pub less_is_better: bool,
}

impl PrintedMetric {
    /// The number in the last JSON value of the output. An error says why there is none.
    pub fn number(&self, text: &str) -> Result<f64, String> {
        let last = last_value(text)?;
        let mut found = &last;
        for part in self.path.split('.') {
            found = match found {
                Value::Array(all) => part.parse::<usize>().ok().and_then(|at| all.get(at)),
                other => other.get(part),
            }
            .ok_or_else(|| {
                format!(
                    "its JSON has no {} in {}, {}",
                    part.escape_debug(),
                    self.path.escape_debug(),
                    keys(found)
                )
            })?;
        }
        match found.as_f64() {
            Some(number) if number > 0.0 => Ok(number),
            Some(number) => {
                Err(format!("{} is {number}, but a ratio needs numbers above 0", self.path.escape_debug()))
            }
            None => Err(format!("{} is not a number, {}", self.path.escape_debug(), keys(found))),
        }
    }
}

/// Begins of JSON to try: a log line may begin with a bracket, as in `[INFO]`.
const MOST_BEGINS: usize = 10_000;

/// The last JSON value of a text. It may have other text before the first one, and none after it.
fn last_value(text: &str) -> Result<Value, String> {
    let mut why = "it prints no JSON".to_string();
    // Others are within a value, and would make a part of output that was cut off look whole.
    let is_begin = |from: usize| text[..from].is_empty() || text[..from].ends_with('\n');
    let first = text.find(['{', '[']);
    let further = text.match_indices(['{', '[']).map(|(from, _)| from).filter(|from| is_begin(*from));
    let further = further.filter(|from| Some(*from) != first);
    for (nth, from) in first.into_iter().chain(further).take(MOST_BEGINS).enumerate() {
        let values = serde_json::Deserializer::from_str(&text[from..]).into_iter::<Value>();
        match values.last() {
            Some(Ok(value)) => return Ok(value),
            // Cut off: what it holds is not the last value.
            Some(Err(error)) if error.is_eof() => return Err(format!("its output is not JSON ({error})")),
            Some(Err(error)) if nth == 0 => why = format!("its output is not JSON ({error})"),
            _ => {}
        }
    }
    Err(why)
}

/// The possible continuations of a path.
fn keys(value: &Value) -> String {
    const MOST: usize = 8;
    let keys: Vec<String> = match value {
        Value::Object(map) => map.keys().take(MOST).map(|key| key.escape_debug().to_string()).collect(),
        Value::Array(all) if !all.is_empty() => vec![format!("0 to {}", all.len() - 1)],
        _ => Vec::new(),
    };
    if keys.is_empty() {
        "where nothing is below".to_string()
    } else {
        format!("where there is {}", keys.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(path: &str, text: &str) -> Result<f64, String> {
        PrintedMetric { path: path.to_string(), less_is_better: false }.number(text)
    }

    #[test]
    fn it_is_found_by_its_keys_and_indices() {
        let fio = "fio: note\n{\"jobs\": [{\"read\": {\"iops\": 12.5}}, {\"read\": {\"iops\": 7}}]}\n";
        assert_eq!(number("jobs.0.read.iops", fio), Ok(12.5));
        assert_eq!(number("jobs.1.read.iops", fio), Ok(7.0));
        assert_eq!(number("x", "{\"x\": 1}\n{\"x\": 2}\n"), Ok(2.0), "the last one of several");
        assert_eq!(number("1", "[3, 4]"), Ok(4.0));
        assert_eq!(number("x", "[INFO] begin {1}\n[1 s] end\n{\"x\": 3}\n"), Ok(3.0), "after a log");
    }

    #[test]
    fn where_there_is_none_it_says_what_there_is() {
        for (path, text, why) in [
            ("x", "", "it prints no JSON"),
            ("x", "done in 3 s", "it prints no JSON"),
            ("x", "{\"x\": ", "its output is not JSON"),
            ("x", "{\"x\": 5,\n\"y\": [\n{\"x\": 1},\n{\"x\": 2}\n", "its output is not JSON"),
            ("0", "{\"x\": 1,\n \"y\": [1, 2]\n", "its output is not JSON"),
            ("x.y", "{\"x\": {\"z\": 1}}", "has no y in x.y, where there is z"),
            ("x", "{\"x\": {\"z\": 1}}", "x is not a number, where there is z"),
            ("x.7", "{\"x\": [1, 2]}", "has no 7 in x.7, where there is 0 to 1"),
            ("x", "{\"x\": \"7\"}", "x is not a number, where nothing is below"),
            ("x", "{\"x\": 0}", "x is 0, but a ratio needs numbers above 0"),
            ("", "{\"x\": 0}", "has no  in , where there is x"),
        ] {
            let found = number(path, text).unwrap_err();
            assert!(found.contains(why), "{path} of {text}: {found}");
        }
    }
}
