//! Files and their I/O.

use serde_json::{Map, Value, json};

use crate::analyze::files::{File, FileIos, FileKind};

/// A file: `kind`, `device`, and of a regular one `inode` and `path` where one was found.
pub fn file(file: &File) -> Value {
    let (major, minor) = file.device;
    let mut map = Map::new();
    map.insert("kind".to_string(), json!(file.kind.name().replace(' ', "_")));
    map.insert("device".to_string(), json!(format!("{major}:{minor}")));
    if let FileKind::Regular { inode, path } = &file.kind {
        map.insert("inode".to_string(), json!(inode));
        if let Some(path) = path {
            map.insert("path".to_string(), json!(path));
        }
    }
    Value::Object(map)
}

/// The bios of a file; `file` is absent where it is not known, or where the row is of all others (`others`).
pub fn ios(ios: &FileIos) -> Value {
    let mut map = Map::new();
    map.extend(ios.file.as_ref().map(|of| ("file".to_string(), file(of))));
    if ios.others {
        map.insert("others".to_string(), json!(true));
    }
    for (key, value) in [("bios", ios.bios), ("bytes", ios.bytes), ("sampled_bios", ios.sampled)] {
        map.insert(key.to_string(), json!(value));
    }
    Value::Object(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_an_inode_and_a_path_where_it_has_them() {
        let of = |kind| file(&File { device: (8, 1), kind });
        let regular = |path: Option<&str>| FileKind::Regular { inode: 9, path: path.map(str::to_string) };
        assert_eq!(
            of(regular(Some("/a"))),
            json!({"kind": "regular", "device": "8:1", "inode": 9, "path": "/a"})
        );
        assert_eq!(of(regular(None)), json!({"kind": "regular", "device": "8:1", "inode": 9}));
        assert_eq!(of(FileKind::RawDevice), json!({"kind": "raw_device", "device": "8:1"}));
    }

    #[test]
    fn what_is_not_known_is_absent() {
        let row = |file, others| FileIos { file, others, bios: 32, bytes: 4096, sampled: 2, share: 1.0 };
        assert_eq!(ios(&row(None, false)), json!({"bios": 32, "bytes": 4096, "sampled_bios": 2}));
        assert_eq!(ios(&row(None, true))["others"], true);
    }
}
