//! Opens the lines of a view: in a recording's folder, in a packed recording, in a file, or on stdin.

use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tar::Header;

use super::folder;
use super::manifest::Manifest;
use super::ring::RingInterval;

/// Magic number of a zstd frame, and the last three bytes of that of a skippable frame (RFC 8878).
const FRAME: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
const SKIPPABLE: [u8; 3] = [0x2A, 0x4D, 0x18];

/// Magic numbers of formats that biopsy does not decompress, with their names and how to decompress them.
const COMPRESSED: [(&[u8], &str, &str); 5] = [
    (b"\x1f\x8b", "gzip", "gzip -d"),
    (b"\xfd7zXZ\0", "xz", "xz -d"),
    (b"BZh", "bzip2", "bzip2 -d"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4 -d"),
    (b"PK\x03\x04", "zip", "unzip"),
];

/// Size of a tar block: a header, or a part of a file.
pub(super) const BLOCK: usize = 512;

/// Maximum number of names in an archive that are kept to list its views in an error.
pub(super) const MOST_NAMED: usize = 10_000;

/// log2 of the maximum window of a frame, 32 MiB: it limits the memory of the decoder. biopsy writes 2 MiB.
const WINDOW_LOG: u32 = 25;

/// Maximum size of a manifest in bytes. Its labels and arguments come from the user.
const MOST_MANIFEST: u64 = 1 << 20;

/// Lines that can be read.
pub type LineReader = Box<dyn BufRead + Send>;

/// The lines of `view` in the file or folder at `path`; `-` is stdin.
///
/// # Errors
/// If it cannot be opened (an [`io::Error`] is the cause), is damaged, or is a recording without the view.
pub fn open(path: &Path, view: &str) -> Result<LineReader> {
    if path == Path::new("-") {
        return of_stream(BufReader::new(io::stdin()), view);
    }
    if fs::metadata(path)?.is_dir() {
        return of_folder(path, view);
    }
    of_stream(BufReader::new(File::open(path)?), view)
}

/// The lines of intervals in memory.
///
/// # Errors
/// If there is not enough memory to decompress them.
pub fn held(intervals: &[RingInterval]) -> Result<LineReader> {
    let frames: Vec<u8> = intervals.iter().flat_map(|held| &held.frame).copied().collect();
    unpacked(CountingReader::new(Cursor::new(frames)))
}

/// The manifest of the recording at `path`. None: not a recording, or stdin.
///
/// # Errors
/// If it cannot be opened (an [`io::Error`] is the cause) or is damaged.
pub fn manifest(path: &Path) -> Result<Option<Manifest>> {
    plain(path, folder::MANIFEST)?.map(read_manifest).transpose()
}

fn read_manifest(file: impl Read) -> Result<Manifest> {
    let read = || {
        let mut bytes = Vec::new();
        file.take(MOST_MANIFEST).read_to_end(&mut bytes)?;
        ensure!((bytes.len() as u64) < MOST_MANIFEST, "it is longer than {MOST_MANIFEST} bytes");
        super::whole(&bytes)
    };
    read().context(folder::MANIFEST)
}

/// An uncompressed file of the recording: [`folder::MANIFEST`] or [`folder::HOST`]. None: not a recording, or stdin,
/// whose bytes can be read only once.
pub fn plain(path: &Path, name: &str) -> Result<Option<LineReader>> {
    let found = if path == Path::new("-") { return Ok(None) } else { fs::metadata(path)? };
    if found.is_dir() {
        return match folder::open(&path.join(name)) {
            Ok(file) => Ok(Some(Box::new(BufReader::new(file)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!(Absent(format!(
                    "it is not a recording: it has no {name}; name a folder that `biopsy record` made"
                )))
            }
            Err(error) => Err(error).context(name.to_string()),
        };
    }
    let mut head = [0; BLOCK];
    // Reading a pipe or a device could block.
    if !found.is_file() || File::open(path)?.read_exact(&mut head).is_err() || !is_archive(&head) {
        return Ok(None);
    }
    let archive = CountingReader::new(BufReader::new(File::open(path)?));
    Ok(Some(Box::new(member(archive, name, name)?)))
}

/// Error: the recording lacks the view. Says why, and which views it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent(String);

impl Absent {
    pub fn new(view: &str) -> Self {
        Self(format!("it has no {view}"))
    }

    pub(super) fn because(why: String) -> Self {
        Self(why)
    }
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Absent {}

fn of_folder(path: &Path, view: &str) -> Result<LineReader> {
    manifest(path)?;
    match folder::open(&path.join(folder::table(view))) {
        Ok(file) => of_stream(BufReader::new(file), view),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let names = fs::read_dir(path)?.flatten().map(|entry| entry.file_name().into_encoded_bytes());
            bail!(without(view, names))
        }
        Err(error) => Err(error).context(folder::table(view)),
    }
}

/// The error for a recording with these files.
pub(super) fn without(view: &str, names: impl Iterator<Item = Vec<u8>>) -> Absent {
    let is_stacks = |name: &[u8]| name == folder::STACKS.as_bytes() || folder::interval(name).is_some();
    let mut views: Vec<String> = names
        .filter_map(|name| match is_stacks(&name) {
            true => Some(folder::STACKS.to_string()),
            false => folder::view(&name).map(|view| view.escape_debug().to_string()),
        })
        .filter(|other| other != view)
        .collect();
    views.sort();
    views.dedup();
    Absent(match views.is_empty() {
        true => format!("it has no {view}: it is empty"),
        false => format!("it has no {view}, only {}", views.join(", ")),
    })
}

/// Whether this first block is that of a tar archive.
pub(super) fn is_archive(head: &[u8]) -> bool {
    let header = || Header::from_byte_slice(head);
    head.len() == BLOCK && (header().as_ustar().is_some() || header().as_gnu().is_some())
}

fn of_stream(stream: impl BufRead + Send + 'static, view: &str) -> Result<LineReader> {
    let (head, whole) = with_head(stream)?;
    if is_archive(&head) {
        return unpacked(member(whole, &folder::table(view), view)?);
    }
    if is_frame(&head) {
        return lines_alone(unpacked(whole)?);
    }
    refuse_compressed(&head)?;
    Ok(Box::new(whole))
}

/// The first block, and a reader of the whole stream.
pub(super) fn with_head(mut stream: impl BufRead) -> io::Result<(Vec<u8>, CountingReader<impl BufRead>)> {
    // A read from a pipe may return less than a block: read until it is full.
    let mut head = Vec::with_capacity(BLOCK);
    stream.by_ref().take(BLOCK as u64).read_to_end(&mut head)?;
    Ok((head.clone(), CountingReader::new(Cursor::new(head).chain(stream))))
}

fn is_frame(head: &[u8]) -> bool {
    head.starts_with(&FRAME)
        || head.first().is_some_and(|byte| byte >> 4 == 5) && head[1..].starts_with(&SKIPPABLE)
}

/// # Errors
/// If the data is compressed in a format that must be decompressed first.
pub fn refuse_compressed(head: &[u8]) -> Result<()> {
    let found = COMPRESSED.iter().find(|(begin, ..)| head.starts_with(begin));
    match found {
        Some((_, by, how)) => bail!("it is compressed by {by}: decompress it first (`{how}`)"),
        None => Ok(()),
    }
}

/// The decompressed lines, unless they are a tar archive.
fn lines_alone(mut lines: LineReader) -> Result<LineReader> {
    let mut head = Vec::with_capacity(BLOCK);
    let read = lines.by_ref().take(BLOCK as u64).read_to_end(&mut head);
    ensure!(
        !is_archive(&head),
        "it is a packed recording that is compressed by zstd: decompress it first (`zstd -d`)"
    );
    // A read error is returned after `head`, so that it is reported for its line.
    let rest = read.err().map_or(lines, |error| Box::new(BufReader::new(FailingReader(Some(error)))));
    Ok(Box::new(Cursor::new(head).chain(rest)))
}

/// A reader that returns this error once.
struct FailingReader(Option<io::Error>);

impl Read for FailingReader {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

fn unpacked<R: BufRead + Send + 'static>(frames: CountingReader<R>) -> Result<LineReader> {
    let mut decoder = zstd::Decoder::with_buffer(frames)?;
    decoder.window_log_max(WINDOW_LOG)?;
    Ok(Box::new(BufReader::new(FrameDecoder { decoder })))
}

/// The file of this name in an archive, in any folder.
fn member<R: BufRead + 'static>(
    mut archive: CountingReader<R>,
    name: &str,
    view: &str,
) -> Result<CountingReader<io::Take<R>>> {
    let mut names = Vec::new();
    while let Some(member) = next_member(&mut archive)? {
        if member.is_file && member.name() == name.as_bytes() {
            return Ok(CountingReader { inner: archive.inner.take(member.size), at: archive.at });
        }
        if names.len() < MOST_NAMED {
            names.push(member.name().to_vec());
        }
        pass(&mut archive, &member)?;
    }
    bail!(without(view, names.into_iter()))
}

/// Skips the data of a member and checks a manifest.
///
/// # Errors
/// If the data is truncated, or is a damaged manifest.
pub(super) fn pass(archive: &mut impl Read, member: &Member) -> Result<()> {
    let padded = member.padded()?;
    let mut bytes = archive.take(padded);
    let manifest = member.is_manifest().then(|| read_manifest(bytes.by_ref().take(member.size)));
    io::copy(&mut bytes, &mut io::sink())?;
    ensure!(bytes.limit() == 0, "{}: {} bytes are missing", member.damaged(), bytes.limit());
    manifest.transpose().map(|_| ())
}

/// The header of an archive's member.
pub(super) struct Member {
    /// Offset of the header in the archive.
    at: u64,
    pub path: Vec<u8>,
    pub is_file: bool,
    pub size: u64,
}

impl Member {
    /// Its file name without the folders.
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    pub fn damaged(&self) -> String {
        damaged(self.at)
    }

    pub fn is_manifest(&self) -> bool {
        self.is_file && self.name() == folder::MANIFEST.as_bytes()
    }

    /// Size of its data, padded to whole blocks.
    pub fn padded(&self) -> Result<u64> {
        self.size.checked_next_multiple_of(BLOCK as u64).with_context(|| self.damaged())
    }
}

fn damaged(at: u64) -> String {
    format!("it is damaged or truncated at byte {at}")
}

/// Reads the next member's header, before its data. None: the end of the archive.
pub(super) fn next_member(archive: &mut CountingReader<impl BufRead>) -> Result<Option<Member>> {
    let at = archive.at;
    let mut header = Header::new_old();
    let block = header.as_mut_bytes();
    archive.read_exact(block).map_err(|_| anyhow!(damaged(at)))?;
    if block.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    // tar computes the checksum with its own field as blanks.
    let sum: u32 = (0..)
        .zip(block.iter())
        .map(|(i, byte)| if (148..156).contains(&i) { 32 } else { u32::from(*byte) })
        .sum();
    ensure!(header.cksum().is_ok_and(|told| told == sum), damaged(at));
    let size = header.entry_size().map_err(|_| anyhow!(damaged(at)))?;
    let is_file = header.entry_type().is_file();
    Ok(Some(Member { at, path: header.path_bytes().into_owned(), is_file, size }))
}

/// A reader that counts the bytes read.
pub(super) struct CountingReader<R> {
    inner: R,
    pub at: u64,
}

impl<R> CountingReader<R> {
    pub fn new(inner: R) -> Self {
        Self { inner, at: 0 }
    }

    pub fn into_inner(self) -> R {
        self.inner
    }
}

impl<R: Seek> CountingReader<BufReader<R>> {
    pub fn seek_to(&mut self, at: u64) -> io::Result<()> {
        self.inner.seek_relative(at as i64 - self.at as i64)?;
        self.at = at;
        Ok(())
    }
}

impl<R: BufRead> Read for CountingReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl<R: BufRead> BufRead for CountingReader<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes as u64;
        self.inner.consume(bytes);
    }
}

/// Decompresses frames. An error includes its position.
struct FrameDecoder<R: BufRead> {
    decoder: zstd::Decoder<'static, CountingReader<R>>,
}

impl<R: BufRead> Read for FrameDecoder<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let at = self.decoder.get_ref().at;
        self.decoder.read(into).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("the frame at byte {at} or the next one is damaged or truncated ({error})"),
            )
        })
    }
}
