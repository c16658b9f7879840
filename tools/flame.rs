//! `biopsy flame`: draws stacks as a flame graph, or writes them for other tools.

mod difference;
pub mod recording;

use std::path::{Path, PathBuf};

use anyhow::Result;
use biopsy::analyze::flame::{FlameSummary, What};
use biopsy::analyze::profile::{Profile, Unit};
use biopsy::envelope::Envelope;
use biopsy::host::Host;
use biopsy::host::kernel;
use biopsy::refusal::Refusal;
use biopsy::render;
use biopsy::render::flame::{Caption, Options};
use biopsy::render::pprof::ProfileColumn;
use biopsy::render::pprof::origin::Origin;
use biopsy::render::{folded, pprof, speedscope};
use biopsy::session::flame::{self, Measurement};
use biopsy::session::submitters::SubmitterFilter;
use biopsy::session::window::Until;
use biopsy::session::{stop, wall_clock};

use crate::cli::Flame;
use crate::output::Sink;
use crate::{live, output, replay, window};

/// Maximum characters of a command in a caption.
const MOST_COMMAND: usize = 100;

/// The output format of stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlameFormat {
    Picture,
    Folded,
    Pprof,
    Speedscope,
}

impl FlameFormat {
    fn of(args: &Flame) -> Self {
        match (args.folded, args.pprof, args.speedscope) {
            (true, ..) => Self::Folded,
            (_, true, _) => Self::Pprof,
            (.., true) => Self::Speedscope,
            _ => Self::Picture,
        }
    }

    /// The format's name in JSON, and its default file.
    fn word(self) -> (&'static str, &'static str) {
        match self {
            Self::Picture => ("svg", "biopsy-flame.svg"),
            Self::Folded => ("folded", "biopsy-flame.folded"),
            Self::Pprof => ("pprof", "biopsy-flame.pb.gz"),
            Self::Speedscope => ("speedscope", "biopsy-flame.speedscope.json"),
        }
    }
}

pub fn run(args: &Flame) -> Result<()> {
    if let Some(why) = unfit(args) {
        return Err(Refusal::Usage(why).into());
    }
    let format = FlameFormat::of(args);
    let options = Options { width: args.width, min_share: args.min_width / 100.0 };
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format.word().1));
    let on_stdout = path == Path::new("-");
    if on_stdout && args.json {
        let why = "--json and -o - both want stdout: name a file for the stacks with -o";
        return Err(Refusal::Usage(why.to_string()).into());
    }
    if args.diff.is_some() {
        return difference::run(args, &path, &options);
    }
    let how = How { format, options, path: &path };
    if let Some(input) = &args.input {
        let sink = Sink::open(Some(&path))?;
        let read = recording::read(input, args.unit, args.span())?;
        if read.measurement.summary.profile.is_empty() {
            let length = render::text::time(read.measurement.summary.duration_ns);
            let why = format!("{}: {NOTHING}: the CPUs were idle in {length}", replay::name(input));
            return undrawn(args, &read.measurement, &why);
        }
        return present(args, &how, sink, &read.measurement, read.place);
    }
    let what = what(args);
    let host = Host::read(Path::new("/"))?;
    let chosen = live::chosen(&args.submitters)?;
    let measured = flame::Options {
        filter: chosen.filter.clone(),
        frequency: args.freq,
        max_cost: args.max_cost,
        min_block: args.min_block.unwrap_or_default(),
        all_waits: args.all_waits,
        devices: window::resolve_layers(&host, &args.devices)?,
        files: args.files,
        cost: !args.no_cost,
        max_loss: args.max_loss,
    };
    let sink = Sink::open(Some(&path))?;
    stop::install();
    let until = Until {
        length: args.length,
        command: &args.command,
        quiet_stdout: on_stdout || args.json,
        named: &[],
        followed: Some(&chosen),
        say: output::warn,
    };
    let measurement = flame::measure(what, &measured, &host, until, || {
        if output::progress() {
            output::warn(&format!("taking stacks {}", window::how_long(args.length, &args.command)));
        }
    })?;
    if measurement.summary.profile.is_empty() {
        return undrawn(args, &measurement, &nothing(what, &measurement));
    }
    let place = place(args, &measurement.summary, &chosen);
    present(args, &how, sink, &measurement, place)
}

/// Writes no file: an empty flame graph would look like an idle machine.
fn undrawn(args: &Flame, measurement: &Measurement, why: &str) -> Result<()> {
    let Measurement { summary, envelope, status, .. } = measurement;
    if args.json {
        Sink::open(None)?.write(&render::json::flame::render(envelope, summary, None, *status))?;
    } else {
        // These notes are valid without stacks, e.g. the time spent runnable if no task was blocked.
        render::text::notes::of(summary).iter().for_each(|note| output::warn(note));
    }
    trust(measurement, args.max_loss)?;
    output::warn(why);
    Ok(())
}

/// How the stacks are written.
struct How<'a> {
    format: FlameFormat,
    options: Options,
    path: &'a Path,
}

/// Writes the stacks to `sink`, and a summary.
fn present(
    args: &Flame,
    how: &How<'_>,
    mut sink: Sink,
    measurement: &Measurement,
    place: String,
) -> Result<()> {
    let Measurement { summary, envelope, status, .. } = measurement;
    let on_stdout = how.path == Path::new("-");
    let bytes = product(measurement, how, place)?;
    let written = match args.json {
        // stdout gets the JSON object.
        true => sink.write_apart(&bytes),
        false => {
            sink.write(&bytes)?;
            Ok(())
        }
    };
    let shown = if on_stdout { None } else { Some(format!("{}: {}", noun(how.format), how.path.display())) };
    if args.json {
        let path = how.path.to_string_lossy();
        let place = Some((&*path, how.format.word().0));
        Sink::open(None)?.write(&render::json::flame::render(envelope, summary, place, *status))?;
    } else {
        let width = if on_stdout { output::stderr_width() } else { output::stdout_width() };
        output::note_programs(envelope);
        let text = render::text::flame::render(envelope, summary, shown.as_deref(), *status, width);
        match on_stdout {
            true => output::note(&text),
            false => Sink::open(None)?.write(text.as_bytes())?,
        }
    }
    written?;
    trust(measurement, args.max_loss)
}

fn noun(format: FlameFormat) -> &'static str {
    match format {
        FlameFormat::Picture => "flame graph",
        FlameFormat::Folded | FlameFormat::Pprof | FlameFormat::Speedscope => "stacks",
    }
}

/// An option that does not apply to the selected kind of graph. clap cannot check this: if an option requires one
/// member of a group and another member is given, clap considers the requirement impossible and accepts the option.
fn unfit(args: &Flame) -> Option<String> {
    let kinds = [
        (args.on_cpu, "--on-cpu"),
        (args.off_cpu, "--off-cpu"),
        (args.lock_wait, "--lock-wait"),
        (args.io, "--io"),
        (args.reclaim, "--reclaim"),
        (args.diff.is_some(), "--diff"),
        (args.input.is_some(), "--input"),
        // Last: with --off-cpu as well, --off-cpu is the kind.
        (args.io_wait, "--io-wait"),
    ];
    let kind = kinds.into_iter().find(|(is_named, _)| *is_named).map(|(_, name)| name);
    let options: [(bool, &str, &[&str]); 10] = [
        (args.all_waits, "--all-waits", &["--off-cpu"]),
        (args.io_wait, "--io-wait", &["--off-cpu", "--io-wait"]),
        (!args.devices.is_empty(), "--device", &["--io"]),
        (args.files, "--files", &["--io"]),
        (args.min_block.is_some(), "--min-block", &["--off-cpu", "--io-wait"]),
        (!args.ios.is_empty(), "--ios", &["--diff"]),
        (!args.durations.is_empty(), "--durations", &["--diff"]),
        (args.unit.is_some(), "--unit", &["--diff", "--input"]),
        (args.from.is_some(), "--from", &["--diff", "--input"]),
        (args.to.is_some(), "--to", &["--diff", "--input"]),
    ];
    let (_, option, with) = options
        .into_iter()
        .find(|(is_named, _, with)| *is_named && !kind.is_some_and(|k| with.contains(&k)))?;
    let with: Vec<&str> = with.iter().copied().filter(|one| *one != option).collect();
    let with = with.join(" or ");
    Some(match kind {
        Some(kind) => format!(
            "{option} goes with {with}, not with {kind}: leave out {option}, or use {with} instead of {kind}"
        ),
        None => format!("{option} goes with {with}: add {with}, or leave out {option}"),
    })
}

fn what(args: &Flame) -> What {
    let asked = [
        (args.io_wait, What::IoWait),
        (args.off_cpu, What::OffCpu),
        (args.lock_wait, What::LockWait),
        (args.io, What::Io),
        (args.reclaim, What::Reclaim),
    ];
    asked.into_iter().find(|(is_asked, _)| *is_asked).map_or(What::OnCpu, |(_, what)| what)
}

/// The stacks in the selected format.
fn product(measurement: &Measurement, how: &How<'_>, place: String) -> Result<Vec<u8>> {
    let Measurement { summary, envelope, doubt, .. } = measurement;
    Ok(match how.format {
        FlameFormat::Picture => {
            render::flame::file(&summary.profile, &caption(measurement, place), &how.options)?
        }
        FlameFormat::Folded => folded::render(&summary.profile).into_bytes(),
        FlameFormat::Speedscope => speedscope::render(&summary.profile, &summary.title()).into_bytes(),
        FlameFormat::Pprof => profile(summary, envelope, &place, doubt.as_deref()),
    })
}

/// The stacks as a pprof profile.
pub fn profile(summary: &FlameSummary, envelope: &Envelope, place: &str, doubt: Option<&str>) -> Vec<u8> {
    let about = pprof::About {
        start_ns: wall_clock::unix_ns(&envelope.start).unwrap_or(0),
        duration_ns: i64::try_from(summary.duration_ns).unwrap_or(i64::MAX),
        period: summary.period_ns.and_then(|ns| i64::try_from(ns).ok()),
        comments: match summary.what {
            Some(_) => Origin::new(summary, envelope, place, doubt).comments(),
            // The origin is unknown.
            None => Vec::new(),
        },
        unnamed: Some(&summary.unnamed),
    };
    pprof::render(&columns(summary), &about)
}

/// The values of the stacks as pprof columns.
fn columns(summary: &FlameSummary) -> Vec<ProfileColumn<'_>> {
    let (profile, counts) = (&summary.profile, &summary.counts);
    match (summary.what, &summary.recorded, counts, summary.period_ns) {
        (Some(What::OnCpu), _, _, Some(period)) if profile.unit == Unit::Samples => {
            pprof::on_cpu(profile, period).to_vec()
        }
        // The name in the file, from another tool or from biopsy.
        (_, Some(recorded), ..) => {
            let unit = if profile.unit == Unit::Nanoseconds { "nanoseconds" } else { "count" };
            let counts = counts.as_ref().map(|counts| ProfileColumn {
                kind: &recorded.counts,
                unit: "count",
                profile: counts,
                factor: 1,
            });
            counts
                .into_iter()
                .chain([ProfileColumn { kind: &recorded.values, unit, profile, factor: 1 }])
                .collect()
        }
        (.., Some(counts), _) => pprof::contentions(counts, profile).to_vec(),
        (Some(What::Io), ..) => pprof::io_time(profile).to_vec(),
        _ => pprof::off_cpu(profile).to_vec(),
    }
}

/// The machine, and the filters of the measurement.
fn place(args: &Flame, summary: &FlameSummary, chosen: &SubmitterFilter) -> String {
    let host = kernel::hostname(Path::new("/"));
    let devices = (!summary.devices.is_empty()).then(|| summary.devices.join(", "));
    let command = (!args.command.is_empty()).then(|| {
        let command = render::text::clean(&args.command.join(" "));
        format!("while `{}` ran", render::text::fitted(&command, MOST_COMMAND))
    });
    [host, devices, chosen.words(), command].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The sum with its unit, for a caption.
fn total(profile: &Profile) -> String {
    match profile.unit {
        Unit::Nanoseconds => render::text::time(profile.total()),
        Unit::Samples | Unit::Ios => render::text::counted(profile.total(), "sample"),
        Unit::Events => render::text::counted(profile.total(), "event"),
    }
}

fn caption(measurement: &Measurement, place: String) -> Caption {
    let Measurement { summary, envelope, .. } = measurement;
    let total = total(&summary.profile);
    let all = summary.measured.saturating_add(summary.lost);
    let mut caption = Caption {
        samples: match summary.duration_ns {
            0 => total,
            ns => format!("{total} in {}", render::text::time(ns)),
        },
        cost: render::text::flame::cost(envelope).unwrap_or_default(),
        notes: render::text::notes::all(summary),
        ..Caption::new(summary.title(), render::text::flame::source(&summary.source))
    }
    .measured(place, envelope, summary.lost, all);
    if summary.what.is_none() {
        // The file does not say whether samples were lost.
        caption.loss.clear();
    }
    caption
}

const NOTHING: &str = "there is nothing to draw";

/// Why no flame graph was drawn.
fn nothing(what: What, measurement: &Measurement) -> String {
    let Measurement { summary, status, .. } = measurement;
    let why = match what {
        What::OnCpu => "the CPUs were idle, or none of the selected threads ran",
        What::OffCpu | What::IoWait if summary.measured > 0 => {
            "all waits were shorter than --min-block, or of threads with nothing to do"
        }
        What::OffCpu | What::IoWait => "none of the selected threads waited",
        What::LockWait => "no thread waited for a lock",
        What::Io => "no I/O was submitted and completed",
        What::Reclaim => "no direct reclaim",
    };
    let ended = status.map(|status| format!(" (the command ended with status {status})")).unwrap_or_default();
    format!(
        "{NOTHING}: {why} in {}{ended}; measure longer with --for, or while the load runs",
        render::text::time(summary.duration_ns)
    )
}

fn trust(measurement: &Measurement, max_loss: f64) -> Result<()> {
    let summary = &measurement.summary;
    if let Some(doubt) = &measurement.doubt {
        return Err(Refusal::Untrusted(doubt.clone()).into());
    }
    // A file may contain any numbers: do not overflow.
    let all = summary.measured.saturating_add(summary.lost);
    let percent = if all == 0 { 0.0 } else { 100.0 * summary.lost as f64 / all as f64 };
    if percent <= max_loss {
        return Ok(());
    }
    // Only the CPU sampler has a rate.
    let remedy = match summary.what {
        Some(What::OnCpu) => "use a lower --freq, or choose processes with --pid or --comm",
        _ => "choose processes with --pid, --comm or --cgroup",
    };
    Err(Refusal::Untrusted(format!(
        "{} of {all} measurements ({percent:.2} %) were lost, more than --max-loss {max_loss} % allows: \
         {remedy}",
        summary.lost
    ))
    .into())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::{Cli, Verb};

    /// The kinds of graph, and the options that select them.
    const KINDS: [(&str, &[&str]); 10] = [
        ("none", &[]),
        ("on-cpu", &["--on-cpu"]),
        ("off-cpu", &["--off-cpu"]),
        ("io-wait", &["--io-wait"]),
        ("both", &["--off-cpu", "--io-wait"]),
        ("lock-wait", &["--lock-wait"]),
        ("io", &["--io"]),
        ("reclaim", &["--reclaim"]),
        ("diff", &["--diff", "a", "b"]),
        ("input", &["--input", "a"]),
    ];

    const WINDOW: &[&str] = &["none", "on-cpu", "off-cpu", "io-wait", "both", "lock-wait", "io", "reclaim"];
    const STACKS: &[&str] =
        &["none", "on-cpu", "off-cpu", "io-wait", "both", "lock-wait", "io", "reclaim", "input"];
    const ALL: &[&str] =
        &["none", "on-cpu", "off-cpu", "io-wait", "both", "lock-wait", "io", "reclaim", "diff", "input"];

    /// All other options, and the kinds that each applies to.
    const OPTIONS: [(&[&str], &[&str]); 27] = [
        (&["--all-waits"], &["off-cpu", "both"]),
        (&["--device", "sda"], &["io"]),
        (&["--files"], &["io"]),
        (&["--ios", "1", "2"], &["diff"]),
        (&["--durations", "1s", "1s"], &["diff"]),
        (&["--unit", "samples"], &["diff", "input"]),
        (&["--unit", "ns"], &["diff", "input"]),
        (&["--from", "10s"], &["diff", "input"]),
        (&["--to", "10s"], &["diff", "input"]),
        (&["--for", "1s"], WINDOW),
        (&["--pid", "1"], WINDOW),
        (&["--comm", "fio"], WINDOW),
        (&["--cgroup", "/"], WINDOW),
        (&["--output", "x"], ALL),
        (&["--json"], ALL),
        (&["--folded"], STACKS),
        (&["--pprof"], STACKS),
        (&["--speedscope"], STACKS),
        (&["--width", "800"], ALL),
        (&["--min-width", "1%"], ALL),
        (&["--freq", "99"], &["none", "on-cpu"]),
        (&["--max-cost", "1%"], &["off-cpu", "io-wait", "both", "lock-wait", "io", "reclaim"]),
        (&["--min-block", "1ms"], &["off-cpu", "io-wait", "both"]),
        (&["--max-loss", "1"], STACKS),
        (&["--no-cost"], WINDOW),
        (&["--", "true"], WINDOW),
        (&["--color", "never"], ALL),
    ];

    fn is_right(words: &[&[&str]]) -> bool {
        let line = ["biopsy", "flame"].into_iter().chain(words.iter().copied().flatten().copied());
        match Cli::try_parse_from(line).map(|cli| cli.verb) {
            Ok(Verb::Flame(args)) => unfit(&args).is_none(),
            Ok(verb) => panic!("{verb:?}"),
            Err(_) => false,
        }
    }

    #[test]
    fn no_option_is_passed_over() {
        for (option, with) in OPTIONS {
            for (kind, words) in KINDS {
                let right = with.contains(&kind);
                assert_eq!(is_right(&[words, option]), right, "{words:?} {option:?}");
                // The order does not matter. After `--` comes the command.
                if option[0] != "--" {
                    assert_eq!(is_right(&[option, words]), right, "{option:?} {words:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_drawn_is_one_thing() {
        for (at, (one, words)) in KINDS.iter().enumerate().skip(1) {
            for (other, others) in &KINDS[at + 1..] {
                // clap refuses the same option twice.
                let right = (*one, *other) == ("off-cpu", "io-wait");
                assert_eq!(is_right(&[words, others]), right, "{one} and {other}");
            }
        }
    }

    #[test]
    fn every_option_is_looked_at() {
        let cli = Cli::command();
        let flame = cli.find_subcommand("flame").unwrap();
        let looked_at: Vec<&str> = (KINDS.iter().map(|(_, words)| *words))
            .chain(OPTIONS.iter().map(|(words, _)| *words))
            .flat_map(|words| words.iter().filter_map(|word| word.strip_prefix("--")))
            .collect();
        for name in flame.get_arguments().filter_map(|arg| arg.get_long()) {
            assert!(looked_at.contains(&name) || name == "help", "--{name}");
        }
    }
}
