//! Holds old values of settings, and restores them.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cgroup::Limit;
use super::files;
use super::key::Key;
use crate::refusal::{Refusal, reason};

/// Two forms of one limit: setting one clears the other, and 0 cannot be set.
const PAIRED: [&str; 4] = [
    "sysctl:vm.dirty_ratio",
    "sysctl:vm.dirty_bytes",
    "sysctl:vm.dirty_background_ratio",
    "sysctl:vm.dirty_background_bytes",
];

/// A setting that is changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    pub name: String,
    pub path: PathBuf,
    /// The first word of its line, in a file of several lines.
    #[serde(default)]
    pub line: Option<String>,
    /// The value if the file has no such line.
    #[serde(default)]
    pub absent: Option<String>,
    pub old: String,
    /// Each value that biopsy sets. Any other value was set by someone else.
    pub ours: Vec<String>,
    /// Other settings that the kernel resets when this one is set, in the order in which they are restored.
    pub resets: Vec<(PathBuf, String)>,
}

/// All settings of an experiment, in the order in which they are restored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSettings {
    /// Names the lock and the file.
    pub name: String,
    pub disk: Option<String>,
    /// Distinguishes a disk from a later one with the same name. None before Linux 5.15.
    pub sequence: Option<String>,
    pub settings: Vec<Setting>,
    /// The values are being tried: the kernel may have changed them.
    pub trial: bool,
}

/// A setting that could not be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The disk no longer exists.
    Gone {
        disk: String,
    },
    /// The cgroup was removed.
    NoCgroup {
        path: PathBuf,
    },
    /// Another process has changed it meanwhile.
    Changed {
        path: PathBuf,
        found: String,
        old: String,
    },
    Failed {
        path: PathBuf,
        old: String,
        why: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone { disk } => {
                write!(f, "{disk} is gone, with its settings: nothing is restored")
            }
            Self::NoCgroup { path } => {
                write!(f, "the cgroup of {} is gone: nothing is restored there", path.display())
            }
            Self::Changed { path, found, old } => {
                write!(f, "another process set {} to {found}: it is not restored to {old}", path.display())
            }
            Self::Failed { path, old, why } => {
                write!(f, "{} cannot be restored: {why}; run: echo '{old}' >{0}", path.display())
            }
        }
    }
}

impl Setting {
    /// Reads the current value of a setting.
    pub fn read(root: &Path, disk: &str, key: &Key, ours: &[String]) -> Result<Self, Refusal> {
        let path = key.path(root, disk);
        let name = key.name();
        let number = files::read(&root.join("sys/block").join(disk).join("dev")).ok();
        let line = key.limit().and_then(|limit| limit.line(number.as_deref()));
        let absent = key.limit().and_then(Limit::absent);
        let old = read(&path, line.as_deref(), absent.as_deref()).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let (what, remedy) = match key {
                    Key::Cgroup(..) => {
                        let why = "enable its controller (cgroup.subtree_control), or name another cgroup: the root has none";
                        return Refusal::Refused(format!("{name}: {} does not exist: {why}", path.display()));
                    }
                    Key::Queue(_) => (disk.to_string(), format!("{} does not exist", path.display())),
                    Key::Sysctl(_) => {
                        ("this kernel".to_string(), format!("{} does not exist", path.display()))
                    }
                };
                Refusal::Refused(format!("{what} has no {name}: {remedy}; vary another key"))
            }
            _ => Refusal::Refused(format!("{name} cannot be read: {} ({})", reason(&error), path.display())),
        })?;
        if PAIRED.contains(&name.as_str()) && old == "0" {
            return Err(Refusal::Refused(format!(
                "{name} is 0 because its other form (_ratio or _bytes) is in use: vary the one that is not 0"
            )));
        }
        let resets = match name.as_str() {
            "scheduler" => reset_by_scheduler(root, disk),
            // Changing limits may raise the read-ahead (blk_apply_bdi_limits).
            "max_sectors" | "iostats" | "write_cache" => {
                let path = root.join("sys/block").join(disk).join("queue/read_ahead_kb");
                files::read(&path).ok().map(|old| (path, old)).into_iter().collect()
            }
            _ => Vec::new(),
        };
        Ok(Self { name, path, line, absent, old, ours: ours.to_vec(), resets })
    }

    fn now(&self) -> io::Result<String> {
        read(&self.path, self.line.as_deref(), self.absent.as_deref())
    }

    fn write(&self, value: &str) -> io::Result<()> {
        files::write(&self.path, &self.written(value))
    }

    /// The text that is written to the file for a value.
    pub fn written(&self, value: &str) -> String {
        self.line.as_ref().map_or_else(|| value.to_string(), |line| format!("{line} {value}"))
    }

    /// Sets it, and checks that the kernel accepted it. Setting the old value also restores everything that was reset.
    pub fn set(&self, value: &str) -> Result<(), Refusal> {
        let refused = |why: &str| {
            let remedy = match files::choices(&self.path) {
                Some(choices) => format!("; it takes {choices}"),
                None => String::new(),
            };
            Refusal::Refused(format!(
                "{}={}: {why}{remedy} ({})",
                self.name,
                value.escape_debug(),
                self.path.display()
            ))
        };
        if self.now().is_ok_and(|now| now == value) && self.resets.is_empty() {
            return Ok(());
        }
        self.write(value).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => Refusal::Refused(format!(
                "{} cannot be set: run as root, or vary only load options",
                self.name
            )),
            io::ErrorKind::NotFound if self.is_of_cgroup() => refused("its cgroup is gone"),
            io::ErrorKind::NotFound => refused("the device is gone"),
            _ => refused(&format!("the kernel refuses it ({})", reason(&error))),
        })?;
        // The defaults of a scheduler belong to its arm; a changed read-ahead does not.
        if value == self.old || self.name != "scheduler" {
            self.restore_resets();
        }
        match self.now() {
            Ok(now) if now == value => Ok(()),
            Ok(now) => Err(refused(&format!("the kernel changed it to {now}: give a value that it keeps"))),
            Err(error) => Err(refused(&format!("it cannot be read back ({})", reason(&error)))),
        }
    }

    fn restore_resets(&self) {
        for (path, old) in &self.resets {
            if files::read(path).is_ok_and(|now| now != *old) {
                // The check that follows reads them again.
                let _refused = files::write(path, old);
            }
        }
    }

    fn restore(&self, trial: bool) -> Option<Problem> {
        let path = self.path.clone();
        let now = match self.now() {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.is_of_cgroup() => {
                return Some(Problem::NoCgroup { path });
            }
            Err(error) => return Some(Problem::Failed { path, old: self.old.clone(), why: reason(&error) }),
        };
        if now != self.old && !trial && !self.ours.contains(&now) {
            return Some(Problem::Changed { path, found: now, old: self.written(&self.old) });
        }
        if now != self.old
            && let Err(error) = self.write(&self.old)
        {
            return Some(Problem::Failed { path, old: self.written(&self.old), why: reason(&error) });
        }
        self.restore_resets();
        let stays = |path: &Path, old: &str, found: Option<String>| {
            let found = found.filter(|found| found != old)?;
            Some(Problem::Failed {
                path: path.to_path_buf(),
                old: old.to_string(),
                why: format!("it stays {found}"),
            })
        };
        let reset = |(path, old): &(PathBuf, String)| stays(path, old, files::read(path).ok());
        stays(&self.path, &self.old, self.now().ok()).or_else(|| self.resets.iter().find_map(reset))
    }

    fn is_of_cgroup(&self) -> bool {
        self.path.components().any(|part| part.as_os_str() == "cgroup")
    }
}

/// The value of a file, or of its line that begins with a word.
fn read(path: &Path, line: Option<&str>, absent: Option<&str>) -> io::Result<String> {
    let Some(line) = line else { return files::read(path) };
    let found = files::read_line(path, line)?;
    Ok(found.or_else(|| absent.map(str::to_string)).unwrap_or_default())
}

/// What the kernel resets when the scheduler is switched: the depth, the scheduler's own settings, and write-back
/// throttling, in the order in which they can be set again.
fn reset_by_scheduler(root: &Path, disk: &str) -> Vec<(PathBuf, String)> {
    let queue = root.join("sys/block").join(disk).join("queue");
    let mut paths = vec![queue.join("nr_requests")];
    let mut own: Vec<PathBuf> = fs::read_dir(queue.join("iosched"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    own.sort();
    paths.extend(own);
    paths.push(queue.join("wbt_lat_usec"));
    paths.into_iter().filter_map(|path| files::read(&path).ok().map(|old| (path, old))).collect()
}

impl SavedSettings {
    /// The current values of all these keys.
    pub fn read(root: &Path, disk: Option<&str>, keys: &[(Key, Vec<String>)]) -> Result<Self, Refusal> {
        let mut keys: Vec<&(Key, Vec<String>)> = keys.iter().collect();
        keys.sort_by_key(|(key, _)| key.rank());
        let settings = keys
            .iter()
            .map(|(key, values)| match (disk, key.needs_disk()) {
                (None, true) => {
                    Err(Refusal::Usage(format!("{} is a setting of a disk: name it with -d", key.name())))
                }
                _ => Setting::read(root, disk.unwrap_or_default(), key, values),
            })
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(disk) = disk.filter(|disk| has_no_medium(root, disk)) {
            return Err(Refusal::Refused(format!(
                "{disk} has no size, like an unattached loop device: attach it, or name another disk with -d"
            )));
        }
        let sequence = disk.and_then(|disk| sequence(root, disk));
        let name = disk.unwrap_or("sysctl").to_string();
        Ok(Self { name, disk: disk.map(str::to_string), sequence, settings, trial: true })
    }

    /// The disk, if it no longer exists, or was replaced by another one.
    pub fn gone(&self, root: &Path) -> Option<&str> {
        let is_gone = |disk: &str| {
            !has_queue(root, disk) || has_no_medium(root, disk) || sequence(root, disk) != self.sequence
        };
        self.disk.as_deref().filter(|disk| is_gone(disk))
    }

    /// Restores everything, and returns what could not be restored.
    pub fn restore(&self, root: &Path) -> Vec<Problem> {
        if let Some(disk) = self.gone(root) {
            // A disk's cgroup limits disappear with it, except that a detached loop device keeps them.
            let is_there = has_queue(root, disk);
            let is_left = |setting: &&Setting| {
                !setting.path.starts_with(root.join("sys/block")) && (setting.absent.is_none() || is_there)
            };
            let rest = self.settings.iter().filter(is_left).filter_map(|setting| setting.restore(self.trial));
            return std::iter::once(Problem::Gone { disk: disk.to_string() }).chain(rest).collect();
        }
        self.settings.iter().filter_map(|setting| setting.restore(self.trial)).collect()
    }

    /// Whether biopsy's own file can contain these paths: only settings are written.
    pub fn is_plausible(&self, root: &Path) -> bool {
        let is_setting = |path: &Path| {
            let inside = ["sys/block", "proc/sys", "sys/fs/cgroup"]
                .iter()
                .any(|folder| path.starts_with(root.join(folder)));
            inside && !path.components().any(|part| part == std::path::Component::ParentDir)
        };
        self.settings.iter().all(|setting| {
            is_setting(&setting.path) && setting.resets.iter().all(|(path, _)| is_setting(path))
        })
    }
}

/// The queue disappears first; the disk's directory stays while it is open.
fn has_queue(root: &Path, disk: &str) -> bool {
    root.join("sys/block").join(disk).join("queue").exists()
}

/// A detached loop device stays, with size 0, and loses its settings when it is reused.
fn has_no_medium(root: &Path, disk: &str) -> bool {
    files::read(&root.join("sys/block").join(disk).join("size")).is_ok_and(|sectors| sectors == "0")
}

fn sequence(root: &Path, disk: &str) -> Option<String> {
    files::read(&root.join("sys/block").join(disk).join("diskseq")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("biopsy-settings-{}-{name}", std::process::id()));
            fs::remove_dir_all(&root).ok();
            let tree = Self(root);
            fs::create_dir_all(tree.0.join("sys/block/loop7/queue/iosched")).unwrap();
            tree.put("diskseq", "7\n");
            tree
        }

        fn put(&self, file: &str, text: &str) {
            fs::write(self.0.join("sys/block/loop7").join(file), text).unwrap();
        }

        fn get(&self, file: &str) -> String {
            fs::read_to_string(self.0.join("sys/block/loop7").join(file)).unwrap().trim().to_string()
        }

        fn saved(&self, keys: &[(&str, &[&str])]) -> SavedSettings {
            let key = |(word, values): &(&str, &[&str])| {
                (Key::parse(word).unwrap().unwrap(), values.iter().map(ToString::to_string).collect())
            };
            SavedSettings::read(&self.0, Some("loop7"), &keys.iter().map(key).collect::<Vec<_>>()).unwrap()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    #[test]
    fn values_come_back_and_those_that_the_scheduler_reset_as_well() {
        let tree = Tree::new("resets");
        tree.put("queue/scheduler", "none [mq-deadline]\n");
        tree.put("queue/nr_requests", "77\n");
        tree.put("queue/iosched/fifo_batch", "3\n");
        tree.put("queue/read_ahead_kb", "128\n");
        let saved = tree.saved(&[("read_ahead", &["0"]), ("scheduler", &["none", "mq-deadline"])]);
        assert_eq!(saved.settings[0].name, "scheduler", "it comes back first");
        assert_eq!((saved.settings[0].old.as_str(), saved.settings[0].resets.len()), ("mq-deadline", 2));
        assert!(saved.is_plausible(&tree.0) && !saved.is_plausible(Path::new("/elsewhere")));
        tree.put("queue/scheduler", "none");
        tree.put("queue/nr_requests", "256");
        tree.put("queue/iosched/fifo_batch", "16");
        tree.put("queue/read_ahead_kb", "0");
        assert_eq!(saved.restore(&tree.0), []);
        let found = ["scheduler", "nr_requests", "iosched/fifo_batch", "read_ahead_kb"];
        assert_eq!(found.map(|file| tree.get(&format!("queue/{file}"))), ["mq-deadline", "77", "3", "128"]);
    }

    #[test]
    fn what_another_process_has_set_is_left_so() {
        let tree = Tree::new("changed");
        tree.put("queue/read_ahead_kb", "128\n");
        tree.put("queue/nomerges", "0\n");
        let mut saved = tree.saved(&[("read_ahead", &["0"]), ("nomerges", &["2"])]);
        saved.trial = false;
        tree.put("queue/read_ahead_kb", "512");
        tree.put("queue/nomerges", "2");
        let problems = saved.restore(&tree.0);
        assert!(matches!(&problems[..], [Problem::Changed { found, .. }] if found == "512"), "{problems:?}");
        assert!(problems[0].to_string().contains("to 512: it is not restored"));
        assert_eq!((tree.get("queue/read_ahead_kb"), tree.get("queue/nomerges")), ("512".into(), "0".into()));
        saved.trial = true;
        assert_eq!(saved.restore(&tree.0), [], "while values are tried the kernel may have made it");
    }

    #[test]
    fn a_disk_that_is_gone_or_another_is_left_alone() {
        let tree = Tree::new("gone");
        tree.put("queue/read_ahead_kb", "128\n");
        let saved = tree.saved(&[("read_ahead", &["0"])]);
        tree.put("queue/read_ahead_kb", "0");
        tree.put("diskseq", "8\n");
        assert_eq!(saved.restore(&tree.0), [Problem::Gone { disk: "loop7".into() }]);
        assert_eq!(tree.get("queue/read_ahead_kb"), "0");
        fs::remove_dir_all(tree.0.join("sys/block/loop7")).unwrap();
        assert_eq!(saved.restore(&tree.0), [Problem::Gone { disk: "loop7".into() }]);
    }

    /// Before Linux 5.15 there is no sequence number.
    #[test]
    fn a_loop_device_that_is_detached_is_gone() {
        let tree = Tree::new("detached");
        tree.put("queue/read_ahead_kb", "128\n");
        tree.put("size", "2048\n");
        let saved = tree.saved(&[("read_ahead", &["0"])]);
        tree.put("queue/read_ahead_kb", "0");
        assert_eq!(saved.gone(&tree.0), None);
        tree.put("size", "0\n");
        assert_eq!(saved.restore(&tree.0), [Problem::Gone { disk: "loop7".into() }]);
        assert_eq!(tree.get("queue/read_ahead_kb"), "0");
        let keys = [(Key::parse("read_ahead").unwrap().unwrap(), Vec::new())];
        let why = SavedSettings::read(&tree.0, Some("loop7"), &keys).unwrap_err().to_string();
        assert!(why.starts_with("loop7 has no size"), "{why}");
    }

    #[test]
    fn a_key_that_the_disk_lacks_is_named() {
        let tree = Tree::new("lacks");
        let keys = [(Key::parse("wbt").unwrap().unwrap(), Vec::new())];
        let why = SavedSettings::read(&tree.0, Some("loop7"), &keys).unwrap_err().to_string();
        assert!(why.starts_with("loop7 has no wbt: "), "{why}");
        assert!(
            SavedSettings::read(&tree.0, None, &keys).unwrap_err().to_string().contains("name it with -d")
        );
    }

    /// The file has a line per disk; without a line there is no limit.
    #[test]
    fn limits_of_a_cgroup_are_those_of_the_disk() {
        let tree = Tree::new("cgroup");
        tree.put("dev", "7:7\n");
        tree.put("queue/nomerges", "0\n");
        let folder = tree.0.join("sys/fs/cgroup/a.slice");
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("io.max");
        let other = "8:0 rbps=1 wbps=max riops=max wiops=max\n";
        fs::write(&file, other).unwrap();
        fs::write(folder.join("io.weight"), "default 100\n8:0 7\n").unwrap();
        let ours = "rbps=max wbps=max riops=1000 wiops=max";
        let mut saved =
            tree.saved(&[("cgroup:/a.slice:io.max", &[ours]), ("cgroup:/a.slice:io.weight", &["200"])]);
        saved.trial = false;
        let old: Vec<&str> = saved.settings.iter().map(|setting| setting.old.as_str()).collect();
        assert_eq!(old, ["rbps=max wbps=max riops=max wiops=max", "100"]);
        assert!(saved.is_plausible(&tree.0));
        // The kernel keeps the lines of other disks; this plain file has what was written last.
        saved.settings[0].set(ours).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("7:7 {ours}"));
        saved.settings[1].set("200").unwrap();
        assert_eq!(saved.restore(&tree.0), []);
        assert_eq!(fs::read_to_string(&file).unwrap(), "7:7 rbps=max wbps=max riops=max wiops=max");
        assert_eq!(fs::read_to_string(folder.join("io.weight")).unwrap(), "default 100");
        fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(&saved.restore(&tree.0)[..], [Problem::NoCgroup { .. }, Problem::NoCgroup { .. }]));
        let keys = [(Key::parse("cgroup:/a.slice:io.max").unwrap().unwrap(), Vec::new())];
        let why = SavedSettings::read(&tree.0, Some("loop7"), &keys).unwrap_err().to_string();
        assert!(why.contains("/a.slice/io.max does not exist: enable its controller"), "{why}");
        assert!(
            SavedSettings::read(&tree.0, None, &keys).unwrap_err().to_string().contains("name it with -d")
        );
    }

    #[test]
    fn a_value_is_read_back() {
        let tree = Tree::new("set");
        tree.put("queue/nomerges", "0\n");
        let saved = tree.saved(&[("nomerges", &["2"])]);
        saved.settings[0].set("2").unwrap();
        assert_eq!(tree.get("queue/nomerges"), "2");
        fs::remove_file(&saved.settings[0].path).unwrap();
        assert!(saved.settings[0].set("1").unwrap_err().to_string().contains("the device is gone"));
        assert!(!saved.settings[0].path.exists(), "no file is made");
    }
}
