//! Tests the layers of `src/lib.rs`: which room may use which, and what only one room may use.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A room and the rooms that it may use: the diagram in `src/lib.rs` as data.
const ROOMS: &[(&str, &[&str])] = &[
    ("session", &["probe", "analyze", "wire", "host", "load", "symbols", "envelope", "clock", "refusal"]),
    ("probe", &["wire", "host", "envelope", "clock", "refusal"]),
    ("load", &["wire", "hist", "host", "clock", "names", "refusal"]),
    ("experiment", &["load", "settings", "host", "envelope", "refusal", "units", "names", "stats"]),
    ("analyze", &["wire", "hist", "host", "envelope", "load", "symbols", "merge", "names", "stats"]),
    ("symbols", &["host", "envelope", "refusal"]),
    (
        "rules",
        &["findings", "analyze", "hist", "host", "load", "experiment", "envelope", "merge", "stats", "units"],
    ),
    (
        "render",
        &[
            "analyze",
            "findings",
            "rules",
            "hist",
            "host",
            "load",
            "experiment",
            "recording",
            "merge",
            "envelope",
            "stats",
            "units",
        ],
    ),
    ("wire", &["hist", "host", "names"]),
    ("host", &["refusal"]),
    ("settings", &["refusal"]),
    ("clock", &[]),
    ("findings", &[]),
    ("hist", &[]),
    ("merge", &["hist"]),
    ("recording", &["envelope", "merge", "clock"]),
    ("envelope", &["merge", "names"]),
    ("names", &[]),
    ("refusal", &[]),
    ("stats", &[]),
    ("units", &[]),
];

/// A crate, and the only room that may use it.
const CRATES: &[(&str, &str)] = &[
    ("libbpf_rs", "probe"),
    ("io_uring", "load"),
    ("blazesym", "symbols"),
    ("inferno", "render"),
    ("prost", "render"),
    ("tar", "recording"),
    ("zstd", "recording"),
];

/// Rooms in which the same summary must give the same bytes.
const PURE: &[&str] = &["analyze", "findings", "rules", "render", "units"];

/// Items that would make these rooms depend on the time and place of a run.
const IMPURE: &[&str] = &[
    "std::time::Instant",
    "std::time::SystemTime",
    "std::fs",
    "std::thread",
    "std::process",
    "std::env",
    "std::net",
    "jiff",
];

/// A source file and all paths in it, from the root of its crate.
struct Source {
    file: PathBuf,
    room: String,
    paths: BTreeSet<String>,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The source files of `src` or `tools`.
fn sources(directory: &str) -> Vec<Source> {
    let top = root().join(directory);
    let mut files = Vec::new();
    rust_files(&top, &mut files);
    assert!(!files.is_empty());
    files.sort();
    files
        .into_iter()
        .map(|file| {
            let below = file.strip_prefix(&top).unwrap().with_extension("");
            let module: Vec<String> =
                below.iter().map(|part| part.to_string_lossy().into_owned()).filter(|p| p != "mod").collect();
            let text = fs::read_to_string(&file).unwrap();
            let paths = paths(&text).iter().map(|path| from_root(path, &module)).collect();
            Source { file: file.strip_prefix(root()).unwrap().to_path_buf(), room: module[0].clone(), paths }
        })
        .collect()
}

/// All paths of a text, with groups such as `use a::{b, c::d}` expanded, without comments.
fn paths(text: &str) -> BTreeSet<String> {
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| [line, "\n"])
        .collect();
    let mut found = BTreeSet::new();
    for statement in code.split(';') {
        // Before `use` is the brace of the previous item, an attribute, or `pub`.
        let starts = |at: &usize| statement[..*at].chars().next_back().is_none_or(char::is_whitespace);
        if let Some(at) = statement.rfind("use ").filter(starts) {
            spell_out("", &statement[at + "use ".len()..], &mut found);
        }
    }
    let in_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    // `a::` alone is the start of a group.
    let whole = |word: &&str| word.contains("::") && !word.ends_with("::");
    found.extend(code.split(|c| !in_path(c)).filter(whole).map(str::to_string));
    found
}

/// The leaves of a use tree below `prefix`.
fn spell_out(prefix: &str, tree: &str, found: &mut BTreeSet<String>) {
    let mut depth = 0;
    let mut start = 0;
    // Only the tree's own commas separate; commas in braces belong to an inner tree.
    for (at, c) in tree.char_indices().chain([(tree.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth <= 0 => {
                let part = tree[start..at].trim();
                start = at + 1;
                if let Some((head, rest)) = part.split_once('{') {
                    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
                    spell_out(&format!("{prefix}{}", head.trim()), inner, found);
                } else if let Some(name) = part.split_whitespace().next() {
                    found.insert(format!("{prefix}{name}"));
                }
            }
            _ => {}
        }
    }
}

/// A path of a file with `super::` or `self::` as a path from the root of the crate.
fn from_root(path: &str, module: &[String]) -> String {
    let mut here = module.to_vec();
    let mut rest = path;
    loop {
        if let Some(next) = rest.strip_prefix("super::") {
            here.pop();
            rest = next;
        } else if let Some(next) = rest.strip_prefix("self::") {
            rest = next;
        } else if rest.len() == path.len() {
            return path.to_string();
        } else {
            return [&["crate".to_string()], &here[..], &[rest.to_string()]].concat().join("::");
        }
    }
}

fn segment(path: &str, index: usize) -> Option<&str> {
    path.split("::").nth(index)
}

#[test]
fn every_room_has_its_place() {
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let declared: BTreeSet<&str> =
        lib.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    let known: BTreeSet<&str> = ROOMS.iter().map(|(room, _)| *room).collect();
    assert_eq!(declared, known, "a new room needs its arrows here and in the picture of src/lib.rs");
}

#[test]
fn dependencies_point_one_way() {
    let mut wrong = Vec::new();
    for source in sources("src").iter().filter(|s| s.room != "lib") {
        let (_, allowed) = ROOMS.iter().find(|(room, _)| *room == source.room).unwrap();
        for path in source.paths.iter().filter(|path| path.starts_with("crate::")) {
            let Some((used, _)) = ROOMS.iter().find(|(room, _)| segment(path, 1) == Some(room)) else {
                continue;
            };
            if *used != source.room && !allowed.contains(used) {
                wrong.push(format!("{}: {path}", source.file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "not among the arrows of src/lib.rs:\n{}", wrong.join("\n"));
}

/// Removes repeatedly from a graph the nodes that use no remaining node. What is left are its cycles and the nodes that
/// lead to them.
fn cycles(mut left: BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    loop {
        let names: BTreeSet<String> = left.keys().cloned().collect();
        left.retain(|name, uses| uses.iter().any(|used| used != name && names.contains(used)));
        if left.len() == names.len() {
            return left.into_keys().collect();
        }
    }
}

/// With a cycle the layers would have no meaning.
#[test]
fn the_arrows_have_no_cycle() {
    let uses = |uses: &[&str]| uses.iter().map(|used| used.to_string()).collect();
    let rooms = ROOMS.iter().map(|(room, used)| (room.to_string(), uses(used)));
    assert_eq!(cycles(rooms.collect()), Vec::<String>::new());
}

/// The files of the room `probe`, together with the folders of the same names.
#[test]
fn the_probes_have_no_cycle() {
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources("src/probe") {
        let used = source.paths.iter().filter_map(|path| {
            // Here `super::` leads to the root of this folder.
            let below = path.strip_prefix("crate::probe::").or(path.strip_prefix("crate::"))?;
            segment(below, 0).map(str::to_string)
        });
        graph.entry(source.room).or_default().extend(used);
    }
    assert!(graph["preflight"].contains("registry") && graph["registry"].contains("locks"));
    assert_eq!(cycles(graph), Vec::<String>::new());
}

/// The headers of the kernel side, whose include guards would hide a cycle.
#[test]
fn the_kernel_side_has_no_cycle() {
    let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in fs::read_dir(root().join("bpf")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "h") {
            let text = fs::read_to_string(&path).unwrap();
            let used = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            graph.insert(name, used.map(str::to_string).collect());
        }
    }
    assert!(graph["request_ios.h"].contains("op_table.h") && graph["op_table.h"].contains("bios.h"));
    assert_eq!(cycles(graph), Vec::<String>::new());
}

/// The diagram in `src/lib.rs` shows the rules of this file.
#[test]
fn the_picture_shows_these_arrows() {
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    for (room, uses) in ROOMS.iter().filter(|(_, uses)| !uses.is_empty()) {
        let line = lib
            .lines()
            .filter_map(|line| line.strip_prefix("//!")?.trim().split_once('>'))
            .find(|(head, _)| head.trim_end_matches('-').trim() == *room)
            .unwrap_or_else(|| panic!("no arrow of {room} in src/lib.rs"))
            .1;
        // Text in brackets or after two blanks is a remark.
        let list = line.trim().split("  ").next().unwrap();
        let shown: BTreeSet<&str> =
            list.split(',').map(|word| word.split('(').next().unwrap().trim()).collect();
        assert_eq!(shown, uses.iter().copied().collect(), "the arrows of {room} in src/lib.rs");
    }
}

#[test]
fn a_crate_with_a_room_of_its_own_stays_there() {
    for source in sources("src").iter().chain(&sources("tools")) {
        for path in &source.paths {
            if let Some((name, room)) = CRATES.iter().find(|(name, _)| segment(path, 0) == Some(name)) {
                assert_eq!(source.room, *room, "{} knows {name}: {path}", source.file.display());
            }
        }
    }
}

#[test]
fn what_is_pure_has_no_clock_no_files_and_no_threads() {
    for source in sources("src").iter().filter(|s| PURE.contains(&s.room.as_str())) {
        for path in &source.paths {
            let found = IMPURE.iter().find(|name| path == **name || path.starts_with(&format!("{name}::")));
            assert_eq!(found, None, "{} uses {path}", source.file.display());
        }
    }
}

/// With two readers of the clock, stamps could differ, and stages are differences of stamps.
#[test]
fn the_clock_of_all_stamps_has_one_reader() {
    for source in sources("src").iter().chain(&sources("tools")) {
        let reads = source.paths.contains("libc::clock_gettime");
        assert_eq!(
            reads,
            source.room == "clock" && source.file.starts_with("src"),
            "{}",
            source.file.display()
        );
    }
}

/// The layout of an NVMe command and the numbers of the driver's ioctls are written by hand: in two places they could
/// differ.
#[test]
fn a_command_to_a_drive_is_spelt_out_once() {
    let mut files = Vec::new();
    ["src", "tools", "benches"].iter().for_each(|directory| rust_files(&root().join(directory), &mut files));
    for word in ["0x4e40", "0xc048_4e41", "0xc048_4e43", "cdw15: u32"] {
        let has = |file: &&PathBuf| fs::read_to_string(file).unwrap().contains(word);
        let found: Vec<&PathBuf> = files.iter().filter(has).collect();
        assert_eq!(found, [&root().join("src/host/nvme/command.rs")], "{word}");
    }
}

/// The command line uses the rooms by their public names only.
#[test]
fn tools_know_the_rooms_only() {
    for source in sources("tools") {
        for path in source.paths.iter().filter(|path| segment(path, 0) == Some("biopsy")) {
            let room = segment(path, 1).unwrap();
            assert!(ROOMS.iter().any(|(known, _)| *known == room), "{}: {path}", source.file.display());
        }
    }
}

#[test]
fn a_path_is_found_however_it_is_written() {
    let text = "use crate::{wire, host::{self, Host}};\n// crate::probe::x\npub use std::fs::{self, File};\n\
                mod tests {\n    use super::super::render;\n    fn f() { crate::load::go(std::env::args()) }\n}\n";
    let module = ["rules".to_string(), "cpu".to_string()];
    let all: BTreeSet<String> = paths(text).iter().map(|path| from_root(path, &module)).collect();
    for path in ["crate::wire", "crate::host::Host", "std::fs::File", "std::env::args", "crate::load::go"] {
        assert!(all.contains(path), "{path} is not in {all:?}");
    }
    assert!(all.contains("crate::render"), "{all:?}");
    assert!(!all.iter().any(|path| path.contains("probe")), "{all:?}");
}
