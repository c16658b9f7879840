//! Opens the devices and files of all jobs, once each, and creates missing files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::direct::Facts;
use super::guard::{self, GuardedTarget, Permission};
use super::job::{self, Direction, Job, Target};
use super::scratch;
use crate::refusal::Refusal;

/// The open targets. Only the jobs of this run share a target that one of them writes.
#[derive(Debug, Default)]
pub struct Targets {
    open: Vec<(DescriptorKey, Arc<GuardedTarget>)>,
    /// Created files that must be filled, with their length.
    unfilled: Vec<(PathBuf, Arc<GuardedTarget>, u64)>,
}

/// Two jobs share a descriptor if they have the same path and agree on write access, direct I/O and command
/// passthrough.
#[derive(Debug, Clone, PartialEq)]
struct DescriptorKey {
    path: PathBuf,
    writes: bool,
    direct: bool,
    commands: bool,
    null: bool,
}

impl DescriptorKey {
    fn new(path: &Path, job: &Job) -> Self {
        Self {
            path: path.to_path_buf(),
            writes: job.rw.writes(),
            direct: job.direct,
            commands: job.engine == job::Engine::IoUringCmd,
            null: job.engine == job::Engine::Null,
        }
    }
}

/// What all jobs together need of a file that has to be created.
#[derive(Debug, Default, PartialEq, Eq)]
struct Need {
    /// None where no job sets it.
    length: Option<u64>,
    /// For the jobs that write: only these extend an existing file.
    written: Option<u64>,
    /// The file must be filled, because blocks without content are read without any I/O.
    filled: bool,
}

impl Need {
    fn of(path: &Path, jobs: &[Job]) -> Self {
        let place = place(path);
        let uses = |job: &&Job| {
            let same =
                |target: &Target| matches!(target, Target::Existing(path) if self::place(path) == place);
            job.engine != job::Engine::Null && job.targets.iter().any(same)
        };
        jobs.iter().filter(uses).fold(Self::default(), |need, job| {
            let length = job.file_length();
            Self {
                length: need.length.max(length),
                written: need.written.max(length.filter(|_| job.rw.writes())),
                filled: need.filled || job.rw.has(Direction::Read) || job.overwrite,
            }
        })
    }
}

/// The canonical path of a file, even if it does not exist yet.
fn place(path: &Path) -> PathBuf {
    let in_directory = || {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(parent.canonicalize().ok()?.join(path.file_name()?))
    };
    path.canonicalize().ok().or_else(in_directory).unwrap_or_else(|| path.to_path_buf())
}

impl Targets {
    /// Opens the targets of all jobs; if one fails, those opened before stay here.
    pub fn open(&mut self, jobs: &[Job], permission: &Permission) -> Result<(), Refusal> {
        // Writers first: the guard would refuse a file that is already open for reading.
        for writes in [true, false] {
            for job in jobs.iter().filter(|job| job.rw.writes() == writes) {
                for target in &job.targets {
                    let Target::Existing(path) = target else { continue };
                    if self.get(target, job).is_none() {
                        let opened = self.open_one(path, job, jobs, permission)?;
                        self.open.push((DescriptorKey::new(path, job), opened));
                    }
                }
            }
        }
        Ok(())
    }

    fn open_one(
        &mut self,
        path: &Path,
        job: &Job,
        jobs: &[Job],
        permission: &Permission,
    ) -> Result<Arc<GuardedTarget>, Refusal> {
        let writes = job.rw.writes();
        if job.engine == job::Engine::Null {
            let its = |job: &&Job| {
                job.engine == job::Engine::Null
                    && job.targets.iter().any(|one| matches!(one, Target::Existing(name) if name == path))
            };
            let length = jobs.iter().filter(its).filter_map(Job::file_length).max();
            let length = length.ok_or_else(|| {
                Refusal::Usage("the engine null has no file to take a length from: add --size".to_string())
            })?;
            let opened = GuardedTarget::nothing("null".to_string(), length);
            return opened.map(Arc::new).map_err(|error| guard::cannot_open(Path::new("/dev/null"), &error));
        }
        if job.engine == job::Engine::IoUringCmd {
            return guard::passthrough(path, writes.then_some(permission)).map(Arc::new);
        }
        let need = Need::of(path, jobs);
        // A file that is missing, or too short for a job that writes, must be created.
        let there = path.metadata().ok();
        let is_short = match &there {
            None => true,
            Some(file) => writes && file.is_file() && need.written.is_some_and(|length| file.len() < length),
        };
        // A job that only reads extends no existing file.
        let length = if there.is_none() { need.length } else { need.written };
        if let Some(length) = length.filter(|_| is_short) {
            let made = Arc::new(guard::created(path, length, permission, job.direct)?);
            // Existing content is overwritten only for a job that writes and says that it also reads.
            let of_this_job = job.rw.has(Direction::Read) || job.overwrite;
            if need.filled && (made.is_new() || of_this_job) {
                self.unfilled.push((path.to_path_buf(), Arc::clone(&made), length));
            }
            return Ok(made);
        }
        let opened = match writes {
            true => guard::writable(path, permission, job.direct)?,
            false => guard::existing(path, job.direct)?,
        };
        Ok(Arc::new(opened))
    }

    /// Fills the files that were created for jobs that read.
    pub fn fill(&mut self, stop: &AtomicBool, progress: &dyn Fn(u64, u64)) -> Result<(), Refusal> {
        for (path, made, length) in self.unfilled.drain(..) {
            let facts = Facts { block: made.block, device: made.device.clone() };
            scratch::fill(&made.file, &path, length, &facts, stop, progress)?;
            // The file is filled in whole blocks. An existing file may have grown meanwhile.
            if made.is_new() {
                made.file.set_len(length).map_err(|error| guard::cannot_open(&path, &error))?;
            }
        }
        Ok(())
    }

    /// The open target for a job: a reader shares a writer's descriptor. None for scratch files.
    pub fn get(&self, target: &Target, job: &Job) -> Option<Arc<GuardedTarget>> {
        let Target::Existing(path) = target else { return None };
        let wanted = DescriptorKey::new(path, job);
        let serves =
            |key: &DescriptorKey| *key == wanted || *key == DescriptorKey { writes: true, ..wanted.clone() };
        self.open.iter().find(|(key, _)| serves(key)).map(|(_, opened)| Arc::clone(opened))
    }

    /// The run is cancelled: removes created files and restores the length of extended ones.
    pub fn undo(&self) {
        self.open.iter().for_each(|(_, opened)| opened.undo());
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::{Extent, Pattern};
    use super::*;

    fn job(path: &str, rw: Pattern, offset: u64, size: u64) -> Job {
        Job {
            rw,
            offset: Extent::Bytes(offset),
            size: Some(Extent::Bytes(size)),
            ..Job::fio_defaults(Target::Existing(path.into()))
        }
    }

    #[test]
    fn a_file_is_made_for_all_that_use_it() {
        let need = |jobs: &[Job]| Need::of(Path::new("/f"), jobs);
        let (read, write) = (Pattern::Read, Pattern::Write);
        let expected = |length, written, filled| Need { length: Some(length), written, filled };
        assert_eq!(need(&[job("/f", write, 0, 10)]), expected(10, Some(10), false));
        let side_by_side = [job("/f", write, 0, 10), job("/f", read, 10, 10), job("/g", write, 0, 99)];
        assert_eq!(need(&side_by_side), expected(20, Some(10), true));
        let threads = Job { numjobs: 4, offset_increment: Extent::Bytes(10), ..job("/f", write, 5, 10) };
        assert_eq!(need(&[job("/../f", write, 0, 20), threads]), expected(45, Some(45), false));
        assert_eq!(need(&[job("/g", write, 0, 10)]), Need::default());
        let overwritten = Job { overwrite: true, ..job("/f", write, 0, 10) };
        assert_eq!(need(&[overwritten]), expected(10, Some(10), true));
    }

    #[test]
    fn a_file_that_is_not_there_has_one_name() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(place(Path::new("no_such")), here.join("no_such"));
        assert_eq!(place(Path::new("./no_such")), here.join("no_such"));
        assert_eq!(place(Path::new("no_such/f")), Path::new("no_such/f"));
    }
}
