//! Makes a directory on the disk of the build, where direct I/O works. It is removed with the test.

pub mod small;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

pub const MIB: u64 = 1 << 20;

#[derive(Debug)]
pub struct Dir(PathBuf);

impl Dir {
    pub fn new(test: &str) -> Self {
        let name = format!("{test}-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub fn join(&self, name: &str) -> String {
        format!("{}/{name}", self.path())
    }

    /// Makes a file whose bytes are all written, and none of them 0.
    pub fn file(&self, name: &str, bytes: u64) -> String {
        let path = self.join(name);
        let mut file = File::create(&path).unwrap();
        let content: Vec<u8> = (0..bytes).map(|at| (at % 4096 % 255 + 1) as u8).collect();
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // A second panic while a test fails would hide the first one.
        let _kept = fs::remove_dir_all(&self.0);
    }
}
