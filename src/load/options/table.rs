//! The table of options: name, value, help text and effect of each.

mod engine;
mod offsets;
mod operations;
mod target;
mod threads;
mod unchanged;

use super::draft::Draft;

/// Where an option may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionScope {
    Everywhere,
    CommandLine,
}

/// The help section of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Target,
    Writing,
    Operations,
    Depth,
    Length,
    Offsets,
    Rate,
    Engine,
    Content,
    Threads,
    Result,
    /// Options that change nothing at their allowed values; the help leaves them out.
    Unchanged,
}

impl Section {
    /// The section's heading.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Target => "Target",
            Self::Writing => "Permission to write",
            Self::Operations => "Operations",
            Self::Depth => "Queue depth",
            Self::Length => "Run time and amount",
            Self::Offsets => "Offsets",
            Self::Rate => "Rate and think time",
            Self::Engine => "I/O engine",
            Self::Content => "Written data and verification",
            Self::Threads => "Threads and jobs",
            Self::Result => "Results",
            Self::Unchanged => "Without effect",
        }
    }
}

/// The value type of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    Size,
    /// By direction.
    Sizes,
    /// Block sizes with shares or limits, by direction.
    Shares,
    /// Bytes or percent.
    Extent,
    Count,
    /// By direction.
    Counts,
    Time,
    /// No value, 0 or 1.
    Flag,
    /// 0 or 1.
    Switch,
    /// One of these words, or one of these prefixes with more text.
    Words(&'static [&'static str]),
    /// A list of CPUs.
    List,
    Text(&'static str),
}

impl Takes {
    /// The value's name in the help.
    pub fn value_name(self) -> &'static str {
        match self {
            Self::Size | Self::Sizes | Self::Extent => "SIZE",
            Self::Shares => "SIZES",
            Self::Count | Self::Counts => "N",
            Self::Time => "TIME",
            Self::Flag | Self::Switch => "0|1",
            Self::Words(_) => "WORD",
            Self::List => "LIST",
            Self::Text(name) => name,
        }
    }

    /// Whether commas are part of the value, and do not separate several values.
    pub fn has_commas(self) -> bool {
        matches!(self, Self::Sizes | Self::Shares | Self::Counts | Self::List | Self::Text(_))
    }

    /// Whether `1..8` means 1, 2, 4 and 8.
    pub fn has_ranges(self) -> bool {
        matches!(self, Self::Size | Self::Sizes | Self::Extent | Self::Count | Self::Counts)
    }
}

/// One of fio's options.
#[derive(Debug)]
pub struct Word {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub takes: Takes,
    pub place: OptionScope,
    pub section: Section,
    pub help: &'static str,
    pub(super) set: fn(&mut Draft, &str) -> Result<(), String>,
}

impl Word {
    const fn new(
        name: &'static str,
        takes: Takes,
        section: Section,
        help: &'static str,
        set: fn(&mut Draft, &str) -> Result<(), String>,
    ) -> Self {
        Self { name, aliases: &[], takes, place: OptionScope::Everywhere, section, help, set }
    }

    const fn alias(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    const fn on_the_command_line(mut self) -> Self {
        self.place = OptionScope::CommandLine;
        self
    }

    /// Checks whether the option accepts the value.
    pub fn check(&self, value: &str) -> Result<(), String> {
        Draft::command_line().set(self.name, Some(value))
    }
}

/// Finds an option by its name or alias.
pub fn word(name: &str) -> Option<&'static Word> {
    words().find(|word| word.name == name || word.aliases.contains(&name))
}

/// All options, in the order of the help.
pub fn words() -> impl Iterator<Item = &'static Word> {
    let tables =
        [target::WORDS, operations::WORDS, offsets::WORDS, engine::WORDS, threads::WORDS, unchanged::WORDS];
    tables.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_words_share_a_name() {
        let mut names: Vec<&str> = words().flat_map(|word| [&[word.name], word.aliases].concat()).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        assert_eq!(word("blocksize").map(|word| word.name), Some("bs"));
        assert!(word("no_such").is_none() && word("").is_none());
    }

    #[test]
    fn every_word_of_a_list_is_taken_and_no_other() {
        for word in words() {
            if let Takes::Words(words) = word.takes {
                for value in words.iter().filter(|value| !["zoned", "sampled:N"].contains(value)) {
                    assert_eq!(word.check(value), Ok(()), "{}={value}", word.name);
                }
                let wrong = word.check("nonsense").unwrap_err();
                assert!(wrong.starts_with("'nonsense' "), "{wrong}");
            }
        }
        assert!(word("verify").unwrap().check("md5").unwrap_err().ends_with("is not one of 0, crc32c"));
        assert!(word("kb_base").unwrap().check("1000").unwrap_err().contains("4096"));
        assert!(word("rw").unwrap().check("randread:8").unwrap_err().contains("write rw=randread"));
    }

    #[test]
    fn every_flag_takes_nothing_and_0_and_1() {
        for word in words().filter(|word| matches!(word.takes, Takes::Flag | Takes::Switch)) {
            let mut draft = Draft::command_line();
            assert_eq!(draft.set(word.name, None).is_ok(), word.takes == Takes::Flag, "{}", word.name);
            assert!(draft.set(word.name, Some("0")).is_ok() && draft.set(word.name, Some("1")).is_ok());
            assert!(draft.set(word.name, Some("2")).is_err() && draft.set(word.name, Some("true")).is_err());
        }
    }
}
