//! Tests that each recorded run of `tests/cases` is judged by `src/rules/cases.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The rules read no files: they name each case, and this test compares the names with the folder.
#[test]
fn every_recorded_case_is_judged() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = fs::read_dir(root.join("tests/cases")).unwrap().flatten();
    let there: BTreeSet<String> = files
        .filter_map(|file| file.file_name().to_str()?.strip_suffix(".json").map(str::to_string))
        .collect();
    let source = fs::read_to_string(root.join("src/rules/cases.rs")).unwrap();
    let list = source.split_once("files! {\n").unwrap().1.split_once('}').unwrap().0;
    let judged: BTreeSet<String> =
        list.split_whitespace().map(|name| name.trim_matches('"').to_string()).collect();
    assert!(!there.is_empty());
    assert_eq!(there, judged, "the files of tests/cases, and those that src/rules/cases.rs names");
}
