//! Two profiles that were written as folded text, side by side.

use std::fs;
use std::path::Path;

use anyhow::Result;
use biopsy::analyze::flame_diff::{Basis, Side, compare};
use biopsy::analyze::profile::{Profile, Unit};
use biopsy::refusal::{Refusal, reason};
use biopsy::render;
use biopsy::render::flame::{Caption, Options};
use biopsy::render::{flame_diff, folded};

use super::{Format, total};
use crate::cli::{Flame, FoldedUnit};
use crate::output::Sink;
use crate::{clock, output};

/// So many samples are 28 hours of one CPU at 99 Hz: a sum above it is one of nanoseconds, which folded text does not say.
const MOST_SAMPLES: u64 = 10_000_000;

/// A longer file is no profile of a window.
const MOST_BYTES: u64 = 1 << 30;

pub fn run(args: &Flame, path: &Path, options: &Options) -> Result<()> {
    let files = args.diff.as_deref().unwrap_or_default();
    let [before, after] = files else {
        return Err(Refusal::Usage("--diff takes two files of folded text".to_string()).into());
    };
    let mut sink = Sink::open(Some(path))?;
    let mut unit = match args.unit {
        Some(FoldedUnit::Ns) => Unit::Nanoseconds,
        Some(FoldedUnit::Samples) | None => Unit::Samples,
    };
    let (mut first, mut second) = (read(before, unit)?, read(after, unit)?);
    let sides = [(before, first.total()), (after, second.total())];
    if let (None, Some((path, total))) = (args.unit, sides.into_iter().find(|(_, all)| *all > MOST_SAMPLES)) {
        output::warn(&format!(
            "{} adds up to {}, more than samples do: both files are taken for nanoseconds, as of all but --on-cpu; say \
             --unit samples if they are none",
            path.display(),
            render::text::count(total)
        ));
        unit = Unit::Nanoseconds;
        (first.unit, second.unit) = (unit, unit);
    }
    let side = |profile| Side { profile, events: None };
    let comparison = compare(side(&first), side(&second), basis(args))
        .map_err(|error| Refusal::Usage(format!("{} and {}: {error}", before.display(), after.display())))?;
    let caption = caption(args, (before, &first), (after, &second));
    sink.write(&flame_diff::file(&comparison, &caption, options)?)?;
    let on_stdout = path == Path::new("-");
    if args.json {
        let [before, after, path] = [before, after, path].map(Path::to_string_lossy);
        let picture = Some((&*path, Format::Picture.word().0));
        let object =
            render::json::flame::difference(&clock::envelope(), &comparison, [&before, &after], picture);
        return Sink::open(None)?.write(&object);
    }
    let mut text = flame_diff::text(&comparison);
    if on_stdout {
        output::note(&text);
        return Ok(());
    }
    text.push_str(&format!("\npicture: {}\n", render::text::clean(&path.to_string_lossy())));
    Sink::open(None)?.write(text.as_bytes())
}

fn basis(args: &Flame) -> Basis {
    let ns = |at: usize| args.durations.get(at).map_or(0, |time| time.as_nanos() as u64);
    match (args.ios.as_slice(), args.durations.len()) {
        ([before, after], _) => Basis::Ios { before: *before, after: *after },
        (_, 2) => Basis::Time { before: ns(0), after: ns(1) },
        _ => Basis::Share,
    }
}

fn caption(args: &Flame, before: (&Path, &Profile), after: (&Path, &Profile)) -> Caption {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let by = match basis(args) {
        Basis::Share => "shares of all",
        Basis::Ios { .. } => "per I/O",
        Basis::Time { .. } => "per time",
    };
    Caption {
        samples: format!("{} against {}", total(after.1), total(before.1)),
        ..Caption::new(format!("{} against {}", name(after.0), name(before.0)), by)
    }
}

fn read(path: &Path, unit: Unit) -> Result<Profile> {
    let refuse = |why: String| {
        Refusal::Usage(format!("{}: {why}; name a file that `biopsy flame --folded` wrote", path.display()))
    };
    let found = fs::metadata(path).map_err(|error| refuse(reason(&error)))?;
    // Anything else could keep us waiting, or never end.
    if !found.is_file() || found.len() > MOST_BYTES {
        return Err(refuse("it is no file of folded text".to_string()).into());
    }
    let bytes = fs::read(path).map_err(|error| refuse(reason(&error)))?;
    let text = String::from_utf8(bytes).map_err(|_| refuse("it is not UTF-8".to_string()))?;
    let profile = folded::parse(&text, unit).map_err(|error| refuse(format!("{error:#}")))?;
    if profile.is_empty() {
        return Err(refuse("it has no stack".to_string()).into());
    }
    Ok(profile)
}
