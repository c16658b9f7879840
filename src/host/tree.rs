//! Writes a tree of `/proc` and `/sys` files for tests of the parsers.

use std::fs;
use std::path::{Path, PathBuf};

/// Removed at the end.
pub struct Tree(PathBuf);

impl Tree {
    /// `name`: the name of the test, so that concurrent tests have separate trees.
    pub fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let tree = Self(std::env::temp_dir().join(format!("biopsy-tree-{name}-{}", std::process::id())));
        files.iter().for_each(|(path, text)| tree.write(path, text.as_bytes()));
        tree
    }

    pub fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub fn root(&self) -> &Path {
        &self.0
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}
