//! Recordings of any bytes: a file, an archive and a folder, read by each view, as a machine and as stacks.
//!
//! The first byte says which of them the others are. The sums of an archive's headers are made right: nearly
//! all mutations would end there.

#![no_main]

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use biopsy::analyze::devices::HostSummary;
use biopsy::envelope::{Envelope, View};
use biopsy::merge::Summary;
use biopsy::recording::stacks::Profiles;
use biopsy::recording::tape::Tape;
use biopsy::recording::{Pieces, Span, folder, pack, source};
use biopsy::render::pprof::reading::{PprofFile, unpacked};
use biopsy_fuzz::views;
use libfuzzer_sys::fuzz_target;

const BLOCK: usize = 512;
/// Where the sum is in a header, in octal digits.
const SUM: std::ops::Range<usize> = 148..156;

/// Bytes of a profile; it has a target of its own.
const MOST_PROFILE: usize = 1 << 16;

/// What is between the parts of a folder.
const SEPARATOR: &[u8] = b"\xff\xfe\xfd";

static PLACE: LazyLock<PathBuf> = LazyLock::new(|| {
    let place = std::env::temp_dir().join(format!("biopsy-fuzz-{}", std::process::id()));
    fs::create_dir_all(&place).expect("the folder for temporary files can be written");
    place
});

struct Recording<'a>(&'a Path);

impl views::Each for Recording<'_> {
    fn view<V: View + Summary + Clone + PartialEq + Debug>(
        &mut self,
        name: &str,
        show: fn(&Envelope, &V, Option<i32>) -> String,
    ) {
        if let Ok(lines) = source::open(self.0, name) {
            views::read(lines, Span::default(), show);
        }
    }
}

fn read(path: &Path) {
    let _manifest = source::manifest(path);
    if let Ok(Some(lines)) = source::plain(path, folder::HOST) {
        let _host = Pieces::new(lines, Span::default()).read::<HostSummary>();
    }
    views::each(&mut Recording(path));
    if let Ok(Some(mut profiles)) = Profiles::open(path) {
        while let Ok(Some((_, bytes))) = profiles.next(MOST_PROFILE) {
            let bytes = bytes.and_then(unpacked);
            let _read = bytes.as_ref().map(|bytes| PprofFile::new(bytes).is_ok());
        }
    }
}

/// Writes the right sum into what may be a header. The sum's own field counts as blanks.
fn mend(archive: &mut [u8]) {
    for header in archive.chunks_exact_mut(BLOCK).filter(|block| block[257..].starts_with(b"ustar")) {
        header[SUM].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}

/// Each part begins with a byte that says which file it is.
fn make(recording: &Path, parts: &[u8]) -> Option<()> {
    fs::create_dir_all(recording.join(folder::STACKS)).ok()?;
    let mut rest = parts;
    while !rest.is_empty() {
        let end = rest.windows(SEPARATOR.len()).position(|bytes| bytes == SEPARATOR).unwrap_or(rest.len());
        let (part, behind) = rest.split_at(end);
        rest = behind.get(SEPARATOR.len()..).unwrap_or_default();
        let Some((kind, bytes)) = part.split_first() else { continue };
        let view = ["latency", "interrupts", "locks", "threads", "errors", "top"][usize::from(kind % 6)];
        let table = recording.join(folder::table(view));
        match kind / 6 % 5 {
            0 => fs::write(recording.join(folder::MANIFEST), bytes).ok()?,
            1 => fs::write(recording.join(folder::HOST), bytes).ok()?,
            2 => fs::write(recording.join(folder::STACKS).join(folder::profile(u64::from(*kind))), bytes)
                .ok()?,
            // Frames as they are, or bytes in a frame.
            3 => fs::write(table, bytes).ok()?,
            _ => {
                let _old = fs::remove_file(&table);
                let mut tape = Tape::create(recording, view, &Default::default()).ok()?;
                tape.add(bytes, &Envelope::default(), 0).ok()?;
            }
        }
    }
    Some(())
}

fuzz_target!(|data: &[u8]| {
    let Some((form, bytes)) = data.split_first() else { return };
    let path = PLACE.join("recording");
    match form % 3 {
        0 => {
            fs::write(&path, bytes).expect("a file can be written");
            read(&path);
        }
        1 => {
            let mut archive = bytes.to_vec();
            mend(&mut archive);
            fs::write(&path, archive).expect("a file can be written");
            read(&path);
        }
        _ => {
            let recording = PLACE.join("run");
            let _old = fs::remove_dir_all(&recording);
            if make(&recording, bytes).is_some() {
                read(&recording);
                let mut archive = Vec::new();
                if pack::pack(&recording, "run", &mut archive).is_ok() {
                    fs::write(&path, archive).expect("a file can be written");
                    read(&path);
                }
            }
        }
    }
});
