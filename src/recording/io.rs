//! Writes individual I/Os to Parquet files. The columns are narrow; DuckDB and others read the folder as one table.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::TypePtr;

use super::folder;

/// Rows buffered in memory, at most 214 bytes each: 26 MB. DuckDB uses the same size for its row groups.
const GROUP: usize = 122_880;

/// Length of a part in ns. If the recorder is killed, the I/Os of the unfinished part are lost.
const PART_NS: i64 = 10_000_000_000;

/// The columns. A value that was not measured is null.
const SCHEMA: &str = "
message io {
  optional int64 ended (TIMESTAMP(NANOS, true));
  optional binary device (STRING);
  optional binary op (STRING);
  optional int32 flags;
  optional int64 offset;
  optional int32 bytes;
  optional int32 queue;
  optional int64 queue_ns;
  optional int64 device_ns;
  optional int64 complete_ns;
  optional int64 submit_ns;
  optional int64 reap_ns;
  optional int32 pid;
  optional int32 tid;
  optional binary comm (STRING);
  optional int32 submit_cpu;
  optional int32 completion_cpu;
}";

/// Columns with mostly distinct values: a dictionary would be as large as the values.
const VARIED: [&str; 7] = ["ended", "offset", "queue_ns", "device_ns", "complete_ns", "submit_ns", "reap_ns"];

/// One I/O. Times are in ns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Io<'a> {
    /// Time since 1970.
    pub ended: i64,
    pub device: &'a str,
    pub op: Option<&'a str>,
    /// The kernel's `REQ_*` flags.
    pub flags: u32,
    pub offset: Option<u64>,
    pub bytes: Option<u32>,
    /// None: the device has no requests.
    pub queue: Option<u32>,
    pub queue_ns: Option<u64>,
    pub device_ns: Option<u64>,
    pub complete_ns: Option<u64>,
    /// Of the operation, if this is its last I/O.
    pub submit_ns: Option<u64>,
    pub reap_ns: Option<u64>,
    pub pid: Option<u32>,
    pub tid: Option<u32>,
    pub comm: Option<Cow<'a, str>>,
    pub submit_cpu: Option<u32>,
    pub completion_cpu: u32,
}

/// Values of a column, and for each row a definition level: 0 is null.
enum ColumnValues {
    Int32(Vec<i32>, Vec<i16>),
    Int64(Vec<i64>, Vec<i16>),
    Text(Vec<ByteArray>, Vec<i16>),
}

/// Writes I/Os in the order in which they are added.
pub struct Parts {
    folder: PathBuf,
    schema: TypePtr,
    properties: WriterPropertiesPtr,
    columns: Vec<ColumnValues>,
    rows: usize,
    texts: HashMap<String, ByteArray>,
    /// The part being written, and when its first I/O ended.
    part: Option<(SerializedFileWriter<File>, i64)>,
    number: u32,
    /// Bytes written by all views.
    total: Arc<AtomicU64>,
    /// Bytes of the finished parts.
    pub bytes: u64,
    pub ios: u64,
}

impl Parts {
    /// Creates the folder of the parts in the folder of a recording. `total` counts the bytes of all views.
    pub fn create(recording: &Path, total: &Arc<AtomicU64>) -> Result<Self> {
        let folder = recording.join(folder::IOS);
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let schema = Arc::new(parse_message_type(SCHEMA).context("the schema of I/Os")?);
        let level = ZstdLevel::try_new(1).context("zstd has a level 1")?;
        let mut properties = WriterProperties::builder().set_compression(Compression::ZSTD(level));
        for name in VARIED {
            properties = properties
                .set_column_dictionary_enabled(name.into(), false)
                .set_column_encoding(name.into(), Encoding::DELTA_BINARY_PACKED);
        }
        let kind = |field: &TypePtr| match field.get_physical_type() {
            parquet::basic::Type::INT32 => ColumnValues::Int32(Vec::new(), Vec::new()),
            parquet::basic::Type::INT64 => ColumnValues::Int64(Vec::new(), Vec::new()),
            _ => ColumnValues::Text(Vec::new(), Vec::new()),
        };
        Ok(Self {
            columns: schema.get_fields().iter().map(kind).collect(),
            folder,
            schema,
            properties: Arc::new(properties.build()),
            rows: 0,
            texts: HashMap::new(),
            part: None,
            number: 0,
            total: Arc::clone(total),
            bytes: 0,
            ios: 0,
        })
    }

    /// Adds an I/O. Writes the buffered rows when the group is full.
    pub fn add(&mut self, io: &Io<'_>) -> Result<()> {
        let text = |texts: &mut HashMap<String, ByteArray>, text: &str| match texts.get(text) {
            Some(known) => known.clone(),
            None => texts.entry(text.to_string()).or_insert_with(|| ByteArray::from(text)).clone(),
        };
        let wide = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        // Parquet has no unsigned type: the bits are stored unchanged.
        let narrow = |n: u32| n as i32;
        let device = text(&mut self.texts, io.device);
        let op = io.op.map(|op| text(&mut self.texts, op));
        let comm = io.comm.as_ref().map(|comm| text(&mut self.texts, comm));
        let mut columns = self.columns.iter_mut();
        // In the order of the columns in the schema.
        let mut put = |value: Value| {
            if let Some(column) = columns.next() {
                column.push(value);
            }
        };
        put(Value::Int64(Some(io.ended)));
        put(Value::Text(Some(device)));
        put(Value::Text(op));
        put(Value::Int32(Some(narrow(io.flags))));
        put(Value::Int64(io.offset.map(wide)));
        put(Value::Int32(io.bytes.map(narrow)));
        put(Value::Int32(io.queue.map(narrow)));
        for ns in [io.queue_ns, io.device_ns, io.complete_ns, io.submit_ns, io.reap_ns] {
            put(Value::Int64(ns.map(wide)));
        }
        put(Value::Int32(io.pid.map(narrow)));
        put(Value::Int32(io.tid.map(narrow)));
        put(Value::Text(comm));
        put(Value::Int32(io.submit_cpu.map(narrow)));
        put(Value::Int32(Some(narrow(io.completion_cpu))));
        self.rows += 1;
        self.ios += 1;
        if self.rows >= GROUP {
            self.write(io.ended)?;
        }
        Ok(())
    }

    /// Finishes the current part when it is `PART_NS` old.
    pub fn tick(&mut self, now: i64) -> Result<()> {
        match &self.part {
            Some((_, since)) if now.saturating_sub(*since) >= PART_NS => self.finish(),
            None if self.rows > 0 => self.open(now),
            _ => Ok(()),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.join(folder::part(self.number))
    }

    fn open(&mut self, now: i64) -> Result<()> {
        let path = self.path().with_extension("new");
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        let writer = SerializedFileWriter::new(file, Arc::clone(&self.schema), Arc::clone(&self.properties))
            .with_context(|| format!("cannot write {}", path.display()))?;
        self.part = Some((writer, now));
        Ok(())
    }

    /// Writes the buffered rows as a row group.
    fn write(&mut self, now: i64) -> Result<()> {
        if self.part.is_none() {
            self.open(now)?;
        }
        let Some((writer, _)) = &mut self.part else { return Ok(()) };
        let before = writer.bytes_written();
        let mut group = writer.next_row_group()?;
        for column in &mut self.columns {
            let Some(mut to) = group.next_column()? else { break };
            match column {
                ColumnValues::Int32(values, known) => {
                    to.typed::<Int32Type>().write_batch(values, Some(known), None)?
                }
                ColumnValues::Int64(values, known) => {
                    to.typed::<Int64Type>().write_batch(values, Some(known), None)?
                }
                ColumnValues::Text(values, known) => {
                    to.typed::<ByteArrayType>().write_batch(values, Some(known), None)?
                }
            };
            to.close()?;
            column.clear();
        }
        group.close()?;
        self.total.fetch_add(writer.bytes_written().saturating_sub(before) as u64, Ordering::Relaxed);
        self.rows = 0;
        Ok(())
    }

    /// Writes the buffered rows, completes the part and renames it to its final name.
    pub fn finish(&mut self) -> Result<()> {
        let path = self.path();
        let wrap =
            || format!("cannot write {}: free some space; the parts before it can be read", path.display());
        if self.rows > 0 {
            self.write(0).with_context(wrap)?;
        }
        let Some((writer, _)) = &mut self.part else { return Ok(()) };
        writer.finish().with_context(wrap)?;
        self.bytes += writer.bytes_written() as u64;
        fs::rename(path.with_extension("new"), &path).with_context(wrap)?;
        self.part = None;
        self.number += 1;
        // Bounds the memory: names that occurred once are dropped.
        self.texts.clear();
        Ok(())
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if self.part.is_some() {
            // Without its footer a Parquet file cannot be read.
            let _gone = fs::remove_file(self.path().with_extension("new"));
        }
    }
}

enum Value {
    Int32(Option<i32>),
    Int64(Option<i64>),
    Text(Option<ByteArray>),
}

impl ColumnValues {
    fn push(&mut self, value: Value) {
        match (self, value) {
            (Self::Int32(values, known), Value::Int32(value)) => {
                known.push(value.is_some().into());
                values.extend(value);
            }
            (Self::Int64(values, known), Value::Int64(value)) => {
                known.push(value.is_some().into());
                values.extend(value);
            }
            (Self::Text(values, known), Value::Text(value)) => {
                known.push(value.is_some().into());
                values.extend(value);
            }
            // A mismatch with the schema: the tests check each column.
            (Self::Int32(_, known) | Self::Int64(_, known) | Self::Text(_, known), _) => known.push(0),
        }
    }

    fn clear(&mut self) {
        match self {
            Self::Int32(values, known) => (values.clear(), known.clear()),
            Self::Int64(values, known) => (values.clear(), known.clear()),
            Self::Text(values, known) => (values.clear(), known.clear()),
        };
    }
}
