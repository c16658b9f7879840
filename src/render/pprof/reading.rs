//! Reads pprof profiles, from biopsy and from other tools.
//!
//! A file is untrusted. It is read part by part; each part and the total memory are bounded. Any defect is an error
//! with its position.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use flate2::read::MultiGzDecoder;
use prost::Message as _;
use prost::encoding::{WireType, decode_key, decode_varint};

use super::message::{Function, Location, Mapping, Sample, ValueType, field};
use super::origin::Origin;
use crate::analyze::flame::What;
use crate::analyze::profile::folded::MOST_DEPTH;
use crate::analyze::profile::{Area, Place, Profile, Unit, by_label};
use crate::host::elf::BuildId;
use crate::render::text::quoted;

/// Limit on the bytes of a file, and of its uncompressed content. A profile of a busy hour has some tens of megabytes.
pub const MOST_BYTES: usize = 128 << 20;

/// Limit on one part: a stack with its labels, a name.
const MOST_PIECE: usize = 1 << 20;
/// Limits on stacks, and on numbered entries of the file.
const MOST_SAMPLES: usize = 4 << 20;
const MOST_ENTRIES: usize = 1 << 20;
/// Limit on the functions of all locations together.
const MOST_LINES: usize = 16 << 20;
/// Linux allows a process this many.
const MOST_MAPPINGS: usize = 1 << 16;
const MOST_VALUES: usize = 64;
/// Limits on the frames of all stacks together, and on the bytes of their names: a location may expand to many frames,
/// and a name to many bytes.
const MOST_FRAMES: usize = 64 << 20;
const MOST_TEXT: usize = 512 << 20;
/// Limit on a path, as in Linux.
const MOST_PATH: usize = 4096;
/// Limit on a build-id.
const MOST_DIGITS: usize = 128;
/// Values listed in an error text.
const MOST_LISTED: usize = 8;

/// Stands for a stack without frames.
const NO_STACK: &str = "[no stack]";

/// The bytes of a file, uncompressed if needed.
///
/// # Errors
///
/// If they are damaged or truncated, or exceed [`MOST_BYTES`].
pub fn unpacked(bytes: Vec<u8>) -> Result<Vec<u8>> {
    unpacked_within(bytes, MOST_BYTES)
}

fn unpacked_within(bytes: Vec<u8>, most: usize) -> Result<Vec<u8>> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut out = Vec::new();
    (MultiGzDecoder::new(bytes.as_slice()).take(most as u64 + 1).read_to_end(&mut out))
        .context("its gzip data is damaged or truncated")?;
    ensure!(out.len() <= most, "unpacked it has more than {} MiB", most >> 20);
    Ok(out)
}

/// Whether uncompressed bytes are a pprof profile, not text: its first string is empty, so its length is a zero byte.
/// In folded text a name may also have a zero byte.
pub fn is_profile(bytes: &[u8]) -> bool {
    bytes.contains(&0) && !begins_as_folded_text(bytes)
}

/// Whether the first line that is not blank ends in a count.
fn begins_as_folded_text(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with(b"# ")).unwrap_or_default();
    let Some((stack, count)) = std::str::from_utf8(first).ok().and_then(|line| line.rsplit_once([' ', '\t']))
    else {
        return false;
    };
    let is_text = |c: char| !c.is_control() || matches!(c, '\0' | '\t' | '\x1b');
    stack.chars().all(is_text) && count.parse::<u64>().is_ok()
}

/// A file of which everything but the stacks was read.
#[derive(Debug)]
pub struct PprofFile<'a> {
    message: &'a [u8],
    strings: Vec<&'a [u8]>,
    types: Vec<ValueType>,
    default_type: i64,
    /// Nanoseconds since 1970; None if the file does not state it, as for the next two.
    pub start_ns: Option<i64>,
    pub duration_ns: Option<u64>,
    /// Sampling period.
    pub period_ns: Option<u64>,
    /// How it was measured, if by biopsy.
    pub origin: Option<Origin>,
    functions: Vec<ProfileFunction>,
    /// Index into `held` by the location's id.
    locations: HashMap<u64, u32>,
    held: Vec<LocationContent>,
    /// Frames without a name.
    nameless: Vec<Place>,
}

/// A function.
#[derive(Debug, Clone, Copy)]
struct ProfileFunction {
    /// Index into the string table.
    name: usize,
    /// Set if the file states it, as biopsy's files do.
    area: Option<Area>,
}

/// The meaning of a location.
#[derive(Debug)]
enum LocationContent {
    /// Functions, outermost first.
    Functions { functions: Box<[u32]>, in_kernel: bool },
    /// Index into the list of nameless frames.
    Nameless { place: u32, in_kernel: bool },
}

impl LocationContent {
    /// Number of frames that it expands to.
    fn depth(&self, names: &[Option<Arc<[String]>>]) -> usize {
        match self {
            Self::Functions { functions, .. } => functions.len(),
            Self::Nameless { place, .. } => {
                names.get(*place as usize).and_then(Option::as_ref).map_or(1, |names| names.len())
            }
        }
    }
}

/// The selected values of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedValues {
    column: usize,
    /// The file's name for them: `cpu`. Not escaped.
    pub name: String,
    pub unit: Unit,
    factor: u64,
    /// For times: the column that counts the underlying measurements.
    pub counts: Option<Box<SelectedValues>>,
}

impl<'a> PprofFile<'a> {
    /// Reads an uncompressed profile.
    ///
    /// # Errors
    ///
    /// If it is damaged, has dangling references, or is larger than any profile of one interval.
    pub fn new(message: &'a [u8]) -> Result<Self> {
        let mut strings = Vec::new();
        let mut types = Vec::new();
        let (mut functions, mut locations, mut mappings) = (Vec::new(), Vec::new(), HashMap::new());
        let mut comments = Vec::new();
        let (mut start, mut duration, mut period, mut default_type) = (0, 0, 0, 0);
        let mut period_type = None;
        let (mut samples, mut lines) = (0, 0);
        each_field(message, |number, content| {
            match (number, content) {
                (field::SAMPLE_TYPE, Content::Bytes(bytes)) => {
                    types.push(ValueType::decode(bytes)?);
                    ensure!(
                        types.len() <= MOST_VALUES,
                        "its stacks have more than {MOST_VALUES} values each"
                    );
                }
                (field::SAMPLE, Content::Bytes(_)) => {
                    samples += 1;
                    ensure!(samples <= MOST_SAMPLES, "it has more than {MOST_SAMPLES} stacks");
                }
                (field::MAPPING, Content::Bytes(bytes)) => {
                    let mapping = Mapping::decode(bytes)?;
                    ensure!(
                        mappings.insert(mapping.id, mapping).is_none(),
                        "two mappings have the id {}",
                        mapping.id
                    );
                    ensure!(mappings.len() <= MOST_MAPPINGS, "it has more than {MOST_MAPPINGS} mappings");
                }
                (field::LOCATION, Content::Bytes(bytes)) => {
                    let location = Location::decode(bytes)?;
                    lines += location.line.len();
                    ensure!(lines <= MOST_LINES, "its locations have more than {MOST_LINES} lines");
                    locations.push(location);
                    few(&locations, "locations")?;
                }
                (field::FUNCTION, Content::Bytes(bytes)) => {
                    functions.push(Function::decode(bytes)?);
                    few(&functions, "functions")?;
                }
                (field::STRING_TABLE, Content::Bytes(bytes)) => {
                    strings.push(bytes);
                    few(&strings, "strings")?;
                }
                (field::TIME_NANOS, Content::Number(value)) => start = value as i64,
                (field::DURATION_NANOS, Content::Number(value)) => duration = value as i64,
                (field::PERIOD_TYPE, Content::Bytes(bytes)) => period_type = Some(ValueType::decode(bytes)?),
                (field::PERIOD, Content::Number(value)) => period = value as i64,
                (field::COMMENT, Content::Number(value)) => {
                    comments.push(value as i64);
                    few(&comments, "comments")?;
                }
                (field::COMMENT, Content::Bytes(mut packed)) => {
                    while !packed.is_empty() {
                        comments.push(decode_varint(&mut packed)? as i64);
                    }
                    few(&comments, "comments")?;
                }
                (field::DEFAULT_SAMPLE_TYPE, Content::Number(value)) => default_type = value as i64,
                (field::SAMPLE_TYPE..=field::STRING_TABLE, _) => {
                    bail!("field {number} is not a message")
                }
                _ => {}
            }
            Ok(())
        })?;
        ensure!(!types.is_empty(), "it does not say what its values are");

        let mut reading = Self {
            message,
            strings,
            types,
            default_type,
            start_ns: Some(start).filter(|ns| *ns > 0),
            duration_ns: u64::try_from(duration).ok().filter(|ns| *ns > 0),
            period_ns: None,
            origin: None,
            functions: Vec::with_capacity(functions.len()),
            locations: HashMap::with_capacity(locations.len()),
            held: Vec::with_capacity(locations.len()),
            nameless: Vec::new(),
        };
        if let (Some(kind), Ok(period)) = (period_type, u64::try_from(period)) {
            reading.period_ns = match unit(&reading.text(kind.kind)?, &reading.text(kind.unit)?) {
                Some((Unit::Nanoseconds, factor)) => period.checked_mul(factor).filter(|ns| *ns > 0),
                _ => None,
            };
        }
        let mut texts = Vec::with_capacity(comments.len());
        for comment in comments.into_iter().filter(|comment| *comment != 0) {
            texts.push(reading.string(comment)?.1);
        }
        reading.origin = Origin::of(texts);

        let mut ids = HashMap::with_capacity(functions.len());
        for function in functions {
            let place = reading.functions.len() as u32;
            ensure!(ids.insert(function.id, place).is_none(), "two functions have the id {}", function.id);
            let named = reading.function(&function)?;
            reading.functions.push(named);
        }
        let files: HashMap<u64, ProfileMapping> = (mappings.into_iter())
            .map(|(id, mapping)| Ok((id, ProfileMapping::new(&reading, mapping)?)))
            .collect::<Result<_>>()?;
        for location in locations {
            let id = location.id;
            let place = reading.held.len() as u32;
            ensure!(reading.locations.insert(id, place).is_none(), "two locations have the id {id}");
            let held = reading.location(location, &ids, &files).with_context(|| format!("location {id}"))?;
            reading.held.push(held);
        }
        Ok(reading)
    }

    /// Frames without a name, each with its place. A name given to one of them applies to all its stacks.
    pub fn nameless(&self) -> &[Place] {
        &self.nameless
    }

    /// The values with the unit `wanted`, otherwise the file's default; for biopsy's on-CPU samples their number, as in
    /// a live graph.
    ///
    /// # Errors
    ///
    /// If there are none of that unit, or they cannot be used as widths.
    pub fn values(&self, wanted: Option<Unit>) -> Result<SelectedValues> {
        let mut all = Vec::new();
        for (column, value) in self.types.iter().enumerate() {
            let (name, word) = (self.text(value.kind)?.into_owned(), self.text(value.unit)?.into_owned());
            let unit = unit(&name, &word);
            all.push((name, word, unit, column));
        }
        let last = |is: &dyn Fn(&str, Option<Unit>) -> bool| {
            all.iter().rposition(|(name, _, unit, _)| is(name, unit.map(|(unit, _)| unit)))
        };
        let counts = || {
            last(&|_, unit| unit == Some(Unit::Samples))
                .or_else(|| last(&|_, unit| unit == Some(Unit::Events)))
        };
        let one = |name: &str, word: &str| format!("{} in {}", quoted(name), quoted(word));
        let list = || {
            let mut parts: Vec<String> =
                all.iter().take(MOST_LISTED).map(|(name, word, ..)| one(name, word)).collect();
            if all.len() > MOST_LISTED {
                parts.push(format!("{} more", all.len() - MOST_LISTED));
            }
            parts.join(", ")
        };
        let chosen = match wanted {
            Some(Unit::Nanoseconds) => last(&|_, unit| unit == Some(Unit::Nanoseconds))
                .with_context(|| format!("it has no times, only {}", list()))?,
            Some(_) => counts().with_context(|| format!("it has no counts, only {}", list()))?,
            None => {
                let is_on_cpu = self.origin.as_ref().is_some_and(|origin| origin.what == Some(What::OnCpu));
                let samples = last(&|_, unit| unit == Some(Unit::Samples)).filter(|_| is_on_cpu);
                let default = self.text(self.default_type)?;
                let default = || last(&|name, _| name == default && !default.is_empty());
                samples.or_else(default).unwrap_or(all.len() - 1)
            }
        };
        let of = |place: usize| {
            let (name, word, unit, column) = &all[place];
            let (unit, factor) = unit
                .with_context(|| format!("its values are {}, neither times nor counts", one(name, word)))?;
            anyhow::Ok(SelectedValues { column: *column, name: name.clone(), unit, factor, counts: None })
        };
        let mut values = of(chosen)?;
        if let (Unit::Nanoseconds, Some(place)) = (values.unit, counts()) {
            values.counts = Some(Box::new(of(place)?));
        }
        Ok(values)
    }

    /// The stacks with these values. `names`: for [`Self::nameless`], in its order, outermost first; frames without
    /// names keep `[file]+0x…`.
    ///
    /// # Errors
    ///
    /// If a stack is damaged, refers to a missing location or has more than [`MOST_DEPTH`] frames, if a value is
    /// negative, or if a limit is exceeded.
    pub fn profile(&self, values: &SelectedValues, names: &[Option<Arc<[String]>>]) -> Result<Profile> {
        let mut profile = Profile::new(values.unit);
        let mut known: Vec<Option<LocationFrames>> = self.held.iter().map(|_| None).collect();
        let mut ids: HashMap<(usize, Area), u32> = HashMap::new();
        let (mut frames, mut text) = (0usize, 0usize);
        let mut stack = Vec::new();
        each_field(self.message, |number, content| {
            let (field::SAMPLE, Content::Bytes(bytes)) = (number, content) else { return Ok(()) };
            let sample = Sample::decode(bytes)?;
            ensure!(
                sample.value.len() == self.types.len(),
                "a stack has {} values, but {} are declared",
                sample.value.len(),
                self.types.len()
            );
            let value = u64::try_from(sample.value[values.column])
                .map_err(|_| anyhow::anyhow!("a value is negative, as in a difference of two profiles"))?;
            if value == 0 {
                return Ok(());
            }
            let value = value.checked_mul(values.factor).and_then(|value| {
                profile.total().checked_add(value)?;
                Some(value)
            });
            let value = value.context("up to here the counts add up to more than 2^64")?;
            stack.clear();
            for id in sample.location_id.iter().rev() {
                let held = *self.locations.get(id).with_context(|| format!("there is no location {id}"))?;
                let depth = stack.len() + self.held[held as usize].depth(names);
                ensure!(depth <= MOST_DEPTH, "a stack has more than {MOST_DEPTH} frames");
                let shown = known[held as usize].get_or_insert_with(|| {
                    self.shown(&self.held[held as usize], names, &mut profile, &mut ids)
                });
                frames = frames.saturating_add(shown.frames.len());
                text = text.saturating_add(shown.bytes);
                ensure!(frames <= MOST_FRAMES, "its stacks have more than {MOST_FRAMES} frames");
                ensure!(text <= MOST_TEXT, "the names in its stacks have more than {} MiB", MOST_TEXT >> 20);
                stack.extend_from_slice(&shown.frames);
            }
            if stack.is_empty() {
                stack.push(profile.frame(NO_STACK, Area::Label));
            }
            profile.add(&stack, value);
            Ok(())
        })?;
        Ok(profile)
    }

    /// Frames that are still nameless, by their label. Labels shared with another file's frames are left out.
    pub fn unnamed(&self, names: &[Option<Arc<[String]>>]) -> BTreeMap<String, Place> {
        let unnamed = self.nameless.iter().zip(names).filter(|(_, names)| names.is_none());
        by_label(unnamed.map(|(place, _)| place))
    }

    fn shown(
        &self,
        held: &LocationContent,
        names: &[Option<Arc<[String]>>],
        profile: &mut Profile,
        ids: &mut HashMap<(usize, Area), u32>,
    ) -> LocationFrames {
        let mut shown = LocationFrames { frames: Vec::new(), bytes: 0 };
        match held {
            LocationContent::Functions { functions, in_kernel } => {
                for function in functions {
                    let ProfileFunction { name, area } = self.functions[*function as usize];
                    let text = String::from_utf8_lossy(self.strings[name]);
                    let area = area.unwrap_or_else(|| area_of(&text, *in_kernel));
                    shown.bytes += text.len();
                    // Many functions may share one long name.
                    let id = ids.entry((name, area)).or_insert_with(|| profile.frame(text, area));
                    shown.frames.push(*id);
                }
            }
            LocationContent::Nameless { place, in_kernel } => {
                let mut add = |name: &str| {
                    shown.bytes += name.len();
                    shown.frames.push(profile.frame(name, area_of(name, *in_kernel)));
                };
                match names.get(*place as usize).and_then(Option::as_ref) {
                    Some(names) => names.iter().for_each(|name| add(name)),
                    None => add(&self.nameless[*place as usize].label()),
                }
            }
        }
        shown
    }

    fn string(&self, number: i64) -> Result<(usize, &'a [u8])> {
        let place = usize::try_from(number).ok().and_then(|place| Some((place, *self.strings.get(place)?)));
        place.with_context(|| format!("it has no string {number}, only {}", self.strings.len()))
    }

    fn text(&self, number: i64) -> Result<Cow<'a, str>> {
        // Without any strings nothing has a name.
        if number == 0 && self.strings.is_empty() {
            return Ok(Cow::Borrowed(""));
        }
        Ok(String::from_utf8_lossy(self.string(number)?.1))
    }

    /// Empty if it has more bytes: many entries may share a long string.
    fn short_text(&self, number: i64, most: usize) -> Result<Cow<'a, str>> {
        if number != 0 && self.string(number)?.1.len() > most {
            return Ok(Cow::Borrowed(""));
        }
        self.text(number)
    }

    fn function(&self, function: &Function) -> Result<ProfileFunction> {
        let (name, text) = self.string(function.name)?;
        let (system_name, _) = self.string(function.system_name)?;
        let (_, file) = self.string(function.filename)?;
        let area = Area::ALL.into_iter().find(|area| super::file_name(*area).as_bytes() == file);
        Ok(ProfileFunction { name: if text.is_empty() { system_name } else { name }, area })
    }

    fn location(
        &mut self,
        location: Location,
        ids: &HashMap<u64, u32>,
        files: &HashMap<u64, ProfileMapping>,
    ) -> Result<LocationContent> {
        let file = match location.mapping_id {
            0 => None,
            id => Some(files.get(&id).with_context(|| format!("there is no mapping {id}"))?),
        };
        let in_kernel = file.is_some_and(|file| file.in_kernel) || location.address >= 1 << 63;
        let mut functions = Vec::with_capacity(location.line.len());
        for line in location.line.iter().rev().filter(|line| line.function_id != 0) {
            let place = *ids
                .get(&line.function_id)
                .with_context(|| format!("there is no function {}", line.function_id))?;
            let named = &self.functions[place as usize];
            // In biopsy's files an empty name is valid.
            if named.area.is_some() || !self.strings[named.name].is_empty() {
                functions.push(place);
            }
        }
        let own = match (functions.as_slice(), file) {
            ([], _) => None,
            // biopsy's files have the label as a name, for tools that do not symbolize.
            ([one], Some(file))
                if self.functions[*one as usize].area == Some(Area::User) && !file.has_names =>
            {
                let place = file.own_place(location.address);
                let is_label = place.label().as_bytes() == self.strings[self.functions[*one as usize].name];
                if !is_label {
                    return Ok(LocationContent::Functions { functions: functions.into(), in_kernel });
                }
                Some(place)
            }
            _ => return Ok(LocationContent::Functions { functions: functions.into(), in_kernel }),
        };
        let place = own.unwrap_or_else(|| ProfileMapping::place(file, location.address, in_kernel));
        let number = self.nameless.len() as u32;
        self.nameless.push(place);
        Ok(LocationContent::Nameless { place: number, in_kernel })
    }
}

/// The frames of a location.
struct LocationFrames {
    frames: Vec<u32>,
    /// Bytes of their names.
    bytes: usize,
}

fn area_of(name: &str, in_kernel: bool) -> Area {
    if in_kernel { Area::of_kernel(name) } else { Area::User }
}

/// A mapped file.
#[derive(Debug)]
struct ProfileMapping {
    path: Arc<str>,
    build_id: Option<BuildId>,
    start: u64,
    limit: u64,
    offset: u64,
    in_kernel: bool,
    /// All its named frames have their names in the profile.
    has_names: bool,
}

impl ProfileMapping {
    fn new(reading: &PprofFile<'_>, mapping: Mapping) -> Result<Self> {
        // A longer path cannot be opened, and would be repeated in every label.
        let path = reading.short_text(mapping.filename, MOST_PATH)?;
        let build_id = reading.short_text(mapping.build_id, MOST_DIGITS)?;
        Ok(Self {
            build_id: BuildId::parse(&build_id),
            in_kernel: is_kernel(&path),
            path: (&*path).into(),
            start: mapping.memory_start,
            limit: mapping.memory_limit,
            offset: mapping.file_offset,
            has_names: mapping.has_functions,
        })
    }

    /// For a file written by biopsy: the address is that of the file's own tables.
    fn own_place(&self, address: u64) -> Place {
        Place {
            build_id: self.build_id.clone(),
            file: Arc::clone(&self.path),
            offset: address.saturating_sub(self.start).saturating_add(self.offset),
            address: Some(address).filter(|_| self.start != super::NOWHERE),
        }
    }

    /// For other files: the address was that of the process.
    fn place(file: Option<&Self>, address: u64, in_kernel: bool) -> Place {
        let nowhere = |path: Arc<str>| Place { build_id: None, file: path, offset: address, address: None };
        let Some(file) = file else { return nowhere("".into()) };
        // The kernel has another address after each boot, and its files are not laid out like programs.
        if in_kernel || address < file.start || (file.limit > 0 && address >= file.limit) {
            return nowhere(Arc::clone(&file.path));
        }
        // Mapped nowhere: pprof takes such addresses for those of the file's own tables, as Parca writes them.
        let is_of_tables = file.start == 0 && file.offset == 0;
        Place {
            build_id: file.build_id.clone(),
            file: Arc::clone(&file.path),
            offset: (address - file.start).saturating_add(file.offset),
            address: Some(address).filter(|_| is_of_tables),
        }
    }
}

/// `[kernel.kallsyms]` and the like, `vmlinux`, and modules.
fn is_kernel(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    let module = name.trim_end_matches(".xz").trim_end_matches(".zst").trim_end_matches(".gz");
    path.starts_with("[kernel")
        || path.starts_with("[guest.kernel")
        || name.starts_with("vmlinux")
        || module.ends_with(".ko")
}

/// Unit and multiplier of values by their kind and unit; None if they cannot be used as widths.
fn unit(kind: &str, word: &str) -> Option<(Unit, u64)> {
    const SECOND: u64 = 1_000_000_000;
    const DAY: u64 = 86_400 * SECOND;
    let word = word.to_ascii_lowercase();
    // Singular or plural, as pprof parses it: `hrs` is `hr`, but `ms` is not `m`.
    let one = word.strip_suffix('s').filter(|one| one.chars().nth(1).is_some()).unwrap_or(&word);
    Some(match one {
        "nanosecond" | "ns" => (Unit::Nanoseconds, 1),
        "microsecond" | "us" | "µs" | "μs" => (Unit::Nanoseconds, 1_000),
        "millisecond" | "ms" => (Unit::Nanoseconds, 1_000_000),
        "second" | "sec" | "s" => (Unit::Nanoseconds, SECOND),
        "minute" | "min" => (Unit::Nanoseconds, 60 * SECOND),
        "hour" | "hr" | "h" => (Unit::Nanoseconds, 3_600 * SECOND),
        "day" => (Unit::Nanoseconds, DAY),
        "week" | "wk" => (Unit::Nanoseconds, 7 * DAY),
        "year" | "yr" => (Unit::Nanoseconds, 365 * DAY),
        "sample" => (Unit::Samples, 1),
        "count" | "" if kind.to_ascii_lowercase().contains("sample") => (Unit::Samples, 1),
        "b" | "kb" | "mb" | "gb" | "tb" | "pb" | "eb" => return None,
        "kib" | "mib" | "gib" | "tib" | "pib" | "eib" => return None,
        word if word.contains("byte") => return None,
        _ => (Unit::Events, 1),
    })
}

fn few<T>(all: &[T], what: &str) -> Result<()> {
    ensure!(all.len() <= MOST_ENTRIES, "it has more than {MOST_ENTRIES} {what}");
    Ok(())
}

/// The value of a field.
enum Content<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Calls `take` for each field of a message that is a number or bytes: other types are not used here.
fn each_field<'a>(message: &'a [u8], mut take: impl FnMut(u32, Content<'a>) -> Result<()>) -> Result<()> {
    let mut rest = message;
    while !rest.is_empty() {
        let at = message.len() - rest.len();
        let mut one = || {
            let (number, wire) = decode_key(&mut rest)?;
            let content = match wire {
                WireType::Varint => Content::Number(decode_varint(&mut rest)?),
                WireType::LengthDelimited => {
                    let length = decode_varint(&mut rest)?;
                    let length = usize::try_from(length).ok().filter(|length| *length <= rest.len());
                    let (bytes, behind) = rest.split_at(length.context("it is truncated")?);
                    rest = behind;
                    ensure!(bytes.len() <= MOST_PIECE, "a part of it has more than {} KiB", MOST_PIECE >> 10);
                    Content::Bytes(bytes)
                }
                WireType::SixtyFourBit => {
                    rest = rest.get(8..).context("it is truncated")?;
                    return Ok(());
                }
                WireType::ThirtyTwoBit => {
                    rest = rest.get(4..).context("it is truncated")?;
                    return Ok(());
                }
                WireType::StartGroup | WireType::EndGroup => bail!("no profile has groups"),
            };
            take(number, content)
        };
        one().with_context(|| format!("at byte {at} of the profile"))?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "reading_tests.rs"]
mod tests;
