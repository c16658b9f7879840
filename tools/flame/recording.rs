//! Stacks from a file in place of live probes: a profile for pprof, or folded text.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use biopsy::analyze::flame::{FlameSummary, Note, Recorded, Source};
use biopsy::analyze::profile::{Place, Unit, folded};
use biopsy::envelope::Envelope;
use biopsy::refusal::{Refusal, reason};
use biopsy::render::pprof::origin::Origin;
use biopsy::render::pprof::reading::{self, Reading};
use biopsy::render::text;
use biopsy::session::flame::Measurement;
use biopsy::session::wall_clock;
use biopsy::symbols::{Helper, Named, Symbolizer};

use crate::cli::FoldedUnit;
use crate::output;

/// So many samples are 28 hours of one CPU at 99 Hz: a sum above it is one of nanoseconds, which folded text does not say.
pub const MOST_SAMPLES: u64 = 10_000_000;

/// Files and characters of their names in a note.
const MOST_FILES: usize = 3;
const MOST_NAME: usize = 60;

/// What a file holds.
pub struct Recording {
    /// Of the time when it was made, as far as the file says it.
    pub measurement: Measurement,
    /// The machine, and what of it was looked at; empty where the file does not say it.
    pub place: String,
    /// Whether its unit is known, and not taken for granted.
    pub says_unit: bool,
}

/// Reads a file for a picture: with names for what had none, and a unit for what has none.
///
/// # Errors
/// A refusal that names the file, when it is none of both, damaged or too large.
pub fn read(path: &Path, unit: Option<FoldedUnit>) -> Result<Recording> {
    let mut read = read_as(path, unit)?;
    if read.says_unit {
        return Ok(read);
    }
    let profile = &read.measurement.summary.profile;
    if profile.total() > MOST_SAMPLES {
        output::warn(&format!(
            "{} adds up to {}, more than samples do: it is taken for nanoseconds, as of all but --on-cpu; say --unit samples \
             if they are none",
            path.display(),
            text::count(profile.total())
        ));
        take_for(&mut read, Unit::Nanoseconds);
    } else {
        read.measurement.summary.notes.push(Note::UnitGuessed);
    }
    Ok(read)
}

/// Gives a unit to what does not say its own.
pub fn take_for(read: &mut Recording, unit: Unit) {
    let summary = &mut read.measurement.summary;
    summary.profile.unit = unit;
    summary.recorded.iter_mut().for_each(|recorded| recorded.values = values(unit).to_string());
}

/// What the values of folded text are called.
fn values(unit: Unit) -> &'static str {
    match unit {
        Unit::Samples => "samples",
        Unit::Nanoseconds => "time",
        Unit::Ios | Unit::Events => "events",
    }
}

/// The same without a guess at the unit of folded text: without `unit` it is samples.
///
/// # Errors
/// As [`read`].
pub fn read_as(path: &Path, unit: Option<FoldedUnit>) -> Result<Recording> {
    let bytes = bytes(path)?;
    let unit = unit.map(|unit| match unit {
        FoldedUnit::Samples => Unit::Samples,
        FoldedUnit::Ns => Unit::Nanoseconds,
    });
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let read = reading::unpacked(bytes).and_then(|bytes| {
        let read = match reading::is_profile(&bytes) {
            true => profile(&bytes, name, unit)?,
            false => folded_text(bytes, name, unit)?,
        };
        ensure!(!read.measurement.summary.profile.is_empty(), "it has no stack");
        Ok(read)
    });
    read.map_err(|error| refused(path, &format!("{error:#}")))
}

fn refused(path: &Path, why: &str) -> anyhow::Error {
    let path = path.display();
    let remedy = "name a file that `biopsy flame --pprof` or `--folded` wrote, or another profile of time or of samples";
    Refusal::Usage(format!("{path}: {why}; {remedy}")).into()
}

fn bytes(path: &Path) -> Result<Vec<u8>> {
    let found = fs::metadata(path).map_err(|error| refused(path, &reason(&error)))?;
    // Anything else could keep us waiting, or never end.
    if !found.is_file() {
        return Err(refused(path, "it is no file"));
    }
    let mut bytes = Vec::new();
    let file =
        File::open(path).and_then(|file| file.take(reading::MOST_BYTES as u64 + 1).read_to_end(&mut bytes));
    file.map_err(|error| refused(path, &reason(&error)))?;
    if bytes.len() > reading::MOST_BYTES {
        return Err(refused(path, &format!("it has more than {} MiB", reading::MOST_BYTES >> 20)));
    }
    Ok(bytes)
}

fn folded_text(bytes: Vec<u8>, name: String, unit: Option<Unit>) -> Result<Recording> {
    let text =
        String::from_utf8(bytes).ok().context("it is neither a profile for pprof nor text in UTF-8")?;
    let profile = folded::parse(&text, unit.unwrap_or(Unit::Samples))?;
    let recorded = Recorded { file: name, values: values(profile.unit).to_string(), ..Recorded::default() };
    let summary = FlameSummary {
        source: Source::Recorded("folded text".to_string()),
        recorded: Some(recorded),
        ..FlameSummary::new(None, profile)
    };
    let envelope = Envelope { version: wall_clock::envelope().version, ..Envelope::default() };
    let measurement = Measurement { summary, envelope, doubt: None, status: None };
    Ok(Recording { measurement, place: String::new(), says_unit: unit.is_some() })
}

fn profile(bytes: &[u8], name: String, unit: Option<Unit>) -> Result<Recording> {
    let reading = Reading::new(bytes)?;
    let values = reading.values(unit)?;
    let places = reading.nameless();
    let (named, failures) = match places.iter().any(|place| place.build_id.is_some()) {
        true => Symbolizer::new(Helper::own()).name_places(places),
        false => (vec![Named::Absent; places.len()], Vec::new()),
    };
    let naming = naming(places, &named);
    let names: Vec<Option<Arc<[String]>>> = named.into_iter().map(Named::names).collect();
    let stacks = reading.profile(&values, &names)?;
    let counts = values.counts.as_ref().map(|counts| reading.profile(counts, &names)).transpose()?;
    let recorded = Recorded {
        file: name,
        values: text::fitted(&values.name, MOST_NAME),
        counts: values.counts.map(|counts| text::fitted(&counts.name, MOST_NAME)).unwrap_or_default(),
        naming,
    };
    let unnamed = reading.unnamed(&names);
    let said = reading.origin.clone();
    let origin = said.unwrap_or_else(|| Origin {
        source: match reading.period_ns {
            Some(ns) => format!("a sample each {}", text::time(ns)),
            None => "as the file has them".to_string(),
        },
        ..Origin::default()
    });
    let envelope = Envelope {
        version: wall_clock::envelope().version,
        start: reading.start_ns.and_then(wall_clock::rfc3339).unwrap_or_default(),
        duration_ns: reading.duration_ns.unwrap_or(0),
        missing: [origin.envelope.missing.clone(), failures].concat(),
        ..origin.envelope
    };
    let summary = FlameSummary {
        devices: origin.devices,
        counts,
        duration_ns: envelope.duration_ns,
        source: Source::Recorded(origin.source),
        measured: origin.measured,
        lost: origin.lost,
        period_ns: reading.period_ns,
        notes: origin.notes.into_iter().map(Note::Recorded).collect(),
        unnamed,
        recorded: Some(recorded),
        ..FlameSummary::new(origin.what, stacks)
    };
    let measurement = Measurement { summary, envelope, doubt: origin.doubt, status: None };
    Ok(Recording { measurement, place: origin.place, says_unit: true })
}

/// What became of frames that had no name.
fn naming(places: &[Place], named: &[Named]) -> Option<String> {
    let count = |is: &dyn Fn(&Place, &Named) -> bool| {
        places.iter().zip(named).filter(|(place, named)| is(place, named)).count()
    };
    let some = count(&|_, named| matches!(named, Named::As(_)));
    let nameless = count(&|_, named| *named == Named::Nameless);
    let absent = count(&|place, named| *named == Named::Absent && place.build_id.is_some());
    let unknown = places.len() - some - nameless - absent;
    let frames = |n: usize, one: &str, several: &str| {
        let frames = text::counted(n as u64, "frame");
        (n > 0).then(|| format!("{frames} {}", if n == 1 { one } else { several }))
    };
    let parts = [
        frames(some, "has a name now that had none", "have names now that had none"),
        frames(absent, "is in a file that is not here", "are in files that are not here")
            .map(|words| format!("{words} ({})", files(places, named))),
        frames(nameless, "has no symbol in its file", "have no symbols in their files"),
        frames(unknown, "came without a build-id", "came without a build-id"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// The files that are not here, by what they are looked for, those with most frames first.
fn files(places: &[Place], named: &[Named]) -> String {
    let mut files: Vec<(&Place, usize)> = Vec::new();
    let mut absent: Vec<&Place> = (places.iter().zip(named))
        .filter(|(place, named)| **named == Named::Absent && place.build_id.is_some())
        .map(|(place, _)| place)
        .collect();
    absent.sort_by_key(|place| (&place.build_id, &place.file));
    for place in absent {
        match files.last_mut() {
            Some((last, n)) if (&last.build_id, &last.file) == (&place.build_id, &place.file) => *n += 1,
            _ => files.push((place, 1)),
        }
    }
    files.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    let name = |(place, _): &(&Place, usize)| {
        let id = place.build_id.as_ref().map(ToString::to_string).unwrap_or_default();
        let name = place.file.rsplit('/').next().unwrap_or_default();
        format!("{}, build-id {id}", text::fitted(&text::clean(name), MOST_NAME))
    };
    let mut all: Vec<String> = files.iter().take(MOST_FILES).map(name).collect();
    if files.len() > MOST_FILES {
        all.push(format!("and {} more", files.len() - MOST_FILES));
    }
    all.join("; ")
}
