//! Compares the gaps that the tree can report with the words that the text has for them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use biopsy::host::cpu_counters::CounterEvent;
use biopsy::render::gaps;

/// What precedes the key of a gap in the files that make gaps.
const BEFORE: [&str; 11] = [
    "part: Some(",
    "gap(",
    "lacks(",
    "add(",
    "of(",
    "missing(",
    "refused(",
    "not_recorded(",
    "one(",
    "Part(",
    "const USER_SYMBOLS: &str =",
];

/// A program's name, which follows `of(`.
const NO_GAP: &str = "note_bio";

/// Gaps that have the name of a view of `record`, and those that have the name of a recorded schema.
const VIEWS: [&str; 9] =
    ["latency", "interrupts", "locks", "threads", "stacks", "errors", "top", "system", "trace"];

const EVENTS: [CounterEvent; 5] = [
    CounterEvent::Cycles,
    CounterEvent::Instructions,
    CounterEvent::FrontendStalls,
    CounterEvent::BackendStalls,
    CounterEvent::CpuClock,
];

fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push(path);
        }
    }
}

/// The literals that follow one of [`BEFORE`], without those of tests.
fn parts(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let after = |before: &str| {
        // Neither a longer name nor `generator::missing(WHY)`.
        let is_call = |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c));
        let found = code.match_indices(before).filter(|(at, _)| is_call(*at) || before == "gap(");
        let rests = found.map(|(at, _)| code[at + before.len()..].trim_start());
        let literals = rests.filter_map(|rest| rest.strip_prefix('"')?.split('"').next());
        literals.map(str::to_string).collect::<Vec<_>>()
    };
    BEFORE.iter().flat_map(|before| after(before)).collect()
}

#[test]
fn every_gap_has_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "tools"] {
        sources(&root.join(folder), &mut files);
    }
    let mut all = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let is_test = file.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("tests"));
        // The gaps of a diagnosis have sentences.
        let has_words = file.ends_with("src/rules/coverage.rs");
        if !is_test
            && !has_words
            && ["Missing {", "gap(", "not_recorded("].iter().any(|makes| text.contains(makes))
        {
            all.extend(parts(&text));
        }
    }
    for sure in ["kernel_ios", "spin", "cost.pagecache", "reclaims.kswapd.time", "wakeups", "user-symbols"] {
        assert!(all.contains(sure), "the search misses {sure}: {all:?}");
    }
    all.remove(NO_GAP);
    all.extend(VIEWS.map(str::to_string));
    all.extend(EVENTS.map(|event| event.name().to_string()));
    all.extend(["paths".to_string(), "paths: folio_add_lru".to_string()]);
    let without: Vec<&String> = all.iter().filter(|part| gaps::words(part).is_none()).collect();
    assert!(without.is_empty(), "no words in src/render/gaps.rs for {without:?}");
    let keys =
        |words: &str| words.contains('_') || words.contains(".pagecache") || words.contains("reclaims.");
    let raw: Vec<String> = all.iter().filter_map(|part| gaps::words(part)).filter(|w| keys(w)).collect();
    assert_eq!(raw, ["shares of LRU functions (folio_add_lru)"], "keys are no words");
}
