//! Compares two files with stacks in a differential flame graph.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use biopsy::analyze::flame::What;
use biopsy::analyze::flame_diff::{Basis, DiffSide, compare};
use biopsy::analyze::profile::Unit;
use biopsy::refusal::Refusal;
use biopsy::render;
use biopsy::render::flame::{Caption, Options};
use biopsy::render::flame_diff;
use biopsy::session::wall_clock;

use super::recording::{self, MOST_SAMPLES, Recording};
use super::{FlameFormat, total};
use crate::cli::Flame;
use crate::output;
use crate::output::Sink;

pub fn run(args: &Flame, path: &Path, options: &Options) -> Result<()> {
    let files = args.diff.as_deref().unwrap_or_default();
    let [before, after] = files else {
        return Err(Refusal::Usage("--diff takes two files".to_string()).into());
    };
    let mut sink = Sink::open(Some(path))?;
    let read = |path: &Path| {
        let read = recording::read_as(path, args.unit, args.span())?;
        let why = || format!("{}: there is nothing to compare: the CPUs were idle", path.display());
        ensure!(!read.measurement.summary.profile.is_empty(), why());
        Ok(read)
    };
    let mut sides = [read(before)?, read(after)?];
    settle(files, &mut sides);
    let [before_read, after_read] = &sides;
    if let (Some(one), Some(other)) =
        (before_read.measurement.summary.what, after_read.measurement.summary.what)
        && one != other
    {
        output::warn(&format!(
            "{} is {} and {} is {}: this alone may explain the difference",
            before.display(),
            one.title(),
            after.display(),
            other.title()
        ));
    }
    let sides = [before_read, after_read].map(|read| DiffSide {
        profile: &read.measurement.summary.profile,
        events: None,
        what: read.measurement.summary.what,
    });
    let comparison = compare(sides[0], sides[1], basis(args))
        .map_err(|error| Refusal::Usage(format!("{} and {}: {error}", before.display(), after.display())))?;
    let caption = caption(args, (before, before_read), (after, after_read));
    sink.write(&flame_diff::file(&comparison, &caption, options)?)?;
    let on_stdout = path == Path::new("-");
    if args.json {
        let [before, after, path] = [before, after, path].map(Path::to_string_lossy);
        let picture = Some((&*path, FlameFormat::Picture.word().0));
        let object =
            render::json::flame::difference(&wall_clock::envelope(), &comparison, [&before, &after], picture);
        return Sink::open(None)?.write(&object);
    }
    let width = if on_stdout { output::stderr_width() } else { output::stdout_width() };
    let mut text = flame_diff::text(&comparison, width);
    if on_stdout {
        output::note(&text);
        return Ok(());
    }
    text.push_str(&format!("\nflame graph: {}\n", render::text::clean(&path.to_string_lossy())));
    Sink::open(None)?.write(text.as_bytes())
}

/// Gives a unit to a file without one: that of the other file, as both must count the same.
fn settle(files: &[PathBuf], sides: &mut [Recording; 2]) {
    let total = |read: &Recording| read.measurement.summary.profile.total();
    let known = sides.iter().find(|read| read.says_unit).map(|read| read.measurement.summary.profile.unit);
    let large = (files.iter().zip(sides.iter()))
        .find(|(_, read)| !read.says_unit && total(read) > MOST_SAMPLES)
        .map(|(path, read)| (path, total(read)));
    let unit = match (known, large) {
        (None, Some((path, total))) => {
            output::warn(&format!(
                "{} adds up to {}, too much for samples: both files are taken as nanoseconds, as for all \
                 but --on-cpu; use --unit samples if they are samples",
                path.display(),
                render::text::count(total)
            ));
            Unit::Nanoseconds
        }
        // The units differ: the comparison is refused later.
        (Some(Unit::Samples), Some(_)) => Unit::Nanoseconds,
        (Some(unit), _) => unit,
        (None, None) => Unit::Samples,
    };
    sides.iter_mut().filter(|read| !read.says_unit).for_each(|read| recording::take_for(read, unit));
}

fn basis(args: &Flame) -> Basis {
    let ns = |at: usize| args.durations.get(at).map_or(0, |time| time.as_nanos() as u64);
    match (args.ios.as_slice(), args.durations.len()) {
        ([before, after], _) => Basis::Ios { before: *before, after: *after },
        (_, 2) => Basis::Time { before: ns(0), after: ns(1) },
        _ => Basis::Share,
    }
}

fn caption(args: &Flame, before: (&Path, &Recording), after: (&Path, &Recording)) -> Caption {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let by = match basis(args) {
        Basis::Share => "shares of all",
        Basis::Ios { .. } => "per I/O",
        Basis::Time { .. } => "per time",
    };
    let files = format!("{} against {}", name(after.0), name(before.0));
    let of = |read: &Recording| read.measurement.summary.what;
    let what = of(after.1).filter(|what| of(before.1) == Some(*what)).map(What::title);
    let samples = |read: &Recording| total(&read.measurement.summary.profile);
    // The origin of each file, as far as it is known.
    let origin = |(path, read): (&Path, &Recording)| {
        let about = super::caption(&read.measurement, read.place.clone());
        format!("{}: {}", name(path), about.origin())
    };
    Caption {
        samples: format!("{} against {}", samples(after.1), samples(before.1)),
        notes: vec![origin(after), origin(before)],
        ..Caption::new(what.map_or(files.clone(), |what| format!("{what}: {files}")), by)
    }
}
