//! Where the lines of a view are: in a recording's folder, in one that was packed, in a file, or on stdin.

use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tar::Header;

use super::folder;
use super::manifest::Manifest;
use super::ring::Held;

/// Begin of a frame of zstd, and the last three bytes of the begin of one that is to be skipped (RFC 8878).
const FRAME: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
const SKIPPABLE: [u8; 3] = [0x2A, 0x4D, 0x18];

/// How files begin that no view reads: what compressed them, and what decompresses them.
const COMPRESSED: [(&[u8], &str, &str); 5] = [
    (b"\x1f\x8b", "gzip", "gzip -d"),
    (b"\xfd7zXZ\0", "xz", "xz -d"),
    (b"BZh", "bzip2", "bzip2 -d"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4 -d"),
    (b"PK\x03\x04", "zip", "unzip"),
];

/// A block of tar: a header, or a part of a file.
pub(super) const BLOCK: usize = 512;

/// Other names of an archive that are looked through for what it has in place of a view.
pub(super) const MOST_NAMED: usize = 10_000;

/// Memory that a frame may ask for, as a power of two: 32 MiB. Ours have 2 MiB.
const WINDOW_LOG: u32 = 25;

/// Bytes of a manifest: labels and arguments are a user's.
const MOST_MANIFEST: u64 = 1 << 20;

/// Lines that can be read.
pub type Lines = Box<dyn BufRead + Send>;

/// The lines of `view` in what lies at `path`; `-` is stdin.
///
/// # Errors
/// Where it cannot be opened (an [`io::Error`] is the cause), is damaged, or is a recording without the view.
pub fn open(path: &Path, view: &str) -> Result<Lines> {
    if path == Path::new("-") {
        return of_stream(BufReader::new(io::stdin()), view);
    }
    if fs::metadata(path)?.is_dir() {
        return of_folder(path, view);
    }
    of_stream(BufReader::new(File::open(path)?), view)
}

/// The lines of intervals that are held in memory.
///
/// # Errors
/// Where there is no memory to unpack them.
pub fn held(intervals: &[Held]) -> Result<Lines> {
    let frames: Vec<u8> = intervals.iter().flat_map(|held| &held.frame).copied().collect();
    unpacked(Counted::new(Cursor::new(frames)))
}

/// The manifest of the recording that lies at `path`; None: it is none, or stdin.
///
/// # Errors
/// Where it cannot be opened (an [`io::Error`] is the cause) or is damaged.
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

/// A file of the recording that is not compressed: [`folder::MANIFEST`] or [`folder::HOST`]. None: it is no recording, or
/// stdin, of which the bytes would be gone.
pub fn plain(path: &Path, name: &str) -> Result<Option<Lines>> {
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
    // Anything else could keep us waiting.
    if !found.is_file() || File::open(path)?.read_exact(&mut head).is_err() || !is_archive(&head) {
        return Ok(None);
    }
    let archive = Counted::new(BufReader::new(File::open(path)?));
    Ok(Some(Box::new(member(archive, name, name)?)))
}

/// It has no such view: why, and what it has.
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

fn of_folder(path: &Path, view: &str) -> Result<Lines> {
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

/// What to say of a recording with these files.
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

/// Whether a file with this first block is an archive of tar.
pub(super) fn is_archive(head: &[u8]) -> bool {
    let header = || Header::from_byte_slice(head);
    head.len() == BLOCK && (header().as_ustar().is_some() || header().as_gnu().is_some())
}

fn of_stream(stream: impl BufRead + Send + 'static, view: &str) -> Result<Lines> {
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

/// The first block, and all of it.
pub(super) fn with_head(mut stream: impl BufRead) -> io::Result<(Vec<u8>, Counted<impl BufRead>)> {
    // A pipe gives what there is.
    let mut head = Vec::with_capacity(BLOCK);
    stream.by_ref().take(BLOCK as u64).read_to_end(&mut head)?;
    Ok((head.clone(), Counted::new(Cursor::new(head).chain(stream))))
}

fn is_frame(head: &[u8]) -> bool {
    head.starts_with(&FRAME)
        || head.first().is_some_and(|byte| byte >> 4 == 5) && head[1..].starts_with(&SKIPPABLE)
}

/// # Errors
/// Where it begins as something that is to be decompressed first.
pub fn refuse_compressed(head: &[u8]) -> Result<()> {
    let found = COMPRESSED.iter().find(|(begin, ..)| head.starts_with(begin));
    match found {
        Some((_, by, how)) => bail!("it is compressed by {by}: decompress it first (`{how}`)"),
        None => Ok(()),
    }
}

/// What frames hold, unless that is a whole recording.
fn lines_alone(mut lines: Lines) -> Result<Lines> {
    let mut head = Vec::with_capacity(BLOCK);
    let read = lines.by_ref().take(BLOCK as u64).read_to_end(&mut head);
    ensure!(
        !is_archive(&head),
        "it is a packed recording that is compressed by zstd: decompress it first (`zstd -d`)"
    );
    // An error is of the line in which it is.
    let rest = read.err().map_or(lines, |error| Box::new(BufReader::new(Broken(Some(error)))));
    Ok(Box::new(Cursor::new(head).chain(rest)))
}

/// What could not be read.
struct Broken(Option<io::Error>);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

fn unpacked<R: BufRead + Send + 'static>(frames: Counted<R>) -> Result<Lines> {
    let mut decoder = zstd::Decoder::with_buffer(frames)?;
    decoder.window_log_max(WINDOW_LOG)?;
    Ok(Box::new(BufReader::new(Unpacked { decoder })))
}

/// The file of that name in an archive, in whichever folder it is there.
fn member<R: BufRead + 'static>(
    mut archive: Counted<R>,
    name: &str,
    view: &str,
) -> Result<Counted<io::Take<R>>> {
    let mut names = Vec::new();
    while let Some(member) = next_member(&mut archive)? {
        if member.is_file && member.name() == name.as_bytes() {
            return Ok(Counted { inner: archive.inner.take(member.size), at: archive.at });
        }
        if names.len() < MOST_NAMED {
            names.push(member.name().to_vec());
        }
        pass(&mut archive, &member)?;
    }
    bail!(without(view, names.into_iter()))
}

/// Goes on behind a member whose bytes follow.
///
/// # Errors
/// Where they are cut off, or are those of a damaged manifest.
pub(super) fn pass(archive: &mut impl Read, member: &Member) -> Result<()> {
    let padded = member.padded()?;
    let mut bytes = archive.take(padded);
    let manifest = member.is_manifest().then(|| read_manifest(bytes.by_ref().take(member.size)));
    io::copy(&mut bytes, &mut io::sink())?;
    ensure!(bytes.limit() == 0, "{}: {} bytes are missing", member.damaged(), bytes.limit());
    manifest.transpose().map(|_| ())
}

/// What the header of a member of an archive says.
pub(super) struct Member {
    /// Of the header.
    at: u64,
    pub path: Vec<u8>,
    pub is_file: bool,
    pub size: u64,
}

impl Member {
    /// Without the folders.
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    pub fn damaged(&self) -> String {
        damaged(self.at)
    }

    pub fn is_manifest(&self) -> bool {
        self.is_file && self.name() == folder::MANIFEST.as_bytes()
    }

    /// Bytes up to the next one.
    pub fn padded(&self) -> Result<u64> {
        self.size.checked_next_multiple_of(BLOCK as u64).with_context(|| self.damaged())
    }
}

fn damaged(at: u64) -> String {
    format!("it is damaged or truncated at byte {at}")
}

/// The next member, whose bytes follow; None: the archive ends here.
pub(super) fn next_member(archive: &mut Counted<impl BufRead>) -> Result<Option<Member>> {
    let at = archive.at;
    let mut header = Header::new_old();
    let block = header.as_mut_bytes();
    archive.read_exact(block).map_err(|_| anyhow!(damaged(at)))?;
    if block.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    // The field of the sum itself counts as blanks.
    let sum: u32 = (0..)
        .zip(block.iter())
        .map(|(i, byte)| if (148..156).contains(&i) { 32 } else { u32::from(*byte) })
        .sum();
    ensure!(header.cksum().is_ok_and(|told| told == sum), damaged(at));
    let size = header.entry_size().map_err(|_| anyhow!(damaged(at)))?;
    let is_file = header.entry_type().is_file();
    Ok(Some(Member { at, path: header.path_bytes().into_owned(), is_file, size }))
}

/// Knows how far it was read.
pub(super) struct Counted<R> {
    inner: R,
    pub at: u64,
}

impl<R> Counted<R> {
    pub fn new(inner: R) -> Self {
        Self { inner, at: 0 }
    }

    pub fn into_inner(self) -> R {
        self.inner
    }
}

impl<R: Seek> Counted<BufReader<R>> {
    pub fn seek_to(&mut self, at: u64) -> io::Result<()> {
        self.inner.seek_relative(at as i64 - self.at as i64)?;
        self.at = at;
        Ok(())
    }
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes as u64;
        self.inner.consume(bytes);
    }
}

/// What frames hold. An error says where it is.
struct Unpacked<R: BufRead> {
    decoder: zstd::Decoder<'static, Counted<R>>,
}

impl<R: BufRead> Read for Unpacked<R> {
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
