//! The help of each verb: `-h` prints one screen, `--help` all options, and both print examples.

use clap::{Arg, Command};

/// The help of a verb, in addition to its options.
struct HelpPage {
    verb: &'static str,
    /// The options that `-h` shows.
    usual: &'static [&'static str],
    /// Command lines without `biopsy`, and their descriptions.
    examples: &'static [(&'static str, &'static str)],
}

const PAGES: [HelpPage; 20] = [
    HelpPage {
        verb: "diagnose",
        usual: &[
            "target", "rw", "bs", "iodepth", "numjobs", "runtime", "devices", "length", "pids", "output",
            "input", "json",
        ],
        examples: &[
            ("diagnose /var/tmp", "benchmark and diagnose a scratch file"),
            ("diagnose -d nvme0n1 --for 10s", "the I/O already running on a device"),
            ("diagnose -- cp -r /srv /var/tmp/copy", "the I/O of a command"),
        ],
    },
    HelpPage {
        verb: "latency",
        usual: &[
            "words", "length", "by", "pids", "comms", "long", "sort", "input", "json", "output", "detail",
        ],
        examples: &[
            ("latency vda 1", "a line per type of I/O, every second"),
            ("latency vda --for 10s", "stages and histograms of 10 s"),
            ("latency --by process 1 5", "by process, five times"),
        ],
    },
    HelpPage {
        verb: "interrupts",
        usual: &["words", "length", "long", "sort", "input", "json", "output", "all"],
        examples: &[
            ("interrupts nvme0n1 1", "the busiest vectors, every second"),
            ("interrupts nvme0n1 --for 10s", "all vectors over 10 s"),
            ("interrupts --sort cpu 1", "sorted by CPU time of the handlers"),
        ],
    },
    HelpPage {
        verb: "locks",
        usual: &["words", "length", "pids", "comms", "long", "sort", "input", "json", "output", "all"],
        examples: &[
            ("locks 1", "the longest lock waits, every second"),
            ("locks --for 10s", "locks, waiters, stacks and page cache"),
            ("locks -- fio job.fio", "while a command runs"),
        ],
    },
    HelpPage {
        verb: "threads",
        usual: &[
            "words", "length", "group_by", "pids", "comms", "long", "stacks", "input", "json", "output",
            "all",
        ],
        examples: &[
            ("threads 1", "what threads do or wait for"),
            ("threads -G comm,state,kstack --for 5s", "with kernel stacks"),
            ("threads --stacks flame -o threads.svg --for 5s", "as a flame graph"),
        ],
    },
    HelpPage {
        verb: "flame",
        usual: &[
            "on_cpu",
            "off_cpu",
            "io_wait",
            "lock_wait",
            "io",
            "devices",
            "reclaim",
            "diff",
            "input",
            "length",
            "pids",
            "output",
            "folded",
            "pprof",
        ],
        examples: &[
            ("flame --for 10s -o cpu.svg", "what the CPUs do"),
            ("flame --off-cpu --for 10s", "what threads wait for"),
            ("flame --lock-wait -- fio job.fio", "which thread waits for which lock"),
            ("flame --io -d nvme0n1 --for 10s", "I/O time by call path and stage"),
            ("flame --diff a.folded b.folded -o diff.svg", "what grew, and what shrank"),
            ("flame -i run.biopsy", "the CPU stacks of a recording"),
        ],
    },
    HelpPage {
        verb: "trace",
        usual: &[
            "named",
            "length",
            "slower_than",
            "every",
            "ops",
            "top",
            "files",
            "pids",
            "comms",
            "json",
            "output",
        ],
        examples: &[
            ("trace vda --for 5s", "each I/O of 5 s"),
            ("trace vda --slower-than 10ms", "only slow I/Os"),
            ("trace vda --top 20 --for 10s", "the 20 slowest"),
        ],
    },
    HelpPage {
        verb: "errors",
        usual: &["words", "length", "input", "json", "output"],
        examples: &[
            ("errors --for 1m", "errors, retries and requeues"),
            ("errors sda 1", "one device, every second"),
            ("errors -i run.biopsy", "from a recording"),
        ],
    },
    HelpPage {
        verb: "top",
        usual: &["words", "plain", "length", "input", "json", "output"],
        examples: &[
            ("top --plain", "a line per second"),
            ("top --plain vda 5 12", "one disk, every 5 s, 12 times"),
            ("top --plain -i run.biopsy", "from a recording"),
        ],
    },
    HelpPage {
        verb: "report",
        usual: &["input", "output", "from", "to"],
        examples: &[
            ("report -i run.biopsy", "run.html"),
            ("report -i run.biopsy -o report.html", "another file"),
            ("report -i run.biopsy --from 10s --to 20s", "these intervals"),
        ],
    },
    HelpPage {
        verb: "record",
        usual: &["with", "devices", "length", "output", "keep_last", "when", "on_finding", "interval"],
        examples: &[
            ("record --for 60s -o run.biopsy", "a minute, in intervals of one second"),
            ("record -o run.biopsy -- make -j8", "while a command runs"),
            ("record --keep-last 60s --when 'p99>2ms'", "the minute before I/O got slow"),
        ],
    },
    HelpPage {
        verb: "pack",
        usual: &["folder", "output"],
        examples: &[
            ("pack run.biopsy", "run.biopsy.tar"),
            ("pack run.biopsy -o monday.tar", "another name"),
            ("pack run.biopsy -o - | ssh host biopsy latency -i -", "read it elsewhere"),
        ],
    },
    HelpPage {
        verb: "load",
        usual: &["targets", "scratch", "write", "destroy_data_on", "rw", "bs", "iodepth", "runtime"],
        examples: &[
            ("load /dev/nvme0n1 --runtime 30s", "random reads of 4k, 32 in flight"),
            ("load /var/tmp --scratch --rw randrw --bs 8k", "reads and writes on a scratch file"),
            ("load /dev/nvme0n1 --iodepth 1", "latency of one read at a time"),
            (
                "load /dev/nvme1n1 --rw randwrite --write --destroy-data-on nvme1n1",
                "random writes; all data there is lost",
            ),
            ("load mix.fio", "the jobs of a job file"),
        ],
    },
    HelpPage {
        verb: "compare",
        usual: &[
            "files",
            "vary",
            "from_report",
            "device",
            "rounds",
            "until",
            "prepare",
            "dry_run",
            "restore",
            "json",
            "output",
            "command",
        ],
        examples: &[
            ("compare --vary scheduler=none,mq-deadline -- load /dev/nvme0n1", "two schedulers"),
            (
                "compare --vary iodepth=1,32 -- load /var/tmp --scratch --size 1g",
                "two depths; no setting is changed",
            ),
            ("compare --vary read_ahead=128,0 -d sda -- cat /srv/big", "the run time of a command"),
            ("compare before.json after.json", "two saved results"),
            ("compare --from-report report.html", "test the advice of a diagnosis"),
        ],
    },
    HelpPage {
        verb: "devices",
        usual: &["named", "all", "input", "json", "output"],
        examples: &[
            ("devices", "links, queues and settings"),
            ("devices nvme0n1", "one of them"),
            ("devices -i run.biopsy", "the devices of a recorded machine"),
        ],
    },
    HelpPage {
        verb: "check",
        usual: &["self_test", "device", "input", "json", "output"],
        examples: &[
            ("check", "what can be measured here"),
            ("check --self-test -d vda", "test the figures on a device"),
            ("check -i run.biopsy", "for a recorded machine"),
        ],
    },
    HelpPage {
        verb: "explain",
        usual: &["id"],
        examples: &[
            ("explain", "all findings"),
            ("explain device-bound", "one of them"),
            ("explain lock-contention | less", "page by page"),
        ],
    },
    HelpPage {
        verb: "schema",
        usual: &["view"],
        examples: &[
            ("schema latency", "the keys of latency's JSON"),
            ("schema diagnose", "the keys of a diagnosis"),
            ("schema check | jq '.properties | keys'", "only the names"),
        ],
    },
    HelpPage {
        verb: "version",
        usual: &[],
        examples: &[
            ("version", "version, commit, libbpf and kernel"),
            ("version | head -n1", "only the version"),
            ("--version", "the same"),
        ],
    },
    HelpPage {
        verb: "help",
        usual: &["subcommand"],
        examples: &[
            ("help latency", "the full help of one verb, as latency --help"),
            ("latency -h", "one screen of it"),
            ("help", "all verbs"),
        ],
    },
];

/// Options of every verb that `-h` hides.
const RARE_EVERYWHERE: [&str; 3] = ["color", "btf", "wide"];

/// Adds `-h`, `--help` and examples to each verb.
pub fn with_pages(command: Command) -> Command {
    let rare = |arg: Arg| match RARE_EVERYWHERE.contains(&arg.get_id().as_str()) {
        true => arg.hide_short_help(true),
        false => arg,
    };
    let command = command.mut_args(rare);
    PAGES
        .iter()
        .filter(|page| page.verb != "help")
        .fold(command, |command, page| command.mut_subcommand(page.verb, |verb| with_page(verb, page)))
}

fn with_page(verb: Command, page: &HelpPage) -> Command {
    let examples = examples(page);
    let notes = verb.get_after_long_help().or(verb.get_after_help()).map(ToString::to_string);
    let long = notes.map_or_else(|| examples.clone(), |notes| format!("{notes}\n\n{examples}"));
    let verb = verb.mut_args(|arg| {
        let is_usual = page.usual.contains(&arg.get_id().as_str());
        let full = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let first = first_sentence(&full);
        arg.help(first).long_help(full).hide_short_help(!is_usual)
    });
    verb.after_help(examples).after_long_help(long)
}

/// The first sentence without its full stop, as clap prints help. A default at the end of the text is kept.
fn first_sentence(text: &str) -> String {
    let first = text.split_once(". ").map_or(text, |(first, _)| first);
    // The text before a colon is complete, unless it only names a related option or contains an open bracket.
    let is_whole = |head: &str| {
        head.len() > 24
            && ["()", "[]"].iter().all(|pair| {
                let of = |at: usize| head.matches(&pair[at..=at]).count();
                of(0) == of(1)
            })
    };
    let Some((head, _)) = first.split_once(": ").filter(|(head, _)| is_whole(head)) else {
        return first.to_string();
    };
    // After a list of values, the colon belongs to the last value.
    let head = head.split_once("; ").map_or(head, |(head, _)| head);
    let default = text.rfind(" [default: ").map_or("", |at| &text[at..]);
    format!("{head}{default}")
}

/// One line per example, or two if the command and its description do not fit in one.
fn examples(page: &HelpPage) -> String {
    const COLUMN: usize = 42;
    let one = |(line, what): &(&str, &str)| match line.chars().count() < COLUMN - 10 {
        true => format!("  biopsy {line:<width$}{what}\n", width = COLUMN - 9),
        false => format!("  biopsy {line}\n      {what}\n"),
    };
    let lines: String = page.examples.iter().map(one).collect();
    format!("Examples:\n{}", lines.trim_end())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::{Cli, parse};

    /// Lines of a terminal of usual size.
    const SCREEN: usize = 48;

    fn verbs() -> Vec<String> {
        let command = with_pages(Cli::command());
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        verbs.map(|verb| verb.get_name().to_string()).collect()
    }

    #[test]
    fn every_verb_has_three_examples_that_parse() {
        for verb in verbs() {
            let page =
                PAGES.iter().find(|page| page.verb == verb).unwrap_or_else(|| panic!("no page of {verb}"));
            assert!(page.examples.len() >= 3, "{verb}");
            for (line, what) in page.examples {
                // Must fit to the right of the command lines in 80 columns.
                assert!(what.chars().count() <= 38, "{what}");
                let words = line.split(" | ").next().unwrap_or_default().split(' ');
                let words = words.map(|word| word.trim_matches('\''));
                let parsed = parse(std::iter::once("biopsy").chain(words).map(Into::into));
                assert!(parsed.as_ref().err().is_none_or(|error| !error.use_stderr()), "{line}: {parsed:?}");
            }
        }
    }

    #[test]
    fn examples_use_options_of_the_same_screen() {
        let screen = |verb: &str| {
            let mut command = with_pages(Cli::command()).term_width(80);
            command.build();
            command.find_subcommand_mut(verb).map(|verb| verb.render_help().to_string())
        };
        for page in &PAGES {
            for (line, _) in page.examples {
                // What follows `--` and `|` is another command.
                let line = line.split(" | ").next().unwrap_or_default();
                let line = line.split(" -- ").next().unwrap_or_default();
                let mut words = line.split(' ');
                let Some(help) = words.next().and_then(screen) else { continue };
                let options = help.split("Examples:").next().unwrap_or_default();
                for option in words.filter(|word| word.starts_with('-') && word.len() > 1) {
                    let is_shown = options.split([' ', ',', '\n', '=', '[']).any(|word| word == option);
                    assert!(is_shown, "{line}: {option} is not in\n{options}");
                }
            }
        }
    }

    #[test]
    fn options_on_the_screen_are_there() {
        for page in PAGES.iter().filter(|page| page.verb != "help") {
            let command = with_pages(Cli::command());
            let verb = command.find_subcommand(page.verb).unwrap_or_else(|| panic!("no {}", page.verb));
            for id in page.usual {
                assert!(verb.get_arguments().any(|arg| arg.get_id() == *id), "{}: {id}", page.verb);
            }
        }
    }

    #[test]
    fn short_help_is_one_screen_and_long_help_is_all() {
        for verb in verbs().iter().filter(|verb| *verb != "help") {
            let help = |long: bool| {
                let mut command = with_pages(Cli::command()).term_width(80);
                command.build();
                let verb = command.find_subcommand_mut(verb).expect("it is there");
                let text = if long { verb.render_long_help() } else { verb.render_help() };
                text.to_string()
            };
            let (short, long) = (help(false), help(true));
            let lines = short.lines().count();
            assert!(lines <= SCREEN, "{verb} -h has {lines} lines:\n{short}");
            assert!(short.lines().all(|line| line.chars().count() <= 80), "{short}");
            for text in [&short, &long] {
                let examples = text.split("Examples:\n").nth(1).unwrap_or_default();
                let examples = examples.lines().filter(|line| line.starts_with("  biopsy ")).count();
                assert!(examples >= 3, "{verb}: {text}");
            }
            assert!(long.contains("--color") && !short.contains("--color"), "{verb}");
        }
    }
}
