//! Collects the options of one job, checks them, and builds the job.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};

use super::priority::Priority;
use super::table::{OptionScope, Section, Takes, word};
use super::values::quoted;
use crate::load::job::{Arrivals, Engine, Extent, Job, LatencyTarget, Placement, Rate, Target};

/// The options set so far, on top of the defaults of the command line or a job file.
#[derive(Debug, Clone)]
pub struct Draft {
    pub(super) job: Job,
    pub(super) filename: Option<Vec<PathBuf>>,
    pub(super) directory: Option<PathBuf>,
    /// Of all files of the job together, or percent of each.
    pub(super) size: Option<Extent>,
    pub(super) io_size: Option<Extent>,
    pub(super) seed: Option<u64>,
    pub(super) randrepeat: bool,
    pub(super) allrandrepeat: bool,
    pub(super) iops: [Option<u32>; 3],
    pub(super) bytes: [Option<u64>; 3],
    /// Files per thread, if each thread has its own.
    pub(super) nrfiles: u32,
    /// Several files are used in turn.
    pub(super) in_turns: bool,
    pub(super) offload: bool,
    pub(super) arrivals: Arrivals,
    pub(super) latency_target: LatencyTarget,
    pub(super) priority: Priority,
    pub(super) cpus: Option<Vec<u32>>,
    pub(super) split: bool,
    pub(super) nodes: Option<Vec<u32>>,
    pub(super) numa: Option<Placement>,
    /// No job may write.
    pub(in crate::load) readonly: bool,
    /// Output is one terse line.
    pub(in crate::load) minimal: bool,
    /// The options set, in the order of their last setting.
    said: Vec<&'static str>,
    set_on_command_line: bool,
}

/// Options that conflict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The one to change.
    pub word: &'static str,
    pub why: String,
}

impl Draft {
    /// Starts with the command line's defaults.
    pub fn command_line() -> Self {
        Self::new(Job::new(nowhere()), Arrivals::Exponential, true)
    }

    /// Starts with fio's defaults.
    pub fn job_file() -> Self {
        Self::new(Job::fio_defaults(nowhere()), Arrivals::Even, false)
    }

    fn new(job: Job, arrivals: Arrivals, set_on_command_line: bool) -> Self {
        Self {
            job,
            filename: None,
            directory: None,
            size: None,
            io_size: None,
            seed: None,
            randrepeat: true,
            allrandrepeat: false,
            iops: [None; 3],
            bytes: [None; 3],
            nrfiles: 1,
            in_turns: true,
            offload: false,
            arrivals,
            latency_target: LatencyTarget::NONE,
            priority: Priority::default(),
            cpus: None,
            split: false,
            nodes: None,
            numa: None,
            readonly: false,
            minimal: false,
            said: Vec::new(),
            set_on_command_line,
        }
    }

    /// Sets an option by its name or alias; no value means a flag. The error text continues after the option's name.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let Some(word) = word(name) else {
            return Err("is not an option of biopsy load: remove it, or see `biopsy load --help`".to_string());
        };
        if word.place == OptionScope::CommandLine && !self.set_on_command_line {
            return Err("is an option of the command line only: remove it".to_string());
        }
        let value = match (value.map(str::trim), word.takes) {
            (Some(""), _) => return Err("has no value after its =: write one".to_string()),
            (Some(value), _) => value,
            (None, Takes::Flag) => "1",
            (None, takes) => return Err(format!("needs a value: {}={}", word.name, takes.value_name())),
        };
        if let (Section::Unchanged, Takes::Words(values)) = (word.section, word.takes)
            && !values.contains(&value)
        {
            let (value, values) = (quoted(value), values.join(" or "));
            return Err(format!(
                "{value} is not supported: write {values}, which has no effect, or remove it"
            ));
        }
        (word.set)(self, value)?;
        self.said.retain(|said| *said != word.name);
        self.said.push(word.name);
        Ok(())
    }

    /// The current name of the job.
    pub fn name(&self) -> &str {
        &self.job.name
    }

    /// Sets the name to use where none is given.
    pub fn named(mut self, name: &str) -> Self {
        self.job.name = name.to_string();
        self
    }

    fn said(&self, word: &str) -> bool {
        self.said.contains(&word)
    }

    /// Builds one job per target. Without targets, one job for the file names that were set; if none were set, one per
    /// thread, because each thread has its own file.
    pub fn jobs(mut self, targets: &[Target]) -> Result<Vec<Job>, Conflict> {
        self.settle()?;
        let mut jobs = Vec::new();
        if !targets.is_empty() {
            if self.filename.is_some() || self.directory.is_some() {
                let word = if self.filename.is_some() { "filename" } else { "directory" };
                return conflict(word, "and TARGET both name the target: leave out one of them");
            }
            for target in targets {
                jobs.push(Job { targets: vec![target.clone()], ..self.job.clone() });
            }
        } else if let Some(names) = &self.filename {
            let targets = names.iter().map(|name| self.placed(name)).collect::<Result<_, _>>()?;
            jobs.push(Job { targets, ..self.job.clone() });
        } else if self.set_on_command_line && self.directory.is_none() {
            return conflict("filename", "is missing: name a device or file as TARGET");
        } else {
            for thread in 0..self.job.numjobs {
                jobs.push(self.of_thread(thread)?);
            }
        }
        if !self.in_turns && jobs.iter().any(|job| job.targets.len() > 1) {
            return conflict(
                "file_service_type",
                "must be roundrobin if a job has several files: write that",
            );
        }
        for job in &mut jobs {
            self.measure(job)?;
        }
        Ok(jobs)
    }

    /// A file name within `directory`.
    fn placed(&self, name: &Path) -> Result<Target, Conflict> {
        match &self.directory {
            Some(_) if name.is_absolute() => conflict(
                "directory",
                &format!(
                    "does not go with {}, an absolute path: leave out one of them",
                    quoted(&name.to_string_lossy())
                ),
            ),
            Some(directory) => Ok(Target::Existing(directory.join(name))),
            None => Ok(Target::Existing(name.to_path_buf())),
        }
    }

    /// The job of one thread with its own file.
    fn of_thread(&self, thread: u32) -> Result<Job, Conflict> {
        let mut job = Job { numjobs: 1, offset_increment: Extent::Bytes(0), ..self.job.clone() };
        if job.name.contains('/') {
            return conflict(
                "filename",
                &format!(
                    "is missing, and {} cannot be the name of a file: write filename=",
                    quoted(&job.name)
                ),
            );
        }
        let names = (0..self.nrfiles).map(|file| PathBuf::from(format!("{}.{thread}.{file}", job.name)));
        job.targets = names.map(|name| self.placed(&name)).collect::<Result<_, _>>()?;
        job.seed = job.seed.wrapping_add(thread.into());
        job.offset = match (self.job.offset, self.job.offset_increment) {
            (offset, Extent::Bytes(0)) => offset,
            (Extent::Bytes(offset), Extent::Bytes(step)) => {
                Extent::Bytes(offset.saturating_add(step.saturating_mul(thread.into())))
            }
            (Extent::Percent(offset), Extent::Percent(step)) => {
                Extent::Percent((offset + step * f64::from(thread)).min(100.0))
            }
            (Extent::Bytes(0), Extent::Percent(step)) => {
                Extent::Percent((step * f64::from(thread)).min(100.0))
            }
            _ => return conflict("offset_increment", "and offset must both be bytes, or both percent"),
        };
        if let Placement::Cpus { cpus, split: true } = &mut job.placement {
            let first = thread as usize % cpus.len().max(1);
            cpus.rotate_left(first);
        }
        // Only the first one waits for the jobs above, and begins a group.
        job.stonewall &= thread == 0;
        job.new_group &= thread == 0;
        Ok(job)
    }

    /// Resolves everything that does not depend on the targets.
    fn settle(&mut self) -> Result<(), Conflict> {
        if self.job.name.is_empty() {
            return conflict("name", "is empty: write one");
        }
        if self.seed.is_none() && !self.randrepeat && !self.allrandrepeat {
            // The standard library seeds its hasher from the system's random source.
            self.seed = Some(RandomState::new().build_hasher().finish());
        }
        self.job.seed = self.seed.unwrap_or(self.job.seed);
        self.job.placement = match (self.cpus.take(), self.nodes.take(), self.numa.take()) {
            (Some(_), None, Some(_)) => {
                return conflict("numa", "and a list of CPUs contradict each other: leave out one");
            }
            (_, Some(_), Some(_)) | (Some(_), Some(_), _) => {
                return conflict("numa_cpu_nodes", "and other CPUs are both given: leave out one");
            }
            (Some(cpus), None, None) => Placement::Cpus { cpus, split: self.split },
            (None, Some(nodes), None) => Placement::Nodes(nodes),
            (None, None, Some(placement)) => placement,
            (None, None, None) => self.job.placement.clone(),
        };
        let (has_iops, has_bytes) =
            (self.iops.iter().any(Option::is_some), self.bytes.iter().any(Option::is_some));
        if has_iops && has_bytes {
            return conflict(
                "rate",
                "and rate_iops set the same rate in bytes and in operations: leave out \
                one",
            );
        }
        if has_iops || has_bytes {
            self.job.rate = Some(Rate { iops: self.iops, bytes: self.bytes, arrivals: self.arrivals });
        }
        for direction in self.job.directions() {
            let at = direction.index();
            let (word, exceeds) = match (self.iops[at], self.bytes[at]) {
                (Some(iops), _) => ("rate_iops_min", self.job.rate_iops_min[at] > iops.into()),
                (None, Some(bytes)) => ("rate_min", self.job.rate_min[at] > bytes),
                (None, None) => continue,
            };
            if exceeds {
                return conflict(word, "is above the rate itself: choose a lower one");
            }
        }
        if self.job.rate_min != [0; 3] && self.job.rate_iops_min != [0; 3] {
            return conflict(
                "rate_min",
                "and rate_iops_min set the same limit in bytes and in operations: leave out one",
            );
        }
        let target = self.latency_target;
        if !target.latency.is_zero() {
            if target.window.is_zero() {
                return conflict(
                    "latency_target",
                    "needs a latency_window: set how long each depth is tried",
                );
            }
            self.job.latency_target = Some(target);
        }
        if self.offload && self.job.engine.is_synchronous() && self.job.iodepth > 1 {
            let engine = self.job.engine.name();
            let why = format!(
                "=offload gives {engine} no depth, as it does one operation at a time: raise \
                    numjobs instead"
            );
            return conflict("io_submit_mode", &why);
        }
        if self.set_on_command_line && !self.said("time_based") {
            let has_end = self.io_size.is_some() || self.job.number_ios.is_some() || self.job.loops > 1;
            self.job.time_based = self.job.runtime.is_some() && !has_end;
        }
        if self.job.time_based && self.job.runtime.is_none() {
            return conflict("time_based", "needs a runtime: set one");
        }
        self.job.priority = self.priority.of_threads();
        self.job.command_priorities = self.priority.of_commands()?;
        if self.job.command_priorities.iter().any(|shares| !shares.is_empty())
            && !matches!(self.job.engine, Engine::Libaio | Engine::IoUring)
        {
            let words = ["cmdprio_percentage", "cmdprio_bssplit"];
            let word = words.into_iter().find(|word| self.said(word)).unwrap_or(words[0]);
            let engine = self.job.engine.name();
            return conflict(
                word,
                &format!("is not supported by {engine}: choose ioengine=libaio or io_uring"),
            );
        }
        let rings = matches!(self.job.engine, Engine::IoUring | Engine::IoUringCmd);
        if !rings {
            let engine = self.job.engine.name();
            for (word, is_on) in [
                ("registerfiles", self.job.registerfiles),
                ("fixedbufs", self.job.fixedbufs),
                ("sqthread_poll", self.job.sqthread_poll),
                ("nop", self.job.nop),
                ("hipri", self.job.hipri && self.job.engine != Engine::Pvsync2),
            ] {
                if is_on && self.said(word) {
                    return conflict(
                        word,
                        &format!("is not supported by {engine}: choose ioengine=io_uring"),
                    );
                }
            }
            (self.job.registerfiles, self.job.fixedbufs) = (false, false);
        }
        // The kernel takes an atomic write from plain memory only (generic_atomic_write_valid).
        if self.job.atomic && self.job.fixedbufs {
            if self.said("fixedbufs") {
                return conflict("fixedbufs", "does not go with atomic: leave out one of them");
            }
            self.job.fixedbufs = false;
        }
        if self.job.fsync > 0 && self.job.fdatasync.is_multiple_of(self.job.fsync) {
            // As in fio: where both are due, fsync is done.
            self.job.fdatasync = 0;
        }
        if self.readonly && self.job.rw.writes() {
            return conflict("rw", &format!("={} writes, and readonly forbids it", self.job.rw.name()));
        }
        Ok(())
    }

    /// Resolves how much of its targets the job uses, and how much it transfers.
    fn measure(&self, job: &mut Job) -> Result<(), Conflict> {
        let files = job.targets.len() as u64;
        let share = |word, bytes: u64| match bytes / files {
            0 => conflict(
                word,
                &format!("of {bytes} leaves nothing for each of {files} files: choose a larger one"),
            ),
            each => Ok(each),
        };
        job.size = match self.size {
            // fio divides it among the files.
            Some(Extent::Bytes(bytes)) => Some(Extent::Bytes(share("size", bytes)?)),
            other => other,
        };
        job.io_size = match (self.io_size, self.size) {
            (Some(Extent::Bytes(bytes)), _) => Some(bytes),
            (Some(percent), Some(Extent::Bytes(size))) => Some(percent.of(size)),
            _ => None,
        };
        if let Some(length) = job.filesize {
            let Extent::Bytes(offset) = job.offset else {
                return conflict("offset", "in percent does not go with filesize: write bytes");
            };
            let Some(reach) = length.checked_sub(offset).filter(|reach| *reach > 0) else {
                return conflict(
                    "offset",
                    &format!("of {offset} is not below the filesize of {length}: choose a smaller one"),
                );
            };
            let used = match job.size {
                // fio takes the percentage of the whole file, and adds the offset.
                Some(percent @ Extent::Percent(share)) if share < 100.0 => {
                    job.whole_blocks(percent.of(length)).min(reach)
                }
                // fio chooses offsets in the whole file, and transfers `size`.
                Some(Extent::Bytes(each)) if each < reach => {
                    job.amount = Some(each * files);
                    reach
                }
                _ => reach,
            };
            if used == 0 {
                let why = format!("is less than a block of the filesize of {length}: choose a larger one");
                return conflict("size", &why);
            }
            job.size = Some(Extent::Bytes(used));
        }
        if let (Some(Extent::Percent(share)), None) = (self.io_size, job.io_size) {
            if job.numjobs > 1 && job.offset_increment.of(u64::MAX) > 0 {
                return conflict(
                    "io_size",
                    "in percent does not go with offset_increment, which gives each thread another size: \
                     write bytes",
                );
            }
            job.io_share = Some(share);
        }
        Ok(())
    }
}

/// A placeholder until the targets are known.
fn nowhere() -> Target {
    Target::Existing(PathBuf::new())
}

/// The value of `--numa`.
pub fn placement(word: &str) -> Option<Placement> {
    match word {
        "local" => Some(Placement::Local),
        "remote" => Some(Placement::Remote),
        "none" => Some(Placement::Anywhere),
        _ => None,
    }
}

fn conflict<T>(word: &'static str, why: &str) -> Result<T, Conflict> {
    Err(Conflict { word, why: why.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(words: &[(&str, &str)]) -> Result<Vec<Job>, Conflict> {
        said(Draft::job_file().named("a"), words).jobs(&[])
    }

    fn said(mut draft: Draft, words: &[(&str, &str)]) -> Draft {
        for (word, value) in words {
            draft.set(word, Some(value)).unwrap_or_else(|why| panic!("{word}={value} {why}"));
        }
        draft
    }

    fn one(words: &[(&str, &str)]) -> Job {
        let jobs = file(&[&[("filename", "/f")], words].concat()).unwrap();
        let [job] = jobs.as_slice() else { panic!("{jobs:?}") };
        job.clone()
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_filesize_limits_a_longer_target_as_in_fio() {
        // As fio 3.33 chose its offsets in a file of 8 MiB.
        let parts = |words: &[(&str, &str)]| {
            let job = one(words);
            (job.size, job.io_size.or(job.amount))
        };
        assert_eq!(parts(&[("filesize", "4m")]), (Some(Extent::Bytes(4 * MIB)), None));
        assert_eq!(parts(&[("filesize", "4m"), ("size", "1m")]), (Some(Extent::Bytes(4 * MIB)), Some(MIB)));
        assert_eq!(parts(&[("filesize", "4m"), ("offset", "1m")]), (Some(Extent::Bytes(3 * MIB)), None));
        assert_eq!(parts(&[("size", "1m"), ("offset", "2m")]), (Some(Extent::Bytes(MIB)), None));
        assert_eq!(
            parts(&[("size", "4m"), ("io_size", "50%")]),
            (Some(Extent::Bytes(4 * MIB)), Some(2 * MIB))
        );
        assert_eq!(parts(&[("io_size", "2m")]), (None, Some(2 * MIB)));
        let word = |words: &[(&str, &str)]| file(&[&[("filename", "/f")], words].concat()).unwrap_err().word;
        assert_eq!(word(&[("filesize", "1m"), ("offset", "1m")]), "offset");
        assert_eq!(word(&[("filesize", "1m"), ("offset", "1%")]), "offset");
        assert_eq!(word(&[("filesize", "1k"), ("size", "1%")]), "size");
        // Percentages refer to the file's future length, in whole blocks.
        let half = [("filesize", "4m"), ("size", "50%")];
        assert_eq!(parts(&half), (Some(Extent::Bytes(2 * MIB)), None));
        assert_eq!(parts(&[&half[..], &[("offset", "3m")]].concat()), (Some(Extent::Bytes(MIB)), None));
        assert_eq!(parts(&[&half[..], &[("bs", "12k")]].concat()).0, Some(Extent::Bytes(170 * 12_288)));
        // Percentages of an amount that is not known yet.
        assert_eq!(one(&[("io_size", "25%")]).io_share, Some(25.0));
        assert_eq!(one(&[("io_size", "25%"), ("size", "50%")]).io_share, Some(25.0));
        assert_eq!(one(&[("io_size", "25%"), ("size", "1m")]).io_share, None);
        let apart = [("io_size", "1%"), ("offset_increment", "1m"), ("numjobs", "2")];
        assert_eq!(word(&apart), "io_size");
    }

    #[test]
    fn several_files_part_the_size_and_not_the_percent() {
        let two = [("filename", "a:b"), ("directory", "/d")];
        let sized = &file(&[&two[..], &[("size", "4m")]].concat()).unwrap()[0];
        assert_eq!(sized.targets, ["/d/a", "/d/b"].map(|path| Target::Existing(path.into())));
        assert_eq!(sized.size, Some(Extent::Bytes(2 * MIB)));
        let shared = &file(&[&two[..], &[("size", "50%")]].concat()).unwrap()[0];
        assert_eq!(shared.size, Some(Extent::Percent(50.0)));
        assert_eq!(file(&[&two[..], &[("size", "1")]].concat()).unwrap_err().word, "size");
        assert_eq!(file(&[("filename", "/a"), ("directory", "/d")]).unwrap_err().word, "directory");
    }

    #[test]
    fn without_a_file_name_each_thread_has_its_own_file() {
        let words = [("directory", "/d"), ("numjobs", "3"), ("size", "1m"), ("offset_increment", "2m")];
        let cpus = [("cpus_allowed", "4-5"), ("cpus_allowed_policy", "split")];
        let jobs = file(&[&words[..], &cpus].concat()).unwrap();
        let paths: Vec<_> = jobs.iter().map(|job| job.targets.clone()).collect();
        assert_eq!(
            paths,
            ["/d/a.0.0", "/d/a.1.0", "/d/a.2.0"].map(|path| vec![Target::Existing(path.into())])
        );
        let offsets: Vec<_> = jobs.iter().map(|job| (job.offset, job.file_length())).collect();
        let at = |mib: u64| (Extent::Bytes(mib * MIB), Some((mib + 1) * MIB));
        assert_eq!(offsets, [at(0), at(2), at(4)]);
        assert!(jobs.iter().all(|job| job.numjobs == 1 && job.name == "a"));
        let cpus: Vec<_> = jobs.iter().map(|job| job.placement.clone()).collect();
        let on = |cpus: [u32; 2]| Placement::Cpus { cpus: cpus.to_vec(), split: true };
        assert_eq!(cpus, [on([4, 5]), on([5, 4]), on([4, 5])]);
        assert_eq!(Draft::job_file().named("/dev/a b").jobs(&[]).unwrap_err().word, "filename");
        let walls = [("directory", "/d"), ("numjobs", "2"), ("stonewall", "1"), ("new_group", "1")];
        let walls: Vec<_> = file(&walls).unwrap().iter().map(|job| (job.stonewall, job.new_group)).collect();
        assert_eq!(walls, [(true, true), (false, false)], "as in fio, its threads run at once");
        let mixed = [("offset", "1m"), ("offset_increment", "1%")];
        assert_eq!(file(&mixed).unwrap_err().word, "offset_increment");
    }

    #[test]
    fn an_option_of_another_engine_is_an_error_as_in_fio() {
        let word =
            |words: &[(&str, &str)]| file(&[&[("filename", "/f")], words].concat()).map_err(|e| e.word);
        for name in ["hipri", "registerfiles", "fixedbufs", "sqthread_poll"] {
            assert_eq!(word(&[("ioengine", "libaio"), (name, "1")]).unwrap_err(), name);
            assert!(word(&[(name, "1"), ("ioengine", "io_uring")]).is_ok());
        }
        assert!(word(&[("ioengine", "pvsync2"), ("hipri", "1")]).is_ok());
        assert_eq!(word(&[("time_based", "1")]).unwrap_err(), "time_based");
        assert_eq!(word(&[("readonly", "1"), ("rw", "randtrim")]).unwrap_err(), "rw");
    }

    #[test]
    fn a_seed_is_repeated_unless_nobody_wants_that() {
        assert_eq!(one(&[]).seed, 0x89);
        assert_eq!(one(&[("randrepeat", "0"), ("randseed", "7")]).seed, 7);
        assert_eq!(one(&[("randrepeat", "0"), ("allrandrepeat", "1")]).seed, 0x89);
        assert_eq!(one(&[("randseed", "18446744073709551615")]).seed, u64::MAX);
        assert_ne!(one(&[("randrepeat", "0")]).seed, one(&[("randrepeat", "0")]).seed);
    }

    #[test]
    fn an_fsync_stands_for_each_fdatasync_that_is_due_with_it() {
        let both = |fsync, fdatasync| {
            let job = one(&[("fsync", fsync), ("fdatasync", fdatasync)]);
            (job.fsync, job.fdatasync)
        };
        // As fio 3.33 does.
        assert_eq!([both("4", "4"), both("4", "8")], [(4, 0), (4, 0)]);
        assert_eq!([both("32", "4"), both("0", "4"), both("4", "0")], [(32, 4), (0, 4), (4, 0)]);
    }

    #[test]
    fn priorities_are_fios() {
        use crate::load::job::PriorityShare;
        let of = |words: &[(&str, &str)]| one(&[&[("ioengine", "libaio")], words].concat());
        assert_eq!(of(&[]).priority, None);
        assert_eq!(of(&[("prio", "7")]).priority, Some(2 << 13 | 7), "best-effort");
        assert_eq!(of(&[("prio", "3"), ("prioclass", "1")]).priority, Some(1 << 13 | 3));
        let share = |bytes, percent, class: u16, level: u16| PriorityShare {
            bytes,
            percent,
            priority: class << 13 | level,
        };
        let percent = of(&[("cmdprio_percentage", "20,30")]).command_priorities;
        assert_eq!(percent, [vec![share(None, 20, 1, 0)], vec![share(None, 30, 1, 0)]], "real-time");
        // As in fio's example.
        let split = ("cmdprio_bssplit", "64k/25/1/1:64k/75/3/2:1024k/0,1024k/0");
        let sized = [vec![share(Some(65536), 25, 1, 1), share(Some(65536), 75, 3, 2)], vec![]];
        assert_eq!(of(&[split]).command_priorities, sized);
        let usual = [("cmdprio_bssplit", "64k/100"), ("cmdprio_class", "2"), ("cmdprio", "5")];
        assert_eq!(of(&usual).command_priorities[0], [share(Some(65536), 100, 2, 5)]);
        let word =
            |words: &[(&str, &str)]| file(&[&[("filename", "/f")], words].concat()).map_err(|e| e.word);
        let aio = ("ioengine", "libaio");
        assert_eq!(word(&[("cmdprio_percentage", "1")]).unwrap_err(), "cmdprio_percentage");
        assert_eq!(word(&[aio, split, ("cmdprio_percentage", "1")]).unwrap_err(), "cmdprio_bssplit");
        assert_eq!(word(&[aio, ("cmdprio_bssplit", "4k/60:4k/41/2/0")]).unwrap_err(), "cmdprio_bssplit");
        for wrong in ["4k/60/1", "4k/101", "4k/5/4/0", "4k/5/1/8", "x/5"] {
            assert!(Draft::job_file().set("cmdprio_bssplit", Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_atomic_write_has_no_registered_buffer() {
        let target = [Target::Existing("/f".into())];
        let of = |words: &[(&str, &str)]| said(Draft::command_line(), words).jobs(&target);
        assert!(of(&[]).unwrap()[0].fixedbufs && !of(&[("atomic", "1")]).unwrap()[0].fixedbufs);
        assert_eq!(of(&[("atomic", "1"), ("fixedbufs", "1")]).unwrap_err().word, "fixedbufs");
    }

    #[test]
    fn a_least_rate_is_not_above_the_rate() {
        let word =
            |words: &[(&str, &str)]| file(&[&[("filename", "/f")], words].concat()).map_err(|e| e.word);
        assert_eq!(word(&[("rate", "1m"), ("ratemin", "2m")]).unwrap_err(), "rate_min");
        assert_eq!(word(&[("rate_iops", "10"), ("rate_iops_min", "11")]).unwrap_err(), "rate_iops_min");
        assert_eq!(word(&[("rate_min", "1"), ("rate_iops_min", "1")]).unwrap_err(), "rate_min");
        assert!(word(&[("rate", "1250"), ("ratemin", "1024")]).is_ok());
        assert_eq!(one(&[("rate_min", "1k,2k")]).rate_min, [1024, 2048, 2048]);
    }

    #[test]
    fn the_last_of_two_words_holds() {
        assert!(one(&[("direct", "0"), ("buffered", "0")]).direct);
        assert!(!one(&[("buffered", "0"), ("direct", "0")]).direct);
        assert_eq!(one(&[("rwmixread", "80"), ("rwmixwrite", "30")]).rwmixread, 70);
    }

    #[test]
    fn placement_has_words() {
        assert_eq!(one(&[("numa_cpu_nodes", "0-1,3")]).placement, Placement::Nodes(vec![0, 1, 3]));
        let nodes = |policy| one(&[("numa_mem_policy", policy)]).memory_nodes;
        assert_eq!(
            [nodes("default"), nodes("local"), nodes("bind:1"), nodes("prefer:2"), nodes("interleave:0-1,3")],
            [vec![], vec![], vec![1], vec![2], vec![0, 1, 3]]
        );
        let wrong = |policy| Draft::job_file().set("numa_mem_policy", Some(policy)).unwrap_err();
        for policy in ["interleave:x", "interleave:9999", "bind:0-1", "bind", "prefer", "local:0", "prefer:x"]
        {
            assert!(wrong(policy).contains("bind:N"), "{policy}: {}", wrong(policy));
        }
        let target = [Target::Existing("/f".into())];
        let words = said(Draft::command_line(), &[("smt", "1"), ("memory-node", "3")]);
        let job = words.jobs(&target).unwrap().remove(0);
        assert_eq!((job.smt, job.memory_nodes), (true, vec![3]));
    }

    #[test]
    fn by_hand_a_runtime_is_kept_unless_an_end_is_said() {
        let target = [Target::Existing("/f".into())];
        let job =
            |words: &[(&str, &str)]| said(Draft::command_line(), words).jobs(&target).unwrap().remove(0);
        assert_eq!(job(&[]), Job::new(target[0].clone()));
        assert!(!job(&[("io_size", "1m")]).time_based);
        assert!(job(&[("io_size", "1m"), ("time_based", "1")]).time_based);
        assert!(!job(&[("number_ios", "9")]).time_based);
        let endless = job(&[("runtime", "0")]);
        assert_eq!((endless.runtime, endless.time_based), (None, false));
        let rated = job(&[("rate_iops", "1k,500,")]).rate;
        let wanted =
            Rate { iops: [Some(1024), Some(500), None], bytes: [None; 3], arrivals: Arrivals::Exponential };
        assert_eq!(rated, Some(wanted));
        let plain = job(&[("ioengine", "psync")]);
        assert!(!plain.registerfiles && !plain.fixedbufs, "they are only defaults");
        let mut both = said(Draft::command_line(), &[("cpus", "0"), ("numa", "remote")]);
        assert_eq!(both.clone().jobs(&target).unwrap_err().word, "numa");
        let nodes = said(Draft::command_line(), &[("cpus", "0"), ("numa_cpu_nodes", "0-1")]);
        assert_eq!(nodes.jobs(&target).unwrap_err().word, "numa_cpu_nodes");
        both.set("filename", Some("/g")).unwrap();
        assert!(both.jobs(&target).is_err());
        assert_eq!(Draft::command_line().jobs(&[]).unwrap_err().word, "filename");
    }
}
