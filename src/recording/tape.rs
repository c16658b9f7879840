//! Where the lines of one view go while it is recorded.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};

use super::folder;
use super::frame::{Frames, Packer};
use super::manifest::Recorded;
use super::ring::{Held, Ring};
use crate::envelope::Envelope;

/// Takes the lines of a view.
pub struct Tape {
    packer: Packer,
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
    Memory(Arc<Mutex<Ring>>),
}

impl Tape {
    /// Into a file in the folder of a recording. `total` counts the bytes of all views.
    pub fn create(folder: &Path, view: &str, total: &Arc<AtomicU64>) -> Result<Self> {
        let path = folder.join(folder::table(view));
        let frames = Frames::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        Self::new(To::File { frames, path, total: Arc::clone(total) })
    }

    /// Into memory.
    pub fn hold(ring: &Arc<Mutex<Ring>>) -> Result<Self> {
        Self::new(To::Memory(Arc::clone(ring)))
    }

    fn new(to: To) -> Result<Self> {
        let packer = Packer::new().context("cannot compress")?;
        Ok(Self { packer, to, recorded: Recorded::default() })
    }

    /// Appends the line of an interval that has ended at `end_ns`.
    pub fn add(&mut self, line: &[u8], envelope: &Envelope, end_ns: u64) -> Result<()> {
        let lost = &envelope.lost;
        let frame = self.packer.frame(line).context("cannot compress a line")?;
        match &mut self.to {
            To::File { frames, path, total } => {
                frames.add(&frame).with_context(|| {
                    format!(
                        "cannot write {}: free some space; what was recorded before can be read",
                        path.display()
                    )
                })?;
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
    let path = folder.join(folder::table(view));
    let failed = || format!("cannot write {}", path.display());
    let mut frames = Frames::create(&path).with_context(failed)?;
    let mut recorded = Recorded::default();
    for Held { frame, lost, .. } in held {
        frames.add(frame).with_context(failed)?;
        recorded.add(frame.len(), lost);
    }
    Ok(recorded)
}
