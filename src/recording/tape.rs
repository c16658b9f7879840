//! Where the lines of one view, or its files, go while it is recorded.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};

use super::folder;
use super::frame::{Frames, Packer};
use super::manifest::Recorded;
use super::ring::{Held, Ring};
use crate::envelope::Envelope;

/// Takes the lines of a view; of stacks the files, which are packed already.
pub struct Tape {
    /// None: of stacks.
    packer: Option<Packer>,
    to: To,
    pub recorded: Recorded,
}

enum To {
    /// A file, and the bytes of all views.
    File {
        frames: Frames,
        path: PathBuf,
        total: Arc<AtomicU64>,
    },
    /// A folder of files, one for each interval.
    Files {
        folder: PathBuf,
        total: Arc<AtomicU64>,
    },
    Memory(Arc<Mutex<Ring>>),
}

impl Tape {
    /// Into a file in the folder of a recording. `total` counts the bytes of all views.
    pub fn create(folder: &Path, view: &str, total: &Arc<AtomicU64>) -> Result<Self> {
        if view == folder::STACKS {
            return Self::new(view, To::Files { folder: create_stacks(folder)?, total: Arc::clone(total) });
        }
        let path = folder.join(folder::table(view));
        let frames = Frames::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Self::new(view, To::File { frames, path, total: Arc::clone(total) })
    }

    /// Into memory.
    pub fn hold(view: &str, ring: &Arc<Mutex<Ring>>) -> Result<Self> {
        Self::new(view, To::Memory(Arc::clone(ring)))
    }

    fn new(view: &str, to: To) -> Result<Self> {
        let is_packed = view == folder::STACKS;
        let packer = (!is_packed).then(Packer::new).transpose().context("cannot compress")?;
        Ok(Self { packer, to, recorded: Recorded::default() })
    }

    /// Appends the line, or the file, of an interval that has ended at `end_ns`.
    pub fn add(&mut self, bytes: &[u8], envelope: &Envelope, end_ns: u64) -> Result<()> {
        let lost = &envelope.lost;
        let frame = match &mut self.packer {
            Some(packer) => packer.frame(bytes).context("cannot compress a line")?,
            None => bytes.to_vec(),
        };
        let failed = |path: &Path| {
            format!("cannot write {}: free some space; what was recorded before can be read", path.display())
        };
        match &mut self.to {
            To::File { frames, path, total } => {
                frames.add(&frame).with_context(|| failed(path))?;
                total.fetch_add(frame.len() as u64, Ordering::Relaxed);
                self.recorded.add(frame.len(), lost);
            }
            To::Files { folder, total } => {
                let path = folder.join(folder::profile(self.recorded.intervals));
                folder::write(&path, &frame).with_context(|| failed(&path))?;
                total.fetch_add(frame.len() as u64, Ordering::Relaxed);
                self.recorded.add(frame.len(), lost);
            }
            To::Memory(ring) => {
                let mut ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
                ring.add(Held { end_ns, start: envelope.start.clone(), frame, lost: lost.clone() });
            }
        }
        Ok(())
    }
}

/// Writes what was held of a view into the folder of a recording.
pub fn dump(folder: &Path, view: &str, held: &[Held]) -> Result<Recorded> {
    let mut recorded = Recorded::default();
    if view == folder::STACKS {
        let stacks = create_stacks(folder)?;
        for Held { frame, lost, .. } in held {
            let path = stacks.join(folder::profile(recorded.intervals));
            folder::write(&path, frame).with_context(|| format!("cannot write {}", path.display()))?;
            recorded.add(frame.len(), lost);
        }
        return Ok(recorded);
    }
    let path = folder.join(folder::table(view));
    let failed = || format!("cannot write {}", path.display());
    let mut frames = Frames::create(&path).with_context(failed)?;
    for Held { frame, lost, .. } in held {
        frames.add(frame).with_context(failed)?;
        recorded.add(frame.len(), lost);
    }
    Ok(recorded)
}

fn create_stacks(folder: &Path) -> Result<PathBuf> {
    let path = folder.join(folder::STACKS);
    let made = DirBuilder::new().mode(0o700).create(&path);
    made.with_context(|| format!("cannot make {}", path.display()))?;
    Ok(path)
}
