//! Makes loop devices over memory for tests, and removes them. Their completions run in kernel workers, so that every
//! event is delivered.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::skip::skipped;
use crate::support::tool;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A loop device. It is detached at the end, after its settings were restored.
#[derive(Debug)]
pub struct Disk {
    /// `loop3`.
    pub name: String,
    /// `/dev/loop3`.
    pub path: String,
    pub bytes: u64,
    /// The original settings of the queue: a loop device keeps changed settings after it is detached.
    settings: Vec<(PathBuf, String)>,
}

/// The fields of `/sys/class/block/D/stat` that count I/Os, of a disk or partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub reads: u64,
    pub read_merges: u64,
    pub writes: u64,
    pub discards: u64,
    pub flushes: u64,
}

impl Stat {
    pub fn read(name: &str) -> Self {
        let text = fs::read_to_string(Path::new("/sys/class/block").join(name).join("stat")).unwrap();
        let fields: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or(0);
        Self {
            reads: field(0),
            read_merges: field(1),
            writes: field(4),
            discards: field(11),
            flushes: field(15),
        }
    }

    pub fn since(self, then: Self) -> Self {
        Self {
            reads: self.reads - then.reads,
            read_merges: self.read_merges - then.read_merges,
            writes: self.writes - then.writes,
            discards: self.discards - then.discards,
            flushes: self.flushes - then.flushes,
        }
    }

    pub fn ios(self) -> u64 {
        self.reads + self.writes + self.discards + self.flushes
    }
}

impl Disk {
    /// None: this machine cannot make or trace a loop device, and the test is skipped.
    pub fn new(mib: u64) -> Option<Self> {
        if !tool::is_root() {
            skipped("a loop device needs root");
            return None;
        }
        if let Some(why) = tool::no_tracing() {
            skipped(why);
            return None;
        }
        match Self::attach(mib) {
            Ok(disk) => Some(disk),
            Err(why) => {
                skipped(format_args!("no loop device can be made here: {why}"));
                None
            }
        }
    }

    /// Makes a loop device over another device with direct I/O, so that an I/O of the upper device is an I/O of the
    /// lower one.
    pub fn over(lower: &str, bytes: u64) -> Self {
        let made = Command::new("losetup").args(["-f", "--show", "--direct-io=on", lower]).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let path = String::from_utf8_lossy(&made.stdout).trim().to_string();
        fs::File::open(&path).unwrap();
        Self { name: path.trim_start_matches("/dev/").to_string(), path, bytes, settings: Vec::new() }
    }

    fn attach(mib: u64) -> Result<Self, String> {
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let file = directory.join(format!("biopsy-test-disk-{}-{number}", std::process::id()));
        let bytes = mib << 20;
        File::create(&file).and_then(|file| file.set_len(bytes)).map_err(|e| e.to_string())?;
        let made = Command::new("losetup").args(["-f", "--show"]).arg(&file).output();
        // The loop device keeps the file open from here on.
        fs::remove_file(&file).map_err(|e| e.to_string())?;
        let made = made.map_err(|e| format!("losetup: {e}"))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).trim().to_string());
        }
        let path = String::from_utf8_lossy(&made.stdout).trim().to_string();
        let name = path.trim_start_matches("/dev/").to_string();
        // Programs that examine new devices do so now, and not while I/Os are counted.
        let _none = Command::new("udevadm").args(["settle", "--timeout=2"]).output();
        Ok(Self { name, path, bytes, settings: Vec::new() })
    }

    fn queue(&self, setting: &str) -> PathBuf {
        Path::new("/sys/block").join(&self.name).join("queue").join(setting)
    }

    /// Reads a file of `/sys/block/D/queue`: the value of a switch, or the selected word of a choice.
    pub fn setting(&self, setting: &str) -> String {
        let text = fs::read_to_string(self.queue(setting)).unwrap();
        match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
            Some((chosen, _)) => chosen.to_string(),
            None => text.trim().to_string(),
        }
    }

    /// Changes a setting until the end of the test.
    pub fn set(&mut self, setting: &str, value: &str) {
        let path = self.queue(setting);
        if !self.settings.iter().any(|(changed, _)| *changed == path) {
            self.settings.push((path.clone(), self.setting(setting)));
        }
        fs::write(&path, value).unwrap_or_else(|e| panic!("{setting}={value}: {e}"));
    }

    /// The schedulers that `queue/scheduler` offers.
    pub fn schedulers(&self) -> Vec<String> {
        let text = fs::read_to_string(self.queue("scheduler")).unwrap();
        text.split_whitespace().map(|word| word.trim_matches(['[', ']']).to_string()).collect()
    }

    pub fn stat(&self) -> Stat {
        Stat::read(&self.name)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for (path, value) in self.settings.drain(..).rev() {
            if let Err(error) = fs::write(&path, &value) {
                eprintln!("{} stays changed: {error}", path.display());
            }
        }
        let detached = Command::new("losetup").args(["-d", &self.path]).status();
        if !detached.is_ok_and(|status| status.success()) {
            eprintln!("{} stays attached", self.path);
        }
    }
}
