//! A place in a file: what an address of a process means on every machine that has the file.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::host::elf::BuildId;

/// Location of a user frame's code.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// None: the file had none, or could not be read. Then it is unknown whether another file is the same.
    pub build_id: Option<BuildId>,
    /// The path as the process saw it, or `[vdso]` and the like. Untrusted.
    pub file: Arc<str>,
    /// File offset in bytes.
    pub offset: u64,
    /// Address in the file's own tables: what `addr2line` takes, and what a debug file is searched by (which has no
    /// offsets). None if the file's tables could not be read.
    pub address: Option<u64>,
}

impl Place {
    /// `[file]+0x1234`: the label of a place without a name.
    pub fn label(&self) -> String {
        let name = self.file.rsplit('/').next().unwrap_or_default();
        let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        format!("[{}]+{:#x}", if name.is_empty() { "anon" } else { name }, self.offset)
    }
}

/// Places by label; labels that several places share are excluded.
pub fn by_label<'a>(places: impl IntoIterator<Item = &'a Place>) -> BTreeMap<String, Place> {
    let mut all: BTreeMap<String, Option<&Place>> = BTreeMap::new();
    for place in places {
        let kept = all.entry(place.label()).or_insert(Some(place));
        *kept = kept.filter(|kept| *kept == place);
    }
    all.into_iter().filter_map(|(label, place)| Some((label, place?.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_nobody_names_says_where_it_is() {
        let label =
            |file: &str| Place { build_id: None, file: file.into(), offset: 0x1f, address: None }.label();
        assert_eq!(label("/usr/lib/libx.so.6"), "[libx.so.6]+0x1f");
        assert_eq!(label("[vdso]"), "[vdso]+0x1f");
        assert_eq!(label(""), "[anon]+0x1f");
    }
}
