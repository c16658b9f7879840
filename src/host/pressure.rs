//! Reads `/proc/pressure/memory`: how long tasks waited for memory (PSI).

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::attribute::file;

/// Stall time since boot, in ns. None if the kernel does not count it (CONFIG_PSI, `psi=1`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Pressure {
    /// At least one task waited for memory.
    pub some_ns: Option<u64>,
    /// All non-idle tasks waited for memory.
    pub full_ns: Option<u64>,
}

impl Pressure {
    pub fn read(root: &Path) -> Self {
        file(&root.join("proc/pressure/memory")).map_or_else(|_| Self::default(), |text| Self::parse(&text))
    }

    /// Parses lines `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, in µs.
    pub fn parse(text: &str) -> Self {
        let total = |kind: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(' '))?;
            let word = line.split_whitespace().find_map(|word| word.strip_prefix("total="))?;
            word.parse::<u64>().ok()?.checked_mul(1000)
        };
        Self { some_ns: total("some"), full_ns: total("full") }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_totals_are_read() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=x\n";
        assert_eq!(Pressure::parse(text), Pressure { some_ns: Some(12_000), full_ns: None });
        assert_eq!(Pressure::parse("something total=1\n"), Pressure::default());
        assert_eq!(Pressure::parse("some total=18446744073709551615\n").some_ns, None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text in "(some|full|\\PC{0,9})( total=[0-9]{0,22}|\\PC{0,9}){0,3}\n?") {
            let _ = Pressure::parse(&text);
        }
    }
}
