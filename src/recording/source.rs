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

/// Begin of a frame of zstd.
const FRAME: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

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
    let Some(file) = plain(path, folder::MANIFEST)? else { return Ok(None) };
    let mut bytes = Vec::new();
    let read = file.take(MOST_MANIFEST).read_to_end(&mut bytes).context(folder::MANIFEST)?;
    ensure!((read as u64) < MOST_MANIFEST, "{} is longer than {} bytes", folder::MANIFEST, MOST_MANIFEST);
    serde_json::from_slice(&bytes).map(Some).context(folder::MANIFEST)
}

/// A file of the recording that is not compressed: [`folder::MANIFEST`] or [`folder::HOST`]. None: it is no recording, or
/// stdin, of which the bytes would be gone.
pub fn plain(path: &Path, name: &str) -> Result<Option<Lines>> {
    let found = if path == Path::new("-") { return Ok(None) } else { fs::metadata(path)? };
    if found.is_dir() {
        return match folder::open(&path.join(name)) {
            Ok(file) => Ok(Some(Box::new(BufReader::new(file)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!(Absent(format!("it is no recording: {name} is not in it")))
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
    ensure!(path.join(folder::MANIFEST).is_file(), "it is no recording: {} is not in it", folder::MANIFEST);
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
        false => format!("it has no {view}, but {}", views.join(", ")),
    })
}

/// Whether a file with this first block is an archive of tar.
pub(super) fn is_archive(head: &[u8]) -> bool {
    let header = || Header::from_byte_slice(head);
    head.len() == BLOCK && (header().as_ustar().is_some() || header().as_gnu().is_some())
}

fn of_stream(mut stream: impl BufRead + Send + 'static, view: &str) -> Result<Lines> {
    // A pipe gives what there is.
    let mut head = Vec::with_capacity(BLOCK);
    stream.by_ref().take(BLOCK as u64).read_to_end(&mut head)?;
    let is_tar = is_archive(&head);
    let is_packed = head.starts_with(&FRAME);
    let whole = Counted { inner: Cursor::new(head).chain(stream), at: 0 };
    match (is_tar, is_packed) {
        (true, _) => unpacked(member(whole, &folder::table(view), view)?),
        (_, true) => unpacked(whole),
        _ => Ok(Box::new(whole)),
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
        let damaged = || member.damaged();
        let padded = member.size.checked_next_multiple_of(BLOCK as u64).with_context(damaged)?;
        let skipped = io::copy(&mut archive.by_ref().take(padded), &mut io::sink())?;
        ensure!(skipped == padded, "{}: {} bytes are missing", damaged(), padded - skipped);
    }
    bail!(without(view, names.into_iter()))
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
}

fn damaged(at: u64) -> String {
    format!("it is damaged or cut off at byte {at}")
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
                format!("the frame at byte {at} or behind it is damaged or cut off ({error})"),
            )
        })
    }
}
