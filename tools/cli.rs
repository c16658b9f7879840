//! The command line as clap structures. The code that runs a verb is elsewhere.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub use self::common::{IntervalArgs, LineArgs, MeasurementArgs, Output, Submitters};
pub use self::compare::Compare;
use self::diagnose::OF_THE_LOAD;
pub use self::diagnose::{Diagnose, LeastSeverity, Report, Rw, Workload};
pub use self::errors::Errors;
pub use self::explain::{Explain, Schema};
pub use self::flame::{Flame, FoldedUnit};
pub use self::input::Input;
pub use self::interrupts::Interrupts;
pub use self::latency::Latency;
pub use self::load::{FioFormat, Load};
pub use self::locks::Locks;
pub use self::machine::{Check, Devices};
pub use self::record::{Pack, Record, Recordable};
pub use self::threads::{StackFormat, Threads};
pub use self::top::Top;
pub use self::trace::Trace;
pub use self::values::At;

mod common;
mod compare;
mod diagnose;
mod errors;
mod explain;
mod flame;
mod help;
mod input;
mod interrupts;
mod latency;
mod load;
mod locks;
mod machine;
mod record;
mod threads;
mod top;
mod trace;
mod values;

/// Measures live block I/O and says what is wrong with it.
#[derive(Debug, Parser)]
#[command(
    name = "biopsy",
    version,
    after_help = "\
Where to start:
  biopsy check                                what can be measured here
  sudo biopsy diagnose /var/tmp               diagnose reads of a scratch file
  sudo biopsy diagnose -d nvme0n1 --for 10s   diagnose the I/O already running
  sudo biopsy latency -d nvme0n1 1            latency by stage, every second
  sudo biopsy interrupts -d nvme0n1 --for 5s  interrupts, and I/Os per interrupt
  sudo biopsy locks --for 5s                  contended locks and their waiters
  sudo biopsy threads --for 5s                what threads do, where they wait
  sudo biopsy flame --off-cpu --for 5s        flame graph of blocked time
  biopsy load /var/tmp --scratch              benchmark, without probes

Exit codes: 0 done, 1 failed, 2 usage, 3 refused (nothing was measured),\n\
4 result not reliable, 10 --fail-on met, 11 --fail-if-worse met."
)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
    // display_order puts these behind the verb's own options, which are in the order of their declaration.
    /// Print more: all findings, the cost of each BPF program, why something was not measured.
    #[arg(short, long, global = true, display_order = 900, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Print only results and errors: no warnings, notes or progress.
    #[arg(short, long, global = true, display_order = 901)]
    pub quiet: bool,
    /// Print all columns, even on a narrow terminal.
    #[arg(long, global = true, display_order = 902)]
    pub wide: bool,
    /// When to use colour.
    #[arg(long, global = true, display_order = 903, value_enum, default_value_t = Color::Auto)]
    pub color: Color,
    /// BTF file to use if the kernel has none (pahole --btf_encode_detached FILE vmlinux); block layer only.
    #[arg(long, global = true, display_order = 904, value_name = "FILE")]
    pub btf: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Find the bottleneck and what to change.
    Diagnose(Diagnose),
    /// I/O latency by stage, per device and I/O type.
    #[command(visible_alias = "lat")]
    Latency(Latency),
    /// Interrupts per queue and CPU, and I/Os per interrupt.
    #[command(visible_alias = "irq")]
    Interrupts(Interrupts),
    /// Kernel lock contention and page-cache reclaim.
    #[command(visible_alias = "lock")]
    Locks(Locks),
    /// Thread states, system calls, and where threads wait.
    #[command(visible_alias = "ps")]
    Threads(Threads),
    /// Flame graphs: on-CPU, off-CPU, lock wait, I/O, reclaim.
    Flame(Flame),
    /// Trace single I/Os: stages, submitter, CPUs, operation.
    Trace(Trace),
    /// Failed I/Os, retries and requeues, and their reasons.
    Errors(Errors),
    /// System overview per second: tasks, CPU, memory, disks.
    Top(Top),
    /// Diagnose a recording and write one HTML file.
    Report(Report),
    /// Record several views to a folder, to be read with -i.
    Record(Record),
    /// Pack a recording into one file, to be read with -i.
    Pack(Pack),
    /// Load generator with fio's options and job files.
    Load(Load),
    /// Compare values of a setting, in rounds in random order.
    Compare(Compare),
    /// List block devices: links, queues, settings, warnings.
    Devices(Devices),
    /// Check what can be measured on this kernel, with these rights.
    Check(Check),
    /// Explain how a finding is computed, and when it is wrong.
    Explain(Explain),
    /// Print the JSON Schema of a view.
    Schema(Schema),
    /// Print versions, build features and the running kernel.
    Version,
    /// The helper process that reads symbols: biopsy starts it.
    #[command(hide = true, name = biopsy::symbols::Helper::VERB)]
    SymbolReader,
    /// The process that restores settings: `compare` starts it.
    #[command(hide = true, name = biopsy::settings::watcher::VERB)]
    SettingWatcher { values: PathBuf },
}

/// The command line, with the help of each verb.
pub fn command() -> Command {
    help::with_pages(Cli::command().mut_subcommands(with_both_lengths))
}

/// Makes fio's `--runtime` and perf-like `--for` aliases. `diagnose` has both, see [`Diagnose::set_length`].
fn with_both_lengths(verb: Command) -> Command {
    let has = |id: &str| verb.get_arguments().any(|arg| arg.get_id() == id);
    match (has("length"), has("runtime")) {
        (true, false) => verb.mut_arg("length", |arg| arg.alias("runtime")),
        (false, true) => verb.mut_arg("runtime", |arg| arg.alias("for")),
        _ => verb,
    }
}

/// Parses a command line.
///
/// # Errors
/// If clap refuses it.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let matches = command().try_get_matches_from(words)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    if let (Verb::Diagnose(diagnose), Some((_, given))) = (&mut cli.verb, matches.subcommand()) {
        let is_given = |word: &&str| given.value_source(word) == Some(ValueSource::CommandLine);
        diagnose.describes_load = OF_THE_LOAD.iter().any(is_given);
        let is_set = diagnose.set_length(is_given(&"runtime"));
        is_set.map_err(|why| command().error(ErrorKind::ArgumentConflict, why))?;
    }
    let read = match &mut cli.verb {
        Verb::Latency(args) => Some((&args.lines, &mut args.input)),
        Verb::Interrupts(args) => Some((&args.lines, &mut args.input)),
        Verb::Locks(args) => Some((&args.lines, &mut args.input)),
        Verb::Threads(args) => Some((&args.lines, &mut args.input)),
        _ => None,
    };
    if let Some((_, input)) = read.filter(|(lines, _)| lines.utc) {
        input.within.in_utc();
    }
    let placed = match &mut cli.verb {
        Verb::Latency(args) => args.interval.place(&mut args.window.devices),
        Verb::Interrupts(args) => args.interval.place(&mut args.window.devices),
        Verb::Locks(args) => args.interval.place(&mut args.window.devices),
        Verb::Threads(args) => args.interval.place(&mut args.window.devices),
        Verb::Errors(args) => args.interval.place(&mut args.window.devices),
        Verb::Top(args) => args.interval.place(&mut args.devices),
        Verb::Trace(args) => {
            args.window.devices.append(&mut args.named);
            Ok(())
        }
        Verb::Devices(args) => {
            args.devices.append(&mut args.named);
            Ok(())
        }
        Verb::Diagnose(args) => {
            args.verbose = cli.verbose;
            Ok(())
        }
        Verb::Report(args) => {
            args.verbose = cli.verbose;
            Ok(())
        }
        _ => Ok(()),
    };
    placed.map_err(|why| command().error(ErrorKind::ValueValidation, why))?;
    Ok(cli)
}

/// A usage error in one line; None: clap shows a help page instead.
pub fn sentence(error: &clap::Error) -> Option<String> {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return None;
    }
    if error.kind() == ErrorKind::MissingSubcommand {
        return Some("no command is given: biopsy -h lists them".to_string());
    }
    // clap's format: `error: what`, details on separate lines, tips, usage, and where to find help.
    let text = error.render().to_string();
    let what = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = what.trim_start_matches("error:").split_whitespace().collect();
    // After `--` these verbs take a command, which would be run.
    let runs = text.contains("[-- <COMMAND>");
    let tips: String = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("tip: "))
        .filter(|tip| !(runs && tip.contains("as a value, use '-- ")))
        .map(|tip| format!(" ({tip})"))
        .collect();
    Some(format!("{}{tips}: see --help", words.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use biopsy::analyze::groups::Dimension;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_wrong_command_line_is_one_sentence() {
        let said = |words: &[&str]| {
            sentence(&Cli::try_parse_from([&["biopsy"], words].concat()).expect_err("it is wrong"))
        };
        assert_eq!(
            said(&["load"]).as_deref(),
            Some("the following required arguments were not provided: <TARGET>...: see --help")
        );
        let tip = said(&["latency", "--foo"]).expect("an error");
        assert!(tip.contains("'--foo' found (a similar argument exists: '--for')"), "{tip}");
        assert!(!tip.contains('\n'));
        // It would run a command named -5.
        let value = said(&["latency", "-5"]).expect("an error");
        assert!(value.starts_with("unexpected argument '-5' found: see --help"), "{value}");
        assert!(said(&["load", "-5"]).expect("an error").contains("use '-- -5'"), "there it names a target");
        assert_eq!(said(&["--help"]), None);
        assert_eq!(said(&[]), None);
    }

    /// `--for` as in perf, `--runtime` as in fio.
    #[test]
    fn for_and_runtime_are_the_same() {
        let second = Some(std::time::Duration::from_secs(1));
        for word in ["--for", "--runtime"] {
            let cli = |words: &[&str]| {
                parse([words, &[word, "1s"]].concat().into_iter().map(OsString::from))
                    .expect("it is right")
                    .verb
            };
            let Verb::Latency(latency) = cli(&["biopsy", "latency"]) else { panic!("another verb") };
            assert_eq!(latency.window.length, second);
            let Verb::Diagnose(drives) = cli(&["biopsy", "diagnose", "."]) else { panic!("another verb") };
            assert_eq!((Some(drives.workload.runtime), drives.window.length), (second, None));
            let Verb::Diagnose(watches) = cli(&["biopsy", "diagnose", "-d", "loop0"]) else {
                panic!("another verb")
            };
            assert_eq!((watches.window.length, watches.has_unused_load_options()), (second, false));
            let Verb::Load(load) = cli(&["biopsy", "load", "loop0"]) else { panic!("another verb") };
            assert!(
                load.words.said.contains(&("runtime".to_string(), "1s".to_string())),
                "{:?}",
                load.words.said
            );
        }
    }

    /// A narrow terminal would wrap the lines of a paragraph that has line breaks of its own a second time.
    #[test]
    fn paragraphs_of_help_are_broken_once() {
        let mut command = Cli::command();
        let trace = command.find_subcommand_mut("trace").expect("it is there");
        let text = trace.get_after_long_help().expect("it has one").to_string();
        assert!(text.split("\n\n").all(|paragraph| !paragraph.contains('\n')), "{text}");
    }

    #[test]
    fn dimensions_are_named_as_in_the_output() {
        let words = Dimension::ALL.map(Dimension::name).join(",");
        let cli = Cli::try_parse_from(["biopsy", "latency", "--by", &words]).expect("all are known");
        let Verb::Latency(args) = cli.verb else { panic!("another verb") };
        assert_eq!(args.by, Dimension::ALL);
    }
}
