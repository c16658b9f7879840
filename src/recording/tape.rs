//! Stores the lines or files of one view while it is recorded.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};

use super::folder;
use super::frame::{Frames, Packer};
use super::manifest::RecordedView;
use super::redact::Redactor;
use super::ring::{IntervalRing, RingInterval};
use crate::envelope::{Envelope, Lost};

/// Receives the lines of a view. For stacks it receives files, which are already compressed.
pub struct Tape {
    /// None: stacks.
    packer: Option<Packer>,
    to: To,
    redactor: Option<Arc<Redactor>>,
    pub recorded: RecordedView,
}

enum To {
    /// The files of the view, and the bytes of all views.
    Disk(ViewStore, Arc<AtomicU64>),
    Memory(Arc<Mutex<IntervalRing>>),
}

impl Tape {
    /// Writes into the folder of a recording. `total` counts the bytes of all views.
    pub fn create(folder: &Path, view: &str, total: &Arc<AtomicU64>) -> Result<Self> {
        Self::new(view, To::Disk(ViewStore::create(folder, view)?, Arc::clone(total)))
    }

    /// Keeps the intervals in memory.
    pub fn hold(view: &str, ring: &Arc<Mutex<IntervalRing>>) -> Result<Self> {
        Self::new(view, To::Memory(Arc::clone(ring)))
    }

    fn new(view: &str, to: To) -> Result<Self> {
        let is_compressed = view == folder::STACKS;
        let packer = (!is_compressed).then(Packer::new).transpose().context("cannot compress")?;
        Ok(Self { packer, to, redactor: None, recorded: RecordedView::default() })
    }

    /// Replaces names in the lines if a redactor is given.
    pub fn redacted(self, redactor: Option<Arc<Redactor>>) -> Self {
        Self { redactor, ..self }
    }

    /// Appends the line or file of an interval that ended at `end_ns`.
    pub fn add(&mut self, bytes: &[u8], envelope: &Envelope, end_ns: u64) -> Result<()> {
        let lines = self.redactor.as_ref().map(|redactor| redactor.lines(bytes)).transpose()?;
        let bytes = lines.as_deref().unwrap_or(bytes);
        let frame = match &mut self.packer {
            Some(packer) => packer.frame(bytes).context("cannot compress a line")?,
            None => bytes.to_vec(),
        };
        let lost = &envelope.lost;
        match &mut self.to {
            To::Disk(table, total) => {
                table.add(&frame, lost, &mut self.recorded)?;
                total.fetch_add(frame.len() as u64, Ordering::Relaxed);
            }
            To::Memory(ring) => {
                let mut ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
                ring.add(RingInterval { end_ns, start: envelope.start.clone(), frame, lost: lost.clone() });
            }
        }
        Ok(())
    }
}

/// Writes the intervals of a view from memory into the folder of a recording.
pub fn dump(folder: &Path, view: &str, held: &[RingInterval]) -> Result<RecordedView> {
    let mut recorded = RecordedView::default();
    let mut table = ViewStore::create(folder, view)?;
    held.iter().try_for_each(|held| table.add(&held.frame, &held.lost, &mut recorded))?;
    Ok(recorded)
}

/// The storage of a view in the folder of a recording.
enum ViewStore {
    /// One file of frames.
    Frames(Frames, PathBuf),
    /// A folder with one file per interval.
    Files(PathBuf),
}

impl ViewStore {
    fn create(folder: &Path, view: &str) -> Result<Self> {
        if view == folder::STACKS {
            let path = folder.join(folder::STACKS);
            let made = DirBuilder::new().mode(0o700).create(&path);
            made.with_context(|| format!("cannot make {}", path.display()))?;
            return Ok(Self::Files(path));
        }
        let path = folder.join(folder::table(view));
        let frames = Frames::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self::Frames(frames, path))
    }

    /// Writes an interval and counts it.
    fn add(&mut self, frame: &[u8], lost: &Lost, recorded: &mut RecordedView) -> Result<()> {
        let failed = |path: &Path| {
            format!("cannot write {}: free some space; the part recorded before can be read", path.display())
        };
        match self {
            Self::Frames(frames, path) => frames.add(frame).with_context(|| failed(path))?,
            Self::Files(folder) => {
                let path = folder.join(folder::profile(recorded.intervals));
                folder::write(&path, frame).with_context(|| failed(&path))?;
            }
        }
        recorded.add(frame.len(), lost);
        Ok(())
    }
}
