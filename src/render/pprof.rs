//! Renders a profile in pprof's format: `profile.proto` (github.com/google/pprof), compressed with gzip. [`reading`]
//! reads this format, also from other tools.

mod message;
pub mod origin;
pub mod reading;

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;

use crate::analyze::profile::{Area, Frame, Place, Profile};
use crate::host::elf::BuildId;
use message::{Function, Line, Location, Mapping, Sample, ValueType};

/// A value of each stack, such as `cpu` in `nanoseconds`.
#[derive(Debug, Clone, Copy)]
pub struct ProfileColumn<'a> {
    pub kind: &'a str,
    pub unit: &'a str,
    pub profile: &'a Profile,
    /// Multiplier of the profile's values, such as nanoseconds per sample; otherwise 1.
    pub factor: u64,
}

/// Metadata of the whole profile.
#[derive(Debug, Clone, Default)]
pub struct About<'a> {
    /// Start in nanoseconds since 1970.
    pub start_ns: i64,
    pub duration_ns: i64,
    /// Sampling period in the unit of the last column; None: not sampled.
    pub period: Option<i64>,
    /// Comments for readers of the file.
    pub comments: Vec<String>,
    /// Frames that pprof can symbolize if it finds the file with the build-id.
    pub unnamed: Option<&'a BTreeMap<String, Place>>,
}

/// On-CPU samples: their number, and the CPU time that they represent.
pub fn on_cpu(profile: &Profile, period_ns: u64) -> [ProfileColumn<'_>; 2] {
    [
        ProfileColumn { kind: "samples", unit: "count", profile, factor: 1 },
        ProfileColumn { kind: "cpu", unit: "nanoseconds", profile, factor: period_ns },
    ]
}

/// Off-CPU time.
pub fn off_cpu(profile: &Profile) -> [ProfileColumn<'_>; 1] {
    [ProfileColumn { kind: "offcpu", unit: "nanoseconds", profile, factor: 1 }]
}

/// Time of I/Os.
pub fn io_time(profile: &Profile) -> [ProfileColumn<'_>; 1] {
    [ProfileColumn { kind: "io", unit: "nanoseconds", profile, factor: 1 }]
}

/// Lock waits: count and duration. The stacks of the two are joined by name.
pub fn contentions<'a>(count: &'a Profile, delay: &'a Profile) -> [ProfileColumn<'a>; 2] {
    [
        ProfileColumn { kind: "contentions", unit: "count", profile: count, factor: 1 },
        ProfileColumn { kind: "delay", unit: "nanoseconds", profile: delay, factor: 1 },
    ]
}

/// The file. pprof shows the last column by default.
pub fn render(columns: &[ProfileColumn<'_>], about: &About<'_>) -> Vec<u8> {
    let message = message(columns, about).encode_to_vec();
    let mut packed = GzEncoder::new(Vec::with_capacity(message.len() / 4 + 64), Compression::default());
    // Writing to memory cannot fail.
    packed.write_all(&message).and_then(|()| packed.finish()).unwrap_or_default()
}

const PAGE: u64 = 4096;

/// Assumed mapping address of files whose own addresses are unknown: below it pprof would take an offset for an
/// address.
const NOWHERE: u64 = 1 << 40;

fn message(columns: &[ProfileColumn<'_>], about: &About<'_>) -> message::Profile {
    let mut strings = Strings::default();
    strings.id("");
    let value_type = |strings: &mut Strings, column: &ProfileColumn<'_>| ValueType {
        kind: strings.id(column.kind),
        unit: strings.id(column.unit),
    };
    let mut out = message::Profile {
        sample_type: columns.iter().map(|column| value_type(&mut strings, column)).collect(),
        time_nanos: about.start_ns,
        duration_nanos: about.duration_ns,
        ..message::Profile::default()
    };
    let (frames, rows) = join(columns);
    // Leaf first; ids begin with 1.
    let ids = |stack: &[u32]| stack.iter().rev().map(|id| u64::from(*id) + 1).collect();
    out.sample = rows.into_iter().map(|(stack, value)| Sample { location_id: ids(&stack), value }).collect();

    // The mapping distinguishes kernel frames from process frames. Without the `has_functions` mark pprof would look
    // for the file to symbolize frames that already have names.
    out.mapping = [(1, "[kernel]"), (2, "[process]")]
        .map(|(id, file)| Mapping {
            id,
            filename: strings.id(file),
            has_functions: true,
            ..Mapping::default()
        })
        .into();
    let places: Vec<Option<&Place>> = frames.iter().map(|frame| place(frame, about)).collect();
    let files = files(&places);
    out.mapping.extend(files.iter().map(|(file, held)| Mapping {
        id: held.id,
        memory_start: file.start,
        memory_limit: held.limit,
        file_offset: file.offset,
        filename: strings.id(file.path),
        build_id: file.build_id.map_or(0, |id| strings.id(&id.to_string())),
        ..Mapping::default()
    }));
    for ((id, frame), place) in (1..).zip(&frames).zip(&places) {
        out.location.push(Location {
            id,
            mapping_id: match place {
                Some(place) => files[&FileAt::of(place)].id,
                None if frame.area.in_kernel() => 1,
                None => 2,
            },
            address: place.map_or(0, address),
            line: vec![Line { function_id: id }],
        });
        let name = strings.id(&frame.name);
        // Two functions with the same name but different areas differ only in their file.
        let filename = strings.id(&file_name(frame.area));
        out.function.push(Function { id, name, system_name: name, filename });
    }
    if let (Some(period), Some(column)) = (about.period, columns.last()) {
        out.period_type = Some(value_type(&mut strings, column));
        out.period = period;
    }
    out.comment = about.comments.iter().map(|comment| strings.id(comment)).collect();
    out.default_sample_type = columns.last().map_or(0, |column| strings.id(column.kind));
    // Last, because every other part adds strings.
    out.string_table = strings.all;
    out
}

/// The location of a frame without a name.
fn place<'a>(frame: &Frame, about: &About<'a>) -> Option<&'a Place> {
    about.unnamed.filter(|_| frame.area == Area::User)?.get(&frame.name)
}

/// A file as if it were mapped in one piece from its first byte, so that addresses are those of its own tables. Then
/// pprof computes the same address for position-dependent and other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct FileAt<'a> {
    path: &'a str,
    build_id: Option<&'a BuildId>,
    start: u64,
    /// Start of the mapping in the file.
    offset: u64,
}

impl<'a> FileAt<'a> {
    fn of(place: &'a Place) -> Self {
        let (start, offset) = match place.address {
            Some(address) => (address.saturating_sub(place.offset), place.offset.saturating_sub(address)),
            None => (NOWHERE, 0),
        };
        Self { path: &place.file, build_id: place.build_id.as_ref(), start, offset }
    }
}

/// The address of a place in such a file.
fn address(place: &Place) -> u64 {
    place.address.unwrap_or(NOWHERE.saturating_add(place.offset))
}

struct MappingEntry {
    /// Id of the mapping.
    id: u64,
    /// End of the mapping, exclusive.
    limit: u64,
}

fn files<'a>(places: &[Option<&'a Place>]) -> BTreeMap<FileAt<'a>, MappingEntry> {
    let mut all = BTreeMap::new();
    for place in places.iter().flatten() {
        let held = all.entry(FileAt::of(place)).or_insert(MappingEntry { id: 0, limit: 0 });
        let end = address(place).saturating_add(PAGE);
        held.limit = held.limit.max(end - end % PAGE);
    }
    // After the mappings of the kernel and of the process.
    (3..).zip(all.values_mut()).for_each(|(id, held)| held.id = id);
    all
}

fn file_name(area: Area) -> String {
    format!("[{}]", area.name())
}

/// A stack, root first, and a value per column.
type JoinedStack = (Vec<u32>, Vec<i64>);

/// All frames of all columns, and all stacks with a value per column, in the order of the first column.
fn join<'a>(columns: &[ProfileColumn<'a>]) -> (Vec<&'a Frame>, Vec<JoinedStack>) {
    let mut frames: Vec<&Frame> = Vec::new();
    let mut ids: HashMap<&Frame, u32> = HashMap::new();
    let mut places: HashMap<Vec<u32>, usize> = HashMap::new();
    let mut rows: Vec<JoinedStack> = Vec::new();
    for (i, column) in columns.iter().enumerate() {
        for stack in column.profile.sorted() {
            let stack_ids: Vec<u32> = (column.profile.named(stack))
                .map(|frame| {
                    *ids.entry(frame).or_insert_with(|| {
                        frames.push(frame);
                        frames.len() as u32 - 1
                    })
                })
                .collect();
            let place = *places.entry(stack_ids).or_insert_with_key(|stack_ids| {
                rows.push((stack_ids.clone(), vec![0; columns.len()]));
                rows.len() - 1
            });
            // Values are signed in the file.
            let value = stack.value.saturating_mul(column.factor);
            rows[place].1[i] = i64::try_from(value).unwrap_or(i64::MAX);
        }
    }
    (frames, rows)
}

/// The string table: each string occurs once.
#[derive(Default)]
struct Strings {
    all: Vec<String>,
    ids: HashMap<String, i64>,
}

impl Strings {
    fn id(&mut self, text: &str) -> i64 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = self.all.len() as i64;
        self.all.push(text.to_string());
        self.ids.insert(text.to_string(), id);
        id
    }
}

#[cfg(test)]
#[path = "pprof_tests.rs"]
mod tests;
