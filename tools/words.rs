//! fio's options as options of the command line.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use biopsy::load::options::{self, Section, Takes, Word};
use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};

/// The option that also accepts a file name, unlike in a job file.
const OVERWRITE: &str = "overwrite";

/// The fio options that were given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words {
    /// Names and values, in the order given.
    pub said: Vec<(String, String)>,
    /// Files that may be written.
    pub overwrite: Vec<PathBuf>,
}

impl Args for Words {
    fn augment_args(command: Command) -> Command {
        command.args(options::words().map(option))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Words {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut words = Self::default();
        words.update_from_arg_matches(matches)?;
        Ok(words)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        let mut said: Vec<(usize, &str, String)> = Vec::new();
        for word in options::words() {
            let places = matches.indices_of(word.name).into_iter().flatten();
            if word.name == OVERWRITE {
                for (place, file) in places.zip(matches.get_many::<PathBuf>(word.name).into_iter().flatten())
                {
                    match file.to_str().filter(|text| word.check(text).is_ok()) {
                        Some(text) => said.push((place, word.name, text.to_string())),
                        None => self.overwrite.push(file.clone()),
                    }
                }
                continue;
            }
            let values = matches.get_many::<String>(word.name).into_iter().flatten();
            said.extend(places.zip(values).map(|(place, value)| (place, word.name, value.clone())));
        }
        said.sort_by_key(|(place, ..)| *place);
        self.said.extend(said.into_iter().map(|(_, name, value)| (name.to_string(), value)));
        Ok(())
    }
}

/// Joins a 0 or 1 after a flag of `load` to it as its value. fio would take it for a job file, which is never meant; a
/// target of that name is `./0`. Hyphens in names become underscores (`--iodepth-batch` is `--iodepth_batch`).
pub fn joined(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut out: Vec<OsString> = Vec::new();
    // None: the verb has not been seen yet.
    let mut is_load = None;
    for argument in arguments {
        match is_load {
            // The program's name.
            _ if out.is_empty() => {}
            None if argument.to_string_lossy().starts_with('-') => {}
            None if matches!(out.last().and_then(|last| last.to_str()), Some("--color" | "--btf")) => {}
            None => is_load = Some(argument == "load"),
            Some(true) if argument == "--" => is_load = Some(false),
            Some(true) if argument == "0" || argument == "1" => {
                if let Some(last) = out.last_mut().filter(|last| is_flag(last)) {
                    last.push("=");
                    last.push(argument);
                    continue;
                }
            }
            Some(true) => {
                out.push(underscored(&argument).unwrap_or(argument));
                continue;
            }
            Some(_) => {}
        }
        out.push(argument);
    }
    out
}

/// An option of fio spelled with hyphens; None: not an option of fio.
fn underscored(argument: &OsStr) -> Option<OsString> {
    let (name, value) = match argument.to_str()?.strip_prefix("--")?.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (argument.to_str()?.strip_prefix("--")?, None),
    };
    let name = name.replace('-', "_");
    options::word(&name).filter(|_| name.contains('_'))?;
    Some(value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}")).into())
}

/// Whether this is a flag without a value.
fn is_flag(argument: &OsStr) -> bool {
    let name = argument.to_str().and_then(|text| text.strip_prefix("--"));
    name.and_then(options::word).is_some_and(|word| word.takes == Takes::Flag)
}

fn option(word: &'static Word) -> Arg {
    let parser = match word.name {
        OVERWRITE => value_parser!(PathBuf),
        _ => ValueParser::new(move |text: &str| options::values_of(word, text).map(|_| text.to_string())),
    };
    let option = Arg::new(word.name)
        .long(word.name)
        .visible_aliases(word.aliases.iter().copied())
        .value_name(if word.name == OVERWRITE { "FILE|0|1" } else { word.takes.value_name() })
        .help(word.help)
        .help_heading(word.section.name())
        .hide(word.section == Section::Unchanged)
        .action(ArgAction::Append)
        .value_parser(parser);
    match word.takes {
        // The next word is a target, unless it is 0 or 1: see [`joined`].
        Takes::Flag => option.num_args(0..=1).require_equals(true).default_missing_value("1"),
        _ => option.num_args(1),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use biopsy::load::{BlockSizes, Engine, Extent, Job, Target, Timestamps};
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Load, Verb};

    fn load(words: &[&str]) -> Load {
        match Cli::try_parse_from([&["biopsy", "load"], words].concat()).map(|cli| cli.verb) {
            Ok(Verb::Load(load)) => load,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    fn said(words: &[&str]) -> String {
        let said = load(words).words.said;
        said.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn words_keep_their_order_whatever_they_are() {
        assert_eq!(
            said(&["--name=x", "--filename=a", "--rw", "read", "--name", "y", "--filename=b", "--hipri"]),
            "name=x filename=a rw=read name=y filename=b hipri=1"
        );
        assert_eq!(said(&["--blocksize=8k", "a", "--readwrite", "read"]), "bs=8k rw=read");
    }

    #[test]
    fn a_flag_leaves_the_target_alone() {
        let flags = load(&["--hipri", "/dev/a", "--time_based=0", "--registerfiles", "/dev/b"]);
        assert_eq!(flags.targets, ["/dev/a", "/dev/b"].map(PathBuf::from));
        assert_eq!(said(&["--hipri", "/dev/a", "--time_based=0"]), "hipri=1 time_based=0");
    }

    #[test]
    fn a_0_or_1_behind_a_flag_is_its_value() {
        let joined = |line: &str| {
            let words = joined(line.split(' ').map(OsString::from));
            words.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        for (line, wanted) in [
            ("b load t --norandommap 0 --iodepth 1", "b load t --norandommap=0 --iodepth 1"),
            ("b --color never load --wait_for_previous 1 t", "b --color never load --wait_for_previous=1 t"),
            ("b load --hipri 0 1", "b load --hipri=0 1"),
        ] {
            assert_eq!(joined(line), wanted);
        }
        for (line, wanted) in [
            ("b load --iodepth-batch 8 --group-reporting 1", "b load --iodepth_batch 8 --group_reporting=1"),
            ("b load --rate-iops=9", "b load --rate_iops=9"),
        ] {
            assert_eq!(joined(line), wanted);
        }
        for line in [
            "b load --no-drive-check",
            "b load --hipri=1 0",
            "b load --hipri 2",
            "b load 0",
            "b load -- --hipri 0",
            "b check --hipri 0",
            "b",
        ] {
            assert_eq!(joined(line), line);
        }
        let flags: Vec<_> = options::words().filter(|word| word.takes == Takes::Flag).collect();
        for name in flags.iter().flat_map(|word| [&[word.name], word.aliases].concat()) {
            assert_eq!(joined(&format!("b load --{name} 0")), format!("b load --{name}=0"));
        }
    }

    #[test]
    fn overwrite_is_fios_flag_or_a_file() {
        let load = load(&["--overwrite=0", "--overwrite", "a", "--overwrite=./1", "t"]);
        assert_eq!(load.words.overwrite, ["a", "./1"].map(PathBuf::from));
        assert_eq!(load.words.said, [(OVERWRITE.to_string(), "0".to_string())]);
    }

    /// Command lines of two scripts that users ran on ten drives, as a shell passes them.
    #[test]
    fn whole_commands_of_fio_are_taken() {
        const SCRIPT: &str = "--readonly --name=onessd --filename=/dev/nvme0n1 --filesize=100g --rw=randread --bs=4k \
            --direct=1 --overwrite=0 --numjobs=3 --iodepth=32 --time_based=1 --runtime=3600 --ioengine=io_uring \
            --registerfiles --fixedbufs --gtod_reduce=1 --group_reporting";
        let jobs = |script: &str| {
            let words = load(&script.split_whitespace().collect::<Vec<_>>()).words.said;
            options::read(&words, &[]).unwrap()
        };
        let job = Job {
            name: "onessd".to_string(),
            filesize: Some(100 << 30),
            size: Some(Extent::Bytes(100 << 30)),
            engine: Engine::IoUring,
            numjobs: 3,
            iodepth: 32,
            runtime: Some(Duration::from_secs(3600)),
            timestamps: Timestamps::Off,
            ..Job::new(Target::Existing("/dev/nvme0n1".into()))
        };
        let single = jobs(SCRIPT);
        assert_eq!(single.points, [vec![job.clone()]]);
        assert!(single.sweeps.is_empty() && !single.minimal);

        let later = SCRIPT.replace("=100g", "=900g").replace("=4k", "=512k").replace("=3 ", "=4 ");
        let multi = jobs(&format!("{later} --hipri --minimal"));
        let wanted = Job {
            filesize: Some(900 << 30),
            size: Some(Extent::Bytes(900 << 30)),
            bs: std::array::from_fn(|_| BlockSizes::fixed(512 << 10)),
            numjobs: 4,
            hipri: true,
            ..job
        };
        assert_eq!(multi.points, [vec![wanted]]);
        assert!(multi.minimal);
    }

    #[test]
    fn every_word_of_the_table_is_an_option() {
        for word in options::words() {
            for name in [&[word.name], word.aliases].concat() {
                let value = match word.takes {
                    Takes::Flag | Takes::Switch => "1",
                    Takes::Words(words) if word.name != "timestamps" => words[0],
                    Takes::Words(_) => "sampled:8",
                    Takes::Size | Takes::Sizes | Takes::Extent => "8k",
                    Takes::Shares if word.name == "bssplit" => "4k/50:8k/50",
                    Takes::Shares => "4k-8k",
                    Takes::Time => "1s",
                    Takes::Text(_) if name == "numa_mem_policy" => "bind:1",
                    _ => "1",
                };
                let expected =
                    if name == OVERWRITE { "overwrite=1".into() } else { format!("{}={value}", word.name) };
                assert_eq!(said(&["t", &format!("--{name}={value}")]), expected);
            }
        }
    }
}
