//! Reads the stacks of a recording, one profile per interval, from its folder or from a packed recording. An archive is
//! never extracted to disk, so a path in it is only a name.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::vec;

use anyhow::{Context, Result, bail, ensure};

use super::folder;
use super::ring::RingInterval;
use super::source::{self, CountingReader, LineReader};

/// At one interval a second: 48 days. Each takes 24 bytes.
const MOST_INTERVALS: usize = 1 << 22;

/// The profiles of a recording, in the order of their intervals.
pub struct Profiles {
    place: StackStore,
    /// Numbers of the intervals, and where each is in an archive. Empty for a stream.
    all: vec::IntoIter<(u64, ByteRange)>,
}

enum StackStore {
    Folder(PathBuf),
    Archive(File),
    Memory(Vec<RingInterval>),
    Stream(Stream),
}

/// An archive that is read once, from its start.
struct Stream {
    archive: CountingReader<LineReader>,
    /// The number of the interval read last.
    last: Option<u64>,
    /// Names of other files, for the error.
    others: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct ByteRange {
    at: u64,
    size: u64,
}

impl Profiles {
    /// Opens the recording at `path`; `-` is stdin. None: missing, not accessible, or not a recording.
    ///
    /// # Errors
    /// If it is damaged, or is a recording without stacks. Stdin must be a packed recording.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        if path == Path::new("-") {
            return Self::of_stream(BufReader::new(io::stdin())).map(Some);
        }
        let Ok(found) = fs::metadata(path) else { return Ok(None) };
        if found.is_dir() {
            return match path.join(folder::MANIFEST).is_file() {
                true => Self::of_folder(path).map(Some),
                false => Ok(None),
            };
        }
        // Reading a pipe or a device could block.
        if !found.is_file() {
            return Ok(None);
        }
        let Ok(mut file) = File::open(path) else { return Ok(None) };
        let mut head = Vec::new();
        file.by_ref().take(source::BLOCK as u64).read_to_end(&mut head)?;
        if !source::is_archive(&head) {
            return Ok(None);
        }
        file.rewind()?;
        Self::of_archive(file, found.len()).map(Some)
    }

    /// The profiles of intervals in memory.
    ///
    /// # Errors
    /// If there are none.
    pub fn held(intervals: Vec<RingInterval>) -> Result<Self> {
        let all = (0..).take(intervals.len()).map(|number| (number, ByteRange::default())).collect();
        Self::new(StackStore::Memory(intervals), all, std::iter::empty())
    }

    fn of_stream(stream: impl BufRead + Send + 'static) -> Result<Self> {
        let (head, whole) = source::with_head(stream)?;
        source::refuse_compressed(&head)?;
        ensure!(
            source::is_archive(&head),
            "it is not a packed recording: give the output of `biopsy pack DIR -o -`, or name a file with -i"
        );
        let archive = CountingReader::new(Box::new(whole) as LineReader);
        let stream = Stream { archive, last: None, others: Vec::new() };
        Ok(Self { place: StackStore::Stream(stream), all: Vec::new().into_iter() })
    }

    fn of_folder(path: &Path) -> Result<Self> {
        source::manifest(path)?;
        let stacks = path.join(folder::STACKS);
        let mut all = Vec::new();
        let entries = match fs::read_dir(&stacks) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let names = fs::read_dir(path)?.flatten().map(|entry| entry.file_name().into_encoded_bytes());
                bail!(source::without(folder::STACKS, names))
            }
            Err(error) => return Err(error).context(folder::STACKS),
        };
        for entry in entries {
            let name = entry.context(folder::STACKS)?.file_name();
            if let Some(number) = folder::interval(name.as_encoded_bytes()) {
                add(&mut all, number, ByteRange::default())?;
            }
        }
        Self::new(StackStore::Folder(stacks), all, std::iter::empty())
    }

    fn of_archive(file: File, length: u64) -> Result<Self> {
        let mut archive = CountingReader::new(BufReader::new(file));
        let (mut all, mut others) = (Vec::new(), Vec::new());
        while let Some(member) = source::next_member(&mut archive)? {
            let damaged = || member.damaged();
            let end = archive.at.checked_add(member.padded()?).with_context(damaged)?;
            if let Some(number) = member.is_file.then(|| interval(&member.path)).flatten() {
                add(&mut all, number, ByteRange { at: archive.at, size: member.size })?;
                // Truncated within this member: the error appears when it is read.
                if archive.at.saturating_add(member.size) > length {
                    break;
                }
            } else if others.len() < source::MOST_NAMED {
                others.push(member.name().to_vec());
            }
            ensure!(end <= length, "{}: {} bytes are missing", damaged(), end - length);
            if member.is_manifest() {
                source::pass(&mut archive, &member)?;
            }
            archive.seek_to(end)?;
        }
        Self::new(StackStore::Archive(archive.into_inner().into_inner()), all, others.into_iter())
    }

    fn new(
        place: StackStore,
        mut all: Vec<(u64, ByteRange)>,
        others: impl Iterator<Item = Vec<u8>>,
    ) -> Result<Self> {
        ensure!(!all.is_empty(), source::without(folder::STACKS, others));
        all.sort_unstable();
        if let Some([(number, _), _]) =
            all.windows(2).find(|pair| pair[0].0 == pair[1].0).and_then(<[_]>::first_chunk)
        {
            bail!("two of its files are {}", name(*number));
        }
        Ok(Self { place, all: all.into_iter() })
    }

    /// The name and the bytes of the next profile, which may have at most `most` bytes. None: the end.
    ///
    /// # Errors
    /// If the next profile cannot be found.
    pub fn next(&mut self, most: usize) -> Result<Option<(String, Result<Vec<u8>>)>> {
        if let StackStore::Stream(stream) = &mut self.place {
            return stream.next(most);
        }
        let Some((number, extent)) = self.all.next() else { return Ok(None) };
        Ok(Some((name(number), self.bytes(number, extent, most))))
    }

    fn bytes(&mut self, number: u64, extent: ByteRange, most: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match &mut self.place {
            StackStore::Stream(_) => {}
            StackStore::Folder(stacks) => {
                let file = folder::open(&stacks.join(folder::profile(number)))?;
                file.take(most as u64 + 1).read_to_end(&mut bytes)?;
            }
            StackStore::Memory(intervals) => {
                let held = usize::try_from(number).ok().and_then(|number| intervals.get(number));
                held.iter().for_each(|held| bytes.extend_from_slice(&held.frame));
            }
            StackStore::Archive(file) => {
                file.seek(SeekFrom::Start(extent.at))?;
                bytes = part(file, extent.size, most)?;
            }
        }
        ensure!(bytes.len() <= most, "it has more than {} MiB", most >> 20);
        Ok(bytes)
    }
}

impl Stream {
    fn next(&mut self, most: usize) -> Result<Option<(String, Result<Vec<u8>>)>> {
        while let Some(member) = source::next_member(&mut self.archive)? {
            let Some(number) = member.is_file.then(|| interval(&member.path)).flatten() else {
                source::pass(&mut self.archive, &member)?;
                if self.others.len() < source::MOST_NAMED {
                    self.others.push(member.name().to_vec());
                }
                continue;
            };
            ensure!(
                self.last.is_none_or(|last| last < number),
                "{} is out of order: write the recording to a file, and name that with -i",
                name(number)
            );
            self.last = Some(number);
            let mut rest = self.archive.by_ref().take(member.padded()?);
            let bytes = part(&mut rest, member.size, most);
            // If the archive is truncated here, reading the next header reports it.
            io::copy(&mut rest, &mut io::sink())?;
            return Ok(Some((name(number), bytes)));
        }
        ensure!(self.last.is_some(), source::without(folder::STACKS, self.others.drain(..)));
        Ok(None)
    }
}

/// Reads the data of an archive's member.
fn part(archive: impl Read, size: u64, most: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    ensure!(size <= most as u64, "it has more than {} MiB", most >> 20);
    archive.take(size).read_to_end(&mut bytes)?;
    let missing = size - bytes.len() as u64;
    ensure!(missing == 0, "it is truncated: {missing} bytes are missing");
    Ok(bytes)
}

fn name(number: u64) -> String {
    format!("{}/{}", folder::STACKS, folder::profile(number))
}

/// The interval of a path in an archive.
fn interval(path: &[u8]) -> Option<u64> {
    let mut names = path.rsplit(|byte| *byte == b'/');
    let number = folder::interval(names.next()?)?;
    (names.next()? == folder::STACKS.as_bytes()).then_some(number)
}

fn add(all: &mut Vec<(u64, ByteRange)>, number: u64, extent: ByteRange) -> Result<()> {
    ensure!(all.len() < MOST_INTERVALS, "it has stacks of more than {MOST_INTERVALS} intervals");
    all.push((number, extent));
    Ok(())
}
