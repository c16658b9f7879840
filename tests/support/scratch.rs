//! Makes a directory for one test, which is removed with it, or a copy of a machine of `tests/sysfs`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("biopsy-test-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.parent_of(path);
        fs::write(path, bytes).unwrap();
    }

    pub fn link(&self, path: &str, target: &str) {
        symlink(target, self.parent_of(path)).unwrap();
    }

    fn parent_of(&self, path: &str) -> PathBuf {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }
}

/// Builds the machine of `tests/sysfs/NAME.tree`, whose format is described beside it. `change` is applied to the
/// content of every file.
pub fn machine(name: &str, change: impl Fn(Vec<u8>) -> Vec<u8>) -> Scratch {
    let trees = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sysfs");
    let tree = fs::read_to_string(trees.join(format!("{name}.tree"))).unwrap();
    let scratch = Scratch::new(name);
    let mut lines = tree.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some((path, target)) = line.split_once(" -> ") {
            scratch.link(path, target);
            continue;
        }
        let (path, value) = line.split_once(" =").unwrap_or_else(|| panic!("{name}.tree: {line}"));
        let mut content = String::new();
        if let Some(value) = value.strip_prefix(' ') {
            content = format!("{value}\n");
        }
        while let Some(more) = lines.next_if(|line| line.starts_with('\t')) {
            content.push_str(&more[1..]);
            content.push('\n');
        }
        scratch.write(path, &change(content.into_bytes()));
    }
    scratch
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}
