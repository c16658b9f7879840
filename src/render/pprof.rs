//! A profile as pprof reads it: `profile.proto` (github.com/google/pprof), packed by gzip.
//!
//! The message is written by hand: what is written is flat, and of protobuf only numbers and lengths are needed.

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::analyze::profile::{Area, Frame, Place, Profile};
use crate::host::elf::BuildId;

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
    pub comments: Vec<&'a str>,
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
    let message = message(columns, about);
    let mut packed = GzEncoder::new(Vec::with_capacity(message.len() / 4 + 64), Compression::default());
    // Into memory, where nothing fails.
    packed.write_all(&message).and_then(|()| packed.finish()).unwrap_or_default()
}

const PAGE: u64 = 4096;

/// Field numbers of `Profile` and of what it holds.
mod field {
    pub const SAMPLE_TYPE: u64 = 1;
    pub const SAMPLE: u64 = 2;
    pub const MAPPING: u64 = 3;
    pub const LOCATION: u64 = 4;
    pub const FUNCTION: u64 = 5;
    pub const STRING_TABLE: u64 = 6;
    pub const TIME_NANOS: u64 = 9;
    pub const DURATION_NANOS: u64 = 10;
    pub const PERIOD_TYPE: u64 = 11;
    pub const PERIOD: u64 = 12;
    pub const COMMENT: u64 = 13;
    pub const DEFAULT_SAMPLE_TYPE: u64 = 14;

    pub const TYPE: u64 = 1;
    pub const UNIT: u64 = 2;

    pub const LOCATION_IDS: u64 = 1;
    pub const VALUES: u64 = 2;

    pub const ID: u64 = 1;
    pub const MAPPING_ID: u64 = 2;
    pub const ADDRESS: u64 = 3;
    pub const LINE: u64 = 4;
    pub const LINE_FUNCTION: u64 = 1;

    pub const NAME: u64 = 2;
    pub const SYSTEM_NAME: u64 = 3;
    pub const FILENAME: u64 = 4;

    pub const MAPPING_START: u64 = 2;
    pub const MAPPING_LIMIT: u64 = 3;
    pub const MAPPING_FILE: u64 = 5;
    pub const MAPPING_BUILD_ID: u64 = 6;
    pub const MAPPING_HAS_FUNCTIONS: u64 = 7;
}

fn message(columns: &[Column<'_>], about: &About<'_>) -> Vec<u8> {
    let mut strings = Strings::default();
    strings.id("");
    let mut out = Message::default();
    let value_type = |strings: &mut Strings, column: &Column<'_>| {
        let mut message = Message::default();
        message.number(field::TYPE, strings.id(column.kind));
        message.number(field::UNIT, strings.id(column.unit));
        message
    };
    for column in columns {
        out.message(field::SAMPLE_TYPE, &value_type(&mut strings, column));
    }

    let (frames, rows) = join(columns);
    let mut packed = Message::default();
    for (stack, values) in &rows {
        let mut sample = Message::default();
        // From the leaf on; ids begin with 1.
        packed.0.clear();
        stack.iter().rev().for_each(|id| packed.varint(u64::from(*id) + 1));
        sample.message(field::LOCATION_IDS, &packed);
        packed.0.clear();
        values.iter().for_each(|value| packed.varint(*value));
        sample.message(field::VALUES, &packed);
        out.message(field::SAMPLE, &sample);
    }

    // By its mapping a frame of the kernel is told from one of the process. Without the mark on it pprof would look
    // for the file, to name what has a name.
    for (id, file) in [(1, "[kernel]"), (2, "[process]")] {
        let mut mapping = Message::default();
        mapping.number(field::ID, id);
        mapping.number(field::MAPPING_FILE, strings.id(file));
        mapping.number(field::MAPPING_HAS_FUNCTIONS, 1);
        out.message(field::MAPPING, &mapping);
    }
    let places: Vec<Option<&Place>> = frames.iter().map(|frame| place(frame, about)).collect();
    let files = files(&places);
    for (file, held) in &files {
        let mut mapping = Message::default();
        mapping.number(field::ID, held.id);
        mapping.number(field::MAPPING_START, file.start);
        mapping.number(field::MAPPING_LIMIT, held.limit);
        mapping.number(field::MAPPING_FILE, strings.id(file.path));
        if let Some(id) = file.build_id {
            mapping.number(field::MAPPING_BUILD_ID, strings.id(&id.to_string()));
        }
        out.message(field::MAPPING, &mapping);
    }
    for ((id, frame), place) in (1..).zip(&frames).zip(&places) {
        let mut line = Message::default();
        line.number(field::LINE_FUNCTION, id);
        let mut location = Message::default();
        location.number(field::ID, id);
        location.number(
            field::MAPPING_ID,
            match place {
                Some(place) => files[&FileAt::of(place)].id,
                None if frame.area.in_kernel() => 1,
                None => 2,
            },
        );
        if let Some(place) = place {
            location.number(field::ADDRESS, place.address.unwrap_or(place.offset));
        }
        location.message(field::LINE, &line);
        out.message(field::LOCATION, &location);

        let name = strings.id(&frame.name);
        let mut function = Message::default();
        function.number(field::ID, id);
        function.number(field::NAME, name);
        function.number(field::SYSTEM_NAME, name);
        // Two of one name and of two areas are two functions only by their file.
        function.number(field::FILENAME, strings.id(&file_name(frame.area)));
        out.message(field::FUNCTION, &function);
    }

    out.number(field::TIME_NANOS, about.start_ns as u64);
    out.number(field::DURATION_NANOS, about.duration_ns as u64);
    if let (Some(period), Some(column)) = (about.period, columns.last()) {
        out.message(field::PERIOD_TYPE, &value_type(&mut strings, column));
        out.number(field::PERIOD, period as u64);
    }
    for comment in &about.comments {
        out.number(field::COMMENT, strings.id(comment));
    }
    if let Some(column) = columns.last() {
        out.number(field::DEFAULT_SAMPLE_TYPE, strings.id(column.kind));
    }
    // Last, because every part before it brings strings; the order of fields is free.
    for string in &strings.all {
        out.bytes(field::STRING_TABLE, string.as_bytes());
    }
    out.0
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
}

impl<'a> FileAt<'a> {
    fn of(place: &'a Place) -> Self {
        let start = place.address.and_then(|address| address.checked_sub(place.offset)).unwrap_or(0);
        Self { path: &place.file, build_id: place.build_id.as_ref(), start }
    }
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
        let end = place.address.unwrap_or(place.offset).saturating_add(PAGE);
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
type Joined = (Vec<u32>, Vec<u64>);

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
            let value = stack.value.saturating_mul(column.factor).min(i64::MAX as u64);
            rows[place].1[i] = value;
        }
    }
    (frames, rows)
}

/// The table of strings: each stands in it once.
#[derive(Default)]
struct Strings {
    all: Vec<String>,
    ids: HashMap<String, u64>,
}

impl Strings {
    fn id(&mut self, text: &str) -> u64 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = self.all.len() as u64;
        self.all.push(text.to_string());
        self.ids.insert(text.to_string(), id);
        id
    }
}

/// A message of protobuf.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    /// Seven bits a byte, the lowest first; the eighth says that there are more.
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A number. Zero is what a reader takes for a field that is not there.
    fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.varint(field << 3);
            self.varint(value);
        }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }
}

#[cfg(test)]
#[path = "pprof_tests.rs"]
mod tests;
