//! JSON in insertion order with fio's spacing, because scripts parse it with grep and awk.

use std::fmt::{self, Display, Formatter};

use serde_json::Value;

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub enum JsonValue {
    Whole(u64),
    /// With six decimals.
    Real(f64),
    Text(String),
    List(Vec<JsonValue>),
    Object(Vec<(String, JsonValue)>),
}

impl JsonValue {
    pub fn text(text: &str) -> Self {
        Self::Text(text.to_string())
    }

    pub fn object(keys: impl IntoIterator<Item = (&'static str, Self)>) -> Self {
        Self::Object(keys.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
    }

    fn write(&self, f: &mut Formatter<'_>, depth: usize) -> fmt::Result {
        match self {
            Self::Whole(value) => write!(f, "{value}"),
            // JSON has no NaN or infinity.
            Self::Real(value) => write!(f, "{:.6}", if value.is_finite() { *value } else { 0.0 }),
            Self::Text(text) => write!(f, "{}", Value::from(text.as_str())),
            Self::List(items) => block(f, depth, ['[', ']'], items, |f, item| item.write(f, depth + 1)),
            Self::Object(keys) => block(f, depth, ['{', '}'], keys, |f, (name, value)| {
                write!(f, "{} : ", Value::from(name.as_str()))?;
                value.write(f, depth + 1)
            }),
        }
    }
}

/// One line per item, indented relative to its brackets.
fn block<T>(
    f: &mut Formatter<'_>,
    depth: usize,
    brackets: [char; 2],
    items: &[T],
    write: impl Fn(&mut Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    write!(f, "{}", brackets[0])?;
    for (i, item) in items.iter().enumerate() {
        write!(f, "{}\n{:2$}", if i > 0 { "," } else { "" }, "", (depth + 1) * 2)?;
        write(f, item)?;
    }
    write!(f, "\n{:1$}", "", depth * 2)?;
    write!(f, "{}", brackets[1])
}

impl Display for JsonValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_spaced_as_fio_spaces_it() {
        let jobs = JsonValue::List(vec![JsonValue::object([
            ("iops", JsonValue::Real(0.5)),
            ("bw", JsonValue::Whole(3)),
        ])]);
        let root = JsonValue::object([("time", JsonValue::text("a\"\n\u{1b}")), ("jobs", jobs)]);
        let expected = r#"{
  "time" : "a\"\n\u001b",
  "jobs" : [
    {
      "iops" : 0.500000,
      "bw" : 3
    }
  ]
}"#;
        assert_eq!(root.to_string(), expected);
        assert_eq!(JsonValue::Real(f64::NAN).to_string(), "0.000000");
    }
}
