//! A profile as pprof reads it: `profile.proto` (github.com/google/pprof), packed by gzip. Written here, and read by
//! [`reading`], what others wrote as well.

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

/// One value that each stack has, such as `cpu` in `nanoseconds`.
#[derive(Debug, Clone, Copy)]
pub struct Column<'a> {
    pub kind: &'a str,
    pub unit: &'a str,
    pub profile: &'a Profile,
    /// What one of the profile's values stands for: nanoseconds per sample. Else 1.
    pub factor: u64,
}

/// What is known of the whole.
#[derive(Debug, Clone, Default)]
pub struct About<'a> {
    /// When it began, in nanoseconds since 1970.
    pub start_ns: i64,
    pub duration_ns: i64,
    /// Between two samples, in the unit of the last column; None: not sampled.
    pub period: Option<i64>,
    /// Lines for whoever opens it.
    pub comments: Vec<String>,
    /// Frames that pprof may name, where it finds the file with the build-id.
    pub unnamed: Option<&'a BTreeMap<String, Place>>,
}

/// On-CPU samples: their number, and the CPU time that they stand for.
pub fn on_cpu(profile: &Profile, period_ns: u64) -> [Column<'_>; 2] {
    [
        Column { kind: "samples", unit: "count", profile, factor: 1 },
        Column { kind: "cpu", unit: "nanoseconds", profile, factor: period_ns },
    ]
}

/// Time blocked.
pub fn off_cpu(profile: &Profile) -> [Column<'_>; 1] {
    [Column { kind: "offcpu", unit: "nanoseconds", profile, factor: 1 }]
}

/// Time of I/Os.
pub fn io_time(profile: &Profile) -> [Column<'_>; 1] {
    [Column { kind: "io", unit: "nanoseconds", profile, factor: 1 }]
}

/// Waits for locks: how many and how long. The stacks of the two are joined by name.
pub fn contentions<'a>(count: &'a Profile, delay: &'a Profile) -> [Column<'a>; 2] {
    [
        Column { kind: "contentions", unit: "count", profile: count, factor: 1 },
        Column { kind: "delay", unit: "nanoseconds", profile: delay, factor: 1 },
    ]
}

/// The file. The last column is what pprof shows first.
pub fn render(columns: &[Column<'_>], about: &About<'_>) -> Vec<u8> {
    let message = message(columns, about).encode_to_vec();
    let mut packed = GzEncoder::new(Vec::with_capacity(message.len() / 4 + 64), Compression::default());
    // Into memory, where nothing fails.
    packed.write_all(&message).and_then(|()| packed.finish()).unwrap_or_default()
}

const PAGE: u64 = 4096;

/// Where files are mapped of whose own addresses nothing is known: below it pprof would take an offset for an address.
const NOWHERE: u64 = 1 << 40;

fn message(columns: &[Column<'_>], about: &About<'_>) -> message::Profile {
    let mut strings = Strings::default();
    strings.id("");
    let value_type = |strings: &mut Strings, column: &Column<'_>| ValueType {
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
    // From the leaf on; ids begin with 1.
    let ids = |stack: &[u32]| stack.iter().rev().map(|id| u64::from(*id) + 1).collect();
    out.sample = rows.into_iter().map(|(stack, value)| Sample { location_id: ids(&stack), value }).collect();

    // By its mapping a frame of the kernel is told from one of the process. Without the mark on it pprof would look
    // for the file, to name what has a name.
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
        // Two of one name and of two areas are two functions only by their file.
        let filename = strings.id(&file_name(frame.area));
        out.function.push(Function { id, name, system_name: name, filename });
    }
    if let (Some(period), Some(column)) = (about.period, columns.last()) {
        out.period_type = Some(value_type(&mut strings, column));
        out.period = period;
    }
    out.comment = about.comments.iter().map(|comment| strings.id(comment)).collect();
    out.default_sample_type = columns.last().map_or(0, |column| strings.id(column.kind));
    // Last, because every part before it brings strings.
    out.string_table = strings.all;
    out
}

/// Where a frame without a name lies.
fn place<'a>(frame: &Frame, about: &About<'a>) -> Option<&'a Place> {
    about.unnamed.filter(|_| frame.area == Area::User)?.get(&frame.name)
}

/// A file as it would be mapped in one piece from its first byte on, so that addresses are those of its own tables: what
/// pprof computes from them then is the same address, of programs with a fixed place and of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct FileAt<'a> {
    path: &'a str,
    build_id: Option<&'a BuildId>,
    start: u64,
    /// In the file, where it begins.
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

struct Held {
    /// Of the mapping.
    id: u64,
    /// Behind the last address.
    limit: u64,
}

fn files<'a>(places: &[Option<&'a Place>]) -> BTreeMap<FileAt<'a>, Held> {
    let mut all = BTreeMap::new();
    for place in places.iter().flatten() {
        let held = all.entry(FileAt::of(place)).or_insert(Held { id: 0, limit: 0 });
        let end = address(place).saturating_add(PAGE);
        held.limit = held.limit.max(end - end % PAGE);
    }
    // Behind those of the kernel and of the process.
    (3..).zip(all.values_mut()).for_each(|(id, held)| held.id = id);
    all
}

fn file_name(area: Area) -> String {
    format!("[{}]", area.name())
}

/// A stack, root first, and a value per column.
type Joined = (Vec<u32>, Vec<i64>);

/// All frames of all columns, and all stacks with a value per column, in the order of the first.
fn join<'a>(columns: &[Column<'a>]) -> (Vec<&'a Frame>, Vec<Joined>) {
    let mut frames: Vec<&Frame> = Vec::new();
    let mut ids: HashMap<&Frame, u32> = HashMap::new();
    let mut places: HashMap<Vec<u32>, usize> = HashMap::new();
    let mut rows: Vec<Joined> = Vec::new();
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
            // A value is signed in the file.
            let value = stack.value.saturating_mul(column.factor);
            rows[place].1[i] = i64::try_from(value).unwrap_or(i64::MAX);
        }
    }
    (frames, rows)
}

/// The table of strings: each stands in it once.
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
