//! Symbolizes code that a process generated itself, from lines of `/tmp/perf-PID.map`.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// A runtime that generates code for days may have written gigabytes.
const MOST_BYTES: u64 = 64 << 20;
/// Lines of a few bytes would take more memory than the file. The newest are kept.
const MOST_FUNCTIONS: usize = 1 << 20;

/// The functions that a process reports.
#[derive(Debug, Default)]
pub(super) struct PerfMap {
    text: Vec<u8>,
    functions: Vec<JitFunction>,
}

#[derive(Debug, PartialEq, Eq)]
struct JitFunction {
    start: u64,
    bytes: u64,
    name: Range<u32>,
}

impl PerfMap {
    /// The current content of the file: it grows while its process runs, and the newest lines are at its end.
    pub fn read(file: &File) -> Self {
        let end = file.metadata().map_or(0, |meta| meta.len());
        let from = end.saturating_sub(MOST_BYTES);
        let mut text = vec![0; (end - from) as usize];
        match file.read_exact_at(&mut text, from) {
            Ok(()) => Self::of(text),
            Err(_) => Self::default(),
        }
    }

    fn of(text: Vec<u8>) -> Self {
        let mut functions = Vec::new();
        let mut at = 0;
        for line in text.split(|&b| b == b'\n') {
            functions.extend(JitFunction::of(line, at));
            at += line.len() + 1;
            if functions.len() >= 2 * MOST_FUNCTIONS {
                functions.drain(..MOST_FUNCTIONS);
            }
        }
        functions.drain(..functions.len().saturating_sub(MOST_FUNCTIONS));
        // Equal addresses keep the order of the file.
        functions.sort_by_key(|f: &JitFunction| f.start);
        Self { text, functions }
    }

    /// The function at an address. Memory of discarded code is reused: the later line is valid.
    pub fn name(&self, address: u64) -> Option<String> {
        /// An untrusted file may have a million overlapping functions.
        const LOOKS: usize = 1000;
        let behind = self.functions.partition_point(|f| f.start <= address);
        let over = self.functions[..behind].iter().rev().take(LOOKS);
        let found = over.filter(|f| address - f.start < f.bytes).max_by_key(|f| f.name.start)?;
        let name = &self.text[found.name.start as usize..found.name.end as usize];
        Some(super::demangle::readable(&String::from_utf8_lossy(name)))
    }
}

impl JitFunction {
    /// `7f0012345678 1a0 LazyCompile:*main /app/index.js:3`, where the name may be any text.
    fn of(line: &[u8], at: usize) -> Option<Self> {
        let mut fields = line.splitn(3, |&b| b == b' ');
        let mut hex = || {
            let field = std::str::from_utf8(fields.next()?).ok()?;
            u64::from_str_radix(field.strip_prefix("0x").unwrap_or(field), 16).ok()
        };
        let (start, bytes) = (hex()?, hex()?);
        let name = fields.next()?;
        let end = (at + line.len()) as u32;
        let name = end - name.len() as u32..end;
        (bytes > 0 && !name.is_empty()).then_some(Self { start, bytes, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_names_its_own_code() {
        let map = PerfMap::of(
            b"1000 20 one\n2000 10 Lazy:*two a.js:3\nbad\n3000 0 empty\n0x4000 0x10 four\n1010 10 later\n"
                .to_vec(),
        );
        let name = |at| map.name(at);
        assert_eq!(name(0x1000).as_deref(), Some("one"));
        assert_eq!(name(0x1018).as_deref(), Some("later"), "the same memory, used again");
        assert_eq!(name(0x200f).as_deref(), Some("Lazy:*two a.js:3"));
        assert_eq!(name(0x4001).as_deref(), Some("four"));
        assert_eq!([name(0x2010), name(0x3000), name(0)], [None, None, None]);
    }

    proptest::proptest! {
        #[test]
        fn damage_never_panics(text in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300), at: u64) {
            PerfMap::of(text).name(at);
        }
    }
}
