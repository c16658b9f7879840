//! Reads stacks from a file: a pprof profile, folded text, or a recording, whose profiles of each interval are added
//! up.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use biopsy::analyze::flame::{FlameSummary, Note, StackFile, StackSource};
use biopsy::analyze::profile::{Place, Profile, Unit, by_label, folded};
use biopsy::envelope::{Envelope, Missing};
use biopsy::recording::stacks::Profiles;
use biopsy::recording::{Span, source};
use biopsy::refusal::{Refusal, reason};
use biopsy::render::pprof::origin::Origin;
use biopsy::render::pprof::reading::{self, PprofFile, SelectedValues};
use biopsy::render::text;
use biopsy::session::flame::Measurement;
use biopsy::session::wall_clock;
use biopsy::symbols::{Helper, PlaceName, Symbolizer};

use crate::cli::FoldedUnit;
use crate::{output, replay};

/// This many samples are 28 hours of one CPU at 99 Hz. Folded text has no unit: a larger sum is taken for nanoseconds.
pub const MOST_SAMPLES: u64 = 10_000_000;

/// Maximum files named in a note, and characters of each name.
const MOST_FILES: usize = 3;
const MOST_NAME: usize = 60;

/// Limits of added intervals: distinct stacks, distinct frames, frames of all stacks, bytes of all names.
const MOST_STACKS: usize = 4 << 20;
const MOST_FRAMES: usize = 1 << 20;
const MOST_STACKED: usize = 64 << 20;
const MOST_TEXT: usize = 512 << 20;
/// Maximum kinds of unmeasured items.
const MOST_MISSING: usize = 64;

/// The contents of a file.
pub struct Recording {
    /// Of the original measurement, as far as the file describes it.
    pub measurement: Measurement,
    /// The machine and the filters; empty if the file does not name them.
    pub place: String,
    /// Whether the file has a unit; otherwise it is a guess.
    pub says_unit: bool,
}

/// Reads a file for a flame graph. Resolves frames without a name, and chooses a unit if the file has none.
///
/// # Errors
/// A refusal that names the file, if it is of no known format, damaged or too large.
pub fn read(path: &Path, unit: Option<FoldedUnit>, span: Span) -> Result<Recording> {
    let mut read = read_as(path, unit, span)?;
    if read.says_unit {
        return Ok(read);
    }
    let profile = &read.measurement.summary.profile;
    if profile.total() > MOST_SAMPLES {
        output::warn(&format!(
            "{} adds up to {}, too much for samples: it is taken as nanoseconds, as for all but --on-cpu; \
             use --unit samples if it has samples",
            path.display(),
            text::count(profile.total())
        ));
        take_for(&mut read, Unit::Nanoseconds);
    } else {
        read.measurement.summary.notes.push(Note::UnitGuessed);
    }
    Ok(read)
}

/// Sets the unit of a file that has none.
pub fn take_for(read: &mut Recording, unit: Unit) {
    let summary = &mut read.measurement.summary;
    summary.profile.unit = unit;
    summary.recorded.iter_mut().for_each(|recorded| recorded.values = values(unit).to_string());
}

/// The name of folded text's values.
fn values(unit: Unit) -> &'static str {
    match unit {
        Unit::Samples => "samples",
        Unit::Nanoseconds => "time",
        Unit::Ios | Unit::Events => "events",
    }
}

/// Like [`read`], but folded text without `unit` counts samples, without a guess.
///
/// # Errors
/// As [`read`].
pub fn read_as(path: &Path, unit: Option<FoldedUnit>, span: Span) -> Result<Recording> {
    let unit = unit.map(|unit| match unit {
        FoldedUnit::Samples => Unit::Samples,
        FoldedUnit::Ns => Unit::Nanoseconds,
    });
    let whole = || replay::name(path);
    let name = whole().rsplit('/').next().unwrap_or_default().to_string();
    if let Some(profiles) = Profiles::open(path).with_context(whole)? {
        let read = intervals(profiles, name, unit, span).with_context(whole)?;
        return Ok(read);
    }
    if span != Span::default() {
        let why = "it is a single profile, and --from and --to choose intervals of a recording: leave them \
            out";
        return Err(Refusal::Usage(format!("{}: {why}", path.display())).into());
    }
    let bytes = bytes(path)?;
    let read = reading::unpacked(bytes).and_then(|bytes| {
        source::refuse_compressed(&bytes)?;
        let read = match reading::is_profile(&bytes) {
            true => profile(&bytes, name, unit)?,
            false => folded_text(bytes, name, unit)?,
        };
        ensure!(!read.measurement.summary.profile.is_empty(), "it has no stacks");
        Ok(read)
    });
    read.map_err(|error| refused(path, &format!("{error:#}")))
}

/// The stacks of a recording, added up; empty if the CPUs were idle.
///
/// # Errors
/// If it is damaged, or has no stacks ([`Absent`](biopsy::recording::source::Absent)).
pub fn of_recording(path: &Path, span: Span) -> Result<Recording> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let profiles = Profiles::open(path)?.context("it is not a recording")?;
    intervals(profiles, name, None, span)
}

fn refused(path: &Path, why: &str) -> anyhow::Error {
    let path = path.display();
    let remedy = "name a file that `biopsy flame --pprof` or `--folded` wrote, another profile of time or of samples, or a \
                  recording";
    Refusal::Usage(format!("{path}: {why}; {remedy}")).into()
}

fn bytes(path: &Path) -> Result<Vec<u8>> {
    let found = fs::metadata(path).map_err(|error| refused(path, &reason(&error)))?;
    // Reading a pipe or a device could block or never end.
    if !found.is_file() {
        return Err(refused(path, "it is neither a file nor a recording"));
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
    let text = String::from_utf8(bytes).ok().context("it is neither a pprof profile nor UTF-8 text")?;
    let profile = folded::parse(&text, unit.unwrap_or(Unit::Samples))?;
    let recorded = StackFile { file: name, values: values(profile.unit).to_string(), ..StackFile::default() };
    let summary = FlameSummary {
        source: StackSource::Recorded("folded text".to_string()),
        recorded: Some(recorded),
        ..FlameSummary::new(None, profile)
    };
    let envelope = Envelope { version: wall_clock::envelope().version, ..Envelope::default() };
    let measurement = Measurement { summary, envelope, doubt: None, status: None };
    Ok(Recording { measurement, place: String::new(), says_unit: unit.is_some() })
}

fn profile(bytes: &[u8], name: String, unit: Option<Unit>) -> Result<Recording> {
    let mut naming = FrameSymbolizer::new();
    let part = ProfilePart::new(&PprofFile::new(bytes)?, unit, &mut naming)?;
    Ok(part.recording(name, naming))
}

/// The stacks of the intervals that begin within a span, added up. `name` is the recording's.
pub fn intervals(mut profiles: Profiles, name: String, unit: Option<Unit>, span: Span) -> Result<Recording> {
    let mut naming = FrameSymbolizer::new();
    let mut sum: Option<Sum> = None;
    let mut begin = None;
    while let Some((file, bytes)) = profiles.next(reading::MOST_BYTES)? {
        let add = || {
            let bytes = reading::unpacked(bytes?)?;
            let reading = PprofFile::new(&bytes)?;
            let start = reading.start_ns.and_then(wall_clock::rfc3339).unwrap_or_default();
            let begin = begin.get_or_insert_with(|| start.clone());
            if span.holds(begin, &start)? {
                let part = ProfilePart::new(&reading, unit, &mut naming)?;
                match &mut sum {
                    Some(sum) => sum.add(part)?,
                    None => sum = Some(Sum::new(part)),
                }
            }
            anyhow::Ok(())
        };
        add().with_context(|| format!("{file} cannot be read; the others can be drawn without it"))?;
    }
    let began = begin.unwrap_or_default();
    let sum =
        sum.with_context(|| format!("it has no stacks between --from and --to: it begins at {began}"))?;
    Ok(sum.whole().recording(name, naming))
}

/// A profile, or the sum of several.
struct ProfilePart {
    stacks: Profile,
    counts: Option<Profile>,
    values: SelectedValues,
    origin: Option<Origin>,
    start_ns: Option<i64>,
    duration_ns: u64,
    period_ns: Option<u64>,
}

impl ProfilePart {
    fn new(reading: &PprofFile<'_>, unit: Option<Unit>, naming: &mut FrameSymbolizer) -> Result<Self> {
        let values = reading.values(unit)?;
        let names = naming.names(reading.nameless())?;
        Ok(Self {
            stacks: reading.profile(&values, &names)?,
            counts: values.counts.as_ref().map(|counts| reading.profile(counts, &names)).transpose()?,
            values,
            origin: reading.origin.clone(),
            start_ns: reading.start_ns,
            duration_ns: reading.duration_ns.unwrap_or(0),
            period_ns: reading.period_ns,
        })
    }

    /// `name` is the file's.
    fn recording(self, name: String, naming: FrameSymbolizer) -> Recording {
        let values = self.values;
        let (naming, unnamed, failures) = naming.end();
        let recorded = StackFile {
            file: name,
            values: text::fitted(&values.name, MOST_NAME),
            counts: values.counts.map(|counts| text::fitted(&counts.name, MOST_NAME)).unwrap_or_default(),
            naming,
        };
        let origin = self.origin.unwrap_or_else(|| Origin {
            source: match self.period_ns {
                Some(ns) => format!("a sample each {}", text::time(ns)),
                None => "as the file has them".to_string(),
            },
            ..Origin::default()
        });
        let envelope = Envelope {
            version: wall_clock::envelope().version,
            start: self.start_ns.and_then(wall_clock::rfc3339).unwrap_or_default(),
            duration_ns: self.duration_ns,
            missing: [origin.envelope.missing.clone(), failures].concat(),
            ..origin.envelope
        };
        let summary = FlameSummary {
            devices: origin.devices,
            counts: self.counts,
            duration_ns: envelope.duration_ns,
            source: StackSource::Recorded(origin.source),
            measured: origin.measured,
            lost: origin.lost,
            period_ns: self.period_ns,
            samples: origin.samples,
            notes: origin.notes.into_iter().map(Note::Recorded).collect(),
            unnamed,
            recorded: Some(recorded),
            ..FlameSummary::new(origin.what, self.stacks)
        };
        let measurement = Measurement { summary, envelope, doubt: origin.doubt, status: None };
        Recording { measurement, place: origin.place, says_unit: true }
    }
}

/// The sum of intervals.
struct Sum {
    all: ProfilePart,
    intervals: u64,
    /// By the text without its numbers: the first one, the number of intervals with it, and whether all texts are
    /// equal.
    missing: Vec<(String, Missing, u64, bool)>,
    /// Frames of all stacks, and bytes of all names.
    frames: usize,
    text: usize,
}

impl Sum {
    fn new(first: ProfilePart) -> Self {
        let mut sum = Self {
            intervals: 1,
            missing: Vec::new(),
            frames: frames_of(&first.stacks, 0),
            text: text_of(&first.stacks, 0),
            all: first,
        };
        let missing = sum.all.origin.as_mut().map(take_missing);
        sum.note(missing.unwrap_or_default());
        sum
    }

    fn add(&mut self, mut part: ProfilePart) -> Result<()> {
        let missing = part.origin.as_mut().map(take_missing);
        self.intervals += 1;
        self.note(missing.unwrap_or_default());
        let all = &mut self.all;
        let unit = all.stacks.unit;
        ensure!(part.stacks.unit == unit, "its values have another unit than the intervals before");
        let total = all.stacks.total().checked_add(part.stacks.total());
        ensure!(total.is_some(), "with it the stacks add up to more than 2^64");
        let (frames, stacks) = (all.stacks.frames().len(), all.stacks.stacks().len());
        all.stacks.merge(&part.stacks);
        self.frames += frames_of(&all.stacks, stacks);
        self.text += text_of(&all.stacks, frames);
        ensure!(
            all.stacks.stacks().len() <= MOST_STACKS
                && all.stacks.frames().len() <= MOST_FRAMES
                && self.frames <= MOST_STACKED
                && self.text <= MOST_TEXT,
            "with it there are more different stacks than can be drawn"
        );
        match (&mut all.counts, &part.counts) {
            (Some(counts), Some(more)) => counts.merge(more),
            (counts, _) => *counts = None,
        }
        all.origin = all.origin.take().zip(part.origin).map(|(one, other)| one.and(other));
        all.duration_ns = all.duration_ns.saturating_add(part.duration_ns);
        all.period_ns = all.period_ns.filter(|ns| part.period_ns == Some(*ns));
        Ok(())
    }

    fn note(&mut self, missing: Vec<Missing>) {
        for one in missing {
            let key = one.why.replace(|c: char| c.is_ascii_digit(), "");
            if let Some((_, first, n, same)) = self.missing.iter_mut().find(|(known, ..)| *known == key) {
                *n += 1;
                *same &= *first == one;
            } else if self.missing.len() < MOST_MISSING {
                self.missing.push((key, one, 1, true));
            }
        }
    }

    fn whole(mut self) -> ProfilePart {
        let all = self.intervals;
        let missing = self.missing.into_iter().map(|(_, mut missing, n, same)| {
            if n < all || !same {
                missing.why.push_str(&format!(" (in the first of {n} such intervals of {all})"));
            }
            missing
        });
        if let Some(origin) = &mut self.all.origin {
            origin.envelope.missing = missing.collect();
        }
        self.all
    }
}

/// Frames of the stacks that start at index `from`.
fn frames_of(profile: &Profile, from: usize) -> usize {
    profile.stacks()[from..].iter().map(|stack| stack.frames.len()).sum()
}

/// Bytes of the names of the frames that start at index `from`.
fn text_of(profile: &Profile, from: usize) -> usize {
    profile.frames()[from..].iter().map(|frame| frame.name.len()).sum()
}

fn take_missing(origin: &mut Origin) -> Vec<Missing> {
    std::mem::take(&mut origin.envelope.missing)
}

/// Resolves frames without a name with files of this machine.
struct FrameSymbolizer {
    symbolizer: Symbolizer,
    known: HashMap<Place, PlaceName>,
    failures: Vec<Missing>,
    /// Bytes of the names found.
    text: usize,
}

impl FrameSymbolizer {
    fn new() -> Self {
        let symbolizer = Symbolizer::new(Helper::own());
        Self { symbolizer, known: HashMap::new(), failures: Vec::new(), text: 0 }
    }

    /// The names, in the order of `places`.
    fn names(&mut self, places: &[Place]) -> Result<Vec<Option<Arc<[String]>>>> {
        let mut new: Vec<Place> =
            places.iter().filter(|place| !self.known.contains_key(place)).cloned().collect();
        new.sort_unstable();
        new.dedup();
        self.text += new.iter().map(|place| place.file.len()).sum::<usize>();
        ensure!(
            self.known.len() + new.len() <= MOST_FRAMES && self.text <= MOST_TEXT,
            "it has more frames without a name than can be drawn"
        );
        let named = match new.iter().any(|place| place.build_id.is_some()) {
            true => {
                let (named, failures) = self.symbolizer.name_places(&new);
                for failure in failures {
                    if self.failures.len() < MOST_MISSING && !self.failures.contains(&failure) {
                        self.failures.push(failure);
                    }
                }
                named
            }
            false => vec![PlaceName::Absent; new.len()],
        };
        self.known.extend(new.into_iter().zip(named));
        Ok(places.iter().map(|place| self.known.get(place)?.clone().names()).collect())
    }

    /// The summary, the frames still without a name, and why files could not be read.
    fn end(self) -> (Option<String>, BTreeMap<String, Place>, Vec<Missing>) {
        let unnamed = self.known.iter().filter(|(_, named)| !matches!(named, PlaceName::As(_)));
        let unnamed = by_label(unnamed.map(|(place, _)| place));
        let (places, named): (Vec<Place>, Vec<PlaceName>) = self.known.into_iter().unzip();
        (naming(&places, &named), unnamed, self.failures)
    }
}

/// How many frames without a name were resolved.
fn naming(places: &[Place], named: &[PlaceName]) -> Option<String> {
    let count = |is: &dyn Fn(&Place, &PlaceName) -> bool| {
        places.iter().zip(named).filter(|(place, named)| is(place, named)).count()
    };
    let some = count(&|_, named| matches!(named, PlaceName::As(_)));
    let nameless = count(&|_, named| *named == PlaceName::Nameless);
    let absent = count(&|place, named| *named == PlaceName::Absent && place.build_id.is_some());
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

/// The missing files, by build ID or path, those with most frames first.
fn files(places: &[Place], named: &[PlaceName]) -> String {
    let mut files: Vec<(&Place, usize)> = Vec::new();
    let mut absent: Vec<&Place> = (places.iter().zip(named))
        .filter(|(place, named)| **named == PlaceName::Absent && place.build_id.is_some())
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
